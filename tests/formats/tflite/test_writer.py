from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

import pytest

from memsched.formats.module import LoadOptions, Module
from memsched.formats.tflite import metadata as tflite_metadata
from memsched.formats.tflite import reader, writer
from memsched.formats.tflite.flatbuffer import FlatFile
from memsched.formats.tflite.schema import ModelSlot, OperatorSlot, SubgraphSlot
from tests.failures import fails
from tests.formats.tflite_builder import (
    MODELS,
    O,
    Sub,
    T,
    best_order,
    branches,
    build,
    int32s,
    options,
    pack,
    some_order,
    unpack,
)

CONTROL, PLAN = tflite_metadata.CONTROL_DEPENDENCIES, tflite_metadata.OFFLINE_PLAN


def load(data: bytes) -> Module:
    return reader.read(data, "model.tflite", LoadOptions())


def file_ops(data: bytes, graph: int = 0) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    return [(op.type, op.inputs, op.outputs) for op in load(data).native.model.subgraphs[graph].operators]


def metadata(data: bytes, name: str) -> list[bytes]:
    model = load(data).native.model
    return [model.contents(buffer) for entry, buffer in model.metadata if entry == name]


@pytest.mark.parametrize("name", ["person_detect", "mobilenetv2_035_96_int8", "nasnetmobile_int8"])
@pytest.mark.parametrize("seed", [1, 2])
def test_only_the_lists_of_operators_change(name: str, seed: int) -> None:
    data = (MODELS / f"{name}.tflite").read_bytes()
    module = load(data)
    order = some_order(module.graph, seed)
    written = writer.serialize(module, {0: order})
    vector = module.native.model.subgraphs[0].vector
    start, end = vector.start, vector.start + 4 * vector.count
    assert len(written) == len(data)
    assert (written[:start], written[end:]) == (data[:start], data[end:])
    old = file_ops(data)
    assert file_ops(written) == [old[op] for op in order]
    # An independent reader agrees.
    ours, theirs = unpack(written).subgraphs[0].operators, unpack(data).subgraphs[0].operators
    assert [list(op.inputs) for op in ours] == [list(theirs[op].inputs) for op in order]


def test_a_reordered_file_can_be_put_back() -> None:
    data = (MODELS / "nasnetmobile_int8.tflite").read_bytes()
    module = load(data)
    order = some_order(module.graph, 3)
    written = writer.serialize(module, {0: order})
    back = sorted(range(len(order)), key=lambda place: order[place])
    assert writer.serialize(load(written), {0: back}) == data


def test_an_unchanged_order_leaves_the_file_untouched() -> None:
    data = build(branches(), metadata=[(PLAN, int32s(1, 1, 1, 0))])
    module = load(data)
    assert writer.serialize(module, {}) == data
    assert writer.serialize(module, {0: range(len(module.graph.ops))}) == data
    assert writer.notes(module, {0: range(len(module.graph.ops))}) == ()


@pytest.mark.parametrize("order", [[0], [0, 0, 1], [0, 1, 2, 3]])
def test_what_is_no_permutation_is_a_defect(order: Sequence[int]) -> None:
    tensors = [T("x"), T("a"), T("b"), T("c")]
    module = load(build(Sub(tensors, [O("EXP", [0], [index]) for index in (1, 2, 3)], [0], [1, 2, 3])))
    with fails("op-count", "3"):
        writer.serialize(module, {0: order})


def test_each_subgraph_gets_its_own_order() -> None:
    main = branches()
    call = O("CALL", [0], [1], options("CallOptions", subgraph=1))
    data = build(Sub([T("x", (1, 8)), T("y", (1, 1))], [call], [0], [1]), main, replace(main, name="other"))
    module = load(data)
    written = writer.serialize(module, {1: best_order()})
    assert file_ops(written, 0) == file_ops(data, 0)
    assert file_ops(written, 1) == [file_ops(data, 1)[op] for op in best_order()]
    assert file_ops(written, 2) == file_ops(data, 2)


