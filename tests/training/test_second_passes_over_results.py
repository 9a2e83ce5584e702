# tests/training/test_second_passes_over_results.py
"""Gradients that are differentiated themselves come to results that eager's formulas have saved (sigmoid's has its
own): to their hooks, to `retain_grad()`, and to who asks for their gradient."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F

import torchbolt


def rewritten(x):
    y = x * 1
    y.sigmoid_()
    return y


def written_argument(x):
    x.sigmoid_()
    return x


RESULTS = {
    "sigmoid": torch.sigmoid,
    "behind another": lambda x: (x * 3).tanh(),
    "a view of it": lambda x: x.exp().view(-1, 2)[1:],
    "softmax": lambda x: F.softmax(x, -1),
    "in place": rewritten,
    "the argument itself": written_argument,
    "with what is made of it": lambda x: ((y := x.sigmoid()), (y * y).tanh()),
    "two of one operator": lambda x: torch.linalg.qr(x.view(-1, 2)),
    "two apart": lambda x: (x.sigmoid(), x.tanh()),
}


def results_of(fn, x):
    found = fn(x * 1)
    return list(found) if isinstance(found, tuple) else [found]


def seen_by(how, results, leaf):
    """What a pass over gradients of the results gives, and what those who look at the results see."""
    seen = [[] for _ in results]
    for y, here in zip(results, seen, strict=True):
        if how == "retained":
            y.retain_grad()
        if how == "hooked":
            y.register_hook(lambda g, here=here: (here.append(g.detach().clone()), g * 3)[1])
    loss = sum(
        (y * (i + 1)).square().sum() if how == "with history" else (y * (i + 1)).sum() for i, y in enumerate(results)
    )
    (g,) = torch.autograd.grad(loss, leaf, create_graph=True)
    if how == "asked for":
        return [g, *torch.autograd.grad(g.square().sum(), [leaf, *results], allow_unused=True)]
    if how == "thrice":
        (h,) = torch.autograd.grad(g.square().sum(), leaf, create_graph=True)
        return [g, h, *torch.autograd.grad(h.square().sum(), [leaf, *results], allow_unused=True)]
    g.square().sum().backward()
    return [g, leaf.grad, *(y.grad for y in results if how == "retained"), *sum(seen, [])]


@pytest.mark.parametrize("how", ["retained", "hooked", "asked for", "thrice", "with history"])
@pytest.mark.parametrize("name", RESULTS)
def test_a_pass_comes_to_what_was_saved(name, how):
    fn = torchbolt.compile(RESULTS[name])
    for _ in range(4):
        x = torch.randn(8, dtype=torch.float64)
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        got = seen_by(how, results_of(fn, leaves[0]), leaves[0])
        want = seen_by(how, results_of(RESULTS[name], leaves[1]), leaves[1])
        assert [g is None for g in got] == [w is None for w in want]
        for g, w in zip(got, want, strict=True):
            if w is not None:
                torch.testing.assert_close(g, w, rtol=1e-12, atol=1e-12)


def batched(fn, leaf):
    y = fn(leaf)
    (slopes,) = torch.autograd.grad(y, leaf, torch.eye(8), is_grads_batched=True, create_graph=True)
    (again,) = torch.autograd.grad(slopes.sum(0), leaf, torch.eye(8), is_grads_batched=True, create_graph=True)
    whole = torch.autograd.functional.hessian(lambda t: fn(t).sum(), leaf, vectorize=True, create_graph=True)
    return [slopes, again, whole, *torch.autograd.grad(again.square().sum() + whole.pow(3).sum(), [leaf])]


def mapped(fn, leaf):
    y = fn(leaf)
    slopes = torch.func.vmap(lambda v: torch.autograd.grad(y, leaf, v, create_graph=True)[0])(torch.eye(8))
    return [slopes, *torch.autograd.grad(slopes.square().sum(), leaf)]


@pytest.mark.parametrize("use", [batched, mapped])
def test_all_rows_at_once(use):
    fn = torchbolt.compile(torch.sigmoid)
    for _ in range(4):
        leaf = torch.randn(8).requires_grad_()
        torch.testing.assert_close(use(fn, leaf), use(torch.sigmoid, leaf))


def test_gradients_and_results_let_go_of_each_other():
    fn = torchbolt.compile(torch.sigmoid)
    for _ in range(4):
        leaf = torch.randn(8).requires_grad_()
        made = leaf * 2
        y = fn(made)
        (g,) = torch.autograd.grad(y.sum(), leaf, create_graph=True)
        gone = [weakref.ref(t.untyped_storage()) for t in (made, y, g)]
        del made, y, g
        gc.collect()
        assert [r() for r in gone] == [None] * 3


def test_a_pass_that_keeps_nothing_comes_once():
    fn = torchbolt.compile(torch.sigmoid)
    for _ in range(4):
        leaf = torch.randn(8).requires_grad_()
        y = fn(leaf)
        (g,) = torch.autograd.grad(y.sum(), leaf, create_graph=True)
        loss = g.square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def largest(x):
    top = x.max(0).values
    return x, top.expand_as(x) * top.detach()


def moved(x):
    view = (y := x * 1)[0]
    y.mul_(-1.5)
    return x, view * x.mean()


def through_a_piece(x):
    mean = x.mean(-1, keepdim=True)
    return mean, mean.detach(), x.tanh() * mean.mean()


@pytest.mark.parametrize("run", [largest, moved, through_a_piece])
def test_what_eager_does_not_save_may_be_written(run):
    """The gradients are made of what was saved, and of nothing that stands in the caller's tensors."""
    fn = torchbolt.compile(run)
    for _ in range(5):
        x = torch.randn(4, 6, dtype=torch.float64)
        seen = []
        for f in (fn, run):
            leaf = x.clone().requires_grad_()
            results = f(leaf * 1)
            results[0].detach().mul_(0.5)
            (g,) = torch.autograd.grad(results[-1].square().sum(), leaf, create_graph=True)
            seen.append([g, *torch.autograd.grad(g.square().sum(), leaf)])
        torch.testing.assert_close(*seen)


