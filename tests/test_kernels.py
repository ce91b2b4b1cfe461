"Kernels: against their formulas and against scikit-learn, over sizes, scales and data types"
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.gaussian_process import kernels as sk

from deepgp_fss.config import KERNELS as REGISTRY
from deepgp_fss.gp import GaussianProcess
from deepgp_fss.kernels import (
    Kernel, Linear, ProductKernel, RationalQuadratic, SquaredExponential, Stationary, SumKernel, distance, make_kernel,
    mirror, safe_sqrt)


class Matern32(Kernel):
    "As on the page of the kernels"
    def __init__(self, length_sq=1.):
        super().__init__()
        self.length_sq = length_sq

    def diag(self, x): return x.new_ones(x.shape[:-1])

    def gram(self, u, v=None):
        d = distance(u, v)*(3/self.length_sq)**.5
        return (1 + d)*torch.exp(-d)


class Cosine(Kernel):
    def diag(self, x): return x.new_ones(x.shape[:-1])
    def embed(self, x, centre): return torch.nn.functional.normalize(x, dim=-1)
    def gram(self, u, v=None): return u @ v.mT if v is not None else mirror(u @ u.mT, self.diag(u))


KERNELS = {
    'se': (lambda: SquaredExponential(3.), sk.RBF(3**.5)),
    'se scaled': (lambda: SquaredExponential(3., scale_sq=2.), 2.*sk.RBF(3**.5)),
    'rq': (lambda: RationalQuadratic(3.), sk.RationalQuadratic(3**.5, 1.)),
    'rq alpha': (lambda: RationalQuadratic(3., alpha=.4), sk.RationalQuadratic(3**.5, .4)),
    'linear': (lambda: Linear(), sk.DotProduct(0.)),
    'sum': (lambda: SquaredExponential(3.) + Linear(), sk.RBF(3**.5) + sk.DotProduct(0.)),
    'product': (lambda: (SquaredExponential(3.) + Linear())*RationalQuadratic(2.),
                (sk.RBF(3**.5) + sk.DotProduct(0.))*sk.RationalQuadratic(2**.5, 1.)),
    'matern': (lambda: Matern32(3.), sk.Matern(3**.5, nu=1.5)),
    'cosine': (lambda: Cosine(), sk.PairwiseKernel(metric='cosine')),
    'of one\'s own': (lambda: Cosine()*SquaredExponential(3.) + Matern32(3.),
                     sk.PairwiseKernel(metric='cosine')*sk.RBF(3**.5) + sk.Matern(3**.5, nu=1.5)),
}
ours = pytest.mark.parametrize('name', KERNELS)


@ours
def test_agrees_with_scikit_learn(name):
    make, judge = KERNELS[name]
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 6)), rng.normal(size=(20, 6))
    k = make()
    np.testing.assert_allclose(k(torch.tensor(x), torch.tensor(y)), judge(x, y), atol=1e-12)
    np.testing.assert_allclose(k(torch.tensor(x)), judge(x), atol=1e-12)
    np.testing.assert_allclose(k.diag(torch.tensor(x)), judge.diag(x), atol=1e-12)


@ours
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_symmetric_to_the_bit_at_every_size(name, dtype):
    k = KERNELS[name][0]()
    for n in (1, 2, 3, 31, 127, 128, 129, 255, 300):
        for batch in ((), (3,)):
            x = torch.randn(*batch, n, 7, dtype=dtype, generator=torch.Generator().manual_seed(n))
            K = k(x)
            assert torch.equal(K, K.mT), n
            assert torch.equal(K.diagonal(dim1=-2, dim2=-1), k.diag(x)), n


@ours
def test_gradients(name):
    k = KERNELS[name][0]()
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(*s, dtype=torch.float64, generator=g).requires_grad_() for s in ((2, 4, 3), (1, 3, 3)))
    assert torch.autograd.gradcheck(k, (x,))
    assert torch.autograd.gradcheck(k, (x, y))  # with a broadcast batch dimension


