# tests/end_to_end/test_parts_of_complex.py
"""Complex numbers, which no kernel computes with: parts that are written to, tensors that are turned, and gradients."""

import pytest
import torch
from torch import nn

import torchbolt


def rows(x):
    y = x * 2
    y[1:3] = 1
    return y


def a_row_and_a_column(x):
    y = x * 2
    y[1] = x[0]
    y[:, 2].mul_(3)
    return y, y[0]


def an_input(x):
    x[1:3] = 1
    return x * 2


def the_part_itself(x):
    y = x * 2
    part = y[1:3]
    part.add_(1)
    return y * 2, part


def part_of_a_part(x):
    y = x * 2
    y[1:3][0:1] = 7
    return y


def a_diagonal(x):
    y = x.T * 2
    y.diagonal().zero_()
    return y


def every_second(x):
    y = x * 2
    y[:, ::2] = 0
    y[-1] = 1j
    return y.abs().sum()


def turned(x):
    y = x * 2
    first = y[0]
    y.transpose_(0, 1)
    return y, first.abs()


def turned_and_read(x):
    y = x * 2
    y.t_().unsqueeze_(0)
    return y + 1, y.abs()


def read_through_another(x):
    y = x * 2
    first, second = y[1:3], y[0:2]
    first.add_(1)
    return second * 2


def turned_and_written(x):
    y = x * 2
    y.transpose_(0, 1)
    y.mul_(2)
    return y


def a_turned_input(x):
    x.transpose_(0, 1)
    return x * 2


#: What is left to a replay, and is right.
def real_parts(x):
    y = x * 2
    y[1:3].real.zero_()
    return y


COMPILED = [
    rows, a_row_and_a_column, an_input, the_part_itself, part_of_a_part, a_diagonal, every_second, turned,
    turned_and_read,
    read_through_another, turned_and_written, a_turned_input,
]  # fmt: skip
REPLAYED = [real_parts]


def of_form(kind):
    x = torch.randn(4, 8, dtype=torch.complex64)
    return {"dense": x[:, :4].clone(), "turned": x[:, :4].clone().T, "gaps": x[:, ::2]}[kind]


def same_memory(x):
    return x.clone() if x.is_contiguous() else torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x)


@pytest.mark.parametrize("kind", ["dense", "turned", "gaps"])
@pytest.mark.parametrize("fn", COMPILED + REPLAYED, ids=lambda fn: fn.__name__)
def test_as_eager(fn, kind):
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for _ in range(4):
        x = of_form(kind)
        y = same_memory(x)
        for a, b in zip(*[out if isinstance(out, tuple) else (out,) for out in (compiled(x), fn(y))], strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
        torch.testing.assert_close(x, y)
        assert x.stride() == y.stride()
    assert torchbolt.stats()["graph_breaks"] == 0
    assert (torchbolt.stats()["eager_fallbacks"] == 0) == (fn in COMPILED)


def magnitudes(x):
    return torch.fft.rfft(x * 2).abs().log1p()


FILTER = torch.full((6,), 0.5 + 0.25j)


def filtered(x):
    return torch.fft.irfft(torch.fft.rfft(x)[..., :6] * FILTER, n=20) + x


def spectrogram(x):
    return torch.stft(x * 2, 8, 4, window=torch.hann_window(8), return_complex=True).abs().transpose(1, 2)


@pytest.mark.parametrize("fn", [magnitudes, filtered, spectrogram], ids=lambda fn: fn.__name__)
def test_gradients(fn):
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    for _ in range(3):
        x = torch.randn(3, 20, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        weights = torch.randn_like(fn(x))
        (compiled(x) * weights).sum().backward()
        (fn(y) * weights).sum().backward()
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-5)
    assert (torchbolt.stats()["eager_fallbacks"], torchbolt.stats()["recordings"]) == (0, 1)


@pytest.mark.parametrize("fn", [magnitudes, filtered, spectrogram], ids=lambda fn: fn.__name__)
def test_whole_steps(fn):
    def trained(wrap):
        torch.manual_seed(1)
        model = nn.Linear(12, 20)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-2)

        def step(x):
            opt.zero_grad()
            loss = fn(model(x)).square().mean()
            loss.backward()
            opt.step()
            return loss.detach()

        step = wrap(step)
        return [step(torch.randn(3, 12)) for _ in range(5)], [p.detach() for p in model.parameters()]

    torchbolt.reset()
    torch.testing.assert_close(trained(torchbolt.compile), trained(lambda step: step), rtol=1e-4, atol=1e-5)
    stats = torchbolt.stats()
    assert (stats["recordings"], stats["graph_breaks"], stats["eager_fallbacks"]) == (2, 0, 0)


def as_numbers(x):
    return torch.view_as_real(x) * 2 + 1


def of_a_result(x):
    y = x * x
    return torch.view_as_real(y) * 2, y[0:2].abs()


def returned(x):
    return torch.view_as_real(x), torch.view_as_real(x * x)


def behind_a_write(x):
    before = torch.view_as_real(x) + 0
    x.mul_(2)
    return torch.view_as_real(x) * before


def conjugates(x):
    return torch.view_as_real(x.conj().resolve_conj()) * 2, x.conj()[1:].abs()


