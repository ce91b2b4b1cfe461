"Episodes: aligned, exact on the way back, and the same for everyone"
import hashlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layouts import make_voc

from deepgp_fss.datasets import open_data
from deepgp_fss.episodes import (Augment, Episodes, as_tv, augment, batches, content_size, draw_episode, episode_loader,
                                 from_window, read_episodes, recolour, to_window, write_episodes)
from deepgp_fss.base import BadFile
from deepgp_fss.prepare import build_pascal


@pytest.fixture(scope='module')
def fold(): return open_data('shapes', n_train=80, n_val=60)


# ---- into the window and back

@given(st.integers(1, 96), st.integers(1, 96), st.integers(0, 9))
def test_masks_come_back_exactly(h, w, seed):
    mask = np.random.default_rng(seed).choice(np.array([0, 1, 255], np.uint8), (h, w))
    image, window = to_window(*as_tv(np.zeros((h, w, 3), np.uint8), mask), 96)
    assert torch.equal(from_window(window, h, w, 'nearest-exact'), torch.from_numpy(mask))
    assert (window == 255).sum() >= 96*96 - np.prod(content_size(h, w, 96))  # all around it does not count


@given(st.integers(40, 300), st.integers(40, 300))
def test_larger_images_come_back_in_place(h, w):
    "Edges at a third of the image return to within a pixel of the window"
    mask = np.zeros((h, w), np.uint8)
    mask[h//3:, w//3:] = 1
    _, window = to_window(*as_tv(np.zeros((h, w, 3), np.uint8), mask), 64)
    back = from_window((window == 1).float(), h, w).numpy() > .5
    slack = max(1, max(h, w)/64)
    rows, columns = back[:, -5].argmax(), back[-5].argmax()
    assert abs(rows - h//3) <= slack and abs(columns - w//3) <= slack


@given(st.integers(20, 200), st.integers(20, 200))
def test_a_ramp_comes_back_as_a_ramp(h, w):
    "Un-padding neither shifts nor stretches: coordinates return to themselves"
    size = 128
    fh, fw = content_size(h, w, size)
    y = (torch.arange(size) + .5)*h/fh
    window = torch.where(torch.arange(size) < fh, y, torch.nan)[:, None].expand(size, size)
    back = from_window(window, h, w)[:, w//2]
    inner = slice(2 + h//fh, -2 - h//fh)
    assert torch.allclose(back[inner], torch.arange(h)[inner] + .5, atol=.05)


# ---- augmentation

def coloured_square(h, w, top, left, side):
    image, mask = np.zeros((h, w, 3), np.uint8), np.zeros((h, w), np.uint8)
    image[top:top+side, left:left+side], mask[top:top+side, left:left+side] = (255, 200, 0), 1
    return image, mask


@given(st.integers(60, 160), st.integers(60, 160), st.floats(0, 1), st.floats(0, 1), st.integers(0, 10**6))
def test_image_and_mask_stay_together(h, w, a, b, seed):
    side = 30
    square = coloured_square(h, w, int(a*(h - side)), int(b*(w - side)), side)
    image, mask = augment(*as_tv(*square), 96, np.random.default_rng(seed))
    on, bright = mask == 1, image[0] > 127
    assert image.shape == (3, 96, 96) and image.dtype == mask.dtype == torch.uint8
    assert set(mask.unique().tolist()) <= {0, 1, 255}
    edge = 4*on.sum().sqrt()  # blur and interpolation may disagree along the outline
    assert (on & ~bright).sum() <= edge and (bright & ~on & (mask != 255)).sum() <= edge
    # what does not count is black, but for interpolation
    assert image[:, mask == 255].float().sum() <= 30*3*(mask == 255).sum()


@given(st.integers(0, 10**6))
def test_a_cut_keeps_most_of_the_object(seed):
    image, mask = coloured_square(96, 96, 30, 30, 30)
    whole = augment(*as_tv(image, mask), 96, np.random.default_rng(seed), Augment(scale=(1.1, 1.1), rotated=0))[1]
    assert (whole == 1).sum() >= .85*33**2*.97


def test_without_chance_augmentation_is_fit():
    image, mask = coloured_square(50, 80, 10, 20, 25)
    still = Augment(scale=(1, 1), rotated=0, blur=0, mirror=0)
    unchanged = augment(*as_tv(image, mask), 64, np.random.default_rng(0), still)
    for a, b in zip(unchanged, to_window(*as_tv(image, mask), 64)):
        assert torch.equal(a, b)


def test_every_augmentation_happens():
    image, mask = coloured_square(64, 64, 5, 5, 20)
    for change in (dict(scale=(.9, .9)), dict(scale=(1.1, 1.1)), dict(rotated=1), dict(blur=1), dict(mirror=1)):
        how = Augment(**dict(scale=(1, 1), rotated=0, blur=0, mirror=0) | change)
        changed = augment(*as_tv(image, mask), 64, np.random.default_rng(1), how)
        assert not torch.equal(changed[0], to_window(*as_tv(image, mask), 64)[0]), change


# ---- draws

def test_each_pass_shows_every_query_once(fold):
    n = len(fold.train.queries)
    for epoch in (0, 1):
        seen = [draw_episode(fold.train, 1, 5, i).queries[0] for i in range(epoch*n, (epoch + 1)*n)]
        assert sorted(seen) == fold.train.queries.tolist()
    first, second = ([draw_episode(fold.train, 1, 5, i + e*n).queries[0] for i in range(n)] for e in (0, 1))
    assert first != second != sorted(second)


@pytest.mark.parametrize('shuffle, shots, queries', [(True, 5, 1), (False, 1, 1), (False, 3, 4)])
def test_draws_keep_the_rules(fold, shuffle, shots, queries):
    data = fold.train if shuffle else fold.test
    for i in range(200):
        d = draw_episode(data, shots, 1, i, shuffle, queries)
        assert len({*d.supports, *d.queries}) == shots + queries == len(d.supports) + len(d.queries)
        assert d.label in data.present[d.queries[0]]
        assert all(j in data.lists[d.label] for j in (*d.supports, *d.queries[1:]))
        if not shuffle: assert d.queries[0] == data.queries[i % len(data.queries)]


def test_classes_of_a_query_are_drawn_evenly(fold):
    query = next(k for k, i in enumerate(fold.train.queries) if len(fold.train.present[i]) > 1)
    n = len(fold.train.queries)
    labels = [draw_episode(fold.train, 1, 0, query + k*n, shuffle=False).label for k in range(400)]
    counts = np.unique(labels, return_counts=True)[1]
    assert len(counts) == len(fold.train.present[fold.train.queries[query]]) and counts.min() > .7*400/len(counts)


def test_seeds_and_shots_differ(fold):
    draws = {tuple(draw_episode(fold.train, 2, seed, i) for i in range(5)) for seed in range(4)}
    assert len(draws) == 4


# ---- the same for everyone

def fingerprint(episodes):
    return hashlib.sha256(b''.join(t.numpy().tobytes() for e in episodes for t in e[:7])).hexdigest()


def alone(fold, n=8, **kwargs): return [Episodes(fold.train, 2, 64, seed=7, length=n, **kwargs)[i] for i in range(n)]


def split(batch): return [tuple(t[i] for t in batch[:7]) for i in range(len(batch.index))]


@pytest.mark.parametrize('workers, batch', [(0, 1), (0, 4), (2, 2), (2, 4)])
def test_same_episodes_for_any_workers_and_batch(fold, workers, batch):
    loader = episode_loader(Episodes(fold.train, 2, 64, seed=7, length=8), batch, workers)
    assert fingerprint(e for b in loader for e in split(b)) == fingerprint(alone(fold))


def test_same_episodes_for_several_processes_and_after_a_resume(fold):
    episodes = Episodes(fold.train, 2, 64, seed=7, length=8)
    parts = [[split(b) for b in episode_loader(episodes, 4, rank=r, world=2)] for r in (0, 1)]
    assert fingerprint(e for two in zip(*parts) for part in two for e in part) == fingerprint(alone(fold))
    resumed = episode_loader(Episodes(fold.train, 2, 64, seed=7, length=8), 2, start=2)
    assert fingerprint(e for b in resumed for e in split(b)) == fingerprint(alone(fold)[4:])


def test_another_process_makes_the_same_bytes(fold):
    code = '''
import hashlib, torch; from deepgp_fss.datasets import open_data; from deepgp_fss.episodes import Episodes
torch.manual_seed(5)
e = Episodes(open_data('shapes', n_train=80, n_val=60).train, 2, 64, seed=7, length=8)
print(hashlib.sha256(b''.join(t.numpy().tobytes() for i in reversed(range(8)) for t in e[i][:7])).hexdigest())'''
    out = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, check=True).stdout.strip()
    assert out == fingerprint(reversed(alone(fold)))


def test_torch_and_numpy_seeds_do_not_matter(fold):
    torch.manual_seed(1); np.random.seed(1)
    first = fingerprint(alone(fold))
    torch.manual_seed(2); np.random.seed(2)
    assert fingerprint(alone(fold)) == first


@given(st.integers(1, 60), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.integers(0, 3))
def test_processes_share_every_batch(length, batch, world, start):
    if batch % world: return
    shares = [batches(length, batch, start, r, world) for r in range(world)]
    assert sorted(i for s in shares for b in s for i in b) == list(range(start*batch, length))


# ---- evaluation, lists, broken files

def test_evaluation_keeps_the_original_masks(fold):
    e = Episodes(fold.test, 1, 64, train=False)[0]
    d = draw_episode(fold.test, 1, 0, 0, shuffle=False)
    assert np.array_equal(e.originals[0].numpy(), fold.test.images.mask(d.queries[0], d.label))
    assert e.originals[0].shape == (96, 96)


def test_a_list_of_episodes_can_be_repeated(fold, tmp_path):
    episodes = Episodes(fold.test, 3, 64, seed=2, train=False, length=25, queries=2)
    path = write_episodes(tmp_path/'list.txt', episodes)
    again = Episodes(fold.test, 3, 64, train=False, draws=read_episodes(path, fold.test, queries=2), queries=2)
    assert len(again) == 25
    for i in (0, 24): assert fingerprint([episodes[i]]) == fingerprint([again[i]])


@pytest.mark.parametrize('change, says', [
    (lambda t: t.replace('# deepgp_fss episodes 1', '# something else'), 'does not begin with'),
    (lambda t: t.replace('val/', 'elsewhere/', 1), "line 2: 'elsewhere/.*' is not in"),
    (lambda t: t + 'agate\tval/1\n', 'there is no support image'),
    (lambda t: t + 'agate\tval/1\tval/2\tval/3\n', 'differ in their number of shots'),
    (lambda t: t + 'unobtainium\tval/1\tval/2\n', "'unobtainium' is not in")])
def test_bad_lists_of_episodes(fold, tmp_path, change, says):
    path = write_episodes(tmp_path/'list.txt', Episodes(fold.test, 1, 64, train=False, length=5))
    path.write_text(change(path.read_text()))
    with pytest.raises(BadFile, match=says): read_episodes(path, fold.test)


@pytest.fixture
def broken(tmp_path):
    names = dict(train=[f'2007_{i:06}' for i in range(14)], val=['2008_000001'], sbd=[], main=[])
    voc, sbd = make_voc(tmp_path, names)
    build_pascal(tmp_path, sbd, progress=False)
    data = open_data('pascal', tmp_path, fold=0, min_area=30, min_images=3).train
    victim = voc/'JPEGImages/2007_000003.jpg'
    victim.write_bytes(victim.read_bytes()[:300])
    return data


def test_a_broken_file_is_named_or_skipped_and_counted(broken):
    strict, lenient = Episodes(broken, 1, 64, length=28), Episodes(broken, 1, 64, length=28, skip_broken=True)
    met = [i for i in range(28) if 3 in (*strict.draw(i).queries, *strict.draw(i).supports)]
    assert met
    with pytest.raises(BadFile, match=rf'Episode {met[0]} \(seed 0\): .*2007_000003.jpg cannot be read'): strict[met[0]]
    skipped = [int(lenient[i].skipped) for i in range(28)]
    assert [i for i in range(28) if skipped[i]] == met
    assert fingerprint([lenient[met[0]]]) == fingerprint([lenient[met[0]]])


def test_too_few_images_is_said_before_anything_runs(fold):
    with pytest.raises(BadFile, match='Use fewer shots, lower min_area, or leave such classes out'):
        Episodes(fold.test, 59, 64)


def test_an_episode_is_recoloured_as_a_whole():
    def noise(n):
        chance = torch.Generator().manual_seed(n)
        return torch.randint(0, 256, (n, 3, 8, 9), dtype=torch.uint8, generator=chance)
    a, b = noise(2), noise(3)
    again = lambda seed: np.random.default_rng(seed)
    ways = set()
    for seed in range(400):
        out = recolour(torch.cat([a, b]), again(seed))
        assert torch.equal(out, torch.cat([recolour(a, again(seed)), recolour(b, again(seed))]))  # alike in all images
        ways.add(out[0, :, 0, 0].numpy().tobytes())
    assert len(ways) == 48


def test_recolouring_is_for_training_only_and_repeats():
    data = open_data('shapes', n_train=40, n_val=40, side=48).train
    how = Augment(scale=(1, 1), blur=0, mirror=0, rotated=0)
    recoloured = how._replace(recolour=True)
    plain, coloured, again = (Episodes(data, 2, 48, length=8, how=h) for h in (how, recoloured, recoloured))
    changed = 0
    for i in range(8):
        assert torch.equal(plain[i].support_masks, coloured[i].support_masks)
        assert torch.equal(coloured[i].query_images, again[i].query_images)
        changed += not torch.equal(plain[i].query_images, coloured[i].query_images)
    assert changed >= 6
    still = Episodes(data, 2, 48, length=1, train=False, how=how._replace(recolour=True))[0]
    assert torch.equal(still.query_images, Episodes(data, 2, 48, length=1, train=False)[0].query_images)
