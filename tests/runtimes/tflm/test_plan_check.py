"""The judge of written memory plans: every kind of mistake in a plan is seen, and permitted sharing is not."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from memsched.formats.tflite.metadata import OFFLINE_PLAN
from memsched.formats.tflite.model import parse
from memsched.runtimes.tflm.plan_check import check_plan
from memsched.targets.load import load_target
from memsched.targets.model import Target
from tests.failures import fails
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options

PLAIN, REFERENCE = load_target("tflm"), load_target("tflm-reference")
BARE = msgspec.structs.replace(PLAIN, views=(), part_views=(), in_place=(), overwrite_inputs=False)


def planned(*offsets: int, sub: Sub, others: tuple[Sub, ...] = ()) -> bytes:
    return build(sub, *others, metadata=[(OFFLINE_PLAN, int32s(1, 1, len(offsets), *offsets))])


def chain(*kinds: str, **values: object) -> Sub:
    """Tensor i goes through operator i to tensor i + 1; 32 bytes each."""
    tensors = [T(f"t{index}", (8,), **values) for index in range(len(kinds) + 1)]  # type: ignore[arg-type]
    return Sub(tensors, [O(kind, [index], [index + 1]) for index, kind in enumerate(kinds)], [0], [len(kinds)])


def test_a_sound_plan_passes_and_its_head_is_returned() -> None:
    sub = chain("EXP", "EXP", "EXP")
    assert check_plan(planned(0, 32, 0, 32, sub=sub), PLAIN, {}) == 64
    assert check_plan(planned(64, 32, 0, 128, sub=sub), PLAIN, {}) == 160
    # The runtime lays t3 at 0 first, then t2 above both.
    assert check_plan(planned(-1, 32, -1, -1, sub=sub), PLAIN, {}) == 96


@pytest.mark.parametrize(
    ("offsets", "code", "about"),
    [
        ((0, 0, 32, 64), "overlap", ("tensor 0 't0' of subgraph 0", "tensor 1 't1' of subgraph 0", " 0 ")),
        ((0, 32, 48, 0), "overlap", (" 48 ",)),
        ((0, 40, 0, 48), "misaligned", ("tensor 1 't1' of subgraph 0", " 40", " 16")),
        ((0, 32, -2, 32), "misaligned", ("-2", "16")),
        ((0, 32, -16, 32), "misaligned", ("-16",)),
    ],
)
def test_a_wrong_plan_is_a_defect(offsets: tuple[int, ...], code: str, about: tuple[str, ...]) -> None:
    with fails(code, *about):
        check_plan(planned(*offsets, sub=chain("EXP", "EXP", "EXP")), PLAIN, {})


def test_a_file_without_a_plan_is_a_defect() -> None:
    with fails("no-memory-plan"):
        check_plan(build(chain("EXP")), PLAIN, {})


def test_offsets_of_constants_and_dead_tensors_are_ignored() -> None:
    tensors = [T("x"), T("c", data=bytes(16)), T("y"), T("empty", (0,)), T("dead", (4,))]
    data = planned(0, 3, 16, 5, 0, sub=Sub(tensors, [O("ADD", [0, 1], [2])], [0], [2]))
    assert check_plan(data, PLAIN, {}) == 32


def test_variables_have_no_offset_nor_has_what_shares_their_place() -> None:
    body = Sub([T("i"), T("v", variable=True), T("k")], [O("ADD", [0, 1], [2])], [0], [2])
    call = O("IF", [0, 1], [2], options("IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=1))
    main = Sub([T("c", (1,), "BOOL"), T("x"), T("y")], [call], [0, 1], [2])
    assert check_plan(planned(0, -1, 32, 48, -1, 64, sub=main, others=(body,)), PLAIN, {}) == 80
    with fails("variable-planned", "tensor 1 'v' of subgraph 1"):
        check_plan(planned(0, -1, 32, 48, 80, 64, sub=main, others=(body,)), PLAIN, {})
    with fails("variable-without-memory", "tensor 1 'x'", "tensor 1 'v' of subgraph 1"):
        check_plan(planned(0, 16, 32, 48, -1, 64, sub=main, others=(body,)), PLAIN, {})
    # What an operator writes when its body has run holds nothing before.
    assert check_plan(planned(0, -1, 32, 32, -1, 64, sub=main, others=(body,)), PLAIN, {}) == 80
    with fails("overlap"):
        check_plan(planned(0, -1, 32, 48, -1, 48, sub=main, others=(body,)), PLAIN, {})


def test_scratch_is_laid_around_the_plan_and_counted() -> None:
    sub = chain("EXP", "EXP")
    assert check_plan(planned(0, 32, 0, sub=sub), PLAIN, {(0, 1): (20,)}) == 96
    assert check_plan(planned(32, 64, 0, sub=sub), PLAIN, {(0, 1): (20,)}) == 96


@pytest.mark.parametrize("kind", ["ABS", "RELU", "TANH", "RESHAPE", "SQUEEZE", "SOFTMAX"])
def test_sharing_that_the_target_permits(kind: str) -> None:
    data = planned(0, 0, 32, sub=chain(kind, "EXP"))
    assert check_plan(data, REFERENCE, {}) == 64
    with fails("overlap"):
        check_plan(data, BARE, {})
    # What only copies may be copied onto itself, whoever wrote the kernel.
    if kind in {"RESHAPE", "SQUEEZE"}:
        assert check_plan(data, PLAIN, {}) == 64
    else:
        with fails("overlap"):
            check_plan(data, PLAIN, {})


@pytest.mark.parametrize("distance", [0, 16])
def test_what_any_kernel_bears_it_bears_at_one_place_only(distance: int) -> None:
    """A RESHAPE whose copy would have to move bytes that it overwrites."""
    data = planned(0, distance, 64, sub=chain("RESHAPE", "EXP"))
    if distance:
        with fails("overlap"):
            check_plan(data, PLAIN, {})
    else:
        assert check_plan(data, PLAIN, {}) == 96


def update(target: Target) -> int:
    """Return the head with a DYNAMIC_UPDATE_SLICE over what it updates."""
    tensors = [T("x", (4, 4)), T("a", (4, 4)), T("piece", (2, 4)), T("at", (2,), "INT32", int32s(1, 0))]
    ops = [O("EXP", [0], [1]), O("DYNAMIC_UPDATE_SLICE", [1, 2, 3], [4])]
    sub = Sub([*tensors, T("y", (4, 4))], ops, [0, 2], [4])
    return check_plan(planned(64, 0, 128, -1, 0, sub=sub), target, {})


def test_an_update_is_made_in_place_by_any_kernel() -> None:
    assert update(PLAIN) == update(REFERENCE) == 160
    with fails("overlap"):
        update(BARE)


def test_a_graph_input_is_overwritten_only_where_permitted() -> None:
    data = planned(0, 0, 32, sub=chain("RELU", "EXP"))
    with fails("overlap"):
        check_plan(data, msgspec.structs.replace(REFERENCE, overwrite_inputs=False), {})


def test_what_is_read_again_is_not_overwritten() -> None:
    tensors = [T(name, (8,)) for name in "xabcy"]
    ops = [O("EXP", [0], [1]), O("RELU", [1], [2]), O("ABS", [2], [3]), O("ADD", [3, 1], [4])]
    sub = Sub(tensors, ops, [0], [4])
    with fails("overlap", "tensor 1 'a' of subgraph 0", "tensor 2 'b'"):
        check_plan(planned(0, 32, 32, 64, 0, sub=sub), REFERENCE, {})
    assert check_plan(planned(0, 32, 64, 64, 32, sub=sub), REFERENCE, {}) == 96
    assert check_plan(planned(0, 32, 64, 64, 64, sub=sub), REFERENCE, {}) == 96


def test_a_view_may_be_overwritten_when_its_source_is_dead_too() -> None:
    tensors = [T(name, (8,)) for name in "xavby"]
    ops = [O("EXP", [0], [1]), O("RESHAPE", [1], [2]), O("RELU", [2], [3])]
    alive = Sub(tensors, [*ops, O("ADD", [3, 1], [4])], [0], [4])
    dead = Sub(tensors, [*ops, O("ADD", [3, 3], [4])], [0], [4])
    assert check_plan(planned(0, 32, 32, 32, 32, sub=dead), REFERENCE, {}) == 64
    assert check_plan(planned(0, 32, 32, 64, 0, sub=alive), REFERENCE, {}) == 96
    with fails("overlap", "tensor 1 'a' of subgraph 0", "tensor 3 'b'"):
        check_plan(planned(0, 32, 32, 32, 64, sub=alive), REFERENCE, {})


def test_a_view_that_was_copied_elsewhere_may_be_copied_back_onto_its_source() -> None:
    # t1, shown elsewhere as t2, shown where t1 lies as t3; then both t1 and t3 are read.
    shown = Sub(
        [T(f"t{index}", (8,)) for index in range(5)],
        [O("EXP", [0], [1]), O("RESHAPE", [1], [2]), O("RESHAPE", [2], [3]), O("ADD", [1, 3], [4])],
        [0],
        [4],
    )
    assert check_plan(planned(0, 32, 64, 32, 96, sub=shown), PLAIN, {}) == 128
    other = replace(shown, ops=[*shown.ops[:1], O("NEG", [1], [2]), *shown.ops[2:]])
    with fails("overlap", " 32 "):
        check_plan(planned(0, 32, 64, 32, 96, sub=other), PLAIN, {})
    with fails("overlap", " 48 "):
        check_plan(planned(0, 32, 48, 32, 96, sub=shown), PLAIN, {})


def test_other_shapes_partial_overlaps_and_other_positions_are_refused() -> None:
    tensors = [T("x", (8,)), T("a", (8,)), T("b", (1, 8)), T("y", (8,))]
    add = Sub(tensors, [O("EXP", [0], [1]), O("ADD", [1, 1], [2]), O("EXP", [2], [3])], [0], [3])
    with fails("overlap"):
        check_plan(planned(0, 32, 32, 0, sub=add), REFERENCE, {})
    softmax = replace(chain("EXP", "SOFTMAX"), ops=[O("EXP", [0], [1]), O("SOFTMAX", [0, 1], [2])])
    with fails("overlap"):
        check_plan(planned(0, 32, 32, sub=softmax), REFERENCE, {})
    with fails("overlap"):
        check_plan(planned(0, 32, 48, sub=chain("EXP", "RELU")), REFERENCE, {})


def concatenation(axis: int = 0, shape: tuple[int, ...] = (4, 4), **table: object) -> Sub:
    whole = tuple(2 * size if place == axis else size for place, size in enumerate(shape))
    tensors = [T("x", shape), T("a", shape), T("b", shape), T("y", whole)]
    ops = [O("EXP", [0], [1]), O("EXP", [0], [2])]
    ops.append(O("CONCATENATION", [1, 2], [3], options("ConcatenationOptions", axis=axis, **table)))
    return Sub(tensors, ops, [0], [3])


def test_pieces_lie_in_their_concatenation_exactly() -> None:
    assert check_plan(planned(128, 0, 64, 0, sub=concatenation()), REFERENCE, {}) == 192
    with fails("overlap"):
        check_plan(planned(128, 64, 0, 0, sub=concatenation()), REFERENCE, {})
    with fails("overlap"):
        check_plan(planned(128, 0, 64, 0, sub=concatenation(axis=1)), REFERENCE, {})
    with fails("overlap"):
        check_plan(planned(128, 0, 64, 0, sub=concatenation(fusedActivationFunction=1)), REFERENCE, {})
    assert check_plan(planned(128, 0, 64, 0, sub=concatenation()), PLAIN, {}) == 192
    with fails("overlap"):
        check_plan(planned(128, 0, 64, 0, sub=concatenation()), BARE, {})
    # A piece of 36 bytes ends where the next begins, at one of its elements.
    assert check_plan(planned(80, 0, 36, 0, sub=concatenation(shape=(3, 3))), REFERENCE, {}) == 128
    with fails("misaligned", " 38", " 4"):
        check_plan(planned(80, 0, 38, 80, sub=concatenation(shape=(3, 3))), REFERENCE, {})


def test_a_slice_lies_in_its_source_exactly() -> None:
    tensors = [T("x", (4, 4)), T("a", (4, 4)), T("begin", (2,), "INT32", int32s(2, 0))]
    tensors += [T("size", (2,), "INT32", int32s(1, 4)), T("s", (1, 4)), T("y", (1, 4))]
    sub = Sub(tensors, [O("EXP", [0], [1]), O("SLICE", [1, 2, 3], [4]), O("EXP", [4], [5])], [0], [5, 1])
    assert check_plan(planned(64, 0, -1, -1, 32, 64, sub=sub), REFERENCE, {}) == 128
    with fails("overlap"):
        check_plan(planned(64, 0, -1, -1, 16, 64, sub=sub), REFERENCE, {})
    # Rows that something still needs are not overwritten through the slice.
    written = replace(sub, ops=[*sub.ops[:2], O("RELU", [4], [5])])
    with fails("overlap"):
        check_plan(planned(64, 0, -1, -1, 32, 32, sub=written), REFERENCE, {})


def test_a_body_with_two_callers_overwrites_its_own_input_alone() -> None:
    call = options("IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=1)
    tensors = [T("c", (1,), "BOOL"), T("x"), T("a"), T("y")]
    main = Sub(tensors, [O("IF", [0, 1], [2], call), O("IF", [0, 2], [3], call)], [0, 1], [3])
    body = Sub([T("i"), T("k")], [O("RELU", [0], [1])], [0], [1])
    assert check_plan(planned(0, 16, 32, 48, 64, 64, sub=main, others=(body,)), REFERENCE, {}) == 80
    with fails("overlap", "tensor 0 'i' of subgraph 1", "tensor 1 'k' of subgraph 1"):
        check_plan(planned(0, 16, 32, 48, 64, 64, sub=main, others=(body,)), PLAIN, {})
    # The second call asks the condition again.
    with fails("overlap", "tensor 0 'c' of subgraph 0", "tensor 0 'i' of subgraph 1"):
        check_plan(planned(0, 16, 32, 48, 0, 64, sub=main, others=(body,)), REFERENCE, {})


def test_a_plan_for_what_is_refused_is_refused() -> None:
    """A rewrite must not have added it; what was given already is told to the user elsewhere."""
    plain, refused = chain("RELU"), chain("GELU")
    data = planned(0, 32, sub=refused)
    assert check_plan(data, PLAIN, {}) == check_plan(data, PLAIN, {}, parse(build(refused))) == 64
    with fails("new-operator-refused", "GELU 't1'"):
        check_plan(data, PLAIN, {}, parse(build(plain)))
