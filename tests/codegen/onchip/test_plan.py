"""Whole plans: the checker passes them and catches what is wrong, traffic by hand, the best cut against all cuts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import msgspec
import pytest

from memsched.base.errors import InternalError
from memsched.base.typed import converted
from memsched.codegen.onchip import plan
from memsched.codegen.onchip.check import check_plan
from memsched.codegen.onchip.greedy import candidate
from memsched.codegen.onchip.groups import GroupSpan
from memsched.codegen.onchip.model import Tile
from memsched.codegen.onchip.network import OnChipNetwork
from memsched.codegen.onchip.traffic import Machine, alone
from memsched.commands.optimize.on_chip_report import on_chip_section
from memsched.formats.onnx.reader import read
from memsched.graph.model import Graph, Op, Tensor
from memsched.lowering.apply import apply_target
from memsched.report.values.rewrites import OnChipSection
from memsched.search.limits import Limits
from memsched.targets.load import load_target
from memsched.targets.model import Target
from scripts.networks.catalogue import build
from tests.codegen.onchip.networks import Net, random_net
from tests.failures import fails

LIMITS = Limits(60.0)


def chip(size: int) -> Target:
    return msgspec.structs.replace(load_target("diannao"), on_chip_bytes=size)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("size", [700, 3000, 9000])
def test_random_networks_are_planned_and_checked(seed: int, size: int) -> None:
    graph = random_net(seed)
    for policy in ("separate", "reuse"):
        found = plan(graph, chip(size), LIMITS, method="greedy", policy=policy)
        assert found.cost.traffic <= found.before.traffic
    best = plan(graph, chip(size), LIMITS)
    fast = plan(graph, chip(size), LIMITS, objective="time")
    assert fast.seconds <= best.seconds + 1e-12
    # What fits in no pieces counts as if it moved everything once.
    refused = [sum(group.refusal is not None for group in one.groups) for one in (best, found)]
    assert refused[0] <= refused[1]
    if refused[0] == refused[1]:
        assert best.cost.traffic <= found.cost.traffic
        assert fast.seconds <= found.seconds + 1e-12


def test_the_flowchart_joins_whatever_fits() -> None:
    graph = random_net(5)
    alone = plan(graph, chip(3000), LIMITS, method="layers", policy="separate")
    grown = plan(graph, chip(3000), LIMITS, method="flowchart")
    greedy = plan(graph, chip(3000), LIMITS, method="greedy")
    assert len(alone.groups) == len(graph.ops)
    assert alone.cost == alone.before
    assert len(grown.groups) < len(greedy.groups) < len(alone.groups)
    assert grown.cost.traffic > greedy.cost.traffic


def test_without_reuse_everything_has_bytes_of_its_own() -> None:
    for seed in range(3):
        found = plan(random_net(seed), chip(3000), LIMITS, policy="separate")
        for group in found.groups:
            ends = sorted((buffer.offset, buffer.offset + buffer.size) for buffer in group.buffers)
            assert all(one[1] <= other[0] for one, other in itertools.pairwise(ends))


def test_traffic_by_hand() -> None:
    net = Net(2, 8, 6)
    net.relu(net.conv(0, 4, 3, 1, 1))
    graph = net.graph()
    weights, given, made = 4 * 4 * 2 * 9, 4 * 2 * 48, 4 * 4 * 48
    everything = plan(graph, chip(1 << 20), LIMITS, method="greedy")
    assert (everything.cost.read, everything.cost.written) == (given + weights, made)
    assert (everything.once.read, everything.once.written) == (given + weights + made, 2 * made)
    # In place, one row more each side: 768 + 384 + 288 bytes do not fit, two halves of the rows do, and read 10 of 8.
    halves = plan(graph, chip(1000), LIMITS, method="greedy")
    assert [(group.tile.rows, group.tile.columns) for group in halves.groups] == [(2, 1)]
    assert halves.cost.read == given * 10 // 8 + weights
    assert halves.cost.flops == everything.cost.flops
    assert everything.before_seconds == pytest.approx((given + weights + 3 * made) / 1.5e9)


def test_the_checker_catches_what_is_wrong() -> None:
    graph, target = random_net(3), chip(3000)
    lowered = apply_target(graph, target)
    found = plan(graph, target, LIMITS, method="greedy")
    at = next(number for number, group in enumerate(found.groups) if len(group.buffers) > 2)
    group = found.groups[at]

    def changed(**values: object) -> None:
        wrong = replace(group, **values)  # type: ignore[arg-type]
        check_plan(lowered, replace(found, groups=(*found.groups[:at], wrong, *found.groups[at + 1 :])))

    changed()
    last = group.buffers[-1]
    for buffers in (
        group.buffers[:-1],
        (*group.buffers[:-1], replace(last, offset=3000)),
        (*group.buffers[:-1], replace(last, size=last.size - 1)),
        (*group.buffers[:-1], replace(last, rows=last.rows[:-1] or ())) if len(last.rows) > 1 else (),
        tuple(replace(one, offset=0) for one in group.buffers),
    ):
        with pytest.raises(InternalError):
            changed(buffers=buffers)
    with fails("bytes-claim"):
        changed(cost=replace(group.cost, read=group.cost.read - 4))
    with fails("order"):
        check_plan(lowered, replace(found, groups=found.groups[:-1]))


def test_an_output_may_not_overwrite_what_is_still_needed() -> None:
    net = Net(3, 8, 64)
    net.conv(0, 16, 4, 2, 0)
    graph, weights = net.graph(), 4 * 16 * 3 * 16
    found = plan(graph, chip(weights + 8240), LIMITS, method="greedy")
    group = found.groups[0]
    assert {buffer.kind: buffer.offset - weights for buffer in group.buffers if buffer.tensor >= 0} == {
        "input": 2096,
        "output": 0,
    }
    near = tuple(replace(one, offset=one.offset - 4) if one.kind == "input" else one for one in group.buffers)
    with fails("overwrites"):
        check_plan(apply_target(graph, chip(1)), replace(found, groups=(replace(group, buffers=near),)))


def best_of(network: OnChipNetwork, machine: Machine, first: int, last: int) -> int | None:
    """The least traffic of an interval over all ways of cutting, by enumeration."""
    span = GroupSpan(network, first, last)
    made = network.maps[network.layers[last].writes[0]]
    least: int | None = None
    channels = range(1, span.most_channels() + 1) if span.channels_can_be_cut else (1,)
    for rows, columns, parts, weights, kept in itertools.product(
        range(1, made.rows + 1), range(1, made.columns + 1), channels, ("resident", "step"), (False, True)
    ):
        one = candidate(span, Tile(rows, columns, parts, weights, kept))  # type: ignore[arg-type]
        if one is not None and one.placed(machine.capacity, 1, "reuse") is not None:
            traffic = one.cost().traffic
            least = traffic if least is None else min(least, traffic)
    for rows, columns, parts, addends in itertools.product(
        range(1, made.rows + 1), range(1, made.columns + 1), channels, range(2, span.layers[0].addends + 1)
    ):
        one = candidate(span, Tile(rows, columns, parts, "step", addends=addends)) if span.adds_up else None
        if one is not None and one.placed(machine.capacity, 1, "reuse") is not None:
            traffic = one.cost().traffic
            least = traffic if least is None else min(least, traffic)
    return least


def test_input_channels_are_added_up_in_parts() -> None:
    net = Net(32, 6, 6)
    net.relu(net.conv(0, 24))
    graph, target = net.graph(), chip(5600)
    found = plan(graph, target, LIMITS)
    (group,) = found.groups
    # All 24 channels of 36 sums stay: each operand moves once, though the input alone would not fit.
    assert (group.tile.planes, group.tile.channels) == (1, 1)
    assert found.cost.read == 4 * (32 * 36 + 24 * 32 * 9)
    assert plan(graph, target, LIMITS, method="greedy").cost.read > found.cost.read
    given, weights = (next(one for one in group.buffers if one.kind == kind) for kind in ("input", "weights"))
    lowered = apply_target(graph, target)
    for one, other in (
        (given, replace(given, size=given.size - 4)),
        (weights, replace(weights, size=weights.size - 4)),
        (given, replace(given, last=1)),
        (given, replace(given, channels=given.channels[1:])),
        (given, replace(given, channels=(given.channels[0], *given.channels))),
        (given, replace(given, offset=next(one.offset for one in group.buffers if one.kind == "inner"))),
        (given, replace(given, addends=False)),
    ):
        buffers = tuple(other if buffer is one else buffer for buffer in group.buffers)
        with pytest.raises(InternalError):
            check_plan(lowered, replace(found, groups=(replace(group, buffers=buffers),)))


def test_what_two_layers_hand_on_stays_while_channels_are_cut_behind_it() -> None:
    net = Net(32, 6, 6)
    net.conv(net.conv(0, 32), 32)
    graph, target = net.graph(), chip(8000)
    found = plan(graph, target, LIMITS)
    (group,) = found.groups
    assert (group.tile.planes, group.tile.front) == (1, 1)
    # Two maps of 4,608 bytes never lie there at once, and each operand moves once.
    assert found.cost.traffic == 4 * (2 * 32 * 36 + 2 * 32 * 32 * 9)
    lowered = apply_target(graph, target)
    handed = next(one for one in group.buffers if one.kind == "inner")
    made = next(one for one in group.buffers if one.kind == "output")
    for one, other in (
        (handed, replace(handed, last=handed.first)),
        (handed, replace(handed, channels=made.channels)),
        (handed, replace(handed, offset=made.offset)),
    ):
        buffers = tuple(other if buffer is one else buffer for buffer in group.buffers)
        with pytest.raises(InternalError):
            check_plan(lowered, replace(found, groups=(replace(group, buffers=buffers),)))
    with pytest.raises(InternalError):
        check_plan(lowered, replace(found, groups=(replace(group, tile=replace(group.tile, front=0)),)))


@pytest.mark.parametrize("size", [220, 500, 900, 1500])
def test_the_best_cut_is_the_best_of_all_cuts(size: int) -> None:
    net = Net(3, 6, 5)
    x = net.conv(0, 4)
    y = net.relu(net.conv(x, 4))
    net.pool(net.join("Add", x, y))
    graph = net.graph()
    network, machine = OnChipNetwork(apply_target(graph, chip(size))), Machine.of(chip(size))
    count = len(graph.ops)
    known = {(a, b): best_of(network, machine, a, b) for a in range(count) for b in range(a, count)}
    least = None
    for inner in itertools.product((False, True), repeat=count - 1):
        ends = [place for place, cut in enumerate(inner) if cut] + [count - 1]
        costs = [known[start, end] for start, end in zip([0, *(end + 1 for end in ends)], ends, strict=False)]
        if None not in costs:
            total = sum(cost for cost in costs if cost is not None)
            least = total if least is None else min(least, total)
    assert least is not None
    assert plan(graph, chip(size), LIMITS).cost.traffic == least


def test_an_op_without_a_rule_ends_a_group_with_a_reason() -> None:
    net = Net(2, 4, 4)
    strange = net.add("Mystery", [net.relu(0)], 2, 4, 4)
    net.relu(strange)
    found = plan(net.graph(), chip(100), LIMITS, method="greedy")
    (reason,) = [group.refusal for group in found.groups if group.refusal]
    assert "'op2' (Mystery)" in reason
    assert found.groups[-1].refusal is None


def test_padding_that_is_a_layer_and_rows_that_no_window_reaches() -> None:
    net = Net(2, 9, 9)
    padded = net.add("Pad", [net.relu(0)], 2, 12, 12, pads=(0, 0, 1, 0, 0, 0, 2, 3))
    net.conv(net.conv(padded, 4, 3, 2, 0), 4)
    for size in (500, 900, 3000):
        plan(net.graph(), chip(size), LIMITS)


def test_weights_of_a_product_are_loaded_in_parts_and_a_matrix_has_no_channels() -> None:
    tensors = (Tensor("x", 4 * 6 * 8, (1, 6, 8), "float32"), Tensor("y", 480_000, (1, 6, 20_000), "float32"))
    op = Op("product", "MatMul", (0,), (1,), attributes={"constant_shape_1": (8, 20_000)}, positions=(0,))
    graph = Graph("product", tensors, (op,), (0,), (1,))
    fits = plan(graph, chip(600_000), LIMITS, method="greedy").groups[0]
    assert (fits.tile, fits.refusal) == (Tile(weights="step"), None)
    least = plan(graph, chip(400_000), LIMITS).groups[0]
    assert "'product'" in (least.refusal or "")
    assert least.cost.traffic == 4 * (6 * 8 + 6 * 20_000 + 8 * 20_000)


def test_a_target_without_on_chip_memory_is_refused() -> None:
    with fails("no-on-chip-memory", "'tflm'"):
        plan(random_net(0), load_target("tflm"), LIMITS)


def test_no_time_gives_a_plan_all_the_same() -> None:
    graph = random_net(1)
    found = plan(graph, chip(3000), Limits(0.0))
    assert found.cost.traffic <= plan(graph, chip(3000), LIMITS, method="greedy").cost.traffic


def test_the_section_is_plain_data() -> None:
    found = on_chip_section(plan(random_net(2), chip(3000), LIMITS))
    assert converted(msgspec.to_builtins(found), OnChipSection) == found
    assert found.traffic.after_bytes < found.traffic.before_bytes
    assert {name for group in found.groups for name in group.ops} == {op.name for op in random_net(2).ops}
    moved = sum(group.read_bytes + group.written_bytes for group in found.groups)
    assert moved == found.traffic.after_bytes


def network_of(name: str) -> Graph:
    return read(build(name).SerializeToString(), f"{name}.onnx").graphs[0]


@pytest.mark.parametrize(
    ("name", "giga_macs", "million_weights"),
    [
        ("vgg19", 19.63, 143.67),
        ("googlenet", 1.58, 7.0),
        ("inception_v3", 5.71, 23.8),
        ("resnet18", 1.81, 11.7),
        ("resnet50", 3.86, 25.6),
    ],
)
def test_the_networks_are_the_published_ones(name: str, giga_macs: float, million_weights: float) -> None:
    network = OnChipNetwork(network_of(name))
    assert sum(op.macs for op in network.graph.ops) / 1e9 == pytest.approx(giga_macs, rel=0.005)
    # Normalisations and scale layers have four vectors each here.
    weights = sum(layer.weights for layer in network.layers) / 4e6
    assert million_weights <= weights * 1.001 <= million_weights * 1.02


def test_fusing_all_of_resnet_18_would_save_what_the_document_says() -> None:
    network = OnChipNetwork(apply_target(network_of("resnet18"), load_target("diannao")))
    total = sum(alone(network, op).traffic for op in range(len(network.layers)))
    left = network.maps[0].size + network.maps[network.graph.outputs[0]].size
    assert round(100 * (1 - left / total), 1) == 99.6


def test_resnet_18_with_the_documents_groups() -> None:
    target = load_target("diannao")
    graph = network_of("resnet18")
    separate = plan(graph, target, LIMITS, method="greedy", policy="separate")
    reuse = plan(graph, target, LIMITS, method="greedy")
    assert reuse.before.traffic == 137_661_956
    assert reuse.cost.traffic < separate.cost.traffic < 0.5 * reuse.before.traffic
    assert reuse.before_seconds / reuse.seconds > 1.6
    assert all(group.height <= 768 * 1024 for group in reuse.groups)
