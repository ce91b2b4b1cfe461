"The GP before independent judges: scikit-learn, the literal equations, finite differences, and properties"
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor, kernels as sk

from deepgp_fss.bench import peak_bytes
from deepgp_fss.gp import GaussianProcess, condense, choose_points, paper_listing
from deepgp_fss.kernels import Linear, RationalQuadratic, SquaredExponential

KERNELS = {
    'se': (lambda: SquaredExponential(3., scale_sq=1.5), 1.5*sk.RBF(3**.5)),
    'rq': (lambda: RationalQuadratic(3., alpha=.8), sk.RationalQuadratic(3**.5, .8)),
    'linear': (lambda: Linear(), sk.DotProduct(0.)),
    'sum': (lambda: SquaredExponential(3.) + Linear(), sk.RBF(3**.5) + sk.DotProduct(0.)),
}
every_kernel = pytest.mark.parametrize('name', KERNELS)


def problem(S=25, Q=12, D=4, E=3, batch=(), seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*batch, n, d, dtype=dtype, generator=g) for n, d in ((S, D), (S, E), (Q, D)))


def close(a, b, atol=1e-9): torch.testing.assert_close(a, b, atol=atol, rtol=0)


def same_posterior(a, b, x_q, atol=1e-8):
    close(a.mean(x_q), b.mean(x_q), atol)
    close(a.covariance(x_q), b.covariance(x_q), atol)


# ---- judges

@every_kernel
@pytest.mark.parametrize('noise', [1e-4, .01, 1.])
def test_scikit_learn_agrees(name, noise):
    make, kernel = KERNELS[name]
    x_s, y_s, x_q = problem()
    judge = GaussianProcessRegressor(kernel, alpha=noise, optimizer=None).fit(x_s.numpy(), y_s.numpy())
    mean, cov = judge.predict(x_q.numpy(), return_cov=True)
    post = GaussianProcess(make(), noise).prepare(x_s, y_s)
    np.testing.assert_allclose(post.mean(x_q), mean, atol=1e-8)
    for e in range(y_s.shape[-1]): np.testing.assert_allclose(post.covariance(x_q), cov[..., e], atol=1e-8)


@every_kernel
def test_the_equations_agree(name):
    "Equations (4) and (5), transcribed with an explicit inverse"
    k, noise = KERNELS[name][0](), .01
    x_s, y_s, x_q = problem()
    K_ss, K_sq, K_qq = k(x_s, x_s.clone()), k(x_s, x_q), k(x_q, x_q.clone())
    inverse = torch.linalg.inv(K_ss + noise*torch.eye(len(x_s), dtype=x_s.dtype))
    post = GaussianProcess(k, noise).prepare(x_s, y_s)
    close(post.mean(x_q), K_sq.mT @ inverse @ y_s)
    close(post.covariance(x_q), K_qq - K_sq.mT @ inverse @ K_sq)


@every_kernel
def test_the_listing_agrees(name):
    k = KERNELS[name][0]()
    x_s, y_s, x_q = problem(batch=(2,))
    mean, cov = paper_listing(x_q, y_s, x_s, .1, k)
    post = GaussianProcess(k, .01).prepare(x_s, y_s)
    close(post.mean(x_q), mean)
    close(post.covariance(x_q), cov)


@every_kernel
@pytest.mark.parametrize('ask', ['mean', 'variance', 'covariance', 'window', 'predict'])
def test_gradients(name, ask):
    gp = GaussianProcess(KERNELS[name][0]())
    inputs = [t.requires_grad_() for t in problem(5, 6, 2, 2)]
    def f(x_s, y_s, x_q):
        post = gp.prepare(x_s, y_s)
        if ask == 'window': return post.window(x_q, (2, 3), 3)
        if ask == 'predict': return post.predict(x_q, 'window', (2, 3), 5)
        return getattr(post, ask)(x_q)
    assert torch.autograd.gradcheck(f, inputs)


@pytest.mark.parametrize('wanted', [(0,), (1,), (2,), (0, 1), (1, 2)])
def test_gradients_when_only_some_are_wanted(wanted):
    "A frozen encoder leaves only the encodings to learn, a frozen mask encoder only the features"
    gp, inputs = GaussianProcess(SquaredExponential()), problem(8, 6, 3, 2)
    with torch.inference_mode(): gp.prepare(*inputs[:2]).window(inputs[2], (3, 2))  # must not spoil training after it
    f = lambda x, y, q: sum((t**2).sum() for t in gp.prepare(x, y).predict(q, 'window', (3, 2)))
    full = torch.autograd.grad(f(*[t.requires_grad_() for t in inputs]), inputs)
    some = [t.detach().requires_grad_(i in wanted) for i, t in enumerate(inputs)]
    for i, g in zip(wanted, torch.autograd.grad(f(*some), [some[i] for i in wanted])): close(g, full[i])


