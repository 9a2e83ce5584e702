# tests/end_to_end/test_conv.py
"""Convolutions through the whole road: our own kernels, epilogues, layouts that the caller never sees."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import torchbolt


def check(fn, *args, library_calls=0):
    """Equal to eager within twice its error against float64, three times over; returns the one region."""
    torchbolt.reset()
    fn.eval()
    with torch.no_grad():
        expected = as_list(fn(*args))
        exact = as_list(fn.double()(*(a.double() for a in args)))
        fn.float()
        compiled = torchbolt.compile(fn, fullgraph=True)
        for _ in range(3):
            for got, want, reference in zip(as_list(compiled(*args)), expected, exact, strict=True):
                assert got.dtype == want.dtype and got.shape == want.shape and got.stride() == want.stride()
                ours, eager = (got - reference).abs().max(), (want - reference).abs().max()
                assert ours <= 2 * eager + 2e-6
    (region,) = torchbolt.api.compiled_of(compiled)._regions()
    assert region["compiled"] and region["library_calls"] == library_calls
    return region


def as_list(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


def run(*layers):
    return nn.Sequential(*layers)


class Calls(nn.Module):
    """A forward function over some layers."""

    def __init__(self, forward, **layers):
        super().__init__()
        self.layers, self.function = nn.ModuleDict(layers), forward

    def forward(self, *args):
        return self.function(self.layers, *args)


# kernel, stride, padding, dilation, groups, in, out
SHAPES = {
    "pointwise": (1, 1, 0, 1, 1, 12, 20),
    "pointwise_strided": (1, 2, 0, 1, 1, 12, 20),
    "square": (3, 1, 1, 1, 1, 12, 20),
    "strided": (3, 2, 1, 1, 1, 16, 32),
    "dilated": (3, 1, 2, 2, 1, 16, 16),
    "long": ((1, 5), 1, (0, 2), 1, 1, 8, 17),
    "tall": ((3, 1), (2, 1), (1, 0), 1, 1, 8, 17),
    "patches": (4, 4, 0, 1, 1, 12, 48),
    "grouped": (3, 1, 1, 1, 2, 16, 64),
    "depthwise": (3, 1, 1, 1, 24, 24, 24),
    "depthwise_strided": (5, 2, 2, 1, 24, 24, 24),
    "depthwise_dilated": (3, 1, 2, 2, 24, 24, 24),
}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name, batch):
    kernel, stride, padding, dilation, groups, inputs, outputs = SHAPES[name]
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups)
    x = torch.randn(batch, 3, 13, 14)
    check(run(nn.Conv2d(3, inputs, 1), nn.ReLU(), conv, nn.ReLU()), x)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_image_is_contiguous_or_not(channels):
    net = run(nn.Conv2d(channels, 16, 7, 2, 3), nn.ReLU(), nn.Conv2d(16, 8, 3))
    x = torch.randn(2, channels, 30, 31)
    check(net, x)
    check(net, x.contiguous(memory_format=torch.channels_last))
    check(net, torch.randn(2, channels, 31, 30).transpose(2, 3))
    check(net, torch.randn(2, channels, 60, 62)[:, :, ::2, 1:32])


ACTIVATIONS = [nn.ReLU, nn.ReLU6, nn.Hardswish, nn.SiLU, nn.GELU, nn.Hardsigmoid, nn.LeakyReLU, nn.Sigmoid]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("groups", [1, 24])
def test_batch_norm_and_activation_end_in_the_kernel(activation, groups):
    norm = nn.BatchNorm2d(24)
    norm.running_mean.normal_(), norm.running_var.uniform_(0.5, 2), norm.weight.data.normal_()
    first = nn.Conv2d(3, 24, 1)
    net = run(first, nn.Conv2d(24, 24, 3, padding=1, groups=groups, bias=False), norm, activation())
    assert check(net, torch.randn(1, 3, 9, 9))["kernels"] == 2


def test_residuals_end_in_the_kernel():
    def forward(layer, x):
        y = F.relu(layer["c1"](x), inplace=True)
        z = layer["c3"](F.relu(layer["c2"](y)))
        z += y
        return F.relu(z) + layer["c4"](x)

    convs = {"c1": nn.Conv2d(3, 16, 1), "c2": nn.Conv2d(16, 16, 3, padding=1), "c3": nn.Conv2d(16, 16, 1),
             "c4": nn.Conv2d(3, 16, 1)}  # fmt: skip
    assert check(Calls(forward, **convs), torch.randn(2, 3, 8, 9))["kernels"] == 4


def test_features_on_the_way_keep_eagers_strides():
    def forward(layer, x):
        a = F.relu(layer["c1"](x))
        b = layer["c2"](F.max_pool2d(a, 2))
        return a, b, b.mean((2, 3)), F.interpolate(b, scale_factor=2)

    net = Calls(forward, c1=nn.Conv2d(3, 16, 3), c2=nn.Conv2d(16, 8, 3))
    check(net, torch.randn(1, 3, 14, 14), library_calls=1)
    check(net, torch.randn(1, 3, 14, 14).contiguous(memory_format=torch.channels_last), library_calls=1)


def test_views_between_convolutions():
    def forward(layer, x):
        y = layer["c1"](x)
        rows = layer["norm"](y.flatten(2).transpose(1, 2))
        z = layer["up"](rows).transpose(1, 2).reshape(2, 32, 6, 7)
        a, b = layer["dw"](z).chunk(2, dim=1)
        return layer["c2"](torch.cat([F.gelu(a) * b, F.pad(y[:, :, 1:], (0, 0, 1, 0))], 1))

    layers = {"c1": nn.Conv2d(3, 16, 1), "norm": nn.LayerNorm(16), "up": nn.Linear(16, 32),
              "dw": nn.Conv2d(32, 32, 3, padding=1, groups=32), "c2": nn.Conv2d(32, 5, 1)}  # fmt: skip
    check(Calls(forward, **layers), torch.randn(2, 3, 6, 7))


def test_squeeze_and_excite():
    def forward(layer, x):
        y = F.silu(layer["c1"](x))
        gate = layer["up"](F.relu(layer["down"](F.adaptive_avg_pool2d(y, 1)))).sigmoid()
        return layer["c2"](y * gate)

    layers = {"c1": nn.Conv2d(3, 32, 3), "down": nn.Conv2d(32, 8, 1), "up": nn.Conv2d(8, 32, 1),
              "c2": nn.Conv2d(32, 7, 1)}  # fmt: skip
    check(Calls(forward, **layers), torch.randn(2, 3, 10, 10))


def test_group_norm_between_convolutions():
    net = run(nn.Conv2d(3, 24, 3, padding=1), nn.GroupNorm(4, 24), nn.SiLU(), nn.Conv2d(24, 8, 3, padding=1))
    check(net, torch.randn(2, 3, 9, 9))


@pytest.mark.parametrize(
    "case", [(3, 1, 1, 1, 1), (10, 5, 0, 1, 1), (4, 1, 3, 1, 24), (3, 2, 2, 2, 2), (1, 1, 0, 1, 1)]
)
def test_one_dimension(case):
    kernel, stride, padding, dilation, groups = case
    net = run(nn.Conv1d(2, 24, 3), nn.GELU(), nn.Conv1d(24, 48 if groups == 2 else 24, kernel, stride, padding,
                                                       dilation, groups), nn.SiLU())  # fmt: skip
    check(net, torch.randn(2, 2, 57))


def test_transposed_convolutions_stay_with_the_library():
    net = run(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.ConvTranspose2d(16, 8, 2, 2), nn.ReLU(), nn.Conv2d(8, 4, 1))
    check(net, torch.randn(1, 3, 10, 10), library_calls=1)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_the_work(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        net = run(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1, groups=32),
                  nn.Conv2d(32, 64, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 2, 1))  # fmt: skip
        check(net, torch.randn(2, 3, 56, 56))
    finally:
        torch.set_num_threads(before)


def test_changed_weights_are_packed_anew():
    torchbolt.reset()
    conv = nn.Conv2d(3, 8, 3)
    x = torch.randn(1, 3, 9, 9)
    compiled = torchbolt.compile(conv, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(x), conv(x), rtol=1e-5, atol=1e-5)
            conv.weight.mul_(-0.5)


def test_padding_becomes_the_convolutions_own():
    def forward(layer, x):
        y = F.relu(layer["c1"](F.pad(x, (0, 1, 2, 1))))
        return layer["c3"](F.pad(layer["c2"](F.pad(y, (0, 1, 0, 1))), (1, 1, 1, 1)))

    layers = {"c1": nn.Conv2d(3, 16, 3, 2), "c2": nn.Conv2d(16, 16, 3, 2, groups=16), "c3": nn.Conv2d(16, 8, 3)}
    assert check(Calls(forward, **layers), torch.randn(2, 3, 16, 17))["kernels"] == 3
    narrow = run(nn.ZeroPad2d((0, 1, 0, 2)), nn.Conv2d(16, 4, 3, groups=4))  # stays with the library
    check(narrow, torch.randn(2, 16, 9, 9), library_calls=1)


@pytest.mark.parametrize("name", ["nearest", "bilinear", "aligned"])
@pytest.mark.parametrize("size", [{"scale_factor": 2.0}, {"scale_factor": 1.7}, {"size": (11, 5)}, {"size": (1, 9)}])
def test_upsampling_between_convolutions(name, size):
    mode = {"mode": "nearest"} if name == "nearest" else {"mode": "bilinear", "align_corners": name == "aligned"}

    def forward(layer, x):
        y = F.interpolate(layer["c1"](x), **size, **mode)
        return layer["c2"](torch.cat([y, y * 2], 1)), y

    region = check(Calls(forward, c1=nn.Conv2d(3, 24, 1), c2=nn.Conv2d(48, 4, 1)), torch.randn(2, 3, 7, 9))
    assert region["extern_calls"] == 0


@pytest.mark.parametrize("dim", [0, 2, None])
def test_weight_norm_is_folded(dim):
    net = run(nn.Conv1d(3, 16, 1), nn.utils.parametrizations.weight_norm(nn.Conv1d(16, 16, 5, padding=2), dim=dim))
    region = check(net, torch.randn(1, 3, 20))
    assert region["kernels"] == 2 and region["extern_calls"] == 0


@pytest.mark.parametrize(
    "conv", [nn.Conv2d(3, 1, 3), nn.Conv2d(4, 1, 1), nn.Conv2d(1, 1, 3, padding=1), nn.Conv1d(4, 1, 7)]
)
@pytest.mark.parametrize("images", [1, 2])
def test_one_output_channel(conv, images):
    """A single column: its dimension means nothing to the kernel behind the sums, and is there all the same."""
    x = torch.randn(images, conv.in_channels, *(9, 12)[-len(conv.kernel_size) :])
    check(run(conv), x)
    check(run(conv, nn.ReLU()), x)
    if conv.kernel_size == (1, 1):
        check(Calls(lambda layer, x: (layer["c"](x).sigmoid() * x, layer["c"](x) - 1), c=conv), x)
