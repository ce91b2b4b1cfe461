"Masks mean the same wherever they are read, and nothing of the user's is written over"
import json
import os
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image

from deepgp_fss.commands import deepgp_data, deepgp_eval, deepgp_segment, deepgp_train
from deepgp_fss.datasets import FewShotData, build_index, folder_set, open_data
from deepgp_fss.episodes import Episodes
from deepgp_fss.base import BadFile
from deepgp_fss.files import MaskRule, count_labels, count_mask, read_labels, read_mask
from deepgp_fss.folders import check_out
from deepgp_fss.inputs import as_mask
from deepgp_fss.model import DeepGPNet, ModelConfig, save_checkpoint
from deepgp_fss.prepare import check_data
from deepgp_fss.segmenter import FewShotSegmenter
from deepgp_fss.widgets import Workbench

H, W = 40, 48
BOX, EDGE = np.zeros((H, W), bool), np.zeros((H, W), bool)
BOX[10:30, 12:36], EDGE[8:32, 10:38] = True, True
EDGE &= ~BOX
OBJECT = BOX.astype(np.uint8)
BORDERED = np.where(EDGE, 255, OBJECT).astype(np.uint8)
SOFT = np.where(BOX, 255, 128*EDGE).astype(np.uint8)
NOISE = np.add.outer(np.arange(H), np.arange(W)) % 3 == 0
PIXELS = np.where(BOX[..., None], (200, 60, 40), np.random.default_rng(0).integers(90, 160, (H, W, 3))).astype(np.uint8)


def grey(values): return Image.fromarray(np.asarray(values, np.uint8))


def indexed(values, *colours):
    "A palette picture; a colour is a grey or three numbers"
    picture = Image.new('P', (W, H))
    picture.putdata(np.asarray(values).ravel().tolist())
    picture.putpalette([v for c in colours for v in ((c,)*3 if isinstance(c, int) else c)])
    return picture


VOC_COLOURS = [(0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0), (0, 0, 128), (128, 0, 128), (0, 128, 128),
               (128, 128, 128), (64, 0, 0)]  # the first of them


