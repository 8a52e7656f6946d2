"""What a distributed run has in use is what was printed of it, and what fits fits with what the runtime copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from memsched.commands.distribute.distribute import DistributedNetwork, distribute, run_plan
from memsched.commands.distribute.execute import execute
from memsched.commands.distribute.follow import follow
from memsched.commands.distribute.memory import activations_of
from memsched.commands.distribute.report import report_of
from memsched.commands.distribute.step_models import StepModel, step_model
from memsched.distribute.space import NoPlanFitsError
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.parts import PartsWriter
from memsched.formats.onnx.rewriter import dialect
from memsched.runtimes.onnxruntime.part_memory import part_bytes
from tests.distributed_nets import classifier, cluster_of, random_net, random_plan
from tests.distributed_nets import wide_first as wide

NETWORKS = Path(__file__).resolve().parents[3] / "models" / "networks"


def shown(found: DistributedNetwork) -> Sequence[int]:
    devices = report_of(run_plan(found)).data["devices"]
    assert [one["memory_bytes"] for one in devices] == list(found.memory)
    return [int(one["measured"]["weights_and_activations_bytes"]) for one in devices]


@pytest.mark.parametrize("data", [classifier(), wide(), *map(random_net, (1, 2, 5))])
@pytest.mark.parametrize("count", [2, 3])
def test_processes_show_what_is_printed(data: bytes, count: int) -> None:
    found = distribute(data, cluster_of(count), time_limit=2.0)
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
        run = execute(module, module.native.data, followed, models, partial(written, writer, models, weights)).run
        for device, one in enumerate(run.devices):
            told = activations_of(
                *(followed, device, models[device]),
                [0 if one is None else part_bytes(one.graph) for one in models[device]],
            )
            assert one.activations == pytest.approx(told, rel=0.02, abs=128)
            more += told + weights[device] > 1.02 * plan.memory[device]
    assert more


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
    found = distribute(data, cluster, time_limit=3.0)
    assert max(shown(found)) <= 6_980_000
    even = distribute(data, cluster_of(4), method="even", time_limit=3.0)
    small = cluster_of(4, memory=max(even.memory) - 1)
    small = replace(small, devices=tuple(replace(one, memory=max(even.plan.memory) + 1) for one in small.devices))
    assert max(even.memory) < max(even.plan.memory)
    assert distribute(data, small, method="even", time_limit=3.0).memory == even.memory
    with pytest.raises(NoPlanFitsError):
        distribute(data, cluster_of(4, memory=6_500_000), time_limit=3.0)


@pytest.mark.parametrize("seed", [34, 69, 118])
def test_what_comes_for_later_steps_lies_beside_what_is_dropped_in_this_one(seed: int) -> None:
    cluster = cluster_of(3)
    cluster = replace(cluster, router=replace(cluster.router, bandwidth=1e7, overlap=True))
    found = distribute(random_net(seed), cluster, method="even", effort=0.2)
    assert any(step.ahead for step in found.plan.steps)
    assert shown(found) == list(found.memory)
