"""Keys and values of past tokens in an ONNX model: where new ones are put behind them, and how that is done in place.

A Concat of what was given with what is new copies all of it for every token. Buffers with room for more are written in
place by ScatterND, where a caller binds one buffer as input and output; what reads them takes the part that is filled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from memsched.base.frozen import FrozenValue
from memsched.base.units import LARGEST_INT64
from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.free_names import FreeNames
from memsched.formats.onnx.structure import op_type

__all__ = ["CACHES", "OnnxCache", "append_in_place", "find_caches", "pass_through", "reads_length"]

CACHES: Final = "memsched.caches"
"""The name under which a model's metadata list its caches: a JSON object of inputs and outputs."""

_KERNEL: Final = "com.microsoft.GroupQueryAttention"
_KERNEL_RESULTS: Final[Mapping[int, int]] = {3: 1, 4: 2}
"""By the places of past keys and values among its inputs those of all of them among its outputs."""


class OnnxCache(FrozenValue, frozen=True):
    """An input that is given back with more behind it.

    Attributes:
        new: The value that is put behind; "" where a kernel computes it.
        whole: The value of both; other nodes read it.
        axis: Of all of them.
    """

    past: str
    present: str
    new: str
    whole: str
    axis: int


def pass_through(model: ModelProto) -> None:
    """Let everything read a value itself in place of what hands the value on; ``model`` is changed.

    Exporters write an Identity, or a Concat of one input where they append to an empty cache, before a cache is used.
    """
    graph = model.graph
    outputs = {value.name for value in graph.output}
    handed: dict[str, str] = {}
    nodes: list[NodeProto] = []
    for node in graph.node:
        _rename(node, handed)
        kind = op_type(node)
        if kind != "Identity" and (kind != "Concat" or len(node.input) != 1):
            nodes.append(node)
        elif node.output[0] in outputs:
            nodes.append(helper.make_node("Identity", list(node.input), list(node.output), name=node.name))
        else:
            handed[node.output[0]] = node.input[0]
    del graph.node[:]
    graph.node.extend(nodes)


def find_caches(model: ModelProto) -> tuple[OnnxCache, ...]:
    """Return the caches of a model's main graph, in the order of its inputs."""
    held = {tensor.name for tensor in model.graph.initializer}
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in model.graph.input if value.name not in held}
    given_back = _given_back(model.graph)
    found: dict[str, OnnxCache] = {}
    for node in model.graph.node:
        kind = op_type(node)
        if kind == "Concat" and len(node.input) == 2 and node.input[0] in ranks and node.output[0] in given_back:
            past, new = node.input
            axis = attribute_of(node, "axis", 0) % max(ranks[past], 1)
            if not _is_open(model.graph, past, axis):
                continue
            found.setdefault(past, OnnxCache(past, given_back[node.output[0]], new, node.output[0], axis))
        elif kind == _KERNEL:
            for place, result in _KERNEL_RESULTS.items():
                past, present = _at(node.input, place), _at(node.output, result)
                if past in ranks and present in given_back:
                    found.setdefault(past, OnnxCache(past, given_back[present], "", present, 2))
    return tuple(found[name] for name in ranks if name in found)


def reads_length(model: ModelProto, caches: Sequence[OnnxCache]) -> bool:
    """Return whether anything but kernels, which know how much is filled, reads a cache."""
    names = {cache.past for cache in caches}
    readers = [node for node in model.graph.node if op_type(node) != _KERNEL]
    return any(name in names for node in readers for name in _read_by(node))


def append_in_place(model: ModelProto, caches: Sequence[OnnxCache], capacity: str, past_length: str) -> None:
    """Turn caches into buffers that are written in place; ``model`` is changed.

    Args:
        capacity: The name that the dimension of their length gets.
        past_length: The name of the input that says how many tokens they hold; of one element.
    """
    graph = model.graph
    writer = _Appender(graph, past_length)
    for cache in caches:
        writer.open(cache)
    nodes: list[NodeProto] = []
    by_whole = {cache.whole: cache for cache in caches if cache.new}
    dropped = {cache.present for cache in caches if cache.present != cache.whole}
    for node in graph.node:
        made = by_whole.get(node.output[0]) if op_type(node) == "Concat" else None
        if made is not None:
            nodes += writer.append(made)
        elif op_type(node) != "Identity" or node.output[0] not in dropped:
            nodes += writer.reading(node)
    nodes = [*writer.first_for(nodes), *nodes]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(writer.constants.values())
    if any(past_length in _read_by(node) for node in nodes):
        graph.input.append(helper.make_tensor_value_info(past_length, TensorProto.INT64, [1]))
    _resize(graph, caches, capacity)
    entry = model.metadata_props.add()
    entry.key, entry.value = CACHES, json.dumps({cache.past: cache.present for cache in caches})


