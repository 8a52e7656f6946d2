"""What is verified is what is opened: sessions as the printed instructions open them, node by node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from memsched.commands.optimize.optimize import optimize
from memsched.runtimes.onnxruntime import verification as runtime
from memsched.runtimes.onnxruntime.opened import read_profile
from tests import small_models
from tests.commands.optimize.test_choose import skip_connection
from tests.needs import recent_onnxruntime
from tests.runtimes.onnxruntime.measured import measure, verify
from tests.runtimes.onnxruntime.test_sessions import model_of

pytestmark = recent_onnxruntime

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def skip_net() -> bytes:
    """Return a small encoder and decoder whose first value waits until the end."""
    rng = np.random.default_rng(0)
    weights = [
        helper.make_tensor(f"w{at}", FLOAT, shape, rng.standard_normal(shape).astype(np.float32).tobytes(), raw=True)
        for at, shape in enumerate([(8, 3, 3, 3), (16, 8, 3, 3), (8, 16, 3, 3), (2, 16, 3, 3)])
    ]
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0"], ["a"], "a", pads=[1] * 4),
        node("Conv", ["a", "w1"], ["b"], "b", pads=[1] * 4),
        node("Tanh", ["b"], ["t"], "t"),
        node("Conv", ["t", "w2"], ["c"], "c", pads=[1] * 4),
        node("Concat", ["a", "c"], ["j"], "j", axis=1),
        node("Conv", ["j", "w3"], ["y"], "y", pads=[1] * 4),
    ]
    model = model_of(nodes, [("x", FLOAT, [1, 3, 32, 32])], [("y", FLOAT, [1, 2, 32, 32])], constants=weights)
    return bytes(model.SerializeToString())


def peak_as_printed(path: Path, folder: Path) -> tuple[int, list[str]]:
    """Open a file as the instructions say, with a profile; return its peak and the nodes that ran."""
    scope: dict[str, Any] = {"onnxruntime": onnxruntime, "path": str(path)}
    *lines, last = runtime.session_instructions("session")
    profile = f"options.enable_profiling = True; options.profile_file_prefix = {str(folder / 'profile')!r}"
    exec("\n".join([*lines, profile, last]), scope)  # noqa: S102
    session = scope["session"]
    feed = {value.name: np.ones(value.shape, np.float32) for value in session.get_inputs()}
    session.run(None, feed)
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    names = [e["name"].removesuffix("_kernel_time") for e in events if e["name"].endswith("_kernel_time")]
    return read_profile(events)["peak_bytes"], names


def head(opset: int = 17) -> onnx.ModelProto:
    """Return a language model's end: rows are multiplied by the transpose of a large constant."""
    table = helper.make_tensor("table", FLOAT, [8192, 64], np.ones(8192 * 64, np.float32).tobytes(), raw=True)
    nodes = [
        helper.make_node("Transpose", ["table"], ["turned"], "turn", perm=[1, 0]),
        helper.make_node("Sin", ["x"], ["s"], "s"),
        helper.make_node("MatMul", ["s", "turned"], ["logits"], "head"),
        helper.make_node("ReduceMax", ["logits"], ["y"], "best", axes=[1], keepdims=1),
    ]
    return model_of(nodes, [("x", FLOAT, [4, 64])], [("y", FLOAT, [4, 1])], opset, [table])


def test_constants_are_folded_in_the_printed_session(tmp_path: Path) -> None:
    """With ORT_DISABLE_ALL the transpose of the weights runs each time: it alone needs 2 MB."""
    data = head().SerializeToString()
    (tmp_path / "head.onnx").write_bytes(data)
    logits = 4 * 8192 * 4
    assert peak_as_printed(tmp_path / "head.onnx", tmp_path)[0] < 2 * logits
    found = verify(data, data, runs=1)
    assert found.measured_peak_before_bytes == peak_as_printed(tmp_path / "head.onnx", tmp_path)[0]
    result = optimize(data, effort=0.5)
    assert result.schedule.peak == found.measured_peak_before_bytes
    assert (measure(data, level="disabled").peak_bytes or 0) >= 8192 * 64 * 4


def test_what_is_computed_again_is_not_merged_in_the_printed_session(tmp_path: Path) -> None:
    node = helper.make_node
    nodes = [node("Sin", ["x"], ["a"], "a"), node("Exp", ["a"], ["b"], "b"), node("Sin", ["x"], ["c"], "c")]
    nodes.append(node("Add", ["b", "c"], ["y"], "y"))
    twice = model_of(nodes, [("x", FLOAT, [64])], [("y", FLOAT, [64])])
    path = tmp_path / "twice.onnx"
    path.write_bytes(twice.SerializeToString())
    assert peak_as_printed(path, tmp_path)[1] == ["a", "b", "c", "y"]


