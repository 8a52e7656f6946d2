"""What ``memsched doctor`` shows: where the process's memory goes, and the sessions worth choosing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memsched.base.units import counted, format_size
from memsched.report.assumed import assumed_lines
from memsched.report.session_code import options_text
from memsched.report.text import print_line
from memsched.report.values.doctor import DoctorReport, DoctorRow

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["HEADINGS", "PARTS", "print_doctor", "split_cells", "table_cells", "verdict"]

HEADINGS = ("session", "process", "first run", "requested", "time", "best")
PARTS = {
    "code": "ONNX Runtime's code that was touched",
    "weights": "weights that are read as they are",
    "prepacked": "prepacked copies of weights",
    "structures": "its structures, what opening left freed",
    "arena_in_use": "arena in use",
    "arena_slack": "arena slack",
    "buffers": "buffers of runs outside the arena",
}


def verdict(report: DoctorReport) -> str:
    """Return the point worth choosing first beside the session without options, in one line."""
    rows, first = report.sessions, report.sessions[report.choices[0].row]
    before, after = rows[0].session.process_bytes or 0, first.session.process_bytes or 0
    if first is rows[0]:
        found = "none was found that needs less in that time"
        return f"a session without options on the file as given needs {format_size(before)}: {found}"
    saved = 100 * (1 - after / max(1, before))
    return (
        f"worth choosing first: the file {first.session.file}, {options_text(first.session)}: "
        f"{format_size(after)} of the process ({-saved:+.1f} %) at {first.cpu_ratio:.2f} x the processor time; "
        f"without options {format_size(before)}"
    )


def table_cells(report: DoctorReport) -> list[tuple[str, ...]]:
    """Return a row per session, least of the process first."""
    chosen = {choice.row: f"{number}" for number, choice in enumerate(report.choices, 1)}
    order = sorted(range(len(report.sessions)), key=lambda at: report.sessions[at].session.process_bytes or 0)
    return [_cells(report.sessions[at], chosen.get(at, "")) for at in order]


def _cells(row: DoctorRow, choice: str) -> tuple[str, ...]:
    session = row.session
    return (
        f"{session.file}: {options_text(session)}",
        _size(session.process_bytes) + ("" if session.settled else ", still growing"),
        _size(session.first_run_bytes),
        _size(session.measured_bytes),
        f"{row.cpu_ratio:.2f} x",
        f"{'*' if row.pareto else ''}{choice}",
    )


def split_cells(row: DoctorRow) -> list[tuple[str, str, str]]:
    """Return name, size and share of each part of the process; empty where they are not known."""
    if row.split is None:
        return []
    whole = max(1, row.session.process_bytes or 1)
    sizes = {name: getattr(row.split, f"{name}_bytes") for name in PARTS}
    found = [(PARTS[name], format_size(size), f"{100 * size / whole:.1f} %") for name, size in sizes.items()]
    total = row.split.sum_bytes
    return [*found, ("all of these", format_size(total), f"{100 * total / whole:.1f} %")]


def print_doctor(console: Console, report: DoctorReport, *, report_path: str | None, verbose: bool) -> None:
    """Print the verdict, the split of the sessions without options and of the first choice, all sessions, the code."""
    print_line(console, verdict(report), "bold")
    for text in assumed_lines(report.assumed, report.given):
        print_line(console, text, "yellow")
    shown = [number for number, row in enumerate(report.sessions[:2]) if not number or row.session.file == "written"]
    shown += [choice.row for choice in report.choices[:1] if choice.row not in shown]
    for number in range(len(report.sessions)) if verbose else shown:
        row = report.sessions[number]
        print_line(console, f"the process, {row.session.file}, options: {options_text(row.session)}")
        console.print(_table(("part", "bytes", "of it"), split_cells(row)))
    console.print(_table(HEADINGS, table_cells(report)))
    print_line(console, "*: nothing else needs less of the process in no more time; numbers: the choices below", "dim")
    if not report.finished:
        print_line(console, "ended early: a longer --time-limit, or --effort, opens more sessions", "yellow")
    for failure in report.failed:
        print_line(console, f"did not run: {failure}", "yellow")
    for number, choice in enumerate(report.choices, 1):
        row = report.sessions[choice.row]
        print_line(
            console, f"{number}. {choice.reason}: the file {row.session.file}, {options_text(row.session)}", "bold"
        )
        for language, lines in (("Python", choice.python), ("C++", choice.cpp), ("C#", choice.csharp)):
            if lines is None:
                print_line(console, f"   {language}: not possible, its interface lacks {_lacking(row)}", "yellow")
                continue
            print_line(console, f"   {language}:")
            for line in lines:
                print_line(console, f"     {line}".rstrip(), whole=True)
    print_line(console, f"{counted(len(report.sessions), 'session')} measured in fresh processes", "dim")
    if report_path is not None:
        print_line(console, f"report: {report_path}", whole=True)


def _lacking(row: DoctorRow) -> str:
    names = [] if row.session.mem_reuse else ["enable_mem_reuse"]
    names += ["execution_order"] if row.session.execution_order == "file" else []
    names += ["disabled_optimizers"] if row.session.disabled_optimizers else []
    return " and ".join(names)


def _table(headings: tuple[str, ...], rows: list[Any]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _size(size: int | None) -> str:
    return "-" if size is None else format_size(size)
