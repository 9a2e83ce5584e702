# tests/lint/test_check_layers.py
"""scripts/check_layers.py: who may include whom, and who may know which devices there are."""

import pytest
from lint_scripts import load

check = load("check_layers")


@pytest.mark.parametrize(
    "name, text, good",
    [
        ("loops/fuse.cpp", '#include "graph/ir.h"', True),
        ("graph/ir.cpp", '#include "loops/fuse.h"', False),
        ("loops/fuse.cpp", "#include <ATen/core/Tensor.h>", False),
        ("run/results.cpp", "#include <ATen/core/Tensor.h>", True),
        ("run/trained/chain.cpp", '#include "run/runnable.h"', True),
        ("run/runnable.cpp", '#include "run/trained/chain.h"', False),
        ("codegen/cpu/emit.cpp", '#include "codegen/cuda/emit.h"', False),
        ("elsewhere/a.cpp", "", False),
        ("loops/fuse.cpp", "if (d.kind == graph::DeviceKind::CUDA) return;", False),
        ("run/results.cpp", "if (d.kind == graph::DeviceKind::CUDA) return;", False),
        ("loops/fuse.cpp", "if (d.kind == graph::DeviceKind::CPU) return;", False),
        ("graph/device_facts.cpp", "return d.kind == DeviceKind::CUDA ? kCuda : kCpu;", True),
        ("device/cuda.cpp", "return find(graph::DeviceKind::CUDA);", True),
        ("record/recorder.cpp", "if (t.is_cpu()) return;", False),
        ("device/host/host.h", "return t.is_cpu();", True),
        ("guard/tensors.cpp", '#include "device/host/host.h"', True),
        ("guard/tensors.cpp", '#include "device/device.h"', False),
    ],
)
def test_a_line(tmp_path, monkeypatch, name, text, good):
    monkeypatch.setattr(check, "SRC", tmp_path)
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text(text + "\n")
    assert (list(check.complaints(file)) == []) == good
