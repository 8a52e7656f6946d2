"""Values that a Loop carries: their shapes, and pins next to a Loop that nobody reads."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

import memsched
from memsched.runtimes.onnxruntime.pins import pin
from tests.failures import fails
from tests.formats.onnx_builder import BOOL, INT64, constant, make, node, read, sizes, value


def looped(returned: list[int | str | None], *, grows: bool = False) -> onnx.NodeProto:
    """Return a Loop that carries a value of two elements, declared as ``returned`` where the body returns it."""
    last = node("Concat", "st st", "so", axis=0) if grows else node("Tanh", "st", "so")
    body = helper.make_graph(
        [node("Identity", "c", "co"), last],
        "body",
        [value("i", [], INT64), value("c", [], BOOL), value("st", [2])],
        [value("co", [], BOOL), value("so", returned)],
    )
    return helper.make_node("Loop", ["n", "", "e"], ["r"], "loop", body=body)


def model(loop: onnx.NodeProto, reads: str = "r") -> onnx.ModelProto:
    """Return a model of a Loop between two nodes; its number of iterations is an input."""
    nodes = [node("Relu", "x", "e"), loop, node("Neg", reads, "y")]
    return make(nodes, [value("x", [2]), value("n", [], INT64)], [value("y", None)])


def test_a_carried_value_keeps_its_shape_if_the_body_returns_that_shape() -> None:
    found = sizes(read(model(looped([2]))))
    assert (found["r"], found["y"]) == (8, 8)


@pytest.mark.parametrize("returned", [[4], [None], ["m"]])
def test_a_carried_value_that_may_grow_stays_unknown(returned: list[int | str | None]) -> None:
    with fails("unknown-shape", "'r'"):
        read(model(looped(returned, grows=True)))


def test_a_loop_inside_of_a_loop() -> None:
    inner = looped([2])
    inner.input[2] = "st"
    body = helper.make_graph(
        [node("Identity", "c2", "co2"), inner, node("Neg", "r", "so2")],
        "outer",
        [value("i2", [], INT64), value("c2", [], BOOL), value("st", [2])],
        [value("co2", [], BOOL), value("so2", [2])],
    )
    outer = helper.make_node("Loop", ["n", "", "e"], ["z"], "outer", body=body)
    module = read(model(outer, "z"))
    assert sizes(module)["z"] == 8


def test_nothing_is_pinned_to_a_value_that_nobody_reads_and_nobody_knows_the_rank_of() -> None:
    """The rank of what is returned may change; no pin may read the value, because its size would have to be known."""
    loop = looped([None], grows=True)
    nodes = [
        node("Relu", "x", "e", name="relu"),
        loop,
        node("Exp", "e", "p", name="exp"),
        node("Neg", "e", "q", name="neg"),
        node("Add", "p q", "y", name="add"),
    ]
    weights = [constant("n", 3)]
    given = make(nodes, [value("x", [2])], [value("y", [2])], weights)
    pinned = pin(given)
    assert pinned.pins
    assert all("r" not in one.input for one in pinned.model.graph.node)
    result = memsched.optimize(given.SerializeToString(), order_guarantee="pins", effort=1)
    assert result.report.values.sections.failures == ()
