"The command line: answers at once, resumes a run that it finds, and reaches every setting"
import json
import subprocess
import sys

import pytest
import torch
from torchvision.models import resnet18

from deepgp_fss import config, learners, training
from deepgp_fss.commands import deepgp_eval, deepgp_train
from deepgp_fss.training import TrainingStopped, bf16_trouble, load_state, read_log, train
from test_training import same, tiny, weights, words

COMMANDS = 'deepgp_train', 'deepgp_eval', 'deepgp_segment', 'deepgp_data', 'deepgp_bench', 'deepgp_study', 'deepgp_demo'
SMALL = ['--data', 'n_train=60', 'n_val=60', 'side=48', *words(), '--cpu', '--picture_every', '0']
HOW = dict(picture_every=0, progress=False, cpu=True)


@pytest.mark.parametrize('command', COMMANDS)
@pytest.mark.parametrize('word', ['--help', '--nonsense'])
def test_help_and_a_wrong_option_import_nothing_heavy(tmp_path, command, word):
    "Not timed: what takes the time is what is imported (deepgp_bench start measures it)"
    (tmp_path/'script.py').write_text('\n'.join((
        f'import sys\nfrom deepgp_fss.commands import {command}',
        'heavy = "torch", "torchvision", "numpy", "matplotlib", "PIL"',
        f'try: {command}()', 'except SystemExit as e: print(e.code or 0, [m for m in heavy if m in sys.modules])')))
    run = subprocess.run([sys.executable, tmp_path/'script.py', word], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == ('0 []' if word == '--help' else '2 []'), run.stdout + run.stderr


def test_settings_and_library_know_the_same_names():
    assert all(config.LEARNERS.things.values()) and learners.LEARNERS is config.LEARNERS


# ---- options of a learner

MULTI = ['--learner', 'multiprototype', '--mask_encoder', 'pool']


def test_learner_options_reach_the_configuration(tmp_path, capsys):
    options = '--iterations 1 --learner_options n=2 temperature=7.5'.split()
    words = [*SMALL, *MULTI, *options, '--out', str(tmp_path/'run')]
    deepgp_train([*words, '--show'])
    assert json.loads(capsys.readouterr().out)['model']['learner_options'] == dict(n=2, temperature=7.5)
    deepgp_train(words)
    saved = json.loads((tmp_path/'run/config.json').read_text())['config']
    assert saved['model']['learner_options'] == dict(n=2, temperature=7.5)


@pytest.mark.parametrize('words, says', [
    (['--learner_options', '5'], "--learner_options takes NAME=VALUE, not '5'"),
    (['--learner_options', 'n=3'], "The learner 'gp' has no option n: it has none"),
    ([*MULTI, '--learner_options', 'steps=3'], "The learner 'multiprototype' has no option steps: choose among n, ")])
def test_bad_learner_options_of_a_training(tmp_path, words, says):
    with pytest.raises(SystemExit, match=says): deepgp_train([*SMALL, *words, '--out', str(tmp_path/'run')])
    assert not (tmp_path/'run').exists()


def untrained(tmp_path, *words):
    "Evaluate a learner on a backbone that knows nothing, which is enough to see what it was told"
    weights = tmp_path/'resnet18.pth'
    torch.save(resnet18().state_dict(), weights)
    small = '--backbone resnet18 --shots 1 --episodes 1 --size 64 --plain --cpu --data n_val=60 side=48'.split()
    deepgp_eval([*small, '--weights', str(weights), '--out', str(tmp_path/'out'), *words])
    return json.loads(next(tmp_path.glob('out/*/result.json')).read_text())


def test_learner_options_of_an_evaluation_without_training(tmp_path):
    result = untrained(tmp_path, '--learner', 'multiprototype', '--learner_options', 'n=2', 'temperature=7.5')
    assert result['model']['learner_options'] == dict(n=2, temperature=7.5)
    assert '--learner_options n=2 temperature=7.5' in result['command']
    assert next((tmp_path/'out').iterdir()).name.startswith('untrained_multiprototype_n2_temperature7.5_shapes')


@pytest.mark.parametrize('words, says', [
    (['shapes', '--learner_options', 'n=2'], 'belong to --learner, not to trained models'),
    (['--learner', 'multiprototype', '--learner_options', 'n'], "--learner_options takes NAME=VALUE, not 'n'"),
    (['--learner', 'gp', '--learner_options', 'kernel=rq'], "The learner 'gp' has no option kernel: it has none"),
    (['--learner', 'prototype', '--learner_options', 'n=2'], "'prototype' has no option n: choose among temperature")])
def test_bad_learner_options_of_an_evaluation(tmp_path, words, says):
    weights = [] if 'shapes' in words else ['--weights', 'gone.pth']  # which is not looked for before that
    with pytest.raises(SystemExit, match=says): deepgp_eval([*words, *weights])


# ---- resuming with the folder alone

def test_resume_needs_only_the_folder(tmp_path, capsys):
    how = '--lr 0.002 --iterations 4 --checkpoint_every 2'.split()
    for name in ('whole', 'cut'): deepgp_train([*SMALL, *how, '--out', str(tmp_path/name)])
    (tmp_path/'cut/model.safetensors').unlink()
    state = tmp_path/'cut/state.safetensors'
    training.before(state).replace(state)  # as if killed after step 2
    assert load_state(state)[1]['step'] == 2
    deepgp_train(['--resume', '--out', str(tmp_path/'cut'), '--cpu', '--picture_every', '0'])
    assert same(*(weights(tmp_path/f'{n}/model.safetensors') for n in ('whole', 'cut')))
    with pytest.raises(SystemExit, match='recipe.lr is 0.002 in the run and 0.5 now'):
        deepgp_train(['--resume', '--out', str(tmp_path/'cut'), '--lr', '0.5', '--cpu'])
    with pytest.raises(SystemExit, match='another configuration.*data.side is 48 in the run and 64 now'):
        deepgp_train(['--resume', '--out', str(tmp_path/'cut'), '--data', 'side=64', '--cpu'])


@pytest.mark.parametrize('there', ['nothing', 'a folder', 'a log'])
@pytest.mark.parametrize('more', [[], '--iterations 3'.split(), '--fold 1 --lr 0.5 --workers 1'.split(), ['--show']])
def test_resume_of_a_folder_without_a_run_is_refused(tmp_path, there, more):
    out = tmp_path/'TYPO'
    if there != 'nothing': out.mkdir()
    if there == 'a log': (out/'log.csv').write_text('step\n')
    says = 'TYPO holds no run to resume: check --out; to begin one there, name --dataset or --recipe, too'
    with pytest.raises(SystemExit, match=says): deepgp_train(['--resume', '--out', str(out), '--cpu', *more])
    left = {'nothing': [], 'a folder': ['TYPO'], 'a log': ['TYPO', 'log.csv']}[there]
    assert sorted(p.name for p in tmp_path.rglob('*')) == left


def test_a_command_that_describes_its_run_may_begin_it_with_resume(tmp_path, capsys):
    "As scripts for a queue of jobs do, which start or continue"
    words = ['--dataset', 'shapes', *SMALL, '--iterations', '2', '--resume', '--out']
    deepgp_train([*words, str(tmp_path/'run')])
    assert f'deepgp_train: {tmp_path/"run"} holds no run to resume, so a new one begins.' in capsys.readouterr().err
    deepgp_train([*words, str(tmp_path/'run')])
    assert 'a new one begins' not in capsys.readouterr().err
    for named in (['--recipe', 'shapes'], ['--data', 'side=48']):
        deepgp_train([*named, '--resume', '--show', '--out', str(tmp_path/'other')])
        assert 'a new one begins' in capsys.readouterr().err


def test_a_run_killed_before_its_first_checkpoint_keeps_its_settings(tmp_path):
    "There is a configuration, but no state yet"
    deepgp_train([*SMALL, '--iterations', '2', '--lr', '0.002', '--out', str(tmp_path/'run')])
    for path in (tmp_path/'run').glob('*.safetensors'): path.unlink()
    deepgp_train(['--resume', '--out', str(tmp_path/'run'), '--cpu', '--picture_every', '0'])
    assert [r['lr'] for r in read_log(tmp_path/'run/log.csv')] == [.002, pytest.approx(.0006)]


def test_more_iterations_extend_a_run(tmp_path, capsys):
    run, out = train(tiny(iterations=4, decay_at=1.), tmp_path/'run', **HOW), tmp_path/'run'
    deepgp_train(['--resume', '--out', str(out), '--iterations', '6', '--cpu', '--picture_every', '0'])
    said = ('6 iterations instead of 4 from step 4 on: the learning rate falls at step 6 instead of 4, '
            'as in a run of this length')
    assert said in capsys.readouterr().err
    assert same(weights(run), weights(train(tiny(iterations=6, decay_at=1.), tmp_path/'six', **HOW)))
    saved = json.loads((out/'config.json').read_text())
    assert saved['config']['recipe']['iterations'] == 6 and len(saved['extended']) == 1
    assert [r['step'] for r in read_log(out/'log.csv')] == list(range(6))
    with pytest.raises(TrainingStopped, match='recipe.iterations is 6 in the run and 5 now'):
        train(tiny(iterations=5, decay_at=1.), out, resume=True, **HOW)
    with pytest.raises(TrainingStopped, match='recipe.iterations is 6 in the run and 8 now; recipe.lr'):
        train(tiny(iterations=8, decay_at=1., lr=.5), out, resume=True, **HOW)


def test_an_extended_run_says_what_became_of_its_schedule(tmp_path, capsys):
    train(tiny(iterations=4), tmp_path/'run', **HOW)
    train(tiny(iterations=8), tmp_path/'run', resume=True, **HOW)
    assert ('falls at step 4 instead of 2, so steps 2 to 4 had a lower rate than they would have'
            in capsys.readouterr().err)
    assert [r['lr'] for r in read_log(tmp_path/'run/log.csv')] == pytest.approx([1e-3]*2 + [3e-4]*6)


# ---- bfloat16 on a CPU that cannot

def test_bfloat16_is_refused_where_it_would_kill_the_process(tmp_path, monkeypatch):
    deadly = ("import os, signal; os.environ.get('ONEDNN_MAX_CPU_ISA') == 'AVX512_CORE_BF16' "
              'or os.kill(os.getpid(), signal.SIGILL)')
    monkeypatch.setattr(training, 'bf16_trouble', lambda: bf16_trouble(deadly))
    remedy = ('set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment, with which it works, '
              'or train with --precision no')
    with pytest.raises(TrainingStopped, match=remedy):
        train(tiny(precision='bf16'), tmp_path/'run', **HOW)
    assert not (tmp_path/'run').exists()
    assert train(tiny(iterations=1), tmp_path/'run', **HOW)  # float32 is never refused
