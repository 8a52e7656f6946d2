"""A large value that several ops read, computed for each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import memsched
from memsched.graph.model import Graph
from memsched.rewrites.recompute.apart import apart
from tests.rewrites.recompute.tiny_graphs import graph_of
from tests.small_models import floats, model_of

SIDE = 32
WIDE = 16 * SIDE * SIDE * 4


def split(graph: Graph, most: float = 100.0, never: Sequence[int] = ()) -> tuple[int, ...]:
    ops = range(len(graph.ops))
    return apart(graph, [10 for _ in ops], [op not in never for op in ops], most)


def made(*ops: tuple[int, tuple[int, ...]]) -> Graph:
    """Return the graph of (bytes, inputs); op i makes tensor i + 1."""
    return graph_of([1, *(size for size, _ in ops)], [("Conv", read, 0) for _, read in ops])


def test_each_reader_has_a_copy_right_before_it() -> None:
    # 0 makes 50 bytes, 1 as many from them, which 2 and 3 read; 4 reads what these make.
    graph = made((50, (0,)), (50, (1,)), (3, (2,)), (4, (2,)), (1, (3, 4)))
    assert split(graph) == (0, 1, 2, 0, 1, 3, 4)
    assert split(graph, most=20) == (0, 1, 2, 0, 1, 3, 4)
    assert split(graph, most=19) == ()
    # What may not be repeated is there once.
    assert split(graph, never=[0]) == (0, 1, 2, 1, 3, 4)
    assert split(graph, never=[1]) == ()


def test_only_what_is_as_large_as_the_largest_that_several_read() -> None:
    assert split(made((20, (0,)), (50, (1,)), (3, (2,)), (4, (2,)), (1, (3, 4)))) == (0, 1, 2, 1, 3, 4)
    assert split(made((9, (0,)), (5, (1,)), (1, (2,)))) == ()
    assert split(made((9, (0,)), (5, (1,)), (5, (1, 2)), (1, (3,)))) == (0, 1, 0, 2, 3)
    assert split(made()) == ()


def gated() -> bytes:
    """A wide tensor from which a gate is computed, and then what is gated: in pieces it can be made for one of them."""
    values = np.random.default_rng(3)
    weights = [
        numpy_helper.from_array(values.normal(size=shape).astype(np.float32) / 4, name)
        for name, shape in (("w", (16, 2, 3, 3)), ("wa", (2, 16, 3, 3)), ("wb", (2, 16, 3, 3)))
    ]
    halved: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["t"], "t", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["t", "wa"], ["a"], "a", **halved),
        helper.make_node("ReduceMean", ["a"], ["m"], "m", axes=[2, 3], keepdims=1),
        helper.make_node("Sigmoid", ["m"], ["g"], "g"),
        helper.make_node("Conv", ["t", "wb"], ["b"], "b", **halved),
        helper.make_node("Mul", ["b", "g"], ["y"], "y"),
    ]
    shapes = [1, 2, SIDE, SIDE], [1, 2, SIDE // 2, SIDE // 2]
    return model_of(nodes, [floats("x", shapes[0])], [floats("y", shapes[1])], weights)


@pytest.mark.parametrize("budget", [None, WIDE])
def test_pieces_are_cut_through_it(budget: int | None) -> None:
    options: dict[str, Any] = {"effort": 0.4, "max_extra_macs": 90.0, "max_slowdown": None, "budget": budget}
    if budget is not None:
        alone = memsched.optimize(gated(), level=2, verify=False, **options)
        assert not alone.budget_met
    report = memsched.optimize(gated(), level=3, order_guarantee="session", **options).report
    assert report["verdict"]["bytes"] < WIDE
    # Convolutions of pieces add up in another order: what was run is as close as that.
    assert report["sections"]["verification"] is not None
    assert report["sections"]["tile"]["applied"]
    assert [(row["op"], row["times"]) for row in report["sections"]["recompute"]["copies"]] == [("t", 1)]
    assert 0 < report["verdict"]["extra_macs_percent"] <= 90
