"Folding batch norm changes nothing but rounding: in our models, those of timm, and blocks that only look like ours"
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from deepgp_fss.encoders import TimmEncoder
from deepgp_fss.model import DeepGPNet, ModelConfig, fold_batch_norm, for_prediction


def lively(module):
    "Batch norms of `module` with statistics, scale and shift as after training; in evaluation mode"
    torch.manual_seed(0)
    with torch.no_grad():
        for m in module.modules():
            if not isinstance(m, nn.modules.batchnorm._BatchNorm): continue
            if m.running_mean is not None: m.running_mean.normal_(0, .1); m.running_var.uniform_(.5, 2)
            if m.weight is not None: m.weight.uniform_(.5, 1.5); m.bias.normal_(0, .1)
    return module.eval()


def norms(module): return sum(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in module.modules())


def folded(module):
    module = copy.deepcopy(module)
    fold_batch_norm(module)
    return module


def close(a, b): assert (a - b).abs().max() <= 1e-4*b.abs().max(), (a - b).abs().max()/b.abs().max()


FAMILIES = ('efficientnet_b0', 'mobilenetv2_050', 'mobilenetv3_small_050', 'ghostnet_050', 'regnety_002', 'resnet10t',
            'resnext26ts', 'densenet121', 'convnext_atto', 'vgg11_bn', 'rexnet_100', 'hrnet_w18_small',
            'tf_efficientnet_lite0', 'repghostnet_050', 'selecsls42', 'starnet_s1', 'vit_tiny_patch16_224',
            'vit_small_patch14_dinov2')


@pytest.mark.parametrize('name', FAMILIES)
def test_families_of_timm(name):
    timm = pytest.importorskip('timm')
    if not timm.list_models(name): pytest.skip(f'timm {timm.__version__} has no {name}')
    encoder, side = lively(TimmEncoder(name, 8)), 56 if 'patch14' in name else 64
    fast = folded(encoder).to(memory_format=torch.channels_last)
    with torch.no_grad():
        for a, b in zip(fast.trunk(x := torch.rand(1, 3, side, side)), encoder.trunk(x), strict=True): close(a, b)


@pytest.mark.parametrize('name', ['efficientnet_b0', 'mobilenetv3_small_050'])
def test_a_whole_model_on_timm(name):
    "It was a KeyError: 'conv1'"
    pytest.importorskip('timm')
    torch.manual_seed(0)
    config = ModelConfig(backbone=f'timm:{name}', scales=(32,), dim=16, encoding_dim=8, decoder_width=16)
    model = lively(DeepGPNet(config))
    episode = torch.rand(1, 2, 3, 64, 64), (torch.rand(1, 2, 64, 64) > .5).long(), torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(for_prediction(model)(*episode), model(*episode), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize('config', [dict(backbone='resnet18', scales=(16,)), dict(backbone='resnet50', scales=(32, 16)),
                                    dict(backbone='small', scales=(8,))])
def test_ours_are_folded_whole(config):
    model = lively(DeepGPNet(ModelConfig(**config, dim=16, encoding_dim=8, decoder_width=16)))
    fast = folded(model)
    assert norms(model) > 0 and norms(fast) == 0
    with torch.no_grad():
        for a, b in zip(fast.encoder.trunk(x := torch.rand(1, 3, 64, 64)), model.encoder.trunk(x)): close(a, b)
        for a, b in zip(fast.mask_encoder(m := (torch.rand(1, 64, 64) > .5)), model.mask_encoder(m)): close(a, b)


class Between(nn.Module):
    "Names as in our blocks, but something between, or elsewhere"
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1, self.bn2 = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.BatchNorm2d(3)
    def forward(self, x): y = self.conv1(self.bn2(x)); return self.bn1(F.relu(y)) + y


class Peek(nn.Sequential):
    "A sequence that also looks at what lies between its parts"
    def forward(self, x): y = self[0](x); return self[1](y) + y


class Standardised(nn.Conv2d):
    def forward(self, x): return F.conv2d(x, (self.weight - self.weight.mean())/self.weight.std(), self.bias)


class Active(nn.BatchNorm2d):
    def forward(self, x): return F.relu(super().forward(x))


def shared():
    conv = nn.Conv2d(3, 3, 3, padding=1)
    return nn.Sequential(conv, nn.BatchNorm2d(3), conv, nn.ReLU())


def repeated_norm():
    bn = nn.BatchNorm2d(3)
    return nn.Sequential(nn.Conv2d(3, 3, 1), bn, nn.Conv2d(3, 3, 1), bn)


STRANGE = dict(
    between=Between, shared=shared, repeated_norm=repeated_norm,
    peek=lambda: Peek(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)),
    standardised=lambda: nn.Sequential(Standardised(3, 4, 3), nn.BatchNorm2d(4)),
    active=lambda: nn.Sequential(nn.Conv2d(3, 4, 3), Active(4)),
    transposed=lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4)),
    sync=lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.SyncBatchNorm(4)),
    no_statistics=lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)))


@pytest.mark.parametrize('name', STRANGE)
def test_what_only_looks_foldable_stays(name):
    model, x = lively(STRANGE[name]()), torch.rand(2, 3, 9, 9)
    fast = folded(model)
    assert norms(fast) == norms(model)
    with torch.no_grad(): close(fast(x), model(x))


def test_a_convolution_that_a_hook_watches_stays():
    model, seen, x = lively(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))), [], torch.rand(1, 3, 9, 9)
    model[0].register_forward_hook(lambda module, inputs, out: seen.append(out))
    fold_batch_norm(model)
    with torch.no_grad(): expected = model[0](x)
    model(x)
    assert torch.equal(seen[-1], expected) and norms(model) == 1


def test_plain_neighbours_are_folded_without_a_bias_or_a_scale():
    for bias in (True, False):
        for affine in (True, False):
            convolution, norm = nn.Conv2d(3, 4, 3, groups=1, bias=bias), nn.BatchNorm2d(4, affine=affine)
            model, x = lively(nn.Sequential(convolution, norm)), torch.rand(1, 3, 9, 9)
            fast = folded(model)
            with torch.no_grad(): close(fast(x), model(x))
            assert norms(fast) == 0
