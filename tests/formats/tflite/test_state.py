from __future__ import annotations

import pytest

import memsched
from memsched.check.schedule import check_reordering
from memsched.formats.module import LoadOptions
from memsched.formats.tflite import reader, writer
from memsched.graph.model import Graph
from tests.formats.tflite_builder import O, Sub, T, build, options

X, Y = T("x"), T("y")


def load(*subs: Sub) -> Graph:
    return reader.read(build(*subs), "model.tflite", LoadOptions()).graph


def handle(name: str, output: int) -> O:
    return O("VAR_HANDLE", [], [output], options("VarHandleOptions", sharedName=name.encode()))


def resource(name: str) -> T:
    return T(name, (), "RESOURCE")


def test_variable_tensors_are_state() -> None:
    tensors = [X, T("state", variable=True), T("a"), T("b"), T("c"), T("other", variable=True)]
    ops = [O("SVDF", [0, 1], [2]), O("SVDF", [0, 5], [3]), O("SVDF", [0, 1], [4])]
    graph = load(Sub(tensors, ops, [0], [2, 3, 4]))
    assert [graph.tensors[tensor].name for tensor in graph.variables] == ["state", "other"]
    assert graph.dependencies == ((0, 2),)


def test_a_variable_that_is_an_output_is_not_produced() -> None:
    ops = [O("ADD", [0, 1], [1]), O("ADD", [0, 1], [1]), O("ADD", [0, 1], [2])]
    graph = load(Sub([X, T("state", variable=True), Y], ops, [0], [2]))
    assert [op.outputs for op in graph.ops] == [(), (), (2,)]
    assert len({op.name for op in graph.ops}) == 3
    assert graph.dependencies == ((0, 1), (1, 2))


def test_reads_of_one_resource_commute_and_writes_do_not() -> None:
    tensors = [X, resource("h"), T("r0"), T("r1"), T("r2"), resource("g"), T("r3")]
    ops = [
        handle("h", 1),  # 0
        O("READ_VARIABLE", [1], [2]),  # 1
        O("READ_VARIABLE", [1], [3]),  # 2
        O("ASSIGN_VARIABLE", [1, 0], []),  # 3: after both reads
        O("READ_VARIABLE", [1], [4]),  # 4: after the write
        handle("g", 5),  # 5
        O("READ_VARIABLE", [5], [6]),  # 6: another resource
    ]
    assert load(Sub(tensors, ops, [0], [2, 3, 4, 6])).dependencies == ((1, 3), (2, 3), (3, 4))


def test_operators_without_outputs_keep_their_names_in_another_order() -> None:
    tensors = [X, resource("h"), T("wide", (64,)), T("other", (64,)), T("a"), T("b"), Y]
    ops = [
        handle("h", 1),
        O("EXP", [0], [2]),
        O("EXP", [0], [3]),
        O("ASSIGN_VARIABLE", [1, 2], []),
        O("ASSIGN_VARIABLE", [1, 2], []),
        O("ASSIGN_VARIABLE", [1, 3], []),
        O("READ_VARIABLE", [1], [6]),
    ]
    data = build(Sub(tensors, ops, [0], [6]))
    module = reader.read(data, "model.tflite", LoadOptions())
    writes = ["ASSIGN_VARIABLE(h, wide)", "ASSIGN_VARIABLE(h, wide)#2", "ASSIGN_VARIABLE(h, other)"]
    assert [op.name for op in module.graph.ops] == ["h", "wide", "other", *writes, "y"]
    again = reader.read(writer.serialize(module, {0: (0, 1, 3, 4, 2, 5, 6)}), "model.tflite", LoadOptions()).graph
    assert [op.name for op in again.ops] == ["h", "wide", *writes[:2], "other", writes[2], "y"]
    check_reordering(module.graph, again)
    # An order that needs as much as the original is written if orders are asked for.
    assert memsched.optimize(data, verify=False, allow=("reorder",)).schedule.order != tuple(range(7))


