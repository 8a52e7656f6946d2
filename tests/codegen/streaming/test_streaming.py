"""C that streams: bit-equal to TensorFlow Lite Micro, in as little memory as a checker confirms."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memsched.base.errors import InternalError, ModelError
from memsched.codegen.streaming.check import check_stream
from memsched.codegen.streaming.emit import ram_bytes
from memsched.codegen.streaming.layers import StreamNetwork
from memsched.codegen.streaming.network import stream_network
from memsched.codegen.streaming.plan import InputPlace, StreamPlan, plan_stream
from memsched.codegen.streaming.schedule import run_segment
from memsched.commands.optimize.optimize import load
from memsched.formats.capabilities import KernelContents
from memsched.formats.known import capability
from tests.codegen.harness import COMPILER
from tests.codegen.networks import QuantisedNet, quantised_net
from tests.codegen.streaming.harness import PLACES, SANITIZERS, extremes, in_tflm, run_streamed, streamed
from tests.failures import fails
from tests.formats.tflite_builder import Sub, build, options
from tests.rewrites.tile.random_nets import tflite_net
from tests.suites import Draws

MODELS = Path(__file__).parents[3] / "models"

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


def _headless(seed: int) -> bytes:
    """Return a random network whose last map is its output: heads often give the same for all inputs."""
    net = QuantisedNet(seed)
    while len(net.ops) < 7:
        net.layer()
    return build(Sub(net.tensors, net.ops, (0,), (net.current,)))


def _hold(
    model: bytes,
    place: InputPlace,
    folder: Path,
    *flags: str,
    seed: int = 0,
    count: int = 20,
) -> tuple[StreamPlan, bool]:
    """Check that two runs in a row of each input give what the reference gives; return the plan, and if that varies."""
    plan, code = streamed(model, place)
    inputs = extremes(plan.network.maps[0].size, count, seed)
    wanted = in_tflm(model, inputs)
    found = run_streamed(plan, code, [one for one in inputs for _ in range(2)], folder, *flags)
    assert [one.tolist() for one in found] == [one.tolist() for one in wanted for _ in range(2)]
    return plan, any(not np.array_equal(wanted[0], one) for one in wanted)


@needs_compiler
@pytest.mark.parametrize("place", PLACES)
def test_random_networks_keep_every_bit(place: InputPlace, tmp_path: Path, draws: Draws) -> None:
    varying, count = 0, draws(1, 20)
    for seed in range(count):
        _hold(quantised_net(seed, 7), place, tmp_path, seed=seed, count=6)
        varying += _hold(_headless(seed), place, tmp_path, seed=seed, count=6)[1]
    assert varying > count / 2


@needs_compiler
@pytest.mark.parametrize("place", PLACES)
def test_a_pad_behind_the_map_and_several_readers(place: InputPlace, tmp_path: Path) -> None:
    """Rows and columns are added below and to the right alone, before a pool; its result is read by three layers."""
    net = QuantisedNet(3)
    rows, columns, channels = net.shape
    reads = [net.current, net.constant((4, 2), 0, 0, 0, 2, 0, 1, 0, 0)]
    net.shape = (rows + 2, columns + 1, channels)
    net.current = net.op("PAD", reads, net.shape, options("PadOptions"), **net.same())
    made = (-(-net.shape[0] // 2), -(-net.shape[1] // 2), channels)
    pool = {"padding": 0, "strideH": 2, "strideW": 2, "filterHeight": 3, "filterWidth": 2}
    table = options("Pool2DOptions", **pool, fusedActivationFunction=0)
    net.current, net.shape = net.op("MAX_POOL_2D", [net.current], made, table, **net.same()), made
    net.branch("join")
    net.branch("concat")
    _, varies = _hold(build(Sub(net.tensors, net.ops, (0,), (net.current,))), place, tmp_path, count=6)
    assert varies


@needs_compiler
def test_a_product_with_more_columns_than_a_window_has_adds_up(tmp_path: Path) -> None:
    net = QuantisedNet(0)
    net.tensors, net.ops, net.shape = [], [], (1, 300, 1)
    net.current = net.tensor(net.shape)
    net.function()
    reads = [net.current, net.constant((2,), 1, 300)]
    net.current = net.op("RESHAPE", reads, (300,), options("ReshapeOptions"), **net.same())
    reads = net.biased(net.current, net.weights((400, 300), 0, per_channel=False), 400)
    net.current = net.op("FULLY_CONNECTED", reads, (400,), options("FullyConnectedOptions"))
    plan, varies = _hold(build(Sub(net.tensors, net.ops, (0,), (net.current,))), "elsewhere", tmp_path, count=4)
    assert varies
    assert [one.kind for one in plan.network.layers] == ["table", "dense"]


def test_every_output_lies_with_the_caller() -> None:
    net = QuantisedNet(5)
    while len(net.ops) < 3:
        net.layer()
    first = net.current
    net.branch("concat")
    model = build(Sub(net.tensors, net.ops, (0,), (net.current, first)))
    plan, code = streamed(model, "elsewhere")
    assert len(plan.network.outputs) == 2
    assert b"int8_t *out, int8_t *out1" in code.files["model.h"]


@needs_compiler
def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    for place in PLACES:
        _hold(_headless(11), place, tmp_path, *SANITIZERS, count=4)


@needs_compiler
@pytest.mark.parametrize(
    ("name", "place", "most"),
    [
        ("person_detect", "held", 11_750),
        ("person_detect", "rows", 10_600),
        ("micro_speech_quantized", "held", 2_020),
        ("micro_speech_quantized", "rows", 440),
        ("hello_world_int8", "held", 60),
    ],
)
def test_models_need_a_tenth(name: str, place: InputPlace, most: int, tmp_path: Path) -> None:
    model = (MODELS / f"{name}.tflite").read_bytes()
    plan, varies = _hold(model, place, tmp_path)
    assert varies
    assert ram_bytes(plan.arena, streamed(model, place)[1].state) <= most


def _network(model: bytes) -> StreamNetwork:
    module = load(model)
    return stream_network(module.graph, capability(module, KernelContents).layer_kernels(module))


def test_one_byte_less_is_found(draws: Draws) -> None:
    """With the input one byte nearer, bytes that are needed are overwritten, and the checker says so."""
    tight = 0
    for seed in range(draws(8, 40)):
        plan, _ = streamed(quantised_net(seed, 5), "held")
        first, *rest = plan.segments
        if not first.place:
            continue
        nearer = replace(plan, segments=(replace(first, place=first.place - 1), *rest))
        try:
            check_stream(nearer)
        except InternalError:
            tight += 1
    assert tight >= 3


def test_a_longer_segment_does_the_same_first(draws: Draws) -> None:
    for seed in range(draws(3, 20)):
        network = _network(quantised_net(seed, 6))
        whole = run_segment(network, range(len(network.layers)), pushed=True)
        for end in range(1, len(network.layers)):
            part = run_segment(network, range(end), pushed=True)
            shared = [int(one) for one in whole.order if one < end]
            # What is pushed depends on how much the last layers need; what is computed does not.
            assert [one for one in shared if one >= 0] == [int(one) for one in part.order if one >= 0]


def test_what_does_not_stream_is_named() -> None:
    with fails("not-streamable", "float32") as found:
        streamed(tflite_net(7, 4), "held")
    assert isinstance(found.value, ModelError)


def test_a_search_that_ends_early_keeps_its_best_plan() -> None:
    module = load(quantised_net(8, 4))
    network = stream_network(module.graph, capability(module, KernelContents).layer_kernels(module))
    with fails("not-streamable"):
        plan_stream(network, "held", lambda: True)
    whole, arenas = plan_stream(network, "held").arena, []
    for calls in (20, 60, 10_000):
        left = iter(range(calls))
        with contextlib.suppress(ModelError):
            plan = plan_stream(network, "held", lambda left=left: next(left, None) is None)  # type: ignore[misc]
            check_stream(plan)
            arenas.append(plan.arena)
    assert arenas == sorted(arenas, reverse=True)
    assert arenas[-1] == whole
