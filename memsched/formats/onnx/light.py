"""The light copy of a model: everything but the weights, which scheduling does not need.

Small constants stay, because shapes are computed from them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from memsched.base.errors import ModelError
from memsched.formats.onnx import external as onnx_external
from memsched.formats.onnx.structure import attributed, sparse_name
from memsched.formats.onnx.types import SHAPE_ELEMENTS, element_bits, tensor_bytes

__all__ = ["KEPT_ELEMENTS", "ExternalData", "constant_bytes", "constant_sizes", "is_stripped", "lighten"]

KEPT_ELEMENTS: Final = 256
"""Constants of up to this many elements keep their values."""

_DATA_FIELDS: Final = (
    "raw_data",
    "float_data",
    "int32_data",
    "string_data",
    "int64_data",
    "double_data",
    "uint64_data",
)


@dataclass(slots=True)
class ExternalData:
    """The external data that a model refers to: locations in order of first use, and what is wrong with them.

    Attributes:
        stripped: Constants whose values were removed.
        attributed: The nodes of the main graph that have attributes; None where its nodes were changed since.
    """

    locations: dict[str, None] = field(default_factory=dict)
    stripped: int = 0
    missing: dict[str, None] = field(default_factory=dict)
    short: dict[str, None] = field(default_factory=dict)
    attributed: Sequence[int] | None = None

    def notes(self) -> list[str]:
        """Return a line per kind of trouble; scheduling goes on without the weights."""
        result = []
        if self.missing:
            result.append(f"external data not found (not needed for scheduling): {', '.join(self.missing)}")
        if self.short:
            result.append(f"external data ends before the weights it should hold: {', '.join(self.short)}")
        return result


def lighten(model: ModelProto, folder: Path) -> ExternalData:
    """Remove the values of large constants from ``model`` in place and look up its external data.

    External data is not loaded, but for integer constants of up to `KEPT_ELEMENTS` elements: some models keep even
    the shapes of their Reshapes there.

    Raises:
        ModelError: An external-data location is not inside ``folder``.
    """
    external = ExternalData()
    sizes: dict[str, int] = {}
    external.attributed = attributed(model.graph)
    for tensor in _tensors(model, external.attributed):
        if tensor.data_location == TensorProto.EXTERNAL:
            _look_up(tensor, folder, external, sizes)
        elif is_stripped(tensor):
            external.stripped += 1
            for name in _DATA_FIELDS:
                tensor.ClearField(name)
    return external


def is_stripped(tensor: TensorProto) -> bool:
    """Return whether the values of ``tensor`` are not in the light copy."""
    return tensor.data_location == TensorProto.EXTERNAL or _elements(tensor) > KEPT_ELEMENTS


def _elements(tensor: TensorProto) -> int:
    return math.prod(tensor.dims)


def _tensors(model: ModelProto, attributed: Iterable[int]) -> Iterator[TensorProto]:
    nodes = model.graph.node
    yield from _tensors_of(model.graph)
    yield from _tensors_below([nodes[place] for place in attributed])
    for function in model.functions:
        yield from _tensors_below(function.node)


def _tensors_below(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    """Yield the tensors of ``nodes`` and of the bodies below them, in one pass over the nodes."""
    graphs: list[GraphProto] = []
    yield from _attribute_tensors(nodes, graphs)
    for graph in graphs:
        yield from _tensors_of(graph)
        yield from _attribute_tensors(graph.node, graphs)


def _tensors_of(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices


def _attribute_tensors(nodes: Iterable[NodeProto], graphs: list[GraphProto]) -> Iterator[TensorProto]:
    """Yield the tensors that attributes hold, and add the graphs that they hold to ``graphs``."""
    for node in nodes:
        for attribute in node.attribute[:]:  # slices of protobuf's lists are made faster than iterators
            if attribute.HasField("g"):
                graphs.append(attribute.g)
            graphs.extend(attribute.graphs)
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor"):
                yield attribute.sparse_tensor.values
                yield attribute.sparse_tensor.indices
            for sparse in attribute.sparse_tensors:
                yield sparse.values
                yield sparse.indices


def _size_of(path: Path) -> int:
    """Return a file's size, bytes; -1 for what is no file or cannot be one, such as a name that is too long."""
    try:
        return path.stat().st_size if path.is_file() else -1
    except (OSError, ValueError):
        return -1


def _look_up(tensor: TensorProto, folder: Path, external: ExternalData, sizes: dict[str, int]) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if isinstance(location, bytes):
        raise ModelError(f"tensor '{tensor.name}' names external data that is no UTF-8 text", code="not-utf8")
    path = onnx_external.resolve(folder, location)
    external.locations[location] = None
    if location not in sizes:
        sizes[location] = _size_of(path)
    size = sizes[location]
    try:
        offset = int(entries.get("offset") or 0)
        length = int(entries.get("length") or tensor_bytes(tensor.data_type, tensor.dims))
    except ValueError as error:
        raise ModelError(
            f"tensor '{tensor.name}' states an external-data offset that is no number", code="external-data-offset"
        ) from error
    if offset < 0 or length < 0:
        raise ModelError(
            f"tensor '{tensor.name}' states a negative external-data offset or length", code="external-data-offset"
        )
    if size < 0:
        external.missing[location] = None
    elif offset + length > size:
        external.short[location] = None
    elif tensor.data_type in SHAPE_ELEMENTS and _elements(tensor) <= KEPT_ELEMENTS:
        with path.open("rb") as stream:
            stream.seek(offset)
            tensor.raw_data = stream.read(tensor_bytes(tensor.data_type, tensor.dims))
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")


def constant_bytes(graph: GraphProto, *, nodes: bool = True) -> int:
    """Return the bytes of the initializers and Constant nodes of one graph, external ones included.

    Args:
        nodes: Whether there may be Constant nodes.

    Raises:
        ModelError: A shape is negative or absurd.
    """
    return sum(constant_sizes(graph, nodes=nodes).values())


def constant_sizes(graph: GraphProto, *, nodes: bool = True) -> dict[str, int]:
    """Return the bytes of each initializer and each output of a Constant node of one graph, external ones included.

    Args:
        nodes: Whether there may be Constant nodes.

    Raises:
        ModelError: A shape is negative or absurd.
    """
    sizes = {tensor.name: _tensor_size(tensor) for tensor in graph.initializer}
    for sparse in graph.sparse_initializer:
        sizes[sparse_name(sparse)] = _tensor_size(sparse.values) + _tensor_size(sparse.indices)
    for node in graph.node if nodes else ():
        if node.op_type == "Constant" and node.output:
            sizes[node.output[0]] = _node_size(node)
    return sizes


def _node_size(node: NodeProto) -> int:
    total = sum(_tensor_size(tensor) for tensor in _attribute_tensors([node], []))
    for attribute in node.attribute:
        total += 4 * (len(attribute.floats) + (attribute.name == "value_float"))
        total += 8 * (len(attribute.ints) + (attribute.name == "value_int"))
        total += len(attribute.s) + sum(len(text) for text in attribute.strings)
    return total


def _tensor_size(tensor: TensorProto) -> int:
    try:
        if element_bits(tensor.data_type) == 0:
            return sum(len(text) for text in tensor.string_data)
        return tensor_bytes(tensor.data_type, tensor.dims)
    except ModelError as error:
        raise error.at(f"constant '{tensor.name}'") from error