def test_products_keep_their_place_in_the_printed_session(tmp_path: Path) -> None:
    """MatMulAddFusion would make Gemm of the product and its bias, behind all nodes of the file."""
    node = helper.make_node
    weight = helper.make_tensor("w", FLOAT, [8, 8], np.ones(64, np.float32).tobytes(), raw=True)
    bias = helper.make_tensor("v", FLOAT, [8], np.ones(8, np.float32).tobytes(), raw=True)
    nodes = [
        *(node("MatMul", ["x", "w"], ["m"], "m"), node("Add", ["m", "v"], ["a"], "a"), node("Sin", ["x"], ["s"], "s")),
        node("Add", ["a", "s"], ["y"], "y"),
    ]
    model = model_of(nodes, [("x", FLOAT, [4, 8])], [("y", FLOAT, [4, 8])], constants=[weight, bias])
    path = tmp_path / "product.onnx"
    path.write_bytes(model.SerializeToString())
    assert peak_as_printed(path, tmp_path)[1] == ["m", "a", "s", "y"]


def test_what_reads_reshaped_values_keeps_its_place_in_the_printed_session(tmp_path: Path) -> None:
    """ReshapeFusion would make one node of both, behind all nodes of the file, so that the product waited for it."""
    node = helper.make_node
    weight = helper.make_tensor("w", FLOAT, [8, 8], np.ones(64, np.float32).tobytes(), raw=True)
    shapes = [helper.make_tensor(name, TensorProto.INT64, [2], dims) for name, dims in [("r", [8, 4]), ("t", [4, 8])]]
    nodes = [
        *(
            node("Sin", ["x"], ["s"], "s"),
            node("Reshape", ["s", "r"], ["a"], "a"),
            node("Reshape", ["a", "t"], ["b"], "b"),
        ),
        *(node("MatMul", ["b", "w"], ["m"], "m"), node("Exp", ["x"], ["e"], "e"), node("Add", ["m", "e"], ["y"], "y")),
    ]
    model = model_of(nodes, [("x", FLOAT, [2, 16])], [("y", FLOAT, [4, 8])], constants=[weight, *shapes])
    model.graph.node[4].op_type = "Reshape"
    model.graph.node[4].input.append("t")
    path = tmp_path / "reshaped.onnx"
    path.write_bytes(model.SerializeToString())
    assert peak_as_printed(path, tmp_path)[1] == ["s", "a", "b", "m", "e", "y"]


def test_activations_stay_chains_in_the_printed_session(tmp_path: Path) -> None:
    """From opset 20 on GeluFusionL1 would make one node of the chain, behind all nodes of the file."""
    node = helper.make_node
    given = [("root", 2**0.5), ("one", 1.0), ("half", 0.5)]
    numbers = [helper.make_tensor(name, FLOAT, [], [of]) for name, of in given]
    nodes = [
        *(node("Sin", ["x"], ["s"], "s"), node("Div", ["s", "root"], ["d"], "d"), node("Erf", ["d"], ["e"], "e")),
        *(node("Add", ["e", "one"], ["a"], "a"), node("Mul", ["s", "a"], ["m"], "m")),
        *(node("Mul", ["m", "half"], ["g"], "g"), node("Cos", ["x"], ["c"], "c"), node("Add", ["g", "c"], ["y"], "y")),
    ]
    model = model_of(nodes, [("x", FLOAT, [64])], [("y", FLOAT, [64])], 20, numbers)
    path = tmp_path / "gelu.onnx"
    path.write_bytes(model.SerializeToString())
    assert peak_as_printed(path, tmp_path)[1] == ["s", "d", "e", "a", "m", "g", "c", "y"]


