# tests/training/test_trained.py
"""The node that a compiled function leaves in autograd's graph does what eager's nodes do."""

import copy
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from leaves import compiled_whole, leaf, mlp, operands
from torch import nn

import torchbolt


def test_backward_and_grad():
    fast, check = compiled_whole(mlp)
    for _ in range(3):
        at = operands()
        want = torch.autograd.grad(mlp(*at).sum(), at)
        torch.testing.assert_close(torch.autograd.grad(fast(*at).sum(), at), want)
        fast(*at).sum().backward()
        torch.testing.assert_close([t.grad for t in at], list(want))
    check()


@pytest.mark.parametrize("wanted", [[0], [1], [2], [0, 2]])
def test_some_inputs(wanted):
    fast, check = compiled_whole(mlp)
    at = operands()
    some = [at[i] for i in wanted]
    torch.testing.assert_close(torch.autograd.grad(fast(*at).sum(), some), torch.autograd.grad(mlp(*at).sum(), some))
    fast(*at).sum().backward(inputs=some)
    assert [t.grad is not None for t in at] == [i in wanted for i in range(3)]
    check()


def test_inputs_that_require_no_gradient_are_a_guard():
    fast = torchbolt.compile(mlp)
    at = operands()
    for requires in ([True, False, True], [False, False, True], [True, True, True]):
        for t, r in zip(at, requires, strict=True):
            t.requires_grad_(r)
            t.grad = None
        fast(*at).sum().backward()
        assert [t.grad is not None for t in at] == requires


def test_outputs_that_nobody_uses_give_no_gradients():
    """Zeros are not the same: an optimizer decays what has a gradient of zeros."""

    def two(x, w, v):
        return (x @ w).relu(), (x * 2) @ v.t() if False else x.sin(), v.cos()

    fast, check = compiled_whole(two)
    for used in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
        grads = []
        for fn in (two, fast):
            at = operands()
            torch.manual_seed(1)
            with torch.no_grad():
                for t in at:
                    t.copy_(torch.randn_like(t))
            results = fn(*at)
            sum(results[i].sum() for i in used).backward()
            grads.append([t.grad for t in at])
        for a, b in zip(*grads, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                torch.testing.assert_close(a, b)
    check()


def test_retain_graph_and_a_second_pass():
    fast, check = compiled_whole(mlp)
    at = operands()
    out = fast(*at).sum()
    first = torch.autograd.grad(out, at, retain_graph=True)
    second = torch.autograd.grad(out, at)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(out, at)
    check()


@pytest.mark.parametrize(
    "run",
    [lambda x, y: torch.cat([x, y], -1), lambda x, y: x.tril() - y, lambda x, y: x.lerp(y, 0.25).unbind(0)[0]],
    ids=["cat", "tril", "a row"],
)
def test_passes_come_again_where_nothing_is_saved(run):
    fast, check = compiled_whole(run)
    x, y = leaf(4, 6), leaf(4, 6)
    for _ in range(4):
        out = fast(x, y).sum()
        first = torch.autograd.grad(out, (x, y))
        torch.testing.assert_close(torch.autograd.grad(out, (x, y)), first)
        followed = torch.autograd.grad(out, (x, y), torch.tensor(2.0, requires_grad=True), create_graph=True)
        assert all(g.requires_grad for g in followed)
        torch.testing.assert_close(followed, tuple(2 * g for g in first))
    check()


def test_gradients_to_differentiate_come_again_beside_a_result_that_is_used_up():
    """What is made of the tangents alone needs no inputs any more."""
    fast, check = compiled_whole(lambda x: (x + 1, x.sin()))
    x = leaf(4, 6)
    for _ in range(4):
        plain, used_up = fast(x)
        torch.autograd.grad([plain.sum(), used_up.sum()], x)
        (again,) = torch.autograd.grad(plain.sum(), x, create_graph=True)
        torch.testing.assert_close(again, torch.ones_like(x))
        assert not again.requires_grad
        (followed,) = torch.autograd.grad(plain.sum(), x, torch.tensor(2.0, requires_grad=True), create_graph=True)
        torch.testing.assert_close(followed, torch.full_like(x, 2.0))
        assert followed.requires_grad
        with pytest.raises(RuntimeError, match="a second time"):
            torch.autograd.grad(used_up.sum(), x, create_graph=True)
    check()


def test_gradients_accumulate():
    fast, check = compiled_whole(mlp)
    at = operands()
    for _ in range(3):
        fast(*at).sum().backward()
    want = torch.autograd.grad(mlp(*at).sum(), at)
    torch.testing.assert_close([t.grad for t in at], [3 * g for g in want])
    check()


def test_gradients_are_the_parameters_own():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
    fast = torchbolt.compile(model)
    fast(torch.randn(5, 8)).sum().backward()
    places = [p.grad.data_ptr() for p in model.parameters()]
    assert len(set(places)) == len(places)
    assert all(p.grad.stride() == p.stride() and p.grad._base is None for p in model.parameters())


def test_hooks():
    def steps(fn):
        seen = []
        at = operands()
        torch.manual_seed(3)
        with torch.no_grad():
            for t in at:
                t.copy_(torch.randn_like(t))
        at[0].register_hook(lambda g: g * 2)
        at[1].register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.clone()))
        out = fn(*at)
        out.register_hook(lambda g: seen.append(g.clone()))
        out.grad_fn.register_hook(lambda ins, outs: seen.append(outs[0].clone()))
        out.grad_fn.register_prehook(lambda outs: seen.append(outs[0].clone()))
        out.retain_grad()
        out.sum().backward()
        return [*seen, out.grad, *(t.grad for t in at)]

    fast, check = compiled_whole(mlp)
    torch.testing.assert_close(steps(fast), steps(mlp))
    check()


