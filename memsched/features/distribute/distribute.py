"""The pipeline behind ``memsched distribute``: a plan for the devices of a cluster, their models, and a run of both."""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from memsched import __version__
from memsched.base.arguments import checked
from memsched.base.errors import UsageError, VerificationError
from memsched.base.frozen import FrozenValue
from memsched.base.suggestions import did_you_mean
from memsched.commands.calls import NO_HOOKS, Hooks, command, limits_of
from memsched.commands.options import DistributeOptions
from memsched.features.distribute.calibrate import (
    LatencyComparison,
    calibrated,
    cluster_text,
    compared,
    throttles_of,
)
from memsched.features.distribute.checking import StepWork, check_plan, work_of
from memsched.features.distribute.execute import DistributedRun, PlanExecution, execute
from memsched.features.distribute.expressed import inexpressible
from memsched.features.distribute.follow import ResolvedPlan, follow
from memsched.features.distribute.memory import activations_of
from memsched.features.distribute.orders import OrderedPlan, plan_in_best_order
from memsched.features.distribute.search import by_rule
from memsched.features.distribute.space import NoPlanFitsError, Space
from memsched.features.distribute.step_models import StepModel, step_model
from memsched.formats.capabilities import PartWriter, Shards, WeightFiles
from memsched.formats.files import load_module, read_source
from memsched.formats.known import capability, format_of
from memsched.formats.module import Module
from memsched.formats.staging import STANDARD_STREAM
from memsched.formats.stated_sizes import stated
from memsched.graph.distribution import Distribution
from memsched.report.outputs import TOLERANCE
from memsched.runtimes.devices.program import Throttle
from memsched.runtimes.known import row_runner_of
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.cluster import Cluster, load_cluster, without

__all__ = [
    "DistributedNetwork",
    "FileFacts",
    "RuleBaseline",
    "calibrated_text",
    "distribute",
    "latency_of",
    "run_plan",
]

_ATTEMPTS = 4
"""Most searches for a plan; each leaves room for what the runtime copied beside the plan before it."""

_AGAIN = 0.5
"""Time for another search, as a share of what the search before it had."""


class RuleBaseline(FrozenValue, frozen=True):
    """What the cluster's model says about a plan by rule, whether or not it fits.

    Attributes:
        memory: Bytes per device.
    """

    latency: float
    memory: tuple[int, ...]
    fits: bool


class FileFacts(FrozenValue, frozen=True):
    """What is known about the file of one device and step.

    Attributes:
        weights: Bytes of its constants.
    """

    sha256: str
    size: int
    weights: int


@dataclass(frozen=True, slots=True)
class DeviceModels:
    """The models of all devices and steps; each file is made on demand, and always with the same bytes."""

    steps: tuple[tuple[StepModel | None, ...], ...]
    writer: PartWriter
    facts: dict[tuple[int, int], FileFacts] = field(default_factory=dict)

    def file(self, device: int, step: int) -> bytes:
        """Return the file of a device's model in a step.

        Raises:
            ModelError: A constant cannot be read, or what is exchanged is not a tensor.
        """
        model = self.steps[device][step]
        if model is None:
            raise UsageError(f"device {device} computes nothing in step {step}", code="idle-device")
        metadata = {"memsched_device": str(device), "memsched_step": str(step), "memsched_version": __version__}
        part = self.writer.write(model.graph, model.parts, metadata)
        digest = hashlib.sha256(part.data).hexdigest()
        self.facts[device, step] = FileFacts(digest, len(part.data), part.weights)
        return part.data

    def facts_of(self, device: int, step: int) -> FileFacts:
        """Return what is known about a file."""
        if (device, step) not in self.facts:
            self.file(device, step)
        return self.facts[device, step]


class DistributionRequest(FrozenValue, frozen=True):
    """What was requested.

    Attributes:
        cluster: Without the devices that have dropped out; the others are counted from 0.
        path: Name or path of the cluster's file; "" for one given as a value.
        dropped: Names of the devices that have dropped out.
        home: The device that gets the outputs.
    """

    options: DistributeOptions
    limits: Limits
    cluster: Cluster
    path: str
    dropped: tuple[str, ...]
    home: int


