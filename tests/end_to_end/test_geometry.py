# tests/end_to_end/test_geometry.py
"""Operators that change the sizes and strides of the tensor they are called on: x.t_(), x.unsqueeze_(0), ..."""

import pytest
import torch

import torchbolt

CHANGES = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "swapaxes_": lambda x: x.swapaxes_(-1, 0),
    "swapdims_": lambda x: x.swapdims_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x.unsqueeze_(0).squeeze_(),
    "squeeze_dim": lambda x: x.unsqueeze_(0).squeeze_(0).unsqueeze_(-1),
    "there_and_back": lambda x: x.t_().t_(),
}


@pytest.fixture(autouse=True)
def fresh():
    torchbolt.reset()
    with torch.no_grad():
        yield


def form(t):
    return t.shape, t.stride(), t.storage_offset()


def check(fn, make, regions=1):
    """Three calls on new inputs give eager's results and leave the inputs as eager does; the regions' facts."""
    compiled = torchbolt.compile(fn, fullgraph=regions == 1)
    for _ in range(3):
        x, y = make(), make()
        y.copy_(x)
        want, got = fn(x), compiled(y)
        assert form(y) == form(x)
        assert torch.equal(x, y)
        assert (want is x) == (got is y)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
    facts = torchbolt.api.compiled_of(compiled)._regions()
    assert len([r for r in facts if "ops" in r]) == regions
    assert all(r["compiled"] for r in facts if "ops" in r), facts
    return facts


@pytest.mark.parametrize("name", CHANGES)
def test_an_input_changes(name):
    change = CHANGES[name]
    check(lambda x: change(x) * 2, lambda: torch.randn(3, 4))


@pytest.mark.parametrize("name", CHANGES)
def test_a_constant_made_inside_changes_and_is_returned(name):
    def fn(x):
        c = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        y = x + 1
        return CHANGES[name](c) if y.dim() else y

    check(fn, lambda: torch.randn(3, 4))


@pytest.mark.parametrize("name", CHANGES)
def test_an_input_changes_and_is_returned(name):
    change = CHANGES[name]
    check(lambda x: change(x), lambda: torch.randn(3, 4))


@pytest.mark.parametrize("name", CHANGES)
def test_a_temporary_changes(name):
    change = CHANGES[name]
    check(lambda x: change(x * 2) + 1, lambda: torch.randn(3, 4))
    check(lambda x: change(x * 2), lambda: torch.randn(3, 4))


@pytest.mark.parametrize("name", CHANGES)
def test_written_before_and_after(name):
    change = CHANGES[name]

    def f(x):
        x.add_(1)
        change(x)
        x.mul_(2)
        return x.sum(0)

    check(f, lambda: torch.randn(3, 4))


def test_a_view_changes_its_base_does_not():
    def f(x):
        y = x[1:]
        y.t_()
        y.add_(1)
        return y

    check(f, lambda: torch.randn(3, 4))


def test_views_taken_before_and_after():
    def f(x):
        before = x[0]
        x.t_()
        return before + x[:, 1], x[1:]

    compiled = torchbolt.compile(f, fullgraph=True)
    for _ in range(3):
        x = torch.randn(3, 4)
        y = x.clone()
        (a, b), (c, d) = f(x), compiled(y)
        assert torch.equal(a, c) and torch.equal(b, d) and form(b) == form(d) and form(x) == form(y)
        d.zero_()
        assert y[1:].abs().sum() == 0, "still a view of the input"


def test_an_input_with_an_offset():
    check(lambda x: x.t_() + 1, lambda: torch.randn(5, 4)[2:, 1:])


def test_the_version_moves():
    compiled = torchbolt.compile(lambda x: x.t_() * 2)
    compiled(torch.randn(3, 4))
    x = torch.randn(3, 4)
    compiled(x)
    assert x._version == 1


def test_a_buffer_of_a_module():
    class Turns(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(12.0).view(3, 4))

        def forward(self, x):
            return x @ self.table.t_()

    ours, theirs = Turns(), Turns()
    compiled = torchbolt.compile(ours)
    for _ in range(4):
        x = torch.randn(2, theirs.table.shape[1])
        torch.testing.assert_close(compiled(x), theirs(x))
        assert form(ours.table) == form(theirs.table)


