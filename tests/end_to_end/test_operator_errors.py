# tests/end_to_end/test_operator_errors.py
"""Operators that raise in later calls, though nothing that is guarded has changed: what came before is done, what the
program makes of the error is done, and the error comes from the user's line."""

import contextlib
import random
import traceback

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import torchbolt

GOOD, BAD = torch.eye(3) * 4, -torch.eye(3)
ORDERS = ["ggbgb", "gbbgg", "bbggb", "bgbgb"]
BACKENDS = ["torchbolt", "aot_eager", "eager"]


class Caught(torch.nn.Module):
    """Falls back when its first try raises, and counts."""

    def __init__(self):
        super().__init__()
        self.calls, self.retries, self.log = 0, 0, []
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, a):
        self.calls += 1
        self.log.append("in")
        try:
            root = torch.linalg.cholesky(a)
        except RuntimeError as error:
            self.retries += 1
            self.log.append(type(error).__name__)
            root = torch.linalg.cholesky(a + 9 * torch.eye(3))
        finally:
            self.log.append("out")
        return root.sum() + self.calls


class Escapes(Caught):
    """Leaves the error to its caller."""

    def forward(self, a):
        self.calls += 1
        with torch.no_grad():
            self.seen.add_(0)
        self.log.append(self.calls)
        with contextlib.suppress(ValueError):
            try:
                root = torch.linalg.cholesky(a)
            finally:
                self.log.append("out")
        self.retries -= 1
        return root.sum() * self.calls


class Between(Caught):
    """Has ended a region before."""

    def forward(self, a):
        self.calls += 1
        noise = torch.rand(3)
        torchbolt.graph_break()
        noise = noise + torch.rand(3)
        self.log.append("in")
        try:
            root = torch.linalg.cholesky(a)
        except RuntimeError:
            return noise * 2 + torch.rand(3)
        return root.sum() + noise


class Inverse(Caught):
    """Reads the message."""

    def forward(self, a):
        b = a - a.diagonal().max() * torch.eye(3)
        try:
            return torch.linalg.inv(a + torch.rand(3, 3) * 0)
        except RuntimeError as error:
            return b * len(str(error))


def outcome(module, x, differentiates):
    x = x.clone().requires_grad_(differentiates)
    try:
        result = module(x)
        if result.requires_grad:
            result.sum().backward()
        return result.detach(), x.grad
    except RuntimeError as error:
        return type(error), str(error)


