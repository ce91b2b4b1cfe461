"Checkpoints and saved segmenters"
import json
import pickle
import struct

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from deepgp_fss.model import load_checkpoint, save_checkpoint
from deepgp_fss.segmenter import FewShotSegmenter

from ..case import refused, run, works
from ..material import EVALUATE, backbone, fitted, header_text, model, segment, support
from ..pictures import JPEG, MINE, Evil, harmless, little_memory, scene, without_rights, write


def use(at, path): return segment(at, write(at/'a.jpg', JPEG), by=path)
def raw(content): return lambda at: use(at, write(at/'my.safetensors', content(at) if callable(content) else content))
def whole(): return model().read_bytes()
def header():
    with safe_open(model(), 'pt') as f: return json.loads(f.metadata()['deepgp_fss'])


def save_by_hand(tensors, path, metadata):
    "What safetensors would write, also for numbers that older versions of it do not know"
    kinds = {torch.float32: 'F32', torch.float64: 'F64', torch.float16: 'F16', torch.int64: 'I64',
             torch.complex64: 'C64'}
    header, data = dict(__metadata__=metadata), b''
    for name, t in tensors.items():
        more = t.contiguous().numpy().tobytes()
        header[name] = dict(dtype=kinds[t.dtype], shape=list(t.shape), data_offsets=[len(data), len(data) + len(more)])
        data += more
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack('<Q', len(text)) + text + data)


def kept(change=lambda h: None, tensors=lambda t: t, ask=use):
    "Segment with a checkpoint whose header or tensors were changed"
    def do(at):
        about = dict(deepgp_fss=header_text(change, header()))
        save_by_hand(tensors(load_file(model())), at/MINE, metadata=about)
        return ask(at, at/MINE)
    return do


def config(**values): return kept(lambda h: h['config'].update(values))
def judged(at, path): return run('deepgp_eval', path, *EVALUATE, '--out', at/'out')
def judged_as_trained(at, path): return run('deepgp_eval', path, '--cpu', '--out', at/'out')
def one(change):
    "Change one tensor, the weight of the projection"
    def do(tensors):
        name = next(k for k in tensors if k.endswith('project.weight'))
        return tensors | {name: change(tensors[name])}
    return do


def sized(at, **values):
    with little_memory(): config(**values)(at)


