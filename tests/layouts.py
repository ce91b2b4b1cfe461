"Tiny data sets in the real file layouts, made from generated images"
import json

import numpy as np
from PIL import Image
from scipy.io import savemat

from deepgp_fss.datasets import COCO_CLASSES
from deepgp_fss.shapes import Shapes


def make_voc(root, names=None, side=64):
    "VOC 2012 and SBD where their archives unpack to; names: list -> image ids; 'sbd' ones have no label map of VOC"
    names = names or dict(train=['2007_000001', '2008_000002'], val=['2007_000003', '2007_000006'],
                          sbd=['2008_000004', '2009_000005'], main=['2008_000004'])
    voc, sbd = root/'VOCdevkit/VOC2012', root/'benchmark_RELEASE/dataset'
    for p in (voc/'JPEGImages', voc/'SegmentationClass', voc/'ImageSets/Segmentation', voc/'ImageSets/Main', sbd/'cls'):
        p.mkdir(parents=True)
    for i, name in enumerate((*names['train'], *names['val'], *names['sbd'])):
        image, labels = Shapes('train', side=side)[i]
        Image.fromarray(image).save(voc/f'JPEGImages/{name}.jpg')
        if name not in names['sbd']:
            picture = Image.fromarray(labels, 'P')
            picture.putpalette([v for c in range(256) for v in (c, 255 - c, c//2)])
            picture.save(voc/f'SegmentationClass/{name}.png')
        if name not in names['val']:
            plain = np.where(labels == 255, 0, labels)
            content = dict(Boundaries=np.zeros((20, 1)), Segmentation=plain,
                           CategoriesPresent=np.unique(plain[plain > 0]))
            savemat(sbd/f'cls/{name}.mat', dict(GTcls=content))
    for split in ('train', 'val'):
        (voc/f'ImageSets/Segmentation/{split}.txt').write_text('\n'.join(names[split]) + '\n')
    (voc/'ImageSets/Main/train.txt').write_text('\n'.join([*names['main'], '2010_009999']) + '\n')
    return voc, sbd


def category_ids():
    "COCO's ids have gaps: 91 numbers for 80 classes; here every eighth is skipped"
    return {name: i + i//8 for i, name in enumerate(COCO_CLASSES, 1)}


def square(x, y, s): return [x, y, x + s, y, x + s, y + s, x, y + s]


def make_coco(root, split='val', year=2014):
    "COCO with five images: several polygons, a crowd, an RLE object, one without objects and one with a crowd only"
    ids, size = category_ids(), (40, 60)
    names = [f'COCO_{split}2014_{i:012}' if year == 2014 else f'{i:012}' for i in (9, 3, 7, 5, 1)]
    images = [dict(id=i, file_name=f'{n}.jpg', height=size[0], width=size[1]) for i, n in zip((9, 3, 7, 5, 1), names)]
    (root/'annotations').mkdir(parents=True, exist_ok=True)
    (root/f'{split}{year}').mkdir()
    for k, n in enumerate(names):
        Image.fromarray(np.full((*size, 3), 40*k, np.uint8)).save(root/f'{split}{year}/{n}.jpg')
    counts = [0, 200, 40*60 - 200]
    annotations = [
        dict(id=1, image_id=9, category_id=ids['dog'], iscrowd=0, segmentation=[square(2, 2, 10), square(30, 20, 8)]),
        dict(id=2, image_id=9, category_id=ids['cat'], iscrowd=0, segmentation=[square(8, 8, 12)]),  # over the dog
        dict(id=3, image_id=3, category_id=ids['person'], iscrowd=1, segmentation=dict(size=list(size), counts=counts)),
        dict(id=4, image_id=3, category_id=ids['toothbrush'], iscrowd=0, segmentation=[square(1, 1, 20)]),
        dict(id=5, image_id=7, category_id=ids['person'], iscrowd=1, segmentation=dict(size=list(size), counts=counts)),
        dict(id=6, image_id=1, category_id=ids['zebra'], iscrowd=0, segmentation=dict(size=list(size), counts=counts))]
    data = dict(images=images, annotations=annotations, categories=[dict(id=i, name=n) for n, i in ids.items()])
    (root/f'annotations/instances_{split}{year}.json').write_text(json.dumps(data))
    return data
