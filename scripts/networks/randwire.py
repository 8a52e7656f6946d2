"""RandWire (Xie et al., "Exploring Randomly Wired Neural Networks for Image Recognition"), small regime, 224x224.

Two convolutions of stride 2 (39 and 78 channels), then three stages of 32 nodes wired by Watts and Strogatz's model
with k = 4 and p = 0.75, with 78, 156 and 312 channels, and a 1x1 convolution to 1280. Edges go from the lower to the
higher number. A node weights its inputs (stack, product with the weights), then comes activation, depthwise and
pointwise convolution, BN. Nodes without inputs read the stage's input with stride 2; the results of nodes without
readers are averaged. Common sub-expressions are merged, as activations and stackings of the same value.

The paper whose figures are reproduced names no seeds: those here were chosen because they give its figures. The
mean over the plane gives ``[1, 1280]`` (a ReduceMean), and the classifier is a MatMul and an Add.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["SEEDS", "random_cell", "randwire1", "randwire2", "randwire3", "watts_strogatz"]

SEEDS: Final[Mapping[str, int]] = MappingProxyType({"randwire1": 56, "randwire2": 316, "randwire3": 98})
_CHANNELS: Final = 78
_NODES: Final = 32
_NEIGHBOURS: Final = 4
_REWIRED: Final = 0.75


def randwire1(*, keep_activations: bool = False) -> ModelProto:
    """Return the first network."""
    return _network("randwire1", keep_activations)


def randwire2(*, keep_activations: bool = False) -> ModelProto:
    """Return the second network."""
    return _network("randwire2", keep_activations)


def randwire3(*, keep_activations: bool = False) -> ModelProto:
    """Return the third network."""
    return _network("randwire3", keep_activations)


def random_cell(nodes: int, seed: int, *, stages: int = 1, keep_activations: bool = False) -> ModelProto:
    """Return one stage of ``nodes`` nodes at 28x28: how hard a proof is grows with its nodes.

    Further stages have half the extent and four times the channels of the one before, so that all can set the peak.
    """
    name = f"randwire_cell_{nodes}_{seed}" if stages == 1 else f"randwire_cells_{stages}x{nodes}_{seed}"
    net = Builder(name, merge=True, keep_activations=keep_activations)
    x = net.input("input", 1, _CHANNELS, 56, 56)
    source = random.Random(seed)
    for stage in range(stages):
        x = _stage(net, x, _CHANNELS << 2 * stage, watts_strogatz(nodes, _NEIGHBOURS, _REWIRED, source))
    return net.model(x)


def watts_strogatz(nodes: int, neighbours: int, rewired: float, source: random.Random) -> list[list[int]]:
    """Return per node its predecessors: a ring whose edges are each moved with probability ``rewired``.

    Node by node, each of its edges to the next ``neighbours`` / 2 nodes is moved to a node that it has no edge with.
    """
    adjacent: list[set[int]] = [set() for _ in range(nodes)]
    ring = [(node, (node + step) % nodes) for node in range(nodes) for step in range(1, neighbours // 2 + 1)]
    for node, other in ring:
        adjacent[node].add(other)
        adjacent[other].add(node)
    for node, other in ring:
        if source.random() < rewired:
            free = [candidate for candidate in range(nodes) if candidate != node and candidate not in adjacent[node]]
            chosen = source.choice(free)
            adjacent[node].remove(other)
            adjacent[other].remove(node)
            adjacent[node].add(chosen)
            adjacent[chosen].add(node)
    return [sorted(before for before in adjacent[node] if before < node) for node in range(nodes)]


def _network(name: str, keep_activations: bool) -> ModelProto:
    net = Builder(name, merge=True, keep_activations=keep_activations)
    source = random.Random(SEEDS[name])
    x = net.conv(net.input("input", 1, 3, 224, 224), _CHANNELS // 2, 3, 2)
    x = net.conv(net.relu(x), _CHANNELS, 3, 2)
    for stage in range(3):
        x = _stage(net, x, _CHANNELS << stage, watts_strogatz(_NODES, _NEIGHBOURS, _REWIRED, source))
    x = net.conv(x, 1280)
    pooled = net.node("ReduceMean", [net.relu(x)], (1, x.channels), axes=[2, 3], keepdims=0)
    return net.model(net.matmul_classifier(pooled, 1000))


def _stage(net: Builder, x: Value, channels: int, wiring: Sequence[Sequence[int]]) -> Value:
    results: list[Value] = []
    for before in wiring:
        taken = _weighted(net, [results[node] for node in before]) if before else x
        inner = net.depthwise(net.relu(taken), 3, 1 if before else 2)
        results.append(net.conv(inner, channels))
    read = {node for before in wiring for node in before}
    last = _stack(net, [result for node, result in enumerate(results) if node not in read])
    return net.node("ReduceMean", [last], results[0].shape, axes=[4], keepdims=0)


def _stack(net: Builder, values: Sequence[Value]) -> Value:
    axes = net.integers("axis_4", [4])
    return net.concat([net.node("Unsqueeze", [value, axes], (*value.shape, 1)) for value in values], 4)


def _weighted(net: Builder, values: Sequence[Value]) -> Value:
    """Sum the inputs of a node, each with a learned weight between 0 and 1."""
    if len(values) == 1:
        return values[0]
    shape = values[0].shape
    stacked = _stack(net, values)
    product = net.node("MatMul", [stacked, net.own_floats([len(values), 1], 0.2, 0.8)], (*shape, 1))
    return net.node("Squeeze", [product, net.integers("axis_4", [4])], shape)
