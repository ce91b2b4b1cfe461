"Roots of data sets"
import io
import pickle
import shutil

import numpy as np
from scipy.io import savemat

from deepgp_fss.datasets import folder_set

from ..case import refused, run, works
from ..material import NAMES, built_coco, changed_folder, check, class_folders, coco, copied, folder, voc
from ..pictures import DRAWN, JPEG, Evil, becomes, emptied, harmless, without_rights, write


def root(name, change, source, do=check): return lambda at: do(name, changed_folder(at, change, source()))
def unreadable(name, source, inner='.'):
    def do(at):
        data = copied(source(), at/'data')
        (at/'cache').mkdir(); (at/'cache').chmod(0o777)
        with without_rights(data/inner): check(name, data)
    return do


def build_pascal(at, sbd):
    run('deepgp_data', 'build', 'pascal', copied(voc(), at/'data'), '--sbd', sbd, '--workers', 1)


def sbd(at, content, name='2008_000001.mat'):
    write(at/f'sbd/cls/{name}', content)
    build_pascal(at, at/'sbd')


def mat(labels):
    buffer = io.BytesIO()
    savemat(buffer, dict(GTcls=dict(Segmentation=labels)))
    return buffer.getvalue()


class_maps = 'SegmentationClassAug'
for name, do, *says in (
    ('PASCAL in a folder that is not there', lambda at: check('pascal', at/'gone'), 'gone is not a folder',
     'give the folder that holds PASCAL'),
    ('PASCAL in a file', lambda at: check('pascal', write(at/'voc.tar', b'')), 'voc.tar is not a folder',
     'give the folder that holds PASCAL'),
    ('PASCAL in an empty folder', root('pascal', emptied, voc), 'does not look like PASCAL',
     'JPEGImages should be in it'),
    ('PASCAL behind a link to itself', lambda at: ((at/'loop').symlink_to('loop'), check('pascal', at/'loop')),
     'loop is not a folder', 'give the folder'),
    ('PASCAL half unpacked: no label maps', root('pascal', lambda d: shutil.rmtree(d/class_maps), voc),
     f'{class_maps} is missing', 'deepgp_data build pascal'),
    ('PASCAL half unpacked: an empty folder of label maps', root('pascal', lambda d: emptied(d/class_maps), voc),
     '.png does not exist', '(s) wrong'),
    ('PASCAL half unpacked: no lists',
     root('pascal', lambda d: [(d/f'{s}.txt').unlink() for s in ('train', 'val')], voc), 'which images are for train'),
    ('PASCAL half unpacked: a photograph is missing',
     root('pascal', lambda d: (d/f'JPEGImages/{NAMES[1]}.jpg').unlink(), voc), f'{NAMES[1]}.jpg does not exist'),
    ('PASCAL half unpacked: a list of VOC is missing',
     root('pascal', lambda d: write(d/'ImageSets/Segmentation/val.txt', ''), voc), 'train.txt cannot be read'),
    ('PASCAL that may not be read', unreadable('pascal', voc), 'data', 'Permission denied'),
    ('PASCAL whose photographs may not be read', unreadable('pascal', voc, f'JPEGImages/{NAMES[0]}.jpg'), NAMES[0],
     'Permission denied'),
    ('COCO in a folder that is not there', lambda at: check('coco', at/'gone'), 'gone is not a folder',
     'give the folder that holds COCO'),
    ('COCO without its annotations', root('coco', lambda d: shutil.rmtree(d/'annotations'), built_coco),
     'does not look like COCO', 'annotations should be in it'),
    ('COCO whose label maps have not been made', lambda at: check('coco', coco()), 'deepgp_data build coco'),
    ('COCO whose label maps have been made in part',
     root('coco', lambda d: (d/'deepgp_masks/full/train2014/list.txt').unlink(), built_coco), 'or only in part',
     'deepgp_data build coco'),
    ('COCO half unpacked: a photograph is missing',
     root('coco', lambda d: (d/'train2014/COCO_train2014_000000000009.jpg').unlink(), built_coco),
     '000000000009.jpg does not exist'),
    ('COCO with a label map missing',
     root('coco', lambda d: (d/'deepgp_masks/full/train2014/COCO_train2014_000000000009.png').unlink(), built_coco),
     '000000000009.png does not exist'),
    ('a folder that is not there', lambda at: check('folder', at/'gone'), 'gone is not a folder'),
    ('an empty folder', root('folder', emptied, folder), 'data holds neither', 'classes.txt'),
    ('a folder with photographs, but no label maps', root('folder', lambda d: shutil.rmtree(d/'masks'), folder),
     'has classes.txt, but not both', 'masks or labels'),
    ('a folder with an empty folder of photographs', root('folder', lambda d: emptied(d/'images'), folder),
     'has no images'),
    ('a folder in which a label map is missing', root('folder', lambda d: (d/'masks/03.png').unlink(), folder),
     '1 photograph(s)', '03.jpg: it should be'),
    ('a folder whose label map is a link to itself',
     root('folder', lambda d: becomes(d/'masks/03.png', lambda p: p.symlink_to(p.name)), folder), '1 photograph(s)',
     '03.jpg: it should be'),
    ('a folder whose photograph is a link to itself',
     root('folder', lambda d: becomes(d/'images/03.jpg', lambda p: p.symlink_to(p.name)), folder), '03.jpg',
     'symbolic links'),
    ('a folder that may not be read', unreadable('folder', folder, 'images'), 'images', 'Permission denied'),
    ('classes in folders, one mask missing', root('folder', lambda d: (d/'class3/3.png').unlink(), class_folders),
     '3.jpg: 3.png should lie beside it'),
    ('classes in folders, all of them empty',
     root('folder', lambda d: [emptied(p) for p in d.iterdir()], class_folders), 'data holds neither',
     'folders with photographs and masks'),
    ('SBD in a folder that is not there', lambda at: run('deepgp_data', 'build', 'pascal', voc(), '--sbd', at/'gone'),
     'gone is not a folder', 'give the folder that holds SBD'),
    ('SBD in an empty folder', lambda at: run('deepgp_data', 'build', 'pascal', voc(), '--sbd', at),
     'does not look like SBD', 'cls should be in it'),
    ('SBD without any file, and no label maps of VOC',
     lambda at: ((at/'sbd/cls').mkdir(parents=True), build_pascal(at, at/'sbd')),
     'holds any label map'),
    ('a file of SBD cut off in the middle', lambda at: sbd(at, mat(DRAWN)[:200]),
     '2008_000001.mat is not a label map of SBD'),
    ('an empty file of SBD', lambda at: sbd(at, b''), '2008_000001.mat is not a label map of SBD'),
    ('a file of SBD with label 21', lambda at: sbd(at, mat(DRAWN*0 + 21)),
     '2008_000001.mat does not hold labels from 0 to 20'),
    ('a file of SBD with half a label', lambda at: sbd(at, mat(DRAWN*.3)),
     '2008_000001.mat does not hold labels from 0 to 20'),
    ('a file of SBD without any pixel', lambda at: sbd(at, mat(np.zeros((0, 0), np.uint8))), '2008_000001.mat'),
    ('a pickle named as a file of SBD', lambda at: harmless(at, lambda: sbd(at, pickle.dumps(Evil(at/'executed')))),
     '2008_000001.mat is not a label map of SBD')):
    refused('root', name, do, *says)


def indexed(content):
    "A damaged index is made again"
    def do(at):
        data = copied(folder(), at/'data')
        areas = folder_set(data).areas
        index = data/'deepgp_index/index.txt'
        write(index, content(index.read_text()))
        assert folder_set(data).areas == areas
    return do


for name, content in (
    ('an empty index', lambda t: ''),
    ('an index cut off in the middle', lambda t: t[:len(t)//2]),
    ('an index that is not text', lambda t: JPEG),
    ('an index of other images', lambda t: t.replace('03\t', '33\t')),
    ('an index without numbers', lambda t: t.replace(':', ':x')),
    ('an index of another version', lambda t: t.replace('index 2', 'index 1'))):
    works('root', name, 'it is made again', indexed(content))


def looped(at):
    data = copied(folder(), at/'data')
    (data/'images/up').symlink_to('..'), (data/'images/loop').symlink_to('loop')
    assert len(folder_set(data)) == 12
works('root', 'links that go round in circles, beside the photographs', 'they are passed over', looped)