def test_gradients_equal_those_of_autograd_through_the_listing():
    "The two derivatives written by hand, at a size that gradcheck cannot reach"
    k, grads = SquaredExponential(), []
    def listing(x, y, q): return paper_listing(q, y, x, .1, k)
    def ours(x, y, q): return GaussianProcess(k).prepare(x, y).predict(q, 'covariance')
    for f in (listing, ours):
        inputs = [t.requires_grad_() for t in problem(60, 40, 8, 5, batch=(2,))]
        mean, cov = f(*inputs)
        weights = torch.randn(cov.shape, dtype=cov.dtype, generator=torch.Generator().manual_seed(1))
        ((mean**2).sum() + (weights*cov).sum()).backward()
        grads.append([t.grad for t in inputs])
    for a, b in zip(*grads): close(a, b, 1e-8)


@pytest.mark.parametrize('change', [lambda p, x, y: p.extend(x, y), lambda p, x, y: p.drop([0, 3]),
                                    lambda p, x, y: p.drop(slice(1, 3)).extend(x, y)])
def test_gradients_through_changes_of_the_support(change):
    gp = GaussianProcess(SquaredExponential(learn=True), learn_noise=True).double()
    x_s, y_s, x_q = problem(6, 4, 2, 2)
    x_n, y_n, _ = problem(2, 1, 2, 2, seed=1)
    f = lambda x_s, y_s, x_q, x_n, y_n, *_: change(gp.prepare(x_s, y_s), x_n, y_n).predict(x_q)
    assert torch.autograd.gradcheck(f, [t.requires_grad_() for t in (x_s, y_s, x_q, x_n, y_n)] + list(gp.parameters()))
    # the new points alone want gradients
    post = gp.requires_grad_(False).prepare(x_s.detach(), y_s.detach())
    x_n = x_n.detach().requires_grad_()
    post.extend(x_n, y_n.detach()).variance(x_q.detach()).sum().backward()
    assert x_n.grad.abs().sum() > 0


def test_gradients_of_leave_out_and_condense():
    exact, bounded = (GaussianProcess(SquaredExponential(1.), max_points=n) for n in (None, 4))
    x_s, y_s, x_q = (t.requires_grad_() for t in problem(8, 3, 2, 1))
    assert torch.autograd.gradcheck(lambda x, y: exact.prepare(x, y).leave_out(4), (x_s, y_s))
    assert torch.autograd.gradcheck(lambda x, y, q: bounded.prepare(x, y).predict(q), (x_s, y_s, x_q), atol=1e-4)


# ---- properties

sizes = dict(name=st.sampled_from(sorted(KERNELS)), S=st.integers(1, 30), Q=st.integers(1, 20), D=st.integers(1, 6),
             seed=st.integers(0, 10**6), noise=st.sampled_from([1e-3, .01, .3]))


@given(**sizes)
def test_order_of_support_and_queries(name, S, Q, D, seed, noise):
    gp = GaussianProcess(KERNELS[name][0](), noise)
    x_s, y_s, x_q = problem(S, Q, D, seed=seed)
    g = torch.Generator().manual_seed(seed)
    p, q = torch.randperm(S, generator=g), torch.randperm(Q, generator=g)
    post = gp.prepare(x_s, y_s)
    same_posterior(post, gp.prepare(x_s[p], y_s[p]), x_q)
    close(post.mean(x_q[q]), post.mean(x_q)[q])
    close(post.covariance(x_q[q]), post.covariance(x_q)[q][:, q])


@given(**sizes, dtype=st.sampled_from([torch.float32, torch.float64]))
def test_variance_between_zero_and_the_prior(name, S, Q, D, seed, noise, dtype):
    k = KERNELS[name][0]()
    x_s, y_s, x_q = problem(S, Q, D, seed=seed, dtype=dtype)
    post = GaussianProcess(k, noise).prepare(x_s, y_s)
    for x in (x_q, x_s, x_q*100):
        var = post.variance(x)
        assert (var >= 0).all() and (var <= k.diag(x)).all()
    if dtype == torch.float64: close(post.variance(x_q), post.covariance(x_q).diagonal())


