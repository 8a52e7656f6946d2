"""Activations that exporters write as chains of operators, and the one operator that ONNX Runtime has for each.

ONNX Runtime finds most of them itself, but only from level EXTENDED on. Below it three tensors are live where one
operator needs two. A chain is found by what it computes, however it is written.
"""

from __future__ import annotations

from typing import Final

from onnx import NodeProto

from memsched.formats.module import Module
from memsched.formats.onnx.attributes import ConstantValues
from memsched.formats.onnx.chain_values import activation_of
from memsched.formats.onnx.native import OnnxNative
from memsched.formats.onnx.nodes import opset
from memsched.formats.onnx.standard import IrVersion
from memsched.graph.chain import Chain
from memsched.graph.dag import producers
from memsched.graph.model import Op
from memsched.ops.chains import CURVES, LINKS

__all__ = ["chains"]

_LAST: Final = frozenset({"Div", "Mul"})
"""What activations end in: x * gate(x), or x / (1 + exp(-x))."""

_MOST_LINKS: Final = 16
"""The most operators of a chain; the longest known has eleven."""


def chains(module: Module) -> tuple[Chain, ...]:
    """Return the chains of the main graph that one operator can stand for; none shares an operator with another."""
    if not any(op.type in CURVES for op in module.graphs[0].ops):
        return ()
    finder = _ChainFinder(module)
    found: list[Chain] = []
    taken: set[str] = set()
    for number in range(len(module.graphs[0].ops)):
        chain = finder.ending_in(number)
        if chain is not None and taken.isdisjoint(chain.ops):
            found.append(chain)
            taken.update(chain.ops)
    return tuple(found)


class _ChainFinder:
    """Looks back from an op for the tensor from which alone it is computed."""

    def __init__(self, module: Module) -> None:
        native: OnnxNative = module.native
        model = native.scheduled()
        self._graph = module.graphs[0]
        self._nodes: list[NodeProto] = [model.graph.node[node] for node in native.nodes[0]]
        self._constants = ConstantValues(model.graph)
        self._maker = producers(self._graph)
        self._version = opset(model)
        inputs = model.graph.input if model.ir_version >= IrVersion.FREE_INITIALIZERS else ()
        self._changeable = {value.name for value in inputs}
        self._readers: list[set[int | None]] = [set() for _ in self._graph.tensors]
        for number, op in enumerate(self._graph.ops):
            for tensor in op.inputs:
                self._readers[tensor].add(number)
        for tensor in (*self._graph.outputs, *self._graph.variables):
            self._readers[tensor].add(None)  # the caller, or who runs the graph again
        self._bound = {op for pair in self._graph.dependencies for op in pair}

    def ending_in(self, number: int) -> Chain | None:
        """Return the shortest chain whose last op is ``number``; None where there is none."""
        op = self._graph.ops[number]
        if op.type not in _LAST or not self._is_link(number):
            return None
        links = {number}
        reads = set(op.inputs)
        while reads and len(links) < _MOST_LINKS:
            # Of tensors that depend on each other this is the last: all that reads it was seen before.
            latest = max(reads, key=lambda tensor: (self._maker[tensor], tensor))
            if len(reads) == 1 and any(self._graph.ops[link].type in CURVES for link in links):
                chain = self._chain(latest, number, sorted(links))
                if chain is not None:
                    return chain
            maker = self._maker[latest]
            if maker < 0 or not self._is_link(maker) or not self._readers[latest] <= links:
                return None
            links.add(maker)
            reads.remove(latest)
            reads.update(self._graph.ops[maker].inputs)
        return None

    def _is_link(self, number: int) -> bool:
        """Whether an op computes each element of one tensor of floats by itself, from others like it and numbers."""
        op = self._graph.ops[number]
        if op.type not in LINKS or len(op.outputs) != 1 or number in self._bound:
            return False
        touched = {(one.shape, one.dtype, one.sized) for one in map(self._graph.tensors.__getitem__, _touched(op))}
        ((shape, dtype, sized), *others) = touched
        return not others and shape is not None and dtype == "float32" and sized and self._numbers(number) is not None

    def _numbers(self, number: int) -> dict[str, float] | None:
        """Return the numbers that an op reads beside tensors; None where it reads other constants."""
        positions = set(self._graph.ops[number].positions)
        found: dict[str, float] = {}
        for place, name in enumerate(self._nodes[number].input):
            if place not in positions:
                values = self._constants.get(name) if name not in self._changeable else None
                if values is None or len(values) != 1:
                    return None
                found[name] = float(values[0])
        return found

    def _chain(self, read: int, last: int, links: list[int]) -> Chain | None:
        """Return the chain of ``links``, if there is an operator for it."""
        graph = self._graph
        numbers: dict[str, float] = {}
        for link in links:
            numbers.update(self._numbers(link) or {})
        start, end = graph.tensors[read].name, graph.tensors[graph.ops[last].outputs[0]].name
        activation = activation_of([self._nodes[link] for link in links], numbers, self._version, start, end)
        if activation is None:
            return None
        return Chain(tuple(graph.ops[link].name for link in links), start, end, *activation)


def _touched(op: Op) -> tuple[int, ...]:
    return (*op.inputs, *op.outputs)
