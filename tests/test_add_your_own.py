"A kernel, learner, backbone and data set of one's own: registered once, known everywhere, and missed by name elsewhere"
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from deepgp_fss.base import FOLDS
from deepgp_fss.commands import deepgp_train
from deepgp_fss.config import BACKBONES, DATASETS, KERNELS, LEARNERS, ModelConfig
from deepgp_fss.datasets import ShapesSet, Side, hold_out, open_data
from deepgp_fss.encoders import ImageEncoder, Normalise
from deepgp_fss.kernels import Kernel, distance, mirror
from deepgp_fss.learners import Learner, cosine, foreground, to_maps, to_points
from deepgp_fss.model import DeepGPNet, load_checkpoint, save_checkpoint
from deepgp_fss.segmenter import FewShotSegmenter
from deepgp_fss.training_free import TrainingFree


class Cosine(Kernel):
    def embed(self, x, centre): return F.normalize(x, dim=-1)
    def gram(self, u, v=None): return u @ v.mT if v is not None else mirror(u @ u.mT, self.diag(u))
    def diag(self, x): return x.new_ones(x.shape[:-1])


class Matern32(Kernel):
    def __init__(self, length_sq=8.):
        super().__init__()
        self.length_sq = length_sq

    def gram(self, u, v=None):
        d = distance(u, v)*(3/self.length_sq)**.5
        return (1 + d)*torch.exp(-d)

    def diag(self, x): return x.new_ones(x.shape[:-1])


class Nearest(Learner):
    "One channel: cosine to the most similar foreground cell, less that to the most similar background cell"
    def __init__(self, temperature=10.):
        super().__init__()
        self.temperature = temperature

    def channels(self, E): return 1
    def prepare(self, x_s, y_s): return to_points(x_s), foreground(y_s).mT > .5

    def infer(self, state, x_q):
        x_s, inside = state
        similar = cosine(to_points(x_q), x_s)
        nearest = [similar.masked_fill(~side, -1).amax(-1, keepdim=True) for side in (inside, ~inside)]
        return to_maps(self.temperature*(nearest[0] - nearest[1]), x_q.shape[-2:])


class Patches(ImageEncoder):
    def __init__(self, dim=64):
        super().__init__()
        self.dim, self.strides, self.shallow_channels = dim, (8,), [16]
        self.normalise, self.fine, self.coarse = Normalise(), nn.Conv2d(3, 16, 4, 4), nn.Conv2d(16, 64, 2, 2)
        self.project = nn.Conv2d(64, dim, 1)

    def trunk(self, images):
        fine = self.fine(self.normalise(images)).relu()
        return [self.coarse(fine).relu(), fine]