class DistributedNetwork(FrozenValue, frozen=True):
    """A network shared out to the devices of a cluster.

    Attributes:
        data: The model's file.
        cluster: Without the devices that have dropped out; plan and models count the others from 0.
        cluster_path: Name or path of the cluster's file; "" for one given as a value.
        dropped: Names of the devices that have dropped out.
        ordered: The order of execution that the plan is for, and what became of the other one.
        single: The fastest device by itself in the plan's order, of those whose memory does if any does.
        memory: Per device the most bytes in use while the plan runs, as the runtime will show them: what the plan
            counts, and what the runtime cuts out and joins beside it.
        even: Even shares for all in that order, the faster of two: by the rule of "MemoriaNova", section 3.3.1, and by
            rows.
        executed: The run, where there was one.
        interrupted: Whether ``stop`` ended the search early.
    """

    module: Module
    data: bytes
    cluster: Cluster
    cluster_path: str
    dropped: tuple[str, ...]
    request: DistributionRequest
    plan: Distribution
    ordered: OrderedPlan
    followed: ResolvedPlan
    models: DeviceModels
    memory: tuple[int, ...]
    single: RuleBaseline
    even: RuleBaseline
    executed: DistributedRun | None
    interrupted: bool
    seconds: float


@command(DistributeOptions)
def distribute(
    source: str | os.PathLike[str] | bytes, options: DistributeOptions, hooks: Hooks = NO_HOOKS
) -> DistributedNetwork:
    """Plan how the devices of a cluster share the work on every op, and make the models that they run.

    Args:
        source: An ONNX or TFLite file, "-" for standard input, or a model's bytes.
        options: How it is shared out; each option may be a keyword instead, as in ``distribute(path, cluster="edge")``.
            A cluster is the name of a built-in one, a TOML file, or a value.
        hooks: What is asked while it runs.

    Raises:
        ModelError: The file is no model, or a state or a body makes it impossible to share it out.
        ClusterError: The cluster's file is wrong.
        NoPlanFitsError: No plan fits the devices' memories; it says what would do.
        UsageError: There is no such device, or none is left.
    """
    started = time.monotonic()
    limits = limits_of(options, options.seed, options.workers, hooks.executor)
    cluster = options.cluster
    given, path = (
        (cluster, "") if isinstance(cluster, Cluster) else (load_cluster(os.fspath(cluster)), os.fspath(cluster))
    )
    left, dropped = _without(given, options.drop)
    request = DistributionRequest(options, limits, left, path, dropped, _number(left, options.home))
    data, name = read_source(source)
    module = load_module(data, name, stated(options.input_shapes, options.dims))
    run = Run.of(limits, started, stop=hooks.stop, on_progress=hooks.on_progress)
    return _planned(module, data, request, run)


def _planned(module: Module, data: bytes, request: DistributionRequest, run: Run) -> DistributedNetwork:
    cluster, home = request.cluster, request.home
    found = _fitting(module, request, run)
    return DistributedNetwork(
        module=module,
        data=data,
        cluster=cluster,
        cluster_path=request.path,
        dropped=request.dropped,
        request=request,
        plan=found.ordered.plan,
        ordered=found.ordered,
        followed=found.followed,
        models=found.models,
        memory=found.memory,
        single=_baseline(by_rule(found.space, cluster, run, "single", home=home), cluster),
        even=_baseline(by_rule(found.space, cluster, run, "even", home=home), cluster),
        executed=None,
        interrupted=run.stop(),
        seconds=run.elapsed(),
    )


class _FittingPlan(FrozenValue, frozen=True):
    """A plan that fits the devices' memories with what the runtime copies beside it; see `DistributedNetwork`.

    Attributes:
        space: Of all plans in its order.
    """

    ordered: OrderedPlan
    followed: ResolvedPlan
    models: DeviceModels
    memory: tuple[int, ...]
    space: Space


def _fitting(module: Module, request: DistributionRequest, run: Run) -> _FittingPlan:
    """Search for a plan, and again with less memory where the runtime takes more than was planned."""
    graph, cluster, writer = module.graph, request.cluster, capability(module, Shards).part_writer(module)
    weights = writer.constant_bytes()
    refused = inexpressible(graph, format_of(module).dialect(module), weights)
    search, left = run.within(_AGAIN) if run.limits.time_limit is None else _less_reading(run), cluster
    needed: tuple[int, ...] = ()
    for attempt in range(_ATTEMPTS):
        try:
            ordered = plan_in_best_order(
                graph,
                left,
                search,
                method=request.options.method,
                metric=request.options.metric,
                weights=weights,
                refused=refused,
                home=request.home,
            )
        except NoPlanFitsError:
            if not attempt:
                raise
            raise _too_small(graph.name, cluster, needed) from None
        plan = ordered.plan
        check_plan(graph, plan, cluster, weights)
        followed, models = _models(module, writer, plan)
        memory = _memory(module, followed, models)
        if all(used <= device.memory for used, device in zip(memory, cluster.devices, strict=True)):
            space = Space.of(graph, [share.op for share in plan.shares], weights, refused)
            return _FittingPlan(ordered, followed, models, memory, space)
        # Room is kept for what the runtime copies beside the plan.
        needed, left = memory, _less_memory(cluster, left, memory, plan.memory)
        if search.limits.time_limit is not None:
            search = search.again(search.until(_AGAIN).limits)
        else:
            search = run.within(_AGAIN ** (attempt + 2))
    raise _too_small(graph.name, cluster, needed)


