"""``analyze --dim NAME=64..8192``: how much memory a model takes at which size, and the largest size that fits.

What a session without options requests follows from the model at every size. What its process takes is measured, in
fresh processes, at every size that is shown and can be run here; the rest lies on the lines through these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.shown import ROWS_SHOWN
from memsched.base.units import Percentage
from memsched.commands.optimize.place import prepare, required_as_given
from memsched.commands.range_sizes import distinct, sizes_at
from memsched.formats.blocks import OpenModel, Range
from memsched.formats.capabilities import DynamicDimensions
from memsched.formats.files import load_module
from memsched.formats.known import capability, format_in
from memsched.formats.module import LoadOptions
from memsched.formats.staging import STANDARD_STREAM
from memsched.report.values.blocks import CurveRow, CurveSection, GrowthRow
from memsched.runtimes.known import ranged
from memsched.runtimes.runtime import AS_TOLD, Opening, Requirement
from memsched.targets.model import Target

__all__ = ["Curve", "find_curve"]

_POINTS: Final = 10
"""Sizes that are looked at; between the last that fits and the first that does not, halving finds the largest."""

_MOST_RUN: Final = 2 << 30
"""Bytes that a session requests at the largest size that is run."""

_MOST_SHARE: Final = 2
"""Divisor of the machine's memory that gives the most a process that is run may take."""

_FACTOR: Final = 3
"""By which a process is at most larger than what its session requests, as long as none was measured."""

_APART: Final = 1.5
"""Two points between which a line begins that goes on beyond them differ by so much in what is requested, at least."""

_LARGE: Final = 16
"""Divisor of what is requested at the largest size that was run: a tensor of that many bytes tells of larger sizes."""

_CHANCES: Final = 4
"""Sizes that are measured until one fits, from the one that seems to be the largest downwards."""

_RUNS: Final = 5
"""Processes at a size at which chance counts."""


class Curve(FrozenValue, frozen=True):
    """Memory against size.

    Attributes:
        options: What states the largest size that fits; without a budget the largest of all.
        required: What is required there: of the process where it was measured, else of activations.
        whole: The same at the size that requires most: what a budget for the whole range must hold.
    """

    options: LoadOptions
    required: Requirement
    whole: Requirement
    section: CurveSection


class _ProcessSizes:
    """What processes take at sizes: measured where that is possible, else on the lines through what was measured.

    Args:
        path: The model's file; None where nothing can be run.
        requested: Returns the bytes that a session requests at a size.

    Attributes:
        measured: By size, in the order in which they were run.
        growing: The sizes whose processes were still growing when time ended their runs.
    """

    def __init__(self, path: Path | None, requested: Callable[[Mapping[str, int]], int], seed: int) -> None:
        self._path, self._requested, self._seed = path, requested, seed
        self.measured: dict[tuple[int, ...], int] = {}
        self._points: dict[int, int] = {}
        self.growing: set[tuple[int, ...]] = set()

    def measure(self, sizes: Mapping[str, int]) -> int | None:
        """Run the model at a size and return what its process takes; None where that would take too much.

        Where chance counts that is the middle between the least and the most of a few processes.

        Raises:
            UsageError: It does not run there.
        """
        key, bytes_requested = tuple(sizes.values()), self._requested(sizes)
        if self._path is None or key in self.measured:
            return self.measured.get(key)
        foreseen = self.at(bytes_requested) if self._points else _FACTOR * bytes_requested
        if bytes_requested > _MOST_RUN or foreseen > _memory() // _MOST_SHARE:
            return None
        found = ranged.runs_at(self._path, sizes, seed=self._seed, most=_RUNS)
        if isinstance(found, str):
            raise UsageError(f"the model does not run at {dict(sizes)}: {found}", code="fails-at-inputs")
        taken = [one.peak for one in found]
        self.growing |= set() if all(one.settled for one in found) else {key}
        self.measured[key] = self._points[bytes_requested] = (min(taken) + max(taken)) // 2
        return self.measured[key]

    def take(self, sizes: Mapping[str, int]) -> int:
        """Return the bytes at a size, measured or not."""
        known = self.measured.get(tuple(sizes.values()))
        return self.at(self._requested(sizes)) if known is None else known

    def row(self, sizes: Mapping[str, int]) -> CurveRow:
        """Return what is known of a size."""
        key = tuple(sizes.values())
        return CurveRow(
            sizes=dict(sizes),
            requested_bytes=self._requested(sizes),
            process_bytes=None if self._path is None else self.take(sizes),
            measured_bytes=self.measured.get(key),
            settled=key not in self.growing,
        )

    def at(self, requested: int) -> int:
        """Return the bytes where so many are requested: straight between measured points, and beyond them."""
        points = sorted(self._points.items())
        if len(points) < 2:
            return requested + sum(process - known for known, process in points)
        place = next((place for place, (known, _) in enumerate(points) if known >= requested), None)
        if place is None:
            return self._beyond(points, requested)
        if not place:
            return points[0][1]
        (low, less), (high, more) = points[place - 1], points[place]
        return round(less + (requested - low) * (more - less) / (high - low))

    @staticmethod
    def _beyond(points: Sequence[tuple[int, int]], requested: int) -> int:
        """Return the bytes beyond the last point: on the line to it, or as much for each byte requested as any took.

        Arenas grow to powers of two, so that sizes below one take up to twice as much as their neighbours.
        """
        (first, least), (high, more) = points[0], points[-1]
        low, less = next((one for one in reversed(points) if _APART * one[0] <= high), points[0])
        line = more + (requested - high) * max(0, more - less) / max(1, high - low)
        steepest = max((taken - least) / (known - first) for known, taken in points[1:] if _LARGE * known >= high)
        return round(max(line, least + steepest * (requested - first)))


