"""Sizes at which models are tried that were optimized for one size."""

from __future__ import annotations

__all__ = ["candidate_sizes"]


def candidate_sizes(size: int) -> list[int]:
    """Return other sizes, those first that most networks accept; all are positive."""
    near = (
        size + max(1, size // 4),
        size // 2,
        2 * size,
        size + 2,
        size + 32,
        size + 1,
        size - 1,
        3 * size,
        size + 8,
        1,
    )
    return [one for one in dict.fromkeys(near) if one > 0 and one != size]
