"""``memsched batch``: many models in one run."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.cli.display import Display
from memsched.cli.groups import HelpCommand
from memsched.cli.options import (
    check_extra_work,
    check_level,
    check_limits,
    check_no_level,
    options_of,
    output_options,
    taken,
)
from memsched.commands.options import BatchOptions

if TYPE_CHECKING:
    from memsched.commands.batch.inputs import BatchModel
    from memsched.commands.batch.run import BatchResult

__all__ = ["command"]

_LIST = "@"


@click.command("batch", cls=HelpCommand, short_help="Optimise many models, and sum up.")
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option(
    "-o", "--output", default="memsched_batch", show_default=True, metavar="DIR", help="Folder for all results."
)
@click.option(
    "--list", "lists", multiple=True, metavar="FILE", help="Paths, one per line; the same as a PATH of @FILE."
)
@click.option(
    "--workers", type=int, default=1, show_default=True, metavar="N", help="Models at a time, each in its own process."
)
@click.option("--dask", metavar="ADDRESS", help="Use the dask cluster with this scheduler, such as tcp://host:8786.")
@click.option(
    "--retries",
    type=click.IntRange(0, 100),
    default=1,
    show_default=True,
    metavar="N",
    help="New attempts for a model whose process was killed, after all others.",
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
    check_level(context)
    check_extra_work(context)
    check_no_level(options["output"])
    if (
        options["dask"] is not None
        and context.get_parameter_source("workers") is not click.core.ParameterSource.DEFAULT
    ):
        raise UsageError(
            "--workers is for this machine: with --dask the cluster decides",
            code="option-conflict",
            action="give one of them",
        )
    if not options["paths"] and not options["lists"]:
        raise UsageError("no models are given", code="no-models-given", action="name a folder, a model or @FILE")
    models = find_models(_paths(options["paths"], options["lists"]), leave_out=options["output"])
    wanted = taken(BatchOptions, options)
    _check(wanted, context, cluster=options["dask"] is not None)
    return _batch(models, wanted, taken(_BatchRun, options), taken(Display, options))


class _BatchRun(FrozenValue, frozen=True):
    """The options that say how models are run and where the results go."""

    output: str
    workers: int
    dask: str | None
    retries: int


def _paths(given: Sequence[str], lists: Sequence[str]) -> list[str]:
    from memsched.commands.batch.inputs import read_list

    paths: list[str] = []
    for path in given:
        paths.extend(read_list(path.removeprefix(_LIST)) if path.startswith(_LIST) else (path,))
    for path in lists:
        paths.extend(read_list(path))
    return paths


def _check(wanted: BatchOptions, context: click.Context, *, cluster: bool) -> None:
    """Refuse options with which no model can be run."""
    from memsched.commands.calls import limits_of
    from memsched.search.memory_limit import check_memory_limit

    check_limits(context)
    limits_of(wanted, wanted.seed)
    if not cluster:
        check_memory_limit(wanted.memory_limit)
    if wanted.target is not None:
        from memsched.targets.load import load_target

        load_target(wanted.target)


def _batch(models: tuple[BatchModel, ...], wanted: BatchOptions, run: _BatchRun, display: Display) -> int:
    from memsched.cli.batch_table import BatchDisplay
    from memsched.cli.terminal import interruptible
    from memsched.commands.batch.process import Processes
    from memsched.commands.batch.run import JobRunner, run_batch

    with contextlib.ExitStack() as stack:
        runner: JobRunner = Processes()
        parallel = run.workers
        if run.dask is not None:
            from memsched.commands.batch.dask import DaskCluster
            from memsched.search.dask import connect

            cluster = DaskCluster(stack.enter_context(connect(run.dask)))
            runner, parallel = cluster, cluster.parallel
        interrupt = stack.enter_context(interruptible())
        table = stack.enter_context(BatchDisplay(display.console(stderr=True), models))
        result = run_batch(
            models,
            wanted,
            run.output,
            runner,
            parallel=parallel,
            retries=run.retries,
            on_event=table.tell,
            stop=interrupt.stop,
        )
    _print(result, display, run.output)
    return result.exit_code


def _print(result: BatchResult, display: Display, folder: str) -> None:
    from memsched.cli.terminal import write_standard_output
    from memsched.report.batch import dump_summary
    from memsched.report.batch_console import print_batch

    if display.as_json:
        write_standard_output(dump_summary(result.summary).encode())
    console = display.console(stderr=display.as_json)
    print_batch(console, result.summary, folder)
    if display.quiet and result.exit_code:
        totals = result.summary.totals
        click.echo(
            f"memsched: {totals.failed} failed, {totals.budget_missed} missed the budget, "
            f"{totals.not_run} were not run, of {totals.models}",
            err=True,
        )
