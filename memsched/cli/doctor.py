"""``memsched doctor``: where the process's memory goes, and which session options help."""

from __future__ import annotations

from typing import Any

import click

from memsched.cli.display import Display, search_end
from memsched.cli.groups import HelpCommand
from memsched.cli.options import check_limits, html_option, options_of, output_options, taken
from memsched.commands.options import DoctorOptions

__all__ = ["command"]

_STANDARD = "-"


@click.command("doctor", cls=HelpCommand, short_help="Where an ONNX Runtime process's memory goes.")
@click.argument("model", metavar="MODEL.onnx")
@click.argument("written", metavar="[WRITTEN.onnx]", required=False)
@options_of(DoctorOptions)
@click.option("--report", metavar="FILE", help="The report to write; '-' for standard output.")
@html_option
@output_options
def command(**options: Any) -> int:
    """Measure sessions on MODEL.onnx, and on the file that memsched made of it, each in a fresh process.

    The process's memory is split into weights, prepacked copies, the session's own structures and the arena. Options
    are tried one after another; the sessions worth choosing are printed with the code that opens them.
    """
    from memsched.cli.terminal import write_standard_output
    from memsched.commands.calls import Hooks
    from memsched.features.doctor.doctor import diagnose
    from memsched.features.doctor.outputs import check_doctor_outputs, save_doctor
    from memsched.report.doctor import print_doctor

    check_limits(click.get_current_context())
    display, report_path, html = taken(Display, options), options["report"], options["html"]
    print_report = display.as_json or report_path == _STANDARD
    path = None if report_path == _STANDARD else report_path
    check_doctor_outputs((options["model"], options["written"]), path, html)
    with search_end(None) as end:
        report = diagnose(options["model"], options["written"], taken(DoctorOptions, options), Hooks(stop=end.stop))
        end.passed()
        save_doctor(report, path, html)
    if print_report:
        write_standard_output(report.to_json().encode())
    print_doctor(display.console(stderr=print_report), report.values, report_path=path, verbose=display.detailed)
    return 0
