"""Shared by all tests: one hypothesis profile, without deadlines, since machines differ; no network, so that a hidden
download fails; and a backbone"""
import os
import socket

import pytest
from hypothesis import settings

settings.register_profile('default', max_examples=25, deadline=None, derandomize=True)
settings.load_profile('default')

NOWHERE = 'http://127.0.0.1:9'  # for what other processes would download
os.environ |= dict(http_proxy=NOWHERE, https_proxy=NOWHERE, HTTP_PROXY=NOWHERE, HTTPS_PROXY=NOWHERE,
                   no_proxy='localhost,127.0.0.1', HF_HUB_OFFLINE='1')


@pytest.fixture(autouse=True)
def offline(monkeypatch):
    "Only this machine can be reached"
    connect = socket.socket.connect
    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ('127.0.0.1', '::1', 'localhost'):
            raise OSError(f'A test wants to reach {address[0]}: downloads must be requested.')
        return connect(self, address)
    monkeypatch.setattr(socket.socket, 'connect', guarded)


@pytest.fixture(scope='module')
def backbone(tmp_path_factory):
    "Weights of a small ResNet, random"
    import torch
    from safetensors.torch import save_file
    from torchvision.models import resnet18
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp('backbone')/'resnet18.safetensors'
    save_file(dict(resnet18().state_dict()), path)
    return path
