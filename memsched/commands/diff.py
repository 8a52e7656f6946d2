"""The pipeline behind ``memsched diff``: what changed between two reports, or between two summaries of batches.

A *regression* is a peak or the memory required that grew by more than the percentage that was permitted, a budget that
was met and is not any more, or a model that came through before and fails now. A model that came or went is told, and
is none. Without a percentage the same is told as what got worse, and nothing fails.
"""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Final

from memsched import __version__
from memsched.base.arguments import checked
from memsched.base.errors import ReportError, UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.typed import UnfitError, converted
from memsched.commands.batch.inputs import EXTENSIONS
from memsched.commands.results import Report
from memsched.formats.reading import read_text
from memsched.formats.staging import STANDARD_STREAM, describe
from memsched.report.reading import MAKE_ANEW, worded
from memsched.report.values.base import SCHEMA_VERSION
from memsched.report.values.compared import Comparable, ComparedBatch, ComparedModel, ComparedReport, ComparedTensor
from memsched.report.values.diff import (
    Change,
    ChangedFigure,
    DiffReport,
    DiffTotals,
    FigureName,
    ModelDiff,
    PeakTensorRow,
)

__all__ = ["compare_reports", "load_pair", "load_report"]

_SINGLE = ("optimize", "analyze")
_BATCH = "batch"
_GUARDED: Final[tuple[FigureName, ...]] = ("peak_bytes", "required_bytes")
"""Figures whose growth is a regression."""


class _ModelFigures(FrozenValue, frozen=True):
    """One model of a report or summary; ``figures`` is None where it failed."""

    name: str
    path: str
    sha256: str | None
    target: str | None
    budget_met: bool | None
    figures: Mapping[FigureName, float] | None
    at_peak: Mapping[str, int]
    error: str | None = None