def test_ops_that_compute_constants_go_right_before_their_first_reader() -> None:
    half = [T(f"half{index}", (1, 4), "FLOAT16", bytes(8)) for index in range(3)]
    tensors = [T("x"), *half, T("w0"), T("w1"), T("unread"), T("a"), T("b"), T("w2")]
    ops = [
        O("DEQUANTIZE", [1], [4]),  # 0 -> w0
        O("DEQUANTIZE", [2], [5]),  # 1 -> w1
        O("DEQUANTIZE", [3], [6]),  # 2 -> unread
        O("EXP", [5], [9]),  # 3: w2 of w1
        O("ADD", [0, 4], [7]),  # 4: step 0
        O("ADD", [0, 9], [8]),  # 5: step 1
    ]
    data = build(Sub(tensors, ops, [0], [7, 8]))
    module = load(data)
    assert module.constant_ops == 4
    assert writer.file_order(module, 0, [0, 1]) == (0, 1, 2, 3, 4, 5)
    assert writer.file_order(module, 0, [1, 0]) == (1, 3, 5, 0, 4, 2)
    written = writer.serialize(module, {0: [1, 0]})
    assert file_ops(written) == [file_ops(data)[op] for op in (1, 3, 5, 0, 4, 2)]


def test_a_stale_memory_plan_is_cleared_in_place() -> None:
    sub = branches()
    plan = int32s(1, 1, len(sub.tensors), *(16 * index for index in range(len(sub.tensors))))
    data = build(sub, metadata=[(PLAN, plan)])
    module = load(data)
    written = writer.serialize(module, {0: best_order()})
    assert metadata(written, PLAN) == [plan[:12] + b"\xff" * (len(plan) - 12)]
    assert len(written) == len(data)
    assert any(PLAN in note for note in writer.notes(module, {0: best_order()}))


def test_a_memory_plan_that_is_a_tensor_too_is_refused() -> None:
    model = unpack(build(branches(), metadata=[(PLAN, int32s(1, 1, 1, 0))]))
    model.subgraphs[0].tensors[1].buffer = model.metadata[0].buffer
    with fails("plan-is-a-tensor", "'model.tflite'", "OfflineMemoryAllocation"):
        writer.serialize(load(pack(model)), {0: best_order()})


def test_control_dependencies_state_the_order_and_keep_every_old_byte() -> None:
    data = (MODELS / "nasnetmobile_int8.tflite").read_bytes()
    module = load(data)
    order = some_order(module.graph, 1)
    plain = writer.serialize(module, {0: order})
    written = writer.serialize(module, {0: order}, control_dependencies=True)
    shift = len(written) - len(plain)
    assert shift % 64 == 0
    assert written[shift:] == plain
    edges = tflite_metadata.control_dependencies(load(written).native.model)
    assert edges == (tuple((index, index + 1) for index in range(566)),)
    old, new = unpack(plain), unpack(written)
    assert [m.name for m in new.metadata] == [*(m.name for m in old.metadata), CONTROL.encode()]
    assert (new.version, new.description, len(new.buffers)) == (old.version, old.description, len(old.buffers) + 1)
    assert [len(b.data) if b.data is not None else 0 for b in new.buffers[:-1]] == [
        len(b.data) if b.data is not None else 0 for b in old.buffers
    ]
    # A pinned order does not stop the next run from finding its own.
    assert load(written).graph.dependencies == ()


def test_the_entry_is_encoded_as_runtimes_read_it() -> None:
    edges = (((0, 1), (1, 200)), ())
    assert tflite_metadata.encode_control_dependencies(edges) == bytes([1, 2, 2, 0, 2, 2, 0x90, 3, 0])