def test_saved_tensor_hooks_see_each():
    packed, unpacked = [], []

    def pack(t):
        packed.append(t.shape)
        return t.clone()

    def unpack(t):
        unpacked.append(t.shape)
        return t

    fast, check = compiled_whole(mlp)
    for _ in range(2):
        at = operands()
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            out = fast(*at)
        want = torch.autograd.grad(mlp(*at).sum(), at)
        torch.testing.assert_close(torch.autograd.grad(out.sum(), at), want)
    assert packed and sorted(packed) == sorted(unpacked)
    with torch.autograd.graph.save_on_cpu():
        out = fast(*at)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), at), want)
    check()


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_saved_input_that_is_written(which):
    fast, check = compiled_whole(mlp)
    at = operands()
    out = fast(*at)
    with torch.no_grad():
        at[which].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    check()


def test_a_result_that_is_written():
    """exp() saves its result, and twice() saves nothing."""
    saves, check = compiled_whole(lambda x: x.exp())
    x = leaf(4)
    out = saves(x)
    out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    check()
    twice = torchbolt.compile(lambda x: x * 2 + 1)
    out = twice(x)
    out.mul_(3)
    out[0].add_(1)
    out.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((4,), 6.0))


def test_views_of_results_and_inputs():
    def parts(x):
        y = x * 2
        a, b = y[:2], y[2:]
        return a, b, x[0], x.t(), y.detach()

    fast, check = compiled_whole(parts)
    for _ in range(2):
        x = leaf(4, 3)
        a, b, row, turned, detached = fast(x)
        assert a._base is b._base and a._base is not None
        assert row._base is x and turned._base is x
        assert not detached.requires_grad
        assert type(row.grad_fn).__name__ == "SelectBackward0"
        b.mul_(5)
        (a.sum() + b.sum() + (row * 3).sum() + turned.sum()).backward()
        again = x.detach().clone().requires_grad_()
        c, d, row, turned, _ = parts(again)
        d.mul_(5)
        (c.sum() + d.sum() + (row * 3).sum() + turned.sum()).backward()
        torch.testing.assert_close(x.grad, again.grad)
    check()


def test_a_result_and_a_part_of_it():
    def parts(x):
        y = x.exp()
        return y, y[1:], y.t()

    fast, check = compiled_whole(parts)
    x = leaf(3, 3)
    whole, part, turned = fast(x)
    assert part._base is whole and turned._base is whole
    (whole.sum() + 2 * part.sum() + (turned * turned).sum()).backward()
    want = torch.autograd.grad((lambda a, b, c: a.sum() + 2 * b.sum() + (c * c).sum())(*parts(x)), x)[0]
    torch.testing.assert_close(x.grad, want)
    check()


