"Data sets: splits, real file layouts, indices, and what is said when something is wrong"
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from layouts import category_ids, make_coco, make_voc
from PIL import Image

from deepgp_fss import prepare
from deepgp_fss.datasets import (COCO_CLASSES, INDEX_VERSION, KNOWN, PASCAL_CLASSES, FewShotData, Side, Subset, coco,
                                 coco_folds, folder_set, hold_out, open_data, pascal, read_index, read_list,
                                 transfer_folds)
from deepgp_fss.base import FOLDS, BadFile
from deepgp_fss.commands import deepgp_data, deepgp_eval, deepgp_train
from deepgp_fss.config import DATASETS, make_config
from deepgp_fss.files import read_labels
from deepgp_fss.prepare import build_coco, build_pascal, check_data, read_sbd

SHARED = Path(__file__).resolve().parents[2]/'shared/data'
real = pytest.mark.skipif(not (SHARED/'voc').is_dir(), reason='no real images: ../shared/data is not there')


# ---- splits

PASCAL_SPLIT = ['aeroplane bicycle bird boat bottle', 'bus car cat chair cow', 'diningtable dog horse motorbike person',
                'pottedplant sheep sofa train tvmonitor']
COCO_SPLIT = {  # first, second and last class of each fold
    'interleaved': [('person', 'airplane', 'scissors'), ('bicycle', 'bus', 'teddy bear'),
                    ('car', 'train', 'hair drier'), ('motorcycle', 'truck', 'toothbrush')],
    'contiguous': [('person', 'bicycle', 'cow'), ('elephant', 'bear', 'bottle'),
                   ('wine glass', 'cup', 'bed'), ('dining table', 'toilet', 'toothbrush')]}


def test_pascal_folds():
    assert [[PASCAL_CLASSES[c - 1] for c in f] for f in FOLDS] == [f.split() for f in PASCAL_SPLIT]


@pytest.mark.parametrize('kind', COCO_SPLIT)
def test_coco_folds(kind):
    folds = coco_folds(kind)
    assert sorted(sum(folds, ())) == list(range(1, 81)) and [len(f) for f in folds] == [20]*4
    assert [tuple(COCO_CLASSES[f[i] - 1] for i in (0, 1, -1)) for f in folds] == COCO_SPLIT[kind]


def test_transfer_tests_only_what_coco_held_out():
    "A PASCAL class is in transfer fold i exactly if COCO's fold i holds the same thing out"
    assert sorted(sum(transfer_folds(), ())) == list(range(1, 21))
    # car and cat are swapped in another project
    for name, fold in (('car', 2), ('cat', 3), ('sofa', 1), ('person', 0)):
        assert PASCAL_CLASSES.index(name) + 1 in transfer_folds()[fold]


# ---- PASCAL

def test_voc_and_sbd_make_the_usual_label_maps(tmp_path):
    voc, sbd = make_voc(tmp_path)
    out, made, total = build_pascal(tmp_path, sbd, progress=False)
    assert (made, total) == (6, 6) and out == voc/'SegmentationClassAug'
    of_voc = np.array(Image.open(voc/'SegmentationClass/2007_000001.png'))  # with its border
    assert np.array_equal(read_labels(out/'2007_000001.png'), of_voc)
    assert np.array_equal(read_labels(out/'2009_000005.png'), read_sbd(sbd/'cls/2009_000005.mat'))
    assert [i.name for i in pascal(tmp_path).items] == ['2007_000001', '2008_000002', '2008_000004']
    every = ['2007_000001', '2008_000002', '2008_000004', '2009_000005']
    assert [i.name for i in pascal(tmp_path, train_list='aug').items] == every
    assert {i.name for i in pascal(tmp_path/'VOCdevkit', 'val').items} == {'2007_000003', '2007_000006'}


def test_building_goes_on_where_it_was_killed(tmp_path, monkeypatch):
    _, sbd = make_voc(tmp_path)
    save, n = prepare.save_labels, []
    def killed(path, labels):
        n.append(path)
        if len(n) == 4: raise KeyboardInterrupt
        save(path, labels)
    monkeypatch.setattr(prepare, 'save_labels', killed)
    with pytest.raises(KeyboardInterrupt): build_pascal(tmp_path, sbd, workers=1, progress=False)
    assert not list(tmp_path.rglob('.*.part'))
    out, made, total = build_pascal(tmp_path, sbd, workers=1, progress=False)
    assert 1 <= made <= 3 and len(list(out.glob('*.png'))) == total == 6


