"Annotations of COCO"
import json
from pathlib import Path
from unittest.mock import patch

import numpy as np
from layouts import make_coco, square
from PIL import Image

from deepgp_fss import prepare
from deepgp_fss.datasets import open_data

from ..case import Began, Refused, refused, run, works
from ..material import changed_folder, coco, copied
from ..pictures import becomes, emptied, little_memory, write


def annotations(change):
    "Make the label maps of COCO from a changed file: `change` changes the data, or returns the text"
    def do(at):
        data = copied(coco(), at/'data')
        path = data/f'annotations/{JSON}'
        values = json.loads(path.read_text())
        text = change(values)
        write(path, text if isinstance(text, (str, bytes)) else json.dumps(values))
        try: run('deepgp_data', 'build', 'coco', data, '--workers', 1)
        except Refused:
            assert not (data/'deepgp_masks/full/train2014/list.txt').exists(), 'a list that looks complete'
            raise
    return do


def first(kind, **values): return annotations(lambda d: d[kind][0].update(values))
def lacks(kind, key): return annotations(lambda d: (d[kind][0].pop(key), None)[1])
def shaped(shape): return first('annotations', segmentation=shape)
def build(at, change): return run('deepgp_data', 'build', 'coco', changed_folder(at, change, coco()))
def annotations_folder(at): build(at, lambda d: becomes(d/f'annotations/{JSON}', Path.mkdir))
def bomb(at):
    with little_memory(): first('images', height=10**6, width=10**6)(at)


def far(*polygon):
    "A polygon whose coordinates must never reach pycocotools, which would fill all memory with its edges"
    def guarded(shapes, *size):
        if isinstance(shapes, list) and not np.abs(np.array(shapes[0], float)).max() < 1e6:
            raise Began('pycocotools began to draw it')
        return draw(shapes, *size)
    draw = prepare.coco_mask.frPyObjects
    def do(at):
        with patch.object(prepare.coco_mask, 'frPyObjects', guarded): shaped([polygon])(at)
    return do


JSON, DRAW = 'instances_train2014.json', 'annotation 1 has a shape'
for name, do, *says in (
    ('files that are not there',
     lambda at: build(at, lambda d: emptied(d/'annotations')),
     f'{JSON} is missing', '2014 Train/Val annotations'),
    ('photographs that are not there',
     lambda at: build(at, lambda d: emptied(d/'train2014')),
     'train2014 holds none of the 3 photographs', 'unpack them there'),
    ('an empty file', annotations(lambda d: ''), f'{JSON} is damaged', 'download or unpack it again'),
    ('a file cut off in the middle', annotations(lambda d: json.dumps(d)[:2000]), f'{JSON} is damaged', 'download'),
    ('a file that is still packed', annotations(lambda d: b'PK\3\4\x80\xff'), f'{JSON} is damaged', 'unpack it again'),
    ('a folder in its place', annotations_folder, JSON),
    ('100,000 brackets', annotations(lambda d: '['*100_000), f'{JSON} is damaged'),
    ('a number of 5,000 digits', annotations(lambda d: '[' + '9'*5000 + ']'), f'{JSON} is damaged'),
    ('a list instead of a dictionary', annotations(lambda d: '[]'),
     f'{JSON} is not a file of COCO instances', 'it lacks'),
    *((f'a file without {key}', annotations(lambda d, key=key: (d.pop(key), None)[1]),
       f'{JSON} is not a file of COCO instances', 'it lacks')
      for key in ('images', 'annotations', 'categories')),
    ('a file of captions',
     annotations(lambda d: [a.pop('segmentation') and a.update(caption='a cat') for a in d['annotations']] and None),
     f"{JSON} has an entry without 'segmentation'"),
    ('a category that is missing', annotations(lambda d: d['categories'].pop() and None),
     f"{JSON} lacks the category 'toothbrush'"),
    ('images that are null', annotations(lambda d: d.update(images=None)), JSON),
    ('an annotation that is a text', annotations(lambda d: d['annotations'].append('cat')), JSON),
    *((f'an image without {key}', lacks('images', key), f"{JSON} has an entry without '{key}'")
      for key in ('id', 'file_name', 'height', 'width')),
    *((f'an annotation without {key}', lacks('annotations', key), f"{JSON} has an entry without '{key}'")
      for key in ('image_id', 'category_id', 'segmentation')),
    ('a category without a name', lacks('categories', 'name'), f"{JSON} has an entry without 'name'"),
    ('an annotation of an image that is not listed', first('annotations', image_id=99),
     f'{JSON}: annotation 1 is of image 99'),
    ('an annotation of an unknown category', first('annotations', category_id=9999), JSON, 'image 9', 'category 9999'),
    ('two images with the same id',
     annotations(lambda d: d['images'].append(d['images'][0] | dict(file_name='other.jpg'))), JSON, 'the id 9'),
    ('two images with the same file name',
     annotations(lambda d: d['images'][0].update(file_name=d['images'][1]['file_name'])), JSON, '000000000003'),
    ('a polygon of two points', shaped([[1, 2, 3, 4]]), JSON, DRAW),
    ('a polygon of one number', shaped([[1]]), JSON, DRAW),
    ('a polygon with an odd number of coordinates', shaped([[1, 2, 9, 2, 9, 9, 1]]), JSON, DRAW),
    ('a polygon of texts', shaped([['a', 'b', 'c', 'd', 'e', 'f']]), JSON, DRAW),
    ('a polygon with values that are not numbers', shaped([[float('nan')]*6]), JSON, DRAW),
    ('a polygon that goes to infinity', far(0, 0, float('inf'), 0, 5, 5), JSON, DRAW),
    ('a polygon as large as a country', far(0, 0, 1e9, 0, 1e9, 1e9), JSON, DRAW),
    ('an object without polygons', shaped([]), JSON, DRAW),
    ('an object without a shape', shaped(None), JSON, DRAW),
    ('a run-length mask of another size', shaped(dict(size=[5, 5], counts=[5, 20])), JSON, DRAW),
    ('a run-length mask that is too short', shaped(dict(size=[40, 60], counts=[0, 200])), JSON, DRAW),
    ('a run-length mask that is too long', shaped(dict(size=[40, 60], counts=[0, 99_999])), JSON, DRAW),
    ('a run-length mask with a negative run', shaped(dict(size=[40, 60], counts=[-200, 2600])), JSON, DRAW),
    ('a packed run-length mask of garbage', shaped(dict(size=[40, 60], counts='garbage')), JSON, DRAW),
    ('a run-length mask without its counts', shaped(dict(size=[40, 60])), JSON, DRAW),
    ('an image of no height', first('images', height=0), JSON, 'image 9'),
    ('an image of negative width', first('images', width=-60), JSON, 'image 9'),
    ('a height that is a text', first('images', height='40'), JSON, 'image 9'),
    ('a height of forty and a half', first('images', height=40.5), JSON, 'image 9'),
    ('an image of a million by a million pixels', bomb, JSON, 'image 9'),
    ('a file name that is a number', first('images', file_name=9), JSON, 'image 9')):
    refused('COCO', name, do, *says)


