"""``memsched batch``: a whole zoo."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from memsched.cli.options import check_extra_work, check_limits, options_of, output_options, taken
from memsched.commands.options import BatchOptions
from memsched.errors import UsageError

if TYPE_CHECKING:
    from memsched.commands.batch.inputs import BatchModel
    from memsched.commands.batch.run import BatchResult

__all__ = ["command"]

_LIST = "@"


@click.command("batch", short_help="Optimise many models, and sum up.")
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option(
    "-o", "--output", default="memsched_batch", show_default=True, metavar="DIR", help="For all that comes out."
)
@click.option(
    "--list", "lists", multiple=True, metavar="FILE", help="Paths, one per line; the same as a PATH of @FILE."
)
@click.option(
    "--workers", type=int, default=1, show_default=True, metavar="N", help="Models at a time, each in its own process."
)
@click.option("--dask", metavar="ADDRESS", help="Use the cluster whose scheduler is there, such as tcp://host:8786.")
@click.option(
    "--retries",
    type=click.IntRange(0, 100),
    default=1,
    show_default=True,
    metavar="N",
    help="Of a model whose process was killed, after all others.",
)
@options_of(BatchOptions)
@output_options
def command(**options: Any) -> int:
    """Optimise many models: files, all .onnx and .tflite below folders, and what @FILE lists.

    Each gets what `memsched optimize` would give with these options, byte for byte: NAME_memsched.EXT and its report,
    in DIR. Beside them are batch.json, batch.csv and batch.html. A model that fails stops no other. Ctrl-C keeps what
    is done.
    """
    from memsched.commands.batch.inputs import find_models

    context = click.get_current_context()
    check_extra_work(context)
    if (
        options["dask"] is not None
        and context.get_parameter_source("workers") is not click.core.ParameterSource.DEFAULT
    ):
        raise UsageError("--workers is for this machine: with --dask the cluster decides")
    if not options["paths"] and not options["lists"]:
        raise UsageError("name a folder, a model or @FILE")
    models = find_models(_paths(options), leave_out=options["output"])
    return _batch(models, options)


def _paths(options: dict[str, Any]) -> list[str]:
    from memsched.commands.batch.inputs import read_list

    paths: list[str] = []
    for path in options["paths"]:
        paths.extend(read_list(path.removeprefix(_LIST)) if path.startswith(_LIST) else (path,))
    for path in options["lists"]:
        paths.extend(read_list(path))
    return paths


def _batch_options(options: dict[str, Any]) -> BatchOptions:
    from memsched.search.limits import Limits
    from memsched.search.memory_limit import check_memory_limit

    check_limits(click.get_current_context())
    Limits(options["time_limit"], options["seed"], effort=options["effort"])
    if options["dask"] is None:
        check_memory_limit(options["memory_limit"])
    if options["target"] is not None:
        from memsched.targets.load import load_target

        load_target(options["target"])
    return taken(BatchOptions, options)


def _batch(models: tuple[BatchModel, ...], options: dict[str, Any]) -> int:
    from memsched.cli.batch_table import BatchDisplay
    from memsched.cli.terminal import interruptible, make_console
    from memsched.commands.batch.process import Processes
    from memsched.commands.batch.run import JobRunner, run_batch

    wanted = _batch_options(options)
    errors = make_console(stderr=True, no_color=options["no_color"], quiet=options["quiet"])
    with contextlib.ExitStack() as stack:
        runner: JobRunner = Processes()
        parallel = options["workers"]
        if options["dask"] is not None:
            from memsched.commands.batch.dask import DaskCluster
            from memsched.search.dask import connect

            cluster = DaskCluster(stack.enter_context(connect(options["dask"])))
            runner, parallel = cluster, cluster.parallel
        interrupt = stack.enter_context(interruptible())
        display = stack.enter_context(BatchDisplay(errors, models))
        result = run_batch(
            models,
            wanted,
            options["output"],
            runner,
            parallel=parallel,
            retries=options["retries"],
            on_event=display.tell,
            stop=interrupt.stop,
        )
    _print(result, options)
    return result.exit_code


def _print(result: BatchResult, options: dict[str, Any]) -> None:
    from memsched.cli.terminal import make_console, write_standard_output
    from memsched.report.batch import dump_summary
    from memsched.report.batch_console import print_batch

    if options["as_json"]:
        write_standard_output(dump_summary(result.summary).encode())
    console = make_console(stderr=options["as_json"], no_color=options["no_color"], quiet=options["quiet"])
    print_batch(console, result.summary, options["output"])
    if options["quiet"] and result.exit_code:
        totals = result.summary.totals
        click.echo(
            f"memsched: {totals.failed} failed, {totals.budget_missed} missed the budget, "
            f"{totals.not_run} were not run, of {totals.models}",
            err=True,
        )
