# tests/ops/test_windows.py
"""Borders that repeat what is inside, images at other sizes, places between pixels, patches and pools, and their gradients."""

import pytest
import torch
import torch.nn.functional as F
from agree import FLOATS, check, lain_otherwise

import torchbolt

aten = torch.ops.aten
REAL = (torch.float32, torch.float64)


def image(*sizes, dtype=torch.float32):
    return torch.randn(sizes, dtype=dtype)


def ordered(x):
    """The values of x as (tensor, calls of ATen): with channels innermost, where rows read at places, and dense."""
    yield x, 1
    yield x.movedim(1, -1).contiguous().movedim(-1, 1), 0


SIZES = {1: (2, 3, 9), 2: (2, 3, 7, 8), 3: (2, 3, 4, 5, 6)}


# ---- borders


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_borders(dims, mode, dtype):
    amounts = [1, 2, 3, 0, 0, 2][: 2 * dims]
    for each, _ in ordered(image(*SIZES[dims], dtype=dtype)):
        calls = int(F.pad(each, amounts, mode=mode).stride(1) != 1)  # rows are for runs that are stored as such
        check(lambda x: F.pad(x, amounts, mode=mode), each, extern=calls)
        check(lambda x: F.pad(x * 2, amounts, mode=mode) + 1, each, extern=calls)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_borders_of_whole_numbers_and_after_convolutions(mode):
    for each, _ in ordered(torch.randint(-9, 9, (2, 3, 4, 5))):
        calls = int(F.pad(each, (2, 1, 1, 2), mode=mode).stride(1) != 1)
        check(lambda x: F.pad(x, (2, 1, 1, 2), mode=mode), each, extern=calls)
    x, w = image(2, 3, 6, 7), image(4, 3, 3, 3)
    check(lambda x, w: F.pad(F.pad(F.conv2d(x, w).relu(), (2, 1, 1, 2), mode=mode), (1, 1, 1, 1), mode=mode), x, w)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", ["reflection", "replication"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_borders(dims, kind, dtype):
    backward = getattr(aten, f"{kind}_pad{dims}d_backward")
    for amounts in ([1, 2, 3, 0, 0, 2], [3, 1, 2, 2, 1, 1]):
        amounts = amounts[: 2 * dims]
        x = image(*SIZES[dims], dtype=dtype)
        g = torch.randn_like(F.pad(x, amounts, mode="replicate"))
        for _, each in lain_otherwise(g):
            check(lambda g, x: backward(g, x, amounts), each, x)


def test_a_wide_border_comes_back():
    g, x = image(2, 3, 20), image(2, 3, 7)
    check(lambda g, x: aten.replication_pad1d_backward(g, x, [6, 7]), g, x)


def test_borders_that_do_not_fit_raise():
    compiled = torchbolt.compile(lambda x: F.pad(x, (9, 0), mode="reflect"))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="less than the corresponding"):
            compiled(image(2, 3, 9))


# ---- images at other sizes

BY_DIMS = [(1, "linear"), (2, "bilinear"), (2, "bicubic"), (3, "trilinear")]
TO = {1: [14, 5, 9, 1], 2: [(15, 5), (7, 8), (14, 16), (3, 1)], 3: [(7, 3, 6), (8, 10, 12)]}


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("dims,mode", BY_DIMS)
def test_sizes(dims, mode, dtype, aligned):
    for size in TO[dims]:
        for _, each in lain_otherwise(image(*SIZES[dims], dtype=dtype)):
            check(lambda x: F.interpolate(x, size=size, mode=mode, align_corners=aligned), each)


@pytest.mark.parametrize("recomputed", [None, True])
@pytest.mark.parametrize(
    "dims,mode", [*BY_DIMS, (1, "nearest-exact"), (2, "nearest-exact"), (3, "nearest-exact"), (2, "nearest")]
)
def test_factors(dims, mode, recomputed):
    for factor in (2, 1.3, 0.6):
        x = image(*SIZES[dims])
        check(lambda x: F.interpolate(x, scale_factor=factor, mode=mode, recompute_scale_factor=recomputed), x)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.uint8])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_copies(dims, mode, dtype):
    x = torch.randint(0, 99, SIZES[dims]).to(dtype)
    for size in TO[dims]:
        check(lambda x: F.interpolate(x, size=size, mode=mode), x)


