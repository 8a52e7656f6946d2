"""``analyze --dim NAME=64..8192``: how much memory a model takes at which size, and the largest size that fits.

What a session without options requests follows from the model at every size. What its process takes is measured at
three sizes that are small enough, in fresh processes: the rest lies on the lines through these.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from memsched.commands.optimize.place import prepare, required_as_given
from memsched.errors import UsageError
from memsched.formats.blocks import OpenModel, Range
from memsched.formats.files import load_module
from memsched.formats.known import format_in
from memsched.formats.module import LoadOptions
from memsched.formats.staging import STANDARD_STREAM
from memsched.report.values.blocks import CurveRow, CurveSection, GrowthRow
from memsched.runtimes.onnxruntime.ranged import run_at
from memsched.runtimes.runtime import AS_TOLD, Opening, Requirement
from memsched.targets.model import Target
from memsched.units import Percentage

__all__ = ["Curve", "find_curve"]

_POINTS: Final = 9
_REFINED: Final = 7
"""Sizes that are looked at, and those that are tried between the last that fits and the first that does not."""

_MOST_RUN: Final = 256 << 20
"""Bytes that a session requests at the largest size that is run."""

_LEAST_APART: Final = 3
"""Sizes that are run differ by so much in what is requested, at least."""

_LISTED: Final = 5


@dataclass(frozen=True, slots=True)
class Curve:
    """Memory against size.

    Attributes:
        dims: The lengths of all open dimensions at the largest size that fits; without a budget at the largest of all.
        required: What is required there: of the process where it was measured, else of activations.
    """

    dims: Mapping[str, int]
    required: Requirement
    section: CurveSection


@dataclass(frozen=True, slots=True)
class _ProcessLine:
    """What a process takes, as a function of what its session requests: straight between measured points, and beyond.

    Attributes:
        points: Bytes requested, rising, and of the process; none where it is what is requested.
    """

    points: tuple[tuple[int, int], ...] = ()

    def at(self, requested: int) -> int:
        """Return the bytes of the process."""
        if len(self.points) < 2:
            return requested + sum(process - known for known, process in self.points)
        pairs = list(itertools.pairwise(self.points))
        (low, less), (high, more) = next((pair for pair in pairs if requested <= pair[1][0]), pairs[-1])
        return round(less + (requested - low) * max(0, more - less) / (high - low))


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
    if options.input_shapes or options.observed is not None:
        raise UsageError("--dim with a range takes no --input-shape and no --shapes-from-run: name all with --dim")
    if isinstance(budget, Percentage):
        raise UsageError(f"--dim with a range takes a budget in bytes, not {budget}")
    opened = format_in(data).open_model(data, path, options.dims, ranges)
    unnamed = [name for name in opened.ranges if "[" in name]
    if unnamed:
        raise UsageError(f"--dim with a range is for dimensions with names: '{unnamed[0]}' has none")
    opening = Opening("default") if rules.default_order == "onnxruntime" else AS_TOLD
    known: dict[tuple[int, ...], int] = {}

    def requested(sizes: Mapping[str, int]) -> int:
        key = tuple(sizes.values())
        if key not in known:
            module = load_module(data, path, replace(options, dims={**options.dims, **sizes}))
            prepared = prepare(module, rules, in_place=True)
            known[key] = required_as_given(module, prepared, opening).total
        return known[key]

    points = _distinct(_sizes(opened, part / (_POINTS - 1)) for part in range(_POINTS))
    line, ran = _fitted(Path(path), path, points, requested, rules, seed)
    fitting: Mapping[str, int] | None = points[-1]
    if budget is not None:
        fitting = _largest(opened, points, lambda sizes: line.at(requested(sizes)) <= budget)
    shown = _distinct(sorted([*points, *([fitting] if fitting else [])], key=requested))
    at = fitting or points[0]
    rows = [
        CurveRow(
            sizes=dict(sizes),
            requested_bytes=requested(sizes),
            process_bytes=line.at(requested(sizes)) if ran else None,
            measured_bytes=ran.get(tuple(sizes.values())),
        )
        for sizes in shown
    ]
    growth = [
        GrowthRow(tensor=name, expression=told, size_bytes=size)
        for name, told, size in opened.growth(points[-1])[:_LISTED]
    ]
    section = CurveSection(
        rows=tuple(rows), largest_sizes=None if fitting is None else dict(fitting), growth=tuple(growth)
    )
    return Curve({**options.dims, **at}, Requirement(line.at(requested(at))), section)


def _sizes(opened: OpenModel, part: float) -> dict[str, int]:
    """Return a size between the least (0) and the largest (1), along a geometric row."""
    return {
        name: span.nearest(round(span.least * (span.most / span.least) ** part) if span.named else span.least)
        for name, span in opened.ranges.items()
    }


def _distinct(sizes: Iterable[Mapping[str, int]]) -> list[Mapping[str, int]]:
    return list({tuple(one.values()): one for one in sizes}.values())


def _fitted(
    file: Path,
    path: str,
    points: Sequence[Mapping[str, int]],
    requested: Callable[[Mapping[str, int]], int],
    rules: Target,
    seed: int,
) -> tuple[_ProcessLine, dict[tuple[int, ...], int]]:
    """Return the line, and what was measured at which size; the one of activations alone where nothing can be run."""
    if rules.default_order != "onnxruntime" or path == STANDARD_STREAM:
        return _ProcessLine(), {}
    small = [one for one in points if requested(one) <= _MOST_RUN] or [points[0]]
    last = small[-1]
    middle = next((one for one in reversed(small) if _LEAST_APART * requested(one) <= requested(last)), last)
    measured: dict[int, int] = {}
    ran: dict[tuple[int, ...], int] = {}
    for sizes in _distinct([points[0], middle, last]):
        found = run_at(file, sizes, seed=seed)
        if isinstance(found, str):
            raise UsageError(f"the model does not run at {dict(sizes)}: {found}")
        measured[requested(sizes)] = ran[tuple(sizes.values())] = found.process
    return _ProcessLine(tuple(sorted(measured.items()))), ran


def _largest(
    opened: OpenModel, points: Sequence[Mapping[str, int]], fits: Callable[[Mapping[str, int]], bool]
) -> Mapping[str, int] | None:
    """Return the largest size that fits, by halving between those that were looked at; None where none does."""
    low, high = -1, len(points)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(points[middle]) else (low, middle)
    if low < 0 or high == len(points):
        return None if low < 0 else points[-1]
    best, beyond = points[low], points[high]
    for _ in range(_REFINED):
        between = {name: opened.ranges[name].nearest((best[name] + beyond[name]) // 2) for name in best}
        if between in (best, beyond):
            break
        best, beyond = (between, beyond) if fits(between) else (best, between)
    return best
