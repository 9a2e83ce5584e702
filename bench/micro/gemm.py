# bench/micro/gemm.py
# our contraction kernels beside MKL's and oneDNN's through torch, in one process, repetitions interleaved
"""Usage: python bench/micro/gemm.py LIBRARY [--only TEXT] [--seconds S]

LIBRARY is what `ninja -C build gemm_bench` makes. For each shape every contestant runs in turn, many
rounds; the table shows the lower quartile of each, so that a busy machine disturbs all alike.
"""

from __future__ import annotations

import argparse
import ctypes

import torch
from rounds import times

LINEARS = [  # (m, n, k, flags, where)
    (m, n, k, 1, where)
    for where, ms, shapes in [
        ("BERT-256", (64, 256, 1024), [(256, 256), (1024, 256), (256, 1024)]),
        ("BERT-768", (128, 512), [(768, 768), (3072, 768), (768, 3072)]),
        ("ViT-192", (197,), [(192, 192), (768, 192), (192, 768)]),
        ("ViT-768", (197,), [(768, 768), (3072, 768), (768, 3072)]),
    ]
    for m in ms
    for n, k in shapes
]

# (height, in, out, kernel, stride, pad, groups, channels first, flags, where)
CONVS = [
    (224, 3, 64, 7, 2, 3, 1, 1, 5, "ResNet-50 stem"),
    (56, 64, 64, 1, 1, 0, 1, 0, 5, "ResNet-50"),
    (56, 64, 64, 3, 1, 1, 1, 0, 5, "ResNet-50"),
    (56, 64, 256, 1, 1, 0, 1, 0, 7, "ResNet-50"),
    (56, 256, 64, 1, 1, 0, 1, 0, 5, "ResNet-50"),
    (56, 256, 512, 1, 2, 0, 1, 0, 1, "ResNet-50"),
    (56, 128, 128, 3, 2, 1, 1, 0, 5, "ResNet-50"),
    (28, 128, 128, 3, 1, 1, 1, 0, 5, "ResNet-50"),
    (28, 128, 512, 1, 1, 0, 1, 0, 7, "ResNet-50"),
    (28, 512, 128, 1, 1, 0, 1, 0, 5, "ResNet-50"),
    (14, 256, 256, 3, 1, 1, 1, 0, 5, "ResNet-50"),
    (14, 256, 1024, 1, 1, 0, 1, 0, 7, "ResNet-50"),
    (14, 1024, 256, 1, 1, 0, 1, 0, 5, "ResNet-50"),
    (7, 512, 512, 3, 1, 1, 1, 0, 5, "ResNet-50"),
    (7, 512, 2048, 1, 1, 0, 1, 0, 7, "ResNet-50"),
    (7, 2048, 512, 1, 1, 0, 1, 0, 5, "ResNet-50"),
    (112, 32, 32, 3, 1, 1, 32, 0, 5, "MobileNetV2"),
    (112, 32, 16, 1, 1, 0, 1, 0, 1, "MobileNetV2"),
    (112, 16, 96, 1, 1, 0, 1, 0, 5, "MobileNetV2"),
    (112, 96, 96, 3, 2, 1, 96, 0, 5, "MobileNetV2"),
    (56, 96, 24, 1, 1, 0, 1, 0, 1, "MobileNetV2"),
    (56, 144, 144, 3, 1, 1, 144, 0, 5, "MobileNetV2"),
    (28, 32, 192, 1, 1, 0, 1, 0, 5, "MobileNetV2"),
    (28, 192, 32, 1, 1, 0, 1, 0, 3, "MobileNetV2"),
    (14, 64, 384, 1, 1, 0, 1, 0, 5, "MobileNetV2"),
    (14, 384, 384, 3, 1, 1, 384, 0, 5, "MobileNetV2"),
    (14, 576, 96, 1, 1, 0, 1, 0, 3, "MobileNetV2"),
    (7, 960, 960, 3, 1, 1, 960, 0, 5, "MobileNetV2"),
    (7, 960, 160, 1, 1, 0, 1, 0, 3, "MobileNetV2"),
    (7, 320, 1280, 1, 1, 0, 1, 0, 5, "MobileNetV2"),
]


class Ours:
    """The C interface of gemm_bench.cpp."""

    def __init__(self, path: str):
        self.lib = ctypes.CDLL(path)
        self.lib.bench_gemm.restype = self.lib.bench_conv.restype = ctypes.c_void_p
        self.lib.bench_compile_ms.restype = ctypes.c_double
        self.lib.bench_text.restype = ctypes.c_char_p

    def gemm(self, m, n, k, flags, weight, tile):
        tile = (ctypes.c_int64 * 6)(*tile)
        return self.lib.bench_gemm(*map(ctypes.c_int64, (m, n, k)), flags, tile, ctypes.c_void_p(weight.data_ptr()))

    def conv(self, parameters, flags, weight, tile):
        tile = (ctypes.c_int64 * 6)(*tile)
        parameters = (ctypes.c_int64 * 10)(*parameters)
        return self.lib.bench_conv(parameters, flags, tile, ctypes.c_void_p(weight.data_ptr()))

    def runner(self, handle, x, out, bias, residual):
        arguments = [ctypes.c_void_p(handle)] + [ctypes.c_void_p(t.data_ptr()) for t in (x, out, bias, residual)]
        return lambda: self.lib.bench_run(*arguments)


