from __future__ import annotations

from dataclasses import replace

import pytest

from memsched.formats.tflite.metadata import OFFLINE_PLAN
from memsched.formats.tflite.model import FileModel, parse
from memsched.runtimes.tflm.dead_tensors import dead_tensors, drop_dead_tensors
from memsched.runtimes.tflm.plan import (
    encode_plan,
    executed_subgraphs,
    given_plan,
    kernel_scratch,
    must_stay_online,
    predict,
    wanted_buffers,
)
from tests.failures import fails
from tests.formats.tflite_builder import MODELS, O, Sub, T, build, int32s, options, unpack

FILE_ORDER = (0, 1, 2, 3, 4, 5, 6)
BEST_ORDER = (0, 3, 1, 4, 2, 5, 6)


def three_branches(order: tuple[int, ...] = FILE_ORDER, *extra: T) -> bytes:
    """Three times a convolution and a pooling of its result, then a concatenation; int8."""
    tensors = [T("x", (1, 16, 16, 3), "INT8"), T("w", (24, 3, 3, 3), "INT8", bytes(648))]
    tensors += [T(f"c{i}", (1, 16, 16, 24), "INT8") for i in range(3)]
    tensors += [T(f"p{i}", (1, 2, 2, 24), "INT8") for i in range(3)]
    tensors += [T("y", (1, 2, 2, 72), "INT8"), *extra]
    ops = [O("CONV_2D", [0, 1], [2 + i]) for i in range(3)]
    ops += [O("MAX_POOL_2D", [2 + i], [5 + i]) for i in range(3)]
    ops += [O("CONCATENATION", [5, 6, 7], [8], options("ConcatenationOptions", axis=3))]
    return build(Sub(tensors, [ops[i] for i in order], [0], [8]))


def head(data: bytes) -> int:
    return predict(parse(data), {}).head


def spans(model: FileModel) -> dict[tuple[int, int], tuple[int, int]]:
    return {(one.subgraph, one.tensor): (one.first, one.last) for one in wanted_buffers(model, {})}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Measured with a host build of TFLM.
        ("person_detect", 55296),
        ("micro_speech_quantized", 5968),
        ("hello_world_int8", 32),
    ],
)
def test_heads_are_those_that_were_measured(name: str, expected: int) -> None:
    model = parse((MODELS / f"{name}.tflite").read_bytes())
    assert predict(model, kernel_scratch(model)).head == expected


@pytest.mark.parametrize(
    ("order", "expected"),
    [(FILE_ORDER, 19_200), ((0, 1, 3, 2, 4, 5, 6), 13_152), (BEST_ORDER, 7_104)],
)
def test_the_order_decides(order: tuple[int, ...], expected: int) -> None:
    # Measured with a host build of TFLM.
    assert head(three_branches(order)) == expected


def test_a_dead_tensor_costs_until_it_is_dropped() -> None:
    data = three_branches(BEST_ORDER, T("dead", (50000,), "INT8"), T("other", (), "FLOAT32"))
    assert head(data) == 50000 + 16
    written, dropped = drop_dead_tensors(data)
    assert [(one.name, one.size) for one in dropped] == [("dead", 50000), ("other", 4)]
    assert head(written) == head(three_branches(BEST_ORDER))
    assert [len(graph.tensors) for graph in parse(written).subgraphs] == [11]
    # An independent reader agrees, and no other tensor changed.
    old, new = unpack(data).subgraphs[0].tensors, unpack(written).subgraphs[0].tensors
    assert [(list(t.shape), t.type, t.buffer) for t in new[9:]] == [([0], 9, 0)] * 2
    assert [(t.name, list(t.shape), t.type, t.buffer) for t in new[:9]] == [
        (t.name, list(t.shape), t.type, t.buffer) for t in old[:9]
    ]
    assert drop_dead_tensors(written) == (written, ())


def test_variables_constants_and_intermediates_are_not_dropped() -> None:
    tensors = [T("x"), T("y"), T("state", variable=True), T("unused", data=bytes(16)), T("empty", (0, 3))]
    data = build(Sub(tensors, [O("EXP", [0], [1])], [0], [1]))
    assert dead_tensors(parse(data)) == ()
    assert drop_dead_tensors(data) == (data, ())


def test_sizes_are_those_of_the_runtime() -> None:
    dtypes = ["INT4", "INT16", "RESOURCE", "BOOL", "COMPLEX64"]
    tensors = [T("x"), *(T(dtype, (3, 11), dtype) for dtype in dtypes), T("scalar", (), "INT8"), T("y")]
    model = parse(build(Sub(tensors, [], range(len(tensors)), [7])))
    assert [one.size for one in wanted_buffers(model, {})] == [16, 48, 80, 144, 48, 272, 16, 16]


