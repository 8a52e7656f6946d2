"""How far a search has come, and what its passes did."""

from __future__ import annotations

from memsched.base.frozen import FrozenValue

__all__ = ["PassRecord", "Progress"]


class Progress(FrozenValue, frozen=True):
    """How far the search is: the best peak, or arena, and the proven bound in bytes, seconds since its start.

    The bound is None while layers are rewritten: what is proven of orders does not hold for other layers.
    """

    stage: str
    best_peak: int
    lower_bound: int | None
    seconds: float


class PassRecord(FrozenValue, frozen=True):
    """What one stage did.

    Attributes:
        outcome: In words, where figures do not say it.
    """

    name: str
    seconds: float
    ops_before: int
    ops_after: int
    peak_before_bytes: int
    peak_after_bytes: int
    outcome: str = ""
