"""What reports and the console say of ops computed otherwise with the same values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from memsched.base.shown import ROWS_SHOWN
from memsched.base.units import counted
from memsched.graph.identity import Identity
from memsched.report.text import shortened
from memsched.report.values.rewrites import AlgebraSection, IdentityRow

__all__ = ["WORDS", "algebra_lines", "algebra_section", "identities_text", "with_further"]

WORDS: Final = {
    "merge": "duplicates merged",
    "shift": "pads and crops merged",
    "cross": "exchanged with moves",
    "late": "copied for one reader",
    "split": "split by inputs",
    "sum": "summed by inputs",
    "band": "in bands",
    "tree": "as trees",
    "shape": "static reshapes",
}
"""Results of each kind of identity, to precede their number."""


def algebra_section(way: Sequence[Identity], judged: int, *, finished: bool) -> AlgebraSection:
    """Return the section on the identities that were used; what is required is not known yet."""
    rows = tuple(IdentityRow(kind=one.kind, op=one.op, over=one.over) for one in way)
    return AlgebraSection(
        applied=bool(rows),
        exact=all(one.kind != "sum" for one in way),
        given_bytes=0,
        bytes=0,
        judged=judged,
        exhausted=finished,
        identities=rows,
    )


def with_further(before: AlgebraSection | None, rows: Sequence[IdentityRow]) -> AlgebraSection:
    """Return a section with what suits a delegate behind what else is computed otherwise."""
    known = before if before is not None and before.applied else algebra_section((), 0, finished=True)
    return msgspec.structs.replace(known, applied=True, identities=(*known.identities, *rows))


def identities_text(section: AlgebraSection) -> str:
    """Return the number of rewritten ops, in total and for each kind."""
    kinds = Counter(row.kind for row in section.identities)
    what = ", ".join(f"{WORDS[kind]}: {count}" for kind, count in kinds.items())
    return (
        f"{counted(len(section.identities), 'op')} rewritten {'exactly' if section.exact else 'algebraically'} ({what})"
    )


def algebra_lines(section: AlgebraSection | None, columns: int, *, verbose: bool) -> list[tuple[str, str | None]]:
    """Return the lines on algebra, each with its style."""
    if section is None:
        return []
    if not section.applied:
        return [("no op was rewritten exactly: no identity saves memory", None)]
    saved = f"{section.given_bytes:,} -> {section.bytes:,} B"
    if section.bytes == section.given_bytes:
        saved = f"{section.bytes:,} B by themselves, as before"
    lines: list[tuple[str, str | None]] = [(f"{identities_text(section)}: {saved}", None)]
    shown = section.identities if verbose else section.identities[:ROWS_SHOWN]
    half = columns // 3
    lines += [(f"  {row.kind}: {shortened(row.op, half)}{_beside(row, half)}", "dim") for row in shown]
    if len(shown) < len(section.identities):
        lines.append((f"  and {len(section.identities) - len(shown)} more", "dim"))
    return lines


def _beside(row: IdentityRow, columns: int) -> str:
    if row.count is None:
        return f" over {shortened(row.over, columns)}" if row.over else ""
    return f" in {row.count} bands" if row.kind == "band" else f" of {row.count} inputs"
