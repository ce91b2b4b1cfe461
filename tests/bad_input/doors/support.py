"The support set: its folder and its masks"
import json
import os
from functools import partial

import numpy as np
from PIL import Image

from ..case import refused, works
from ..material import copied, mask_of, segment, support
from ..pictures import JPEG, MASK, becomes, encoded, photo, scene, turned, write


def known(at, change):
    "Segment with a support folder in which something was changed"
    folder = copied(support(), at/'known')
    change(folder)
    segment(at, write(at/'a.jpg', JPEG), known=folder)


refused('support', 'a folder that is not there', lambda at: segment(at, write(at/'a.jpg', JPEG), known=at/'gone'),
        'gone is not a folder', '--support takes the folder')
refused('support', 'a file instead of a folder', lambda at: segment(at, write(at/'a.jpg', JPEG), known=at/'a.jpg'),
        'a.jpg is not a folder', '--support takes the folder')
refused('support', 'an empty folder', lambda at: known(at, lambda d: [p.unlink() for p in d.iterdir()]),
        'known holds no photographs', 'it should have')
refused('support', 'a folder with nothing but masks',
        lambda at: known(at, lambda d: [p.unlink() for p in d.glob('*.jpg')]), 'known holds no photographs',
        'it should have')
refused('support', 'a photograph without a mask', lambda at: known(at, lambda d: (d/'1.png').unlink()), '1.jpg',
        '1.png should be there')
refused('support', 'a mask that is a link to itself',
        lambda at: known(at, lambda d: becomes(d/'1.png', lambda p: p.symlink_to(p.name))), '1.png should be there')
refused('support', 'a mask that is a named pipe', lambda at: known(at, lambda d: becomes(d/'1.png', os.mkfifo)),
        '1.png', seconds=2)
refused('support', 'a damaged photograph', lambda at: known(at, lambda d: write(d/'1.jpg', JPEG[:300])),
        '1.jpg cannot be read', 'replace or remove it')
refused('support', 'two photographs, 1.jpg and 1.jpeg, with one mask between them',
        lambda at: known(at, lambda d: write(d/'1.jpeg', scene(9)[0])), '1.jpeg')


# ---- masks of the support set

diagonal = np.add.outer(np.arange(64), np.arange(64))
soft = np.clip(diagonal*3 - 60, 0, 255).astype(np.uint8)
stripes = np.where(diagonal % 40 < 20, 255, 0).astype(np.uint8)
colours = np.zeros((64, 64, 3), np.uint8); colours[20:40, 20:40] = 200, 30, 90
behind = np.zeros((64, 64, 4), np.uint8); behind[20:40, 20:40, 3] = 255
cut_out = np.dstack([scene(1)[0], 255*np.roll(MASK, 8, 1)])
trimap = np.where(MASK, 1, np.where(np.arange(64) < 5, 3, 2)).astype(np.uint8)
for name, content, *says in (
    ('a mask of another size', MASK[:50], '1.png is 64x50', 'a mask has the size of its image'),
    ('a mask in colours', colours, '1.png holds colours', 'save it in grey'),
    ('a mask that is empty', MASK*0, '1.png is empty', 'must show the object'),
    ('a mask with soft edges that is nowhere quite white', np.minimum(soft, 250), '1.png', 'grey values',
     'make it black and white first'),
    ('a mask with soft edges', soft, '1.png', 'grey values', 'make it black and white first'),
    ('a mask saved as JPEG and named .png',
     encoded(Image.fromarray(stripes), 'JPEG', quality=30),
     '1.png', 'grey values', 'make it black and white first'),
    ('a floating mask with values that are not numbers',
     encoded(Image.fromarray(np.where(MASK > 0, np.nan, 0).astype(np.float32)), 'TIFF'), '1.png',
     'give True and False'),
    ('a floating mask with halves in it', encoded(Image.fromarray((MASK*.5).astype(np.float32)), 'TIFF'), '1.png',
     'give True and False'),
    ('a mask of 16 bits, white being 65,535', Image.fromarray(MASK.astype(np.uint16)*65535), '1.png', 'from 0 to 255'),
    ('a mask with label 300', Image.fromarray(MASK.astype(np.uint16)*300), '1.png', 'from 0 to 255'),
    ('a mask cut off in the middle', encoded(Image.fromarray(scene()[0][..., 0]), 'PNG')[:500], '1.png cannot be read',
     'replace or remove it'),
    ('an empty file as mask', b'', '1.png cannot be read', 'replace or remove it'),
    ('a mask with one grey between black and white', 255*MASK - 127*MASK*np.eye(64, dtype=np.uint8),
     '1.png has 3 grey values', '--threshold 128'),
    ('a mask that is white everywhere', MASK*0 + 255, '1.png is 255 everywhere', '--foreground 255'),
    ('a raw trimap: 1 the object, 2 the background, 3 the border', trimap, '1.png holds 1, 2, 3 and no background',
     '--foreground and --ignore'),
    ('a photograph cut out by its transparency, as mask', cut_out, '1.png', 'alpha channel',
     'save the one that is meant'),
    ('the photograph itself as mask', Image.fromarray(scene(1)[0]), '1.png holds colours', 'save it in grey')):
    refused('mask', name, partial(mask_of, content=content), *says)
