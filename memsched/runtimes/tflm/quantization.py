"""How many scales and zero points a file's tensors have: TensorFlow Lite Micro keeps, or takes for a moment, some."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.errors import ModelError
from memsched.formats.tflite.flatbuffer import FlatbufferTable, FlatFile
from memsched.formats.tflite.model import FileModel
from memsched.formats.tflite.schema import ModelSlot, QuantizationSlot, SubgraphSlot, TensorSlot

__all__ = ["QuantizationCounts", "quantization_counts"]


class QuantizationCounts(dict[int, tuple[int, int]]):
    """Per tensor of a subgraph its numbers of scales and of zero points, read when they are asked for."""

    def __init__(self, tables: Sequence[FlatbufferTable]) -> None:
        super().__init__()
        self._tables = tables

    def __missing__(self, tensor: int) -> tuple[int, int]:
        try:
            found = _counts_of(self._tables[tensor]) if 0 <= tensor < len(self._tables) else (0, 0)
        except ModelError:
            found = 0, 0
        self[tensor] = found
        return found


def quantization_counts(model: FileModel) -> list[QuantizationCounts]:
    """Return the counts of all subgraphs' tensors; none if damaged."""
    try:
        tables = FlatFile(model.data).root().tables(ModelSlot.SUBGRAPHS)
        return [QuantizationCounts(table.tables(SubgraphSlot.TENSORS)) for table in tables]
    except ModelError:
        return [QuantizationCounts(()) for _ in model.subgraphs]


def _counts_of(tensor: FlatbufferTable) -> tuple[int, int]:
    table = tensor.table(TensorSlot.QUANTIZATION)
    if table is None:
        return 0, 0
    return _count(table, QuantizationSlot.SCALE, 4), _count(table, QuantizationSlot.ZERO_POINT, 8)


def _count(table: FlatbufferTable, slot: int, width: int) -> int:
    vector = table.vector(slot, width)
    return 0 if vector is None else vector.count
