"""The rungs of the ladder: each builds one kind of result for a budget and reports its cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from memsched.base.errors import MemschedError
from memsched.base.frozen import FrozenValue
from memsched.codegen.streaming.emit import ram_bytes
from memsched.codegen.streaming.plan import InputPlace
from memsched.commands.calls import Hooks
from memsched.commands.levels import BY_CALLERS, FREE
from memsched.commands.optimize.emit import StreamedModel, emit
from memsched.commands.optimize.optimize import optimize
from memsched.commands.options import Options, RelayOptions
from memsched.commands.results import OptimizeResult, Report
from memsched.features.relay.relay import RelayModel, relay
from memsched.report.values.ladder import LadderRow
from memsched.report.values.verdict import BudgetSection, CallerChange

__all__ = ["CHANGES_OF_CALLERS", "LadderTask", "Rung", "RungKind", "file_rung", "tried"]

RungKind = Literal["file", "slow file", "stages", "c", "c by rows"]
"""A file is the smallest that costs no time; a budget alone prefers the file with the least extra work."""

_ROWS: Final[Mapping[RungKind, Literal["file", "stages", "c"]]] = {
    "file": "file",
    "slow file": "file",
    "stages": "stages",
    "c": "c",
    "c by rows": "c",
}

CHANGES_OF_CALLERS: Final[tuple[CallerChange, ...]] = ("rounding", "inputs", "opening")


class LadderTask(FrozenValue, frozen=True):
    """The task of every rung.

    Attributes:
        target: Name or file.
        budget: Available memory in bytes.
        options: The user's options.
        bordered: Whether inputs or outputs could have another form.
    """

    source: str
    target: str
    budget: int
    options: Options
    hooks: Hooks
    bordered: bool


class Rung(FrozenValue, frozen=True):
    """The outcome of one rung.

    Attributes:
        made: The result. None if memsched or the runtime refused the model.
    """

    row: LadderRow
    made: OptimizeResult | RelayModel | StreamedModel | None = None


def file_rung(found: OptimizeResult, budget: int) -> Rung:
    """Return the rung for one optimized file."""
    verdict = found.report.values.verdict
    section = found.report.values.sections.border
    changes: tuple[CallerChange, ...] = ("inputs",) if section is not None and section.applied else ()
    row = LadderRow(
        what="file",
        bytes=verdict.bytes,
        flash_bytes=len(found.model),
        time_ratio=1.0 if verdict.bytes == verdict.original_bytes else verdict.time_ratio,
        extra_macs_percent=verdict.extra_macs_percent,
        changes=changes,
        outputs=verdict.outputs,
        fits=verdict.bytes <= budget,
    )
    return Rung(row, found)


def tried(
    task: LadderTask, kind: RungKind, changes: frozenset[CallerChange], seconds: float | None, *, permitted: bool = True
) -> Rung:
    """Build one kind of result with these changes, and return its rung.

    Args:
        seconds: Time limit. None for the default limit of each search.
        permitted: Whether the user accepts the changes.
    """
    named = tuple(one for one in CHANGES_OF_CALLERS if one in changes)
    try:
        if kind == "file":
            rung = _free_file(task, seconds)
        elif kind == "slow file":
            rung = _slow_file(task, seconds)
        elif kind == "stages":
            rung = _stages(task, changes, seconds)
        else:
            rung = _streamed(task, "rows" if kind == "c by rows" else "held", seconds)
    except MemschedError as error:
        return Rung(LadderRow(what=_ROWS[kind], bytes=None, changes=named, permitted=permitted, reason=str(error)))
    # C reads quantized inputs even if the user did not permit that change.
    within = permitted and set(rung.row.changes) <= changes
    return dataclasses.replace(rung, row=msgspec.structs.replace(rung.row, permitted=within))


def _free_file(task: LadderTask, seconds: float | None) -> Rung:
    """Return the smallest single file that costs nothing."""
    asked = dataclasses.replace(
        task.options,
        target=task.target,
        budget=None,
        time_limit=task.options.time_limit if seconds is None else seconds,
    )
    found = optimize(task.source, asked, dataclasses.replace(task.hooks, words=None))
    values = found.report.values
    budget = BudgetSection.of(task.budget, values.verdict.bytes)
    report = Report(msgspec.structs.replace(values, budget=budget))
    return file_rung(dataclasses.replace(found, report=report, budget_met=budget.met), task.budget)


def _slow_file(task: LadderTask, seconds: float | None) -> Rung:
    """Return the smallest single file, without a limit on its run time."""
    options = task.options
    names = (*FREE, *(BY_CALLERS if "inputs" in options.may_change else ()))
    asked = dataclasses.replace(
        options,
        target=task.target,
        budget=task.budget,
        allow=names,
        may_change=(),
        max_slowdown=None,
        time_limit=options.time_limit if seconds is None else seconds,
        keep_best=True,
    )
    return file_rung(optimize(task.source, asked, dataclasses.replace(task.hooks, words=None)), task.budget)


def _stages(task: LadderTask, changes: frozenset[CallerChange], seconds: float | None) -> Rung:
    options = task.options
    asked = RelayOptions(
        target=task.target,
        budget=task.budget,
        allow=("reorder", "inplace", "tile", *(BY_CALLERS if "inputs" in changes else ())),
        input_shapes=options.input_shapes,
        dims={name: size for name, size in options.dims.items() if isinstance(size, int)},
        max_extra_macs=options.max_extra_macs,
        time_limit=options.time_limit if seconds is None else seconds,
        effort=options.effort,
        tflm_plan=options.tflm_plan,
        verify=options.verify,
        seed=options.seed,
    )
    made = relay(task.source, asked, task.hooks)
    macs = sum(one.macs for one in made.module.graphs[0].ops)
    used: tuple[CallerChange, ...] = ("inputs",) if made.io is not None and made.io.applied else ()
    run = made.verification
    equal = None if run is None else run.verification.outputs_equal
    row = LadderRow(
        what="stages",
        bytes=made.needed,
        flash_bytes=sum(len(one.data) for one in made.stages),
        time_ratio=None if run is None else run.time_ratio,
        extra_macs_percent=100 * max(0, sum(one.extra_macs for one in made.stages)) / max(1, macs),
        changes=(*used, "opening"),
        outputs="not_run" if equal is None else "bit_equal" if equal else "close",
        fits=made.needed <= task.budget,
    )
    return Rung(row, made)


def _streamed(task: LadderTask, place: InputPlace, seconds: float | None) -> Rung:
    limit = task.options.time_limit if seconds is None else seconds
    options = dataclasses.replace(task.options, target=task.target, budget=None, may_change=(), time_limit=limit)
    most = None if task.options.keep_best else task.budget
    made = emit(task.source, options, place, most)
    if not isinstance(made, StreamedModel):
        raise TypeError("a target with memory on chip has no interpreter")
    ram = ram_bytes(made.plan.arena, made.code.state)
    borders: tuple[CallerChange, ...] = ("inputs",) if place == "rows" or made.plan.network.scales else ()
    row = LadderRow(
        what="c",
        bytes=ram,
        flash_bytes=made.code.flash,
        time_ratio=None if made.run is None else made.run.time_ratio,
        changes=(*borders, "opening"),
        outputs="bit_equal" if made.run is not None and made.run.equal else "not_run",
        fits=ram <= task.budget,
    )
    return Rung(row, made)
