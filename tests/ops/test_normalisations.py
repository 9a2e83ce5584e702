# tests/ops/test_normalisations.py
"""Normalisations as autograd calls them, with what they keep, and their gradients."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from agree import FLOATS, check, lain_otherwise

aten = torch.ops.aten
MASKS = [m for m in itertools.product([True, False], repeat=3) if any(m)]
#: Element types of the input and of the parameters.
PAIRS = [*((t, t) for t in FLOATS), (torch.bfloat16, torch.float32)]


def parameters(n, dtype):
    return torch.rand(n, dtype=dtype) + 0.5, torch.randn(n, dtype=dtype)


@pytest.mark.parametrize("types", PAIRS)
@pytest.mark.parametrize("given", ["both", "weight", "none"])
@pytest.mark.parametrize("shape", [(5,), (3, 5), (4, 3, 5)])
def test_layer_norm(shape, given, types):
    dtype, of_parameters = types if given != "none" else types[:1] * 2
    x = torch.randn(4, 3, 5, dtype=dtype) * 2 + 1
    w, b = parameters(shape, of_parameters)
    w, b = (w if given != "none" else None), (b if given == "both" else None)
    for _, each in lain_otherwise(x):
        check(lambda x, w, b: aten.native_layer_norm(x, shape, w, b, 1e-5), each, w, b)


def masks(dtype):
    return MASKS if dtype is torch.float32 else MASKS[:2]


@pytest.mark.parametrize("types", PAIRS)
def test_layer_norm_backward(types):
    dtype, of_parameters = types
    x, g = torch.randn(4, 3, 64, dtype=dtype) * 2 + 1, torch.randn(4, 3, 64, dtype=dtype)
    w, b = parameters((64,), of_parameters)
    _, mean, rstd = aten.native_layer_norm(x, [64], w, b, 1e-5)
    for name, each in lain_otherwise(x):
        for mask in masks(dtype) if name == "dense" else MASKS[:1]:
            check(lambda *a: aten.native_layer_norm_backward(a[0], a[1], [64], *a[2:], mask), g, each, mean, rstd, w, b)


def test_layer_norm_backward_without_parameters_and_of_everything():
    x, g = torch.randn(6, 8), torch.randn(6, 8)
    for shape in ([8], [6, 8]):
        _, mean, rstd = aten.native_layer_norm(x, shape, None, None, 1e-5)
        check(lambda g, x, m, r: aten.native_layer_norm_backward(g, x, shape, m, r, None, None, [True, False, False]),
              g, x, mean, rstd)  # fmt: skip
    w, b = parameters((6, 8), torch.float32)
    check(lambda *a: aten.native_layer_norm_backward(a[0], a[1], [6, 8], *a[2:], MASKS[0]), g, x, mean, rstd, w, b)


def test_a_large_mean():
    x = torch.randn(16, 64) + 100
    w, b = parameters(64, torch.float32)
    _, mean, rstd = aten.native_layer_norm(x, [64], w, b, 1e-5)
    check(lambda x, w, b: aten.native_layer_norm(x, [64], w, b, 1e-5)[0], x, w, b)
    check(lambda *a: aten.native_layer_norm_backward(a[0], a[1], [64], *a[2:], MASKS[0]),
          torch.randn(16, 64), x, mean, rstd, w, b)  # fmt: skip


@pytest.mark.parametrize("types", PAIRS)
def test_rms_norm(types):
    dtype, _ = types
    x, w = torch.randn(4, 3, 64, dtype=dtype), torch.rand(64, dtype=dtype)
    check(lambda x, w: aten._fused_rms_norm(x, [64], w, 1e-6), x, w)
    check(lambda x: aten._fused_rms_norm(x, [3, 64], None, 1e-6), x)
    check(lambda x, w: aten._fused_rms_norm(x * 1e-3, [64], w, None), x, w)


@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("weights", [torch.float32, torch.bfloat16, None])
def test_rms_norm_without_epsilon(given, weights):
    """As modules call it: no epsilon, and under autocast a weight that is wider than the input."""
    x = torch.randn(4, 3, 64, dtype=given) * 1e-3
    w = [] if weights is None else [torch.rand(64, dtype=weights)]
    check(lambda x, *w: torch.rms_norm(x, [64], *w), x, *w)


def rms_norm_backward(grad_out, input, normalized_shape, rstd, weight, output_mask):
    """In doubles; only GPUs have the operator."""
    over, rows = tuple(range(-len(normalized_shape), 0)), tuple(range(input.dim() - len(normalized_shape)))
    g, normal = grad_out.double(), input.double() * rstd.double()
    h = g if weight is None else g * weight.double()
    of_input = rstd * (h - normal * (h * normal).mean(over, keepdim=True))
    of_weight = (g * normal).sum(rows).to(weight.dtype) if output_mask[1] else None
    return of_input.to(input.dtype) if output_mask[0] else None, of_weight


def test_the_formula_is_autograds():
    x, w = (torch.randn(*s, dtype=torch.double, requires_grad=True) for s in ((4, 3, 64), (64,)))
    rstd = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt().detach()
    g = torch.randn(4, 3, 64, dtype=torch.double)
    expected = torch.autograd.grad(torch.rms_norm(x, [64], w, 1e-6), (x, w), g)
    torch.testing.assert_close(rms_norm_backward(g, x.detach(), [64], rstd, w.detach(), [True, True]), expected)


@pytest.fixture
def on_the_processor():
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("_fused_rms_norm_backward", rms_norm_backward, "CPU")
        yield


@pytest.mark.parametrize("types", PAIRS)
def test_gradients_of_rms_norm(on_the_processor, types):
    dtype, _ = types
    x, w, g = torch.randn(4, 3, 64, dtype=dtype), torch.rand(64, dtype=dtype), torch.randn(4, 3, 64, dtype=dtype)
    rstd = aten._fused_rms_norm(x, [64], w, 1e-6)[1]
    backward = aten._fused_rms_norm_backward
    check(lambda g, x, r, w: backward(g, x, [64], r, w, [True, True]), g, x, rstd, w)
    check(lambda g, x, r, w: backward(g, x, [64], r, w, [False, True])[1], g, x, rstd, w)
    check(lambda g, x, r: backward(g, x, [64], r, None, [True, False])[0], g, x, rstd)


IMAGES = {"signals": (4, 6, 9), "images": (2, 6, 5, 4), "rows": (7, 6), "volumes": (2, 6, 2, 3, 2)}


@pytest.mark.parametrize("types", PAIRS)
@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("kind", ["signals", "images"])
def test_group_norm(kind, groups, types):
    dtype, of_parameters = types
    x = torch.randn(IMAGES[kind], dtype=dtype)
    g, places = torch.randn_like(x), x[0, 0].numel()
    w, b = parameters(6, of_parameters)
    for name, each in lain_otherwise(x):
        if name in ("transposed", "part of a wider one"):
            continue  # ATen's refuses them
        calls = int(name == "channels last" and groups == 2)
        norm = lambda x, w, b: aten.native_group_norm(x, w, b, len(x), 6, places, groups, 1e-5)  # noqa: E731
        check(norm, each, w, b, extern=calls)
        _, mean, rstd = aten.native_group_norm(each, w, b, len(x), 6, places, groups, 1e-5)
        for mask in masks(dtype):
            if name == "channels last" and not mask[0]:
                continue  # ATen's reads where nothing is
            check(
                lambda g, x, m, r, w: aten.native_group_norm_backward(g, x, m, r, w, len(x), 6, places, groups, mask),
                g.contiguous(memory_format=torch.channels_last) if name == "channels last" else g, each, mean, rstd, w,
            )  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("channels", [8, 12, 32, 48])
def test_groups_of_channels_that_lie_innermost(channels, dtype):
    """They fill vectors if they are many; of a few, ATen's norm takes a third of the time."""
    x = torch.randn(2, channels, 5, 6, dtype=dtype).contiguous(memory_format=torch.channels_last)
    w, b = parameters(channels, dtype)
    for groups in (1, 2, channels):
        few = 1 < channels // groups < 16 and groups > 1
        check(lambda x, w, b: torch.group_norm(x, groups, w, b), x, w, b, extern=int(few))  # noqa: B023


