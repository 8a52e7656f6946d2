"""TFLite metadata that speaks of operators or of memory, and must change when the order of operators does.

``model_control_dependencies`` tells a runtime that clusters operators for a delegate which ones must keep their
order: the varint 1 (a version), the number of subgraphs, and for each of them the number of edges and then pairs
(from, to) of operator indices, zigzag-encoded varints. ``OfflineMemoryAllocation`` gives TensorFlow Lite Micro the
places of tensors: 32-bit integers [version, subgraphs, n, offset 0 .. offset n-1] with -1 for "plan it yourself".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from memsched.base.errors import ModelError
from memsched.formats.tflite.file_numbers import FileNumbers
from memsched.formats.tflite.flatbuffer import FlatbufferTable, FlatFile
from memsched.formats.tflite.model import FileModel, parse
from memsched.formats.tflite.schema import BufferSlot, ModelSlot, OperatorSlot

__all__ = [
    "CONTROL_DEPENDENCIES",
    "OFFLINE_PLAN",
    "Edges",
    "clear_offline_plan",
    "control_dependencies",
    "encode_control_dependencies",
    "has_offline_plan",
    "is_chain",
    "move_absolute_offsets",
    "with_metadata",
    "with_order",
]

CONTROL_DEPENDENCIES = "model_control_dependencies"
OFFLINE_PLAN = "OfflineMemoryAllocation"

Edges = tuple[tuple[int, int], ...]


def control_dependencies(model: FileModel) -> tuple[Edges, ...] | None:
    """Return per subgraph the pairs (before, after) of operators that the file asks to keep in order.

    None when it asks for none, or when its entry cannot be understood (a runtime ignores it then).
    """
    buffer = next((index for name, index in model.metadata if name == CONTROL_DEPENDENCIES), None)
    if buffer is None:
        return None
    numbers = _varints(model.contents(buffer))
    try:
        if next(numbers) != FileNumbers.DEPENDENCIES_VERSION or next(numbers) != len(model.subgraphs):
            return None
        found = []
        for subgraph in model.subgraphs:
            edges = []
            for _ in range(next(numbers)):
                before, after = _signed(next(numbers)), _signed(next(numbers))
                if not 0 <= before < after < len(subgraph.operators):
                    return None
                edges.append((before, after))
            found.append(tuple(edges))
    except StopIteration:
        return None
    return tuple(found)


def is_chain(edges: Edges, operators: int) -> bool:
    """Return whether ``edges`` pin the whole order: they hold (i, i + 1) for every operator but the last."""
    return len(set(edges) & {(index, index + 1) for index in range(operators - 1)}) == operators - 1


def encode_control_dependencies(subgraphs: Sequence[Edges]) -> bytes:
    """Return the entry that states ``subgraphs``, one tuple of pairs for each."""
    encoded = bytearray(_varint(FileNumbers.DEPENDENCIES_VERSION) + _varint(len(subgraphs)))
    for edges in subgraphs:
        encoded += _varint(len(edges))
        for before, after in edges:
            encoded += _varint(before << 1) + _varint(after << 1)
    return bytes(encoded)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varints(data: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in data:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            yield value
            value = shift = 0
        elif shift > 63:
            return


def _signed(value: int) -> int:
    return -(value + 1 >> 1) if value & 1 else value >> 1


def has_offline_plan(model: FileModel) -> bool:
    """Return whether the file plans where tensors lie."""
    return any(name == OFFLINE_PLAN for name, _ in model.metadata)


def clear_offline_plan(model: FileModel, data: bytearray) -> None:
    """Set all offsets of the file's memory plans to -1 in ``data``, which is laid out like ``model``'s file.

    Raises:
        ModelError: The plan's bytes are a tensor's as well.
    """
    weights = {tensor.buffer for subgraph in model.subgraphs for tensor in subgraph.tensors}
    for name, index in model.metadata:
        if name != OFFLINE_PLAN:
            continue
        buffer = model.buffers[index]
        if index in weights and buffer.size:
            raise ModelError(
                f"the bytes of its metadata '{OFFLINE_PLAN}' are a tensor's as well",
                action="remove that entry",
                code="plan-is-a-tensor",
            )
        offsets = max(0, buffer.size - FileNumbers.PLAN_HEADER) // 4
        start = buffer.start + FileNumbers.PLAN_HEADER
        data[start : start + 4 * offsets] = b"\xff" * (4 * offsets)


def with_metadata(data: bytes, model: FileModel, name: str, payload: bytes) -> tuple[bytes, int]:
    """Return a file that has metadata ``name`` = ``payload`` instead of any it had, and by how much all else moved.

    A new root, new lists of metadata and buffers and the new entry come first; the old file follows as it is.
    Flatbuffer offsets are relative and point forward, so nothing in it has to change but absolute offsets of bytes
    outside the flatbuffer. The old file moves by a multiple of 64, which keeps every alignment.

    Raises:
        ModelError: The root table has fields of a later schema, or the file would pass 4 GB of flatbuffer.
    """
    root = FlatFile(data).root()
    unknown = [slot for slot in range(ModelSlot.COUNT, root.slots) if root.place(slot) is not None]
    if unknown:
        raise ModelError(
            f"its root has fields of a later schema (slot {unknown[0]}), which a new root would lose: "
            f"metadata '{name}' cannot be added",
            code="later-schema",
        )
    kept = [
        table.position
        for table, (entry, _) in zip(root.tables(ModelSlot.METADATA), model.metadata, strict=True)
        if entry != name
    ]
    front = _Front(root, kept, [table.position for table in root.tables(ModelSlot.BUFFERS)], name, payload)
    shift = front.size
    moved = bytearray(data)
    move_absolute_offsets(model, moved, shift)
    try:
        return front.build(data) + bytes(moved), shift
    except struct.error:
        raise ModelError(f"it is too large for metadata '{name}' to be added", code="too-large") from None


def with_order(data: bytes) -> bytes:
    """Return the file with metadata that pins the order of all its operators.

    Raises:
        ModelError: As `with_metadata`.
    """
    model = parse(data)
    chains = [tuple((place, place + 1) for place in range(len(part.operators) - 1)) for part in model.subgraphs]
    return with_metadata(data, model, CONTROL_DEPENDENCIES, encode_control_dependencies(chains))[0]


class _Front:
    """The bytes that go before the old file: places are fixed first, so that offsets can be written in one go."""

    def __init__(
        self, root: FlatbufferTable, metadata: list[int], buffers: list[int], name: str, payload: bytes
    ) -> None:
        self._root = root
        self._metadata = metadata
        self._buffers = buffers
        self._text = name.encode()
        self._payload = payload
        self._table = 8 + 4 + 2 * ModelSlot.COUNT
        self._metadata_vector = self._table + 4 + 4 * ModelSlot.COUNT
        self._buffers_vector = self._metadata_vector + 4 + 4 * (len(metadata) + 1)
        # A vtable of two fields (8 bytes) and its table (4 + 4 + 4 bytes).
        self._entry = self._buffers_vector + 4 + 4 * (len(buffers) + 1) + 8
        self._name = self._entry + 12
        # A vtable of one field, padded to 8 bytes, and its table (4 + 4 bytes).
        self._buffer = _up(self._name + 4 + len(self._text) + 1, 4) + 8
        self._data = _up(self._buffer + 8 + 4, 16)
        self.size = _up(self._data + len(payload), FileNumbers.ALIGNMENT)

    def build(self, data: bytes) -> bytes:
        """Return the bytes; ``data`` is the old file, whose root's fields are carried over."""
        front = bytearray(self.size)
        struct.pack_into("<I4s", front, 0, self._table, b"TFL3")
        self._write_root(front, data)
        self._write_vector(front, self._metadata_vector, self._metadata, self._entry)
        self._write_vector(front, self._buffers_vector, self._buffers, self._buffer)
        struct.pack_into("<HHHH", front, self._entry - 8, 8, 12, 4, 8)
        struct.pack_into("<iII", front, self._entry, 8, self._name - self._entry - 4, len(self._buffers))
        struct.pack_into(f"<I{len(self._text)}s", front, self._name, len(self._text), self._text)
        struct.pack_into("<HHH", front, self._buffer - 8, 6, 8, 4)
        struct.pack_into("<iI", front, self._buffer, 8, self._data - 4 - self._buffer - 4)
        struct.pack_into(f"<I{len(self._payload)}s", front, self._data - 4, len(self._payload), self._payload)
        return bytes(front)

    def _write_root(self, front: bytearray, data: bytes) -> None:
        struct.pack_into("<HH", front, 8, 4 + 2 * ModelSlot.COUNT, 4 + 4 * ModelSlot.COUNT)
        struct.pack_into("<i", front, self._table, self._table - 8)
        for slot in range(ModelSlot.COUNT):
            field = self._table + 4 + 4 * slot
            place = self._root.place(slot)
            if slot == ModelSlot.METADATA:
                value = self._metadata_vector - field
            elif slot == ModelSlot.BUFFERS:
                value = self._buffers_vector - field
            elif place is None:
                continue
            else:
                value = struct.unpack_from("<I", data, place)[0]
                if slot != ModelSlot.VERSION:
                    value += self.size + place - field
            struct.pack_into("<H", front, 12 + 2 * slot, field - self._table)
            struct.pack_into("<I", front, field, value)

    def _write_vector(self, front: bytearray, start: int, old: list[int], new: int) -> None:
        """Write a vector of the old file's tables and a new one."""
        targets = [self.size + position for position in old] + [new]
        places = range(start + 4, start + 4 + 4 * len(targets), 4)
        offsets = [target - place for target, place in zip(targets, places, strict=True)]
        struct.pack_into(f"<I{len(offsets)}I", front, start, len(offsets), *offsets)


def _up(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def move_absolute_offsets(model: FileModel, data: bytearray, shift: int) -> None:
    """Correct in ``data`` the places of bytes outside the flatbuffer: the file that names them has moved."""
    file = FlatFile(model.data)
    tables = [(buffer.table, BufferSlot.OFFSET) for buffer in model.buffers if buffer.outside]
    tables += [
        (operator.table, OperatorSlot.LARGE_CUSTOM_OPTIONS_OFFSET)
        for subgraph in model.subgraphs
        for operator in subgraph.operators
    ]
    places = (FlatbufferTable(file, position).place(slot) for position, slot in tables)
    for place in sorted({place for place in places if place is not None}):
        (offset,) = struct.unpack_from("<Q", data, place)
        if offset > 1:
            struct.pack_into("<Q", data, place, offset + shift)
