"""A softmax along an axis of open length in two passes: what it divides by first, and the shares when they are read.

The first pass computes the softmax's input once more. So shares can be computed in blocks, like any elementwise value,
by what reads them; exponentials are added up in another order than in a softmax.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

from onnx import ModelProto, NodeProto, helper

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.blocks.body import names_of
from memsched.formats.onnx.blocks.cuts import Cut
from memsched.formats.onnx.blocks.lengths import Lengths
from memsched.formats.onnx.blocks.nodes import replace_nodes
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.regions import BlockGrowth, OpenGraph
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.standard import ElementType, Opset
from memsched.formats.onnx.worth import TRIED

__all__ = ["Normaliser", "TwoPasses", "in_two_passes"]

_ONE: Final = Polynomial((((), Fraction(1)),))


class Normaliser(FrozenValue, frozen=True):
    """The first pass.

    Attributes:
        scores: The softmax's input, made for this pass alone.
        axis: Along which it is added up.
        largest: The largest score, with that axis of length 1.
        weights: The sum of exponentials of scores less that, with the same shape.
        between: What makes the sum and is not needed where both are computed at once.
        ops: Names of the nodes of the model as given that it stands for.
    """

    scores: str
    axis: int
    largest: str
    weights: str
    between: tuple[str, ...]
    ops: tuple[str, ...]


class TwoPasses(FrozenValue, frozen=True):
    """A model with such softmaxes.

    Attributes:
        values: What its values are, the new ones among them.
    """

    model: ModelProto
    values: OpenValues
    normalisers: tuple[Normaliser, ...]


def in_two_passes(model: ModelProto, graph: OpenGraph, chosen: Sequence[tuple[int, int]]) -> TwoPasses | None:
    """Return a copy of ``model`` with softmaxes in two passes; None where the input of none can be made in blocks.

    Args:
        graph: Its main graph.
        chosen: Places of softmaxes, and their axes, which are long.
    """
    writer = _PassWriter(model, graph)
    made = ((place, writer.nodes(place, axis)) for place, axis in chosen)
    replaced = {place: stands for place, stands in made if stands}
    if not replaced:
        return None
    written = ModelProto()
    written.CopyFrom(model)
    nodes: list[NodeProto] = []
    for place, node in enumerate(graph.nodes):
        nodes += replaced.get(place, [node])
    written.graph.initializer.extend(writer.lengths.initializers)
    replace_nodes(written.graph, [*writer.lengths.nodes, *nodes])
    values = dataclasses.replace(
        graph.values,
        shapes={**graph.values.shapes, **writer.shapes},
        elements={**graph.values.elements, **dict.fromkeys(writer.shapes, ElementType.FLOAT), **writer.elements},
        integers={**graph.values.integers, **writer.integers},
    )
    return TwoPasses(written, values, tuple(writer.normalisers))


class _PassWriter:
    """Makes the nodes.

    Attributes:
        shapes, elements, integers: Of new values.
    """

    def __init__(self, model: ModelProto, graph: OpenGraph) -> None:
        self.graph = graph
        self.lengths = Lengths(graph.values, names_of(model.graph))
        self.shapes: dict[str, tuple[Polynomial | None, ...]] = {}
        self.elements: dict[str, int] = {}
        self.integers: dict[str, tuple[Polynomial, ...]] = {}
        self.normalisers: list[Normaliser] = []
        self._opset = next(one.version for one in model.opset_import if one.domain in {"", "ai.onnx"})
        self._nodes: list[NodeProto] = []

    def nodes(self, place: int, axis: int) -> list[NodeProto]:
        """Return what stands for a softmax; nothing where its input can't be made in blocks."""
        node = self.graph.nodes[place]
        cloned = self._cone(node.input[0], axis)
        if cloned is None:
            return []
        self._nodes = []
        scores = self._again(cloned, node.input[0])
        shape = self.graph.values.shapes[node.input[0]]
        one = tuple(_ONE if at == axis else length for at, length in enumerate(shape))
        axes = self.lengths.constant([axis])
        self.integers[axes] = (Polynomial((((), Fraction(axis)),) if axis else ()),)
        if self._opset >= Opset.REDUCE_INPUTS:
            largest = self._add("ReduceMax", [scores, axes], f"{node.output[0]}_largest", one, keepdims=1)
        else:
            largest = self._add("ReduceMax", [scores], f"{node.output[0]}_largest", one, axes=[axis], keepdims=1)
        below = self._add("Sub", [scores, largest], f"{node.output[0]}_below", shape)
        parts = self._add("Exp", [below], f"{node.output[0]}_parts", shape)
        weights = self._add("ReduceSum", [parts, axes], f"{node.output[0]}_weights", one, keepdims=1)
        ops = tuple(_name(self.graph.nodes[at]) for at in (*cloned, place))
        self.normalisers.append(Normaliser(scores, axis, largest, weights, (below, parts), ops))
        below = self._add("Sub", [node.input[0], largest], f"{node.output[0]}_below", shape)
        parts = self._add("Exp", [below], f"{node.output[0]}_parts", shape)
        self._add("Div", [parts, weights], node.output[0], shape, given=True)
        self._nodes[-1].name = _name(node)
        return self._nodes

    def _cone(self, name: str, axis: int) -> list[int] | None:
        """Return the nodes that make a value in blocks of an axis, the fewest that leave less whole."""
        graph, length = self.graph, self.graph.values.shapes[name][axis]
        place = graph.maker.get(name)
        if place is None or length is None:
            return None
        sizes = sorted({size for one in graph.maker if (size := graph.bytes_of(one))}, reverse=True)
        for least in sizes[:TRIED]:
            growth = BlockGrowth(graph, length, least, set())
            if growth.add(place, Cut(axis), core=True):
                whole = sum(graph.bytes_of(one) for one in growth.read if one in graph.maker)
                if whole < graph.bytes_of(name):
                    return sorted({*growth.core, *growth.copied})
        return None

    def _again(self, cloned: Sequence[int], scores: str) -> str:
        """Add the nodes that make a softmax's input once more; return what they make."""
        names: dict[str, str] = {}
        for place in cloned:
            node = NodeProto()
            node.CopyFrom(self.graph.nodes[place])
            node.name = self.lengths.name(f"{node.name or node.output[0]}_first")
            node.input[:] = [names.get(name, name) for name in node.input]
            for number, name in enumerate(node.output):
                if name:
                    names[name] = self.lengths.name(f"{name}_first")
                    node.output[number] = names[name]
                    self.shapes[names[name]] = self.graph.values.shapes[name]
                    self.elements[names[name]] = self.graph.values.elements[name]
            self._nodes.append(node)
        return names[scores]

    def _add(
        self,
        kind: str,
        inputs: Sequence[str],
        name: str,
        shape: Sequence[Polynomial | None],
        *,
        given: bool = False,
        **attributes: Any,
    ) -> str:
        result = name if given else self.lengths.name(name)
        made = helper.make_node(kind, list(inputs), [result], name=self.lengths.name(f"{result}_node"), **attributes)
        self._nodes.append(made)
        self.shapes[result] = tuple(shape)
        return result


def _name(node: NodeProto) -> str:
    return str(node.name or node.output[0])