def test_a_list_file_of_pfenet(tmp_path):
    _, sbd = make_voc(tmp_path)
    build_pascal(tmp_path, sbd, progress=False)
    (tmp_path/'list.txt').write_bytes(b'\xef\xbb\xbfJPEGImages/2009_000005.jpg SegmentationClassAug/2009_000005.png\r\n'
                                      b'\r\n../../etc/2008_000002.jpg x\r\n')
    items = pascal(tmp_path, train_list=tmp_path/'list.txt').items
    assert [i.name for i in items] == ['2009_000005', '2008_000002']
    assert all(i.image.parent.name == 'JPEGImages' for i in items)  # a list cannot lead elsewhere


@pytest.mark.parametrize('text, says', [(b'a\nb\na\n', 'lists a twice'), (b'\xff\xfe\x00x', 'not text in UTF-8')])
def test_bad_lists(tmp_path, text, says):
    (tmp_path/'list.txt').write_bytes(text)
    with pytest.raises(BadFile, match=says): read_list(tmp_path/'list.txt')


def test_pascal_without_masks_or_images_says_what_to_do(tmp_path):
    with pytest.raises(BadFile, match='does not look like PASCAL VOC 2012'): pascal(tmp_path)
    make_voc(tmp_path)
    with pytest.raises(BadFile, match='deepgp_data build pascal'): pascal(tmp_path)
    with pytest.raises(BadFile, match='does not look like SBD'):
        build_pascal(tmp_path, tmp_path/'VOCdevkit', progress=False)


@pytest.mark.parametrize('content', [b'', b'not a mat file', b'MATLAB 5.0 MAT-file' + bytes(200)])
def test_a_broken_mat_file_is_named(tmp_path, content):
    (tmp_path/'x.mat').write_bytes(content)
    with pytest.raises(BadFile, match='x.mat is not a label map of SBD'): read_sbd(tmp_path/'x.mat')


# ---- COCO

def test_coco_masks_beside_pycocotools(tmp_path):
    "Against the reference implementation of the annotations, drawn one by one"
    from pycocotools.coco import COCO
    data = make_coco(tmp_path)
    (out, made, total), = build_coco(tmp_path, ['val'], progress=False).values()
    assert (made, total) == (3, 3)  # one image has no object, one only a crowd
    reference = COCO(str(tmp_path/'annotations/instances_val2014.json'))
    labels_of = {i: COCO_CLASSES.index(n) + 1 for n, i in category_ids().items()}
    for image in data['images']:
        path = out/f"{Path(image['file_name']).stem}.png"
        anns = [a for a in data['annotations'] if a['image_id'] == image['id']]
        assert path.exists() == any(not a['iscrowd'] for a in anns)
        if not path.exists(): continue
        expected = np.zeros((image['height'], image['width']), np.uint8)
        for a in sorted(anns, key=lambda a: not a['iscrowd']):
            drawn = reference.annToMask(reference.anns[a['id']]) > 0
            expected[drawn] = 255 if a['iscrowd'] else labels_of[a['category_id']]
        assert np.array_equal(read_labels(path), expected)


def test_coco_compat_draws_the_first_polygon_and_no_crowd(tmp_path):
    make_coco(tmp_path)
    for masks in ('full', 'compat'): build_coco(tmp_path, ['val'], masks, progress=False)
    full, compat = (coco(tmp_path, 'val', masks) for masks in ('full', 'compat'))
    assert [i.name for i in full.items] == [f'COCO_val2014_{i:012}' for i in (1, 3, 9)]  # by number
    dog = COCO_CLASSES.index('dog') + 1
    assert full.areas[2][dog] - compat.areas[2][dog] == 64  # the second polygon
    assert 255 in full.areas[1] and 255 not in compat.areas[1]


def test_half_built_coco_is_not_used(tmp_path):
    make_coco(tmp_path)
    with pytest.raises(BadFile, match='deepgp_data build coco'): coco(tmp_path, 'val')


