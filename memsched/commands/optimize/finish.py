"""The end of an optimisation: the file of what was found, and a run of both models, which may reject it.

Sessions without options are what most files are opened with: unless the user named another session, a file that these
need more for is not written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.interpreter_rows import interpreter_section, refused_row
from memsched.commands.optimize.opening import OpenedFile, in_doubt, opened_file, opening_lines, takes_less
from memsched.commands.optimize.place import Request, place, required_as_given
from memsched.commands.optimize.worth import slight
from memsched.commands.session_rows import LEAST_SHOWN, SessionFile, measured_sessions
from memsched.commands.verify import verify_written
from memsched.formats.known import format_of
from memsched.formats.module import LoadOptions, Module
from memsched.formats.staging import STANDARD_STREAM
from memsched.frozen import FrozenValue
from memsched.planning.values import TargetModule
from memsched.planning.write import write_model
from memsched.report.outputs import TOLERANCE
from memsched.report.values.border import KeptEndRow
from memsched.report.values.interpreter import InterpreterSection, RefusedFileRow
from memsched.report.values.sessions import HeldBackSection, SessionRow
from memsched.runtimes.known import default_interpreter_of, runtime_of, session_maker_of
from memsched.runtimes.litert.default_interpreter import DefaultInterpreter, InterpreterMemory
from memsched.runtimes.onnxruntime.session_points import DEFAULT, LISTED, PATTERNLESS, SessionPoint
from memsched.runtimes.output import Guarantee, ModelBytes
from memsched.runtimes.runtime import Opening, Requirement
from memsched.runtimes.values import Verification, as_opened
from memsched.search.run import Run
from memsched.units import format_size

if TYPE_CHECKING:
    from memsched.runtimes.tflm.arena import TflmFacts

__all__ = ["FinishRequest", "FinishedModel", "as_given", "finish", "opened_alone", "refuted", "told_apart"]


class FinishRequest(FrozenValue, frozen=True):
    """What becomes of the model that was found.

    Attributes:
        options: What is stated of the sizes of ``module``, the model as given, whose bytes are ``data``.
        run: The user's.
        control_dependencies: Write the order for delegates, too.
        budget: What is required was compared with so many bytes; None: with none.
        verify: Run both models.
        guarded: The user named no session.
        exact: Layers in pieces are written only where both models were seen to give the same bits.
        may_end: Ctrl-C ends the run of both alone.
    """

    module: Module
    data: bytes
    prepared: TargetModule
    options: LoadOptions
    opening: Opening
    run: Run
    control_dependencies: bool
    budget: int | None
    verify: bool
    guarded: bool
    exact: bool
    may_end: bool

    @property
    def seed(self) -> int:
        """Return the seed of the inputs that both models are run on."""
        return self.run.limits.seed


class FinishedModel(FrozenValue, frozen=True):
    """The model that is written, and what became of it in its runtime.

    Attributes:
        needed: What the file as given and this one require.
        figures: The same by the runtime's name for it; empty where that is the arena.
        verification: None where it was not asked for, or was ended.
        ended: By the user.
        held_back: What was found and is not written: pieces, or all of it.
        slight: What a file would have saved that is not written, as it is not worth that, bytes.
        sessions: What sessions on both files took.
        interpreter: What LiteRT's default interpreter took; None if it was not measured.
    """

    final: FinalModel
    written: ModelBytes
    facts: TflmFacts | None
    needed: tuple[Requirement, Requirement]
    figures: Mapping[str, tuple[int, int]]
    verification: Verification | None = None
    notes: tuple[str, ...] = ("verification was not asked for",)
    ended: bool = False
    held_back: HeldBackSection | None = None
    sessions: tuple[SessionRow, ...] = ()
    interpreter: InterpreterSection | None = None
    slight: int | None = None

    @property
    def wrong(self) -> bool:
        """Whether the file's outputs differ because of what was done to it."""
        seen = self.verification
        # A file that nothing was done to differs from itself only if it draws numbers.
        return seen is not None and not self.written.unchanged and refuted(seen, inexact=self.final.rewrites.inexact)


