"""What would help beyond a result, as rows of its report."""

from __future__ import annotations

from memsched.base.units import rounded_ratio
from memsched.commands.optimize.command_lines import slowdown_for, with_options, without_options
from memsched.commands.optimize.executed import SessionSource
from memsched.commands.optimize.finished import FinishedModel
from memsched.commands.optimize.judged_sessions import best_opening, opened_alone
from memsched.commands.optimize.mapped import MappingRequest, mapped_in_less, point_of
from memsched.commands.optimize.named_sessions import executed_in_less, named_sessions
from memsched.commands.optimize.possible import too_large
from memsched.commands.optimize.reserve import SESSIONS
from memsched.commands.optimize.trials import RunOutcome, suggestions
from memsched.commands.optimize.worth import LEAST_GAIN
from memsched.commands.session_rows import SessionBench
from memsched.report.values.verdict import AlternativeRow
from memsched.runtimes.arena_facts import ArenaFacts
from memsched.runtimes.known import has_sessions
from memsched.runtimes.sessions import DEFAULT

__all__ = ["suggested"]


def suggested(
    outcome: RunOutcome,
    done: FinishedModel | None = None,
    source: SessionSource | None = None,
    bench: SessionBench | None = None,
    *,
    facts: ArenaFacts | None = None,
    named: bool = False,
    unlimited: bool = False,
) -> tuple[AlternativeRow, ...]:
    """Return the report's section on what would help, what to name first at its head.

    Args:
        done: What became of the result: where it was held back, only sessions that are named help.
        source: The model as those sessions read it.
        bench: What they are measured with.
        facts: What TensorFlow Lite Micro makes of the model as given, where it was asked: nothing helps a model that it
            refuses.
        named: The user has named a session.
        unlimited: Measurements may take longer than the search.
    """
    refused = facts is not None and bool(facts.refusals or facts.words)
    if refused or (done is not None and done.verification is not None and done.verification.refused):
        return ()
    with outcome.request.failures.left_out("a trial of what else helps"):
        late = outcome.request.run.late() or outcome.request.late()
        rows = () if late else _rows(outcome, done, None if named else source, bench)
        mapped = None if done is None or bench is None else _mapped(outcome, done, bench, unlimited=unlimited)
        opened = mapped or (None if done is None else _opened(outcome, done))
        return rows if opened is None else (opened, *rows)
    return ()


def _opened(outcome: RunOutcome, done: FinishedModel) -> AlternativeRow | None:
    """Return the written file with the session options that save most of the process; None if they save too little."""
    asked, rows = outcome.asked, done.sessions
    if asked.permitted.opening or asked.budget is not None or done.written.guarantee.session_options:
        return None
    point = best_opening(rows, outcome.request.slowdown)
    if point == DEFAULT:
        return None
    given, best, requested = rows[0].process_bytes, rows[-1].process_bytes, rows[-1].measured_bytes
    if given is None or best is None or requested is None:
        return None
    return AlternativeRow(
        command=asked.changing("opening"),
        what="the same file opened with session options",
        bytes=requested,
        saving_bytes=0,
        extra_macs_percent=0.0,
        time_ratio=rounded_ratio(rows[-1].cpu_ratio),
        changes=("opening",),
        process_bytes=best,
        process_saving_bytes=given - best,
    )


def _mapped(outcome: RunOutcome, done: FinishedModel, bench: SessionBench, *, unlimited: bool) -> AlternativeRow | None:
    """Return an alternative with mapped weights; None if it saves too little."""
    asked, request, module = outcome.asked, outcome.request, outcome.module
    may = has_sessions(module.format) and not asked.permitted.opening and asked.budget is None
    has_time = unlimited or request.remaining() >= SESSIONS * done.seconds
    if not may or done.verification is None or done.wrong or done.ended or request.stopped() or not has_time:
        return None
    mapping = MappingRequest(bench, "model", request.slowdown, brief=True)
    # The original is opened without options, whatever was promised for another file.
    point = DEFAULT if done.written.unchanged else point_of(done.written.guarantee.session_options)
    if point == DEFAULT:
        point = best_opening(done.sessions, request.slowdown)
    return mapped_in_less(done.written.model, point, mapping, asked)


def _rows(
    outcome: RunOutcome, done: FinishedModel | None, source: SessionSource | None, bench: SessionBench | None
) -> tuple[AlternativeRow, ...]:
    seen = None if done is None else done.verification
    as_predicted = seen is None or seen.holds
    if done is not None and source is not None and bench is not None and done.held_back is not None:
        asked, request = outcome.asked, outcome.request
        return named_sessions(done.held_back, done.needed[1].total, asked, request, source, bench, trusted=as_predicted)
    slower = _slower(outcome, done)
    # What is predicted to help is by the rules of the same memory.
    rows = tuple(
        AlternativeRow(
            command=one.command,
            what=one.what,
            bytes=one.required,
            saving_bytes=outcome.placed.required - one.required,
            extra_macs_percent=one.extra_macs_percent,
            time_ratio=None,
            changes=one.changes,
        )
        for one in (suggestions(outcome) if as_predicted else ())
    )
    if slower is not None:
        return (slower, *(row for row in rows if row.bytes < slower.bytes))
    if done is None or source is None or bench is None or not done.written.unchanged:
        return rows
    if not opened_alone(done, outcome.module) or outcome.asked.budget is not None or too_large(outcome.module):
        return rows
    # Processes, too, would be measured at other sizes.
    if seen is not None and not seen.at_stated_sizes:
        return rows
    executed = executed_in_less(outcome.asked, outcome.request, source, bench)
    return rows if executed is None else (executed, *rows)


def _slower(outcome: RunOutcome, done: FinishedModel | None) -> AlternativeRow | None:
    """Return the command for the best file that takes more time than is permitted; None if there is none."""
    section = None if done is None else done.interpreter
    refused = () if section is None else section.refused
    best = next((row for row in refused if row.time_ratio is not None), None)
    if section is None or best is None or best.time_ratio is None:
        return None
    private = (section.written or section.given).private_bytes, best.memory.private_bytes
    if private[1] > (1 - LEAST_GAIN) * private[0]:
        return None
    words = without_options(outcome.asked.words, "--max-slowdown")
    return AlternativeRow(
        command=with_options(words, "--max-slowdown", f"{slowdown_for(best.time_ratio)}"),
        what="the file found first",
        bytes=best.required_bytes,
        saving_bytes=0,
        extra_macs_percent=best.extra_macs_percent,
        time_ratio=best.time_ratio,
        changes=(),
        process_bytes=private[1],
        process_saving_bytes=private[0] - private[1],
        private=True,
    )
