"""Sizes that depend on open dimensions: polynomials with rational coefficients, fitted to what probes show."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from memsched.base.frozen import FrozenValue

__all__ = ["Monomial", "Polynomial", "fit", "monomials"]

Monomial = tuple[str, ...]
"""The symbols of a product, sorted, one for each time that it occurs; empty for the number 1."""

_DEGREE: Final = 2
"""The largest of monomials in sums; products of two such monomials are recognised too."""


class Polynomial(FrozenValue, frozen=True):
    """A length, or an element of a shape, as a function of the open dimensions.

    Attributes:
        terms: Monomials with their coefficients, none of which is 0, sorted.
    """

    terms: tuple[tuple[Monomial, Fraction], ...]

    def at(self, sizes: Mapping[str, int]) -> Fraction:
        """Return the value at ``sizes``, which has every symbol."""
        return sum((factor * math.prod(sizes[one] for one in monomial) for monomial, factor in self.terms), Fraction(0))

    def constant(self) -> int | None:
        """Return the number that this is; None where it depends on a symbol, or is no whole number."""
        if not self.terms:
            return 0
        monomial, factor = self.terms[0]
        return int(factor) if len(self.terms) == 1 and not monomial and factor.denominator == 1 else None

    def is_multiple_of(self, other: Polynomial) -> bool:
        """Whether this is ``other`` times a product of symbols and a whole number, where both are single products."""
        if len(self.terms) != 1 or len(other.terms) != 1:
            return False
        (mine, factor), (theirs, divisor) = self.terms[0], other.terms[0]
        left = [*mine]
        for symbol in theirs:
            if symbol not in left:
                return False
            left.remove(symbol)
        return (factor / divisor).denominator == 1

    def text(self) -> str:
        """Return it in words of arithmetic, such as "2 length + 1"."""
        told = []
        for monomial, factor in reversed(self.terms):
            product = " ".join(monomial)
            told.append(f"{'' if factor == 1 and product else factor} {product}".strip())
        return " + ".join(told) if len(told) < 2 else f"({' + '.join(told)})"

    def symbols(self) -> frozenset[str]:
        """Return the symbols that it depends on."""
        return frozenset(itertools.chain.from_iterable(monomial for monomial, _ in self.terms))

    def times(self, symbol: str) -> int | None:
        """Return c where this is c times ``symbol``; None where it is anything else."""
        if len(self.terms) != 1:
            return None
        monomial, factor = self.terms[0]
        return int(factor) if monomial == (symbol,) and factor.denominator == 1 else None


def monomials(symbols: Sequence[str], degree: int = _DEGREE) -> list[Monomial]:
    """Return every product of up to ``degree`` of ``symbols``, the number 1 first."""
    names = sorted(symbols)
    powers = (itertools.combinations_with_replacement(names, power) for power in range(degree + 1))
    return list(itertools.chain.from_iterable(powers))


def fit(values: Sequence[int], probes: Sequence[Mapping[str, int]]) -> Polynomial | None:
    """Return the polynomial that has ``values`` at ``probes``; None where there is none.

    A number, or a multiple of one monomial of degree up to four, is recognised first; sums have degree two at most.

    Args:
        values: One per probe.
        probes: More than there are `monomials`, each with the same symbols, so that a wrong form shows.
    """
    if len(set(values)) == 1:
        return Polynomial((((), Fraction(values[0])),) if values[0] else ())
    for power in monomials(list(probes[0]), 2 * _DEGREE):
        column = _column(power, probes)
        ratios = {Fraction(value, number) for value, number in zip(values, column, strict=True) if number}
        if len(ratios) == 1:
            return Polynomial(((power, ratios.pop()),))
    powers = monomials(list(probes[0]))
    columns = [_column(power, probes) for power in powers]
    solved = _solved(
        [list(map(Fraction, row)) for row in zip(*columns, strict=True)], [Fraction(one) for one in values]
    )
    if solved is None:
        return None
    return Polynomial(tuple((power, factor) for power, factor in zip(powers, solved, strict=True) if factor))


def _column(power: Monomial, probes: Sequence[Mapping[str, int]]) -> list[int]:
    return [math.prod(sizes[one] for one in power) for sizes in probes]


def _solved(rows: list[list[Fraction]], values: list[Fraction]) -> list[Fraction] | None:
    """Return the one solution of a system of linear equations; None where there is none, or more than one."""
    width = len(rows[0])
    left = [[*row, value] for row, value in zip(rows, values, strict=True)]
    for column in range(width):
        pivot = next((place for place in range(column, len(left)) if left[place][column]), None)
        if pivot is None:
            return None
        left[column], left[pivot] = left[pivot], left[column]
        head = left[column][column]
        left[column] = [one / head for one in left[column]]
        for place, row in enumerate(left):
            if place != column and row[column]:
                factor = row[column]
                left[place] = [one - factor * other for one, other in zip(row, left[column], strict=True)]
    if any(row[width] for row in left[width:]):
        return None
    return [row[width] for row in left[:width]]