@pytest.mark.parametrize("bias", [True, False])
def test_a_part_of_what_is_a_view_below_autograd(bias):
    """linear() of three dimensions is one of two, which no tensor of the program is."""

    def fn(x, w, b):
        whole = F.linear(x, w, b if bias else None)
        return whole, whole.flatten(0, 1), x[0], b.sin()

    fast, check = compiled_whole(fn)
    for _ in range(3):
        x, w, b = leaf(2, 3, 4), leaf(5, 4), leaf(5)
        grads = []
        for f in (fn, fast):
            whole, flat, row, other = f(x, w, b)
            loss = flat.sin().sum() + row.sum() + other.sum()
            grads.append(torch.autograd.grad(loss, [whole, flat, x, w, b], retain_graph=True))
            whole.mul_(2)
            loss = flat.sin().sum() + row.sum() + other.sum()
            grads[-1] += torch.autograd.grad(loss, [x, w, b])
        torch.testing.assert_close(*grads)
    check()


def test_an_expanded_and_a_turned_gradient():
    fast, check = compiled_whole(lambda x: x.sin() * 2)
    x = leaf(4, 4)
    for make in (lambda y: y.sum(), lambda y: (y.t() * torch.arange(16.0).view(4, 4)).sum(), lambda y: y[:, 0].sum()):
        got, want = torch.autograd.grad(make(fast(x)), x), torch.autograd.grad(make(x.sin() * 2), x)
        torch.testing.assert_close(got, want)
    check()


def test_an_input_made_in_inference_mode():
    """Eager saves nothing of it, and what is kept for gradients of gradients is not saved either."""

    def fn(x, y):
        return (x * 2).sin(), y.clone()

    fast = torchbolt.compile(fn)
    with torch.inference_mode():
        beside = torch.randn(4)
    for _ in range(3):
        seen = []
        for run in (fn, fast):
            torch.manual_seed(1)
            x = torch.randn(4, requires_grad=True)
            (first,) = torch.autograd.grad(run(x, beside)[0].sum(), x, create_graph=True)
            seen.append((first, *torch.autograd.grad(first.sum(), x)))
        torch.testing.assert_close(seen[1], seen[0])


def test_anomaly_mode_and_names():
    fast, check = compiled_whole(lambda x: x.sqrt())
    x = torch.zeros(2, requires_grad=True)
    fast(x)
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="TorchboltBackward.*nan"):
        (fast(x) * 0).sum().backward()
    assert fast(x).grad_fn.name() == "TorchboltBackward"
    check()


def test_what_is_saved_goes():
    fast, check = compiled_whole(mlp)
    at = operands()
    fast(*at).sum().backward()
    x = leaf(4, 6)
    kept = weakref.ref(x)
    out = fast(x, at[1], at[2])
    del x
    assert kept() is not None
    del out
    gc.collect()
    assert kept() is None
    check()


def test_statistics_are_updated_once():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
    eager = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 2))
    eager.load_state_dict(model.state_dict())
    fast, check = compiled_whole(model)
    for _ in range(3):
        x = torch.randn(5, 3, 8, 8)
        for m in (fast, eager):
            m.zero_grad()
            m(x).square().mean().backward()
        for (name, a), (_, b) in zip(model.state_dict().items(), eager.state_dict().items(), strict=True):
            torch.testing.assert_close(a, b, msg=name)
        for a, b in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    check()


def test_shared_parameters_and_frozen_parts():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(11, 6)
            self.mid = nn.Linear(6, 6)
            self.head = nn.Linear(6, 11, bias=False)
            self.head.weight = self.embed.weight
            self.mid.bias.requires_grad_(False)

        def forward(self, ids, labels):
            return F.cross_entropy(self.head(self.mid(self.embed(ids)).relu()), labels)

    model = Tied()
    fast, check = compiled_whole(model)
    ids, labels = torch.randint(11, (7,)), torch.randint(11, (7,))
    want = torch.autograd.grad(model(ids, labels), [p for p in model.parameters() if p.requires_grad])
    fast(ids, labels).backward()
    torch.testing.assert_close([p.grad for p in model.parameters() if p.requires_grad], list(want))
    assert model.mid.bias.grad is None
    check()


def test_a_training_loop_as_eagers():
    def train(wrap):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 3))
        step = wrap(model)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for _ in range(30):
            x = torch.randn(16, 10)
            loss = F.cross_entropy(step(x), x[:, :3].argmax(1))
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        return losses

    torch.testing.assert_close(train(torchbolt.compile), train(lambda m: m), rtol=1e-3, atol=1e-4)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_autocast_inside_and_outside():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))

    def inside(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(x)

    fast, whole = torchbolt.compile(inside), torchbolt.compile(model)
    x = torch.randn(5, 8)
    results = []
    for fn in (inside, fast, whole):
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=fn is whole):
            out = fn(x)
        out.float().square().sum().backward()
        results.append([out.dtype, *(p.grad.clone() for p in model.parameters())])
    for got in results[1:]:
        assert got[0] is results[0][0]
        torch.testing.assert_close(got[1:], results[0][1:], rtol=2e-2, atol=2e-2)