def test_two_handles_of_one_name_are_one_resource() -> None:
    tensors = [X, resource("h"), resource("i"), Y]
    ops = [handle("v", 1), handle("v", 2), O("ASSIGN_VARIABLE", [1, 0], []), O("READ_VARIABLE", [2], [3])]
    assert load(Sub(tensors, ops, [0], [3])).dependencies == ((2, 3),)


def test_a_resource_from_outside_may_be_any() -> None:
    tensors = [X, resource("given"), resource("h"), T("r"), Y]
    ops = [
        handle("h", 2),
        O("READ_VARIABLE", [2], [3]),
        O("ASSIGN_VARIABLE", [1, 0], []),
        O("READ_VARIABLE", [2], [4]),
    ]
    assert load(Sub(tensors, ops, [0, 1], [3, 4])).dependencies == ((1, 2), (2, 3))


def test_custom_ops_without_outputs_keep_their_place_among_stateful_ops() -> None:
    tensors = [X, T("s", variable=True), T("a"), T("b"), T("free")]
    ops = [O("SVDF", [0, 1], [2]), O("CUSTOM:log", [0], []), O("EXP", [0], [4]), O("SVDF", [0, 1], [3])]
    assert load(Sub(tensors, ops, [0], [2, 3, 4])).dependencies == ((0, 1), (1, 3))


def test_random_ops_keep_their_order() -> None:
    tensors = [T("shape", (2,), "INT32"), T("a"), T("b"), T("c")]
    ops = [O("RANDOM_UNIFORM", [0], [1]), O("EXP", [1], [2]), O("RANDOM_STANDARD_NORMAL", [0], [3])]
    assert load(Sub(tensors, ops, [0], [2, 3])).dependencies == ((0, 2),)


@pytest.mark.parametrize(("body_has_state", "expected"), [(True, ((0, 1), (1, 2))), (False, ((0, 2),))])
def test_ops_whose_bodies_have_state_are_barriers(body_has_state: bool, expected: tuple[tuple[int, int], ...]) -> None:
    tensors = [X, T("s", variable=True), T("a"), T("b"), T("c")]
    ops = [O("SVDF", [0, 1], [2]), O("CALL", [0], [3], options("CallOptions", subgraph=1)), O("SVDF", [0, 1], [4])]
    inner = Sub([X, T("v", variable=body_has_state), Y], [O("SVDF", [0, 1], [2])], [0, 1], [2])
    outer = Sub([X, Y], [O("CALL", [0], [1], options("CallOptions", subgraph=2))], [0], [1])
    assert load(Sub(tensors, ops, [0], [2, 3, 4]), outer, inner).dependencies == expected


def test_initialisation_comes_before_what_uses_it() -> None:
    tensors = [T("key", (1,), "INT64"), resource("table"), T("value", (1,), "INT64")]
    ops = [
        O("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=1)),
        O("HASHTABLE", [], [1], options("HashtableOptions", tableId=7)),
        O("HASHTABLE_FIND", [1, 0, 0], [2]),
    ]
    fill = Sub(
        [resource("table"), T("keys", (1,), "INT64", bytes(8))],
        [O("HASHTABLE", [], [0], options("HashtableOptions", tableId=7)), O("HASHTABLE_IMPORT", [0, 1, 1], [])],
        [],
        [],
    )
    assert load(Sub(tensors, ops, [0], [2]), fill).dependencies == ((0, 2),)


def test_the_number_of_edges_is_linear() -> None:
    count = 300
    tensors = [X, *(T(f"s{index}", variable=True) for index in range(count)), *(T(f"y{i}") for i in range(2 * count))]
    ops = []
    for index in range(count):
        ops.append(O("SVDF", [0, 1 + index], [1 + count + 2 * index]))
        ops.append(O("CUSTOM:log", [0], []) if index % 3 == 0 else O("SVDF", [0, 1 + index], [2 + count + 2 * index]))
    outputs = [op.outputs[0] for op in ops if op.outputs]
    assert len(load(Sub(tensors, ops, [0], outputs)).dependencies) <= 3 * len(ops)
