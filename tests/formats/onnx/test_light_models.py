"""The real architectures that the onnx package brings, without their weights."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from memsched.formats.onnx import reader

LIGHT = sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_light_models_have_known_sizes(path: Path) -> None:
    module = reader.read(path.read_bytes(), str(path))
    graph = module.graph
    assert all(tensor.sized for tensor in graph.tensors if any(tensor is graph.tensors[t] for t in graph.outputs))
    assert graph.tensors[graph.inputs[0]].size == 224 * 224 * 3 * 4
    assert all(op.type not in {"ConstantOfShape", "Unsqueeze"} for op in graph.ops)
    assert sum(op.macs for op in graph.ops) > 10**8