@given(name=st.sampled_from(sorted(KERNELS)), h=st.integers(1, 6), w=st.integers(1, 6), M=st.integers(1, 3),
       size=st.sampled_from([1, 3, 5, 7]), batch=st.sampled_from([(), (2,), (2, 1)]), offset=st.sampled_from([0., 50.]))
def test_window_is_gathered_from_the_covariance(name, h, w, M, size, batch, offset):
    "For any map, several images at once, and a query far from the support"
    x_s, y_s, x_q = problem(8, M*h*w, 3, batch=batch)
    x_q = x_q + offset
    post = GaussianProcess(KERNELS[name][0]()).prepare(x_s, y_s)
    window, r = post.window(x_q, (h, w), size), size//2
    assert window.shape == (*batch, M*h*w, size*size)
    for m, x in enumerate(x_q.split(h*w, -2)):
        cov = post.covariance(x)
        cov = (cov + cov.mT)/2
        expected = torch.zeros_like(window[..., :h*w, :])
        for i in range(h):
            for j in range(w):
                for c in range(size*size):
                    i2, j2 = i + c//size - r, j + c % size - r
                    if 0 <= i2 < h and 0 <= j2 < w: expected[..., i*w + j, c] = cov[..., i*w + j, i2*w + j2]
        close(window[..., m*h*w:(m + 1)*h*w, :], expected, atol=1e-8*max(1, float(cov.abs().max())))


def test_window_of_a_query_far_from_the_support():
    "float32, the query 300 away from the support in every feature: its cells are compared around their own centre"
    x_s, y_s, x_q = problem(8, 25, 512, dtype=torch.float32)
    gp = GaussianProcess(SquaredExponential(40.))
    post = gp.prepare(.3*x_s, y_s)
    ignorant = gp.prepare(.3*x_s[:1] + 1e4, y_s[:1])  # knows nothing of the query
    near, far = (post.window(.3*x_q + offset, (5, 5)) for offset in (0., 300.))
    prior = ignorant.window(.3*x_q, (5, 5))
    assert (near - prior).abs().max() > .01
    close(far, prior, 1e-3)


@given(**sizes)
def test_batched_equals_looped(name, S, Q, D, seed, noise):
    gp = GaussianProcess(KERNELS[name][0](), noise)
    x_s, y_s, x_q = problem(S, Q, D, batch=(2, 2), seed=seed)
    mean, var = gp.prepare(x_s, y_s).predict(x_q)
    for i in range(2):
        for j in range(2):
            m, v = gp.prepare(x_s[i, j], y_s[i, j]).predict(x_q[i, j])
            close(mean[i, j], m, 1e-8); close(var[i, j], v, 1e-8)


def test_one_support_set_serves_a_batch_of_queries():
    gp = GaussianProcess(SquaredExponential())
    x_s, y_s, _ = problem()
    x_q = problem(batch=(3,), seed=1)[2].requires_grad_()
    x_s.requires_grad_()
    post = gp.prepare(x_s, y_s)
    mean, var = post.predict(x_q)
    close(mean[1], post.mean(x_q[1])); close(var[1], post.variance(x_q[1]))
    (g,) = torch.autograd.grad(var.sum(), x_s)
    close(g, sum(torch.autograd.grad(gp.prepare(x_s, y_s).variance(q).sum(), x_s)[0] for q in x_q))
    with torch.no_grad(): close(gp.prepare(x_s, y_s).predict(x_q)[1], var)


