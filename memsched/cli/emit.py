"""``memsched optimize --emit c``: a folder of C in place of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memsched.base.errors import UsageError
from memsched.cli.display import Display
from memsched.cli.options import unnamed_output

if TYPE_CHECKING:
    from memsched.commands.options import Options

__all__ = ["emit_command"]

_STANDARD = "-"


def emit_command(model: str, folder: str | None, report: str | None, asked: Options, display: Display) -> int:
    """Write MODEL as C into ``folder``, by default <stem>_c beside it, and print what that needs."""
    from memsched.cli.terminal import write_standard_output
    from memsched.commands.optimize.emit import emit, emit_report, save_emitted
    from memsched.report.emit import print_emitted

    if folder is None:
        if model == _STANDARD:
            raise unnamed_output("folder")
        folder = str(Path(model).with_name(f"{Path(model).stem}_c"))
    if folder == _STANDARD:
        raise UsageError(
            "C code is several files, which cannot go to standard output",
            code="needs-folder",
            action="name a folder with -o",
        )
    found = emit(model, asked)
    print_report = display.as_json or report == _STANDARD
    path = None if report == _STANDARD else report or str(Path(folder) / "report.json")
    made = emit_report(found, folder)
    save_emitted(found, made, model, folder, path)
    if print_report:
        write_standard_output(made.to_json().encode())
    print_emitted(display.console(stderr=print_report), made.values, report_path=path, verbose=display.detailed)
    return 0
