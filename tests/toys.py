"Small scenes, small models and damaged files, and how to compare what segmenters say"
from functools import cache

import numpy as np
import torch
from PIL import Image

from deepgp_fss.encoders import SmallEncoder
from deepgp_fss.model import DeepGPNet, ModelConfig
from deepgp_fss.segmenter import FewShotSegmenter
from deepgp_fss.training_free import TrainingFree

SIZES = (1, 1), (1, 40), (7, 300), (33, 20), (20, 33), (64, 64), (130, 97), (500, 3)
PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)

def scene(seed=0, height=64, width=64, labels=(1, 2)):
    "Coloured boxes, one in each column of the image, before a noisy ground: image (H, W, 3) and labels (H, W), uint8"
    rng = np.random.default_rng([seed, 7])
    image, mask = rng.integers(90, 160, (height, width, 3)).astype(np.uint8), np.zeros((height, width), np.uint8)
    for k, label in enumerate(labels):
        left, step, top = k*width//len(labels), width//len(labels), int(rng.integers(0, max(1, height//3)))
        box = np.s_[top:top + max(1, height//2), left:left + max(1, 3*step//4)]
        image[box] = np.random.default_rng(label).integers(0, 256, 3)
        mask[box] = label
    return image, mask


def scenes(seeds, **how): return map(list, zip(*[scene(seed, **how) for seed in seeds]))


def tiny(seed=0, **config):
    torch.manual_seed(seed)
    small = dict(backbone='small', dim=16, scales=(8,), encoding_dim=8, decoder_width=16)
    return DeepGPNet(ModelConfig(**small | config)).eval()


def free(learner='gp', **options):
    torch.manual_seed(0)
    model = TrainingFree(SmallEncoder(16), learner, **options)
    model.config = ModelConfig('small', 16, (8,))
    return model


MODELS = dict(tiny=tiny, free=free, bounded=lambda: tiny(max_points=40),
              prototype=lambda: tiny(learner='prototype', mask_encoder='pool'),
              two=lambda: tiny(backbone='resnet18', scales=(32, 16)))
ONE = dict(lengths=(.4,), noises=(.1,))  # no choice of length scale and noise, so that all supports make the same


@cache
def model(kind): return MODELS[kind]()
def make(kind, size=64): return FewShotSegmenter(model(kind), size)
def maps(p):
    "The maps of a prediction that are there"
    found = dict(probability=p.probability, variance=p.variance, gp_mean=p.gp_mean)
    return {k: v for k, v in found.items() if v is not None}


def same(a, b):
    "Are two predictions equal to the bit?"
    if a.labels != b.labels or maps(a).keys() != maps(b).keys() or not np.array_equal(a.mask, b.mask): return False
    return all(np.array_equal(maps(a)[k], maps(b)[k]) for k in maps(a))


def close(a, b, atol=2e-4):
    assert a.labels == b.labels and maps(a).keys() == maps(b).keys()
    for k in maps(a): np.testing.assert_allclose(maps(a)[k], maps(b)[k], atol=atol, err_msg=k)


def sentence(error, *words):
    "One line, a sentence, with these words in it"
    text = str(error.value)
    assert '\n' not in text and text.endswith(('.', '.)')) and all(w in text for w in words), text


def saved(folder, image, name, **how): image.save(folder/name, **how); return folder/name


def damaged(folder):
    "Files that are no images, by name"
    photograph = saved(folder, Image.fromarray(np.kron(PIXELS, np.ones((8, 8, 1), np.uint8))), 'whole.jpg').read_bytes()
    contents = {'text.jpg': b'no image at all', 'empty.png': b'', 'zeros.png': bytes(500),
                'cut.jpg': photograph[:len(photograph)//2], 'header.jpg': photograph[:20],
                'cut.png': saved(folder, Image.fromarray(PIXELS), 'whole.png').read_bytes()[:300]}
    for name, data in contents.items(): (folder/name).write_bytes(data)
    for name in ('whole.jpg', 'whole.png'): (folder/name).unlink()
    return list(contents)
