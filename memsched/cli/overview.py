"""``memsched MODEL``: what a model takes in each runtime, what it could take, and the command for that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from memsched.base.units import format_change, format_size
from memsched.cli.display import Display, search_end
from memsched.cli.exit_code import ExitCode
from memsched.cli.groups import HelpCommand
from memsched.cli.options import check_limits, options_of, output_options, taken
from memsched.commands.options import OverviewOptions

if TYPE_CHECKING:
    from memsched.report.values.overview import OverviewGain, OverviewReport, OverviewRow
    from memsched.report.values.verdict import CallerChange

__all__ = ["command"]

_CHANGES: Final[dict[CallerChange, str]] = {
    "rounding": "floats within 1e-5, or as LiteRT's other kernels round",
    "inputs": "another type or layout of inputs or outputs",
    "opening": "session options, a file of weights, this kind of processor, or one kind of interpreter",
}
"""What a caller notices of each change."""

_UNITS: Final[dict[str, str]] = {
    "requested": "activations of a session",
    "interpreter": "process memory",
    "process": "process memory",
}
"""Names of units other than arenas."""

_PROCESSES: Final = frozenset({"interpreter", "process"})
"""Units whose last bytes vary from run to run."""


@click.command("MODEL", cls=HelpCommand)
@click.argument("model", metavar="")
@options_of(OverviewOptions)
@output_options
def command(**options: Any) -> int:
    """Say what MODEL takes in each runtime, what it could take, and the command for that.

    memsched searches for a short time and writes no file. It runs the model if the runtime is installed; all other
    figures are predicted by the runtime's rules, and are labeled so.
    """
    from memsched.commands.calls import Hooks
    from memsched.commands.overview import overview
    from memsched.report.text import print_line

    check_limits(click.get_current_context())
    display = taken(Display, options)
    with search_end(None) as end, display.progress() as progress:
        hooks = Hooks(on_progress=progress.tell, stop=end.stop)
        report = overview(options["model"], taken(OverviewOptions, options), hooks)
        end.passed()
    if display.as_json:
        from memsched.cli.terminal import write_standard_output
        from memsched.report.dump import dump_report

        write_standard_output(dump_report(report).encode())
    console = display.console(stderr=display.as_json)
    for line in _lines(report):
        print_line(console, line, whole=True)
    return ExitCode.INTERRUPTED if report.interrupted else 0


def _lines(report: OverviewReport) -> Iterator[str]:
    """Yield at most twelve lines: three for each of at most three runtimes."""
    from memsched.report.assumed import assumed_lines

    reason = f" ({report.reason})" if report.reason else ""
    yield f"{report.path}: usual target {report.usual}{reason}"
    for row in report.rows:
        found = row.reachable
        if found.bytes < row.original_bytes:
            less = f"{_less(row, found)}, {'+'.join(found.changes) or 'no change'}"
        else:
            less = f"{_size(row, row.original_bytes)}, nothing less found without a change"
        yield f"{row.runtime}: {_UNITS.get(row.unit, 'arena')} {less} [{'measured' if row.measured else 'predicted'}]"
        if found.bytes < row.original_bytes:
            yield f"  {found.command}"
        if row.with_changes is not None:
            more = row.with_changes
            yield f"  with changes ({', '.join(more.changes)}): {_less(row, more)}: {more.command}"
    yield from assumed_lines(report.assumed, report.path)
    named = [change for change in _CHANGES if any(change in _noticed(row) for row in report.rows)]
    if named:
        meanings = "; ".join(f"{change}: {_CHANGES[change]}" for change in named)
        yield f"what callers notice, and accept with --may-change: {meanings}"
    if report.not_measured:
        yield f"not measured: {', '.join(report.not_measured)}"


def _noticed(row: OverviewRow) -> tuple[CallerChange, ...]:
    more = () if row.with_changes is None else row.with_changes.changes
    return (*row.reachable.changes, *more)


def _less(row: OverviewRow, found: OverviewGain) -> str:
    before, after = found.private or (row.original_bytes, found.bytes)
    percent = 100 * (before - after) / before if before else 0.0
    time = "-" if found.time_ratio is None else f"{found.time_ratio:.2f}x"
    if found.private is not None:
        change = f"private process memory {format_change(format_size(before), format_size(after))}"
    else:
        change = format_change(_size(row, before), _size(row, after))
    return f"{change} (-{percent:.1f}%), time {time}"


def _size(row: OverviewRow, size: int) -> str:
    return format_size(size) if row.unit in _PROCESSES else f"{size:,} B"
