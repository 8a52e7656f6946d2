"""What a distributed run has in use is what was printed of it, and what fits fits with what the runtime copies."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from memsched.features.distribute import distribute as distribute_module
from memsched.features.distribute.distribute import DistributedNetwork, distribute, run_plan
from memsched.features.distribute.execute import execute
from memsched.features.distribute.follow import follow
from memsched.features.distribute.memory import activations_of
from memsched.features.distribute.orders import OrderedPlan, plan_in_best_order
from memsched.features.distribute.report import report_of
from memsched.features.distribute.search import Method
from memsched.features.distribute.space import NoPlanFitsError
from memsched.features.distribute.step_models import StepModel, step_model
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.parts import PartsWriter
from memsched.formats.onnx.rewriter import dialect
from memsched.runtimes.onnxruntime.part_memory import part_bytes
from tests.distributed_nets import Net, classifier, cluster_of, random_net, random_plan
from tests.distributed_nets import wide_first as wide
from tests.failures import fails

NETWORKS = Path(__file__).resolve().parents[3] / "models" / "networks"


def shown(found: DistributedNetwork) -> Sequence[int]:
    devices = report_of(run_plan(found)).data["devices"]
    assert [one["memory_bytes"] for one in devices] == list(found.memory)
    return [int(one["measured"]["weights_and_activations_bytes"]) for one in devices]


@pytest.mark.parametrize("data", [classifier(), wide(), *map(random_net, (1, 2, 5))])
@pytest.mark.parametrize("count", [2, 3])
def test_processes_show_what_is_printed(data: bytes, count: int) -> None:
    found = distribute(data, cluster=cluster_of(count), effort=0.2)
    for printed, measured in zip(found.memory, shown(found), strict=True):
        assert printed == pytest.approx(measured, rel=0.02)


def test_copies_of_slices_are_counted() -> None:
    """Random plans cut a lot out of what a device holds: more is in use than they count."""
    more = 0
    for seed in range(6):
        module = load_module(random_net(seed), "net.onnx", LoadOptions())
        writer, words = PartsWriter(module), dialect(module)
        plan = random_plan(module.graph, seed, writer.constant_bytes())
        followed, steps = follow(module.graph, plan, words), range(len(plan.steps))
        models = [[step_model(followed, device, step, words) for step in steps] for device in range(plan.devices)]
        weights = [0] * plan.devices
        file = partial(written, writer, models)
        run = execute(module, module.native.data, followed, models, partial(file, weights)).run
        for device, one in enumerate(run.devices):
            told = activations_of(
                *(followed, device, models[device]),
                [
                    0 if one is None else part_bytes(module, one.graph, partial(file, [0] * plan.devices, device, step))
                    for step, one in enumerate(models[device])
                ],
            )
            assert one.activations == pytest.approx(told, rel=0.02, abs=128)
            more += told + weights[device] > 1.02 * plan.memory[device]
    assert more


def test_files_of_parts_are_made_where_they_say_more_alone() -> None:
    def none() -> bytes:
        raise AssertionError("a file was made")

    looked_at = 0
    for seed in range(6):
        module = load_module(random_net(seed), "net.onnx", LoadOptions())
        assert not module.native.constant_nodes[0]
        elsewhere = replace(module, native=replace(module.native, external=("weights.bin",)))
        writer, words = PartsWriter(module), dialect(module)
        followed = follow(module.graph, random_plan(module.graph, seed, writer.constant_bytes()), words)
        devices, steps = range(len(followed.devices)), range(len(followed.plan.steps))
        models = [[step_model(followed, device, step, words) for step in steps] for device in devices]
        for device, step in itertools.product(devices, steps):
            model = models[device][step]
            if model is not None:
                data = partial(written, writer, models, [0] * len(devices), device, step)
                assert part_bytes(module, model.graph, none) == part_bytes(elsewhere, model.graph, data)
                looked_at += 1
    assert looked_at > 20


def written(
    writer: PartsWriter, models: Sequence[Sequence[StepModel | None]], weights: list[int], device: int, step: int
) -> bytes:
    model = models[device][step]
    assert model is not None
    part = writer.write(model.graph, model.parts, {})
    weights[device] += part.weights
    return part.data


def test_what_fits_fits_with_the_copies() -> None:
    """The first plan found counts less than this, and takes more: another one is looked for, or none is written."""
    data = (NETWORKS / "unetpp.onnx").read_bytes()
    cluster = cluster_of(4, memory=6_980_000)
    found = distribute(data, cluster=cluster, effort=3.0)
    assert max(shown(found)) <= 6_980_000
    even = distribute(data, cluster=cluster_of(4), method="even", effort=3.0)
    small = cluster_of(4, memory=max(even.memory) - 1)
    small = replace(small, devices=tuple(replace(one, memory=max(even.plan.memory) + 1) for one in small.devices))
    assert max(even.memory) < max(even.plan.memory)
    assert distribute(data, cluster=small, method="even", effort=3.0).memory == even.memory
    with pytest.raises(NoPlanFitsError):
        distribute(data, cluster=cluster_of(4, memory=6_500_000), effort=3.0)


@pytest.mark.parametrize(("seed", "memory"), [(4, 9_168), (9, 17_075), (0, 10_507)])
def test_what_does_not_fit_on_a_board_is_not_tried_on_the_next_that_is_like_it(
    seed: int, memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[tuple[int, ...]] = []

    def recorded(*args: Any, **options: Any) -> OrderedPlan:
        found = plan_in_best_order(*args, **options)
        planned.append(tuple(sorted(found.plan.memory)))
        return found

    monkeypatch.setattr(distribute_module, "plan_in_best_order", recorded)
    found = distribute(random_net(seed), cluster=cluster_of(3, memory=memory), effort=1.0)
    assert max(found.memory) <= memory
    assert planned[0] == (0, 0, max(planned[0]))
    assert all(max(plan) < max(planned[0]) for plan in planned[1:])
    assert len(planned) <= 3


@pytest.mark.parametrize("seed", [34, 69, 118])
def test_what_comes_for_later_steps_lies_beside_what_is_dropped_in_this_one(seed: int) -> None:
    cluster = cluster_of(3)
    cluster = replace(cluster, router=replace(cluster.router, bandwidth=1e7, overlap=True))
    found = distribute(random_net(seed), cluster=cluster, method="even", effort=0.2)
    assert any(step.ahead for step in found.plan.steps)
    assert shown(found) == list(found.memory)


def computed_weights() -> bytes:
    """A classifier with filters that nodes fill and scale: no session of a part does that before it runs."""
    net = Net()
    sizes = numpy_helper.from_array(np.array([16, 4, 3, 3], np.int64), "sizes")
    third = numpy_helper.from_array(np.array([1 / 3], np.float32))
    x = net.given(1, 4, 8, 8)
    stored = net.weights(16, 16, 3, 3)
    net.constants.append(sizes)
    nodes = [
        helper.make_node("ConstantOfShape", ["sizes"], ["filled"], "fill", value=third),
        helper.make_node("Identity", ["filled"], ["same"], "same"),
        helper.make_node("Mul", [stored, stored], ["squared"], "square"),
        helper.make_node("Shape", [stored], ["lengths"], "lengths"),
        helper.make_node("ConstantOfShape", ["lengths"], ["as_long"], "fill_as_long"),
        helper.make_node("Reshape", ["as_long", "lengths"], ["formed"], "form"),
    ]
    for weights in ("same", "squared", "formed"):
        x = net.node("Conv", [x, weights], (1, 16, 8, 8), pads=[1, 1, 1, 1])
    net.nodes = [*nodes, *net.nodes]
    return net.model(net.head(x, 10))


@pytest.mark.parametrize("method", ["single", "even"])
def test_constants_that_nodes_compute_are_counted(method: Method) -> None:
    found = distribute(computed_weights(), cluster=cluster_of(2), method=method, effort=0.5)
    assert shown(found) == list(found.memory)


def test_no_plan_is_written_for_a_device_that_computed_constants_exceed() -> None:
    needed = distribute(computed_weights(), cluster=cluster_of(1), effort=0.5)
    assert needed.memory[0] > needed.plan.memory[0]
    with fails("no-plan-fits", f"{needed.memory[0]:,} B"):
        distribute(computed_weights(), cluster=cluster_of(1, memory=needed.memory[0] - 1), effort=0.5)
    assert (
        distribute(computed_weights(), cluster=cluster_of(1, memory=needed.memory[0]), effort=0.5).memory
        == needed.memory
    )
