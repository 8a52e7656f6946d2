"""What is stated before a model is read: its sizes, a budget, percentages."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

from memsched.base.errors import UsageError
from memsched.base.units import Percentage, parse_budget
from memsched.commands.optimize.permissions import MOST_EXTRA_MACS
from memsched.formats.blocks import Range
from memsched.formats.files import read_source
from memsched.formats.known import format_in
from memsched.formats.module import LoadOptions
from memsched.formats.stated_sizes import as_length, stated
from memsched.runtimes.known import observer_of, resized

__all__ = ["budget_of", "check_percentages", "load_options", "sized_source", "split_ranges"]

_RANDOM_FEEDS: Final = "random"


def sized_source(
    source: str | os.PathLike[str] | bytes, shapes: Mapping[str, Sequence[int]] | None
) -> tuple[bytes, str, bool]:
    """Return a model's bytes, the path that names it, and whether the bytes were resized to other shapes of inputs.

    Raises:
        ModelError: It cannot be read.
        UsageError: It states its shapes, and cannot be resized to those.
    """
    data, path = read_source(source)
    options = stated(shapes, None)
    sized = resized(data, format_in(data).name, options.input_shapes)
    return sized, path, sized is not data


def load_options(data: bytes, path: str, stated: LoadOptions, feeds: str | None, seed: int = 0) -> LoadOptions:
    """Return what is stated, and what a run on ``feeds`` showed where it is wanted."""
    if feeds is None:
        return stated
    observer = observer_of(format_in(data).name)
    return observer.observe(data, path, stated, None if feeds == _RANDOM_FEEDS else feeds, seed=seed)


def split_ranges(dims: Mapping[str, int | tuple[int, ...]] | None) -> tuple[dict[str, int], dict[str, Range]]:
    """Return the dimensions that have one value, and those that stay open.

    Raises:
        UsageError: A range is empty, or a length is no number.
    """
    fixed: dict[str, int] = {}
    ranges: dict[str, Range] = {}
    for name, said in (dims or {}).items():
        if not isinstance(said, tuple | list):
            fixed[name] = as_length(name, said)
        elif len(said) not in {2, 3} or not 0 <= as_length(name, said[0]) <= as_length(name, said[1]) or not said[1]:
            raise UsageError(
                f"dims: {name}: a range is the smallest length, at least 1, and the largest", code="bad-range"
            )
        elif len(said) == 3 and not 1 <= said[2] <= said[1] // said[2] * said[2]:
            raise UsageError(f"dims: {name}: no length up to {said[1]} is a multiple of {said[2]}", code="bad-range")
        else:
            ranges[name] = Range(said[0], said[1], said[2] if len(said) == 3 else 1, named=True)
    return fixed, ranges


def check_percentages(max_extra_macs: float, max_slowdown: float | None = None) -> None:
    """Check that both are percentages that are permitted.

    Raises:
        UsageError: One is not.
    """
    for name, percent in (("--max-extra-macs", max_extra_macs), ("--max-slowdown", max_slowdown or 0.0)):
        if not 0 <= percent <= MOST_EXTRA_MACS:
            raise UsageError(
                f"{name} {percent:g} is not a percentage from 0 to {MOST_EXTRA_MACS:,}", code="option-range"
            )


def budget_of(budget: int | str | None) -> int | Percentage | None:
    """Return the budget that a user states.

    Raises:
        UsageError: It is no number of bytes.
    """
    size = parse_budget(budget) if isinstance(budget, str) else budget
    if isinstance(size, int) and size < 0:
        raise UsageError(f"a budget of {size} bytes is not possible", code="option-range", action="give 0 or more")
    return size
