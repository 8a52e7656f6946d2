"""What is stated before a model is read: its sizes, a budget, percentages."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Final

from memsched.base.errors import MemschedError, RuntimeUnavailableError, UnknownShapeError, UsageError
from memsched.base.units import Percentage, parse_budget
from memsched.commands.optimize.permissions import MOST_EXTRA_MACS
from memsched.formats.blocks import Range
from memsched.formats.capabilities import OpenSizes
from memsched.formats.files import load_module, read_source
from memsched.formats.known import capability, format_in
from memsched.formats.module import AssumedSize, LoadOptions, Module
from memsched.formats.stated_sizes import as_length, stated
from memsched.runtimes.known import observer_of, resized

__all__ = [
    "assumed_sizes",
    "budget_of",
    "check_percentages",
    "load_options",
    "read_model",
    "sized_source",
    "split_ranges",
]

_RANDOM_FEEDS: Final = "random"
_MOST_RUNS: Final = 6
"""Sizes with which a model is run at most, until it runs with some."""


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
    """Return what is stated, with what a run on ``feeds`` showed if it is wanted, and sizes for what is still open."""
    if feeds is not None and feeds != _RANDOM_FEEDS:
        return observer_of(format_in(data).name).observe(data, path, stated, feeds, seed=seed)
    known = assumed_sizes(data, path, stated, seed=seed)
    if feeds is None:
        return known
    return observer_of(format_in(data).name).observe(data, path, known, None, seed=seed)


def assumed_sizes(data: bytes, path: str, stated: LoadOptions, *, seed: int = 0) -> LoadOptions:
    """Return what is stated, and sizes for what inputs still leave open.

    Where several are as likely, these are the first with which the model runs, if its runtime is installed.
    """
    found = capability(format_in(data), OpenSizes).candidates(data, path, stated)
    first = next(found)
    second = next(found, None) if any(one.free for one in first.assumed) else None
    if second is None:
        return first
    observer = observer_of(format_in(data).name)
    for candidate in itertools.islice(itertools.chain([first, second], found), _MOST_RUNS):
        try:
            observer.observe(data, path, candidate, None, seed=seed)
        except RuntimeUnavailableError:
            return first
        except UsageError:
            continue
        return candidate
    return first


def read_model(data: bytes, path: str, known: LoadOptions, seed: int = 0) -> tuple[Module, LoadOptions]:
    """Return a model, and its sizes; what depends on data is as in one run on random inputs, unless it is stated.

    Raises:
        ModelError: It cannot be read, or is not a valid model.
        UnknownShapeError: A size depends on data, and the model does not run on random inputs.
    """
    try:
        return load_module(data, path, known), known
    except UnknownShapeError as error:
        if known.observed is not None or not error.computed:
            raise
        missing = error
    try:
        seen = observer_of(format_in(data).name).observe(data, path, known, None, seed=seed)
        module = load_module(data, path, seen)
    except MemschedError as failed:
        missing.problem = f"{missing.problem}, and a run on random inputs does not tell: {failed.problem}"
        raise missing from failed
    return module, seen.assuming({}, {}, _seen(module, missing))


def _seen(module: Module, missing: UnknownShapeError) -> tuple[AssumedSize, ...]:
    """Return the sizes that only a run told."""
    return tuple(
        AssumedSize(f"{name}[{place}]", length, "one run on random inputs")
        for tensor in module.graph.tensors
        for name, axis in missing.computed
        if tensor.name == name
        for place, length in enumerate(tensor.shape or ())
        if axis in {None, place}
    )


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
