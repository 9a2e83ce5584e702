# tests/end_to_end/test_gradients_asked.py
"""What autograd knows of a region's results: leaves, graphs, and nothing where eager has nothing."""

from __future__ import annotations

import warnings

import pytest
import torch

import torchbolt

P = torch.nn.Parameter(torch.randn(3))

COPIES = {
    "of a detached parameter": lambda x: P.detach().clone(),
    "of data": lambda x: P.data.clone(),
    "of a detached argument": lambda x: x.detach().clone(),
    "to": lambda x: P.detach().to(torch.float32, copy=True),
    "of part": lambda x: P.detach()[1:].clone(),
    "into memory": lambda x: torch.empty_like(P.detach()).copy_(P.detach()),
    "without grad mode": lambda x: torch.no_grad()(lambda: P.clone())(),
    "beside others": lambda x: ((P * x).sum(), P.detach().clone()),
    "a parameter": lambda x: torch.nn.Parameter(P.data.clone()),
}

NEW = {
    "zeros": lambda x: torch.zeros(3, requires_grad=True),
    "ones_like": lambda x: torch.ones_like(x, requires_grad=True),
    "tensor": lambda x: torch.tensor([1.0, 2.0, 3.0], requires_grad=True),
    "new_tensor": lambda x: x.new_tensor([1.0, 2.0, 3.0], requires_grad=True),
    "full": lambda x: torch.full((3,), 2.0, requires_grad=True),
    "not": lambda x: torch.zeros(3, requires_grad=False),
}


def facts(result):
    results = result if isinstance(result, tuple) else (result,)
    return [(t.is_leaf, t.requires_grad, t.grad_fn is None) for t in results]


@pytest.mark.parametrize("name", COPIES)
def test_copies(name):
    fn = COPIES[name]
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for _ in range(3):
        x = torch.randn(3, requires_grad=True)
        want, got = fn(x), compiled(x)
        torch.testing.assert_close(got, want)
        assert facts(got) == facts(want)


def test_copies_after_the_end_of_a_region_with_grad_mode():
    def fn(x):
        with torch.enable_grad():
            torchbolt.graph_break()
        return P.detach().clone(), P * x

    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    with torch.no_grad():
        for _ in range(3):
            assert facts(compiled(torch.randn(3))) == [(True, False, True)] * 2


@pytest.mark.parametrize("name", NEW)
def test_new_tensors_that_require_gradients(name):
    def used(x):
        return NEW[name](x) * x

    def differentiated(x):
        y = NEW[name](x)
        if y.requires_grad:
            (y * x).sum().backward()
        return y.grad, y

    torchbolt.reset()
    for fn in (NEW[name], used, differentiated):
        compiled = torchbolt.compile(fn)
        for _ in range(3):
            x = torch.randn(3)
            want, got = fn(x), compiled(x)
            torch.testing.assert_close(got, want)
            if fn is not differentiated:
                assert facts(got) == facts(want)


def test_the_gradient_of_a_tensor_that_is_no_leaf_is_warned_of_where_it_is_read(capfd):
    """By torch, at the user's line, and not by guards, whose warnings go to the terminal."""

    def fn(x):
        return x * 2, x.grad is None

    def warned(fn, x):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert fn(x)[1] is True
        return [(w.filename, w.lineno, str(w.message)) for w in said]

    torchbolt.reset()
    compiled, w = torchbolt.compile(fn), torch.ones(3, requires_grad=True)
    torch.set_warn_always(True)
    try:
        for x in (w, w, w * 1, w * 1, w, w.detach(), w * 1, w * 1):
            before = torchbolt.stats()["recordings"]
            assert warned(compiled, x) == warned(fn, x)
    finally:
        torch.set_warn_always(False)
    assert torchbolt.stats()["recordings"] == before
    assert capfd.readouterr().err == ""
