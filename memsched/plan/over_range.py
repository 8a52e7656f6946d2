"""One order for all sizes of a range: the candidate that loses least where another one is better.

An order that is best at one size may be beaten at another: what is large at the peak may grow with the square of a
length there, and with the length elsewhere. Candidates are judged exactly at sizes along lines through the range;
where the best of them changes between two of these, halving finds the sizes at which it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from memsched.base.frozen import FrozenValue

__all__ = ["OrderSpan", "RangedChoice", "choose_order"]

Point = tuple[int, ...]
"""Lengths of all dimensions, always in the same order."""

_MOST_SPANS: Final = 12
"""Spans of a line after which it is no longer looked for where exactly the next one begins."""


class OrderSpan(FrozenValue, frozen=True):
    """Sizes along a line at which one order is best, as far as they were judged.

    Attributes:
        order: Number of the candidate; the first of those that are best at as many sizes in a row.
        points: Those that were judged, rising.
    """

    order: int
    points: tuple[Point, ...]


class RangedChoice(FrozenValue, frozen=True):
    """The order for a range.

    Attributes:
        order: Number of the candidate; 0 is the given order.
        spans: Per line.
        judged: Bytes of every candidate at each size that was judged, in the order of sizes.
    """

    order: int
    spans: tuple[tuple[OrderSpan, ...], ...]
    judged: Mapping[Point, tuple[int, ...]]

    def loss(self, points: Iterable[Point]) -> Fraction:
        """Return the bytes of the chosen order as a multiple of the least of any, where that is largest."""
        return max(_loss(self.judged[point], self.order) for point in points)


def choose_order(
    lines: Sequence[Sequence[Point]],
    typical: Point,
    greatest: Point,
    judge: Callable[[Point], tuple[int, ...]],
    between: Callable[[Point, Point], Point],
    beside: Sequence[Point] = (),
) -> RangedChoice:
    """Return the candidate that is never worse than the given one, and nearest to the best where it is furthest.

    Of several, the one that needs least at the typical size, then at the greatest, then the first.

    Args:
        lines: Sizes to judge at, along lines through the range; one at least.
        judge: Returns what each candidate needs at a size, bytes; the first candidate is the given order. It is asked
            once for each size.
        between: Returns a size halfway between two of a line; one of these where there is none.
        beside: Further sizes to judge at, such as corners of the range.
    """
    table = _Table(judge)
    spans = [_spans(table, line, between) for line in lines]
    typical_row, greatest_row = table.row(typical), table.row(greatest)
    for point in beside:
        table.row(point)
    rows = [table.known[point] for point in sorted(table.known)]
    safe = [order for order in range(len(typical_row)) if all(row[order] <= row[0] for row in rows)]

    def rank(order: int) -> tuple[Fraction, int, int, int]:
        return max(_loss(row, order) for row in rows), typical_row[order], greatest_row[order], order

    return RangedChoice(min(safe, key=rank), tuple(map(tuple, spans)), dict(sorted(table.known.items())))


class _Table:
    """What candidates need at the sizes that were judged."""

    def __init__(self, judge: Callable[[Point], tuple[int, ...]]) -> None:
        self._judge = judge
        self.known: dict[Point, tuple[int, ...]] = {}

    def row(self, point: Point) -> tuple[int, ...]:
        if point not in self.known:
            self.known[point] = self._judge(point)
        return self.known[point]

    def wins(self, order: int, point: Point) -> bool:
        row = self.row(point)
        return row[order] == min(row)


def _loss(row: Sequence[int], order: int) -> Fraction:
    return Fraction(max(1, row[order]), max(1, min(row)))


def _spans(table: _Table, line: Sequence[Point], between: Callable[[Point, Point], Point]) -> list[OrderSpan]:
    """Return the spans of a line: always the order that is best at most sizes from there on."""
    points, place = list(line), 0
    found: list[OrderSpan] = []
    while place < len(points):
        runs = [_run(table, points[place:], order) for order in range(len(table.row(points[place])))]
        order = max(range(len(runs)), key=lambda one: (runs[one], -one))
        inside, place = points[place : place + runs[order]], place + runs[order]
        if place < len(points) and len(found) < _MOST_SPANS:
            low, high = inside[-1], points[place]
            seen: list[Point] = []
            while (middle := between(low, high)) not in {low, high}:
                if table.wins(order, middle):
                    low = middle
                    inside.append(middle)
                else:
                    high = middle
                    seen.append(middle)
            points[place:place] = reversed(seen)
        found.append(OrderSpan(order, tuple(inside)))
    return found


def _run(table: _Table, points: Sequence[Point], order: int) -> int:
    """Return at how many of the first points an order is best."""
    return next((place for place, point in enumerate(points) if not table.wins(order, point)), len(points))
