"""``memsched optimize --emit c``: a folder of C in place of a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from memsched.base.errors import UsageError
from memsched.cli.display import Display
from memsched.cli.options import unnamed_output

if TYPE_CHECKING:
    from memsched.codegen.streaming.plan import InputPlace
    from memsched.commands.options import Options

__all__ = ["emit_command"]

_STANDARD = "-"


def emit_command(
    model: str, folder: str | None, report: str | None, place: InputPlace | None, asked: Options, display: Display
) -> int:
    """Write MODEL as C into ``folder``, by default <stem>_c beside it, and print what that needs.

    Args:
        place: Where the input of a model that streams lies.
    """
    from memsched.cli.terminal import write_standard_output
    from memsched.commands.optimize.emit import StreamedModel, emit, emit_report, save_emitted, stream_report
    from memsched.report.emit import print_emitted, print_streamed

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
    found = emit(model, asked, place)
    print_report = display.as_json or report == _STANDARD
    path = None if report == _STANDARD else report or str(Path(folder) / "report.json")
    console = display.console(stderr=print_report)
    if isinstance(found, StreamedModel):
        streamed = stream_report(found, folder)
        save_emitted(found, streamed, model, folder, path)
        text = streamed.to_json()
        print_streamed(console, streamed.values, report_path=path, verbose=display.detailed)
    else:
        made = emit_report(found, folder)
        save_emitted(found, made, model, folder, path)
        text = made.to_json()
        print_emitted(console, made.values, report_path=path, verbose=display.detailed)
    if print_report:
        write_standard_output(text.encode())
    return 0
