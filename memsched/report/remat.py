"""What people read of the section ``remat``: which values are computed again, how often, and what that costs."""

from __future__ import annotations

from collections.abc import Iterator

from memsched.base.shown import ROWS_SHOWN
from memsched.base.units import counted, format_size
from memsched.report.text import ending_in_name
from memsched.report.values.rewrites import CopyRow, RematSection

__all__ = ["proof_of", "remat_lines"]


def remat_lines(section: RematSection | None, columns: int, *, verbose: bool) -> list[tuple[str, str | None]]:
    """Return the lines of a summary, each with its style; names are shortened to fit into ``columns``.

    Args:
        verbose: All ops instead of those whose repetitions cost most.
    """
    if section is None:
        return []
    limit = f"{round(section.max_extra_work_percent, 1):g} % permitted"
    lines: list[tuple[str, str | None]] = []
    if section.applied:
        copies = section.copies
        lines.append((_head(section, limit), None))
        dearest = sorted(copies, key=lambda copy: -copy.extra_macs - copy.extra_bytes_moved)
        shown = copies if verbose else dearest[:ROWS_SHOWN]
        lines += [(line, None) for copy in shown for line in _copy_lines(copy, columns)]
        if len(copies) > len(shown):
            lines.append((f"  and {counted(len(copies) - len(shown), 'operator')} more", None))
        proven = proof_of(section)
        if proven:
            lines.append((proven, None))
    elif section.settled and not _lower(section):
        lines.append((f"nothing is computed again: no order and no repetitions need less, proven ({limit})", None))
    else:
        lines.append((f"nothing is computed again: no repetitions that were tried need less ({limit})", None))
    lines.append((f"neither order nor repetitions bring the peak below {section.lower_bound_bytes:,} B", None))
    lines += [(f"repetitions that cannot be written: {reason}", None) for reason in section.refusals]
    if not section.finished:
        lines.append(
            (
                "the search for repetitions was ended early: a longer --time-limit, or --effort, may find better ones",
                "dim",
            )
        )
    return lines


def proof_of(section: RematSection) -> str:
    """Return in words for what the extra work is proven least; "" where it is not."""
    if section.status == "feasible":
        return ""
    text = f"its extra work is proven least at this peak, for {section.proof}"
    return text if section.status == "optimal" else f"{text}: others may need less"


def _lower(section: RematSection) -> bool:
    """Whether a sequence within the permitted work has a lower peak than there is without repetitions."""
    most, peak = section.max_extra_work_percent, section.without.peak_bytes
    return any(step.peak_bytes < peak and step.extra_work_percent <= most for step in section.frontier)


def _head(section: RematSection, limit: str) -> str:
    times = sum(copy.times for copy in section.copies)
    return (
        f"computed again: {counted(len(section.copies), 'operator')}, {counted(times, 'time')} in all, "
        f"{section.extra_macs_percent:.1f} % more multiply-accumulates; "
        f"{section.extra_work_percent:.1f} % more work with bytes moved ({limit})"
    )


def _copy_lines(copy: CopyRow, columns: int) -> Iterator[str]:
    moved = format_size(copy.extra_bytes_moved)
    work = f"{copy.extra_macs:,} multiply-accumulates, {moved} moved" if copy.extra_macs else f"{moved} moved"
    return ending_in_name(f"  {copy.times:,} x {copy.type}, {work}:", copy.op, columns)
