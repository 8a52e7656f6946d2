"""Loops over rows of images of whole numbers and truth values, and of operators on them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import TensorProto, checker

from memsched.formats.onnx.blocks.rows.plan import LoopWorks, arrange
from memsched.formats.onnx.blocks.rows.write import write_rows
from memsched.formats.onnx.structure import graphs_of
from tests.formats.onnx.blocks.rows.compare import differences, field_of
from tests.formats.onnx.blocks.rows.images import Images

SIZES = [(1, 12, 12), (2, 84, 24), (1, 132, 36)]
_ONE_STEP = 0.02
"""Of the largest element: sums of floats that round otherwise may round to the next whole number."""


def _scaled(net: Images, kind: str, x: str, scale: float, zero: int) -> str:
    return net.op(kind, x, net.constant(np.float32(scale)), net.constant(np.uint8(zero)))


def _rounded(net: Images, x: str) -> str:
    return _scaled(net, "DequantizeLinear", _scaled(net, "QuantizeLinear", x, 0.05, 128), 0.05, 128)


def _quantised(net: Images, x: str) -> str:
    whole = _scaled(net, "QuantizeLinear", x, 0.05, 128)
    channels = net.shapes[x][0]
    weights = np.random.default_rng(1).integers(-90, 90, (channels, channels, 3, 3)).astype(np.int8)
    operands = [net.constant(np.float32(0.05)), net.constant(np.uint8(128)), net.constant(weights)]
    operands += [net.constant(np.float32(0.01)), net.constant(np.int8(0)), net.constant(np.float32(0.1))]
    made = net.op("QLinearConv", whole, *operands, net.constant(np.uint8(120)), pads=[1] * 4)
    return _scaled(net, "DequantizeLinear", made, 0.1, 120)


def _of_integers(net: Images, x: str) -> str:
    whole, channels = _scaled(net, "QuantizeLinear", x, 0.05, 128), net.shapes[x][0]
    weights = net.constant(np.random.default_rng(2).integers(-90, 90, (channels, channels, 3, 3)).astype(np.int8))
    made = net.op("ConvInteger", whole, weights, net.constant(np.uint8(128)), pads=[1] * 4)
    return net.op("Mul", net.op("Cast", made, to=TensorProto.FLOAT), net.constant(np.float32(1e-3)))


def _ranked(net: Images, x: str) -> str:
    place = net.op("ArgMax", x, axis=1, keepdims=1)
    net.shapes[place] = 1, net.shapes[x][1]
    return net.op("Mul", x, net.op("Cast", place, to=TensorProto.FLOAT))


def _chosen(net: Images, x: str) -> str:
    positive = net.op("Greater", x, net.constant(np.float32(0)))
    y = net.op("Where", positive, net.op("Celu", x, alpha=0.5), net.op("Abs", x))
    net.shapes[y] = net.shapes[x]
    return y


def _largest(net: Images, x: str) -> str:
    whole = _scaled(net, "QuantizeLinear", x, 0.05, 128)
    most = net.op("MaxPool", whole, kernel_shape=[3, 3], pads=[1] * 4, strides=[1, 1])
    return _scaled(net, "DequantizeLinear", most, 0.05, 128)


@pytest.mark.parametrize(
    ("layer", "apart"),
    [
        *((_rounded, _ONE_STEP), (_quantised, _ONE_STEP), (_of_integers, _ONE_STEP), (_largest, _ONE_STEP)),
        *((_ranked, 1e-5), (_chosen, 1e-5)),
    ],
)
@pytest.mark.parametrize("kept", [False, True])
def test_images_of_any_type_are_computed_by_rows(layer: Callable[[Images, str], str], apart: float, kept: bool) -> None:
    net = Images()
    x = net.op("Relu", net.conv("x", 8))
    model = net.model(net.conv(layer(net, x), 4))
    field = field_of(model)
    assert {place for op in field.ops for place in op.nodes} == set(range(len(model.graph.node)))
    plan = arrange(LoopWorks(field, 1), frozenset(field.maker) if kept else frozenset(), 0)
    written = write_rows(model, field, plan, 1)
    checker.check_model(written)
    assert not {node.op_type for node in written.graph.node} & {"Conv", "QLinearConv", "QuantizeLinear", "ArgMax"}
    assert max(differences(model, written, SIZES)) <= apart


def test_blocks_of_each_type_lie_in_sequences_of_their_own() -> None:
    net = Images()
    x = net.conv("x", 8)
    whole = _scaled(net, "QuantizeLinear", x, 0.05, 128)
    back = net.conv(_scaled(net, "DequantizeLinear", whole, 0.05, 128), 8)
    model = net.model(net.conv(back, 4))
    field = field_of(model)
    plan = arrange(LoopWorks(field, 1), frozenset({whole, back}), 0)
    written = write_rows(model, field, plan, 1)
    empty = [node for scope in graphs_of(written.graph) for node in scope.graph.node if node.op_type == "SequenceEmpty"]
    assert {node.attribute[0].i for node in empty} == {TensorProto.FLOAT, TensorProto.UINT8}
    assert max(differences(model, written, SIZES)) <= _ONE_STEP
