"""``memsched allocate``: addresses alone, for buffers from a CSV file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memsched.base.frozen import FrozenValue
from memsched.cli.display import Display, search_end
from memsched.cli.exit_code import ExitCode
from memsched.cli.groups import HelpCommand
from memsched.cli.options import both_to_stream, check_limits, options_of, output_options, taken, unnamed_output
from memsched.commands.options import AllocateOptions

if TYPE_CHECKING:
    from memsched.commands.allocate import AllocateResult

__all__ = ["command"]

_STANDARD = "-"


@click.command("allocate", cls=HelpCommand, short_help="Addresses for buffers with lifetimes.")
@click.argument("buffers", metavar="BUFFERS.csv")
@options_of(AllocateOptions, "capacity", "keep_best")
@click.option(
    "-o", "--output", metavar="OUT.csv", help="The file to write; by default <stem>_memsched.csv beside BUFFERS.csv."
)
@options_of(AllocateOptions, "minimize", "alignment", "time_limit", "effort", "memory_limit", "seed", "workers")
@click.option("--report", metavar="FILE", help="The report to write; '-' for standard output.")
@click.option("--force", is_flag=True, help="Permit OUT.csv to be BUFFERS.csv itself.")
@output_options
def command(**options: Any) -> int:
    """Write BUFFERS.csv with an address for every buffer, so that no two in use at one time share bytes.

    The file names each buffer's id, lower, upper and size; its lifetime is [lower, upper). It may state alignments,
    gaps in lifetimes and addresses, too. Exit code 3, and no file: they do not fit, or no addresses that fit were found
    in time.
    A stated address above the capacity is a contradiction in what was given: exit code 1.
    """
    from memsched.commands.allocate import allocate_buffers, save_allocation
    from memsched.commands.calls import Hooks

    check_limits(click.get_current_context())
    display, files = taken(Display, options), _outputs(taken(_AllocateFiles, options))
    progress = display.progress()
    with search_end(options["memory_limit"]) as end, progress:
        hooks = Hooks(on_progress=progress.tell, stop=end.stop, output=files.output)
        result = allocate_buffers(options["buffers"], taken(AllocateOptions, options), hooks)
        end.passed()
        written = result.csv is not None and files.output != _STANDARD
        path = files.output if written else None
        save_allocation(result, path=path, report_path=files.report, force=options["force"])
    _print(result, display, files)
    limited = end.by_memory(display)
    return _exit_code(result, display.quiet, interrupted=result.interrupted and not limited)


class _AllocateFiles(FrozenValue, frozen=True):
    """The options that name files: what is read and what is written."""

    buffers: str
    output: str | None
    report: str | None
    as_json: bool
    force: bool


class _AllocateOutputs(FrozenValue, frozen=True):
    """Where the results go.

    Attributes:
        output: A path, or "-".
        report: A path; None for no file.
        print_report: Whether the report goes to standard output.
    """

    output: str
    report: str | None
    print_report: bool


def _outputs(files: _AllocateFiles) -> _AllocateOutputs:
    """Return where the addresses and the report go.

    Raises:
        UsageError: Both would go to standard output, or into one file.
        OutputError: A file cannot be written, or is the input.
    """
    from memsched.formats.staging import check_apart, check_writable, overwrites, same_file

    source, output, report = files.buffers, files.output, files.report
    if output is None:
        if source == _STANDARD:
            raise unnamed_output("output", stream=True)
        path = Path(source)
        output = str(path.with_name(f"{path.stem}_memsched.csv")) if path.name else str(path / "_memsched.csv")
    print_report = files.as_json or report == _STANDARD
    report = None if report == _STANDARD else report
    if print_report and output == _STANDARD:
        raise both_to_stream("addresses")
    if output != _STANDARD:
        if source != _STANDARD and not files.force and same_file(source, output):
            raise overwrites(output, "the input", "give another name with -o, or --force to overwrite it")
        check_writable(output)
    if report is not None:
        check_apart("report", report, (source, output))
    return _AllocateOutputs(output, report, print_report)


def _print(result: AllocateResult, display: Display, files: _AllocateOutputs) -> None:
    from memsched.cli.terminal import write_standard_output
    from memsched.report.allocation import print_allocation

    if files.print_report:
        write_standard_output(result.report.to_json().encode())
    elif files.output == _STANDARD and result.csv is not None:
        write_standard_output(result.csv.encode())
    console = display.console(stderr=files.print_report or files.output == _STANDARD)
    print_allocation(console, result.report.values, report_path=files.report, verbose=display.detailed)


def _exit_code(result: AllocateResult, quiet: bool, *, interrupted: bool) -> int:
    """Return the exit code; one that is not 0 is explained even with --quiet."""
    from memsched.report.allocation import WITHHELD_ADDRESSES, verdict

    if interrupted:
        what = WITHHELD_ADDRESSES if result.csv is None else "the best addresses so far were written"
        code, reason = ExitCode.INTERRUPTED, f"interrupted: {what}"
    elif result.fits is False:
        code, reason = ExitCode.MISSED, verdict(result.report.values)
    else:
        return 0
    if quiet:
        click.echo(f"memsched: {reason}", err=True)
    return code