@pytest.mark.parametrize("fn", [as_numbers, of_a_result, returned, behind_a_write, conjugates])
def test_what_is_shown_is_not_copied(fn):
    """Views of what no step writes to show it; results are memory of their own where eager's are."""
    torchbolt.reset()
    compiled = torchbolt.compile(fn)
    given = torch.randn(6, 5, dtype=torch.complex64)
    for _ in range(4):
        x, y = given.clone(), given.clone()
        mine, theirs = compiled(x), fn(y)
        torch.testing.assert_close(mine, theirs)
        for m, t in zip(*(r if isinstance(r, tuple) else (r,) for r in (mine, theirs)), strict=True):
            m.add_(1), t.add_(1)
        torch.testing.assert_close(x, y)
    with torch.profiler.profile() as seen:
        compiled(given.clone())
    copies = sum(event.name == "aten::clone" for event in seen.events()) - 1
    assert copies == 0 or fn not in (as_numbers, of_a_result)


def test_a_view_of_turned_numbers_lies_as_they_do():
    """It is shown where it lies, and not put into rows for the kernel that reads it."""

    def f(x):
        return torch.view_as_real(x) * 2, torch.view_as_real(x)[..., 0] + 1

    x = torch.randn(5, 4, dtype=torch.complex64).t()
    compiled = torchbolt.compile(f)
    for _ in range(3):
        for got, expected in zip(compiled(x), f(x), strict=True):
            assert torch.equal(got, expected) and got.stride() == expected.stride()
    shown = [line for line in torchbolt.explain(f)(x).plans[0].splitlines() if "made by its step" in line]
    assert shown and all("f32[4, 5, 2]{2, 8, 1}" in line for line in shown)


def test_a_view_that_is_returned_is_no_copy():
    """Nobody else holds the spectrum, of which it shows the numbers."""

    def f(x):
        return torch.view_as_real(torch.fft.rfft(x))

    x = torch.randn(4, 6)
    compiled = torchbolt.compile(f)
    for _ in range(3):
        first, second = compiled(x), compiled(x + 1)
        assert torch.equal(first, f(x)) and torch.equal(second, f(x + 1))
    with torch.autograd.profiler.profile() as seen:
        compiled(x)
    assert {e.name for e in seen.function_events}.isdisjoint({"aten::clone", "aten::copy_"})


def test_parts_are_read_where_they_lie():
    """A copy of every second number took three times as long as the kernel that reads it."""

    def f(x):
        return x.real.relu(), x.imag + 1

    for x in (torch.randn(5, 4, dtype=torch.complex64), torch.randn(4, 10, dtype=torch.complex64)[:, ::2].t()):
        torchbolt.reset()
        compiled = torchbolt.compile(f)
        for _ in range(3):
            for got, expected in zip(compiled(x), f(x), strict=True):
                assert torch.equal(got, expected) and got.stride() == expected.stride()
        with torch.autograd.profiler.profile() as seen:
            compiled(x)
        copies = {"aten::clone", "aten::copy_"} & {e.name for e in seen.function_events}
        assert not copies or not x.is_contiguous()


def test_products_of_parts_under_gradients():
    """einsum views what it is given by the strides of that, which a copy of a part of it has not."""

    def f(x, w):
        spectrum = torch.fft.rfft(x)
        low = torch.einsum("bix,iox->box", spectrum[:, :, :4], w)
        high = torch.einsum("bix,iox->box", spectrum[:, 1:, -3:], w[1:, :, 1:])
        return torch.fft.irfft(low, n=x.shape[-1]), high.abs()

    compiled = torchbolt.compile(f)
    for seed in range(4):
        torch.manual_seed(seed)
        given = torch.randn(2, 4, 10), torch.randn(4, 3, 4, dtype=torch.complex64)
        grads = []
        for fn in (compiled, f):
            leaves = [t.clone().requires_grad_() for t in given]
            results = fn(*leaves)
            sum(r.square().sum() for r in results).backward()
            grads.append([*results, *(t.grad for t in leaves)])
        torch.testing.assert_close(*grads)


def cut_by_sizes(x, z):
    X = torch.fft.rfft(x)
    half = X[..., : X.shape[-1] // 2]
    return half, half[1:, ::2] * 2, X[:, -4:-1].abs(), z[1:, x.shape[0] :], torch.fft.irfft(half, n=x.shape[-1])


def written_by_sizes(x, z):
    X = torch.fft.rfft(x)
    low = torch.zeros_like(X)
    low[..., :4] = X[..., :4] * z[: x.shape[0], :4]
    low[1:, X.shape[-1] // 2 :] += 1
    X[:, 3:] = 0
    return low, torch.fft.irfft(X, n=x.shape[-1]), X[:, :40]


def places_by_sizes(x, z):
    X = torch.fft.rfft(x)
    X[:, 0] = 0
    z[-1] += 1
    return X[..., -1] * 2, z[x.shape[0]], z[1:][1], X[..., 1].abs(), X, z[2, x.shape[1] // 8], z


@pytest.mark.parametrize("fn", [cut_by_sizes, written_by_sizes, places_by_sizes])
@pytest.mark.parametrize("dynamic", [None, True])
def test_parts_whose_sizes_differ(fn, dynamic):
    torchbolt.reset()
    compiled = torchbolt.compile(fn, dynamic=dynamic)
    for rows, columns in ((3, 16), (3, 20), (4, 24), (5, 30), (6, 44), (4, 64), (5, 100)):
        x, z = torch.randn(rows, columns), torch.randn(rows + 2, columns, dtype=torch.complex64)
        got, want = compiled(x, z.clone()), fn(x, z)
        torch.testing.assert_close(got, want)
        assert [t.stride() for t in got] == [t.stride() for t in want]
    assert torchbolt.stats()["recordings"] <= 4 and torchbolt.stats()["eager_fallbacks"] == 0, torchbolt.stats()
