"""What plans of on-chip memory need to know about a graph: bytes, operations, and how each layer can be cut.

Feature maps have four axes and lie on chip as batch, rows, columns, channels, as in the paper's Figure 5, whatever
the order in the file: "Deep Fusion", section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Graph, Op, Region
from memsched.ops.geometry import described
from memsched.ops.ranges import deduce
from memsched.ops.rules import (
    CONSTANT_SHAPE,
    POINTWISE,
    AxisMap,
    Geometry,
    Pointwise,
    Refusal,
    Rule,
    WholeAxis,
    Window,
)

__all__ = ["Map", "OnChipLayer", "OnChipNetwork", "Range"]

Range = tuple[int, int]
Channels = Literal["head", "follow", "whole"]

_VECTOR_BYTES: Final = 4
"""Bytes per element of a constant vector beside 8-bit tensors: biases are accumulated in 32 bits."""


class Map(FrozenValue, frozen=True):
    """A tensor as it lies on chip.

    Attributes:
        rows: Rows of the plane; 1 where the tensor is not a feature map.
        columns: Columns of the plane.
        channels: Channels at each point of the plane; all elements where the tensor is not a feature map.
        batch: Planes.
        element: Bytes of one element, at least 1.
        axes: The graph tensor's axes (batch, rows, columns, channels); empty where it is not a feature map.
    """

    rows: int
    columns: int
    channels: int
    batch: int
    element: int
    axes: tuple[int, ...] = ()

    @property
    def point(self) -> int:
        """Bytes of all channels at one point of the plane."""
        return self.channels * self.element

    @property
    def size(self) -> int:
        """Bytes of the whole tensor."""
        return self.batch * self.rows * self.columns * self.point

    def length(self, axis: int) -> int:
        """Return the rows (``axis`` 0) or the columns (1)."""
        return self.columns if axis else self.rows


class OnChipLayer(FrozenValue, frozen=True):
    """An op with what it costs.

    Attributes:
        reads: The activations that it reads, each once.
        weights: Bytes of its constants.
        filters: Parts that the weights can be loaded in, one output channel each; 1 where they cannot be.
        flops: Two per multiply-accumulate; otherwise one per output element, and per element of a pooling window.
        view: Whether it moves nothing (Reshape, Flatten, Dropout at inference).
        spatial: Whether its rows and columns can be cut.
        channels: "head": an output channel needs all input channels. "follow": it needs its own only. "whole": its
            channels cannot be cut.
        refusal: Why it cannot be cut at all; None where it can.
        addends: Input channels that the sums can be taken over a few at a time; 1 where they cannot.
        beside: Bytes of its constants but for the largest.
    """

    op: int
    name: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    weights: int
    filters: int
    flops: int
    view: bool
    spatial: bool
    channels: Channels
    refusal: str | None
    addends: int
    beside: int


class OnChipNetwork:
    """A graph lowered for its target, in order of execution, with one `OnChipLayer` per op and one `Map` per tensor.

    Attributes:
        distances: What `overlap` found, by op, read, and the likeness of rows and columns.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.maps = tuple(_map(graph, tensor) for tensor in range(len(graph.tensors)))
        self.producer: dict[int, int] = {tensor: op for op, one in enumerate(graph.ops) for tensor in one.outputs}
        readers: dict[int, list[int]] = {}
        for op, one in enumerate(graph.ops):
            for tensor in dict.fromkeys(one.inputs):
                readers.setdefault(tensor, []).append(op)
        self.readers: Mapping[int, Sequence[int]] = MappingProxyType(readers)
        self._kept = set(graph.outputs)
        self.geometries: dict[int, Geometry] = {}
        self.layers = tuple(self._layer(op) for op in range(len(graph.ops)))
        self._root = list(range(len(graph.tensors)))
        for layer in self.layers:
            if layer.view:
                self._root[layer.writes[0]] = self._root[layer.reads[0]]
        self._rules: dict[tuple[int, int, int], tuple[Rule, ...]] = {}
        self.distances: dict[tuple[int, int, tuple[int, ...], tuple[int, ...]], int | None] = {}
        self._elementwise: dict[tuple[int, int], bool] = {}
        self._needed: dict[tuple[int, int, int, int], tuple[Range, tuple[Range | None, ...]] | None] = {}

    def root(self, tensor: int) -> int:
        """Return the tensor whose bytes ``tensor`` is, views followed."""
        return self._root[tensor]

    def leaves(self, tensor: int, last: int) -> bool:
        """Return whether ``tensor`` is read after op ``last``, or by the caller, or not at all."""
        readers = self.readers.get(tensor, ())
        return tensor in self._kept or not readers or readers[-1] > last

    def written(self, tensors: Sequence[int], first: int) -> tuple[int, ...]:
        """Return which of the tensors that leave a group from op ``first`` on are stored: of views only one."""
        found: dict[int, int] = {}
        for tensor in tensors:
            root = self._root[tensor]
            if self.producer.get(root, -1) >= first:
                found.setdefault(root, tensor)
        return tuple(found.values())

    def needed(self, op: int, axis: int, start: int, stop: int) -> tuple[Range, tuple[Range | None, ...]] | None:
        """Return what [start, stop) of an op's rows (``axis`` 0) or columns (1) takes; None where it is refused.

        The result is what the op then computes, and per entry of the layer's ``reads`` what it needs of it.
        """
        key = (op, axis, start, stop)
        if key not in self._needed:
            self._needed[key] = self._simple(*key) or self._deduce(*key)
        return self._needed[key]

    def _simple(self, op: int, axis: int, start: int, stop: int) -> tuple[Range, tuple[Range | None, ...]] | None:
        """Return the same by the rules of nearly all layers, without a `PieceNeeds`; None leaves it to `deduce`."""
        result = []
        if stop - start == self.maps[self.layers[op].writes[0]].length(axis):
            return None
        for entry, tensor in enumerate(self.layers[op].reads):
            rules = self._rules_of(op, entry, axis)
            rule, length = rules[0], self.maps[tensor].length(axis)
            if len(rules) > 1 or not isinstance(rule, Pointwise | WholeAxis | Window):
                return None
            if isinstance(rule, Pointwise):
                result.append((start, stop))
            elif isinstance(rule, WholeAxis):
                result.append((0, length))
            else:
                low = start * rule.stride - rule.pad_before
                high = (stop - 1) * rule.stride - rule.pad_before + (rule.kernel - 1) * rule.dilation + 1
                if low < 0 or high > length:
                    return None
                result.append((low, high))
        return (start, stop), tuple(result)

    def _rules_of(self, op: int, entry: int, axis: int) -> tuple[Rule, ...]:
        """Return how read ``entry`` follows the output on ``axis``, once per position that reads it."""
        key = (op, entry, axis)
        if key not in self._rules:
            one, tensor = self.graph.ops[op], self.layers[op].reads[entry]
            self._rules[key] = tuple(
                self.geometries[op].operands[position][self.maps[tensor].axes[axis + 1]].rule
                for position, read in zip(one.positions, one.inputs, strict=True)
                if read == tensor
            )
        return self._rules[key]

    def likeness(self, op: int, entry: int, axis: int, made: Range, given: Range) -> tuple[int, ...]:
        """Return a key that pieces of an axis share if their `firsts` are equal when counted from ``given``."""
        lengths = (made[1] - made[0], given[1] - given[0])
        rules = self._rules_of(op, entry, axis) if self.layers[op].spatial else ()
        if len(rules) == 1 and isinstance(rules[0], Window):
            return (*lengths, made[0] * rules[0].stride - rules[0].pad_before - given[0])
        if len(rules) == 1 and isinstance(rules[0], Pointwise):
            return (*lengths, made[0] - given[0])
        return (*made, *given)

    def _deduce(self, op: int, axis: int, start: int, stop: int) -> tuple[Range, tuple[Range | None, ...]] | None:
        geometry, one = self.geometries[op], self.graph.ops[op]
        out = self.maps[one.outputs[0]]
        ranges = [(0, size) for size in geometry.shape]
        ranges[out.axes[axis + 1]] = (start, stop)
        found = deduce(geometry, one, Region(tuple(ranges)))
        if isinstance(found, Refusal):
            return None
        result: dict[int, Range | None] = {}
        for tensor, entry in zip(one.inputs, found.inputs, strict=True):
            span = None if entry.region is None else entry.region.ranges[self.maps[tensor].axes[axis + 1]]
            other = result.get(tensor)
            result[tensor] = span if other is None else _hull(other, span)
        computed = found.computed(Region(tuple(ranges))).ranges[out.axes[axis + 1]]
        return computed, tuple(result[tensor] for tensor in self.layers[op].reads)

    def firsts(self, op: int, entry: int, axis: int, start: int, stop: int) -> list[int] | None:
        """Return per row or column [start, stop) of the output the first of read ``entry`` that it needs.

        None where an element cannot be computed by itself; a row that needs nothing of it counts as needing what the
        next one needs.
        """
        tensor, rules = self.layers[op].reads[entry], self._rules_of(op, entry, axis)
        if len(rules) == 1 and isinstance(rules[0], Window):
            rule = rules[0]
            return [max(0, at * rule.stride - rule.pad_before) for at in range(start, stop)]
        if all(isinstance(rule, Pointwise) for rule in rules):
            return list(range(start, stop))
        if any(isinstance(rule, WholeAxis) for rule in rules):
            return [0] * (stop - start)
        result = [0] * (stop - start)
        following = self.maps[tensor].length(axis)
        for at in reversed(range(start, stop)):
            found = self.needed(op, axis, at, at + 1)
            if found is None:
                return None
            span = found[1][entry]
            following = following if span is None else span[0]
            result[at - start] = following
        return result

    def elementwise(self, op: int, entry: int) -> bool:
        """Return whether each output element needs of read ``entry`` the element at its own place only."""
        key = (op, entry)
        if key not in self._elementwise:
            self._elementwise[key] = self._is_elementwise(op, entry)
        return self._elementwise[key]

    def _is_elementwise(self, op: int, entry: int) -> bool:
        one, tensor = self.graph.ops[op], self.layers[op].reads[entry]
        if self.layers[op].view:
            return True
        geometry = self.geometries.get(op)
        if geometry is None or geometry.fixed or self.maps[tensor].size != self.maps[one.outputs[0]].size:
            return False
        return all(
            geometry.operands[position] == tuple(AxisMap(axis, POINTWISE) for axis in range(len(geometry.shape)))
            for position, read in zip(one.positions, one.inputs, strict=True)
            if read == tensor
        )

    # Layers --------------------------------------------------------------------------------------------------------

    def _layer(self, op: int) -> OnChipLayer:
        one = self.graph.ops[op]
        view = bool(one.views) and len(one.views) == 1 and not one.view_offsets
        found = _through(self.graph, op) if view else described(self.graph, op)
        refusal = found.reason if isinstance(found, Refusal) else None
        spatial, channels = False, "whole"
        if isinstance(found, Geometry):
            self.geometries[op] = found
            spatial, channels = self._spatial(one, found), self._channels(one, found)
        writes = tuple(tensor for tensor in one.outputs if self.graph.tensors[tensor].sized)
        out = self.maps[one.outputs[0]] if one.outputs else None
        elements = out.size // out.element if out else 0
        weights, beside = self._weights(one)
        return OnChipLayer(
            op,
            one.name,
            tuple(dict.fromkeys(one.inputs)),
            writes,
            weights,
            self._filters(one, found) if isinstance(found, Geometry) else 1,
            0 if view else (2 * one.macs or elements * _window(found)),
            view,
            spatial,
            channels,  # type: ignore[arg-type]
            refusal,
            self._addends(one) if spatial and channels == "head" else 1,
            beside,
        )

    def _spatial(self, one: Op, found: Geometry) -> bool:
        """Return whether rows and columns of every operand follow those of the output, or are needed whole."""
        out = self.maps[one.outputs[0]]
        if not out.axes or any(axis in found.fixed for axis in out.axes[1:3]):
            return False
        for tensor, position in zip(one.inputs, one.positions, strict=True):
            axes = self.maps[tensor].axes
            if not axes:
                return False
            for axis, entry in enumerate(found.operands[position]):
                own = axis in axes[1:3]
                if entry.output >= 0 and (own or entry.output in out.axes[1:3]) and entry.output != axis:
                    return False
        return out.rows * out.columns > 1

    def _channels(self, one: Op, found: Geometry) -> str:
        last = (self.maps[one.outputs[0]].axes or tuple(range(len(found.shape))) or (0,))[-1]
        if last in found.fixed or not found.shape:
            return "whole"
        if any(not self.maps[tensor].axes and not self._is_vector(tensor) for tensor in (*one.inputs, one.outputs[0])):
            return "whole"
        kinds = set()
        for tensor, position in zip(one.inputs, one.positions, strict=True):
            axes = self.maps[tensor].axes or tuple(range(len(found.shapes[position]))) or (0,)
            rule = found.operands[position][axes[-1]] if found.operands[position] else AxisMap(-1, WholeAxis())
            kinds.add("follow" if rule == AxisMap(last, POINTWISE) else type(rule.rule).__name__)
        if kinds == {"follow"}:
            return "follow"
        weighted = any(isinstance(maps, tuple) and position not in one.positions and
                       any(entry == AxisMap(last, POINTWISE) for entry in maps)
                       for position, maps in sorted(found.operands.items()))  # fmt: skip
        return "head" if kinds == {"WholeAxis"} and weighted and found.group is None else "whole"

    def _is_vector(self, tensor: int) -> bool:
        return math.prod((self.graph.tensors[tensor].shape or ())[:-1]) == 1

    def _filters(self, one: Op, found: Geometry) -> int:
        """Return in how many parts weights can be loaded: several if the largest constant follows the channels."""
        last = (self.maps[one.outputs[0]].axes or tuple(range(len(found.shape))) or (0,))[-1]
        constants = [position for position in found.operands if position not in one.positions]
        if not constants:
            return 1
        largest = max(constants, key=lambda position: (math.prod(found.shapes[position]), -position))
        follows = any(entry == AxisMap(last, POINTWISE) for entry in found.operands[largest])
        return found.shape[last] if follows else 1

    def _addends(self, one: Op) -> int:
        """Return the input channels of a convolution of floats."""
        given = self.maps[one.inputs[0]]
        floats = all(self.graph.tensors[tensor].dtype == "float32" for tensor in (*one.inputs, *one.outputs))
        if not floats or given.element != 4 or len(one.inputs) != 1:
            return 1
        shapes = [value for name, value in sorted(one.attributes.items()) if name.startswith(CONSTANT_SHAPE)]
        convolves = any(isinstance(shape, tuple) and len(shape) == 4 for shape in shapes)
        return given.channels if convolves else 1

    def _weights(self, one: Op) -> tuple[int, int]:
        """Return the bytes of all constants, and of all but the largest."""
        element = min((self.maps[tensor].element for tensor in one.inputs), default=_VECTOR_BYTES)
        sizes = [0]
        for name, value in sorted(one.attributes.items()):
            # A single number is part of the program.
            if name.startswith(CONSTANT_SHAPE) and isinstance(value, tuple) and value:
                size = _VECTOR_BYTES if element == 1 and len(value) < 2 else element
                sizes.append(size * math.prod(int(extent) for extent in value))
        return sum(sizes), sum(sizes) - max(sizes)


