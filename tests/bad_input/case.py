"What a case is, how it is tried, and what is wrong with its outcome"
import atexit
import fcntl
import io
import os
import re
import runpy
import shutil
import signal
import sys
import tempfile
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from unittest.mock import patch

from PIL import Image

from deepgp_fss import training

from .pictures import write


@dataclass
class Case:
    "One input, what is done with it, and what has to come of it"
    door:str                # where it comes in
    name:str                # what it is, in plain English
    do:object               # function of an empty folder: makes the input, and does what a user would do
    says:tuple = ()         # pieces of the sentence that refuses it: the thing and the remedy
    right:str = ''          # or, if it has to work: what the answer must be, which `do` asserts
    seconds:float = 600     # longer is a hang, on a loaded machine, too
    shown:str = ''          # what it said, for the table


CASES = []
def refused(door, name, do, *says, **more): CASES.append(Case(door, name, do, says, **more))
def works(door, name, right, do, **more): CASES.append(Case(door, name, do, right=right, **more))


class Refused(Exception):
    "A command ended with a status that is not zero; the message is what it wrote to the terminal"


class TooLong(BaseException):
    "Time is up; not an Exception, so that nothing on the way catches it"


class Began(BaseException):
    "Work began before everything was checked"


def before(where, name, do):
    "Do something that should be refused before the function `name` of a module is called"
    with patch.object(where, name, side_effect=Began(f'{name} began before the options were checked')): do()


@contextmanager
def time_limit(seconds):
    def stop(*_): raise TooLong(f'still not finished after {seconds} s')
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try: yield
    finally: signal.setitimer(signal.ITIMER_REAL, 0); signal.signal(signal.SIGALRM, before)


@contextmanager
def inside(folder):
    "Work in `folder`, with all caches in it; without TensorBoard and git, which only take time"
    here, caches = os.getcwd(), dict(DEEPGP_FSS_CACHE=f'{folder}/cache', TORCH_HOME=f'{folder}/torch')
    os.chdir(folder)
    try:
        with patch.dict(os.environ, caches, COLUMNS='500'), \
             patch.object(training, '_board', return_value=None), \
             patch.object(training, 'git_state', return_value=None): yield
    finally: os.chdir(here)


def run(name, *words):
    "What a command prints, run in this process as its console script would; `Refused` if it ends with an error"
    out = io.TextIOWrapper(io.BytesIO(), 'utf-8', 'strict', write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), 'utf-8', 'backslashreplace', write_through=True)
    text = lambda f: f.buffer.getvalue().decode()
    try:
        with redirect_stdout(out), redirect_stderr(err), shown_warnings(), patch('sys.argv', [name, *map(str, words)]):
            runpy.run_path(str(script(name)), run_name='__main__')
    except SystemExit as e:
        if not e.code: return text(out)
        lines = [line for line in text(err).split('\n') if line and '\r' not in line]  # \r: a progress bar
        if e.code == 2: lines = [line for line in lines if ': error: ' in line]  # below argparse's usage
        raise Refused('\n'.join([*lines, *([e.code] if isinstance(e.code, str) else [])])) from e
    return text(out)


@contextmanager
def shown_warnings():
    "Warnings go to the terminal, those that Python shows by default"
    with warnings.catch_warnings():
        warnings.simplefilter('always')
        # as `files` does when it is imported, which pytest undoes
        warnings.filterwarnings('ignore', category=Image.DecompressionBombWarning)
        for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter('ignore', kind)
        warnings.showwarning = lambda message, kind, *_: print(f'{kind.__name__}: {message}', file=sys.stderr)
        yield


@cache
def script(name): return write(shared()/f'bin/{name}', f'from deepgp_fss.commands import {name}\n{name}()\n')


@cache
def shared():
    "A folder for what many cases use"
    folder = Path(tempfile.mkdtemp(prefix='bad_input_shared_')).resolve()
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def attempt(case):
    "Try a case in a folder of its own: what was said, None if it worked; and what is left half-done"
    with tempfile.TemporaryDirectory(prefix='bad_input_', ignore_cleanup_errors=True) as name:
        at, said = Path(name).resolve(), None
        at.chmod(0o755)
        with inside(at), time_limit(case.seconds):
            try: case.do(at)
            except (Refused, ValueError) as e: said = str(e)
        without_paths = said and said.replace(str(at), '...').replace(str(shared()), '...')
        case.shown = f'works: {case.right}' if said is None else without_paths
        return said, leftovers(at)


def leftovers(at):
    "Files that should not be there after a refusal; an index is built bit by bit and resumes from its .part, by design"
    results = 'model.safetensors', 'report.md', 'result.json', 'answer.json'

    def half_written(p): return p.suffix == '.part' and p.parent.name != 'deepgp_index'
    def looks_finished(p):
        return p.is_relative_to(at/'out') and (p.name in results or p.suffix in ('.png', '.jpg', '.pdf'))
    return [str(p.relative_to(at)) for p in at.rglob('*') if p.is_file() and (half_written(p) or looks_finished(p))]


def problems(case, said, left):
    "What is wrong with the outcome of a case, as a list of sentences"
    if case.right: return [] if said is None else [f'it has to work, but was refused: {said}']
    if said is None: return ['it was accepted']
    lines = said.split('\n')
    # several lines: one for each bad file, and then how many there were
    counted = re.search(rf'\b{len(lines) - 1} (file|thing)\(s\)', lines[-1])
    found = [what for what, wrong in (
        ('not one sentence', len(lines) != 1 and not counted), ('too long', max(map(len, lines)) > 600),
        ('a stack trace', 'Traceback' in said or ' at 0x' in said),
        ("Python's words", re.search(r'object is not|indices must be', re.sub(r'\(.*\)', '', said))),
        ('no sentence', ': error: ' not in said and not said.endswith(('.', '.)', '?', '}'))),
        ("only the system's words", re.search(r'^(deepgp_\w+: )?\[Errno', said, re.M)),
        *((f'it does not say {piece!r}', piece not in said) for piece in case.says),
        (f'left half-done: {left}', bool(left))) if wrong]
    return found and [*found, f'it says {said!r}']


def cell(text): return ' '.join(text.replace('|', '\\|').replace('<', '&lt;').split())


def write_table(path, cases=CASES):
    "Add what the cases said to the Markdown table in `path`; rows of cases that no longer exist are dropped"
    order = {(cell(c.door), cell(c.name)): i for i, c in enumerate(sorted(CASES, key=lambda c: c.door.lower()))}
    with open(path, 'a+', encoding='utf-8') as f:  # several processes may write, one after the other
        fcntl.flock(f, fcntl.LOCK_EX)
        f.seek(0)
        split = [line.strip('| \n').split(' | ', 2) for line in f if line.startswith('| ')]
        rows = {(door, name): says for door, name, says in split if (door, name) in order}
        rows |= {(cell(c.door), cell(c.name)): cell(c.shown) for c in cases if c.shown}
        f.seek(0); f.truncate()
        f.write('| door | what was tried | what it says |\n|---|---|---|\n')
        f.writelines(f'| {door} | {name} | {rows[door, name]} |\n' for door, name in sorted(rows, key=order.get))


def option(command, name, do, *says, **more): refused(f'{command} option', name, do, *says, **more)
WHOLE, NUMBER = 'invalid int value', 'invalid float value'
