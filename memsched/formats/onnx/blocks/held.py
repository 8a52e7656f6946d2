"""Weights that bodies of loops read: held once, as they are, in place of a packed copy beside the given one.

A runtime that packs constant weights for its products frees what they were made from, but not where a body reads them
from outside. Under a shape that is known at run time alone they are no constants, and are not packed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from onnx import GraphProto, NodeProto

from memsched.formats.onnx.blocks.lengths import Lengths
from memsched.formats.onnx.structure import op_type
from memsched.formats.onnx.types import tensor_bytes
from memsched.formats.onnx.worth import LARGE_WEIGHT

__all__ = ["held_once", "weights_of_products"]

_PACKED: Final = frozenset({"MatMul", "Gemm"})
"""Operators whose second input is packed where it is constant."""


def weights_of_products(graph: GraphProto, nodes: Sequence[NodeProto]) -> int:
    """Return the bytes of the weights of ``graph`` that products among ``nodes`` read and a runtime packs."""
    sizes = _sizes(graph)
    read = {node.input[1] for node in nodes if op_type(node) in _PACKED}
    return sum(size for name, size in sizes.items() if name in read)


def held_once(graph: GraphProto, nodes: Sequence[NodeProto], lengths: Lengths) -> None:
    """Let the bodies of ``nodes`` read weights of ``graph`` under shapes that are known at run time; they are changed.

    Args:
        lengths: Gets the nodes that give the shapes.
    """
    dims = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    names: dict[str, str] = {}
    for name in _captured(nodes, _sizes(graph)):
        shape = lengths.node("Mul", [lengths.constant(dims[name]), lengths.guard()], "shape_at_run_time")
        names[name] = lengths.node("Reshape", [name, shape], f"{name}_held")
    for node in nodes:
        for body in _bodies(node):
            _rename(body, names)


def _sizes(graph: GraphProto) -> dict[str, int]:
    """Return the bytes of large weights."""
    sizes = {tensor.name: tensor_bytes(tensor.data_type, tensor.dims) for tensor in graph.initializer}
    return {name: size for name, size in sizes.items() if size >= LARGE_WEIGHT}


def _captured(nodes: Sequence[NodeProto], sizes: Mapping[str, int]) -> list[str]:
    """Return the weights that bodies alone read, each as what a product packs."""
    outside = {name for node in nodes for name in node.input}
    found: dict[str, bool] = {}
    for node in nodes:
        for body in _bodies(node):
            for reader in _every(body):
                for place, name in enumerate(reader.input):
                    packed = place == 1 and op_type(reader) in _PACKED
                    found[name] = found.get(name, True) and packed
    return [name for name, packed in found.items() if packed and name in sizes and name not in outside]


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g


def _every(body: GraphProto) -> Iterator[NodeProto]:
    """Yield the nodes of a body and of those within it."""
    for node in body.node:
        yield node
        for inner in _bodies(node):
            yield from _every(inner)


def _rename(body: GraphProto, names: Mapping[str, str]) -> None:
    for node in _every(body):
        if op_type(node) in _PACKED and len(node.input) > 1:
            node.input[1] = names.get(node.input[1], node.input[1])
