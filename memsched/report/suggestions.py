"""The last line of a summary: what would help, as it was tried, with the command to paste."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memsched.report.text import print_line

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_suggestion"]


def print_suggestion(console: Console, report: Mapping[str, Any]) -> None:
    """Print the first suggestion of the report; nothing where there is none."""
    for first in report.get("suggestions", ())[:1]:  # older reports have none
        before = first["requirement_bytes"] + first["saving_bytes"]
        percent = 100 * first["saving_bytes"] / before if before else 0.0
        extra, budget = first["extra_macs_percent"], report["budget"]
        work = f"at most {extra:g} % more work" if extra else "no more work"
        # With a budget a command ends as soon as that is met.
        enough = budget is not None and first["requirement_bytes"] == budget["budget_bytes"]
        print_line(
            console,
            f"what helps, as tried: {first['what']}, {before:,} -> {first['requirement_bytes']:,} B"
            f"{' or less' if enough else ''} ({percent:.1f} % less) for {work}:",
            style="bold",
        )
        print_line(console, f"  {first['command']}", whole=True)
