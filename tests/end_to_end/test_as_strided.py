# tests/end_to_end/test_as_strided.py
"""as_strided: positions count from the storage's beginning; what shows every element once can be written through."""

import pytest
import torch

import torchbolt


def windows(x):
    return x.as_strided((3, 4), (2, 1)) * 2


def from_an_offset(x):
    return x.as_strided((2, 2), (1, 3), 4) + 1


def of_a_part(x):
    return x[1:].as_strided((2, 3), (3, 1)) + x[1:].as_strided((2, 3), (3, 1), 0)


def of_a_transposed(x):
    return x.t().as_strided((2, 3), (3, 1)) + 1


def repeated(x):
    return x.as_strided((4, 3), (0, 1)) + 1


def order_of_another(x):
    y = x.new_empty((4, 6)).as_strided((4, 6), (1, 4))
    y.copy_(x)
    return y, y + 1


def the_same_again(x):
    y = torch.empty_like(x).as_strided(x.shape, x.stride())
    y.copy_(x * 2)
    return y


def every_second_written(x):
    y = x * 2
    y.as_strided((2, 6), (12, 2)).add_(1)
    return y


def diagonals_written(x):
    y = (x * 2).reshape(2, 3, 4)
    y.diagonal(1, 1, 2).mul_(3)
    y[0].diagonal().fill_(1)
    z = x + 1
    z.diagonal(-1).add_(1)
    return y, z


def in_another_order_written(x):
    y = x * 2
    y.as_strided((2, 2), (1, 6)).add_(1)
    return y


def stretches_written(x):
    y = x * 2
    y.as_strided((2, 3), (5, 1), 7).mul_(3)
    y.view(-1)[3:21].view(3, 6)[:, 1:3].t().add_(1)
    return y


def intertwined_written(x):
    y = x * 2
    y.as_strided((2, 2), (4, 3)).add_(1)
    return y


def of_a_window(x):
    return x.t().unfold(0, 2, 1).as_strided((2, 2), (1, 1), 0) * 2


def of_what_was_filled(x):
    y = x.t().clone()[1:].zero_()
    return y.as_strided((2, 2), (1, 1), 0) + 1


def of_no_rows(x):
    return x[4:].as_strided((2, 2), (1, 1), 0) * 2


CASES = {
    fn.__name__: (fn, replays)
    for fn, replays in [
        (windows, ""),
        (from_an_offset, ""),
        (of_a_part, ""),
        (of_a_transposed, ""),
        (repeated, ""),
        (order_of_another, ""),
        (the_same_again, ""),
        (every_second_written, ""),
        (diagonals_written, ""),
        (in_another_order_written, ""),
        (stretches_written, ""),
        (intertwined_written, "as_strided"),
        (of_a_window, "lays out itself"),
        (of_what_was_filled, "lays out itself"),
        (of_no_rows, "lays out itself"),
    ]
}


@pytest.mark.parametrize("name", CASES)
def test_as_strided(name, monkeypatch):
    fn, replays = CASES[name]
    torchbolt.reset()
    compiled = torchbolt.compile(fn, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 6)
            got, want = compiled(x), fn(x)
            for g, w in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, want)), strict=True):
                assert torch.equal(g, w) and g.stride() == w.stride()
    (region,) = torchbolt.api.compiled_of(compiled)._regions()
    assert replays is None or replays in region["why_replayed"] and bool(replays) != region["compiled"], region[
        "why_replayed"
    ]


@pytest.mark.parametrize("whole", [lambda x: x.as_strided((2, 2), (1, 1)), lambda x: x[:1].expand(3, 6)])
def test_writes_to_part_of_what_shares_its_elements(whole):
    def fn(x):
        x[0].mul_(3)
        return x * 2

    torchbolt.reset()
    compiled = torchbolt.compile(fn, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 6)
            mine, theirs = x.clone(), x.clone()
            assert torch.equal(compiled(whole(mine)), fn(whole(theirs))) and torch.equal(mine, theirs)
    (region,) = torchbolt.api.compiled_of(compiled)._regions()
    assert "share their memory" in region["why_replayed"]


def test_offset_from_the_storages_beginning_of_a_view_that_moves():
    def first_row(x, index):
        row = x[int(index.argmax().item()) % x.shape[0]]  # a region begins here
        return row.as_strided((2, 2), (1, 1), 0)

    compiled = torchbolt.compile(first_row)
    x = torch.randn(4, 16)
    for hot in (1, 2, 3, 0, 1):
        index = torch.zeros(8)
        index[hot] = 1
        assert torch.equal(compiled(x, index), first_row(x, index))