@pytest.mark.parametrize("types", PAIRS)
@pytest.mark.parametrize("given", ["everything", "no parameters", "no statistics"])
@pytest.mark.parametrize("kind", IMAGES)
def test_batch_norm_in_training(kind, given, types):
    dtype, of_parameters = types if given != "no parameters" else types[:1] * 2
    x = torch.randn(IMAGES[kind], dtype=dtype) * 2 + 1
    w, b = parameters(6, of_parameters) if given != "no parameters" else (None, None)
    mean, var = (torch.randn(6, dtype=of_parameters), torch.rand(6, dtype=of_parameters))
    mean, var = (mean, var) if given != "no statistics" else (None, None)
    written = (3, 4) if mean is not None else ()
    for name, each in lain_otherwise(x):
        if dtype is torch.float32 or name == "dense":
            check(lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, True, 0.2, 1e-5), each, w, b, mean, var,
                  written=written)  # fmt: skip
    if given == "everything":
        check(lambda x, w, b, m, v: aten._native_batch_norm_legit(x, w, b, m, v, True, 0.2, 1e-5), x, w, b, mean, var,
              written=written)  # fmt: skip


@pytest.mark.parametrize("types", PAIRS)
@pytest.mark.parametrize("kind", IMAGES)
def test_batch_norm_in_evaluation(kind, types):
    dtype, of_parameters = types
    x = torch.randn(IMAGES[kind], dtype=dtype) * 2 + 1
    w, b = parameters(6, of_parameters)
    mean, var = torch.randn(6, dtype=of_parameters), torch.rand(6, dtype=of_parameters)
    check(lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, False, 0.2, 1e-5), x, w, b, mean, var)
    check(lambda x, w, b, m, v: aten._native_batch_norm_legit(x, w, b, m, v, False, 0.2, 1e-5), x, w, b, mean, var)