dot = np.zeros((700, 700), np.uint8); dot[1, 1] = 2
refused('mask', 'an object of one pixel in a photograph of 700x700', lambda at: mask_of(at, dot, scene(1, 700, 700)[0]),
        '1.png vanishes', 'use a larger size')
refused('mask', 'a mask drawn on a photograph as it is stored, which EXIF data rotates',
        lambda at: mask_of(at, scene(1, 48, 64)[1], encoded(photo(1), 'JPEG', exif=turned(6))),
        '1.png is 64x48, but its image is 48x64', 'a mask has the size of its image')
refused('mask', 'a class named on the command line that no mask shows',
        lambda at: mask_of(at, MASK, more=('--classes', 'cat', 'dog')), '--classes', 'dog')


def learns(at, content, labels):
    mask_of(at, content)
    assert json.loads((at/'out/summary.json').read_text())['labels'] == labels
def palette(labels):
    image = Image.fromarray(labels).convert('P')
    image.putpalette([v for i in range(256) for v in (i, 255 - i, i//2)])
    image.putdata(labels.ravel().tolist())
    return image
works('mask', 'a mask that is 1 everywhere', 'the object is everywhere', lambda at: learns(at, MASK*0 + 1, [1]))
works('mask', 'a mask whose object is only in its transparency', 'what is opaque is the object',
      lambda at: learns(at, behind, [1]))
works('mask', 'a mask in black and white', 'white is the object', lambda at: learns(at, 255*MASK, [1]))
works('mask', 'a mask of one bit', 'white is the object', lambda at: learns(at, Image.fromarray(MASK > 0), [1]))
def shows(at, content):
    "The object is where it is in the other mask, and nowhere else"
    learns(at, content, [1])
    understood = json.loads((at/'out/summary.json').read_text())['masks']
    assert f'label 1 on {100*MASK.mean():.1f}% of the pixels' in understood
def white_first():
    image = Image.fromarray(1 - MASK).convert('P')
    image.putdata((1 - MASK).ravel().tolist()); image.putpalette([255]*3 + [0]*3)
    return image
works('mask', 'a palette of white and black, white first', 'white is the object', lambda at: shows(at, white_first()))
works('mask', 'a mask with label 7 beside 255', '7 is a label, 255 is not counted',
      lambda at: learns(at, np.where(MASK, 7, np.where(np.arange(64) < 5, 255, 0)).astype(np.uint8), [1, 7]))
works('mask', 'a mask of labels with a palette', 'the labels count, not their colours',
      lambda at: learns(at, palette(MASK*9), [1, 9]))
works('mask', 'a mask of labels of 16 bits', 'the labels are kept',
      lambda at: learns(at, Image.fromarray(MASK.astype(np.uint16)*9), [1, 9]))
