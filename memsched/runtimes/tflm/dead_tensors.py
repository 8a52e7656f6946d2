"""Tensors that no operator refers to: TensorFlow Lite Micro still gives them memory, so the writer drops them.

A tensor's index cannot be freed, as operators name tensors by it. Instead its entry in the subgraph's list is led to
an empty tensor at the end of the file, which costs nothing in any runtime. No other byte changes.
"""

from __future__ import annotations

import struct

from memsched.base.errors import ModelError
from memsched.formats.tflite.flatbuffer import FlatFile
from memsched.formats.tflite.model import FileModel, FileSubgraph, parse
from memsched.formats.tflite.schema import ModelSlot, SubgraphSlot, type_code
from memsched.runtimes.arena_facts import DeadTensor
from memsched.runtimes.tflm.plan import needs_memory, tensor_bytes

__all__ = ["dead_tensors", "drop_dead_tensors"]


def dead_tensors(model: FileModel) -> tuple[DeadTensor, ...]:
    """Return the tensors that take memory in TFLM although nothing names them."""
    return tuple(
        DeadTensor(index, number, subgraph.tensors[number].name, tensor_bytes(subgraph.tensors[number]))
        for index, subgraph in enumerate(model.subgraphs)
        for number in _unnamed(subgraph)
    )


def _unnamed(subgraph: FileSubgraph) -> list[int]:
    named = {*subgraph.inputs, *subgraph.outputs}
    for operator in subgraph.operators:
        named.update(operator.inputs, operator.outputs, operator.intermediates)
    count = len(subgraph.tensors)
    return [number for number in range(count) if number not in named and needs_memory(subgraph, number)]


def drop_dead_tensors(data: bytes) -> tuple[bytes, tuple[DeadTensor, ...]]:
    """Return the file without the memory of its dead tensors, and what was dropped; ``data`` itself where none is.

    Raises:
        ModelError: The bytes are no sound TFLite model.
    """
    model = parse(data)
    dead = dead_tensors(model)
    # Buffer 0 is empty by convention, and the empty tensor refers to it.
    if not dead or not model.buffers or model.buffers[0].size:
        return data, ()
    subgraphs = FlatFile(data).root().tables(ModelSlot.SUBGRAPHS)
    starts = [vector.start if (vector := table.vector(SubgraphSlot.TENSORS, 4)) else 0 for table in subgraphs]
    empty, position = _empty_tensor(len(data))
    written = bytearray(data) + empty
    try:
        for one in dead:
            place = starts[one.subgraph] + 4 * one.tensor
            struct.pack_into("<I", written, place, position - place)
    except struct.error:
        raise ModelError("it is too large for its unused tensors to be dropped", code="too-large") from None
    _check(model, bytes(written), dead)
    return bytes(written), dead


def _empty_tensor(end: int) -> tuple[bytes, int]:
    """Return what to append to a file of ``end`` bytes, and where in the file the table of the empty tensor is."""
    padding = -end % 4
    # A vtable of the slots shape, type, buffer and name; the table; the shape [0]; the name "".
    vtable = struct.pack("<6H", 12, 16, 4, 12, 0, 8)
    table = struct.pack("<iIIb3x", len(vtable), 12, 16, type_code("int8"))
    shape, name = struct.pack("<Ii", 1, 0), struct.pack("<I4x", 0)
    return bytes(padding) + vtable + table + shape + name, end + padding + len(vtable)


def _check(model: FileModel, data: bytes, dead: tuple[DeadTensor, ...]) -> None:
    """Check the result by reading it back: nothing but the dead tensors may have changed."""
    written = parse(data)
    gone = {(one.subgraph, one.tensor) for one in dead}
    for index, (old, new) in enumerate(zip(model.subgraphs, written.subgraphs, strict=True)):
        kept = [number for number in range(len(old.tensors)) if (index, number) not in gone]
        same = (old.inputs, old.outputs, old.operators) == (new.inputs, new.outputs, new.operators)
        if not same or any(old.tensors[number] != new.tensors[number] for number in kept):
            raise ModelError("its list of tensors overlaps other parts; the file is damaged", code="damaged")
    if dead_tensors(written):
        raise ModelError("its lists of tensors overlap each other; the file is damaged", code="damaged")
