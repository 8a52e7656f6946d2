"""Sizes that an ONNX model's weights tell of its inputs: channels and features, and the longest position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from onnx import GraphProto, NodeProto

from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.structure import op_type
from memsched.formats.onnx.types import SHAPE_ELEMENTS
from memsched.ops.table import class_of

__all__ = ["longest_position", "weights_along"]

_ALONG: Final = ("elementwise", "channelwise")
"""Classes of operators whose first output has the axes of their first input."""

_MOST_VISITED: Final = 64
_POSITION: Final = "position"

_Axes = tuple[int, ...]


def weights_along(graph: GraphProto, ranks: Mapping[str, int]) -> dict[tuple[str, int], tuple[int, str]]:
    """Return what weights tell of axes of inputs: the only length that they take, and whose weights they are.

    Args:
        ranks: The inputs, and how many axes they have.
    """
    weights = _weights(graph)
    readers: dict[str, list[NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    found: dict[tuple[str, int], tuple[int, str]] = {}
    for name, rank in ranks.items():
        for node, axes in _readers(name, rank, readers, weights):
            for axis, length in _taken(node, len(axes), weights):
                if not isinstance(length, int) or length < 1:  # of a damaged attribute
                    continue
                told = length, f"weights of {op_type(node)} '{node.name or node.output[0]}'"
                found.setdefault((name, axes[axis]), told)
    return found


def longest_position(graph: GraphProto) -> int | None:
    """Return the rows of the smallest table that is read by positions; None if there is none.

    A table is a constant whose rows are looked up, or cut off, by numbers that follow from lengths and not from data.
    """
    dims = _weights(graph)
    elements = {tensor.name: tensor.data_type for tensor in graph.initializer}
    positions = _positions(graph)
    rows = []
    for node in graph.node:
        kind = op_type(node)
        if kind not in {"Gather", "Slice"} or node.input[0] not in dims:
            continue
        table = dims[node.input[0]]
        if len(table) < 2 or elements.get(node.input[0]) in SHAPE_ELEMENTS:
            continue
        if any(name in positions or _POSITION in name.lower() for name in node.input[1:]):
            rows.append(table[attribute_of(node, "axis", 0) if kind == "Gather" else len(table) - 2])
    return min((count for count in rows if count > 1), default=None)


def _positions(graph: GraphProto) -> set[str]:
    """Return the values that follow from lengths and not from the elements of inputs, or that count such elements."""
    held = {tensor.name for tensor in graph.initializer}
    by_data = {value.name for value in graph.input} - held
    by_length: set[str] = set()
    counted: set[str] = set()
    for node in graph.node:
        kind = op_type(node)
        if kind in {"Shape", "Size"}:
            by_length.update(node.output)
        elif kind == "CumSum" or not counted.isdisjoint(node.input):  # positions are counted from a mask
            counted.update(node.output)
        else:
            for group in (by_length, by_data):
                if not group.isdisjoint(node.input):
                    group.update(node.output)
    return (by_length - by_data) | counted


def _weights(graph: GraphProto) -> dict[str, _Axes]:
    """Return the shapes of constants."""
    found = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        kind = op_type(node)
        if kind == "Constant":
            held: Any = attribute_of(node, "value", None)
            if held is not None:
                found[node.output[0]] = tuple(held.dims)
        elif class_of(kind) in _ALONG and node.input and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
        elif kind == "Transpose" and node.input[0] in found:
            dims = found[node.input[0]]
            order: Sequence[int] = attribute_of(node, "perm", None) or range(len(dims))[::-1]
            found[node.output[0]] = tuple(dims[axis] for axis in order)
    return found


def _readers(
    name: str, rank: int, readers: Mapping[str, Sequence[NodeProto]], weights: Mapping[str, _Axes]
) -> Iterator[tuple[NodeProto, _Axes]]:
    """Yield the nodes that read an input, or its elements one by one changed, and which of its axes theirs are."""
    waiting: list[tuple[str, _Axes]] = [(name, tuple(range(rank)))]
    for value, axes in waiting:
        for node in readers.get(value, ()):
            kind = op_type(node)
            if node.input[0] == value:
                yield node, axes
            others = [one for one in node.input if one and one != value]
            if class_of(kind) in _ALONG and all(one in weights and len(weights[one]) <= len(axes) for one in others):
                waiting.append((node.output[0], axes))
            elif kind == "Transpose":
                order = attribute_of(node, "perm", None) or range(len(axes))[::-1]
                waiting.append((node.output[0], tuple(axes[axis] for axis in order)))
        if len(waiting) > _MOST_VISITED:
            return


def _taken(node: NodeProto, rank: int, weights: Mapping[str, _Axes]) -> Iterator[tuple[int, int]]:
    """Yield the axes of a node's first input whose length its weights decide, and the length."""
    kind = op_type(node)
    place = 3 if kind in {"QLinearConv", "QLinearMatMul"} else 1
    dims = weights.get(node.input[place]) if len(node.input) > place else None
    if dims is None:
        return
    if kind in {"Conv", "ConvInteger", "QLinearConv"} and rank > 1 and len(dims) == rank:
        yield 1, dims[1] * attribute_of(node, "group", 1)
    elif kind == "ConvTranspose" and rank > 1:
        yield 1, dims[0]
    elif kind in {"MatMul", "MatMulInteger", "QLinearMatMul"} and len(dims) > 1:
        yield rank - 1, dims[-2]
    elif kind == "Gemm" and rank == 2:
        yield (0 if attribute_of(node, "transA", 0) else 1), dims[1 if attribute_of(node, "transB", 0) else 0]
    elif kind in {"LSTM", "GRU", "RNN"} and rank == 3:
        yield 2, dims[2]
    elif kind == "BatchNormalization" and rank > 1:
        yield 1, dims[0]
    elif kind == "LayerNormalization" and dims:
        yield rank - 1, dims[-1]
