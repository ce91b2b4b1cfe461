"Every malformed or hostile input is refused in one sentence, or simply works"
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from . import doors  # noqa: F401, its import fills CASES
from .case import CASES, attempt, cell, problems, run, write_table
from .material import model, support
from .pictures import JPEG, png, write

BIN, ROOT = Path(sys.executable).parent, Path(__file__).parents[2]
SEGMENT = 'deepgp_segment --support {support} --out out --model {model} --cpu --query'
COMMANDS = [f'deepgp_{name}' for name in ('train', 'eval', 'segment', 'data', 'bench', 'study', 'demo')]
PROCESSES = {  # what is given -> (status, command, what it says)
    'a damaged photograph': (1, f'{SEGMENT} cut.jpg', 'cut.jpg cannot be read as an image'),
    'a picture of 169 million pixels, cut': (1, f'{SEGMENT} large.png', 'large.png cannot be read as an image'),
    'a number that is none': (2, 'deepgp_bench gp --batch some', "--batch: invalid int value: 'some'"),
    'a root that is not there': (
        1, 'deepgp_train --dataset pascal --root gone --out out --cpu --backbone small --scales 8',
        'gone is not a folder: give')}


@pytest.fixture(scope='module', autouse=True)
def table():
    "Write what all cases said as a table, if asked to"
    yield
    if folder := os.environ.get('DEEPGP_RESULTS'): write_table(Path(folder)/'bad_input.md')


@pytest.mark.parametrize('case', CASES, ids=lambda case: f'{case.door}: {case.name}')
def test_bad_input(case): assert not problems(case, *attempt(case))


def test_the_cases_are_distinct():
    names = Counter(f'{c.door}: {c.name}' for c in CASES)
    assert len(names) >= 200 and not [name for name, n in names.items() if n > 1]


def test_the_docs_show_all_of_them():
    "After a change here: make survives"
    rows = (ROOT/'nbs/results/bad_input.md').read_text().splitlines()[2:]
    shown = {tuple(row.strip('| ').split(' | ', 2)[:2]) for row in rows}
    assert shown == {(cell(c.door), cell(c.name)) for c in CASES}


@pytest.mark.parametrize('command', COMMANDS)
def test_every_option_is_tried(command):
    tried = ' '.join(c.name for c in CASES if c.door == f'{command} option')
    options = set(re.findall(r'--\w+', run(command, '--help'))) - {'--help'}
    assert not {o for o in options if not re.search(rf'{o}\b', tried)}


@pytest.mark.parametrize('what', PROCESSES)
def test_processes_end_with_a_sentence_too(what, tmp_path):
    status, words, says = PROCESSES[what]
    write(tmp_path/'cut.jpg', JPEG[:300])
    write(tmp_path/'large.png', png(13_000, 13_000, 1, 0, bytes(100)))
    command, *rest = words.format(support=support(), model=model()).split()
    env = os.environ | dict(OMP_NUM_THREADS='1', TQDM_DISABLE='1')
    ended = subprocess.run([BIN/command, *rest], cwd=tmp_path, capture_output=True, text=True, timeout=900, env=env)
    assert ended.returncode == status and says in ended.stderr, ended.stderr
    assert 'Traceback' not in ended.stderr and 'Warning' not in ended.stderr, ended.stderr