def test_memory_that_changes_ends_the_region():
    def f(x, y):
        z = x * 2
        z.resize_(2, 2)
        w = torch.empty(0)
        w.resize_as_(y)
        w.fill_(1)
        return z + 1, w * y

    compiled = torchbolt.compile(f)
    for _ in range(3):
        x, y = torch.randn(3, 4), torch.randn(5)
        for got, want in zip(compiled(x, y), f(x, y), strict=True):
            assert torch.equal(got, want)


def test_a_resized_out_argument():
    def f(x, out):
        torch.add(x, 1, out=out)
        return out * 2

    compiled = torchbolt.compile(f)
    for _ in range(3):
        x, mine, eagers = torch.randn(4), torch.empty(0), torch.empty(0)
        assert torch.equal(compiled(x, mine), f(x, eagers))
        assert torch.equal(mine, eagers)


@pytest.mark.parametrize("which", range(4))
def test_another_tensor_that_shows_the_same(which):
    """Both have the same memory, sizes and strides; one of them changes them."""

    def first(x, y):
        y.unsqueeze_(0)
        return x * 2

    def last(x, y):
        z = x * 2
        y.t_()
        return z + x.sum(0).sum()

    def both(x, y):
        z = x + y
        x.t_()
        y.unsqueeze_(1)
        return z

    def over_an_end(x, y):
        v = x.expand_as(x)
        torchbolt.graph_break()
        z = x * y.sum()
        v.unsqueeze_(0)
        return z

    fn = (first, last, both, over_an_end)[which]
    compiled = torchbolt.compile(fn)
    for _ in range(4):
        x = torch.randn(3, 4)
        mine, eagers = x.clone(), x.clone()
        a, b = mine.expand_as(mine), eagers.expand_as(eagers)
        torch.testing.assert_close(compiled(mine, a), fn(eagers, b))
        assert form(mine) == form(eagers)
        assert form(a) == form(b)


def test_strides_of_ones_in_views_of_results():
    def fn(x):
        y = torch.sigmoid(x)[..., 1:].abs()
        return y, y[0], y[..., 0:1, :]

    compiled = torchbolt.compile(fn)
    for size in (6, 5, 7, 9):
        x = torch.randn(2, size, 3, 2).permute(3, 2, 1, 0)
        assert [form(t) for t in compiled(x)] == [form(t) for t in fn(x)]


def test_a_view_that_was_turned_is_not_what_it_was_a_view_of():
    def fn(b, n):
        whole = b * 2
        rows = whole.unsqueeze(0).expand(n + 1, *whole.shape)
        turned = rows[int(whole.argmax().item()) % rows.shape[0]]
        turned.transpose_(0, -1)
        return whole * 3, turned

    for differentiates in (False, True):
        compiled = torchbolt.compile(fn)
        for n in (0, 1, 0, 2):
            b = torch.randn(6, 9 + n).requires_grad_(differentiates)
            for mine, theirs in zip(compiled(b, n), fn(b, n), strict=True):
                assert mine.stride() == theirs.stride() and torch.equal(mine, theirs)


QUESTIONS = {
    "its base": lambda x, y: x._base is y,
    "its memory": lambda x, y: x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr(),
    "its first element": lambda x, y: x.data_ptr() == y.data_ptr(),
    "the same part": lambda x, y: x.is_set_to(y),
    "a view": lambda x, y: x._is_view(),
    "an offset": lambda x, y: x.storage_offset() == y.storage_offset(),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_an_input_is_a_part_of_may_be_asked(name):
    def fn(x, y):
        return x + 1 if QUESTIONS[name](x, y) else x + 2

    compiled = torchbolt.compile(fn)
    y = torch.arange(8.0)
    for x in (y[:4], y[:4], y[2:6], torch.zeros(4), y[:4], y[:8]):
        assert torch.equal(compiled(x, y), fn(x, y))


def test_what_shows_the_same_in_one_call_and_not_in_the_next():
    def fn(x, y):
        return x * 2 + y * 3

    compiled = torchbolt.compile(fn)
    b = torch.arange(40.0).reshape(10, 4)
    for x, y in ((b, b.view_as(b)), (b, b + 1), (b, b), (b[1:3], b[1:3]), (b[1:3], b[2:4]), (b[1:3], b[1:3])):
        assert torch.equal(compiled(x, y), fn(x, y))
