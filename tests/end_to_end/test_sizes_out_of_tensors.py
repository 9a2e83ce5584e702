# tests/end_to_end/test_sizes_out_of_tensors.py
"""Numbers out of tensors as sizes, bounds of slices and indices: a size that is data, and one region for all of them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import torchbolt

X = torch.arange(12.0)


def results(fn, counts, **options):
    """fn(x, n as a tensor) for each of the counts: eager's results or errors. -> the compiled function's stats."""
    torchbolt.reset()
    compiled = torchbolt.compile(fn, **options)

    def outcome(run, n):
        x = X.clone()
        try:
            return repr((run(x, torch.tensor(n)), x))
        except (RuntimeError, IndexError, ValueError) as error:
            return type(error)

    for n in counts:
        assert outcome(compiled, n) == outcome(fn, n), n
    return torchbolt.stats()


def sized(x, t):
    n = t.item()
    return torch.zeros(n) + torch.ones(n), torch.full((2 * n + 1, n), n).sum(0), x.repeat(n)


def sliced(x, t):
    n = t.item()
    return x[: n + 1] + 1, x[n:] * 2, x[n : n + 3].sum(), x.narrow(0, 1, n)


def written(x, t):
    n = int(t)
    x[: n + 1] = 0
    x[n] += 5
    y = x.view(3, 4)
    y[n // 4, n % 4] -= 1
    return y


def selected(x, t):
    n = t.item()
    return x[n] * 2, x.view(12, 1)[n, 0], x.view(1, 12)[:, n] + x[n]


def positions(x, t):
    past = t.item()
    return torch.arange(past, past + 4), x[None, past : past + 2], F.pad(x, (0, past))


def list_of_sizes(x, t):
    first, second = torch.stack([t, 12 - t]).tolist()
    return torch.ones(first + 1).sum() + torch.ones(second + 1).sum() * 2


def reshaped(x, t):
    return x.repeat(t.item() + 1).view(t.item() + 1, 12).sum(0)


def mask_of_lengths(x, t):
    lengths = torch.stack([t + 1, t + 4, t + 2])
    return torch.arange(lengths.max().item())[None] < lengths[:, None]


def returned(x, t):
    n = t.item()
    y = torch.ones(n)
    return y, y.shape, y.numel() + n, f"{n} of {len(x)}"


def places_without_dimensions(x, t):
    y, row = x.view(3, 4), t // 4
    z = torch.zeros(4, 13)
    z[row, t] = y[row, 1:].sum()
    z[row] += 2
    return y[row], y[row, :2] * 2, y[row, t % 4], y[1:, t % 4], x[t, ...], z


def then_changed(x, t):
    n = t.item()
    t.add_(1)
    return torch.zeros(n), torch.zeros(t.item()), t


FUNCTIONS = [
    sized,
    sliced,
    written,
    selected,
    positions,
    list_of_sizes,
    reshaped,
    mask_of_lengths,
    returned,
    places_without_dimensions,
    then_changed,
]


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_one_region_for_all(fn):
    stats = results(fn, (3, 5, 7, 2, 9, 1, 4), fullgraph=True)
    assert (stats["regions"], stats["eager_fallbacks"]) == (1, 0)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize(
    "counts", [(0, 3, 1, 5), (1, 0, 4, 2), (3, 0, 11, 12, 13, 200, 3), (5, -1, -12, -13, 4)], ids=str
)
def test_other_numbers(fn, counts):
    results(fn, counts)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8], ids=str)
def test_other_element_types(dtype):
    stats = results(lambda x, t: x[: t.to(dtype).item()] + torch.ones(t.to(dtype).item()).sum(), (3, 5, 2))
    assert stats["regions"] == 1


def test_sizes_that_are_data_are_numbers():
    def fn(x, t):
        part = x[t.item() // 2 :]
        n = part.shape[0] - 3
        most, least = max(n - 1, 0), min(n, 4)
        return (part * n)[most:].sum(), most * 2, least, slice(least, None), f"{most} of {n}"

    stats = results(fn, (3, 1, 5, 12, 2), fullgraph=True)
    assert (stats["regions"], stats["eager_fallbacks"]) == (1, 0)


def test_nothing_is_padded():
    # Then eager copies the tensor as it lies.
    def fn(x, t):
        y = F.pad(x.view(3, 4).t(), (t.item(), 0))
        return y, y.stride()

    def of_complex_numbers(x, t):  # which is one call of ATen
        y = F.pad(torch.complex(x, x).view(3, 4).t(), (t.item(), 0))
        return y, y.stride()

    for each in fn, of_complex_numbers:
        stats = results(each, (3, 0, 5, 0, 2))
        assert (stats["regions"], stats["eager_fallbacks"]) == (1, 2)


def test_one_is_a_size_like_others():
    def fn(x, t):
        y = x[: t.item()].squeeze() * 2
        return y, y.dim()

    results(fn, (3, 1, 5, 1, 2))
    results(fn, (1, 3, 1, 5, 1, 2))


def test_indices_under_gradients():
    def fn(x, t):
        w = x.clone().requires_grad_()
        (w[t.item()] * w[: t.item()].sum()).backward()
        return w.grad

    results(fn, (3, 5, 1, 2))


def test_numbers_that_torch_must_know():
    # How many points there are decides what linspace computes: the region ends before it.
    stats = results(lambda x, t: torch.linspace(0, 1, t.item()), (3, 5, 7, 5, 3, 2))
    assert stats["eager_fallbacks"] == 0


def test_what_seldom_holds_is_given_up():
    def fn(x, t):
        return torch.cat([part.sum()[None] for part in x.split(t.item())])

    # As many parts as in the first call: that is data, too. Eager runs the others, until that has become too many.
    counts = (3, 5, 7, 4, 6) * 4
    stats = results(fn, counts)
    assert 4 <= stats["eager_fallbacks"] <= 6

    # What holds mostly is kept.
    stats = results(fn, ((3,) * 9 + (5,)) * 4)
    assert (stats["regions"], stats["eager_fallbacks"]) == (1, 4)


def test_a_large_number_takes_no_memory():
    results(lambda x, t: x[: t.item()], (2**20, 2**30, 2**31 - 1, 2**31, 2**62, 3))


def test_computed_in_many_ways():
    def fn(x, t):
        n = t.item()
        lengths = torch.stack([t, t + 2, t % 3]).tolist()
        return (
            torch.ones(min(n, 5), max(n, 4)).sum(1),
            torch.ones(sum(lengths)),
            torch.zeros(max(lengths), n % 4 + 1),
            torch.ones(int(t.float() * 1.5)),
            x[: n // 2 + 1],
        )

    stats = results(fn, (3, 5, 7, 2, 9, 1, 4), fullgraph=True)
    assert (stats["regions"], stats["eager_fallbacks"]) == (1, 0)


COUNTED = {
    "torch.arange(t)": 0,
    "torch.arange(1, t + 2, 2)": 0,
    "torch.arange(t.float())": 1,
    "torch.arange(t, device=x.device)[None] < t": 0,
    "torch.arange(0.0, t.float().item() / 2, 0.25)": 1,
    "torch.arange(0, 12, t.float().item())": 1,
    "torch.range(0, t)": 1,
    "torch.linspace(0, t, 4)": 0,
    "torch.full((3,), t)": 0,
}


@pytest.mark.parametrize("text", COUNTED)
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_what_is_as_long_as_a_tensor_says(text):
    """A number that decides how much is made is none that is only computed with."""
    body = eval(f"lambda x, t: {text}", {"torch": torch})
    stats = results(lambda x, t: (x.sin(), body(x, t) + 1), [3, 5, 3, 7, 2])
    ends = torchbolt.explain(lambda x, t: (x.sin(), body(x, t) + 1))(X, torch.tensor(3)).graph_break_count
    assert (stats["eager_fallbacks"], ends) == (0, COUNTED[text])