@pytest.mark.parametrize('change, says', [
    (lambda d: d.pop('categories'), 'lacks images, annotations or categories'),
    (lambda d: d['categories'].pop(), "lacks the category 'toothbrush'"),
    (lambda d: d['annotations'][0].pop('segmentation'), "without 'segmentation'"),
    (lambda d: d['annotations'][0].update(image_id=99), 'is of image 99'),
    (lambda d: d['annotations'][0].update(segmentation=[[1, 2]]), 'annotation 1 has a shape that cannot be drawn'),
    (lambda d: d['annotations'][5].update(segmentation=dict(size=[5, 5], counts=[5, 20])), 'annotation 6 has a shape'),
    (lambda d: d['images'][0].pop('height'), "without 'height'")])
def test_bad_coco_files_are_named(tmp_path, change, says):
    data = make_coco(tmp_path)
    change(data)
    path = tmp_path/'annotations/instances_val2014.json'
    path.write_text(json.dumps(data))
    with pytest.raises(BadFile, match='instances_val2014.json.*' + says): build_coco(tmp_path, ['val'], progress=False)
    path.write_text(json.dumps(data)[:100])
    with pytest.raises(BadFile, match='is damaged'): build_coco(tmp_path, ['val'], progress=False)


# ---- a data set of one's own

@pytest.fixture
def blocks(tmp_path, monkeypatch):
    "Label maps, opened by a function of its own; some images are for training, the others for testing"
    make_label_maps(tmp_path/'blocks', 24)
    monkeypatch.setattr(DATASETS, 'things', dict(DATASETS.things))

    @DATASETS.add('blocks')
    def blocks_fold(fold, root, n_train:int=12):
        base, novel = hold_out(fold, ((1, 2), (3, 4)), 4)
        images = folder_set(root)
        return (f'blocks, fold {fold}', Side(lambda: Subset(images, range(n_train)), base, 50),
                Side(lambda: Subset(images, range(n_train, len(images))), novel, 50))
    return tmp_path/'blocks'


def test_a_data_set_of_ones_own_is_opened_and_configured(blocks):
    fold = open_data('blocks', blocks, 1)
    assert (fold.train.classes, fold.test.classes) == ((1, 2), (3, 4)) and fold.test.min_area == 50
    assert open_data('blocks', blocks, 1, min_area=300).test.min_area == 300
    config = make_config('shapes', dict(name='blocks', root=str(blocks), n_train=6))
    assert len(open_data(**config.data).train.images) == 6
    with pytest.raises(ValueError, match='n_train must be a whole number'): open_data('blocks', blocks, n_train='six')
    with pytest.raises(ValueError, match='does not take these options'): open_data('blocks', blocks, n_val=6)
    with pytest.raises(ValueError, match='blocks needs root'): open_data('blocks')


def test_a_data_set_of_ones_own_is_known_to_commands(blocks, tmp_path, capsys):
    words = ['--dataset', 'blocks', '--root', str(blocks), '--data', 'n_train=6']
    deepgp_train([*words, '--show'])
    assert json.loads(capsys.readouterr().out)['data'] == dict(name='blocks', root=str(blocks), n_train=6)
    deepgp_eval(['shapes', *words, '--shots', '1', '--cpu', '--write_list', str(tmp_path/'list.txt')])
    assert len((tmp_path/'list.txt').read_text().splitlines()) == 1001
    deepgp_data('check', 'blocks', str(blocks))
    assert 'blocks, label maps: 24 mask(s)' in capsys.readouterr().out


# ---- folders

def make_label_maps(root, n=12, side=48):
    (root/'images').mkdir(parents=True); (root/'masks').mkdir()
    for i in range(n):
        labels = np.zeros((side, side), np.uint8)
        labels[8:30, 8:30] = 1 + i % 4
        labels[32:44, 8:30] = 1 + (i + 1) % 4 if i % 3 == 0 else 0
        Image.fromarray(np.repeat(labels[..., None]*50, 3, 2)).save(root/f'images/{i:02}.jpg')
        Image.fromarray(labels).save(root/f'masks/{i:02}.png')
    (root/'classes.txt').write_text('1 one\n2 two\n3 three\n4 four\n')


@pytest.mark.parametrize('fold', range(4))
def test_a_folder_splits_by_class_and_shares_no_image(tmp_path, fold):
    make_label_maps(tmp_path)
    data = open_data('folder', tmp_path, fold, min_area=50)
    train, test = data.train, data.test
    assert not set(train.classes) & set(test.classes) and len(test.classes) == 1
    names = [{images.name(i) for i in range(len(images))} for images in (train.images, test.images)]
    assert not names[0] & names[1]
    assert open_data('folder', tmp_path, fold, min_area=50).test.classes == test.classes
    assert 'seed 0' in data.title


