"""The files that ``memsched doctor`` writes: report and page, both or neither."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.errors import UsageError
from memsched.commands.results import Report
from memsched.formats.staging import check_writable, same_file, staged_files
from memsched.report.values.doctor import DoctorReport

__all__ = ["check_doctor_outputs", "save_doctor"]


def check_doctor_outputs(sources: Sequence[str | None], report: str | None, html: str | None) -> None:
    """Refuse files that cannot be written or would overwrite another, before any session is opened.

    Raises:
        UsageError: Two of them are one file.
        OutputError: One cannot be written, or what pages are made with is not installed.
    """
    if html is not None:
        from memsched.report.page import check_page

        check_page()
    known = [source for source in sources if source is not None]
    for path in (report, html):
        if path is None:
            continue
        if any(same_file(path, other) for other in known):
            raise UsageError(
                f"'{path}' would overwrite another file of this command",
                code="would-overwrite",
                action="give another name",
            )
        check_writable(path)
        known.append(path)


def save_doctor(report: Report[DoctorReport], path: str | None, html: str | None) -> None:
    """Write report and page, both or neither; a path of None is not written."""
    with staged_files() as files:
        if path is not None:
            files.add(path, report.to_json().encode())
        if html is not None:
            from memsched.report.doctor_page import render_doctor

            files.add(html, render_doctor(report.values).encode())
        files.commit()