class _Appender:
    """Makes the nodes that write and read buffers.

    Attributes:
        constants: What these read, by name.
    """

    def __init__(self, graph: GraphProto, past_length: str) -> None:
        self._first: list[NodeProto] = []
        self.constants: dict[str, Any] = {}
        self._past_length = past_length
        self._fresh = FreeNames(_names(graph)).new
        self._places: dict[tuple[object, ...], str] = {}
        self._reads: dict[str, str] = {}
        self._shapes: dict[str, str] = {}
        self._filled: set[str] = set()
        self._turned: dict[str, tuple[str, Sequence[int]]] = {}
        self._dims = {value.name: [_told(dim) for dim in value.type.tensor_type.shape.dim] for value in graph.input}

    def open(self, cache: OnnxCache) -> None:
        """Prepare what other nodes read in place of the past and of its shape."""
        axis, end = cache.axis, self._constant([LARGEST_INT64])
        shape = self._node("Shape", [cache.past], "buffer_shape")
        before = self._node("Slice", [shape, self._constant([0]), self._constant([axis])], "sizes_before")
        after = self._node("Slice", [shape, self._constant([axis + 1]), end], "sizes_behind")
        self._shapes[cache.past] = self._node("Concat", [before, self._past_length, after], "past_shape", axis=0)
        inputs = [cache.past, self._constant([0]), self._past_length, self._constant([axis])]
        self._reads[cache.past] = self._node("Slice", inputs, "past_read")
        self._filled.update([cache.whole] * bool(cache.new))
        if cache.new and cache.present == cache.whole:
            self._reads[cache.whole] = self._fresh(f"{cache.whole}_read")
        elif cache.new:
            self._reads[cache.present] = cache.whole

    def append(self, cache: OnnxCache) -> list[NodeProto]:
        """Return the nodes that write what is new, and give what is filled under the name that others read."""
        nodes: list[NodeProto] = []
        axis = cache.axis
        key = (*self._dims[cache.past][:axis], axis)
        sizes = self._node("Shape", [cache.new], "new_shape", nodes)
        if key not in self._places:
            self._places[key] = self._indices(sizes, axis, nodes)
        length = self._node("Gather", [sizes, self._constant([axis])], "new_length", nodes, axis=0)
        end = self._node("Add", [self._past_length, length], "filled", nodes)
        inputs = [cache.past, self._places[key], cache.new]
        nodes.append(
            helper.make_node("ScatterND", inputs, [cache.present], name=self._fresh(f"{cache.present}_append"))
        )
        read = self._reads.get(cache.whole, cache.whole)
        inputs = [cache.present, self._constant([0]), end, self._constant([axis])]
        nodes.append(helper.make_node("Slice", inputs, [read], name=self._fresh(f"{cache.present}_filled")))
        return nodes

    def reading(self, node: NodeProto) -> list[NodeProto]:
        """Return the nodes for one that reads what is filled, or its shape, in place of whole buffers."""
        kind = op_type(node)
        if kind == "Transpose" and node.input[0] in self._filled and attribute_of(node, "perm", None):
            self._turned[node.output[0]] = node.input[0], attribute_of(node, "perm", None)
        if kind == "Shape" and node.input[0] in self._turned:
            return self._turned_shape(node)
        if kind == "Shape" and node.input[0] in self._shapes:
            return [self._part(node, self._shapes[node.input[0]])]
        if kind != _KERNEL:
            _rename(node, self._reads)
        return [node]

    def _turned_shape(self, node: NodeProto) -> list[NodeProto]:
        """Return what gives the shape of a transposed cache, so that this need not be stored for its shape alone."""
        nodes: list[NodeProto] = []
        source, order = self._turned[node.input[0]]
        shape = self._node("Shape", [self._reads.get(source, source)], "filled_shape", nodes)
        turned = self._node("Gather", [shape, self._constant(order)], "turned_shape", nodes, axis=0)
        return [*nodes, self._part(node, turned)]

    def _part(self, node: NodeProto, shape: str) -> NodeProto:
        """Return the part of a shape that a node of this kind takes, under the name of what it gives."""
        start, end = attribute_of(node, "start", 0), attribute_of(node, "end", LARGEST_INT64)
        inputs = [shape, self._constant([start]), self._constant([end])]
        return helper.make_node("Slice", inputs, list(node.output), name=node.name)

    def first_for(self, nodes: Sequence[NodeProto]) -> list[NodeProto]:
        """Return the nodes that go before others because these read what they make."""
        read = {name for node in nodes for name in _read_by(node)}
        kept: list[NodeProto] = []
        for node in reversed(self._first):
            if node.output[0] in read:
                kept.append(node)
                read.update(node.input)
        return kept[::-1]

    def _indices(self, sizes: str, axis: int, nodes: list[NodeProto]) -> str:
        """Return where the rows of new tokens go: [..., tokens, axis + 1]."""
        leading = self._node("Slice", [sizes, self._constant([0]), self._constant([axis + 1])], "row_sizes", nodes)
        value = helper.make_tensor("value", TensorProto.BOOL, [1], [True])
        ones = self._node("ConstantOfShape", [leading], "every_row", nodes, value=value)
        rows = self._node(
            "Transpose", [self._node("NonZero", [ones], "rows", nodes)], "row_indices", nodes, perm=[1, 0]
        )
        inputs = [self._constant([0] * axis), self._past_length] if axis else [self._past_length]
        moved = self._node("Add", [rows, self._node("Concat", inputs, "shift", nodes, axis=0)], "row_places", nodes)
        wanted = self._node("Concat", [leading, self._constant([axis + 1])], "index_shape", nodes, axis=0)
        return self._node("Reshape", [moved, wanted], "places", nodes)

    def _node(
        self, kind: str, inputs: Sequence[str], base: str, nodes: list[NodeProto] | None = None, **attributes: Any
    ) -> str:
        output = self._fresh(base)
        made = helper.make_node(kind, list(inputs), [output], name=self._fresh(f"{base}_node"), **attributes)
        (self._first if nodes is None else nodes).append(made)
        return output

    def _constant(self, numbers: Sequence[int]) -> str:
        name = f"cache_{'_'.join(map(str, numbers))}".replace("-", "minus_")
        if name not in self.constants:
            self.constants[name] = helper.make_tensor(self._fresh(name), TensorProto.INT64, [len(numbers)], numbers)
        return str(self.constants[name].name)