def advanced(x):
    y = x * 2
    x.detach().add_(2)
    return y


def advanced_before(x):
    x.detach().mul_(2)
    return x.sin() * x


@pytest.mark.parametrize("run", [advanced, advanced_before])
def test_an_argument_that_is_written_beside_its_history(run):
    fn = torchbolt.compile(run)
    for _ in range(4):
        x = torch.randn(8, dtype=torch.float64)
        seen = []
        for f in (fn, run):
            leaf = x.clone().requires_grad_()
            (g,) = torch.autograd.grad(
                f(leaf * 1 if run is advanced_before else leaf).square().sum(), leaf, create_graph=True
            )
            seen.append([g, *torch.autograd.grad(g.square().sum(), leaf)])
        torch.testing.assert_close(*seen)


@pytest.mark.parametrize("run", [lambda x: F.max_pool1d(x[None], 3, 1).exp(), lambda x: x.sin() * x])
def test_a_leaf_of_which_hooks_have_saved_a_clone_may_be_written(run):
    fn = torchbolt.compile(run)
    for _ in range(4):
        x = torch.randn(2, 8, dtype=torch.float64)
        seen = []
        for f in (fn, run):
            leaf = x.clone().requires_grad_()
            with torch.autograd.graph.saved_tensors_hooks(lambda t: (t.clone(),), lambda p: p[0]):
                y = f(leaf)
                leaf.detach().add_(1)
                (g,) = torch.autograd.grad(y.sum(), leaf, create_graph=True)
                seen.append([g, *torch.autograd.grad(g.square().sum(), leaf)])
        torch.testing.assert_close(*seen)


def test_zeros_without_memory_come_to_a_result():
    """Autograd's own zeros, of what sgn() and the norm's formula make, have none."""
    fn = lambda x, w: (x * w).exp()
    fast = torchbolt.compile(fn)
    for _ in range(4):
        x, w = torch.randn(16, requires_grad=True), torch.randn(16)
        seen = []
        for run in (fn, fast):
            y = run(x, w)
            plain = torch.autograd.grad(y.sgn().sum(), x, retain_graph=True)
            (slopes,) = torch.autograd.grad(y.norm(1), x, create_graph=True)
            seen.append([*plain, slopes, *torch.autograd.grad(slopes.square().sum(), x)])
        torch.testing.assert_close(*seen)
