"""Nodes that compute lengths at run time, from the shapes of a model's inputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.sizes import Monomial, Polynomial
from memsched.formats.onnx.free_names import FreeNames

__all__ = ["Lengths"]


class Lengths:
    """Makes the nodes, each once; all values are vectors of int64.

    Attributes:
        nodes: What was made, in order of execution; they read nothing but shapes of the model's values.
        initializers: The constants that they read.
    """

    def __init__(self, values: OpenValues, taken: Collection[str]) -> None:
        self.nodes: list[NodeProto] = []
        self.initializers: list[TensorProto] = []
        self._values = values
        self._names = FreeNames(taken)
        self._known: dict[object, str] = {}

    def name(self, base: str) -> str:
        """Return a name that nothing in the model has."""
        return self._names.new(base)

    def constant(self, numbers: Sequence[int], *, scalar: bool = False) -> str:
        """Return a constant."""
        key = ("constant", tuple(numbers), scalar)
        if key not in self._known:
            name = self.name(f"length_{'_'.join(map(str, numbers))}".replace("-", "minus_"))
            array = np.array(numbers[0] if scalar else list(numbers), dtype=np.int64)
            self.initializers.append(numpy_helper.from_array(array, name))
            self._known[key] = name
        return self._known[key]

    def node(self, kind: str, inputs: Sequence[str], base: str, **attributes: Any) -> str:
        """Return the output of a node of its own, which is put behind those made before."""
        key = (kind, tuple(inputs), tuple(sorted((name, str(value)) for name, value in attributes.items())))
        if key not in self._known:
            name = self.name(base)
            self.nodes.append(
                helper.make_node(kind, list(inputs), [name], name=self.name(f"{base}_node"), **attributes)
            )
            self._known[key] = name
        return self._known[key]

    def alias(self, kind: str, inputs: Sequence[str], name: str) -> None:
        """Put a node behind those made before whose output has a name that the model's other nodes read."""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=self.name(f"{name}_node")))

    def at_least(self, length: str, least: int) -> str:
        """Return a length, or ``least`` where that is more."""
        return self.node("Max", [length, self.constant([least])], "length_at_least")

    def ratio(self, length: str, divisor: str) -> str:
        """Return a length divided by another one, rounded up; neither is negative, and the second is not 0."""
        last = self.node("Sub", [divisor, self.constant([1])], "length_less_one")
        return self.node("Div", [self.node("Add", [length, last], "length_sum"), divisor], "length_ratio")

    def guard(self) -> str:
        """Return the number 1, from nodes that fail where a length is out of the range that was stated for it."""
        result = self.constant([1])
        for symbol, span in sorted(self._values.ranges.items()):
            if not span.named:
                continue
            size = self._symbol(symbol)
            inside = self.node("Min", [self.at_least(size, span.least), self.constant([span.most])], "length_in_range")
            inside = self.node(
                "Mul",
                [
                    self.node("Div", [inside, self.constant([span.multiple])], "length_part"),
                    self.constant([span.multiple]),
                ],
                "length_in_range",
            )
            wrong = self.node("Abs", [self.node("Sub", [size, inside], "length_beyond")], "length_beyond")
            of = f"_multiple_of_{span.multiple}" if span.multiple > 1 else ""
            told = f"{symbol}_must_be_{span.least}_to_{span.most}{of}"
            result = self.node("Gather", [result, wrong], told, axis=0)
        return result

    def vector(self, elements: Sequence[Polynomial]) -> str:
        """Return a vector of several lengths."""
        known = [one.constant() for one in elements]
        numbers = [one for one in known if one is not None]
        if len(numbers) == len(known):
            return self.constant(numbers)
        parts = [self.one(element) for element in elements]
        return parts[0] if len(parts) == 1 else self.node("Concat", parts, "lengths", axis=0)

    def one(self, length: Polynomial) -> str:
        """Return a vector of one length."""
        number = length.constant()
        if number is not None:
            return self.constant([number])
        below = math.lcm(*(factor.denominator for _, factor in length.terms))
        total = ""
        for monomial, factor in length.terms:
            term = self._term(monomial, int(factor * below))
            total = self.node("Add", [total, term], "length_sum") if total else term
        return self.node("Div", [total, self.constant([below])], "length_part") if below > 1 else total

    def _term(self, monomial: Monomial, factor: int) -> str:
        product = "" if monomial and factor == 1 else self.constant([factor])
        for symbol in monomial:
            size = self._symbol(symbol)
            product = self.node("Mul", [product, size], "length_product") if product else size
        return product

    def _symbol(self, symbol: str) -> str:
        name, axis = self._values.places[symbol]
        shape = self.node("Shape", [name], f"{name}_shape")
        return self.node("Gather", [shape, self.constant([axis])], f"{name}_length", axis=0)