def _map(graph: Graph, tensor: int) -> Map:
    one = graph.tensors[tensor]
    shape = one.shape
    count = math.prod(shape) if shape is not None else 0
    if not count or not one.size:
        return Map(1, 1, one.size, 1, 1)
    element = -(-one.size // count)
    if shape is None or len(shape) != 4:
        return Map(1, 1, count, 1, element)
    last = any(op.type.isupper() for op in graph.ops[:1])
    axes = (0, 1, 2, 3) if last else (0, 2, 3, 1)
    batch, rows, columns, channels = (shape[axis] for axis in axes)
    return Map(rows, columns, channels, batch, element, axes)


def _through(graph: Graph, op: int) -> Geometry | Refusal:
    """A view of the same shape is an op on each element, whatever else its operator has."""
    one = graph.ops[op]
    out, given = (graph.tensors[tensor].shape for tensor in one.views[0])
    if out is None or out != given:
        return described(graph, op)
    position = one.positions[one.inputs.index(one.views[0][1])]
    return Geometry(out, {position: out}, {position: tuple(AxisMap(axis, POINTWISE) for axis in range(len(out)))})


def _window(found: Geometry | Refusal) -> int:
    if isinstance(found, Refusal):
        return 1
    maps = found.operands.get(0, ())
    given = found.shapes.get(0, ())
    windows = (entry.rule.kernel for entry in maps if isinstance(entry.rule, Window))
    whole = (size for entry, size in zip(maps, given, strict=False) if isinstance(entry.rule, WholeAxis))
    return max(1, math.prod(windows) * math.prod(whole))


def _hull(one: Range, other: Range | None) -> Range:
    return one if other is None else (min(one[0], other[0]), max(one[1], other[1]))
