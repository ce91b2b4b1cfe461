"""Odd surroundings: no streams, no locks, no home, little memory, missing packages, other defaults. Each ends in a
sentence, or simply works"""
import datetime
import errno
import fcntl
import io
import os
import resource
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import ipywidgets as w
import numpy as np
import pytest
import torch
from PIL import Image

from bad_input.case import run, script
from bad_input.material import model, support
from bad_input.pictures import JPEG, png, scene
from deepgp_fss import base, process
from deepgp_fss.datasets import build_index, folder_set, open_data
from deepgp_fss.encoders import SmallEncoder, fit_state, read_state
from deepgp_fss.episodes import Episodes
from deepgp_fss.base import BadFile, cache_dir, locked
from deepgp_fss.model import load_checkpoint
from deepgp_fss.inputs import as_image, as_mask
from deepgp_fss.segmenter import FewShotSegmenter, bundled
from deepgp_fss.training import make_config, train
from deepgp_fss.widgets import Results, below, browse_widget, explore_widget, paint_widget
from faults import TINY, label_maps

BIN = Path(sys.executable).parent
# what Pillow would give to Ghostscript
PROGRAM = b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n'


def python(code, **how):
    "A process that runs Python code"
    env = os.environ | dict(OMP_NUM_THREADS='1', TQDM_DISABLE='1') | how.pop('env', {})
    return subprocess.run([sys.executable, '-c', code], env=env, text=True, capture_output=True, timeout=900, **how)


def as_program(*lines):
    "Code of a small command, as its console script would run it"
    begin = 'import sys; sys.argv[0] = "deepgp_test"', 'from deepgp_fss.process import as_command'
    return '\n'.join([*begin, 'with as_command("deepgp_test"):', *(f'    {line}' for line in lines)])


# ---- streams

def in_shell(tmp_path, words):
    "A command line of a shell, such as the user types"
    env = os.environ | dict(OMP_NUM_THREADS='1', PATH=f'{BIN}:{os.environ["PATH"]}')
    return subprocess.run(['bash', '-c', words], cwd=tmp_path, env=env, text=True, capture_output=True, timeout=900)


def test_closed_streams(tmp_path):
    "A file that is written has to hold what belongs there, and nothing that was printed"
    done = in_shell(tmp_path, f'deepgp_train {TINY} --iterations 2 --out run <&- >&- 2>&-')
    assert done.returncode == 0 and (tmp_path/'run/report.md').exists()
    assert read_state(tmp_path/'run/model.safetensors')


def test_nobody_reads_what_is_printed(tmp_path):
    made = tmp_path/'made'
    work = 'for i in range(100000): print(i)', 'print("told", file=sys.stderr)', f'open("{made}", "w").close()'
    (tmp_path/'program').write_text(as_program(*work))
    done = in_shell(tmp_path, 'python program | head -1; echo ${PIPESTATUS[0]}')
    assert done.stdout == '0\n0\n' and done.stderr == 'told\n' and made.exists()
    done = in_shell(tmp_path, 'python program 2>&1 >/dev/full | cat; echo ${PIPESTATUS[0]}')
    assert done.stdout == ('deepgp_test: the output cannot be used: No space left on device; '
                           'free some space, and run the same command again.\n1\n')


def test_letters_that_the_terminal_does_not_have():
    done = python(as_program('print("20°: ü")', 'raise ValueError("no ü.")'), env=dict(PYTHONIOENCODING='ascii'))
    assert done.stdout == '20\\xb0: \\xfc\n' and done.returncode == 1 and 'Traceback' not in done.stderr


# ---- what the process may use

def test_an_unknown_backend_of_matplotlib():
    work = as_program('import matplotlib.pyplot as plt', 'plt.figure()', 'print(plt.get_backend())')
    done = python(work, env=dict(MPLBACKEND='nonsense'))
    assert done.stdout == 'agg\n' and not done.stderr, done.stderr


def test_a_backend_that_was_chosen_in_python_stays():
    code = ('from deepgp_fss.process import as_command\nwith as_command("deepgp_test"): pass\n'
            'import os; print(os.environ["MPLBACKEND"])')
    assert python(code, env=dict(MPLBACKEND='svg')).stdout == 'svg\n'


def limited(gigabytes): return lambda: resource.setrlimit(resource.RLIMIT_AS, (int(gigabytes*2**30),)*2)


LINUX = pytest.mark.skipif(sys.platform != 'linux', reason='other systems count addresses in other ways')
ALLOCATE = 'import torch; torch.zeros(2**33)', 'x = bytearray(2**34)'


