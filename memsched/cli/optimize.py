"""``memsched optimize``: from a model's file to a better one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.cli.display import Display, search_end
from memsched.cli.exit_code import ExitCode
from memsched.cli.groups import GroupedCommand
from memsched.cli.options import (
    both_to_stream,
    check_extra_work,
    check_level,
    check_limits,
    check_no_level,
    header_option,
    html_option,
    options_of,
    output_options,
    taken,
    typed,
    unnamed_output,
)
from memsched.commands.options import Options
from memsched.commands.without_effect import refuse_for_c

if TYPE_CHECKING:
    from memsched.commands.calls import Hooks
    from memsched.commands.results import OptimizeResult
    from memsched.features.ladder.climb import Climb
    from memsched.search.progress import Progress

__all__ = ["command"]

_STANDARD = "-"


class _OptimizeFiles(FrozenValue, frozen=True):
    """The options that name files: what is read and what is written."""

    model: str
    output: str | None
    report: str | None
    header: str | None
    c_array: str | None
    html: str | None
    as_json: bool
    force: bool


class _Outputs(FrozenValue, frozen=True):
    """Where the results go.

    Attributes:
        model: A path, or "-".
        report: A path; None for no file.
        report_asked: Whether the user named the report's file.
        print_report: Whether the report goes to standard output.
        files: The options as given.
    """

    model: str
    report: str | None
    report_asked: bool
    print_report: bool
    files: _OptimizeFiles


@click.command("optimize", cls=GroupedCommand, short_help="Reorder a model's operators, cut layers, recompute.")
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
@click.option(
    "--emit",
    type=click.Choice(["c"]),
    help="Write, in place of a model, C99 that runs it without an interpreter, into the folder OUT: model.h and "
    "model.c for 8-bit networks; for a target with on-chip memory, what runs it there.",
)
@click.option(
    "--input",
    type=click.Choice(["held", "elsewhere", "rows"]),
    help="With --emit c: where the input lies. held (default): in the arena, where a run destroys it. elsewhere: with "
    "the caller. rows: the caller pushes row by row, and the input is never whole.",
)
@html_option
@options_of(Options)
@click.option("--dask", metavar="ADDRESS", help="Search them on the dask cluster with this scheduler instead.")
@click.option("--force", is_flag=True, help="Permit OUT to be MODEL itself.")
@output_options
def command(**options: Any) -> int:
    """Write MODEL as an ordinary file that needs the least activation memory.

    Its operators get the best order, and layers that need too much are computed piece by piece if that costs nothing.
    memsched runs both files to compare the outputs, and writes a report in JSON next to the new one. If it finds
    nothing better, it writes the model unchanged, byte for byte. Ctrl-C ends the search and keeps the best so far.

    -O2 and -O3 permit what costs work: more pieces, which help plain CNNs that no order helps, and values computed
    again instead of kept, which help networks with long skip connections. With --budget an order alone comes first,
    then pieces, then repetitions: the first that fits is taken. If one file is too large for TensorFlow Lite Micro,
    --may-change opening permits several files in one arena, or C, in a folder named like OUT.

    --allow says the same by name. It may name io: inputs and outputs may become what the layers read and make, before
    there are pieces; the caller has to change, and is told how. And fuse: activations of ONNX models that were exported
    as chains of operators become one operator of ONNX Runtime's each.

    With --emit c the model becomes C without an interpreter, which streams: of each layer only those pixels are kept
    that the next ones still need. For an accelerator with on-chip memory of its own, it moves every piece of its layers
    in and out of that memory by DMA.
    """
    context = click.get_current_context()
    check_level(context)
    check_extra_work(context)
    check_limits(context)
    check_no_level(options["output"])
    display, asked = taken(Display, options), taken(Options, options)
    if options["emit"] is not None:
        from memsched.cli.emit import emit_command

        refuse_for_c(typed(context))
        return emit_command(options["model"], options["output"], options["report"], options["input"], asked, display)
    if options["input"] is not None:
        raise UsageError("--input says where the input of C lies", code="option-conflict", action="add --emit c")
    outputs = _outputs(taken(_OptimizeFiles, options))
    return _optimize(options["model"], asked, options["dask"], display, outputs, context.obj.words)


def _outputs(files: _OptimizeFiles) -> _Outputs:
    """Decide where the results go, and refuse early what cannot work."""
    from memsched.commands.results import check_outputs
    from memsched.formats.staging import is_regular

    source, output, report = files.model, files.output, files.report
    if output is None:
        if source == _STANDARD:
            raise unnamed_output("output", stream=True)
        output = str(_beside(Path(source), Path(source).suffix))
    print_report = files.as_json or report == _STANDARD
    if print_report and output == _STANDARD:
        raise both_to_stream("model")
    asked = report is not None and report != _STANDARD
    if not asked:
        # Beside a stream or a device nothing is left behind unasked.
        streams = _STANDARD in {report, output} or not is_regular(output)
        report = None if streams else str(Path(output).with_suffix(".json"))
    check_outputs(
        source,
        None if output == _STANDARD else output,
        report,
        force=files.force,
        header_path=files.header,
        array_path=files.c_array,
        html_path=files.html,
    )
    return _Outputs(output, report, asked, print_report, files)


def _beside(source: Path, suffix: str) -> Path:
    name = source.stem if suffix else source.name
    return source.with_name(f"{name}_memsched{suffix}") if name else source / f"_memsched{suffix}"


def _optimize(
    model: str, asked: Options, dask: str | None, display: Display, outputs: _Outputs, words: tuple[str, ...]
) -> int:
    from memsched.cli.several import write_several
    from memsched.commands.calls import Hooks
    from memsched.commands.optimize.reserve import KEPT
    from memsched.commands.results import OptimizeResult, OutputsDifferError, save_outputs
    from memsched.search.dask import executor_at

    progress = display.progress()
    with executor_at(dask) as executor, search_end(asked.memory_limit) as end, progress:

        def tell(news: Progress) -> None:
            if news.stage == "verification":
                end.passed()
            if news.stage.endswith(KEPT) and not display.quiet:
                click.echo(f"memsched: {news.stage}", err=True)
            progress.tell(news)

        try:
            hooks = Hooks(on_progress=tell, stop=end.stop, executor=executor, output=outputs.model, words=words)
            climbed = _climbed(model, asked, hooks, outputs)
        except OutputsDifferError as error:
            if outputs.report_asked and outputs.report is not None:
                error.report.save(outputs.report)
            raise
        end.passed()
        result = climbed.best
        if not isinstance(result, OptimizeResult):
            return write_several(climbed, model, outputs.model, outputs.report, display, as_json=outputs.print_report)
        if not result.withheld:
            save_outputs(
                result,
                model_path=None if outputs.model == _STANDARD else outputs.model,
                report_path=outputs.report,
                header_path=outputs.files.header,
                array_path=outputs.files.c_array,
                html_path=outputs.files.html,
                force=outputs.files.force,
            )
    _print(result, display, outputs)
    limited = end.by_memory(display)
    return _exit_code(result, display.quiet, interrupted=result.interrupted and not limited)


def _climbed(model: str, asked: Options, hooks: Hooks, outputs: _Outputs) -> Climb:
    """Return the result, which with a budget may be other than one file."""
    from memsched.commands.optimize.optimize import optimize
    from memsched.features.ladder.climb import Climb, climb

    files = outputs.files
    if asked.budget is None or model == _STANDARD:
        return Climb(optimize(model, asked, hooks))
    # A header, an array or a page are of one file, and standard output takes one.
    one = outputs.model == _STANDARD or any(path is not None for path in (files.header, files.c_array, files.html))
    return climb(model, asked, hooks, several=not one)


def _exit_code(result: OptimizeResult, quiet: bool, *, interrupted: bool) -> int:
    """Return the exit code; one that is not 0 is explained even with --quiet."""
    from memsched.report.budget import budget_verdict
    from memsched.report.pools import pool_lines
    from memsched.report.text import WITHHELD

    report = result.report.values
    pools = report.sections.pools
    if interrupted:
        what = WITHHELD if result.withheld else "the best so far was written"
        code, reason = ExitCode.INTERRUPTED, f"interrupted: {what}"
    elif report.budget is not None and not report.budget.met:
        code, reason = ExitCode.MISSED, budget_verdict(report, report.budget)
    elif pools is not None and pools.weighted_traffic is None:
        code, reason = ExitCode.MISSED, pool_lines(pools)[0][0]
    else:
        return 0
    if quiet:
        click.echo(f"memsched: {reason}", err=True)
    return code


def _print(result: OptimizeResult, display: Display, outputs: _Outputs) -> None:
    from memsched.cli.terminal import write_standard_output
    from memsched.report.firmware import print_firmware
    from memsched.report.ladder import print_ladder
    from memsched.report.summary import print_summary

    if outputs.model == _STANDARD:
        write_standard_output(b"" if result.withheld else result.model)
    elif outputs.print_report:
        write_standard_output(result.report.to_json().encode())
    console = display.console(stderr=outputs.print_report or outputs.model == _STANDARD)
    report, detailed = result.report.values, display.detailed
    print_summary(
        console,
        report,
        report_path=outputs.report,
        html_path=outputs.files.html,
        withheld=result.withheld,
        verbose=detailed,
    )
    print_ladder(console, report.sections.ladder)
    if detailed:
        print_firmware(console, report)
