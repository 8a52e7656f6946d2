"""``memsched pipeline``: a model for each of several accelerators in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from memsched.base.frozen import FrozenValue
from memsched.cli.display import Display, search_end
from memsched.cli.exit_code import ExitCode
from memsched.cli.groups import HelpCommand
from memsched.cli.options import check_extra_work, check_home, check_limits, options_of, output_options, taken
from memsched.commands.options import PipelineOptions

if TYPE_CHECKING:
    from memsched.features.pipeline.report import FileNames
    from memsched.formats.format import Format

__all__ = ["command"]

_STANDARD = "-"


@click.command("pipeline", cls=HelpCommand, short_help="Cut a model into one model per accelerator.")
@click.argument("model")
@options_of(
    PipelineOptions,
    "stages",
    "scheduler",
    "balance",
    "profile",
    "cut_after",
    "never_cut",
    "children_together",
    "skips",
)
@click.option("-o", "--output", metavar="DIR", help="Folder for the segments; by default beside MODEL.")
@click.option("--report", metavar="FILE", help="The report to write; by default <stem>_pipeline.json, '-': to stdout.")
@options_of(
    PipelineOptions,
    "annotate",
    "target",
    "input_shapes",
    "dims",
    "allow",
    "max_extra_macs",
    "time_limit",
    "effort",
    "memory_limit",
    "verify",
    "seed",
    "workers",
)
@output_options
def command(**options: Any) -> int:
    """Cut MODEL into N models, <stem>_segment_<i>_of_<N>, for N accelerators that work in a row.

    The stages' parameters are balanced so that the largest stage has the least possible, and as little as possible is
    sent between stages. Every segment's operators are put into the order that needs the least activation memory. The
    segments are run one after the other, and their outputs compared with the whole model's, bit for bit.

    The default target is the Coral Edge TPU; another accelerator is a TOML file with a [pipeline] table.
    """
    from memsched.cli.terminal import write_standard_output
    from memsched.commands.calls import Hooks
    from memsched.features.pipeline.pipeline import pipeline
    from memsched.features.pipeline.report import report_of, save_pipeline
    from memsched.formats.known import format_of
    from memsched.report.pipeline import print_pipeline

    check_extra_work(click.get_current_context())
    check_limits(click.get_current_context())
    names = _names(taken(_PipelineFiles, options), _format_of(options["model"]))
    display = taken(Display, options)
    print_report = display.as_json or options["report"] == _STANDARD
    with search_end(options["memory_limit"]) as end:
        staged = pipeline(options["model"], taken(PipelineOptions, options), Hooks(stop=end.stop))
        end.passed()
        if options["model"] == _STANDARD:
            # Only now is it known which format a stream holds.
            files = taken(_PipelineFiles, {**options, "model": f"model.{staged.module.format}"})
            names = _names(files, format_of(staged.module))
        report = report_of(staged, names)
        save_pipeline(staged, report, names)
    if print_report:
        write_standard_output(report.to_json().encode())
    console = display.console(stderr=print_report)
    print_pipeline(console, report.values, report_path=names.report, verbose=display.detailed)
    limited = end.by_memory(display)
    return ExitCode.INTERRUPTED if staged.interrupted and not limited else 0


class _PipelineFiles(FrozenValue, frozen=True):
    """The options that name files: what is read and what is written."""

    model: str
    output: str | None
    report: str | None
    stages: int
    annotate: bool


def _format_of(source: str) -> Format | None:
    """Return the format of a file, which its content tells and not its name; None for a stream, not read yet."""
    from memsched.formats.files import read_source
    from memsched.formats.known import format_in

    return None if source == _STANDARD else format_in(read_source(source)[0])


def _names(files: _PipelineFiles, held: Format | None) -> FileNames:
    """Decide where the results go, and refuse early what cannot work.

    Args:
        held: The model's format; None where it is not known yet.
    """
    from memsched.features.pipeline.report import file_names
    from memsched.formats.staging import check_new_files

    source, folder = files.model, files.output
    check_home(source, folder, "segments")
    annotated = files.annotate and (held is None or held.traits.holds_stages)
    names = file_names(source, folder, files.stages, files.report, annotated=annotated)
    check_new_files(names.all(), source, within=folder)
    return names
