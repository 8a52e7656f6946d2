"""The way to a budget that one file misses: rung by rung, what changes least first, until one fits.

Files that run one after the other keep the interpreter and its kernels, so they come before C without one; what takes
more time than is permitted comes last. If nothing that is permitted fits, further changes are tried, to name them.
"""

from __future__ import annotations

import dataclasses
import shlex
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
from memsched.commands.optimize.emit import StreamedModel
from memsched.commands.optimize.optimize import optimize
from memsched.commands.optimize.trials import without_options
from memsched.commands.options import Options
from memsched.commands.results import OptimizeResult, Report
from memsched.features.ladder.rungs import CHANGES_OF_CALLERS, LadderTask, Rung, RungKind, file_rung, tried
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
"""With less left of a limit of time no rung is begun."""

_PART: Final = 0.5
"""Of the time that is left, so that further rungs are tried, too."""

_NAMES: Final = {"file": "one file", "stages": "files in one arena", "c": "C without an interpreter"}


class Climb(FrozenValue, frozen=True):
    """Where a climb ended.

    Attributes:
        best: What is to be written, or what misses the budget.
        rows: Every rung, from the first file on; empty if there was no reason to climb.
        budget: Bytes; None if there was no reason to climb.
    """

    best: OptimizeResult | RelayModel | StreamedModel
    rows: tuple[LadderRow, ...] = ()
    budget: int | None = None

    def budget_of(self, required: int) -> BudgetSection | None:
        """Return what a report says of the budget for a result that requires so many bytes."""
        if self.budget is None:
            return None
        exceeded = max(0, required - self.budget)
        return BudgetSection(
            budget_bytes=self.budget, required_bytes=required, exceeded_bytes=exceeded, met=not exceeded
        )


def climb(source: str, options: Options, hooks: Hooks = NO_HOOKS, *, several: bool = True) -> Climb:
    """Optimize a model; if the file misses its budget, climb on if its runtime gets one block of memory.

    Args:
        several: Whether several files may take the place of one.

    Raises:
        MemschedError: As `memsched.optimize`.
    """
    started = time.monotonic()
    found = optimize(source, options, hooks)
    task = _task_of(source, found, options, hooks)
    if task is None:
        return Climb(found)

    def left() -> float | None:
        limit = options.time_limit
        # A limit that was not named is that of each search.
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
    """Return what is to be done about a missed budget; None if nothing can be."""
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
    """Climbs from rung to rung.

    Attributes:
        accepted: Changes that the user accepts.
        left: Returns the seconds that are left; None for no limit.
        rungs: What was tried so far.
    """

    task: LadderTask
    accepted: frozenset[CallerChange]
    left: Callable[[], float | None]
    rungs: list[Rung]

    def first_fit(self, *, several: bool) -> Rung | None:
        """Return the first accepted rung that fits in the time that is permitted, or else the quickest that fits."""
        slowdown = self.task.options.max_slowdown
        for rung in self._tried(self._accepted_kinds(several), self.accepted, permitted=True):
            if _fits(rung) and (rung.row.time_ratio or 0.0) <= most_times(slowdown):
                return rung
        return min(filter(_fits, self.rungs), key=lambda one: one.row.time_ratio or 0.0, default=None)

    def _accepted_kinds(self, several: bool) -> Iterator[RungKind]:
        if "opening" in self.accepted and several:
            yield from ("stages", "c")
            if "inputs" in self.accepted:
                yield "c by rows"
        if self.task.options.free:
            yield "file"

    def name_what_fits(self) -> None:
        """Try changes that are not accepted, fewer ones first, until something fits."""
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
        """Return what requires least of what is permitted."""
        made = [one for one in self.rungs if one.made is not None and one.row.permitted and one.row.bytes is not None]
        return min(made, key=lambda one: one.row.bytes or 0)


def _rows_miss(rung: Rung, budget: int) -> bool:
    """Whether C that takes rows misses a budget, too, as this shows: with the input held it needs no more than both."""
    if rung.row.what != "c":
        return False
    made = rung.made
    return not isinstance(made, StreamedModel) or (rung.row.bytes or 0) - made.plan.network.maps[INPUT].size > budget


def _fits(rung: Rung) -> bool:
    return rung.row.fits and rung.row.permitted and rung.made is not None


def _ended(best: Rung, rungs: Sequence[Rung], task: LadderTask) -> Climb:
    """Return where the climb ended, with its rows in the report of a file."""
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
    """Yield the command of what fits with further changes."""
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
    """Return the command line with these changes permitted as well."""
    words = without_options(task.hooks.words or ("optimize", task.source), "--may-change")
    end = words.index("--") if "--" in words else len(words)
    accepted = [one for one in CHANGES_OF_CALLERS if one in {*task.options.may_change, *changes}]
    return shlex.join(["memsched", *words[:end], "--may-change", ",".join(accepted), *words[end:]])
