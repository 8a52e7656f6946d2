"""The operator table at open lengths.

A rule is applied at lengths of which two products are the same only where they are so at all lengths. What it says of
an axis that is read element by element then holds at all lengths.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Final

from onnx import GraphProto, NodeProto

from memsched.formats.onnx.attributes import ConstantValues, Values, attributes_of, constant_shapes, with_one_axis
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.effects import false_names, node_effects
from memsched.formats.onnx.functions import FUNCTIONS
from memsched.formats.onnx.standard import Opset
from memsched.formats.onnx.structure import op_type
from memsched.formats.onnx.types import element_name
from memsched.graph.model import AttributeValue, Graph, Op, Tensor
from memsched.ops.geometry import describe, described
from memsched.ops.rules import Geometry, Refusal
from memsched.ops.table import OPERATORS

__all__ = ["OpenRules"]

_GENERIC: Final = (7919, 6271, 5003, 4801, 3571, 2711, 1999, 1301)
"""Primes: products of a few of them differ unless they are the same product."""


class OpenRules:
    """What the rules say of the nodes of a graph with open dimensions, of an operator set that loops are written for.

    Args:
        graph: A main graph.
        values: What its values are.

    Attributes:
        sizes: Lengths at which rules are applied: generic ones, at which no window fits.
    """

    def __init__(self, graph: GraphProto, values: OpenValues) -> None:
        self.values = values
        self.sizes: Mapping[str, int] = _generic(values)
        self._stated = ConstantValues(graph)
        self._constants = {one.name for one in graph.initializer}
        self._constants.update(name for node in graph.node if node.op_type == "Constant" for name in node.output)
        self._false = false_names(graph.node, graph.initializer, graph.input)
        self._known: dict[str, tuple[Geometry, ...]] = {}

    def at(self, sizes: Mapping[str, int]) -> OpenRules:
        """Return the same at other lengths, such as some that occur: what is said then holds there alone."""
        other = copy.copy(self)
        other.sizes, other._known = sizes, {}
        return other

    def of(self, node: NodeProto) -> tuple[Geometry, ...]:
        """Return what each of a node's outputs needs; nothing where that is not known of all of them."""
        key = next((name for name in node.output if name), "")
        if key not in self._known:
            self._known[key] = self._described(node)
        return self._known[key]

    def _described(self, node: NodeProto) -> tuple[Geometry, ...]:
        kind = op_type(node)
        rule, outputs = OPERATORS.get(kind), [name for name in node.output if name]
        if rule is None or (len(outputs) > 1 and not rule.alike):
            return ()
        if not node_effects(node, kind, self._false.__contains__).pure:
            return ()
        attributes = self._attributes(node, kind)
        graphs = [self._alone(node, kind, attributes, name) for name in outputs]
        # Functions have no kernels that were compared: runtimes execute their parts.
        rules = described if kind in FUNCTIONS else describe
        found = [rules(graph, 0) for graph in graphs if graph is not None]
        geometries = tuple(one for one in found if not isinstance(one, Refusal))
        return geometries if len(geometries) == len(outputs) else ()

    def _alone(self, node: NodeProto, kind: str, attributes: Mapping[str, AttributeValue], output: str) -> Graph | None:
        """Return a graph of a node with one of its outputs; None where a shape is unknown."""
        places = tuple(place for place, name in enumerate(node.input) if name and not self._is_constant(name))
        tensors = []
        for number, name in enumerate((*(node.input[place] for place in places), output)):
            shape, element = self._shape(name), self.values.elements.get(name)
            if shape is None:
                return None
            tensors.append(Tensor(str(number), 0, shape, element_name(element) if element else ""))
        inputs = tuple(range(len(places)))
        op = Op(output, kind, inputs, (len(places),), attributes=attributes, positions=places)
        return Graph("", tuple(tensors), (op,), inputs, (len(places),))

    def _attributes(self, node: NodeProto, kind: str) -> Mapping[str, AttributeValue]:
        attributes = attributes_of(node, self._numbers)
        attributes |= constant_shapes(node, self._constant_shape, attributes)
        return with_one_axis(kind, attributes, Opset.LOOPS_OVER_SEQUENCES)

    def _is_constant(self, name: str) -> bool:
        """Whether a value is stated, or follows from lengths alone: it is made anew where it is needed."""
        return name in self._constants or name in self.values.integers

    def _constant_shape(self, name: str) -> tuple[int, ...] | None:
        return self._shape(name) if self._is_constant(name) else None

    def _shape(self, name: str) -> tuple[int, ...] | None:
        lengths = self.values.shapes.get(name)
        return None if lengths is None else self._at(lengths)

    def _numbers(self, name: str) -> Values | None:
        known = self.values.integers.get(name)
        return self._stated.get(name) if known is None else self._at(known)

    def _at(self, lengths: tuple[Polynomial | None, ...]) -> tuple[int, ...] | None:
        """Return lengths at the generic sizes; None where one is unknown there."""
        found = [None if one is None else one.at(self.sizes) for one in lengths]
        whole = tuple(int(one) for one in found if one is not None and one.denominator == 1)
        return whole if len(whole) == len(found) else None


def _generic(values: OpenValues) -> dict[str, int]:
    """Return lengths at which all others are whole numbers."""
    known = (one for lengths in values.shapes.values() for one in lengths if one is not None)
    unit = math.lcm(*(factor.denominator for one in known for _, factor in one.terms))
    return {name: unit * prime for name, prime in zip(sorted(values.ranges), _GENERIC, strict=False)}