def _models(module: Module, writer: PartWriter, plan: Distribution) -> tuple[ResolvedPlan, DeviceModels]:
    words = format_of(module).dialect(module)
    followed = follow(module.graph, plan, words)
    steps = tuple(
        tuple(step_model(followed, device, step, words) for step in range(len(plan.steps)))
        for device in range(plan.devices)
    )
    return followed, DeviceModels(steps, writer)


def _weights(models: DeviceModels) -> list[int]:
    """Return the bytes of weights of every device."""
    return [
        sum(models.facts_of(device, step).weights for step, model in enumerate(steps) if model is not None)
        for device, steps in enumerate(models.steps)
    ]


def _memory(module: Module, followed: ResolvedPlan, models: DeviceModels) -> tuple[int, ...]:
    """Return per device the most bytes in use: its weights, what it holds, and what the runtime has beside that."""
    runner, result = row_runner_of(module.format), []
    for device, steps in enumerate(models.steps):
        running = [
            0 if one is None else runner.part_bytes(module, one.graph, partial(models.file, device, step))
            for step, one in enumerate(steps)
        ]
        result.append(activations_of(followed, device, steps, running))
    return tuple(used + weights for used, weights in zip(result, _weights(models), strict=True))


def _less_memory(cluster: Cluster, left: Cluster, memory: Sequence[int], planned: Sequence[int]) -> Cluster:
    """Return ``left`` with room for what was not planned on each device of ``cluster`` that was exceeded.

    Devices like that get less than was planned there: the same plan would only move from one to the next.
    """
    like = [dataclasses.replace(device, name="") for device in cluster.devices]
    exceeded = [(one, counted) for one, used, counted in zip(like, memory, planned, strict=True) if used > one.memory]
    devices = []
    for now, device, used, counted in zip(left.devices, like, memory, planned, strict=True):
        most = min([held - 1 for one, held in exceeded if one == device], default=now.memory)
        room = used - counted if used > device.memory else 0
        devices.append(dataclasses.replace(now, memory=max(1, min(now.memory, most, device.memory - room))))
    return dataclasses.replace(left, devices=tuple(devices))


def _too_small(name: str, cluster: Cluster, memory: Sequence[int]) -> NoPlanFitsError:
    device, used = max(zip(cluster.devices, memory, strict=True), key=lambda pair: pair[1] - pair[0].memory)
    return NoPlanFitsError(
        f"no plan found for '{name}' fits the memory of cluster '{cluster.name}': with what the runtime copies beside "
        f"the plan, '{device.name}' needs {used:,} B and has {device.memory:,} B",
        tuple(memory),
        max(memory),
        proven=False,
    )


def _less_reading(run: Run) -> Run:
    """Return a run that leaves time for what follows a search: two or three times what reading took."""
    limit = run.limits.time_limit
    if limit is None:
        return run
    left = limit - min(3 * run.elapsed(), limit / 3)
    return dataclasses.replace(run, limits=dataclasses.replace(run.limits, time_limit=left))


def _baseline(plan: Distribution, cluster: Cluster) -> RuleBaseline:
    fits = all(used <= device.memory for used, device in zip(plan.memory, cluster.devices, strict=True))
    return RuleBaseline(plan.latency, plan.memory, fits)


def _without(cluster: Cluster, drop: Sequence[str | int]) -> tuple[Cluster, tuple[str, ...]]:
    gone = dict.fromkeys(cluster.devices[_number(cluster, one)].name for one in drop)
    if len(gone) == len(cluster.devices) > 1:
        problem = f"all {len(gone)} devices of cluster '{cluster.name}' have dropped out"
        raise UsageError(problem, code="no-device-left", action="leave one")
    for name in gone:
        cluster = without(cluster, [device.name for device in cluster.devices].index(name))
    return cluster, tuple(gone)


