"Kernels: against their formulas and against scikit-learn, over sizes, scales and data types"
import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.gaussian_process import kernels as sk

from deepgp_fss.kernels import Linear, ProductKernel, RationalQuadratic, SquaredExponential, SumKernel, make_kernel

KERNELS = {
    'se': (lambda: SquaredExponential(3.), sk.RBF(3**.5)),
    'se scaled': (lambda: SquaredExponential(3., scale_sq=2.), 2.*sk.RBF(3**.5)),
    'rq': (lambda: RationalQuadratic(3.), sk.RationalQuadratic(3**.5, 1.)),
    'rq alpha': (lambda: RationalQuadratic(3., alpha=.4), sk.RationalQuadratic(3**.5, .4)),
    'linear': (lambda: Linear(), sk.DotProduct(0.)),
    'sum': (lambda: SquaredExponential(3.) + Linear(), sk.RBF(3**.5) + sk.DotProduct(0.)),
    'product': (lambda: (SquaredExponential(3.) + Linear())*RationalQuadratic(2.), (sk.RBF(3**.5) + sk.DotProduct(0.))*sk.RationalQuadratic(2**.5, 1.)),
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


@ours
def test_gradient_is_finite_where_points_coincide(name):
    x = torch.ones(5, 3, requires_grad=True)
    (KERNELS[name][0]()(x).sum() + KERNELS[name][0]()(x, x*1).sum()).backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize('make', [lambda: SquaredExponential(learn=True), lambda: RationalQuadratic(2., alpha=.7, learn=True), lambda: Linear(learn=True)])
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
    torch.testing.assert_close(k(x, y), Linear()(x, y) + SquaredExponential(1.)(x, y)*RationalQuadratic(2.)(x, y)*Linear()(x, y))
    recentred = k.gram(k.recentre(k.embed(x, y.mean(0))))
    torch.testing.assert_close(recentred, k(x))


def test_names():
    assert isinstance(make_kernel('rq', alpha=2.), RationalQuadratic)
    with pytest.raises(ValueError, match='choose one of se, rq, linear'): make_kernel('cosine')
