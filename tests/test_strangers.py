"Files, names and models from strangers: nothing of them is executed, and nothing is written where it was not asked for"
import ast
import configparser
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bad_input.pictures import Evil
from deepgp_fss.encoders import read_state

ROOT, BIN = Path(__file__).parent.parent, Path(sys.executable).parent
MODULES = sorted((ROOT/'deepgp_fss').glob('*.py'))
SCRIPTS = [*sorted((ROOT/'.ci').glob('*.py')), ROOT/'setup.py']
IMPORTS = dict(pillow='PIL', scikit_learn='sklearn')  # names of packages that are imported under another one
TOOLS = dict(  # used without an import statement
    jupyterlab='jupyter-lab|jupyter lab|jupyterlab', ipykernel='kernelspec', nbdev='nbdev_export', voila='voila',
    nbconvert='nbconvert', pytest_xdist=r'pytest -q -n', pytest_randomly='pytest', ruff='ruff check',
    tensorboard='tensorboard',
    timm='timm', torchmetrics='torchmetrics', huggingface_hub='huggingface_hub', playwright='playwright')


# ---- what the source does not hold

UNPICKLERS = {'pickle', 'cPickle', 'dill', 'cloudpickle', 'joblib', 'marshal', 'shelve', 'yaml'}
FORBIDDEN = ('eval', 'exec', 'compile', '__import__', 'os.system', 'os.popen', 'subprocess.getoutput',
             'subprocess.getstatusoutput')
COMMANDS = {f'subprocess.{name}' for name in ('run', 'Popen', 'call', 'check_call', 'check_output')}


@cache
def tree(path): return ast.parse(path.read_text())


def imported_by(path):
    "Names of the packages that a file imports, but for those of its own package"
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import): names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level: names = [node.module]
        else: continue
        yield from (name.partition('.')[0] for name in names)


def calls(path):
    "Dotted names of all functions that a file calls, with the call"
    return [(ast.unparse(node.func), node) for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]


@pytest.mark.parametrize('path', [*MODULES, *SCRIPTS], ids=lambda p: p.name)
def test_nothing_is_unpickled_evaluated_or_given_to_a_shell(path):
    assert not set(imported_by(path)) & UNPICKLERS
    for name, call in calls(path):
        options = {k.arg: ast.unparse(k.value) for k in call.keywords}
        assert name not in FORBIDDEN, (name, call.lineno)
        assert options.get('shell', 'False') == 'False', call.lineno
        if name == 'torch.load': assert options.get('weights_only') == 'True', call.lineno
        if name in ('np.load', 'numpy.load'): assert options.get('allow_pickle', 'False') == 'False', call.lineno
        if name in COMMANDS: assert isinstance(call.args[0], ast.List), f'line {call.lineno}: not a list of words'


def test_pages_and_widgets_are_for_this_machine_only():
    makefile = (ROOT/'Makefile').read_text()
    for line in makefile.splitlines():
        if '$(BIN)' not in line: continue
        if 'voila ' in line: assert '--Voila.ip=127.0.0.1' in line, line
        if 'jupyter' in line and 'lab' in line: assert '--ip' not in line or '--ip=127.0.0.1' in line, line
    for path in [*MODULES, *SCRIPTS, ROOT/'Makefile', *ROOT.glob('.github/**/*.y*ml')]:
        assert '0.0.0.0' not in path.read_text(), path


# ---- dependencies

def requirements(key):
    parser = configparser.ConfigParser(delimiters=['='])
    parser.read(ROOT/'settings.ini')
    return parser['DEFAULT'][f'{key}requirements'].split()


def package(requirement): return re.match(r'[\w-]+', requirement)[0].replace('-', '_').lower()


def imported(paths):
    names = {name for path in paths for name in imported_by(path)}
    return names - set(sys.stdlib_module_names) - {'deepgp_fss'}


@pytest.mark.parametrize('key', ['', 'dev_', 'tensorboard_', 'timm_', 'browser_', 'bench_'])
def test_every_dependency_says_from_which_version_on(key):
    for r in requirements(key): assert re.fullmatch(r'[\w-]+>=\d+(\.\d+)+(,<\d+(\.\d+)*)?', r), r


def test_the_module_imports_what_it_declares_and_nothing_else():
    declared = {IMPORTS.get(package(r), package(r)) for r in requirements('')}
    extra = [r for key in ('timm_', 'tensorboard_', 'bench_') for r in requirements(key)]
    extras = {IMPORTS.get(package(r), package(r)) for r in extra}
    found = imported(MODULES)
    assert not declared - found, 'declared, but not used'
    assert not found - declared - extras, 'used, but not declared'


