# tests/end_to_end/test_write_back.py
"""Mutated inputs that a kernel stores into: the caller's tensors, their views and the results equal eager's."""

import copy
import random

import numpy
import pytest
import torch

import torchbolt
from torchbolt import _C


@pytest.mark.parametrize("order", [(True, False, True), (False, True, False, True)], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda a: (torch.from_numpy(a)[:3], torch.from_numpy(a)[1:]),
        lambda a: (torch.from_numpy(a), torch.from_dlpack(torch.from_numpy(a))),
    ],
)
def test_one_memory_in_two_storages(make, order):
    def program(x, y):
        x.add_(1)
        return x * y

    compiled = torchbolt.compile(program)
    for shared in order:
        array = numpy.arange(4, dtype=numpy.float32)
        (x, y), (a, b) = make(array.copy()), make(array)
        if not shared:
            y, b = y.clone(), b.clone()
        assert torch.equal(compiled(a, b), program(x, y))
        assert torch.equal(a, x) and torch.equal(b, y)


def scale(x, y):
    x.mul_(2).add_(y)
    return x.sum()


def overlapping(x, y):
    x.mul_(2)
    return y + x[1:]


def swap(x, y):
    x_before = x.clone()
    x.copy_(y * 2)
    y.copy_(x_before + 1)
    return x - y


def cache(x, y):
    x[2:5] = y[2:5].exp()
    return x + 1


def rows(x, y):
    x.div_(x.sum(dim=1, keepdim=True))
    return y * 2


def across(x, y):
    x.copy_(x + x.t())
    return y.relu()


def chain(x, y):
    x.add_(1)
    y.mul_(x)
    x.sub_(y)


CASES = (scale, swap, cache, rows, across, chain)


def run(fn, inputs):
    out = fn(*inputs)
    return [out, *inputs] if out is not None else inputs


