"""What solvers of one question say, and how two answers can contradict each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Claim", "Pair", "disagreements"]


@dataclass(frozen=True, slots=True)
class Claim:
    """A solver's answer to a question of least cost.

    Attributes:
        solver: Its name.
        found: The cost of its solution, as a checker counts it; None where it has none.
        bound: No solution costs less, as it says; equal to ``found`` where it claims an optimum.
    """

    solver: str
    found: float | None
    bound: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Solvers that are compared.

    Attributes:
        name: What is asked, and who is asked.
        compare: Contradictions on the graph of a number; None where that graph leaves nothing to compare.
        stride: Compared on each ``stride``-th graph only, as it takes long.
    """

    name: str
    compare: Callable[[int], list[str] | None]
    stride: int = 1


def disagreements(claims: Sequence[Claim], *, tolerance: float = 0.0) -> list[str]:
    """Return each bound that a solution is below: so optima differ, or a heuristic is better than a proof permits.

    Args:
        tolerance: Relative, for costs that are sums of floats.
    """
    return [
        f"{one.solver} proves {one.bound}, but {other.solver} finds {other.found}"
        for one in claims
        for other in claims
        if other.found is not None and other.found < one.bound * (1 - tolerance)
    ]
