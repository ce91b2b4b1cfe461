"Shapes-5^i: the same everywhere, and fit to be a benchmark"
import hashlib
import subprocess
import sys

import numpy as np
import pytest

from deepgp_fss.base import FOLDS, IGNORE
from deepgp_fss.shapes import STONES, Shapes

FINGERPRINT = """import hashlib; from deepgp_fss.shapes import Shapes
content = b''.join(a.tobytes() for i in (5, 0, 5) for a in Shapes('val')[i])
print(hashlib.sha256(content).hexdigest())"""


def test_another_process_draws_the_same_bytes():
    here = hashlib.sha256(b''.join(a.tobytes() for i in (5, 0, 5) for a in Shapes('val')[i])).hexdigest()
    there = subprocess.run([sys.executable, '-c', FINGERPRINT], capture_output=True, text=True, check=True).stdout
    assert there.strip() == here


def test_folds_are_those_of_pascal():
    assert len(STONES) == len(set(STONES)) == 20 and [len(f) for f in FOLDS] == [5]*4
    assert FOLDS[2] == (11, 12, 13, 14, 15) and sorted(sum(FOLDS, ())) == list(range(1, 21))


@pytest.mark.parametrize('difficulty', ['looks', 'outline'])
def test_every_class_occurs_often_and_large_enough(difficulty):
    "Enough images for ten shots and a query of every class, in either split"
    for split, n in (('train', 300), ('val', 300)):
        data, found = Shapes(split, difficulty=difficulty), np.zeros(256, int)
        for i in range(n): found += np.bincount(data.labels(i).ravel(), minlength=256) >= 150
        assert found[1:21].min() >= 11, (split, found[1:21])
        assert found[21:IGNORE].sum() == 0


def test_no_image_twice():
    seen = {s[i][0].tobytes() for s in (Shapes(), Shapes('val'), Shapes(seed=1)) for i in range(40)}
    assert len(seen) == 120


def test_labels_agree_with_the_picture_at_every_size():
    for side in (16, 64, 96, 200):
        image, labels = Shapes(side=side)[7]
        assert image.shape == (side, side, 3) and labels.shape == (side, side)
        assert np.array_equal(labels, Shapes(side=side).labels(7))
    small, large = (Shapes(side=s).labels(7) for s in (64, 192))
    share = lambda l: (l > 0).mean()
    assert abs(share(small) - share(large)) < .05
