"Photographs to segment"
import io
import json
import os
import struct
import zlib
from functools import partial
from unittest.mock import patch

import numpy as np
from PIL import EpsImagePlugin, Image

from deepgp_fss.folders import KINDS, LEGEND

from ..case import refused, works
from ..material import answers, model, query, same, segment, support
from ..pictures import (
    JPEG, PNG, PROGRAM, changed, chunk, encoded, frames, harmless, photo, png, turned, without_rights, write)

DAMAGED = 'cannot be read as an image', 'replace or remove it', '1 file(s) could not be segmented'
for name, file, content in (
    ('an empty file', 'empty.jpg', b''),
    ('a file of zeros', 'zeros.png', bytes(500)),
    ('the page of an error, saved as a photograph', 'page.jpg', b'<html>404 Not Found</html>'),
    ('a JPEG cut off in the middle', 'cut.jpg', JPEG[:len(JPEG)//2]),
    ('a JPEG of which only the header has arrived', 'header.jpg', JPEG[:20]),
    ('a PNG cut off in the middle', 'cut.png', PNG[:len(PNG)//2]),
    ('a GIF cut off in the middle', 'cut.gif', encoded(photo(), 'GIF')[:900]),
    ('a WebP cut off in the middle', 'cut.webp', encoded(photo(), 'WEBP')[:200]),
    ('a TIFF cut off in the middle', 'cut.tif', encoded(photo(), 'TIFF')[:900]),
    ('a BMP cut off in the middle', 'cut.bmp', encoded(photo(), 'BMP')[:900]),
    ('a PNG with a wrong checksum of its header', 'checksum.png', changed(PNG, 18, b'\1')),
    ('a PNG whose pixels are damaged', 'pixels.png', changed(PNG, 60, b'\0\0\0\0')),
    ('a PNG of 0x0 pixels', 'nothing.png', png(0, 0, 8, 0, b'')),
    ('a PNG without pixels after its header', 'bare.png', PNG[:33] + chunk(b'IEND', b'')),
    ('an HEIC of a phone, named .jpg', 'phone.jpg', b'\0\0\0\x18ftypheic\0\0\0\0mif1heic' + bytes(400)),
    ('an SVG drawing, named .png', 'drawing.png', b'<svg xmlns="http://www.w3.org/2000/svg" width="5" height="5"/>'),
    ('a PDF, named .jpg', 'paper.jpg', b'%PDF-1.4\n1 0 obj\n<<>>\nendobj'),
    ('a PNG that declares 20,000x20,000 pixels', 'huge.png', png(20_000, 20_000, 8, 2, bytes(100))),
    ('a BMP with a height of minus two thousand million', 'negative.bmp',
     changed(encoded(photo(), 'BMP'), 22, struct.pack('<i', -2**31))),
    ('a PNM that declares ten thousand million pixels', 'huge.jpg', b'P6 99999 99999 255\n1234'),
    ('a cut PNG that declares 13,000x13,000 pixels', 'large.png', png(13_000, 13_000, 1, 0, bytes(100))),
    ('a PNG with 50 MB of text packed into 50 kB', 'text.png',
     png(4, 4, 8, 0, b'\0abcd'*4, (b'zTXt', b'Comment\0\0' + zlib.compress(bytes(50_000_000)))))):
    refused('image', name, partial(query, name=file, content=content), file, *DAMAGED)
refused('image', 'a decompression bomb: 16,000x16,000 pixels in 32 kB',
        lambda at: query(at, 'bomb.png', png(16_000, 16_000, 1, 0, bytes(2001*16_000))), 'bomb.png', *DAMAGED)
for values, name in ((np.nan, 'not a number'), (100., 'up to 100')):
    refused('image', f'a floating TIFF whose values are {name}',
            partial(query, name='f.tif', content=Image.fromarray(np.full((20, 30), values, np.float32))), 'f.tif',
            'scale it to 0 to 1')


def postscript(at):
    program = write(at/'bin/gs', f'#!/bin/sh\ntouch {at}/executed\n')
    program.chmod(0o755)
    with patch.dict(os.environ, PATH=f'{at}/bin:{os.environ["PATH"]}'), patch.object(EpsImagePlugin, 'gs_binary', None):
        harmless(at, lambda: query(at, 'program.jpg', PROGRAM))
refused('image', 'a PostScript program, named .jpg', postscript, 'program.jpg', 'replace or remove it')


def pipe(at): os.mkfifo(at/'pipe.jpg'); segment(at, at/'pipe.jpg')
refused('image', 'a named pipe into which nobody writes', pipe, 'pipe.jpg', seconds=2)
refused('image', 'a device that never ends', lambda at: segment(at, '/dev/zero'), '/dev/zero', 'replace or remove it',
        seconds=10)
refused('image', 'a file that is not there', lambda at: segment(at, at/'gone.jpg'), 'gone.jpg does not exist')


def link(at, target):
    (at/'new').mkdir()
    (at/'new/link.jpg').symlink_to(target)
    return at/'new/link.jpg'
refused('image', 'a symbolic link to itself', lambda at: segment(at, link(at, 'link.jpg')), 'link.jpg does not exist')
refused('image', 'a folder with nothing but a dangling link', lambda at: segment(at, link(at, 'gone.jpg').parent),
        'There are no images in', '/new')
refused('image', 'an empty folder', lambda at: ((at/'new').mkdir(), segment(at, at/'new')), 'There are no images in',
        '/new')


def unreadable_photo(at):
    file = write(at/'new/secret.jpg', JPEG)
    (at/'out').mkdir(); (at/'out').chmod(0o777); model(), support()
    with without_rights(file): segment(at, file)
refused('image', 'a photograph that may not be read', unreadable_photo, 'secret.jpg', 'Permission denied')
refused('image', 'a damaged photograph with a line break in its name', lambda at: query(at, 'two\nlines.jpg', b''),
        'lines.jpg', 'replace or remove it')
refused('image', 'a name so long that its results cannot be written', lambda at: query(at, 'a'*251 + '.jpg', JPEG),
        'aaa.jpg', 'cannot be written (File name too long)')


def one_of_two(at):
    good, bad = write(at/'new/good.jpg', JPEG), write(at/'new/bad.jpg', JPEG[:300])
    try: segment(at, good, bad, out='both')
    finally:
        rows = json.loads((at/'both/summary.json').read_text())['images']
        assert [p.name for p in (at/'both/masks').iterdir()] == ['good.png']
        assert ['error' in row for row in rows] == [True, False]
refused('image', 'one damaged photograph beside a good one, which is segmented', one_of_two, 'bad.jpg', *DAMAGED)


def grey(): return np.array(photo().convert('L'))
def clear():
    image = photo().convert('RGBA')
    image.putalpha(Image.fromarray(np.where(np.arange(64) < 20, 0, 255).astype(np.uint8)*np.ones((48, 1), np.uint8)))
    return image
def on_white(): return Image.alpha_composite(Image.new('RGBA', (64, 48), 'white'), clear()).convert('RGB')
def few(): return photo().quantize(16)


for name, right, file, content, like, tolerance in (
    ('a CMYK TIFF', 'as the same picture in RGB', 'print.tif', encoded(photo().convert('CMYK'), 'TIFF'), photo(), 0),
    ('a CMYK JPEG, as printers want it', 'close to the same picture in RGB', 'print.jpg',
     encoded(photo().convert('CMYK'), 'JPEG', quality=100, subsampling=0), photo(), 4),
    ('a grey PNG of 16 bits', 'as the same picture of 8 bits', 'deep.png',
     encoded(Image.fromarray(grey().astype(np.uint16)*257), 'PNG'), grey(), 0),
    ('a grey TIFF of 16 bits, the high byte first', 'as the same picture of 8 bits', 'deep.tif',
     encoded(Image.frombytes('I;16B', (64, 48), (grey().astype('>u2')*257).astype('>u2').tobytes()), 'TIFF'), grey(),
     0),
    ('an RGB PNG of 16 bits', 'as the same picture of 8 bits', 'deep.png',
     png(64, 48, 16, 2, b''.join(b'\0' + (r.astype('>u2')*257).astype('>u2').tobytes() for r in np.array(photo()))),
     photo(), 0),
    ('a floating TIFF from 0 to 1', 'as the same picture of 8 bits', 'float.tif',
     encoded(Image.fromarray((grey()/255).astype(np.float32)), 'TIFF'), grey(), 0),
    ('an animated GIF', 'as its first frame', 'film.gif',
     encoded(few(), 'GIF', save_all=True, append_images=[photo(6).quantize(16)]), few().convert('RGB'), 0),
    ('an animated WebP', 'as its first frame', 'film.webp', encoded(photo(), 'WEBP', lossless=True, **frames()),
     photo(), 0),
    ('an animated PNG', 'as its first frame', 'film.png', encoded(photo(), 'PNG', **frames()), photo(), 0),
    ('a TIFF of several pages', 'as its first page', 'pages.tif', encoded(photo(), 'TIFF', **frames()), photo(), 0),
    ('a PNG named .jpg', 'as if it were named .png', 'really_png.jpg', PNG, photo(), 0),
    ('a PNG without any ending', 'as if it were named .png', 'photograph', PNG, photo(), 0),
    ('a PNG that is partly transparent', 'as on white paper', 'clear.png', clear(), on_white(), 0),
    ('a PNG with a palette', 'as the same colours without', 'palette.png', few(), few().convert('RGB'), 0),
    ('a PNG of one bit', 'as the same picture in grey', 'bits.png', photo().convert('1'),
     photo().convert('1').convert('L'), 0),
    ('a JPEG with garbage after its end', 'as without the garbage', 'more.jpg', JPEG + b'garbage'*100,
     Image.open(io.BytesIO(JPEG)), 0),
    ('a PNG with EXIF data that is not EXIF data', 'as without it', 'exif.png',
     encoded(photo(), 'PNG', exif=b'garbage'), photo(), 0),
    ('a PNG whose EXIF data asks for orientation 9, which does not exist', 'as it is stored', 'ninth.png',
     encoded(photo(), 'PNG', exif=turned(9)), photo(), 0),
    ('a PNG with a colour profile that is none', 'as without it', 'profile.png',
     encoded(photo(), 'PNG', icc_profile=b'no profile at all'), photo(), 0),
    ('a PNG that EXIF data rotates by 90 degrees', 'the mask stands as people see the picture', 'turned.png',
     encoded(photo(), 'PNG', exif=turned(6)), photo().transpose(Image.Transpose.ROTATE_270), 0),
    ('a PNG that EXIF data mirrors and rotates', 'the mask stands as people see the picture', 'mirrored.png',
     encoded(photo(), 'PNG', exif=turned(5)), photo().transpose(Image.Transpose.TRANSPOSE), 0),
    ('two pictures in one file, as some phones write them', 'as the first one', 'phone.jpg',
     encoded(photo(), 'MPO', save_all=True, append_images=[photo(6)]), Image.open(io.BytesIO(JPEG)), 0)):
    works('image', name, right, partial(same, name=file, content=content, like=like, tolerance=tolerance))


def has_size(at, height, width):
    found, = answers(at, {'a.png': photo(5, height, width)})
    sizes = {kind: a.shape[:2] for kind, a in zip(KINDS, found)}
    assert sizes.pop('uncertainty') == (height + LEGEND, max(190, width))
    assert set(sizes.values()) == {(height, width)}
works('image', 'a photograph of one pixel', 'a mask of one pixel', lambda at: has_size(at, 1, 1))
works('image', 'a photograph of 3,000x1 pixels', 'a mask of 3,000x1 pixels', lambda at: has_size(at, 1, 3000))


def odd_folder(at):
    for file in ('.hidden.jpg', 'Thumbs.db', 'notes.txt', 'sub/deeper.jpg'): write(at/f'new/{file}', b'no image')
    write(at/'new/ONE.JPG', JPEG)
    segment(at, at/'new')
    assert [p.name for p in (at/'out/masks').iterdir()] == ['ONE.png']
works('image', 'a folder with hidden files, notes and a folder in it', 'its one photograph is segmented, ONE.JPG',
      odd_folder)


def foreign(at):
    answers(at, {os.fsdecode(b'caf\xe9.jpg'): JPEG})
    assert [os.fsencode(p.name) for p in (at/'answers/masks').iterdir()] == [b'caf\xe9.png']
works('image', 'a name that is not UTF-8', 'its results have the same name', foreign)