def built_from(change, *says):
    "What is there of COCO is built, and what is not is named"
    def do(at):
        said = build(at, change)
        assert all(s in said for s in says), said
    return do


works('COCO', 'one split of two', 'it is built, and the other one is named',
      built_from(lambda d: (d/f'annotations/{JSON}').unlink(), 'val2014: 3 label maps', f'{JSON} is missing'))
works('COCO', 'a photograph that is missing', 'it is left out and counted',
      built_from(lambda d: (d/'train2014/COCO_train2014_000000000009.jpg').unlink(),
                 'train2014: 2 label maps', '1 photograph(s) were missing', '000000000009.jpg'))
works('COCO', 'the layout of 2017', 'it is built, and called 2017',
      lambda at: (make_coco(at/'data', 'val', 2017), run('deepgp_data', 'build', 'coco', at/'data'),
                  open_data('coco', at/'data').title.index('COCO 2017')))


def drawn_as(change, label=17):
    "The label map of the first image is made, and has the label of its dog"
    def do(at):
        annotations(change)(at)
        found, = (at/'data/deepgp_masks/full/train2014').glob('*009.png')
        assert label in np.array(Image.open(found)) and not (at/'009.png').exists()
    return do


works('COCO', 'a file that begins with a byte order mark', 'as without it',
      drawn_as(lambda d: '\ufeff' + json.dumps(d)))
works('COCO', 'a file name that climbs out of the root', 'the label map stays where it belongs',
      drawn_as(lambda d: d['images'][0].update(file_name='../../../COCO_train2014_000000000009.jpg')))
works('COCO', 'an annotation that does not say whether it is a crowd', 'it is an object',
      drawn_as(lambda d: d['annotations'][0].pop('iscrowd') and None))
works('COCO', 'a polygon that leaves its image', 'it is cut at the edge',
      drawn_as(lambda d: d['annotations'][0].update(segmentation=[square(-20, -20, 30)])))
works('COCO', 'a run-length mask for an object that is not a crowd', 'it is drawn',
      drawn_as(lambda d: d['annotations'][0].update(segmentation=dict(size=[40, 60], counts=[0, 200, 2200]))))