def test_weights_that_autocast_casts_without_gradients_first():
    """Autocast keeps a weight's cast, and casts so that it has a gradient, whoever asked for it first."""
    first, second = nn.Linear(8, 8), nn.Linear(8, 4)

    def f(x):
        with torch.no_grad():
            y = first(x).relu()
        return second(first(x + y))

    fast, check = compiled_whole(f)
    parameters = [*first.parameters(), *second.parameters()]
    for _ in range(3):
        x = leaf(5, 8)
        got, want = [], []
        for fn, gradients in ((fast, got), (f, want)):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = fn(x)
            gradients += torch.autograd.grad(out.float().square().sum(), [x, *parameters])
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
    check()


def test_checkpoint_around_and_within():
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    fast = torchbolt.compile(model)
    x = leaf(5, 8)
    for reentrant in (False, True):
        torchbolt.reset()
        within = torchbolt.compile(lambda x, r=reentrant: checkpoint(model, x.sin(), use_reentrant=r))
        results = []
        for fn in (
            lambda x: checkpoint(model, x, use_reentrant=False),
            lambda x, r=reentrant: checkpoint(fast, x, use_reentrant=r),
        ):
            model.zero_grad()
            out = fn(x)
            x.grad = None
            out.sum().backward()
            results.append([out, x.grad])
        torch.testing.assert_close(results[1], results[0])
        want = torch.autograd.grad(model(x.sin()).sum(), x)
        torch.testing.assert_close(torch.autograd.grad(within(x).sum(), x), want) if not reentrant else None


def after_relu(p, q):
    return (p @ q).relu()


def twice_after_softmax(p, q):
    y = (p @ q).softmax(-1)
    return y, [y, p]


@pytest.mark.parametrize("function", [after_relu, twice_after_softmax])
def test_results_of_checkpoints_are_written_to(function):
    """The last operator reads its own result again, which eager makes again for it: the caller may write to it."""
    from torch.utils.checkpoint import checkpoint

    def residual(x, w):
        y = checkpoint(function, x, w, use_reentrant=False)
        y = y if isinstance(y, torch.Tensor) else y[0]
        y += x
        return y * y

    def shared(x, w):
        y, (same, given) = checkpoint(twice_after_softmax, x, w, use_reentrant=False)
        y.mul_(2)
        return same * given.sin()

    for fn in (residual, shared):
        torchbolt.reset()
        fast, check = compiled_whole(fn)
        for _ in range(3):
            x, w = leaf(6, 5), leaf(5, 5)
            results = []
            for each in (fn, fast):
                y = each(x, w)
                y.mul_(0.5)  # by the caller, too
                results.append([y, *torch.autograd.grad(y.sum(), (x, w))])
            torch.testing.assert_close(results[1], results[0])
        check()


def test_threads():
    from concurrent.futures import ThreadPoolExecutor

    fast, check = compiled_whole(mlp)
    at = operands()
    fast(*at).sum().backward()
    want = torch.autograd.grad(mlp(*at).sum(), at)
    with ThreadPoolExecutor(4) as pool:
        for got in pool.map(lambda _: torch.autograd.grad(fast(*at).sum(), at), range(50)):
            torch.testing.assert_close(got, want)
    check()


def test_several_passes_through_batch_norm_before_their_backward_passes():
    """Each forward pass writes running statistics; no backward pass reads them."""
    torch.manual_seed(0)
    eager = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Conv2d(8, 4, 3)).double()
    ours = copy.deepcopy(eager)
    compiled = torchbolt.compile(ours)
    for _ in range(3):
        batches = [torch.randn(2, 3, 8, 8, dtype=torch.float64) for _ in range(3)]
        for run in (compiled, eager):
            losses = [run(x).square().mean() for x in batches]
            for loss in losses:
                loss.backward()
    for a, b in zip([*ours.parameters(), *ours.buffers()], [*eager.parameters(), *eager.buffers()], strict=True):
        torch.testing.assert_close(a, b)
        if a.requires_grad:
            torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("zeros", [[], [3], [0], [5], [1, 3], [1, 2, 5]])
