# torchbolt/onnxrt.py
"""backend="onnxrt": a region's graph -> an ONNX model, made by torch's own exporter, run by ONNX Runtime.

Both are asked for only when a program names this backend. A region stays with eager's operators where a model would do
something else than the region does: it writes to its inputs, gives a view of one, takes numbers that differ between
calls, needs gradients, lies on another device than the processor, or computes in a dtype that numpy does not know
(which ONNX Runtime has few kernels for).
"""

from __future__ import annotations

import importlib
import importlib.util
import io

import torch

from torchbolt import exc

_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_DTYPES = (torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool)


def check_installed() -> None:
    """An error that says what to install."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise exc.InvalidBackend(
            f"torchbolt.compile: backend 'onnxrt' needs {', '.join(missing)}: pip install {' '.join(missing)}"
        )


def onnxrt(gm, example_inputs):
    """The region as a function of its inputs, run by ONNX Runtime: one model for each set of sizes that it meets."""
    if _stays(gm, example_inputs):
        return gm.forward
    made = {}

    def run(*tensors):
        sizes = tuple(tensor.shape for tensor in tensors)
        if sizes not in made:
            made[sizes] = _model(gm, tensors)
        return made[sizes](*tensors)

    run(*example_inputs)  # an export that fails does so where the region is compiled
    return run


def _model(gm, tensors):
    """A function of tensors with just these sizes."""
    with torch.no_grad():
        expected = gm.forward(*(tensor.clone() for tensor in tensors))
        program = torch.onnx.export(gm.eval(), tensors, dynamo=True, verbose=False)
    model = io.BytesIO()
    program.save(model)
    runtime = importlib.import_module("onnxruntime")
    settings = runtime.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    session = runtime.InferenceSession(model.getvalue(), settings, providers=["CPUExecutionProvider"])
    return _runner(session, [value.name for value in program.model.graph.inputs], [t.stride() for t in expected])


def _runner(session, names: list[str], strides: list):
    """Inputs that the model does not need are not its inputs, so they go by name."""
    needed = {value.name for value in session.get_inputs()}

    def run(*tensors):
        feed = {name: t.detach().numpy() for name, t in zip(names, tensors, strict=True) if name in needed}
        found = (torch.from_numpy(array) for array in session.run(None, feed))
        return tuple(_like(tensor, stride) for tensor, stride in zip(found, strides, strict=True))

    return run


def _like(tensor, stride):
    """With eager's strides."""
    if tensor.stride() == stride:
        return tensor
    return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor)


def _stays(gm, inputs) -> bool:
    made = (node.meta["val"] for node in gm.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor))
    known = all(map(_is_plain, inputs)) and all(value.dtype in _DTYPES for value in made)
    return not known or any(map(_shares_memory, gm.graph.nodes))


def _is_plain(value) -> bool:
    usual = isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout is torch.strided
    return usual and value.dtype in _DTYPES and not (value.requires_grad and torch.is_grad_enabled())


def _shares_memory(node) -> bool:
    """It writes to what it is given, or the region gives a view that it made."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    is_view = any(result.alias_info is not None for result in schema.returns)
    return schema.is_mutable or (is_view and any(user.op == "output" for user in node.users))