def finish(final: FinalModel, request: Request, asked: FinishRequest) -> FinishedModel:
    """Return the file of what was found, run beside the model as given, or that one where only named sessions gain.

    Where little is gained it is that one, too.
    """
    found = _for_sessions(final, request, asked)
    interpreter = default_interpreter_of(asked.module, asked.prepared.target)
    found = found if interpreter is None else _for_interpreter(found, request, asked, interpreter)
    return _with_border_kept(found, final)


def _with_border_kept(found: FinishedModel, final: FinalModel) -> FinishedModel:
    """Return the same with what is reported of the border if the file with another one makes way for one without."""
    section = final.rewrites.io
    if section is None or found.final.rewrites.io is not None:
        return found
    rows = (KeptEndRow(tensor=row.given.tensor, reason=_BORDER_KEPT) for row in section.changed)
    io = msgspec.structs.replace(
        section, applied=False, bytes=section.given_bytes, changed=(), kept=(*section.kept, *rows)
    )
    rewrites = dataclasses.replace(found.final.rewrites, io=io)
    return dataclasses.replace(found, final=dataclasses.replace(found.final, rewrites=rewrites))


_BORDER_KEPT: Final = "the file with another form of it was not worth writing"


def _for_sessions(final: FinalModel, request: Request, asked: FinishRequest) -> FinishedModel:
    found = _worthwhile(final, request, asked)
    if asked.exact and found.final.rewritten and not _same_bits(found):
        found = _left_whole(found, request, asked)
    held: HeldBackSection | None = None
    for left in (found, None):
        if left is None and (not found.final.rewritten or found.final.whole is None):
            break
        judged, refused = _opened(left or _left_whole(found, request, asked), request, asked)
        held = held or refused
        if refused is None:
            return dataclasses.replace(judged, held_back=held)
    return dataclasses.replace(_original(request, asked), held_back=held)


def _original(request: Request, asked: FinishRequest) -> FinishedModel:
    """Return the original file."""
    return _finished(_given(request, asked), asked)


def _for_interpreter(
    found: FinishedModel, request: Request, asked: FinishRequest, interpreter: DefaultInterpreter
) -> FinishedModel:
    """Return the best file that LiteRT's default interpreter takes no more for than for the original.

    The candidates are the file found, the same order with every layer whole, and the original.
    """
    refused: list[RefusedFileRow] = []
    given: InterpreterMemory | None = None
    while not found.written.unchanged and _comparable(found):
        try:
            seen = interpreter.compare(*(asked.data, found.written.model), seed=asked.seed, slowdown=request.slowdown)
        except KeyboardInterrupt:
            if not asked.may_end:
                raise
            return dataclasses.replace(found, ended=True, notes=(*found.notes, _NOT_MEASURED.format("interrupted")))
        if isinstance(seen, str):
            return dataclasses.replace(found, notes=(*found.notes, _NOT_MEASURED.format(seen)))
        given = seen.given
        if not seen.needs_more and not seen.takes_longer:
            section = interpreter_section(found.needed[0].total, given, tuple(refused), seen)
            return dataclasses.replace(found, interpreter=section)
        refused.append(refused_row(seen, found.needed[1].total, found.final.extra_work))
        found = _left_whole(found, request, asked) if found.final.rewritten else _original(request, asked)
    if given is None:
        return found
    return dataclasses.replace(
        found, interpreter=interpreter_section(found.needed[0].total, given, tuple(refused), None)
    )


_NOT_MEASURED: Final = "not measured in LiteRT's default interpreter, where this file may need more: {}"


def _comparable(found: FinishedModel) -> bool:
    """Whether both files were run, with the same outputs."""
    seen = found.verification
    if seen is None or seen.outputs_equal is None or found.ended:
        return False
    return not refuted(seen, inexact=found.final.rewrites.inexact)


def _given(request: Request, asked: FinishRequest) -> FinalModel:
    placed = place(asked.module, asked.prepared, dataclasses.replace(request, solver="file"))
    return FinalModel(asked.module, asked.data, asked.prepared, placed, options=asked.options)


