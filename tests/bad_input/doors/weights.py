"Weights of a backbone"
import pickle
import sys
from unittest.mock import patch

import torch
from safetensors.torch import load_file, save_file

from ..case import refused, run, works
from ..material import backbone, support, train
from ..pictures import JPEG, Evil, harmless, write


def free(at, weights, backbone='resnet18', *more):
    return run('deepgp_segment', '--support', support(), '--query', write(at/'a.jpg', JPEG), '--out', at/'out',
               '--weights', weights, '--backbone', backbone, '--size', 64, '--cpu', *more)
def torch_file(at, value): torch.save(value, at/'w.pth'); return at/'w.pth'
def altered(at, change): save_file(change(load_file(backbone())), at/'w.safetensors'); return at/'w.safetensors'
def imagenet(at, content=None):
    if content is not None: write(at/'torch/hub/checkpoints/resnet18-f37072fd.pth', content)
    return free(at, 'imagenet')


def no_network(at):
    with patch('torch.hub.download_url_to_file', side_effect=OSError('Network is unreachable')):
        free(at, 'imagenet', 'resnet18', '--download')


def without_timm(at):
    with patch.dict(sys.modules, timm=None): free(at, backbone(), 'timm:resnet18')


for name, do, *says in (
    ('a file that is not there', lambda at: free(at, at/'gone.pth'), 'no weights file', 'gone.pth'),
    ('a folder', lambda at: free(at, at), 'no weights file'),
    ('an empty file', lambda at: free(at, write(at/'w.pth', b'')), 'w.pth cannot be read', 'save the state dict alone'),
    ('a PyTorch file cut off in the middle',
     lambda at: free(at, write(at/'w.pth', torch_file(at, dict(a=torch.ones(9999))).read_bytes()[:9999])), 'w.pth'),
    ('a pickle that runs a program',
     lambda at: harmless(at, lambda: free(at, write(at/'w.pth', pickle.dumps(Evil(at/'executed'))))),
     'w.pth cannot be read', 'refused', 'save the state dict alone'),
    ('a PyTorch file that runs a program',
     lambda at: harmless(at, lambda: free(at, torch_file(at, dict(a=Evil(at/'executed'))))), 'w.pth cannot be read',
     'refused', 'save the state dict alone'),
    ('a whole model in a PyTorch file', lambda at: free(at, torch_file(at, torch.nn.Conv2d(1, 1, 1))),
     'w.pth cannot be read', 'save the state dict alone'),
    ('a list in a PyTorch file', lambda at: free(at, torch_file(at, [torch.ones(3)])),
     'w.pth does not hold a state dict'),
    ('numbers in a PyTorch file', lambda at: free(at, torch_file(at, {'conv1.weight': 3})),
     'w.pth does not hold a state dict'),
    ('names that are numbers', lambda at: free(at, torch_file(at, {3: torch.ones(3)})), 'w.pth'),
    ('a safetensors file cut off in the middle',
     lambda at: free(at, write(at/'w.safetensors', backbone().read_bytes()[:9999])), 'w.safetensors',
     'is the download complete?'),
    ('a PyTorch file named .safetensors',
     lambda at: free(at, write(at/'w.safetensors', torch_file(at, dict(a=torch.ones(3))).read_bytes())),
     'w.safetensors', 'is the download complete?'),
    ('weights of something else', lambda at: free(at, torch_file(at, dict(embedding=torch.ones(3)))),
     'w.pth does not hold the weights of a ResNet', 'embedding'),
    ('no weights', lambda at: free(at, torch_file(at, {})), 'w.pth does not hold the weights of a ResNet'),
    ('weights of another ResNet', lambda at: free(at, backbone(), 'resnet34'),
     'resnet18.safetensors does not fit ResNet', 'missing'),
    ('a tensor of another shape',
     lambda at: free(at, altered(at, lambda t: t | {'conv1.weight': t['conv1.weight'][:, :1].contiguous()})),
     'w.safetensors does not fit ResNet', 'of another shape'),
    ('weights that are not numbers',
     lambda at: free(at, altered(at, lambda t: t | {'conv1.weight': t['conv1.weight']*float('nan')})), 'w.safetensors'),
    ('weights that are whole numbers',
     lambda at: free(at, altered(at, lambda t: t | {'conv1.weight': t['conv1.weight'].long()})),
     'w.safetensors cannot be used', 'conv1.weight holds whole numbers'),
    ('variances that are negative',
     lambda at: free(at, altered(at, lambda t: t | {'bn1.running_var': -t['bn1.running_var']})),
     'w.safetensors cannot be used', 'bn1.running_var holds negative variances'),
    ('a home of a user who does not exist', lambda at: free(at, '~nobody_of_this_name/w.pth'), 'no weights file',
     'w.pth'),
    ('a backbone of timm, without timm', without_timm, 'needs timm', "pip install 'deepgp_fss[timm]'"),
    ('a backbone that does not exist', lambda at: free(at, backbone(), 'vgg16'), "'vgg16'", 'choose one of'),
    ('a model that timm does not have', lambda at: free(at, backbone(), 'timm:resnext_of_dreams'),
     "'resnext_of_dreams'", 'timm.list_models'),
    ('weights for the small backbone, which has no use for them', lambda at: free(at, backbone(), 'small'), 'small'),
    ('ImageNet weights that are not in the cache', imagenet, 'not in the cache', '--download'),
    ('ImageNet weights that are damaged in the cache', lambda at: imagenet(at, b'half a download'),
     'resnet18-f37072fd.pth is damaged', 'Delete it'),
    ('ImageNet weights without a network', no_network, 'could not be downloaded', 'Network is unreachable', 'Fetch'),
    ('weights for a training whose backbone has no use for them', lambda at: train(at, '--weights', backbone()),
     'small', 'no use for the weights')):
    refused('weights', name, do, *says)


works('weights', 'in double precision', 'as in single precision',
      lambda at: free(at, altered(at, lambda t: {k: v.double() if v.is_floating_point() else v for k, v in t.items()})))
works('weights', 'in half precision', 'as in single precision',
      lambda at: free(at, altered(at, lambda t: {k: v.half() if v.is_floating_point() else v for k, v in t.items()})))
