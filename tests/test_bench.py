"Benchmarks time what a trained model would do: the GP in float32, on features spread as after training"
import pytest
import torch

from deepgp_fss.bench import SPREAD, bench_episode, bench_model, gp_problem
from deepgp_fss.learners import to_points
from deepgp_fss.model import DeepGPNet, ModelConfig
from deepgp_fss.scale import bench_scale

NARROW = ModelConfig('resnet50', encoding_dim=8, decoder_width=16)


@pytest.mark.parametrize('shots', [1, 5])
def test_features_of_the_episode_are_those_of_the_gp(shots):
    """Random ResNet features sent the GP to float64, so that it seemed four to eight times slower than in the benchmark
    of the GP alone"""
    torch.manual_seed(0)
    images = torch.rand(1, shots, 3, 128, 128)
    def points(model): return to_points(model.encode_support(images)[0])
    with torch.no_grad():
        random, ready = DeepGPNet(NARROW).eval(), bench_model(NARROW, 128)
        gp, alone = ready.learners[0].gp, gp_problem(shots)[0]
        assert gp.too_fine(points(random)) and not gp.too_fine(points(ready)) and not gp.too_fine(alone)
        spread = points(ready).flatten(0, 1).var(0).sum()/512  # of all features together
        assert .5*SPREAD**2 < spread < 2*SPREAD**2 and .9*SPREAD**2 < alone.var() < 1.1*SPREAD**2


def test_the_gp_is_timed_in_float32():
    found = bench_episode([1], NARROW, 64, 1, progress=False)
    assert found['shots'][1]['gp_type'] == 'torch.float32'
    rows = bench_scale(NARROW, (2,), (), (), size=64, bound=4, progress=False)['rows']
    assert [(r['points'], r['gp_type']) for r in rows] == [(8, 'torch.float32'), (4, 'torch.float32')]
