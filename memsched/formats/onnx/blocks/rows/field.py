"""The part of a graph that can be computed by rows: its operators, what they read, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from typing import Final

from onnx import NodeProto

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.blocks.cuts import integers_of
from memsched.formats.onnx.blocks.regions import OpenGraph, names_read
from memsched.formats.onnx.blocks.rows.rules import RowRule, is_float_image, rule_of
from memsched.formats.onnx.standard import Axes
from memsched.formats.onnx.structure import op_type
from memsched.formats.onnx.types import element_bits
from memsched.ops.macs import COUNTED, macs_of
from memsched.ops.table import class_of

__all__ = ["RowField", "RowNorm", "RowOp", "row_ops"]

_READ_COST: Final = 8
"""Multiplications that take about as long as writing an element."""

_SLOW: Final = 1.4
"""How much longer a convolution takes without a layout of blocks of channels."""


class RowNorm(FrozenValue, frozen=True):
    """A normalisation, or a mean, over all places of some channels.

    Attributes:
        groups: Groups of channels; each has statistics of its own.
        epsilon: What is added to the variance.
        scale, bias: Values of as many elements as there are groups, or channels; "" for none.
        by_channel: They are one for each channel.
    """

    groups: int
    epsilon: float = 0.0
    scale: str = ""
    bias: str = ""
    by_channel: bool = False


class RowOp(FrozenValue, frozen=True):
    """A node, or a normalisation of several.

    Attributes:
        nodes: Places in the graph.
        images: What it reads at the rows that its rule says.
        others: What it reads whole.
        outputs: What it makes.
        rule: Which rows follow from which.
        norm: The statistics of its image that it needs; None for none.
        is_summary: Its output is no image but a mean over all places.
        work: Its cost, in multiplications.
    """

    nodes: tuple[int, ...]
    images: tuple[str, ...]
    others: tuple[str, ...]
    outputs: tuple[str, ...]
    rule: RowRule
    norm: RowNorm | None
    is_summary: bool
    work: float

    @property
    def statistic(self) -> tuple[str, int] | None:
        """The statistic that it needs: of what image, in how many groups of channels; None for none."""
        return None if self.norm is None else (self.images[0], self.norm.groups)


class RowField:
    """The operators of a graph that can be computed by rows.

    Args:
        graph: The main graph, with sizes at which values are compared.
        known: Its operators may be looked at.
    """

    def __init__(self, graph: OpenGraph, *, known: bool = True) -> None:
        self.graph = graph
        self.rates = _Rates()
        found = [op for op in (row_ops(graph) if known else ()) if _is_known(graph, op) and self.rates.take(op)]
        self.ops: Sequence[RowOp] = tuple(op for op in found if self.rates.is_spatial(op))
        self.at: Mapping[int, int] = {place: number for number, op in enumerate(self.ops) for place in op.nodes}
        self.maker: Mapping[str, int] = {
            name: number for number, op in enumerate(self.ops) if not op.is_summary for name in op.outputs
        }

    @cached_property
    def images(self) -> frozenset[str]:
        """All values that operators read or make by rows."""
        return frozenset(name for op in self.ops for name in (*op.images, *(() if op.is_summary else op.outputs)))

    @cached_property
    def wanted(self) -> frozenset[str]:
        """Images that have to be whole: results of the graph, and what other nodes read."""
        found = set(self.graph.results & self.images)
        for place, node in enumerate(self.graph.nodes):
            if place not in self.at:
                found.update(name for name in names_read(node) if name in self.maker and not self.asks_shape(place))
        return frozenset(found)

    @cached_property
    def heavy(self) -> frozenset[str]:
        """Images worth keeping: what is made with much work, of several others, or in fewer rows than it reads."""
        found: set[str] = set()
        for op in self.ops:
            if op.is_summary:
                continue
            before = max(self.graph.bytes_of(name) for name in op.images)
            smaller = any(self.graph.bytes_of(name) * 2 <= before for name in op.outputs)
            if smaller or len(set(op.images)) > 1 or _multiplies(self.graph.nodes[op.nodes[0]]):
                found.update(op.outputs)
        return frozenset(found)

    @cached_property
    def grids(self) -> Mapping[str, int]:
        """Per image a number; images with the same one have as many rows, at the same places."""
        shapes = self.graph.values.shapes
        keys = {name: (*self.rates.grid(name), shapes[name][Axes.ROWS]) for name in sorted(self.images)}
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys.values()))}
        return {name: numbers[key] for name, key in keys.items()}

    @cached_property
    def work(self) -> float:
        """The cost of all operators, each once."""
        return sum(op.work for op in self.ops)

    @cached_property
    def largest(self) -> int:
        """Bytes of the largest image."""
        return max((self.graph.bytes_of(name) for name in self.images), default=0)

    @cached_property
    def row_bytes(self) -> Mapping[str, float]:
        """Per image the bytes of a row."""
        found = {}
        for name in self.images:
            rows = self.graph.values.shapes[name][Axes.ROWS]
            count = int(rows.at(self.graph.sizes)) if rows is not None else 1
            found[name] = self.graph.bytes_of(name) / max(1, count)
        return found

    def borrows(self, op: RowOp, name: str) -> bool:
        """Return whether a loop reads a weight from outside: one of its own would be larger than images."""
        largest = max(self.graph.bytes_of(one) for one in (*op.images, *op.outputs))
        return self.graph.bytes_of(name) > largest

    def work_in_loop(self, op: RowOp) -> float:
        """Return the cost of an operator in a loop, where weights from outside stop layouts that are quicker."""
        slow = _multiplies(self.graph.nodes[op.nodes[0]]) and any(map(partial(self.borrows, op), op.others))
        return op.work * (_SLOW if slow else 1.0)

    def asks_shape(self, place: int) -> bool:
        """Return whether a node reads nothing but the shapes of values, which are computed anew."""
        node = self.graph.nodes[place]
        return node.op_type == "Shape" and all(name in self.graph.values.integers for name in node.output)


class _Rates:
    """Rows of images as multiples of those of others that they are computed from or with."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, Fraction]] = {}
        self._spatial: set[str] = set()

    def take(self, op: RowOp) -> bool:
        """Add an operator; return False, with nothing added, where its images can't be cut at the same places."""
        wanted = dict.fromkeys(op.images, Fraction(1))
        if not op.is_summary:
            wanted.update(dict.fromkeys(op.outputs, op.rule.rate))
        factors: dict[int, Fraction] = {}
        for name, rate in wanted.items():
            part = self._parts.get(name)
            if part is not None and factors.setdefault(id(part), rate / part[name]) != rate / part[name]:
                return False
        parts = {id(part): part for name in wanted if (part := self._parts.get(name)) is not None}
        for number, part in parts.items():
            wanted.update((name, rate * factors[number]) for name, rate in part.items())
        self._parts.update((name, wanted) for name in wanted)
        if not op.rule.is_pointwise:
            self._spatial.update(op.images)
        return True

    def is_spatial(self, op: RowOp) -> bool:
        """Return whether rows of an operator's images are computed from several others somewhere."""
        return not self._spatial.isdisjoint(self._parts[op.images[0]])

    def grid(self, name: str) -> tuple[int, Fraction]:
        """Return what is equal of images whose rows lie at the same places."""
        part = self._parts[name]
        return id(part), part[name]