@LINUX
@pytest.mark.parametrize('gigabytes, work', [(.5, 'import torch'), *((15, work) for work in ALLOCATE)])
def test_little_memory(gigabytes, work):
    done = python(as_program(work), preexec_fn=limited(gigabytes))
    assert done.returncode == 1 and 'Traceback' not in done.stderr, done.stderr
    assert done.stderr.startswith('deepgp_test: there is not enough memory'), done.stderr


@LINUX
@pytest.mark.parametrize('work', ['segment', 'eval'])
@pytest.mark.parametrize('kilobytes', [3_300_000, 3_500_000, 3_600_000, 5_200_000])
def test_too_few_addresses_to_start(tmp_path, kilobytes, work):
    "There, imports crash, hang or interrupt themselves; so nothing is imported"
    words = dict(segment=f'--support {support()} --query {support()}', eval='shapes --shots 5 --episodes 3')[work]
    done = in_shell(tmp_path, f'ulimit -v {kilobytes}; deepgp_{work} {words} --out out --cpu')
    says = (f'deepgp_{work}: there is not enough memory: this process may address {kilobytes/2**20:.1f} GB '
            f'(ulimit -v {kilobytes})')
    assert done.returncode == 1 and done.stderr.startswith(says) and done.stderr.count('\n') == 1, done.stderr
    assert 'allow 5 GB (ulimit -v 5242880) or more' in done.stderr and not (tmp_path/'out').exists()


@LINUX
def test_just_enough_addresses(tmp_path):
    "On a machine with many cores this may be too few still; then it is said, too"
    words = f'deepgp_segment --support {support()} --query {support()} --out out --model shapes --cpu'
    done = in_shell(tmp_path, f'ulimit -v 5242880; {words}')
    if done.returncode: assert done.returncode == 1 and 'there is not enough memory' in done.stderr, done.stderr
    else: assert (tmp_path/'out/summary.json').exists()
    assert 'Traceback' not in done.stderr


@LINUX
def test_an_import_that_crashes_hangs_or_interrupts_itself(monkeypatch):
    monkeypatch.setattr(process, '_address_limit', lambda: 8*2**30)
    monkeypatch.delitem(sys.modules, 'torch')
    process._check_memory()
    # as OpenBLAS does; a test run in the background ignores the signal, and so would its children
    interrupts_itself = 'signal; signal.signal(signal.SIGINT, signal.SIG_DFL); signal.raise_signal(signal.SIGINT)'
    for code in ('os; os.abort()', interrupts_itself, 'os; raise SystemError("returned NULL")'):
        monkeypatch.setattr(process, 'IMPORTS', code)
        with pytest.raises(ValueError, match='this process may address 8.0 GB'): process._check_memory()
    assert not process._can_import('time; time.sleep(600)', patience=1)
    assert process.sentence(SystemError('returned NULL without setting an exception')).startswith('there is not enough')
    monkeypatch.setattr(process, '_address_limit', lambda: None)
    assert process.sentence(SystemError('returned NULL without setting an exception')) is None
    process._check_memory()  # without a limit nothing is tried


def no_shared_memory():
    mount = 'unshare -rm mount -t tmpfs -o size=64k x /dev/shm'
    return subprocess.run(mount.split(), capture_output=True).returncode


@pytest.mark.parametrize('words', [f'deepgp_train {TINY} --workers 1 --iterations 100000 --out out',
                                   'deepgp_eval shapes --shots 1 --workers 1 --cpu --out out'], ids=['train', 'eval'])
def test_little_shared_memory(tmp_path, words):
    if no_shared_memory(): pytest.skip('this system lets nobody have a /dev/shm of his own')
    done = in_shell(tmp_path, f"unshare -rm sh -c 'mount -t tmpfs -o size=64k x /dev/shm && exec {words}'")
    assert done.returncode == 1 and 'use --workers 0' in done.stderr.splitlines()[-1], done.stderr
    assert 'Traceback' not in done.stderr


