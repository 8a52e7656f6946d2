"""Models with an If: which branch runs, what it needs, and what the installed release shows for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memsched
from memsched.base.errors import UnknownShapeError
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.runtimes.onnxruntime.inputs import compared_with
from tests.needs import recent_onnxruntime
from tests.runtimes.onnxruntime.measured import measure

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
APART = 256
"""Bytes: the arena's unit."""

node = helper.make_node
value = helper.make_tensor_value_info


def whole(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def branch(name: str, nodes: Sequence[Any], output: str, shape: Sequence[Any] | None = None) -> Any:
    return helper.make_graph(nodes, name, [], [value(output, FLOAT, shape)])


def model(
    nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], constants: dict[str, Any] | None = None
) -> bytes:
    given = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, given)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def first_length_is(name: str, of: str, length: str) -> list[Any]:
    """Return nodes that make the boolean ``name``: whether the first dimension of ``of`` is the constant ``length``."""
    return [
        node("Shape", [of], [f"{name}_s"]),
        node("Gather", [f"{name}_s", "zero"], [f"{name}_g"]),
        node("Equal", [f"{name}_g", length], [name]),
    ]


CONSTANTS = {"zero": np.array(0), "one": np.array(1), "two": np.array(2), "axes": whole(0)}


def squeezing() -> bytes:
    """Return a model of two Ifs, one in the other, both decided by the first length of x."""
    inner = node(
        "If",
        ["i"],
        ["n"],
        "inner",
        then_branch=branch("big", [node("Concat", ["q"] * 8, ["k"], axis=1), node("Neg", ["k"], ["m"])], "m"),
        else_branch=branch("small", [node("Abs", ["q"], ["l"])], "l"),
    )
    then = branch("t", [node("Squeeze", ["x", "axes"], ["q"]), *first_length_is("i", "q", "two"), inner], "n")
    other = branch("e", [node("Sin", ["x"], ["u"]), node("Squeeze", ["u", "axes"], ["v"])], "v")
    nodes = [
        *first_length_is("o", "x", "one"),
        node("If", ["o"], ["y"], "outer", then_branch=then, else_branch=other),
        node("Sqrt", ["y"], ["z"], "root"),
    ]
    return model(nodes, [value("x", FLOAT, ["a", "b", 500])], [value("z", FLOAT, None)], CONSTANTS)


@pytest.mark.parametrize(("rows", "shape"), [(2, (2, 4000)), (3, (3, 500))])
def test_nested_conditions_that_follow_from_shapes_choose_the_branch(rows: int, shape: tuple[int, ...]) -> None:
    module = load_module(squeezing(), "m.onnx", LoadOptions(dims={"a": 1, "b": rows}))
    graph = module.graph
    assert graph.tensors[graph.outputs[0]].shape == shape
    (note,) = (note for note in module.notes if "'outer.else_branch'" in note)
    assert "never taken" in note
    assert ("'inner.else_branch'" in note) == (rows == 2)
    idle = next(graph for graph in module.graphs if graph.name == "outer.else_branch")
    assert not any(tensor.size for tensor in idle.tensors)


def test_a_condition_that_is_not_known_leaves_both_branches() -> None:
    data = squeezing()
    opened = onnx.load_from_string(data)
    opened.graph.node[2].input[0] = "given"  # the Equal
    opened.graph.node[2].op_type = "Greater"
    opened.graph.input.append(value("given", INT64, []))
    with pytest.raises(UnknownShapeError):
        load_module(opened.SerializeToString(), "m.onnx", LoadOptions(dims={"a": 1, "b": 2}))


def by_rate() -> bytes:
    """Return a model that runs at rate 16 with rows of any number, and at another rate only with rows of 1."""
    then = branch("t", [node("Concat", ["x"] * 4, ["k"], axis=1), node("ReduceSum", ["k", "axes"], ["s"])], "s")
    other = branch("e", [node("Squeeze", ["x", "axes"], ["q"]), node("Unsqueeze", ["q", "axes"], ["v"])], "v")
    nodes = [
        node("Equal", ["rate", "wide"], ["o"]),
        node("If", ["o"], ["y"], "outer", then_branch=then, else_branch=other),
        node("Sqrt", ["y"], ["z"], "root"),
    ]
    return model(
        nodes,
        [value("x", FLOAT, ["a", 1000]), value("rate", INT64, [])],
        [value("z", FLOAT, None)],
        {**CONSTANTS, "wide": np.array(16)},
    )


def test_a_branch_that_cannot_run_at_the_stated_sizes_counts_nothing() -> None:
    module = load_module(by_rate(), "m.onnx", LoadOptions(dims={"a": 3}))
    said = "the else_branch of 'outer' cannot run at these sizes (Squeeze"
    assert any(note.startswith(said) for note in module.notes)
    assert module.graph.tensors[module.graph.outputs[0]].shape == (1, 4000)


