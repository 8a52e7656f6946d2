"""``--session``: the graph that ONNX Runtime executes is what is planned, ordered and written."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from memsched import __version__
from memsched.base.errors import UsageError, VerificationError
from memsched.base.frozen import FrozenValue
from memsched.base.shown import ALIKE
from memsched.base.units import Percentage
from memsched.commands.failures import Failures, defects_end_the_run
from memsched.commands.levels import BY_NAME
from memsched.commands.optimize.choose import Permissions, find_executed
from memsched.commands.optimize.executed import SessionSource, executed_of
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.finished import FinishedModel
from memsched.commands.optimize.place import ModulePlan, Request, place, required_as_given
from memsched.commands.optimize.record import Record
from memsched.commands.optimize.report import result_of
from memsched.commands.optimize.worth import LEAST_GAIN, slight
from memsched.commands.options import Options
from memsched.commands.results import OptimizeResult, OutputsDifferError
from memsched.commands.session_rows import GivenModel, SessionBench, SessionFile, measured_sessions
from memsched.formats.files import load_module
from memsched.formats.known import format_of
from memsched.formats.module import LoadOptions, Module
from memsched.formats.read_back import check_written
from memsched.formats.staging import STANDARD_STREAM
from memsched.report.outputs import NOT_ASKED
from memsched.report.values.sessions import ExecutedSection, SessionRow
from memsched.runtimes.known import SessionMaker, runtime_of, session_maker_of
from memsched.runtimes.output import Guarantee, ModelBytes
from memsched.runtimes.race import most_times
from memsched.runtimes.runtime import Opening, Requirement
from memsched.runtimes.session_code import opening_lines
from memsched.runtimes.sessions import EXECUTED, ExecutedModel, SessionPoint
from memsched.runtimes.values import EXECUTED_TOLERANCE, Verification
from memsched.targets.model import Target

__all__ = ["ExecutedFile", "SessionName", "SessionRequest", "executed_file", "optimize_for_session"]
__all__ += ["written_for_session"]

SessionName = Literal["default", "all", "extended", "basic"]
"""Whose graph is planned, as ``--session`` has it."""

_NOT_RUN: Final = f"{NOT_ASKED}: what sessions need for the file as given is predicted, not measured"


class SessionRequest(FrozenValue, frozen=True):
    """What `optimize_for_session` is told beside the model.

    Attributes:
        command: The user's options.
        rules: The target.
        budget: None for no budget.
        permitted: What may be done beside ordering.
        output: Path that the report names.
    """

    command: Options
    rules: Target
    budget: int | Percentage | None
    permitted: Permissions
    output: str | None

    @property
    def session(self) -> SessionName:
        """Whose graph is planned."""
        return self.command.session or "default"


def optimize_for_session(
    data: bytes, path: str, options: LoadOptions, request: Request, asked: SessionRequest
) -> OptimizeResult:
    """Return the graph that sessions of a kind execute of a model, in the order of least peak, perhaps rewritten.

    The file is the one given, unchanged, where that session needs no more for it.

    Args:
        data: The model, read from ``path``.
        options: What is stated of its sizes.

    Raises:
        MemschedError: The subclass and its message say which file or option is at fault.
        VerificationError: The outputs differ by more than the level's own rounding, and defects end the run.
    """
    _check(asked)
    # Operators cost from the first one on: the process is what the session is judged by.
    request = dataclasses.replace(request, free_ops=0)
    source = SessionSource(
        data,
        path,
        options,
        asked.session,
        asked.rules,
        "inplace" in asked.command.permitted,
        asked.command.seed,
    )
    plain, best = find_executed(source, request, asked.budget, asked.permitted)
    return executed_file(plain, best, source, request, asked).result(request)


def executed_file(
    plain: FinalModel, best: FinalModel, source: SessionSource, request: Request, asked: SessionRequest
) -> ExecutedFile:
    """Return the best file of what a session executes that holds, run beside the model as given."""
    maker = session_maker_of(source.format)
    module, prepared = plain.module, plain.prepared
    chosen, held, notes = _first_that_holds(maker, source, (best, plain), asked, request.failures)
    run = held or _SessionRun(ModelBytes(source.data, True, Guarantee("session")))
    placed, written, verification = chosen.placed, run.written, run.verification
    given, needed = required_as_given(module, prepared, Opening("none")).total, placed.required
    if verification is not None:
        shown = verification.measured_peak_before_bytes, verification.measured_peak_after_bytes
        if verification.at_stated_sizes and shown[0] is not None and shown[1] is not None:
            given, needed = shown[0], max(needed, shown[1])
    saved, final = module, chosen
    needs = needed + placed.requirement.structures
    budget = asked.budget.of(given) if isinstance(asked.budget, Percentage) else asked.budget
    little = None if held is None or run.saves_process() else slight(given, needs, budget)
    if held is None or needs >= given or little is not None:
        final = plain
        placed = place(module, prepared, dataclasses.replace(request, solver="file"))
        written = ModelBytes(source.data, True, Guarantee("session"))
        saved = load_module(source.data, source.path, source.options)
        if verification is not None and verification.outputs_equal is not True and verification.reason:
            notes = (*notes, f"{verification.runtime}: {verification.reason}")
        if held is not None:
            told = f"such a session needs {given:,} B for the file as given and {needed:,} B for the best found"
            notes = (*notes, told)
        needed, verification = given, None
    return ExecutedFile(
        asked,
        plain,
        chosen,
        final,
        placed,
        written,
        saved,
        verification,
        (given, needed),
        budget,
        little,
        run.sessions,
        notes,
    )


def _check(asked: SessionRequest) -> None:
    """Refuse what no session executes.

    Raises:
        UsageError: It is asked for.
    """
    if not asked.rules.orders_itself:
        raise UsageError(f"--session is for --target onnxruntime, not for '{asked.rules.name}'", code="other-target")
    taken = [name for name in BY_NAME if getattr(asked.permitted, name)]
    if taken:
        name = taken[0]
        raise UsageError(
            f"--session takes no {name} in --allow: it writes what is executed",
            code="option-conflict",
            action="leave one of them out",
        )


class ExecutedFile(FrozenValue, frozen=True):
    """The file that is written: the best that holds, or the one given where the session needs no more for it.

    Attributes:
        asked: What was asked for.
        plain: What the session executes of the model as given, ordered.
        chosen: The best that holds.
        saved: What the file is.
        needed: What the session needs for the file as given and for this one, bytes.
        budget: Bytes; None for no budget.
        slight: What a file would have saved that is not written, as it is not worth that, bytes.
    """

    asked: SessionRequest
    plain: FinalModel
    chosen: FinalModel
    final: FinalModel
    placed: ModulePlan
    written: ModelBytes
    saved: Module
    verification: Verification | None
    needed: tuple[int, int]
    budget: int | None
    slight: int | None
    sessions: tuple[SessionRow, ...]
    notes: tuple[str, ...]

    def result(self, request: Request) -> OptimizeResult:
        """Return the result of the command.

        Raises:
            OutputsDifferError: The outputs differ by more than the level's own rounding, and defects end the run.
        """
        made = result_of(_record(self, request), self.written, request.run, module=self.saved)
        if self.verification is not None and _refuted(self.verification):
            raise OutputsDifferError(_told_apart(self.verification, self.chosen), made.report)
        return made

    def takes_less_than(self, other: FinishedModel, slowdown: float | None) -> bool:
        """Whether the process was measured to take less than that of another file, or the session to request less.

        What takes more time than is permitted does not, nor what misses a budget that the other file meets.

        Args:
            slowdown: Time that may be added to the original's, in percent; None for any.
        """
        slow = any(row.file == "written" and (row.cpu_ratio or 0.0) > most_times(slowdown) for row in self.sessions)
        missed = self.budget is not None and other.needed[1].total <= self.budget < self.needed[1]
        if self.written.unchanged or slow or missed:
            return False
        here, there = _taken(self.sessions), _taken(other.sessions)
        mine = here.get("written")
        others = here.get("given") if other.written.unchanged else there.get("written")
        if mine is not None and others is not None and not math.isclose(mine, others, rel_tol=ALIKE):
            return mine < others
        return self.needed[1] < other.needed[1].total


def _taken(rows: Sequence[SessionRow]) -> dict[str, int]:
    """Return the bytes of the process by the file that it opened, the last session of each."""
    return {row.file: row.process_bytes for row in rows if row.process_bytes is not None}


def _record(found: ExecutedFile, request: Request) -> Record:
    """Return what was done, for the report."""
    needed, plain, asked = found.needed, found.plain, found.asked
    return Record(
        "optimize",
        plain.module,
        dataclasses.replace(found.final, prepared=plain.prepared, placed=found.placed),
        (Requirement(needed[0]), Requirement(needed[1])),
        runtime_of(plain.module, plain.prepared.target).traits,
        tuple(request.ledger.rows),
        found.budget,
        written=found.written,
        output=asked.output,
        verification=found.verification,
        notes=found.notes,
        failures=tuple(request.failures.found),
        interrupted=request.stopped(),
        slight=found.slight,
        sessions=found.sessions,
        executed=None if found.written.unchanged else _section(executed_of(found.chosen), asked),
        assumed=found.plain.options.assumed,
    )


def _first_that_holds(
    maker: SessionMaker,
    source: SessionSource,
    tried: Sequence[FinalModel],
    asked: SessionRequest,
    failures: Failures,
) -> tuple[FinalModel, _SessionRun | None, tuple[str, ...]]:
    """Return the first candidate whose file holds, what became of it, and notes.

    Args:
        tried: The best one, and the graph as it is in another order.

    Returns:
        The last candidate, and no run, if none holds.
    """
    plain = tried[-1]
    notes: tuple[str, ...] = () if asked.command.verify else (_NOT_RUN,)
    for candidate in tried if tried[0] is not plain else tried[1:]:
        what = "another order" if candidate is plain else candidate.rewrites.described()
        with failures.left_out(f"{what} of the graph that the session executes"):
            run = _run(maker, source, candidate, asked)
            if candidate is not plain and not run.holds(plain):
                told = f"the best rewritten graph is not written: {run.objection()}; the graph as it is was ordered"
                notes = (*notes, told)
                continue
            seen = run.verification
            if seen is not None and _refuted(seen) and not defects_end_the_run():
                raise VerificationError(_told_apart(seen, candidate))
            return candidate, run, notes
    return plain, None, notes


def _told_apart(verification: Verification, chosen: FinalModel) -> str:
    return (
        f"outputs differ in {verification.runtime} from those of a session at level {executed_of(chosen).level}. "
        f"{verification.reason or ''}"
    ).rstrip()


class _SessionRun(FrozenValue, frozen=True):
    """A candidate's file, and what became of it in its session.

    Attributes:
        verification: None where it was not asked for.
        sessions: What was measured in fresh processes.
    """

    written: ModelBytes
    verification: Verification | None = None
    sessions: tuple[SessionRow, ...] = ()

    def holds(self, plain: FinalModel) -> bool:
        """Whether nothing that was measured speaks for ``plain`` instead."""
        shown = self.verification
        if shown is None or shown.outputs_equal is None:
            return True
        measured = shown.measured_peak_after_bytes if shown.at_stated_sizes else None
        return not _refuted(shown) and (measured is None or measured < plain.placed.required)

    def saves_process(self) -> bool:
        """Whether the process was measured to need so much less that the file is worth it, whatever the arena needs."""
        taken = _taken(self.sessions[::-1])
        given, written = taken.get("given"), taken.get("written")
        return given is not None and written is not None and written <= (1 - LEAST_GAIN) * given

    def objection(self) -> str:
        """Return in words what was measured that speaks against the candidate."""
        shown = self.verification
        if shown is None or _refuted(shown):
            return (None if shown is None else shown.reason) or "its outputs differ"
        return f"it was measured to need {shown.measured_peak_after_bytes or 0:,} B"


def written_for_session(chosen: FinalModel, source: SessionSource, maker: SessionMaker) -> ModelBytes:
    """Return the executed graph in the order that was found, read back and checked."""
    executed, module, placed = executed_of(chosen), chosen.module, chosen.placed
    orders = {index: plan.stored_order for index, plan in enumerate(placed.plans)}
    metadata = {
        "memsched.version": __version__,
        "memsched.session": source.session,
        "memsched.target": source.rules.name,
        "memsched.block_channels": str(executed.block or ""),
        "memsched.processor": executed.processor,
        "memsched.peak_bytes": str(placed.plans[0].checked.peak),
    }
    model = format_of(module).reorder(module, orders, metadata)
    check_written(module, model, orders, executed.options)
    model = maker.guarded(model, executed.block)
    guarantee = Guarantee("session", opening_lines(EXECUTED))
    if placed.chosen is not None:  # what it predicts of other guarantees is of no use here
        guarantee = dataclasses.replace(placed.chosen.describe(guarantee), predicted=None)
    return ModelBytes(model, False, guarantee, (executed.holds_for(),), executed.fixed)


def _run(maker: SessionMaker, source: SessionSource, chosen: FinalModel, asked: SessionRequest) -> _SessionRun:
    """Write a candidate's file, compare outputs with the model as given, each in its session, and measure these."""
    written, executed = written_for_session(chosen, source, maker), executed_of(chosen)
    predicted = chosen.placed.required
    if not asked.command.verify:
        return _SessionRun(written)
    data, path, options = source.data, source.path, source.options
    folder = None if path == STANDARD_STREAM else Path(path).absolute().parent
    verification = maker.verify(
        data,
        folder,
        written.model,
        options,
        executed.level,
        expected=written.guarantee.executed,
        predicted=predicted,
        seed=asked.command.seed,
    )
    if verification.outputs_equal is None:
        return _SessionRun(written, verification)
    points = [SessionFile("given", SessionPoint()), SessionFile("given", SessionPoint(executed.level))]
    points += [SessionFile("written", EXECUTED, predicted)]
    bench = SessionBench(maker, GivenModel(data, path), options, asked.command.seed)
    rows = measured_sessions(bench, written.model, list(dict.fromkeys(points)))
    return _SessionRun(written, verification, rows)


def _section(executed: ExecutedModel, asked: SessionRequest) -> ExecutedSection:
    return ExecutedSection(
        session=asked.session, level=executed.level, block_channels=executed.block, processor=executed.processor
    )


def _refuted(verification: Verification) -> bool:
    """Whether the outputs differ by more than kernels of one level round."""
    error = verification.relative_error
    return verification.outputs_equal is False and (error is None or error > EXECUTED_TOLERANCE)
