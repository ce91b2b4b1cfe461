"Photographs and label maps of a data set"
import numpy as np
from PIL import Image

from deepgp_fss.datasets import folder_set

from ..case import refused, works
from ..material import changed_folder, check, class_folders, folder, held, train_on
from ..pictures import DRAWN, JPEG, MASK, PNG, encoded, frames, scene, turned, write


def in_data(file, content, name='folder', source=folder):
    "Look at a data set with another content of one of its files"
    return lambda at: check(name, changed_folder(at, lambda d: write(d/file, content), source()))


def all_masks(folder, content):
    for i in range(12): write(folder/f'masks/{i:02}.png', content)


negative = Image.fromarray(np.where(DRAWN, -3, 0).astype(np.int32))
for name, do, *says in (
    ('a photograph cut off in the middle', in_data('images/03.jpg', JPEG[:300]), '03.jpg cannot be read',
     'replace or remove it'),
    ('a photograph of another size than its label map', in_data('images/03.jpg', scene(3)[0]), '03.jpg is 64x64',
     'its mask 03.png is 48x40'),
    ('a label map in colours', in_data('masks/03.png', scene(3, 40, 48)[0]), '03.png holds colours',
     'as a palette PNG'),
    ('a label map of 16 bits with label 300', in_data('masks/03.png', Image.fromarray(DRAWN.astype(np.uint16)*75)),
     '03.png holds values that are not labels, such as 300', '0 to 255'),
    ('a label map with a label that no class has', in_data('masks/03.png', DRAWN*2), '03.png holds label 8',
     'only 4 classes'),
    ('a label map with a negative label', in_data('masks/03.png', encoded(negative, 'TIFF')), '03.png', '-3'),
    ('a floating label map of values that are not numbers',
     in_data('masks/03.png', encoded(Image.fromarray(np.full((40, 48), np.nan, np.float32)), 'TIFF')),
     '03.png holds values that are not labels, such as nan'),
    ('a label map that is an empty file', in_data('masks/03.png', b''), '03.png cannot be read',
     'replace or remove it'),
    ('a mask of one class that is empty', in_data('class3/3.png', DRAWN*0, source=class_folders), '3.png is empty'),
    ('a mask of one class that is damaged', in_data('class3/3.png', PNG[:200], source=class_folders),
     '3.png cannot be read', 'replace or remove it'),
    ('a mask of one class with soft edges',
     in_data('class3/3.png', (255 - 90*np.eye(40, 48, dtype=np.uint8))*(DRAWN > 0), source=class_folders),
     '3.png has 3 grey values', '--threshold 128'),
    ('a raw trimap in a folder of one class',
     in_data('class3/3.png', 1 + (DRAWN > 0).astype(np.uint8), source=class_folders),
     '3.png holds 1, 2 and no background', '--foreground'),
    ('two labels in a folder of one class',
     in_data('class3/3.png', DRAWN//4 + np.eye(40, 48, dtype=np.uint8)*DRAWN//4, source=class_folders),
     '3.png holds the labels 1, 2', 'one class', '--foreground'),
    ('255 the object in one mask, and not counted in another',
     in_data('class3/3.png', np.where(DRAWN, 1, 255*np.eye(40, 48)).astype(np.uint8), source=class_folders),
     '255 is the object in', 'make them alike'),
    ('label maps of 0 and 255',
     lambda at: check('folder', changed_folder(at, lambda d: all_masks(d, np.where(DRAWN, 255, 0).astype(np.uint8)))),
     '12 of 12 label maps', 'show no class', 'save the object as 1'),
    ('a mask of one class of another size', in_data('class3/3.png', MASK, source=class_folders), '3.jpg is 48x40',
     '3.png is 64x64')):
    refused('data file', name, do, *says)


def trains_on(change):
    "Train on a changed folder, holding the class `four` out"
    return lambda at: train_on(at, 'folder', changed_folder(at, change), held(at, 'four'))


refused('data file', 'a photograph that is damaged, met in training',
        trains_on(lambda d: [write(d/f'images/{i:02}.jpg', JPEG[:300]) for i in range(12)]), 'Episode 0',
        'cannot be read', 'replace or remove it')
refused('data file', 'a photograph of another size, met in training',
        trains_on(lambda d: [write(d/f'images/{i:02}.jpg', scene(i)[0]) for i in range(12)]), 'Episode 0', 'is 64x64',
        'is 48x40')
refused('data file', 'label maps that are 255 everywhere',
        trains_on(lambda d: all_masks(d, DRAWN*0 + 255)),
        '12 of 12 label maps', 'show no class, only 255', '--ignore 255')
refused('data file', 'a name with a line break',
        trains_on(lambda d: [p.rename(p.with_stem('two\nlines')) for p in (d/'images/03.jpg', d/'masks/03.png')]),
        "'two\\nlines'", 'rename the file')
refused('data file', 'two photographs with the same name, 03.jpg and 03.jpeg',
        lambda at: check('folder', changed_folder(at, lambda d: write(d/'images/03.jpeg', scene(9, 40, 48)[0]))),
        '03.jpeg')


def reads(file, content, picture):
    def do(at):
        images = folder_set(changed_folder(at, lambda d: ((d/'images/03.jpg').unlink(), write(d/file, content))))
        found = images.image([item.name for item in images.items].index('03'))
        assert found.shape == (40, 48, 3) and np.abs(found.astype(int) - np.array(picture.convert('RGB'))).max() <= 1
    return do


upright = Image.fromarray(scene(3, 40, 48)[0])
upright_grey = upright.convert('L')
works('data file', 'a photograph in CMYK', 'as the same picture in RGB',
      reads('images/03.tif', upright.convert('CMYK'), upright))
works('data file', 'a photograph of 16 bits', 'as the same picture of 8 bits',
      reads('images/03.png', Image.fromarray(np.array(upright_grey).astype(np.uint16)*257), upright_grey))
works('data file', 'a photograph of floating values from 0 to 1', 'as the same picture of 8 bits',
      reads('images/03.tif', Image.fromarray((np.array(upright_grey)/255).astype(np.float32)), upright_grey))
works('data file', 'an animated photograph', 'its first frame',
      reads('images/03.webp', encoded(upright, 'WEBP', lossless=True, **frames(40, 48)), upright))
works('data file', 'a photograph that EXIF data rotates, its label map drawn upright', 'the photograph stands upright',
      reads('images/03.png', encoded(upright.transpose(Image.Transpose.ROTATE_90), 'PNG', exif=turned(6)), upright))
works('data file', 'a photograph that EXIF data rotates, its label map drawn as it is stored',
      'the photograph stays as it is stored, like its label map',
      reads('images/03.png', encoded(upright, 'PNG', exif=turned(6)), upright))
