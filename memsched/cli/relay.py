"""``memsched relay``: a model as files that run one after the other in one arena."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from memsched.cli.display import Display, search_end
from memsched.cli.exit_code import ExitCode
from memsched.cli.groups import HelpCommand
from memsched.cli.options import check_extra_work, check_home, check_limits, options_of, output_options, taken
from memsched.commands.options import RelayOptions

if TYPE_CHECKING:
    from memsched.features.relay.report import RelayNames

__all__ = ["command"]

_STANDARD = "-"


@click.command("relay", cls=HelpCommand, short_help="Cut a model into files that run in turn in one arena.")
@click.argument("model")
@click.option("-o", "--output", metavar="DIR", help="Folder for all files; by default beside MODEL.")
@click.option("--report", metavar="FILE", help="The report to write; by default <stem>_relay.json, '-': to stdout.")
@options_of(RelayOptions)
@output_options
def command(**options: Any) -> int:
    """Cut MODEL into consecutive files, <stem>_stage_<i>_of_<n>.tflite, that share one block of memory.

    TensorFlow Lite Micro keeps data of every layer beside the activations. Stages that are allocated one after the
    other in one arena each pay for their own layers alone.

    What goes from one to the next lies at the block's end in the meantime. The cuts are those with which the whole
    block is smallest; each stage is optimized as a model of its own, with what --allow permits. Beside the files goes
    C++ that executes them: <stem>_relay.h and <stem>_relay.cc, which holds the models. The stages are run one after
    the other, and their outputs compared with the whole model's. With io in the list, which all does not include, what
    is cut may have other inputs and outputs than MODEL: the caller has to change, and is told how.

    A model that keeps a state from one inference to the next cannot be cut.
    """
    from memsched.cli.terminal import write_standard_output
    from memsched.commands.calls import Hooks
    from memsched.features.relay.relay import relay
    from memsched.features.relay.report import relay_report, save_relay
    from memsched.report.relay import print_relay

    context = click.get_current_context()
    check_extra_work(context)
    check_limits(context)
    names = _names(options["model"], options["output"], options["report"])
    display = taken(Display, options)
    print_report = display.as_json or options["report"] == _STANDARD
    progress = display.progress()
    with search_end(options["memory_limit"]) as end, progress:
        hooks = Hooks(on_progress=progress.tell, stop=end.stop)
        model = relay(options["model"], taken(RelayOptions, options), hooks)
        end.passed()
        report = relay_report(model, names)
        if not model.withheld:
            save_relay(model, report, names)
    if print_report:
        write_standard_output(report.to_json().encode())
    console = display.console(stderr=print_report)
    print_relay(console, report.values, report_path=names.report, verbose=display.detailed)
    if not end.by_memory(display) and model.interrupted:
        return ExitCode.INTERRUPTED
    budget = report.values.budget
    if budget is None or budget.met:
        return 0
    if display.quiet:
        click.echo(
            f"memsched: the stages need {budget.required_bytes:,} B, the budget is {budget.budget_bytes:,} B", err=True
        )
    return ExitCode.MISSED


def _names(source: str, folder: str | None, report: str | None) -> RelayNames:
    """Decide where the results go, and refuse early what cannot work."""
    from memsched.features.relay.report import relay_names
    from memsched.formats.staging import check_new_files

    check_home(source, folder, "stages")
    names = relay_names(source, folder, report)
    check_new_files((*names.fixed(), *names.stages(1)), source, within=folder)
    return names
