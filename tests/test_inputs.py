"Images and masks in any form"
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from deepgp_fss.base import BadFile
from deepgp_fss.inputs import as_image, as_mask
from toys import PIXELS, damaged, saved, sentence

GREY = PIXELS[..., 0]

def png(path, depth, kind, rows, **chunks):
    "A PNG, chunk by chunk"
    def chunk(name, data):
        return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))
    width = len(rows[0])*8//depth//{0: 1, 2: 3, 6: 4}[kind]
    parts = [(b'IHDR', struct.pack('>IIBBBBB', width, len(rows), depth, kind, 0, 0, 0)),
             *((k.encode(), v) for k, v in chunks.items()),
             (b'IDAT', zlib.compress(b''.join(b'\0' + r for r in rows))), (b'IEND', b'')]
    Path(path).write_bytes(b'\x89PNG\r\n\x1a\n' + b''.join(chunk(*p) for p in parts))
    return path


# ---- images in any form

IMAGES = dict(
    array=lambda d: PIXELS, floats=lambda d: PIXELS/255, half=lambda d: (PIXELS/255).astype(np.float16),
    sixteen=lambda d: PIXELS.astype(np.uint16)*257, strided=lambda d: np.repeat(PIXELS, 2, 1)[:, ::2][::-1][::-1],
    opaque_array=lambda d: np.dstack([PIXELS, np.full((20, 30), 255, np.uint8)]),
    tensor=lambda d: torch.from_numpy(PIXELS).permute(2, 0, 1), last=lambda d: torch.from_numpy(PIXELS.copy()),
    float_tensor=lambda d: torch.from_numpy(PIXELS/255).permute(2, 0, 1).requires_grad_(),
    pil=lambda d: Image.fromarray(PIXELS), pil_alpha=lambda d: Image.fromarray(PIXELS).convert('RGBA'),
    path=lambda d: saved(d, Image.fromarray(PIXELS), 'a.png'),
    text=lambda d: str(saved(d, Image.fromarray(PIXELS), 'a.bmp')),
    tiff=lambda d: saved(d, Image.fromarray(PIXELS), 'a.TIF'),
    webp=lambda d: saved(d, Image.fromarray(PIXELS), 'a.webp', lossless=True),
    alpha=lambda d: saved(d, Image.fromarray(PIXELS).convert('RGBA'), 'a.png'),
    deep=lambda d: png(d/'a.png', 16, 2, [(r.astype('>u2')*257).astype('>u2').tobytes() for r in PIXELS]))
GREYS = dict(
    array=lambda d: GREY, third=lambda d: GREY[..., None], floats=lambda d: GREY/255,
    sixteen=lambda d: GREY.astype(np.uint16)*257,
    tensor=lambda d: torch.from_numpy(GREY.copy()), first=lambda d: torch.from_numpy(GREY.copy())[None],
    pil=lambda d: Image.fromarray(GREY), pil_32=lambda d: Image.fromarray(GREY.astype(np.int32)),
    alpha=lambda d: Image.fromarray(GREY).convert('LA'), path=lambda d: saved(d, Image.fromarray(GREY), 'g.png'),
    deep=lambda d: saved(d, Image.fromarray(GREY.astype(np.uint16)*257), 'g.png'),
    deep_tiff=lambda d: saved(d, Image.fromarray(GREY.astype(np.uint16)*257), 'g.tif'))


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
    for form in (few, saved(tmp_path, few, 'p.png'), saved(tmp_path, few, 'p.gif')):
        assert np.array_equal(as_image(form), np.array(few.convert('RGB')))


def test_other_colour_spaces(tmp_path):
    for mode in ('CMYK', 'YCbCr', 'HSV'):
        image = Image.fromarray(PIXELS).convert(mode)
        assert as_image(image).shape == PIXELS.shape and np.abs(as_image(image).astype(int) - PIXELS).mean() < 6, mode
    cmyk = saved(tmp_path, Image.fromarray(PIXELS).convert('CMYK'), 'c.jpg', quality=100, subsampling=0)
    assert np.abs(as_image(cmyk).astype(int) - PIXELS).mean() < 6