def test_inputs_that_are_compared_with_constants_get_one_of_them() -> None:
    assert compared_with(onnx.load_from_string(by_rate()).graph) == {"rate": [16]}


def held(data: bytes, **options: Any) -> None:
    """Assert that the claim is what the printed options show."""
    found = memsched.optimize(data, effort=1.5, **options).report.data["sections"]["verification"]
    assert found["outputs_equal"]
    claimed = found["predicted_peak_after_bytes"] or found["measured_peak_after_bytes"]
    assert found["measured_peak_after_bytes"] == pytest.approx(claimed, abs=APART)


@recent_onnxruntime
@pytest.mark.parametrize("sizes", [{"a": 1, "b": 2}, {"a": 1, "b": 3}])
def test_what_is_claimed_for_nested_branches_is_measured(sizes: dict[str, int]) -> None:
    data = squeezing()
    graph = memsched.optimize(data, dims=sizes, effort=1.5, verify=False)
    measured = measure(data, level="basic", dims=sizes).peak_bytes
    assert measured is not None
    assert measured == pytest.approx(graph.schedule.peak, abs=APART)
    held(data, dims=sizes)


@recent_onnxruntime
def test_what_is_claimed_for_a_branch_by_the_value_of_an_input_is_measured() -> None:
    data = by_rate()
    measured = measure(data, level="basic", dims={"a": 3}).peak_bytes
    peak = memsched.optimize(data, dims={"a": 3}, effort=1.5, verify=False).schedule.peak
    assert measured == pytest.approx(peak, abs=APART)
    held(data, dims={"a": 3})


def handing(*, stated: bool) -> bytes:
    """Return an If whose branches make 16,000 bytes out of 16,000; ``stated``: the file tells the size."""

    def one(name: str, kind: str) -> Any:
        nodes = [
            node("Concat", ["x"] * 4, [f"{name}k"], axis=0),
            node("ReduceSum", [f"{name}k", "axes"], [f"{name}s"]),
            node(kind, [f"{name}s"], [f"{name}n"]),
            node("Expand", [f"{name}n", "wide"], [f"{name}o"]),
        ]
        return branch(name, nodes, f"{name}o", [4000] if stated else None)

    nodes = [
        node("If", ["c"], ["y"], "if", then_branch=one("t", "Neg"), else_branch=one("e", "Sin")),
        node("ReduceMax", ["y"], ["z"], "max"),
    ]
    constants = {**CONSTANTS, "wide": whole(4000)}
    if not stated:
        # Computed from the input's length, which the file does not tell.
        constants["four"] = constants.pop("wide") // 1000
        nodes = [node("Shape", ["x"], ["s"]), node("Mul", ["s", "four"], ["wide"]), *nodes]
    inputs = [value("c", BOOL, []), value("x", FLOAT, [1000] if stated else ["n"])]
    return model(nodes, inputs, [value("z", FLOAT, None)], constants)


@recent_onnxruntime
@pytest.mark.parametrize(("stated", "peak"), [(True, 32_004), (False, 16_020)])
def test_what_a_branch_makes_is_the_output_of_its_if(stated: bool, peak: int) -> None:
    """Where its size is known beforehand there is room for it from the beginning, otherwise from when it is made."""
    data, dims = handing(stated=stated), {} if stated else {"n": 1000}
    assert measure(data, level="basic", dims=dims).peak_bytes == pytest.approx(peak, abs=APART)
    found = memsched.optimize(data, dims=dims, effort=1.5, verify=False)
    assert found.schedule.peak == pytest.approx(peak, abs=APART)


def test_bodies_are_told_apart_where_their_ops_are_reordered() -> None:
    """Two Ifs of which the later one is better first: their bodies change places in the file."""

    def one(name: str, read: str, kind: str) -> Any:
        return branch(name, [node(kind, [read], [f"{name}o"])], f"{name}o", None)

    def choice(name: str, read: str) -> Any:
        bodies = {"then_branch": one(f"{name}t", read, "Neg"), "else_branch": one(f"{name}e", read, "Sin")}
        return node("If", ["c"], [name], name, **bodies)

    nodes = [
        node("Concat", ["x"] * 8, ["k"], "k", axis=0),
        choice("first", "k"),
        node("Concat", ["x"] * 64, ["l"], "l", axis=0),
        node("ReduceSum", ["l", "axes"], ["r"], "r"),
        choice("second", "r"),
        node("Add", ["first", "second"], ["y"], "y"),
    ]
    data = model(nodes, [value("c", BOOL, []), value("x", FLOAT, [1000])], [value("y", FLOAT, None)], CONSTANTS)
    found = memsched.optimize(data, effort=1.5, order_guarantee="session")
    assert found.schedule.peak < memsched.optimize(data, solver="file", verify=False).schedule.peak