def test_all_folds_of_a_folder_hold_every_class_out_once(tmp_path):
    make_label_maps(tmp_path)
    held = [open_data('folder', tmp_path, f, min_area=50, seed=3).test.classes for f in range(4)]
    assert sorted(sum(held, ())) == [1, 2, 3, 4]


def test_fss1000_layout(tmp_path):
    for c in range(300):  # more classes than a label map could hold
        (tmp_path/f'class_{c:03}').mkdir()
        Image.new('RGB', (24, 20)).save(tmp_path/f'class_{c:03}/1.jpg')
        mask = Image.fromarray(np.pad(np.full((6, 4), 255, np.uint8), ((2, 12), (3, 17))))
        mask.convert('RGB').save(tmp_path/f'class_{c:03}/1.png')
    images = folder_set(tmp_path)
    assert len(images) == len(images.classes) == 300 and images.areas[299] == {300: 24}
    image, mask = images.load(254, 255)
    assert image.shape == (20, 24, 3) and mask.sum() == 24 and mask.max() == 1
    assert images.load(254, 1)[1].sum() == 0


def test_photographs_rotated_by_exif(tmp_path):
    "A mask drawn on the upright picture, or on the picture as it lies: both fit"
    make_label_maps(tmp_path, n=2)
    picture = np.zeros((30, 50, 3), np.uint8); picture[:, :10] = 255
    exif = Image.Exif(); exif[0x0112] = 6  # rotate by 90 degrees clockwise to see it upright
    for i, shape in ((0, (50, 30)), (1, (30, 50))):
        Image.fromarray(picture).save(tmp_path/f'images/{i:02}.jpg', exif=exif)
        Image.fromarray(np.ones(shape, np.uint8)).save(tmp_path/f'masks/{i:02}.png')
    images = folder_set(tmp_path)
    upright, lying = images.load(0, 1)[0], images.load(1, 1)[0]
    assert upright.shape == (50, 30, 3) and upright[5].mean() > 200 > 50 > upright[-5].mean()
    assert lying.shape == (30, 50, 3) and lying[:, 5].mean() > 200


def test_folders_that_lack_something(tmp_path):
    with pytest.raises(BadFile, match='holds neither'): folder_set(tmp_path)
    make_label_maps(tmp_path)
    (tmp_path/'masks/03.png').unlink()
    with pytest.raises(BadFile, match='1 photograph.* no label map, such as .*03.jpg'): folder_set(tmp_path)
    (tmp_path/'classes.txt').write_text('2 two\n1 one\n')
    (tmp_path/'images/03.jpg').unlink()
    with pytest.raises(BadFile, match='must number its classes'): folder_set(tmp_path)


def test_unknown_held_out_class(tmp_path):
    make_label_maps(tmp_path)
    with pytest.raises(BadFile, match="has no class 'five'"): open_data('folder', tmp_path, test_classes=['five'])


# ---- index

def test_a_stale_index_is_made_again(tmp_path):
    make_label_maps(tmp_path)
    images = folder_set(tmp_path)
    areas, text = images.areas, images.index_file.read_text()
    assert read_index(images) == areas
    version, masks = (f'index {INDEX_VERSION}', 'index 0', 1), ('12 masks', '11 masks')
    for changed in (text.replace(*version), text.replace(*masks), text.replace('03\t', '33\t'), text[:-20], 'x', ''):
        images.index_file.write_text(changed)
        assert read_index(folder_set(tmp_path)) is None
        assert folder_set(tmp_path).areas == areas
    later = time.time() + 5
    os.utime(tmp_path/'masks/07.png', (later, later))
    assert read_index(images) is None


def test_index_of_read_only_data_goes_to_the_cache(tmp_path, monkeypatch):
    make_label_maps(tmp_path/'data')
    monkeypatch.setenv('DEEPGP_FSS_CACHE', str(tmp_path/'cache'))
    # root may write anywhere, so chmod would not do
    (tmp_path/'data/deepgp_index').write_text('a file where the folder should be')
    images = folder_set(tmp_path/'data')
    assert len(images.areas) == 12 and len(list((tmp_path/'cache').rglob('*.txt'))) == 1
    assert read_index(images) == images.areas


# ---- lists of classes

