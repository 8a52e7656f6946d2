"""The pass for ONNX IR, in the package itself: what it requires, changes, keeps and ensures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import memsched
from tests import small_models
from tests.formats.onnx_builder import constant, make, node, value

ir = pytest.importorskip("onnx_ir", reason="onnx-ir is not installed: pip install onnx-ir")

from memsched.integrations.onnx_ir_pass import LeastMemoryPass  # noqa: E402 - not without onnx-ir

Loaded = Callable[[bytes], Any]


def loaded(data: bytes) -> Any:
    return ir.from_proto(onnx.load_from_string(data))


def peak(model: Any) -> int:
    return memsched.analyze(ir.to_proto(model).SerializeToString(), target="ideal").schedule.peak


def names(model: Any) -> list[str]:
    return [one.name for one in model.graph]


def test_the_order_changes_in_a_new_model() -> None:
    given = loaded(small_models.branches(count=6))
    before = names(given)
    least = LeastMemoryPass(target="ideal", verify=False)
    result = ir.passes.Sequential(least)(given)
    assert result.modified
    assert names(given) == before
    assert sorted(names(result.model)) == sorted(before)
    assert peak(result.model) < peak(given)
    assert least.report is not None
    assert least.report["written"]["schedule"]["peak_bytes"] == peak(result.model)
    again = ir.passes.PassManager([least], steps=3)(result.model)
    assert not again.modified


def weighted(side: int = 64) -> bytes:
    """Two branches of a matrix product each, one of which is made smaller at once, in a bad order."""
    weights = [constant(name, np.random.default_rng(0).random((side, side)).astype(np.float32)) for name in "vw"]
    nodes = [
        *(node("MatMul", "x v", "a"), node("MatMul", "x w", "b")),
        *(node("ReduceMax", "a", "c"), node("ReduceMax", "b", "d"), node("Add", "c d", "y")),
    ]
    model = make(nodes, [value("x", [side, side])], [value("y", [1, 1])], weights)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("side", [64, 640])
def test_weights_are_those_of_the_model_given(tmp_path: Path, side: int) -> None:
    path = tmp_path / "net.onnx"
    ir.save(loaded(weighted(side)), path, external_data="net.data")
    given = ir.load(path)
    tensors = {name: one.const_value for name, one in given.graph.initializers.items()}
    assert any(isinstance(one, ir.ExternalTensor) for one in tensors.values())
    result = LeastMemoryPass(target="ideal", verify=False)(given)
    assert result.modified
    for name, one in result.model.graph.initializers.items():
        assert one.const_value is tensors[name]
    assert {name: one.const_value for name, one in given.graph.initializers.items()} == tensors


def test_pieces_compute_the_same() -> None:
    import onnxruntime

    data = (Path(__file__).resolve().parents[2] / "models" / "networks" / "unetpp.onnx").read_bytes()
    least = LeastMemoryPass(level=2, order_guarantee="session", max_slowdown=None, effort=0.3, verify=False)
    result = least(loaded(data))
    assert result.modified
    written = ir.to_proto(result.model)
    onnx.checker.check_model(written)
    one, other = (onnxruntime.InferenceSession(each) for each in (data, written.SerializeToString()))
    feeds = {each.name: np.random.default_rng(1).random(each.shape).astype(np.float32) for each in one.get_inputs()}
    for expected, found in zip(one.run(None, feeds), other.run(None, feeds), strict=True):
        assert np.abs(expected - found).max() <= 1e-5 * np.abs(expected).max()
    assert least.report is not None
    assert least.report["sections"]["tile"]["applied"]


def test_what_it_requires_is_said() -> None:
    model = make([node("Relu", "x", "y")], [value("x", ["n", 8])], [value("y", ["n", 8])])
    given = loaded(model.SerializeToString())
    with pytest.raises(ir.passes.PreconditionError, match="'n'"):
        LeastMemoryPass(dims={"m": 2})(given)
    assert not LeastMemoryPass(dims={"n": 2}, verify=False)(given).modified


def test_what_it_ensures_is_checked() -> None:
    model = loaded(small_models.branches())
    least = LeastMemoryPass()
    least.ensures(model)
    first = model.graph[0]
    model.graph.remove(first)
    model.graph.append(first)
    with pytest.raises(ir.passes.PostconditionError, match=f"'{first.outputs[0].name}'"):
        least.ensures(model)


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    monkeypatch.setitem(sys.modules, "onnx_ir", None)
    monkeypatch.delitem(sys.modules, "memsched.integrations.onnx_ir_pass")
    with pytest.raises(ModuleNotFoundError, match=r"pip install onnx-ir"):
        importlib.import_module("memsched.integrations.onnx_ir_pass")
