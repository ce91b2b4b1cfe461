"Every command, stopped by every signal: one sentence, status 130, what is done is kept, nobody is left behind"
import contextlib
import json
import multiprocessing
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
from PIL import Image

from bad_input.case import script
from bad_input.pictures import scene
from deepgp_fss import commands, process
from deepgp_fss.process import as_command, on_signals
from deepgp_fss.training import asked_to_stop, load_state, read_log
from faults import TINY
from harness import wait_until

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
CONTEXT = multiprocessing.get_context('forkserver')  # children of a process that has imported everything start at once
PRELOAD = 'commands', 'bench', 'demo', 'evidence', 'folders', 'prepare'
CONTEXT.set_forkserver_preload([f'deepgp_fss.{name}' for name in PRELOAD])


def begin(at, words, ignored=(), terminal=None):
    "A command in a session of its own, with a shell's signals; it prints to the file `said`, or to a terminal"
    os.setsid()
    multiprocessing.set_start_method('fork', force=True)  # as in any process on Linux
    usual = {signal.SIGINT: signal.default_int_handler}
    for s in SIGNALS: signal.signal(s, signal.SIG_IGN if s in ignored else usual.get(s, signal.SIG_DFL))
    if terminal is None: shown = os.open(at/'said', os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    else: shown = os.open(terminal, os.O_RDWR)
    for number in (1, 2): os.dup2(shown, number)
    os.chdir(at)
    if not (at/'tmp').is_symlink():  # names of sockets must be short, and those of pytest's folders are not
        (at/'tmp').symlink_to(tempfile.mkdtemp(prefix='s_', dir='/tmp'))
    os.environ |= dict(OMP_NUM_THREADS='1', DEEPGP_FSS_CACHE=str(at/'cache'), TMPDIR=str((at/'tmp').resolve()))
    tempfile.tempdir = None  # somebody may have asked for it while the server imported
    sys.argv = words
    runpy.run_path(str(script(words[0])), run_name='__main__')


def start(at, *words, **how):
    process = CONTEXT.Process(target=begin, args=(at, list(words)), kwargs=how)
    process.start()
    return process


def said(at): return (at/'said').read_text() if (at/'said').exists() else ''


def until(process, at, condition):
    "Wait for a condition, or fail at once if the process has ended"
    wait_until(condition, lambda: None if process.is_alive() else said(at), 'what was waited for')


def ended(process, at, status=130):
    process.join(900)
    assert process.exitcode == status, said(at)
    assert 'Traceback' not in said(at) and said(at).rstrip().endswith('.'), said(at)
    with pytest.raises(ProcessLookupError):  # its whole session has ended
        for _ in range(1000): os.killpg(process.pid, 0); time.sleep(.01)
    unfinished = [p for p in at.rglob('*.part') if p.parent.name != 'deepgp_index']
    assert not [*unfinished, *at.rglob('.lock')]
    return said(at)


def steps(at): return len(read_log(at/'run/log.csv')) if (at/'run/log.csv').exists() else 0
def rows(at): return sum(p.read_bytes().count(b'\n') - 1 for p in at.glob('eval/*/part_*.jsonl'))


# What each command is given, when it is at work, how its sentence continues, and what is there afterwards

class Train:
    words = f'deepgp_train {TINY} --iterations 100000 --workers 1 --out run'
    says = 'continue with --resume'
    def prepare(self, at): pass
    def begun(self, at): return steps(at) >= 3
    def after(self, at): assert load_state(at/'run/state.safetensors')[1]['step'] == steps(at)


class Evaluate:
    words = 'deepgp_eval shapes --shots 1 --episodes 100000 --workers 1 --cpu --out eval'
    says = 'the same command continues'
    def prepare(self, at): pass
    def begun(self, at): return rows(at) >= 3
    def after(self, at):
        for line in next(at.glob('eval/*/part_*.jsonl')).read_text().splitlines(): json.loads(line)


class Segment:
    words = 'deepgp_segment --support known --query QUERIES --out out --model shapes --cpu'
    says = 'what is there is complete'
    def prepare(self, at):
        (at/'known').mkdir()
        image, mask = scene(0)
        Image.fromarray(image).save(at/'known/0.jpg'), Image.fromarray(mask).save(at/'known/0.png')
    def begun(self, at): return len(list(at.glob('out/masks/*.png'))) >= 3
    def after(self, at):
        summary = json.loads((at/'out/summary.json').read_text())
        assert not summary['finished'] and len(summary['images']) >= 2
        for p in at.glob('out/*/*.*g'): Image.open(p).load()


def linked(path, n):
    "A file under n more names, beside it"
    for i in range(n): os.link(path, path.with_name(f'{i:04}{path.suffix}'))


def large():
    labels = np.zeros((2000, 2000), np.uint8)
    labels[500:, 500:] = 1
    return Image.fromarray(labels)


class Check:
    words = 'deepgp_data check folder set --workers 1'
    says = 'the same command continues'
    def prepare(self, at):
        for folder, name in (('images', 'a.jpg'), ('masks', 'a.png')):
            (at/'set'/folder).mkdir(parents=True)
            large().save(at/'set'/folder/name)
            linked(at/'set'/folder/name, 3000)
        (at/'set/classes.txt').write_text('1 one\n')
    def begun(self, at): return 'checking' in said(at)
    def after(self, at): pass


class Build:
    words = 'deepgp_data build pascal voc --sbd sbd --workers 1'
    says = 'the same command continues'
    def prepare(self, at):
        for folder in ('voc/JPEGImages', 'voc/SegmentationClass', 'sbd/cls'): (at/folder).mkdir(parents=True)
        large().save(at/'voc/SegmentationClass/a.png')
        linked(at/'voc/SegmentationClass/a.png', 3000)
    def begun(self, at): return len(list(at.glob('voc/SegmentationClassAug/*.png'))) >= 3
    def after(self, at):
        for p in at.glob('voc/SegmentationClassAug/*.png'): Image.open(p).load()


class Study:
    words = 'deepgp_study shapes --iterations 100000 --jobs 1 --out study'
    says = 'the same command continues'
    def log(self, at): return next(at.glob('study/*/log.csv'), None)
    def prepare(self, at): pass
    def begun(self, at): return self.log(at) and len(read_log(self.log(at))) >= 2
    def after(self, at):
        log = self.log(at)
        assert 'stopped as asked, after saving' in (log.parent/'console.txt').read_text()
        assert load_state(log.parent/'state.safetensors')[1]['step'] == len(read_log(log))


class Bench:
    words = 'deepgp_bench gp --alone --repeats 1000000'
    says = 'nothing was kept'
    def prepare(self, at): pass
    def begun(self, at): return 'gp: ' in said(at)
    def after(self, at): pass


class Demo:
    words = 'deepgp_demo --steps 100000 --out figures'
    says = 'nothing was kept'
    def prepare(self, at): pass
    def begun(self, at): return any(len(read_log(p)) >= 2 for p in at.glob('tmp/deepgp_demo_*/*/log.csv'))
    def after(self, at): assert not list(at.glob('tmp/deepgp_demo_*'))


WORKS = dict(train=Train, evaluate=Evaluate, segment=Segment, check=Check, build=Build, study=Study, bench=Bench,
             demo=Demo)


def words_of(work):
    return [w for word in work.words.split() for w in (['known/0.jpg']*5000 if word == 'QUERIES' else [word])]


@pytest.fixture(autouse=True)
def tidy(tmp_path):
    yield
    if (tmp_path/'tmp').is_symlink(): shutil.rmtree((tmp_path/'tmp').resolve(), ignore_errors=True)


@pytest.mark.parametrize('number', SIGNALS, ids=lambda s: s.name)
@pytest.mark.parametrize('name', WORKS)
def test_every_command_ends_in_a_sentence(tmp_path, name, number):
    work = WORKS[name]()
    work.prepare(tmp_path)
    process = start(tmp_path, *words_of(work))
    until(process, tmp_path, lambda: work.begun(tmp_path))
    if number == signal.SIGTERM: os.kill(process.pid, number)
    else: os.killpg(process.pid, number)  # Ctrl-C, and a terminal that is closed, reach the whole group
    assert work.says in ended(process, tmp_path)
    work.after(tmp_path)


def test_an_interrupted_evaluation_continues(tmp_path):
    words = [*Evaluate.words.replace('100000', '150').split()]
    process = start(tmp_path, *words)
    until(process, tmp_path, lambda: rows(tmp_path) >= 3)
    os.kill(process.pid, signal.SIGTERM)
    ended(process, tmp_path)
    kept = rows(tmp_path)
    process = start(tmp_path, *words)
    process.join(900)
    assert process.exitcode == 0 and f'{kept}/150' in said(tmp_path), said(tmp_path)


@pytest.mark.parametrize('name', ['train', 'segment'])
def test_nohup(tmp_path, name):
    "What is ignored stays ignored"
    work = WORKS[name]()
    work.prepare(tmp_path)
    process = start(tmp_path, *words_of(work), ignored=[signal.SIGHUP, signal.SIGINT])
    until(process, tmp_path, lambda: work.begun(tmp_path))
    for number in (signal.SIGHUP, signal.SIGINT): os.kill(process.pid, number)
    count = lambda: steps(tmp_path) + len(list(tmp_path.glob('out/masks/*.png')))
    now = count()
    until(process, tmp_path, lambda: count() >= now + 5)  # it goes on
    os.kill(process.pid, signal.SIGTERM)
    ended(process, tmp_path)


@pytest.mark.parametrize('name', ['train', 'segment', 'evaluate'])
def test_a_terminal_that_is_closed(tmp_path, name):
    "What is printed can no longer be written then; the work is saved all the same"
    work = WORKS[name]()
    work.prepare(tmp_path)
    ours, theirs = os.openpty()
    # The first terminal that a session opens is its own
    process = start(tmp_path, *words_of(work), terminal=os.ttyname(theirs))
    os.set_blocking(ours, False)
    until(process, tmp_path, lambda: drained(ours) and work.begun(tmp_path))
    for number in (theirs, ours): os.close(number)
    process.join(900)
    assert process.exitcode == 130
    work.after(tmp_path)


def drained(terminal):
    "Read what is shown on a terminal, so that there is room for more"
    try: os.read(terminal, 1 << 16)
    except OSError: pass
    return True


def test_handlers_are_put_back_and_threads_need_none():
    before = [signal.getsignal(s) for s in SIGNALS]
    with as_command('deepgp_test'), asked_to_stop(): pass
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(SystemExit), as_command('deepgp_test'): raise error
    assert [signal.getsignal(s) for s in SIGNALS] == before
    ends = []
    def work():
        with on_signals(print), asked_to_stop() as asked: ends.append(asked)
        try: commands.deepgp_eval(['nowhere'])
        except SystemExit as e: ends.append(e.code)
    thread = threading.Thread(target=work)
    thread.start(); thread.join()
    assert ends == [[], 'deepgp_eval: there is no trained model nowhere: a run writes it when it has finished.']


def test_a_second_signal_does_not_disturb_the_first(tmp_path):
    kept = tmp_path/'kept'
    with pytest.raises(SystemExit) as end, as_command('deepgp_test'):
        try: os.kill(os.getpid(), signal.SIGTERM)
        finally: os.kill(os.getpid(), signal.SIGTERM); kept.touch()
    assert end.value.code == 130 and kept.exists()


# ---- a signal that arrives where its exception would be lost, or where nobody catches it

DROPS = dict(
    weakref='thing = Thing(); reference = weakref.ref(thing, send); del thing',
    __del__='Thing.__del__ = send; thing = Thing(); del thing',
    library="""
    try: send()
    except: pass""")
PROGRAM = """
import os, signal, sys, time, weakref
from pathlib import Path
from deepgp_fss.process import as_command
class Thing: pass
def send(_=None):
    os.kill(os.getpid(), signal.{number})
    for _ in range(100): pass
sys.argv[0] = 'deepgp_test'
usual = signal.default_int_handler if '{number}' == 'SIGINT' else signal.SIG_DFL
signal.signal(signal.{number}, usual)  # in the background, and under nohup, it would be ignored
with as_command('deepgp_test'):
    {drop}
    Path('after').touch()
    {work}
"""


@pytest.mark.parametrize('number', SIGNALS, ids=lambda s: s.name)
@pytest.mark.parametrize('work', ['time.sleep(600)', 'pass'], ids=['long', 'short'])
@pytest.mark.parametrize('drop', DROPS)
def test_a_signal_that_is_dropped_comes_again(tmp_path, drop, work, number):
    code = PROGRAM.format(number=number.name, drop=DROPS[drop], work=work)
    done = subprocess.run([sys.executable, '-c', code], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert (tmp_path/'after').exists()  # it was dropped
    assert done.returncode == 130 and done.stderr == 'deepgp_test: interrupted; run the same command again.\n'


def test_clean_up_that_takes_long_is_left_in_peace():
    "The signal does not come again while its interrupt is being handled"
    tidied = []
    with pytest.raises(SystemExit) as end, as_command('deepgp_test'):
        try: os.kill(os.getpid(), signal.SIGTERM)
        finally: time.sleep(5); tidied.append(True)
    assert end.value.code == 130 and tidied
    time.sleep(3)  # nor when the command has ended


def at_line(n, work):
    "What becomes of `work` if SIGTERM is answered at the n-th line that it runs in the files of `as_command`"
    files, seen = [process.__file__, contextlib.__file__, signal.__file__], []
    def watch(frame, event, _):
        if frame.f_code.co_filename not in files: return None
        if event == 'line':
            seen.append(frame.f_lineno)
            handler = signal.getsignal(signal.SIGTERM)
            if len(seen) == n + 1 and callable(handler): handler(signal.SIGTERM, frame)  # as the interpreter does
        return watch
    before = sys.gettrace()
    sys.settrace(watch)
    try: work()
    except SystemExit as e: code = e.code
    except KeyboardInterrupt: code = 'nobody caught it'
    else: code = 0
    finally: sys.settrace(before)
    return code, len(seen) <= n


def test_a_signal_at_any_line_ends_in_a_sentence():
    "Before the work begins, and after it has ended, too: there is no line where the exception is not caught"
    def well():
        with as_command('deepgp_test'): pass
    def badly():
        with as_command('deepgp_test'): raise ValueError('wrong.')
    before = [signal.getsignal(s) for s in [*SIGNALS, signal.SIGALRM]]
    for work, usual in ((well, 0), (badly, 'deepgp_test: wrong.')):
        codes = []
        while True:
            code, is_over = at_line(len(codes), work)
            if is_over: break
            codes.append(code)
        assert set(codes) == {usual, 130} and len(codes) > 50
    assert [signal.getsignal(s) for s in [*SIGNALS, signal.SIGALRM]] == before
