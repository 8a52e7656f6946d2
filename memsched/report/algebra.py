"""What reports and the console say of ops computed otherwise with the same values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from memsched.base.shown import ROWS_SHOWN
from memsched.base.units import counted
from memsched.report.text import shortened
from memsched.report.values.rewrites import AlgebraSection, IdentityRow

__all__ = ["WORDS", "algebra_lines", "algebra_section", "identities_text"]

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
    "kernel": "with built-in kernels",
}
"""Results of each kind of identity, to precede their number."""

_ROUNDED: Final = frozenset({"kernel", "sum"})
"""Kinds that round in another way."""


def algebra_section(
    before: AlgebraSection | None, rows: Sequence[IdentityRow], judged: int = 0, *, finished: bool = True
) -> AlgebraSection:
    """Return the section with further identities after those of ``before``.

    If there are none, the section of applied identities stays. The required bytes are not known yet.

    Args:
        judged: Graphs whose best order was searched.
    """
    if before is not None and before.applied and not rows:
        return before
    identities = (*(() if before is None else before.identities), *rows)
    return AlgebraSection(
        applied=bool(identities),
        exact=all(row.kind not in _ROUNDED for row in identities),
        given_bytes=0,
        bytes=0,
        judged=judged,
        exhausted=finished,
        identities=identities,
    )


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
