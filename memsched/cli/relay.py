"""``memsched relay``: a model as files that run one after the other in one arena."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memsched.cli.options import check_extra_work, check_limits, options_of, output_options, taken
from memsched.commands.options import RelayOptions
from memsched.errors import UsageError

if TYPE_CHECKING:
    from memsched.commands.relay.report import RelayNames

__all__ = ["command"]

_STANDARD = "-"
_BUDGET_NOT_MET = 3
_INTERRUPTED = 130


@click.command("relay", short_help="Cut a model into files that run in turn in one arena.")
@click.argument("model")
@click.option("-o", "--output", metavar="DIR", help="Folder for all files; by default beside MODEL.")
@click.option("--report", metavar="FILE", help="The report to write; by default <stem>_relay.json, '-': to stdout.")
@options_of(RelayOptions)
@output_options
def command(**options: Any) -> int:
    """Cut MODEL into consecutive files, <stem>_stage_<i>_of_<n>.tflite, that share one block of memory.

    TensorFlow Lite Micro keeps data of every layer beside the activations. Stages that are allocated one after the
    other in one arena each pay for their own layers alone; what goes from one to the next lies at the block's end in
    the meantime. The cuts are those with which the whole block is smallest; each stage is optimized as a model of its
    own, with what --allow permits. Beside the files goes C++ that executes them: <stem>_relay.h and <stem>_relay.cc,
    which holds the models. The stages are run one after the other, and their outputs compared with the whole model's.

    A model that keeps a state from one inference to the next cannot be cut.
    """
    from memsched.cli.terminal import ProgressDisplay, interruptible, make_console, write_standard_output
    from memsched.commands.relay.relay import relay
    from memsched.commands.relay.report import relay_report, save_relay
    from memsched.report.relay import print_relay
    from memsched.search.memory_limit import memory_limited

    context = click.get_current_context()
    check_extra_work(context)
    check_limits(context)
    names = _names(options)
    print_report = options["as_json"] or options["report"] == _STANDARD
    errors = make_console(stderr=True, no_color=options["no_color"], quiet=options["quiet"])
    progress = ProgressDisplay(errors, enabled=not options["quiet"], every=options["verbose"] > 0)
    with interruptible() as interrupt, memory_limited(options["memory_limit"]) as memory, progress:
        model = relay(
            options["model"],
            taken(RelayOptions, options),
            stop=lambda: interrupt.stop() | memory.stop(),
            on_progress=progress.tell,
        )
        interrupt.search_ended()
        memory.search_ended()
        report = relay_report(model, names)
        save_relay(model, report, names)
    if print_report:
        write_standard_output(report.to_json().encode())
    console = make_console(stderr=print_report, no_color=options["no_color"], quiet=options["quiet"])
    print_relay(console, report.values, report_path=names.report, verbose=options["verbose"] > 0)
    limited = memory.said(interrupt.requested)
    if limited is not None and not options["quiet"]:
        click.echo(f"memsched: {limited}", err=True)
    if model.interrupted and limited is None:
        return _INTERRUPTED
    budget = report.values.budget
    if budget is None or budget.met:
        return 0
    if options["quiet"]:
        click.echo(
            f"memsched: the stages need {budget.required_bytes:,} B, the budget is {budget.budget_bytes:,} B", err=True
        )
    return _BUDGET_NOT_MET


def _names(options: dict[str, Any]) -> RelayNames:
    """Decide where everything goes and refuse what cannot work, before anything costs time."""
    from memsched.commands.relay.report import check_relay_names, relay_names

    source, folder = options["model"], options["output"]
    if source == _STANDARD and folder is None:
        raise UsageError("standard input gives no folder for the stages: name one with -o")
    if folder is not None and not Path(folder).is_dir():
        raise UsageError(f"-o '{folder}' is no folder: create it first")
    names = relay_names(source, folder, options["report"])
    check_relay_names(names, source)
    return names
