"""At which sizes of a range files are run: the largest whose memory and time are in proportion, and smaller ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.formats.blocks import OpenModel
from memsched.runtimes.known import ranged
from memsched.search.run import Run

__all__ = ["RangedSizes", "measured_sizes", "seconds_to_judge"]

_RUNS_TO_JUDGE: Final = 60
"""Runs at the largest size, of both files, in which one is judged; at the small one there are twice as many."""

_PROCESSES_TO_JUDGE: Final = 8

_LARGEST_VALUE: Final = 768 << 20
"""Bytes of a value of the model as given, at the largest size at which it is run."""

_SMALL: Final = 512
"""The length at which a file must be no worse than the one given, where no value is larger than `_SMALL_VALUE` then."""

_SHORT: Final = 64
"""The length at which a file must be no slower, too: what is spent on each block, or on each weight, shows there."""

_SMALL_VALUE: Final = 32 << 20

_LENGTHS: Final = (1, 2, 3, 7, 16, 31, 64, 97, 131, 257, 509)
"""At which outputs are compared, beside both ends and the largest size that is measured; primes among them."""

_COMPARED_VALUE: Final = 64 << 20
"""Bytes of a value at sizes at which outputs are compared, but for the largest one: there are many."""

_RUNS_OF_GIVEN: Final = 12
"""Runs of the model as given, alone and in turns with other sizes, until its memory is steady."""

_RUNS_OF_ANOTHER: Final = 3
"""The same of each file whose memory alone is compared."""

_SECONDS_OF_A_PROCESS: Final = 2.0
"""What building a file and opening a session on it takes beside runs, about."""


class RangedSizes(FrozenValue, frozen=True):
    """The lengths of open dimensions at which models are run.

    Attributes:
        large: The largest size that is measured.
        small: One at which a file must be no worse than the one given.
        short: Another one, at which what opening a session takes shows most.
        compared: Sizes at which outputs are compared.
    """

    large: Mapping[str, int]
    small: Mapping[str, int]
    short: Mapping[str, int]
    compared: tuple[Mapping[str, int], ...]


def measured_sizes(
    opened: OpenModel,
    path: Path,
    fixed: Mapping[str, int],
    points: int,
    run: Run,
    *,
    judged: bool,
) -> RangedSizes:
    """Return the sizes at which files are run.

    Args:
        path: Of the model as given.
        fixed: Dimensions that do not stay open.
        points: How many files will be compared by their memory.
        run: Whose time limit these runs keep to.
        judged: Whether the best one is judged within the limit, too.
    """
    # Dimensions of which nothing is stated are as small as can be.
    most = {name: span.most if span.named else span.least for name, span in opened.ranges.items() if name not in fixed}
    large = _shrunk(opened, most, _LARGEST_VALUE)
    shorter = {name: min(size, opened.ranges[name].nearest(_SMALL)) for name, size in large.items()}
    small = _shrunk(opened, shorter, _SMALL_VALUE)
    known = ranged.runs_at(path, small, seed=run.limits.seed, most=1) if _is_timed(run, large, small) else ""
    if not isinstance(known, str):
        runs, left = _RUNS_OF_GIVEN + points * _RUNS_OF_ANOTHER, run.remaining() - points * _SECONDS_OF_A_PROCESS
        of_small = known[0].seconds()
        if judged:
            runs, left = runs + _RUNS_TO_JUDGE, left - seconds_to_judge(0.0, of_small)
        large = _within(opened, large, small, left / runs / of_small)
    small = {name: min(size, large[name]) for name, size in small.items()}
    short = {name: min(size, opened.ranges[name].nearest(_SHORT)) for name, size in small.items()}
    return RangedSizes(large, small, short, tuple(_compared(opened, large)))


def _shrunk(opened: OpenModel, most: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return a size at which no value is larger than ``limit``: halves of ``most``, as far as it takes."""
    part = 1.0
    while True:
        sizes = {name: opened.ranges[name].nearest(round(size * part)) for name, size in most.items()}
        if opened.largest(sizes) <= limit or part < 1e-4:
            return sizes
        part /= 2


def seconds_to_judge(large: float, small: float) -> float:
    """Return what judging one file takes, about, from the seconds of a run at the largest size and at the small one."""
    return _RUNS_TO_JUDGE * (large + 2 * small) + _PROCESSES_TO_JUDGE * _SECONDS_OF_A_PROCESS


def _is_timed(run: Run, large: Mapping[str, int], small: Mapping[str, int]) -> bool:
    return large != small and not math.isinf(run.remaining())


def _within(opened: OpenModel, large: dict[str, int], small: dict[str, int], times: float) -> dict[str, int]:
    """Return a size at which a run takes at most so many times as long as at ``small``, which is always one.

    A run takes at most as much longer as the largest value is larger.
    """
    return max(_shrunk(opened, large, int(times * opened.largest(small))), small, key=opened.largest)


def _compared(opened: OpenModel, large: Mapping[str, int]) -> list[Mapping[str, int]]:
    """Return sizes of every kind up to the largest that is run, each once."""
    found: dict[tuple[int, ...], Mapping[str, int]] = {}
    for number in range(len(_LENGTHS)):
        sizes = {}
        named = [name for name, span in opened.ranges.items() if span.named]
        for name, span in opened.ranges.items():
            if name in large:
                # Heights and widths differ.
                place = number + 3 * named.index(name) if name in named else 0
                wanted = _LENGTHS[place % len(_LENGTHS)] if span.named else 1 + number % 3
                sizes[name] = min(span.nearest(wanted), large[name]) if span.named else span.nearest(wanted)
        found[tuple(sizes.values())] = sizes
    found = {key: sizes for key, sizes in found.items() if opened.largest(sizes) <= _COMPARED_VALUE}
    found[tuple(large.values())] = large
    return list(found.values())