def half_clear():
    alpha = np.where(np.arange(30) < 10, 0, 255).astype(np.uint8)*np.ones((20, 1), np.uint8)
    return Image.fromarray(np.dstack([PIXELS, alpha]))
def on_white(): return np.where(np.arange(30)[:, None] < 10, 255, PIXELS).astype(np.uint8)


def test_what_is_transparent_is_white(tmp_path):
    for form in (half_clear(), saved(tmp_path, half_clear(), 'c.png')):
        assert np.array_equal(as_image(form), on_white())
    grey = Image.fromarray(GREY).convert('LA')
    grey.putalpha(half_clear().getchannel('A'))
    assert np.array_equal(as_image(grey)[..., 0], np.where(np.arange(30) < 10, 255, GREY))
    indexed = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4), 'P')
    indexed.putpalette([v for i in range(256) for v in (i, 2*i % 256, 9)])
    read = as_image(saved(tmp_path, indexed, 'p.png', transparency=5))
    assert (read[1, 1] == 255).all() and np.array_equal(read[0, 3], [3, 6, 9])
    two_is_clear = png(tmp_path/'t.png', 8, 0, [bytes([1, 2, 3])], tRNS=struct.pack('>H', 2))
    assert (as_image(two_is_clear)[0, :, 0] == [1, 255, 3]).all()


def test_what_is_transparent_is_white_in_an_array_too():
    assert np.array_equal(as_image(np.array(half_clear())), on_white())
    assert np.array_equal(as_image(torch.from_numpy(np.array(half_clear())).permute(2, 0, 1)), on_white())


def test_sixteen_bits_with_a_transparent_value(tmp_path):
    row = np.array([257*v for v in (0, 9, 100, 255)], '>u2').tobytes()
    file = png(tmp_path/'t.png', 16, 0, [row], tRNS=struct.pack('>H', 9*257))
    assert as_image(file)[0, :, 0].tolist() in ([0, 255, 100, 255], [0, 9, 100, 255])


def test_sixteen_bits_are_scaled_alike_in_arrays_and_files(tmp_path):
    ramp = np.arange(65536, dtype=np.uint16).reshape(256, 256)
    files = [saved(tmp_path, Image.fromarray(ramp), name) for name in ('r.png', 'r.tif')]
    out = [as_image(x) for x in (ramp, torch.from_numpy(ramp), Image.fromarray(ramp), *files)]
    assert all(np.array_equal(x, out[0]) for x in out) and (np.diff(out[0][..., 0].ravel().astype(int)) >= 0).all()
    assert (out[0].min(), out[0].max()) == (0, 255)


UPRIGHT = {1: lambda x: x, 2: lambda x: x[:, ::-1], 3: lambda x: x[::-1, ::-1], 4: lambda x: x[::-1],
           5: lambda x: x.swapaxes(0, 1), 6: lambda x: x.swapaxes(0, 1)[:, ::-1],
           7: lambda x: x[::-1, ::-1].swapaxes(0, 1), 8: lambda x: x.swapaxes(0, 1)[::-1]}


@pytest.mark.parametrize('orientation', UPRIGHT)
def test_photographs_stand_upright(orientation, tmp_path):
    exif = Image.Exif()
    exif[0x112] = orientation
    for name, error in (('e.png', 0), ('e.jpg', 8), ('e.tif', 0)):
        small = PIXELS[:5, :7]
        lying, upright = (np.kron(x, np.ones((8, 8, 1), np.uint8)) for x in (small, UPRIGHT[orientation](small)))
        file = saved(tmp_path, Image.fromarray(lying), name, exif=exif, **dict(quality=95) if name == 'e.jpg' else {})
        with Image.open(file) as opened: results = as_image(file), as_image(opened)
        for out in results:
            assert out.shape == upright.shape
            assert np.abs(out.astype(int) - upright)[2::8, 2::8].mean() <= error