def _is_known(graph: OpenGraph, op: RowOp) -> bool:
    """Whether the lengths of an operator's images follow from the sizes of the graph's inputs."""
    lengths = [one for name in (*op.images, *op.outputs) for one in graph.values.shapes[name] if one is not None]
    symbols = {symbol for one in lengths for symbol in one.symbols()}
    return all(graph.values.places[symbol][0] not in graph.maker for symbol in symbols)


def row_ops(graph: OpenGraph) -> Iterator[RowOp]:
    """Yield the operators of a graph that make rows of images of rows of others."""
    grouped = {place: group for group in _normalisations(graph) for place in group[0]}
    for place, node in enumerate(graph.nodes):
        if place in grouped:
            places, norm = grouped[place]
            if place == places[-1]:
                yield _norm_op(graph, places, norm)
            continue
        mean = _mean(graph, node)
        if mean is not None:
            cost = _elements(graph, node.input[0]) * _READ_COST
            rule = RowRule((0,))
            yield RowOp((place,), (node.input[0],), (), (node.output[0],), rule, mean, True, cost)
            continue
        rule_found = rule_of(node, graph.rules, graph.typical_rules)
        if rule_found is not None:
            yield _plain_op(graph, place, rule_found)


def _plain_op(graph: OpenGraph, place: int, rule: RowRule) -> RowOp:
    node = graph.nodes[place]
    images = tuple(node.input[number] for number in rule.images)
    others = tuple(name for number, name in enumerate(node.input) if name and number not in rule.images)
    outputs = tuple(name for name in node.output if name)
    return RowOp((place,), images, others, outputs, rule, None, False, _work(graph, node))


def _norm_op(graph: OpenGraph, places: tuple[int, ...], norm: RowNorm) -> RowOp:
    source, result = graph.nodes[places[0]].input[0], graph.nodes[places[-1]].output[0]
    others = tuple(name for name in (norm.scale, norm.bias) if name)
    cost = _elements(graph, source) * 3 * _READ_COST
    return RowOp(places, (source,), others, (result,), RowRule((0,)), norm, False, cost)