@pytest.mark.parametrize("types", PAIRS)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("kind", IMAGES)
def test_batch_norm_backward(kind, train, types):
    dtype, of_parameters = types
    x = torch.randn(IMAGES[kind], dtype=dtype) * 2 + 1
    w, b = parameters(6, of_parameters)
    mean, var = torch.randn(6, dtype=of_parameters), torch.rand(6, dtype=of_parameters)
    _, kept, rstd = aten.native_batch_norm(x, w, b, mean.clone(), var.clone(), train, 0.2, 1e-5)
    for (name, g), (_, each) in zip(lain_otherwise(torch.randn_like(x)), lain_otherwise(x)):
        for mask in masks(dtype) if name == "dense" else MASKS[:1]:
            check(lambda *a: aten.native_batch_norm_backward(*a, train, 1e-5, mask), g, each, w, mean, var, kept, rstd)


def test_batch_norm_in_training_that_nobody_differentiates():
    """Of a network whose weights follow another's: its statistics move."""
    for shape in ((6, 3), (6, 3, 5), (4, 3, 5, 5)):
        x, mean, var = torch.randn(shape), torch.zeros(3), torch.ones(3)
        w, b = parameters(3, torch.float32)
        norm = lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, training=True, momentum=0.2) * 2  # noqa: E731
        check(norm, x, mean, var, w, b, written=(1, 2))
        check(lambda x: F.batch_norm(x, None, None, training=True), x)


@pytest.mark.parametrize("dtype", FLOATS[:2])
def test_weights_by_their_norm(dtype):
    for dim in (0, 2):
        v = torch.randn(4, 3, 5, dtype=dtype)
        g = torch.rand([4, 1, 1] if dim == 0 else [1, 1, 5], dtype=dtype) + 0.5
        check(lambda v, g, dim=dim: aten._weight_norm_interface(v, g, dim), v, g)
        w, norm = aten._weight_norm_interface(v, g, dim)
        check(lambda *a, dim=dim: aten._weight_norm_interface_backward(*a, dim), torch.randn_like(w), v, g, norm)
