"Without training: thresholds, left-out predictions, margins, and the other learners"
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_map_only

from deepgp_fss import decision
from deepgp_fss.decision import best_threshold, best_thresholds, decide, otsu_threshold, typical_threshold
from deepgp_fss.encoders import ImageEncoder, SmallEncoder
from deepgp_fss.gp import GaussianProcess
from deepgp_fss.kernels import SquaredExponential
from deepgp_fss.segmenter import FewShotSegmenter
from deepgp_fss.training_free import TrainingFree, fit_points
from toys import close, free, make, scene, scenes, sentence


@pytest.mark.parametrize('seed', range(4))
def test_thresholds_against_trying_them_all(seed):
    g = torch.Generator().manual_seed(seed)
    n = (2, 3, 17, 60)[seed]
    s, y = torch.rand(n, 3, generator=g), torch.rand(n, 3, generator=g)
    iou, threshold = best_thresholds(s, y)
    separated = otsu_threshold(s)
    for k in range(3):
        values, part = s[:, k].sort().values, y[:, k]
        def score(t): above = s[:, k] > t; return float((part*above).sum()/(part + (1 - part)*above).sum())
        def within(t):
            parts = values[values > t], values[values <= t]
            return sum(float((p - p.mean()).square().sum()) for p in parts if len(p))
        between = [(a + b)/2 for a, b in zip(values, values[1:])]
        assert float(iou[k]) == pytest.approx(max(score(t) for t in [values[0] - 1, *between]), abs=1e-5)
        assert score(threshold[k]) == pytest.approx(float(iou[k]), abs=1e-5)
        assert within(separated[k]) == pytest.approx(min(within(t) for t in between), abs=1e-5)
        assert values[0] < separated[k] < values[-1]


class Elsewhere(torch.Tensor):
    "A tensor whose numbers are here, but that says it is on a device, and refuses float64 there as Apple's GPUs do"
    @staticmethod
    def __new__(cls, here): return cls._make_wrapper_subclass(cls, here.shape, dtype=here.dtype, device='meta')
    def __init__(self, here): self.here = here

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        comes_here = str(kwargs.get('device')) == 'cpu'
        args, kwargs = tree_map_only(cls, lambda t: t.here, (args, kwargs))
        out = func(*args, **kwargs | (dict(device='cpu') if 'device' in kwargs else {}))
        return out if comes_here else tree_map_only(torch.Tensor, cls._there, out)

    @classmethod
    def _there(cls, t):
        if t.dtype == torch.float64: raise TypeError("the device doesn't support float64")
        return cls(t)


def test_thresholds_on_a_device_without_float64(monkeypatch):
    monkeypatch.setattr(decision, 'has_float64', lambda device: device.type == 'cpu', raising=False)
    g = torch.Generator().manual_seed(0)
    gap = torch.randn(9, 11, generator=g)
    with pytest.raises(TypeError, match='float64'): Elsewhere(gap).double()
    here, there = decide(gap, 4.), decide(Elsewhere(gap), 4.)
    assert there.probability.device == there.mask.device == Elsewhere(gap).device  # they stay where the scores are
    assert torch.equal(there.probability.here, here.probability) and torch.equal(there.mask.here, here.mask)
    assert there.expected_iou == here.expected_iou > 0
    assert best_threshold(Elsewhere(gap), Elsewhere(gap > .3)) == best_threshold(gap, gap > .3)


def test_thresholds_of_little():
    assert otsu_threshold(torch.tensor([[.3]])).tolist() == [pytest.approx(.3)]
    assert otsu_threshold(torch.full((5, 2), .7)).tolist() == [pytest.approx(.7)]*2
    assert otsu_threshold(torch.tensor([0, 0, 0, 1, 1.])[:, None]).tolist() == [.5]
    iou, threshold = best_thresholds(torch.tensor([.1, .2])[:, None], torch.ones(2, 1))
    assert float(iou) == 1 and threshold < .1  # everything is foreground


@pytest.mark.parametrize('ties', [False, True])
@pytest.mark.parametrize('kind', [torch.tensor, np.array])
def test_the_best_threshold_of_a_map(ties, kind):
    g = torch.Generator().manual_seed(0)
    scores = torch.rand(9, 7, generator=g)
    if ties: scores = (8*scores).round()/8
    truth = scores + .3*torch.randn(9, 7, generator=g) > .6
    def iou(threshold): return float(((scores > threshold) & truth).sum()/((scores > threshold) | truth).sum())
    threshold = best_threshold(kind(scores.tolist()), kind(truth.tolist()))
    assert isinstance(threshold, float) and iou(threshold) == max(iou(t) for t in [-1, *scores.flatten().tolist()])


def points(seed=0, images=4, each=30, classes=2):
    "Unit features (S, D), masks (S, N) that depend on them, and their images (S,)"
    g = torch.Generator().manual_seed(seed)
    x = F.normalize(torch.randn(images*each, 6, generator=g), dim=1)
    y = (x[:, :classes] + .2*torch.randn(images*each, classes, generator=g) > .2).float()
    return x, y, torch.arange(images).repeat_interleave(each)


def refitted(x, y, groups, length_sq, noise_var):
    "The slow way: for each image a GP without it"
    prior, out = y.mean(0), torch.zeros_like(y)
    for g in groups.unique():
        own = groups == g
        gp = GaussianProcess(SquaredExponential(length_sq), noise_var)
        out[own] = gp.prepare(x[~own], y[~own] - prior).mean(x[own]) + prior
    return out


