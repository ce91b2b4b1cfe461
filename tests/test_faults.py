"Killed, out of room, locked out: nothing is lost, and what comes out in the end is the same to the byte"
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from deepgp_fss.commands import deepgp_eval, deepgp_segment, deepgp_study, deepgp_train
from deepgp_fss.base import locked
from faults import TINY, label_maps
from results import keep

HERE = Path(__file__).parent
KILLS = dict(train=50, evaluate=50, index=50, pascal=50, coco=50, features=50, segment=10)
SMALL_DISK = 'mkdir -p "$1/disk" && mount -t tmpfs -o size=12m small "$1/disk" && shift && exec "$@"'


def faults(folder, *words, before=()):
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get('PYTHONPATH')])])
    cache = str(folder/'cache')
    env = os.environ | dict(OMP_NUM_THREADS='1', TQDM_DISABLE='1', DEEPGP_FSS_CACHE=cache, PYTHONPATH=path)
    command = [*before, sys.executable, HERE/'faults.py', *words, folder]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def folder():
    "Open to other users, which pytest's own folders are not"
    path = Path(tempfile.mkdtemp(prefix='faults_')).resolve()
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.parametrize('work', KILLS)
def test_work_that_is_killed_again_and_again_comes_to_the_same_bytes(folder, work):
    result = faults(folder, work, str(KILLS[work]))
    assert result['kills'] == KILLS[work] and result['finished'] >= 1 and result['files'] >= 1
    keep('faults.json', work, result)


def failed_in_a_sentence(result, reason):
    "And once the obstacle was gone, the work came to the same result"
    assert result['status'] == 1 and result['same'], result
    assert reason in result['said'] and 'Traceback' not in result['said'], result


def small_disks_can_be_made():
    command = ['unshare', '-rm', 'sh', '-c', 'mount -t tmpfs -o size=1m small /mnt']
    try: return subprocess.run(command, capture_output=True).returncode == 0
    except OSError: return False


NO_DISK = 'a small disk needs unshare and mount, which are not allowed here'


@pytest.mark.skipif(not small_disks_can_be_made(), reason=NO_DISK)
@pytest.mark.parametrize('work', ['train', 'evaluate', 'pascal', 'segment'])
def test_a_disk_that_fills_up(folder, work):
    result = faults(folder, work, 'full', before=['unshare', '-rm', 'sh', '-c', SMALL_DISK, 'sh', folder])
    failed_in_a_sentence(result, 'No space left on device')
    assert '.../disk/cut' in result['said'], result
    if work == 'train': assert 'is intact' in result['said'] or 'no checkpoint yet' in result['said']
    keep('faults.json', f'{work}, full disk', result)


@pytest.mark.parametrize('work', ['train', 'evaluate', 'pascal', 'segment'])
def test_a_folder_that_may_no_longer_be_written(folder, work):
    result = faults(folder, work, 'readonly')
    failed_in_a_sentence(result, 'ermission denied')
    keep('faults.json', f'{work}, read-only', result)


def test_a_second_run_in_the_same_folder_is_refused(tmp_path, capsys):
    deepgp_train([*TINY.split(), '--iterations', '1', '--out', str(tmp_path/'model')])
    label_maps(tmp_path/'known', 3)
    model, known = str(tmp_path/'model'), str(tmp_path/'known')
    evaluated = [model, *'--shots 1 --episodes 2 --cpu'.split(), '--out', str(tmp_path/'eval')]
    segmented = ['--support', known, '--query', f'{known}/images', *'--model shapes --cpu'.split()]
    second = {'run': lambda out: deepgp_train([*TINY.split(), '--out', out]),
              'eval/model_shapes_fold0_1shot_seed0': lambda out: deepgp_eval(evaluated),
              'segmented': lambda out: deepgp_segment([*segmented, '--out', out]),
              'study': lambda out: deepgp_study('shapes', out=out)}
    says = 'Another run is writing into .*: choose another --out, or wait for it.'
    for name, work in second.items():
        with locked(tmp_path/name), pytest.raises(SystemExit, match=says): work(str(tmp_path/name))
        assert not list((tmp_path/name).iterdir()), name
