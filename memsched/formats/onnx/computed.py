"""The values of an ONNX model's constants: what the file stores, and what nodes compute of that."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from memsched.formats.onnx.evaluate import GROWING, evaluate, stays_within
from memsched.formats.onnx.nodes import opset

__all__ = ["ComputedConstants", "NoValueError"]

Array = np.ndarray[Any, np.dtype[Any]]


_MOST_ELEMENTS: Final = 1 << 28
"""Elements at most that a node makes of a few where no other number is told: a file of some bytes can state any."""


class NoValueError(Exception):
    """What a constant holds cannot be said; the message tells why."""


class ComputedConstants:
    """The values of constants of the main graph of ``model``, computed when they are asked for.

    Args:
        nodes: Those that compute constants from constants alone.
        folder: Where weights outside the file lie; None: they are not read.
        kinds: Operators whose results are computed; None for all.
        most: Elements at most that a node makes of a few.
    """

    def __init__(
        self,
        model: ModelProto,
        nodes: Iterable[NodeProto],
        folder: Path | None,
        kinds: Container[str] | None = None,
        most: int = _MOST_ELEMENTS,
    ) -> None:
        self._folder, self._kinds, self._opset, self._most = folder, kinds, opset(model), most
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self._made = {name: node for node in nodes for name in node.output if name}
        self._known: dict[str, Array] = {}

    def get(self, name: str) -> Array:
        """Return a constant's values.

        Raises:
            NoValueError: It is none, or cannot be read or computed.
        """
        waiting = [name]
        while waiting:
            one = waiting[-1]
            if one in self._known:
                waiting.pop()
            elif one in self._stored:
                self._known[one] = self._read(one)
            elif one in self._made:
                lacking = [read for read in self._made[one].input if read and read not in self._known]
                waiting += lacking
                if not lacking:
                    self._compute(self._made[one])
            else:
                raise NoValueError(f"'{one}' is no constant")
        return self._known[name]

    def _read(self, name: str) -> Array:
        tensor = self._stored[name]
        if self._folder is None and tensor.data_location == TensorProto.EXTERNAL:
            raise NoValueError(f"constant '{name}' lies outside the file")
        try:
            return numpy_helper.to_array(tensor, str(self._folder or ""))
        except Exception as error:  # whatever is wrong with a tensor, or with a file beside the model
            raise NoValueError(f"constant '{name}' cannot be read: {error}") from error

    def _compute(self, node: NodeProto) -> None:
        given = [self._known.get(read) for read in node.input]
        made = None
        if self._kinds is None or node.op_type in self._kinds:
            small = node.op_type not in GROWING or stays_within(node.op_type, given, self._most)
            made = evaluate(node, self._opset, given) if small else None
        if made is None:
            raise NoValueError(f"constant '{node.output[0]}' cannot be computed")
        self._known.update(zip(node.output, made, strict=True))
