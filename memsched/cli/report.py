"""``memsched report``: the page of a report that exists."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from memsched.base.errors import ReportError, UsageError
from memsched.cli.groups import HelpCommand
from memsched.cli.options import unnamed_output

__all__ = ["command"]

_STANDARD = "-"


@click.command("report", cls=HelpCommand, short_help="A report as a page with pictures.")
@click.argument("report", metavar="REPORT.json")
@click.option(
    "-o", "--output", metavar="FILE.html", help="The page to write; by default beside REPORT.json, ending in .html."
)
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
def command(**options: Any) -> int:
    """Write REPORT.json of 'memsched optimize' or 'memsched analyze' as a page for a browser.

    The page is one file that needs nothing else, no network either: memory over time before and after, where every
    buffer lies, what lives at the peak, the proof in words, and all tables. '-' is standard input or output.
    """
    from memsched.formats.staging import check_writable, staged_files
    from memsched.report.page import check_page, render_page
    from memsched.report.reading import parse_report

    source = options["report"]
    output = _output(source, options["output"])
    check_page()
    if output != _STANDARD:
        check_writable(output)
    data, name = _read(source)
    page = render_page(parse_report(data, name)).encode()
    if output == _STANDARD:
        from memsched.cli.terminal import write_standard_output

        write_standard_output(page)
        return 0
    with staged_files() as files:
        files.add(output, page)
        files.commit()
    if not options["quiet"]:
        from memsched.base.units import format_size
        from memsched.report.text import printable

        click.echo(f"page: {printable(output)} ({format_size(len(page))})")
    return 0


def _output(source: str, output: str | None) -> str:
    """Return where the page goes; refuse to overwrite the report."""
    from memsched.formats.staging import is_regular, overwrites, same_file

    if output is None:
        if source == _STANDARD:
            raise unnamed_output("page", stream=True)
        output = str(Path(source).with_suffix(".html")) if Path(source).name else source
    if _STANDARD not in {source, output} and is_regular(output) and same_file(source, output):
        raise overwrites(output, "the report", "give another name with -o")
    return output


def _read(source: str) -> tuple[bytes, str]:
    """Return the report's bytes, and how messages name it."""
    from memsched.formats.reading import read_text
    from memsched.formats.staging import describe, reason

    if source == _STANDARD and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError(
            "standard input is a terminal", code="terminal", action="give a report, or send one in with '< report.json'"
        )
    try:
        return read_text(source), describe(source)
    except IsADirectoryError:
        raise ReportError(f"'{source}' is a folder", code="report-is-folder", action="give the report in it") from None
    except FileNotFoundError:
        raise ReportError(
            f"'{source}' does not exist",
            code="no-such-report",
            action="'memsched optimize' and 'memsched analyze' write reports",
        ) from None
    except (OSError, ValueError) as error:
        raise ReportError(f"{describe(source)} cannot be read: {reason(error)}", code="report-unreadable") from None