@pytest.mark.parametrize("requested", [False, True])
def test_an_old_entry_follows_the_new_order(requested: bool) -> None:
    sub = branches(2)
    ops = len(sub.ops)
    assert ops == 5
    entry = tflite_metadata.encode_control_dependencies([((0, 1), (0, 3))])
    data = build(sub, metadata=[(CONTROL, entry), ("other", b"kept")])
    module = load(data)
    assert module.graph.dependencies == ((0, 1), (0, 3))
    order = [0, 2, 1, 3, 4]
    written = writer.serialize(module, {0: order}, control_dependencies=requested)
    found = tflite_metadata.control_dependencies(load(written).native.model)
    assert found == ((((0, 1), (1, 2), (2, 3), (3, 4)) if requested else ((0, 2), (0, 3))),)
    assert len(metadata(written, CONTROL)) == 1
    assert metadata(written, "other") == [b"kept"]
    assert any(CONTROL in note for note in writer.notes(module, {0: order}, control_dependencies=requested))


@pytest.mark.parametrize(
    "entry",
    [
        *(b"", b"\x02\x01\x00", b"\x01\x02\x00\x00", b"\x01\x01\x01\x00", b"\x01\x01\x01\x02\x00"),
        *(b"\x01\x01\x01\x00\x7e", b"\xff" * 30, b"\x01\x01\xff\xff\xff\xff\x0f\x00"),
    ],
)
def test_an_entry_that_makes_no_sense_is_ignored(entry: bytes) -> None:
    module = load(build(branches(), metadata=[(CONTROL, entry)]))
    assert module.graph.dependencies == ()
    assert tflite_metadata.control_dependencies(module.native.model) is None


def test_data_outside_the_flatbuffer_moves_with_the_file() -> None:
    sub = Sub([T("x"), T("c", data=b"\x01"), T("y"), T("z")], [O("ADD", [0, 1], [2]), O("EXP", [0], [3])], [0], [2, 3])
    model = unpack(build(sub))
    model.buffers[1].data, model.buffers[1].size, model.buffers[1].offset = None, 16, 1 << 40
    model.buffers[1].offset = len(pack(model))
    module = load(pack(model) + bytes(range(16)))
    written = load(writer.serialize(module, {0: [1, 0]}, control_dependencies=True)).native.model
    assert written.contents(1) == bytes(range(16))


def test_fields_of_a_later_schema_are_not_dropped() -> None:
    data = bytearray(build(branches()))
    root = FlatFile(bytes(data)).root()
    # A new vtable at the end of the file, with one field more than the schema has.
    data += bytes(-len(data) % 4)
    places = [root.place(slot) for slot in range(ModelSlot.COUNT)]
    fields = [0 if place is None else place - root.position for place in places]
    vtable = struct.pack(f"<HH{ModelSlot.COUNT + 1}H", 4 + 2 * (ModelSlot.COUNT + 1), 64, *fields, fields[0])
    struct.pack_into("<i", data, root.position, root.position - len(data))
    module = load(bytes(data) + vtable)
    assert len(writer.serialize(module, {0: best_order()})) == len(data) + len(vtable)
    with fails("later-schema", "'model.tflite'"):
        writer.serialize(module, {}, control_dependencies=True)


@pytest.mark.parametrize("part", ["name", "option"])
def test_a_list_of_operators_that_overlaps_other_parts_is_refused(part: str) -> None:
    squeeze = O("SQUEEZE", [0], [1], options("SqueezeOptions", squeezeDims=[0]))
    data = bytearray(build(branches(), Sub([T("x"), T("y", (4,))], [squeeze], [0], [1])))
    file = FlatFile(bytes(data))
    subgraphs = file.root().tables(ModelSlot.SUBGRAPHS)
    operators = subgraphs[0].vector(SubgraphSlot.OPERATORS, 4)
    assert operators is not None
    if part == "name":
        place = subgraphs[0].place(SubgraphSlot.NAME)
    else:
        table = subgraphs[1].tables(SubgraphSlot.OPERATORS)[0].table(OperatorSlot.BUILTIN_OPTIONS)
        assert table is not None
        place = table.place(0)
    assert place is not None
    struct.pack_into("<I", data, place, operators.start - 4 - place)
    with fails("operators-overlap", "subgraph"):
        writer.serialize(load(bytes(data)), {0: best_order()})