def _worthwhile(final: FinalModel, request: Request, asked: FinishRequest) -> FinishedModel:
    """Return the file of what was found, or the one given where that saves too little; both are run.

    What was asked for by name is written whatever it saves: pins, an order for delegates, a memory plan.
    """
    opening = asked.opening
    if asked.control_dependencies or opening.memory_plan or opening.guarantee == "pins":
        return _finished(final, asked)
    required = required_as_given(asked.module, asked.prepared, opening).total
    saved = slight(required, final.placed.requirement.total, asked.budget)
    if saved is None:
        return _finished(final, asked)
    return dataclasses.replace(_original(request, asked), slight=saved)


def as_given(request: Request, asked: FinishRequest) -> FinishedModel:
    """Return the file as given, of which nothing better could be written."""
    given = _given(request, asked)
    kind = asked.opening.guarantee
    written = ModelBytes(asked.data, True, Guarantee(kind, pins=0 if kind == "pins" else None))
    runtime = runtime_of(asked.module, asked.prepared.target, asked.opening)
    needed = (required_as_given(asked.module, asked.prepared, asked.opening),) * 2
    figures = {} if runtime.figure is None else {runtime.figure: (needed[0].total, needed[1].total)}
    return FinishedModel(given, written, None, needed, figures, notes=(_COPIED,))


def _opened(
    found: FinishedModel, request: Request, asked: FinishRequest
) -> tuple[FinishedModel, HeldBackSection | None]:
    """Return a file with the sessions that it is opened with, and what speaks against writing it, if anything does."""
    held = _held_back(found) if asked.guarded else None
    if held is not None:
        return found, held
    found = _with_sessions(found, asked, request.slowdown)
    seen = opened_file(found.sessions, request.slowdown) if asked.guarded and not found.ended else None
    if seen is None:
        return found, None
    if seen.worse is not None:
        return found, _held(found)
    if found.written.guarantee.kind == "session" and seen.point != LISTED and asked.budget is None:
        return _without_list(found, seen)
    return dataclasses.replace(found, sessions=_told(found.sessions, LISTED)), None


def _without_list(found: FinishedModel, seen: OpenedFile) -> tuple[FinishedModel, HeldBackSection | None]:
    """Return the same file for sessions that keep no order, as the options that keep it are not worth their time."""
    shown, (given, *_, listed) = found.verification, found.sessions
    before, after = (None, None) if shown is None else (shown.default_peak_before_bytes, shown.default_peak_after_bytes)
    if shown is None or before is None or after is None or (after >= before and not takes_less(seen.row, given)):
        return found, _held(found)
    told = (
        f"with the options of --order-guarantee session, this file takes {format_size(listed.process_bytes or 0)} of "
        f"the process at {listed.cpu_ratio or 1:.2f} x the processor time"
    )
    lines = opening_lines(seen.point)
    guarantee = dataclasses.replace(found.written.guarantee, kind="none", session_options=lines, requested=None)
    opened = dataclasses.replace(
        found,
        written=dataclasses.replace(found.written, guarantee=guarantee),
        verification=as_opened(shown),
        needed=(Requirement(before), Requirement(after)),
        figures={**found.figures, "session": (before, after)},
        sessions=_told(found.sessions, seen.point),
        notes=(*found.notes, told),
    )
    return opened, None


def _told(rows: Sequence[SessionRow], point: SessionPoint) -> tuple[SessionRow, ...]:
    """Return the rows of sessions without options, and that of the one to recommend."""
    wanted = {(DEFAULT.order, DEFAULT.pattern), (point.order, point.pattern)}
    return tuple(row for row in rows if (row.execution_order, row.mem_pattern) in wanted)


def _same_bits(found: FinishedModel) -> bool:
    seen = found.verification
    return seen is not None and seen.outputs_equal is True and not refuted(seen, inexact=False)


