"""How many scales and zero points a file's tensors have: TensorFlow Lite Micro keeps, or takes for a moment, some."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.errors import ModelError
from memsched.formats.tflite.model import FileModel, FileTensor
from memsched.formats.tflite.quantization import quantization_of

__all__ = ["QuantizationCounts", "quantization_counts"]


class QuantizationCounts(dict[int, tuple[int, int]]):
    """Per tensor of a subgraph its numbers of scales and of zero points, read when they are asked for."""

    def __init__(self, model: FileModel, tensors: Sequence[FileTensor]) -> None:
        super().__init__()
        self._model, self._tensors = model, tensors

    def __missing__(self, tensor: int) -> tuple[int, int]:
        try:
            found = quantization_of(self._model, self._tensors[tensor]) if tensor >= 0 else ((), ())
        except ModelError:
            found = (), ()
        self[tensor] = len(found[0]), len(found[1])
        return self[tensor]


def quantization_counts(model: FileModel) -> list[QuantizationCounts]:
    """Return the counts of all subgraphs' tensors; none of those that are damaged."""
    return [QuantizationCounts(model, subgraph.tensors) for subgraph in model.subgraphs]