def _given_back(graph: GraphProto) -> dict[str, str]:
    """Return the outputs of a graph by the values that they are, an Identity before them included."""
    outputs = {value.name for value in graph.output}
    found = {name: name for name in outputs}
    for node in graph.node:
        if op_type(node) == "Identity" and node.output[0] in outputs:
            found.setdefault(node.input[0], node.output[0])
    return found


def _is_open(graph: GraphProto, name: str, axis: int) -> bool:
    dims = next(value.type.tensor_type.shape.dim for value in graph.input if value.name == name)
    return axis < len(dims) and not dims[axis].HasField("dim_value")


def _at(names: Sequence[str], place: int) -> str:
    return names[place] if place < len(names) else ""


def _told(dim: Any) -> object:
    return dim.dim_value if dim.HasField("dim_value") else dim.dim_param


def _names(graph: GraphProto) -> Iterator[str]:
    """Yield every name of a graph and of those within it."""
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))
    for node in graph.node:
        yield from (node.name, *node.input, *node.output)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _names(inner)


def _read_by(node: NodeProto) -> Iterator[str]:
    """Yield the values that a node reads, those that its bodies read included."""
    yield from node.input
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            yield from (value.name for value in inner.output)
            for one in inner.node:
                yield from _read_by(one)


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Let a node, and the bodies that it has, read other values."""
    for place, name in enumerate(node.input):
        node.input[place] = names.get(name, name)
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            for one in inner.node:
                _rename(one, names)
            for value in inner.output:
                value.name = names.get(value.name, value.name)


def _resize(graph: GraphProto, caches: Sequence[OnnxCache], capacity: str) -> None:
    """Let inputs and outputs of caches say that they are as long as the buffers are."""
    axes = {name: cache.axis for cache in caches for name in (cache.past, cache.present)}
    for value in (*graph.input, *graph.output):
        if value.name in axes and value.type.tensor_type.HasField("shape"):
            dim = value.type.tensor_type.shape.dim[axes[value.name]]
            dim.Clear()
            dim.dim_param = capacity
    stale = [value for value in graph.value_info if value.name in axes]
    for value in stale:
        graph.value_info.remove(value)