def test_distance():
    g = torch.Generator().manual_seed(0)
    x, y = (torch.randn(*s, dtype=torch.float64, generator=g).requires_grad_() for s in ((2, 5, 3), (4, 3)))
    torch.testing.assert_close(distance(x + 100, y + 100), torch.cdist(x, y), atol=1e-9, rtol=0)  # broadcast, far away
    torch.testing.assert_close(distance(x), torch.cdist(x, x), atol=1e-6, rtol=0)
    assert torch.equal(distance(x), distance(x, x)) and (distance(x).diagonal(dim1=-2, dim2=-1) == 0).all()
    assert torch.autograd.gradcheck(distance, (x, y)) and torch.autograd.gradgradcheck(distance, (x, y))
    pairs = torch.triu_indices(5, 5, 1)  # of different points: a point has a kink at itself
    assert torch.autograd.gradcheck(lambda x: distance(x)[..., pairs[0], pairs[1]], x)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_distance_where_points_coincide(dtype):
    "Sums of small whole numbers are exact in any order, so distances of copies are exactly zero, as are their slopes"
    x = torch.tensor([[-1., 0], [1, 0], [0, -1], [0, 1]], dtype=dtype).repeat(2, 1).requires_grad_()
    for d in distance(x), distance(x, x*1):
        assert (d.diagonal() == 0).all() and (d.diagonal(4) == 0).all() and (d.diagonal(1) > 0).any()
        slope, = torch.autograd.grad(d.diagonal(4).sum() + d.diagonal().sum(), x, retain_graph=True)
        assert torch.equal(slope, torch.zeros_like(x))
        assert torch.autograd.grad(d.sum(), x)[0].isfinite().all()
    twins = torch.randn(6, 64, dtype=dtype, generator=torch.Generator().manual_seed(0)).repeat(2, 1).requires_grad_()
    for d in distance(twins), distance(twins, twins*1): assert torch.autograd.grad(d.sum(), twins)[0].isfinite().all()


def test_safe_sqrt():
    x = torch.tensor([0., 4., 0., 9.], requires_grad=True)
    slope, = torch.autograd.grad(safe_sqrt(x).sum(), x)
    assert safe_sqrt(x).tolist() == [0, 2, 0, 3] and slope.tolist() == [0, .25, 0, pytest.approx(1/6)]


