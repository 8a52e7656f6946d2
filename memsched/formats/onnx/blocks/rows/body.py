"""A loop over blocks of rows: its body, and the nodes before and behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from memsched.formats.onnx.blocks.lengths import Lengths
from memsched.formats.onnx.blocks.rows.field import RowField, RowNorm, RowOp
from memsched.formats.onnx.blocks.rows.loops import RowLoop, Span, Statistic, spans_of
from memsched.formats.onnx.blocks.rows.rules import ROWS, enlargement

__all__ = ["Outer", "RowWriter"]

_AXES_AS_INPUT: Final = 18
"""From this version of the operator set on, sums of squares are told their axes as an input."""


@dataclass(frozen=True, slots=True)
class Outer:
    """The graph around loops.

    Attributes:
        opset: The version of its operator set.
        sequences: Images that lie in blocks: the name of the sequence, the rows of a block, the number of blocks.
        weights: Its initializers.
        whole: Images that loops make and that are joined.
        initializers: Constants that were made.
        statistics: What to subtract, a mean, per statistic; and the sums of squares by the number of elements.
        factors: What to multiply with then, by the output of a normalisation.
    """

    field: RowField
    lengths: Lengths
    opset: int
    sequences: dict[str, tuple[str, tuple[str, str]]]
    weights: dict[str, TensorProto]
    whole: frozenset[str]
    initializers: list[TensorProto] = dataclasses.field(default_factory=list)
    statistics: dict[Statistic, str] = dataclasses.field(default_factory=dict)
    factors: dict[str, str] = dataclasses.field(default_factory=dict)

    def constant(self, values: object, kind: type[np.generic], base: str) -> str:
        """Return a constant."""
        name = self.lengths.name(base)
        self.initializers.append(numpy_helper.from_array(np.array(values, dtype=kind), name))
        return name

    def is_filled(self, name: str, value: float) -> bool:
        """Return whether an initializer holds one number everywhere, as far as that is quick to see."""
        tensor = self.weights.get(name)
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return False
        return bool((numpy_helper.to_array(tensor) == value).all())


@dataclass(frozen=True, slots=True)
class _Rows:
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


class RowWriter:
    """Writes a loop.

    Args:
        label: What all its names begin with.
        height: The rows of a block, a vector, and the number of blocks, a scalar.
    """

    def __init__(self, outer: Outer, loop: RowLoop, label: str, height: tuple[str, str]) -> None:
        self.outer, self.loop, self.label = outer, loop, label
        self.height, self.count = height
        self.values = outer.field.graph.values
        self.spans, _ = spans_of(outer.field, loop)
        self.body = _BodyNodes(label)
        self.held: dict[str, _Rows] = {}
        self.weights: dict[str, TensorProto] = {}

    def nodes(self) -> list[NodeProto]:
        """Return the loop with what stands before and behind it."""
        around = _BodyNodes(f"{self.label}_around")
        sequences = [around.op("SequenceEmpty", dtype=TensorProto.FLOAT) for _ in self.loop.made]
        zero = self.outer.constant([[[0.0]]], np.float64, f"{self.label}_zero") if self.loop.statistics else ""
        sums = [zero] * (3 * len(self.loop.statistics))
        results = [f"{self.label}_made_of_{name}" for name in self.loop.made]
        totals = [f"{self.label}_total_{number}" for number in range(len(sums))]
        body = self._body()
        inputs = [self.count, "", *sequences, *sums]
        loop = helper.make_node("Loop", inputs, [*results, *totals], name=self.label, body=body)
        around.made.append(loop)
        for name, result in zip(self.loop.made, results, strict=True):
            if name in self.outer.whole:
                joined = helper.make_node("ConcatFromSequence", [result], [name], name=f"{result}_joined", axis=ROWS)
                around.made.append(joined)
        for number, statistic in enumerate(self.loop.statistics):
            self._conclude(around, statistic, totals[3 * number : 3 * number + 3])
        return around.made

    def _conclude(self, around: _BodyNodes, statistic: Statistic, totals: Sequence[str]) -> None:
        """Compute from sums what normalisations subtract and multiply with."""
        outer = self.outer
        mean = around.op("Cast", totals[1], to=TensorProto.FLOAT)
        variance = around.op("Div", totals[2], totals[0])
        outer.statistics[statistic] = mean
        for op in outer.field.ops:
            if op.norm is None or (op.images[0], op.norm.groups) != statistic:
                continue
            if op.is_summary:
                shape = [one for one in self.values.shapes[op.outputs[0]] if one is not None]
                around.op("Reshape", mean, outer.lengths.vector(shape), result=op.outputs[0])
            else:
                outer.factors[op.outputs[0]] = self._factor(around, op.norm, variance)

    def _factor(self, around: _BodyNodes, norm: RowNorm, variance: str) -> str:
        epsilon = self.outer.constant([norm.epsilon], np.float64, f"{self.label}_epsilon")
        root = around.op("Sqrt", around.op("Add", variance, epsilon))
        factor = around.op("Cast", around.op("Reciprocal", root), to=TensorProto.FLOAT)
        if not norm.scale or norm.by_channel or self.outer.is_filled(norm.scale, 1.0):
            return factor
        return around.op("Mul", factor, around.op("Unsqueeze", norm.scale, self.outer.lengths.constant([1])))

    def _body(self) -> GraphProto:
        body, label = self.body, self.label
        step, before = f"{label}_step", f"{label}_condition"
        self.step = step
        self.first = body.op("Mul", step, self.height)
        self.behind = body.op("Add", self.first, self.height)
        for name in self.loop.read:
            self.held[name] = self._read(name)
        for number in self.loop.ops:
            self._op(number)
        blocks = {name: self._block(name) for name in self.loop.targets}
        inputs, outputs = [_value(step, TensorProto.INT64, []), _value(before, TensorProto.BOOL, [])], []
        outputs.append(_value(body.op("Identity", before), TensorProto.BOOL, []))
        kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
        for number, name in enumerate(self.loop.made):
            inputs.append(helper.make_value_info(f"{label}_blocks_{number}", kind))
            outputs.append(helper.make_value_info(body.op("SequenceInsert", inputs[-1].name, blocks[name]), kind))
        for number, statistic in enumerate(self.loop.statistics):
            states = [f"{label}_sum_{number}_{part}" for part in range(3)]
            inputs.extend(_value(name, TensorProto.DOUBLE, None) for name in states)
            sums = self._sums(blocks[statistic[0]], statistic[1], states)
            outputs.extend(_value(name, TensorProto.DOUBLE, None) for name in sums)
        return helper.make_graph(body.made, f"{label}_body", inputs, outputs, list(self.weights.values()))

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

    def _read(self, name: str) -> _Rows:
        """Read rows of an image that is kept."""
        body, span = self.body, self.spans[name]
        shape = self.values.shapes[name]
        rows = _Rows("", span.rate, span.above, (shape[ROWS], span.rate, span.below))
        start, end = self._start(span.rate, span.above), self._scaled(self.behind, span.rate)
        end = body.op("Add", end, self._number(span.below)) if span.below else end
        if name not in self.outer.sequences:
            return _Rows(body.op("Slice", name, start, end, self._number(ROWS)), rows.rate, rows.above, rows.tail)
        sequence, height = self.outer.sequences[name]
        if height == (self.height, self.count) and span == Span(Fraction(1), 0, 0):
            found = body.op("SequenceAt", sequence, self.step)
        else:
            length = shape[ROWS]
            last = body.op("Min", end, self.outer.lengths.one(length)) if length is not None else end
            found = self._gathered(sequence, height[0], start, last)
        return _Rows(found, rows.rate, rows.above, rows.tail)

    def _gathered(self, sequence: str, height: str, start: str, end: str) -> str:
        """Join rows that lie in several blocks of a sequence."""
        body = self.body
        first = body.op("Div", start, height)
        last = body.op("Div", body.op("Sub", end, self._number(1)), height)
        count = body.op("Squeeze", body.op("Add", body.op("Sub", last, first), self._number(1)))
        inner = _BodyNodes(body.name("part"))
        step, before, parts = f"{inner.label}_step", f"{inner.label}_condition", f"{inner.label}_parts"
        number = inner.op("Add", first, step)
        place = inner.op("Mul", number, height)
        block = inner.op("SequenceAt", sequence, inner.op("Squeeze", number))
        begin = inner.op("Max", inner.op("Sub", start, place), self._number(0))
        part = inner.op("Slice", block, begin, inner.op("Sub", end, place), self._number(ROWS))
        joined = inner.op("SequenceInsert", parts, part)
        after = inner.op("Identity", before)
        kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
        inputs = [_value(step, TensorProto.INT64, []), _value(before, TensorProto.BOOL, [])]
        inputs.append(helper.make_value_info(parts, kind))
        outputs = [_value(after, TensorProto.BOOL, []), helper.make_value_info(joined, kind)]
        graph = helper.make_graph(inner.made, f"{inner.label}_body", inputs, outputs)
        empty = body.op("SequenceEmpty", dtype=TensorProto.FLOAT)
        return body.op("ConcatFromSequence", body.op("Loop", count, "", empty, body=graph), axis=ROWS)

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
        return self.body.op("Gather", self.body.op("Shape", name), self._number(ROWS), axis=0)

    def _offset(self, rows: _Rows, above: int) -> str:
        """Return where rows with fewer above begin."""
        if rows.above == above:
            return self._number(0)
        return self.body.op("Sub", self._start(rows.rate, above), self._start(rows.rate, rows.above))

    def _sliced(self, rows: _Rows, start: str, length: str, above: int, tail: object) -> _Rows:
        end = self.body.op("Add", start, length)
        return _Rows(self.body.op("Slice", rows.name, start, end, self._number(ROWS)), rows.rate, above, tail)

    def _block(self, name: str) -> str:
        """Return the rows of a target where the block lies, without those around."""
        rows = self.held[name]
        length = self.values.shapes[name][ROWS]
        if not rows.above and rows.tail == (length, 1, 0):
            return rows.name
        start = self._offset(rows, 0)
        end = self.body.op("Add", start, self.height)
        if length is not None:
            left = self.body.op("Sub", self.outer.lengths.one(length), self.first)
            end = self.body.op("Add", start, self.body.op("Min", self.height, left))
        return self.body.op("Slice", rows.name, start, end, self._number(ROWS))

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
                node.input[number] = self._copied(name, op)
        named = iter(results)
        for number, name in enumerate(given.output):
            node.output[number] = next(named) if name else ""
        self.body.made.append(node)

    def _enlargements(self, op: RowOp) -> str:
        before, after = self.values.shapes[op.images[0]], self.values.shapes[op.outputs[0]]
        ratios = [enlargement(one, other) or 1 for one, other in zip(before, after, strict=True)]
        return self.outer.constant(ratios, np.float32, f"{self.label}_enlargement")

    def _copied(self, name: str, op: RowOp) -> str:
        """Return a constant of the body's own: the runtime chooses layouts for convolutions with such weights alone.

        It holds those several times: weights that are large beside images are read from outside.
        """
        given = self.outer.weights.get(name)
        if given is None or given.data_location == TensorProto.EXTERNAL or self.outer.field.borrows(op, name):
            return name
        copied = f"{name}_{self.label}"
        if copied not in self.weights:
            tensor = TensorProto()
            tensor.CopyFrom(given)
            tensor.name = copied
            self.weights[copied] = tensor
        return copied

    def _normalise(self, op: RowOp, norm: RowNorm, image: str, result: str) -> None:
        body, outer = self.body, self.outer
        flat = body.op("Reshape", image, outer.lengths.constant([0, norm.groups, -1]))
        moved = body.op("Sub", flat, outer.statistics[op.images[0], norm.groups])
        scaled = body.op("Mul", moved, outer.factors[op.outputs[0]])
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

    def _sums(self, block: str, groups: int, states: Sequence[str]) -> list[str]:
        """Merge the count, mean and squares of a block with those before (Chan, Golub and LeVeque)."""
        body, along = self.body, self._number(2)
        flat = body.op("Reshape", block, self.outer.lengths.constant([0, groups, -1]))
        own = body.op("Gather", body.op("Shape", flat), along, axis=0)
        own = body.op("Cast", own, to=TensorProto.DOUBLE)
        mean = body.op("ReduceMean", flat, *([along] if self._told else []), **self._axes)
        apart = body.op("Sub", flat, mean)
        squares = body.op("ReduceSumSquare", apart, *([along] if self._told else []), **self._axes)
        mean, squares = (body.op("Cast", one, to=TensorProto.DOUBLE) for one in (mean, squares))
        count = body.op("Add", states[0], own)
        part = body.op("Div", own, count)
        apart = body.op("Sub", mean, states[1])
        mean = body.op("Add", states[1], body.op("Mul", apart, part))
        between = body.op("Mul", body.op("Mul", apart, apart), body.op("Mul", states[0], part))
        return [count, mean, body.op("Add", body.op("Add", states[2], squares), between)]

    @property
    def _told(self) -> bool:
        return self.outer.opset >= _AXES_AS_INPUT

    @property
    def _axes(self) -> dict[str, Any]:
        return {"keepdims": 1} if self._told else {"axes": [2], "keepdims": 1}


class _BodyNodes:
    """Nodes in order, with names of their own; the same node is made once.

    Args:
        label: What the names begin with.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.made: list[NodeProto] = []
        self._count = 0
        self._known: dict[object, str] = {}

    def name(self, base: str) -> str:
        """Return a new name."""
        self._count += 1
        return f"{self.label}_{base}_{self._count}"

    def op(self, kind: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """Return the output of a node."""
        key = (kind, inputs, tuple(sorted((name, repr(value)) for name, value in attributes.items())))
        if not result and kind != "SequenceEmpty" and key in self._known:
            return self._known[key]
        found = result or self.name(kind.lower())
        self.made.append(helper.make_node(kind, list(inputs), [found], name=self.name("node"), **attributes))
        self._known.setdefault(key, found)
        return found


def _value(name: str, kind: int, shape: Sequence[int] | None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)
