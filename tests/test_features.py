"The cache of features: the same numbers as without it, whatever is killed, truncated or changed"
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from deepgp_fss import features, training
from deepgp_fss.datasets import open_data
from deepgp_fss.encoders import Encoded, ResNetEncoder, SmallEncoder
from deepgp_fss.episodes import VIEWS, Episodes, as_tv, episode_loader, view_window
from deepgp_fss.features import FeatureCache, fill
from deepgp_fss.base import BadFile
from deepgp_fss.model import DeepGPNet, ModelConfig, load_checkpoint
from deepgp_fss.training import make_config, read_log, train

SMALL = dict(name='shapes', n_train=40, n_val=40, side=48)
SETTINGS = dict(iterations=8, batch=4, shots=1, size=48, dim=16, encoding_dim=8, decoder_width=16,
                freeze_backbone=True, augment=False)


def frozen(**settings): return make_config('shapes', SMALL, 'random', **SETTINGS | settings)


@pytest.mark.parametrize('config', [ModelConfig('resnet18', 16, encoding_dim=8, decoder_width=16),
                                    ModelConfig('resnet18', 16, (32, 16), encoding_dim=8, decoder_width=16),
                                    ModelConfig('small', 16, (8,), encoding_dim=8, decoder_width=16)])
def test_encoded_images_give_the_same_scores(config):
    model, (s, q) = DeepGPNet(config).eval(), (torch.rand(2, k, 3, 64, 64) for k in (3, 2))
    masks = (torch.rand(2, 3, 64, 64) > .5).long()
    def encoded(x, deep=None):
        return Encoded([m.unflatten(0, x.shape[:2]) for m in model.encoder.trunk(x.flatten(0, 1))][:deep], x.shape[-2:])
    with torch.no_grad():
        torch.testing.assert_close(model(encoded(s, len(config.scales)), masks, encoded(q)), model(s, masks, q))


def test_bytes_and_floats_are_the_same_images():
    model = DeepGPNet(ModelConfig('small', 16, (8,), encoding_dim=8, decoder_width=16)).eval()
    images = torch.randint(0, 256, (1, 3, 3, 48, 48), dtype=torch.uint8)
    with torch.no_grad():
        a, b = (model(x[:, 1:], torch.ones(1, 2, 48, 48), x[:, 0]) for x in (images, images.float()/255))
    assert torch.equal(a, b)


def test_training_on_kept_features_follows_training_on_images(tmp_path):
    how = dict(picture_every=4, progress=False, cpu=True, features=dict(folder=tmp_path/'features'))
    runs = [train(frozen(cache=c), tmp_path/str(c), **how) for c in (False, True)]
    a, b = ([row['loss'] for row in read_log(run.parent/'log.csv')] for run in runs)
    np.testing.assert_allclose(a, b, rtol=5e-3)
    assert a != b  # otherwise the cache was not used: it holds half precision
    assert len(list((tmp_path/'True/pictures').iterdir())) == 2


def test_resumed_to_the_bit_even_if_the_cache_was_deleted(tmp_path, monkeypatch):
    def run(name, **more):
        features = dict(folder=tmp_path/'features')
        return train(frozen(cache=True), tmp_path/name, progress=False, cpu=True, features=features, **more)
    whole, step, calls = load_checkpoint(run('whole')).state_dict(), training.forward_backward, []
    def interrupted(*args):
        calls.append(1)
        if len(calls) == 6: raise RuntimeError('interrupted')
        return step(*args)
    monkeypatch.setattr(training, 'forward_backward', interrupted)
    with pytest.raises(RuntimeError, match='interrupted'): run('interrupted', checkpoint_every=2)
    for f in (tmp_path/'features').glob('*/*'): f.unlink()
    again = load_checkpoint(run('interrupted', resume=True)).state_dict()
    assert len(calls) == 6 + 4  # steps 4 to 7 are done after the interruption
    assert all(torch.equal(a, b) for a, b in zip(whole.values(), again.values(), strict=True))


