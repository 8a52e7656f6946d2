"""What a command tried: one row for each rewrite of each model, and for each solver, whatever became of the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from memsched.commands.optimize.rewrites import Rewrites
from memsched.report.values.verdict import LedgerRow
from memsched.search.progress import PassRecord

__all__ = ["ORIGINAL", "Ledger", "ledger_rows", "name_of"]

ORIGINAL = "original"
_JOINED = " + "


def name_of(steps: Sequence[str]) -> str:
    """Return the name of a model in a ledger, by the rewrites that led to it."""
    return _JOINED.join(steps) or ORIGINAL


@dataclass(slots=True)
class Ledger:
    """What one run of a command tried.

    Attributes:
        rows: In the order of time.
    """

    rows: list[LedgerRow] = field(default_factory=list)

    def add_passes(self, passes: Sequence[PassRecord], on: str = ORIGINAL) -> None:
        """Record the passes of the search for an order."""
        self.rows += [_pass_row(one, on) for one in passes]


def ledger_rows(
    tried: Sequence[LedgerRow], passes: Sequence[PassRecord], steps: Sequence[str], rewrites: Rewrites | None
) -> Iterator[LedgerRow]:
    """Yield what was tried, with what became of it in the file that is written.

    Args:
        passes: Of the search for that file's order.
        steps: The rewrites that led to it.
        rewrites: What they say of it; None if it is the original.
    """
    on = name_of(steps)
    written = [_pass_row(one, on) for one in passes]
    for row in tried:
        if row in written:
            written.remove(row)
            yield msgspec.structs.replace(row, applied=True)
        elif row.work_percent is None:
            yield msgspec.structs.replace(row, reason=row.reason or "the file has another order")
        elif row.applied and not _is_in(row, steps, rewrites):
            yield msgspec.structs.replace(row, applied=False, reason="the file with it is not written")
        else:
            yield row
    yield from (msgspec.structs.replace(row, applied=True) for row in written)


def _is_in(row: LedgerRow, steps: Sequence[str], rewrites: Rewrites | None) -> bool:
    """Whether a file has a rewrite that was chosen in the search."""
    if rewrites is None:
        return False
    before = () if row.on == ORIGINAL else tuple(row.on.split(_JOINED))
    path = (*before, row.pass_)
    # What a session executes is made of a model that was rewritten before.
    return tuple(steps[: len(path)]) == path or rewrites.applies(row.pass_)


def _pass_row(record: PassRecord, on: str) -> LedgerRow:
    return LedgerRow(
        pass_=record.name,
        on=on,
        tried=1,
        found_bytes=record.peak_after_bytes,
        applied=False,
        reason=record.outcome,
        work_percent=None,
        seconds=round(record.seconds, 4),
        proof="",
        before_bytes=record.peak_before_bytes,
        ops_before=record.ops_before,
        ops_after=record.ops_after,
        extra_macs_percent=None,
    )
