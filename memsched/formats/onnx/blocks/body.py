"""Write groups of nodes as loops: a body computes a block, and blocks are joined behind the loop.

The number of blocks is found at run time from a number of bytes. Blocks differ in length by what the last one lacks, so
they are gathered in sequences. What a body reads as a whole it captures, weights included: the runtime packs those as
it does outside.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import Final

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from memsched.formats.onnx.blocks.held import held_once
from memsched.formats.onnx.blocks.lengths import Lengths
from memsched.formats.onnx.blocks.nodes import replace_nodes
from memsched.formats.onnx.blocks.regions import Nest, OpenGraph, rows_of
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.structure import graphs_of, initializers, values_of
from memsched.formats.onnx.types import element_bits
from memsched.ops.table import SHAPED

__all__ = ["NestWriter", "names_of", "regenerated", "write"]

_REST: Final = Polynomial((((), Fraction(-1)),))
"""What a reshape is told of the axis that follows from the others."""

_LEAST_BLOCK: Final = 16
_QUICK_BLOCK: Final = 256
"""Rows of a block: products with fewer take longer."""

_LIVE: Final = 2
"""Large values that a block holds at once."""


def write(
    model: ModelProto, graph: OpenGraph, nests: Sequence[Nest], block_bytes: int, *, once: bool = False
) -> ModelProto:
    """Return a copy of ``model`` with groups of its nodes as loops.

    Args:
        graph: Its main graph.
        nests: Groups that have no value in common that is made.
        block_bytes: What the large values of a block may take together.
        once: Weights of products in loops are held once, and are not packed.
    """
    written = ModelProto()
    written.CopyFrom(model)
    lengths = Lengths(graph.values, names_of(model.graph))
    loops: dict[int, list[NodeProto]] = {}
    gone: set[int] = set()
    for number, nest in enumerate(nests):
        label = lengths.name(f"blocks_{number}")
        loops.setdefault(rows_of(nest).nodes[-1], []).extend(
            NestWriter(graph, nest, lengths, label, block_bytes).nodes()
        )
        gone.update(graph.maker[name] for name in nest[0].made)
    regions = [rows_of(nest) for nest in nests]
    inner = {name for region in regions for place in region.nodes for name in graph.nodes[place].output}
    gone |= regenerated(graph, inner - {name for region in regions for name in region.made}, lengths)
    nodes: list[NodeProto] = []
    for place, node in enumerate(graph.nodes):
        if place not in gone:
            nodes.append(node)
        nodes.extend(loops.get(place, ()))
    written.graph.initializer.extend(lengths.initializers)
    replace_nodes(written.graph, [*lengths.nodes, *nodes])
    if once:
        known = len(lengths.nodes), len(lengths.initializers)
        held_once(written.graph, list(written.graph.node), lengths)
        written.graph.initializer.extend(lengths.initializers[known[1] :])
        replace_nodes(written.graph, [*lengths.nodes[known[0] :], *written.graph.node])
    return written


def names_of(graph: GraphProto) -> set[str]:
    """Return all names of a graph and of the bodies below it."""
    found: set[str] = set()
    for scope in graphs_of(graph):
        found |= {value.name for value in values_of(scope.graph)}
        found.update(initializers(scope.graph))
        for node in scope.graph.node:
            found.update((node.name, *node.input, *node.output))
    return found


def regenerated(graph: OpenGraph, lost: Collection[str], lengths: Lengths) -> set[int]:
    """Make integers anew that were computed from the shapes of lost values; return the nodes that made them."""
    found: set[int] = set()
    for place, node in enumerate(graph.nodes):
        if not all(name in graph.values.integers for name in node.output) or not any(
            name in lost for name in node.input
        ):
            continue
        found.add(place)
        for name in node.output:
            vector = lengths.vector(graph.values.integers[name])
            lengths.alias("Squeeze" if name in graph.values.scalars else "Identity", [vector], name)
    return found


class NestWriter:
    """Writes one group: a loop, or a loop within a loop.

    Args:
        levels: The group as it is cut by each loop, the outermost first.
        block_bytes: What the largest values of an innermost block may take.
    """

    def __init__(self, graph: OpenGraph, levels: Nest, lengths: Lengths, label: str, block_bytes: int) -> None:
        self.graph, self.levels, self.lengths = graph, levels, lengths
        self.labels = [f"{label}_{'outer_' * (len(levels) - 1 - depth)}".rstrip("_") for depth in range(len(levels))]
        self.rows = [f"{one}_rows" for one in self.labels]
        self.region = rows_of(levels)
        depths = {place: depth for depth, level in enumerate(levels) for place in level.nodes}
        self.depths = {place: depths[place] for place in self.region.nodes}
        self.made = {name: depth for place, depth in self.depths.items() for name in graph.nodes[place].output}
        self.counts = self._counts(block_bytes)

    def nodes(self, depth: int = 0) -> list[NodeProto]:
        """Return the nodes that stand for the group in the graph around the loop at ``depth``."""
        label, level = self.labels[depth], self.levels[depth]
        count, size = self.counts[depth]
        found: list[NodeProto] = []
        empty = [f"{label}_empty_{number}" for number in range(len(level.made))]
        blocks = [f"{label}_blocks_{number}" for number in range(len(level.made))]
        for name, value in zip(empty, level.made, strict=True):
            found.append(
                helper.make_node("SequenceEmpty", [], [name], name=name, dtype=self.graph.values.elements[value])
            )
        body = self._body(depth, size)
        found.append(helper.make_node("Loop", [count, "", *empty], blocks, name=label, body=body))
        for name, value in zip(blocks, level.made, strict=True):
            result = value if not depth else self._inner(value, depth - 1)
            axis = level.cuts[value].axis
            found.append(helper.make_node("ConcatFromSequence", [name], [result], name=f"{name}_joined", axis=axis))
        return found

    def _inner(self, name: str, depth: int) -> str:
        """Return what a value is called in the body at ``depth``."""
        return f"{name}_{self.labels[depth]}"

    def _counts(self, block_bytes: int) -> list[tuple[str, str]]:
        """Return per loop the number of its blocks, a scalar, and the rows of each, a vector."""
        lengths = self.lengths
        unit = lengths.at_least(self._unit_bytes(), 1)
        fitting = lengths.node("Div", [lengths.constant([block_bytes]), unit], "rows_that_fit")
        rows = lengths.one(self.region.length)
        found = {}
        for level in self.levels:
            if level is not self.region:
                quick = lengths.node("Min", [rows, lengths.constant([_QUICK_BLOCK])], "rows_of_a_quick_block")
                most = lengths.at_least(lengths.node("Div", [fitting, quick], "heads_that_fit"), 1)
                found[level.length] = self._blocks(lengths.one(level.length), most)
                fitting = lengths.node("Div", [fitting, found[level.length][1]], "rows_that_fit")
        found[self.region.length] = self._blocks(rows, lengths.at_least(fitting, _LEAST_BLOCK))
        return [found[level.length] for level in self.levels]

    def _blocks(self, rows: str, most: str) -> tuple[str, str]:
        count = self.lengths.at_least(self.lengths.ratio(rows, most), 1)
        count = self.lengths.node("Mul", [count, self.lengths.guard()], "number_of_blocks")
        return self.lengths.node("Squeeze", [count], "blocks"), self.lengths.ratio(rows, count)

    def _unit_bytes(self) -> str:
        """Return the bytes of what is live at once, one row of the cut axes each, of the largest values; a vector."""
        lengths, region = self.lengths, self.region
        total = ""
        for name in sorted(region.largest or region.made, key=self.graph.bytes_of)[-_LIVE:]:
            width = element_bits(self.graph.values.elements[name]) // 8
            product = lengths.constant([max(width, 1)])
            cuts = [level.cuts[name] for level in self.levels]
            whole = {cut.axis for cut in cuts if not cut.merged}
            for axis, length in enumerate(self.graph.values.shapes[name]):
                if length is not None and axis not in whole and length.constant() != 1:
                    product = lengths.node("Mul", [product, lengths.one(length)], "bytes_of_a_row")
            for level, cut in zip(self.levels, cuts, strict=True):
                if cut.merged:
                    product = lengths.node("Div", [product, lengths.one(level.length)], "bytes_of_a_row")
            total = lengths.node("Add", [total, product], "bytes_of_a_row") if total else product
        return total

    def _body(self, depth: int, size: str) -> GraphProto:
        label, level = self.labels[depth], self.levels[depth]
        step, before, after = f"{label}_step", f"{label}_condition", f"{label}_goes_on"
        nodes = self.bounds(depth, step, size)
        nodes += self.slices(depth)
        for place, own in self.depths.items():
            if own == depth:
                nodes += self.node(place)
        if depth + 1 < len(self.levels):
            nodes += self.nodes(depth + 1)
        states = [f"{label}_before_{number}" for number in range(len(level.made))]
        results = [f"{label}_after_{number}" for number in range(len(level.made))]
        for state, result, value in zip(states, results, level.made, strict=True):
            inner = self._inner(value, depth)
            nodes.append(helper.make_node("SequenceInsert", [state, inner], [result], name=f"{result}_node"))
        nodes.append(helper.make_node("Identity", [before], [after], name=f"{after}_node"))
        elements = [self.graph.values.elements[value] for value in level.made]
        kinds = [helper.make_sequence_type_proto(helper.make_tensor_type_proto(one, None)) for one in elements]
        inputs = [
            helper.make_tensor_value_info(step, TensorProto.INT64, []),
            helper.make_tensor_value_info(before, TensorProto.BOOL, []),
            *(helper.make_value_info(name, kind) for name, kind in zip(states, kinds, strict=True)),
        ]
        outputs = [
            helper.make_tensor_value_info(after, TensorProto.BOOL, []),
            *(helper.make_value_info(name, kind) for name, kind in zip(results, kinds, strict=True)),
        ]
        return helper.make_graph(nodes, f"{label}_body", inputs, outputs)

    def bounds(self, depth: int, step: str, size: str) -> list[NodeProto]:
        """Return what computes the first row of a block, the one behind the last, and their number."""
        label = self.labels[depth]
        start, end, stop, rows = f"{label}_start", f"{label}_end", f"{label}_stop", self.rows[depth]
        length = self.lengths.one(self.levels[depth].length)
        return [
            helper.make_node("Mul", [step, size], [start], name=f"{start}_node"),
            helper.make_node("Add", [start, size], [end], name=f"{end}_node"),
            helper.make_node("Min", [end, length], [stop], name=f"{stop}_node"),
            helper.make_node("Sub", [stop, start], [rows], name=f"{rows}_node"),
        ]

    def slices(self, depth: int) -> list[NodeProto]:
        """Return what cuts blocks from values that a body reads from outside."""
        label = self.labels[depth]
        found: dict[str, NodeProto] = {}
        for place, wanted in self.levels[depth].needs.items():
            for number, cut in enumerate(wanted):
                name = self.graph.nodes[place].input[number]
                if cut is None or self.made.get(name, -1) >= depth:
                    continue
                given, result = self.source(place, number, depth - 1), self.source(place, number, depth)
                axis = self.lengths.constant([cut.axis])
                found[result] = helper.make_node(
                    "Slice", [given, f"{label}_start", f"{label}_end", axis], [result], name=f"{result}_node"
                )
        return list(found.values())

    def source(self, place: int, number: int, depth: int) -> str:
        """Return what the body at ``depth`` reads as an input of a node: the value, or its block."""
        name: str = self.graph.nodes[place].input[number]
        made = self.made.get(name, -1)
        found = name if made < 0 else self._inner(name, made)
        for label, level in zip(self.labels[made + 1 : depth + 1], self.levels[made + 1 : depth + 1], strict=True):
            found += f"_{label}" if level.needs[place][number] is not None else ""
        return found

    def node(self, place: int) -> list[NodeProto]:
        """Return a node of a body, one of the group for a block, behind what computes its shape."""
        given, depth = self.graph.nodes[place], self.depths[place]
        node = NodeProto()
        node.CopyFrom(given)
        node.name = f"{given.name or given.output[0]}_{self.labels[depth]}"
        for number, name in enumerate(given.output):
            node.output[number] = self._inner(name, depth) if name else ""
        for number, name in enumerate(given.input):
            node.input[number] = self.source(place, number, depth) if name else ""
        if given.op_type not in SHAPED:
            return [node]
        shape, made = self._shape(given.op_type, given.output[0], depth)
        node.input[SHAPED[given.op_type]] = shape
        return [*made, node]

    def _shape(self, kind: str, name: str, depth: int) -> tuple[str, list[NodeProto]]:
        """Return the shape of a block of a value, as a reshape or an expansion is told it, with what computes it."""
        cuts = [level.cuts[name] for level in self.levels[: depth + 1]]
        rows = {cut.axis: rows for cut, rows in zip(cuts, self.rows, strict=False)}
        if kind == "Reshape":
            rows[self.region.cuts[name].axis] = self.lengths.vector([_REST])
        parts: list[str] = []
        plain: list[Polynomial] = []
        for axis, length in enumerate(self.graph.values.shapes[name]):
            if axis in rows:
                parts += [*([self.lengths.vector(plain)] if plain else []), rows[axis]]
                plain = []
            elif length is not None:
                plain.append(length)
        parts += [self.lengths.vector(plain)] if plain else []
        result = f"{self._inner(name, depth)}_shape"
        return result, [helper.make_node("Concat", parts, [result], name=f"{result}_node", axis=0)]