def test_damaged_exif_data_is_passed_over(tmp_path):
    assert np.array_equal(as_image(saved(tmp_path, Image.fromarray(PIXELS), 'e.png', exif=b'garbage')), PIXELS)


def test_an_opened_file_that_is_cut_is_named(tmp_path):
    damaged(tmp_path)
    with pytest.raises(BadFile, match='image 3'): as_image(Image.open(tmp_path/'cut.jpg'), 'image 3')


NO_IMAGES = dict(
    nothing=(None, 'NoneType'), number=(3, 'int'), list=([[1, 2], [3, 4]], 'list'),
    shape=(np.zeros((4, 4, 7)), '(4, 4, 7)'),
    batch=(torch.zeros(1, 3, 4, 5), '(1, 3, 4, 5)'),
    vector=(np.zeros(5), '(5,)'), empty=(np.zeros((0, 5, 3), np.uint8), '(0, 5, 3)'),
    bytes_as_floats=(PIXELS.astype(float), '0 to 1'),
    negative=(np.full((4, 4), -.1), '0 to 1'),
    above=(torch.full((3, 4, 4), 1.01), '0 to 1'), nan=(np.full((4, 4, 3), np.nan), 'not numbers'),
    one_nan=(torch.tensor([[.5, np.nan]]), 'not numbers'), infinite=(np.array([[.5, np.inf]]), '0 to 1'),
    whole=(PIXELS.astype(int), 'int64'), complex=(PIXELS.astype(complex), 'complex128'))


@pytest.mark.parametrize('what', NO_IMAGES)
def test_what_is_no_image_is_named_in_one_sentence(what):
    form, words = NO_IMAGES[what]
    with pytest.raises(BadFile) as error: as_image(form, 'image 7')
    sentence(error, 'image 7', words)


def test_files_that_are_no_images_are_named_in_one_sentence(tmp_path):
    for name in [*damaged(tmp_path), 'missing.png']:
        for read in (as_image, lambda x: as_mask(x, (20, 30))):
            with pytest.raises(BadFile) as error: read(tmp_path/name)
            sentence(error, str(tmp_path/name))
    with pytest.raises(BadFile, match='a folder, a pipe or a device, not an image'): as_image(tmp_path)


def test_floating_pil_images_are_read_like_arrays(tmp_path):
    values = np.random.default_rng(0).random((20, 30)).astype(np.float32)
    for form in (Image.fromarray(values), saved(tmp_path, Image.fromarray(values), 'f.tif')):
        assert np.array_equal(as_image(form), as_image(values))
    with pytest.raises(BadFile, match='not numbers'): as_image(Image.fromarray(np.full((4, 4), np.nan, np.float32)))
    with pytest.raises(BadFile, match='f.tif'): as_image(saved(tmp_path, Image.fromarray(100*values), 'f.tif'))


def test_bfloat16_tensors():
    assert np.abs(as_image(torch.from_numpy(PIXELS/255).permute(2, 0, 1).bfloat16()).astype(int) - PIXELS).max() <= 1
    assert np.array_equal(as_mask(torch.ones(4, 6).bfloat16(), (4, 6)), np.ones((4, 6)))


# ---- masks in any form