def _number(cluster: Cluster, wanted: str | int) -> int:
    """Return the number of a device that is given by name or number."""
    names = [device.name for device in cluster.devices]
    if wanted in names:
        return names.index(str(wanted))
    text = str(wanted)
    if text.isascii() and text.isdigit() and len(text) <= len(str(len(names))) and int(text) < len(names):
        return int(text)
    hint = did_you_mean(text, names) or f"; devices: {', '.join(names)}, or 0 to {len(names) - 1}"
    raise UsageError(f"cluster '{cluster.name}' has no device '{text}'{hint}", code="no-such-device")


# Running ------------------------------------------------------------------------------------------------------------


@checked
def run_plan(
    distributed: DistributedNetwork,
    *,
    patience_seconds: float = 120.0,
    on_start: Callable[[Sequence[int]], None] | None = None,
    throttled: Literal["rates", "cores"] | None = None,
) -> DistributedNetwork:
    """Run the plan here, one process per device, and compare its outputs with those of the model in one session.

    Args:
        patience_seconds: The longest that loading the models, or one step, may take.
        on_start: Called with the ids of the processes once they run.
        throttled: Run it again with links as slow as the cluster's, and measure how long it takes: with processes that
            compute as long as the cluster says ("rates"), or have a device's share of a core ("cores").

    Raises:
        RuntimeUnavailableError: The runtime is not installed.
        VerificationError: The outputs differ by more than 1e-5 of their largest magnitude, or a process failed.
        ModelError: Values of this type cannot be exchanged here.
    """
    module = distributed.module
    runner = row_runner_of(module.format)
    runner.package.require("--no-run")
    if throttled == "cores" and runner.kernels is None:
        problem = f"{runner.name} does not say how long single operators take"
        raise UsageError(problem, code="no-operator-times", location="--calibrate")
    beside = capability(module, WeightFiles).external_files(module) and module.path != STANDARD_STREAM
    executed = execute(
        module,
        str(Path(module.path).absolute()) if beside else distributed.data,
        distributed.followed,
        distributed.models.steps,
        distributed.models.file,
        PlanExecution(distributed.request.limits.seed, patience_seconds, on_start, _throttles(distributed, throttled)),
    )
    if not executed.equal and not executed.relative_error <= TOLERANCE:
        raise VerificationError(
            f"the outputs differ from those of the model in one session {_by_how_much(executed)}; nothing was written"
        )
    wrong = None if executed.special is None else executed.special["wrong"]
    if wrong is not None:
        raise VerificationError(
            f"the outputs differ from those of the model in one session {wrong}; nothing was written"
        )
    return dataclasses.replace(distributed, executed=executed)


def _by_how_much(run: DistributedRun) -> str:
    if math.isfinite(run.relative_error):
        return f"by {run.relative_error:.2g} of their largest magnitude, more than {TOLERANCE:g}"
    if math.isfinite(run.max_abs_error):
        return f"by up to {run.max_abs_error:g}, and are whole numbers"
    return "in where NaN and infinities stand"


def _throttles(distributed: DistributedNetwork, kind: Literal["rates", "cores"] | None) -> tuple[Throttle, ...]:
    if kind is None:
        return ()
    works = _works(distributed) if kind == "rates" else None
    return throttles_of(distributed.cluster, _weights(distributed.models), works)


def latency_of(distributed: DistributedNetwork) -> LatencyComparison | None:
    """Return predicted against measured seconds; None where no throttled run was made."""
    if distributed.executed is None or distributed.executed.throttled is None:
        return None
    return compared(_works(distributed), distributed.cluster, distributed.executed.throttled)


def calibrated_text(distributed: DistributedNetwork) -> str:
    """Return the cluster's file with figures fitted to the throttled run.

    Raises:
        UsageError: No such run was made.
    """
    if distributed.executed is None or distributed.executed.throttled is None:
        raise UsageError("only a throttled run can calibrate a cluster", code="not-throttled")
    names = [
        [[distributed.module.graph.ops[part.op].name for part in mine] for mine in step.computations]
        for step in distributed.plan.steps
    ]
    return cluster_text(calibrated(_works(distributed), names, distributed.cluster, distributed.executed.throttled))


def _works(distributed: DistributedNetwork) -> tuple[StepWork, ...]:
    weights = distributed.models.writer.constant_bytes()
    return work_of(distributed.module.graph, distributed.plan, distributed.cluster, weights)
