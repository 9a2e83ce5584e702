# tests/ops/test_parts.py
"""Composite operators, of which the parts are recorded, and the whole where these do not say all."""

import pytest
import torch
import torch.nn.functional as F
from agree import check

import torchbolt
from torchbolt import plans

x, y, z = torch.randn(3, 6, 8)
square = torch.randn(5, 5) + 5 * torch.eye(5)
places = torch.randint(0, 6, (6, 8))

FALL_APART = {
    "cosine_similarity": (lambda a, b: F.cosine_similarity(a, b), (x, y)),
    "cosine_embedding_loss": (lambda a, b: F.cosine_embedding_loss(a, b, torch.ones(6)), (x, y)),
    "triplet_margin_loss": (lambda a, b, c: F.triplet_margin_loss(a, b, c, swap=True), (x, y, z)),
    "hinge_embedding_loss": (lambda a, b: F.hinge_embedding_loss(a, b.sign()), (x, y)),
    "poisson_nll_loss": (lambda a, b: F.poisson_nll_loss(a, b.abs(), full=True), (x, y)),
    "nanmean": (lambda a: a.masked_fill(a > 1, torch.nan).nanmean(0), (x,)),
    "trapezoid": (lambda a, b: torch.trapezoid(a, b), (x, y)),
    "cumulative_trapezoid": (lambda a: torch.cumulative_trapezoid(a, dx=0.5), (x,)),
    "take_along_dim": (lambda a: torch.take_along_dim(a, places, 0), (x,)),
    "cross": (lambda a, b: torch.linalg.cross(a[:3], b[:3], dim=0), (x, y)),
    "kron": (lambda a, b: torch.kron(a, b), (x, y)),
    "diff": (lambda a: a.diff(2), (x,)),
    "gradient": (lambda a: torch.gradient(a, dim=1)[0], (x,)),
    "vander": (lambda a: torch.linalg.vander(a, N=4), (x,)),
    "isclose": (lambda a, b: torch.isclose(a, b, 0.1, 1.0), (x, y)),
    "float_power": (lambda a: torch.float_power(a.abs(), 1.5), (x,)),
    "inner": (lambda a, b: torch.inner(a, b), (x, y)),
    "tensordot": (lambda a, b: torch.tensordot(a, b, dims=([1], [1])), (x, y)),
    "fliplr": (lambda a: torch.fliplr(a), (x,)),
    "matrix_norm": (lambda a: torch.linalg.matrix_norm(a, 1), (x,)),
}


@pytest.mark.parametrize("name", FALL_APART)
def test_parts_fuse(name):
    function, arguments = FALL_APART[name]
    check(lambda *given: function(*given) * 1, *arguments)


def single_calls(function, *arguments):
    explanation = torchbolt.explain(function)(*arguments)
    assert not explanation.eager_regions and not explanation.break_reasons
    steps = [step for text in explanation.plans for step in plans.parse(text).steps]
    return [step.name for step in steps if step.kind == "extern"]


@pytest.mark.parametrize(
    "name, function",
    {
        "aten::quantile.scalar": lambda a: torch.quantile(a, 0.5),  # looks whether anything is no number
        "aten::max_pool1d": lambda a: F.max_pool1d(a, 2),  # computes by itself where nobody wants gradients
        "aten::linalg_inv": lambda a: torch.linalg.inv(a),  # two calls: one looks at what the other tells
        "aten::cov": lambda a: torch.cov(a, fweights=torch.ones(5, dtype=torch.int64)),  # looks at the weights
    }.items(),
)
def test_wholes_where_parts_do_not_say_all(name, function):
    torchbolt.reset()
    compiled = torchbolt.compile(function)
    with torch.no_grad():
        for other in (square, square + 1, 2 * square):
            torch.testing.assert_close(compiled(other), function(other))
        assert single_calls(function, square) in ([name], [])


def test_lengths_in_tensors_are_read_at_each_call():
    def loss(scores, targets, lengths, target_lengths):
        return F.ctc_loss(scores.log_softmax(-1), targets, lengths, target_lengths)

    torchbolt.reset()
    compiled = torchbolt.compile(loss)
    scores, targets = torch.randn(12, 2, 5), torch.randint(1, 5, (2, 4))
    with torch.no_grad():
        for length in (12, 10, 11):
            given = (scores, targets, torch.tensor([length, 12]), torch.tensor([4, length - 8]))
            torch.testing.assert_close(compiled(*given), loss(*given))


def test_gradients_of_parts_are_eagers():
    torchbolt.reset()

    def loss(a, b):
        return F.triplet_margin_loss(a * 2, b, b.flip(0)) + F.cosine_similarity(a, b).sum() + torch.kron(a, b).mean()

    compiled = torchbolt.compile(loss)
    for _ in range(3):
        mine, theirs = (torch.autograd.grad(f(*given), given) for f in (compiled, loss)
                        for given in [[x.clone().requires_grad_(), y.clone().requires_grad_()]])  # fmt: skip
        torch.testing.assert_close(mine, theirs)
    assert torchbolt.stats()["eager_fallbacks"] == 0


def test_an_operator_of_parts_that_raises():
    """Nothing of it stays behind, and the error is eager's."""

    def tries(a, b):
        a = a + 1
        try:
            return torch.kron(a, b), F.cosine_similarity(a, b[:, :5], dim=1)
        except RuntimeError as error:
            return a * 2, str(error)

    compiled = torchbolt.compile(tries)
    for _ in range(3):
        mine, theirs = compiled(x, y), tries(x, y)
        assert torch.equal(mine[0], theirs[0]) and mine[1] == theirs[1]


def test_an_operator_that_looks_whether_all_is_well_raises_in_later_calls():
    def root(a):
        try:
            return torch.linalg.cholesky(a * 1) * 2
        except RuntimeError:
            return a - 1

    compiled = torchbolt.compile(root)
    good = square @ square.T
    for a in (good, good, good, -good, good, -good):
        torch.testing.assert_close(compiled(a), root(a))


def test_sizes_that_differ_leave_wholes():
    torchbolt.reset()
    compiled = torchbolt.compile(lambda a, b: F.cosine_similarity(a, b) + torch.trapezoid(a, b), dynamic=True)
    for rows in (5, 3, 6, 4):
        given = x[:rows].clone(), y[:rows].clone()
        torch.testing.assert_close(compiled(*given), F.cosine_similarity(*given) + torch.trapezoid(*given))
    assert torchbolt.stats()["eager_fallbacks"] == 0
