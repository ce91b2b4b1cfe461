"Disks, memory and threads that fail"
import errno
import fcntl
import io
import os
from unittest.mock import patch

import numpy as np
from PIL import Image

from deepgp_fss import training
from deepgp_fss.segmenter import FewShotSegmenter

from ..case import refused, works
from ..pictures import PROGRAM
from ..material import model, train


def no_locks(number):
    def do(at):
        with patch.object(fcntl, 'flock', side_effect=OSError(number, os.strerror(number))):
            train(at, '--iterations', 1)
    return do


def no_shared_memory(at):
    "What PyTorch says when /dev/shm is full; tests/test_environment.py has a real one"
    lost = RuntimeError("DataLoader worker (pid 7) is killed by signal: Bus error. "
                        "It is possible that dataloader's workers are out of shared memory.")
    with patch.object(training, 'episode_loader', side_effect=lost): train(at, '--workers', 1)


def no_memory(error):
    def do(at):
        with patch.object(training, 'forward_backward', side_effect=error): train(at)
    return do


def opened(at):
    "A program that a caller has opened with Pillow"
    FewShotSegmenter.from_pretrained(model()).fit([Image.open(io.BytesIO(PROGRAM))], [np.ones((10, 10), np.uint8)])


works('surroundings', 'a disk that knows no locks', 'trained without a lock, which is said once',
      no_locks(errno.ENOLCK))
works('surroundings', 'a disk whose driver has no locks', 'trained without a lock, which is said once',
      no_locks(errno.EOPNOTSUPP))
refused('surroundings', 'a /dev/shm that is too small', no_shared_memory, 'use --workers 0', 'make /dev/shm larger')
refused('surroundings', 'too little memory',
        no_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes.")),
        'not enough memory', '--batch')
refused('surroundings', 'too little memory for Python', no_memory(MemoryError()), 'not enough memory', '--batch')
refused('surroundings', 'no more threads', no_memory(RuntimeError("can't start new thread")), 'no more threads',
        '--workers 0')
refused('surroundings', 'a PostScript program, opened by the caller', opened, 'format EPS', 'give one of JPEG')