def bench_linear(ours, case, seconds, tile):
    m, n, k, flags, where = case
    x, w, bias = torch.randn(m, k), torch.randn(n, k) * 0.1, torch.randn(n)
    out, residual = torch.empty(m, n), torch.randn(m, n)
    handle = ours.gemm(m, n, k, flags, w, tile)
    packed_mkl = torch.ops.mkl._mkl_reorder_linear_weight(w, m)
    packed_dnn = torch.ops.mkldnn._reorder_linear_weight(w, m)
    functions = [
        ours.runner(handle, x, out, bias, residual),
        lambda: torch.nn.functional.linear(x, w, bias),
        lambda: torch.ops.mkl._mkl_linear(x, packed_mkl, w, bias, m),
        lambda: torch.ops.mkldnn._linear_pointwise(x, packed_dnn, bias, "none", [], ""),
    ]
    found = times(functions, seconds)
    error = (out - functions[1]()).abs().max().item()
    report(ours, handle, f"{where} {m}x{n}x{k}", 2 * m * n * k, found, error)


def bench_convolution(ours, case, seconds, tile):
    height, cin, cout, kernel, stride, pad, groups, first, flags, where = case
    x = torch.randn(1, cin, height, height)
    w, bias = torch.randn(cout, cin // groups, kernel, kernel) * 0.1, torch.randn(cout)
    eager = torch.nn.functional.conv2d(x, w, bias, stride, pad, 1, groups)
    residual = torch.randn_like(eager).contiguous(memory_format=torch.channels_last)
    out = torch.empty_like(residual)
    x_last = x if first else x.contiguous(memory_format=torch.channels_last)
    parameters = (1, height, height, cin, cout, kernel, stride, pad, groups, first)
    handle = ours.conv(parameters, flags, w, tile)
    packed = torch.ops.mkldnn._reorder_convolution_weight(w, [pad] * 2, [stride] * 2, [1] * 2, groups, list(x.shape))

    def dnn():
        return torch.ops.mkldnn._convolution_pointwise(
            x_last, packed, bias, [pad] * 2, [stride] * 2, [1] * 2, groups, "relu" if flags & 4 else "none", [], ""
        )

    functions = [
        ours.runner(handle, x_last, out, bias, residual),
        lambda: torch.nn.functional.conv2d(x, w, bias, stride, pad, 1, groups),
        lambda: torch.nn.functional.conv2d(x_last, w, bias, stride, pad, 1, groups),
        dnn,
    ]
    found = times(functions, seconds)
    expected = eager + (residual if flags & 2 else 0)
    expected = expected.relu() if flags & 4 else expected
    error = (out - expected).abs().max().item()
    flops = 2 * cin // groups * kernel * kernel * eager.numel()
    report(ours, handle, f"{where} {height} {cin}->{cout} k{kernel} s{stride} g{groups}", flops, found, error)


def report(ours, handle, name, flops, found, error):
    mine = found[0]
    ratios = " ".join(f"{other / mine:6.2f}x" for other in found[1:])
    text = ours.lib.bench_text(ctypes.c_void_p(handle)).decode()
    compiled = ours.lib.bench_compile_ms(ctypes.c_void_p(handle))
    print(
        f"{name:38s} {mine * 1e6:9.1f} us {flops / mine * 1e-9:6.1f} GF {ratios}  err {error:.1e}  "
        f"{compiled:5.1f} ms  {text}",
        flush=True,
    )
    ours.lib.bench_free(ctypes.c_void_p(handle))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library")
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--tile", default="-1,-1,-1,-1,-1,-1")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    tile = [int(t) for t in options.tile.split(",")]
    ours = Ours(options.library)
    print(
        "speed over: linear: F.linear, mkl._mkl_linear, mkldnn._linear_pointwise; "
        "conv: NCHW eager, channels-last eager, mkldnn._convolution_pointwise"
    )
    for case in LINEARS:
        if options.only in f"{case[-1]} {case[0]}x{case[1]}x{case[2]}":
            bench_linear(ours, case, options.seconds, tile)
    for case in CONVS:
        if options.only in f"{case[-1]} {case[0]} {case[1]}->{case[2]}":
            bench_convolution(ours, case, options.seconds, tile)


if __name__ == "__main__":
    main()
