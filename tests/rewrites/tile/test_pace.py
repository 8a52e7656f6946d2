"""What pieces take of a runtime's time: those of rows read all weights again, those of channels a part each."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.graph.model import Graph
from memsched.lowering.prices import Pace, weight_bytes
from memsched.plan.rewrite import dialect_of
from memsched.rewrites.tile.pieces import Pieces, TilingGroup, plan_pieces
from memsched.rewrites.tile.rewrite import rewrite
from memsched.targets.load import load_target
from tests.small_models import floats, model_of

CONVOLUTION = 4 * (8 * 4 * 3 * 3 + 8)


def convolution() -> bytes:
    """A convolution with a bias, and what makes less of it."""
    values = np.random.default_rng(0)
    constants = [
        numpy_helper.from_array(values.standard_normal(shape).astype(np.float32), name)
        for name, shape in (("w", (8, 4, 3, 3)), ("b", (8,)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("AveragePool", ["c"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    return model_of(nodes, [floats("x", [1, 4, 16, 16])], [floats("y", [1, 8, 8, 8])], constants)


def in_pieces(axis: int, count: int) -> tuple[Graph, Graph]:
    """Return the graph and the same in pieces along an axis."""
    module = load_module(convolution(), "net.onnx", LoadOptions())
    graph, dialect = module.graphs[0], dialect_of(module, load_target("onnxruntime"))
    pieces = plan_pieces(graph, TilingGroup((0, 1), (axis,), (count,)), dialect)
    assert isinstance(pieces, Pieces)
    return graph, rewrite(graph, [pieces], dialect).graph


def weights(graph: Graph) -> int:
    """Return the bytes of weights that all ops read."""
    return sum(weight_bytes(graph, op) for op in graph.ops)


@pytest.mark.parametrize(("axis", "times"), [(2, 4), (1, 1)])
def test_weights_are_read_again_by_pieces_of_rows_alone(axis: int, times: int) -> None:
    graph, cut = in_pieces(axis, 4)
    assert weights(graph) == CONVOLUTION
    assert weights(cut) == times * CONVOLUTION


def test_reading_weights_again_takes_time() -> None:
    graph, cut = in_pieces(2, 4)
    without, with_weights = Pace(0, 0), Pace(0, 0, 2)
    assert with_weights.of_graph(cut) - without.of_graph(cut) == 2 * 4 * CONVOLUTION
    assert with_weights.of_graph(graph) - without.of_graph(graph) == 2 * CONVOLUTION
