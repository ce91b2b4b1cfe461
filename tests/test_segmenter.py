"The segmenter: images and masks in any form, learnt once, updated, saved, without training, and folder by folder"
import inspect
import itertools
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import warnings
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

from deepgp_fss.commands import deepgp_segment
from deepgp_fss.encoders import ImageEncoder, SmallEncoder
from deepgp_fss.episodes import image_window
from deepgp_fss.base import BadFile
from deepgp_fss.folders import find_queries, find_support, output_names, palette, segment_files
from deepgp_fss.gp import GaussianProcess
from deepgp_fss.kernels import SquaredExponential
from deepgp_fss.model import DeepGPNet, ModelConfig, save_checkpoint
from deepgp_fss.segmenter import FewShotSegmenter, as_image, as_mask, bundled
from deepgp_fss.training_free import TrainingFree, best_cut, fit_points, otsu, typical_cut
from harness import wait_for

BIN = Path(sys.executable).parent
SIZES = (1, 1), (1, 40), (7, 300), (33, 20), (20, 33), (64, 64), (130, 97), (500, 3)
ENVIRONMENT = os.environ | dict(OMP_NUM_THREADS='1', TQDM_DISABLE='1')


def scene(seed=0, height=64, width=64, labels=(1, 2)):
    "Coloured boxes, one in each column of the image, before a noisy ground: image (H, W, 3) and labels (H, W), uint8"
    rng = np.random.default_rng([seed, 7])
    image, mask = rng.integers(90, 160, (height, width, 3)).astype(np.uint8), np.zeros((height, width), np.uint8)
    for k, label in enumerate(labels):
        left, step, top = k*width//len(labels), width//len(labels), int(rng.integers(0, max(1, height//3)))
        box = np.s_[top:top + max(1, height//2), left:left + max(1, 3*step//4)]
        image[box] = np.random.default_rng(label).integers(0, 256, 3)
        mask[box] = label
    return image, mask


def scenes(seeds, **how): return map(list, zip(*[scene(seed, **how) for seed in seeds]))


def tiny(seed=0, **config):
    torch.manual_seed(seed)
    return DeepGPNet(ModelConfig(**dict(backbone='small', dim=16, scales=(8,), encoding_dim=8, decoder_width=16) | config)).eval()


def free(learner='gp', **options):
    torch.manual_seed(0)
    model = TrainingFree(SmallEncoder(16), learner, **options)
    model.config = ModelConfig('small', 16, (8,))
    return model


MODELS = dict(tiny=tiny, free=free, bounded=lambda: tiny(max_points=40), prototype=lambda: tiny(learner='prototype', mask_encoder='pool'),
              two=lambda: tiny(backbone='resnet18', scales=(32, 16)))
ONE = dict(lengths=(.4,), noises=(.1,))  # no choice of length scale and noise, so that all supports make the same


@cache
def model(kind): return MODELS[kind]()
def make(kind, size=64): return FewShotSegmenter(model(kind), size)
def maps(p): return {k: v for k, v in (('probability', p.probability), ('variance', p.variance), ('gp_mean', p.gp_mean)) if v is not None}
def same(a, b): return a.labels == b.labels and np.array_equal(a.mask, b.mask) and all(np.array_equal(maps(a)[k], maps(b)[k]) for k in maps(a) | maps(b))


def close(a, b, atol=2e-4):
    assert a.labels == b.labels and maps(a).keys() == maps(b).keys()
    for k in maps(a): np.testing.assert_allclose(maps(a)[k], maps(b)[k], atol=atol, err_msg=k)


def sentence(error, *words):
    "One line, a sentence, with these words in it"
    text = str(error.value)
    assert '\n' not in text and text.endswith(('.', '.)')) and all(w in text for w in words), text


class Encoded:
    "Counts images that an encoder sees"
    def __init__(self, segmenter): self.n, self.hook = 0, segmenter.model.encoder.stage1.register_forward_hook(self.count)
    def count(self, module, args, out): self.n += len(args[0])


def png(path, depth, kind, rows, **chunks):
    "A PNG, chunk by chunk"
    def chunk(name, data): return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))
    width = len(rows[0])*8//depth//{0: 1, 2: 3, 6: 4}[kind]
    parts = [(b'IHDR', struct.pack('>IIBBBBB', width, len(rows), depth, kind, 0, 0, 0)), *((k.encode(), v) for k, v in chunks.items()),
             (b'IDAT', zlib.compress(b''.join(b'\0' + r for r in rows))), (b'IEND', b'')]
    Path(path).write_bytes(b'\x89PNG\r\n\x1a\n' + b''.join(chunk(*p) for p in parts))
    return path


# ---- images in any form

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
GREY = PIXELS[..., 0]


def saved(folder, image, name, **how): image.save(folder/name, **how); return folder/name


IMAGES = dict(
    array=lambda d: PIXELS, floats=lambda d: PIXELS/255, half=lambda d: (PIXELS/255).astype(np.float16), sixteen=lambda d: PIXELS.astype(np.uint16)*257,
    strided=lambda d: np.repeat(PIXELS, 2, 1)[:, ::2][::-1][::-1], opaque_array=lambda d: np.dstack([PIXELS, np.full((20, 30), 255, np.uint8)]),
    tensor=lambda d: torch.from_numpy(PIXELS).permute(2, 0, 1), float_tensor=lambda d: torch.from_numpy(PIXELS/255).permute(2, 0, 1).requires_grad_(),
    last=lambda d: torch.from_numpy(PIXELS.copy()), pil=lambda d: Image.fromarray(PIXELS), pil_alpha=lambda d: Image.fromarray(PIXELS).convert('RGBA'),
    path=lambda d: saved(d, Image.fromarray(PIXELS), 'a.png'), text=lambda d: str(saved(d, Image.fromarray(PIXELS), 'a.bmp')),
    tiff=lambda d: saved(d, Image.fromarray(PIXELS), 'a.TIF'), webp=lambda d: saved(d, Image.fromarray(PIXELS), 'a.webp', lossless=True),
    alpha=lambda d: saved(d, Image.fromarray(PIXELS).convert('RGBA'), 'a.png'),
    deep=lambda d: png(d/'a.png', 16, 2, [(r.astype('>u2')*257).astype('>u2').tobytes() for r in PIXELS]))
GREYS = dict(
    array=lambda d: GREY, third=lambda d: GREY[..., None], floats=lambda d: GREY/255, sixteen=lambda d: GREY.astype(np.uint16)*257,
    tensor=lambda d: torch.from_numpy(GREY.copy()),
    first=lambda d: torch.from_numpy(GREY.copy())[None], pil=lambda d: Image.fromarray(GREY), alpha=lambda d: Image.fromarray(GREY).convert('LA'),
    path=lambda d: saved(d, Image.fromarray(GREY), 'g.png'), deep=lambda d: saved(d, Image.fromarray(GREY.astype(np.uint16)*257), 'g.png'),
    deep_tiff=lambda d: saved(d, Image.fromarray(GREY.astype(np.uint16)*257), 'g.tif'), pil_32=lambda d: Image.fromarray(GREY.astype(np.int32)))


@pytest.mark.parametrize('form', IMAGES)
def test_every_form_of_an_image_is_the_same_image(form, tmp_path):
    out = as_image(IMAGES[form](tmp_path))
    assert out.dtype == np.uint8 and np.abs(out.astype(int) - PIXELS).max() <= (form == 'half')


@pytest.mark.parametrize('form', GREYS)
def test_every_form_of_a_grey_image_is_the_same_image(form, tmp_path):
    out = as_image(GREYS[form](tmp_path))
    assert out.dtype == np.uint8 and np.array_equal(out, np.dstack([GREY]*3))


def test_black_and_white_images(tmp_path):
    bits = GREY > 127
    for form in (bits, torch.from_numpy(bits), Image.fromarray(bits), saved(tmp_path, Image.fromarray(bits), 'b.png')):
        assert np.array_equal(as_image(form), np.dstack([255*bits.astype(np.uint8)]*3))


def test_palette_images_have_their_colours(tmp_path):
    few = Image.fromarray(PIXELS).quantize(16)
    assert few.mode == 'P' and len(np.unique(np.array(few.convert('RGB')).reshape(-1, 3), axis=0)) > 8
    for form in (few, saved(tmp_path, few, 'p.png'), saved(tmp_path, few, 'p.gif')): assert np.array_equal(as_image(form), np.array(few.convert('RGB')))


def test_other_colour_spaces(tmp_path):
    for mode in ('CMYK', 'YCbCr', 'HSV'):
        image = Image.fromarray(PIXELS).convert(mode)
        assert as_image(image).shape == PIXELS.shape and np.abs(as_image(image).astype(int) - PIXELS).mean() < 6, mode
    assert np.abs(as_image(saved(tmp_path, Image.fromarray(PIXELS).convert('CMYK'), 'c.jpg', quality=100, subsampling=0)).astype(int) - PIXELS).mean() < 6


