"The GP at its edges: nothing to compute, wrong selections, threads, old posteriors, devices without float64"
import contextlib
import copy
import pickle
import threading
import warnings
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from deepgp_fss import gp as gp_module, kernels as kernels_module
from deepgp_fss.gp import GaussianProcess, has_float64
from deepgp_fss.kernels import Linear, RationalQuadratic, SquaredExponential
from deepgp_fss.learners import GPLearner

KERNELS = dict(se=SquaredExponential, rq=lambda: RationalQuadratic(alpha=2.), linear=Linear,
               sum=lambda: Linear() + SquaredExponential())


def problem(S=25, Q=12, D=4, E=3, batch=(), seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(*batch, n, d, dtype=dtype, generator=g) for n, d in ((S, D), (S, E), (Q, D)))


def close(a, b, atol=1e-9): torch.testing.assert_close(a, b, atol=atol, rtol=0)


# ---- nothing to compute

@pytest.mark.parametrize('grad', [False, True])
@pytest.mark.parametrize('max_points', [None, 3])
@pytest.mark.parametrize('kernel', ['se', 'sum'])
@pytest.mark.parametrize('batch, Q, E',
                         [((0,), 6, 2), ((2, 0), 6, 2), ((), 0, 2), ((2,), 0, 2), ((), 6, 0), ((0,), 0, 0)])
