# tests/training/test_views_of_one_result.py
"""Results that are views of one memory, which is itself no result: hidden states in rows, and some of them."""

import pytest
import torch
import torch.nn.functional as F

import torchbolt

VIEWS = {
    "some, and rows": lambda y: (y[:, 0], y.view(y.shape[0] * y.shape[1], -1)),
    "rows, and some": lambda y: (y.view(-1, 8), y[:, 1:]),
    "turned, and flat": lambda y: (y.transpose(0, 1), y.view(-1)),
    "flat and rows": lambda y: (y.view(-1), y.view(-1, 4)),
    "with others": lambda y: (y[:, 0], y.view(-1, 8), y.sum(), y.view(-1, 8).tanh()),
}
MAKERS = {
    "linear": lambda x, w, b: F.linear(x, w),
    "linear with bias": F.linear,
    "matmul": lambda x, w, b: x @ w,
    "sum": lambda x, w, b: x + b,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("views", VIEWS)
def test_views_of_what_is_no_result(views, maker, dynamic):
    def run(x, w, b):
        return VIEWS[views](MAKERS[maker](x, w, b))

    fast = torchbolt.compile(run, dynamic=dynamic)
    for call in range(5):
        length = 3 + (call if dynamic else 0)
        given = [torch.randn(2, length, 8), torch.randn(8, 8), torch.randn(8)]
        seen = []
        for fn in (fast, run):
            leaves = [t.double().requires_grad_() for t in given]
            results = fn(*leaves)
            assert [t._is_view() for t in results[:2]] == [True, True]
            results[0].retain_grad()
            loss = sum((t * t).sum() * (i + 1) for i, t in enumerate(results))
            found = torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True)
            loss.backward(inputs=leaves[:1], retain_graph=True)
            second = torch.autograd.grad(loss, leaves[0], create_graph=True)[0] if call % 2 else leaves[0] * 1
            again = torch.autograd.grad(second.square().sum(), leaves[0])[0]
            with torch.no_grad():
                results[1].mul_(2)
            seen.append([*results, *found, leaves[0].grad, again])
        for ours, eagers in zip(*seen, strict=True):
            assert (ours is None) == (eagers is None)
            if ours is not None:
                torch.testing.assert_close(ours, eagers)
                assert ours.stride() == eagers.stride()
    assert "Runs eagerly" not in str(torchbolt.explain(run)(*(t.requires_grad_() for t in given)))
