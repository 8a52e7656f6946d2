"""``memsched pipeline``: a model for every accelerator of a row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memsched.cli.options import check_extra_work, options_of, output_options, parse_dims, parse_shapes
from memsched.commands.options import OptimizeOptions
from memsched.errors import UsageError

if TYPE_CHECKING:
    from memsched.commands.pipeline.report import FileNames

__all__ = ["command"]

_STANDARD = "-"
_INTERRUPTED = 130
_MOST_STAGES = 1_000


@click.command("pipeline", short_help="Cut a model into one model per accelerator.")
@click.argument("model")
@click.option(
    "--stages", type=click.IntRange(1, _MOST_STAGES), required=True, metavar="N", help="Accelerators in the row."
)
@click.option(
    "--scheduler",
    type=click.Choice(["exact", "respect", "heuristic"]),
    default="exact",
    show_default=True,
    help="exact proves its stages; respect is a learned policy; heuristic splits parameters evenly along the order.",
)
@click.option(
    "--balance",
    type=click.Choice(["params", "macs", "memory", "time"]),
    default="params",
    show_default=True,
    help="What the largest stage shall have least of.",
)
@click.option("--cut-at", multiple=True, metavar="OP", help="End a stage with this operator: its readers come later.")
@click.option("--never-cut", multiple=True, metavar="OP", help="Keep this operator's readers in its stage.")
@click.option("--children-together", is_flag=True, help="Keep all readers of an operator in one stage.")
@click.option(
    "--skips",
    type=click.Choice(["once", "through"]),
    default="once",
    show_default=True,
    help="Tensors for later stages than the next: the host sends them once to each, or every stage hands them on.",
)
@click.option("-o", "--output", metavar="DIR", help="Folder for the segments; by default beside MODEL.")
@click.option("--report", metavar="FILE", help="The report to write; by default <stem>_pipeline.json, '-': to stdout.")
@click.option(
    "--annotate/--no-annotate",
    default=True,
    show_default=True,
    help="ONNX: write the whole model with the stage of every node, too.",
)
@options_of(OptimizeOptions, "target", "input_shapes", "dims", "allow", "max_extra_macs", "time_limit", "memory_limit")
@click.option("--verify/--no-verify", default=True, show_default=True, help="Run the segments and compare the outputs.")
@options_of(OptimizeOptions, "seed")
@click.option("--workers", type=int, default=1, show_default=True, metavar="N", help="Processes that search.")
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
    names = _names(options)
    print_report = options["as_json"] or options["report"] == _STANDARD
    with interruptible() as interrupt, memory_limited(options["memory_limit"]) as memory:
        staged = pipeline(
            options["model"],
            stages=options["stages"],
            scheduler=options["scheduler"],
            balance=options["balance"],
            cut_after=options["cut_at"],
            never_cut=options["never_cut"],
            children_together=options["children_together"],
            skips=options["skips"],
            target=options["target"],
            time_limit=options["time_limit"],
            input_shapes=parse_shapes(options["input_shapes"]),
            dims=parse_dims(options["dims"]),
            reorder="reorder" in options["allow"],
            in_place="inplace" in options["allow"],
            tile="tile" in options["allow"],
            remat="remat" in options["allow"],
            max_extra_macs=options["max_extra_macs"],
            verify=options["verify"],
            annotate=options["annotate"],
            seed=options["seed"],
            workers=options["workers"],
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