def control_flow() -> bytes:
    """A main graph with an IF, one body with a variable, and a subgraph that nothing executes."""
    main = Sub(
        [T("c", (1,), "BOOL"), T("x", (1, 64)), T("a", (1, 64)), T("b", (1, 64)), T("y", (1, 64)), T("kept", (1, 4))],
        [
            O("EXP", [1], [2]),
            O("IF", [0, 2], [3], options("IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2)),
            O("ADD", [3, 5], [4]),
        ],
        [0, 1, 5],
        [4],
    )
    then = Sub([T("i", (1, 64)), T("j", (1, 64)), T("k", (1, 64))], [O("EXP", [0], [1]), O("EXP", [1], [2])], [0], [2])
    other = Sub([T("i", (1, 64)), T("v", variable=True), T("k", (1, 64))], [O("EXP", [0], [2])], [0], [2])
    lonely = Sub([T("i", (1, 512)), T("k", (1, 512))], [O("EXP", [0], [1])], [0], [1])
    return build(main, then, other, lonely)


def test_bodies_are_numbered_inline() -> None:
    model = parse(control_flow())
    found = spans(model)
    # EXP 1; IF 2: its bodies' begins 3 and 6, their operators 4, 5 and 7; ADD 8.
    assert [found[0, tensor] for tensor in range(6)] == [(0, 7), (0, 1), (1, 7), (2, 8), (8, 8), (0, 8)]
    assert [found[1, tensor] for tensor in range(3)] == [(3, 4), (4, 5), (5, 5)]
    assert (found[2, 0], found[2, 2]) == ((6, 7), (7, 7))
    assert (2, 1) not in found
    assert (found[3, 0], found[3, 1]) == ((-1, -1), (-1, -1))
    assert executed_subgraphs(model) == [True, True, True, False]
    # The variable has index 1 in its subgraph: the list's second entry belongs to x.
    assert must_stay_online(model) == {(0, 1)}


def test_a_body_with_two_callers_is_needed_from_the_first_to_the_last() -> None:
    call = options("IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=1)
    main = Sub([T("c", (1,), "BOOL"), T("x"), T("a"), T("y")], [O("IF", [0, 1], [2], call), O("IF", [0, 2], [3], call)])
    body = Sub([T("i"), T("k")], [O("EXP", [0], [1])], [0], [1])
    model = parse(build(replace(main, inputs=(0, 1), outputs=(3,)), body))
    assert [spans(model)[1, tensor] for tensor in range(2)] == [(2, 10), (3, 10)]


def test_scratch_lives_at_its_operator_and_is_laid_around_given_offsets() -> None:
    tensors = [T("x", (16,), "INT8"), T("a", (64,), "INT8"), T("y", (16,), "INT8")]
    model = parse(build(Sub(tensors, [O("CUSTOM:one", [0], [1]), O("CUSTOM:two", [1], [2])], [0], [2])))
    scratch = {(0, 1): (40, 16)}
    found = predict(model, scratch)
    assert (found.head, found.scratch) == (64 + 48 + 32, (64, 112))
    planned = predict(model, scratch, plan={(0, 1): 16})
    assert (planned.head, planned.scratch, planned.offsets[0, 1]) == (16 + 64 + 48 + 16, (80, 0), 16)


def test_a_plan_is_read_back_as_it_was_written() -> None:
    plain = control_flow()
    model = parse(plain)
    assert given_plan(model) is None
    offsets = {(0, 2): 16, (1, 1): 0, (3, 0): 32}
    data = encode_plan(model, offsets)
    assert data == int32s(1, 4, 14, -1, -1, 16, -1, -1, -1, -1, 0, -1, -1, -1, -1, 32, -1)
    sub = Sub([T("x"), T("y")], [O("EXP", [0], [1])], [0], [1])
    two = parse(build(sub, metadata=[(OFFLINE_PLAN, int32s(1, 1, 2, 0, 0)), (OFFLINE_PLAN, int32s(7, 7, 2, -1, 64))]))
    assert given_plan(two) == (-1, 64)
    assert predict(two, {}).head == 80
    assert predict(two, {}, own=True).head == 32
    assert predict(two, {}, plan={(0, 0): 160}).head == 176


def test_offsets_have_32_bits() -> None:
    model = parse(control_flow())
    assert len(encode_plan(model, {(0, 0): (1 << 31) - 1})) == 12 + 4 * 14
    with fails("too-large", "2 GB"):
        encode_plan(model, {(0, 0): 1 << 31})


@pytest.mark.parametrize("payload", [b"", int32s(1, 1), int32s(1, 1, 3, 0, 0, 0), int32s(1, 1, 2, 0)])
def test_a_plan_that_the_runtime_refuses_is_refused(payload: bytes) -> None:
    model = parse(build(Sub([T("x"), T("y")], [O("EXP", [0], [1])], [0], [1]), metadata=[(OFFLINE_PLAN, payload)]))
    with fails("bad-memory-plan", "2 tensors"):
        predict(model, {})


@pytest.mark.parametrize("shape", ["deep", "wide"])
def test_bodies_inside_bodies_without_end_are_refused(shape: str) -> None:
    depth = 150 if shape == "deep" else 30
    subs = []
    for index in range(depth):
        last = index + 1 == depth
        other = index + 1 if shape == "wide" else depth - 1
        table = options("IfOptions", thenSubgraphIndex=index + 1, elseSubgraphIndex=other)
        ops = [O("EXP", [1], [2])] if last else [O("IF", [0, 0, 1], [2], table)]
        subs.append(Sub([T("c", (1,), "BOOL"), T("x"), T("y")], ops, [0, 1], [2]))
    with fails("nested-too-deep"):
        predict(parse(build(*subs)), {})
