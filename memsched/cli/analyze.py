"""``memsched analyze``: what a model needs as it stands."""

from __future__ import annotations

from typing import Any

import click

from memsched.cli.options import allow_option, model_options, output_options, parse_dims, parse_shapes

__all__ = ["command"]

_STANDARD = "-"
_OPERATORS_SHOWN = 8


@click.command("analyze", short_help="What a model needs as it stands.")
@click.argument("model")
@click.option("--report", metavar="FILE", help="The report to write; '-' for standard output.")
@model_options
@allow_option
@output_options
def command(**options: Any) -> int:
    """Say what MODEL needs as it stands: peak, bound, the tensors at the peak, the operators used."""
    from memsched.cli.terminal import interruptible, make_console, write_standard_output
    from memsched.compiler import analyze
    from memsched.report.console import print_operators, print_summary
    from memsched.results import check_outputs

    path = options["report"] if options["report"] != _STANDARD else None
    print_report = options["as_json"] or options["report"] == _STANDARD
    check_outputs(options["model"], None, path, force=False)
    with interruptible():
        result = analyze(
            options["model"],
            target=options["target"],
            input_shapes=parse_shapes(options["input_shapes"]),
            dims=parse_dims(options["dims"]),
            in_place="inplace" in options["allow"],
        )
        if path is not None:
            result.report.save(path)
    if print_report:
        write_standard_output(result.report.to_json().encode())
    console = make_console(stderr=print_report, no_color=options["no_color"], quiet=options["quiet"])
    verbose = options["verbose"] > 0
    print_summary(console, result.report.data, report_path=path, verbose=verbose)
    print_operators(console, result.report.data, None if verbose else _OPERATORS_SHOWN)
    return 0
