"""What a process took, as tests that run none have it."""

from __future__ import annotations

from memsched.runtimes.measure import Measured, OwnFigures, Raced
from memsched.runtimes.race import Race, Turn

__all__ = ["at_ratio", "took"]


def took(
    peak: int,
    seconds: float = 0.1,
    ratio: float | None = None,
    *,
    requested: int | None = None,
    settled: bool = True,
) -> Measured:
    """Return a process of so many bytes, and a run of so many seconds, of the processor too."""
    return Measured(
        peak,
        earlier=peak,
        clock=(seconds,),
        processor=(seconds,),
        settled=settled,
        own=OwnFigures(requested),
        raced=None if ratio is None else at_ratio(ratio),
    )


def at_ratio(ratio: float | None, *, requested: int | None = None) -> Raced:
    """Return a model that took ``ratio`` times as long as another one; None: it is that one."""
    rounds = () if ratio is None else ((Turn(1.0, 1.0), Turn(ratio, ratio)),)
    return Raced(Race(rounds), own=OwnFigures(requested))