def test_a_missing_package(tmp_path):
    (tmp_path/'weights.pth').write_bytes(b'')
    with patch.dict(sys.modules, timm=None), pytest.raises(Exception) as error:
        run('deepgp_segment', '--support', support(), '--query', support(), '--out', tmp_path/'out',
            '--weights', tmp_path/'weights.pth', '--backbone', 'timm:resnet18', '--cpu')
    assert str(error.value) == ("deepgp_segment: TimmEncoder needs timm: pip install 'deepgp_fss[timm]'. "
                                'Install what is missing, and run the same command again.')
    with patch.dict(sys.modules, {'tensorboard': None, 'torch.utils.tensorboard': None}):
        run('deepgp_train', *TINY.split(), '--iterations', 1, '--out', tmp_path/'run')
    with patch.dict(sys.modules, gpytorch=None):
        assert 'GPyTorch' not in run('deepgp_bench', 'gp', '--shots', 1, '--repeats', 1)


def test_the_temporary_folder_is_full():
    script('deepgp_demo')  # has a temporary folder of its own
    none = FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")
    with patch('tempfile.mkdtemp', side_effect=none), pytest.raises(Exception) as error: run('deepgp_demo')
    assert str(error.value) == "deepgp_demo: No usable temporary directory found in ['/tmp']."
    full = OSError(errno.ENOSPC, 'No space left on device', '/tmp/deepgp_demo_x')
    with patch('tempfile.mkdtemp', side_effect=full), pytest.raises(Exception) as error: run('deepgp_demo')
    assert str(error.value) == ('deepgp_demo: /tmp/deepgp_demo_x cannot be used: No space left on device; '
                                'free some space, and run the same command again.')


# ---- disks and homes