def test_two_runs_that_want_the_same_features_at_the_same_time(tmp_path):
    "The second waits while the first reserves its files; before, it truncated those that the first was filling"
    script = """if True:
        import sys, time
        from deepgp_fss import features
        from deepgp_fss.datasets import open_data
        from deepgp_fss.encoders import SmallEncoder
        reserve = features.reserve
        def slowly(path, size): print('reserved', flush=True); reserve(path, size); time.sleep(.3)
        features.reserve = slowly
        import torch; torch.manual_seed(0)
        data, encoder = open_data('shapes', n_train=40, n_val=40, side=48).train, SmallEncoder(16)
        print('ready', flush=True); sys.stdin.readline()
        cache = features.FeatureCache(encoder, data, 48, sys.argv[1])
        features.fill(cache, encoder, data, progress=False)
        cache.read([int(data.lists[data.classes[0]][0])])"""
    pipes = dict.fromkeys(('stdin', 'stdout', 'stderr'), subprocess.PIPE)
    words = [sys.executable, '-c', script, tmp_path/'features']
    runs = [subprocess.Popen(words, text=True, **pipes) for _ in range(2)]
    for run in runs: assert run.stdout.readline() == 'ready\n', run.stderr.read()
    for run in runs: run.stdin.write('go\n'); run.stdin.flush()
    said = [run.communicate(timeout=900) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    files = len(list((tmp_path/'features').glob('*/map*.f16'))) + 1
    assert sorted(out.count('reserved') for out, _ in said) == [0, files]


def test_stopped_while_features_are_computed(tmp_path, monkeypatch):
    "Filling may take long: a request to stop is heard after a few images, and what was computed is not computed again"
    def run(**more):
        features = dict(folder=tmp_path/'features')
        return train(frozen(cache=True), tmp_path/'run', progress=False, cpu=True, features=features, **more)
    read, seen = features._read, []
    def stop_at_third(*args):
        seen.append(args[1])
        if len(seen) == 3: os.kill(os.getpid(), signal.SIGTERM)
        return read(*args)
    monkeypatch.setattr(features, '_read', stop_at_third)
    assert run() is None and len(seen) == 8  # the rest of its group of eight, and no more
    assert run(resume=True).exists()
    assert len(seen) == len(set(seen)) == len(open_data(**SMALL).train.queries)


THAWED = dict(backbone='resnet18', scales=(32, 16), encoding_dim=8, decoder_width=8, dim=16, size=64, iterations=4,
              thaw='layer4.1', cache=True, views=3, shots=3, fewest_shots=1, support_stride=1)

def test_a_thawed_block_trains_on_kept_features_and_what_is_before_it_does_not(tmp_path):
    def run(out, **settings):
        how = dict(progress=False, cpu=True, features=dict(folder=tmp_path/'features'))
        return load_checkpoint(train(frozen(**THAWED | settings), tmp_path/out, **how)).state_dict()
    thawed, cut, still = run('thawed'), run('cut', cut='layer3'), run('still', thaw=None)
    for name, value in thawed.items():
        trained = name.startswith('encoder.layer4.1.conv')
        if name.startswith('encoder.project') or not name.startswith('encoder.'): continue
        if trained: assert not torch.equal(value, still[name]), name
        elif 'layer4.1' not in name: assert torch.equal(value, still[name]), name
    # where features are cut changes how they are rounded, and nothing else
    for name, value in thawed.items(): torch.testing.assert_close(cut[name], value, rtol=.1, atol=.02)
    assert len(list((tmp_path/'features').glob('*/about.json'))) == 3


def test_each_view_is_kept_and_drawn(tmp_path):
    data, encoder = open_data(**SMALL).train, SmallEncoder(16)
    cache = FeatureCache(encoder, data, 48, tmp_path, views=len(VIEWS))
    assert fill(cache, encoder, data, progress=False) == len(VIEWS)*len(data.queries)
    i = int(data.queries[0])
    image, _ = as_tv(*data.images.load(i, data.present[i][0]))
    for view in range(len(VIEWS)):
        kept = cache.read([i], views=[view]).maps
        with torch.no_grad(): maps = encoder.trunk(view_window(image, 48, view)[None])
        for a, b in zip(kept, maps): torch.testing.assert_close(a.float(), b, rtol=2e-3, atol=2e-3)
    episodes = Episodes(data, 2, 48, length=8, how=None, features=cache)
    drawn = [np.random.default_rng([0, 3, k, 0]).integers(len(VIEWS), size=3).tolist() for k in range(8)]
    for k, views in enumerate(drawn):
        draw, episode = episodes.draw(k), episodes[k]
        mask = as_tv(*data.images.load(draw.queries[0], draw.label))[1]
        assert torch.equal(episode.query_masks[0], view_window(mask, 48, views[0]))
        expected = cache.read(draw.queries, views=views[:1]).maps
        for a, b in zip(episode.query_images.maps, expected): assert torch.equal(a, b)
    assert {view for views in drawn for view in views} == set(range(len(VIEWS)))


def test_settings_of_views_and_thaw_that_make_no_sense(tmp_path):
    with pytest.raises(ValueError, match='views are only for kept features'): make_config('shapes', SMALL, views=2)
    with pytest.raises(ValueError, match='fewest_shots must lie between 1 and shots'):
        make_config('shapes', SMALL, shots=3, fewest_shots=4)
    with pytest.raises(ValueError, match='set freeze_backbone true'):
        DeepGPNet(ModelConfig('resnet18', 16, thaw='layer4'))
    with pytest.raises(ValueError, match='thaw is for ResNets'):
        DeepGPNet(ModelConfig('small', 16, (8,), thaw='layer4', freeze_backbone=True))
    behind = frozen(**THAWED | dict(thaw='layer3', cut='layer4', views=1))
    with pytest.raises(ValueError, match='cut layer4 lies behind it'):
        train(behind, tmp_path/'run', progress=False, cpu=True, features=dict(folder=tmp_path/'features'))


def test_two_processes_share_the_filling(tmp_path):
    data = open_data(**SMALL).train
    encoder = SmallEncoder(16)
    one, two = (FeatureCache(encoder, data, 48, tmp_path/n) for n in ('one', 'two'))
    n = fill(one, encoder, data, progress=False)
    parts = [fill(two, encoder, data, rank, 2, progress=False) for rank in (0, 1)]
    assert sum(parts) == n == len(data.queries) and min(parts) > 0
    for a, b in zip(one.read(data.queries).maps, two.read(data.queries).maps): assert torch.equal(a, b)


def test_workers_read_it(tmp_path):
    data, encoder = open_data(**SMALL).train, SmallEncoder(16)
    cache = FeatureCache(encoder, data, 48, tmp_path)
    fill(cache, encoder, data, progress=False)
    episodes = Episodes(data, 1, 48, length=6, how=None, features=cache)
    here, there = ([e.query_images.maps[-1] for e in episode_loader(episodes, 2, w)] for w in (0, 2))
    assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


def test_every_change_gives_another_key(tmp_path):
    encoder, data = ResNetEncoder('resnet18', 8), open_data(**SMALL).train
    path = lambda e=encoder, d=data, size=32: FeatureCache(e, d, size, tmp_path, create=False).path
    other = ResNetEncoder('resnet18', 8)
    other.load_state_dict(encoder.state_dict())
    assert path(other) == path()
    other.layer3[0].bn1.running_mean[0] += 1e-6
    normalised = ResNetEncoder('resnet18', 8)
    normalised.load_state_dict(encoder.state_dict())
    normalised.normalise.mean[0] = .5
    more = open_data(**SMALL | dict(n_train=41)).train
    assert len({path(), path(other), path(normalised), path(size=48), path(d=more)}) == 5


@pytest.fixture
def folder(tmp_path):
    "A data set of files, one of them broken"
    rng = np.random.default_rng(0)
    for c in ('cat', 'dog'):
        (tmp_path/'data'/c).mkdir(parents=True)
        for i in range(4):
            Image.fromarray(rng.integers(0, 256, (60, 80, 3), dtype=np.uint8)).save(tmp_path/f'data/{c}/{i}.jpg')
            mask = np.pad(np.full((58, 80), 255, np.uint8), ((1, 1), (0, 0)))
            Image.fromarray(mask).save(tmp_path/f'data/{c}/{i}.png')
    return tmp_path/'data'


def test_a_broken_file(folder, tmp_path):
    data, encoder = open_data('folder', folder, test_classes=['dog'], min_area=10).train, SmallEncoder(16)
    (folder/'cat/2.jpg').write_bytes(b'no image')
    cache = FeatureCache(encoder, data, 48, tmp_path/'features')
    with pytest.raises(BadFile, match='cannot be read as an image'): fill(cache, encoder, data, progress=False)
    assert fill(cache, encoder, data, skip_broken=True, progress=False) == 3
    episodes = Episodes(data, 1, 48, length=20, how=None, skip_broken=True, features=cache)
    assert sum(int(e.skipped) for e in episodes) > 0
    with pytest.raises(BadFile, match='no kept features'):
        list(Episodes(data, 1, 48, length=20, how=None, features=cache))


def test_a_changed_photograph_is_seen(folder, tmp_path):
    encoder, paths = SmallEncoder(16), []
    for shade in (10, 200):
        Image.new('RGB', (80, 60), (shade,)*3).save(folder/'cat/1.jpg')
        data = open_data('folder', folder, test_classes=['dog'], min_area=10).train
        paths.append(FeatureCache(encoder, data, 48, tmp_path, create=False).path)
    assert paths[0] != paths[1]


def test_no_room(tmp_path, monkeypatch):
    data, encoder = open_data(**SMALL).train, SmallEncoder(16)
    with pytest.raises(BadFile, match='more than the limit of 1e-05 GB'):
        FeatureCache(encoder, data, 48, tmp_path, limit=1e-5)
    def full(path, size): Path(path).touch(); raise OSError(28, 'No space left on device')
    monkeypatch.setattr('deepgp_fss.features.reserve', full)
    with pytest.raises(BadFile, match='no room for .*No space left'): FeatureCache(encoder, data, 48, tmp_path)
    assert not [p for p in tmp_path.rglob('*') if p.is_file()]


def test_evaluation_on_kept_features(tmp_path):
    how = dict(progress=False, cpu=True, features=dict(folder=tmp_path/'features'))
    model = train(frozen(cache=True), tmp_path/'run', **how)
    def scores(*more):
        command = Path(sys.executable).parent/'deepgp_eval', model.parent, '--episodes', '12', '--cpu'
        subprocess.run([*command, '--out', tmp_path/f'eval{len(more)}', *more], check=True, capture_output=True)
        return json.loads(next((tmp_path/f'eval{len(more)}').rglob('result.json')).read_text())
    a, b = scores(), scores('--cache', '--cache_dir', tmp_path/'features')
    assert abs(a['miou'] - b['miou']) < .01 and a['episodes'] == b['episodes'] == 12
