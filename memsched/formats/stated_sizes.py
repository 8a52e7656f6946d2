"""Sizes as the user of a function states them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence

from memsched.errors import UsageError
from memsched.formats.module import LoadOptions

__all__ = ["as_length", "stated"]


def stated(input_shapes: Mapping[str, Sequence[int]] | None, dims: Mapping[str, int] | None) -> LoadOptions:
    """Return what a user states of sizes.

    Raises:
        UsageError: A shape is no list of numbers, or a dimension no number.
    """
    shapes = {name: _shape(name, shape) for name, shape in (input_shapes or {}).items()}
    return LoadOptions(shapes, {name: as_length(name, length) for name, length in (dims or {}).items()})


def _shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, shape))
    except TypeError:
        raise UsageError(f"input_shapes: {name}: a shape is a list of numbers, not {shape!r}") from None


def as_length(name: str, length: int) -> int:
    """Return a length of the dimension ``name``.

    Raises:
        UsageError: It is no number.
    """
    try:
        return operator.index(length)
    except TypeError:
        raise UsageError(f"dims: {name}: a length is a number, not {length!r}") from None