def test_a_gp_with_a_kernel_of_ones_own_and_duplicates():
    "Mean and variance have finite gradients, with respect to support and query, where points coincide"
    x = torch.randn(8, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for kernel in Matern32(), Cosine(), Matern32() + Linear(), Cosine()*SquaredExponential():
        leaf = torch.cat([x, x[:3]]).requires_grad_()
        mean, variance = GaussianProcess(kernel).prepare(leaf, torch.ones(11, 1, dtype=x.dtype)).predict(leaf[:5])
        slope, = torch.autograd.grad(mean.sum() + variance.sum(), leaf)
        assert slope.isfinite().all() and slope.abs().max() > 0


@ours
def test_gradient_is_finite_where_points_coincide(name):
    x = torch.ones(5, 3, requires_grad=True)
    (KERNELS[name][0]()(x).sum() + KERNELS[name][0]()(x, x*1).sum()).backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize('make', [lambda: SquaredExponential(learn=True), lambda: Linear(learn=True),
                                  lambda: RationalQuadratic(2., alpha=.7, learn=True)])
def test_learnt_hyperparameters(make):
    k = make().double()
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.autograd.gradcheck(lambda *_: k(x), tuple(k.parameters()))
    for p in k.parameters(): p.data.fill_(-30.)
    assert k(x).isfinite().all() and k.scale_sq.item() > 0
    clone = make().double()
    clone.load_state_dict(k.state_dict())
    assert torch.equal(clone(x), k(x))


@given(offset=st.floats(-1000, 1000), scale=st.floats(.1, 10), seed=st.integers(0, 1000))
def test_a_common_offset_changes_nothing(offset, scale, seed):
    "float32 with an offset against float64 of the same numbers: features are centred before they are multiplied"
    g = torch.Generator().manual_seed(seed)
    x, y = scale*torch.randn(40, 64, generator=g) + offset, scale*torch.randn(30, 64, generator=g) + offset
    for k in (SquaredExponential(), RationalQuadratic()):
        assert (k(x, y) - k(x.double(), y.double())).abs().max() < 2e-3
        assert (k(x) - k(x.double())).abs().max() < 2e-3


@given(name=st.sampled_from(sorted(KERNELS)), n=st.integers(1, 20), seed=st.integers(0, 1000))
def test_positive_semidefinite(name, n, seed):
    x = torch.randn(n, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    K = KERNELS[name][0]()(torch.cat([x, x[:1]]))  # with a duplicate
    assert torch.linalg.eigvalsh(K).min() > -1e-9*max(1, K.max())


@pytest.mark.parametrize('k', [SquaredExponential(), RationalQuadratic()])
def test_never_above_the_prior(k):
    "Rounding makes some squared distances of large, nearly equal features negative; they are clamped"
    x = 100*torch.randn(300, 64, generator=torch.Generator().manual_seed(0))
    assert k(x, x + 1e-4).max() <= 1 and k(x).max() <= 1


def test_half_precision_is_promoted_and_cast_back():
    x = torch.randn(50, 32, generator=torch.Generator().manual_seed(0))
    for dtype in (torch.float16, torch.bfloat16):
        half = SquaredExponential()(x.to(dtype))
        assert half.dtype == dtype
        assert torch.equal(half, SquaredExponential()(x.to(dtype).float()).to(dtype))
    assert SquaredExponential()(x, x.double()).dtype == torch.float64


def test_nesting_keeps_the_parts_apart():
    k = SumKernel(Linear(), ProductKernel(SquaredExponential(1.), RationalQuadratic(2.), Linear()))
    assert k.parts == 4
    x, y = torch.randn(2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()
    product = SquaredExponential(1.)(x, y)*RationalQuadratic(2.)(x, y)*Linear()(x, y)
    torch.testing.assert_close(k(x, y), Linear()(x, y) + product)
    recentred = k.gram(k.recentre(k.embed(x, y.mean(0))))
    torch.testing.assert_close(recentred, k(x))


def test_a_stationary_kernel_is_its_profile():
    class Profile(Stationary):
        def profile(self, e):
            d = safe_sqrt(-6*e)
            return (1 + d)*torch.exp(-d)
    x = torch.randn(20, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(Profile(2.)(x), Matern32(2.)(x), atol=1e-6, rtol=0)
    y = x.sin()
    means = [GaussianProcess(k).prepare(x, y).mean(x[:5] + .1) for k in (Profile(2.), Matern32(2.))]
    torch.testing.assert_close(*means, atol=1e-4, rtol=0)
    with pytest.raises(TypeError, match=r'Stationary does not define profile\(e\)'): Stationary()(x)


def test_length_scale_goes_to_kernels_that_have_one(monkeypatch):
    monkeypatch.setattr(REGISTRY, 'things', dict(REGISTRY.things))
    REGISTRY.add('matern')(Matern32)
    REGISTRY.add('cosine')(Cosine)
    assert make_kernel('matern', length_sq=3.).length_sq == 3 and make_kernel('matern', length_sq=None).length_sq == 1
    assert isinstance(make_kernel('cosine', length_sq=3.), Cosine) and isinstance(make_kernel('linear', 2.), Linear)
    assert make_kernel('se', length_sq=3.).length_sq == 3 and make_kernel('se', length_sq=None).relative


def test_names():
    assert isinstance(make_kernel('rq', alpha=2.), RationalQuadratic)
    with pytest.raises(ValueError, match='choose one of se, rq, linear'): make_kernel('cosine')