def test_area_filter_and_what_is_present(tmp_path):
    "PFENet's rule: large enough to be a support, any size to be the class of a query"
    make_label_maps(tmp_path)
    images = folder_set(tmp_path)
    data = FewShotData(images, (1, 2), min_area=300)
    for i, areas in enumerate(images.areas):
        assert [c for c in (1, 2) if i in data.lists[c]] == [c for c in (1, 2) if areas.get(c, 0) >= 300]
        assert data.present[i] == tuple(c for c in (1, 2) if c in areas)
    assert data.queries.tolist() == sorted({*data.lists[1], *data.lists[2]})
    assert FewShotData(images, (1, 2, 3), 300, min_images=len(data.lists[1])).classes
    with pytest.raises(BadFile, match='lower min_area'): FewShotData(images, (1,), min_area=10**6)


# ---- check

def test_check_compares_with_known_counts(tmp_path):
    _, sbd = make_voc(tmp_path)
    build_pascal(tmp_path, sbd, progress=False)
    lines, wrong = check_data('pascal', tmp_path, progress=False)
    assert any('images: 2, but a complete set has 1,449' in w for w in wrong)
    assert any('(known: 345)' in line for line in lines)
    assert check_data('pascal', tmp_path, part=True, progress=False)[1] == []
    assert KNOWN['coco', 'val']['folds'] == (26_052, 15_305, 13_138, 12_640)


def test_a_part_of_pascal_is_called_a_part(tmp_path):
    _, sbd = make_voc(tmp_path)
    build_pascal(tmp_path, sbd, progress=False)
    fold = next(f for f in (open_data('pascal', tmp_path, f, min_area=30) for f in range(4)) if _has_images(f))
    assert fold.part == 'only 2 of 1,449 validation images' and open_data('shapes', n_val=20).part == ''


def _has_images(fold):
    "Does this fold's test side have any image?"
    try: return bool(fold.test)
    except BadFile: return False


def test_check_finds_each_kind_of_damage(tmp_path):
    voc, sbd = make_voc(tmp_path)
    out, _, _ = build_pascal(tmp_path, sbd, progress=False)
    jpeg = voc/'JPEGImages'
    Image.new('RGB', (10, 20)).save(jpeg/'2007_000001.jpg')
    (jpeg/'2008_000002.jpg').write_bytes((jpeg/'2008_000002.jpg').read_bytes()[:400])
    (jpeg/'2008_000004.jpg').unlink()
    Image.new('L', (64, 64), 21).save(out/'2007_000003.png')
    Image.new('RGB', (64, 64)).save(out/'2007_000006.png')
    wrong = check_data('pascal', tmp_path, part=True, progress=False)[1]
    for piece in ('10x20, but its mask', '2008_000002.jpg cannot be read', '2008_000004.jpg does not exist',
                  'holds label 21', 'holds colours'):
        assert sum(piece in w for w in wrong) == 1, (piece, wrong)
    assert len(wrong) == 5
    command = Path(sys.executable).parent/'deepgp_data', 'check', 'pascal', tmp_path
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1 and '5 thing(s) wrong' in run.stderr and 'Traceback' not in run.stderr


# ---- real photographs, if they are there

@real
@pytest.mark.parametrize('split, n', [('train', 2196), ('val', 447)])
def test_real_pascal(tmp_path, split, n):
    images = pascal(SHARED/'voc', split)
    images.index_file = tmp_path/'index.txt'  # leave the shared folder as it is
    assert len(images) == n
    assert all(set(areas) <= {*range(1, 21), 255} for areas in images.areas)
    holds = {name: sum(c in areas for areas in images.areas) for c, name in enumerate(PASCAL_CLASSES, 1)}
    least = dict(train=dict(dog=600, cat=550, horse=400), val=dict(dog=100, cat=100, sheep=50))[split]
    assert all(holds[name] >= count for name, count in least.items())
    image, mask = images.load(0, next(c for c in images.areas[0] if c < 255))
    assert image.shape[:2] == mask.shape and max(image.shape) == 320 and set(np.unique(mask)) <= {0, 1, 255}
    assert (mask == 1).any()


@real
def test_real_coco_as_a_folder(tmp_path):
    images = folder_set(SHARED/'coco_mini')
    images.index_file = tmp_path/'index.txt'
    assert len(images) == 549 and images.classes == COCO_CLASSES
    assert all(set(areas) <= {*range(1, 81), 255} for areas in images.areas)