@pytest.mark.parametrize('number', [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
@pytest.mark.parametrize('wait', [False, True])
def test_a_disk_without_locks(tmp_path, capsys, number, wait):
    base._no_locks.cache_clear()
    with patch.object(fcntl, 'flock', side_effect=OSError(number, os.strerror(number))):
        for _ in range(2):
            with locked(tmp_path/'run', wait): (tmp_path/'run/made').touch()
    said = capsys.readouterr().err
    assert said.count('is on a disk without locks') == 1 and os.strerror(number) in said
    assert [p.name for p in (tmp_path/'run').iterdir()] == ['made']


@pytest.mark.parametrize('number', [errno.EWOULDBLOCK, errno.EACCES])
def test_another_run(tmp_path, number):
    refused = pytest.raises(BadFile, match='Another run is writing')
    with patch.object(fcntl, 'flock', side_effect=OSError(number, '')), refused:
        with locked(tmp_path/'run'): pass


def test_a_user_without_a_home(tmp_path, monkeypatch):
    for name in ('HOME', 'DEEPGP_FSS_CACHE', 'XDG_CACHE_HOME'): monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr('pwd.getpwuid', lambda _: {}['nobody'])
    with pytest.raises(BadFile, match='set DEEPGP_FSS_CACHE'): cache_dir()
    images = folder_set(label_maps(tmp_path/'set', 8))
    assert len(build_index(images, progress=False)) == 8  # beside the data, which needs no home
    monkeypatch.setattr('deepgp_fss.datasets.writable', lambda _: False)
    with pytest.raises(BadFile, match='set DEEPGP_FSS_CACHE'): build_index(images, progress=False)
    with pytest.raises(FileNotFoundError, match='no weights file'): read_state('~nobody_of_this_name/weights.pth')


def test_a_locale_without_letters(tmp_path):
    "Names that are no text in it are still names"
    image, mask = scene(0)
    for folder, name in (('known', 'ü'), ('new', 'é°')):
        (tmp_path/folder).mkdir()
        Image.fromarray(image).save(tmp_path/folder/f'{name}.jpg')
    Image.fromarray(mask).save(tmp_path/'known/ü.png')
    locale = 'export LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0'
    words = '--support known --query new --out out --classes ü'
    done = in_shell(tmp_path, f'{locale}; deepgp_segment {words} --model {model()} --cpu')
    assert done.returncode == 0, done.stderr
    assert (tmp_path/'out/masks/é°.png').exists()


# ---- what a caller may have done

@pytest.fixture
def double():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def test_float64_by_default(double, tmp_path):
    image, mask = scene(0)
    def predicted(): return FewShotSegmenter.from_pretrained('shapes', device='cpu').fit([image], [mask]).predict(image)
    now = predicted()
    torch.set_default_dtype(torch.float32)
    then = predicted()
    torch.set_default_dtype(torch.float64)
    assert now.probability.dtype == np.float32 and np.allclose(now.probability, then.probability, atol=1e-4)
    small = dict(iterations=2, batch=2, shots=1, size=48, dim=16, encoding_dim=8, decoder_width=16)
    config = make_config('shapes', dict(name='shapes', n_train=60, n_val=60, side=48), **small)
    assert train(config, tmp_path/'run', progress=False, cpu=True).exists()


# ---- weights

@pytest.mark.parametrize('kind', [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_precision_are_fine(kind):
    net = SmallEncoder(16)
    state = {k: v.to(kind) for k, v in SmallEncoder(16).state_dict().items()}
    fit_state(net, state, 'a.pth')
    assert all(torch.equal(v, state[k].float()) for k, v in net.state_dict().items())


@pytest.mark.parametrize('spoil, says', [
    (lambda s: s | {'0.weight': s['0.weight'].long()}, '0.weight holds whole numbers'),
    (lambda s: s | {'0.weight': s['0.weight'] > 0}, '0.weight holds whole numbers'),
    (lambda s: s | {'1.running_var': s['1.running_var'] - 2}, '1.running_var holds negative variances'),
    (lambda s: s | {'0.bias': s['0.bias'].double() + 1e300}, '0.bias holds values that are not real, finite numbers')])
def test_weights_that_are_none(spoil, says):
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4))
    fit_state(net, net.state_dict(), 'a.pth')
    with pytest.raises(ValueError, match=f'a.pth cannot be used: {says}'):
        fit_state(net, spoil(dict(net.state_dict())), 'a.pth')


# ---- images that somebody else has opened

@pytest.mark.parametrize('read', [as_image, lambda x: as_mask(x, (10, 10))])
def test_an_opened_program_is_not_run(read):
    with patch('PIL.EpsImagePlugin.Ghostscript', side_effect=AssertionError('it was run')):
        with pytest.raises(BadFile, match='format EPS, which is not decoded here'):
            read(Image.open(io.BytesIO(PROGRAM)))


def test_an_opened_photograph_is_fine(tmp_path):
    image = Image.fromarray(scene(0)[0])
    for kind in ('JPEG', 'PNG', 'TIFF', 'WEBP', 'BMP', 'GIF', 'PPM', 'MPO'):
        image.save(tmp_path/'x', kind, **(dict(save_all=True, append_images=[image]) if kind == 'MPO' else {}))
        assert as_image(Image.open(tmp_path/'x')).shape == (64, 64, 3)
        assert as_image(tmp_path/'x').shape == (64, 64, 3)
    assert as_image(image).shape == (64, 64, 3)


# ---- widgets: names and files of strangers

HOSTILE = '<img src=x onerror="alert(1)">'


def pages(widget):
    "All HTML that a widget shows"
    return [x.value for x in below(widget) if isinstance(x, w.HTML)]


def upload(name, content):
    then = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    return dict(name=name, type='image/jpeg', size=len(content), content=memoryview(content), last_modified=then)


def test_uploads_go_through_the_door_of_files(tmp_path):
    image = io.BytesIO()
    Image.fromarray(scene(0)[0]).save(image, 'png')
    app = paint_widget(folder=tmp_path)
    (files, pick), status = app.children[0].children, app.children[3]
    bomb = png(60_000, 60_000, 1, 0, b'')
    with patch('PIL.EpsImagePlugin.Ghostscript', side_effect=AssertionError('it was run')):
        for name, content, says in (
            ('cat.jpg', PROGRAM, 'cat.jpg cannot be read as an image (it is in none of the formats'),
            ('bomb.png', bomb, 'bomb.png cannot be read as an image (DecompressionBombError'),
            ('cut.jpg', JPEG[:300], 'cut.jpg cannot be read as an image'),
            ('empty.png', b'', 'empty.png cannot be read as an image')):
            files.value = [upload(name, content)]
            assert says in status.value and name not in pick.options
    files.value = [upload(HOSTILE, image.getvalue())]
    assert pick.value == HOSTILE and not [page for page in pages(app) if '<img' in page]


def test_names_in_html_are_escaped():
    model = load_checkpoint(bundled('shapes'))
    data = open_data('shapes', n_val=60).test
    data.images.classes = (HOSTILE,)*len(data.images.classes)
    app = explore_widget(model, data)
    with patch('deepgp_fss.widgets.Explorer.solve', side_effect=ValueError(HOSTILE)):
        app.children[1].children[0].value = 1
    assert any('&lt;img' in page for page in pages(app)) and not [page for page in pages(app) if '<img' in page]
    page = browse_widget(Results({HOSTILE: model}, Episodes(data, 1, 96, train=False, length=1)))
    assert any('&lt;img' in text for text in pages(page)) and not [text for text in pages(page) if '<img' in text]
