"""What ONNX Runtime holds of weights that a loop's body reads from outside, measured in fresh processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from memsched.runtimes.measure import Measured
from tests.runtimes.onnxruntime.measured import run_at

_WIDTH, _WEIGHTS = 1024, 12
_HELD = 4 * _WIDTH * _WIDTH * _WEIGHTS


def _model(*, loop: bool, viewed: bool) -> onnx.ModelProto:
    """Return products with several weights, each in a loop of its own or not.

    Args:
        viewed: Weights are reshaped at run time before that.
    """
    numbers = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(numbers.standard_normal((_WIDTH, _WIDTH)).astype(np.float32), f"w{place}")
        for place in range(_WEIGHTS)
    ]
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Slice", ["shape", "one", "two"], ["width"]),
        helper.make_node("Concat", ["width", "width"], ["square"], axis=0),
    ]
    value = "x"
    for place in range(_WEIGHTS):
        weight, result = f"w{place}", f"v{place}"
        if viewed:
            nodes.append(helper.make_node("Reshape", [weight, "square"], [f"r{place}"]))
            weight = f"r{place}"
        if loop:
            nodes.append(helper.make_node("Loop", ["trips", "", value], [result], body=_body(weight)))
        else:
            nodes.append(helper.make_node("MatMul", [value, weight], [result]))
        value = result
    constants = [
        helper.make_tensor("trips", TensorProto.INT64, [], [1]),
        helper.make_tensor("one", TensorProto.INT64, [1], [1]),
        helper.make_tensor("two", TensorProto.INT64, [1], [2]),
    ]
    graph = helper.make_graph(
        nodes,
        "weights",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", _WIDTH])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["rows", _WIDTH])],
        [*weights, *constants],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _body(weight: str) -> Any:
    nodes = [
        helper.make_node("Identity", ["goes_on"], ["still"]),
        helper.make_node("MatMul", ["state", weight], ["next"]),
    ]
    inputs = [
        helper.make_tensor_value_info("step", TensorProto.INT64, []),
        helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
    ]
    outputs = [
        helper.make_tensor_value_info("still", TensorProto.BOOL, []),
        helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
    ]
    return helper.make_graph(nodes, f"body_{weight}", inputs, outputs)


def _process(folder: Path, *, loop: bool, viewed: bool) -> int:
    path = folder / f"{loop}_{viewed}.onnx"
    onnx.save(_model(loop=loop, viewed=viewed), path)
    found = run_at(path, {"rows": 64}, seed=0)
    assert isinstance(found, Measured)
    return found.peak


def test_a_body_packs_what_it_reads_and_the_given_weight_stays(tmp_path: Path) -> None:
    packed = _process(tmp_path, loop=True, viewed=False)
    once = _process(tmp_path, loop=True, viewed=True)
    assert packed - once > 0.6 * _HELD
    # A view is no copy.
    assert once < _process(tmp_path, loop=False, viewed=False) + 0.4 * _HELD
