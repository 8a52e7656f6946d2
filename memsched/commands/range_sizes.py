"""Sizes within the ranges of a model's open dimensions, which rise together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from memsched.formats.blocks import OpenModel, Range

__all__ = ["Sizes", "distinct", "sizes_at"]

Sizes = Mapping[str, int]
"""The lengths of all open dimensions."""


def sizes_at(opened: OpenModel, part: float) -> dict[str, int]:
    """Return a size between the least (0) and the largest (1), along a geometric row.

    Dimensions of which nothing is stated are as short as can be.
    """
    return {
        name: span.nearest(round(_between(span, part)) if span.named else span.least)
        for name, span in opened.ranges.items()
    }


def _between(span: Range, part: float) -> float:
    """Return a length of a geometric row; one that begins at 0 goes on with 1."""
    least = max(1, span.least)
    return least * (span.most / least) ** part if part else span.least


def distinct(sizes: Iterable[Sizes]) -> list[Sizes]:
    """Return sizes, each once, in the order in which they come first."""
    return list({tuple(one.values()): one for one in sizes}.values())
