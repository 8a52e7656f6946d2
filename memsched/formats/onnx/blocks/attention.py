"""Attention as exporters write it: products of queries and keys, scaled, masked, a softmax, and a product with values.

What is found has a mask that is the same for all queries, or none: of such attention ONNX Runtime's kernel
MultiHeadAttention never holds all scores. Others, causal masks among them, are computed in loops.
"""

from __future__ import annotations

from typing import Final

from onnx import GraphProto, NodeProto

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.attributes import ConstantValues, attribute_of
from memsched.formats.onnx.blocks.cuts import is_elementwise
from memsched.formats.onnx.blocks.regions import OpenGraph
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.standard import Axes, ElementType
from memsched.formats.onnx.structure import op_type

__all__ = ["OpenAttention", "RowlessMask", "find_attention"]

_MOST_FILL: Final = -1e6
"""What replaces scores that do not count is no more than this: its share of a softmax is 0."""

_SCALES: Final = frozenset({"Div", "Mul"})
_MOST_NODES: Final = 64
"""A mask may be made of so many."""


class RowlessMask(FrozenValue, frozen=True):
    """What is added to the scores of a key, whatever the query.

    Attributes:
        name: A value of which only one row is needed.
        kept: Whether scores stay where ``name`` is true, and count nothing elsewhere; the other way round; None: it is
            what is added.
        made: The nodes that have to be computed anew, of one row, in order.
        narrow: Values that have one row, by the values that those nodes read as they are.
    """

    name: str
    kept: bool | None
    made: tuple[int, ...]
    narrow: tuple[tuple[str, str], ...]


class OpenAttention(FrozenValue, frozen=True):
    """Attention in a main graph.

    Attributes:
        nodes: From the product of queries and keys to the one with values.
        queries: [texts, heads, rows, depth], or without the axis of heads, as the other values.
        keys: [texts, heads, depth, columns].
        values: [texts, heads, columns, depth of values].
        result: [texts, heads, rows, depth of values].
        heads: 1 where there is no such axis.
        scale: What products are multiplied with.
        mask: None for none.
    """

    nodes: tuple[int, ...]
    queries: str
    keys: str
    values: str
    result: str
    heads: int
    scale: float
    mask: RowlessMask | None


def find_attention(graph: OpenGraph, proto: GraphProto) -> list[OpenAttention]:
    """Return the attention of a graph that a kernel computes without all scores at once.

    Args:
        proto: The same graph, with its constants.
    """
    constants = ConstantValues(proto)
    inputs = {value.name for value in proto.input}
    found: list[OpenAttention] = []
    taken: set[int] = set()
    for place, node in enumerate(graph.nodes):
        one = _ScoreChain(graph, constants, inputs, place).attention() if op_type(node) == "MatMul" else None
        if one is not None and taken.isdisjoint(one.nodes):
            found.append(one)
            taken.update(one.nodes)
    return found


