"""``memsched analyze``: what a model needs as it stands, and what it would cost to need less."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memsched.base.errors import UsageError
from memsched.cli.display import Display, search_end
from memsched.cli.exit_code import ExitCode
from memsched.cli.groups import HelpCommand
from memsched.cli.options import check_frontier, header_option, html_option, options_of, output_options, taken
from memsched.commands.options import AnalyzeOptions

if TYPE_CHECKING:
    from memsched.commands.results import AnalyzeResult
    from memsched.report.values.optimize import OptimizeReport

__all__ = ["command"]

_STANDARD = "-"


@click.command("analyze", cls=HelpCommand, short_help="What a model needs as it stands, and what less would cost.")
@click.argument("model")
@click.option("--report", metavar="FILE", help="The report to write; '-' for standard output.")
@header_option
@html_option
@options_of(
    AnalyzeOptions, "target", "input_shapes", "dims", "shapes_from_run", "budget", "budget_for", "allow", "frontier"
)
@click.option("--plot", metavar="FILE", help="With --frontier, or a range: a picture to write as well, .svg or .png.")
@options_of(AnalyzeOptions, "max_extra_macs", "time_limit", "effort", "memory_limit")
@output_options
def command(**options: Any) -> int:
    """Say what MODEL needs as it stands: peak, bound, the tensors at the peak, the operators used.

    With --frontier it also says what less memory would cost: the least peak by order alone, and lower ones by layers in
    pieces and values computed again, each with its extra work. Ctrl-C ends the search and shows what was found.
    """
    from memsched.cli.terminal import write_standard_output
    from memsched.commands.results import check_outputs

    check_frontier(click.get_current_context())
    path = options["report"] if options["report"] != _STANDARD else None
    print_report = options["as_json"] or options["report"] == _STANDARD
    header, html = options["header"], options["html"]
    check_outputs(options["model"], None, path, force=False, header_path=header, html_path=html)
    extension = _check_plot(options["plot"], (options["model"], path, header, html))
    display = taken(Display, options)
    read = print_report or path is not None or html is not None or not display.quiet
    rows = print_report or display.detailed or any(one is not None for one in (path, header, html, extension))
    result, limited = _analyze(options["model"], taken(AnalyzeOptions, options), display, read=read, rows=rows)
    pictures = {}
    if extension is not None:
        from memsched.report.frontier import draw

        pictures[options["plot"]] = draw(result.report.values, extension)
    result.report.save(path, header, html, pictures)
    if print_report:
        write_standard_output(result.report.to_json().encode())
    _print(result, display, path, html, stderr=print_report)
    if not limited() and result.report.values.verdict.interrupted:
        return ExitCode.INTERRUPTED
    return _exit_code(result.report.values, display.quiet)


def _exit_code(report: OptimizeReport, quiet: bool) -> int:
    """Return whether the budget is met; if it is not, say so even with --quiet."""
    from memsched.report.budget import budget_verdict

    if report.budget is None or report.budget.met:
        return 0
    if quiet:
        click.echo(f"memsched: {budget_verdict(report, report.budget)}", err=True)
    return ExitCode.MISSED


def _check_plot(plot: str | None, others: tuple[str | None, ...]) -> str | None:
    """Return the extension of the picture to draw; refuse early what cannot work."""
    from memsched.formats.staging import check_apart
    from memsched.report.frontier import PICTURES, check_drawing

    if plot is None:
        return None
    extension = Path(plot).suffix.lower()
    if extension not in PICTURES:
        raise UsageError(
            f"--plot '{plot}' is not a picture", code="file-ending", action="give a name that ends in .svg or .png"
        )
    check_apart("picture", plot, others)
    check_drawing()
    return extension


def _analyze(
    model: str, asked: AnalyzeOptions, display: Display, *, read: bool, rows: bool
) -> tuple[AnalyzeResult, Callable[[], bool]]:
    """Return the analysis, and what tells whether the memory limit ended its search.

    Args:
        read: Whether more than the exit code is shown.
        rows: Whether anything needs the report's rows for steps, buffers and layers.
    """
    from memsched.commands.calls import Hooks
    from memsched.commands.optimize.analysis import analyze

    progress = display.progress(enabled=asked.frontier)
    with search_end(asked.memory_limit) as end, progress:
        words = click.get_current_context().obj.words if read else None
        hooks = Hooks(words=words, rows=rows)
        if asked.frontier:
            hooks = dataclasses.replace(hooks, on_progress=progress.tell, stop=end.stop)
        result = analyze(model, asked, hooks)
        end.passed()
    return result, lambda: end.by_memory(display)


def _print(result: AnalyzeResult, display: Display, path: str | None, html: str | None, *, stderr: bool) -> None:
    from memsched.report.blocks import print_curve
    from memsched.report.console import print_frontier, print_operators
    from memsched.report.firmware import print_firmware
    from memsched.report.summary import BESIDE_FRONTIER, MOST_LINES, print_summary

    console, verbose, report = display.console(stderr=stderr), display.detailed, result.report.values
    room = MOST_LINES if report.sections.frontier is None else BESIDE_FRONTIER
    print_summary(console, report, report_path=path, html_path=html, verbose=verbose, room=room)
    if report.sections.frontier is not None:
        print_frontier(console, report, verbose=verbose)
    if not verbose:
        return
    if report.sections.curve is not None:
        print_curve(console, report.sections.curve, None if report.budget is None else report.budget.budget_bytes)
    print_operators(console, report)
    print_firmware(console, report)
