"""Several files that ``memsched optimize`` writes in place of one, as a budget needs them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memsched.cli.display import Display
    from memsched.features.ladder.climb import Climb

__all__ = ["write_several"]


def write_several(
    climbed: Climb, source: str, output: str, report_path: str | None, display: Display, *, as_json: bool
) -> int:
    """Write files into the folder that is named as ``output`` without its suffix, and print what they need.

    Args:
        report_path: Where the report goes; None for no file.
        as_json: The report goes to standard output, too.

    Returns:
        The exit code.
    """
    from memsched.cli.exit_code import ExitCode
    from memsched.cli.terminal import write_standard_output
    from memsched.features.ladder.several import save_several
    from memsched.report.emit import print_streamed
    from memsched.report.ladder import print_ladder
    from memsched.report.relay import print_relay
    from memsched.report.values.relay import RelayReport

    folder = str(Path(output).with_suffix(""))
    report = save_several(climbed, source, folder, report_path)
    if as_json:
        write_standard_output(report.to_json().encode())
    console, values = display.console(stderr=as_json), report.values
    if isinstance(values, RelayReport):
        print_relay(console, values, report_path=report_path, verbose=display.detailed)
    else:
        print_streamed(console, values, report_path=report_path, verbose=display.detailed)
    print_ladder(console, climbed.rows)
    return 0 if any(row.fits and row.written for row in climbed.rows) else ExitCode.MISSED