def _left_whole(found: FinishedModel, request: Request, asked: FinishRequest) -> FinishedModel:
    """Return the file of the best order found, with no layer in pieces."""
    placed = found.final.whole or found.final.placed
    final = FinalModel(asked.module, asked.data, asked.prepared, placed, options=asked.options)
    if not found.ended:
        return _worthwhile(final, request, asked)
    whole = _worthwhile(final, request, dataclasses.replace(asked, verify=False))
    return dataclasses.replace(whole, notes=found.notes, ended=True)


def _finished(final: FinalModel, asked: FinishRequest) -> FinishedModel:
    written, facts = _write(final, asked)
    runtime = runtime_of(asked.module, asked.prepared.target, asked.opening)
    needed = required_as_given(asked.module, asked.prepared, asked.opening), final.placed.requirement
    figures = {} if runtime.figure is None else {runtime.figure: (needed[0].total, needed[1].total)}
    done = FinishedModel(final, written, facts, needed, figures)
    if not asked.verify:
        return done
    verification, notes, ended = _run_both(final, written, asked, figures.get("litert"))
    return dataclasses.replace(done, verification=verification, notes=notes, ended=ended)


def _with_sessions(found: FinishedModel, asked: FinishRequest, slowdown: float | None) -> FinishedModel:
    """Measure sessions on both files where there is something to see, and the files can be opened one by one."""
    path = asked.module.path
    opened = found.written.guarantee.kind in _OPENED and not found.written.unchanged
    if not opened or not opened_alone(found, asked.module):
        return found
    sessions = [SessionFile("given", DEFAULT), SessionFile("written", DEFAULT)]
    if asked.guarded:
        sessions.append(SessionFile("written", PATTERNLESS))
    if found.written.guarantee.kind == "session":
        sessions.append(SessionFile("written", LISTED, found.needed[1].total))
    maker = session_maker_of(asked.module.format)

    def again(rows: Sequence[SessionRow], done: int) -> bool:
        return asked.guarded and done < _PROCESSES and in_doubt(rows, slowdown)

    try:
        rows = measured_sessions(
            maker, Path(path), found.written.model, asked.options, sessions, seed=asked.seed, again=again
        )
    except KeyboardInterrupt:
        if not asked.may_end:
            raise
        return dataclasses.replace(found, ended=True)
    return dataclasses.replace(found, sessions=rows)


def opened_alone(found: FinishedModel, module: Module) -> bool:
    """Whether sessions on the file as given alone can be opened, and take enough to be seen in a process."""
    seen, path = found.verification, module.path
    judged = seen is not None and seen.default_peak_after_bytes is not None
    alone = path != STANDARD_STREAM and not format_of(module).external_files(module)
    return judged and alone and found.needed[0].total >= LEAST_SHOWN


_COPIED: Final = "no file that memsched made could be used: the file as given was copied, and nothing was run"

_PROCESSES: Final = 3
"""Processes of each session at most, where what one of them takes may be chance."""

_OPENED: Final = frozenset({"session", "pins", "default"})
"""Guarantees that say how a session is opened."""


def _held_back(found: FinishedModel) -> HeldBackSection | None:
    """Return what speaks against writing the file: a session without options was seen to need more for it."""
    seen = found.verification
    if seen is None or found.written.unchanged or refuted(seen, inexact=found.final.rewrites.inexact):
        return None
    before, after = seen.default_peak_before_bytes, seen.default_peak_after_bytes
    opened_by_options = found.written.guarantee.kind == "session"
    if not opened_by_options or before is None or after is None or after <= before:
        return None
    return HeldBackSection(
        requirement_bytes=found.needed[1].total,
        extra_macs_percent=round(float(100 * found.final.extra_work), 2),
        default_peak_before_bytes=before,
        default_peak_after_bytes=after,
    )


def _held(found: FinishedModel) -> HeldBackSection:
    """Return what speaks against writing the file: what a session without options was measured to take for it."""
    seen, (given, plain, *_) = found.verification, found.sessions
    return HeldBackSection(
        requirement_bytes=found.needed[1].total,
        extra_macs_percent=round(float(100 * found.final.extra_work), 2),
        default_peak_before_bytes=0 if seen is None else seen.default_peak_before_bytes or 0,
        default_peak_after_bytes=0 if seen is None else seen.default_peak_after_bytes or 0,
        process_before_bytes=given.process_bytes,
        process_after_bytes=plain.process_bytes,
        cpu_ratio=plain.cpu_ratio,
    )


