# tests/training/test_rewritten_inputs.py
"""What a compiled function writes to its inputs has a history afterwards, as eager's in-place operators leave it."""

import gc
import weakref

import pytest
import torch

import torchbolt


def leaf(*sizes):
    return torch.randn(*sizes, dtype=torch.float64, requires_grad=True)


def plain(*sizes):
    return torch.randn(*sizes, dtype=torch.float64)


def add_linear(x, w):
    x.add_((x * 2).detach() @ w)


def masked(x, w):
    x[x > 0.5] = w[0, 0]


def masked_rows(x, w):
    mask = torch.tensor([True, False, True, False])
    x[mask] = w[0]
    return x * 2


def copied(x, w):
    x.copy_(torch.tanh((x * 0.5) @ w))
    return x


def a_row(x, w):
    x[1] = w[0].exp()


def a_row_through_a_view(x, w):
    row = x[1]
    row.mul_(w[0])
    return row * 3, row


def read_afterwards(x, w):
    x.mul_(w.sum())
    return (x * x).sum(), x[0]


def read_on_both_sides(x, w):
    y = x.sum() * w[0]
    x.add_(y)
    return y, x.sin() @ w


def written_twice(x, w):
    x.mul_(2)
    x.add_(w[0])
    z = x.sum()
    x.mul_(w[1])
    return z


def written_without_gradients_too(x, w):
    x.mul_(w[0])
    with torch.no_grad():
        x.add_(1)
    return x.cos()


def a_view_is_given(x, w):
    x.t()[0].add_(w[0].sum())
    return x.t(), x.detach() + 1


PROGRAMS = [
    add_linear,
    masked,
    masked_rows,
    copied,
    a_row,
    a_row_through_a_view,
    read_afterwards,
    read_on_both_sides,
    written_twice,
    written_without_gradients_too,
    a_view_is_given,
]

# What is written to, and what the caller has of it.
INPUTS = {
    "a buffer": lambda: (plain(4, 4), None),
    "made of a leaf": lambda: (lambda a: (a * 1.5, a))(leaf(4, 4)),
    "a view": lambda: (plain(3, 4, 4)[1], None),
    "a view of what is made of a leaf": lambda: (lambda a: ((a * 1.5)[1], a))(leaf(3, 4, 4)),
    "turned": lambda: (lambda a: ((a * 1.5).t(), a))(leaf(4, 4)),
}


def everything(fn, make, seed):
    """All that a caller can see of a call and of the passes behind it."""
    torch.manual_seed(seed)
    x, source = make()
    w = leaf(4, 4)
    base = x._base
    before = None if base is None else base[0, 0] if base.dim() == 3 else base[0]  # an older view
    results = fn(x, w)
    results = [r for r in (results if isinstance(results, tuple) else (results,)) if r is not None]
    leaves = [w] if source is None else [w, source]
    seen = [r for r in (x, base, before, *results) if r is not None]
    grads = []
    for r in seen:
        if r.requires_grad:
            grads.append(torch.autograd.grad(r.pow(2).sum(), leaves, retain_graph=True, allow_unused=True))
    for r in results:
        # Of a view, eager does not lead what was shown before the write through the input.
        if base is None and r.requires_grad and x.requires_grad and r is not x:
            grads.append(torch.autograd.grad(r.sum(), x, retain_graph=True, allow_unused=True))
    sum(r.sin().sum() for r in seen if r.requires_grad).backward()
    shown = [(r.requires_grad, r.is_leaf, r._is_view(), r._version, r.detach().clone()) for r in seen]
    return shown, grads, [t.grad for t in leaves]


