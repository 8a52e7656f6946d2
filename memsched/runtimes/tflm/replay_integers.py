"""Small integers of a model that is replayed: counters, rows of tables, conditions that follow from constants."""

from __future__ import annotations

import itertools
import math
import operator as arithmetic
import struct
from collections.abc import Callable, Mapping, Sequence

from memsched.formats.tflite.model import FileModel, FileOperator, FileTensor
from memsched.ops.table import families

__all__ = ["ReplayIntegers"]

_CODES = {"int32": "i", "int64": "q"}
_MOST = 256
"""Elements of a tensor whose values are followed; tables may have more."""

_LARGEST_TABLE = 1 << 20
_PAIRWISE: Mapping[str, Callable[[int, int], int]] = {
    "ADD": arithmetic.add,
    "SUB": arithmetic.sub,
    "LESS": arithmetic.lt,
    "GREATER": arithmetic.gt,
    "LESS_EQUAL": arithmetic.le,
    "GREATER_EQUAL": arithmetic.ge,
}


class ReplayIntegers:
    """Values of integer tensors, in row-major order, as far as they are known at the moment."""

    def __init__(self, model: FileModel) -> None:
        self._model = model
        self._known: dict[tuple[int, int], tuple[int, ...]] = {}

    def get(self, key: tuple[int, int]) -> tuple[int, ...] | None:
        """Return a tensor's values; None where they are not known."""
        if key[1] < 0:
            return None
        found = self._known.get(key)
        tensor = self._model.subgraphs[key[0]].tensors[key[1]]
        if found is not None or not tensor.has_data or tensor.dtype not in _CODES or tensor.size > _LARGEST_TABLE:
            return found
        data, count = self._model.contents(tensor.buffer), math.prod(tensor.shape)
        if len(data) != tensor.size:
            return None
        self._known[key] = struct.unpack(f"<{count}{_CODES[tensor.dtype]}", data)
        return self._known[key]

    def set(self, key: tuple[int, int], values: tuple[int, ...] | None) -> None:
        """Set what a tensor holds from now on; None where that is not known."""
        if values is None:
            self._known.pop(key, None)
        else:
            self._known[key] = values

    def execute(self, index: int, operator: FileOperator) -> None:
        """Find the values of an operator's output."""
        tensors = self._model.subgraphs[index].tensors
        for number in operator.outputs:
            self.set((index, number), None)
        if len(operator.outputs) != 1 or math.prod(tensors[operator.outputs[0]].shape) > _MOST:
            return
        read = [self.get((index, number)) for number in operator.inputs]
        if all(values is not None for values in read):
            known = [values for values in read if values is not None]
            shapes = [tensors[number] for number in operator.inputs]
            self.set((index, operator.outputs[0]), _result(operator, known, shapes, tensors[operator.outputs[0]]))


def _result(
    operator: FileOperator, read: Sequence[tuple[int, ...]], tensors: Sequence[FileTensor], made: FileTensor
) -> tuple[int, ...] | None:
    if operator.type == "SLICE" and len(read) == 3 and len(read[1]) == len(tensors[0].shape) == len(made.shape):
        found = []
        for place in itertools.product(*map(range, made.shape)):
            number = 0
            for at, low, size in zip(place, read[1], tensors[0].shape, strict=True):
                if not 0 <= low + at < size:
                    return None
                number = number * size + low + at
            found.append(read[0][number])
        return tuple(found)
    if operator.type in families("view") and math.prod(made.shape) == len(read[0]):
        return read[0]
    rule = _PAIRWISE.get(operator.type)
    if rule is None or len(read) != 2 or operator.attributes.get("fused_activation_function", "NONE") != "NONE":
        return None
    one, other = read
    size = max(len(one), len(other))
    if size != math.prod(made.shape) or min(len(one), len(other)) not in {1, size}:
        return None
    if len(one) == len(other) and tensors[0].shape != tensors[1].shape:
        return None
    return tuple(int(rule(one[at % len(one)], other[at % len(other)])) for at in range(size))