def half_clear(): return Image.fromarray(np.dstack([PIXELS, np.where(np.arange(30) < 10, 0, 255).astype(np.uint8)*np.ones((20, 1), np.uint8)]))
def on_white(): return np.where(np.arange(30)[:, None] < 10, 255, PIXELS).astype(np.uint8)


def test_what_is_transparent_is_white(tmp_path):
    for form in (half_clear(), saved(tmp_path, half_clear(), 'c.png')): assert np.array_equal(as_image(form), on_white())
    grey = Image.fromarray(GREY).convert('LA')
    grey.putalpha(half_clear().getchannel('A'))
    assert np.array_equal(as_image(grey)[..., 0], np.where(np.arange(30) < 10, 255, GREY))
    indexed = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4), 'P')
    indexed.putpalette([v for i in range(256) for v in (i, 2*i % 256, 9)])
    read = as_image(saved(tmp_path, indexed, 'p.png', transparency=5))
    assert (read[1, 1] == 255).all() and np.array_equal(read[0, 3], [3, 6, 9])
    assert (as_image(png(tmp_path/'t.png', 8, 0, [bytes([1, 2, 3])], tRNS=struct.pack('>H', 2)))[0, :, 0] == [1, 255, 3]).all()


def test_what_is_transparent_is_white_in_an_array_too():
    assert np.array_equal(as_image(np.array(half_clear())), on_white())
    assert np.array_equal(as_image(torch.from_numpy(np.array(half_clear())).permute(2, 0, 1)), on_white())


def test_sixteen_bits_with_a_transparent_value(tmp_path):
    file = png(tmp_path/'t.png', 16, 0, [np.array([257*v for v in (0, 9, 100, 255)], '>u2').tobytes()], tRNS=struct.pack('>H', 9*257))
    assert as_image(file)[0, :, 0].tolist() in ([0, 255, 100, 255], [0, 9, 100, 255])


def test_sixteen_bits_are_scaled_alike_in_arrays_and_files(tmp_path):
    ramp = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    files = [saved(tmp_path, Image.fromarray(ramp), name) for name in ('r.png', 'r.tif')]
    out = [as_image(x) for x in (ramp, torch.from_numpy(ramp), Image.fromarray(ramp), *files)]
    assert all(np.array_equal(x, out[0]) for x in out) and (np.diff(out[0][..., 0].ravel().astype(int)) >= 0).all()
    assert (out[0].min(), out[0].max()) == (0, 255)


UPRIGHT = {1: lambda x: x, 2: lambda x: x[:, ::-1], 3: lambda x: x[::-1, ::-1], 4: lambda x: x[::-1], 5: lambda x: x.swapaxes(0, 1),
           6: lambda x: x.swapaxes(0, 1)[:, ::-1], 7: lambda x: x[::-1, ::-1].swapaxes(0, 1), 8: lambda x: x.swapaxes(0, 1)[::-1]}


@pytest.mark.parametrize('orientation', UPRIGHT)
def test_photographs_stand_upright(orientation, tmp_path):
    exif = Image.Exif()
    exif[0x112] = orientation
    for name, error in (('e.png', 0), ('e.jpg', 8), ('e.tif', 0)):
        lying, upright = (np.kron(x, np.ones((8, 8, 1), np.uint8)) for x in (PIXELS[:5, :7], UPRIGHT[orientation](PIXELS[:5, :7])))
        file = saved(tmp_path, Image.fromarray(lying), name, exif=exif, **dict(quality=95) if name == 'e.jpg' else {})
        with Image.open(file) as opened: results = as_image(file), as_image(opened)
        for out in results: assert out.shape == upright.shape and np.abs(out.astype(int) - upright)[2::8, 2::8].mean() <= error


def test_damaged_exif_data_is_passed_over(tmp_path):
    assert np.array_equal(as_image(saved(tmp_path, Image.fromarray(PIXELS), 'e.png', exif=b'garbage')), PIXELS)


def test_an_opened_file_that_is_cut_is_named(tmp_path):
    damaged(tmp_path)
    with pytest.raises(BadFile, match='image 3'): as_image(Image.open(tmp_path/'cut.jpg'), 'image 3')


NO_IMAGES = dict(
    nothing=(None, 'NoneType'), number=(3, 'int'), list=([[1, 2], [3, 4]], 'list'), shape=(np.zeros((4, 4, 7)), '(4, 4, 7)'),
    batch=(torch.zeros(1, 3, 4, 5), '(1, 3, 4, 5)'),
    vector=(np.zeros(5), '(5,)'), empty=(np.zeros((0, 5, 3), np.uint8), '(0, 5, 3)'), bytes_as_floats=(PIXELS.astype(float), '0 to 1'),
    negative=(np.full((4, 4), -.1), '0 to 1'),
    above=(torch.full((3, 4, 4), 1.01), '0 to 1'), nan=(np.full((4, 4, 3), np.nan), 'no numbers'), one_nan=(torch.tensor([[.5, np.nan]]), 'no numbers'),
    infinite=(np.array([[.5, np.inf]]), '0 to 1'), whole=(PIXELS.astype(int), 'int64'), complex=(PIXELS.astype(complex), 'complex128'))


@pytest.mark.parametrize('what', NO_IMAGES)
def test_what_is_no_image_is_named_in_one_sentence(what):
    form, words = NO_IMAGES[what]
    with pytest.raises(BadFile) as error: as_image(form, 'image 7')
    sentence(error, 'image 7', words)


