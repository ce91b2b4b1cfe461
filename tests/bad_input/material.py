"What the cases share: models, data sets, and what users do with them"
import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torchvision
from layouts import make_coco
from PIL import Image
from safetensors.torch import save_file

from deepgp_fss.folders import KINDS
from deepgp_fss.model import DeepGPNet, ModelConfig, load_checkpoint, save_checkpoint
from deepgp_fss.segmenter import FewShotSegmenter

from .case import run, shared
from .pictures import photo, scene, write


@cache
def model():
    "A tiny checkpoint, never trained, whose masks are neither empty nor full"
    torch.manual_seed(5)
    net = DeepGPNet(ModelConfig('small', 16, (8,), encoding_dim=8, decoder_width=16)).eval()
    path = save_checkpoint(shared()/'model/model.safetensors', net, run=dict(recipe=dict(size=64, shots=1)))
    path.chmod(0o644)
    return path


@cache
def support():
    "Two photographs with masks"
    for i in range(2):
        image, mask = scene(i)
        write(shared()/f'support/{i}.jpg', image), write(shared()/f'support/{i}.png', mask)
    return shared()/'support'


@cache
def folder():
    "A data set with label maps: 12 images of 48x40, 4 classes"
    root = shared()/'folder'
    for i in range(12):
        image, mask = scene(i, 40, 48, 1 + i % 4)
        write(root/f'images/{i:02}.jpg', image), write(root/f'masks/{i:02}.png', mask)
    write(root/'classes.txt', 'one\ntwo\nthree\nfour\n')
    return root


@cache
def class_folders():
    "A data set with one class to a folder: 4 classes of 3 images"
    for i in range(12):
        image, mask = scene(i, 40, 48)
        place = shared()/f'classes/class{i % 4}'
        write(place/f'{i}.jpg', image), write(place/f'{i}.png', 255*mask)
    return shared()/'classes'


@cache
def voc():
    "A part of PASCAL: images of two classes for training, of two others for validation (they belong to fold 0)"
    root, names = shared()/'voc', dict(train=[], val=[])
    for i in range(12):
        split, name = ('train', 'val')[i % 2], f'2007_{i:06}'
        image, mask = scene(i, 40, 48, (6, 1)[i % 2] + i//2 % 2)
        write(root/f'JPEGImages/{name}.jpg', image), write(root/f'SegmentationClassAug/{name}.png', mask)
        names[split].append(name)
    for split in names: write(root/f'{split}.txt', '\n'.join(names[split]) + '\n')
    return root


@cache
def coco():
    "COCO as it is unpacked"
    for split in ('train', 'val'): make_coco(shared()/'coco', split)
    return shared()/'coco'


@cache
def built_coco():
    root = copied(coco(), shared()/'coco_built')
    run('deepgp_data', 'build', 'coco', root)
    return root


@cache
def backbone():
    "Weights of a ResNet-18 that was never trained"
    torch.manual_seed(0)
    state = torchvision.models.resnet18().state_dict()
    save_file(state, shared()/'resnet18.safetensors')
    return shared()/'resnet18.safetensors'


@cache
def trained():
    "A finished run of two steps"
    train(shared(), '--out', shared()/'run', '--iterations', 2)
    return shared()/'run'


def copied(source, target): shutil.copytree(source, target, symlinks=True); return target


# ---- what users do

def segment(at, *queries, known=None, by=None, out='out', more=()):
    return run('deepgp_segment', '--support', known or support(), '--query', *queries, '--out', at/out,
               '--model', by or model(), '--cpu', *more)


def query(at, name, content): return segment(at, write(at/f'new/{name}', content))


def answers(at, contents):
    "Mask, overlay, uncertainty and variance that come out for photographs, by name"
    files = [write(at/f'new/{name}', content) for name, content in contents.items()]
    segment(at, *files, out='answers')
    names = {Path(row['file']): row['result'] for row in json.loads((at/'answers/summary.json').read_text())['images']}
    def answer(file, kind, end): return np.array(Image.open(at/f'answers/{kind}/{names[file]}{end}'))
    return [[answer(file, *kind) for kind in KINDS.items()] for file in files]


def same(at, name, content, like, tolerance=0):
    "The same answer as for another picture, a PNG of which is made"
    mine, theirs = answers(at, {name: content, 'like.png': like})
    for a, b in zip(mine, theirs): assert a.shape == b.shape and np.abs(a.astype(int) - b).mean() <= tolerance, name


def mask_of(at, content, image=None, more=()):
    "Segment with this as the mask of one of the two photographs"
    known = copied(support(), at/'known')
    if image is not None: write(known/'1.jpg', image)
    write(known/'1.png', content)
    return segment(at, write(at/'new/a.png', photo()), known=known, more=more)


TRAIN = ('--data n_train=60 n_val=60 side=48 --iterations 1 --batch 1 --shots 1 --size 48 --backbone small --scales 8 '
         '--dim 16 --encoding_dim 8 --decoder_width 16 --picture_every 0 --cpu').split()
EVALUATE = '--dataset shapes --data n_val=60 side=48 --size 48 --shots 1 --episodes 2 --plain --cpu'.split()


def train(at, *words): return run('deepgp_train', *TRAIN, '--out', at/'out', *words)
def evaluate(at, *words): return run('deepgp_eval', model(), *EVALUATE, '--out', at/'out', *words)
def data_set(name, root, *data): return '--dataset', name, '--root', root, '--data', 'min_area=50', *data
def train_on(at, name, root, *data): return train(at, '--recipe', 'shapes', *data_set(name, root, *data))
def evaluate_on(at, name, root, *data, more=()): return evaluate(at, *data_set(name, root, *data), *more)
def check(name, root, *words): return run('deepgp_data', 'check', name, root, '--part', '--workers', 1, *words)


def segmenter(): return FewShotSegmenter(load_checkpoint(model()), 64, 'cpu')
def fitted(): return segmenter().fit(*zip(scene(0), scene(1)))


def changed_folder(at, change, source=None):
    "A data set in which something was changed, under another name"
    root = copied(source or folder(), at/'data')
    change(root)
    return root


def held(at, names): return f'test_classes={write(at/"held.txt", names)}'


def header_text(change, about):
    "A header as `change` leaves it, as JSON; or the text that `change` returns in its place"
    text = change(about)
    return text if isinstance(text, str) else json.dumps(about)


NAMES = [f'2007_{i:06}' for i in range(0, 12, 2)]  # the images of `voc` for training
SHOWN = dict(voc='VOC', coco='COCO', built='COCO', folder='FOLDER', weights='FILE')  # in the names of cases