def test_products_with_zeros(zeros):
    def fn(x, y):
        return x.cumprod(1).sin().sum() + (x.prod(1) * y).sum() + y.prod() + y.prod(0, keepdim=True).exp().sum()

    fast, check = compiled_whole(fn)
    for _ in range(2):
        x, y = torch.randn(3, 6, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
        x[1, zeros] = 0
        y[[at for at in zeros if at < 3]] = 0
        x.requires_grad_(), y.requires_grad_()
        want = torch.autograd.grad(fn(x, y), (x, y))
        torch.testing.assert_close(torch.autograd.grad(fast(x, y), (x, y)), want)
    check()


def test_complex_numbers_in_between():
    """Fourier transforms, and positions as turns: ATen's calls among kernels, in both directions."""
    mixed = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    turns = torch.polar(torch.ones(5, 4), torch.arange(20.0).view(5, 4))

    def run(x):
        turned = torch.view_as_real(torch.view_as_complex(x.view(2, 5, 4, 2)) * turns).flatten(2)
        return mixed(torch.fft.fftn(turned, dim=(1, 2)).real + x).tanh()

    fast = torchbolt.compile(lambda x: run(x))
    for _ in range(3):
        x = torch.randn(2, 5, 8, requires_grad=True)
        wanted = [x, *mixed.parameters()]
        want, got = run(x), fast(x)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(
            torch.autograd.grad(got.square().sum(), wanted), torch.autograd.grad(want.square().sum(), wanted),
            rtol=1e-4, atol=1e-5,
        )  # fmt: skip
    assert [r["why_replayed"] for r in fast._regions()] == [""]


def test_bounds_out_of_tensors_that_the_code_makes():
    """Funnel transformers: how far positions lie apart is known by the code alone, so nothing is read when it runs."""

    def fn(x, w):
        position = torch.arange(x.shape[0])
        pooled = torch.cat([position.new_tensor([-1]), position[1::2]])
        furthest = pooled[0] - position[0] + 2 * len(pooled)
        apart = torch.arange(furthest, pooled[0] - position[-1] - 1, -2)
        return torch.tanh(x * w[apart + 20].sum(0))

    fast, check = compiled_whole(fn)
    at = leaf(8, 4), leaf(40, 4)
    for _ in range(3):
        want = torch.autograd.grad(fn(*at).sum(), at)
        torch.testing.assert_close(torch.autograd.grad(fast(*at).sum(), at), want)
    check()
    assert "Replayed" not in str(torchbolt.explain(fast))


def test_bounds_out_of_tensors_that_were_written_to():
    """What is read is what there was then."""

    def fn(x, n):
        ends = torch.tensor([0, 4])
        first = torch.arange(ends[0], ends[1])
        ends[1] = n.sum()
        return x.sin() * first[:1], torch.arange(ends[0], ends[1])

    fast = torchbolt.compile(fn)
    for n in (3, 5, 3, 7):
        at = leaf(4)
        for ours, eagers in zip(fast(at, torch.tensor([n])), fn(at, torch.tensor([n])), strict=True):
            torch.testing.assert_close(ours, eagers)


def test_hooks_that_make_whole_what_was_expanded():
    """As save_on_cpu does. What is read as one element for all is not written to once for each."""

    def fn(x):
        wide = x.expand(3, *x.shape)
        return torch.sin(wide), wide**2

    fast = torchbolt.compile(fn)
    x = torch.randn(4, 5, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: t.clone(memory_format=torch.contiguous_format), lambda t: t
    ):
        want = torch.autograd.grad([t.sum() for t in fn(x)], x)
        for _ in range(3):
            torch.testing.assert_close(torch.autograd.grad([t.sum() for t in fast(x)], x), want)
            torch.testing.assert_close(torch.autograd.grad(fast(x)[0].sum(), x), torch.autograd.grad(fn(x)[0].sum(), x))


def test_what_depends_on_constants_alone_is_computed_once():
    """Places and weights of a resized image, forward and backward."""

    def run(x):
        return F.interpolate(x, (5, 7), mode="bilinear").sin()

    torchbolt.reset()
    compiled = torchbolt.compile(run)
    x = torch.randn(2, 3, 16, 19, requires_grad=True)

    def step():
        return torch.autograd.grad(compiled(x).sum(), x)[0]

    for _ in range(3):
        step()
    before = torchbolt.stats()
    for _ in range(3):
        torch.testing.assert_close(step(), torch.autograd.grad(run(x).sum(), x)[0])
    after = torchbolt.stats()
    assert after["foldings"] == before["foldings"]
    assert after["folded_calls"] >= before["folded_calls"] + 3
