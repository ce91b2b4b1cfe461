"The index of a data set: every change of a mask is seen, and any number of processes may want it at once"
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
from layouts import make_voc
from PIL import Image

from deepgp_fss import datasets
from deepgp_fss.datasets import ImageSet, Item, build_index, folder_set, pascal, read_index
from deepgp_fss.prepare import build_pascal

LONG_AGO = (10**9, 10**9)


def label_maps(root, n):
    "A folder with label maps of four classes"
    for name in ('images', 'masks'): (root/name).mkdir(parents=True)
    for i in range(n):
        labels = np.zeros((48, 48), np.uint8)
        labels[8:30, 8:30], labels[32:44, 8:30] = 1 + i % 4, i % 3
        Image.fromarray(np.repeat(labels[..., None]*50, 3, 2)).save(root/f'images/{i:03}.jpg')
        Image.fromarray(labels).save(root/f'masks/{i:03}.png')
    (root/'classes.txt').write_text('1 one\n2 two\n3 three\n4 four\n')
    return root


@pytest.fixture
def data(tmp_path): return label_maps(tmp_path/'data', 12)


def draw(path, label): Image.fromarray(np.full((48, 48), label, np.uint8)).save(path)


def test_a_mask_replaced_by_an_older_one(data):
    "As cp -p and rsync do: the newest time of all stays as it is"
    for p in (data/'masks').iterdir(): os.utime(p, (2*10**9, 2*10**9))
    assert folder_set(data).areas[3] != {4: 48*48}
    older = data/'older.png'
    draw(older, 4)
    os.utime(older, LONG_AGO)
    shutil.copy2(older, data/'masks/03.png')  # not the name of an image
    shutil.copy2(older, data/'masks/003.png')
    assert read_index(folder_set(data)) is None
    assert folder_set(data).areas[3] == {4: 48*48}


def test_two_masks_that_change_places(data):
    for i, p in enumerate(sorted((data/'masks').iterdir())): os.utime(p, (10**9 + i, 10**9 + i))
    areas = folder_set(data).areas
    a, b, aside = data/'masks/001.png', data/'masks/002.png', data/'aside'
    a.rename(aside), b.rename(a), aside.rename(b)
    swapped = folder_set(data).areas
    assert swapped[1] == areas[2] != areas[1] == swapped[2]


def test_the_same_masks_under_other_names(data):
    "Two photographs exchange their names, and so their masks"
    images = folder_set(data)
    images.areas
    backwards = [Item(images.items[11 - i].name, *images.items[i][1:]) for i in range(12)]
    turned = ImageSet(backwards, images.classes, images.title, images.index_file)
    assert read_index(turned) is None and turned.areas == images.areas


def test_an_index_of_the_version_before_is_made_again(data):
    images = folder_set(data)
    newest = max(p.stat().st_mtime_ns for p in (data/'masks').iterdir())
    lines = ''.join(f'{item.name}\t1:7\n' for item in images.items)
    images.index_file.parent.mkdir()
    images.index_file.write_text(f'# deepgp_fss index 1, 12 masks, newest {newest}\n{lines}')
    assert images.areas[0] != {1: 7} and datasets.INDEX_VERSION > 1 and read_index(folder_set(data)) == images.areas


CHILD = """if True:
    import sys, time
    from deepgp_fss import datasets
    images, count = datasets.folder_set(sys.argv[1]), datasets.ImageSet.count
    def slowly(self, i): print('counted', flush=True); time.sleep(.02); return count(self, i)
    datasets.ImageSet.count = slowly
    print('ready', flush=True); sys.stdin.readline()
    assert len(images.areas) == 12
    print('done', flush=True)"""


def children(data, n=2):
    pipe = subprocess.PIPE
    words, pipes = [sys.executable, '-c', CHILD, data], dict(stdin=pipe, stdout=pipe, stderr=pipe)
    runs = [subprocess.Popen(words, text=True, **pipes) for _ in range(n)]
    for run in runs: assert run.stdout.readline() == 'ready\n', run.stderr.read()
    for run in runs: run.stdin.write('go\n'); run.stdin.flush()
    return runs


