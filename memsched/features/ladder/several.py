"""Write a result that consists of several files, and its report."""

from __future__ import annotations

from pathlib import Path

import msgspec

from memsched.commands.optimize.emit import StreamedModel, save_emitted, stream_report
from memsched.commands.results import OptimizeResult, Report
from memsched.features.ladder.climb import Climb
from memsched.features.relay.relay import RelayModel
from memsched.features.relay.report import RelayNames, relay_names, relay_report, save_relay
from memsched.report.values.relay import RelayReport
from memsched.report.values.stream import StreamReport

__all__ = ["save_several"]


def save_several(
    climbed: Climb, source: str, folder: str, report_path: str | None
) -> Report[RelayReport] | Report[StreamReport]:
    """Write stages or C into a folder, write the report, and return it.

    Raises:
        OutputError: A file cannot be written.
    """
    best = climbed.best
    if isinstance(best, RelayModel):
        return _stages(best, climbed, relay_names(str(Path(folder) / Path(source).name), None, report_path or "-"))
    if isinstance(best, OptimizeResult):
        raise TypeError("one file is written by save_outputs")
    return _streamed(best, climbed, source, folder, report_path)


def _stages(best: RelayModel, climbed: Climb, names: RelayNames) -> Report[RelayReport]:
    values = msgspec.structs.replace(relay_report(best, names).values, ladder=climbed.rows)
    report = Report(values)
    if not best.withheld:
        save_relay(best, report, names)
    return report


def _streamed(
    best: StreamedModel, climbed: Climb, source: str, folder: str, report_path: str | None
) -> Report[StreamReport]:
    values = stream_report(best, folder).values
    report = Report(
        msgspec.structs.replace(values, budget=climbed.budget_of(values.result.ram_bytes), ladder=climbed.rows)
    )
    save_emitted(best, report, source, folder, report_path)
    return report
