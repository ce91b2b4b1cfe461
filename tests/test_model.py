"The network: traced, in mixed precision, at odd sizes, and with strange checkpoints"
import json
import socket
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from deepgp_fss.encoders import ResNetEncoder, TimmEncoder, TokenEncoder
from deepgp_fss.learners import LEARNERS
from deepgp_fss.model import DeepGPNet, ModelConfig, QueryPath, for_prediction, load_checkpoint, save_checkpoint

SMALL = dict(backbone='small', dim=16, scales=(8,), encoding_dim=8, decoder_width=16)


def small(**settings):
    torch.manual_seed(0)
    return DeepGPNet(ModelConfig(**SMALL | settings)).eval()


def episode(K=2, B=1, M=None, H=32, W=40, seed=0):
    g = torch.Generator().manual_seed(seed)
    images, masks = torch.rand(B, K, 3, H, W, generator=g), (torch.rand(B, K, H, W, generator=g) > .6).long()
    return images, masks, torch.rand(*((B, 3, H, W) if M is None else (B, M, 3, H, W)), generator=g)


@pytest.fixture(scope='module')
def layer_table():
    "Outputs of the paper's final model at 448x448: name of the module -> (channels, side)"
    torch.manual_seed(0)
    model, sizes = DeepGPNet().eval(), {}
    def note(name):
        def hook(module, inputs, out):  # the support, thinned before its projection, gives the smaller of two sizes
            sizes[name] = max(sizes.get(name, (0, 0)), (out.shape[1], out.shape[-1]))
        return hook
    for name, module in model.named_modules():
        block = name.rsplit('.', 1)[-1] in ('cab', 'rrb', 'layer1', 'layer2', 'layer3', 'layer4')
        if block or not list(module.children()): module.register_forward_hook(note(name))
    support, query = (torch.rand(1, 1, 3, 448, 448), torch.ones(1, 1, 448, 448)), torch.rand(1, 3, 448, 448)
    with torch.no_grad(): logits = model(*support, query)
    return sizes | {'upsample3': tuple(logits.shape[1::2])}


@pytest.mark.parametrize('row, expected', {
    'encoder.conv1': (64, 224), 'encoder.bn1': (64, 224), 'encoder.relu': (64, 224), 'encoder.maxpool': (64, 112),
    'encoder.layer1': (256, 112), 'encoder.layer2': (512, 56), 'encoder.layer3': (1024, 28),
    'encoder.layer4': (2048, 28), 'encoder.project.0': (512, 28),
    'mask_encoder.conv1': (16, 224), 'mask_encoder.bn1': (16, 224), 'mask_encoder.relu': (16, 224),
    'mask_encoder.maxpool': (16, 112), 'mask_encoder.layer1': (32, 56), 'mask_encoder.layer2': (64, 28),
    'mask_encoder.heads.0.0': (64, 28), 'mask_encoder.heads.0.1': (64, 28), 'mask_encoder.heads.0.2': (64, 28),
    'decoder.start': (256, 28), 'decoder.levels.0.cab': (256, 56), 'decoder.levels.0.rrb': (256, 56),
    'decoder.levels.1.cab': (256, 112), 'decoder.levels.1.rrb': (2, 112),
    'upsample3': (2, 448)}.items())
def test_layer_table_of_the_paper(layer_table, row, expected): assert layer_table[row] == expected


