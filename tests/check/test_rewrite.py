"""The checker of rewritten graphs and of the files read back refuses one corruption at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memsched.check.rewrite import check_rewrite, check_written
from memsched.graph.model import AttributeValue, Graph, Op, Region, Tensor
from tests.failures import fails

TENSORS = (
    Tensor("x", 16, (4, 1), "float32"),
    Tensor("a", 16, (4, 1), "float32"),
    Tensor("y", 16, (4, 1), "float32"),
)
OPS = (
    Op("relu", "Relu", (0,), (1,), attributes={"k": 1}, positions=(0,), macs=4),
    Op("neg", "Neg", (1,), (2,), positions=(0,), macs=4),
)
BEFORE = Graph("net", TENSORS, OPS, (0,), (2,))
PIECE = replace(OPS[0], name="relu#0", outputs=(3,), origin="relu", region=Region(((0, 2), (0, 1))))
AFTER = replace(
    BEFORE,
    tensors=(*TENSORS, Tensor("a#0", 8, (2, 1), "float32"), Tensor("a#1", 8, (2, 1), "float32")),
    ops=(
        PIECE,
        replace(PIECE, name="relu#1", outputs=(4,), region=Region(((2, 4), (0, 1)))),
        Op("join", "Concat", (3, 4), (1,), positions=(0, 1)),
        OPS[1],
    ),
)


def changed(number: int, **values: Any) -> Graph:
    ops = [replace(op, **values) if place == number else op for place, op in enumerate(AFTER.ops)]
    return replace(AFTER, ops=tuple(ops))


def test_pieces_pass() -> None:
    check_rewrite(BEFORE, BEFORE)
    check_rewrite(BEFORE, AFTER)
    check_written(AFTER, (0, 1, 2, 3), AFTER)


BAD: dict[str, tuple[Callable[[], Graph], str]] = {
    "another type": (lambda: changed(3, type="Abs"), "op-differs"),
    "other attributes": (lambda: changed(3, attributes={"k": 2}), "op-differs"),
    "other positions": (lambda: changed(3, positions=(1,)), "op-differs"),
    "another output": (lambda: changed(3, outputs=(4,)), "op-differs"),
    "an input more": (lambda: changed(3, inputs=(1, 1)), "op-differs"),
    "an input of another kind": (lambda: changed(3, inputs=(3,)), "tensor-kind"),
    "a helper that computes": (lambda: changed(2, macs=1), "unknown-op"),
    "a piece of nothing": (lambda: changed(0, origin="none"), "no-piece"),
    "a piece of another type": (lambda: changed(0, type="Abs"), "no-piece"),
    "a piece with more outputs": (lambda: changed(0, outputs=(3, 4)), "piece-ends"),
    "a piece with more inputs": (lambda: changed(0, inputs=(0, 0)), "piece-ends"),
    "a copy of another size": (lambda: changed(0, region=None), "copy-kind"),
    "an empty region": (lambda: changed(0, region=Region(((2, 2), (0, 1)))), "region"),
    "a piece of nothing's size": (
        lambda: replace(
            changed(0, region=Region(((2, 2), (0, 1)))),
            tensors=(*TENSORS, Tensor("a#0", 0, (0, 1), "float32"), AFTER.tensors[4]),
        ),
        "region",
    ),
    "a region outside": (lambda: changed(0, region=Region(((3, 5), (0, 1)))), "region"),
    "a region of fewer axes": (lambda: changed(0, region=Region(((0, 2),))), "region"),
    "a region of another size": (lambda: changed(0, region=Region(((0, 3), (0, 1)))), "region"),
}


@pytest.mark.parametrize("case", BAD)
def test_rewrites_that_are_none(case: str) -> None:
    make, code = BAD[case]
    with fails(code):
        check_rewrite(BEFORE, make())


@pytest.mark.parametrize("values", [{"type": "Abs"}, {"inputs": (4,)}, {"attributes": {"k": 3}}, {"name": "other"}])
def test_files_that_are_not_what_was_planned(values: dict[str, Any]) -> None:
    with fails("op-differs"):
        check_written(AFTER, (0, 1, 2, 3), changed(3, **values))


def test_formats_without_names_of_ops() -> None:
    check_written(AFTER, (0, 1, 2, 3), changed(3, name="other"), named=False)


GROWN = (*AFTER.tensors[:2], replace(AFTER.tensors[2], dtype="int32"), *AFTER.tensors[3:])


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (replace(AFTER, tensors=GROWN), ("tensor-differs", "'y'")),
        (replace(AFTER, tensors=(*AFTER.tensors, Tensor("z", 1))), ("not-made", "'z'")),
        (replace(AFTER, outputs=(1,)), ("interface-differs",)),
        (replace(AFTER, inputs=()), ("interface-differs",)),
        (replace(AFTER, variables=(1,)), ("interface-differs",)),
    ],
)
def test_a_rewrite_keeps_tensors_and_interface(bad: Graph, expected: tuple[str, ...]) -> None:
    with fails(*expected):
        check_rewrite(BEFORE, bad)


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (replace(AFTER, tensors=GROWN), ("tensor-differs", "'y'")),
        (replace(AFTER, outputs=(1,)), ("interface-differs",)),
        (replace(AFTER, variables=(1,)), ("interface-differs",)),
        (replace(AFTER, ops=AFTER.ops[:3]), ("op-count", "3", "4")),
        (replace(AFTER, ops=(*AFTER.ops, AFTER.ops[3])), ("op-count", "5", "4")),
    ],
)
def test_a_file_keeps_tensors_and_interface(bad: Graph, expected: tuple[str, ...]) -> None:
    with fails(*expected):
        check_written(AFTER, (0, 1, 2, 3), bad)


def test_what_an_op_reads_may_have_another_name_but_not_another_size() -> None:
    for value in ({"size": 32}, {"shape": (2, 2)}, {"dtype": "int32"}, {"sized": False}):
        other = replace(BEFORE.tensors[1], name="copy", **value)
        copied = replace(OPS[0], name="again", outputs=(5,), origin="relu")
        after = replace(AFTER, tensors=(*AFTER.tensors, other), ops=(copied, replace(OPS[1], inputs=(5,))), inputs=(0,))
        with fails("copy-kind", "'again'", "'relu'"):
            check_rewrite(BEFORE, after)
        made = replace(after, ops=(Op("helper", "Pad", (0,), (5,)), *after.ops[1:]))
        with fails("tensor-kind", "'neg'", "'copy'"):
            check_rewrite(BEFORE, made)


def test_a_copy_may_be_read_instead() -> None:
    other = replace(BEFORE.tensors[1], name="copy")
    before = replace(BEFORE, ops=(*OPS, Op("print", "Print", (1,), (), positions=(0,))))
    copy = replace(OPS[0], name="again", outputs=(3,), origin="relu")
    reading = (replace(OPS[1], inputs=(3,)), before.ops[2])
    check_rewrite(before, replace(before, tensors=(*TENSORS, other), ops=(OPS[0], copy, *reading)))
    with fails("not-read", "'again'"):
        check_rewrite(before, replace(before, tensors=(*TENSORS, other), ops=(OPS[0], copy, *before.ops[1:])))


def test_an_op_without_outputs_may_be_repeated() -> None:
    before = replace(BEFORE, ops=(*OPS, Op("print", "Print", (1,), (), positions=(0,))))
    again = replace(before.ops[2], name="print again", origin="print")
    check_rewrite(before, replace(before, ops=(*before.ops, again)))


def test_shapes_of_constants_are_in_no_file() -> None:
    stated: dict[str, AttributeValue] = {"constant_shape_1": (2, 2), "k": 1}
    planned = replace(BEFORE, ops=(replace(OPS[0], attributes=stated), OPS[1]))
    check_written(planned, (0, 1), BEFORE)
    check_written(BEFORE, (0, 1), planned)


def test_ops_are_written_in_their_order() -> None:
    ops = (OPS[0], Op("abs", "Abs", (0,), (3,), positions=(0,)), OPS[1])
    graph = replace(BEFORE, tensors=(*TENSORS, Tensor("b", 16, (4, 1), "float32")), ops=ops)
    swapped = replace(graph, ops=(ops[1], ops[0], ops[2]))
    check_written(graph, (1, 0, 2), swapped)
    with fails("op-differs", "'relu'"):
        check_written(graph, (0, 1, 2), swapped)


LINKS = Graph(
    "net",
    tuple(Tensor(name, 16, (4, 1), "float32") for name in ("x", "a", "g", "m", "y")),
    (
        Op("abs", "Abs", (0,), (1,), positions=(0,)),
        Op("gate", "Sigmoid", (1,), (2,), positions=(0,)),
        Op("mul", "Mul", (1, 2), (3,), positions=(0, 1)),
        Op("neg", "Neg", (3,), (4,), positions=(0,)),
    ),
    (0,),
    (4,),
)
CHAIN = ("gate", "mul")
QUICK = Op("whole", "com.microsoft.QuickGelu", (1,), (2,), attributes={"alpha": 1.0}, positions=(0,), chain=CHAIN)
WHOLE = Graph(
    "net",
    tuple(LINKS.tensors[tensor] for tensor in (0, 1, 3, 4)),
    (LINKS.ops[0], QUICK, replace(LINKS.ops[3], inputs=(2,), outputs=(3,))),
    (0,),
    (3,),
)


def whole(**values: Any) -> Graph:
    """Return `WHOLE` with another operator in the chain's place."""
    return replace(WHOLE, ops=(WHOLE.ops[0], replace(QUICK, **values), WHOLE.ops[2]))


