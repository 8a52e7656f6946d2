"""What readers say of the effects of TFLite operators, through the subgraphs that they execute."""

from __future__ import annotations

import re
from collections import Counter

from memsched.formats.module import LoadOptions
from memsched.formats.tflite import reader
from memsched.formats.tflite.model import parse
from memsched.graph.effects import PURE, UNKNOWN, Effects
from memsched.graph.model import Graph
from memsched.runtimes.litert.draws import draw_mismatch, with_same_seeds
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options, unpack

X, Y = T("x"), T("y")
SHAPE = T("shape", (2,), "INT32", int32s(1, 4))


def load(*subs: Sub) -> Graph:
    return reader.read(build(*subs), "model.tflite", LoadOptions()).graph


def drawn(kind: str = "RANDOM_UNIFORM", **seeds: int) -> Sub:
    """Return a subgraph that adds what it draws."""
    ops = [O(kind, [1], [2], options("RandomOptions", **seeds)), O("ADD", [0, 2], [3], options("AddOptions"))]
    return Sub([X, SHAPE, T("r"), Y], ops, [0], [3])


def branch(number: int) -> list[Sub]:
    """Return a main graph whose IF executes subgraph ``number`` and one more, which negates."""
    table = options("IfOptions", thenSubgraphIndex=number, elseSubgraphIndex=number + 1)
    main = Sub([T("c", (), "BOOL"), X, Y], [O("IF", [0, 1], [2], table)], [0, 1], [2])
    return [main, Sub([X, Y], [O("NEG", [0], [1])], [0], [1])]


def test_an_if_has_the_effects_of_its_branches() -> None:
    main, plain = branch(1)
    assert [op.effects for op in load(main, drawn(), plain).ops] == [Effects(random=True)]
    assert [op.effects for op in load(main, plain, plain).ops] == [PURE]


def test_effects_reach_the_caller_of_a_caller() -> None:
    outer, plain = branch(1)
    inner = branch(3)[0]
    assert [op.effects for op in load(outer, inner, plain, drawn(), plain).ops] == [Effects(random=True)]


def test_variable_tensors_and_resources_are_state() -> None:
    svdf = Sub([X, T("state", variable=True), Y], [O("SVDF", [0, 1], [2])], [0], [2])
    assert [op.effects for op in load(svdf).ops] == [Effects(stateful=True)]
    handle = O("VAR_HANDLE", [], [1], options("VarHandleOptions", sharedName=b"h"))
    tensors = [X, T("h", (), "RESOURCE"), Y]
    graph = load(Sub(tensors, [handle, O("READ_VARIABLE", [1], [2]), O("ASSIGN_VARIABLE", [1, 0], [])], [0], [2]))
    assert all(op.effects.stateful for op in graph.ops)


def test_a_custom_operator_is_unknown() -> None:
    graph = load(Sub([X, Y, T("z")], [O("CUSTOM:mine", [0], [1]), O("NEG", [1], [2])], [0], [2]))
    assert [op.effects for op in graph.ops] == [UNKNOWN, PURE]


def test_a_draw_of_constants_is_no_constant() -> None:
    assert [op.type for op in load(drawn()).ops] == ["RANDOM_UNIFORM", "ADD"]
    unknown = Sub([X, T("w", data=bytes(16)), T("c"), Y], [O("CUSTOM:mine", [1], [2]), O("ADD", [0, 2], [3])], [0], [3])
    assert [op.type for op in load(unknown).ops] == ["CUSTOM:mine", "ADD"]


def seed_of(data: bytes, subgraph: int) -> int:
    return int(unpack(data).subgraphs[subgraph].operators[0].builtinOptions.seed)


def test_copies_have_seeds_where_the_file_has_none() -> None:
    main, plain = branch(1)
    (copy,) = with_same_seeds([build(main, drawn("RANDOM_STANDARD_NORMAL"), plain)])
    assert seed_of(copy, 1)
    assert seed_of(with_same_seeds([copy])[0], 1) == seed_of(copy, 1)
    assert seed_of(with_same_seeds([build(drawn(seed=7))])[0], 0) == 7


def test_draws_are_counted_in_all_subgraphs() -> None:
    main, plain = branch(1)
    given = build(main, drawn(), plain)
    assert draw_mismatch(given, [given]) is None
    twice = draw_mismatch(given, [build(main, drawn(), drawn())])
    assert re.findall(r"\d|RANDOM\w+", twice or "") == ["2", "RANDOM_UNIFORM", "1"]
    assert draw_mismatch(given, [build(main, plain, plain)]) is not None
    assert Counter(op.type for op in parse(given).subgraphs[1].operators) == {"RANDOM_UNIFORM": 1, "ADD": 1}