@pytest.mark.parametrize("fn", CASES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided", "unaligned"])
def test_equals_eager(fn, layout):
    def make():
        torch.manual_seed(0)
        wide = torch.rand(2, 40, 80) + 0.5
        views = {
            "contiguous": wide[:, :32, :32].contiguous(),
            "transposed": wide[:, :32, :32].contiguous().transpose(1, 2),
            "strided": wide[:, :32, 1:65:2],
            "unaligned": wide.flatten()[1 : 1 + 2 * 32 * 32].view(2, 32, 32),
        }
        return wide, views[layout].unbind()

    wide, inputs = make()
    wanted = [t.clone() for t in run(fn, inputs)]
    compiled = torchbolt.compile(fn)
    for _ in range(3):
        mine, own = make()
        for got, want in zip(run(compiled, own), wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(mine, wide, rtol=1e-6, atol=1e-6)


def test_inputs_share_memory():
    def make():
        x = torch.arange(33.0)
        return x, x[:32]

    wanted = [t.clone() for t in run(overlapping, make())]
    compiled = torchbolt.compile(overlapping)
    for _ in range(3):
        for got, want in zip(run(compiled, make()), wanted, strict=True):
            assert torch.equal(got, want)


def double_some(written, read):
    for t in written:
        t.mul_(2)
    return [t + 1 for t in read]


def test_many_inputs_wherever_they_lie():
    """Tensors of one array, each with a storage of its own: in any order, and some of them over others."""

    def make(places, empty):
        memory = numpy.arange(24 * 16, dtype=numpy.float32)
        tensors = [torch.from_numpy(memory[at : at + 16]) for at in places]
        return tensors[:12], [*tensors[12:], torch.from_numpy(memory[empty:empty])]

    compiled = torchbolt.compile(double_some)

    def check(places, empty=0):
        wanted, got = make(places, empty), make(places, empty)
        want, out = double_some(*wanted), compiled(*got)
        for a, b in zip([*want, *wanted[0]], [*out, *got[0]], strict=True):
            assert torch.equal(a, b)

    check(apart := [16 * i for i in range(24)])
    recordings = torchbolt.stats()["recordings"]
    order = random.Random(0)
    for _ in range(5):
        check(order.sample(apart, 24), empty=16 * order.randrange(24))
    assert torchbolt.stats()["recordings"] == recordings
    for one, other, by in [(0, 1, 0), (1, 0, 1), (3, 20, 0), (20, 3, 8), (5, 23, -15), (11, 12, 15), (22, 0, 4)]:
        places = order.sample(apart, 24)
        places[one] = min(max(places[other] + by, 0), 23 * 16)
        check(places)
    check(apart)


def test_failed_index_leaves_inputs_alone():
    @torchbolt.compile
    def fn(x, table, index):
        x.mul_(2)
        return table[index] + 1

    x, table = torch.ones(8), torch.randn(5, 8)
    for _ in range(2):
        fn(x, table, torch.tensor([0, 4]))
    assert torch.equal(x, torch.full((8,), 4.0))
    with pytest.raises(IndexError):
        fn(x, table, torch.tensor([0, 5]))
    assert torch.equal(x, torch.full((8,), 8.0)), "eager, which ran instead, doubles it once before it raises"


def test_what_fails_behind_a_write_is_raised():
    """Memory runs out at each allocation of a call, also at that of a transposed copy behind a write to another input.
    Eager, which runs the whole where nothing is written yet, would write that a second time."""

    @torchbolt.compile
    def fn(x, y, w):
        x.mul_(2)
        y.copy_(w.t())
        return x.sum()

    torchbolt.reset()
    x, y, w = torch.ones(64), torch.zeros(64, 64), torch.randn(64, 64)
    for _ in range(3):
        fn(x, y, w)
    written, raised = [], True
    while raised:
        y.zero_()
        before = x.clone()
        _C._fail_allocation(len(written))
        try:
            fn(x, y, w)
            raised = False
        except RuntimeError as error:
            assert "can't allocate memory" in str(error)
        finally:
            _C._fail_allocation(-1)
        written.append(not torch.equal(x, before))
        assert torch.equal(x, before * (1 + written[-1]))
        assert torch.equal(y, torch.zeros(64, 64) if raised else w.t())
    assert written == sorted(written) and written.count(True) == 2, "the copy is the last that fails"
    assert (torchbolt.stats()["regions"], torchbolt.stats()["recordings"]) == (1, 1)


def test_inputs_that_share_memory_are_only_read():
    """Where they lie to each other matters to nobody."""
    buffer = torch.randn(20, 8)

    def rows(i):
        return buffer[i], buffer

    torchbolt.reset()
    compiled = torchbolt.compile(lambda x, y: x + y)
    for i in range(6):
        assert torch.equal(compiled(*rows(i)), buffer[i] + buffer)
    assert compiled(buffer[0], torch.zeros(20, 8)).shape == (20, 8)
    assert torchbolt.stats()["recompiles"] == 0


def test_inputs_that_share_memory_come_to_be_written():
    def step(x, y):
        y[0] += 1
        return x * 2

    torchbolt.reset()
    compiled = torchbolt.compile(step)
    for i in (5, 0, 3):
        mine, theirs = torch.arange(32.0).view(8, 4), torch.arange(32.0).view(8, 4)
        assert torch.equal(compiled(mine[i], mine), step(theirs[i], theirs)) and torch.equal(mine, theirs)


def test_views_of_one_of_two_inputs_on_one_memory():
    def view(x, y):
        return y[1:], x + 1

    torchbolt.reset()
    compiled = torchbolt.compile(view)
    for i in (5, 0, 3):
        buffer = torch.arange(32.0).view(8, 4)
        got, _ = compiled(buffer[i], buffer[: i + 2])
        assert got.data_ptr() == buffer[1:].data_ptr() and torch.equal(got, buffer[1 : i + 2])


def through_data(x):
    x.data.mul_(3)


def through_a_view_of_data(x):
    x.data[0].mul_(3)


def through_data_of_a_view(x):
    x[0].data.mul_(3)


def through_detach(x):
    x.detach().mul_(3)


def both_ways(x):
    x.data.mul_(3)
    with torch.no_grad():
        x.add_(1)


def several_times(x):
    with torch.no_grad():
        x.mul_(2).add_(1)
        x[0] = x[1]
        torch._foreach_add_([x, x], 1.0)


def turned_and_written(x):
    with torch.no_grad():
        x.add_(1)
        x.t_()


@pytest.mark.parametrize("backend", ["torchbolt", "aot_eager", "eager"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(
    "fn",
    [
        through_data,
        through_a_view_of_data,
        through_data_of_a_view,
        through_detach,
        both_ways,
        several_times,
        turned_and_written,
    ],
)
def test_versions_count_what_they_count_in_eager(fn, requires_grad, backend):
    compiled = torchbolt.compile(fn, backend=backend)
    for _ in range(3):
        counted, tensors = [], []
        for run in (fn, compiled):
            x = torch.ones(3, 4, requires_grad=requires_grad) * 1
            run(x)
            counted.append(x._version), tensors.append(x)
        assert counted[0] == counted[1] and torch.equal(*tensors)


def test_what_autograd_saved_is_not_out_of_date_after_a_write_through_data():
    def program(x):
        y = x * x
        torchbolt.graph_break()
        x.data.mul_(3)
        return y

    compiled = torchbolt.compile(program)
    for i in range(3):
        gradients = []
        for fn in (program, compiled):
            leaf = torch.full((3,), 1.0 + i, requires_grad=True)
            fn(leaf * 1).sum().backward()
            gradients.append(leaf.grad)
        assert torch.equal(*gradients)


def test_what_several_inputs_become_is_written_together():
    """Running statistics and counters of all normalisations: one call for each element type."""
    model = torch.nn.Sequential(
        *(layer for _ in range(3) for layer in (torch.nn.Conv2d(4, 4, 1), torch.nn.BatchNorm2d(4)))
    )
    eager = copy.deepcopy(model)
    compiled = torchbolt.compile(model)
    for _ in range(3):
        x = torch.randn(2, 4, 5, 5)
        with torch.no_grad(), torch.profiler.profile() as seen:
            compiled(x)
        with torch.no_grad():
            eager(x)
        for ours, theirs in zip(model.buffers(), eager.buffers(), strict=True):
            assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    names = [e.name for e in seen.events()]
    assert 1 <= names.count("aten::_foreach_copy_") <= 2, names
