"""Names that a user may have meant: what "did you mean" says of ops, tensors, targets, options and commands."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["closest", "did_you_mean"]

_MOST_COMPARED = 2_000
"""Candidates that are compared letter by letter, which costs up to a millisecond each for long names."""

_LONGEST = 200
"""Letters of a name beyond which likeness is not worth its time: it grows with their product."""


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most like ``name``; None where none is much like it.

    The same but for case or white space at the ends comes first, then likeness by letters, then the only candidate
    that ends or begins with ``name``, as the ends of long paths do. Of equals the first candidate is taken.
    """
    names = list(dict.fromkeys(candidates))
    wanted = name.strip().casefold()
    if not wanted:
        return None
    for candidate in names:
        if candidate.strip().casefold() == wanted:
            return candidate
    near = [candidate for candidate in names if _similar_length(wanted, candidate)]
    # In a model with very many names the nearest in length are compared; the sort is stable: a repeatable choice.
    near = sorted(near, key=lambda candidate: abs(len(candidate) - len(wanted)))[:_MOST_COMPARED]
    folded = {candidate.casefold(): candidate for candidate in reversed(near)}
    found = difflib.get_close_matches(wanted, folded, n=1)
    if found:
        return folded[found[0]]
    parts = [one for one in names if one.casefold().endswith(wanted) or one.casefold().startswith(wanted)]
    return parts[0] if len(parts) == 1 else None


def _similar_length(wanted: str, candidate: str) -> bool:
    """Whether two names can be alike at all: difflib's ratio is at most twice the shorter over the sum."""
    shorter, longer = sorted((len(wanted), len(candidate)))
    return longer <= _LONGEST and 2 * shorter >= 0.6 * (shorter + longer)


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return " (did you mean 'candidate'?)" to put behind a name, or nothing where no candidate is like ``name``."""
    found = closest(name, candidates)
    return "" if found is None else f" (did you mean '{found}'?)"
