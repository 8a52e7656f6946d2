"""What is computed for one block of rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.blocks.lengths import Lengths
from memsched.formats.onnx.blocks.rows.field import RowField, RowNorm, RowOp
from memsched.formats.onnx.blocks.rows.loops import RowLoop, Span, Statistic, spans_of
from memsched.formats.onnx.blocks.rows.nodes import BodyNodes, blocks_value, branch, value
from memsched.formats.onnx.blocks.rows.rules import enlargement
from memsched.formats.onnx.standard import Axes, Opset

__all__ = ["Carried", "Outer", "RowWriter", "Totals"]


Totals = tuple[str, str, str]
"""Number of elements, mean, and squares of what is apart from it."""


@dataclass(frozen=True, slots=True)
class Outer:
    """The graph around loops.

    Attributes:
        opset: The version of its operator set.
        sequences: Images that lie in blocks: the name of the sequence, the rows of a block, the number of blocks.
        weights: Its initializers.
        whole: Images that loops make and that are joined.
        tiny: Per element type a small block.
        initializers: Constants that were made.
        totals: Per statistic of a loop that is over what was added up.
    """

    field: RowField
    lengths: Lengths
    opset: int
    sequences: dict[str, tuple[str, tuple[str, str]]]
    weights: dict[str, TensorProto]
    whole: frozenset[str]
    tiny: dict[int, str]
    initializers: list[TensorProto] = dataclasses.field(default_factory=list)
    totals: dict[Statistic, Totals] = dataclasses.field(default_factory=dict)

    def element(self, image: str) -> int:
        """Return the element type of an image."""
        return self.field.graph.values.elements[image]

    def constant(self, values: object, kind: type[np.generic], base: str) -> str:
        """Return a constant."""
        name = self.lengths.name(base)
        self.initializers.append(numpy_helper.from_array(np.array(values, dtype=kind), name))
        return name

    def zero(self, label: str) -> str:
        """Return what sums begin with."""
        return self.constant([[[0.0]]], np.float64, f"{label}_zero")

    def is_filled(self, name: str, number: float) -> bool:
        """Return whether an initializer holds one number everywhere, as far as that is quick to see."""
        tensor = self.weights.get(name)
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return False
        return bool((numpy_helper.to_array(tensor) == number).all())


class _Rows(FrozenValue, frozen=True):
    """Some rows of an image in a body.

    Attributes:
        name: Of the value.
        rate: Rows of the image per row of the loop's targets.
        above: Rows above those that lie where the block does.
        tail: What says where they end; rows that end at the same place have the same.
    """

    name: str
    rate: Fraction
    above: int
    tail: object


class Carried(FrozenValue, frozen=True):
    """What a loop of the graph hands from block to block.

    Attributes:
        blocks: Per image the sequence of its blocks.
        sums: Per statistic what was added up.
        eaten: Images whose blocks are dropped, as no block behind reads them.
    """

    blocks: Mapping[str, str]
    sums: Mapping[Statistic, Totals]
    eaten: frozenset[str] = frozenset()


class RowWriter:
    """Writes what a loop of the plan computes for a block.

    Args:
        label: What all its names begin with.
        height: The rows of a block, a vector, and the number of blocks, a scalar.
        carried: What is handed on, before the block.
        is_alone: The sums are nobody else's.
    """

    def __init__(
        self, outer: Outer, loop: RowLoop, label: str, height: tuple[str, str], carried: Carried, *, is_alone: bool
    ) -> None:
        self.outer, self.loop, self.label = outer, loop, label
        self.height, self.count = height
        self.carried, self.is_alone = carried, is_alone
        self.values = outer.field.graph.values
        self.spans, _ = spans_of(outer.field, loop)
        self.body = BodyNodes(label)
        self.held: dict[str, _Rows] = {}

    def write(self, step: str) -> Carried:
        """Write the nodes; return what is handed on behind the block, where that is something else.

        Args:
            step: The number of the block, a scalar.
        """
        body, carried = self.body, self.carried
        self.step = step
        self.first = body.op("Mul", step, self.height)
        self.behind = body.op("Add", self.first, self.height)
        for name in self.loop.read:
            self.held[name] = self._read(name)
        for number in self.loop.ops:
            self._op(number)
        blocks = {name: self._block(name) for name in self.loop.targets}
        made = {name: body.op("SequenceInsert", carried.blocks[name], blocks[name]) for name in self.loop.made}
        left = {name: self._left(name) for name in self.loop.read if name in carried.eaten}
        sums = {
            statistic: self._sums(blocks[statistic[0]], statistic[1], self._before(carried.sums[statistic]))
            for statistic in self.loop.statistics
        }
        return Carried({**made, **left}, sums)

    def _before(self, sums: Totals) -> Totals:
        """Return what was added up of blocks before: nothing before the first, whatever others left there."""
        if self.is_alone:
            return sums
        is_first = self.body.op("Equal", self.step, self._scalar(0))
        zero = self.outer.zero(self.label)
        first, second, third = (self.body.op("Where", is_first, zero, one) for one in sums)
        return first, second, third

    def _dropped(self, name: str) -> str:
        """Return how many blocks of an image are no longer there, a scalar; "" for one that stays."""
        if name not in self.carried.eaten:
            return ""
        _, (_, count) = self.outer.sequences[name]
        return self.body.op("Sub", count, self.body.op("SequenceLength", self.carried.blocks[name]))

    def _left(self, name: str) -> str:
        """Drop the blocks of an image that no block behind this one reads."""
        body, span = self.body, self.spans[name]
        _, (height, count) = self.outer.sequences[name]
        start = self._scaled(self.behind, span.rate)
        start = body.op("Max", body.op("Sub", start, self._number(span.above)), self._number(0))
        over = body.op("Min", body.op("Squeeze", body.op("Div", start, height)), count)
        is_last = body.op("Equal", self.step, body.op("Sub", self.count, self._scalar(1)))
        over = body.op("Where", is_last, count, over)
        gone, element = body.op("Sub", over, self._dropped(name)), self.outer.element(name)
        inner = BodyNodes(body.name("drop"))
        before, blocks = f"{inner.label}_condition", f"{inner.label}_blocks"
        fewer, after = inner.op("SequenceErase", blocks, self._scalar(0)), inner.op("Identity", before)
        inputs = [value(f"{inner.label}_step", TensorProto.INT64, []), value(before, TensorProto.BOOL, [])]
        outputs = [value(after, TensorProto.BOOL, []), blocks_value(fewer, element)]
        graph = helper.make_graph(inner.made, f"{inner.label}_body", [*inputs, blocks_value(blocks, element)], outputs)
        # A loop without a round would copy the blocks.
        some, none = BodyNodes(f"{inner.label}_some"), BodyNodes(f"{inner.label}_none")
        kept = none.same_blocks(self.carried.blocks[name], self.outer.tiny[element])
        left = some.op("Loop", gone, "", self.carried.blocks[name], body=graph)
        drops, stays = branch(some, [blocks_value(left, element)]), branch(none, [blocks_value(kept, element)])
        return body.op("If", body.op("Greater", gone, self._scalar(0)), then_branch=drops, else_branch=stays)

    def _start(self, rate: Fraction, above: int) -> str:
        """Return the first of some rows."""
        if not above:
            return self._scaled(self.first, rate)
        start = self.body.op("Sub", self._scaled(self.first, rate), self._number(above))
        return self.body.op("Max", start, self._number(0))

    def _scaled(self, place: str, rate: Fraction) -> str:
        if rate.numerator > 1:
            place = self.body.op("Mul", place, self._number(rate.numerator))
        return self.body.op("Div", place, self._number(rate.denominator)) if rate.denominator > 1 else place

    def _number(self, number: int) -> str:
        return self.outer.lengths.constant([number])

    def _scalar(self, number: int) -> str:
        return self.outer.lengths.constant([number], scalar=True)

    def _read(self, name: str) -> _Rows:
        """Read rows of an image that is kept."""
        body, span = self.body, self.spans[name]
        shape = self.values.shapes[name]
        rows = _Rows("", span.rate, span.above, (shape[Axes.ROWS], span.rate, span.below))
        start, end = self._start(span.rate, span.above), self._scaled(self.behind, span.rate)
        end = body.op("Add", end, self._number(span.below)) if span.below else end
        if name not in self.outer.sequences:
            return _Rows(body.op("Slice", name, start, end, self._number(Axes.ROWS)), rows.rate, rows.above, rows.tail)
        sequence, height = self.outer.sequences[name]
        sequence, dropped = self.carried.blocks.get(name, sequence), self._dropped(name)
        if height == (self.height, self.count) and span == Span(Fraction(1), 0, 0):
            found = body.op("SequenceAt", sequence, body.op("Sub", self.step, dropped) if dropped else self.step)
        else:
            length = shape[Axes.ROWS]
            last = body.op("Min", end, self.outer.lengths.one(length)) if length is not None else end
            found = self._gathered((sequence, dropped), height[0], (start, last), self.outer.element(name))
        return _Rows(found, rows.rate, rows.above, rows.tail)

    def _gathered(self, blocks: tuple[str, str], height: str, rows: tuple[str, str], element: int) -> str:
        """Join rows that lie in several blocks of a sequence, of which some may no longer be there."""
        body, (sequence, dropped), (start, end) = self.body, blocks, rows
        first = body.op("Div", start, height)
        last = body.op("Div", body.op("Sub", end, self._number(1)), height)
        count = body.op("Squeeze", body.op("Add", body.op("Sub", last, first), self._number(1)))
        inner = BodyNodes(body.name("part"))
        step, before, parts = f"{inner.label}_step", f"{inner.label}_condition", f"{inner.label}_parts"
        number = inner.op("Add", first, step)
        place = inner.op("Mul", number, height)
        found = inner.op("Squeeze", number)
        block = inner.op("SequenceAt", sequence, inner.op("Sub", found, dropped) if dropped else found)
        begin = inner.op("Max", inner.op("Sub", start, place), self._number(0))
        part = inner.op("Slice", block, begin, inner.op("Sub", end, place), self._number(Axes.ROWS))
        joined = inner.op("SequenceInsert", parts, part)
        after = inner.op("Identity", before)
        inputs = [value(step, TensorProto.INT64, []), value(before, TensorProto.BOOL, []), blocks_value(parts, element)]
        outputs = [value(after, TensorProto.BOOL, []), blocks_value(joined, element)]
        graph = helper.make_graph(inner.made, f"{inner.label}_body", inputs, outputs)
        empty = body.op("SequenceEmpty", dtype=element)
        return body.op("ConcatFromSequence", body.op("Loop", count, "", empty, body=graph), axis=Axes.ROWS)

    def _op(self, number: int) -> None:
        """Compute an operator's outputs on rows."""
        op = self.outer.field.ops[number]
        images = self._aligned(op)
        if op.rule.whole:
            images = {name: self._whole(rows, op.rule.down) for name, rows in images.items()}
        held = images[op.images[0]]
        results = [f"{name}_{self.label}" for name in op.outputs]
        if op.norm is not None:
            self._normalise(op, op.norm, held.name, results[0])
        else:
            self._node(op, {name: rows.name for name, rows in images.items()}, results)
        rule = op.rule
        same = rule.up == rule.down == 1 and sum(rule.padding) == rule.window - 1
        above = int(held.above * rule.rate)
        for name, result in zip(op.outputs, results, strict=True):
            self.held[name] = _Rows(result, held.rate * rule.rate, above, held.tail if same else (number, held.tail))

    def _aligned(self, op: RowOp) -> dict[str, _Rows]:
        """Return what an operator reads, all of the same rows."""
        found = {name: self.held[name] for name in op.images}
        above = min(rows.above for rows in found.values())
        if len({(rows.above, rows.tail) for rows in found.values()}) == 1:
            return found
        starts = {name: self._offset(rows, above) for name, rows in found.items()}
        length = ""
        for name, rows in found.items():
            left = self.body.op("Sub", self._length(rows.name), starts[name])
            length = self.body.op("Min", length, left) if length else left
        tail = (op.outputs, length)
        return {name: self._sliced(rows, starts[name], length, above, tail) for name, rows in found.items()}

    def _whole(self, rows: _Rows, step: int) -> _Rows:
        """Drop rows at the end that are too few for an operator that takes so many at once."""
        count = self.body.op("Div", self._length(rows.name), self._number(step))
        length = self.body.op("Mul", count, self._number(step))
        return self._sliced(rows, self._number(0), length, rows.above, (rows.tail, step))

    def _length(self, name: str) -> str:
        return self.body.op("Gather", self.body.op("Shape", name), self._number(Axes.ROWS), axis=0)

    def _offset(self, rows: _Rows, above: int) -> str:
        """Return where rows with fewer above begin."""
        if rows.above == above:
            return self._number(0)
        return self.body.op("Sub", self._start(rows.rate, above), self._start(rows.rate, rows.above))

    def _sliced(self, rows: _Rows, start: str, length: str, above: int, tail: object) -> _Rows:
        end = self.body.op("Add", start, length)
        return _Rows(self.body.op("Slice", rows.name, start, end, self._number(Axes.ROWS)), rows.rate, above, tail)

    def _block(self, name: str) -> str:
        """Return the rows of a target where the block lies, without those around."""
        rows = self.held[name]
        length = self.values.shapes[name][Axes.ROWS]
        if not rows.above and rows.tail == (length, 1, 0):
            return rows.name
        start = self._offset(rows, 0)
        end = self.body.op("Add", start, self.height)
        if length is not None:
            left = self.body.op("Sub", self.outer.lengths.one(length), self.first)
            end = self.body.op("Add", start, self.body.op("Min", self.height, left))
        return self.body.op("Slice", rows.name, start, end, self._number(Axes.ROWS))

    def _node(self, op: RowOp, images: dict[str, str], results: Sequence[str]) -> None:
        given = self.outer.field.graph.nodes[op.nodes[0]]
        node = NodeProto()
        node.CopyFrom(given)
        node.name = f"{given.name or given.output[0]}_{self.label}"
        if given.op_type == "Resize":
            del node.input[1:]
            node.input.extend(("", self._enlargements(op)))
        for number, name in enumerate(node.input):
            if number in op.rule.images:
                node.input[number] = images[name]
            elif name:
                node.input[number] = self._own(name, op)
        named = iter(results)
        for number, name in enumerate(given.output):
            node.output[number] = next(named) if name else ""
        self.body.made.append(node)

    def _enlargements(self, op: RowOp) -> str:
        before, after = self.values.shapes[op.images[0]], self.values.shapes[op.outputs[0]]
        ratios = [enlargement(one, other) or 1 for one, other in zip(before, after, strict=True)]
        return self.outer.constant(ratios, np.float32, f"{self.label}_enlargement")

    def _own(self, name: str, op: RowOp) -> str:
        """Return a constant of the body's own: the runtime chooses layouts for convolutions with such weights alone.

        It is computed from the graph's, which the runtime does when a session is opened. Stored in the body it would be
        held once more for every body around.
        """
        given = self.outer.weights.get(name)
        if given is None or self.outer.field.borrows(op, name):
            return name
        return self.body.op("Reshape", name, self.outer.lengths.constant(list(given.dims)))

    def _normalise(self, op: RowOp, norm: RowNorm, image: str, result: str) -> None:
        body, outer = self.body, self.outer
        flat = body.op("Reshape", image, outer.lengths.constant([0, norm.groups, -1]))
        statistic = op.images[0], norm.groups
        totals = self.carried.sums[statistic] if statistic in self.carried.sums else outer.totals[statistic]
        moved = body.op("Sub", flat, body.op("Cast", totals[1], to=TensorProto.FLOAT))
        scaled = body.op("Mul", moved, self._factor(norm, totals))
        bias = "" if outer.is_filled(norm.bias, 0.0) else norm.bias
        if bias and not norm.by_channel:
            scaled = body.op("Add", scaled, body.op("Unsqueeze", bias, self._number(1)))
        back = ["Reshape", scaled, body.op("Shape", image)]
        if not norm.by_channel:
            body.op(*back, result=result)
            return
        axes = outer.lengths.constant(list(range(1, len(self.values.shapes[op.images[0]]) - 1)))
        wide = body.op("Mul", body.op(*back), body.op("Unsqueeze", norm.scale, axes))
        body.op("Add", wide, body.op("Unsqueeze", norm.bias, axes), result=result)

    def _factor(self, norm: RowNorm, totals: Totals) -> str:
        """Return what a normalisation multiplies with."""
        body, outer = self.body, self.outer
        epsilon = outer.constant([norm.epsilon], np.float64, f"{self.label}_epsilon")
        root = body.op("Sqrt", body.op("Add", body.op("Div", totals[2], totals[0]), epsilon))
        factor = body.op("Cast", body.op("Reciprocal", root), to=TensorProto.FLOAT)
        if not norm.scale or norm.by_channel or outer.is_filled(norm.scale, 1.0):
            return factor
        return body.op("Mul", factor, body.op("Unsqueeze", norm.scale, outer.lengths.constant([1])))

    def _sums(self, block: str, groups: int, states: Totals) -> Totals:
        """Merge the count, mean and squares of a block with those before (Chan, Golub and LeVeque)."""
        body = self.body
        flat = body.op("Reshape", block, self.outer.lengths.constant([0, groups, -1]))
        own = body.op("Gather", body.op("Shape", flat), self._number(2), axis=0)
        own = body.op("Cast", own, to=TensorProto.DOUBLE)
        mean = body.op("Div", self._added("ReduceSum", block, groups), own)
        apart = body.op("Sub", flat, body.op("Cast", mean, to=TensorProto.FLOAT))
        apart = body.op("Reshape", apart, body.op("Shape", block))
        squares = self._added("ReduceSumSquare", apart, groups)
        count = body.op("Add", states[0], own)
        part = body.op("Div", own, count)
        apart = body.op("Sub", mean, states[1])
        mean = body.op("Add", states[1], body.op("Mul", apart, part))
        between = body.op("Mul", body.op("Mul", apart, apart), body.op("Mul", states[0], part))
        return count, mean, body.op("Add", body.op("Add", states[2], squares), between)

    def _added(self, kind: str, image: str, groups: int) -> str:
        """Return sums over groups of channels: of each line of an image as floats, of all lines in double precision."""
        body = self.body
        told = kind == "ReduceSum" or self.outer.opset >= Opset.REDUCE_INPUTS
        axes = {"keepdims": 0} if told else {"axes": [-1], "keepdims": 0}
        lines = body.op(kind, image, *([self._number(-1)] if told else []), **axes)
        lines = body.op("Cast", lines, to=TensorProto.DOUBLE)
        lines = body.op("Reshape", lines, self.outer.lengths.constant([0, groups, -1]))
        return body.op("ReduceSum", lines, self._number(2), keepdims=1)
