"""Climb to a budget that one file misses: try the smallest change first, until a result fits.

Files in one arena keep the interpreter and its kernels, so they come before C without an interpreter. Results that
exceed the permitted time come last. If no permitted change suffices, memsched tries others, so that it can name them.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.codegen.streaming.layers import INPUT
from memsched.commands.calls import NO_HOOKS, Hooks
from memsched.commands.declared import AUTO
from memsched.commands.levels import SEARCH
from memsched.commands.optimize.command_lines import with_options, without_options
from memsched.commands.optimize.emit import StreamedModel
from memsched.commands.optimize.optimize import optimize
from memsched.commands.options import Options
from memsched.commands.results import OptimizeResult, Report
from memsched.features.ladder.rungs import (
    CHANGES_OF_CALLERS,
    LadderTask,
    Rung,
    RungKind,
    file_rung,
    tried,
)
from memsched.features.relay.relay import RelayModel
from memsched.formats.capabilities import BorderRewrites
from memsched.formats.known import capability
from memsched.report.refusals import refusal_lines
from memsched.report.values.ladder import LadderRow
from memsched.report.values.verdict import AlternativeRow, BudgetSection, CallerChange
from memsched.runtimes.known import relay_rules_of, usual_offer
from memsched.runtimes.race import most_times
from memsched.targets.load import load_target

__all__ = ["Climb", "climb"]

_LEAST_SECONDS: Final = 2.0
"""A rung starts only if the time limit leaves this much."""

_PART: Final = 0.5
"""A rung gets this share of the remaining time, so that later rungs also get some."""

_NAMES: Final = {"file": "one file", "stages": "files in one arena", "c": "C without an interpreter"}


class Climb(FrozenValue, frozen=True):
    """The result of a climb.

    Attributes:
        best: The result to write. If every result misses the budget, the first file, or the smallest with `keep_best`.
        rows: Every rung, starting with the first file. Empty if the climb was unnecessary.
        budget: Available memory in bytes. None if the climb was unnecessary.
    """

    best: OptimizeResult | RelayModel | StreamedModel
    rows: tuple[LadderRow, ...] = ()
    budget: int | None = None

    def budget_of(self, required: int) -> BudgetSection | None:
        """Return the budget section for a result that requires ``required`` bytes. None without a budget."""
        return None if self.budget is None else BudgetSection.of(self.budget, required)


def climb(source: str, options: Options, hooks: Hooks = NO_HOOKS, *, several: bool = True) -> Climb:
    """Optimize a model. If the file misses its budget and the runtime uses one memory block, try further changes.

    Args:
        several: Whether several files may replace the model.

    Raises:
        MemschedError: The same errors as in `memsched.optimize`.
    """
    started = time.monotonic()
    found = optimize(source, options, hooks)
    task = _task_of(source, found, options, hooks)
    if task is None:
        return Climb(found)

    def left() -> float | None:
        limit = options.time_limit
        # The default limit applies to each search.
        unnamed = SEARCH if limit == AUTO and options.effort is None else None
        return limit - (time.monotonic() - started) if isinstance(limit, (int, float)) else unnamed

    accepted = frozenset(change for change in CHANGES_OF_CALLERS if change in options.may_change)
    climber = _Climber(task, accepted, left, [file_rung(found, task.budget)])
    best = climber.first_fit(several=several)
    if best is None:
        climber.name_what_fits()
        best = climber.least() if options.keep_best else climber.rungs[0]
    return _ended(best, climber.rungs, task)


def _task_of(source: str, found: OptimizeResult, options: Options, hooks: Hooks) -> LadderTask | None:
    """Return the task for a missed budget. None if the budget is met or the runtime does not support the climb."""
    report = found.report.values
    missed = report.budget is not None and not report.budget.met
    if not missed or report.budget is None or found.interrupted or report.sections.open_loops is not None:
        return None
    target = options.target or usual_offer(found.module).target
    if (
        refusal_lines(report)
        or options.budget_for == "activations"
        or relay_rules_of(found.module, load_target(target)) is None
    ):
        return None
    borders = capability(found.module, BorderRewrites).borders(found.module).found
    return LadderTask(source, target, report.budget.budget_bytes, options, hooks, bordered=bool(borders))


@dataclass(frozen=True, slots=True)
class _Climber:
    """The state of a climb.

    Attributes:
        accepted: Changes that the user accepts.
        left: Returns the remaining seconds. None without a limit.
        rungs: The rungs tried so far.
    """

    task: LadderTask
    accepted: frozenset[CallerChange]
    left: Callable[[], float | None]
    rungs: list[Rung]

    def first_fit(self, *, several: bool) -> Rung | None:
        """Return the first accepted rung that fits within the permitted time, otherwise the fastest rung that fits."""
        slowdown = self.task.options.max_slowdown
        for rung in self._tried(self._accepted_kinds(several), self.accepted, permitted=True):
            if _fits(rung) and (rung.row.time_ratio or 0.0) <= most_times(slowdown):
                return rung
        return min(filter(_fits, self.rungs), key=lambda one: one.row.time_ratio or 0.0, default=None)

    def _accepted_kinds(self, several: bool) -> Iterator[RungKind]:
        if self.task.options.free:
            yield "file"
        if "opening" in self.accepted and several:
            yield from ("stages", "c")
            if "inputs" in self.accepted:
                yield "c by rows"
        if self.task.options.free:
            yield "slow file"

    def name_what_fits(self) -> None:
        """Try changes that the user has not accepted, fewest first, until a result fits."""
        if any(rung.row.fits for rung in self.rungs):
            return
        for changes, kinds in self._further_kinds():
            if any(rung.row.fits for rung in self._tried(kinds, changes, permitted=False)):
                return

    def _further_kinds(self) -> Iterator[tuple[frozenset[CallerChange], tuple[RungKind, ...]]]:
        if "opening" not in self.accepted:
            yield self.accepted | {"opening"}, ("stages", "c")
        if "inputs" not in self.accepted:
            bordered: tuple[RungKind, ...] = ("stages",) if self.task.bordered else ()
            yield self.accepted | {"opening", "inputs"}, (*bordered, "c by rows")

    def _tried(self, kinds: Iterable[RungKind], changes: frozenset[CallerChange], *, permitted: bool) -> Iterator[Rung]:
        for kind in kinds:
            seconds, stop = self.left(), self.task.hooks.stop
            refused = kind == "c by rows" and any(_rows_miss(one, self.task.budget) for one in self.rungs)
            late = seconds is not None and seconds < _LEAST_SECONDS
            if refused or late or (stop is not None and stop()):
                continue
            part = None if seconds is None else _PART * seconds
            self.rungs.append(tried(self.task, kind, changes, part, permitted=permitted))
            yield self.rungs[-1]

    def least(self) -> Rung:
        """Return the permitted rung with the lowest memory requirement."""
        made = [one for one in self.rungs if one.made is not None and one.row.permitted and one.row.bytes is not None]
        return min(made, key=lambda one: one.row.bytes or 0)


def _rows_miss(rung: Rung, budget: int) -> bool:
    """Whether C with input rows must also miss the budget: holding the input adds at most its size."""
    if rung.row.what != "c":
        return False
    made = rung.made
    return not isinstance(made, StreamedModel) or (rung.row.bytes or 0) - made.plan.network.maps[INPUT].size > budget


def _fits(rung: Rung) -> bool:
    return rung.row.fits and rung.row.permitted and rung.made is not None


def _ended(best: Rung, rungs: Sequence[Rung], task: LadderTask) -> Climb:
    """Return the result, and store the rows in its report if it is one file."""
    met = best.row.fits
    first = rungs[0]
    rungs = [one for one in rungs if one is first or one is best or one.row.what != "file" or _is_less(one, first)]
    rows = tuple(
        msgspec.structs.replace(rung.row, written=rung is best and (met or task.options.keep_best)) for rung in rungs
    )
    if best.made is None:
        raise InternalError("a climb ended at what was refused")
    if not isinstance(best.made, OptimizeResult):
        return Climb(best.made, rows, task.budget)
    report = best.made.report.values
    sections = msgspec.structs.replace(report.sections, ladder=rows)
    further = () if met else tuple(_alternatives(rows, best.row.bytes or 0, task))
    values = msgspec.structs.replace(report, sections=sections, alternatives=(*further, *report.alternatives))
    return Climb(dataclasses.replace(best.made, report=Report(values)), rows, task.budget)


def _is_less(one: Rung, first: Rung) -> bool:
    return one.row.bytes is not None and first.row.bytes is not None and one.row.bytes < first.row.bytes


def _alternatives(rows: Sequence[LadderRow], bytes_now: int, task: LadderTask) -> Iterator[AlternativeRow]:
    """Yield the command for each rung that fits with further changes."""
    for row in rows:
        if row.permitted or not row.fits or row.bytes is None:
            continue
        yield AlternativeRow(
            command=_command(task, row.changes),
            what=_NAMES[row.what],
            bytes=row.bytes,
            saving_bytes=max(0, bytes_now - row.bytes),
            extra_macs_percent=row.extra_macs_percent,
            time_ratio=row.time_ratio,
            changes=row.changes,
        )


def _command(task: LadderTask, changes: Sequence[CallerChange]) -> str:
    """Return the command line that also permits these changes."""
    words = without_options(task.hooks.words or ("optimize", task.source), "--may-change")
    accepted = [one for one in CHANGES_OF_CALLERS if one in {*task.options.may_change, *changes}]
    return with_options(words, "--may-change", ",".join(accepted))
