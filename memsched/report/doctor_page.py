"""The page of ``memsched doctor``: sessions as points, where the memory goes, the code to copy."""

from __future__ import annotations

from typing import Any

from memsched.base.units import MIB
from memsched.report.doctor import HEADINGS, split_cells, table_cells, verdict
from memsched.report.page import fill_page
from memsched.report.page_data import as_script
from memsched.report.session_code import options_text
from memsched.report.values.doctor import DoctorReport, DoctorRow

__all__ = ["render_doctor"]


def render_doctor(report: DoctorReport) -> str:
    """Return the page of a report of ``memsched doctor``, one file that needs nothing else.

    Raises:
        OutputError: Bokeh or Jinja is not installed.
    """
    rows = report.sessions
    points = {
        "x": [row.cpu_ratio for row in rows],
        "y": [round((row.session.process_bytes or 0) / MIB, 3) for row in rows],
        "name": [_named(row) for row in rows],
        "best": [row.pareto for row in rows],
    }
    return fill_page(
        "doctor.html",
        ("doctor.js",),
        as_script(points),
        report=report,
        verdict=verdict(report),
        headings=HEADINGS,
        rows=table_cells(report),
        splits=[{"title": _named(row), "rows": split_cells(row)} for row in rows if row.split is not None],
        choices=[_choice(report, number) for number in range(len(report.choices))],
    )


def _named(row: DoctorRow) -> str:
    return f"the file {row.session.file}, options: {options_text(row.session)}"


def _choice(report: DoctorReport, number: int) -> dict[str, Any]:
    choice = report.choices[number]
    found = (("Python", choice.python), ("C++", choice.cpp), ("C#", choice.csharp))
    code = [
        {"language": language, "text": "\n".join(lines) if lines else "not possible: its interface lacks an option"}
        for language, lines in found
    ]
    return {"title": f"{number + 1}. {choice.reason}: {_named(report.sessions[choice.row])}", "code": code}