def damaged(folder):
    "Files that are no images, by name"
    photograph = saved(folder, Image.fromarray(np.kron(PIXELS, np.ones((8, 8, 1), np.uint8))), 'whole.jpg').read_bytes()
    contents = {'text.jpg': b'no image at all', 'empty.png': b'', 'zeros.png': bytes(500),
                'cut.jpg': photograph[:len(photograph)//2], 'header.jpg': photograph[:20], 'cut.png': saved(folder, Image.fromarray(PIXELS), 'whole.png').read_bytes()[:300]}
    for name, data in contents.items(): (folder/name).write_bytes(data)
    for name in ('whole.jpg', 'whole.png'): (folder/name).unlink()
    return list(contents)


def test_files_that_are_no_images_are_named_in_one_sentence(tmp_path):
    for name in [*damaged(tmp_path), 'missing.png']:
        for read in (as_image, lambda x: as_mask(x, (20, 30))):
            with pytest.raises(BadFile) as error: read(tmp_path/name)
            sentence(error, str(tmp_path/name))
    with pytest.raises(BadFile, match='a folder, a pipe or a device, not an image'): as_image(tmp_path)


def test_floating_pil_images_are_read_like_arrays(tmp_path):
    values = np.random.default_rng(0).random((20, 30)).astype(np.float32)
    for form in (Image.fromarray(values), saved(tmp_path, Image.fromarray(values), 'f.tif')): assert np.array_equal(as_image(form), as_image(values))
    with pytest.raises(BadFile, match='no numbers'): as_image(Image.fromarray(np.full((4, 4), np.nan, np.float32)))
    with pytest.raises(BadFile, match='f.tif'): as_image(saved(tmp_path, Image.fromarray(100*values), 'f.tif'))


def test_bfloat16_tensors():
    assert np.abs(as_image(torch.from_numpy(PIXELS/255).permute(2, 0, 1).bfloat16()).astype(int) - PIXELS).max() <= 1
    assert np.array_equal(as_mask(torch.ones(4, 6).bfloat16(), (4, 6)), np.ones((4, 6)))


# ---- masks in any form

HALF = np.zeros((4, 6), bool)
HALF[:, 1:4] = True
BYTES = HALF.astype(np.uint8)
MASKS = dict(
    bool=lambda d: HALF, ones=lambda d: HALF.astype(int), white=lambda d: 255*BYTES, floats=lambda d: HALF.astype(float),
    tensor=lambda d: torch.from_numpy(HALF),
    white_tensor=lambda d: torch.from_numpy(255*BYTES), float_tensor=lambda d: torch.from_numpy(BYTES*1.).requires_grad_(),
    first=lambda d: torch.from_numpy(BYTES)[None],
    third=lambda d: BYTES[..., None], lists=lambda d: BYTES.tolist(), pil_bits=lambda d: Image.fromarray(HALF),
    pil_grey=lambda d: Image.fromarray(255*BYTES),
    pil_rgb=lambda d: Image.fromarray(255*BYTES).convert('RGB'), pil_alpha=lambda d: Image.fromarray(255*BYTES).convert('LA'),
    bits=lambda d: saved(d, Image.fromarray(HALF), 'm.png'), grey=lambda d: str(saved(d, Image.fromarray(255*BYTES), 'm.png')),
    dark=lambda d: saved(d, Image.fromarray(BYTES), 'm.png'),
    rgb=lambda d: saved(d, Image.fromarray(255*BYTES).convert('RGB'), 'm.png'),
    rgba=lambda d: saved(d, Image.fromarray(255*BYTES).convert('RGBA'), 'm.png'),
    deep=lambda d: saved(d, Image.fromarray(BYTES.astype(np.uint16)), 'm.png'), coloured=lambda d: saved(d, with_palette(BYTES), 'm.png'))


def with_palette(labels):
    picture = Image.fromarray(labels, 'P')
    picture.putpalette([v for i in range(256) for v in (255 - i, 3*i % 256, 80)])
    return picture


@pytest.mark.parametrize('form', MASKS)
def test_every_form_of_a_mask_is_the_same_mask(form, tmp_path):
    out = as_mask(MASKS[form](tmp_path), (4, 6))
    assert out.dtype == np.uint8 and np.array_equal(out, HALF)


def test_label_maps_keep_their_labels(tmp_path):
    labels = np.array([[0, 1, 2], [7, 20, 255]], np.uint8)
    pictures = Image.fromarray(labels), with_palette(labels), Image.fromarray(labels.astype(np.uint16)), Image.fromarray(labels.astype(np.int32))
    files = saved(tmp_path, with_palette(labels), 'l.png'), saved(tmp_path, Image.fromarray(labels), 'l.tif')
    forms = labels, labels.astype(np.int64), labels.astype(float), torch.from_numpy(labels), *pictures, *files
    for form in forms: assert np.array_equal(as_mask(form, (2, 3)), labels)
    assert as_mask(np.array([[0, 1, 255]]), (1, 3)).tolist() == [[0, 1, 255]]  # beside a label, 255 is not to be counted
    assert as_mask(np.array([[0, 0, 255]]), (1, 3)).tolist() == [[0, 0, 1]]


def test_masks_stand_upright(tmp_path):
    exif = Image.Exif()
    exif[0x112] = 3
    labels = np.array([[0, 1, 2], [3, 4, 5]], np.uint8)
    assert np.array_equal(as_mask(saved(tmp_path, Image.fromarray(labels), 'm.png', exif=exif), (2, 3)), labels[::-1, ::-1])


NO_MASKS = dict(
    size=(HALF.T, '4x6', '6x4'), longer=(np.ones((4, 7)), '7x4', '6x4'), colours=(Image.fromarray(PIXELS[:4, :6]), 'colours'),
    rgb_array=(PIXELS[:4, :6], '(4, 6, 3)'),
    fractions=(HALF*.5, 'no labels'), negative=(-HALF.astype(int), 'no labels'), above=(256*HALF.astype(int), 'no labels'),
    nan=(np.where(HALF, np.nan, 0), 'no labels'),
    infinite=(np.where(HALF, np.inf, 0), 'no labels'), deep_white=(Image.fromarray(65535*BYTES.astype(np.uint16)), 'no labels'),
    nothing=(None, 'shape ()'), vector=(np.ones(24), '(24,)'))


@pytest.mark.parametrize('what', NO_MASKS)
def test_what_is_no_mask_is_named_in_one_sentence(what):
    form, *words = NO_MASKS[what]
    with pytest.raises(BadFile) as error: as_mask(form, (4, 6), 'the mask of image 7')
    sentence(error, 'the mask of image 7', *words)


def test_masks_of_thin_images_may_have_a_channel():
    for shape in ((1, 30), (30, 1)):
        for mask in (np.ones((1, *shape)), np.ones((*shape, 1))): assert np.array_equal(as_mask(mask, shape), np.ones(shape))


# ---- learning

def test_the_support_is_checked_before_anything_is_forgotten():
    segmenter, (images, masks) = make('tiny'), scenes(range(3))
    before = segmenter.fit(images, masks).predict(images[0])
    wrong = [(images, masks[:2], '3 images and 2 masks'), ([], [], 'nothing to learn from'),
             (images, [masks[0], masks[1]*0, masks[2]], 'the mask of image 1 is empty'),
             (images, [masks[0], masks[1].T[:50], masks[2]], 'the mask of image 1 is 64x50, but its image is 64x64'),
             (images, [masks[0], masks[1], None], 'the mask of image 2'),
             (images, [masks[0], masks[1]*.1, masks[2]], 'the mask of image 1 holds values that are not labels'),
             ([images[0], 'missing.png', images[2]], masks, 'missing.png'), ([images[0], images[1]*1., images[2]], masks, 'image 1 holds floating values')]
    for x, m, words in wrong:
        with pytest.raises(ValueError) as error: segmenter.fit(x, m)
        sentence(error, words)
    for x, m, words in ((images[0], masks[0][1:], 'the mask of image 3 is 64x63'), (images[0], masks[0]*0, 'the mask of image 3 is empty'),
                        (images[0]/2, masks[0], 'image 3 holds')):
        with pytest.raises(ValueError) as error: segmenter.add(x, m)
        sentence(error, words)
    for i in (3, -4, 99):
        with pytest.raises(ValueError, match=f'no image {i}'): segmenter.remove(i)
    assert len(segmenter.images) == 3 and same(segmenter.predict(images[0]), before)


def test_an_empty_mask_file_is_named(tmp_path):
    file = saved(tmp_path, Image.fromarray(np.zeros((64, 64), np.uint8)), 'blank.png')
    with pytest.raises(BadFile, match='blank.png'): make('tiny').fit([scene()[0]], [file])


def test_an_object_that_is_too_small_is_named():
    image, mask = scene(0, 700, 700)[0], np.zeros((700, 700), np.uint8)
    mask[1, 1] = 1
    with pytest.raises(BadFile) as error: make('tiny').fit([image], [mask])
    sentence(error, 'the mask of image 0', 'vanishes', '64 pixels')


def test_a_class_that_is_too_small_is_named():
    image, mask = scene(0, 700, 700, labels=(1,))
    mask[-1, -1] = 2
    with pytest.raises(BadFile, match='vanishes'): make('tiny').fit([image], [mask])


def test_nothing_is_known_before_fit():
    segmenter = make('tiny')
    for ask in (segmenter.predict, lambda x: list(segmenter.predict_many([x])), lambda x: segmenter.suggest([x])):
        with pytest.raises(ValueError) as error: ask(scene()[0])
        sentence(error, 'knows nothing yet')
    with pytest.raises(ValueError, match='at least 32'): FewShotSegmenter(tiny(), 31)
    with pytest.raises(ValueError, match='no image 0'): segmenter.remove(0)
    assert segmenter.add(*scene()).predict(scene()[0]).labels == (1, 2)  # adding to nothing is learning


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_learning_does_not_care_about_the_form(kind, tmp_path):
    (images, masks), query = scenes(range(3), labels=(1,)), scene(5)[0]
    out = make(kind).fit(images, masks).predict(query)
    def files_of(arrays, name): return [saved(tmp_path, Image.fromarray(x), f'{name}{i}.png') for i, x in enumerate(arrays)]
    tensors = [torch.from_numpy(x).permute(2, 0, 1)/255. for x in images], [torch.from_numpy(m) for m in masks]
    forms = [(files_of(images, 'x'), files_of([255*m for m in masks], 'm')), (map(Image.fromarray, images), (Image.fromarray(m > 0) for m in masks)), tensors]
    for x, m in forms: assert same(make(kind).fit(x, m).predict(saved(tmp_path, Image.fromarray(query), 'q.png')), out)


def test_arrays_are_neither_changed_nor_kept():
    (images, masks), query = scenes(range(2)), scene(5)[0]
    copies = [x.copy() for x in (*images, *masks, query)]
    segmenter = make('tiny').fit(images, masks)
    before = segmenter.predict(query)
    assert all(np.array_equal(a, b) for a, b in zip((*images, *masks, query), copies))
    for x in (*images, *masks): x[:] = 1
    assert same(segmenter._learn().predict(query), before)


def test_arrays_that_cannot_be_written_are_no_reason_to_warn():
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        image, mask = (np.asarray(Image.fromarray(x)) for x in scene())
        assert not image.flags.writeable and make('tiny').fit([image], [mask]).predict(image)


# ---- predicting

@pytest.mark.parametrize('kind', ['tiny', 'free', 'two'])
@pytest.mark.parametrize('labels', [(1,), (2, 9)])
def test_everything_has_the_size_of_the_image(kind, labels):
    segmenter, single = make(kind).fit(*scenes(range(2), labels=labels)), len(labels) == 1
    assert segmenter.labels == labels
    for size in SIZES:
        p = segmenter.predict(scene(9, *size, labels=labels)[0])
        assert p.mask.shape == p.variance.shape == size and p.probability.shape == p.gp_mean.shape == (size if single else (2, *size))
        assert p.mask.dtype == np.uint8 and {x.dtype for x in maps(p).values()} == {np.dtype(np.float32)}
        assert all(np.isfinite(x).all() for x in maps(p).values())
        assert 0 <= p.probability.min() and p.probability.max() <= 1 and 0 <= p.variance.min() and p.variance.max() <= 1 and p.labels == labels
        each = p.probability.reshape(-1, *size)
        assert np.array_equal(p.mask, np.where(each.max(0) > .5, np.array(labels)[each.argmax(0)], 0))


@pytest.mark.parametrize('kind', ['tiny', 'free'])
@pytest.mark.parametrize('size', [(1, 1), (1, 90), (33, 20), (200, 41)])
def test_support_images_of_every_size(kind, size):
    image, mask = scene(0, *size, labels=(1,))
    for p in make(kind).fit([image, scene(1)[0]], [np.ones(size, bool), scene(1)[1] > 0]).predict_many([image, scene(2)[0]], progress=False):
        assert np.isfinite(p.probability).all()


def test_the_bundled_model_finds_the_object():
    segmenter, (images, masks) = FewShotSegmenter.from_pretrained('shapes'), scenes(range(6), height=96, width=96, labels=(3,))
    segmenter.fit(images[:5], [m > 0 for m in masks[:5]])
    found, truth = segmenter.predict(images[5]).mask > 0, masks[5] > 0
    assert segmenter.size == 96 and (found & truth).sum()/(found | truth).sum() > .3 and bundled('shapes').is_file() and bundled('other') is None
    with pytest.raises(BadFile) as error: FewShotSegmenter.from_pretrained('nothing')
    sentence(error, "'nothing'", 'shapes')


def test_a_run_is_opened_by_its_folder(tmp_path):
    path, (images, masks) = save_checkpoint(tmp_path/'run/model.safetensors', tiny(), run=dict(recipe=dict(size=64))), scenes(range(2))
    out = make('tiny').fit(images, masks).predict(images[0])
    for name in (path, str(path), path.parent): assert same(FewShotSegmenter.from_pretrained(name).fit(images, masks).predict(images[0]), out)
    assert FewShotSegmenter.from_pretrained(path, size=48).size == 48
    assert FewShotSegmenter.from_pretrained(save_checkpoint(tmp_path/'m.safetensors', tiny())).size == 448


@pytest.mark.parametrize('kind', ['tiny', 'free', 'prototype'])
def test_each_of_several_classes_is_as_if_learnt_alone(kind):
    "From one factorisation; the training-free model chooses one length scale for all classes, so it gets no choice here"
    new = lambda: FewShotSegmenter(free(**ONE), 64) if kind == 'free' else make(kind)
    (images, masks), query = scenes(range(3), labels=(2, 5, 9)), scene(8, labels=(9, 2))[0]
    together = new().fit(images, masks).predict(query)
    assert together.labels == (2, 5, 9) and together.probability.shape == (3, 64, 64)
    for n, c in enumerate(together.labels):
        alone = new().fit(images, [m == c for m in masks]).predict(query)
        np.testing.assert_allclose(together.probability[n], alone.probability, atol=2e-4)
        if alone.gp_mean is not None: np.testing.assert_allclose(together.gp_mean[n], alone.gp_mean, atol=2e-4)
        if alone.variance is not None: np.testing.assert_allclose(together.variance, alone.variance, atol=2e-4)
    assert min(np.abs(together.probability[a] - together.probability[b]).max() for a, b in ((0, 1), (0, 2), (1, 2))) > 2e-3  # or it would prove nothing


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_one_factorisation_serves_all_classes(kind, monkeypatch):
    sizes, prepare = [], GaussianProcess.prepare
    monkeypatch.setattr(GaussianProcess, 'prepare', lambda self, x, *args: sizes.append(x.shape[-2]) or prepare(self, x, *args))
    for labels in ((1,), (1, 2, 3, 4)): (FewShotSegmenter(free(**ONE), 64) if kind == 'free' else make(kind)).fit(*scenes(range(2), labels=labels))
    assert sizes == [32, 32]  # of two images of 4 x 4 cells


def test_a_label_in_some_of_the_images_only():
    images, masks = map(list, zip(*[scene(i, labels=c) for i, c in enumerate(((1, 2), (1,), (2,)))]))
    for kind in ('tiny', 'free'):
        p = make(kind).fit(images, masks).predict(scene(7)[0])
        assert p.labels == (1, 2) and np.isfinite(p.probability).all()


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_the_support_is_encoded_once_and_a_prediction_costs_one_image(kind):
    segmenter, (images, masks) = make(kind), scenes(range(5))
    seen = Encoded(segmenter)
    segmenter.fit(images[:4], masks[:4])
    assert seen.n == 4
    for n in (5, 6): segmenter.predict(images[0]); assert seen.n == n
    list(segmenter.predict_many(images, 2, progress=False))
    assert seen.n == 11
    segmenter.suggest(images[:3])
    assert seen.n == 14
    segmenter.add(images[4], masks[4])
    assert seen.n == (15 if kind == 'tiny' else 19)  # the GP's factor is extended; without training, length scale and cut are chosen again
    segmenter.remove(1)
    assert seen.n == (15 if kind == 'tiny' else 23)


def test_the_model_is_not_touched():
    model, (images, masks) = DeepGPNet(tiny().config).train(), scenes(range(2))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    FewShotSegmenter(model, 64).fit(images, masks).predict(images[0])
    assert model.training and all(torch.equal(v, before[k]) for k, v in model.state_dict().items()) and all(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_what_was_seen_has_a_smaller_variance_than_what_was_not(kind):
    segmenter, (images, masks) = make(kind).fit(*scenes(range(3))), scenes(range(3))
    strange = np.random.default_rng(1).integers(0, 2, (64, 64, 3)).astype(np.uint8)*255
    assert max(segmenter.predict(x).variance.mean() for x in images) < .8*segmenter.predict(strange).variance.mean()


def whole_maps(segmenter, query):
    "Probability, mean and variance of one class in the window, by hand, from cells of 8 x 8 pixels"
    logits, z = list(segmenter._answer([query]))[0]
    cells = torch.cat([segmenter.model.mean_map(z), z[:1, segmenter.model.variance_channel].clamp(0, 1)])
    grown = F.interpolate(cells[None], scale_factor=8, mode='bilinear')[0]
    return dict(probability=logits.softmax(1)[0, 1], gp_mean=grown[0], variance=grown[1])


@pytest.mark.parametrize('kind', ['tiny', 'free'])
@pytest.mark.parametrize('size', [(64, 64), (40, 64), (64, 21)])
def test_maps_lie_where_the_cells_are(kind, size):
    segmenter, query = make(kind).fit(*scenes(range(3), labels=(1,))), scene(6, *size)[0]
    for name, whole in whole_maps(segmenter, query).items():
        np.testing.assert_allclose(maps(segmenter.predict(query))[name], whole[:size[0], :size[1]], atol=1e-5, err_msg=name)


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_maps_lie_where_the_cells_are_if_the_size_is_no_multiple_of_them(kind):
    segmenter, query = make(kind, 44).fit(*scenes(range(3), height=44, width=44, labels=(1,))), scene(6, 44, 44)[0]
    for name, whole in whole_maps(segmenter, query).items():
        np.testing.assert_allclose(maps(segmenter.predict(query))[name], whole[:44, :44], atol=1e-4, err_msg=name)


# ---- many images

@pytest.mark.parametrize('kind', ['tiny', 'free'])
@pytest.mark.parametrize('batch', [1, 3, 10])
def test_predict_many_holds_one_batch_and_equals_predict(kind, batch):
    segmenter, pulled = make(kind).fit(*scenes(range(2))), []
    def endless():
        for i in itertools.count(): pulled.append(i); yield scene(i, *SIZES[3 + i % 4])[0]
    many = segmenter.predict_many(endless(), batch, progress=False)
    assert inspect.isgenerator(many) and not pulled
    for i in range(7):
        out = next(many)
        assert len(pulled) == (i//batch + 1)*batch
        close(out, segmenter.predict(scene(i, *SIZES[3 + i % 4])[0]), 1e-5)
        assert out.mask.shape == SIZES[3 + i % 4]


def test_predict_many_of_few_and_of_bad_images():
    segmenter, images = make('tiny').fit(*scenes(range(2))), [scene(i)[0] for i in range(3)]
    assert [len(list(segmenter.predict_many(images[:n], 2, progress=False))) for n in range(4)] == [0, 1, 2, 3]
    many = segmenter.predict_many([images[0], images[1], images[2]/1.], 1, progress=False)
    assert same(next(many), segmenter.predict(images[0])) and next(many)
    with pytest.raises(BadFile) as error: next(many)
    sentence(error, 'image 2')
    with pytest.raises(ValueError) as error: list(segmenter.predict_many(images, 0))
    sentence(error, 'batch must be at least 1')


def test_large_photographs_need_little_memory():
    "12 megapixels: 36 MB of image, 160 MB of results; three more, one after another, need no more than one"
    script = '''if True:
        import json, re, numpy as np
        from pathlib import Path
        from deepgp_fss.segmenter import FewShotSegmenter
        def peak(): return int(re.search('VmPeak:[^0-9]*([0-9]+)', Path('/proc/self/status').read_text())[1])/1024  # asked for, not resident
        rng = np.random.default_rng(0)
        image, mask = rng.integers(0, 256, (96, 96, 3), dtype=np.uint8), np.arange(96*96).reshape(96, 96) % 96 > 40
        segmenter = FewShotSegmenter.from_pretrained('shapes').fit([image], [mask])
        segmenter.predict(image)
        large = np.kron(rng.integers(0, 256, (300, 400, 3), dtype=np.uint8), np.ones((10, 10, 1), np.uint8))
        at_first = peak()
        shapes = [segmenter.predict(large).mask.shape]
        after_one = peak()
        for p in segmenter.predict_many((large for _ in range(3)), 1, progress=False): shapes.append(p.probability.shape)
        print(json.dumps(dict(shapes=shapes, one=after_one - at_first, more=peak() - after_one)))'''
    out = json.loads(subprocess.run([sys.executable, '-c', script], check=True, capture_output=True, text=True, env=ENVIRONMENT).stdout)
    assert out['shapes'] == [[3000, 4000]]*4 and out['one'] < 700 and out['more'] < 400, out


# ---- adding and removing

@pytest.mark.parametrize('kind', MODELS)
def test_add_and_remove_equal_learning_from_scratch(kind):
    (images, masks), query = scenes(range(6)), scene(11)[0]
    def scratch(which): return make(kind).fit([images[i] for i in which], [masks[i] for i in which]).predict(query)
    segmenter, now = make(kind).fit(images[:2], masks[:2]), [0, 1]
    few, more = scratch([0, 1]).probability, scratch([0, 1, 2]).probability
    assert np.ptp(few) > 1e-3 and np.abs(few - more).max() > 5e-4  # or it would prove nothing
    for what in ('+2', '+3', '-0', '+4', '-1', '-2', '+0', '+5'):
        i = int(what[1:])
        if what[0] == '+': now.append(i); assert segmenter.add(images[i], masks[i]) is segmenter
        else: del now[i]; segmenter.remove(i)
        assert len(segmenter.images) == len(segmenter.masks) == len(now)
        close(segmenter.predict(query), scratch(now))


@pytest.mark.parametrize('kind', ['tiny', 'free'])
def test_a_new_class_comes_with_an_image_and_goes_with_it(kind):
    (images, masks), query = map(list, zip(scene(0, labels=(1,)), scene(1, labels=(1,)), scene(2, labels=(1, 4)))), scene(11)[0]
    segmenter = make(kind).fit(images[:2], masks[:2])
    before = segmenter.predict(query)
    after = segmenter.add(images[2], masks[2]).predict(query)
    assert before.labels == (1,) and after.labels == (1, 4) and after.probability.shape == (2, 64, 64)
    close(after, make(kind).fit(images, masks).predict(query))
    close(segmenter.remove(2).predict(query), before)
    close(segmenter.add(images[2], masks[2]).remove(0).predict(query), make(kind).fit(images[1:], masks[1:]).predict(query))
    assert segmenter.labels == (1, 4)


def test_removing_counts_from_either_end_and_leaves_one():
    (images, masks), query = scenes(range(4)), scene(11)[0]
    for i in (-4, -1, 0, 2):
        others = [[x[k] for k in range(4) if k != i % 4] for x in (images, masks)]
        close(make('tiny').fit(images, masks).remove(i).predict(query), make('tiny').fit(*others).predict(query))
    segmenter = make('tiny').fit(images[:1], masks[:1])
    with pytest.raises(ValueError) as error: segmenter.remove(0)
    sentence(error, 'last image cannot be removed')
    assert len(segmenter.images) == 1 and segmenter.predict(query)


# ---- what to annotate next

@pytest.mark.parametrize('kind', ['tiny', 'free', 'two'])
def test_copies_of_the_support_teach_least(kind):
    segmenter, (images, masks) = make(kind).fit(*scenes(range(3))), scenes(range(9))
    ranked = segmenter.suggest(x for x in [images[1], *images[3:], images[0]])
    gains = [gain for _, gain in ranked]
    assert sorted(i for i, _ in ranked) == list(range(8)) and gains == sorted(gains, reverse=True) and gains[-1] >= 0
    assert {i for i, _ in ranked[-2:]} == {0, 7}
    best = [images[1], *images[3:], images[0]][ranked[0][0]]
    assert segmenter.add(best, masks[0]).suggest([best])[0][1] < .8*gains[0]
    assert segmenter.suggest([]) == [] and len(segmenter.suggest([scene(0, *s)[0] for s in SIZES])) == len(SIZES)


def test_the_gain_is_the_one_of_the_definition():
    segmenter, query = FewShotSegmenter(free(**ONE), 64).fit(*scenes(range(2))), scene(5, 40, 64)[0]
    windows = [*segmenter.images, image_window(query, 64)]
    x = [segmenter.model.maps(w[None, None])[0, 0, :, ::2, ::2].double() for w in windows]
    known, new = torch.cat([t.flatten(1).T for t in x[:2]]), x[2][:, :3].flatten(1).T  # 40 pixels are five rows of cells, of which three are looked at
    k = lambda a, b: torch.exp(-torch.cdist(a, b).square()/(2*.4))
    C = k(new, new) - k(new, known) @ torch.linalg.solve(k(known, known) + .1*torch.eye(len(known)), k(known, new))
    assert segmenter.suggest([query])[0][1] == pytest.approx(float(torch.logdet(torch.eye(len(new)) + C/.1))/2/len(new), rel=1e-3)


@pytest.mark.parametrize('net', [MODELS['prototype'], MODELS['bounded'], lambda: tiny(learner='attention'), lambda: free('prototype')])
def test_only_a_whole_gp_can_suggest(net):
    with pytest.raises(ValueError) as error: FewShotSegmenter(net(), 64).fit(*scenes(range(2))).suggest([scene(5)[0]])
    sentence(error, 'Only a Gaussian process')


# ---- files

@pytest.fixture(scope='module')
def backbone(tmp_path_factory):
    "Weights of a small ResNet, random"
    from torchvision.models import resnet18
    torch.manual_seed(0)
    save_file({k: v for k, v in resnet18().state_dict().items()}, path := tmp_path_factory.mktemp('backbone')/'resnet18.safetensors')
    return path


KEPT = dict({k: lambda b, k=k: make(k) for k in MODELS},
            shapes=lambda b: FewShotSegmenter.from_pretrained('shapes', 64), attention=lambda b: FewShotSegmenter(free('attention'), 64),
            options=lambda b: FewShotSegmenter(free(support_stride=1, lengths=(.3, .6), noises=(.05,)), 48),
            resnet=lambda b: FewShotSegmenter.training_free(b, 'resnet18', 64, levels=1))


@pytest.mark.parametrize('kind', KEPT)
def test_saved_and_loaded_to_the_bit(kind, backbone, tmp_path, monkeypatch):
    (images, masks), queries = scenes(range(3)), [scene(11)[0], scene(12, 90, 50)[0]]
    segmenter = KEPT[kind](backbone).fit(images, masks)
    path = segmenter.save(tmp_path/'kept/fitted.safetensors')
    def never(*args, **kwargs): raise AssertionError('unpickled')
    for module, name in ((pickle, 'load'), (pickle, 'loads'), (pickle, 'Unpickler'), (torch, 'load')): monkeypatch.setattr(module, name, never)
    loaded = FewShotSegmenter.load(path)
    assert repr(loaded) == repr(segmenter) and [p.name for p in path.parent.iterdir()] == ['fitted.safetensors']
    for q in queries: assert same(loaded.predict(q), segmenter.predict(q))
    assert same(FewShotSegmenter.load(loaded.save(tmp_path/'again.safetensors')).predict(queries[0]), segmenter.predict(queries[0]))
    assert path.read_bytes() == (tmp_path/'again.safetensors').read_bytes()
    close(loaded.add(*scene(4)).predict(queries[0]), segmenter.add(*scene(4)).predict(queries[0]))


def test_the_file_is_safetensors_and_nothing_else(tmp_path):
    segmenter, (images, masks) = make('tiny'), scenes(range(3), labels=(1, 200))
    path = segmenter.fit(images, masks).save(tmp_path/'fitted.safetensors')
    with safe_open(path, 'pt') as f:
        tensors, header = {k: f.get_tensor(k) for k in f.keys()}, json.loads(f.metadata()['deepgp_fss_segmenter'])
    assert {k for k in tensors if not k.startswith('model.')} == {'images', 'masks'}
    assert {k[6:] for k in tensors if k.startswith('model.')} == set(tiny().state_dict())
    assert np.array_equal(tensors['images'].permute(0, 2, 3, 1), images) and np.array_equal(tensors['masks'], masks) and header['size'] == 64
    assert header['training_free'] is None
    assert path.stat().st_size < 2_000_000


def test_unfitted_segmenters_can_be_saved(tmp_path):
    loaded = FewShotSegmenter.load(make('tiny').save(tmp_path/'new.safetensors'))
    assert loaded.labels == () and same(loaded.fit(*scenes(range(2))).predict(scene(5)[0]), make('tiny').fit(*scenes(range(2))).predict(scene(5)[0]))


def test_other_files_are_no_saved_segmenters(tmp_path):
    whole = make('tiny').fit(*scenes(range(1))).save(tmp_path/'whole.safetensors').read_bytes()
    (tmp_path/'pickled.safetensors').write_bytes(pickle.dumps(dict(a=1)))
    for name, data in (('cut', whole[:len(whole)//2]), ('short', whole[:5]), ('empty', b''), ('other', whole.replace(b'segmenter 1', b'segmenter 9'))):
        (tmp_path/f'{name}.safetensors').write_bytes(data)
    save_file(dict(a=torch.ones(2)), tmp_path/'plain.safetensors')
    save_checkpoint(tmp_path/'model.safetensors', tiny())
    for name in ('cut', 'short', 'empty', 'other', 'plain', 'model', 'pickled', 'missing'):
        with pytest.raises(BadFile) as error: FewShotSegmenter.load(tmp_path/f'{name}.safetensors')
        sentence(error, f'{name}.safetensors')
    with pytest.raises(ValueError, match='whole.safetensors'): FewShotSegmenter.from_pretrained(tmp_path/'whole.safetensors')
    for name in ('fitted.pt', 'fitted'):
        with pytest.raises(ValueError, match=f'{name} does not end so'): make('tiny').save(tmp_path/name)
    assert not list(tmp_path.glob('fitted*'))


def test_a_model_around_an_encoder_of_ones_own_cannot_be_saved(tmp_path):
    own = DeepGPNet(ModelConfig('custom', 16, (8,), encoding_dim=8, decoder_width=16), encoder=SmallEncoder(16))
    for net in (TrainingFree(SmallEncoder(16)), own):
        with pytest.raises(ValueError) as error: FewShotSegmenter(net, 64).fit(*scenes(range(2))).save(tmp_path/'fitted.safetensors')
        sentence(error, 'encoder of your own')
    assert not list(tmp_path.iterdir())


# ---- without training

@pytest.mark.parametrize('seed', range(4))
def test_cuts_against_trying_them_all(seed):
    g = torch.Generator().manual_seed(seed)
    n = (2, 3, 17, 60)[seed]
    s, y = torch.rand(n, 3, generator=g), torch.rand(n, 3, generator=g)
    iou, cut = best_cut(s, y)
    separated = otsu(s)
    for k in range(3):
        values, part = s[:, k].sort().values, y[:, k]
        def score(t): above = s[:, k] > t; return float((part*above).sum()/(part + (1 - part)*above).sum())
        def within(t): return sum(float((p - p.mean()).square().sum()) for p in (values[values > t], values[values <= t]) if len(p))
        between = [(a + b)/2 for a, b in zip(values, values[1:])]
        assert float(iou[k]) == pytest.approx(max(score(t) for t in [values[0] - 1, *between]), abs=1e-5)
        assert score(cut[k]) == pytest.approx(float(iou[k]), abs=1e-5)
        assert within(separated[k]) == pytest.approx(min(within(t) for t in between), abs=1e-5) and values[0] < separated[k] < values[-1]


def test_cuts_of_little():
    assert otsu(torch.tensor([[.3]])).tolist() == [pytest.approx(.3)] and otsu(torch.full((5, 2), .7)).tolist() == [pytest.approx(.7)]*2
    assert otsu(torch.tensor([0, 0, 0, 1, 1.])[:, None]).tolist() == [.5]
    iou, cut = best_cut(torch.tensor([.1, .2])[:, None], torch.ones(2, 1))
    assert float(iou) == 1 and cut < .1  # everything is foreground


def points(seed=0, images=4, each=30, classes=2):
    "Unit features (S, D), masks (S, N) that depend on them, and their images (S,)"
    g = torch.Generator().manual_seed(seed)
    x = F.normalize(torch.randn(images*each, 6, generator=g), dim=1)
    y = (x[:, :classes] + .2*torch.randn(images*each, classes, generator=g) > .2).float()
    return x, y, torch.arange(images).repeat_interleave(each)


def refitted(x, y, groups, length_sq, noise_var):
    "The slow way: for each image a GP without it"
    prior, out = y.mean(0), torch.zeros_like(y)
    for g in groups.unique():
        own = groups == g
        gp = GaussianProcess(SquaredExponential(length_sq), noise_var)
        out[own] = gp.prepare(x[~own], y[~own] - prior).mean(x[own]) + prior
    return out


@torch.no_grad()
@pytest.mark.parametrize('seed', range(2))
def test_the_cut_is_the_one_of_refitting_without_each_image(seed):
    x, y, groups = points(seed)
    shuffled = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    x, y, groups = x[shuffled], y[shuffled], groups[shuffled]
    tried = {(a, b): refitted(x, y, groups, a, b) for a in (.2, .4, .8) for b in (.03, .1, .3)}
    iou = {k: best_cut(s, y)[0] for k, s in tried.items()}
    fitted, chosen = fit_points(x, y, groups), max(iou, key=lambda k: float(iou[k].mean()))
    assert (fitted.length_sq, fitted.noise_var) == chosen
    torch.testing.assert_close(fitted.iou, iou[chosen], atol=1e-3, rtol=0)
    cuts = torch.stack([best_cut(tried[chosen][groups == g], y[groups == g])[1] for g in range(4)])
    torch.testing.assert_close(fitted.cut, cuts.sort(0).values[1], atol=2e-3, rtol=0)  # the lower of the two in the middle
    again = GaussianProcess(SquaredExponential(chosen[0]), chosen[1]).prepare(x, y - y.mean(0)).mean(x)
    torch.testing.assert_close(fitted.posterior.mean(x) + fitted.prior, again + y.mean(0))


def test_images_without_the_class_have_no_say_in_its_cut():
    scores, masks, groups = torch.rand(60, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(60, 2), torch.arange(3).repeat_interleave(20)
    masks[:40, 0] = (scores[:40, 0] > .6).float()
    cut, shown = typical_cut(scores, masks, groups), [best_cut(scores[groups == g], masks[groups == g])[1][0] for g in (0, 1)]
    assert cut[0] == min(shown) and cut[1] == best_cut(scores, masks)[1][1]  # nobody shows the second class


def test_a_single_image_leaves_the_cut_to_the_query():
    x, y, groups = points(images=1)
    fitted = fit_points(x, y, groups)
    assert fitted.cut is None and fitted.iou is None
    (image, mask), query = scene(0), scene(5)[0]
    assert np.isfinite(FewShotSegmenter(free(), 64).fit([image], [mask]).predict(query).probability).all()


def test_the_order_of_the_support_does_not_matter():
    (images, masks), query = scenes(range(5)), scene(11, 50, 64)[0]
    first = make('free').fit(images, masks).predict(query)
    for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        close(make('free').fit([images[i] for i in order], [masks[i] for i in order]).predict(query), first, 1e-3)


class Cells(ImageEncoder):
    "Random features of each cell of 8 x 8 pixels by itself, and with what is around it"
    def __init__(self, around):
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.strides, self.around, self.weight = (8,), around, torch.randn(20, 3, 8 + 2*around, 8 + 2*around, generator=g)

    def trunk(self, images): return [F.conv2d(images/255 - .5, self.weight, stride=8, padding=self.around).tanh()]


@pytest.mark.parametrize('size', [(32, 64), (64, 24)])
@pytest.mark.parametrize('around', [0, 4])
def test_a_margin_changes_little(size, around):
    "A wide or tall image in a square window answers as by itself, but for what the encoder sees beyond the edge"
    (images, masks), query = scenes(range(3), height=size[0], width=size[1], labels=(1,)), scene(8, *size, labels=(1,))[0]
    net, window = TrainingFree(Cells(around)), lambda x: torch.from_numpy(np.stack(x)).permute(0, 3, 1, 2)[None]
    alone = net.infer(net.prepare(window(images), torch.from_numpy(np.stack(masks))[None]), window([query])[:, 0]).softmax(1)[0, 1].numpy()
    inside = FewShotSegmenter(net, 64).fit(images, masks).predict(query).probability
    apart = np.abs(alone - inside)
    assert np.ptp(alone) > .2 and (apart.max() < 1e-3 if around == 0 else apart.mean() < .1), (apart.max(), apart.mean())


def test_it_finds_what_it_was_shown():
    images, masks = scenes(range(4), labels=(1, 4))
    found = make('free').fit(images[:3], masks[:3]).predict(images[3]).mask
    for c in (1, 4): assert ((found == c) & (masks[3] == c)).sum()/((found == c) | (masks[3] == c)).sum() > .5


@pytest.mark.parametrize('learner', ['prototype', 'multiprototype', 'attention', 'transductive'])
def test_every_learner_can_be_used(learner):
    images, masks = scenes(range(4), labels=(1, 4))
    p = FewShotSegmenter(free(learner), 64).fit(images[:3], masks[:3]).predict(scene(9, 40, 64)[0])
    assert p.mask.shape == (40, 64) and p.probability.shape == (2, 40, 64) and p.variance is None and p.gp_mean is None and np.ptp(p.probability) > 0


def test_a_support_whose_counted_cells_are_all_thinned_out(tmp_path):
    image, mask = scene(0)[0], np.full((64, 64), 255, np.uint8)
    mask[8:16, 8:16] = 1  # cell (1, 1), and every second one is kept
    with pytest.raises(ValueError) as error: make('free').fit([image], [mask])
    sentence(error, 'support set is empty')


def test_weights_that_are_not_there(tmp_path):
    with pytest.raises((ValueError, OSError), match='missing.pth'): FewShotSegmenter.training_free(tmp_path/'missing.pth', 'resnet18')
    with pytest.raises(ValueError, match='no learner'): TrainingFree(SmallEncoder(16), 'best')


# ---- folders

def run(*words):
    "Exit status of the command in this process: 0, or what it says"
    try: deepgp_segment([str(w) for w in words])
    except SystemExit as e: return e.code or 0
    except KeyboardInterrupt: return 'not caught'  # or pytest would end
    return 0


def write_support(folder, labels=(1, 2), n=2):
    folder.mkdir(parents=True)
    for i in range(n):
        image, mask = scene(i, 60, 80, labels)
        saved(folder, Image.fromarray(image), f'{i}.jpg', quality=95), saved(folder, Image.fromarray(mask), f'{i}.png')


@pytest.fixture
def place(tmp_path):
    "known/: two photographs with masks of two classes; new/: photographs of several kinds"
    write_support(tmp_path/'known')
    (tmp_path/'new').mkdir()
    exif = Image.Exif()
    exif[0x112] = 6
    saved(tmp_path/'new', Image.fromarray(scene(5, 60, 80)[0]), 'a.jpg')
    saved(tmp_path/'new', Image.fromarray(scene(6, 50, 31)[0]), 'b.png')
    saved(tmp_path/'new', Image.fromarray(scene(7, 40, 70)[0]), 'turned.JPG', format='JPEG', exif=exif)
    saved(tmp_path/'new', Image.fromarray(scene(8, 33, 20)[0][..., 0].astype(np.uint16)*257), 'deep.png')
    return tmp_path


SHAPES = dict(a=(60, 80), b=(50, 31), turned=(70, 40), deep=(33, 20))


def content(folder): return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob('*') if p.is_file()}
def words_of(place, *more): return '--support', place/'known', '--query', place/'new', '--out', place/'out', *more
def summary_of(place): return json.loads((place/'out/summary.json').read_text())


def test_every_photograph_gets_its_results(place, capsys):
    before = content(place)
    assert run(*words_of(place)) == 0 and '4 of 4' in capsys.readouterr().out
    after = content(place)
    assert {k: v for k, v in after.items() if not k.startswith('out/')} == before
    results = {f'out/{kind}/{n}.{e}' for kind, e in (('masks', 'png'), ('overlays', 'jpg'), ('variance', 'png')) for n in SHAPES}
    assert after.keys() - before.keys() == results | {'out/summary.json'}
    segmenter = FewShotSegmenter.from_pretrained('shapes').fit(*zip(*find_support(place/'known')))
    for file in find_queries([place/'new']):
        out, size = segmenter.predict(file), SHAPES[file.stem]
        mask, variance, overlay = (Image.open(place/f'out/{k}/{file.stem}.{e}') for k, e in (('masks', 'png'), ('variance', 'png'), ('overlays', 'jpg')))
        assert mask.size == variance.size == overlay.size == size[::-1] and mask.mode == 'P' and set(np.unique(mask)) <= {0, 1, 2}
        assert np.array_equal(mask, out.mask) and np.abs(np.array(variance) - 255*out.variance).max() <= .51
        assert np.array_equal(mask.convert('RGB'), palette()[out.mask])
        assert np.abs(np.array(overlay).astype(int) - as_image(file))[out.mask == 0].mean() < 20


def test_what_the_summary_says(place):
    (place/'new/c_broken.jpg').write_text('no image')
    assert '1 file(s)' in run(*words_of(place, '--classes', 'cat', 'dog'))
    summary = summary_of(place)
    about = dict(finished=True, shots=2, labels=[1, 2], model='shapes', classes={'1': 'cat', '2': 'dog'})
    assert {k: summary[k] for k in about} == about
    assert summary['support'] == [str(place/f'known/{i}.jpg') for i in range(2)]
    rows = {Path(row['file']).name: row for row in summary['images']}
    assert list(rows) == sorted(rows) == ['a.jpg', 'b.png', 'c_broken.jpg', 'deep.png', 'turned.JPG']
    assert str(place/'new/c_broken.jpg') in rows['c_broken.jpg']['error']
    for row in (r for r in rows.values() if 'error' not in r):
        mask, variance = (np.array(Image.open(place/f'out/{k}/{row["result"]}.png')) for k in ('masks', 'variance'))
        assert (row['height'], row['width']) == mask.shape == SHAPES[row['result']] and set(row['found']) == {'cat', 'dog'}
        assert list(row['found'].values()) == pytest.approx([(mask == c).mean() for c in (1, 2)], abs=1e-6)
        assert row['variance'] == pytest.approx(variance.mean()/255, abs=2e-3)


@pytest.mark.parametrize('batch', [1, 3])
def test_bad_files_are_reported_and_passed_over(place, batch, capsys):
    bad = damaged(place/'new')
    assert f'{len(bad)} file(s) could not be segmented' in run(*words_of(place, '--batch', batch))
    said = capsys.readouterr()
    assert f'4 of {4 + len(bad)}' in said.out and all(str(place/'new'/name) in said.err for name in bad)
    assert {p.stem for p in (place/'out/masks').iterdir()} == set(SHAPES) and summary_of(place)['finished']
    assert {Path(r['file']).name for r in summary_of(place)['images'] if 'error' in r} == set(bad)


def test_photographs_with_damaged_exif_data_are_segmented(place):
    saved(place/'new', Image.fromarray(PIXELS), 'a_exif.png', exif=b'garbage')
    assert run(*words_of(place)) == 0 and {p.stem for p in (place/'out/masks').iterdir()} == {'a_exif', *SHAPES}


def test_batches_change_nothing(place):
    for batch in (1, 3): assert run(*words_of(place, '--batch', batch, '--out', place/f'out{batch}')) == 0
    for name in SHAPES: assert (np.array(Image.open(place/f'out1/masks/{name}.png')) == np.array(Image.open(place/f'out3/masks/{name}.png'))).mean() > .99
    a, b = (json.loads((place/f'out{n}/summary.json').read_text())['images'] for n in (1, 3))
    assert [r['file'] for r in a] == [r['file'] for r in b] and [r['variance'] for r in a] == pytest.approx([r['variance'] for r in b], abs=1e-4)


def test_nothing_is_overwritten_unless_forced(place):
    assert run(*words_of(place)) == 0
    before = content(place)
    said = run(*words_of(place, '--model', 'shapes', '--size', 64))
    assert 'exists' in said and '--force' in said and content(place) == before
    (place/'out/summary.json').unlink()  # as after a crash
    assert '--force' in run(*words_of(place, '--size', 64)) and 'out/summary.json' not in content(place)
    assert run(*words_of(place, '--size', 64, '--force')) == 0 and content(place)['out/variance/a.png'] != before['out/variance/a.png']
    assert content(place).keys() == before.keys()


@pytest.mark.parametrize('file', ['overlays/a.jpg', 'variance/a.png'])
def test_other_files_are_not_overwritten_either(place, file):
    (place/'out'/file).parent.mkdir(parents=True)
    (place/'out'/file).write_text('mine')
    assert '--force' in run(*words_of(place)) and (place/'out'/file).read_text() == 'mine'


def test_names_that_come_twice(place):
    (place/'more').mkdir()
    for name in ('a.png', 'b.bmp', 'A.png'): saved(place/'more', Image.fromarray(scene(9, 20, 30)[0]), name)
    assert run('--support', place/'known', '--query', place/'new', place/'more', place/'new/a.jpg', '--out', place/'out') == 0
    rows = {r['result']: r['file'] for r in summary_of(place)['images']}
    assert set(rows) == {p.stem for p in (place/'out/masks').iterdir()} == {'a_1', 'a_2', 'a_3', 'b_1', 'b_2', 'A', 'deep', 'turned'}
    for name, file in rows.items(): assert Image.open(place/f'out/masks/{name}.png').size == as_image(file).shape[1::-1]
    assert rows['a_1'] == rows['a_3'] == str(place/'new/a.jpg') and rows['a_2'] == str(place/'more/a.png')


def test_names_with_numbers_are_all_different():
    for queries in (['x/a.png', 'y/a.png', 'a_1.png'], ['a_2.png', 'x/a.png', 'y/a.jpg'], ['a_1.png', 'a_1.jpg', 'a_1_1.png']):
        assert len(set(output_names([Path(q) for q in queries]))) == 3


def test_long_names_do_not_stop_the_others(place):
    saved(place/'new', Image.fromarray(PIXELS), f'a{"b"*246}.png')
    run(*words_of(place))
    assert {p.stem for p in (place/'out/masks').iterdir()} >= set(SHAPES) and summary_of(place)['finished']


def test_results_stay_in_their_folder(place):
    names = ['..evil.png', '...png', 'a b\tc.png', '%s{0}.png', 'größe.png', '-force.png', "q'$(touch x).png"]
    (place/'odd').mkdir()
    for name in names: saved(place/'odd', Image.fromarray(PIXELS), name, format='PNG')
    (place/'odd/.hidden.png').write_text('not looked at')
    before = content(place)
    queries = place/'odd/../odd/..evil.png', place/'odd', *(place/'odd'/n for n in names if n[0] == '.')
    assert run('--support', place/'known', '--query', *queries, '--out', place/'deep/er/out') == 0
    after = content(place)
    assert {k: v for k, v in after.items() if not k.startswith('deep/er/out/')} == before
    rows = json.loads(after['deep/er/out/summary.json'])['images']
    assert len([k for k in after if k.startswith('deep/er/out/masks/')]) == len(rows) == 8 and all('result' in r for r in rows)


def test_support_in_two_folders(place):
    for kind, end in (('images', 'jpg'), ('masks', 'png')):
        (place/'two'/kind).mkdir(parents=True)
        for i in range(2): (place/f'two/{kind}/{i}.{end}').write_bytes((place/f'known/{i}.{end}').read_bytes())
    for kind, x in zip(('images', 'masks'), scene(3)): saved(place/'two'/kind, Image.fromarray(x), 'p.png')  # photographs may be PNG here
    assert [(i.name, m.name) for i, m in find_support(place/'two')] == [('0.jpg', '0.png'), ('1.jpg', '1.png'), ('p.png', 'p.png')]
    assert run('--support', place/'two', '--query', place/'new/a.jpg', '--out', place/'out') == 0 and summary_of(place)['shots'] == 3


def test_what_a_user_can_mend_is_said_in_one_sentence(place):
    (place/'empty').mkdir(), (place/'file').write_text('')
    write_support(place/'blank', n=1), write_support(place/'alone', n=2), write_support(place/'other', n=1)
    saved(place/'blank', Image.fromarray(np.zeros((60, 80), np.uint8)), '0.png')
    (place/'alone/1.png').unlink()
    saved(place/'other', Image.fromarray(np.ones((50, 80), np.uint8)), '0.png')
    base = dict(support=place/'known', query=place/'new', out=place/'out')
    wrong = [(dict(support=place/'no'), 'no is no folder'), (dict(support=place/'empty'), 'holds no photographs'),
             (dict(support=place/'alone'), '1.jpg', 'no mask'), (dict(support=place/'blank'), 'is empty'), (dict(support=place/'other'), '0.png', '80x50'),
             (dict(query=place/'no'), 'does not exist'), (dict(query=place/'empty'), 'no images'), (dict(out=place/'file/out'), 'cannot be written'),
             (dict(model='nothing'), 'nothing'), (dict(size=8), 'at least 32'), (dict(batch=0), 'batch must be at least 1'),
             (dict(model='shapes', weights='x.pth'), 'not both'), (dict(weights=place/'none.pth', backbone='resnet18'), 'none.pth')]
    for change, *says in wrong:
        said = run(*(w for k, v in (base | change).items() for w in (f'--{k}', v)))
        assert isinstance(said, str) and said.startswith('deepgp_segment: ') and '\n' not in said and all(w in said for w in says), said
    assert not (place/'out/summary.json').exists() and run('--support', place/'known') == 2  # argparse's own


def test_a_backbone_without_training(place, backbone):
    assert run(*words_of(place, '--weights', backbone, '--backbone', 'resnet18', '--size', 64)) == 0
    assert summary_of(place)['model'] == str(backbone) and all(Image.open(place/f'out/masks/{n}.png').size == s[::-1] for n, s in SHAPES.items())


def test_learners_without_variance_write_none(place):
    segmenter = make('prototype').fit(*zip(*find_support(place/'known')))
    summary = segment_files(segmenter, find_queries([place/'new']), place/'out', progress=False)
    assert not (place/'out/variance').exists() and len(list((place/'out/masks').iterdir())) == 4 and {r['variance'] for r in summary['images']} == {None}
    assert set(summary['images'][0]['found']) == {'1', '2'}


@pytest.mark.parametrize('at', [1, 2, 5, 9])
def test_interrupted_while_writing(place, monkeypatch, at, capsys):
    "Ctrl-C with half a file written"
    save, calls = Image.Image.save, []
    def cut(self, file, **how):
        calls.append(file)
        save(self, file, **how)
        if len(calls) == at: Path(file).write_bytes(Path(file).read_bytes()[:40]); raise KeyboardInterrupt
    monkeypatch.setattr(Image.Image, 'save', cut)
    assert run(*words_of(place)) == 130 and 'interrupted' in capsys.readouterr().err
    summary, files = summary_of(place), [p for p in (place/'out').rglob('*') if p.is_file() and p.name != 'summary.json']
    assert not summary['finished'] and len(files) == at - 1 and len(summary['images']) == (at - 1)//3
    for p in files: Image.open(p).load()


def test_a_process_that_is_interrupted_leaves_whole_files(place):
    "SIGINT in the middle of 404 photographs, and again with --force"
    photograph = (place/'new/a.jpg').read_bytes()
    for i in range(400): (place/f'new/q{i:03}.jpg').write_bytes(photograph)
    process = subprocess.Popen([BIN/'deepgp_segment', *words_of(place)], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a test run in the background ignores it
    wait_for(process, lambda: len(list((place/'out').glob('masks/*.png'))) >= 7, 'seven masks were written')
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=900)
    assert process.returncode == 130 and 'interrupted' in err and 'Traceback' not in err, err
    files = [p for p in (place/'out').rglob('*') if p.is_file()]
    for p in files:
        if p.suffix != '.json': Image.open(p).load()
    done, summary = {p.stem for p in (place/'out/masks').iterdir()}, summary_of(place)
    assert 7 <= len(done) < 404 and not summary['finished'] and {r['result'] for r in summary['images']} <= done
    assert len(done) - len(summary['images']) <= 1
    assert not [p for p in files if p.name.startswith('.') or p.suffix == '.part']
    for p in (place/'new').glob('q*'): p.unlink()
    assert '--force' in run(*words_of(place)) and run(*words_of(place, '--force')) == 0 and summary_of(place)['finished']


# ---- small mercies

def test_a_mask_with_soft_edges_is_named():
    soft = np.clip(np.linspace(-.5, 1.5, 64)[None]*np.ones((64, 1)), 0, 1)*255
    with pytest.raises(BadFile, match='soft'): as_mask(soft.astype(np.uint8), (64, 64))


def test_a_stray_pixel_is_no_reason_to_refuse_a_class_that_others_show():
    image, mask = scene(0, 700, 700, labels=(1,))
    big = mask.copy()
    big[-200:, -200:] = 2
    mask[-1, -1] = 2
    segmenter = make('tiny').fit([image, image], [mask, big])
    assert segmenter.labels == (1, 2)
    assert segmenter.add(image, mask).labels == (1, 2)


def test_a_wrong_question_is_noticed_when_it_is_asked():
    with pytest.raises(ValueError, match='knows nothing yet'): make('tiny').predict_many([])


# ---- fair odds and the best mask

def weighted(weight):
    model = tiny()
    model.info = dict(run=dict(recipe=dict(foreground_weight=weight)))
    return model


def test_the_weight_of_the_loss_is_undone(tmp_path):
    images, masks = scenes(range(2), labels=(1,))
    plain, fair = (FewShotSegmenter(weighted(4.), 64, weight=w).fit(images, masks) for w in (1., None))
    for query in (scene(5)[0], scene(6, 40, 90)[0]):
        p, q = plain.predict(query), fair.predict(query)
        np.testing.assert_allclose(q.probability/(1 - q.probability), p.probability/(1 - p.probability)/4, rtol=1e-4)
        assert np.array_equal(p.mask > 0, p.probability > .5)  # equal weights: argmax
        assert not ((q.mask > 0) & (p.probability <= .5)).any() and 0 <= q.expected_iou <= 1
        if q.mask.any(): assert np.array_equal(q.mask > 0, q.probability >= q.probability[q.mask > 0].min())  # a cut
    again = FewShotSegmenter.load(fair.save(tmp_path/'fair.safetensors')).predict(query)
    assert same(again, q) and again.expected_iou == q.expected_iou


def test_each_of_several_classes_has_its_own_cut():
    images, masks = scenes(range(2))
    p = FewShotSegmenter(weighted(4.), 64).fit(images, masks).predict(scene(5)[0])
    assert p.expected_iou.shape == (2,) and p.expected_iou.dtype == np.float32
    for n, label in enumerate(p.labels):
        alone = FewShotSegmenter(weighted(4.), 64).fit(images, [m == label for m in masks]).predict(scene(5)[0])
        np.testing.assert_allclose(p.expected_iou[n], alone.expected_iou, atol=1e-3)


def test_only_a_weight_can_be_undone():
    for weight in (0, -2., float('inf'), float('nan')):
        with pytest.raises(ValueError, match='weight must be above 0'): FewShotSegmenter(tiny(), 64, weight=weight)


def test_nothing_is_expected_without_training(): assert make('free').fit(*scenes(range(2), labels=(1,))).predict(scene(5)[0]).expected_iou is None


@pytest.mark.parametrize('weight', [0, -1, 'much', None, True, float('inf'), [4]])
def test_a_weight_that_is_none_is_named(tmp_path, weight):
    save_checkpoint(tmp_path/'model.safetensors', tiny(), run=dict(recipe=dict(size=64, foreground_weight=weight)))
    with pytest.raises(ValueError) as error: FewShotSegmenter.from_pretrained(tmp_path)
    sentence(error, 'weighed', 'damaged')
