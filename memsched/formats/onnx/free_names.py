"""Names that nothing in a model has yet."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["FreeNames"]


class FreeNames:
    """Makes names, each once.

    Attributes:
        taken: The names of the model, and those that were made.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)

    def new(self, base: str) -> str:
        """Return ``base``, or the same with a number where it is taken."""
        found, count = base, 1
        while found in self.taken:
            count += 1
            found = f"{base}_{count}"
        self.taken.add(found)
        return found