def linked(number: int, **values: Any) -> Graph:
    """Return `LINKS` with another operator."""
    return replace(LINKS, ops=tuple(replace(op, **values) if at == number else op for at, op in enumerate(LINKS.ops)))


def kept(graph: Graph, name: str, **values: Any) -> Graph:
    """Return a graph with another tensor of that name."""
    return replace(graph, tensors=tuple(replace(one, **values) if one.name == name else one for one in graph.tensors))


def test_one_operator_for_a_chain_passes() -> None:
    check_rewrite(LINKS, WHOLE)
    # Of whatever is read at the end of the chain, the graph's caller may be the reader.
    check_rewrite(replace(LINKS, ops=LINKS.ops[:3], outputs=(3,)), replace(WHOLE, ops=WHOLE.ops[:2], outputs=(2,)))
    # Nothing at all may read it, and nothing else be there.
    check_rewrite(replace(LINKS, ops=LINKS.ops[:3], outputs=(1,)), replace(WHOLE, ops=WHOLE.ops[:2], outputs=(1,)))
    check_rewrite(
        replace(LINKS, ops=LINKS.ops[1:3], inputs=(1,), outputs=(3,)),
        replace(WHOLE, ops=(QUICK,), inputs=(1,), outputs=(2,)),
    )
    check_rewrite(linked(1, type="Tanh"), whole(type="Gelu", attributes={"approximate": "tanh"}))
    check_rewrite(linked(1, type="Erf"), whole(type="Gelu", attributes={}))