for name, do, *says in (
    ('a checkpoint that is not there', lambda at: use(at, at/'gone.safetensors'), 'gone.safetensors',
     'give a checkpoint'),
    ('a folder without a model', lambda at: use(at, at), 'There is no model', 'the folder of a finished run'),
    ('a bundled model that does not exist', lambda at: use(at, 'landscapes'), "'landscapes'",
     'one of the bundled: photographs, shapes'),
    ('a link to itself', lambda at: ((at/MINE).symlink_to(MINE), use(at, at/MINE)), MINE, 'give a checkpoint'),
    ('an empty file', raw(b''), MINE, 'damaged'),
    ('a file cut off in the middle', raw(lambda at: whole()[:len(whole())//2]), MINE, 'damaged'),
    ('a file cut off in its header', raw(lambda at: whole()[:100]), MINE, 'damaged'),
    ('a text', raw(b'{"weights": []}'), MINE, 'damaged'),
    ('a header of nine million million million bytes', raw(struct.pack('<Q', 2**63) + b'{}'), MINE, 'damaged'),
    ('a header that is not JSON', raw(struct.pack('<Q', 8) + b'no JSON!'), MINE, 'damaged'),
    ('tensors that lie outside of the file', raw(lambda at: blocks([0, 10**9])), MINE, 'damaged'),
    ('tensors with a negative shape', raw(lambda at: blocks([0, 4], shape=[-1])), MINE, 'damaged'),
    ('tensors that lie on top of each other', raw(lambda at: blocks([0, 4], [0, 4])), MINE, 'damaged'),
    ('a pickle in disguise', lambda at: harmless(at, lambda: raw(lambda at: pickle.dumps(Evil(at/'executed')))(at)),
     MINE, 'damaged'),
    ('a file of torch.save in disguise',
     lambda at: harmless(at, lambda: (torch.save(Evil(at/'executed'), at/MINE), use(at, at/MINE))), MINE, 'damaged'),
    ('weights of a backbone', lambda at: use(at, backbone()), 'resnet18.safetensors', 'not a checkpoint of deepgp_fss',
     'use weights='),
    ('a saved segmenter', lambda at: use(at, fitted().save(at/MINE)), MINE, 'not a checkpoint'),
    ('a header of ours that is not JSON', kept(lambda h: '{"format": '), MINE, 'not a checkpoint of deepgp_fss'),
    ('a header of ours that is a list', kept(lambda h: '[]'), MINE),
    ('a format of the future', kept(lambda h: h.update(format='deepgp_fss 9')), MINE, "'deepgp_fss 9'",
     'update deepgp_fss'),
    ('a header without a configuration', kept(lambda h: (h.pop('config'), None)[1]), MINE),
    ('a header without information', kept(lambda h: (h.pop('info'), None)[1]), MINE),
    ('information that is a list', kept(lambda h: h.update(info=[])), MINE),
    ('a run that is a text', kept(lambda h: h['info'].update(run='mine')), MINE),
    ('a window of minus 64 pixels', kept(lambda h: h['info']['run']['recipe'].update(size=-64)),
     'size must be at least 32'),
    ('a window that is a text', kept(lambda h: h['info']['run']['recipe'].update(size='large')), MINE),
    ('a configuration that is a list', kept(lambda h: h.update(config=['small'])), MINE),
    ('an unknown setting', config(colour='red'), MINE, 'colour'),
    ('a backbone that does not exist', config(backbone='vgg16'), "'vgg16'", 'choose one of'),
    ('a backbone that is a number', config(backbone=50), MINE),
    ("somebody's own encoder", config(backbone='custom'), MINE),
    ('another model: a ResNet in the configuration', config(backbone='resnet18', scales=[16]), MINE,
     'does not fit DeepGPNet', 'missing'),
    ('other widths in the configuration', config(dim=32), MINE, 'does not fit DeepGPNet', 'of another shape'),
    ('another learner in the configuration', config(learner='prototype', mask_encoder='pool'), MINE,
     'does not fit DeepGPNet', 'unknown'),
    ('a learner that does not exist', config(learner='oracle'), "'oracle'", 'choose one of'),
    ('a kernel that does not exist', config(kernel='cubic'), "'cubic'", 'choose one of'),
    ('no features', config(dim=0), MINE),
    ('minus 16 features', config(dim=-16), MINE),
    ('a number of features that is a text', config(dim='16'), MINE),
    ('a decoder of minus 16 channels', config(decoder_width=-16), MINE),
    ('an encoding of minus 8 numbers', config(encoding_dim=-8), MINE),
    ('a million million features', lambda at: sized(at, dim=10**12), MINE),
    ('no scales', config(scales=[]), MINE),
    ('a scale of 7', config(scales=[7]), 'stride must be 8 or 16'),
    ('scales that are a number', config(scales=8), MINE),
    ('an even window of covariances', config(window=4), MINE, 'of another shape'),
    ('a window of covariances of minus 5', config(window=-5), MINE, 'window must be a whole number from 1'),
    ('negative noise', config(noise_var=-1.), 'noise_var must be'),
    ('noise that is not a number', config(noise_var=float('nan')), 'noise_var must be'),
    ('a length scale of 0', config(length_sq=0.), 'length_sq must be'),
    ('a thinning of 0', config(support_stride=0), 'support_stride'),
    ('at most minus 3 points', config(max_points=-3), 'max_points'),
    ('a tensor of another shape', kept(tensors=one(lambda t: t[:, :5].contiguous())), MINE, 'does not fit DeepGPNet',
     'of another shape'),
    ('a tensor too many', kept(tensors=lambda t: t | dict(more=torch.ones(3))), MINE, 'unknown: more'),
    ('a tensor too few', kept(tensors=lambda t: dict(list(t.items())[1:])), MINE, 'missing'),
    ('no tensors at all', kept(tensors=lambda t: {}), MINE),
    ('weights that are not numbers', kept(tensors=one(lambda t: t*float('nan'))), MINE),
    ('weights that are infinite', kept(tensors=one(lambda t: t*float('inf'))), MINE),
    ('weights that are complex', kept(tensors=one(lambda t: t*1j)), MINE),
    ('a checkpoint that is not there, to evaluate', lambda at: judged(at, at/'gone'), 'no trained model',
     'a run writes it when it has finished'),
    ('a run that has not finished, to evaluate', lambda at: judged(at, write(at/'run/config.json', '{}').parent),
     'no trained model', 'a run writes it when it has finished'),
    ('an empty file, to evaluate', lambda at: judged(at, write(at/MINE, b'')), MINE, 'damaged'),
    ('a checkpoint of a data set that does not exist, to evaluate',
     kept(lambda h: h['info']['run'].update(data=dict(name='imagenet')), ask=judged_as_trained),
     "'imagenet'", 'choose one of'),
    ('a checkpoint whose data set has unknown options, to evaluate',
     kept(lambda h: h['info']['run'].update(data=dict(name='shapes', colour=3)), ask=judged_as_trained),
     'shapes', 'colour')):
    refused('checkpoint', name, do, *says)


def blocks(*places, shape=(1,)):
    "A safetensors file whose tensors have these places"
    tensors = {f'x{i}': dict(dtype='F32', shape=list(shape), data_offsets=p) for i, p in enumerate(places)}
    about = json.dumps(tensors).encode()
    return struct.pack('<Q', len(about)) + about + bytes(4)


def secret_checkpoint(at):
    path = write(at/MINE, whole())
    (at/'out').mkdir(); (at/'out').chmod(0o777); support(), write(at/'a.jpg', JPEG)
    with without_rights(path): segment(at, at/'a.jpg', by=path)
refused('checkpoint', 'a checkpoint that may not be read', secret_checkpoint, MINE, 'ermission denied')


def halved(at):
    save_checkpoint(at/'half.safetensors', load_checkpoint(model()), half=True, run=dict(recipe=dict(size=64)))
    use(at, at/'half.safetensors')
works('checkpoint', 'a checkpoint in half precision', 'it segments', halved)


def saved(change=lambda h: None, tensors=lambda t: t):
    "Load a saved segmenter whose header or tensors were changed"
    def do(at):
        path = fitted().save(at/MINE)
        with safe_open(path, 'pt') as f: about = json.loads(f.metadata()['deepgp_fss_segmenter'])
        save_file(tensors(load_file(path)), path, metadata=dict(deepgp_fss_segmenter=header_text(change, about)))
        return FewShotSegmenter.load(path, 'cpu').predict(scene()[0])
    return do


for name, do, *says in (
    ('a file that is not there', lambda at: FewShotSegmenter.load(at/'gone.safetensors'), 'gone.safetensors'),
    ('a file cut off in the middle',
     lambda at: FewShotSegmenter.load(write(at/MINE, fitted().save(at/'a.safetensors').read_bytes()[:-99])), MINE,
     'damaged'),
    ('a trained model', lambda at: FewShotSegmenter.load(model()), 'model.safetensors', 'opened with from_pretrained'),
    ('a pickle in disguise',
     lambda at: harmless(at, lambda: FewShotSegmenter.load(write(at/MINE, pickle.dumps(Evil(at/'executed'))))), MINE,
     'damaged'),
    ('a format of the future', saved(lambda h: h.update(format='deepgp_fss segmenter 9')), MINE, 'segmenter 9'),
    ('a header without a configuration', saved(lambda h: (h.pop('config'), None)[1]), MINE),
    ('a header that is a list', saved(lambda h: '[]'), MINE),
    ('a window of minus 64 pixels', saved(lambda h: h.update(size=-64)), 'size must be at least 32'),
    ('another model', saved(lambda h: h['config'].update(dim=32)), MINE, 'does not fit'),
    ('an unknown learner without training', saved(lambda h: h.update(training_free=dict(learner='oracle'))),
     "'oracle'"),
    ('images without their masks', saved(tensors=lambda t: {k: v for k, v in t.items() if k != 'masks'}), MINE),
    ('masks of another size than the images', saved(tensors=lambda t: t | dict(masks=t['masks'][:, :9].contiguous())),
     MINE, 'masks'),
    ('more images than masks', saved(tensors=lambda t: t | dict(masks=t['masks'][:1].contiguous())), MINE, 'masks'),
    ('masks without an object', saved(tensors=lambda t: t | dict(masks=t['masks']*0)), MINE)):
    refused('segmenter', name, do, *says)
