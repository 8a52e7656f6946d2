"""``memsched diff``: what changed, for people and for CI."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from memsched.cli.display import Display
from memsched.cli.options import options_of, output_options, taken
from memsched.commands.options import DiffOptions
from memsched.errors import UsageError

if TYPE_CHECKING:
    from memsched.commands.results import Report
    from memsched.report.values.diff import DiffReport

__all__ = ["command"]

_REGRESSION = 3
_STANDARD = "-"


@click.command("diff", short_help="What changed between two reports.")
@click.argument("old", metavar="OLD.json")
@click.argument("new", metavar="NEW.json")
@options_of(DiffOptions)
@output_options
def command(**options: Any) -> int:
    """Compare two reports of optimize or analyze, or two summaries of batch: peaks, arenas, bounds, extra work.

    It also names the tensors that came to the peak and those that left it. Models of two batches belong together by
    path, and where that finds none by name. '-' is standard input.
    """
    from memsched.commands.diff import compare_reports, load_report

    names = (options["old"], options["new"])
    if names == (_STANDARD, _STANDARD):
        raise UsageError("only one of the two can come from standard input")
    old, new = (load_report(name) for name in names)
    found = compare_reports(old, new, names=names, **taken(DiffOptions, options).keywords())
    _print(found, taken(Display, options))
    return _REGRESSION if found.values.failed else 0


def _print(found: Report[DiffReport], display: Display) -> None:
    from memsched.report.diff import diff_verdict, print_diff

    if display.as_json:
        click.echo(json.dumps(found.data, indent=2))
    diff = found.values
    console = display.console(stderr=display.as_json)
    print_diff(console, diff, verbose=display.detailed)
    if display.quiet and diff.failed:
        click.echo(f"memsched: {diff_verdict(diff)[0]}", err=True)