class _ScoreChain:
    """Follows scores from the product that makes them.

    Args:
        inputs: Names of graph inputs, which may have a default that is no constant.
    """

    def __init__(self, graph: OpenGraph, constants: ConstantValues, inputs: set[str], place: int) -> None:
        self.graph, self.constants, self.inputs = graph, constants, inputs
        self.nodes = [place]
        self.scale = 1.0
        self.mask: RowlessMask | None = None

    def attention(self) -> OpenAttention | None:
        """Return what begins at the product; None where it is no attention that is known."""
        graph, first = self.graph, self.graph.nodes[self.nodes[0]]
        scores = first.output[0]
        while (reader := self._reader(scores)) is not None:
            node = graph.nodes[reader]
            self.nodes.append(reader)
            if op_type(node) == "Softmax":
                break
            if not self._absorb(node, scores):
                return None
            scores = node.output[0]
        else:
            return None
        rank = len(graph.values.shapes.get(scores, ()))
        if attribute_of(node, "axis", -1) % max(rank, 1) != rank - 1:
            return None
        last = self._reader(node.output[0])
        if last is None or op_type(graph.nodes[last]) != "MatMul" or graph.nodes[last].input[0] != node.output[0]:
            return None
        self.nodes.append(last)
        return self._checked(first.input[0], first.input[1], graph.nodes[last].input[1], graph.nodes[last].output[0])

    def _reader(self, name: str) -> int | None:
        """Return the one node that reads a value's elements."""
        graph = self.graph
        if name in graph.results or name in graph.anchors:
            return None
        readers = [
            place
            for place in graph.readers.get(name, ())
            if not set(graph.nodes[place].output) <= graph.values.integers.keys()
        ]
        return readers[0] if len(readers) == 1 else None

    def _absorb(self, node: NodeProto, scores: str) -> bool:
        """Take in a node between the product and the softmax; return whether that is possible."""
        kind, shape = op_type(node), self.graph.values.shapes.get(scores)
        if self.graph.values.shapes.get(node.output[0]) != shape or list(node.input).count(scores) != 1:
            return False
        if self.mask is not None:
            return kind == "Identity"
        if kind in _SCALES:
            return self._scaled(kind, node, scores)
        if kind == "Add":
            self.mask = self._rowless(next(name for name in node.input if name != scores), None)
            return self.mask is not None
        if kind == "Where" and node.input[0] != scores:
            place = list(node.input).index(scores)
            fill = self._number(node.input[3 - place])
            if fill is None or not float("-inf") < fill <= _MOST_FILL:
                return False
            self.mask = self._rowless(node.input[0], place == 1)
            return self.mask is not None
        return kind == "Identity"

    def _scaled(self, kind: str, node: NodeProto, scores: str) -> bool:
        place = list(node.input).index(scores)
        number = self._number(node.input[1 - place])
        if number is None or not 1e-6 < abs(number) < 1e6 or (kind == "Div" and place):
            return False
        self.scale *= number if kind == "Mul" else 1 / number
        return True

    def _number(self, name: str) -> float | None:
        values = None if name in self.inputs else self.constants.get(name)
        return float(values[0]) if values is not None and len(values) == 1 else None

    def _rowless(self, name: str, kept: bool | None) -> RowlessMask | None:
        """Return a mask where it does not depend on the query."""
        found = _MaskRows(self.graph, self.constants)
        return (
            RowlessMask(name, kept, tuple(sorted(found.made)), tuple(found.narrow.items())) if found.add(name) else None
        )

    def _checked(self, queries: str, keys: str, values: str, result: str) -> OpenAttention | None:
        graph = self.graph
        shapes = [graph.values.shapes.get(name, ()) for name in (queries, keys, values)]
        ranks = {len(shape) for shape in shapes}
        names = (queries, keys, values, result)
        if ranks not in ({Axes.HEADED}, {Axes.FLAT}) or any(
            graph.values.elements.get(name) != ElementType.FLOAT for name in names
        ):
            return None
        if any(length is None for shape in shapes for length in shape):
            return None
        query, key, value = shapes
        before = len(query) - 2
        if query[:before] != key[:before] or key[:before] != value[:before]:
            return None
        heads = _constant(query[1]) if before == 2 else 1
        if not heads or not _constant(query[-1]) or not _constant(value[-1]) or key[-1] != value[-2]:
            return None
        if self.mask is not None and (self.scale <= 0 or not self._fits(key[-1])):
            return None
        if len(graph.values.shapes.get(result, ())) != len(query):
            return None
        return OpenAttention(tuple(self.nodes), queries, keys, values, result, heads, self.scale, self.mask)

    def _fits(self, columns: Polynomial | None) -> bool:
        """Whether a mask has a number for each key."""
        if self.mask is None:
            return True
        values, name = self.graph.values, self.mask.name
        shape, wanted = values.shapes.get(name, ()), ElementType.FLOAT if self.mask.kept is None else ElementType.BOOL
        return len(shape) > 0 and shape[-1] == columns and values.elements.get(name) == wanted


class _MaskRows:
    """Finds whether all rows of a value are the same, and what makes one of them.

    Attributes:
        made: Nodes to compute of one row.
        narrow: What stands for values that these read, by their names.
    """

    def __init__(self, graph: OpenGraph, constants: ConstantValues) -> None:
        self.graph, self.constants = graph, constants
        self.made: set[int] = set()
        self.narrow: dict[str, str] = {}

    def add(self, name: str) -> bool:
        """Whether all rows of a value are the same."""
        waiting = [name]
        seen: set[str] = set()
        while waiting:
            one = waiting.pop()
            if one in seen:
                continue
            seen.add(one)
            if self._is_row(one):
                if not self._is_finite(one):
                    return False
                continue
            place = self.graph.maker.get(one)
            if place is None or len(self.made) == _MOST_NODES:
                return False
            node = self.graph.nodes[place]
            if op_type(node) == "Expand" and self._is_row(node.input[0]) and self._same_columns(one, node.input[0]):
                self.narrow[one] = node.input[0]
            elif is_elementwise(op_type(node)) and len(node.output) == 1:
                self.made.add(place)
                waiting.extend(read for read in node.input if read)
            else:
                return False
        return True

    def _is_row(self, name: str) -> bool:
        shape = self.graph.values.shapes.get(name)
        return shape is not None and (len(shape) < 2 or _constant(shape[-2]) == 1)

    def _same_columns(self, wide: str, narrow: str) -> bool:
        shapes = self.graph.values.shapes
        return bool(shapes[narrow]) and shapes[narrow][-1] == shapes[wide][-1]

    def _is_finite(self, name: str) -> bool:
        """Whether nothing that a value is made of is infinite: where all scores get that, no weight is a number."""
        waiting, seen = [name], {name}
        while waiting and len(seen) < _MOST_NODES:
            one = waiting.pop()
            if any(abs(number) == float("inf") for number in self.constants.get(one) or ()):
                return False
            place = self.graph.maker.get(one)
            read = [] if place is None else [other for other in self.graph.nodes[place].input if other not in seen]
            waiting += read
            seen.update(read)
        return True


def _constant(length: Polynomial | None) -> int | None:
    return None if length is None else length.constant()
