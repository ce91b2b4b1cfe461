"Training and evaluation: killed, resumed, shared among processes, and still the same numbers"
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from accelerate import Accelerator
from safetensors.torch import save_file

from deepgp_fss import training
from deepgp_fss.base import BadFile
from deepgp_fss.commands import deepgp_eval
from deepgp_fss.config import BACKBONES, RECIPES, ModelConfig, Recipe, make_config
from deepgp_fss.datasets import open_data
from deepgp_fss.encoders import SmallEncoder
from deepgp_fss.episodes import Augment, Episodes
from deepgp_fss.evaluation import (FINE, add_up, auroc, bootstrap, class_iou, count_pixels, ece, evaluate, fb_iou,
                                   finish, histograms, miou)
from deepgp_fss.model import DeepGPNet, load_checkpoint
from deepgp_fss.paper import ours_beside
from deepgp_fss.process import sentence
from deepgp_fss.training import (TrainingStopped, load_state, make_optimizer, read_log, set_rate, train,
                                 training_data)

BIN = Path(sys.executable).parent
TINY = 'n_train=60 n_val=60 side=48'.split()
SETTINGS = dict(iterations=10, batch=4, shots=1, size=48, dim=16, encoding_dim=8, decoder_width=16)
QUIET = dict(picture_every=0, progress=False, cpu=True)


def tiny(**settings):
    return make_config('shapes', dict(name='shapes', n_train=60, n_val=60, side=48), **SETTINGS | settings)


def on_resnet(**settings):
    "The paper's recipe on a small backbone and small scenes"
    return make_config('paper', dict(name='shapes', n_train=60, side=48), **SETTINGS | settings, backbone='resnet18')


def words(**settings): return [w for k, v in (SETTINGS | settings).items() for w in (f'--{k}', str(v))]
def weights(path): return load_checkpoint(path).state_dict()
def same(a, b): return all(torch.equal(x, y) for x, y in zip(a.values(), b.values(), strict=True))


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
    "An uninterrupted run"
    return train(tiny(), tmp_path_factory.mktemp('runs')/'whole', picture_every=5, progress=False, cpu=True)


# ---- recipes

def test_presets_are_the_papers():
    c = make_config('paper', dict(name='pascal', root='x'))
    names = 'optimizer', 'lr', 'decay', 'decay_at', 'iterations', 'batch', 'size'
    assert [getattr(c.recipe, name) for name in names] == ['adam', 1e-5, .3, .5, 20_000, 8, 448]
    assert make_config('paper', dict(name='coco', root='x')).recipe.iterations == 40_000
    assert c.model == ModelConfig() and set(RECIPES) == {'paper', 'followup', 'shapes', 'frozen'}


def test_the_rate_falls_once_halfway():
    model = DeepGPNet(tiny().model)
    optimizer = make_optimizer(model, Recipe(lr=1., lr_backbone=.1, iterations=10))
    rates = []
    for step in range(10):
        set_rate(optimizer, Recipe(lr=1., iterations=10), step)
        rates.append([g['lr'] for g in optimizer.param_groups])
    assert rates == [[1., .1]]*5 + [[.3, pytest.approx(.03)]]*5


def test_frozen_backbone_stays(tmp_path):
    settings = SETTINGS | dict(backbone='resnet18', scales=(16,), size=64, iterations=2)
    config = make_config('frozen', dict(name='shapes', n_train=60, side=64), 'random', **settings)
    torch.manual_seed(0)
    before = DeepGPNet(config.model).state_dict()
    after = weights(train(config, tmp_path/'run', features=dict(folder=tmp_path/'features'), **QUIET))
    changed = {k for k in before if not torch.equal(before[k], after[k])}
    assert changed and not any(k.startswith('encoder.') and not k.startswith('encoder.project') for k in changed)


def test_validation_classes_come_from_training_only():
    data, aside = training_data(tiny(held_out=4))
    fold = open_data('shapes', n_train=60, n_val=60, side=48)
    assert len(aside.classes) == 4 and not set(data.classes) & set(aside.classes)
    assert set(data.classes) | set(aside.classes) == set(fold.train.classes)
    assert not set(aside.classes) & set(fold.test.classes)


