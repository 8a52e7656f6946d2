"""``memsched decoder``: a language model whose keys and values are written in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from memsched.cli.display import Display
from memsched.cli.exit_code import ExitCode
from memsched.cli.groups import HelpCommand
from memsched.cli.options import options_of, output_options, taken
from memsched.commands.options import DecoderOptions

__all__ = ["command"]

_STANDARD = "-"


@click.command("decoder", cls=HelpCommand, short_help="Keep a language model's keys and values in place.")
@click.argument("model", metavar="MODEL.onnx")
@click.option("-o", "--output", metavar="OUT", help="The model to write; by default <stem>_in_place.onnx beside MODEL.")
@click.option("--report", metavar="FILE", help="The report to write; by default beside the output, ending in .json.")
@options_of(DecoderOptions)
@click.option("--force", is_flag=True, help="Permit OUT to be MODEL itself.")
@output_options
def command(**options: Any) -> int:
    """Write MODEL.onnx, a decoder with past keys and values, so that new ones are put behind them in place.

    As exported, each token copies all keys and values so far, and both copies are held. The file that is written takes
    buffers with room for a whole text, bound as inputs and outputs, and says with an input of its own how much of them
    is filled; the code for that is printed. Prompts can then be computed in chunks. Both files are run in fresh
    processes without options, on a prompt and on further tokens, and their outputs and caches are compared.
    """
    from memsched.cli.terminal import write_standard_output
    from memsched.commands.results import check_outputs
    from memsched.features.decoder.decoder import decode_in_place
    from memsched.features.decoder.report import decoder_report, save_decoder
    from memsched.report.decoder import print_decoder

    source = Path(options["model"])
    output = options["output"] or str(source.with_name(f"{source.stem}_in_place{source.suffix}"))
    print_report = options["as_json"] or options["report"] == _STANDARD
    chosen = options["report"] or str(Path(output).with_suffix(".json"))
    report_path = None if chosen == _STANDARD else chosen
    check_outputs(options["model"], output, report_path, force=options["force"])
    display = taken(Display, options)
    model = decode_in_place(options["model"], taken(DecoderOptions, options))
    report = decoder_report(model, output)
    if not model.withheld:
        save_decoder(model, report, report_path)
    if print_report:
        write_standard_output(report.to_json().encode())
    console = display.console(stderr=print_report)
    print_decoder(console, report.values, report_path=report_path, verbose=display.detailed)
    budget = report.values.budget
    if budget is None or budget.met:
        return 0
    if display.quiet:
        told = f"{budget.required_bytes:,} B, the budget is {budget.budget_bytes:,} B"
        click.echo(f"memsched: a text of {report.values.capacity:,} tokens needs {told}", err=True)
    return ExitCode.MISSED
