"""Graphs of any size for measuring how the tool grows: random layers, and NASNet cells one on the other."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from memsched.graph.model import Graph, Op, Tensor
from scripts.networks.builder import Builder, Value
from scripts.networks.cells import squeeze
from scripts.networks.nasnet import normal_cell

__all__ = ["KINDS", "layered", "stacked"]

_WIDTH: Final = 12
_LARGEST_KILOBYTES: Final = 64
_FILTERS: Final = 44
_EXTENT: Final = 28
_FLOAT_BYTES: Final = 4
_CONSTANTS: Final = frozenset({"ConstantOfShape", "Expand"})


def layered(ops: int, seed: int = 0) -> Graph:
    """Return layers of 12 ops whose results have 1 to 64 KB, drawn evenly.

    Each op reads one or two results of the layer before, and every fourth op one of the layer before that. A result
    that nobody would read is read by the op in its place in the next layer, so that only the last layer's are outputs.
    """
    source = random.Random(seed)
    tensors = [Tensor("input", _FLOAT_BYTES * 1024)]
    nodes: list[Op] = []
    layers: list[list[int]] = [[], [0]]
    while len(nodes) < ops:
        width = min(_WIDTH, ops - len(nodes))
        reads = [_draw(source, layers[-1], layers[-2]) for _ in range(width)]
        unread = sorted(set(layers[-1]).difference(*reads))
        for place, tensor in enumerate(unread):
            reads[place % width].append(tensor)
        results = []
        for read in reads:
            results.append(len(tensors))
            nodes.append(Op(f"op{len(nodes)}", "Op", tuple(read), (len(tensors),)))
            tensors.append(Tensor(f"t{len(tensors)}", 1024 * source.randint(1, _LARGEST_KILOBYTES)))
        layers = [layers[-1], results]
    read_by_any = {tensor for node in nodes for tensor in node.inputs}
    outputs = tuple(tensor for tensor in range(1, len(tensors)) if tensor not in read_by_any)
    return Graph("layered", tuple(tensors), tuple(nodes), (0,), outputs)


def _draw(source: random.Random, last: list[int], before: list[int]) -> list[int]:
    read = source.sample(last, min(len(last), source.randint(1, 2)))
    if before and source.random() < 0.25:
        read.append(source.choice(before))
    return read


def stacked(ops: int) -> Graph:
    """Return NASNet-A's normal cells with 44 filters at 28x28, one on the other, of ``ops`` ops or a few more."""
    net = _GraphBuilder("stacked")
    x = net.conv(net.input("input", 1, 3, _EXTENT, _EXTENT), _FILTERS)
    before = x
    while net.count < ops:
        current, skipped = squeeze(net, x, _FILTERS), squeeze(net, before, _FILTERS)
        before, x = x, normal_cell(net, current, skipped)
    return net.graph(x)


class _GraphBuilder(Builder):
    """Builds the graph itself instead of a model: no file could hold the larger ones in reasonable time."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.count = 0

    def nodes(self, *arguments: Any, **options: Any) -> tuple[Value, ...]:
        """Add an op and count it; those that make constants are written elsewhere and do not count."""
        self.count += 1
        return super().nodes(*arguments, **options)

    def graph(self, *outputs: Value) -> Graph:
        """Return the graph, float32."""
        ops = [op for op in self._ops if op.kind not in _CONSTANTS]
        values = [*self._inputs, *(value for op in ops for value in op.outputs)]
        number = {value.name: index for index, value in enumerate(values)}
        return Graph(
            name=self.name,
            tensors=tuple(Tensor(value.name, _FLOAT_BYTES * math.prod(value.shape)) for value in values),
            ops=tuple(
                Op(
                    op.outputs[0].name,
                    op.kind,
                    tuple(dict.fromkeys(number[name] for name in op.inputs if name in number)),
                    tuple(number[value.name] for value in op.outputs),
                )
                for op in ops
            ),
            inputs=tuple(number[value.name] for value in self._inputs),
            outputs=tuple(number[value.name] for value in outputs),
        )


KINDS: Final[Mapping[str, Callable[[int], Graph]]] = MappingProxyType({"layered": layered, "stacked": stacked})
"""By the name that the command line uses."""
