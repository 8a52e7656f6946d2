"""Runs small int32 models in one arena at given addresses, element by element, as TFLM's reference kernels do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph

__all__ = ["KERNELS", "run", "run_apart"]

Values = npt.NDArray[np.int32]
Key = tuple[int, int]


def _elementwise(
    function: Callable[..., int],
) -> Callable[[FileSubgraph, FileOperator, list[Values], list[Values]], None]:
    def kernel(_: FileSubgraph, __: FileOperator, inputs: list[Values], outputs: list[Values]) -> None:
        size = outputs[0].size
        for index in range(size):
            outputs[0][index] = function(*(int(one[index % one.size]) for one in inputs))

    return kernel


def _copy(_: FileSubgraph, __: FileOperator, inputs: list[Values], outputs: list[Values]) -> None:
    for index in range(outputs[0].size):
        outputs[0][index] = inputs[0][index]


def _reverse(_: FileSubgraph, __: FileOperator, inputs: list[Values], outputs: list[Values]) -> None:
    """Wrong in place: every element is read after its mirror image was written."""
    for index in range(outputs[0].size):
        outputs[0][index] = inputs[0][inputs[0].size - 1 - index] + 1


def _join(_: FileSubgraph, __: FileOperator, inputs: list[Values], outputs: list[Values]) -> None:
    place = 0
    for one in inputs:
        for index in range(one.size):
            outputs[0][place] = one[index]
            place += 1


def _slice(graph: FileSubgraph, op: FileOperator, inputs: list[Values], outputs: list[Values]) -> None:
    source, output = graph.tensors[op.inputs[0]].shape, graph.tensors[op.outputs[0]].shape
    begin = [int(low) for low in cast("tuple[int, ...]", op.attributes["begin"])]
    taken = tuple(slice(low, low + size) for low, size in zip(begin, output, strict=True))
    places = np.arange(inputs[0].size).reshape(source)[taken].reshape(-1)
    for index, place in enumerate(places):
        outputs[0][index] = inputs[0][place]


KERNELS = {
    "ADD": _elementwise(lambda a, b: (a + b) % 1000),
    "MUL": _elementwise(lambda a, b: (a * b) % 1000),
    "ABS": _elementwise(abs),
    "RELU": _elementwise(lambda a: max(0, a - 3)),
    "RESHAPE": _copy,
    "CONCATENATION": _join,
    "SLICE": _slice,
    "REVERSE_V2": _reverse,
}


def run(model: FileModel, inputs: Sequence[Values], addresses: Mapping[Key, int], size: int) -> list[Values]:
    """Return the outputs of the main graph; all tensors of all subgraphs lie in one arena of ``size`` bytes."""
    return _run(model, 0, inputs, addresses, np.full(size, 0x5A, np.uint8))


def _run(
    model: FileModel, index: int, inputs: Sequence[Values], addresses: Mapping[Key, int], arena: npt.NDArray[np.uint8]
) -> list[Values]:
    graph = model.subgraphs[index]

    def values(tensor: int) -> Values:
        one = graph.tensors[tensor]
        if one.has_data:
            return np.frombuffer(model.contents(one.buffer), np.int32)
        begin = addresses[index, tensor]
        return arena[begin : begin + one.size].view(np.int32)

    for tensor, given in zip(graph.inputs, inputs, strict=True):
        values(tensor)[:] = given
    for op in graph.operators:
        read, written = [values(tensor) for tensor in op.inputs], [values(tensor) for tensor in op.outputs]
        if op.type == "IF":
            body = op.bodies[0 if read[0][0] > 0 else 1]
            for place, result in zip(written, _run(model, body, read[1:], addresses, arena), strict=True):
                place[:] = result
        else:
            KERNELS[op.type](graph, op, read, written)
    return [values(tensor) if index else values(tensor).copy() for tensor in graph.outputs]


def run_apart(model: FileModel, inputs: Sequence[Values]) -> list[Values]:
    """Return the outputs of the main graph with every tensor in bytes of its own."""
    addresses, end = {}, 0
    for index, graph in enumerate(model.subgraphs):
        for tensor, one in enumerate(graph.tensors):
            addresses[index, tensor] = end
            end += one.size
    return run(model, inputs, addresses, end)
