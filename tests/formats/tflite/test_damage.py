"""Whatever the bytes: one line that says what is wrong, or a model. Never another exception, a hang or huge memory."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from memsched.base.errors import ModelError
from memsched.formats.module import LoadOptions, Module
from memsched.formats.tflite import reader, writer
from memsched.formats.tflite.flatbuffer import FlatFile
from tests.failures import fails
from tests.formats.tflite_builder import MODELS, O, Sub, T, branches, build, options, pack, some_order, unpack

HELLO = (MODELS / "hello_world_int8.tflite").read_bytes()


def load(data: bytes) -> Module:
    return reader.read(data, "bad.tflite", LoadOptions())


def edited(change: Callable[[Any], None], data: bytes | None = None) -> bytes:
    model = unpack(data if data is not None else build(branches()))
    change(model)
    return pack(model)


def _set(path: str, value: Any) -> bytes:
    """Set one field, named like "subgraphs[0].tensors[1].buffer", of a small model."""

    def change(model: Any) -> None:
        owner, _, name = path.rpartition(".")
        setattr(eval(f"model.{owner}", {"model": model}) if owner else model, name, value)  # noqa: S307

    return edited(change)


def _negative_code(model: Any) -> None:
    model.operatorCodes[0].builtinCode = model.operatorCodes[0].deprecatedBuiltinCode = -5


def _patched(offset: int, value: int) -> bytes:
    data = bytearray(HELLO)
    struct.pack_into("<I", data, offset, value)
    return bytes(data)


def _call(index: int) -> bytes:
    return build(Sub([T("x"), T("y")], [O("CALL", [0], [1], options("CallOptions", subgraph=index))], [0], [1]))


def _count(pointer: str, count: int) -> bytes:
    """Make the vector that ``pointer`` names claim ``count`` elements."""
    root = FlatFile(HELLO).root()
    table, slot = {
        "operator codes": (root, 1),
        "subgraphs": (root, 2),
        "buffers": (root, 4),
        "metadata": (root, 6),
        "tensors": (root.tables(2)[0], 0),
        "operators": (root.tables(2)[0], 3),
        "inputs of an operator": (root.tables(2)[0].tables(3)[0], 1),
        "shape": (root.tables(2)[0].tables(0)[0], 0),
        "name": (root.tables(2)[0].tables(0)[0], 3),
        "weights": (root.tables(4)[3], 0),
    }[pointer]
    vector = table.vector(slot, 1)
    assert vector is not None
    return _patched(vector.start - 4, count)


VECTORS = ["operator codes", "subgraphs", "buffers", "metadata", "tensors", "operators"]
VECTORS += ["inputs of an operator", "shape", "name", "weights"]

CASES: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "nothing": (b"", ("not-tflite", "TFL3")),
    "text": (b"hello, world", ("not-tflite", "TFL3")),
    "an ONNX model": (b"\x08\x07\x12\x07pytorch", ("not-tflite", "TFL3")),
    "identifier only": (b"\0\0\0\0TFL3", ("no-subgraph",)),
    "root outside": (_patched(0, 1 << 31), ("damaged",)),
    "root at the last byte": (_patched(0, len(HELLO) - 1), ("damaged",)),
    "root on itself": (_patched(0, 0), ("no-subgraph",)),
    "no subgraph": (_set("subgraphs", []), ("no-subgraph",)),
    "operator code out of range": (_set("subgraphs[0].operators[0].opcodeIndex", 99), ("no-such-operator-code", "99")),
    "negative operator code": (edited(_negative_code), ("no-such-operator-code", "-5")),
    "input out of range": (
        _set("subgraphs[0].operators[0].inputs", [77]),
        ("stored-tensor-index", "operator 0 (EXP)", "tensor 77"),
    ),
    "input below -1": (_set("subgraphs[0].operators[0].inputs", [-2]), ("stored-tensor-index", "tensor -2")),
    "output out of range": (_set("subgraphs[0].operators[0].outputs", [77]), ("stored-tensor-index", "tensor 77")),
    "intermediate out of range": (
        _set("subgraphs[0].operators[0].intermediates", [77]),
        ("stored-tensor-index", "tensor 77"),
    ),
    "graph input out of range": (_set("subgraphs[0].inputs", [77]), ("stored-tensor-index", "tensor 77")),
    "graph output out of range": (_set("subgraphs[0].outputs", [77]), ("stored-tensor-index", "tensor 77")),
    "graph output that nothing makes": (_set("subgraphs[0].operators", []), ("no-producer",)),
    "buffer out of range": (_set("subgraphs[0].tensors[0].buffer", 99), ("no-such-buffer", "buffer 99")),
    "metadata buffer out of range": (
        edited(lambda m: setattr(m.metadata[0], "buffer", 99), build(branches(), metadata=[("a", b"b")])),
        ("no-such-buffer", "metadata 'a'", "buffer 99"),
    ),
    "negative shape": (_set("subgraphs[0].tensors[0].shape", [1, -1]), ("open-size", "[1, -1]")),
    "absurd shape": (_set("subgraphs[0].tensors[0].shape", [2**31 - 1] * 5), ("absurd-size", "tensor 0")),
    "absurd rank": (_set("subgraphs[0].tensors[0].shape", [2**31 - 1] * 100_000), ("absurd-size", "100000 dimensions")),
    "two producers": (
        _set("subgraphs[0].operators[1].outputs", [2]),
        ("stored-twice", "operators 0 and 1", "tensor 2 'wide0'"),
    ),
    "a graph input produced": (_set("subgraphs[0].operators[0].outputs", [0]), ("two-producers",)),
    "an op that reads itself": (_set("subgraphs[0].operators[0].inputs", [2]), ("read-too-early",)),
    "a tensor that nothing makes": (_set("subgraphs[0].inputs", []), ("no-producer", "'x'")),
    "a body out of range": (_call(7), ("no-such-subgraph", "subgraph 7", "only 1")),
    "a body that is its parent": (_call(0), ("calls-itself", "subgraph 0")),
    **{f"{name}: too many": (_count(name, 1 << 30), ("damaged",)) for name in VECTORS},
}


@pytest.mark.parametrize("case", CASES)
def test_bad_files_get_one_clear_line(case: str) -> None:
    data, expected = CASES[case]
    with fails(*expected, kind=ModelError) as caught:
        load(data)
    assert "\n" not in str(caught.value)
    assert caught.value.location.startswith("'bad.tflite'")
    assert str(caught.value).count("'bad.tflite'") == 1


def test_every_truncation() -> None:
    for length in range(0, len(HELLO), 7):
        with pytest.raises(ModelError):
            load(HELLO[:length])


def test_subgraphs_that_share_their_operators() -> None:
    data = build(branches(), branches())
    tables = FlatFile(data).root().tables(2)
    first, second = (table.place(3) for table in tables)
    assert first is not None
    assert second is not None
    target = first + struct.unpack_from("<I", data, first)[0]
    if target < second:
        first, second = second, first
        target = first + struct.unpack_from("<I", data, first)[0]
    shared = bytearray(data)
    struct.pack_into("<I", shared, second, target - second)
    with fails("operators-shared"):
        load(bytes(shared))


def test_shared_parts_cannot_stand_for_more_than_the_file() -> None:
    """30,000 operators that all name one list of 30,000 inputs: 900 million inputs in 800 KB."""
    count = 30_000
    sub = Sub([T("x"), T("y")], [O("CUSTOM:many", [0] * count, [1])], [0], [1])
    data = bytearray(build(sub))
    root = FlatFile(bytes(data)).root()
    subgraph = root.tables(2)[0]
    place = subgraph.place(3)
    assert place is not None
    # A new list of operators cannot point back, so the one operator table is copied to the end of the file.
    inputs = subgraph.tables(3)[0].vector(1, 4)
    assert inputs is not None
    vector = len(data) + (-len(data) % 4)
    data += bytes(vector - len(data))
    table = vector + 4 + 4 * count
    vtable = table + 12
    shared = vtable + 8
    data += struct.pack("<I", count)
    data += b"".join(struct.pack("<I", table - (vector + 4 + 4 * index)) for index in range(count))
    data += struct.pack("<iII", table - vtable, 0, shared - (table + 8))
    data += struct.pack("<HHHH", 8, 12, 4, 8)
    data += struct.pack(f"<I{count}i", count, *([0] * count))
    struct.pack_into("<I", data, place, vector - place)
    start = time.process_time()
    with fails("parts-overlap"):
        load(bytes(data))
    assert time.process_time() - start < 10


def _mutations(data: bytes, count: int, seed: int) -> list[bytes]:
    generator = random.Random(seed)
    mutated = []
    for _ in range(count):
        copy = bytearray(data)
        for _ in range(generator.choice((1, 1, 2, 5))):
            kind, place = generator.randrange(5), generator.randrange(len(copy) - 8)
            if kind == 0:
                copy[place] ^= 1 << generator.randrange(8)
            elif kind == 1:
                copy[place] = generator.randrange(256)
            elif kind == 2:
                struct.pack_into("<I", copy, place & ~3, generator.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, len(copy))))
            elif kind == 3:
                struct.pack_into("<I", copy, place & ~3, generator.randrange(len(copy)))
            else:
                del copy[place : place + generator.randrange(1, 8)]
        mutated.append(bytes(copy))
    return mutated


@pytest.mark.parametrize("source", ["hello", "branches"])
def test_mutated_files_never_cause_anything_else(source: str) -> None:
    data = HELLO if source == "hello" else build(branches(), metadata=[("model_control_dependencies", b"\1\1\1\0\2")])
    refused = sum(_is_refused(mutated) for mutated in _mutations(data, 3000, 1))
    assert 100 < refused < 2900


def _is_refused(data: bytes) -> bool:
    """Read a file and write it in another order; whatever is refused is refused in one line."""
    try:
        module = load(data)
        writer.serialize(module, {0: some_order(module.graph, 1)}, control_dependencies=True)
    except ModelError as error:
        lines = str(error).count("\n")
        if lines:
            raise
        return True
    return False


def test_names_cannot_break_the_line() -> None:
    data = build(Sub([T("x"), T("a\nb"), T("y")], [O("EXP", [1], [2])], [0], [2]))
    with fails("no-producer", "'a\ufffdb'"):
        load(data)