@pytest.mark.parametrize('shots', [1, 10])
@pytest.mark.parametrize('learner', ['gp', 'attention'])
def test_forward_is_prepare_then_infer(shots, learner):
    model, (images, masks, queries) = small(learner=learner), episode(shots, B=2, M=3)
    with torch.no_grad():
        together = model(images, masks, queries)
        state = model.prepare(images, masks)
        one_by_one = torch.stack([model.infer(state, queries[:, i]) for i in range(3)], 1)
        torch.testing.assert_close(one_by_one, together, atol=1e-4, rtol=1e-4)
        for b in range(2):
            alone = model(*(t[b:b+1] for t in (images, masks, queries)))
            torch.testing.assert_close(alone, together[b:b+1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize('H, W', [(1, 1), (7, 50), (33, 8), (64, 64)])
def test_any_size(H, W):
    images, masks, query = episode(H=H, W=W)
    with torch.no_grad(): assert small()(images, masks, query).shape == (1, 2, H, W)


def test_the_support_matters_and_its_order_does_not():
    model, (images, masks, query) = small(), episode(4)
    with torch.no_grad():
        logits = model(images, masks, query)
        torch.testing.assert_close(model(images.flip(1), masks.flip(1), query), logits, atol=1e-4, rtol=1e-4)
        assert (model(images, 1 - masks, query) - logits).abs().max() > 1e-3
        ignored = torch.where(masks == 0, 255, masks)
        assert torch.equal(model(images, ignored, query), logits)  # 255 counts as background


@pytest.mark.parametrize('learner, options', [
    ('prototype', dict(temperature=7.)), ('multiprototype', dict(n=3, temperature=7.)),
    ('attention', dict(temperature=.3)), ('transductive', dict(steps=5, lr=.1))])
def test_learner_options_change_the_answer_and_are_kept(learner, options, tmp_path):
    model = small(learner=learner, mask_encoder='pool', learner_options=options)
    path = save_checkpoint(tmp_path/'net.safetensors', model)
    with torch.no_grad():
        scores, usual = model(*episode()), small(learner=learner, mask_encoder='pool')(*episode())
        assert torch.equal(load_checkpoint(path)(*episode()), scores) and (scores - usual).abs().max() > 1e-6
    assert all(getattr(model.learner, name) == value for name, value in options.items())


def test_a_checkpoint_from_before_there_were_learner_options(tmp_path):
    path = save_checkpoint(tmp_path/'net.safetensors', small())
    header = json.loads((tmp_path/'net.json').read_text())
    del header['config']['learner_options']
    save_file(small().state_dict(), path, metadata=dict(deepgp_fss=json.dumps(header)))
    assert load_checkpoint(path).config == ModelConfig(**SMALL)


def test_what_the_mask_encoder_makes_of_everything_is_measured_once():
    model, calls = small(), []
    model.mask_encoder.register_forward_hook(lambda *_: calls.append(1))
    maps = [model.mean_map(torch.rand(1, 8 + 25, 3, 3)) for _ in range(3)]
    assert len(calls) == 1 and maps[0].shape == (1, 3, 3)
    with torch.no_grad(): model.mask_encoder.conv1.weight += .1
    model.mean_map(torch.rand(1, 8 + 25, 3, 3))
    assert len(calls) == 2


def test_evaluation_differs_from_training_by_batch_statistics_only():
    model, inputs = small(), episode()
    with torch.no_grad():
        logits = model(*inputs)
        model.train()
        for m in model.modules():
            if isinstance(m, torch.nn.modules.batchnorm._BatchNorm): m.eval()
        assert torch.equal(model(*inputs), logits)


@pytest.mark.parametrize('layout', [torch.contiguous_format, torch.channels_last])
def test_bfloat16_autocast(layout):
    "The scores move by what bfloat16 convolutions cost; the GP stays in float32"
    model, inputs = small().to(memory_format=layout), episode()
    with torch.no_grad():
        plain = small()(*inputs)
        torch.testing.assert_close(model(*inputs), plain, atol=1e-4, rtol=1e-3)
        with torch.autocast('cpu', dtype=torch.bfloat16): half = model(*inputs)
    assert (half.float() - plain).abs().max() < .1*plain.abs().max() + .05


@pytest.mark.parametrize('learner', sorted(LEARNERS))
def test_features_that_are_not_finite_get_a_sentence(learner):
    "Whatever the learner is, in support and query; a training looks at its loss instead"
    pooled = {} if learner in ('gp', 'attention') else dict(mask_encoder='pool')
    model, (images, masks, query) = small(learner=learner, **pooled), episode()
    nothing = torch.full_like(query, torch.nan)
    with torch.no_grad():
        state = model.prepare(images, masks)
        assert model.infer(state, query).isfinite().all()
        with pytest.raises(ValueError, match=r'x_q holds \d+ value\(s\) that are not'): model.infer(state, nothing)
        with pytest.raises(ValueError, match=r'x_s holds \d+ value\(s\) that are not'):
            model.prepare(nothing[:, None].expand(-1, 2, -1, -1, -1), masks)
        if learner == 'gp': return  # needs to know it at once
        monitored = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
        model.train()
        for m in monitored: m.eval()
        assert model.infer(model.prepare(images, masks), nothing).isnan().any()


@pytest.mark.skipif(tuple(map(int, torch.__version__.split('.')[:2])) < (2, 6),
                    reason='PyTorch 2.4 and 2.5 break the graph at hyperparameters that are descriptors')
def test_compile_and_export_without_a_break():
    model, (images, masks, query) = small(), episode()
    with torch.no_grad():
        path = QueryPath(model, model.prepare(images, masks))
        expected = path(query)
        compiled = torch.compile(path, fullgraph=True, backend='aot_eager')
        exported = torch.export.export(path, (query,)).module()
        for traced in compiled, exported: torch.testing.assert_close(traced(query), expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(path(query), expected)  # tracing left nothing behind


def test_prediction_copy_leaves_the_model_alone():
    torch.manual_seed(0)
    model = DeepGPNet(ModelConfig(backbone='resnet18', dim=16, decoder_width=16)).eval()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    fast, inputs = for_prediction(model), episode(H=64, W=64)
    with torch.no_grad(): torch.testing.assert_close(fast(*inputs), model(*inputs), atol=1e-3, rtol=1e-3)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert all(p.requires_grad for p in model.parameters())


def test_frozen_batch_norm_survives_training_mode():
    encoder = ResNetEncoder('resnet18', dim=8)
    outer = torch.nn.Sequential(encoder).train()
    state = {k: v.clone() for k, v in encoder.state_dict().items() if 'running' in k}
    outer(torch.rand(2, 3, 32, 32))
    assert all(torch.equal(v, encoder.state_dict()[k]) for k, v in state.items())
    assert ResNetEncoder('resnet18', dim=8, freeze_bn=False).train().bn1.training


@pytest.mark.parametrize('name, stride', [('vit_tiny_patch16_224', 16), ('resnet18', 32)])
def test_timm_backbones(name, stride):
    pytest.importorskip('timm')
    encoder = TimmEncoder(name, dim=8)
    deep, shallow = encoder(torch.rand(1, 3, 64, 96))
    assert deep[0].shape == (1, 8, 64//stride, 96//stride) and [s.shape[1] for s in shallow] == encoder.shallow_channels
    assert {n for n, p in encoder.named_parameters() if p.requires_grad} == {'project.weight', 'project.bias'}
    with pytest.raises(ValueError, match='no_such_model'): TimmEncoder('no_such_model')


def test_no_hidden_downloads(monkeypatch, tmp_path):
    "Weights that are not at hand are an error; the network is not even tried"
    def connect(*args): raise AssertionError('the network was touched')
    monkeypatch.setattr(socket.socket, 'connect', connect)
    monkeypatch.setattr(torch.hub, 'get_dir', lambda: str(tmp_path))
    with pytest.raises(FileNotFoundError, match='put it there.*download=True'):
        ResNetEncoder('resnet50', weights='imagenet')
    pytest.importorskip('timm')
    with pytest.raises(ValueError, match='need the cache or download=True') as e:
        TimmEncoder('vit_tiny_patch16_224', weights='pretrained')
    assert 'the network was touched' not in str(e.value)


REAL = Path(__file__).resolve().parents[2]/'shared'/'data'/'weights'/'resnet50_imagenet.safetensors'


@pytest.mark.skipif(not REAL.is_file(), reason=f'no real ResNet-50 weights at {REAL}')
def test_real_weights():
    "Half-precision ImageNet weights without a classifier: they fit, and their features are alive and bounded"
    encoder = ResNetEncoder(weights=REAL).eval()
    with torch.no_grad(): layer2, layer1 = encoder(torch.rand(1, 3, 128, 128)).shallow
    assert encoder.conv1.weight.dtype == torch.float32 and .01 < layer2.std() < 10 and .01 < layer1.std() < 10


@pytest.mark.parametrize('name, patch', [('vit_tiny_patch16_224', 16), ('vit_small_patch14_dinov2', 14)])
def test_timm_backbone_under_the_gp(name, patch):
    pytest.importorskip('timm')
    model = DeepGPNet(ModelConfig(backbone=f'timm:{name}', scales=(patch,), dim=16, decoder_width=16, encoding_dim=8))
    images, masks, query = episode(H=50, W=70)
    logits = model.train()(images, masks, query)
    assert logits.shape == (1, 2, 50, 70)
    logits.sum().backward()
    assert not any(p.grad is not None for p in model.encoder.backbone.parameters())
    with pytest.raises(ValueError, match='set scales='): DeepGPNet(ModelConfig(backbone=f'timm:{name}', scales=(8,)))


def test_hugging_face_backbone(tmp_path):
    transformers = pytest.importorskip('transformers')
    torch.manual_seed(0)
    tiny = transformers.Dinov2Config(hidden_size=16, num_hidden_layers=3, num_attention_heads=2, patch_size=14,
                                     image_size=56)
    def encoder(): return TokenEncoder(transformers.Dinov2Model(tiny), dim=8, layers=(-1, -2))
    deep, shallow = encoder()(torch.rand(1, 3, 56, 70))
    assert deep[0].shape == (1, 8, 4, 5) and shallow[0].shape == (1, 16, 4, 5)
    config = ModelConfig(backbone='custom', scales=(14,), dim=8, decoder_width=16, encoding_dim=8)
    model = DeepGPNet(config, encoder=encoder()).eval()
    path = save_checkpoint(tmp_path/'vit.safetensors', model)
    with pytest.raises(ValueError, match='needs its encoder'): load_checkpoint(path)
    loaded = load_checkpoint(path, encoder=encoder())
    with torch.no_grad(): assert torch.equal(loaded(*episode(H=56)), model(*episode(H=56)))


def test_checkpoints_of_strangers(tmp_path):
    model = small()
    good = save_checkpoint(tmp_path/'good.safetensors', model, note='hello')
    assert json.loads((tmp_path/'good.json').read_text())['info'] == dict(note='hello')
    state, header = model.state_dict(), json.loads((tmp_path/'good.json').read_text())
    def write(name, tensors=state, **change):
        save_file(tensors, tmp_path/f'{name}.safetensors', metadata=dict(deepgp_fss=json.dumps(header | change)))
    first = next(iter(state))
    write('missing', {k: v for k, v in state.items() if k != first})
    write('extra', state | {'evil': torch.ones(1)})
    write('shape', state | {first: torch.ones(3)})
    write('setting', config=header['config'] | dict(colour='red'))
    write('future', format='deepgp_fss 99')
    (tmp_path/'pickle.safetensors').write_bytes(b'\x80\x04cos\nsystem\n')
    said = dict(missing=f'missing: {first}', extra='unknown: evil', shape='of another shape',
                setting='Unknown model setting', future='update deepgp_fss', pickle='not a safetensors file')
    for name, match in said.items():
        with pytest.raises(ValueError, match=match): load_checkpoint(tmp_path/f'{name}.safetensors')
    assert load_checkpoint(good).info == dict(note='hello')


def test_a_failed_write_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    path = save_checkpoint(tmp_path/'net.safetensors', small(), step=1)
    def broken(*args, **kwargs): raise OSError('No space left on device')
    monkeypatch.setattr('safetensors.torch.save_file', broken)
    with pytest.raises(OSError): save_checkpoint(path, small(), step=2)
    assert load_checkpoint(path).info == dict(step=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ['net.json', 'net.safetensors']
