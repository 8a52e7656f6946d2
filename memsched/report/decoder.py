"""What ``memsched decoder`` shows: what prompts and tokens take, and the code that runs the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memsched.base.units import counted, format_size
from memsched.report.text import WITHHELD, console_table, print_line
from memsched.report.values.decoder import DecoderReport, DecoderVerification, PhaseRow

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_decoder"]


def print_decoder(console: Console, report: DecoderReport, *, report_path: str | None, verbose: bool) -> None:
    """Print a row per phase, what fits, whether the outputs are the same, and the code.

    Args:
        report_path: Where the report was written, if anywhere.
        verbose: All lengths that were measured, not only the longest.
    """
    per_token = sum(one.bytes_per_token for one in report.caches)
    print_line(console, f"{report.model.path}: {counted(len(report.caches), 'cache')} of keys and values", style="bold")
    print_line(
        console,
        f"{per_token:,} bytes for each token, {format_size(per_token * report.capacity)} for {report.capacity:,}: as "
        "given, tokens copy them, and both copies are held; now they are written in place",
    )
    console.print(_table(report, verbose=verbose))
    print_line(console, _verified(report.verification))
    for text, style in _budget_lines(report):
        print_line(console, text, style=style)
    for note in report.notes:
        print_line(console, f"note: {note}", style="dim")
    if report.budget is not None and report.budget.withheld:
        print_line(console, WITHHELD, style="red")
        return
    print_line(console, "to run it so:")
    for line in report.code:
        print_line(console, f"  {line}" if line else "", whole=True)
    print_line(console, f"model:  {report.output}", whole=True)
    if report_path is not None:
        print_line(console, f"report: {report_path}", whole=True)


def _table(report: DecoderReport, *, verbose: bool) -> Any:
    table = console_table("the process at most", "as given", "in place", "time", left=(0,))
    opening = format_size(report.given_opening_bytes), format_size(report.opening_bytes)
    table.add_row("while the session is opened", *opening, "")
    for row in report.phases:
        if verbose or row.seconds is not None:
            table.add_row(*_cells(row, report.chunk))
    return table


def _cells(row: PhaseRow, chunk: int) -> tuple[str, str, str, str]:
    what = (
        f"a prompt of {row.tokens:,}, in chunks of {chunk:,}"
        if row.phase == "prompt"
        else f"a token behind {row.tokens:,}"
    )
    time = "" if not row.seconds or not row.given_seconds else f"{row.seconds / row.given_seconds:.2f} x"
    what += "" if row.settled else ", still growing"
    return what, format_size(row.given_process_bytes), format_size(row.process_bytes), time


def _verified(found: DecoderVerification) -> str:
    texts = f"{counted(len(found.texts), 'text')} and {counted(found.further_tokens, 'token')} behind each"
    if all(one.equal for one in found.texts):
        return f"verified in {found.runtime}: outputs and caches of {texts} are bit-equal"
    worst = max(one.error for one in found.texts)
    return f"verified in {found.runtime}: outputs and caches of {texts} are equal within {worst:.1e}"


def _budget_lines(report: DecoderReport) -> list[tuple[str, str | None]]:
    budget = report.budget
    if budget is None:
        return []
    told = f"a text of {report.capacity:,} tokens takes {format_size(budget.required_bytes)}"
    verdict = "it fits" if budget.met else "it does not fit"
    limits = [
        "no text" if tokens is None else f"{tokens:,} tokens"
        for tokens in (budget.largest_given_tokens, budget.largest_tokens)
    ]
    return [
        (f"{told}: {verdict} in {format_size(budget.budget_bytes)}", "green" if budget.met else "red"),
        (f"{format_size(budget.budget_bytes)} hold {limits[0]} as given, {limits[1]} in place", None),
    ]
