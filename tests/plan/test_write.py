"""What is written is read back, whatever it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import memsched
from memsched.base.errors import InternalError
from memsched.formats.module import Body, LoadOptions, Module
from memsched.formats.onnx import writer
from memsched.plan.write import write_model
from memsched.runtimes.graph_plan import LoweredGraph, lower_module
from memsched.runtimes.onnxruntime import pins
from memsched.runtimes.onnxruntime.guarantee import choose, required_as_stored
from memsched.targets.load import load_target
from tests import small_models
from tests.plan.test_orders import planned


def lowered_of(module: Module) -> tuple[LoweredGraph, ...]:
    return lower_module(module, load_target("onnxruntime"))


def test_a_file_that_takes_no_pins_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small_models.branches()
    module = memsched.load(data)
    plan, _ = planned(lowered_of(module)[0].graph)
    assert plan.reordered
    unpinned = pins.pin

    def none(model: onnx.ModelProto) -> Any:
        return dataclasses.replace(unpinned(model), pins=0)

    def wrong(*_: object) -> bytes:
        return data

    monkeypatch.setattr(pins, "pin", none)

    def written() -> bytes:
        found = write_model(
            *(module, data, (plan,), LoadOptions()), guarantee="pins", control_dependencies=False, target="onnxruntime"
        )
        return found.model

    assert written() != data
    monkeypatch.setattr(writer, "serialize", wrong)
    with pytest.raises(InternalError):
        written()


class CountedBodies(tuple[Body, ...]):
    """Bodies that count how often they are all looked through."""

    looks = 0

    def __iter__(self) -> Iterator[Body]:
        type(self).looks += 1
        return super().__iter__()


def ifs(count: int) -> bytes:
    """Return a model of so many Ifs in a row."""
    nodes, value = [], "x"
    for number in range(count):
        made = helper.make_tensor_value_info(f"m{number}", TensorProto.FLOAT, (8,))
        branches = [
            helper.make_graph([helper.make_node(kind, [value], [made.name], made.name)], made.name + kind, [], [made])
            for kind in ("Relu", "Sigmoid")
        ]
        value = f"y{number}"
        nodes.append(helper.make_node("If", ["c"], [value], value, then_branch=branches[0], else_branch=branches[1]))
    given = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, (8,)),
        helper.make_tensor_value_info("c", TensorProto.BOOL, ()),
    ]
    graph = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info(value, TensorProto.FLOAT, (8,))])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def test_bodies_are_not_looked_through_for_every_graph() -> None:
    looks = []
    for count in (3, 9):
        module = memsched.load(ifs(count))
        assert len(module.graphs) == 1 + 2 * count
        module = dataclasses.replace(module, bodies=CountedBodies(module.bodies))
        lowered = lowered_of(module)
        plans = [planned(one.graph)[0] for one in lowered]
        CountedBodies.looks = 0
        required_as_stored(module, lowered, "session")
        choose(module, lowered, plans, "session")
        looks.append(CountedBodies.looks)
    assert looks[0] == looks[1]
