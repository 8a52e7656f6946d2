"""``memsched optimize``: from file to file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memsched.cli.options import (
    check_extra_work,
    check_limits,
    header_option,
    html_option,
    options_of,
    output_options,
    taken,
)
from memsched.commands.options import OptimizeOptions
from memsched.errors import UsageError

if TYPE_CHECKING:
    from memsched.commands.results import OptimizeResult

__all__ = ["command"]

_STANDARD = "-"
_BUDGET_NOT_MET = 3
_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class _Outputs:
    """Where everything goes.

    Attributes:
        model: A path, or "-".
        report: A path; None for no file.
        report_asked: The user named the report's file.
        print_report: The report goes to standard output.
    """

    model: str
    report: str | None
    report_asked: bool
    print_report: bool


@click.command("optimize", short_help="Reorder a model's operators, cut layers, recompute.")
@click.argument("model")
@click.option(
    "-o", "--output", metavar="OUT", help="The model to write; by default <stem>_memsched.<ext> beside MODEL."
)
@click.option("--report", metavar="FILE", help="The report to write; by default beside the output, ending in .json.")
@header_option
@click.option(
    "--c-array",
    metavar="FILE.c",
    help="A C source to write as well that holds the model written, for firmware; --header declares it.",
)
@html_option
@options_of(OptimizeOptions)
@click.option("--dask", metavar="ADDRESS", help="Search them on the dask cluster whose scheduler is there instead.")
@click.option("--force", is_flag=True, help="Permit OUT to be MODEL itself.")
@output_options
def command(**options: Any) -> int:
    """Write MODEL with its operators in the order that needs the least activation memory.

    Beside it goes a report in JSON. The model is run before and after to compare the outputs. Where nothing better
    is found, the model is written unchanged, byte for byte. Ctrl-C ends the search and keeps the best so far.

    With --allow reorder,inplace,tile layers that need too much are computed piece by piece, which helps plain CNNs that
    no order helps; with remat in the list values are computed again instead of kept, which helps networks with long
    skip connections. The file written is an ordinary one. With --budget an order alone comes first, then pieces, then
    repetitions: the first that fits is taken.
    """
    context = click.get_current_context()
    check_extra_work(context)
    check_limits(context)
    outputs = _outputs(options)
    return _optimize(options, outputs, context.obj.words)


def _outputs(options: dict[str, Any]) -> _Outputs:
    """Decide where everything goes and refuse what cannot work, before anything costs time."""
    from memsched.commands.results import check_outputs
    from memsched.formats.staging import is_regular

    source, output, report, as_json = (options[name] for name in ("model", "output", "report", "as_json"))
    if output is None:
        if source == _STANDARD:
            raise UsageError("standard input gives no name for the output: name it with -o ('-' is standard output)")
        output = str(_beside(Path(source), Path(source).suffix))
    print_report = as_json or report == _STANDARD
    if print_report and output == _STANDARD:
        raise UsageError("model and report cannot both go to standard output: name a file with -o or --report")
    asked = report is not None and report != _STANDARD
    if not asked:
        # Nothing is left behind unasked beside a stream or a device.
        streams = _STANDARD in {report, output} or not is_regular(output)
        report = None if streams else str(Path(output).with_suffix(".json"))
    check_outputs(
        source,
        None if output == _STANDARD else output,
        report,
        force=options["force"],
        header_path=options["header"],
        array_path=options["c_array"],
        html_path=options["html"],
    )
    return _Outputs(output, report, asked, print_report)


def _beside(source: Path, suffix: str) -> Path:
    name = source.stem if suffix else source.name
    return source.with_name(f"{name}_memsched{suffix}") if name else source / f"_memsched{suffix}"


def _optimize(options: dict[str, Any], outputs: _Outputs, words: tuple[str, ...]) -> int:
    from memsched.cli.terminal import ProgressDisplay, interruptible, make_console
    from memsched.commands.optimize.optimize import optimize
    from memsched.commands.results import OutputsDifferError, save_outputs
    from memsched.search.dask import executor_at
    from memsched.search.memory_limit import memory_limited

    errors = make_console(stderr=True, no_color=options["no_color"], quiet=options["quiet"])
    progress = ProgressDisplay(errors, enabled=not options["quiet"], every=options["verbose"] > 0)
    memory_limit = memory_limited(options["memory_limit"])
    with executor_at(options["dask"]) as executor, interruptible() as interrupt, memory_limit as memory, progress:

        def tell(news: Any) -> None:
            if news.stage == "verification":
                interrupt.search_ended()
                memory.search_ended()
            progress.tell(news)

        try:
            result = optimize(
                options["model"],
                **taken(OptimizeOptions, options).keywords(),
                executor=executor,
                output=outputs.model,
                words=words,
                on_progress=tell,
                stop=lambda: interrupt.stop() | memory.stop(),
            )
        except OutputsDifferError as error:
            if outputs.report_asked and outputs.report is not None:
                error.report.save(outputs.report)
            raise
        interrupt.search_ended()
        memory.search_ended()
        save_outputs(
            result,
            model_path=None if outputs.model == _STANDARD else outputs.model,
            report_path=outputs.report,
            header_path=options["header"],
            array_path=options["c_array"],
            html_path=options["html"],
            force=options["force"],
        )
    _print(result, options, outputs)
    limited = memory.said(interrupt.requested)
    if limited is not None and not options["quiet"]:
        click.echo(f"memsched: {limited}", err=True)
    return _exit_code(result, options["quiet"], interrupted=result.interrupted and limited is None)


def _exit_code(result: OptimizeResult, quiet: bool, *, interrupted: bool) -> int:
    """Return the exit code; one that is not 0 is explained even to those who asked for quiet."""
    from memsched.report.console import budget_verdict
    from memsched.report.pools import pool_lines

    report = result.report.values
    pools = report.pools
    if interrupted:
        code, reason = _INTERRUPTED, "interrupted: the best found so far was written"
    elif report.budget is not None and not report.budget.met:
        code, reason = _BUDGET_NOT_MET, budget_verdict(report, report.budget)
    elif pools is not None and pools.weighted_traffic is None:
        code, reason = _BUDGET_NOT_MET, pool_lines(pools)[0][0]
    else:
        return 0
    if quiet:
        click.echo(f"memsched: {reason}", err=True)
    return code


def _print(result: OptimizeResult, options: dict[str, Any], outputs: _Outputs) -> None:
    from memsched.cli.terminal import make_console, write_standard_output
    from memsched.report.console import print_summary
    from memsched.report.firmware import print_firmware
    from memsched.report.suggestions import print_suggestion

    taken = outputs.print_report or outputs.model == _STANDARD
    if outputs.model == _STANDARD:
        write_standard_output(result.model)
    elif outputs.print_report:
        write_standard_output(result.report.to_json().encode())
    console = make_console(stderr=taken, no_color=options["no_color"], quiet=options["quiet"])
    print_summary(
        console,
        result.report.values,
        report_path=outputs.report,
        html_path=options["html"],
        verbose=options["verbose"] > 0,
    )
    if options["verbose"] > 0:
        print_firmware(console, result.report.values, verbose=True)
    print_suggestion(console, result.report.values)
