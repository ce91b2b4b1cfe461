"Kept features: damage is found where it is read, and repaired at the next start; their name holds what decides them"
import numpy as np
import pytest
import torch
from PIL import Image

from deepgp_fss import features
from deepgp_fss.datasets import ClassFolder, ShapesSet, Subset, folder_set, open_data
from deepgp_fss.encoders import SmallEncoder
from deepgp_fss.episodes import Episodes, episode_loader
from deepgp_fss.features import FeatureCache, fill, find_damaged
from deepgp_fss.base import BadFile
from deepgp_fss.training import make_config, read_log, train

SMALL = dict(name='shapes', n_train=40, n_val=40, side=48)
DAMAGED = 'are damaged: start the same command again'


@pytest.fixture
def kept(tmp_path):
    torch.manual_seed(0)
    data, encoder = open_data(**SMALL).train, SmallEncoder(16)
    cache = FeatureCache(encoder, data, 48, tmp_path/'features')
    fill(cache, encoder, data, progress=False)
    return cache, encoder, data


def flip(cache, k, i, at=100):
    "Turn one bit of map `k` of image `i`"
    path, start = cache.path/f'map{k}.f16', int(i)*2*int(np.prod(cache.shapes[k][1:]))
    content = bytearray(path.read_bytes())
    content[start + at] ^= 1
    path.write_bytes(content)


def again(cache, encoder, data): return FeatureCache(encoder, data, cache.size, cache.path.parent)


def test_one_bit_in_any_map_is_noticed(kept):
    cache, encoder, data = kept
    for k in range(len(cache.shapes)):
        flip(cache, k, data.queries[k])
        with pytest.raises(BadFile, match=DAMAGED): again(*kept).read([data.queries[k]])
    assert len(again(*kept).read(data.queries[len(cache.shapes):]).maps) == len(cache.shapes)  # all others are well


def test_a_support_image_needs_only_its_deep_maps_to_be_well(kept):
    cache, encoder, data = kept
    last = len(cache.shapes) - 1
    assert last >= cache.deep
    flip(cache, last, data.queries[0])
    assert len(again(*kept).read([data.queries[0]], deep_only=True).maps) == cache.deep
    flip(cache, 0, data.queries[0])
    with pytest.raises(BadFile, match=DAMAGED): again(*kept).read([data.queries[0]], deep_only=True)


def test_what_is_damaged_is_computed_again_to_the_bit_and_said_once(kept, capsys):
    cache, encoder, data = kept
    files = {p.name: p.read_bytes() for p in cache.path.iterdir()}
    for k, i in ((0, 3), (1, 3), (1, 20)): flip(cache, k, data.queries[i])
    repaired = again(*kept)
    assert fill(repaired, encoder, data, progress=False) == 16  # two groups of eight, for the same bytes
    said = capsys.readouterr().err
    assert said.count('\n') == 1
    assert f'The kept features of 2 image(s) in {cache.path} were damaged: they are computed again.' in said
    assert {p.name: p.read_bytes() for p in cache.path.iterdir()} == files
    assert fill(again(*kept), encoder, data, progress=False) == 0 and capsys.readouterr().err == ''


