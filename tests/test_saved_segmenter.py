"A segmenter in a file: safetensors and nothing else"
import json
import pickle

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from deepgp_fss.base import BadFile
from deepgp_fss.encoders import SmallEncoder
from deepgp_fss.model import DeepGPNet, ModelConfig, save_checkpoint
from deepgp_fss.segmenter import FewShotSegmenter
from deepgp_fss.training_free import TrainingFree
from toys import MODELS, close, free, make, same, scene, scenes, sentence, tiny

KEPT = dict({k: lambda b, k=k: make(k) for k in MODELS},
            shapes=lambda b: FewShotSegmenter.from_pretrained('shapes', 64),
            attention=lambda b: FewShotSegmenter(free('attention'), 64),
            options=lambda b: FewShotSegmenter(free(support_stride=1, lengths=(.3, .6), noises=(.05,)), 48),
            resnet=lambda b: FewShotSegmenter.training_free(b, 'resnet18', 64, levels=1))


@pytest.mark.parametrize('kind', KEPT)
def test_saved_and_loaded_to_the_bit(kind, backbone, tmp_path, monkeypatch):
    (images, masks), queries = scenes(range(3)), [scene(11)[0], scene(12, 90, 50)[0]]
    segmenter = KEPT[kind](backbone).fit(images, masks)
    path = segmenter.save(tmp_path/'kept/fitted.safetensors')
    def never(*args, **kwargs): raise AssertionError('unpickled')
    for module, name in ((pickle, 'load'), (pickle, 'loads'), (pickle, 'Unpickler'), (torch, 'load')):
        monkeypatch.setattr(module, name, never)
    loaded = FewShotSegmenter.load(path)
    assert repr(loaded) == repr(segmenter) and [p.name for p in path.parent.iterdir()] == ['fitted.safetensors']
    for q in queries: assert same(loaded.predict(q), segmenter.predict(q))
    again = FewShotSegmenter.load(loaded.save(tmp_path/'again.safetensors'))
    assert same(again.predict(queries[0]), segmenter.predict(queries[0]))
    assert path.read_bytes() == (tmp_path/'again.safetensors').read_bytes()
    close(loaded.add(*scene(4)).predict(queries[0]), segmenter.add(*scene(4)).predict(queries[0]))


def test_the_file_is_safetensors_and_nothing_else(tmp_path):
    segmenter, (images, masks) = make('tiny'), scenes(range(3), labels=(1, 200))
    path = segmenter.fit(images, masks).save(tmp_path/'fitted.safetensors')
    with safe_open(path, 'pt') as f:
        tensors, header = {k: f.get_tensor(k) for k in f.keys()}, json.loads(f.metadata()['deepgp_fss_segmenter'])
    assert {k for k in tensors if not k.startswith('model.')} == {'images', 'masks'}
    assert {k[6:] for k in tensors if k.startswith('model.')} == set(tiny().state_dict())
    assert np.array_equal(tensors['images'].permute(0, 2, 3, 1), images) and np.array_equal(tensors['masks'], masks)
    assert header['format'] == 'deepgp_fss segmenter 1' and header['size'] == 64
    assert header['training_free'] is None
    assert path.stat().st_size < 2_000_000


def test_unfitted_segmenters_can_be_saved(tmp_path):
    loaded = FewShotSegmenter.load(make('tiny').save(tmp_path/'new.safetensors'))
    new = make('tiny').fit(*scenes(range(2))).predict(scene(5)[0])
    assert loaded.labels == () and same(loaded.fit(*scenes(range(2))).predict(scene(5)[0]), new)