@pytest.mark.parametrize("kind", ["HardSwish", "Mish"])
def test_functions_keep_their_place_in_the_printed_session(kind: str, tmp_path: Path) -> None:
    """ONNX Runtime has no kernel for them: its own steps for one would run behind all nodes of the file."""
    rng = np.random.default_rng(0)
    node = helper.make_node
    nodes = [node("Mul", ["x", f"w{at}"], [f"wide{at}"], f"wide{at}") for at in range(3)]
    joined = []
    for at in range(3):
        nodes.append(node(kind, [f"wide{at}"], [f"act{at}"], f"act{at}"))
        nodes.append(node("GlobalAveragePool", [f"act{at}"], [f"mean{at}"], f"mean{at}"))
        joined.append(f"mean{at}")
    nodes.append(node("Concat", joined, ["y"], "y", axis=1))
    weights = [
        helper.make_tensor(f"w{at}", FLOAT, [1, 8, 1, 1], rng.standard_normal(8).astype(np.float32)) for at in range(3)
    ]
    given, made = [("x", FLOAT, [1, 8, 16, 16])], [("y", FLOAT, [1, 24, 1, 1])]
    path = tmp_path / "functions.onnx"
    path.write_bytes(model_of(nodes, given, made, 18, weights).SerializeToString())
    result = optimize(path, effort=1, order_guarantee="session")
    assert result.verification is not None
    assert result.verification.outputs_equal
    assert result.verification.executed_order_matches
    result.save(tmp_path / "written.onnx")
    peak, names = peak_as_printed(tmp_path / "written.onnx", tmp_path)
    assert (
        peak
        == result.report["sections"]["requirement"]["bytes"]
        < result.report["sections"]["requirement"]["given_bytes"]
    )
    assert names == [node.name for node in onnx.load(tmp_path / "written.onnx").graph.node]


def quantised() -> onnx.ModelProto:
    """Return two convolutions of one dequantised weight, with a MaxPool and a quantised value between them."""
    node = helper.make_node
    constants = [
        helper.make_tensor("scale", FLOAT, [], [0.05]),
        helper.make_tensor("zero", TensorProto.UINT8, [], [128]),
        helper.make_tensor("whole", TensorProto.INT8, [], [0]),
        helper.make_tensor("w", TensorProto.INT8, [8, 8, 3, 3], np.full(576, 3, np.int8).tobytes(), raw=True),
    ]
    pair = ("scale", "zero")
    nodes = [
        node("QuantizeLinear", ["x", *pair], ["q"], "q"),
        node("DequantizeLinear", ["q", *pair], ["d"], "d"),
        node("DequantizeLinear", ["w", "scale", "whole"], ["v"], "v"),
        node("Conv", ["d", "v"], ["a"], "a", pads=[1] * 4),
        node("MaxPool", ["a"], ["m"], "m", kernel_shape=[3, 3], pads=[1] * 4),
        node("QuantizeLinear", ["m", *pair], ["p"], "p"),
        node("DequantizeLinear", ["p", *pair], ["r"], "r"),
        node("Conv", ["r", "v"], ["b"], "b", pads=[1] * 4),
        node("Add", ["b", "d"], ["y"], "y"),
    ]
    shape = [1, 8, 32, 32]
    return model_of(nodes, [("x", FLOAT, shape)], [("y", FLOAT, shape)], 13, constants)


def test_nothing_quantised_is_added_in_the_printed_session(tmp_path: Path) -> None:
    """Nodes doubled for each reader would run behind all nodes of the file, and weights as values of each run."""
    path = tmp_path / "quantised.onnx"
    path.write_bytes(quantised().SerializeToString())
    peak, names = peak_as_printed(path, tmp_path)
    assert names == ["q", "d", "a", "m", "p", "r", "b", "y"]
    result = optimize(path, effort=1, order_guarantee="session", level=2, max_extra_macs=50.0)
    assert result.report["sections"]["requirement"]["given_bytes"] == peak
    result.save(tmp_path / "written.onnx")
    written, _ = peak_as_printed(tmp_path / "written.onnx", tmp_path)
    assert written == result.report["sections"]["requirement"]["bytes"] < peak


@pytest.mark.parametrize("name", ["", "tile", "remat"])
def test_the_promised_peak_is_the_one_of_the_printed_session(name: str, tmp_path: Path) -> None:
    model = {"tile": skip_net, "remat": skip_connection}.get(name, small_models.branches)()
    allow = ("reorder", "inplace", name) if name else None
    most = 50.0 if name == "remat" else 15.0
    result = optimize(model, effort=2, order_guarantee="session", allow=allow, max_extra_macs=most)
    path = tmp_path / "written.onnx"
    result.save(path)
    data, check = result.report.data, result.report["sections"]["verification"]
    measured, _ = peak_as_printed(path, tmp_path)
    assert measured == check["measured_peak_after_bytes"] == check["predicted_peak_after_bytes"]
    assert measured == data["written"]["schedule"]["peak_bytes"]
    assert not data["output"]["unchanged"]
    assert data["output"]["guarantee"]["session_options"] == check["measured_with"]
