"""The plan as a file and a report: what ``memsched distribute`` writes, and the folder that it goes into."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from memsched import __version__
from memsched.base.errors import OutputError
from memsched.commands.optimize.report import model_section
from memsched.commands.results import Report
from memsched.features.distribute.distribute import DistributedNetwork, RuleBaseline, latency_of
from memsched.features.distribute.execute import DistributedRun
from memsched.features.distribute.follow import Holder, whole_of
from memsched.features.distribute.orders import OrderAttempt, OrderedPlan
from memsched.features.distribute.step_models import StepModel
from memsched.formats.module import FormatName
from memsched.formats.staging import (
    STANDARD_STREAM,
    TEMPORARY_PREFIX,
    TEMPORARY_SUFFIX,
    check_writable,
    overwrites,
    same_file,
    staged_files,
)
from memsched.graph.distribution import Transfer
from memsched.graph.model import Graph, Region
from memsched.ops.cover import Cover, leaves
from memsched.report.values.base import SCHEMA_VERSION, Span
from memsched.report.values.distribute import (
    ClusterSection,
    ComputationRow,
    ComputedOpRow,
    DeviceRow,
    DistributionReport,
    DistributionResult,
    DistributionStepRow,
    GatheredOutputRow,
    GatherRow,
    InOrderSection,
    MeasuredSection,
    OrderSection,
    OtherPlanSection,
    PartRow,
    RunSection,
    ShareRow,
    ThrottledSection,
    ThrottledStepRow,
    TransferRow,
    ValueRow,
)
from memsched.runtimes.special import words_of

__all__ = ["PLAN_FILE", "check_folder", "file_name", "report_of", "save_distributed"]

PLAN_FILE: Final = "plan.json"

_ENDED_EARLY: Final = "the search was ended early: this is the best plan found so far"


def file_name(path: str, kind: FormatName, device: int, step: int) -> str:
    """Return the name of the file, of ``kind``, of one device and step of the model at ``path``."""
    stem = "model" if path == STANDARD_STREAM else Path(path).stem
    return f"{stem}_device_{device}_step_{step}.{kind}"


# The report ---------------------------------------------------------------------------------------------------------


def report_of(distributed: DistributedNetwork) -> Report[DistributionReport]:
    """Return the plan with everything that is known about it."""
    plan, graph, gathers = distributed.plan, distributed.module.graph, _gathers(distributed)
    return Report(
        DistributionReport(
            schema_version=SCHEMA_VERSION,
            memsched_version=__version__,
            command="distribute",
            model=model_section(distributed.module),
            cluster=_cluster(distributed),
            result=_result(distributed),
            devices=tuple(_device(distributed, device) for device in range(plan.devices)),
            run=None if distributed.executed is None else _run(distributed, distributed.executed),
            shares=tuple(
                ShareRow(
                    op=graph.ops[share.op].name,
                    type=graph.ops[share.op].type,
                    axis=share.axis,
                    bounds=tuple(share.bounds),
                )
                for share in plan.shares
            ),
            steps=tuple(_step(distributed, step, gathers[step]) for step in range(len(plan.steps))),
            results=_transfers(distributed, plan.results, len(plan.steps)),
            result_gathers=tuple(gathers[-1]),
            outputs=tuple(_output(distributed, tensor, found) for tensor, found in distributed.followed.outputs),
            notes=(*distributed.module.notes, *([_ENDED_EARLY] if distributed.interrupted else [])),
            seed=distributed.request.limits.seed,
            workers=distributed.request.limits.workers,
            seconds=round(distributed.seconds, 4),
        )
    )


def _cluster(distributed: DistributedNetwork) -> ClusterSection:
    router = distributed.cluster.router
    return ClusterSection(
        name=distributed.cluster.name,
        path=distributed.cluster_path,
        mode=router.mode,
        bandwidth_bytes_per_second=router.bandwidth,
        latency_seconds=router.latency,
        dropped=tuple(distributed.dropped),
    )


def _result(distributed: DistributedNetwork) -> DistributionResult:
    plan = distributed.plan
    transfers = [one for step in plan.exchanges() for one in step]
    return DistributionResult(
        method=plan.method,
        asked_method=distributed.request.options.method,
        latency_seconds=plan.latency,
        lower_bound_seconds=plan.lower_bound,
        single_device=_baseline(distributed.single),
        even_split=_baseline(distributed.even),
        transmitted_bytes=sum(one.size for one in transfers),
        delivered_bytes=sum(one.size * len(one.targets) for one in transfers),
        steps=len(plan.steps),
        home=plan.home,
        interrupted=distributed.interrupted,
        order=_order(distributed.ordered),
    )


def _order(ordered: OrderedPlan) -> OrderSection:
    return OrderSection(
        kept=ordered.order,
        metric=ordered.metric,
        given=_in_order(ordered.given),
        found=None if ordered.found is None else _in_order(ordered.found),
        least_peak_proven=ordered.proven,
    )


def _in_order(one: OrderAttempt) -> InOrderSection:
    return InOrderSection(
        peak_bytes=one.peak,
        cost_bytes=one.cost,
        latency_seconds=None if one.plan is None else one.plan.latency,
        memory_bytes=None if one.plan is None else max(one.plan.memory),
    )


def _baseline(baseline: RuleBaseline) -> OtherPlanSection:
    return OtherPlanSection(
        latency_seconds=baseline.latency,
        memory_bytes=max(baseline.memory),
        fits=baseline.fits,
    )


def _device(distributed: DistributedNetwork, device: int) -> DeviceRow:
    given = distributed.cluster.devices[device]
    steps = [step for step, model in enumerate(distributed.models.steps[device]) if model is not None]
    return DeviceRow(
        index=device,
        name=given.name,
        capacity_bytes=given.memory,
        memory_bytes=distributed.memory[device],
        weights_bytes=sum(distributed.models.facts_of(device, step).weights for step in steps),
        models=len(steps),
        measured=None if distributed.executed is None else _measured(distributed, distributed.executed, device),
    )


def _measured(distributed: DistributedNetwork, executed: DistributedRun, device: int) -> MeasuredSection:
    run = executed.run.devices[device]
    weights = sum(
        distributed.models.facts_of(device, step).weights
        for step, model in enumerate(distributed.models.steps[device])
        if model is not None
    )
    start, peak = run.resident_start, run.resident_peak
    return MeasuredSection(
        activations_bytes=run.activations,
        weights_and_activations_bytes=None if run.activations is None else run.activations + weights,
        resident_start_bytes=start,
        resident_loaded_bytes=run.resident_loaded,
        resident_peak_bytes=peak,
        resident_growth_bytes=None if start is None or peak is None else peak - start,
        sent_bytes=run.sent,
        sent_once_bytes=run.sent_once,
        received_bytes=run.received,
        headers_bytes=run.headers,
        steps_seconds=round(sum(run.seconds), 6),
    )


def _throttled(distributed: DistributedNetwork, passes: int) -> ThrottledSection | None:
    found = latency_of(distributed)
    if found is None:
        return None
    return ThrottledSection(
        passes=passes,
        slower=found.slower,
        predicted_seconds=sum(found.predicted),
        measured_seconds=round(found.total, 6),
        steps=tuple(
            ThrottledStepRow(predicted_seconds=predicted, measured_seconds=round(measured, 6))
            for predicted, measured in zip(found.predicted, found.measured, strict=True)
        ),
    )


def _run(distributed: DistributedNetwork, executed: DistributedRun) -> RunSection:
    run = executed.run
    return RunSection(
        runtime=run.runtime,
        outputs_equal=executed.equal,
        max_abs_error=executed.max_abs_error,
        relative_error=executed.relative_error,
        transmitted_bytes=run.given_once + sum(device.sent_once for device in run.devices),
        delivered_bytes=run.given + sum(device.sent for device in run.devices),
        given_bytes=run.given,
        single_session_activations_bytes=executed.activations,
        steps_seconds=round(run.seconds, 6),
        throttled=_throttled(distributed, len(executed.throttled.passes) if executed.throttled is not None else 0),
        special_values=words_of(executed.special["tried"]) if executed.special is not None else (),
    )


def _step(distributed: DistributedNetwork, step: int, gathers: Sequence[GatherRow]) -> DistributionStepRow:
    plan = distributed.plan
    return DistributionStepRow(
        index=step,
        transfers=_transfers(distributed, plan.steps[step].transfers, step),
        ahead=_transfers(distributed, plan.steps[step].ahead, step, first=len(plan.steps[step].transfers)),
        gathers=tuple(gathers),
        computations=tuple(
            _computation(distributed, device, step, model)
            for device in range(plan.devices)
            if (model := distributed.models.steps[device][step]) is not None
        ),
    )


def _transfers(
    distributed: DistributedNetwork, transfers: Sequence[Transfer], step: int, *, first: int = 0
) -> tuple[TransferRow, ...]:
    graph = distributed.module.graph
    received = distributed.followed.received[step][first : first + len(transfers)]
    result = []
    for one, pieces in zip(transfers, received, strict=True):
        holders = [distributed.followed.devices[target] for target in one.targets]
        result.append(
            TransferRow(
                tensor=graph.tensors[one.tensor].name,
                region=_ranges(one.region),
                source=one.source,
                targets=tuple(one.targets),
                held_as=tuple(holder.pieces[piece].key for holder, piece in zip(holders, pieces, strict=True)),
                size_bytes=one.size,
            )
        )
    return tuple(result)


def _gathers(distributed: DistributedNetwork) -> list[list[GatherRow]]:
    """Return per step, the results last, how devices put parts of tensors together after its transfers."""
    result: list[list[GatherRow]] = [[] for _ in range(len(distributed.plan.steps) + 1)]
    for device, holder in enumerate(distributed.followed.devices):
        for number, found in holder.gathered.items():
            piece = holder.pieces[number]
            result[piece.born[0]].append(
                GatherRow(
                    device=device,
                    tensor=distributed.module.graph.tensors[piece.tensor].name,
                    region=_ranges(piece.region),
                    held_as=piece.key,
                    parts=_parts(holder, found),
                )
            )
    return result


def _output(distributed: DistributedNetwork, tensor: int, found: Cover) -> GatheredOutputRow:
    holder = distributed.followed.devices[distributed.plan.home]
    return GatheredOutputRow(tensor=distributed.module.graph.tensors[tensor].name, parts=_parts(holder, found))


def _parts(holder: Holder, found: Cover) -> tuple[PartRow, ...]:
    return tuple(PartRow(held_as=holder.pieces[leaf.part].key, region=_ranges(leaf.region)) for leaf in leaves(found))


def _computation(distributed: DistributedNetwork, device: int, step: int, model: StepModel) -> ComputationRow:
    holder = distributed.followed.devices[device]
    graph, facts = distributed.module.graph, distributed.models.facts_of(device, step)

    def values(tensors: Sequence[int], numbers: Sequence[int]) -> tuple[ValueRow, ...]:
        return tuple(
            ValueRow(
                name=model.graph.tensors[tensor].name,
                tensor=graph.tensors[holder.pieces[number].tensor].name,
                region=_ranges(holder.pieces[number].region),
                held_as=holder.pieces[number].key,
            )
            for tensor, number in zip(tensors, numbers, strict=True)
        )

    return ComputationRow(
        device=device,
        file=file_name(distributed.module.path, distributed.module.format, device, step),
        sha256=facts.sha256,
        size_bytes=facts.size,
        weights_bytes=facts.weights,
        inputs=values(model.graph.inputs, model.inputs),
        outputs=values(model.graph.outputs, model.outputs),
        ops=tuple(
            ComputedOpRow(op=graph.ops[one.op].name, region=_region_of(graph, one.op, one.region))
            for one in distributed.plan.steps[step].computations[device]
        ),
    )


def _region_of(graph: Graph, op: int, region: Region) -> tuple[Span, ...] | None:
    """Return what of its output is computed; None for all of it."""
    return None if region == whole_of(graph, graph.ops[op].outputs[0]) else _ranges(region)


def _ranges(region: Region) -> tuple[Span, ...]:
    return tuple(region.ranges)


# The folder ---------------------------------------------------------------------------------------------------------


def check_folder(folder: str | os.PathLike[str], *, force: bool) -> dict[str, str]:
    """Return the files of an earlier plan in ``folder``, which may be replaced or removed, with their SHA-256.

    Raises:
        OutputError: It is not a folder, cannot be made, or holds files that no plan in it names and ``force`` is not
            given.
    """
    path = Path(folder)
    try:
        if not path.exists():
            check_writable(str(path / PLAN_FILE), within=str(path))
            return {}
        if not path.is_dir():
            raise OutputError(f"'{folder}' is a file: -o names a folder", code="not-a-folder")
        names = sorted(entry.name for entry in path.iterdir())
        known = _earlier(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise OutputError(f"'{folder}' cannot be looked into: {reason}", code="folder-unreadable") from None
    own = {*known, PLAN_FILE} if known else set()
    foreign = [name for name in names if name not in own and not _is_temporary(name)]
    if foreign and not force:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise OutputError(
            f"'{folder}' holds files that are no plan's: '{foreign[0]}'{more}",
            code="would-mix",
            action="name another folder, or give --force to write beside them",
        )
    return known


def _is_temporary(name: str) -> bool:
    """Return whether a killed run left this file behind, or another run is about to rename it."""
    return name.startswith(TEMPORARY_PREFIX) and name.endswith(TEMPORARY_SUFFIX)


def _earlier(folder: Path) -> dict[str, str]:
    """Return the names and SHA-256 of the models that the plan in ``folder`` names; empty where there is none."""
    path = folder / PLAN_FILE
    if not path.is_file():
        return {}
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        found = [one for step in plan["steps"] for one in step["computations"]] if _is_plan(plan) else []
        return {str(one["file"]): str(one["sha256"]) for one in found}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _is_plan(plan: Any) -> bool:
    return isinstance(plan, dict) and plan.get("command") == "distribute"


def save_distributed(
    distributed: DistributedNetwork, folder: str | os.PathLike[str], *, force: bool = False
) -> Report[DistributionReport]:
    """Write the models and the plan into ``folder``, all or none; return the report that the plan's file holds.

    The folder is made where it does not exist. Models of an earlier plan in it that are not written again are
    removed, if they are still what that plan says.

    Args:
        force: Permit other files in the folder, which stay as they are.

    Raises:
        OutputError: The folder cannot be written, or holds other files.
        ModelError: A constant cannot be read.
    """
    earlier = check_folder(folder, force=force)
    try:
        return _write(distributed, Path(folder), earlier)
    except OSError as error:
        raise OutputError(f"'{folder}' cannot be written: {error.strerror or error}", code="not-written") from None


def _write(distributed: DistributedNetwork, folder: Path, earlier: dict[str, str]) -> Report[DistributionReport]:
    source = distributed.module.path
    written = {PLAN_FILE}
    with staged_files() as files:
        for device, steps in enumerate(distributed.models.steps):
            for step, model in enumerate(steps):
                if model is None:
                    continue
                name = file_name(source, distributed.module.format, device, step)
                if source != STANDARD_STREAM and same_file(folder / name, source):
                    raise overwrites(folder / name, "the input", "name another folder with -o")
                files.add(folder / name, distributed.models.file(device, step))
                written.add(name)
        report = report_of(distributed)
        files.add(folder / PLAN_FILE, report.to_json().encode())
        files.commit()
    for name, digest in earlier.items():
        stale = folder / name
        if name not in written and Path(name).name == name and stale.is_file() and _digest(stale) == digest:
            stale.unlink()
    return report


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