FILTERS = [
    (1, "upsample_linear1d"), (2, "upsample_bilinear2d"), (2, "upsample_bicubic2d"), (3, "upsample_trilinear3d"),
    (1, "upsample_nearest1d"), (2, "upsample_nearest2d"), (3, "upsample_nearest3d"),
    (1, "_upsample_nearest_exact1d"), (2, "_upsample_nearest_exact2d"), (3, "_upsample_nearest_exact3d"),
]  # fmt: skip


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("dims,name", FILTERS)
def test_gradients_of_sizes(dims, name, dtype, aligned):
    nearest = "nearest" in name
    if nearest and aligned:
        return
    backward = getattr(aten, f"{name}_backward")
    corners = [] if nearest else [aligned]
    for size in (*TO[dims], tuple(3 * n for n in SIZES[dims][2:])):
        size = [size] if isinstance(size, int) else list(size)
        g = image(2, 3, *size, dtype=dtype)
        smaller = not nearest and any(a < b for a, b in zip(size, SIZES[dims][2:], strict=True))
        check(lambda g: backward(g, size, list(SIZES[dims]), *corners), g, extern=int(smaller))


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_sizes_with_antialiasing(mode, dtype, aligned):
    backward = getattr(aten, f"_upsample_{mode}2d_aa_backward")
    for size in ((3, 5), (7, 4), (14, 16), (2, 19)):
        smooth = lambda x: F.interpolate(x, size, mode=mode, align_corners=aligned, antialias=True)  # noqa: E731, B023
        check(smooth, torch.randn(2, 3, 7, 8, dtype=dtype))
        g = torch.randn(2, 3, *size, dtype=dtype)
        check(lambda g: backward(g, list(g.shape[2:]), [2, 3, 7, 8], aligned), g)  # noqa: B023
    for factor in (0.4, 1.7):
        by_autograd(lambda x: F.interpolate(x, scale_factor=factor, mode=mode, antialias=True), image(2, 3, 7, 8))  # noqa: B023


def test_long_images_with_antialiasing_stay_one_call():
    check(lambda x: F.interpolate(x, (30, 20), mode="bilinear", antialias=True), image(1, 2, 300, 40), extern=1)
    check(lambda x: F.interpolate(x, (120, 120), mode="bilinear", antialias=True), image(1, 2, 200, 130), extern=1)
    check(lambda x: F.interpolate(x, (300, 310), mode="bilinear", antialias=True), image(1, 2, 200, 300))


def test_gradients_by_factors():
    x = image(2, 3, 7, 8)
    for mode in ("bilinear", "bicubic", "nearest", "nearest-exact"):
        for factor in (2.0, 1.3, 0.45):
            by_autograd(lambda x: F.interpolate(x, scale_factor=factor, mode=mode), x)


