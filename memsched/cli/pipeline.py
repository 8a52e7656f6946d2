"""``memsched pipeline``: a model for every accelerator of a row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memsched.cli.options import check_extra_work, check_limits, options_of, output_options, taken
from memsched.commands.options import PipelineOptions
from memsched.errors import UsageError

if TYPE_CHECKING:
    from memsched.commands.pipeline.report import FileNames

__all__ = ["command"]

_STANDARD = "-"
_INTERRUPTED = 130


@click.command("pipeline", short_help="Cut a model into one model per accelerator.")
@click.argument("model")
@options_of(
    PipelineOptions,
    *("stages", "scheduler", "balance", "cut_after", "never_cut", "children_together", "skips"),
)
@click.option("-o", "--output", metavar="DIR", help="Folder for the segments; by default beside MODEL.")
@click.option("--report", metavar="FILE", help="The report to write; by default <stem>_pipeline.json, '-': to stdout.")
@options_of(
    PipelineOptions,
    *("annotate", "target", "input_shapes", "dims", "allow", "max_extra_macs", "time_limit", "effort", "memory_limit"),
    *("verify", "seed", "workers"),
)
@output_options
def command(**options: Any) -> int:
    """Cut MODEL into N models, <stem>_segment_<i>_of_<N>, for N accelerators that work in a row.

    The stages' parameters are balanced so that the largest stage has the least possible, and as little as possible is
    sent between stages. Every segment's operators are put into the order that needs the least activation memory. The
    segments are run one after the other, and their outputs compared with the whole model's, bit for bit.

    The default target is the Coral Edge TPU; another accelerator is a TOML file with a [pipeline] table.
    """
    from memsched.cli.terminal import interruptible, make_console, write_standard_output
    from memsched.commands.pipeline.pipeline import pipeline
    from memsched.commands.pipeline.report import report_of, save_pipeline
    from memsched.report.pipeline import print_pipeline
    from memsched.search.memory_limit import memory_limited

    check_extra_work(click.get_current_context())
    check_limits(click.get_current_context())
    names = _names(options)
    print_report = options["as_json"] or options["report"] == _STANDARD
    with interruptible() as interrupt, memory_limited(options["memory_limit"]) as memory:
        staged = pipeline(
            options["model"],
            **taken(PipelineOptions, options).keywords(),
            stop=lambda: interrupt.stop() | memory.stop(),
        )
        interrupt.search_ended()
        memory.search_ended()
        if options["model"] == _STANDARD:
            # Only now it is known which format a stream holds.
            names = _names({**options, "model": f"model.{staged.module.format}"})
        report = report_of(staged, names)
        save_pipeline(staged, report, names)
    if print_report:
        write_standard_output(report.to_json().encode())
    console = make_console(stderr=print_report, no_color=options["no_color"], quiet=options["quiet"])
    print_pipeline(console, report.values, report_path=names.report, verbose=options["verbose"] > 0)
    limited = memory.said(interrupt.requested)
    if limited is not None and not options["quiet"]:
        click.echo(f"memsched: {limited}", err=True)
    return _INTERRUPTED if staged.interrupted and limited is None else 0


def _names(options: dict[str, Any]) -> FileNames:
    """Decide where everything goes and refuse what cannot work, before anything costs time."""
    from memsched.commands.pipeline.report import check_names, file_names

    source, folder = options["model"], options["output"]
    if source == _STANDARD and folder is None:
        raise UsageError("standard input gives no folder for the segments: name one with -o")
    if folder is not None and not Path(folder).is_dir():
        raise UsageError(f"-o '{folder}' is no folder: create it first")
    onnx = Path(source).suffix != ".tflite"
    names = file_names(source, folder, options["stages"], options["report"], annotated=onnx and options["annotate"])
    check_names(names, source)
    return names
