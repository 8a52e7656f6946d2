"""The checker of rewritten graphs and of the files read back refuses one corruption at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memsched.check.rewrite import check_rewrite, check_written
from memsched.errors import InternalError
from memsched.graph.model import AttributeValue, Graph, Op, Region, Tensor

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
    "another type": (lambda: changed(3, type="Abs"), "something else"),
    "other attributes": (lambda: changed(3, attributes={"k": 2}), "something else"),
    "other positions": (lambda: changed(3, positions=(1,)), "something else"),
    "another output": (lambda: changed(3, outputs=(4,)), "something else"),
    "an input more": (lambda: changed(3, inputs=(1, 1)), "something else"),
    "an input of another kind": (lambda: changed(3, inputs=(3,)), "of another kind"),
    "a helper that computes": (lambda: changed(2, macs=1), "computes something"),
    "a piece of nothing": (lambda: changed(0, origin="none"), "no piece"),
    "a piece of another type": (lambda: changed(0, type="Abs"), "no piece"),
    "a piece with more outputs": (lambda: changed(0, outputs=(3, 4)), "other inputs or outputs"),
    "a piece with more inputs": (lambda: changed(0, inputs=(0, 0)), "other inputs or outputs"),
    "a copy of another size": (lambda: changed(0, region=None), "is a copy"),
    "an empty region": (lambda: changed(0, region=Region(((2, 2), (0, 1)))), "region"),
    "a piece of nothing's size": (
        lambda: replace(
            changed(0, region=Region(((2, 2), (0, 1)))),
            tensors=(*TENSORS, Tensor("a#0", 0, (0, 1), "float32"), AFTER.tensors[4]),
        ),
        "op 'relu#0' does not compute the region of 'relu' that it states",
    ),
    "a region outside": (lambda: changed(0, region=Region(((3, 5), (0, 1)))), "region"),
    "a region of fewer axes": (lambda: changed(0, region=Region(((0, 2),))), "region"),
    "a region of another size": (lambda: changed(0, region=Region(((0, 3), (0, 1)))), "region"),
}


@pytest.mark.parametrize("case", BAD)
def test_rewrites_that_are_none(case: str) -> None:
    make, message = BAD[case]
    with pytest.raises(InternalError, match=message):
        check_rewrite(BEFORE, make())


@pytest.mark.parametrize("values", [{"type": "Abs"}, {"inputs": (4,)}, {"attributes": {"k": 3}}, {"name": "other"}])
def test_files_that_are_not_what_was_planned(values: dict[str, Any]) -> None:
    with pytest.raises(InternalError, match="not written as planned"):
        check_written(AFTER, (0, 1, 2, 3), changed(3, **values))


def test_formats_without_names_of_ops() -> None:
    check_written(AFTER, (0, 1, 2, 3), changed(3, name="other"), named=False)


GROWN = (*AFTER.tensors[:2], replace(AFTER.tensors[2], dtype="int32"), *AFTER.tensors[3:])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (replace(AFTER, tensors=GROWN), "tensor 'y' changed in size, shape or type"),
        (replace(AFTER, tensors=(*AFTER.tensors, Tensor("z", 1))), "tensor 'z' is made by no op"),
        (replace(AFTER, outputs=(1,)), "the rewritten graph has other inputs, outputs or variables"),
        (replace(AFTER, inputs=()), "the rewritten graph has other inputs, outputs or variables"),
        (replace(AFTER, variables=(1,)), "the rewritten graph has other inputs, outputs or variables"),
    ],
)
def test_a_rewrite_keeps_tensors_and_interface(bad: Graph, message: str) -> None:
    with pytest.raises(InternalError) as caught:
        check_rewrite(BEFORE, bad)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (replace(AFTER, tensors=GROWN), "tensor 'y' was not written as planned"),
        (replace(AFTER, outputs=(1,)), "the written model has other inputs, outputs or variables"),
        (replace(AFTER, variables=(1,)), "the written model has other inputs, outputs or variables"),
        (replace(AFTER, ops=AFTER.ops[:3]), "the written model has 3 ops instead of 4"),
        (replace(AFTER, ops=(*AFTER.ops, AFTER.ops[3])), "the written model has 5 ops instead of 4"),
    ],
)
def test_a_file_keeps_tensors_and_interface(bad: Graph, message: str) -> None:
    with pytest.raises(InternalError) as caught:
        check_written(AFTER, (0, 1, 2, 3), bad)
    assert str(caught.value) == message


def test_what_an_op_reads_may_have_another_name_but_not_another_size() -> None:
    for value in ({"size": 32}, {"shape": (2, 2)}, {"dtype": "int32"}, {"sized": False}):
        other = replace(BEFORE.tensors[1], name="copy", **value)
        copied = replace(OPS[0], name="again", outputs=(5,), origin="relu")
        after = replace(AFTER, tensors=(*AFTER.tensors, other), ops=(copied, replace(OPS[1], inputs=(5,))), inputs=(0,))
        with pytest.raises(InternalError, match="op 'again' is a copy of 'relu', but its output is of another kind"):
            check_rewrite(BEFORE, after)
        made = replace(after, ops=(Op("helper", "Pad", (0,), (5,)), *after.ops[1:]))
        with pytest.raises(InternalError, match="op 'neg' reads 'copy', which is of another kind"):
            check_rewrite(BEFORE, made)


def test_a_copy_may_be_read_instead() -> None:
    other = replace(BEFORE.tensors[1], name="copy")
    before = replace(BEFORE, ops=(*OPS, Op("print", "Print", (1,), (), positions=(0,))))
    copy = replace(OPS[0], name="again", outputs=(3,), origin="relu")
    reading = (replace(OPS[1], inputs=(3,)), before.ops[2])
    check_rewrite(before, replace(before, tensors=(*TENSORS, other), ops=(OPS[0], copy, *reading)))
    with pytest.raises(InternalError, match="op 'again' computes what nothing reads"):
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
    with pytest.raises(InternalError, match="op 'relu' was not written as planned"):
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
    "of ops that are not there": (LINKS, lambda: whole(chain=("gate", "none")), "does not have"),
    "of an op twice": (LINKS, lambda: whole(chain=("gate", "mul", "mul")), "does not have"),
    "of an op that is still there": (LINKS, lambda: whole(chain=("abs", "gate", "mul")), "still there"),
    "for which another stands": (
        LINKS,
        lambda: replace(WHOLE, ops=(*WHOLE.ops[:2], replace(QUICK, name="again"), WHOLE.ops[2])),
        "still there",
    ),
    "by an operator that is no activation": (LINKS, lambda: whole(type="Relu"), "cannot compute"),
    "by another activation": (LINKS, lambda: whole(type="Gelu", attributes={}), "cannot compute"),
    "by an activation with another attribute": (
        LINKS,
        lambda: whole(type="Gelu", attributes={"approximate": "none"}),
        "cannot compute",
    ),
    "of other operators": (linked(1, type="Softmax"), lambda: WHOLE, "cannot compute"),
    "without a curve": (linked(1, type="Neg"), lambda: WHOLE, "cannot compute"),
    "of an op that multiplies and accumulates": (linked(2, macs=1), lambda: WHOLE, "cannot compute"),
    "by an op that does": (LINKS, lambda: whole(macs=1), "cannot compute"),
    "of several outputs": (linked(1, outputs=(2, 4)), lambda: WHOLE, "cannot compute"),
    "that reads elsewhere": (LINKS, lambda: whole(inputs=(0,)), "of one tensor"),
    "that makes something else": (LINKS, lambda: whole(outputs=(3,)), "of one tensor"),
    "whose inner tensor is read": (linked(3, inputs=(2,)), lambda: WHOLE, "of one tensor"),
    "whose inner tensor is returned": (replace(LINKS, outputs=(4, 2)), lambda: WHOLE, "of one tensor"),
    "whose inner tensor is kept": (replace(LINKS, variables=(2,)), lambda: WHOLE, "of one tensor"),
    "of two tensors": (linked(1, inputs=(0,)), lambda: WHOLE, "of one tensor"),
    "by an operator that reads two": (linked(1, inputs=(0,)), lambda: whole(inputs=(0, 1)), "of one tensor"),
    "of another size": (LINKS, lambda: kept(WHOLE, "m", size=8), "of one tensor"),
    "between tensors of two sizes": (kept(LINKS, "m", size=8), lambda: kept(WHOLE, "m", size=8), "another kind"),
    "between tensors of two kinds": (
        kept(LINKS, "m", shape=(1, 4)),
        lambda: kept(WHOLE, "m", shape=(1, 4)),
        "another kind",
    ),
}


@pytest.mark.parametrize("case", NO_CHAINS)
def test_chains_that_are_none(case: str) -> None:
    before, after, message = NO_CHAINS[case]
    with pytest.raises(InternalError, match=message):
        check_rewrite(before, after())