def _work(graph: OpenGraph, node: NodeProto) -> float:
    made = sum(_elements(graph, name) for name in node.output if name) * _READ_COST
    if not _multiplies(node):
        return made
    read, given = ([_shape(graph, name) for name in names] for names in (node.input, node.output))
    return macs_of(op_type(node), {}, read, given) + made


def _multiplies(node: NodeProto) -> bool:
    """Whether a node multiplies what it reads by weights, in windows."""
    return op_type(node) in COUNTED and class_of(op_type(node)) == "window"


def _shape(graph: OpenGraph, name: str) -> tuple[int, ...] | None:
    lengths = [None if one is None else int(one.at(graph.sizes)) for one in graph.values.shapes.get(name, (None,))]
    known = tuple(one for one in lengths if one is not None)
    return known if len(known) == len(lengths) else None


def _elements(graph: OpenGraph, name: str) -> float:
    element = graph.values.elements.get(name)
    bits = element_bits(element) if element else 0
    return graph.bytes_of(name) * 8 / bits if bits else 0.0


def _normalisations(graph: OpenGraph) -> Iterator[tuple[tuple[int, ...], RowNorm]]:
    """Yield normalisations: their nodes, and what they compute."""
    for place, node in enumerate(graph.nodes):
        kind = op_type(node)
        if kind == "InstanceNormalization":
            norm = RowNorm(0, attribute_of(node, "epsilon", 1e-5), node.input[1], node.input[2])
            yield from _instances(graph, place, norm)
        elif kind == "GroupNormalization" and is_float_image(node.input[0], graph.values):
            groups = attribute_of(node, "num_groups", 1)
            scales = graph.values.shapes.get(node.input[1], ())
            by_channel = len(scales) == 1 and scales[0] == graph.values.shapes[node.input[0]][1]
            norm = RowNorm(groups, attribute_of(node, "epsilon", 1e-5), node.input[1], node.input[2], by_channel)
            yield (place,), norm


def _instances(graph: OpenGraph, place: int, norm: RowNorm) -> Iterator[tuple[tuple[int, ...], RowNorm]]:
    """Yield an InstanceNormalization of an image, or one of groups between two reshapes."""
    values, node = graph.values, graph.nodes[place]
    channels = _channels(graph, node.input[0])
    if channels is None:
        return
    norm = RowNorm(channels, norm.epsilon, norm.scale, norm.bias)
    before = graph.maker.get(node.input[0])
    readers = graph.readers.get(node.output[0], ())
    if before is not None and len(readers) == 1 and node.output[0] not in graph.results:
        first, last = graph.nodes[before], graph.nodes[readers[0]]
        image = first.input[0] if first.op_type == "Reshape" else ""
        only = list(graph.readers.get(node.input[0], ())) == [place] and node.input[0] not in graph.results
        reshaped = only and last.op_type == "Reshape" and is_float_image(image, values)
        if reshaped and _is_grouped(graph, image, node, last):
            yield (before, place, readers[0]), norm
            return
    if is_float_image(node.input[0], values):
        yield (place,), norm


def _is_grouped(graph: OpenGraph, image: str, node: NodeProto, last: NodeProto) -> bool:
    """Whether channels of an image are grouped before a normalisation, and are as they were behind it."""
    shapes = graph.values.shapes
    inner, whole, channels = shapes.get(node.input[0], ()), _channels(graph, image), _channels(graph, node.input[0])
    back = shapes.get(last.output[0]) == shapes[image]
    divides = whole is not None and channels is not None and whole % channels == 0
    return back and divides and bool(inner) and inner[0] == shapes[image][0]


def _channels(graph: OpenGraph, name: str) -> int | None:
    shape = graph.values.shapes.get(name, ())
    return shape[1].constant() if len(shape) > 1 and shape[1] is not None else None


def _mean(graph: OpenGraph, node: NodeProto) -> RowNorm | None:
    """Return what a mean over all places is; None for other nodes."""
    kind = op_type(node)
    if kind not in {"GlobalAveragePool", "ReduceMean"} or not is_float_image(node.input[0], graph.values):
        return None
    rank, channels = len(graph.values.shapes[node.input[0]]), _channels(graph, node.input[0])
    if kind == "ReduceMean":
        axes = attribute_of(node, "axes", None) or integers_of(node, 1, graph.values) or ()
        if sorted(axis % rank for axis in axes) != list(range(Axes.ROWS, rank)):
            return None
    return None if channels is None else RowNorm(channels)
