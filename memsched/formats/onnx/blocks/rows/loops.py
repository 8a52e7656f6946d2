"""What one loop over rows computes: its targets, the operators that they follow from, and the rows that these read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.blocks.rows.field import RowField

__all__ = ["RowLoop", "Span", "Statistic", "rates_of", "spans_of"]

Statistic = tuple[str, int]
"""Mean and variance of an image, and into how many groups its channels are put."""


class RowLoop(FrozenValue, frozen=True):
    """A loop.

    Attributes:
        ops: Operators of the field that its body computes, in order.
        made: Images that it makes, which are kept; all have as many rows.
        statistics: What it adds up, of images with as many rows.
        read: Images that are kept, of which it reads some rows.
    """

    ops: tuple[int, ...]
    made: tuple[str, ...]
    statistics: tuple[Statistic, ...]
    read: tuple[str, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """The images that a body computes, each once."""
        return tuple(dict.fromkeys((*self.made, *(name for name, _ in self.statistics))))


class Span(FrozenValue, frozen=True):
    """The rows of an image that a block of a loop needs, beside those that lie where the block does.

    Attributes:
        rate: Its rows per row of the loop's targets.
        above, below: More rows of it.
    """

    rate: Fraction
    above: int
    below: int


def rates_of(field: RowField, loop: RowLoop) -> Mapping[str, Fraction]:
    """Return for every image in a loop its rows per row of the targets."""
    rates = dict.fromkeys(loop.targets, Fraction(1))
    for number in reversed(loop.ops):
        op = field.ops[number]
        known = next(rates[name] for name in op.outputs if name in rates)
        rates.update((name, known) for name in op.outputs)
        rates.update((name, known / op.rule.rate) for name in op.images if name not in rates)
    return rates


def spans_of(field: RowField, loop: RowLoop) -> tuple[Mapping[str, Span], int]:
    """Return the rows of every image that a loop needs, and of what number the rows of its blocks are multiples.

    What is read begins at rows that every stride below divides.
    """
    rates = rates_of(field, loop)
    above, below = dict.fromkeys(loop.targets, 0), dict.fromkeys(loop.targets, 0)
    for number in reversed(loop.ops):
        op = field.ops[number]
        most = max(above.get(name, 0) for name in op.outputs), max(below.get(name, 0) for name in op.outputs)
        for name in op.images:
            above[name] = max(above.get(name, 0), op.rule.above(most[0]))
            below[name] = max(below.get(name, 0), op.rule.below(most[1]))
    unit = _common(list(rates.values()))
    spans = {}
    for name, rate in rates.items():
        step = int(rate / unit)
        spans[name] = Span(rate, -(-above.get(name, 0) // step) * step, below.get(name, 0))
    return spans, unit.denominator


def _common(rates: Sequence[Fraction]) -> Fraction:
    """Return the largest number of which all of ``rates`` are multiples."""
    below = math.lcm(*(rate.denominator for rate in rates))
    return Fraction(math.gcd(*(int(rate * below) for rate in rates)), below)