def few_shapes(fold, n=60, side=48):
    "Shapes, under another name"
    seen, new = hold_out(fold, FOLDS, 20)
    def opened(split): return lambda: ShapesSet(split, n=n, side=side)
    return f'few Shapes, fold {fold}', Side(opened('train'), seen, side**2//64), Side(opened('val'), new, side**2//64)


OWN = {KERNELS: dict(own_cosine=Cosine, own_matern=Matern32), LEARNERS: dict(own_nearest=Nearest),
       BACKBONES: dict(own_patches=Patches), DATASETS: dict(own_shapes=few_shapes)}
SMALL = dict(backbone='small', dim=16, scales=(8,), encoding_dim=8, decoder_width=16, support_stride=1)
ADDED = dict(cosine=dict(kernel='own_cosine'), matern=dict(kernel='own_matern', length_sq=20.),
             nearest=dict(learner='own_nearest', mask_encoder='pool', learner_options=dict(temperature=3.)),
             patches=dict(backbone='own_patches'), patches_frozen=dict(backbone='own_patches', freeze_backbone=True))


@pytest.fixture(autouse=True)
def registered():
    for registry, things in OWN.items():
        for name, thing in things.items(): registry.add(name)(thing)
    yield
    for registry, things in OWN.items():
        for name in things: registry.things.pop(name)


def make(**settings):
    torch.manual_seed(0)
    return DeepGPNet(ModelConfig(**SMALL | settings)).eval()


def episode(side=48):
    g = torch.Generator().manual_seed(0)
    images, query = torch.rand(1, 2, 3, side, side, generator=g), torch.rand(1, 3, side, side, generator=g)
    masks = torch.zeros(1, 2, side, side, dtype=torch.long)
    masks[..., :side//2, :] = 1
    return images, masks, query


@pytest.mark.parametrize('name', ['own_cosine', 'own_matern'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_gradients_are_finite_where_points_coincide(name, dtype):
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    twins, kernel = torch.cat([x, x]).requires_grad_(), KERNELS.make(name)
    slope, = torch.autograd.grad(kernel(twins).square().sum() + kernel(twins, x).square().sum(), twins)
    assert slope.isfinite().all() and slope.abs().max() > 0


@pytest.mark.parametrize('added', ADDED)
def test_it_trains_is_saved_comes_back_and_predicts(added, tmp_path):
    model, (images, masks, query) = make(**ADDED[added]).train(), episode()
    images[:, 1] = .5  # an image of one colour: many cells are alike
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], .01)
    before = model(images, masks, query)
    before.square().mean().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    assert model.encoder.project.weight.grad.abs().max() > 0
    optimiser.step()
    loaded = load_checkpoint(save_checkpoint(tmp_path/'net.safetensors', model))
    with torch.no_grad():
        after = model.eval()(images, masks, query)
        assert loaded.config == model.config and torch.equal(loaded(images, masks, query), after)
        assert (after - before).abs().max() > 0
    arrays = [(x.movedim(0, -1)*255).byte().numpy() for x in (*images[0], query[0])]
    segmenter = FewShotSegmenter(loaded, 48, device='cpu').fit(arrays[:2], list(masks[0].numpy().astype(np.uint8)))
    out = segmenter.predict(arrays[2])
    again = FewShotSegmenter.load(segmenter.save(tmp_path/'fitted.safetensors'), 'cpu').predict(arrays[2])
    assert out.mask.shape == (48, 48) and np.array_equal(out.probability, again.probability)
    has_gp = model.config.learner == 'gp'
    assert (out.gp_mean is not None) == (out.variance is not None) == has_gp


def test_several_classes_with_one_channel():
    model, (images, masks, query) = make(**ADDED['nearest']), episode()
    with torch.no_grad():
        state = model.prepare(images, masks + 1, classes=[2, 1])
        scores, (z,) = model.infer(state, query, details=True)
        alone = model(images, masks, query)
    assert scores.shape == (1, 2, 2, 48, 48) and z.shape == (1, 1, 2, 1, 6, 6)
    torch.testing.assert_close(scores[:, 0], alone, atol=1e-5, rtol=1e-5)
    assert model.variance_channel is None and model.mean_map(z) is None and not model.updates


@pytest.mark.parametrize('learner, options', [('gp', dict(lengths=(.4,))), ('own_nearest', dict(temperature=3.))])
def test_without_training(learner, options):
    model = TrainingFree.from_backbone('own_patches', None, learner=learner, **options)
    images, masks, query = episode()
    scores = model.infer(model.prepare(images, masks), query)
    assert scores.shape == (1, 2, 48, 48) and scores.isfinite().all()
    with pytest.raises(ValueError, match='has no option colour'): TrainingFree(model.encoder, learner, colour='red')


def test_the_command_line_knows_them(tmp_path):
    deepgp_train(['--dataset', 'own_shapes', '--kernel', 'own_matern', '--backbone', 'own_patches',
                  '--recipe', 'shapes', '--size', '48', '--dim', '16', '--decoder_width', '16', '--encoding_dim', '8',
                  '--batch', '1', '--shots', '1', '--iterations', '1', '--out', str(tmp_path/'run'), '--cpu',
                  '--picture_every', '0'])
    model = load_checkpoint(tmp_path/'run/model.safetensors')
    assert isinstance(model.encoder, Patches) and isinstance(model.learner.gp.kernel, Matern32)
    assert open_data('own_shapes', n=40).test.images.title


def test_a_backbone_without_weights_says_so():
    with pytest.raises(ValueError, match='no use for the weights'):
        DeepGPNet(ModelConfig(**SMALL | dict(backbone='own_patches')), weights='imagenet')


@pytest.mark.parametrize('added, kind', [('matern', "kernel 'own_matern'"), ('nearest', "learner 'own_nearest'"),
                                         ('patches', "backbone 'own_patches'")])
def test_where_it_is_not_registered_a_checkpoint_says_what_to_do(added, kind, tmp_path):
    path = save_checkpoint(tmp_path/'net.safetensors', make(**ADDED[added]))
    script = ('import sys\nfrom deepgp_fss.model import load_checkpoint\n'
              'try: load_checkpoint(sys.argv[1])\nexcept ValueError as e: print(e)')
    run = subprocess.run([sys.executable, '-c', script, path], capture_output=True, text=True, check=True)
    assert f'There is no {kind}: choose one of' in run.stdout
    assert 'If it is one of your own, import the module that registers it first.' in run.stdout


def test_an_object_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match='kernel must be a name.*register a kernel of your own with KERNELS.add'):
        ModelConfig(kernel=Matern32())
    with pytest.raises(ValueError, match='backbone must be a name'): ModelConfig(backbone=Patches())
    with pytest.raises(ValueError, match='is a setting of the model'): ModelConfig(learner_options=dict(noise_var=.1))
    for options in dict(colour='red'), dict(temperature=-1.), dict(temperature='hot'), dict(n=True), dict(n=2.5):
        with pytest.raises(ValueError, match='has no option colour|must be a positive'):
            make(learner='multiprototype', mask_encoder='pool', learner_options=options)