@given(**sizes, extra=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_extend_and_drop_equal_a_refit(name, S, Q, D, seed, noise, extra):
    gp = GaussianProcess(KERNELS[name][0](), noise)
    x, y, x_q = problem(S + sum(extra), Q, D, seed=seed)
    post, n = gp.prepare(x[:S], y[:S]), S
    for more in extra:
        post = post.extend(x[n:n+more], y[n:n+more])
        n += more
    same_posterior(post, gp.prepare(x, y), x_q)
    gone = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[:n//2]
    keep = torch.tensor(sorted(set(range(n)) - set(gone.tolist())))
    for drop in (gone, gone.tolist(), torch.isin(torch.arange(n), gone)):
        same_posterior(post.drop(drop), gp.prepare(x[keep], y[keep]), x_q)
    same_posterior(post.drop(gone).extend(x[gone], y[gone]), post, x_q)


def test_branches_of_one_posterior_do_not_disturb_each_other():
    gp = GaussianProcess(SquaredExponential())
    x, y, x_q = problem(60)
    trunk = gp.prepare(x[:40], y[:40]).extend(x[40:42], y[40:42])
    assert trunk.room.data.shape[-1] >= 45  # room for either branch
    left, right = trunk.extend(x[42:45], y[42:45]), trunk.extend(x[50:53], y[50:53])
    same_posterior(left, gp.prepare(x[:45], y[:45]), x_q)
    same_posterior(right, gp.prepare(torch.cat([x[:42], x[50:53]]), torch.cat([y[:42], y[50:53]])), x_q)
    same_posterior(trunk, gp.prepare(x[:42], y[:42]), x_q)


@given(name=st.sampled_from(['se', 'rq', 'sum']), seed=st.integers(0, 1000))
def test_noise_to_zero_interpolates(name, seed):
    x_s, y_s, _ = problem(10, seed=seed)
    post = GaussianProcess(KERNELS[name][0](), 1e-12).prepare(x_s, y_s)
    close(post.mean(x_s), y_s, 1e-6)
    assert post.variance(x_s).max() < 1e-8


@given(name=st.sampled_from(sorted(KERNELS)), groups=st.integers(1, 5), seed=st.integers(0, 1000))
def test_leave_out_equals_a_refit(name, groups, seed):
    gp = GaussianProcess(KERNELS[name][0]())
    x_s, y_s, _ = problem(20, seed=seed)
    post = gp.prepare(x_s, y_s)
    label = torch.randint(groups, (20,), generator=torch.Generator().manual_seed(seed))
    mean, var = post.leave_out(label)
    own = label if label.unique().numel() > 1 else torch.arange(20)  # one group: point by point
    for g in own.unique():
        at = own == g
        refit = post.drop(at)
        close(mean[at], refit.mean(x_s[at]), 1e-7); close(var[at], refit.variance(x_s[at]), 1e-7)


# ---- precision

@pytest.mark.parametrize('scale', [.1, .3, 1., 3., 10., 30.])
@pytest.mark.parametrize('offset', [0., 30.])
def test_float32_against_float64_on_realistic_features(scale, offset):
    """512-d features of 2,560 support points in clusters, and 1,024 query points, half of them close to support points
    and half from the same clusters. Errors are relative to the largest mean and to the prior variance.

    Seen on two kinds of CPU instructions: at scale .1 at most 1e-3 for the mean and 4e-6 for the variance, at .3 4e-5
    and 3e-6, at 1 1e-5 and 3e-5; from scale 3 on `too_fine` sends the features to float64. Other CPUs round
    differently, so the bounds leave room."""
    g = torch.Generator().manual_seed(0)
    centres = torch.randn(40, 512, generator=g)
    def draw(n):
        clustered = centres[torch.randint(40, (n,), generator=g)] + .3*torch.randn(n, 512, generator=g)
        return scale*clustered + offset
    x_s, y_s = draw(2560), torch.rand(2560, 4, generator=g)
    x_q = torch.cat([draw(512), x_s[:512] + .1*torch.randn(512, 512, generator=g)])
    gp = GaussianProcess(SquaredExponential())
    mean, var = gp.prepare(x_s, y_s).predict(x_q)
    exact_mean, exact_var = gp.prepare(x_s.double(), y_s.double()).predict(x_q.double())
    error = (mean - exact_mean).abs().max()/exact_mean.abs().max(), (var - exact_var).abs().max()
    print(f'scale {scale:g}, offset {offset:g}: mean {error[0]:.1e}, variance {error[1]:.1e}')
    assert error[0] < (5e-3 if scale < .3 else 2e-4) and error[1] < (2e-5 if scale < 1 else 2e-4)


def test_half_precision_and_autocast():
    x_s, y_s, x_q = problem(50, 20, 16, dtype=torch.float32)
    gp = GaussianProcess(SquaredExponential())
    expected = gp.prepare(x_s, y_s).predict(x_q, 'window', (4, 5))
    for dtype in (torch.float16, torch.bfloat16):
        with torch.autocast('cpu', dtype=torch.bfloat16):
            for a, b in zip(gp.prepare(x_s, y_s).predict(x_q, 'window', (4, 5)), expected): assert torch.equal(a, b)
            inputs = [t.clone().requires_grad_() for t in (x_s, y_s, x_q)]
            loss = sum(t.sum() for t in gp.prepare(*inputs[:2]).predict(inputs[2]))
        loss.backward()
        half = gp.prepare(x_s.to(dtype), y_s.to(dtype)).predict(x_q.to(dtype), 'window', (4, 5))
        assert all(t.dtype == dtype and t.isfinite().all() for t in half)
    plain = [t.clone().requires_grad_() for t in (x_s, y_s, x_q)]
    sum(t.sum() for t in gp.prepare(*plain[:2]).predict(plain[2])).backward()
    for a, b in zip(inputs, plain): assert torch.equal(a.grad, b.grad)


class Shaky(SquaredExponential):
    "A kernel that float32 ruins beyond any jitter"
    def lower(self, u):
        K = super().lower(u)
        return K if K.dtype == torch.float64 else K - .1*torch.eye(K.shape[-1])


def test_float64_is_the_last_resort():
    x_s, y_s, x_q = problem(dtype=torch.float32)
    x_s, y_s = torch.cat([x_s, x_s]), torch.cat([y_s, y_s])
    post = GaussianProcess(Shaky()).prepare(x_s, y_s)
    assert post.dtype == torch.float64
    mean, var = post.predict(x_q)
    assert mean.dtype == var.dtype == torch.float32
    exact = GaussianProcess(SquaredExponential()).prepare(x_s.double(), y_s.double())
    close(mean.double(), exact.mean(x_q.double()), 1e-5)


@pytest.mark.parametrize('noise', [0., 1e-8, 1e-4])
def test_duplicates_one_point_and_silent_masks(noise):
    gp = GaussianProcess(SquaredExponential(), noise)
    g = torch.Generator().manual_seed(0)
    x, x_q = torch.randn(20, 8, generator=g), torch.randn(6, 8, generator=g)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        post = gp.prepare(x.repeat(30, 1), torch.ones(600, 1))
    assert len(caught) <= 1
    for t in post.predict(x_q): assert t.isfinite().all()
    assert (post.mean(x) - 1).abs().max() < .02
    mean, var = gp.prepare(x[:1], torch.ones(1, 1)).predict(x[:1])
    close(mean, torch.ones(1, 1)/(1 + noise), 1e-5); close(var, torch.tensor([noise]), 1e-4)
    background = gp.prepare(x, torch.zeros(20, 3))
    assert (background.mean(x_q) == 0).all() and (background.variance(x_q) > 0).all()


# ---- memory

@pytest.mark.parametrize('ask', [lambda p, x: p.variance(x), lambda p, x: p.predict(x, 'window', (64, 64))])
def test_no_query_by_query_matrix(ask):
    x_s, y_s, x_q = problem(16, 64*64, 8, 1, dtype=torch.float32)
    post = GaussianProcess(SquaredExponential()).prepare(x_s, y_s)
    with torch.no_grad(): assert peak_bytes(lambda: ask(post, x_q)) < .25*4*(64*64)**2  # the full matrix: 67 MB


def test_a_hundred_shots_within_bounded_memory():
    "25,600 points, 256 kept: far below the 2.6 GB of an exact factor"
    x_s, y_s, x_q = problem(25_600, 64, 16, 2, dtype=torch.float32)
    gp = GaussianProcess(SquaredExponential(), max_points=256)
    with torch.no_grad(): assert peak_bytes(lambda: gp.prepare(x_s, y_s)) < 100e6
    assert all(t.isfinite().all() for t in gp.prepare(x_s, y_s).predict(x_q))


# ---- condensing

def test_condensed_posterior_is_the_sparse_gp_of_titsias():
    "Mean and covariance of SGPR with the same inducing points, from its textbook formulas"
    k, noise = SquaredExponential(2.), .05
    x_s, y_s, x_q = problem(80, 10, 3)
    z = x_s[choose_points(k, x_s, 20)]
    K_zz, K_zs, K_zq = k(z) + 1e-6*torch.eye(20), k(z, x_s), k(z, x_q)
    B = K_zz + K_zs @ K_zs.mT/noise
    mean = K_zq.mT @ torch.linalg.solve(B, K_zs @ y_s)/noise
    cov = k(x_q) - K_zq.mT @ torch.linalg.solve(K_zz, K_zq) + K_zq.mT @ torch.linalg.solve(B, K_zq)
    post = GaussianProcess(k, noise, max_points=20).prepare(x_s, y_s)
    assert repr(post).startswith('GPPosterior: 20 support points (condensed from 80)')
    close(post.mean(x_q), mean, 1e-4); close(post.covariance(x_q), cov, 1e-4)


def test_condensed_posterior_can_be_extended_and_claims_hardly_more():
    k = SquaredExponential(2.)
    x_s, y_s, x_q = problem(80, 30, 3)
    x_n, y_n, _ = problem(10, seed=1, D=3)
    y_s, y_n = x_s.sin(), x_n.sin()
    def claims_hardly_more(bounded, exact):
        mine, true = bounded.variance(x_q), exact.variance(x_q)
        return (mine > true - .01).all() and mine.mean() > true.mean()
    exact, bounded = (GaussianProcess(k, max_points=n).prepare(x_s, y_s) for n in (None, 40))
    assert claims_hardly_more(bounded, exact)
    bounded, exact = bounded.extend(x_n, y_n), exact.extend(x_n, y_n)
    assert claims_hardly_more(bounded, exact)
    assert (bounded.mean(x_q) - exact.mean(x_q)).norm() < .2*exact.mean(x_q).norm()
    with pytest.raises(ValueError, match='without max_points'): bounded.leave_out(2)


@pytest.mark.parametrize('batch', [(), (2,)])
def test_strata_keep_their_share(batch):
    x_s, y_s, _ = problem(400, batch=batch, D=2)
    strata = (torch.arange(400) % 20 == 0).long().expand(*batch, 400)
    x_s = torch.where(strata[..., None] == 1, x_s*1e-3, 10*x_s)  # the rare stratum carries no variance of its own
    z, _, _ = condense(SquaredExponential(1.), x_s, y_s, torch.tensor(.01), 80, strata)
    kept = (z.norm(dim=-1) < .1).sum(-1)
    assert (kept >= 2).all()  # half of the proportional 4
    alone, _, _ = condense(SquaredExponential(1.), x_s, y_s, torch.tensor(.01), 80)
    assert ((alone.norm(dim=-1) < .1).sum(-1) < kept).all()


# ---- bad input

def test_errors_say_what_to_do():
    gp = GaussianProcess(SquaredExponential())
    x, y, q = problem(4, 6, 3, 2, dtype=torch.float32)
    post = gp.prepare(x, y)
    nan = x.clone(); nan[1, 1] = torch.nan
    for match, bad in {
        'is empty': lambda: gp.prepare(x[:0], y[:0]),
        'same S': lambda: gp.prepare(x, y[:2]),
        'must have shapes': lambda: gp.prepare(x, y[:, 0]),
        'x_s holds 1 value': lambda: gp.prepare(nan, y),
        'y_s holds 8 value': lambda: gp.prepare(x, y*torch.inf),
        'x_q holds 1 value': lambda: post.variance(nan),
        'number of features': lambda: post.mean(q[:, :2]),
        'batch dimensions': lambda: gp.prepare(x.expand(2, 4, 3), y.expand(2, 4, 2)).mean(q.expand(3, 6, 3)),
        'shape \\(..., points, features\\)': lambda: post.mean(q[0]),
        'floating point': lambda: post.mean(q.long()),
        'pass grid': lambda: post.predict(q, 'window'),
        'odd and positive': lambda: post.window(q, (2, 3), 2),
        'images of 4 x 4': lambda: post.window(q, (4, 4)),
        'do not fit': lambda: post.extend(x, y[:, :1]),
        'keep at least one': lambda: post.drop([0, 1, 2, 3]),
        'do not make 3': lambda: post.leave_out(3),
        'shape \\(4,\\)': lambda: post.leave_out(torch.zeros(3)),
        'max_points': lambda: GaussianProcess(SquaredExponential(), max_points=0),
        'strata must': lambda: GaussianProcess(SquaredExponential(), max_points=2).prepare(x, y, torch.zeros(3)),
        'cannot be learnt': lambda: GaussianProcess(SquaredExponential(), 0., learn_noise=True),
    }.items():
        with pytest.raises(ValueError, match=match): bad()


def test_a_hopeless_matrix_is_explained():
    class NotAKernel(Linear):
        def gram(self, u, v=None): return -super().gram(u, v)
    x, y, _ = problem(4)
    with pytest.raises(ValueError, match='kernel may not be positive definite.*Raise noise_var'):
        GaussianProcess(NotAKernel()).prepare(x, y)
    with pytest.raises(ValueError, match='3 of its 4 points are duplicates and noise_var is 0'):
        GaussianProcess(NotAKernel(), 0.).prepare(x[:1].repeat(4, 1), y)