def voc_palette(): return [(i, 255 - i//2, 3*i % 256) for i in range(256)]


def with_alpha(colours, alpha):
    return Image.fromarray(np.dstack([np.broadcast_to(colours, (H, W, 3)), alpha]).astype(np.uint8))


def jpeg(path): grey(255*OBJECT).resize((W, H)).rotate(20).save(path, 'JPEG', quality=70)


# ---- what a mask means: picture, rule -> background 0, object 1, not counted 255

MEANS = dict(
    bits=(Image.fromarray(BOX), {}, OBJECT),
    ones=(grey(OBJECT), {}, OBJECT),
    white=(grey(255*OBJECT), {}, OBJECT),
    a_border=(grey(BORDERED), {}, BORDERED),
    a_border_and_no_background=(grey(np.where(BOX, 1, 255)), {}, np.where(BOX, 1, 255)),
    full=(grey(OBJECT*0 + 1), {}, OBJECT*0 + 1),
    full_of_bits=(Image.fromarray(BOX | True), {}, OBJECT*0 + 1),
    full_and_said=(grey(OBJECT*0 + 255), dict(foreground=255), OBJECT*0 + 1),
    rgb=(grey(255*OBJECT).convert('RGB'), {}, OBJECT),
    rgb_with_border=(grey(BORDERED).convert('RGB'), {}, BORDERED),
    sixteen_bits=(Image.fromarray(BORDERED.astype(np.uint16)), {}, BORDERED),
    deep_white=(Image.fromarray(OBJECT.astype(np.uint16)*65535), dict(threshold=32768), OBJECT),
    white_first=(indexed(~BOX, 255, 0), {}, OBJECT),
    black_first=(indexed(BOX, 0, 255), {}, OBJECT),
    black_twice=(indexed(np.where(BOX, 2, np.arange(W) % 2), 0, 0, 255), {}, OBJECT),
    border_by_colour=(indexed(np.where(EDGE, 2, OBJECT), 0, 1, 255), {}, BORDERED),
    border_by_colour_backwards=(indexed(np.where(EDGE, 0, 2 - OBJECT), 255, 1, 0), {}, BORDERED),
    colours_by_number=(indexed(OBJECT, 255, (9, 80, 3)), {}, OBJECT),
    void_by_number=(indexed(BORDERED, *voc_palette()), {}, BORDERED),
    alpha=(with_alpha((0, 0, 0), 255*OBJECT), {}, OBJECT),
    alpha_in_red=(with_alpha((200, 0, 0), 255*OBJECT), {}, OBJECT),
    alpha_over_black=(with_alpha(255*OBJECT[..., None], 255*OBJECT), {}, OBJECT),
    alpha_over_hidden_colours=(with_alpha(np.where(BOX[..., None], 30, PIXELS), 255*OBJECT), {}, OBJECT),
    alpha_everywhere=(grey(BORDERED).convert('RGBA'), {}, BORDERED),
    alpha_and_grey=(grey(BORDERED).convert('LA'), {}, BORDERED),
    soft_alpha_threshold=(with_alpha((0, 0, 0), np.where(BOX, 255, 90*EDGE)), dict(threshold=128), OBJECT),
    soft_threshold=(grey(np.where(BOX, 255, 128*EDGE)), dict(threshold=129), OBJECT),
    soft_cut_lower=(grey(np.where(BOX, 255, 128*EDGE)), dict(threshold=128), BOX | EDGE),
    coloured_threshold=(Image.fromarray(np.where(BOX[..., None], (0, 250, 0), 0).astype(np.uint8)),
                        dict(threshold=100), OBJECT),
    trimap=(grey(np.where(EDGE, 3, 2 - OBJECT)), dict(foreground=1, ignore=3), BORDERED),
    trimap_in_texts=(grey(np.where(EDGE, 3, 2 - OBJECT)), dict(foreground='1', ignore=['3']), BORDERED),
    trimap_border_too=(grey(np.where(EDGE, 3, 2 - OBJECT)), dict(foreground='1,3'), BOX | EDGE),
    half_tone_ignored=(grey(np.where(BOX, 255, 128*EDGE)), dict(ignore=128), BORDERED),
    inside_out=(grey(np.where(BOX, 0, 255)), dict(foreground=0), OBJECT),
    dark_edge_threshold=(grey(np.where(BOX, 255, 20*EDGE)), dict(threshold=128), OBJECT),
    dark_edge_is_the_object=(grey(np.where(BOX, 255, 20*EDGE)), dict(foreground=20, ignore=255),
                             np.where(BOX, 255, EDGE)),
    grey_palette_threshold=(grey(SOFT).quantize(8), dict(threshold=200), OBJECT),
    class_of_voc=(grey(np.where(EDGE, 255, 12*OBJECT)), {}, BORDERED),
    class_of_voc_in_its_colours=(indexed(np.where(EDGE, 255, 12*OBJECT), *voc_palette()), {}, BORDERED),
    car_of_voc=(indexed(7*OBJECT, *VOC_COLOURS), {}, OBJECT),  # the colour of a car is a grey
    ramp=(indexed(np.where(EDGE, 255, 12*OBJECT), *range(256)), {}, BORDERED),
    a_class_and_a_crowd=(grey(np.where(BOX, 20, 255*(np.arange(W) < 8))), {}, np.where(BOX, 1, 255*(np.arange(W) < 8))),
    instances=(grey(np.where(BOX, 38, 75*EDGE)), dict(foreground='38,75'), BOX | EDGE))


def rotated(picture, file):
    exif = Image.Exif(); exif[0x112] = 3
    picture.save(file, exif=exif)
    return file


@pytest.mark.parametrize('what', MEANS)
def test_a_mask_means_the_same_in_a_class_folder_and_in_python(what, tmp_path):
    picture, rule, meaning = MEANS[what]
    file = tmp_path/'m.png'
    picture.save(file)
    assert np.array_equal(read_mask(file, MaskRule(**rule)), meaning)
    for form in (picture, file, str(file)):
        read = as_mask(form, (H, W), **rule)
        assert np.array_equal(np.where((read > 0) & (read < 255), 1, read), meaning)
    counts = np.bincount(np.asarray(meaning, int).ravel(), minlength=256)
    assert count_mask(file, MaskRule(**rule)).counts == {c: int(n) for c, n in enumerate(counts) if n}
    read = read_mask(rotated(picture, tmp_path/'t.png'), MaskRule(**rule))
    assert np.array_equal(read, np.asarray(meaning)[::-1, ::-1])


REFUSED = dict(
    half_tone=(grey(np.where(BOX, 255, 128*EDGE)), {}, 'as if its edges were soft', '--threshold'),
    dark_half_tone=(grey(np.where(BOX, 255, 64*EDGE)), {}, 'soft', '--threshold'),
    one_light_grey=(grey(np.where(BOX, 255, 254*EDGE)), {}, 'soft', '--foreground'),
    blends=(grey(255*OBJECT).resize((W, H), Image.Resampling.BILINEAR, (.4, .4, W - .4, H - .4)), {},
            'soft', '--threshold'),
    nowhere_white=(grey(np.where(BOX, 250, 128*EDGE)), {}, 'soft', '--threshold'),
    soft_alpha=(with_alpha((0, 0, 0), np.where(BOX, 255, 90*EDGE)), {}, 'soft', '--threshold'),
    two_pictures=(with_alpha(np.roll(PIXELS, 9, 1), 255*OBJECT), {}, 'colours', 'alpha channel', 'save the one'),
    two_masks=(with_alpha(255*OBJECT[..., None], np.where(EDGE, 0, 255)), {}, 'alpha channel', 'save the one'),
    colours=(Image.fromarray(PIXELS), {}, 'holds colours', 'save it in grey'),
    red_labels=(Image.fromarray(np.dstack([OBJECT, OBJECT*0, OBJECT*0])), {}, 'holds colours', 'save it in grey'),
    trimap=(grey(np.where(EDGE, 3, 2 - OBJECT)), {}, 'holds 1, 2, 3', 'no background', '--foreground', '--ignore'),
    part_of_a_trimap=(grey(np.where(EDGE, 3, 2 - OBJECT)), dict(ignore=3),
                      'holds 1, 2', 'no background', '--foreground'),
    white=(grey(OBJECT*0 + 255), {}, '255 everywhere', '--foreground 255'),
    deep_white=(Image.fromarray(OBJECT.astype(np.uint16)*65535), {}, '65535', 'from 0 to 255', '--threshold'),
    quantized=(grey(SOFT).quantize(8), {}, '0, 128, 255', 'soft', '--threshold'),
    quantized_in_colour=(grey(SOFT).convert('RGB').quantize(8), {}, '0, 128, 255', 'soft', '--threshold'),
    adaptive=(grey(SOFT).convert('RGB').convert('P', palette=Image.Palette.ADAPTIVE, colors=8), {}, 'soft'),
    grey_palette_backwards=(indexed(np.where(BOX, 0, np.where(EDGE, 1, 2)), 255, 128, 0), {}, '0, 128, 255', 'soft'),
    greys_and_a_colour_unused=(indexed(np.where(BOX, 0, np.where(EDGE, 1, 2)), 255, 128, 0, (9, 80, 3)), {}, 'soft'),
    dark_edge=(grey(np.where(BOX, 255, 20*EDGE)), {}, '0, 20, 255', 'soft', '--threshold', '--foreground', '--ignore'),
    dark_edge_of_33=(grey(np.where(BOX, 255, 33*EDGE)), {}, '0, 33, 255', 'soft', '--threshold'),
    two_dark_edges=(grey(np.where(BOX, 255, 12*EDGE + 8*EDGE*(np.arange(W) % 2))), {}, '0, 12, 20, 255', 'soft'),
    dark_edge_of_grey=(grey(np.where(BOX, 128, 60*EDGE)), {}, '0, 60, 128', 'soft', '--threshold'),
    faint_noise=(grey(np.where(BOX, 255, 2*NOISE)), {}, '0, 2, 255', 'soft', '--threshold'),
    fainter_noise=(grey(np.where(BOX, 255, 1*NOISE + NOISE*EDGE)), {}, '0, 1, 2, 255', 'soft', '--threshold'),
    two_everywhere=(grey(OBJECT*0 + 2), {}, 'holds 2 and no background', '--foreground', '--ignore'),
    two_with_a_border=(grey(np.where(BOX, 2, 255)), {}, 'no background', '--foreground', '--ignore'),
    white_but_transparent=(with_alpha(255*OBJECT[..., None], 255*~BOX), {}, 'alpha channel', 'save the one'),
    grey_but_transparent=(with_alpha(7*OBJECT[..., None], 255*~BOX), {}, 'alpha channel', 'save the one'))


@pytest.mark.parametrize('what', REFUSED)
def test_what_is_doubtful_is_refused_with_its_remedy_everywhere(what, tmp_path):
    picture, rule, *says = REFUSED[what]
    picture.save(tmp_path/'m.png')
    for read in (lambda: read_mask(tmp_path/'m.png', MaskRule(**rule)),
                 lambda: count_mask(tmp_path/'m.png', MaskRule(**rule)),
                 lambda: as_mask(picture, (H, W), 'm.png', **rule), lambda: as_mask(tmp_path/'m.png', (H, W), **rule)):
        with pytest.raises(BadFile) as error: read()
        message = str(error.value)
        assert 'm.png' in message and all(s in message for s in says) and message.endswith('.'), message
        assert '\n' not in message and len(message) < 600, message


def test_a_jpeg_is_soft_without_a_threshold(tmp_path):
    jpeg(tmp_path/'m.png')
    with pytest.raises(BadFile, match='soft'): read_mask(tmp_path/'m.png')
    whole = np.asarray(grey(255*OBJECT).rotate(20)) > 0
    assert (read_mask(tmp_path/'m.png', MaskRule(threshold=128)) != whole).mean() < .03


def side_by_side(*numbers):
    "Each number a square, apart from the others"
    return np.hstack([np.pad(np.full((6, 6), n, np.uint8), 2) for n in numbers])


def test_labels_keep_their_numbers_and_their_void():
    for numbers in ((15, 255), (1, 2, 20, 255), (1, 64, 90), (80,), (7, 150, 182), (1, 200)):
        labels = side_by_side(*numbers)
        assert np.array_equal(as_mask(labels, labels.shape), labels)
    crowd = side_by_side(64, 64, 80, 255)  # as COCO's, where 255 covers less than the labels
    assert np.array_equal(as_mask(crowd, crowd.shape), crowd)
    assert as_mask(np.array([[1, 2, 3]]), (1, 3), foreground=(1, 2)).tolist() == [[1, 2, 0]]


def test_a_class_folder_has_one_class(tmp_path):
    grey(np.where(BOX, 1, 2*EDGE)).save(tmp_path/'m.png')
    with pytest.raises(BadFile, match='holds the labels 1, 2, .* --foreground'): read_mask(tmp_path/'m.png')
    assert np.array_equal(read_mask(tmp_path/'m.png', MaskRule(foreground=1, ignore=2)), BORDERED)


def test_an_object_in_the_alpha_of_a_palette(tmp_path):
    for values, transparent in ((~BOX, 1), (BOX, 0)):  # opaque is the object, whichever number it has
        indexed(values, 0, 0).save(tmp_path/'m.png', transparency=transparent)
        assert np.array_equal(read_mask(tmp_path/'m.png'), OBJECT)
    labels = np.where(BOX, 15, 0).astype(np.uint8)
    indexed(labels, *voc_palette()).save(tmp_path/'l.png', transparency=0)
    assert np.array_equal(read_labels(tmp_path/'l.png'), labels)
    assert np.array_equal(as_mask(tmp_path/'l.png', (H, W)), labels)


def test_a_gif_keeps_its_meaning(tmp_path):
    "Its palette is written again, in any order"
    for values in (255*OBJECT, BORDERED, 255 - 255*OBJECT):
        grey(values).save(tmp_path/'m.png', 'GIF')
        assert np.array_equal(read_mask(tmp_path/'m.png'), np.where(values == 255, 1, 0) if 1 not in values else values)


def test_label_maps_take_the_same_pictures(tmp_path):
    """The first step is shared: black and white by colour; 255 and any label are left as they are. RGB is none, even if
    grey: it may be a grey of a colour map"""
    labels = np.where(EDGE, 255, 40*OBJECT).astype(np.uint8)
    for picture in (grey(labels), indexed(labels, *voc_palette()), Image.fromarray(labels.astype(np.uint16))):
        picture.save(tmp_path/'l.png')
        assert np.array_equal(read_labels(tmp_path/'l.png'), labels)
        counts = {0: H*W - int((BOX | EDGE).sum()), 40: int(BOX.sum()), 255: int(EDGE.sum())}
        assert count_labels(tmp_path/'l.png').counts == count_labels(tmp_path/'l.png', classes=40).counts == counts
    indexed(~BOX, 255, 0).save(tmp_path/'l.png')
    assert np.array_equal(read_labels(tmp_path/'l.png'), OBJECT)
    assert count_labels(tmp_path/'l.png').counts == {0: int((~BOX).sum()), 1: int(BOX.sum())}
    grey(labels).convert('RGB').save(tmp_path/'l.png')
    for read in (read_labels, count_labels):
        with pytest.raises(BadFile, match='holds colours'): read(tmp_path/'l.png')


def test_label_maps_of_a_data_set_have_its_labels(tmp_path):
    "A list of classes says more than the numbers: nothing is taken for soft, and a missing background is allowed"
    for labels in (np.where(BOX, 255, 20*EDGE), np.where(EDGE, 3, 2 - OBJECT), side_by_side(15, 255), OBJECT*0 + 4):
        grey(labels).save(tmp_path/'l.png')
        assert np.array_equal(read_labels(tmp_path/'l.png', 20), labels)
        counts = np.bincount(np.asarray(labels).ravel(), minlength=256)
        assert count_labels(tmp_path/'l.png', 20).counts == {c: int(n) for c, n in enumerate(counts) if n}
    grey(SOFT).save(tmp_path/'l.png')
    for read in (read_labels, count_labels):
        with pytest.raises(BadFile, match='l.png.* holds label 128, but there are only 20 classes'):
            read(tmp_path/'l.png', 20)


def test_alone_a_label_map_is_judged_like_any_mask(tmp_path):
    for what in REFUSED:
        picture, rule, *says = REFUSED[what]
        if rule or picture.mode in ('RGB', 'RGBA'): continue
        picture.save(tmp_path/'l.png')
        for read in (read_labels, count_labels):
            with pytest.raises(BadFile) as error: read(tmp_path/'l.png')
            assert all(s in str(error.value) for s in says)


def test_label_maps_with_an_alpha_channel(tmp_path):
    Image.merge('LA', (grey(9*OBJECT), grey(OBJECT*0 + 255))).save(tmp_path/'l.png')
    assert np.array_equal(read_labels(tmp_path/'l.png'), 9*OBJECT)
    assert np.array_equal(as_mask(tmp_path/'l.png', (H, W)), 9*OBJECT)
    with_alpha(9*OBJECT[..., None], OBJECT*0 + 255).save(tmp_path/'l.png')
    with pytest.raises(BadFile, match='holds colours'): read_labels(tmp_path/'l.png')


# ---- one class to a folder

def class_folders(root, mask=BORDERED, n=3):
    for c in ('cup', 'jug', 'mug', 'pot'):
        for i in range(n):
            (root/c).mkdir(parents=True, exist_ok=True)
            Image.fromarray(PIXELS).save(root/f'{c}/{i}.jpg')
            grey(mask).save(root/f'{c}/{i}.png')
    return root


def test_255_is_not_counted_in_class_folders(tmp_path):
    images = folder_set(class_folders(tmp_path))
    assert images.areas[0] == {1: BOX.sum()}
    assert np.array_equal(images.load(0, 1)[1], BORDERED)
    assert np.array_equal(images.load(0, 2)[1], np.where(EDGE, 255, 0))
    fold = open_data('folder', tmp_path, min_area=50)
    episode = Episodes(fold.test, 1, 64, 0, 4, train=False)[0]
    assert {0, 1, 255} <= set(np.unique(np.asarray(episode.support_masks)).tolist())
    FewShotData(images, (1, 2, 3, 4), int(BOX.sum()))
    with pytest.raises(BadFile, match='no image with'): FewShotData(images, (1, 2, 3, 4), int(BOX.sum()) + 1)


def test_check_says_what_it_understood(tmp_path, capsys):
    deepgp_data('check', 'folder', class_folders(tmp_path/'a'))
    share = lambda m: f'{100*m.mean():.1f}%'
    assert f'12 mask(s): label 1 on {share(BOX)} of the pixels, {share(EDGE)} not counted' in capsys.readouterr().out
    trimaps = class_folders(tmp_path/'b', np.where(EDGE, 3, 2 - OBJECT))
    with pytest.raises(SystemExit): deepgp_data('check', 'folder', trimaps)
    assert 'no background' in capsys.readouterr().err
    deepgp_data('check', 'folder', trimaps, foreground='1', ignore='3')
    assert f'label 1 on {share(BOX)} of the pixels, {share(EDGE)} not counted' in capsys.readouterr().out


def test_check_names_masks_that_contradict_each_other(tmp_path):
    root = class_folders(tmp_path)
    grey(255*OBJECT).save(root/'pot/1.png')
    _, wrong = check_data('folder', root, progress=False)
    assert len(wrong) == 1 and 'pot/1.png' in wrong[0] and '--foreground' in wrong[0]


def test_masks_that_contradict_each_other_are_named_when_the_index_is_built(tmp_path):
    "So evaluation and training say the same sentence as the check; at once, the second time"
    root = class_folders(tmp_path)
    grey(255*OBJECT).save(root/'pot/1.png')
    _, (wrong,) = check_data('folder', root, progress=False)
    assert wrong.startswith('255 is the object in') and 'pot/1.png' in wrong
    for _ in range(2):
        with pytest.raises(BadFile) as error: open_data('folder', root)
        assert str(error.value) == wrong
    with patch('deepgp_fss.datasets.count_mask', side_effect=AssertionError), pytest.raises(BadFile) as error:
        folder_set(root).areas
    assert str(error.value) == wrong
    grey(BORDERED).save(root/'pot/1.png')
    assert folder_set(root).areas == [{c: BOX.sum()} for c in (1, 2, 3, 4) for _ in range(3)]


def test_eval_and_train_say_what_the_check_says(tmp_path):
    root = class_folders(tmp_path/'data')
    grey(255*OBJECT).save(root/'pot/1.png')
    model = save_checkpoint(tmp_path/'m.safetensors', DeepGPNet(ModelConfig('small', 16, (8,), encoding_dim=8)))
    data = '--dataset', 'folder', '--root', str(root), '--data', 'min_area=50'
    for command, words in ((deepgp_train, ['--recipe', 'shapes', '--out', str(tmp_path/'run')]),
                           (deepgp_eval, [str(model), '--out', str(tmp_path/'eval')])):
        with pytest.raises(SystemExit, match=': 255 is the object in'): command([*words, '--cpu', *data])


def label_maps(root, *maps, classes=('cup', 'jug')):
    for i, labels in enumerate(maps):
        for folder, picture in (('images', Image.fromarray(PIXELS)), ('masks', grey(labels))):
            (root/folder).mkdir(parents=True, exist_ok=True)
            picture.save(root/f'{folder}/{i}.png')
    (root/'classes.txt').write_text('\n'.join(classes))
    return root


def test_label_maps_without_any_label_are_named(tmp_path):
    root = label_maps(tmp_path, *[255*OBJECT]*3)
    _, wrong = check_data('folder', root, progress=False)
    assert len(wrong) == 1 and 'save the object as 1' in wrong[0] and '3 of 3' in wrong[0]
    with pytest.raises(ValueError, match='classes.txt'): folder_set(root, foreground=255)
    with pytest.raises(BadFile) as error: folder_set(root).areas
    assert str(error.value) == wrong[0]


def test_some_label_maps_in_black_and_white_are_named(tmp_path):
    for n, maps in enumerate(([OBJECT, 2*OBJECT], [BORDERED, np.where(EDGE, 255, 2*OBJECT)])):
        root = label_maps(tmp_path/str(n), *maps, 255*OBJECT, OBJECT*0 + 255)
        with pytest.raises(BadFile, match='2 of 4 label maps, such as .*2.png, show no class, only 255.*--ignore 255'):
            folder_set(root).areas
        images = folder_set(root, ignore=255)
        assert images.areas[2] == {255: BOX.sum()} and np.array_equal(images.labels(2), 255*OBJECT)
        assert images.areas[0] == {label: n for label, n in images.areas[0].items() if label in (1, 255)}


def test_labels_without_a_class_are_named_when_the_index_is_built(tmp_path):
    for n, strange in enumerate((SOFT, 3*OBJECT)):
        root = label_maps(tmp_path/str(n), OBJECT, 2*OBJECT, strange)
        with pytest.raises(BadFile, match=f'2.png holds label {(128, 3)[n]}, but there are only 2 classes'):
            open_data('folder', root, folds=2, min_area=1)
        with pytest.raises(BadFile, match='only 2 classes'): folder_set(root).labels(2)


def test_raw_trimaps_as_label_maps(tmp_path):
    trimap = np.where(EDGE, 3, 2 - OBJECT)
    root = label_maps(tmp_path, trimap, trimap[::-1], OBJECT*0 + 2, classes=('pet', 'ground', 'border'))
    _, (wrong,) = check_data('folder', root, progress=False)
    for rule in ({}, dict(ignore=3)):
        with pytest.raises(BadFile, match='no label map has any background.*--foreground and --ignore') as error:
            folder_set(root, **rule).areas
        assert rule or str(error.value) == wrong
    told = folder_set(root, foreground=1, ignore=3)
    assert np.array_equal(told.labels(0), BORDERED) and told.areas[2] == {}
    assert told.areas[0] == {1: BOX.sum(), 255: EDGE.sum()} and 'foreground 1, ignore 3' in told.title
    assert check_data('folder', root, progress=False, foreground=1, ignore=3)[1] == []
    for rule in (dict(foreground=4), dict(foreground=0), dict(threshold=128)):
        with pytest.raises(ValueError, match='classes.txt'): folder_set(root, **rule)


def test_some_label_maps_full_of_labels(tmp_path):
    "As a few of VOC: the pictures beside them show that there is a background"
    full = np.where(EDGE, 255, 2 - OBJECT)
    assert folder_set(label_maps(tmp_path/'a', full, OBJECT)).areas[0][2] == (~(BOX | EDGE)).sum()
    assert folder_set(label_maps(tmp_path/'b', OBJECT*0 + 1, OBJECT*0 + 2)).areas == [{1: H*W}, {2: H*W}]


def test_an_index_resumes_with_its_remarks(tmp_path):
    "A mask that was counted before the interruption still contradicts one that is counted after it"
    root = class_folders(tmp_path)
    grey(255*OBJECT).save(root/'cup/0.png')
    images = folder_set(root)
    with patch('deepgp_fss.datasets.count_mask', side_effect=[*map(count_mask, [root/'cup/0.png', root/'cup/1.png']),
                                                              KeyboardInterrupt]):
        with pytest.raises(KeyboardInterrupt): build_index(images, workers=1, progress=False)
    with pytest.raises(BadFile, match='255 is the object in .*cup/0.png'): build_index(images, progress=False)


def test_another_rule_has_another_index(tmp_path):
    root = class_folders(tmp_path, np.where(EDGE, 3, 2 - OBJECT))
    assert folder_set(root, foreground=1, ignore=3).areas[0] == {1: BOX.sum()}
    assert folder_set(root, foreground='1,3').areas[0] == {1: (BOX | EDGE).sum()}
    assert folder_set(root, foreground=1, ignore=3).areas[0] == {1: BOX.sum()}
    fold = open_data('folder', root, min_area=50, foreground=1, ignore=3)
    assert 'foreground 1, ignore 3' in fold.title
    assert np.array_equal(fold.test.images.load(0, fold.test.classes[0])[1], BORDERED)


def test_rules_that_are_none(tmp_path):
    root = class_folders(tmp_path)
    for rule in (dict(foreground='cat'), dict(ignore=256), dict(foreground=-1), dict(foreground=()),
                 dict(threshold='half'), dict(threshold=float('nan')),
                 dict(foreground=1, ignore=1), dict(threshold=128, foreground=1)):
        for do in (lambda: open_data('folder', root, **rule), lambda: as_mask(OBJECT, (H, W), **rule)):
            with pytest.raises(ValueError, match='foreground|ignore|threshold'): do()


# ---- the segmenter

def segmenter():
    torch.manual_seed(5)
    config = ModelConfig('small', 16, (8,), encoding_dim=8, decoder_width=16)
    return FewShotSegmenter(DeepGPNet(config).eval(), 64, 'cpu')


def test_the_segmenter_says_what_it_understood(tmp_path):
    s = segmenter().fit([PIXELS], [BORDERED])
    line = lambda n: f'{n} mask(s): label 1 on {100*BOX.mean():.1f}% of the pixels, {100*EDGE.mean():.1f}% not counted'
    assert s.understood == line(1)
    assert s.add(PIXELS, np.where(EDGE, 3, 2 - OBJECT), foreground=1, ignore=3).understood == line(2)
    assert FewShotSegmenter.load(s.save(tmp_path/'s.safetensors'), 'cpu').understood == line(2)
    assert s.remove(0).understood == line(1)


def test_pixels_that_are_not_counted_reach_the_model():
    trimap = np.where(EDGE, 3, 2 - OBJECT)
    a, b = segmenter().fit([PIXELS], [BORDERED]), segmenter().fit([PIXELS], [trimap], foreground=1, ignore=3)
    assert torch.equal(a.masks[0], b.masks[0]) and (a.masks[0] == 255).any()


def test_masks_that_contradict_each_other_are_refused_before_anything_is_forgotten():
    s = segmenter().fit([PIXELS], [BORDERED])
    for do in (lambda: s.add(PIXELS, 255*OBJECT), lambda: s.fit([PIXELS]*2, [255*OBJECT, BORDERED])):
        with pytest.raises(BadFile, match='255 is the object in the mask of image .* --foreground'): do()
    assert len(s.shots) == 1
    s.fit([PIXELS]*2, [255*OBJECT, OBJECT])  # these do not


def test_several_label_maps_of_voc_are_learnt_together():
    "A single class with a border is a label map, whichever number it has"
    s = segmenter().fit([PIXELS]*3, [np.where(EDGE, 255, n*OBJECT) for n in (12, 20, 1)])
    assert s.labels == (1, 12, 20)
    for soft in (np.where(BOX, 255, 20*EDGE), np.where(BOX, 128, 60*EDGE)):
        with pytest.raises(BadFile, match='soft'): segmenter().fit([PIXELS]*2, [OBJECT, soft])


def test_a_rule_that_leaves_nothing_is_named():
    with pytest.raises(BadFile, match='the mask of image 0 is empty, with foreground 9'):
        segmenter().fit([PIXELS], [OBJECT], foreground=9)
    with pytest.raises(BadFile, match='empty, with threshold 128'): segmenter().fit([PIXELS], [OBJECT], threshold=128)
    segmenter().fit([PIXELS], [BOX], threshold=128)  # yes and no need no threshold


# ---- deepgp_segment

@pytest.fixture
def known(tmp_path):
    (tmp_path/'known').mkdir(), (tmp_path/'new').mkdir()
    for i in range(2):
        Image.fromarray(PIXELS).save(tmp_path/f'known/{i}.jpg'), grey(BORDERED).save(tmp_path/f'known/{i}.png')
    Image.fromarray(PIXELS).save(tmp_path/'new/a.jpg')
    return tmp_path


def segment(at, out, support='known', query='new', *more):
    given = '--support', at/support, '--query', at/query, '--out', at/out
    words = *given, '--size', 64, '--cpu', '--model', 'shapes', *more
    deepgp_segment([str(w) for w in words])


def test_deepgp_segment_says_what_it_understood(known, capsys):
    segment(known, 'out')
    line = f'2 mask(s): label 1 on {100*BOX.mean():.1f}% of the pixels, {100*EDGE.mean():.1f}% not counted'
    assert line in capsys.readouterr().out and json.loads((known/'out/summary.json').read_text())['masks'] == line
    for i in range(2): grey(np.where(EDGE, 3, 2 - OBJECT)).save(known/f'known/{i}.png')
    with pytest.raises(SystemExit, match='no background .* --foreground'): segment(known, 'out2')
    segment(known, 'out2', 'known', 'new', '--foreground', '1', '--ignore', '3')
    assert line in capsys.readouterr().out
    for i in range(2): grey(np.where(BOX, 255, 128*EDGE)).save(known/f'known/{i}.png')
    segment(known, 'out3', 'known', 'new', '--threshold', '200')
    assert f'label 1 on {100*BOX.mean():.1f}% of the pixels, 0.0% not counted' in capsys.readouterr().out


def everything(at): return {p.relative_to(at): p.read_bytes() for p in sorted(at.rglob('*')) if p.is_file()}


@pytest.mark.parametrize('force', [False, True])
def test_results_never_go_among_what_was_given(known, force):
    for kind in ('images', 'masks'): (known/f'two/{kind}').mkdir(parents=True)
    Image.fromarray(PIXELS).save(known/'two/images/a.jpg'), grey(OBJECT).save(known/'two/masks/a.png')
    (known/'work/masks').mkdir(parents=True)
    Image.fromarray(PIXELS).save(known/'work/masks/a.jpg')
    for link, to in (('same', 'new'), ('up', '.'), ('linked', 'out')):
        (known/link).symlink_to(known/to, target_is_directory=True)
    (known/'out').mkdir(); (known/'out/masks').symlink_to(known/'two/masks')
    (known/'new/deep').mkdir(); (known/'into').symlink_to(known/'new/deep')
    (known/'links').mkdir(); (known/'links/a.jpg').symlink_to(known/'new/a.jpg')
    before = everything(known)
    for out, support, query in (
            ('known', 'known', 'new'), ('known/out', 'known', 'new'), ('new', 'known', 'new'),
            ('new/deep/er', 'known', 'new'), ('same', 'known', 'new'), ('new', 'known', 'same'),
            ('up/new', 'known', 'new'), ('known/../new', 'known', 'new'), ('new', 'known', 'new/a.jpg'),
            ('two', 'two', 'new'), ('two/masks', 'two', 'new'), ('two/results', 'two', 'new'),
            ('work', 'known', 'work/masks'), ('work', 'known', 'work/masks/a.jpg'),
            ('out', 'two', 'new'), ('linked', 'two', 'new'), ('new', 'known', 'links'), ('into', 'known', 'new')):
        with pytest.raises(SystemExit, match='choose another --out') as e:
            segment(known, out, support, query, *['--force']*force)
        assert e.value.code.count('\n') == 0
        assert everything(known) == before, (out, support, query)


def test_results_may_go_beside_a_file_and_above_a_folder(known, monkeypatch):
    monkeypatch.chdir(known/'new')
    deepgp_segment('--support ../known --query a.jpg --out found --size 64 --cpu'.split())
    deepgp_segment('--support ../known --query a.jpg --out .. --size 64 --cpu'.split())
    assert (known/'new/found/masks/a.png').exists() and (known/'masks/a.png').exists()
    check_out(known/'none/at/all', [known/'new'], [known/'new/a.jpg'])


# ---- the workbench

@pytest.fixture
def bench(): return Workbench(segmenter())


def other(): return 255 - PIXELS


def test_two_photographs_of_one_name_keep_their_masks(bench, tmp_path):
    called = [bench.put('IMG_1.jpg', x) for x in (PIXELS, other(), PIXELS[::-1], other())]
    assert called == ['IMG_1.jpg', 'IMG_1 (2).jpg', 'IMG_1 (3).jpg', 'IMG_1 (2).jpg']
    bench.teach('IMG_1.jpg', BOX), bench.teach('IMG_1 (2).jpg', ~BOX)
    assert len(bench.segmenter.images) == 2 and np.array_equal(bench.images['IMG_1.jpg'], PIXELS)
    bench.save(tmp_path)
    assert np.array_equal(read_mask(tmp_path/'IMG_1.jpg_mask.png'), BOX)
    assert np.array_equal(read_mask(tmp_path/'IMG_1 (2).jpg_mask.png'), ~BOX)


def test_no_two_masks_share_a_file(bench, tmp_path):
    names = ['x.jpg', 'x.png', 'X.png', 'a/x.jpg', 'b\\x.jpg', 'x.jpg (2)', '../x.jpg', 'CON?.png', 'CON*.png',
             'été.jpg', '日本.png', 'two\nlines.png', 'ü'*130 + '.jpg', 'ü'*130 + '.png']
    for i, name in enumerate(names): bench.put(name, np.roll(PIXELS, i, 1))
    files = list(bench.files().values())
    assert len({f.casefold() for f in files}) == len(names) and not any(set(f) & set('/\\?*\n') for f in files)
    bench.teach('x.jpg', BOX)
    bench.save(tmp_path/'out')
    assert sorted(p.name for p in tmp_path.rglob('*.png')) == sorted(files)
    assert [p.name for p in tmp_path.iterdir()] == ['out']


def test_what_is_in_the_folder_is_not_written_over(bench, tmp_path):
    (tmp_path/'out').mkdir(); (tmp_path/'out/x.jpg_mask.png').write_text('mine')
    bench.put('x.jpg', PIXELS), bench.teach('x.jpg', BOX)
    # its own files it may replace
    assert bench.save(f'{tmp_path}/out/').parent == bench.save(tmp_path/'out').parent == tmp_path/'out (2)'
    assert (tmp_path/'out/x.jpg_mask.png').read_text() == 'mine'
    assert [p.name for p in (tmp_path/'out').iterdir()] == ['x.jpg_mask.png']
    (tmp_path/'out (2)/segmenter.safetensors').write_text('also mine')
    assert bench.save(tmp_path/'out').parent == tmp_path/'out (3)'
    assert (tmp_path/'out (2)/segmenter.safetensors').read_text() == 'also mine'
    assert Workbench.save(bench, tmp_path/'out').parent == tmp_path/'out (3)'
    again = Workbench(segmenter(), {'x.jpg': PIXELS})  # as after a restart
    again.teach('x.jpg', ~BOX)
    assert again.save(tmp_path/'out').parent == tmp_path/'out (4)'
    assert np.array_equal(read_mask(tmp_path/'out (3)/x.jpg_mask.png'), BOX)


def test_a_link_in_the_folder_is_not_followed(bench, tmp_path):
    (tmp_path/'out').mkdir(); (tmp_path/'precious').write_text('mine')
    os.symlink(tmp_path/'precious', tmp_path/'out/x.jpg_mask.png')
    bench.put('x.jpg', PIXELS), bench.teach('x.jpg', BOX)
    assert bench.save(tmp_path/'out').parent.name == 'out (2)' and (tmp_path/'precious').read_text() == 'mine'


def test_a_mask_that_is_refused_leaves_the_one_before(bench):
    dot = np.zeros((H, W), bool); dot[1, 1] = True
    bench.put('a.jpg', PIXELS), bench.put('b.jpg', other())
    bench.teach('a.jpg', BOX), bench.teach('b.jpg', BOX)
    before = bench.predict('a.jpg').probability
    failing = patch('deepgp_fss.segmenter.make_shot', side_effect=BadFile('The object vanishes.'))
    with failing, pytest.raises(BadFile, match='vanishes'):
        bench.teach('a.jpg', dot)
    bench.found = {}
    assert list(bench.taught) == ['a.jpg', 'b.jpg'] and np.array_equal(bench.taught['a.jpg'], BOX)
    assert len(bench.segmenter.images) == 2
    assert np.array_equal(bench.predict('a.jpg').probability, before)
    bench.teach('a.jpg', ~BOX)
    assert list(bench.taught) == ['b.jpg', 'a.jpg'] and len(bench.segmenter.images) == 2
