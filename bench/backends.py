# bench/backends.py
"""A case -> a callable that runs it on one backend. One class a backend.

A cold start is everything from `prepare` to the end of the first call: importing a compiler, converting
a model and compiling it. `cache` is the folder that a second process finds filled: compilers with a
cache of their own are pointed at it through the environment (`cache_env`), the exported ones keep the
converted model there, as their users would.

Peers are set up as their manuals say for the lowest latency, in the precision that eager uses. They are
only measured: nothing of torchbolt calls them.
"""

from __future__ import annotations

import pathlib

import torch
from torch import nn

from .models import Case

ALL_DTYPES = ("float32", "bfloat16")


class Eager:
    name = "eager"
    dtypes = ALL_DTYPES
    cache_env = None

    def prepare(self, case: Case, cache: pathlib.Path, threads: int):
        return case

    def facts(self, case: Case) -> dict:
        """What the backend says about its own work; read after the timings."""
        return {}


class Torchbolt(Eager):
    name = "torchbolt"
    cache_env = "TORCHBOLT_CACHE_DIR"

    def prepare(self, case, cache, threads):
        import torchbolt

        return Case(torchbolt.compile(case.model), case.args, case.kwargs)

    def facts(self, case):
        import torchbolt

        stats = torchbolt.stats()
        with torch.no_grad():
            seen = torchbolt.explain(case.model)(*case.args, **case.kwargs)
        return {
            "regions": seen.graph_count,
            "graph_breaks": seen.graph_break_count,
            "kernels": seen.kernels,
            "kernels_before_fusion": seen.kernels_before_fusion,
            "compile_seconds": stats["compile_seconds"],
            "cache_hits": stats["cache_hits"],
            "cache_misses": stats["cache_misses"],
            "eager_fallbacks": stats["eager_fallbacks"],
        }


class TorchCompile(Eager):
    name = "torch.compile"
    cache_env = "TORCHINDUCTOR_CACHE_DIR"

    def prepare(self, case, cache, threads):
        return Case(torch.compile(case.model), case.args, case.kwargs)

    def facts(self, case):
        from torch._dynamo.utils import counters

        return {
            "regions": counters["stats"].get("unique_graphs", 0),
            "graph_breaks": sum(counters["graph_break"].values()),
        }


class Flat(nn.Module):
    """The case's module from positional tensors to a tuple of tensors: the form that exporters take."""

    def __init__(self, case: Case):
        super().__init__()
        self.model, self.keys, self.positional = case.model, tuple(case.kwargs), len(case.args)

    def forward(self, *tensors):
        from .compare import leaves

        args = tensors[: self.positional]
        kwargs = dict(zip(self.keys, tensors[self.positional :], strict=True))
        result = self.model(*args, **kwargs)
        return tuple(leaf for _, leaf in leaves(result) if isinstance(leaf, torch.Tensor))


def _tensors(case: Case) -> tuple[torch.Tensor, ...]:
    return (*case.args, *case.kwargs.values())


class OpenVino(Eager):
    name = "openvino"
    dtypes = ("float32",)

    def prepare(self, case, cache, threads):
        import openvino as ov

        file = cache / "model.xml"
        if not file.exists():
            ov.save_model(self._convert(ov, case), file, compress_to_fp16=False)
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": "f32",
            "CACHE_DIR": str(cache),
        }
        compiled = ov.Core().compile_model(file, "CPU", settings)
        request = compiled.create_infer_request()
        inputs = [t.numpy() for t in _tensors(case)]

        def call():
            results = request.infer(inputs, share_inputs=True, share_outputs=True)
            return [torch.from_numpy(results[i]) for i in range(len(results))]

        return call

    def _convert(self, ov, case):
        """Through torch.export, and through tracing where that fails."""
        flat, inputs = Flat(case), _tensors(case)
        with torch.no_grad():
            try:
                return ov.convert_model(torch.export.export(flat, inputs, strict=False))
            except Exception:
                return ov.convert_model(flat, example_input=inputs)


class OnnxRuntime(Eager):
    name = "onnxruntime"
    dtypes = ("float32",)

    def prepare(self, case, cache, threads):
        import onnxruntime as ort

        file = cache / "model.onnx"
        if not file.exists():
            with torch.no_grad():
                torch.onnx.export(Flat(case), _tensors(case), str(file), dynamo=True, verbose=False)
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        # An input that the model does not need is dropped by the export, hence names and not all tensors.
        names = [i.name for i in session.get_inputs()]
        feed = dict(zip(names, (t.numpy() for t in _tensors(case)), strict=True))
        return lambda: [torch.from_numpy(x) for x in session.run(None, feed)]


BACKENDS = {b.name: b for b in (Eager(), Torchbolt(), TorchCompile(), OpenVino(), OnnxRuntime())}