@torch.no_grad()
@pytest.mark.parametrize('seed', range(2))
def test_the_threshold_is_the_one_of_refitting_without_each_image(seed):
    x, y, groups = points(seed)
    shuffled = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    x, y, groups = x[shuffled], y[shuffled], groups[shuffled]
    tried = {(a, b): refitted(x, y, groups, a, b) for a in (.2, .4, .8) for b in (.03, .1, .3)}
    iou = {k: best_thresholds(s, y)[0] for k, s in tried.items()}
    fitted, chosen = fit_points(x, y, groups), max(iou, key=lambda k: float(iou[k].mean()))
    assert (fitted.length_sq, fitted.noise_var) == chosen
    torch.testing.assert_close(fitted.iou, iou[chosen], atol=1e-3, rtol=0)
    left_out = tried[chosen]
    each = torch.stack([best_thresholds(left_out[groups == g], y[groups == g])[1] for g in range(4)])
    lower_median = each.sort(0).values[1]  # of four
    torch.testing.assert_close(fitted.threshold, lower_median, atol=2e-3, rtol=0)
    again = GaussianProcess(SquaredExponential(chosen[0]), chosen[1]).prepare(x, y - y.mean(0)).mean(x)
    torch.testing.assert_close(fitted.posterior.mean(x) + fitted.prior, again + y.mean(0))


def test_images_without_the_class_have_no_say_in_its_threshold():
    scores, masks = torch.rand(60, 2, generator=torch.Generator().manual_seed(0)), torch.zeros(60, 2)
    groups = torch.arange(3).repeat_interleave(20)
    masks[:40, 0] = (scores[:40, 0] > .6).float()
    threshold = typical_threshold(scores, masks, groups)
    shown = [best_thresholds(scores[groups == g], masks[groups == g])[1][0] for g in (0, 1)]
    assert threshold[0] == min(shown)
    assert threshold[1] == best_thresholds(scores, masks)[1][1]  # nobody shows the second class


def test_a_single_image_leaves_the_threshold_to_the_query():
    x, y, groups = points(images=1)
    fitted = fit_points(x, y, groups)
    assert fitted.threshold is None and fitted.iou is None
    (image, mask), query = scene(0), scene(5)[0]
    assert np.isfinite(FewShotSegmenter(free(), 64).fit([image], [mask]).predict(query).probability).all()


def test_the_order_of_the_support_does_not_matter():
    (images, masks), query = scenes(range(5)), scene(11, 50, 64)[0]
    first = make('free').fit(images, masks).predict(query)
    for order in ([4, 3, 2, 1, 0], [2, 0, 4, 1, 3]):
        close(make('free').fit([images[i] for i in order], [masks[i] for i in order]).predict(query), first, 1e-3)


class Cells(ImageEncoder):
    "Random features of each cell of 8 x 8 pixels by itself, and with what is around it"
    def __init__(self, around):
        super().__init__()
        g = torch.Generator().manual_seed(0)
        self.strides, self.around = (8,), around
        self.weight = torch.randn(20, 3, 8 + 2*around, 8 + 2*around, generator=g)

    def trunk(self, images): return [F.conv2d(images/255 - .5, self.weight, stride=8, padding=self.around).tanh()]


@pytest.mark.parametrize('size', [(32, 64), (64, 24)])
@pytest.mark.parametrize('around', [0, 4])
def test_a_margin_changes_little(size, around):
    "A wide or tall image in a square window answers as by itself, but for what the encoder sees beyond the edge"
    images, masks = scenes(range(3), height=size[0], width=size[1], labels=(1,))
    query = scene(8, *size, labels=(1,))[0]
    net, window = TrainingFree(Cells(around)), lambda x: torch.from_numpy(np.stack(x)).permute(0, 3, 1, 2)[None]
    state = net.prepare(window(images), torch.from_numpy(np.stack(masks))[None])
    scores = net.infer(state, window([query])[:, 0])[0]
    alone = net.log_odds(scores[1] - scores[0], 3).sigmoid().numpy()
    inside = FewShotSegmenter(net, 64).fit(images, masks).predict(query).probability
    apart = np.abs(alone - inside)
    assert np.ptp(alone) > .2
    assert apart.max() < 1e-3 if around == 0 else apart.mean() < .1, (apart.max(), apart.mean())


def test_it_finds_what_it_was_shown():
    images, masks = scenes(range(4), labels=(1, 4))
    found = make('free').fit(images[:3], masks[:3]).predict(images[3]).mask
    for c in (1, 4): assert ((found == c) & (masks[3] == c)).sum()/((found == c) | (masks[3] == c)).sum() > .5


@pytest.mark.parametrize('learner', ['prototype', 'multiprototype', 'attention', 'transductive'])
def test_every_learner_can_be_used(learner):
    images, masks = scenes(range(4), labels=(1, 4))
    p = FewShotSegmenter(free(learner), 64).fit(images[:3], masks[:3]).predict(scene(9, 40, 64)[0])
    assert p.mask.shape == (40, 64) and p.probability.shape == (2, 40, 64) and np.ptp(p.probability) > 0
    assert p.variance is None and p.gp_mean is None


def test_a_support_whose_counted_cells_are_all_thinned_out(tmp_path):
    image, mask = scene(0)[0], np.full((64, 64), 255, np.uint8)
    mask[8:16, 8:16] = 1  # cell (1, 1), and every second one is kept
    with pytest.raises(ValueError) as error: make('free').fit([image], [mask])
    sentence(error, 'support set is empty')


def test_weights_that_are_not_there(tmp_path):
    with pytest.raises((ValueError, OSError), match='missing.pth'):
        FewShotSegmenter.training_free(tmp_path/'missing.pth', 'resnet18')
    with pytest.raises(ValueError, match='no learner'): TrainingFree(SmallEncoder(16), 'best')