def load_pair(names: tuple[str, str], target: str | None = None) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return what two files say, for `compare_reports`, as `load_report` does.

    Args:
        target: For models; if it is None, that of the first report or model.

    Raises:
        UsageError: Both are standard input, or ``target`` is given and neither is a model.
        ReportError: One cannot be read, or is none of what is compared.
    """
    if names == (STANDARD_STREAM, STANDARD_STREAM):
        raise UsageError(
            "only one of the two can come from standard input", code="stdin-twice", action="name the other file"
        )
    reports = {name: load_report(name) for name in names if not _is_model(name)}
    if target is not None and len(reports) == len(set(names)):
        raise UsageError("--target has no effect: neither file is a model", code="no-effect", action="leave it out")
    if target is None and reports:
        only = next(iter(reports.values()))
        target = _target_of(only) if len(reports) == 1 else None
    first, second = names
    old = reports[first] if first in reports else load_report(first, target)
    if target is None and PurePath(first).suffix.lower() == PurePath(second).suffix.lower():
        # Figures of two runtimes do not compare, and files of one format may have two usual ones.
        target = _target_of(old)
    return old, reports[second] if second in reports else load_report(second, target)


def _is_model(name: str) -> bool:
    return PurePath(name).suffix.lower() in EXTENSIONS


def _target_of(report: Mapping[str, Any]) -> str | None:
    found = report.get("target")
    name = found.get("name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None


@checked
def load_report(path: str, target: str | None = None) -> Mapping[str, Any]:
    """Return the report of `memsched optimize` or `analyze`, or the summary of `memsched batch`, in a JSON file.

    A model, which is told by its extension, is analyzed as it stands.

    Args:
        path: "-" is standard input.
        target: For a model; None: that of its format's runtime.

    Raises:
        ReportError: It cannot be read, or is none of them.
    """
    if _is_model(path):
        from memsched.commands.optimize.analysis import analyze

        return analyze(path, target=target).report.data
    try:
        report: Any = json.loads(read_text(path))
    except OSError as error:
        raise ReportError(
            f"{describe(path)} cannot be read: {error.strerror or error}", code="report-unreadable"
        ) from None
    except (ValueError, RecursionError):
        raise ReportError(f"{describe(path)} is not a report of memsched: it is not JSON", code="not-json") from None
    _check_command(report, path)
    if report.get("schema_version") != SCHEMA_VERSION:
        version = str(report.get("schema_version"))[:20]
        raise ReportError(
            f"{describe(path)} is a report of version {version}; this memsched reads {SCHEMA_VERSION}",
            code="report-version",
            action=MAKE_ANEW,
        )
    found: Mapping[str, Any] = report
    return found


def _check_command(report: object, name: str) -> None:
    command = report.get("command") if isinstance(report, Mapping) else None
    if command not in (*_SINGLE, _BATCH):  # no set: a list in its place cannot be hashed
        what = f"it is the report of 'memsched {command}'" if isinstance(command, str) else "it names no command"
        raise ReportError(
            f"{describe(name)} cannot be compared: {what}",
            code="other-report",
            action="give reports of optimize or analyze, or batch.json",
        )


def _typed(report: Mapping[str, Any], name: str) -> Comparable:
    """Return what is compared of a report, every value checked: it may have been written by anyone."""
    try:
        return converted(report, ComparedBatch) if report["command"] == _BATCH else converted(report, ComparedReport)
    except UnfitError as error:
        raise ReportError(
            f"{describe(name)} is not a complete report of memsched: {worded(error.fault)}", code="report-field"
        ) from None


@checked
def compare_reports(
    old: Mapping[str, Any], new: Mapping[str, Any], *, names: tuple[str, str], fail_percent: float | None = None
) -> Report[DiffReport]:
    """Return what changed.

    Models of two batches belong together by path, and where that finds none by name.

    Args:
        old: From `load_report`, as ``new`` is.
        names: Of the two files, for messages and for the result.
        fail_percent: Growth beyond which a peak, or what is required, is a regression; None: beyond 0, and nothing
            fails.

    Raises:
        UsageError: One is the report of a model, the other the summary of a batch.
        ReportError: One of them lacks what such a file has.
    """
    for report, name in ((old, names[0]), (new, names[1])):
        _check_command(report, name)
    batch = new["command"] == _BATCH
    if (old["command"] == _BATCH) != batch:
        raise UsageError(
            "a report of one model and a summary of a batch cannot be compared",
            code="different-kinds",
            action="give two of a kind",
        )
    before, after = _models(_typed(old, names[0])), _models(_typed(new, names[1]))
    pairs = _pairs(before, after)
    models = [_compare(one, other, fail_percent) for one, other in pairs]
    regressions = sum(bool(model.regressions) for model in models)
    changes = {kind: sum(model.change == kind for model in models) for kind in typing.get_args(Change)}
    found = DiffReport(
        schema_version=SCHEMA_VERSION,
        memsched_version=__version__,
        command="diff",
        old=names[0],
        new=names[1],
        kind="batch" if batch else "model",
        fail_percent=fail_percent,
        failed=fail_percent is not None and regressions > 0,
        totals=DiffTotals(models=len(models), regressions=regressions, **changes),
        models=tuple(models),
    )
    return Report(found)


def _models(report: Comparable) -> list[_ModelFigures]:
    """Return what a file says of its models."""
    if isinstance(report, ComparedBatch):
        return [_of_batch(model) for model in report.models]
    return [_of_report(report)]


def _of_report(report: ComparedReport) -> _ModelFigures:
    path, after = report.model.path, report.written.schedule
    return _ModelFigures(
        name=PurePath(path).stem or path,
        path=path,
        sha256=report.model.sha256,
        target=report.target.name,
        budget_met=None if report.budget is None else report.budget.met,
        figures={
            "required_bytes": report.verdict.bytes,
            "file_peak_bytes": report.original.schedule.peak_bytes,
            "peak_bytes": after.peak_bytes,
            "arena_bytes": after.arena_bytes,
            "lower_bound_bytes": report.proof.bound_bytes,
            "extra_macs_percent": report.verdict.extra_macs_percent,
        },
        at_peak=_tensors(report.written.at_fault),
    )


def _of_batch(model: ComparedModel) -> _ModelFigures:
    result = model.result
    if result is None:
        return _ModelFigures(model.name, model.path, None, None, None, None, {}, model.error or model.status)
    return _ModelFigures(
        name=model.name,
        path=model.path,
        sha256=result.sha256,
        target=result.target,
        budget_met=result.budget_met,
        figures={
            "required_bytes": result.required_bytes,
            "file_peak_bytes": result.file_peak_bytes,
            "peak_bytes": result.peak_bytes,
            "arena_bytes": result.arena_bytes,
            "lower_bound_bytes": result.lower_bound_bytes,
            "extra_macs_percent": result.extra_macs_percent,
        },
        at_peak=_tensors(result.at_fault),
    )


def _tensors(entries: Sequence[ComparedTensor]) -> dict[str, int]:
    return {entry.tensor: entry.size_bytes for entry in entries}


def _pairs(
    before: Sequence[_ModelFigures], after: Sequence[_ModelFigures]
) -> list[tuple[_ModelFigures | None, _ModelFigures | None]]:
    """Return what belongs together: those of ``before`` in their order, then those that came."""
    if len(before) == len(after) == 1:
        return [(before[0], after[0])]
    rest = dict(enumerate(after))
    partner: dict[int, _ModelFigures] = {}
    keys: tuple[Callable[[_ModelFigures], str], ...] = (lambda model: model.path, lambda model: model.name)
    for key in keys:
        known = {key(model): index for index, model in reversed(rest.items())}
        for index, model in enumerate(before):
            found = known.get(key(model))
            if index not in partner and found is not None and found in rest:
                partner[index] = rest.pop(found)
    kept: list[tuple[_ModelFigures | None, _ModelFigures | None]] = [
        (model, partner.get(index)) for index, model in enumerate(before)
    ]
    return kept + [(None, model) for model in rest.values()]


def _compare(old: _ModelFigures | None, new: _ModelFigures | None, percent: float | None) -> ModelDiff:
    one = new or old
    figures: dict[FigureName, ChangedFigure] = {}
    came: tuple[PeakTensorRow, ...] = ()
    went: tuple[PeakTensorRow, ...] = ()
    notes: list[str] = []
    if old is not None and new is not None and old.figures is not None and new.figures is not None:
        figures = {key: _change(old.figures[key], new.figures[key]) for key in old.figures}
        came, went = _missing(new.at_peak, old.at_peak), _missing(old.at_peak, new.at_peak)
        if old.sha256 != new.sha256:
            notes.append("the model itself is another one")
        if old.target != new.target:
            notes.append(f"the target was {old.target} and is {new.target}")
    return ModelDiff(
        name="" if one is None else one.name,
        path="" if one is None else one.path,
        change=_kind(old, new),
        error=None if new is None else new.error,
        figures=figures,
        came_to_peak=came,
        left_peak=went,
        notes=tuple(notes),
        regressions=tuple(_regressions(old, new, percent)),
    )


def _change(old: float, new: float) -> ChangedFigure:
    """Return both values and the growth in percent; None where something grew out of nothing, or next to nothing."""
    growth = 0.0 if new == old else 100 * (new - old) / old if old else math.inf
    return ChangedFigure(old=old, new=new, percent=round(growth, 3) if math.isfinite(growth) else None)


def _missing(there: Mapping[str, int], here: Mapping[str, int]) -> tuple[PeakTensorRow, ...]:
    return tuple(PeakTensorRow(tensor=name, size_bytes=size) for name, size in there.items() if name not in here)


def _kind(old: _ModelFigures | None, new: _ModelFigures | None) -> Change:
    if old is None or new is None:
        return "came" if old is None else "went"
    if old.figures is None or new.figures is None:
        return "failed_before" if new.figures is old.figures else "fails" if new.figures is None else "recovered"
    changes = [new.figures[key] - old.figures[key] for key in _GUARDED]
    if any(change > 0 for change in changes):
        return "larger"
    if any(change < 0 for change in changes):
        return "smaller"
    return "same" if old.figures == new.figures and old.at_peak == new.at_peak else "different"


def _regressions(old: _ModelFigures | None, new: _ModelFigures | None, percent: float | None) -> list[str]:
    """Return what got worse by more than ``percent``, or at all where that is None, each in words."""
    if old is None or new is None or old.figures is None:
        return []
    if new.figures is None:
        return [f"it came through before, and fails now: {new.error}"]
    found = []
    for key in _GUARDED:
        before, after = old.figures[key], new.figures[key]
        # In whole numbers, so that exactly PCT percent is permitted.
        if 100 * (after - before) > (percent or 0.0) * before:
            growth = _change(before, after).percent
            by = "" if growth is None else f" by {growth:.2f} %"
            what = "memory required" if key == "required_bytes" else key.removesuffix("_bytes")
            permitted = "" if percent is None else f"; {percent:g} % is permitted"
            found.append(f"the {what} grew{by}, from {before:,} to {after:,} B{permitted}")
    if old.budget_met and new.budget_met is False:
        found.append("the budget was met, and is not any more")
    return found