def test_validation_does_not_change_the_training(tmp_path):
    runs = [train(tiny(held_out=3), tmp_path/f'{n}', checkpoint_every=n, **QUIET) for n in (5, 100)]
    assert same(*map(weights, runs))
    often, once = ((p.parent/'validation.csv').read_text().splitlines() for p in runs)
    assert [line.split(',')[0] for line in often] == ['step', '5', '10'] and once == [often[0], often[2]]


# ---- resuming

def test_what_a_run_leaves(whole):
    run = whole.parent
    expected = 'config.json state.safetensors log.csv model.safetensors report.md curves.png pictures'
    assert {p.name for p in run.iterdir()} >= set(expected.split())
    saved = json.loads((run/'config.json').read_text())
    assert saved['config']['recipe']['iterations'] == 10 and saved['versions']['torch'] == torch.__version__
    assert [r['step'] for r in read_log(run/'log.csv')] == list(range(10))
    assert len(list((run/'pictures').iterdir())) == 2
    assert '10 steps of 4 episodes' in (run/'report.md').read_text()


def command(out, *more, **settings):
    options = '--cpu --picture_every 0 --checkpoint_every 2'.split()
    return [BIN/'deepgp_train', '--data', *TINY, *words(**settings), *options, '--out', out, *more]


def environment(): return os.environ | dict(OMP_NUM_THREADS='1', TQDM_DISABLE='1')


def test_resuming_something_else_is_refused(whole):
    with pytest.raises(TrainingStopped, match='already holds a run'): train(tiny(), whole.parent, cpu=True)
    with pytest.raises(TrainingStopped, match=r'recipe.lr is 0.001 in the run and 0.5 now'):
        train(tiny(lr=.5), whole.parent, resume=True, cpu=True)
    assert train(tiny(), whole.parent, resume=True, progress=False, cpu=True) == whole  # finished: nothing to do


def test_a_resumed_run_needs_no_backbone_weights(tmp_path):
    backbone = tmp_path/'backbone.safetensors'
    save_file({k: v for k, v in torchvision.models.resnet18().state_dict().items() if not k.startswith('fc')}, backbone)
    config = replace(on_resnet(iterations=2), weights=str(backbone))
    done = train(config, tmp_path/'run', **QUIET)
    done.unlink(); backbone.unlink()
    assert train(config, tmp_path/'run', resume=True, **QUIET) == done and done.exists()
    with pytest.raises((ValueError, OSError), match='backbone.safetensors'): train(config, tmp_path/'other', **QUIET)
    assert train(replace(config, weights='random'), tmp_path/'other', **QUIET)  # a start that failed left no run behind


def test_a_random_backbone_is_trained_only_if_asked_for(tmp_path):
    config = on_resnet(iterations=2)
    with pytest.raises(ValueError, match='resnet18 has no weights.*set freeze_bn false.*say --weights random'):
        train(config, tmp_path/'run', **QUIET)
    with pytest.raises(ValueError, match='resnet18 has no weights'): train(config, tmp_path/'run', resume=True, **QUIET)
    assert not (tmp_path/'run').exists()
    learns = replace(config, model=replace(config.model, freeze_bn=False))
    assert train(learns, tmp_path/'scratch', **QUIET)
    assert train(replace(config, weights='random'), tmp_path/'run', **QUIET)
    with pytest.raises(TrainingStopped, match="weights is 'random' in the run and None now"):
        train(config, tmp_path/'run', resume=True, **QUIET)


def test_a_run_from_before_that_rule_continues(tmp_path, monkeypatch):
    config = on_resnet(iterations=4)
    with monkeypatch.context() as then:
        then.setattr(training, 'check_weights', lambda config: None)
        done = train(config, tmp_path/'run', checkpoint_every=2, **QUIET)
    (tmp_path/'run/state_before.safetensors').replace(tmp_path/'run/state.safetensors')  # as after two steps
    done.unlink()
    assert train(config, tmp_path/'run', resume=True, **QUIET) == done and done.exists()


