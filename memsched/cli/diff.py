"""``memsched diff``: what changed, for people and for CI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from memsched.base.errors import ReportError, UsageError
from memsched.cli.display import Display
from memsched.cli.exit_code import ExitCode
from memsched.cli.groups import HelpCommand
from memsched.cli.options import options_of, output_options, taken
from memsched.commands.options import DiffOptions

if TYPE_CHECKING:
    from memsched.commands.results import Report
    from memsched.report.values.diff import DiffReport

__all__ = ["command"]


@click.command("diff", cls=HelpCommand, short_help="What changed between two reports.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@options_of(DiffOptions)
@click.option(
    "--target", metavar="NAME|FILE.toml", help="Memory rules, where OLD or NEW is a model; by default as in the report."
)
@click.option("--markdown", is_flag=True, help="Print a table for a comment on a pull request.")
@output_options
def command(**options: Any) -> int:
    """Compare two reports of optimize or analyze, or two summaries of batch: peaks, arenas, bounds, extra work.

    It also names the tensors that came to the peak and those that left it. Models of two batches belong together by
    path, and where that finds none by name. A model in place of a report is analyzed as it stands. '-' is standard
    input.
    """
    from memsched.commands.diff import compare_reports, load_pair

    display = taken(Display, options)
    if options["markdown"] and display.as_json:
        raise UsageError(
            "--json and --markdown both print to standard output", code="option-conflict", action="give one of them"
        )
    names = (options["old"], options["new"])
    old, new = load_pair(names, options["target"])
    found = compare_reports(old, new, names=names, fail_percent=taken(DiffOptions, options).fail_percent)
    if options["markdown"]:
        from memsched.report.diff_markdown import diff_markdown

        click.echo(diff_markdown(found.values, _sentence(new)), nl=False)
    else:
        _print(found, display)
    return ExitCode.MISSED if found.values.failed else 0


def _sentence(report: Mapping[str, Any]) -> str:
    """Return the verdict of a report as `optimize` and `analyze` print it; "" for a batch or a damaged report."""
    from memsched.report.reading import parse_report
    from memsched.report.verdict import verdict_sentence

    try:
        return verdict_sentence(parse_report(json.dumps(report).encode(), "the report"))
    except ReportError:
        return ""


def _print(found: Report[DiffReport], display: Display) -> None:
    from memsched.report.diff import diff_verdict, print_diff

    if display.as_json:
        click.echo(json.dumps(found.data, indent=2))
    diff = found.values
    console = display.console(stderr=display.as_json)
    print_diff(console, diff, verbose=display.detailed)
    if display.quiet and diff.failed:
        click.echo(f"memsched: {diff_verdict(diff)[0]}", err=True)
