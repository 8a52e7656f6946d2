"""The end of an optimisation: the file of what was found, and a run of both models, which may reject it.

Sessions without options are what most files are opened with: unless the user named another session, a file that these
need more for is not written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

import msgspec

from memsched.commands.optimize.final_model import FinalModel, next_best
from memsched.commands.optimize.finished import FinishedModel, FinishRequest, refuted
from memsched.commands.optimize.interpreter_choice import comparable, first_accepted
from memsched.commands.optimize.judged_sessions import judged_sessions
from memsched.commands.optimize.place import Request, place, required_as_given
from memsched.commands.optimize.worth import slight
from memsched.commands.verify import verify_written
from memsched.formats.capabilities import SizeGuards
from memsched.formats.known import capability, format_of
from memsched.formats.module import Module
from memsched.plan.write import write_model
from memsched.report.outputs import OUT_OF_TIME, TOLERANCE
from memsched.report.values.border import KeptEndRow
from memsched.report.values.sessions import HeldBackSection
from memsched.runtimes.arena_facts import ArenaFacts
from memsched.runtimes.known import default_interpreter_of, runtime_of
from memsched.runtimes.output import Guarantee, ModelBytes
from memsched.runtimes.race import most_times
from memsched.runtimes.runtime import OrderedFile
from memsched.runtimes.values import Verification

__all__ = ["as_given", "finish", "told_apart"]


def finish(final: FinalModel, request: Request, asked: FinishRequest) -> FinishedModel:
    """Return the file of what was found, run beside the model as given, or that one where only named sessions gain.

    Where little is gained it is that one, too.
    """
    begun = asked.run.clock()
    found = _for_sessions(final, request, asked)
    interpreter = default_interpreter_of(asked.module, asked.prepared.target)
    if interpreter is not None:
        found = first_accepted(_from_best(found, begun, request, asked), asked, request.slowdown, interpreter)
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
    """Return the first file that keeps its bits where it must, and that sessions without options take no more for."""
    held: HeldBackSection | None = None
    refused: FinishedModel | None = None
    for found in _with_less(final, request, asked):
        if asked.command.free and found.final.rewritten and not _costs_nothing(found, request, asked):
            continue
        if asked.exact and asked.guarded and found.verification is not None and found.verification.default_apart:
            continue
        judged, objection = judged_sessions(found, request, asked)
        held = held or objection
        if objection is None:
            return dataclasses.replace(judged, held_back=held, refused=refused)
        refused = refused or judged
    return dataclasses.replace(_original_instead(request, asked), held_back=held, refused=refused)


def _with_less(final: FinalModel, request: Request, asked: FinishRequest) -> Iterator[FinishedModel]:
    """Yield a file, quicker ones if it is too slow by default, and the best order with every layer whole.

    All but the first are left out if the time that is left would not do: each takes as long as the first.
    """
    first = tried = _worthwhile(final, request, asked)
    yield first
    if not first.final.rewritten:
        return
    less = next_best(final)
    for _ in range(_MOST_MEASURED - 1 if asked.command.free else 0):
        if not _is_slow(tried, request.slowdown):
            break
        candidate = _quicker(tried, request.slowdown) or next(less, None)
        if candidate is None or first.ended or not asked.may_run(first.seconds):
            break
        with request.failures.left_out(candidate.rewrites.described() or "less of what was done"):
            tried = _worthwhile(candidate, request, asked)
            if not tried.final.rewritten:
                break
            yield tried
    if first.final.whole is not None and asked.may_run(first.seconds):
        yield _left_whole(first, request, asked)


def _is_slow(tried: FinishedModel, slowdown: float | None) -> bool:
    """Whether a file was seen to take more time than is permitted."""
    return tried.verification is not None and (tried.verification.time_ratio or 0.0) > most_times(slowdown)


def _quicker(tried: FinishedModel, slowdown: float | None) -> FinalModel | None:
    """Return the best model whose extra work takes no more time than is permitted, as that of ``tried`` shows it."""
    ratio = None if tried.verification is None else tried.verification.time_ratio
    if ratio is None or ratio <= 1:
        return None
    return tried.final.cheaper(tried.final.extra_work * Fraction((most_times(slowdown) - 1) / (ratio - 1)))


def _original(request: Request, asked: FinishRequest) -> FinishedModel:
    """Return the original file."""
    return _finished(_given(request, asked), asked)


def _original_instead(request: Request, asked: FinishRequest) -> FinishedModel:
    """Return the original file after others were run beside it; it is not run once more if the time is up."""
    if asked.may_run():
        return _original(request, asked)
    return dataclasses.replace(_original(request, asked.unverified()), notes=(_NOT_RUN,))


def _from_best(found: FinishedModel, begun: float, request: Request, asked: FinishRequest) -> Iterator[FinishedModel]:
    """Yield a file, those with less of what was done for it, the best order with every layer whole, and the original.

    Each with less has at most half as many further operators as the one before, as each operator keeps memory of its
    own. Those in which little is gained are left out, as are those that fail or differ, and all for which the time that
    is left would not do: each is expected to take as long as the first, which was ``begun`` then.
    """
    run = asked.run
    yield found
    took = run.clock() - begun
    plain, most = _operators(asked.module), _operators(found.final.module)
    for candidate in next_best(found.final):
        if run.late() or run.stop() or not asked.has_time(took):
            break
        count = _operators(candidate.module)
        if count - plain > (most - plain) / _FEWER:
            continue
        with request.failures.left_out(candidate.rewrites.described() or "less of what was done"):
            left = _worthwhile(candidate, request, asked)
            if left.written.unchanged or left.ended:
                found = dataclasses.replace(found, ended=left.ended)
                break
            if comparable(left) and not (asked.command.free and not _costs_nothing(left, request, asked)):
                most = count
                yield left
    if found.final.rewritten and asked.has_time(took):
        yield _left_whole(found, request, asked)
    yield _original_instead(request, asked)


_FEWER: Final = 2
_MOST_MEASURED: Final = 4
"""Files that are run until one costs nothing."""


def _operators(module: Module) -> int:
    return sum(len(graph.ops) for graph in module.graphs)


def _given(request: Request, asked: FinishRequest) -> FinalModel:
    placed = place(asked.module, asked.prepared, dataclasses.replace(request, solver="file"))
    return FinalModel(asked.module, asked.data, asked.prepared, placed, options=asked.options)


def _worthwhile(final: FinalModel, request: Request, asked: FinishRequest) -> FinishedModel:
    """Return the file of what was found, or the one given where that saves too little; both are run.

    What was asked for by name is written whatever it saves: pins, an order for delegates, a memory plan.
    """
    opening = asked.opening
    if asked.command.control_dependencies or opening.memory_plan or opening.guarantee == "pins":
        return _finished(final, asked)
    required, needed = required_as_given(asked.module, asked.prepared, opening).total, final.placed.requirement.total
    # Where files bind the order. Sessions of ONNX Runtime have orders of their own: what they are seen to take decides.
    if asked.command.free and needed >= required and format_of(asked.module).traits.order_binds:
        return _original(request, asked)
    saved = slight(required, needed, asked.budget)
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
    figures = runtime.traits.figures(needed)
    return FinishedModel(given, written, None, needed, figures, notes=(_COPIED,))


def _costs_nothing(found: FinishedModel, request: Request, asked: FinishRequest) -> bool:
    """Whether a file was seen to keep the bits if it has to, and not to take more time than is permitted."""
    if not asked.command.verify:
        # Then only what callers accept by name was tried.
        return True
    seen = found.verification
    if seen is None or seen.outputs_equal is None or _is_slow(found, request.slowdown):
        return False
    if asked.exact and (not seen.outputs_equal or seen.default_apart):
        return False
    return not refuted(seen, inexact=not asked.exact)


def _left_whole(found: FinishedModel, request: Request, asked: FinishRequest) -> FinishedModel:
    """Return the file of the best order found, with no layer in pieces."""
    placed = found.final.whole or found.final.placed
    final = FinalModel(asked.module, asked.data, asked.prepared, placed, options=asked.options)
    if not found.ended:
        return _worthwhile(final, request, asked)
    whole = _worthwhile(final, request, asked.unverified())
    return dataclasses.replace(whole, notes=found.notes, ended=True)


def _finished(final: FinalModel, asked: FinishRequest) -> FinishedModel:
    written, facts = _write(final, asked)
    runtime = runtime_of(asked.module, asked.prepared.target, asked.opening)
    needed = required_as_given(asked.module, asked.prepared, asked.opening), final.placed.requirement
    figures = runtime.traits.figures(needed)
    done = FinishedModel(final, written, facts, needed, figures)
    if not asked.command.verify:
        return done
    begun = asked.run.clock()
    verification, notes, ended = _run_both(final, written, asked, figures.get("litert"))
    seconds = asked.run.clock() - begun
    return dataclasses.replace(done, verification=verification, notes=notes, seconds=seconds, ended=ended)


VERIFICATION_INTERRUPTED: Final = "the verification was interrupted"
_NOT_RUN: Final = f"{OUT_OF_TIME}: the file as given, which is the result, was not run"
_COPIED: Final = "no file that memsched made could be used: the file as given was copied, and nothing was run"


def _write(final: FinalModel, asked: FinishRequest) -> tuple[ModelBytes, ArenaFacts | None]:
    """Return the file of what was found, as its runtime wants it, and what TensorFlow Lite Micro makes of it."""
    module, opening = asked.module, asked.opening
    plans, chosen = final.placed.plans, final.placed.chosen
    written = write_model(
        final.module,
        final.data,
        plans,
        final.options,
        guarantee=opening.guarantee,
        control_dependencies=asked.command.control_dependencies,
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
    file = OrderedFile(final.module, written, plans, final.options, asked.run, opening.memory_plan, given)
    return runtime.finish(file)


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
            final.module,
            asked.data,
            written,
            asked.options,
            final.prepared.target,
            seed=asked.seed,
            tolerance=tolerance,
            predicted=predicted,
            kernels=final.rewrites.kernels and not asked.exact,
        )
    except KeyboardInterrupt:
        if not asked.may_end:
            raise
        return None, (VERIFICATION_INTERRUPTED,), True
    return verification, notes, False


def _with_fixed_dimensions(module: Module, written: ModelBytes) -> ModelBytes:
    """Return a rewritten model with the dimensions that ``module``, as given, leaves open and it does not."""
    fixed = capability(module, SizeGuards).fixed_dimensions(module, written.model)
    return dataclasses.replace(written, unchanged=False, fixed=fixed)


def told_apart(verification: Verification, final: FinalModel, facts: ArenaFacts | None) -> str:
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
