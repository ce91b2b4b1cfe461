"Ten thousand random GP problems: no exception, no NaN, variances between nothing and the prior, errors against float64"
import math
import warnings

import numpy as np
import pytest
import torch
from scipy.linalg import cho_factor, solve_triangular

from deepgp_fss.gp import GaussianProcess
from deepgp_fss.kernels import Linear, RationalQuadratic, SquaredExponential
from results import keep

CHUNKS, SMALL, LARGE = 20, (15, 30), 50  # in each chunk: 15 batches of 30 problems, and 50 large ones
KERNELS = dict(se=SquaredExponential, rq=RationalQuadratic, linear=Linear)


def between(rng, low, high): return math.exp(rng.uniform(math.log(low), math.log(high)))


def features(rng, B, N, D):
    "Points (B, N, D) of any scale, far from the origin, some of them twice"
    scale = np.array([between(rng, 1e-3, 1e3) for _ in range(B)])[:, None, None]
    offset = np.array([rng.choice([0, between(rng, 1e-3, 1e3)]) for _ in range(B)])[:, None, None]
    x = scale*rng.standard_normal((B, N, D)) + offset*rng.standard_normal((B, 1, D))
    twice = rng.random((B, N)) < rng.choice([0, .1, .9], (B, 1))
    return np.where(twice[..., None], np.take_along_axis(x, rng.integers(0, N, (B, N))[..., None], 1), x)


def problem(rng, B, S):
    "Float32 features and encodings of B support sets, and queries: points of the support, near ones and others"
    D, E, Q = int(rng.choice([1, 2, 8, 64, 512])), 3, 12
    x = features(rng, B, S + Q, D)
    x[:, S:S+4] = x[:, :S][:, rng.integers(0, S, 4)]
    x = torch.from_numpy(x).float()
    return x[:, :S], torch.from_numpy(rng.standard_normal((B, S, E))).float(), x[:, S:]


def reference(kernel, noise, x_s, y, x_q):
    "Mean and variance of one problem in float64, by the textbook"
    K, K_qs, prior = (np.asarray(t) for t in (kernel(x_s), kernel(x_q, x_s), kernel.diag(x_q)))
    L = cho_factor(K + noise*np.eye(len(K)), lower=True)[0]
    w, V = solve_triangular(L, y, lower=True), solve_triangular(L, K_qs.T, lower=True)
    return V.T @ w, prior - (V*V).sum(0), prior


def errors(kernel, noise, x_s, y, x_q):
    "Largest errors of each problem: of the mean, in units of the largest encoding; of the variance, of the prior"
    with warnings.catch_warnings():
        warnings.simplefilter('error')  # a jitter would be announced: it should not be needed
        mean, variance = GaussianProcess(kernel, noise).prepare(x_s, y).predict(x_q)
    prior = kernel.diag(x_q)
    assert mean.isfinite().all() and variance.isfinite().all()
    assert (variance >= 0).all() and (variance <= prior*(1 + 1e-6)).all()
    for b in range(len(x_s)):
        m, v, p = reference(kernel, noise, x_s[b].double(), y[b].numpy().astype(float), x_q[b].double())
        mean_error, variance_error = np.abs(mean[b].numpy() - m), np.abs(variance[b].numpy() - v)
        yield float(mean_error.max()/np.abs(y[b].numpy()).max()), float((variance_error/np.maximum(p, 1e-30)).max())


@pytest.mark.parametrize('chunk', range(CHUNKS))
def test_five_hundred_random_problems(chunk):
    rng, rows = np.random.default_rng([chunk, 11]), []
    small = [(SMALL[1], round(between(rng, 1, 160))) for _ in range(SMALL[0])]
    large = [(1, round(between(rng, 160, 2560))) for _ in range(LARGE)]
    for B, S in small + large:
        name, noise = str(rng.choice(list(KERNELS), p=[.6, .2, .2])), between(rng, 1e-6, 1)
        with torch.no_grad(): found = list(errors(KERNELS[name](), noise, *problem(rng, B, S)))
        rows += [(name, noise, S, *e) for e in found]
    assert len(rows) == SMALL[0]*SMALL[1] + LARGE
    for name, _, _, mean, variance in rows:
        # linear, with features of 1e4 and noise of 1e-5: float64 is at its limit, too
        assert mean < (.5 if name == 'linear' else .05) and variance < 1e-3
    powers = lambda values: [round(math.log10(max(v, 1e-12)), 1) for v in values]  # of ten: noise, S, errors
    keep('stress.json', f'{chunk:02}', [[name, *powers(values)] for name, *values in rows])


@pytest.mark.parametrize('value', [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_named(value):
    x, y = torch.randn(2, 10, 4), torch.randn(2, 10, 3)
    gp = GaussianProcess(SquaredExponential())
    def spoilt(t): t = t.clone(); t[1, 3, 2] = value; return t
    for name, bad in dict(x_s=lambda: gp.prepare(spoilt(x), y), y_s=lambda: gp.prepare(x, spoilt(y)),
                          x_q=lambda: gp.prepare(x, y).predict(spoilt(x))).items():
        with pytest.raises(ValueError, match=rf'{name} holds 1 value\(s\) that are not finite'): bad()
