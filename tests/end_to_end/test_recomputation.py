# tests/end_to_end/test_recomputation.py
"""Programs that read what they computed several times under other indices: slices, cats, pads, rolls, flips, gathers.

Each must equal eager, and no fusion may work things out again at will: all kernels together execute at most 1.2 times the
instructions of the graph's operations by themselves, where a kernel's start is worth some too (loops/cost.h). Kernels stay
short however deep a recursion is.
"""

import random
import re

import pytest
import torch
import torch.nn.functional as F

import torchbolt
from torchbolt import _C

ROWS = 64
START = 200 * 48  # instructions that a core executes while a kernel starts
EXPRESSIONS = 256


# ---- prefix scans of h[t] = a[t] * h[t - 1] + b[t], along the last dimension


def combine(first, second):
    return second[0] * first[0], second[0] * first[1] + second[1]


def scan_of_neighbours(a, b):
    """Even and odd elements in turn, as JAX's associative_scan."""
    n = a.shape[-1]
    if n < 2:
        return a, b
    odd = scan_of_neighbours(*combine((a[..., : n - 1 : 2], b[..., : n - 1 : 2]), (a[..., 1::2], b[..., 1::2])))
    before = [x[..., : (n - 1) // 2] for x in odd]
    even = combine(before, (a[..., 2::2], b[..., 2::2]))
    even = [torch.cat([x[..., :1], y], -1) for x, y in zip((a, b), even, strict=True)]
    return tuple(interleave(x, y) for x, y in zip(even, odd, strict=True))


def interleave(even, odd):
    if even.shape[-1] == odd.shape[-1] + 1:
        return torch.cat([torch.stack([even[..., :-1], odd], -1).flatten(-2), even[..., -1:]], -1)
    return torch.stack([even, odd], -1).flatten(-2)


def scan_by_shifts(a, b):
    """Hillis and Steele: everything is combined with what stands 1, 2, 4 ... before it, which a pad brings there."""
    step = 1
    while step < a.shape[-1]:
        first = F.pad(a, (step, 0), value=1.0)[..., :-step], F.pad(b, (step, 0))[..., :-step]
        a, b = combine(first, (a, b))
        step *= 2
    return a, b


def scan_by_halves(a, b):
    """The second half goes on where the first one ends."""
    n = a.shape[-1]
    if n == 1:
        return a, b
    half = n // 2
    left = scan_by_halves(a[..., :half], b[..., :half])
    right = scan_by_halves(a[..., half:], b[..., half:])
    right = combine([x[..., -1:] for x in left], right)
    return tuple(torch.cat([x, y], -1) for x, y in zip(left, right, strict=True))


def scan_by_writes(a, b):
    """In place, a power of two apart, as Mamba in plain Python has it."""
    a, b = a.clone(), b.clone()
    step = 1
    while step < a.shape[-1]:
        new_b = b[..., step:] + a[..., step:] * b[..., :-step]
        new_a = a[..., step:] * a[..., :-step]
        b[..., step:] = new_b
        a[..., step:] = new_a
        step *= 2
    return a, b


SCANS = [scan_of_neighbours, scan_by_shifts, scan_by_halves, scan_by_writes]


# ---- other recursions


def butterflies(re, im):
    """A fast Fourier transform of real and imaginary parts."""
    n = re.shape[-1]
    if n == 1:
        return re, im
    even = butterflies(re[..., ::2], im[..., ::2])
    odd = butterflies(re[..., 1::2], im[..., 1::2])
    angle = torch.arange(n // 2, dtype=re.dtype) * (-2 * torch.pi / n)
    c, s = angle.cos(), angle.sin()
    t_re, t_im = c * odd[0] - s * odd[1], c * odd[1] + s * odd[0]
    return torch.cat([even[0] + t_re, even[0] - t_re], -1), torch.cat([even[1] + t_im, even[1] - t_im], -1)


def patches_by_slices(x, size=3):
    """im2col of an activation, and a weighted sum of it."""
    x = F.pad(torch.tanh(x), (1, 1, 1, 1))
    h, w = x.shape[-2] - size + 1, x.shape[-1] - size + 1
    columns = [x[..., i : i + h, j : j + w] for i in range(size) for j in range(size)]
    return torch.stack(columns, -1) * 0.5, sum(c * (k + 1) for k, c in enumerate(columns))


STEPS = {
    "halves": lambda x, r: torch.cat([x[:, x.shape[1] // 2 :].exp() * 0.1, x[:, : x.shape[1] // 2]], 1),
    "neighbours": lambda x, r: x[:, ::2].tanh().repeat_interleave(2, 1)[:, : x.shape[1]] + x,
    "shift": lambda x, r: F.pad(x, (k := r.randrange(1, 5), 0))[:, :-k] * 0.5 + x.sigmoid(),
    "roll": lambda x, r: x.roll(r.randrange(1, 9), 1) + x.sin(),
    "flip": lambda x, r: x.flip(1) * x.cos(),
    "gather": lambda x, r: x.gather(1, torch.arange(x.shape[1]).flip(0).expand_as(x)) + x,
    "window": lambda x, r: F.pad((x[:, 2:] + x[:, 1:-1] + x[:, :-2]).tanh(), (1, 1)),
    "both_ways": lambda x, r: torch.cat([x.flip(1)[:, :8], x[:, 8:]], 1) * x.erf(),
}


def random_recursion(seed):
    names = random.Random(seed).choices(list(STEPS), k=7)

    def program(x):
        r = random.Random(seed)
        for name in names:
            x = STEPS[name](x, r)
        return x

    return program


# ---- what is asked of each


def costs(fn, *inputs):
    """Of all regions: instructions of the kernels and of the graphs, kernels, the longest one's expressions."""
    work = alone = kernels = longest = 0
    for text in torchbolt.explain(fn)(*inputs).graphs:
        table = _C._opt(text, ["-", "--passes=standard", "--emit=costs"])[0]
        head = re.match(r"costs: (\d+) instructions \(of (\d+)\), at most (\d+) expressions", table)
        assert head, table
        work, alone = work + int(head[1]), alone + int(head[2])
        longest = max(longest, int(head[3]))
        kernels += table.count("\n  @")
    return work, alone, kernels, longest


def check(fn, *inputs):
    with torch.no_grad():
        torch.testing.assert_close(torchbolt.compile(fn)(*inputs), fn(*inputs), rtol=1e-4, atol=1e-4)
        work, alone, kernels, longest = costs(fn, *inputs)
    assert kernels > 0
    assert work <= 1.2 * alone + START * kernels, f"{work / alone:.2f} times the work in {kernels} kernels"
    assert longest <= EXPRESSIONS


def random_inputs(count, *shape):
    torch.manual_seed(0)
    return [torch.rand(shape) for _ in range(count)]


@pytest.mark.parametrize("length", [8, 24, 64])
@pytest.mark.parametrize("scan", SCANS, ids=lambda f: f.__name__)
def test_scans(scan, length):
    check(scan, *random_inputs(2, ROWS * 8, length))


@pytest.mark.parametrize("length", [8, 32])
def test_butterflies(length):
    check(butterflies, *random_inputs(2, ROWS, length))


def test_patches():
    check(patches_by_slices, *random_inputs(1, 8, 16, 16))


@pytest.mark.parametrize("seed", range(12))
def test_random_recursions(seed):
    check(random_recursion(seed), *random_inputs(1, ROWS * 4, 48))


def test_cheap_and_small_work_is_still_fused():
    """What saves more than it repeats stays one kernel: the halves of a rotary embedding."""

    def rotary(x, cos, sin):
        half = x.shape[-1] // 2
        return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin

    x, cos, sin = random_inputs(3, 512, 64)
    assert costs(rotary, x, cos, sin)[2] == 1
