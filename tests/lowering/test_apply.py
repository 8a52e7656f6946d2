"""What each rule of a target does to a graph, and the conditions that no rule can lift."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as ruled

from memsched.graph import dag
from memsched.graph.effects import PURE, Effects
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Region, Tensor
from memsched.lowering.apply import apply_target, with_workspaces
from memsched.targets.load import Target, load_target
from memsched.targets.model import InPlaceRule, PartViewRule, ViewRule, WorkspaceRule
from tests.random_graphs import random_graph

BARE = Target("bare", "")
VIEWS = ruled(BARE, views=(ViewRule(("Reshape",)),))
RELU = ruled(BARE, in_place=(InPlaceRule(("Relu",), inputs=(0,)),), overwrite_inputs=True)
SAME = ruled(BARE, in_place=(InPlaceRule(("Relu", "Add"), match="shape", elementwise=True),))
PARTS = ruled(
    BARE,
    part_views=(
        PartViewRule(("Concat",), "concatenation"),
        PartViewRule(("Slice",), "slice"),
        PartViewRule(("Split",), "split"),
    ),
)


def shaped(
    shapes: Mapping[str, tuple[int, ...] | None],
    ops: Sequence[Op],
    outputs: Sequence[str],
    inputs: Sequence[str] = ("x",),
    variables: Sequence[str] = (),
) -> Graph:
    number = {name: index for index, name in enumerate(shapes)}
    graph = Graph(
        "shaped",
        tuple(Tensor(name, math.prod(shape or ()) * 4, shape, "float32") for name, shape in shapes.items()),
        tuple(ops),
        tuple(number[name] for name in inputs),
        tuple(number[name] for name in outputs),
        tuple(number[name] for name in variables),
    )
    dag.validate(graph)
    return graph


def changed(graph: Graph, name: str, **changes: object) -> Graph:
    tensors = [replace(t, **changes) if t.name == name else t for t in graph.tensors]  # type: ignore[arg-type]
    return replace(graph, tensors=tuple(tensors))


def chain(kind: str, before: tuple[int, ...] = (4, 4), after: tuple[int, ...] = (4, 4)) -> Graph:
    """x -> a -> [kind] -> b -> y."""
    ops = [Op("f", "Conv", (0,), (1,)), Op("op", kind, (1,), (2,)), Op("g", "Conv", (2,), (3,))]
    return shaped({"x": (2,), "a": before, "b": after, "y": (2,)}, ops, ["y"])


def views(graph: Graph, target: Target, op: int = 1) -> tuple[tuple[int, int], ...]:
    return apply_target(graph, target).ops[op].views


def pairs(graph: Graph, target: Target, op: int = 1) -> tuple[tuple[int, int], ...]:
    return apply_target(graph, target).ops[op].in_place


def test_a_view_shares_its_source() -> None:
    graph = chain("Reshape", (4, 4), (16,))
    assert views(graph, VIEWS) == ((2, 1),)
    assert views(graph, BARE) == ()
    assert views(changed(graph, "b", size=60), VIEWS) == ()
    assert views(changed(graph, "b", sized=False, size=0), VIEWS) == ()
    assert views(changed(graph, "a", sized=False), VIEWS) == ()


def test_a_view_reads_the_position_that_the_rule_names() -> None:
    graph = chain("Reshape", (4, 4), (16,))
    # The data is a constant: what the op reads is the shape.
    ops = (graph.ops[0], replace(graph.ops[1], positions=(1,)), graph.ops[2])
    assert views(replace(graph, ops=ops), VIEWS) == ()
    assert views(replace(graph, ops=ops), ruled(BARE, views=(ViewRule(("Reshape",), input=1),))) == ((2, 1),)


def test_a_graph_output_that_owns_its_bytes_is_no_view_and_not_written_in_place() -> None:
    reshaped = replace(chain("Reshape"), outputs=(2, 3))
    assert views(reshaped, VIEWS) == ((2, 1),)
    assert views(reshaped, ruled(VIEWS, outputs_own=True)) == ()
    relu = replace(chain("Relu"), outputs=(2, 3))
    assert pairs(relu, RELU) == ((2, 1),)
    assert pairs(relu, ruled(RELU, outputs_own=True)) == ()


def test_a_view_of_a_state_is_a_copy() -> None:
    ops = [Op("view", "Reshape", (0,), (1,)), Op("relu", "Relu", (0,), (2,))]
    graph = shaped({"s": (4,), "v": (4,), "y": (4,)}, ops, ["v", "y"], inputs=(), variables=["s"])
    assert views(graph, VIEWS, 0) == ()
    assert pairs(graph, RELU) == ()
    assert pairs(replace(graph, inputs=(0,)), RELU) == ()
    written = replace(graph, variables=(0, 2))
    assert pairs(written, RELU) == ()
    assert views(replace(graph, variables=(1,), inputs=(0,), outputs=(2,)), VIEWS, 0) == ()


def test_in_place_needs_a_rule_for_the_op_and_the_position() -> None:
    assert pairs(chain("Relu"), RELU) == ((2, 1),)
    assert pairs(chain("Tanh"), RELU) == ()
    graph = chain("Relu")
    ops = (graph.ops[0], replace(graph.ops[1], positions=(1,)), graph.ops[2])
    assert pairs(replace(graph, ops=ops), RELU) == ()


@pytest.mark.parametrize(
    ("shape", "size", "by_bytes", "by_shape"),
    [
        ((4, 4), 64, True, True),
        ((16,), 64, True, False),
        ((4, 4), 32, False, False),
        ((8, 4), 64, False, False),
        (None, 64, False, False),
    ],
)
def test_in_place_needs_the_same_bytes_and_elements(
    shape: tuple[int, ...] | None, size: int, by_bytes: bool, by_shape: bool
) -> None:
    graph = changed(chain("Relu"), "b", shape=shape, size=size)
    assert bool(pairs(graph, RELU)) == by_bytes
    assert bool(pairs(graph, SAME)) == by_shape


def test_in_place_ignores_small_tensors_where_the_rule_says_so() -> None:
    rule = InPlaceRule(("Relu",), above_bytes=64)
    assert pairs(chain("Relu"), ruled(BARE, in_place=(rule,))) == ()
    assert pairs(chain("Relu"), ruled(BARE, in_place=(ruled(rule, above_bytes=63),))) == ((2, 1),)


def test_a_graph_input_is_overwritten_only_where_the_target_says_so() -> None:
    graph = shaped({"x": (4,), "y": (4,)}, [Op("relu", "Relu", (0,), (1,))], ["y"])
    assert pairs(graph, RELU, 0) == ((1, 0),)
    assert pairs(graph, ruled(RELU, overwrite_inputs=False), 0) == ()
    assert pairs(graph, ruled(RELU, overwrite_inputs=False, inputs="caller"), 0) == ()
    assert pairs(changed(graph, "x", external=True), RELU, 0) == ()
    ops = [Op("view", "Reshape", (0,), (1,)), Op("relu", "Relu", (1,), (2,))]
    viewed = shaped({"x": (4,), "v": (2, 2), "y": (2, 2)}, ops, ["y"])
    both = ruled(RELU, views=VIEWS.views)
    assert pairs(viewed, both) == ((2, 1),)
    assert pairs(viewed, ruled(both, overwrite_inputs=False)) == ()


def test_an_input_of_the_caller_costs_nothing_and_its_views_neither() -> None:
    ops = [Op("view", "Reshape", (0,), (1,)), Op("f", "Conv", (1,), (2,))]
    graph = shaped({"x": (4,), "v": (2, 2), "y": (3,)}, ops, ["y"])
    lowered = apply_target(graph, ruled(VIEWS, inputs="caller"))
    assert [tensor.external for tensor in lowered.tensors] == [True, False, False]
    assert evaluate(Storage.of(lowered), (0, 1)).footprints == (0, 12)


def test_a_kept_input_is_always_live_and_never_shown() -> None:
    ops = [Op("view", "Reshape", (0,), (1,)), Op("f", "Conv", (1,), (2,))]
    graph = shaped({"x": (4,), "v": (2, 2), "y": (3,)}, ops, ["y"])
    lowered = apply_target(graph, ruled(VIEWS, inputs="kept"))
    assert lowered.variables == (0,)
    assert lowered.ops[0].views == ()
    assert evaluate(Storage.of(lowered), (0, 1)).footprints == (32, 44)


def test_an_op_that_reads_the_bytes_twice_must_be_elementwise() -> None:
    target = ruled(SAME, views=VIEWS.views)
    ops = [Op("f", "Conv", (0,), (1,)), Op("v", "Reshape", (1,), (2,)), Op("add", "Add", (1, 2), (3,))]
    same = shaped({"x": (4,), "a": (4, 1), "v": (4, 1), "y": (4, 1)}, ops, [])
    assert pairs(same, target, 2) == ((3, 1), (3, 2))
    other = shaped({"x": (4,), "a": (4, 1), "v": (1, 4), "y": (4, 1)}, ops, [])
    assert pairs(other, target, 2) == ()
    by_rows = ruled(target, in_place=(ruled(SAME.in_place[0], elementwise=False),))
    assert pairs(same, by_rows, 2) == ()
    twice = shaped({"x": (4,), "a": (4,), "y": (4,)}, [ops[0], Op("add", "Add", (1, 1), (2,))], [])
    assert pairs(twice, SAME) == ((2, 1),)


def test_a_sole_reader_is_counted_along_the_views() -> None:
    rule = InPlaceRule(("Relu",), sole_reader=True)
    target = ruled(VIEWS, in_place=(rule,))
    shapes: dict[str, tuple[int, ...] | None] = {"x": (4,), "a": (4,), "v": (2, 2), "r": (2, 2), "y": (4,)}
    ops = [
        Op("f", "Conv", (0,), (1,)),
        Op("v", "Reshape", (1,), (2,)),
        Op("relu", "Relu", (2,), (3,)),
        Op("g", "Conv", (0,), (4,)),
    ]
    assert pairs(shaped(shapes, ops, []), target, 2) == ((3, 2),)
    for early in (1, 2):
        reads_too = [*ops[:3], Op("g", "Conv", (early,), (4,))]
        assert pairs(shaped(shapes, reads_too, []), target, 2) == ()


CONCAT_SHAPES: dict[str, tuple[int, ...] | None] = {"x": (1, 2, 3), "a": (1, 2, 3), "b": (1, 4, 3), "y": (1, 6, 3)}


def concat(axis: int | None = 1, **attributes: str) -> Graph:
    ops = [
        Op("a", "Conv", (0,), (1,)),
        Op("b", "Conv", (0,), (2,)),
        Op("c", "Concat", (1, 2), (3,), attributes={**({} if axis is None else {"axis": axis}), **attributes}),
    ]
    return shaped(CONCAT_SHAPES, ops, ["y"])


def test_parts_of_a_concatenation_on_the_outermost_axis() -> None:
    both = ((3, 1), (3, 2))
    assert views(concat(), PARTS, 2) == both
    assert views(concat(-2), PARTS, 2) == both
    assert views(concat(), BARE, 2) == ()
    assert views(concat(None), PARTS, 2) == ()
    assert views(concat(9), PARTS, 2) == ()
    assert views(concat(fused_activation_function="RELU"), PARTS, 2) == ()
    assert views(concat(fused_activation_function="NONE"), PARTS, 2) == both
    outer = changed(changed(concat(), "y", shape=(2, 3, 3)), "b", shape=(1, 4, 3))
    assert views(outer, PARTS, 2) == ()
    assert views(concat(), ruled(PARTS, outputs_own=True), 2) == ()
    assert views(changed(concat(), "y", size=76), PARTS, 2) == ()
    assert views(changed(concat(), "a", external=True), PARTS, 2) == ()
    assert views(replace(concat(), variables=(1,)), PARTS, 2) == ()


def test_a_piece_lies_in_one_concatenation_once() -> None:
    shapes: dict[str, tuple[int, ...] | None] = {"x": (1,), "a": (2,), "b": (2,), "c": (4,), "d": (4,), "v": (2,)}
    start = [Op("a", "Conv", (0,), (1,)), Op("b", "Conv", (0,), (2,))]
    axis = {"axis": 0}
    first, second = (Op(n, "Concat", (1, 2), (t,), attributes=axis) for n, t in (("c", 3), ("d", 4)))
    graph = shaped(shapes, [*start, first, second], ["c", "d"])
    assert views(graph, PARTS, 2)
    assert views(graph, PARTS, 3) == ()
    twice = shaped(shapes, [*start, Op("c", "Concat", (1, 1), (3,), attributes=axis)], ["c"])
    assert views(twice, PARTS, 2) == ()
    view = Op("v", "Reshape", (1,), (5,))
    shown = shaped(shapes, [*start, view, Op("c", "Concat", (1, 5), (3,), attributes=axis)], ["c"])
    assert views(shown, ruled(PARTS, views=VIEWS.views), 3) == ()


def test_a_piece_is_never_overwritten() -> None:
    graph = concat()
    relu = Op("relu", "Relu", (1,), (4,))
    tensors = (*graph.tensors, Tensor("r", 24, (1, 2, 3), "float32"))
    graph = replace(graph, tensors=tensors, ops=(*graph.ops, relu), outputs=(3, 4))
    assert pairs(graph, ruled(RELU, part_views=PARTS.part_views), 3) == ()
    assert pairs(graph, RELU, 3) == ((4, 1),)


def rows(kind: str, shape: tuple[int, ...], source: tuple[int, ...] = (1, 6, 3), **attributes: Any) -> Graph:
    graph = chain(kind, source, shape)
    op = replace(graph.ops[1], attributes=attributes)
    return replace(graph, ops=(graph.ops[0], op, graph.ops[2]))


def test_whole_rows_lie_in_their_source() -> None:
    known: dict[str, Any] = {"starts": (0,), "axes": (1,), "steps": (1,)}
    assert views(rows("Slice", (1, 2, 3), **known), PARTS) == ((2, 1),)
    for unknown in known:
        assert views(rows("Slice", (1, 2, 3), **{key: known[key] for key in known if key != unknown}), PARTS) == ()
    assert views(rows("Slice", (1, 2, 3), **{**known, "steps": (-1,)}), PARTS) == ()
    assert views(rows("Slice", (1, 6, 2), **known), PARTS) == ()
    assert views(rows("Slice", (1, 2, 2), **known), PARTS) == ()
    assert views(rows("Slice", (2, 3), **known), PARTS) == ()
    assert views(rows("Split", (1, 6, 3)), PARTS) == ((2, 1),)
    # Another output of the split is unknown, and with it where this one begins.
    assert views(rows("Split", (1, 2, 3)), PARTS) == ()
    assert views(rows("Slice", (), source=(), **known), PARTS) == ()


def offset(target: Target, kind: str, shape: tuple[int, ...] = (1, 2, 3), **attributes: Any) -> int | None:
    op = apply_target(rows(kind, shape, **attributes), target).ops[1]
    return (op.view_offsets or (0,))[0] if op.views else None


@pytest.mark.parametrize(
    ("starts", "axes", "row"),
    [
        ((3,), (1,), 3),
        ((3,), (-2,), 3),
        ((0, 4), (0, 1), 4),
        ((0,), (2,), 0),
        ((-2,), (1,), 4),
        ((-9,), (1,), 0),
        ((4, 0), (1, 2), 4),
    ],
)
def test_an_onnx_slice_begins_where_its_starts_say(starts: tuple[int, ...], axes: tuple[int, ...], row: int) -> None:
    assert offset(PARTS, "Slice", starts=starts, axes=axes, steps=(1,) * len(starts)) == row * 12


def test_a_tflite_slice_begins_where_its_begin_says() -> None:
    target = ruled(BARE, part_views=(PartViewRule(("SLICE", "STRIDED_SLICE"), "slice"),))
    assert offset(target, "SLICE", begin=(0, 3, 0), size=(1, 2, 3)) == 36
    assert offset(target, "SLICE", size=(1, 2, 3)) is None
    strided: dict[str, Any] = {"begin": (0, 3, 0), "end": (1, 5, 3), "steps": (1, 1, 1)}
    assert offset(target, "STRIDED_SLICE", **strided) == 36
    assert offset(target, "STRIDED_SLICE", **strided, begin_mask=2) == 0
    assert offset(target, "STRIDED_SLICE", **strided, begin_mask=5) == 36
    assert offset(target, "STRIDED_SLICE", **strided, new_axis_mask=1) is None
    assert offset(target, "STRIDED_SLICE", **{**strided, "steps": (1, 2, 1)}) is None
    assert offset(target, "STRIDED_SLICE", begin=(0, 3, 0), end=(1, 5, 3)) is None


def test_parts_off_the_alignment_are_copies_unless_the_target_takes_them() -> None:
    known: dict[str, Any] = {"starts": (3,), "axes": (1,), "steps": (1,)}
    for alignment, aligned in ((4, True), (8, False)):
        target = ruled(PARTS, alignment_bytes=alignment)
        assert offset(target, "Slice", **known) == (36 if aligned else None)
        assert offset(ruled(target, align_parts=False), "Slice", **known) == 36
        assert bool(views(concat(), target, 2)) == (24 % alignment == 0)
    assert views(concat(), ruled(PARTS, alignment_bytes=16), 2) == ()
    assert views(concat(), ruled(PARTS, alignment_bytes=16, align_parts=False), 2) != ()


def test_four_bit_rows_that_end_within_a_byte_are_copies() -> None:
    known: dict[str, Any] = {"starts": (3,), "axes": (0,), "steps": (1,)}
    for start, whole_bytes in ((3, False), (2, True)):
        graph = rows("Slice", (2, 1), source=(6, 1), **{**known, "starts": (start,)})
        graph = changed(changed(graph, "a", size=3, dtype="int4"), "b", size=1, dtype="int4")
        assert bool(views(graph, PARTS)) == whole_bytes


def test_every_output_of_a_split_lies_in_its_source_and_is_not_overwritten() -> None:
    ops = [
        Op("f", "Conv", (0,), (1,)),
        Op("split", "Split", (1,), (2, 3)),
        Op("relu", "Relu", (2,), (4,)),
        Op("g", "Conv", (3, 4), (5,)),
    ]
    graph = shaped({"x": (1,), "a": (4,), "p": (2,), "q": (2,), "r": (2,), "y": (1,)}, ops, ["y"])
    lowered = apply_target(graph, ruled(RELU, part_views=PARTS.part_views))
    assert (lowered.ops[1].views, lowered.ops[1].view_offsets) == (((2, 1), (3, 1)), (0, 8))
    assert lowered.ops[2].in_place == ()
    whole = changed(changed(graph, "p", shape=(4,), size=16), "q", shape=(0,), size=0)
    written = ruled(BARE, in_place=(InPlaceRule(("Split",)),))
    assert pairs(whole, written) == ((2, 1),)
    assert pairs(whole, ruled(written, part_views=PARTS.part_views)) == ()
    assert evaluate(Storage.of(lowered), range(4)).footprints == (20, 16, 24, 28)


def test_workspace_is_added_in_units_of_the_output() -> None:
    target = ruled(BARE, workspace=(WorkspaceRule(("Where",), 1.5), WorkspaceRule(("Softmax",), 2, "axis_not_last")))
    where = chain("Where")
    assert apply_target(where, target).ops[1].workspace == 96
    own = (where.ops[0], replace(where.ops[1], workspace=10), where.ops[2])
    assert apply_target(replace(where, ops=own), target).ops[1].workspace == 106
    for axis, workspace in ((None, 0), (-1, 0), (1, 0), (0, 128), (-2, 128)):
        softmax = rows("Softmax", (4, 4), (4, 4), **({} if axis is None else {"axis": axis}))
        assert apply_target(softmax, target).ops[1].workspace == workspace
    assert apply_target(changed(rows("Softmax", (4, 4), (4, 4), axis=1), "b", shape=None), target).ops[1].workspace


def test_peaks_of_bodies_are_added_to_their_ops() -> None:
    graph = chain("If")
    own = replace(graph, ops=(graph.ops[0], replace(graph.ops[1], workspace=10), graph.ops[2]))
    assert [op.workspace for op in with_workspaces(own, {1: 100, 2: 5}).ops] == [0, 110, 5]
    assert with_workspaces(own, {}) is own


def test_unpacked_4_bit_types_take_a_byte_each() -> None:
    target = ruled(BARE, int4_bytes_per_element=1)
    graph = changed(chain("Relu", (3, 3), (3, 3)), "a", dtype="int4", size=5)
    assert [tensor.size for tensor in apply_target(graph, target).tensors] == [8, 9, 36, 8]
    assert apply_target(graph, BARE).tensors[1].size == 5
    unsized = changed(graph, "a", size=0, sized=False)
    assert apply_target(unsized, target).tensors[1].size == 0
    unshaped = changed(graph, "a", shape=None)
    assert apply_target(unshaped, target).tensors[1].size == 5


def test_permissions_that_the_target_does_not_give_are_removed_and_nothing_is_mutated() -> None:
    rng = random.Random(16)
    for _ in range(200):
        graph = random_graph(rng, rng.randint(0, 12))
        before = repr(graph)
        lowered = apply_target(graph, load_target("paper"))
        assert not any(op.views or op.in_place for op in lowered.ops)
        assert repr(graph) == before
        dag.validate(lowered)


def test_built_in_targets_differ_as_measured() -> None:
    def shares(target: str, kind: str) -> tuple[bool, bool]:
        lowered = apply_target(chain(kind), load_target(target))
        return bool(lowered.ops[1].views), bool(lowered.ops[1].in_place)

    nothing, view, written = (False, False), (True, False), (False, True)
    expected = {
        "ideal": {"Relu": written, "Add": written, "Reshape": view, "ADD": written, "RESHAPE": view, "Conv": nothing},
        "paper": {"Relu": nothing, "Add": nothing, "Reshape": nothing, "ADD": nothing, "RESHAPE": nothing},
        "onnxruntime": {"Relu": written, "Add": nothing, "Reshape": view, "Softmax": written, "Abs": nothing},
        "litert": {"ADD": written, "RELU": nothing, "RESHAPE": view, "SOFTMAX": written, "LOGISTIC": nothing},
        "tflm": {"ADD": nothing, "RESHAPE": view, "RELU": nothing},
    }
    for target, kinds in expected.items():
        assert {kind: shares(target, kind) for kind in kinds} == kinds, target


def test_rules_leave_what_else_an_op_says() -> None:
    op = Op(
        *("a", "Relu", (0,), (1,)),
        attributes={"axis": 1},
        positions=(0,),
        macs=7,
        origin="b",
        region=Region(((0, 1),)),
        chain=("c",),
        terms=(0, 3),
    )
    (lowered,) = apply_target(shaped({"x": (1,), "y": (1,)}, [op], ["y"]), RELU).ops
    assert lowered == replace(op, in_place=((1, 0),))


def test_what_draws_is_no_view_of_what_it_reads() -> None:
    tensors = (Tensor("x", 16, (4,), "float32"), Tensor("a", 16, (4,), "float32"), Tensor("y", 16, (4,), "float32"))
    first = Op("a", "Exp", (0,), (1,), positions=(0,))
    for effects, views in ((PURE, ((2, 1),)), (Effects(random=True), ())):
        drop = Op("y", "Dropout", (1,), (2,), positions=(0,), effects=effects)
        graph = Graph("g", tensors, (first, drop), (0,), (2,))
        lowered = apply_target(replace(graph, outputs=()), load_target("onnxruntime"))
        assert lowered.ops[1].views == views
        assert lowered.ops[1].effects == effects