def test_two_processes_index_a_fresh_data_set_at_once(data):
    "Both succeed, one of them counts, and nothing else is left behind"
    runs = children(data)
    said = [run.communicate(timeout=900) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    assert sorted(out.count('counted') for out, _ in said) == [0, 12]
    assert [p.name for p in (data/'deepgp_index').iterdir()] == ['index.txt']


def test_two_processes_on_a_disk_without_locks(data, monkeypatch):
    "Both count, and the second to finish finds its file already in place"
    monkeypatch.setattr(datasets, 'locked', lambda folder, wait: nullcontext())
    images, count, other = folder_set(data), ImageSet.count, []
    def counted(self, i):
        if i == 6 and not other: other.append(1); other.append(build_index(folder_set(data), workers=1, progress=False))
        return count(self, i)
    monkeypatch.setattr(ImageSet, 'count', counted)
    areas = build_index(images, workers=1, progress=False)
    assert areas == other[1] == read_index(folder_set(data)) and len(areas) == 12
    assert [p.name for p in (data/'deepgp_index').iterdir()] == ['index.txt']


def test_killed_in_the_middle_the_next_one_goes_on_and_clears_up(data, monkeypatch):
    n, stuck = 1500, 1400
    for i in range(12, n):
        for name in ('masks/{:03}.png', 'images/{:03}.jpg'): os.link(data/name.format(i % 12), data/name.format(i))
    script = CHILD.replace('== 12', f'== {n}').replace('time.sleep(.02)', f'i < {stuck} or time.sleep(600)')
    run = subprocess.Popen([sys.executable, '-c', script, data], text=True,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    run.stdin.write('go\n'); run.stdin.flush()
    for _ in range(1 + stuck): assert run.stdout.readline()  # 'ready', and one line for each mask
    run.kill(); run.wait()
    assert {p.name for p in (data/'deepgp_index').iterdir()} == {'index.txt.part', '.lock'}
    again, count = [], ImageSet.count
    monkeypatch.setattr(ImageSet, 'count', lambda self, i: (again.append(i), count(self, i))[1])
    areas = folder_set(data).areas
    assert 0 < len(again) < n and areas == [areas[int(item.name) % 12] for item in folder_set(data).items]
    assert [p.name for p in (data/'deepgp_index').iterdir()] == ['index.txt']


def test_the_cache_keeps_similar_paths_apart(tmp_path, monkeypatch):
    "/a_b/c and /a/b_c; and a path too long to be one name"
    monkeypatch.setenv('DEEPGP_FSS_CACHE', str(tmp_path/'cache'))
    def places(*parts):
        item = Item('x', tmp_path/'x.jpg', tmp_path/'x.png')
        index_file = tmp_path.joinpath(*parts)/'deepgp_index/index.txt'
        return datasets._index_places(ImageSet([item], ('c',), 'a set', index_file))[1]
    names = {places('a_b', 'c'), places('a', 'b_c'), places('a', 'b', 'c'), places(*['x'*60]*6)}
    assert len(names) == 4 and max(len(p.name) for p in names) < 100


def test_read_only_sets_with_similar_paths_keep_their_indices(tmp_path, monkeypatch):
    monkeypatch.setenv('DEEPGP_FSS_CACHE', str(tmp_path/'cache'))
    sets = [label_maps(tmp_path/path, 4) for path in ('a_b/c', 'a/b_c')]
    for s in sets: (s/'deepgp_index').write_text('a file where the folder should be')
    for s in sets: folder_set(s).areas
    assert all(read_index(folder_set(s)) for s in sets)


def test_lists_of_the_same_name_in_two_folders(tmp_path):
    _, sbd = make_voc(tmp_path)
    build_pascal(tmp_path, sbd, progress=False)
    lists = [tmp_path/f'{n}/mine.txt' for n in (1, 2)]
    for path, name in zip(lists, ('2007_000001', '2008_000002')): path.parent.mkdir(); path.write_text(name)
    sets = [pascal(tmp_path, train_list=str(p)) for p in lists]
    for s in sets: s.areas
    assert all(read_index(s) == s.areas for s in sets) and sets[0].index_file != sets[1].index_file
    (tmp_path/'pfenet.txt').write_text('2007_000001')
    assert pascal(tmp_path, train_list=str(tmp_path/'pfenet.txt')).index_file != pascal(tmp_path).index_file
