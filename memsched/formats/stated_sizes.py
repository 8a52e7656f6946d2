"""Sizes as the user of a function states them."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Mapping, Sequence

from memsched.base.errors import UsageError
from memsched.base.units import MOST_DIGITS
from memsched.formats.module import LoadOptions

__all__ = ["as_length", "stated"]


def stated(input_shapes: Mapping[str, Sequence[int]] | None, dims: Mapping[str, int] | None) -> LoadOptions:
    """Return what a user states of sizes.

    Raises:
        UsageError: A shape is no list of numbers, or a dimension no number, or none of elements.
    """
    shapes = {name: _shape(name, shape) for name, shape in (input_shapes or {}).items()}
    return LoadOptions(shapes, {name: as_length(name, length) for name, length in (dims or {}).items()})


def _shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    try:
        lengths = tuple(map(operator.index, shape))
    except TypeError:
        raise UsageError(
            f"a shape is a list of numbers, not {shape!r}", code="argument-type", location=f"input_shapes: {name}"
        ) from None
    return tuple([_possible(f"input_shapes: {name}", length) for length in lengths])


def as_length(name: str, length: int) -> int:
    """Return a length of the dimension ``name``.

    Raises:
        UsageError: It is no number, or none of elements.
    """
    try:
        found = operator.index(length)
    except TypeError:
        raise UsageError(
            f"a length is a number, not {length!r}", code="argument-type", location=f"dims: {name}"
        ) from None
    return _possible(f"dims: {name}", found)


def _possible(where: str, length: int) -> int:
    if not 0 <= length < 10**MOST_DIGITS:
        raise UsageError(
            f"a length of {reprlib.repr(length)} is not possible",
            code="bad-length",
            location=where,
            action=f"give 0 or more, of up to {MOST_DIGITS} digits",
        )
    return length