@pytest.mark.parametrize('frozen_bn', [True, False])
@pytest.mark.parametrize('backbone', ['resnet18', 'small'])
def test_a_frozen_random_backbone_is_used_only_if_asked_for(tmp_path, backbone, frozen_bn):
    preset, scales = ('paper', (16,)) if backbone == 'resnet18' else ('shapes', (8,))
    settings = SETTINGS | dict(iterations=2, backbone=backbone, scales=scales)
    config = make_config(preset, dict(name='shapes', n_train=60, side=48), freeze_backbone=True, freeze_bn=frozen_bn,
                         **settings)
    with pytest.raises(ValueError, match=f'{backbone} has no weights.*freeze_backbone keeps it so.*'
                                         'set freeze_backbone false.*say --weights random') as refused:
        train(config, tmp_path/'run', **QUIET)
    assert ('set freeze_backbone false and freeze_bn false' in str(refused.value)) == (
        frozen_bn and backbone == 'resnet18')
    assert ('--weights FILE' in str(refused.value)) == (backbone == 'resnet18')  # nobody has weights for the small one
    assert not (tmp_path/'run').exists()
    assert train(replace(config, weights='random'), tmp_path/'run', **QUIET)


def test_a_backbone_of_a_user_may_bring_its_own_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(BACKBONES, 'things', dict(BACKBONES.things))
    BACKBONES.add('mine')(type('Mine', (SmallEncoder,), dict(__module__='__main__')))
    settings = SETTINGS | dict(iterations=2, backbone='mine', scales=(8,), freeze_backbone=True)
    assert train(make_config('shapes', dict(name='shapes', n_train=60, side=48), **settings), tmp_path/'run', **QUIET)


def test_missing_weights_are_no_matter_of_the_disk(tmp_path, monkeypatch):
    "They are said alone: nothing is wrong with the folder of the run, and there is nothing to resume"
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path/'hub'))
    config = replace(on_resnet(iterations=2), weights='imagenet')
    with pytest.raises(FileNotFoundError) as missing: train(config, tmp_path/'run', **QUIET)
    assert sentence(missing.value).startswith('The ImageNet weights of resnet18 are not in the cache')
    assert 'written or read' not in str(missing.value) and '--resume' not in str(missing.value)


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    save, calls = training.save_state, []
    def full(path, tensors, **header):
        calls.append(header['step'])
        if len(calls) == 2: raise OSError(28, 'No space left on device')
        save(path, tensors, **header)
    monkeypatch.setattr(training, 'save_state', full)
    with pytest.raises(TrainingStopped, match='No space left on device.; the last checkpoint, of step 3, is intact'):
        train(tiny(), tmp_path/'run', checkpoint_every=3, **QUIET)
    assert load_state(tmp_path/'run/state.safetensors')[1]['step'] == 3


@pytest.mark.parametrize('content', [b'', b'half', None])
def test_a_damaged_checkpoint_gives_way_to_the_one_before_it(whole, tmp_path, capsys, content):
    how = dict(checkpoint_every=3, **QUIET)
    state = train(tiny(), tmp_path/'run', **how).parent/'state.safetensors'
    assert load_state(training.before(state))[1]['step'] == 9
    state.write_bytes(state.read_bytes()[:5000] if content is None else content)
    assert same(weights(train(tiny(), tmp_path/'run', resume=True, **how)), weights(whole))
    said = capsys.readouterr().err
    assert f'{state} is not the state of a training run, or is damaged' in said
    assert 'continuing from the one before it, of step 9.' in said
    for path in (state, training.before(state)): path.write_bytes(b'')
    with pytest.raises(BadFile, match='state_before.safetensors is not the state'):
        train(tiny(), tmp_path/'run', resume=True, **how)


def test_an_unwritable_folder_is_noticed_at_the_start(tmp_path):
    (tmp_path/'file').write_text('')
    with pytest.raises(TrainingStopped, match='cannot be written'): train(tiny(), tmp_path/'file/run', cpu=True)