def _memory() -> int:
    """Return the bytes of the machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def find_curve(
    data: bytes,
    path: str,
    options: LoadOptions,
    ranges: Mapping[str, Range],
    rules: Target,
    budget: int | Percentage | None,
    seed: int,
) -> Curve:
    """Return what a model takes over ranges of its open dimensions, which rise together.

    Args:
        options: What is stated of the other dimensions; of which nothing is stated are as short as can be.
        budget: Of the process, or of activations where the target is of no runtime that can be measured; None for none.

    Raises:
        MemschedError: The subclass and its message say which file or option is at fault.
    """
    most = _bytes_permitted(options, budget)
    opened = capability(format_in(data), DynamicDimensions).open_model(data, path, options.dims, ranges)
    opening = Opening("default") if rules.orders_itself else AS_TOLD
    known: dict[tuple[int, ...], int] = {}

    def requested(sizes: Mapping[str, int]) -> int:
        key = tuple(sizes.values())
        if key not in known:
            module = load_module(data, path, opened.at(sizes, options))
            prepared = prepare(module, rules, in_place=True)
            known[key] = required_as_given(module, prepared, opening).total
        return known[key]

    points = distinct(sizes_at(opened, part / (_POINTS - 1)) for part in range(_POINTS))
    runs = rules.orders_itself and path != STANDARD_STREAM
    processes = _ProcessSizes(Path(path) if runs else None, requested, seed)
    for sizes in sorted(points, key=requested):
        processes.measure(sizes)
    if runs and not processes.measured:
        raise UsageError(
            f"the model cannot be run here even at {dict(points[0])}: it would take too much memory",
            code="too-large-to-run",
        )
    fitting: Mapping[str, int] | None = points[-1]
    if most is not None:
        fitting = _largest_measured(opened, points, processes, most)
    at = fitting or points[0]
    shown = distinct(sorted([*points, *([fitting] if fitting else [])], key=requested))
    growth = [
        GrowthRow(tensor=name, expression=told, size_bytes=size)
        for name, told, size in opened.growth(points[-1])[:ROWS_SHOWN]
    ]
    section = CurveSection(
        rows=tuple(processes.row(sizes) for sizes in shown),
        largest_sizes=None if fitting is None else dict(fitting),
        growth=tuple(growth),
    )
    whole = max(map(processes.take, points))
    return Curve(opened.at(at, options), Requirement(processes.take(at)), Requirement(whole), section)


def _bytes_permitted(options: LoadOptions, budget: int | Percentage | None) -> int | None:
    """Return the budget in bytes, where it and what is stated of the model go together with a range."""
    if options.input_shapes or options.observed is not None:
        raise UsageError(
            "--dim with a range takes no --shape and no --shapes-from-run",
            code="option-conflict",
            action="name all dimensions with --dim",
        )
    if isinstance(budget, Percentage):
        raise UsageError(f"--dim with a range takes a budget in bytes, not {budget}", code="option-conflict")
    return budget


def _largest_measured(
    opened: OpenModel, points: Sequence[Mapping[str, int]], processes: _ProcessSizes, budget: int
) -> Mapping[str, int] | None:
    """Return the largest size that fits, measured where it can be run; None where not even the least fits."""

    def fits(sizes: Mapping[str, int]) -> bool:
        return processes.take(sizes) <= budget

    fitting: Mapping[str, int] | None = None
    for _ in range(_CHANCES):
        fitting = _largest(opened, points, fits)
        if fitting is None:
            return None
        known = len(processes.measured)
        processes.measure(fitting)
        if len(processes.measured) == known:
            break
    if fitting is not None and fits(fitting):
        return fitting
    # Each size between two that were looked at took more than foreseen.
    below = points[: _fitting(points, fits)]
    return below[-1] if below else None


def _fitting(points: Sequence[Mapping[str, int]], fits: Callable[[Mapping[str, int]], bool]) -> int:
    """Return how many sizes fit, from the least on, until one does not."""
    return next((number for number, sizes in enumerate(points) if not fits(sizes)), len(points))


def _largest(
    opened: OpenModel, points: Sequence[Mapping[str, int]], fits: Callable[[Mapping[str, int]], bool]
) -> Mapping[str, int] | None:
    """Return the largest size that fits, by halving between those that were looked at; None where none does."""
    high = _fitting(points, fits)
    if high in {0, len(points)}:
        return points[-1] if high else None
    best, beyond = points[high - 1], points[high]
    while True:
        between = {name: opened.ranges[name].nearest((best[name] + beyond[name]) // 2) for name in best}
        if between in (best, beyond):
            return best
        best, beyond = (between, beyond) if fits(between) else (best, between)