def test_empty_in_empty_out(batch, Q, E, kernel, max_points, grad):
    "No episodes, no query points, no outputs: every answer has its shape and a gradient"
    x, y, q = (t.requires_grad_(grad) for t in problem(5, Q, 3, E, batch, dtype=torch.float32))
    first = GaussianProcess(KERNELS[kernel](), max_points=max_points).prepare(x, y)
    for post in (first, first.extend(x[..., :2, :] + 1, y[..., :2, :]), first.drop([0])):
        answers = (post.mean(q), post.variance(q), post.covariance(q), post.window(q, (2, 3)),
                   *post.predict(q), *post.predict(q, 'window', (2, 3)))
        shapes = [(Q, E), (Q,), (Q, Q), (Q, 25), (Q, E), (Q,), (Q, E), (Q, 25)]
        if max_points is None:
            answers, S = (*answers, *post.leave_out(1), *post.leave_out(torch.arange(len(post))//2)), len(post)
            shapes += [(S, E), (S,)]*2
        assert [tuple(a.shape) for a in answers] == [(*batch, *s) for s in shapes]
        assert all(a.isfinite().all() for a in answers)
        if grad:
            total = sum(a.sum() for a in answers)
            torch.autograd.grad(total, (x, y, q), retain_graph=True, materialize_grads=True)


def test_no_features_and_no_support_get_a_sentence():
    x, y, q = problem()
    for k in KERNELS.values():
        with pytest.raises(ValueError, match='x has no features'): k()(x[:, :0])
        with pytest.raises(ValueError, match='x_s has no features'): GaussianProcess(k()).prepare(x[:, :0], y)
    gp = GaussianProcess(SquaredExponential())
    with pytest.raises(ValueError, match='x_q'): gp.prepare(x, y).mean(q[:, :0])
    with pytest.raises(ValueError, match='support set is empty'): gp.prepare(x[:0], y[:0])
    with pytest.raises(ValueError, match='support set is empty'): gp.prepare(x, y).extend(x[:0], y[:0])


# ---- wrong selections

def test_drop_refuses_what_is_not_there():
    x, y, q = problem(5)
    post = GaussianProcess(SquaredExponential()).prepare(x, y)
    for match, points in {
        'numbered from 0 to 4.*5 to 5 do not fit': [5], '-6 to -6': torch.tensor([-6]), '0 to 9': [0, 9], '7 to 7': 7,
        r'has shape \(5,\), but this one has \(4,\)': torch.ones(4, dtype=torch.bool), r'this one has \(6,\)': [True]*6,
        'by whole numbers, not by torch.float32': [1.], 'keep at least one': list(range(5)),
    }.items():
        with pytest.raises(ValueError, match=match): post.drop(points)
    no_points = torch.zeros(5, dtype=torch.bool), torch.tensor([], dtype=torch.long)
    for nothing in ([], slice(2, 2), slice(9, 12), *no_points): assert post.drop(nothing) is post
    kept = GaussianProcess(SquaredExponential()).prepare(x[[0, 2, 4]], y[[0, 2, 4]])
    tensor = torch.tensor([3, 1, 3], dtype=torch.uint8)
    for same in ([1, 3], [-4, -2], slice(1, 5, 2), slice(3, None, -2), tensor, (False, True, False, True, False)):
        close(post.drop(same).mean(q), kept.mean(q))
    close(post.drop(-1).mean(q), post.drop([4]).mean(q))


def test_a_shot_that_is_not_there_and_shots_that_were_condensed():
    learner, (x, y, _) = GPLearner(support_stride=1), problem(6, batch=(1, 2), dtype=torch.float32)
    x, y = (t.mT.unflatten(-1, (2, 3)) for t in (x, y))  # (B, K, C, h, w)
    state = learner.prepare(x, y)
    assert len(learner.drop(state, 1, 2)) == 6
    for shot, shots in ((2, 2), (-1, 2), (0, 5), (0, 0)):
        with pytest.raises(ValueError, match=f'no shot {shot} of {shots} equal ones'): learner.drop(state, shot, shots)
    bounded = GPLearner(support_stride=1, max_points=4)
    with pytest.raises(ValueError, match='were condensed'): bounded.drop(bounded.prepare(x, y), 0, 2)


# ---- rooms

class Meeting(gp_module._Room):
    "A room in which two threads look whether there is space at the same time, if nothing keeps them apart"
    barrier = threading.Barrier(2)
    @property
    def used(self):
        with contextlib.suppress(threading.BrokenBarrierError): self.barrier.wait(.5)
        return self._used
    @used.setter
    def used(self, value): self._used = value


def test_two_threads_extend_one_posterior():
    gp, (x, y, q) = GaussianProcess(SquaredExponential()), problem(60)
    trunk = gp.prepare(x[:40], y[:40]).extend(x[40:42], y[40:42])
    trunk.room.__class__, trunk.room._used = Meeting, trunk.room.__dict__.pop('used')
    parts, found = (slice(42, 45), slice(50, 53)), [None, None]
    def work(i): found[i] = trunk.extend(x[parts[i]], y[parts[i]])
    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    for t in threads: t.start()
    for t in threads: t.join()
    for own, post in zip(parts, found):
        fresh = gp.prepare(torch.cat([x[:42], x[own]]), torch.cat([y[:42], y[own]]))
        close(post.mean(q), fresh.mean(q)); close(post.covariance(q), fresh.covariance(q))


@pytest.mark.parametrize('wanted', ['support', 'encodings', 'query'])
def test_backward_through_the_posterior_that_was_extended(wanted):
    "The rows that `extend` writes are none of those that a backward pass through an older posterior reads"
    gp, (x, y, q) = GaussianProcess(SquaredExponential()), problem(60)
    leaf = dict(support=x, encodings=y, query=q)[wanted].requires_grad_()
    def loss(post):
        of_mean = (post.mean(q)**2).sum()
        return of_mean if wanted == 'encodings' else of_mean + (post.variance(q)**2).sum()
    first = gp.prepare(x[:40], y[:40])
    for n in (42, 45): first = first.extend(x[len(first):n], y[len(first):n])  # room is left after these
    expected, = torch.autograd.grad(loss(first), leaf, retain_graph=True)
    value = loss(first)
    with torch.no_grad(): second = first.extend(x[45:48], y[45:48])
    assert second.room is first.room
    found, = torch.autograd.grad(value, leaf)
    assert torch.equal(found, expected)


def test_rooms_and_inference_mode():
    "What was learnt in inference mode can be extended and differentiated outside of it, and the other way round"
    gp, (x, y, q) = GaussianProcess(SquaredExponential()), problem(60)
    with torch.inference_mode(): inside = gp.prepare(x[:40], y[:40]).extend(x[40:42], y[40:42])
    outside = inside.extend(x[42:45], y[42:45])
    fresh = gp.prepare(x[:45], y[:45])
    close(outside.mean(q), fresh.mean(q))
    with torch.inference_mode(): fresh.mean(q)  # makes the weights
    for post in (fresh, outside):
        leaf = q.clone().requires_grad_()
        assert torch.autograd.grad(post.mean(leaf).sum(), leaf)[0].abs().sum() > 0
    for twin in (copy.deepcopy(outside), pickle.loads(pickle.dumps(outside))):
        close(twin.extend(x[45:], y[45:]).mean(q), gp.prepare(x, y).mean(q))


# ---- devices without float64

@pytest.fixture
def no_float64(monkeypatch):
    "As if this device had no float64; what needs it goes to the CPU, and says so"
    monkeypatch.setattr(gp_module, 'has_float64', lambda device: False)
    gp_module._warn_no_float64.cache_clear()
    yield
    gp_module._warn_no_float64.cache_clear()


def test_a_device_without_autocast_has_none_to_switch_off(monkeypatch):
    "PyTorch 2.4 refuses `torch.autocast` for Apple's GPUs, even to switch it off"
    monkeypatch.setattr(torch.amp, 'is_autocast_available', lambda kind: False)
    monkeypatch.setattr(torch, 'autocast', None)
    with kernels_module.no_autocast(SimpleNamespace(device=torch.device('mps'))): pass


def test_only_apple_has_none():
    assert [has_float64(torch.device(d)) for d in ('cpu', 'cuda:0', 'mps', 'mps:0')] == [True, True, False, False]


class Shaky(SquaredExponential):
    "A kernel that float32 ruins beyond any jitter"
    def lower(self, u):
        K = super().lower(u)
        return K if K.dtype == torch.float64 else K - .1*torch.eye(K.shape[-1])


@pytest.mark.parametrize('case', ['tiny noise', 'float32 fails', 'max_points', 'max_points and strata'])
def test_float64_elsewhere_gives_the_same_and_says_it_once(no_float64, case):
    x, y, q = problem(40, 12, 4, 2, (2,), dtype=torch.float32)
    strata = (torch.arange(40) % 4 == 0).expand(2, 40) if 'strata' in case else None
    def make():
        kernel = Shaky() if case == 'float32 fails' else SquaredExponential()
        return GaussianProcess(kernel, 1e-9 if case == 'tiny noise' else .01, 20 if 'max_points' in case else None)
    with pytest.MonkeyPatch.context() as own:
        own.setattr(gp_module, 'has_float64', lambda device: True)
        expected = make().prepare(x, y, strata).predict(q)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        posts = [make().prepare(x, y, strata) for _ in range(3)]
    assert [str(w.message)[:29] for w in caught] == ['The device cpu has no float64']
    assert posts[0].dtype == (torch.float32 if 'max_points' in case else torch.float64)
    for a, b in zip(posts[0].predict(q), expected):
        assert a.dtype == torch.float32 and torch.equal(a, b)
    assert posts[0].extend(x[:, :2] + 1, y[:, :2]).drop([0]).mean(q).dtype == torch.float32
    if 'max_points' not in case: assert all(t.dtype == torch.float32 for t in posts[0].leave_out(4))


class NoFloat64OffTheCPU(TorchDispatchMode):
    "Refuse every float64 tensor that is not on the CPU"
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **kwargs or {})
        for t in out if isinstance(out, (tuple, list)) else [out]:
            float64 = isinstance(t, torch.Tensor) and t.dtype == torch.float64
            assert not float64 or t.device.type == 'cpu', f'{func} makes float64 on {t.device}'
        return out


def put(module, device):
    "Parameters of `module` as empty ones on `device`: `module.to` would ask for a real one"
    put_one = lambda p: torch.nn.Parameter(torch.empty(p.shape, device=device))
    for m in module.modules(): m._parameters = {name: put_one(p) for name, p in m._parameters.items()}
    return module


@pytest.mark.parametrize('max_points', [None, 4])
@pytest.mark.parametrize('fine', [False, True])
def test_devices_and_types_where_there_is_no_float64(monkeypatch, fine, max_points):
    """No such GPU is here, but PyTorch can follow devices and types of one without numbers ('lazy' stands for it), and
    refuses to mix them"""
    fake, nothing = pytest.importorskip('torch._subclasses.fake_tensor'), lambda *_: contextlib.nullcontext()
    for module in (gp_module, kernels_module): monkeypatch.setattr(module, 'no_autocast', nothing)
    monkeypatch.setattr(gp_module, 'has_float64', lambda device: device.type == 'cpu')
    monkeypatch.setattr(gp_module, 'check_finite', lambda **tensors: None)  # these four look at numbers
    monkeypatch.setattr(GaussianProcess, 'too_fine', lambda self, x: fine)
    monkeypatch.setattr(gp_module, 'factorise', lambda make: torch.linalg.cholesky_ex(make())[0])
    monkeypatch.setattr(gp_module, 'choose_points', lambda kernel, x, n, strata=None: torch.arange(n, device=x.device))
    monkeypatch.setattr(gp_module, '_cached_index', gp_module.window_index)
    gp_module._warn_no_float64.cache_clear()
    try:
        with fake.FakeTensorMode(): torch.empty(1, device='lazy').to('cpu')
    except Exception as e: pytest.skip(f'this PyTorch does not know the device: {e}')
    with warnings.catch_warnings(), fake.FakeTensorMode(), NoFloat64OffTheCPU():
        warnings.simplefilter('ignore')
        kernel = RationalQuadratic(learn=True) + Linear(learn=True)
        gp = put(GaussianProcess(kernel, max_points=max_points, learn_noise=True), 'lazy')
        x, y, q = (torch.empty(2, n, d, device='lazy', requires_grad=True) for n, d in ((8, 3), (8, 2), (6, 3)))
        post = gp.prepare(x, y, torch.zeros(8, device='lazy'))
        assert (post.device.type, post.dtype) == (('cpu', torch.float64) if fine else ('lazy', torch.float32))
        post = post.extend(x[:, :2], y[:, :2])
        answers = [*post.predict(q, 'window', (2, 3)), post.covariance(q), post.mean(q.half())]
        if max_points is None: answers += post.leave_out(2)
        assert {t.device.type for t in answers} == {'lazy'}
        assert {t.dtype for t in answers} == {torch.float32, torch.float16}
        leaves = [x, y, q, *gp.parameters()]
        gradients = torch.autograd.grad(sum(a.float().sum() for a in answers), leaves)
        for t, g in zip(leaves, gradients): assert (g.device, g.dtype) == (t.device, t.dtype)


def test_gradients_reach_learnt_hyperparameters_through_a_moved_kernel():
    kernel, (x, _, _) = (RationalQuadratic(learn=True) + Linear(learn=True)).double(), problem()
    twin = gp_module._kernel_on(kernel, torch.device('cpu:0'))  # another name of the CPU
    assert twin is not kernel and twin.kernels[0] is not kernel.kernels[0]
    found, expected = (torch.autograd.grad(k(x).sum(), list(kernel.parameters())) for k in (twin, kernel))
    for a, b in zip(found, expected): close(a, b)