def _write(final: FinalModel, asked: FinishRequest) -> tuple[ModelBytes, TflmFacts | None]:
    """Return the file of what was found, as its runtime wants it, and what TensorFlow Lite Micro makes of it."""
    module, opening = asked.module, asked.opening
    plans, chosen = final.placed.plans, final.placed.chosen
    written = write_model(
        *(final.module, final.data, plans, final.options),
        guarantee=opening.guarantee,
        control_dependencies=asked.control_dependencies,
        target=final.prepared.target.name,
        keep=chosen is not None and chosen.keep,
        promised=asked.budget is not None,
    )
    if chosen:
        written = dataclasses.replace(written, guarantee=chosen.describe(written.guarantee))
    if final.rewritten:
        written = dataclasses.replace(_with_fixed_dimensions(module, written), borders=final.borders)
    given = module if final.rewritten else None
    runtime = runtime_of(final.module, final.prepared.target, opening)
    return runtime.finish(*(final.module, written, plans, final.options), plan=opening.memory_plan, given=given)


def _run_both(
    final: FinalModel, written: ModelBytes, asked: FinishRequest, predicted: tuple[int, int] | None
) -> tuple[Verification | None, tuple[str, ...], bool]:
    """Run the model as given and the one written; return the verdict, notes, and whether it was ended.

    Where it may not be ended before it is through, KeyboardInterrupt is passed on.
    """
    tolerance = TOLERANCE if final.rewrites.inexact and not asked.exact else 0.0
    try:
        schedule = final.placed.plans[0].schedule
        asked.run.tell("verification", schedule.peak, None if final.rewritten else schedule.lower_bound)
        verification, notes = verify_written(
            *(final.module, asked.data, written, asked.options, final.prepared.target),
            seed=asked.seed,
            tolerance=tolerance,
            predicted=predicted,
        )
    except KeyboardInterrupt:
        if not asked.may_end:
            raise
        return None, ("the verification was interrupted",), True
    return verification, notes, False


def _with_fixed_dimensions(module: Module, written: ModelBytes) -> ModelBytes:
    """Return a rewritten model with the dimensions that ``module``, as given, leaves open and it does not."""
    fixed = format_of(module).fixed_dimensions(module, written.model)
    return dataclasses.replace(written, unchanged=False, fixed=fixed)


def refuted(verification: Verification, *, inexact: bool) -> bool:
    """Whether the outputs differ, here or at other sizes; those of layers in pieces may differ in their last bits."""
    if verification.wrong_elsewhere is not None:
        return True
    if verification.outputs_equal is not False:
        return False
    error = verification.relative_error
    return not inexact or error is None or error > TOLERANCE


def told_apart(verification: Verification, final: FinalModel, facts: TflmFacts | None) -> str:
    """Return why a file is rejected for outputs that differ, in a sentence for the user."""
    runtime, reason = verification.runtime, verification.reason or ""
    if facts is not None and facts.plan_fault is not None:
        return (
            f"outputs differ from those of the model as given in {runtime}, in which {facts.plan_fault}: take that "
            "plan out of the file"
        )
    wrong = verification.wrong_elsewhere
    if wrong is not None:
        return (
            f"the outputs are wrong in {runtime} at {wrong.dimension} = {wrong.size}, a size that the model as given "
            f"leaves open ({wrong.reason})"
        )
    if final.rewritten:
        error = verification.relative_error
        told = error is not None and final.rewrites.inexact
        far = f" by {error:.1e} of their largest magnitude, {TOLERANCE:g} is permitted" if told else ""
        return f"with {final.rewrites.described()}, the model's outputs differ in {runtime}{far}. {reason}".rstrip()
    return (
        f"the reordered model's outputs differ in {runtime} (by up to {verification.max_abs_error}). {reason}".rstrip()
    )
