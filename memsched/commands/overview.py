"""What a model takes in each runtime that accepts it, what it could take, and the command for that."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Iterable, Sequence

from memsched import __version__
from memsched.base.errors import RuntimeUnavailableError
from memsched.commands.calls import NO_HOOKS, Hooks, command
from memsched.commands.declared import AUTO
from memsched.commands.optimize.optimize import load, optimize
from memsched.commands.options import Options, OverviewOptions
from memsched.report.values.base import SCHEMA_VERSION
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.overview import OverviewGain, OverviewReport, OverviewRow
from memsched.report.values.verdict import AlternativeRow, AssumedRow, CallerChange, Unit, VerdictSection
from memsched.runtimes.known import offers_for, usual_offer
from memsched.runtimes.offer import Offer

__all__ = ["overview"]

_DEFAULT = OverviewOptions()


@command(OverviewOptions)
def overview(
    source: str | os.PathLike[str], options: OverviewOptions = _DEFAULT, hooks: Hooks = NO_HOOKS
) -> OverviewReport:
    """Return, for each runtime that accepts a model, its memory, the memory that a short search reaches, and how.

    Nothing is written.

    Args:
        source: Path of the model.
        options: Where it runs, and what is stated of its sizes; each option may be a keyword instead.
        hooks: What is told and asked while it runs.

    Raises:
        MemschedError: The subclass and its message say which file, tensor or option is at fault.
    """
    path = os.fspath(source)
    module = load(path, input_shapes=options.input_shapes, dims=options.dims)
    usual, offers = usual_offer(module), offers_for(module)
    chosen = [one for one in offers if one.takes] if options.target is None else [_named(options.target, offers)]
    rows: list[OverviewRow] = []
    assumed: tuple[AssumedRow, ...] = ()
    interrupted = False
    for offer in sorted(chosen, key=lambda one: one.target != usual.target):
        report = _optimized(path, offer, options, hooks)
        interrupted = report.verdict.interrupted
        assumed = tuple(one for one in report.assumed if one.reason)
        rows.append(_row(report, offer, _words(path, options, offer)))
        if interrupted:
            break
    return OverviewReport(
        schema_version=SCHEMA_VERSION,
        memsched_version=__version__,
        command="overview",
        path=path,
        usual=usual.target,
        reason=usual.reason,
        rows=tuple(rows),
        not_measured=tuple(dict.fromkeys(place for one in chosen for place in one.elsewhere)),
        interrupted=interrupted,
        assumed=assumed,
    )


def _named(target: str, offers: Iterable[Offer]) -> Offer:
    """Return the offer of a target that the user names, which may be one that no runtime offers by itself."""
    return next((one for one in offers if one.target == target), Offer(target, target, True, False))


def _words(path: str, options: OverviewOptions, offer: Offer) -> tuple[str, ...]:
    """Return the command line that writes the file, without the program's name."""
    shapes = (f"--shape={name}={','.join(map(str, shape))}" for name, shape in options.input_shapes.items())
    dims = (f"--dim={name}={size}" for name, size in options.dims.items())
    return ("optimize", path, *shapes, *dims, "--target", offer.target)


def _optimized(path: str, offer: Offer, options: OverviewOptions, hooks: Hooks) -> OptimizeReport:
    wanted = Options(
        target=offer.target,
        input_shapes=options.input_shapes,
        dims=options.dims,
        time_limit=options.time_limit if options.effort is None else AUTO,
        effort=options.effort,
    )
    asked = dataclasses.replace(hooks, words=_words(path, options, offer))
    try:
        return optimize(path, wanted, asked).report.values
    except RuntimeUnavailableError:
        return optimize(path, dataclasses.replace(wanted, verify=False), asked).report.values


def _row(report: OptimizeReport, offer: Offer, words: Sequence[str]) -> OverviewRow:
    verdict, section = report.verdict, report.sections.interpreter
    figures, measured = (verdict.original_bytes, verdict.bytes), verdict.measured
    if section is not None:
        figures, measured = (section.given.private_bytes, (section.written or section.given).private_bytes), True
    reached = OverviewGain(
        bytes=figures[1],
        time_ratio=verdict.time_ratio,
        changes=_changes(verdict),
        command=shlex.join(["memsched", *words]),
    )
    better = [one for one in report.alternatives if one.changes and (one.private or one.bytes < verdict.bytes)]
    return OverviewRow(
        target=offer.target,
        runtime=offer.title,
        unit=verdict.unit,
        original_bytes=figures[0],
        measured=measured,
        reachable=reached,
        with_changes=_gain(min(better, key=lambda one: (not one.private, one.bytes)), verdict.unit) if better else None,
    )


def _gain(found: AlternativeRow, unit: Unit) -> OverviewGain:
    written, saved = found.process_bytes, found.process_saving_bytes
    known = found.private and written is not None and saved is not None
    return OverviewGain(
        bytes=written if unit == "process" and written is not None else found.bytes,
        time_ratio=found.time_ratio,
        changes=found.changes,
        command=found.command,
        private=((written or 0) + (saved or 0), written or 0) if known else None,
    )


def _changes(verdict: VerdictSection) -> tuple[CallerChange, ...]:
    """Return what callers notice of a file that was found without a change that was asked for."""
    opened: tuple[CallerChange, ...] = ("opening",) if verdict.session == "session" else ()
    gained = verdict.bytes < verdict.original_bytes
    return (*(("rounding",) if verdict.outputs == "close" else ()), *opened) if gained else ()
