"The package as others get it: a wheel, an empty folder, no network, five photographs"
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINES = '''
from pathlib import Path
import deepgp_fss, json, sys, time, torch
from deepgp_fss.samples import SAMPLES, load_sample
from deepgp_fss.segmenter import FewShotSegmenter
assert Path(deepgp_fss.__file__).is_relative_to(sys.argv[1]), deepgp_fss.__file__
photographs, masks = (sorted(Path(sys.argv[1]).parent.glob(f'mine/{kind}/*')) for kind in ('images', 'masks'))
segmenter = FewShotSegmenter.from_pretrained()
segmenter.fit(photographs[:2], masks[:2])
found = [segmenter.predict(path) for path in photographs]
free = FewShotSegmenter.training_free(size=320).fit(photographs[:2], masks[:2]).predict(photographs[2])
share = [float((out.mask > 0).mean()) for out in [*found, free]]
print(json.dumps(dict(share=share, choice=segmenter.choice, samples=[len(load_sample(n).images) for n in SAMPLES])))
'''


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    "A folder with nothing but what is in the wheel"
    place = tmp_path_factory.mktemp('wheel')
    source = place/'source'
    source.mkdir()
    for name in ('setup.py', 'settings.ini', 'README.md', 'LICENSE'): shutil.copy(ROOT/name, source/name)
    shutil.copytree(ROOT/'deepgp_fss', source/'deepgp_fss', ignore=shutil.ignore_patterns('__pycache__'))
    words = [sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps', '--no-index', '--no-build-isolation',
             '--wheel-dir', place, source]
    made = subprocess.run(words, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (wheel,) = place.glob('*.whl')
    with zipfile.ZipFile(wheel) as archive: archive.extractall(place/'site')
    return place/'site'


def test_weights_pictures_and_licences_are_in_the_wheel(site):
    def files(folder): return {p.relative_to(folder) for p in folder.rglob('*') if p.is_file()}
    for data in ('pretrained', 'pictures'):
        here = {p for p in files(ROOT/'deepgp_fss'/data) if '__pycache__' not in p.parts}
        assert files(site/'deepgp_fss'/data) == here and here
    assert (site/'deepgp_fss/pretrained/photographs.safetensors').stat().st_size < 30e6
    assert sum(p.stat().st_size for p in (site/'deepgp_fss/pictures').rglob('*') if p.is_file()) < 2e6


def test_photographs_are_segmented_from_the_wheel_without_a_network(site):
    mine, pictures = site.parent/'mine', site/'deepgp_fss/pictures/coins'
    shutil.copytree(pictures, mine)
    env = os.environ | dict(PYTHONPATH=str(site), http_proxy='http://127.0.0.1:9', https_proxy='http://127.0.0.1:9',
                            HOME=str(site.parent), XDG_CACHE_HOME=str(site.parent/'cache'))
    done = subprocess.run([sys.executable, '-c', LINES, site], cwd=site.parent, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said['samples'] == [4, 4, 4, 2] and all(.15 < share < .6 for share in said['share']), said
    assert 'the support images find each other with IoU' in said['choice']
    assert not (site.parent/'cache').exists()
