"""``--max-slowdown``: for ONNX Runtime, pieces and repetitions pay for operators and for time."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import memsched
from memsched.base.units import format_size
from memsched.commands.results import OptimizeResult
from memsched.lowering.prices import Kept, Pace, Prices
from memsched.report.console import findings
from memsched.targets.load import load_target
from tests.failures import fails

EFFORT = 2.0
SIDE = 96
FREE_OPS = 150


def convolutions(channels: tuple[int, ...] = (3, *[12] * 20, 4), side: int = SIDE) -> bytes:
    """Return convolutions in a row, each 442 KB: in many pieces they need little, for hundreds of operators."""
    rng = np.random.default_rng(0)
    nodes, weights, read = [], [], "x"
    for number, (before, after) in enumerate(itertools.pairwise(channels)):
        values = rng.standard_normal((after, before, 3, 3)).astype(np.float32) / (3 * before)
        weights.append(numpy_helper.from_array(values, f"w{number}"))
        nodes.append(helper.make_node("Conv", [read, f"w{number}"], [f"c{number}"], f"conv{number}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"], f"relu{number}"))
        read = f"r{number}"
    nodes.append(helper.make_node("GlobalAveragePool", [read], ["y"], "pool"))
    graph = helper.make_graph(
        nodes,
        "row",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, channels[0], side, side))],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, channels[-1], 1, 1))],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def in_pieces(max_slowdown: float | None, side: int = SIDE, **more: Any) -> OptimizeResult:
    """Return the network in pieces; those of memory alone are thousands of operators, which take work to write."""
    effort = EFFORT if max_slowdown is not None else 3 * EFFORT
    return memsched.optimize(
        convolutions(side=side), level=2, max_slowdown=max_slowdown, effort=effort, verify=False, **more
    )


def ops_of(result: OptimizeResult) -> int:
    """Return how many operators the model written has."""
    return len(onnx.load_model_from_string(result.model).graph.node)


def slower(result: OptimizeResult) -> float:
    """Return the estimate of the time that the model written takes beyond the one given, in percent."""
    price = load_target("onnxruntime").price
    assert price is not None
    pace = Pace(price.macs_per_op, price.macs_per_byte)
    return 100 * (pace.of_graph(result.graph) / pace.of_graph(result.module.graph) - 1)


@pytest.fixture(scope="module")
def unpriced() -> OptimizeResult:
    """Return what memory alone decides."""
    return in_pieces(None)


def weight(result: OptimizeResult) -> int:
    """Return what the model takes, with what the session keeps for operators beyond those that cost nothing."""
    price = load_target("onnxruntime").price
    assert price is not None
    more = max(0, ops_of(result) - len(result.module.graph.ops) - FREE_OPS)
    return int(result.report["verdict"]["bytes"]) + price.bytes_per_op * more


def test_operators_and_time_are_weighed_in(unpriced: OptimizeResult) -> None:
    priced = in_pieces(10.0)
    assert ops_of(unpriced) > FREE_OPS + 100
    assert weight(priced) < weight(unpriced)
    assert ops_of(priced) < ops_of(unpriced)
    assert slower(priced) <= 10.0 < slower(unpriced)
    # What is left is still worth it.
    required = priced.report["verdict"]
    assert required["bytes"] < 0.75 * required["original_bytes"]


def test_a_large_limit_still_weighs_operators(unpriced: OptimizeResult) -> None:
    assert weight(in_pieces(1_000.0)) < weight(unpriced)


def test_the_report_states_what_else_decided(unpriced: OptimizeResult) -> None:
    price = load_target("onnxruntime").price
    assert price is not None
    priced = in_pieces(1_000.0, side=4 * SIDE)
    more = ops_of(priced) - len(priced.module.graph.ops) - FREE_OPS
    beside = priced.report["sections"]["requirement"]["structures_bytes"]
    assert more > 0
    assert beside == price.bytes_per_op * more
    assert weight(priced) == priced.report["sections"]["requirement"]["bytes"] + beside
    assert any(
        f" {format_size(beside)} " in line and "operators" in line
        for line, _ in findings(priced.report.values, 200, verbose=False)
    )
    assert unpriced.report["sections"]["requirement"]["structures_bytes"] == 0


def test_a_budget_is_met_by_what_the_session_requests_within_the_limit_of_time(unpriced: OptimizeResult) -> None:
    needed = unpriced.report["verdict"]["bytes"]
    within = in_pieces(10.0, budget=needed)
    assert not within.report["budget"]["met"]
    assert slower(within) <= 10.0
    assert in_pieces(None, budget=needed).report["budget"]["met"]


def test_another_target_has_no_price() -> None:
    model = convolutions()
    found = [
        memsched.optimize(model, target="ideal", level=2, max_slowdown=limit, effort=EFFORT, verify=False).model
        for limit in (0.0, None)
    ]
    assert found[0] == found[1]


def test_a_few_operators_more_cost_nothing() -> None:
    kept = Kept(100)
    prices = Prices(Kept(), lambda _graph, _op: kept, kept, free=250)
    assert [prices.required(1_000, kept * times) for times in (0, 1, 2, 3, 4)] == [1_000, 1_000, 1_000, 1_050, 1_150]


def test_what_is_no_percentage_is_refused() -> None:
    with fails("option-range", "--max-slowdown -1"):
        memsched.optimize(convolutions(), max_slowdown=-1.0)


def feed_forward(rows: int) -> bytes:
    """Two products with a wide value between them, whose weights each piece of rows reads again."""
    values = np.random.default_rng(0)
    shapes = {"up": (128, 2048), "down": (2048, 128)}
    weights = [
        numpy_helper.from_array(values.standard_normal(shape).astype(np.float32) / 64, name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "up"], ["wide"], "first"),
        helper.make_node("Relu", ["wide"], ["r"], "relu"),
        helper.make_node("MatMul", ["r", "down"], ["y"], "second"),
    ]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, (1, rows, 128)) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "layer", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def test_by_default_few_rows_stay_whole_and_many_are_cut() -> None:
    for rows, cut in ((128, False), (4096, True)):
        tiling = memsched.optimize(
            feed_forward(rows), order_guarantee="session", effort=EFFORT
        ).report.values.sections.tile
        assert (tiling is not None and tiling.applied) == cut


def test_who_permits_pieces_gets_them_of_few_rows_too() -> None:
    result = memsched.optimize(feed_forward(128), order_guarantee="session", level=2, effort=EFFORT)
    tiling = result.report.values.sections.tile
    assert tiling is not None
    assert tiling.applied


def test_what_is_to_cost_nothing_is_judged_by_the_dearer_price() -> None:
    price = load_target("onnxruntime").price
    assert price is not None
    dear = price.cautious
    assert dear is not None
    pace = Pace(dear.macs_per_op, dear.macs_per_byte, dear.macs_per_weight_byte)
    result = memsched.optimize(feed_forward(4096), order_guarantee="session", effort=EFFORT, max_slowdown=10.0)
    assert 0 < pace.of_graph(result.graph) / pace.of_graph(result.module.graph) - 1 <= 0.05
