"""Write what is added up along a long axis as loops that carry what was added up so far.

Attention carries the largest score of each row, the sum of exponentials beside it, and the sum of values that these
weigh; where a block has a larger score, both sums are scaled (Milakov and Gimelshein, Online normalizer calculation
for softmax, 2018). The largest score begins at the least float, so that rows of -inf alone add up to nothing and give
no number, as a softmax of them does.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.blocks.body import NestWriter, names_of, regenerated
from memsched.formats.onnx.blocks.cuts import integers_of
from memsched.formats.onnx.blocks.lengths import Lengths
from memsched.formats.onnx.blocks.nodes import replace_nodes
from memsched.formats.onnx.blocks.regions import BlockRegion, OpenGraph
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.standard import Opset
from memsched.graph.kernel import LARGEST_FLOAT

__all__ = ["SumGroup", "SumKind", "write_sums"]

SumKind = Literal["sum", "mean", "most", "product", "attention", "normaliser"]

_ONE: Final = Polynomial((((), Fraction(1)),))
_STARTS: Final[dict[str, float]] = {"most": float("-inf")}


class SumGroup(FrozenValue, frozen=True):
    """Nodes of which the last one adds up along an axis that is cut.

    Attributes:
        kind: What is carried.
        region: All nodes; the last one, and the one before, are computed otherwise.
        last: The place of the last node.
        before: That of the softmax before a product, of the maximum before a sum of exponentials; else the last.
    """

    kind: SumKind
    region: BlockRegion
    last: int
    before: int

    @property
    def gives_both(self) -> bool:
        """Whether what both nodes make is a result: the largest score, and the sum of exponentials."""
        return self.kind == "normaliser"


def write_sums(model: ModelProto, graph: OpenGraph, groups: Sequence[SumGroup], block_bytes: int) -> ModelProto:
    """Return a copy of ``model`` in which groups of its nodes are loops.

    Args:
        graph: Its main graph.
        block_bytes: What the large values of a block may take together.
    """
    written = ModelProto()
    written.CopyFrom(model)
    opset = next(one.version for one in model.opset_import if one.domain in {"", "ai.onnx"})
    lengths = Lengths(graph.values, names_of(model.graph))
    numbers: dict[float, TensorProto] = {}
    loops: dict[int, list[NodeProto]] = {}
    for number, group in enumerate(groups):
        writer = _SumWriter(graph, group, lengths, lengths.name(f"sums_{number}"), block_bytes)
        loops[group.last] = writer.given(numbers, opset)
    gone = {place for group in groups for place in (group.last, *([group.before] if group.gives_both else []))}
    results = {name for place in gone for name in graph.nodes[place].output}
    inner = {name for group in groups for place in group.region.nodes for name in graph.nodes[place].output}
    gone |= regenerated(graph, inner - results, lengths)
    nodes: list[NodeProto] = []
    for place, node in enumerate(graph.nodes):
        nodes += [] if place in gone else [node]
        nodes += loops.get(place, [])
    written.graph.initializer.extend((*lengths.initializers, *numbers.values()))
    replace_nodes(written.graph, [*lengths.nodes, *nodes])
    return written


class _CarriedSum(FrozenValue, frozen=True):
    """A value that a loop carries.

    Attributes:
        name: What it is called, beside the loop's name.
        start: Its elements before the first block.
        shape: Its lengths.
    """

    name: str
    start: float
    shape: tuple[Polynomial, ...]


class _SumWriter(NestWriter):
    """Writes one group."""

    def __init__(self, graph: OpenGraph, group: SumGroup, lengths: Lengths, label: str, block_bytes: int) -> None:
        super().__init__(graph, (group.region,), lengths, label, block_bytes)
        self.group, self.label = group, label
        self.result = str(graph.nodes[group.last].output[0])
        self._steps: list[NodeProto] = []

    def given(self, numbers: dict[float, TensorProto], opset: int) -> list[NodeProto]:
        """Return the nodes that give the result.

        Args:
            numbers: Constants that were made so far; gets those of this loop.
            opset: The version of the operator set.
        """
        states = self._states()
        starts = [self._start(state, numbers) for state in states]
        results = [f"{self.label}_{state.name}" for state in states]
        if self.group.kind == "normaliser":
            results = [self.graph.nodes[place].output[0] for place in (self.group.before, self.group.last)]
        count, size = self.counts[0]
        body = self._loop_body(states, size, opset)
        loop = helper.make_node("Loop", [count, "", *starts], results, name=self.label, body=body)
        if self.group.kind == "normaliser":
            return [loop]
        inputs, kind = results[-1:], "Identity"
        if self.group.kind == "attention":
            inputs, kind = [results[-1], results[1]], "Div"
        elif self.group.kind == "mean":
            inputs, kind = [results[-1], self._count()], "Div"
        return [loop, helper.make_node(kind, inputs, [self.result], name=f"{self.label}_whole")]

    def _states(self) -> list[_CarriedSum]:
        total = _CarriedSum("total", _STARTS.get(self.group.kind, 0.0), self._result_shape(self.group.last))
        if self.group.kind == "normaliser":
            return [_CarriedSum("largest", -LARGEST_FLOAT, total.shape), _CarriedSum("weights", 0.0, total.shape)]
        if self.group.kind != "attention":
            return [total]
        rows = (*self._result_shape(self.group.before)[:-1], _ONE)
        return [_CarriedSum("largest", -LARGEST_FLOAT, rows), _CarriedSum("weights", 0.0, rows), total]

    def _result_shape(self, place: int) -> tuple[Polynomial, ...]:
        """Return the shape of what a node makes."""
        return _known(self.graph.values.shapes[self.graph.nodes[place].output[0]])

    def _start(self, state: _CarriedSum, numbers: dict[float, TensorProto]) -> str:
        if state.start not in numbers:
            name = self.lengths.name("number_at_first")
            numbers[state.start] = numpy_helper.from_array(np.array(state.start, np.float32), name)
        shape = self.lengths.vector(state.shape)
        return self.lengths.node("Expand", [numbers[state.start].name, shape], f"{state.name}_at_first")

    def _count(self) -> str:
        """Return how many elements a mean is over, as a float."""
        node = self.graph.nodes[self.group.last]
        shape = _known(self.graph.values.shapes[node.input[0]])
        count = self.lengths.constant([1])
        for axis in self._axes():
            count = self.lengths.node("Mul", [count, self.lengths.one(shape[axis])], "number_of_elements")
        return self.lengths.node("Cast", [self.lengths.node("Squeeze", [count], "elements")], "elements", to=1)

    def _axes(self) -> list[int]:
        node = self.graph.nodes[self.group.last]
        axes = attribute_of(node, "axes", None) or integers_of(node, 1, self.graph.values) or []
        return sorted(axis % len(self.graph.values.shapes[node.input[0]]) for axis in axes)

    # The body

    def _add(self, kind: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """Add a node to the body; return what it gives."""
        result = f"{self.label}_{name}"
        self._steps.append(helper.make_node(kind, list(inputs), [result], name=f"{result}_node", **attributes))
        return result

    def _loop_body(self, states: Sequence[_CarriedSum], size: str, opset: int) -> GraphProto:
        step, before = f"{self.label}_step", f"{self.label}_condition"
        self._steps = [*self.bounds(0, step, size), *self.slices(0)]
        for place in self.depths:
            if place not in {self.group.before, self.group.last}:
                self._steps += self.node(place)
        given = [f"{self.label}_{state.name}_before" for state in states]
        results = self._shares(given, opset) if len(given) > 1 else [self._added(given[0], opset)]
        after = self._add("Identity", [before], "goes_on")
        shapes = [[length.constant() for length in state.shape] for state in states] * 2
        values = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in zip((*given, *results), shapes, strict=True)
        ]
        inputs = [
            helper.make_tensor_value_info(step, TensorProto.INT64, []),
            helper.make_tensor_value_info(before, TensorProto.BOOL, []),
            *values[: len(given)],
        ]
        outputs = [helper.make_tensor_value_info(after, TensorProto.BOOL, []), *values[len(given) :]]
        return helper.make_graph(self._steps, f"{self.label}_body", inputs, outputs)

    def _shares(self, given: Sequence[str], opset: int) -> list[str]:
        """Add what takes in a block of scores, and of the values that they weigh; return what is carried on."""
        axis = self.group.region.needs[self.group.before][0]
        axes = [-1 if axis is None else axis.axis]
        scores = self.source(self.group.before, 0, 0)
        most = self._reduced("ReduceMax", scores, axes, 1, "largest_of_block", opset)
        most = self._add("Max", [given[0], most], "largest_after")
        scale = self._add("Exp", [self._add("Sub", [given[0], most], "fall")], "scale")
        parts = self._add("Exp", [self._add("Sub", [scores, most], "scores_below")], "parts")
        sums = self._reduced("ReduceSum", parts, axes, 1, "parts_of_block", opset)
        carried = [most, self._scaled(given[1], scale, sums, "weights")]
        if len(given) > len(carried):
            block = self._add("MatMul", [parts, self.source(self.group.last, 1, 0)], "total_of_block")
            carried.append(self._scaled(given[2], scale, block, "total"))
        return carried

    def _scaled(self, sum_before: str, scale: str, block: str, name: str) -> str:
        scaled = self._add("Mul", [sum_before, scale], f"{name}_scaled")
        return self._add("Add", [scaled, block], f"{name}_after")

    def _added(self, total: str, opset: int) -> str:
        """Add what takes in a block of what is added up; return what is carried on."""
        node, last = self.graph.nodes[self.group.last], self.group.last
        if self.group.kind == "product":
            block = self._add("MatMul", [self.source(last, 0, 0), self.source(last, 1, 0)], "total_of_block")
            return self._add("Add", [total, block], "total_after")
        kind = "ReduceMax" if self.group.kind == "most" else "ReduceSum"
        keep = attribute_of(node, "keepdims", 1)
        block = self._reduced(kind, self.source(last, 0, 0), self._axes(), keep, "total_of_block", opset)
        return self._add("Max" if self.group.kind == "most" else "Add", [total, block], "total_after")

    def _reduced(self, kind: str, value: str, axes: Sequence[int], keep: int, name: str, opset: int) -> str:
        if kind == "ReduceMax" and opset < Opset.REDUCE_INPUTS:
            return self._add(kind, [value], name, axes=list(axes), keepdims=keep)
        return self._add(kind, [value, self.lengths.constant(axes)], name, keepdims=keep)


def _known(shape: Sequence[Polynomial | None]) -> tuple[Polynomial, ...]:
    return tuple(length for length in shape if length is not None)
