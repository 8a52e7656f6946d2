"""The files that ``memsched doctor`` writes: report and page, both or neither."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.commands.results import Report
from memsched.formats.staging import check_apart, staged_files
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
    if report is not None:
        check_apart("report", report, sources)
    if html is not None:
        check_apart("page", html, (*sources, report))


def save_doctor(report: Report[DoctorReport], path: str | None, html: str | None) -> None:
    """Write report and page, both or neither; a path of None is not written."""
    with staged_files() as files:
        if path is not None:
            files.add(path, report.to_json().encode())
        if html is not None:
            from memsched.report.doctor_page import render_doctor

            files.add(html, render_doctor(report.values).encode())
        files.commit()