NO_CHAINS: dict[str, tuple[Graph, Callable[[], Graph], str]] = {
    "of ops that are not there": (LINKS, lambda: whole(chain=("gate", "none")), "chain-ops"),
    "of an op twice": (LINKS, lambda: whole(chain=("gate", "mul", "mul")), "chain-ops"),
    "of an op that is still there": (LINKS, lambda: whole(chain=("abs", "gate", "mul")), "chain-ops"),
    "for which another stands": (
        LINKS,
        lambda: replace(WHOLE, ops=(*WHOLE.ops[:2], replace(QUICK, name="again"), WHOLE.ops[2])),
        "chain-ops",
    ),
    "by an operator that is no activation": (LINKS, lambda: whole(type="Relu"), "chain-type"),
    "by another activation": (LINKS, lambda: whole(type="Gelu", attributes={}), "chain-type"),
    "by an activation with another attribute": (
        LINKS,
        lambda: whole(type="Gelu", attributes={"approximate": "none"}),
        "chain-type",
    ),
    "of other operators": (linked(1, type="Softmax"), lambda: WHOLE, "chain-type"),
    "without a curve": (linked(1, type="Neg"), lambda: WHOLE, "chain-type"),
    "of an op that multiplies and accumulates": (linked(2, macs=1), lambda: WHOLE, "chain-type"),
    "by an op that does": (LINKS, lambda: whole(macs=1), "chain-type"),
    "of several outputs": (linked(1, outputs=(2, 4)), lambda: WHOLE, "chain-type"),
    "that reads elsewhere": (LINKS, lambda: whole(inputs=(0,)), "chain-ends"),
    "that makes something else": (LINKS, lambda: whole(outputs=(3,)), "chain-ends"),
    "whose inner tensor is read": (linked(3, inputs=(2,)), lambda: WHOLE, "chain-ends"),
    "whose inner tensor is returned": (replace(LINKS, outputs=(4, 2)), lambda: WHOLE, "chain-ends"),
    "whose inner tensor is kept": (replace(LINKS, variables=(2,)), lambda: WHOLE, "chain-ends"),
    "of two tensors": (linked(1, inputs=(0,)), lambda: WHOLE, "chain-ends"),
    "by an operator that reads two": (linked(1, inputs=(0,)), lambda: whole(inputs=(0, 1)), "chain-ends"),
    "of another size": (LINKS, lambda: kept(WHOLE, "m", size=8), "chain-ends"),
    "between tensors of two sizes": (kept(LINKS, "m", size=8), lambda: kept(WHOLE, "m", size=8), "tensor-kind"),
    "between tensors of two kinds": (
        kept(LINKS, "m", shape=(1, 4)),
        lambda: kept(WHOLE, "m", shape=(1, 4)),
        "tensor-kind",
    ),
}


@pytest.mark.parametrize("case", NO_CHAINS)
def test_chains_that_are_none(case: str) -> None:
    before, after, code = NO_CHAINS[case]
    with fails(code):
        check_rewrite(before, after())
