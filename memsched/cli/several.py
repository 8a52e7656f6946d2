"""Output of ``memsched optimize`` if a budget requires several files."""

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
    """Write the files into a folder named like ``output`` without its suffix, and print a summary.

    Args:
        report_path: Path of the report. None to write no report.
        as_json: Also write the report to standard output.

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
