"""The scales and zero points that a TFLite file states of its tensors."""

from __future__ import annotations

from memsched.formats.tflite.flatbuffer import FlatbufferTable, FlatFile
from memsched.formats.tflite.model import FileModel, FileTensor
from memsched.formats.tflite.schema import QuantizationSlot, TensorSlot

__all__ = ["quantization_of"]


def quantization_of(model: FileModel, tensor: FileTensor) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """Return the scales and the zero points of a tensor, one or one per channel; empty where it has none.

    Raises:
        ModelError: The file is damaged there.
    """
    table = FlatbufferTable(FlatFile(model.data), tensor.table).table(TensorSlot.QUANTIZATION)
    if table is None:
        return (), ()
    scales = table.numbers(QuantizationSlot.SCALE, "float32")
    return tuple(map(float, scales)), table.numbers(QuantizationSlot.ZERO_POINT, "int64")
