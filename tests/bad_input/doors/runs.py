"Runs to resume, notes of a study"
import fcntl
import json
import pickle
import shutil
from functools import partial

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from ..case import refused, run, works
from ..material import copied, header_text, train, trained
from ..pictures import Evil, harmless, write


def resume(change, *words):
    "Resume a run in which something was changed"
    def do(at):
        run_folder = copied(trained(), at/'run')
        change(run_folder)
        train(at, '--out', run_folder, '--iterations', 2, '--resume', *words)
    return do


def state(change=lambda h: None, tensors=lambda t: t):
    "Resume from a changed state"
    def edit(d):
        path = d/'state.safetensors'
        with safe_open(path, 'pt') as f: about = json.loads(f.metadata()['deepgp_fss_run'])
        save_file(tensors(load_file(path)), path, metadata=dict(deepgp_fss_run=header_text(change, about)))
    return resume(edit)


def file(name, content): return resume(lambda d: write(d/name, content(d/name) if callable(content) else content))
def cut(path): data = path.read_bytes(); return data[:len(data)//2]
STATE = 'state.safetensors'
for name, do, *says in (
    ('an empty state', file(STATE, b''), STATE, 'damaged'),
    ('a state cut off in the middle', file(STATE, cut), STATE, 'damaged'),
    ('a pickle as state', lambda at: harmless(at, lambda: file(STATE, pickle.dumps(Evil(at/'executed')))(at)), STATE,
     'damaged'),
    ('a trained model as state', resume(lambda d: shutil.copy(d/'model.safetensors', d/STATE)), STATE, 'damaged'),
    ('a state whose header is a list', state(lambda h: '[]'), STATE),
    ('a state without its step', state(lambda h: (h.pop('step'), None)[1]), STATE),
    ('a state without the rest', state(lambda h: (h.pop('rest'), None)[1]), STATE),
    ('a state of step minus 1', state(lambda h: h.update(step=-1)), STATE),
    ('a state whose step is a text', state(lambda h: h.update(step='two')), STATE),
    ('a state beyond the last step', state(lambda h: h.update(step=99)), STATE),
    ('a state of an optimiser of other groups', state(lambda h: h['rest'].update(groups=[])), STATE),
    ('a state with a tensor of another shape',
     state(tensors=lambda t: t | {k: v[:1].contiguous() for k, v in t.items() if k.endswith('project.weight')}), STATE),
    ('a state with a tensor too many', state(tensors=lambda t: t | {'model.more': torch.ones(3)}), STATE),
    ('a state with a tensor too few',
     state(tensors=lambda t: {k: v for k, v in t.items() if not k.endswith('project.weight')}), STATE),
    ('a state of an optimiser with strange names', state(tensors=lambda t: t | {'optimizer.x.y': torch.ones(3)}),
     STATE),
    ('a state without its configuration', resume(lambda d: (d/'config.json').unlink()), 'no config.json',
     'choose another --out'),
    ('a configuration cut off in the middle', file('config.json', cut), 'config.json'),
    ('a configuration that is empty', file('config.json', '{}'), 'config.json'),
    ('a configuration that is a list', file('config.json', '[]'), 'config.json'),
    ('a configuration that is not text', file('config.json', b'\xff\xfe'), 'config.json'),
    ('a log that is not text', file('log.csv', b'\xff\xfe\0'), 'log.csv'),
    ('a run of other settings', resume(lambda d: None, '--lr', .5), 'recipe.lr is 0.001 in the run and 0.5 now'),
    ('a run that is there already', lambda at: train(at, '--out', copied(trained(), at/'run'), '--iterations', 2),
     'already holds a run', '--resume')):
    refused('run', name, do, *says)


def locked(at):
    (at/'out').mkdir()
    with open(at/'out/.lock', 'w') as f: fcntl.flock(f, fcntl.LOCK_EX); train(at)
refused('run', 'a run that another process is writing', locked, 'Another run is writing', 'choose another --out')


def resumes(at, change):
    run_folder = copied(trained(), at/'run')
    change(run_folder)
    train(at, '--out', run_folder, '--iterations', 2, '--resume')
    a, b = (load_file(d/'model.safetensors') for d in (run_folder, trained()))
    assert all(torch.equal(a[k], b[k]) for k in a.keys() | b.keys())
works('run', 'a log cut off in the middle', 'the run goes on from its checkpoint, to the same weights',
      lambda at: resumes(at, lambda d: write(d/'log.csv', cut(d/'log.csv'))))
works('run', 'a half-written state of a process that was killed', 'the run goes on from the whole one',
      lambda at: resumes(at, lambda d: write(d/'.state.safetensors.123.part', b'half')))


def saved_twice(at, damage):
    train(at, '--out', at/'run', '--iterations', 2, '--checkpoint_every', 1)
    whole = load_file(at/'run/model.safetensors')
    write(at/'run'/STATE, damage(at/'run'/STATE))
    train(at, '--out', at/'run', '--iterations', 2, '--checkpoint_every', 1, '--resume')
    again = load_file(at/'run/model.safetensors')
    assert all(torch.equal(whole[k], again[k]) for k in whole.keys() | again.keys())
for name, damage in (
    ('an empty state', lambda path: b''),
    ('a state cut off in the middle', cut),
    ('a state of zeros', lambda path: bytes(path.stat().st_size))):
    works('run', f'{name}, with the one before it',
          'the run goes on from the one before it, to the same weights, and says so',
          partial(saved_twice, damage=damage))


def study(content):
    "Show a study in which the note of a finished run was changed"
    def do(at):
        write(at/'out/mean_fold0/done.json', content)
        run('deepgp_study', 'shapes', '--out', at/'out', '--tables')
    return do


refused('run', 'a study with a damaged note of a finished run', study('{"comm'), 'done.json')
works('run', 'a study with an empty note of a finished run', 'the run counts as not made', study('{}'))