def test_other_files_are_no_saved_segmenters(tmp_path):
    whole = make('tiny').fit(*scenes(range(1))).save(tmp_path/'whole.safetensors').read_bytes()
    (tmp_path/'pickled.safetensors').write_bytes(pickle.dumps(dict(a=1)))
    future = whole.replace(b'segmenter 1', b'segmenter 9')
    for name, data in (('cut', whole[:len(whole)//2]), ('short', whole[:5]), ('empty', b''), ('other', future)):
        (tmp_path/f'{name}.safetensors').write_bytes(data)
    save_file(dict(a=torch.ones(2)), tmp_path/'plain.safetensors')
    save_checkpoint(tmp_path/'model.safetensors', tiny())
    for name in ('cut', 'short', 'empty', 'other', 'plain', 'model', 'pickled', 'missing'):
        with pytest.raises(BadFile) as error: FewShotSegmenter.load(tmp_path/f'{name}.safetensors')
        sentence(error, f'{name}.safetensors')
    with pytest.raises(ValueError, match='whole.safetensors'):
        FewShotSegmenter.from_pretrained(tmp_path/'whole.safetensors')
    for name in ('fitted.pt', 'fitted'):
        with pytest.raises(ValueError, match=f'{name} does not end so'): make('tiny').save(tmp_path/name)
    assert not list(tmp_path.glob('fitted*'))


DAMAGE = {
    'its images must be': dict(images=lambda x: x.float()), 'but are torch.int32': dict(images=lambda x: x.int() - 500),
    'its masks must be': dict(masks=lambda y: 3*y.long()), 'but are torch.bool': dict(masks=lambda y: y > 0),
    '(3, 1, 64, 64)': dict(images=lambda x: x[:, :1]), '(3, 3, 32, 32)': dict(images=lambda x: x[..., ::2, ::2]),
    '(2, 64, 64)': dict(masks=lambda y: y[:2]), 'no images': dict(images=lambda x: None),
    'no masks': dict(masks=lambda y: None), 'label 7': dict(masks=lambda y: torch.where(y == 1, 7, y).to(y.dtype)),
    'are empty': dict(images=lambda x: x[:0], masks=lambda y: y[:0])}

@pytest.mark.parametrize('says', DAMAGE)
def test_shots_that_the_model_did_not_see_are_refused(says, tmp_path):
    "Other numbers in the file would give other predictions, and nobody would know"
    path = make('tiny').fit(*scenes(range(3))).save(tmp_path/'fitted.safetensors')
    with safe_open(path, 'pt') as f: tensors, header = {k: f.get_tensor(k) for k in f.keys()}, f.metadata()
    changed = tensors | {name: change(tensors[name]) for name, change in DAMAGE[says].items()}
    save_file({name: t.contiguous() for name, t in changed.items() if t is not None}, path, metadata=header)
    with pytest.raises(BadFile) as error: FewShotSegmenter.load(path)
    sentence(error, 'fitted.safetensors', says)


@pytest.mark.parametrize('read', [{'1': -5}, {'1': 1.5}, {'300': 5}, {'-1': 5}, {'1.0': 5}, {'1': True}])
def test_readings_of_masks_that_cannot_be_are_refused(read, tmp_path):
    path = make('tiny').fit(*scenes(range(1), labels=(1,))).save(tmp_path/'fitted.safetensors')
    with safe_open(path, 'pt') as f: tensors, header = {k: f.get_tensor(k) for k in f.keys()}, f.metadata()
    about = json.loads(header['deepgp_fss_segmenter']) | dict(read=[read])
    save_file(tensors, path, metadata=dict(deepgp_fss_segmenter=json.dumps(about)))
    with pytest.raises(BadFile) as error: FewShotSegmenter.load(path)
    sentence(error, 'fitted.safetensors', 'does not say how its masks were read')


def test_a_model_around_an_encoder_of_ones_own_cannot_be_saved(tmp_path):
    own = DeepGPNet(ModelConfig('custom', 16, (8,), encoding_dim=8, decoder_width=16), encoder=SmallEncoder(16))
    for net in (TrainingFree(SmallEncoder(16)), own):
        segmenter = FewShotSegmenter(net, 64).fit(*scenes(range(2)))
        with pytest.raises(ValueError) as error: segmenter.save(tmp_path/'fitted.safetensors')
        sentence(error, 'encoder of your own')
    assert not list(tmp_path.iterdir())
