"""Operators that are in blocks because the operator table knows them, whatever their lengths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

from memsched.formats.blocks import Range
from memsched.formats.onnx.blocks.body import write
from memsched.formats.onnx.blocks.probes import probe
from memsched.formats.onnx.blocks.regions import rows_of
from memsched.formats.onnx.blocks.tokens import groups
from memsched.formats.onnx.light import lighten
from tests.formats.onnx.blocks.layers import Layers

_RANGES = {"batch": Range(1, 8), "length": Range(2, 4096)}
_SHARE = 1e-3
"""Of an output's elements that may differ: other sums may round to the next integer, or rank another first."""


def _quantised(net: Layers) -> str:
    wide = net.quantised(net.op("Relu", net.linear("x", net.width, 12 * net.width)))
    return net.linear(wide, 12 * net.width, net.width)


def _of_integers(net: Layers) -> str:
    wide = net.op("Celu", net.integer_linear("x", net.width, 12 * net.width), alpha=0.5)
    return net.linear(net.op("HardSigmoid", wide), 12 * net.width, net.width)


def _functions(net: Layers) -> str:
    return net.linear(net.op("HardSwish", net.linear("x", net.width, 12 * net.width)), 12 * net.width, net.width)


def _ranked(net: Layers) -> str:
    place = net.op("ArgMax", net.linear("x", net.width, 12 * net.width), axis=-1, keepdims=1)
    return net.op("Mul", "x", net.op("Cast", place, to=TensorProto.FLOAT))


def _ranked_softly(net: Layers) -> str:
    wide = net.linear("x", net.width, 12 * net.width)
    return net.op("ReduceLogSumExp", net.op("LogSoftmax", net.op("Softsign", wide)), axes=[-1])


@pytest.mark.parametrize(
    ("layer", "inside"),
    [
        (_quantised, {"MatMul", "Relu", "QuantizeLinear", "DequantizeLinear"}),
        (_of_integers, {"MatMulInteger", "Celu", "HardSigmoid", "MatMul"}),
        (_functions, {"MatMul", "HardSwish"}),
        (_ranked, {"MatMul", "ArgMax"}),
        (_ranked_softly, {"MatMul", "Softsign", "LogSoftmax", "ReduceLogSumExp"}),
    ],
)
def test_what_one_table_knows_is_in_blocks(layer: Callable[[Layers], str], inside: set[str]) -> None:
    net = Layers()
    model = net.model(layer(net))
    light = ModelProto()
    light.CopyFrom(model)
    lighten(light, Path())
    graph, nests = groups(model, probe(light, _RANGES))
    assert len(nests) == 1
    assert inside <= {graph.nodes[place].op_type for place in rows_of(nests[0]).nodes}
    written = write(model, graph, nests, 5000)
    onnx.checker.check_model(written)
    plain, blocks = (onnxruntime.InferenceSession(one.SerializeToString()) for one in (model, written))
    for batch, length in ((1, 2), (3, 65), (2, 190)):
        feeds = {"x": np.random.default_rng(length).standard_normal((batch, length, net.width)).astype(np.float32)}
        expected, found = plain.run(None, feeds)[0], blocks.run(None, feeds)[0]
        apart = np.abs(found - expected) > 1e-5 * np.abs(expected).max()
        assert found.shape == expected.shape
        assert np.ptp(expected) > 0
        assert apart.mean() <= _SHARE


def test_indices_of_a_pool_count_from_the_whole_and_stay_whole() -> None:
    """The rule of its first output says nothing of the second."""
    net = Layers()
    pool = helper.make_node("MaxPool", ["x"], ["most", "where"], kernel_shape=[1])
    net.nodes.append(pool)
    model = net.model(net.op("Add", "most", net.op("Cast", "where", to=TensorProto.FLOAT)))
    light = ModelProto()
    light.CopyFrom(model)
    lighten(light, Path())
    graph, nests = groups(model, probe(light, _RANGES))
    assert not nests
    assert not graph.rules.of(pool)