def by_autograd(fn, *args):
    """A compiled step with gradients against eager's."""

    def step(*given):
        results = fn(*given)
        return torch.autograd.grad((results * results).sum(), [a for a in given if a.requires_grad])

    torchbolt.reset()
    compiled = torchbolt.compile(step)
    args = [a.clone().requires_grad_() if a.is_floating_point() else a for a in args]
    for _ in range(2):
        for mine, theirs in zip(compiled(*args), step(*args), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
            assert mine.stride() == theirs.stride()


def test_infinite_gradients_stay_where_they_are():
    g = image(1, 1, 1, 16)
    g[..., 7] = torch.inf
    backward = lambda g: aten.upsample_bilinear2d_backward(g, [1, 16], [1, 1, 1, 8], False)  # noqa: E731
    assert torch.equal(torchbolt.compile(backward)(g).isfinite(), backward(g).isfinite())


# ---- places between pixels


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("dims", [2, 3])
def test_grid_samples(dims, mode, padding, aligned):
    if dims == 3 and mode == "bicubic":
        return
    for dtype in REAL:
        x = image(*SIZES[dims], dtype=dtype)
        grid = torch.rand(2, *(4, 5, 3)[:dims], dims, dtype=dtype) * 2.6 - 1.3
        for each, _ in ordered(x):  # eager's results lie in rows either way
            check(lambda x, g: F.grid_sample(x, g, mode, padding, aligned), each, grid, extern=1)
        convolve = F.conv2d if dims == 2 else F.conv3d
        same = torch.eye(3, dtype=dtype).reshape(3, 3, *[1] * dims)
        behind = lambda x, w, g: F.grid_sample(convolve(x, w), g, mode, padding, aligned)  # noqa: B023, E731
        check(behind, x, same, grid)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grids_that_point_nowhere(padding):
    grid = torch.rand(1, 4, 5, 2)
    grid[0, 0, 0, 0], grid[0, 1, 1, 1], grid[0, 2, 2, 0], grid[0, 3, 3] = torch.inf, -1e30, 1e9, -torch.inf
    x = image(1, 2, 6, 7).contiguous(memory_format=torch.channels_last)
    if padding != "reflection":  # of infinity ATen's own kernels differ there
        sample = lambda x, g: F.grid_sample(x, g, "bilinear", padding, False)  # noqa: E731
        torch.testing.assert_close(torchbolt.compile(sample)(x, grid), sample(x, grid), equal_nan=True)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_affine_grids(dims, aligned):
    theta = image(2, dims, dims + 1)
    for size in ([2, 3, 5, 6, 4], [2, 3, 1, 6, 1]):
        size = size[: dims + 2]
        check(lambda t: F.affine_grid(t, size, align_corners=aligned), theta)
        g = image(2, *size[2:], dims)
        check(lambda g: aten.affine_grid_generator_backward(g, size, aligned), g)


# ---- patches

PATCHES = {
    "plain": ([3, 2], [1, 1], [0, 0], [1, 1]),
    "padded": ([3, 3], [1, 1], [1, 1], [2, 2]),
    "tiles": ([2, 2], [1, 1], [0, 0], [2, 2]),
    "dilated": ([2, 3], [2, 2], [1, 2], [1, 2]),
    "far apart": ([2, 2], [1, 1], [1, 0], [3, 3]),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", PATCHES)
def test_patches(name, dtype):
    kernel, dilation, padding, stride = PATCHES[name]
    x = image(2, 3, 8, 9, dtype=dtype)
    for _, each in lain_otherwise(x):
        check(lambda x: F.unfold(x, kernel, dilation, padding, stride), each)
    columns = torch.randn_like(F.unfold(x, kernel, dilation, padding, stride))
    for _, each in lain_otherwise(columns):
        check(lambda x: F.fold(x, (8, 9), kernel, dilation, padding, stride), each)
    check(lambda x: F.unfold(x, kernel, dilation, padding, stride), x[0])


# ---- pools

POOLS = {
    "overlapping": ([3], [2], [1], [1], False),
    "tiles": ([2], [], [0], [1], False),
    "rounded up": ([3], [2], [1], [1], True),
    "dilated": ([2], [2], [1], [2], False),
    "dense": ([3], [1], [1], [1], False),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_largest_with_places(dims, name, dtype):
    pool = getattr(F, f"max_pool{dims}d")
    kernel, stride, padding, dilation, up = POOLS[name]
    call = lambda x: pool(x, kernel[0], (stride or kernel)[0], padding[0], dilation[0], up, True)  # noqa: E731
    for _, each in lain_otherwise(image(*SIZES[dims], dtype=dtype)):
        check(call, each)
    x = image(*SIZES[dims], dtype=dtype).round()  # many are equal
    x[0, 0] = -torch.inf
    check(call, x)


def test_places_of_what_is_no_number():
    x = image(2, 3, 9, 9)
    x[torch.rand(x.shape) < 0.2] = torch.nan
    for pool in (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True),
                 lambda x: F.adaptive_max_pool2d(x, 3, return_indices=True),
                 lambda x: F.adaptive_max_pool2d(x, 1, return_indices=True)):  # fmt: skip
        values, places = torchbolt.compile(pool)(x)
        expected, where = pool(x)
        assert torch.equal(places, where) and torch.equal(values.isnan(), expected.isnan())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("to", [1, 2, 3, 5])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_adaptive_largest(dims, to, dtype):
    pool = getattr(F, f"adaptive_max_pool{dims}d")
    for sizes in (SIZES[dims], (2, 2, *(6, 6, 6)[:dims])):
        even = to == 1 or all(n % to == 0 for n in sizes[2:])
        for _, each in lain_otherwise(image(*sizes, dtype=dtype)):
            check(lambda x: pool(x, to, return_indices=True), each, extern=int(not even))


@pytest.mark.parametrize("dims", [2, 3])
def test_gradients_of_largest(dims):
    x = image(2, 3, *(6, 9, 6)[:dims])
    for pool in (f"max_pool{dims}d", f"adaptive_max_pool{dims}d"):
        by_autograd(lambda x: getattr(F, pool)(x, 3), x)


AVERAGES = {
    "overlapping": ([3], [2], [1], False, True),
    "the image alone": ([3], [2], [1], False, False),
    "rounded up": ([3], [2], [1], True, True),
    "rounded up, the image alone": ([3], [2], [0], True, False),
    "tiles": ([2], [2], [0], False, True),
    "dense": ([3], [1], [1], False, True),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("divisor", [None, 5])
@pytest.mark.parametrize("name", AVERAGES)
@pytest.mark.parametrize("dims", [2, 3])
def test_gradients_of_averages(dims, name, divisor, dtype):
    kernel, stride, padding, up, counts = AVERAGES[name]
    pool, backward = getattr(aten, f"avg_pool{dims}d"), getattr(aten, f"avg_pool{dims}d_backward")
    x = image(*SIZES[dims], dtype=dtype)
    try:
        g = torch.randn_like(pool(x, kernel, stride, padding, up, counts, divisor))
        backward(g, x, kernel, stride, padding, up, counts, divisor)
    except RuntimeError as error:
        assert "not implemented" in str(error)
        return
    if dims == 3 and name == "dense":
        return check(lambda g, x: backward(g, x, kernel, stride, padding, up, counts, divisor), g, x, extern=1)
    check(lambda g, x: backward(g, x, kernel, stride, padding, up, counts, divisor), g, x)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("to", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("dims", [2, 3])
def test_gradients_of_adaptive_averages(dims, to, dtype):
    backward = getattr(aten, f"_adaptive_avg_pool{dims}d_backward")
    for sizes in (SIZES[dims], (2, 3, *(6, 6, 6)[:dims])):
        g, x = image(2, 3, *[to] * dims, dtype=dtype), image(*sizes, dtype=dtype)
        check(lambda g, x: backward(g, x), g, x, extern=int(any(n % to for n in sizes[2:])))