@pytest.mark.parametrize("differentiates", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cls", [Caught, Escapes, Between])
def test_as_eager(cls, order, backend, differentiates):
    torchbolt.reset()  # all cases share their class's programs, of which there are only so many
    eager, module = cls(), cls()
    compiled = torchbolt.compile(module, backend=backend)
    for which in order:
        x = GOOD if which == "g" else BAD
        torch.manual_seed(3)
        expected = *outcome(eager, x, differentiates), torch.rand(1)
        torch.manual_seed(3)
        got = *outcome(compiled, x, differentiates), torch.rand(1)
        if isinstance(expected[0], type):
            assert got == expected
        else:
            torch.testing.assert_close(got, expected)
        state = [(m.calls, m.retries, m.log) for m in (module, eager)]
        assert state[0] == state[1]


@pytest.mark.parametrize("order", ORDERS)
def test_singular(order):
    eager, compiled = Inverse(), torchbolt.compile(Inverse())
    for which in order:
        x = GOOD if which == "g" else torch.zeros(3, 3)
        torch.testing.assert_close(compiled(x), eager(x))


def test_shape_errors():
    def fn(x, n):
        try:
            y = x[n]
        except IndexError:
            y = x[0] - 1
        return y * 2

    compiled = torchbolt.compile(fn, dynamic=True)
    for rows in (3, 7, 3, 9, 5):
        x = torch.rand(rows, 2)
        for n in (2, 6, 4):
            assert torch.equal(compiled(x, n), fn(x, n)), (rows, n)


def test_inputs_are_written_once():
    def fn(x, a):
        x.add_(1)
        root = torch.linalg.cholesky(a)
        return x.mul_(2) + root

    compiled = torchbolt.compile(fn, fullgraph=True)
    x, twin = torch.zeros(3), torch.zeros(3)
    for a in (GOOD, BAD, GOOD, BAD):
        for call, argument in ((compiled, x), (fn, twin)):
            with contextlib.suppress(RuntimeError):
                call(argument, a)
        assert torch.equal(x, twin)


def test_line_of_the_error():
    def fn(a):
        b = a * 2
        return torch.linalg.cholesky(b)  # here

    compiled = torchbolt.compile(fn, fullgraph=True)
    compiled(GOOD)
    with pytest.raises(RuntimeError) as raised:
        compiled(BAD)
    assert any(f.line.endswith("# here") for f in traceback.extract_tb(raised.value.__traceback__))


def test_raising_first_call_leaves_nothing():
    def fn(a):
        with torch.no_grad():
            return torch.linalg.cholesky(a) + 1

    compiled = torchbolt.compile(fn, fullgraph=True)
    with pytest.raises(RuntimeError, match="positive-definite"):
        compiled(BAD)
    before = torchbolt.stats()
    compiled(GOOD)
    compiled(GOOD)
    after = torchbolt.stats()
    assert after["regions"] == before["regions"] + 1 and after["graph_breaks"] == before["graph_breaks"]


def test_caught_in_the_recording_ends_the_region():
    def fn(a):
        try:
            return torch.linalg.cholesky(a)
        except RuntimeError:
            return a

    compiled = torchbolt.compile(fn)
    compiled(BAD)
    report = torchbolt.explain(compiled)(BAD)
    assert report.graph_break_count == 1 and "aten::linalg_cholesky raised here" in str(report)
    with pytest.raises(torchbolt.exc.GraphBreak, match="linalg_cholesky raised here"):
        torchbolt.compile(lambda a: fn(a), fullgraph=True)(BAD)


@torch.library.custom_op("operator_errors::checked", mutates_args=())
def checked(x: torch.Tensor) -> torch.Tensor:
    """Raises what the first element tells it to."""
    if x[0] < -1:
        raise KeyboardInterrupt
    if x[0] < 0:
        raise ValueError("negative")
    return x * 2


@checked.register_fake
def _(x):
    return torch.empty_like(x)


def test_operators_of_the_users():
    done = []

    def fn(x):
        done.append(1)
        try:
            return checked(x * 1) + 1
        except ValueError as error:
            return x - len(str(error))

    compiled = torchbolt.compile(fn)
    for value in (1.0, 2.0, -1.0, 1.0, -1.0):
        x = torch.tensor([value])
        got, n = compiled(x), len(done)
        assert torch.equal(got, fn(x)) and len(done) == n + 1
    before = len(done)
    with pytest.raises(KeyboardInterrupt):
        compiled(torch.tensor([-2.0]))
    assert len(done) == before  # stopped where it was, not run again


def test_python_generators_are_put_back():
    own = random.Random(5)

    def fn(a):
        scale = random.random() + own.random() + random.randint(0, 5)
        try:
            return torch.linalg.cholesky(a) * scale
        except RuntimeError:
            return a * random.random() * scale

    compiled = torchbolt.compile(fn)
    for a in (GOOD, GOOD, BAD, GOOD, BAD):
        results = []
        for call in (compiled, fn):
            random.seed(1)
            own.seed(2)
            results += [(call(a), random.random(), own.random())]
        torch.testing.assert_close(*results)


def test_rows_by_an_index_that_only_the_run_knows():
    def fn(rows, scores):
        try:
            best = rows[scores.argmax()]
        except IndexError:
            best = rows[-1] - 1
        return best * 2

    compiled = torchbolt.compile(fn)
    rows = torch.arange(12.0).view(4, 3)
    for at in (1, 3, 9, 2, 8):
        scores = torch.zeros(10)
        scores[at] = 1
        assert torch.equal(compiled(rows, scores), fn(rows, scores))


@pytest.mark.parametrize("backend", BACKENDS)
def test_assertions_on_tensors(backend):
    def fn(x):
        torch._assert_async(x.sum() > 0, "not positive")
        return x * 2

    compiled = torchbolt.compile(fn, fullgraph=True, backend=backend)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(3)), 2 * torch.ones(3))
        with pytest.raises(RuntimeError, match="not positive"):
            compiled(-torch.ones(3))


