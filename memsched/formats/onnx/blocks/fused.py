"""Attention by ONNX Runtime's kernel com.microsoft.MultiHeadAttention, which holds a few scores at a time.

That kernel takes another way, with all scores, where it is given a mask. A mask that is the same for all queries is
given as one more element of queries, which is 1, and of keys, which is what is added to their scores: the sums are the
same. It adds up exponentials in another order than a softmax of whole rows, so that floats are not bit-equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from memsched.formats.blocks import BlockPoint, BlockRow
from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.blocks.attention import OpenAttention, RowlessMask, find_attention
from memsched.formats.onnx.blocks.body import names_of, regenerated
from memsched.formats.onnx.blocks.lengths import Lengths
from memsched.formats.onnx.blocks.nodes import replace_nodes
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.regions import OpenGraph
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.blocks.tokens import groups, is_weightless, points_of
from memsched.formats.onnx.standard import Axes
from memsched.formats.onnx.structure import op_type
from memsched.graph.kernel import LARGEST_FLOAT

__all__ = ["kernel_points", "write_kernels"]

_MICROSOFT: Final = "com.microsoft"
_KERNEL: Final = "MultiHeadAttention"
_ONE: Final = Polynomial((((), Fraction(1)),))


def kernel_points(model: ModelProto, values: OpenValues) -> Sequence[BlockPoint]:
    """Return ways to compute attention by the kernel: by itself, and with the rest in loops over blocks of tokens.

    The first has loops where what they compute reads no large weights, such as other attention.

    Args:
        model: With its weights; it is not changed.
    """
    graph = OpenGraph(model.graph, values, values.typical)
    found = find_attention(graph, model.graph)
    if not found:
        return ()
    rows = tuple(_row(graph, one, number) for number, one in enumerate(found))
    written = write_kernels(model, graph, found)
    rest, nests = groups(written, values)
    points = []
    for number, point in enumerate(points_of(written, rest, nests)):
        name = f"attention by kernels, the rest {point.name}"
        build = partial(_with_loops, model, graph, found, number)
        points.append(BlockPoint(name, (*rows, *point.rows), build, kernels=True))
    alone = BlockPoint("attention by kernels", rows, partial(_written, model, graph, found), kernels=True)
    points.insert(int(any(is_weightless(written, rest, nest) for nest in nests)), alone)
    return points


def _row(graph: OpenGraph, one: OpenAttention, number: int) -> BlockRow:
    names = tuple(graph.nodes[place].name or graph.nodes[place].output[0] for place in one.nodes)
    return BlockRow("kernel", f"attention_{number}", "", names)


def _written(model: ModelProto, graph: OpenGraph, found: Sequence[OpenAttention]) -> bytes:
    data: bytes = write_kernels(model, graph, found).SerializeToString(deterministic=True)
    return data


def _with_loops(model: ModelProto, graph: OpenGraph, found: Sequence[OpenAttention], number: int) -> bytes:
    written = write_kernels(model, graph, found)
    return points_of(written, *groups(written, graph.values))[number].build()


def write_kernels(model: ModelProto, graph: OpenGraph, found: Sequence[OpenAttention]) -> ModelProto:
    """Return a copy of ``model`` with the kernel in the place of attention.

    Args:
        graph: Its main graph.
        found: Attention in it, which has no node in common.
    """
    written = ModelProto()
    written.CopyFrom(model)
    writer = _KernelWriter(graph, Lengths(graph.values, names_of(model.graph)))
    kernels = {one.nodes[-1]: writer.kernel(one, number) for number, one in enumerate(found)}
    gone = {place for one in found for place in one.nodes} | writer.replaced
    kept = {name for nodes in kernels.values() for node in nodes for name in node.output}
    lost = {name for place in gone for name in graph.nodes[place].output} - kept
    gone |= regenerated(graph, lost, writer.lengths)
    nodes: list[NodeProto] = []
    for place, node in enumerate(graph.nodes):
        nodes += [] if place in gone else [node]
        nodes += kernels.get(place, [])
    written.graph.initializer.extend((*writer.lengths.initializers, *writer.numbers.values()))
    replace_nodes(written.graph, [*writer.lengths.nodes, *writer.masks.values(), *nodes])
    if not any(one.domain == _MICROSOFT for one in written.opset_import):
        written.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))
    return written


class _KernelWriter:
    """Makes the nodes that stand for attention.

    Attributes:
        masks: Nodes that make rows of masks, by the names that they give.
        numbers: Constants, by name.
        replaced: Nodes behind attention whose outputs kernels give.
    """

    def __init__(self, graph: OpenGraph, lengths: Lengths) -> None:
        self.graph, self.lengths = graph, lengths
        self.masks: dict[str, NodeProto] = {}
        self.numbers: dict[str, TensorProto] = {}
        self.replaced: set[int] = set()
        self._label = ""
        self._nodes: list[NodeProto] = []
        self._columns: dict[tuple[object, ...], str] = {}
        self._rows: dict[str, str] = {}

    def kernel(self, one: OpenAttention, number: int) -> list[NodeProto]:
        """Return the nodes that give a result of attention, and what reads it under another shape."""
        self._label, self._nodes = self.lengths.name(f"attention_{number}"), []
        shapes = self.graph.values.shapes
        headed = len(shapes[one.queries]) == Axes.HEADED
        batch, rows, columns = shapes[one.queries][0], shapes[one.queries][-2], shapes[one.values][-2]
        order = Axes.TOKENS_FIRST if headed else (0, 1, 2)
        turned = (0, 3, 1, 2) if headed else (0, 2, 1)
        more = int(one.mask is not None)
        heads = [Polynomial(()) if length is None else length for length in shapes[one.queries][1:-2]]
        queries, keys = self._moved(one.queries, order), self._moved(one.keys, turned)
        if one.mask is not None and batch is not None and rows is not None and columns is not None:
            ones = self.lengths.node(
                "Expand", [self._number(1.0), self.lengths.vector([batch, rows, *heads, _ONE])], "ones_of_queries"
            )
            column = self._column(one.mask, one.scale, [batch, *heads, _ONE, columns])
            queries, keys = self._wider(queries, ones), self._wider(keys, column)
        depths = [self._depth(name, axis) for name, axis in ((one.queries, -1), (one.values, -1))]
        inputs = [
            self._flat(queries, one.heads, depths[0] + more, headed=headed),
            self._flat(keys, one.heads, depths[0] + more, headed=headed),
            self._flat(self._moved(one.values, order), one.heads, depths[1], headed=headed),
        ]
        if not number:
            inputs[0] = self._guarded(inputs[0], one.heads * (depths[0] + more))
        self._give(one, inputs, depths[1], headed=headed)
        return self._nodes

    def _depth(self, name: str, axis: int) -> int:
        length = self.graph.values.shapes[name][axis]
        return (length.constant() or 1) if length is not None else 1

    def _node(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Add a node; return what it gives."""
        output = output or self.lengths.name(f"{self._label}_{kind.lower()}")
        name = self.lengths.name(f"{output}_node")
        self._nodes.append(helper.make_node(kind, list(inputs), [output], name=name, **attributes))
        return output

    def _moved(self, name: str, order: Sequence[int]) -> str:
        """Return a value with its axes in another order, from before what else moved them."""
        graph, order = self.graph, list(order)
        while (place := graph.maker.get(name)) is not None and op_type(graph.nodes[place]) == "Transpose":
            before = attribute_of(graph.nodes[place], "perm", None) or list(range(len(order)))[::-1]
            name, order = graph.nodes[place].input[0], [before[axis] for axis in order]
        return name if order == sorted(order) else self._node("Transpose", [name], perm=order)

    def _flat(self, name: str, heads: int, depth: int, *, headed: bool) -> str:
        """Return [texts, tokens, heads, depth] with its last axes in one, from before they were parted."""
        if not headed:
            return name
        place, shapes = self.graph.maker.get(name), self.graph.values.shapes
        if place is not None and op_type(self.graph.nodes[place]) == "Reshape":
            source = self.graph.nodes[place].input[0]
            given, parted = shapes.get(source, ()), shapes[name]
            if len(given) == len(parted) - 1 and given[:2] == parted[:2] and None not in given[:2]:
                return str(source)
        return self._node("Reshape", [name, self.lengths.constant([0, 0, heads * depth])])

    def _wider(self, name: str, column: str) -> str:
        """Return a value with one more element behind each of its vectors."""
        return self._node("Concat", [name, column], axis=-1)

    def _guarded(self, name: str, width: int) -> str:
        """Return a value whose shape is told by nodes that fail where a length is out of its range."""
        shape = self.lengths.node("Mul", [self.lengths.constant([0, 0, width]), self.lengths.guard()], "shape_in_range")
        return self._node("Reshape", [name, shape])

    def _give(self, one: OpenAttention, inputs: Sequence[str], depth: int, *, headed: bool) -> None:
        """Add the kernel, and what gives its result the shapes that are read."""
        graph, joined, moved = self.graph, "", []
        if headed and one.result not in graph.results:
            for place in graph.readers.get(one.result, ()):
                node = graph.nodes[place]
                if op_type(node) == "Transpose" and attribute_of(node, "perm", None) == list(Axes.TOKENS_FIRST):
                    moved.append(place)
        for place in moved:
            joined = joined or self._joined(graph.nodes[place].output[0], one.heads * depth)
        plain = one.result if not headed else joined or self.lengths.name(f"{self._label}_result")
        attributes = {"domain": _MICROSOFT, "num_heads": one.heads, "scale": one.scale}
        self._node(_KERNEL, inputs, plain, **attributes)
        if not headed:
            return
        parted = self._node("Reshape", [plain, self.lengths.constant([0, 0, one.heads, depth])])
        self._node("Transpose", [parted], one.result, perm=list(Axes.TOKENS_FIRST))
        for place in moved:
            self.replaced.add(place)
            self._node("Identity", [parted], graph.nodes[place].output[0])

    def _joined(self, name: str, width: int) -> str:
        """Return what a value is called once heads and depth are one axis; "" where nothing does that."""
        graph, shapes = self.graph, self.graph.values.shapes
        for place in graph.readers.get(name, ()):
            node = graph.nodes[place]
            made = shapes.get(node.output[0], ())
            if op_type(node) != "Reshape" or node.input[0] != name or len(made) != len(shapes[name]) - 1:
                continue
            if made[:2] == shapes[name][:2] and None not in made[:2] and self._depth(node.output[0], -1) == width:
                self.replaced.add(place)
                output: str = node.output[0]
                return output
        return ""

    # Masks

    def _column(self, mask: RowlessMask, scale: float, shape: Sequence[Polynomial]) -> str:
        """Return what is added to the scores of keys, before they are scaled, as [texts, tokens, heads, 1].

        Args:
            shape: Of one row of scores for each head.
        """
        key = (mask, scale, tuple(shape))
        if key not in self._columns:
            row = self._row(mask)
            nothing, least = self._number(0.0), self._number(-LARGEST_FLOAT)
            if mask.kept is None:
                row = self.lengths.node("Mul", [row, self._number(1 / scale)], "added_to_products")
                row = self.lengths.node("Max", [row, least], "added_to_products")
            else:
                row = self.lengths.node("Where", [row, *((nothing, least) if mask.kept else (least, nothing))], "added")
            wide = self.lengths.node("Expand", [row, self.lengths.vector(shape)], "added_to_all_heads")
            order = (0, 3, 1, 2) if len(shape) == Axes.HEADED else (0, 2, 1)
            self._columns[key] = self.lengths.node("Transpose", [wide], "added_to_keys", perm=list(order))
        return self._columns[key]

    def _row(self, mask: RowlessMask) -> str:
        """Return one row of a mask, of the nodes that make it."""
        self._rows.update(mask.narrow)
        for place in mask.made:
            node = NodeProto()
            node.CopyFrom(self.graph.nodes[place])
            given = str(node.output[0])
            if given in self._rows:
                continue
            output = self.lengths.name(f"{given}_row")
            node.input[:] = [self._rows.get(name, name) for name in node.input]
            node.output[:] = [output]
            node.name = self.lengths.name(f"{output}_node")
            self._rows[given] = output
            self.masks[output] = node
        return self._rows.get(mask.name, mask.name)

    def _number(self, number: float) -> str:
        """Return a constant."""
        name = f"number_{number!r}"
        if name not in self.numbers:
            self.numbers[name] = numpy_helper.from_array(np.array([number], np.float32), self.lengths.name(name))
        return str(self.numbers[name].name)
