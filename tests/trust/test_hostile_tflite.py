"""TFLite files that were made to harm: offsets that lie, tables that overlap, bodies that call themselves."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from memsched.formats.tflite.flatbuffer import FlatbufferTable, FlatFile
from tests.formats.tflite_builder import MODELS, O, Sub, T, branches, build, options
from tests.trust.conftest import Hostile, Warm, one_line

HELLO = (MODELS / "hello_world_int8.tflite").read_bytes()
CONTROL = {
    "IF": ("IfOptions", ("thenSubgraphIndex", "elseSubgraphIndex")),
    "WHILE": ("WhileOptions", ("condSubgraphIndex", "bodySubgraphIndex")),
    "CALL_ONCE": ("CallOnceOptions", ("initSubgraphIndex",)),
    "CALL": ("CallOptions", ("subgraph",)),
}


def caller(kind: str, *called: int, name: str = "main") -> Sub:
    """A subgraph whose one operator executes others."""
    table, fields = CONTROL[kind]
    told = dict(zip(fields, called * len(fields), strict=False))
    return Sub([T("x"), T("y")], [O(kind, [0], [1], options(table, **told))], [0], [1], name)


def leaf() -> Sub:
    return Sub([T("x"), T("y")], [O("EXP", [0], [1])], [0], [1], "leaf")


def chained(levels: int) -> bytes:
    """Subgraph 0 executes 1, which executes 2, and so on."""
    return build(*(caller("CALL", level + 1) for level in range(levels)), leaf())


def doubled(levels: int) -> bytes:
    """Each subgraph executes the next one twice: 2 ** levels executions."""
    subs = []
    for level in range(levels):
        told = options("CallOptions", subgraph=level + 1)
        ops = [O("CALL", [0], [1], told), O("CALL", [1], [2], told)]
        subs.append(Sub([T("x"), T("m"), T("y")], ops, [0], [2]))
    return build(*subs, leaf())


def places() -> dict[str, int]:
    """Where HELLO stores the offsets to its parts."""
    root = FlatFile(HELLO).root()
    graph = root.tables(2)[0]
    operator, tensor = graph.tables(3)[0], graph.tables(0)[0]
    found = {"operator codes": root.place(1), "subgraphs": root.place(2), "buffers": root.place(4)}
    found |= {"tensors": graph.place(0), "operators": graph.place(3), "inputs": operator.place(1)}
    found |= {"shape": tensor.place(0), "name": tensor.place(3)}
    vector = root.vector(2, 4)
    assert vector is not None
    found["first subgraph"] = vector.start
    return {name: place for name, place in found.items() if place is not None}


PLACES = places()
OFFSETS: dict[str, Callable[[int], int]] = {
    "itself": lambda _: 0,
    "backwards": lambda place: -place,
    "just behind the end": lambda place: len(HELLO) - place,
    "the last byte": lambda place: len(HELLO) - 1 - place,
    "far outside": lambda _: 2**31 - 4,
    "all ones": lambda _: -1,
    "the root": lambda place: 4 - place,
}


def patched(place: int, value: int) -> bytes:
    data = bytearray(HELLO)
    struct.pack_into("<I", data, place, value & 0xFFFFFFFF)
    return bytes(data)


@pytest.mark.parametrize("where", PLACES)
def test_offsets_that_lie(warm: Warm, tmp_path: Path, where: str) -> None:
    """Whatever an offset is: a refusal in one line, or a model that is read within the file."""
    folder = tmp_path
    for target, value in OFFSETS.items():
        (folder / "net.tflite").write_bytes(patched(PLACES[where], value(PLACES[where])))
        done = warm(folder, "analyze", "net.tflite")
        if done.code:
            one_line(done, 1, "net.tflite")
        else:
            assert where in {"name", "shape", "inputs"}, (where, target)
        assert done.cpu < 10
        assert done.memory < 10**9


def test_a_table_whose_description_is_itself(hostile: Hostile) -> None:
    root: FlatbufferTable = FlatFile(HELLO).root()
    hostile(patched(root.position, 0), "net.tflite", name="net.tflite")
    hostile(patched(root.position, -(2**31)), "net.tflite", name="net.tflite")


def test_subgraphs_that_are_one_table(hostile: Hostile) -> None:
    """Two entries of the list lead to the same table."""
    data = bytearray(build(branches(), branches()))
    vector = FlatFile(bytes(data)).root().vector(2, 4)
    assert vector is not None
    first = struct.unpack_from("<I", data, vector.start)[0]
    struct.pack_into("<I", data, vector.start + 4, first - 4)
    hostile(bytes(data), "share", name="net.tflite")


CYCLES = {f"{kind} that executes itself": build(caller(kind, 0)) for kind in CONTROL}
CYCLES |= {f"{kind}s in a circle": build(caller(kind, 1), caller(kind, 2), caller(kind, 0)) for kind in CONTROL}
CYCLES["a circle beside the main graph"] = build(leaf(), caller("CALL", 2), caller("CALL", 1))


@pytest.mark.parametrize("case", CYCLES)
def test_subgraphs_that_call_themselves(hostile: Hostile, case: str) -> None:
    hostile(CYCLES[case], "executes itself", name="net.tflite")


def test_subgraphs_that_call_2000_deep(accepted: Hostile) -> None:
    accepted(chained(2_000), "net.tflite")


def test_subgraphs_that_are_executed_2_to_the_1000_times(accepted: Hostile) -> None:
    accepted(doubled(1_000), "net.tflite")


SIZES = {
    "exabytes": [2**31 - 1] * 2,
    "more than any integer": [2**31 - 1] * 60,
    "nothing times exabytes": [0, *[2**31 - 1] * 4],
}


@pytest.mark.parametrize("case", SIZES)
def test_declared_sizes(warm: Warm, tmp_path: Path, case: str) -> None:
    """A tensor of exabytes is refused or counted, never allocated."""
    folder = tmp_path
    sub = Sub([T("x"), T("big", SIZES[case]), T("y")], [O("EXP", [0], [1]), O("SUM", [1], [2])], [0], [2])
    (folder / "net.tflite").write_bytes(build(sub))
    done = warm(folder, "optimize", "net.tflite")
    if done.code:
        one_line(done, 1)
    assert done.memory < 10**9
    assert done.cpu < 10


ODD_NAMES = ["a\x1b[2J\nb", "'\"`$(id)", "</script><b>", "a\u202eb", "\x00", "n" * 1_000_000]


@pytest.mark.parametrize("name", ODD_NAMES, ids=range(len(ODD_NAMES)))
def test_odd_names_are_data(accepted: Hostile, name: str) -> None:
    sub = Sub([T("x"), T(name), T("y")], [O("EXP", [0], [1]), O("EXP", [1], [2])], [0], [2], name)
    accepted(build(sub), "net.tflite")


def test_50000_tensors_of_one_name(accepted: Hostile) -> None:
    tensors = [T("x"), T("y"), *[T("same")] * 50_000]
    accepted(build(Sub(tensors, [O("EXP", [0], [1])], [0], [1])), "net.tflite")
