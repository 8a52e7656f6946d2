"""How many tensors are joined to how few, where one concatenation takes only so many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["join_levels"]


def join_levels(count: int, most: int | None) -> Iterator[Sequence[int]]:
    """Yield, level by level, how many neighbours each join takes until ``most`` are left; 1 for what stays as it is.

    Where joins copy, these need no more memory than the last one, which holds all parts twice: before it, there is one
    copy of each part. Where parts lie inside the result, all of them lie inside the whole.
    """
    most = most or count
    while count > most:
        left, at, sizes = count - most, 0, []
        while at < count:
            size = min(most, left + 1)
            size = size if at + size <= count else 1
            sizes.append(size)
            left, at = left - (size - 1), at + size
        yield sizes
        count = len(sizes)
