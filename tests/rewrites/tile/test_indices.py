"""Layers in pieces through gathers and scatters, in files that ONNX Runtime and LiteRT run whole and in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import memsched
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options

SIDE, CHANNELS = 48, 16


def network(kind: str) -> bytes:
    """Return a network of convolutions with an operator between them that picks channels or writes some anew."""
    generator = np.random.default_rng(3)

    def weights(name: str, *shape: int) -> Any:
        return numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32), name)

    picked = generator.permutation(CHANNELS)
    pairs = np.stack([np.zeros_like(picked), picked], -1)
    constants = [weights("w1", CHANNELS, 3, 3, 3), weights("w2", 4, CHANNELS, 3, 3)]
    attributes: dict[str, Any] = {"axis": 1}
    indices, reads = picked, ["a", "i"]
    made = "b"
    between = []
    if kind == "GatherND":
        indices, attributes, made = pairs, {}, "c"
        constants.append(numpy_helper.from_array(np.array([1, CHANNELS, SIDE, SIDE]), "shape"))
        between = [helper.make_node("Reshape", ["c", "shape"], ["b"], "reshape")]
    elif kind == "ScatterND":
        indices, attributes, reads = pairs[:5][None], {}, ["a", "i", "u"]
        between = [
            helper.make_node("Slice", ["a", "start", "stop", "axis"], ["u"], "slice"),
        ]
        numbers = {"start": [0], "stop": [5], "axis": [1]}
        constants += [numpy_helper.from_array(np.array(value), name) for name, value in numbers.items()]
    constants.append(numpy_helper.from_array(indices.astype(np.int64), "i"))
    crossed = helper.make_node(kind, reads, [made], "crossed", **attributes)
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["y"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Exp", ["y"], ["a"], "exp"),
        *([crossed, *between] if kind != "ScatterND" else [*between, crossed]),
        helper.make_node("Neg", ["b"], ["d"], "neg"),
        helper.make_node("Conv", ["d", "w2"], ["z"], "last", strides=[4, 4], pads=[1, 1, 1, 1]),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, SIDE, SIDE]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 4, SIDE // 4, SIDE // 4]),
    ]
    graph = helper.make_graph(nodes, "crossed", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def lite_network() -> bytes:
    """Return the same with TFLite's GATHER."""
    generator = np.random.default_rng(3)
    image, wide, small = (1, SIDE, SIDE, 3), (1, SIDE, SIDE, CHANNELS), (1, SIDE // 4, SIDE // 4, 4)

    def constant(name: str, *shape: int) -> T:
        return T(name, shape, data=generator.standard_normal(shape).astype("f").tobytes())

    tensors = [
        *(T("x", image), T("y", wide), T("a", wide), T("b", wide), T("d", wide), T("z", small)),
        *(constant("w1", CHANNELS, 3, 3, 3), constant("c1", CHANNELS), constant("w2", 4, 3, 3, CHANNELS)),
        *(constant("c2", 4), T("i", (CHANNELS,), "INT32", int32s(*generator.permutation(CHANNELS)))),
    ]
    convolution = [options("Conv2DOptions", padding=0, strideH=stride, strideW=stride) for stride in (1, 4)]
    ops = [
        O("CONV_2D", [0, 6, 7], [1], convolution[0]),
        O("EXP", [1], [2]),
        O("GATHER", [2, 10], [3], options("GatherOptions", axis=3)),
        O("NEG", [3], [4]),
        O("CONV_2D", [4, 8, 9], [5], convolution[1]),
    ]
    return build(Sub(tensors, ops, [0], [5]))


@pytest.mark.parametrize("kind", ["Gather", "GatherND", "ScatterND", "GATHER"])
def test_pieces_cross_operators_with_indices(kind: str) -> None:
    data = lite_network() if kind == "GATHER" else network(kind)
    given = memsched.load(data).graphs[0]
    report = memsched.optimize(
        data,
        level=2,
        max_slowdown=None,
        time_limit=None,
        effort=0.5,
        order_guarantee="session",
        target="litert-reference" if kind == "GATHER" else None,
    ).report
    (group,) = report["sections"]["tile"]["groups"]
    assert {op.name for op in given.ops if op.type == kind} <= set(group["ops"])
    assert report["sections"]["requirement"]["bytes"] < 0.7 * report["sections"]["requirement"]["given_bytes"]
    verification = report["sections"]["verification"]
    assert verification["relative_error"] < 1e-6, "a convolution of another size rounds otherwise"
    assert verification["measured_peak_after_bytes"] == report["sections"]["requirement"]["bytes"]