HALF = np.zeros((4, 6), bool)
HALF[:, 1:4] = True
BYTES = HALF.astype(np.uint8)
MASKS = dict(
    bool=lambda d: HALF, ones=lambda d: HALF.astype(int), white=lambda d: 255*BYTES,
    floats=lambda d: HALF.astype(float),
    tensor=lambda d: torch.from_numpy(HALF),
    white_tensor=lambda d: torch.from_numpy(255*BYTES),
    float_tensor=lambda d: torch.from_numpy(BYTES*1.).requires_grad_(),
    first=lambda d: torch.from_numpy(BYTES)[None],
    third=lambda d: BYTES[..., None], lists=lambda d: BYTES.tolist(), pil_bits=lambda d: Image.fromarray(HALF),
    pil_grey=lambda d: Image.fromarray(255*BYTES),
    pil_rgb=lambda d: Image.fromarray(255*BYTES).convert('RGB'),
    pil_alpha=lambda d: Image.fromarray(255*BYTES).convert('LA'),
    bits=lambda d: saved(d, Image.fromarray(HALF), 'm.png'),
    grey=lambda d: str(saved(d, Image.fromarray(255*BYTES), 'm.png')),
    dark=lambda d: saved(d, Image.fromarray(BYTES), 'm.png'),
    rgb=lambda d: saved(d, Image.fromarray(255*BYTES).convert('RGB'), 'm.png'),
    rgba=lambda d: saved(d, Image.fromarray(255*BYTES).convert('RGBA'), 'm.png'),
    deep=lambda d: saved(d, Image.fromarray(BYTES.astype(np.uint16)), 'm.png'),
    coloured=lambda d: saved(d, with_palette(BYTES), 'm.png'))


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
    pictures = [Image.fromarray(labels), with_palette(labels),
                Image.fromarray(labels.astype(np.uint16)), Image.fromarray(labels.astype(np.int32))]
    files = saved(tmp_path, with_palette(labels), 'l.png'), saved(tmp_path, Image.fromarray(labels), 'l.tif')
    forms = labels, labels.astype(np.int64), labels.astype(float), torch.from_numpy(labels), *pictures, *files
    for form in forms: assert np.array_equal(as_mask(form, (2, 3)), labels)
    assert as_mask(np.array([[0, 1, 255]]), (1, 3)).tolist() == [[0, 1, 255]]  # beside a label, 255 is not counted
    assert as_mask(np.array([[0, 0, 255]]), (1, 3)).tolist() == [[0, 0, 1]]


def test_masks_stand_upright(tmp_path):
    exif = Image.Exif()
    exif[0x112] = 3
    labels = np.array([[0, 1, 2], [3, 4, 5]], np.uint8)
    lying = saved(tmp_path, Image.fromarray(labels), 'm.png', exif=exif)
    assert np.array_equal(as_mask(lying, (2, 3)), labels[::-1, ::-1])


NO_MASKS = dict(
    size=(HALF.T, '4x6', '6x4'), longer=(np.ones((4, 7)), '7x4', '6x4'),
    colours=(Image.fromarray(PIXELS[:4, :6]), 'colours'),
    rgb_array=(PIXELS[:4, :6], '(4, 6, 3)'),
    fractions=(HALF*.5, 'not labels'), negative=(-HALF.astype(int), 'not labels'),
    above=(256*HALF.astype(int), 'not labels'),
    nan=(np.where(HALF, np.nan, 0), 'not labels'),
    infinite=(np.where(HALF, np.inf, 0), 'not labels'),
    deep_white=(Image.fromarray(65535*BYTES.astype(np.uint16)), 'not labels'),
    nothing=(None, 'shape ()'), vector=(np.ones(24), '(24,)'))


@pytest.mark.parametrize('what', NO_MASKS)
def test_what_is_no_mask_is_named_in_one_sentence(what):
    form, *words = NO_MASKS[what]
    with pytest.raises(BadFile) as error: as_mask(form, (4, 6), 'the mask of image 7')
    sentence(error, 'the mask of image 7', *words)


def test_masks_of_thin_images_may_have_a_channel():
    for shape in ((1, 30), (30, 1)):
        for mask in (np.ones((1, *shape)), np.ones((*shape, 1))):
            assert np.array_equal(as_mask(mask, shape), np.ones(shape))


def test_a_mask_with_soft_edges_is_named():
    soft = np.clip(np.linspace(-.5, 1.5, 64)[None]*np.ones((64, 1)), 0, 1)*255
    with pytest.raises(BadFile, match='soft'): as_mask(soft.astype(np.uint8), (64, 64))
