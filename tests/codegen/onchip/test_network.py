"""What layers cost and need: the short ways agree with the shape deduction."""

from __future__ import annotations

import pytest

from memsched.codegen.onchip.network import OnChipNetwork
from memsched.graph.model import Region
from memsched.lowering.apply import apply_target
from memsched.ops.geometry import described
from memsched.ops.ranges import PieceNeeds, deduce
from memsched.ops.rules import Refusal
from memsched.targets.load import load_target
from tests.codegen.onchip.networks import Net, random_net


@pytest.mark.parametrize("seed", range(6))
def test_rows_and_columns_are_those_of_the_shape_deduction(seed: int) -> None:
    graph = random_net(seed)
    network = OnChipNetwork(graph)
    for op, layer in enumerate(network.layers):
        shape = graph.tensors[layer.writes[0]].shape or ()
        geometry = described(graph, op)
        assert not isinstance(geometry, Refusal)
        for axis in (0, 1):
            for start in range(shape[axis + 2]):
                for stop in range(start + 1, shape[axis + 2] + 1):
                    ranges = [(0, size) for size in shape]
                    ranges[axis + 2] = (start, stop)
                    wanted = deduce(geometry, graph.ops[op], Region(tuple(ranges)))
                    found = network.needed(op, axis, start, stop)
                    if not isinstance(wanted, PieceNeeds):
                        assert found is None
                        continue
                    assert found is not None
                    spans = {
                        tensor: entry.region.ranges[axis + 2]
                        for tensor, entry in zip(graph.ops[op].inputs, wanted.inputs, strict=True)
                        if entry.region is not None
                    }
                    assert dict(zip(layer.reads, found[1], strict=True)) == spans


def test_layers_are_counted() -> None:
    net = Net(2, 8, 6)
    pooled = net.pool(net.relu(net.conv(0, 4)))
    net.add("Identity", [pooled], *net.shape(pooled))
    layers = OnChipNetwork(apply_target(net.graph(), load_target("diannao"))).layers
    assert [layer.flops for layer in layers] == [2 * 4 * 48 * 9, 4 * 48, 4 * 12 * 4, 0]
    assert [layer.weights for layer in layers] == [4 * 4 * 2 * 9, 0, 0, 0]
    assert [layer.channels for layer in layers] == ["head", "follow", "follow", "follow"]
    assert [layer.view for layer in layers] == [False, False, False, True]