def test_the_other_dependencies_are_used():
    elsewhere = [*SCRIPTS, *Path(__file__).parent.rglob('*.py')]
    texts = [*elsewhere, *MODULES, ROOT/'Makefile', *ROOT.glob('nbs/**/*.ipynb')]
    words = ''.join(p.read_text() for p in texts if p.name != Path(__file__).name)
    for key in ('dev_', 'tensorboard_', 'timm_', 'browser_', 'bench_'):
        for r in requirements(key):
            name = IMPORTS.get(package(r), package(r))
            used = TOOLS.get(name) or rf'(?:import|from) {name}\b'
            assert re.search(used, words), f'{r} is not used anywhere'


# ---- what is written, and where

HOSTILE = ('$(touch executed).jpg', '; touch executed #.jpg', '--help.jpg', "it's a `touch executed`.jpg", '..jpg',
           'ü\u202e.jpg', '%s{0}.jpg', '-rf.jpg')
TINY_RUN = '--batch 2 --shots 1 --size 48 --dim 16 --encoding_dim 8 --decoder_width 16 --cpu --out run'
QUIET = dict(OMP_NUM_THREADS='1', TQDM_DISABLE='1')


def snapshot(folder): return {p.relative_to(folder): p.lstat().st_mtime_ns for p in folder.rglob('*')}


def test_names_from_strangers_stay_names(tmp_path):
    rng = np.random.default_rng(0)
    for name in ('1.jpg', *HOSTILE):
        folder = tmp_path/('known' if name == '1.jpg' else 'new')
        folder.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(folder/name, 'JPEG')
    Image.fromarray(np.pad(np.ones((20, 20), np.uint8), 10)).save(tmp_path/'known/1.png')
    (tmp_path/'new/up..-...jpg').symlink_to(tmp_path/'known/1.jpg')
    before = snapshot(tmp_path)
    env = os.environ | QUIET | dict(HOME=str(tmp_path/'home'))
    command = [BIN/'deepgp_segment', *'--support known --query new --out out --cpu'.split()]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    after = snapshot(tmp_path)
    assert {p: t for p, t in after.items() if p.parts[0] not in ('out', 'home') and p != Path('.')} == before
    assert len(list((tmp_path/'out/masks').iterdir())) == sum(not n.startswith('.') for n in HOSTILE) + 1
    assert json.loads((tmp_path/'out/summary.json').read_text())['finished']


def test_a_training_writes_into_its_folder_only(tmp_path):
    env = os.environ | QUIET | dict(HOME=str(tmp_path/'home'), DEEPGP_FSS_CACHE=str(tmp_path/'home/cache'))
    for command in (f'deepgp_train --data n_train=40 n_val=40 side=48 --iterations 2 {TINY_RUN}',
                    'deepgp_eval run --shots 1 --episodes 3 --cpu --out eval'):
        name, *words = command.split()
        subprocess.run([BIN/name, *words], cwd=tmp_path, env=env, check=True, capture_output=True)
    assert {p.name for p in tmp_path.iterdir()} <= {'run', 'eval', 'home'}


@pytest.mark.parametrize('name', ['model.safetensors', 'weights.pth', 'weights.pt', 'weights.bin'])
def test_a_pickle_is_never_executed(tmp_path, name):
    torch.save(dict(state_dict=Evil(tmp_path/'executed')), tmp_path/name)
    with pytest.raises(ValueError): read_state(tmp_path/name)
    assert not (tmp_path/'executed').exists()


# ---- the same again

def test_the_same_commands_give_the_same_bytes(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(3):
        (tmp_path/'known').mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (60, 50, 3), dtype=np.uint8)).save(tmp_path/f'known/{i}.jpg')
        Image.fromarray(np.pad(np.ones((30, 20), np.uint8), 15)).save(tmp_path/f'known/{i}.png')
    def go(command):
        name, *words = command.split()
        subprocess.run([BIN/name, *words], cwd=tmp_path, env=os.environ | QUIET, check=True, capture_output=True)
    def written():
        files = [p for name in ('run', 'out') for p in (tmp_path/name).rglob('*') if p.is_file()]
        return {p.relative_to(tmp_path): p.read_bytes() for p in files if 'tensorboard' not in p.parts}
    results = []
    for _ in range(2):
        for name in ('run', 'out'): shutil.rmtree(tmp_path/name, ignore_errors=True)
        go(f'deepgp_train --data n_train=40 n_val=40 side=48 --iterations 4 --picture_every 2 {TINY_RUN}')
        go('deepgp_eval run --shots 1 2 --episodes 10 --cpu')
        go('deepgp_segment --support known --query known --model run --out out --cpu')
        results.append(written())
    assert results[0].keys() == results[1].keys() and len(results[0]) > 20
    assert [str(p) for p in results[0] if results[0][p] != results[1][p]] == []