@pytest.mark.parametrize('damage', ['zeros', 'checksum', 'marks of an older version', 'marks truncated', 'marks gone'])
def test_other_damage(kept, damage):
    cache, encoder, data = kept
    whole, row, path = cache.read(data.queries).maps, int(data.queries[5]), cache.path/'done'
    marks = bytearray(path.read_bytes())
    if damage == 'zeros': (content := np.memmap(cache.path/'map0.f16', np.uint8, 'r+'))[:4096] = 0; content.flush()
    elif damage == 'checksum': marks[row*len(marks)//len(data.images) + 1] ^= 1; path.write_bytes(marks)
    elif damage == 'marks of an older version': path.write_bytes(bytes([1])*len(data.images))
    elif damage == 'marks truncated': path.write_bytes(marks[:-1])
    else: path.unlink()
    repaired = again(*kept)
    assert fill(repaired, encoder, data, progress=False) > 0
    assert all(torch.equal(a, b) for a, b in zip(whole, repaired.read(data.queries).maps, strict=True))


def test_worker_processes_notice_it(kept):
    cache, encoder, data = kept
    for i in data.queries: flip(cache, 0, i)
    with pytest.raises(BadFile, match=DAMAGED):
        list(episode_loader(Episodes(data, 1, 48, length=4, how=None, features=again(*kept)), 2, 1))


def test_two_runs_whose_numbers_differ_in_the_last_bit(kept, monkeypatch):
    "The other one writes between our writing and our marking: the checksum is of what lies there"
    cache, encoder, data = kept
    (cache.path/'done').unlink()
    mark = features._mark
    def late(maps, marks, written):
        for i in written[:3]: maps[0][i, 0, 0, 0] += 1
        mark(maps, marks, written)
    monkeypatch.setattr(features, '_mark', late)
    fill(again(*kept), encoder, data, progress=False)
    assert find_damaged(again(*kept), data.queries, progress=False) == []


def test_asked_to_stop_while_checking(kept):
    cache, encoder, data = kept
    for i in data.queries: flip(cache, 0, i)
    assert len(find_damaged(cache, data.queries, progress=False, asked=[1])) == 1
    assert len(find_damaged(cache, data.queries, progress=False)) == len(data.queries)


# ---- what the name of a cache depends on

def sideways(root, shape):
    "Photographs that lie on their side, and masks of a given shape"
    exif = Image.Exif(); exif[0x0112] = 6
    for c in ('cat', 'dog'):
        (root/c).mkdir(parents=True, exist_ok=True)
        for i in range(3):
            if not (root/f'{c}/{i}.jpg').exists():
                picture = np.arange(30*50*3, dtype=np.uint8).reshape(30, 50, 3)
                Image.fromarray(picture).save(root/f'{c}/{i}.jpg', exif=exif)
            mask = np.pad(np.full((shape[0] - 2, shape[1]), 255, np.uint8), ((1, 1), (0, 0)))
            Image.fromarray(mask).save(root/f'{c}/{i}.png')
    return open_data('folder', root, test_classes=['dog'], min_area=10).train


def test_the_shape_of_a_mask_turns_its_photograph_and_the_name_of_the_cache(tmp_path):
    torch.manual_seed(0)
    encoder, caches = SmallEncoder(16), []
    for shape in ((30, 50), (50, 30)):
        data = sideways(tmp_path/'data', shape)
        caches.append(FeatureCache(encoder, data, 48, tmp_path/'features'))
        fill(caches[-1], encoder, data, progress=False)
        assert data.images.image(0).shape[:2] == shape
    assert caches[0].path != caches[1].path
    assert not torch.equal(caches[0].read([0]).maps[0], caches[1].read([0]).maps[0])


def test_a_mask_redrawn_in_the_same_shape_keeps_the_features(tmp_path):
    a = sideways(tmp_path, (50, 30)).images.fingerprint(0)
    Image.fromarray(np.eye(50, 30, dtype=np.uint8)*255).save(tmp_path/'cat/0.png')
    assert open_data('folder', tmp_path, test_classes=['dog'], min_area=10).train.images.fingerprint(0) == a


def test_fingerprints_of_every_kind_of_set(tmp_path):
    sideways(tmp_path, (50, 30))
    images = folder_set(tmp_path)
    assert isinstance(images, ClassFolder) and Subset(images, [4, 1]).fingerprint(0) == images.fingerprint(4)
    assert '(30, 50)' in images.fingerprint(4)
    (tmp_path/'cat/1.png').write_bytes(b'no image')
    assert images.fingerprint(1).endswith('None')  # said when it is read, and not before
    sets = [dict(), dict(seed=1), dict(side=64), dict(difficulty='outline')]
    images = [ShapesSet(split, n=20, **how) for split in ('train', 'val') for how in sets]
    prints = [one.fingerprint(i) for one in images for i in (0, 1)]
    assert len(set(prints)) == len(prints)


def test_a_training_on_damaged_features_repairs_them_and_ends_the_same(tmp_path, capsys):
    def run(name):
        config = make_config('shapes', SMALL, 'random', iterations=3, batch=4, shots=1, size=48, dim=16, encoding_dim=8,
                             decoder_width=16, freeze_backbone=True, augment=False, cache=True)
        train(config, tmp_path/name, progress=False, cpu=True, features=dict(folder=tmp_path/'features'))
        return [row['loss'] for row in read_log(tmp_path/name/'log.csv')]
    first = run('first')
    path = next((tmp_path/'features').glob('*/map0.f16'))
    path.write_bytes(bytes(path.stat().st_size))
    assert run('second') == first
    assert capsys.readouterr().err.count('were damaged: they are computed again') == 1