@pytest.mark.parametrize('damage', [lambda b: b[:100], lambda b: b[:len(b)//2], lambda b: b'', lambda b: b'x'*1000])
def test_a_damaged_state_is_named(whole, tmp_path, damage):
    (tmp_path/'state.safetensors').write_bytes(damage((whole.parent/'state.safetensors').read_bytes()))
    with pytest.raises(BadFile, match='state.safetensors is not the state of a training run, or is damaged'):
        load_state(tmp_path/'state.safetensors')


SPOILT = [('running_var', lambda t: -t, 'negative variances'),
          ('.weight', lambda t: t.round().to(torch.int64), 'whole numbers, where weights are fractions'),
          ('.weight', lambda t: t*float('nan'), 'not real, finite numbers'),
          ('.exp_avg_sq', lambda t: -1 - t, 'values that no optimizer leaves'),
          ('.exp_avg', lambda t: t/0, 'values that no optimizer leaves')]


@pytest.mark.parametrize('name, spoil, says', SPOILT, ids=range(len(SPOILT)))
def test_a_state_with_values_that_no_training_leaves_is_refused(whole, tmp_path, name, spoil, says):
    shutil.copytree(whole.parent, tmp_path/'run')
    state = tmp_path/'run/state.safetensors'
    tensors, header = load_state(state)
    key = next(k for k in tensors if k.endswith(name))
    training.save_state(state, tensors | {key: spoil(tensors[key])}, **header)
    with pytest.raises(BadFile, match=f'state.safetensors does not fit its run .*{says}.*choose another --out'):
        train(tiny(iterations=12), tmp_path/'run', resume=True, **QUIET)


def test_a_loss_that_is_no_number_stops_with_a_dump(tmp_path, monkeypatch):
    real, n = training.loss_sum, []
    def broken(*args):
        n.append(1)
        return real(*args)*(float('nan') if len(n) == 4 else 1)
    monkeypatch.setattr(training, 'loss_sum', broken)
    with pytest.raises(TrainingStopped, match=r'loss of step 3 is nan. Its episodes are \[12, 13, 14, 15\] of seed 0'):
        train(tiny(), tmp_path/'run', **QUIET)
    tensors, header = load_state(tmp_path/'run/failed_step_000003.safetensors')
    data, _ = training_data(tiny())
    episode = Episodes(data, 1, 48, length=99, how=Augment(recolour=True))[12]
    assert header['indices'] == [12, 13, 14, 15]
    assert torch.equal(tensors['episode.query_images'][0], episode.query_images)


# ---- several processes, accumulation, precision

def test_two_processes_give_the_curve_of_one(tmp_path):
    "The same loss at every step but for rounding"
    train(tiny(iterations=6), tmp_path/'one', **QUIET)
    shared = ['torchrun', '--nproc_per_node', '2', '--master_port', str(29500 + os.getpid() % 1000)]
    words = [BIN/shared[0], *shared[1:], *command(tmp_path/'two', iterations=6)]
    run = subprocess.run(words, env=environment(), capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    a, b = ([r['loss'] for r in read_log(tmp_path/f'{n}/log.csv')] for n in ('one', 'two'))
    assert a[0] == pytest.approx(b[0], rel=1e-6) and a == pytest.approx(b, rel=5e-4)


def test_accumulation_keeps_the_gradient():
    "Without batch norm in training mode, gradients add up to those of the whole batch"
    config, accelerator, grads = tiny(), Accelerator(cpu=True), []
    data, _ = training_data(config)
    episode = next(iter(training.episode_loader(Episodes(data, 1, 48), 4)))
    for micro in (None, 1):
        torch.manual_seed(0)
        model = DeepGPNet(config.model).eval()
        loss = training.forward_backward(model, episode, accelerator, replace(config.recipe, micro=micro))[0]
        grads.append((loss, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])))
    (loss, gradient), (sum_of_losses, sum_of_gradients) = grads
    assert loss == pytest.approx(sum_of_losses, rel=1e-6)
    assert torch.allclose(gradient, sum_of_gradients, atol=1e-5, rtol=1e-3)


def test_bfloat16_trains(tmp_path):
    "Or is refused, where it would kill the process: see test_commands.py, too"
    if training.bf16_trouble():
        with pytest.raises(TrainingStopped, match='train with --precision no'):
            train(tiny(precision='bf16'), tmp_path/'run', cpu=True)
        return
    assert train(tiny(precision='bf16', iterations=3), tmp_path/'run', **QUIET)
    assert train(tiny(iterations=3), tmp_path/'full', **QUIET)
    half, full = ([r['loss'] for r in read_log(tmp_path/f'{n}/log.csv')] for n in ('run', 'full'))
    assert np.isfinite(half).all() and half != full and half[0] == pytest.approx(full[0], rel=.05)


# ---- scores

def test_counts_against_torchmetrics():
    torchmetrics = pytest.importorskip('torchmetrics')
    g = torch.Generator().manual_seed(0)
    total, metric = [0, 0], torchmetrics.JaccardIndex(task='binary', ignore_index=255)
    for _ in range(5):
        guess = torch.rand(20, 30, generator=g) > .5
        truth = torch.tensor([0, 1, 255])[torch.randint(0, 3, (20, 30), generator=g)]
        c = count_pixels(guess, truth)
        total = [total[0] + c['inter'], total[1] + c['union']]
        metric.update(guess.int(), truth)
    assert total[0]/total[1] == pytest.approx(float(metric.compute()))


def test_scores_by_hand():
    rows = [dict(label=1, inter=10, union=20, back_inter=70, back_union=90),
            dict(label=2, inter=0, union=5, back_inter=95, back_union=100)]
    assert class_iou(rows, (1, 2, 3)) == {1: .5, 2: 0., 3: None} and miou(rows, (1, 2, 3)) == .25
    assert fb_iou(rows) == pytest.approx((10/25 + 165/190)/2)
    assert np.isnan(miou([], (1,))) and np.isnan(fb_iou([])) and np.isnan(bootstrap([], (1,))['miou'][0])


def test_empty_and_ignored():
    nothing = torch.zeros(4, 4).bool()
    assert count_pixels(nothing, torch.zeros(4, 4)) == dict(inter=0, union=0, back_inter=16, back_union=16)
    assert count_pixels(~nothing, torch.full((4, 4), 255)) == dict(inter=0, union=0, back_inter=0, back_union=0)
    nothing_to_find = [dict(label=1, **count_pixels(nothing, torch.zeros(4, 4)))]
    assert np.isnan(miou(nothing_to_find, (1,)))  # there is no IoU then; it is not zero


def test_the_interval_covers_the_truth():
    "Of 100 samples of 60 episodes, about 95 intervals hold the score of the whole population"
    rng = np.random.default_rng(0)
    population = [dict(label=int(rng.integers(1, 4)), inter=int(i), union=100, back_inter=1, back_union=2)
                  for i in rng.beta(2, 2, 5000)*100]
    truth, hits = miou(population, (1, 2, 3)), 0
    for k in range(100):
        sample = [population[i] for i in rng.integers(0, 5000, 60)]
        low, high = bootstrap(sample, (1, 2, 3), draws=200, seed=k)['miou']
        hits += low <= truth <= high
    assert 86 <= hits <= 100


def test_calibration_and_auroc_against_the_libraries():
    sklearn = pytest.importorskip('sklearn.metrics')
    torchmetrics = pytest.importorskip('torchmetrics')
    g = torch.Generator().manual_seed(1)
    p, v = torch.rand(60, 60, generator=g), torch.rand(60, 60, generator=g)
    v = (((v*FINE).floor() + .5)/FINE)**2  # in the middle of the bins
    truth = (torch.rand(60, 60, generator=g) < p**2).long()
    truth[:5] = 255
    row = histograms(p, v, truth)
    keep = truth != 255
    calibration = torchmetrics.CalibrationError(task='binary', n_bins=15)(p[keep], truth[keep])
    assert ece([row]) == pytest.approx(float(calibration), abs=1e-5)
    wrong = ((p > .5) != (truth == 1))[keep]
    assert auroc(*add_up([row], 'variance')) == pytest.approx(sklearn.roc_auc_score(wrong, v[keep]), abs=1e-9)
    unsure = 1 - (2*p[keep] - 1).abs()
    assert auroc(*add_up([row], 'doubt')) == pytest.approx(sklearn.roc_auc_score(wrong, unsure), abs=5e-3)


def test_variance_is_split_by_what_the_support_shows(whole):
    "Against the label maps, counted by hand"
    fold = open_data('shapes', n_val=60, side=48)
    episodes = Episodes(fold.test, 1, 48, train=False, length=6)
    for row in evaluate(load_checkpoint(whole), episodes, progress=False):
        d, images = episodes.draw(row['index']), fold.test.images
        labels, seen = images.labels(d.queries[0]), set(images.areas[d.supports[0]])
        counts = {c: int((labels == c).sum()) for c in range(21)}
        others = {c: n for c, n in counts.items() if c not in (0, d.label)}
        expected = [counts[d.label], sum(n for c, n in others.items() if c in seen),
                    sum(n for c, n in others.items() if c not in seen), counts[0]]
        assert [n for _, n in row['where'].values()] == expected
        assert all(0 <= v <= n for v, n in row['where'].values())


def test_evaluation_is_the_same_for_any_shares_and_after_a_kill(whole, tmp_path):
    model, fold = load_checkpoint(whole), open_data('shapes', n_val=60, side=48)
    episodes = Episodes(fold.test, 2, 48, train=False, length=15)
    rows = evaluate(model, episodes, progress=False)
    for rank in range(3):
        evaluate(model, episodes, tmp_path/'shared', dict(a=1), rank=rank, world=3, progress=False)
    assert finish(tmp_path/'shared', dict(a=1), episodes) == rows
    some = Episodes(fold.test, 2, 48, train=False, length=7)
    evaluate(model, some, tmp_path/'part', dict(a=1), progress=False)
    part, = (tmp_path/'part').glob('part_*')
    part.write_text(part.read_text()[:-30])
    assert evaluate(model, episodes, tmp_path/'part', dict(a=1), progress=False) == rows
    with pytest.raises(BadFile, match='evaluation of something else'):
        evaluate(model, episodes, tmp_path/'part', dict(a=2), progress=False)


def test_the_evaluation_command_resumes_and_repeats(whole, tmp_path):
    def said(*words):
        args = [BIN/'deepgp_eval', whole.parent, '--shots', '1', '--episodes', '20', '--cpu', *words]
        return subprocess.run(args, env=environment(), capture_output=True, text=True, check=True).stdout
    first, again = (said('--out', tmp_path/'a') for _ in range(2))
    assert first == again and 'mIoU' in first
    said('--write_list', tmp_path/'list.txt')
    assert 'mIoU' in said('--out', tmp_path/'b', '--list', tmp_path/'list.txt')
    a, b = (json.loads(next((tmp_path/d).rglob('result.json')).read_text()) for d in 'ab')
    assert a['miou'] == b['miou'] and a['iou'] == b['iou']


# ---- end to end

def test_a_short_training_learns_to_segment_new_classes(tmp_path):
    "Held-out classes: clearly better than the untrained model and than calling everything foreground"
    data = dict(name='shapes', n_train=600, n_val=200, side=64)
    narrow = dict(dim=32, encoding_dim=8, decoder_width=16)
    config = make_config('shapes', data, iterations=100, batch=8, shots=3, size=64, **narrow)
    fold = open_data(**config.data)
    episodes = Episodes(fold.test, 3, 64, train=False, length=100)
    def of(model): return miou(evaluate(model, episodes, progress=False, uncertainty=False), fold.test.classes)
    torch.manual_seed(config.recipe.seed)
    untrained = of(DeepGPNet(config.model).eval())
    truths = [(int(e.label), e.originals[0]) for e in map(episodes.__getitem__, range(100))]
    all_foreground = [dict(label=c, **count_pixels(torch.ones_like(truth).bool(), truth)) for c, truth in truths]
    everything = miou(all_foreground, fold.test.classes)
    score = of(load_checkpoint(train(config, tmp_path/'run', **QUIET)))
    print(f'untrained {untrained:.3f}, everything {everything:.3f}, trained {score:.3f}')
    assert score > max(untrained, everything) + .1


# ---- without training

@pytest.mark.parametrize('learner', ['gp', 'prototype', 'multiprototype', 'attention', 'transductive'])
def test_learners_are_evaluated_without_training(tmp_path, capsys, learner):
    backbone = tmp_path/'resnet18.safetensors'
    save_file({k: v.contiguous() for k, v in torchvision.models.resnet18(weights=None).state_dict().items()}, backbone)
    args = ['--learner', learner, '--backbone', 'resnet18', '--weights', str(backbone), '--data', *TINY, '--size', '48',
            '--shots', '2', '--episodes', '6', '--cpu', '--out', str(tmp_path/'eval')]
    deepgp_eval(args)
    result = json.loads(next((tmp_path/'eval').rglob('result.json')).read_text())
    assert result['model'] == dict(learner=learner, backbone='resnet18', levels=None, trained=False)
    assert result['episodes'] == 6
    assert f'--learner {learner}' in result['command'] and 'mIoU' in capsys.readouterr().out
    beside_the_papers = ours_beside('ablation', [result | dict(data='PASCAL-5^i, fold 0', part='')])
    assert all(row['ours'] == row['ours F0'] == 'not measured' for row in beside_the_papers['rows'])


def test_what_to_evaluate_must_be_said():
    for args in ([], ['run', '--learner', 'gp']):
        with pytest.raises(SystemExit, match='Name trained models, or a --learner'): deepgp_eval(args)
    with pytest.raises(SystemExit, match='needs a trained backbone'): deepgp_eval(['--learner', 'gp'])