@pytest.mark.parametrize("kind", INPUTS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_like_eager(program, kind):
    fast = torchbolt.compile(program)
    for seed in range(3):
        want = everything(program, INPUTS[kind], seed)
        got = everything(fast, INPUTS[kind], seed)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    stats = torchbolt.stats()
    assert stats["eager_fallbacks"] == 0, torchbolt.explain(fast)


@pytest.mark.parametrize("turn", [lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x.mul_(2).t_()])
def test_an_input_is_turned(turn):
    fast = torchbolt.compile(lambda x: (turn(x), x.sin()))
    for _ in range(3):
        found = []
        for run in (lambda x: (turn(x), x.sin()), fast):
            a = torch.ones(6, 10, requires_grad=True)
            x = a * 3
            sum(t.sum() for t in (*run(x), x)).backward()
            found.append((x.shape, x.stride(), a.grad))
        assert found[0][:2] == found[1][:2]
        torch.testing.assert_close(found[1][2], found[0][2])


def test_errors_are_eagers():
    fast = torchbolt.compile(lambda x, w: x.mul_(w))
    for _ in range(2):
        fast(leaf(3) * 1, leaf(3))
    x = leaf(3)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place"):
        fast(x, leaf(3))
    assert x._version == 0 and x.grad_fn is None
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        fast(leaf(2, 3)[0], leaf(3))
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        fast((leaf(2, 3) * 1).unbind()[0], leaf(3))
    x = leaf(3) * 1
    torch.testing.assert_close(fast(x, torch.ones(3, dtype=torch.float64, requires_grad=True)), x)


def test_what_is_written_later_is_missed():
    def fn(x, w):
        x.copy_(w.sigmoid())
        return x.sum()

    fast = torchbolt.compile(fn)
    for _ in range(3):
        for run in (fn, fast):
            x, w = plain(4), leaf(4)
            loss = run(x, w)
            x.add_(1)
            x.sum().backward(retain_graph=True)
            x, w = plain(4), leaf(4)
            loss = run(x, w)
            loss.backward()
            with pytest.raises(RuntimeError, match="second time"):
                loss.backward()


def test_nothing_is_kept_alive():
    def fn(x, w):
        x.mul_(w.exp())
        return x.sigmoid()

    fast = torchbolt.compile(fn)
    for _ in range(3):
        x, w = plain(8), leaf(8)
        result = fast(x, w)
        held = weakref.ref(x), weakref.ref(result)
        del x, result
        gc.collect()
        assert [each() for each in held] == [None, None]


def test_hooks_and_gradients_of_gradients():
    def fn(x, w):
        x.mul_(w)
        x.sin_()
        return x * w

    fast = torchbolt.compile(fn)
    for _ in range(3):
        seen = []
        for run in (fn, fast):
            torch.manual_seed(1)
            a, w = leaf(4), leaf(4)
            x = a * 2
            calls = []
            x.register_hook(lambda g, calls=calls: calls.append(("before", g.detach().clone())))
            y = run(x, w)
            x.register_hook(lambda g, calls=calls: calls.append(("after", g.detach().clone())))
            x.retain_grad()
            first = torch.autograd.grad(y.square().sum(), (a, w), create_graph=True)
            second = torch.autograd.grad(sum(g.square().sum() for g in first), (a, w))
            seen.append(([[g for at, g in calls if at == name] for name in ("before", "after")], first, second))
        torch.testing.assert_close(seen[1], seen[0])


def test_gradients_of_gradients_where_a_later_piece_writes():
    """Eager saves nothing of x for its sum, and a second run of the first piece has it as it was."""

    def fn(x, w):
        y = w * x.sum()
        x += y
        return torch.maximum(y, x), y

    def after(h, w):
        h = h * w
        y = h.mean() * w
        h.add_(1)
        return y, (h * y).sum()

    for each in (fn, after):
        fast = torchbolt.compile(each)
        for _ in range(3):
            seen = []
            for run in (each, fast):
                torch.manual_seed(1)
                a, w = leaf(4), leaf(4)
                first = torch.autograd.grad(sum(y.square().sum() for y in run(a * 2, w)), (a, w), create_graph=True)
                seen.append((first, torch.autograd.grad(sum(g.square().sum() for g in first), (a, w))))
            torch.testing.assert_close(seen[1], seen[0])
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_gradients_of_gradients_after_another_call():
    """Eager saves a mask, and nothing of x, which each call writes to: what is kept for a second run is a copy."""

    def fn(x):
        x[1:] = x[:-1].clone()
        y = x.masked_fill(x < 0, -1.5)
        return y, y.expand(2, 5)

    fast = torchbolt.compile(fn)
    for _ in range(3):
        seen = []
        for run in (fn, fast):
            torch.manual_seed(1)
            a = leaf(5)
            x = a * 2
            result = run(x)[1]
            run(x)
            seen.append(torch.autograd.grad(result.sum(), a, create_graph=True)[0])
        torch.testing.assert_close(seen[1], seen[0])


def test_a_module_whose_buffer_gets_a_history():
    class Router(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4, dtype=torch.float64)
            self.register_buffer("load", torch.zeros(4, dtype=torch.float64))

        def forward(self, x):
            weights = self.linear(x).softmax(-1)
            self.load.copy_(weights.mean(0))
            return (weights * self.load).sum()

    def losses(compiled):
        torch.manual_seed(0)
        model = Router()
        fast, optimizer = compiled(model), torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            model.load = model.load.detach()
            loss = fast(plain(6, 4))
            loss.backward()
            optimizer.step()
            yield loss.detach(), model.load.requires_grad, model.load.detach().clone()

    torch.testing.assert_close(list(losses(torchbolt.compile)), list(losses(lambda m: m)))
    assert torchbolt.stats()["eager_fallbacks"] == 0


def detached_and_written(x, w):
    y = x.detach()
    y.mul_(w)
    return y * 2


def detached_written_and_given(x, w):
    y = x.detach()
    y[0].mul_(w[0])
    return y, y * 2


def made_of_itself(x, w):
    total = x.mean() * w
    y = x.detach()
    y.sub_(total)
    return w.sin() * y


def a_view_of_it_too(x, w):
    y = x.detach()
    y.mul_(w)
    row = y[1]
    return row, y, (row * x).sum()


def read_again_by_its_gradient(x, w):
    y = x.t().detach()
    y.mul_(w).add_(w.sin())
    return y.exp() * x, y


@pytest.mark.parametrize(
    "program",
    [detached_and_written, detached_written_and_given, made_of_itself, a_view_of_it_too, read_again_by_its_gradient],
)
def test_what_is_written_through_a_detached_tensor_has_a_history_there(program):
    torchbolt.reset()
    fast = torchbolt.compile(program)
    for _ in range(3):
        seen = []
        for fn in (program, fast):
            torch.manual_seed(1)
            x, w = leaf(4, 4), leaf(4, 4)
            results = fn(x, w)
            results = results if isinstance(results, tuple) else (results,)
            gradients = torch.autograd.grad(sum(r.sum() for r in results), (x, w), allow_unused=True)
            names = [r.requires_grad and r.grad_fn is not None for r in results]
            seen.append((names, [r._is_view() for r in results], x._version, gradients, x.detach()))
        torch.testing.assert_close(seen[1], seen[0])
    assert torchbolt.stats()["eager_fallbacks"] == 0