def test_explain_tells_of_calls_given_to_eager():
    def fn(a):
        try:
            return torch.linalg.cholesky(a)
        except RuntimeError:
            return a + 1

    model = torch.nn.Module()
    model.forward = fn
    before = torchbolt.stats()["eager_fallbacks"]
    torchbolt.compile(model)(GOOD)
    torchbolt.compile(model)(BAD)
    report = torchbolt.explain(model)(BAD)
    (given,) = report.eager_calls
    assert given["count"] == 2 and "positive-definite" in given["why"]
    assert given["cause"] == "operator_raised_in_call"
    assert "Given to eager, 2 times: an operator raised: linalg.cholesky" in str(report)
    assert report.to_json() and torchbolt.stats()["eager_fallbacks"] == before + 2


def scaled(x, w):
    x.mul_(w)


def row_scaled(x, w):
    x[0].mul_(w)


def turned(x, w):
    x.t_()
    x.add_(w)


def filled_from_outside(x, w):
    x.detach()[1:].copy_(w)


def both(x, w):
    row = x[1]
    x.add_(w)
    row.mul_(2)
    x.div_(10).sigmoid_()


@pytest.mark.parametrize("writes", [scaled, row_scaled, turned, filled_from_outside, both], ids=lambda f: f.__name__)
@pytest.mark.parametrize("tracked", [False, True])
def test_writes_that_autograd_follows_are_done_once(writes, tracked):
    def fn(x, w, a):
        writes(x, w)
        return x * torch.linalg.cholesky(a).sum()

    compiled = torchbolt.compile(fn)
    for a in (GOOD, GOOD, BAD, GOOD, BAD):
        seen = []
        for call in (compiled, fn):
            leaf = torch.full((3, 3), 0.5, requires_grad=True)
            x, w = (leaf * 1 if tracked else leaf.detach().clone()), torch.tensor(3.0, requires_grad=True)
            view = x[0]
            error = None
            try:
                result = call(x, w, a).sum()
                if result.requires_grad:
                    result.backward(retain_graph=True)
            except RuntimeError as raised:
                error = str(raised)
                if x.requires_grad:
                    (x.sum() + view.sum()).backward()
            facts = (error, x.shape, x.stride(), x.requires_grad, x.grad_fn is None, view._version == x._version)
            if error:  # the call is eager's, as if it had not begun
                facts += (x._version, type(x.grad_fn).__name__)
            seen.append((facts, [x.detach(), view.detach(), leaf.grad, w.grad]))
        assert seen[0][0] == seen[1][0]
        for mine, theirs in zip(seen[0][1], seen[1][1], strict=True):
            assert (mine is None) == (theirs is None) and (mine is None or torch.allclose(mine, theirs))


class Counts(torch.nn.Module):
    calls = seen = 0

    def forward(self, x):
        self.calls += 1
        y = (x.sin() * x).exp()
        self.seen += 1
        return y + self.calls


def test_a_checkpoint_that_stops_in_the_middle_finds_what_came_before():
    """torch raises where it has made again all that it needs: before the last lines."""
    counts = []
    for wrap in (torchbolt.compile, lambda module: module):
        module = Counts()
        layer, x = wrap(module), torch.ones(2, requires_grad=True)
        for _ in range(4):
            checkpoint(layer, x, use_reentrant=False).sum().backward()
            counts.append((module.calls, module.seen, x.grad.tolist()))
    assert counts[:4] == counts[4:]


def test_a_hook_that_sees_saved_tensors_sees_the_program_s_state():
    module = Counts()
    compiled, x, seen = torchbolt.compile(module), torch.ones(2, requires_grad=True), []

    def pack(tensor):
        seen.append((module.calls, module.seen))
        return tensor

    for n in range(4):
        seen.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            compiled(x)
        assert set(seen) == {(n + 1, n)}
