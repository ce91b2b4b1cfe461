"Arrays, in a notebook"
import numpy as np
import torch

from deepgp_fss.model import load_checkpoint
from deepgp_fss.segmenter import FewShotSegmenter

from ..case import refused
from ..material import backbone, fitted, model, segmenter
from ..pictures import MASK, scene


def predict(x): return lambda at: fitted().predict(x)
def fit(*masks): return lambda at: segmenter().fit([scene(i)[0] for i in range(len(masks))], masks)
for name, do, *says in (
    ('None as image', predict(None), 'image 0 is a NoneType', 'give a path'),
    ('lists of lists as image', predict([[1, 2], [3, 4]]), 'image 0 is a list', 'give a path'),
    ('a batch of images as image', predict(torch.zeros(1, 3, 8, 8)), 'image 0 has shape (1, 3, 8, 8)', 'must be'),
    ('an image without pixels', predict(np.zeros((0, 5, 3), np.uint8)), 'image 0', 'not empty'),
    ('floating values up to 255', predict(scene()[0].astype(float)), 'image 0', 'scale it to 0 to 1'),
    ('an image with one value that is not a number', predict(np.array([[.5, np.nan]])), 'image 0', 'not numbers'),
    ('an image of 64-bit numbers', predict(scene()[0].astype(int)), 'image 0', 'use uint8'),
    ('an image of texts', predict(np.array([['a', 'b']])), 'image 0', 'use uint8'),
    ('a mask that is not a number anywhere', fit(MASK, np.where(MASK, np.nan, 0)), 'the mask of image 1',
     'give True and False'),
    ('a mask of infinities', fit(np.where(MASK, np.inf, 0)), 'the mask of image 0', 'give True'),
    ('a mask with negative labels', fit(-MASK.astype(int)), 'the mask of image 0', 'from 0 to 255'),
    ('a mask of texts', fit(MASK.astype(str)), 'the mask of image 0', 'give True and False'),
    ('a mask for each colour', fit(np.dstack([MASK]*3)), 'the mask of image 0', 'must be (H, W)'),
    ('None as mask', fit(None), 'the mask of image 0', 'must be (H, W)'),
    ('more images than masks', lambda at: segmenter().fit([scene()[0]]*2, [MASK]), '2 images and 1 masks',
     'each image needs its mask'),
    ('no images at all', lambda at: segmenter().fit([], []), 'nothing to learn from', 'give at least one'),
    ('a question before anything was learnt', lambda at: segmenter().predict(scene()[0]), 'call fit'),
    ('an image to forget that is not there', lambda at: fitted().remove(7), 'no image 7'),
    ('a batch of no images', lambda at: fitted().predict_many([scene()[0]], 0), 'batch must be at least 1'),
    ('a window of 31 pixels', lambda at: FewShotSegmenter(load_checkpoint(model()), 31, 'cpu'),
     'size must be at least 32'),
    ('edges, "maybe"', lambda at: FewShotSegmenter(load_checkpoint(model()), 64, 'cpu', edges='maybe'),
     'edges must be True, False or None', "'maybe'"),
    ('a device that does not exist', lambda at: FewShotSegmenter(load_checkpoint(model()), 64, 'abacus'), 'abacus'),
    ('a GPU that is not there', lambda at: FewShotSegmenter(load_checkpoint(model()), 64, 'cuda:99'), 'cuda:99'),
    ('a segmenter saved as .pt', lambda at: fitted().save(at/'known.pt'), 'known.pt', '.safetensors'),
    ('an unknown learner',
     lambda at: FewShotSegmenter.training_free(backbone(), 'resnet18', 64, 'cpu', learner='oracle'), "'oracle'",
     'choose one of')):
    refused('array', name, do, *says)
