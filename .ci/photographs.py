"""The photographs on which the bundled model `photographs` is trained, as one folder for `--dataset folder`.

usage: python .ci/photographs.py VOC COCO OUT

VOC holds a part of PASCAL VOC 2012 with SBD (JPEGImages, SegmentationClassAug, train_aug.txt, classes.txt), COCO a part
of COCO with label maps (JPEGImages, SegmentationClass, classes.txt). The training images of the first and all of the
second are copied, with the classes of both: those that both know under two names get COCO's. OUT/test_classes.txt
names the classes to hold out: of COCO's classes that are none of VOC's every fourth, as in fold 0 of COCO-20^i. Nothing
of this is in the repository: the photographs are their owners'."""
import shutil
import sys
from pathlib import Path

import numpy as np
from PIL import Image

SAME = {'aeroplane': 'airplane', 'diningtable': 'dining table', 'motorbike': 'motorcycle',
        'pottedplant': 'potted plant', 'sofa': 'couch', 'tvmonitor': 'tv'}  # VOC's name: COCO's


def names(path): return [line.strip().split(maxsplit=1)[-1] for line in path.read_text().splitlines() if line.strip()]


def copy(image, mask, labels, out, name):
    "A photograph, and its mask in other labels"
    shutil.copyfile(image, out/f'JPEGImages/{name}.jpg')
    Image.fromarray(labels[np.array(Image.open(mask))]).save(out/f'SegmentationClass/{name}.png')


def main(voc, coco, out):
    classes, of_voc = names(coco/'classes.txt'), [SAME.get(c, c) for c in names(voc/'classes.txt')]
    held_out = [c for i, c in enumerate(classes) if i % 4 == 0 and c not in of_voc]
    for folder in ('JPEGImages', 'SegmentationClass'): (out/folder).mkdir(parents=True, exist_ok=True)
    (out/'classes.txt').write_text(''.join(f'{c}\n' for c in classes))
    (out/'test_classes.txt').write_text(''.join(f'{c}\n' for c in held_out))
    labels = np.zeros(256, np.uint8)
    labels[255] = 255
    labels[1:len(of_voc) + 1] = [classes.index(c) + 1 for c in of_voc]
    for name in (voc/'train_aug.txt').read_text().split():
        copy(voc/f'JPEGImages/{name}.jpg', voc/f'SegmentationClassAug/{name}.png', labels, out, f'voc_{name}')
    same = np.arange(256, dtype=np.uint8)
    for mask in sorted((coco/'SegmentationClass').glob('*.png')):
        copy(coco/f'JPEGImages/{mask.stem}.jpg', mask, same, out, f'coco_{mask.stem}')
    print(f'{len(list((out/"JPEGImages").iterdir())):,} photographs in {out}; held out: {", ".join(held_out)}')


if __name__ == '__main__': main(*map(Path, sys.argv[1:]))
