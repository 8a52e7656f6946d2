"""``--dim NAME=1..8192``: a file for every size in a range, whose large values are computed in loops over blocks.

Which loops are written is decided by measurement: both files are run without options in fresh processes, at the largest
size that is not out of proportion and at a small one, and their outputs are compared at sizes of every kind.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memsched.commands.optimize.place import Request, place, prepare
from memsched.commands.optimize.report import Outcome, build
from memsched.commands.results import OptimizeResult
from memsched.errors import UsageError
from memsched.formats.blocks import BlockPoint, OpenModel, Range
from memsched.formats.files import load_module
from memsched.formats.known import format_in, format_of
from memsched.formats.module import LoadOptions
from memsched.formats.staging import STANDARD_STREAM
from memsched.report.outputs import TOLERANCE
from memsched.report.values.blocks import BlockLoopRow, BlocksSection, RangeRow, SizeRow
from memsched.runtimes.known import runtime_of
from memsched.runtimes.onnxruntime.ranged import AtSize, RangedRun, TimeRatio, compare_at, draw_at, race, run_on
from memsched.runtimes.output import Guarantee, ModelBytes
from memsched.runtimes.runtime import Requirement
from memsched.runtimes.values import Verification
from memsched.targets.load import default_target, load_target
from memsched.units import Percentage

__all__ = ["RangeRequest", "optimize_over_sizes"]

_LARGEST_VALUE: Final = 768 << 20
"""Bytes of a value of the model as given, at the largest size at which it is run."""

_SMALL: Final = 512
"""The length at which a file must be no worse than the one given, where no value is larger than `_SMALL_VALUE` then."""

_SHORT: Final = 64
"""The length at which a file must be no slower, too: what is spent on each block, or on each weight, shows there."""

_SMALL_VALUE: Final = 32 << 20
_SPARE_WORK: Final = 1.1
"""Files whose arithmetic is more than permitted by this factor are not tried."""

_LENGTHS: Final = (1, 2, 3, 7, 16, 31, 64, 97, 131, 257, 509)
"""At which outputs are compared, beside both ends and the largest size that is measured; primes among them."""

_COMPARED_VALUE: Final = 64 << 20
"""Bytes of a value at sizes at which outputs are compared, but for the largest one: there are many."""

_LARGE_ROUNDS, _SMALL_ROUNDS, _SHORT_ROUNDS = 2, 10, 30
_CHANCES: Final = 3
_SLOW: Final = 2.0
"""Seconds of a run that what else a machine does disturbs little."""

_MOST_MEMORY: Final = 1.15
_MOST_TIME: Final = 1.1
"""What a file may take at a small size, as a multiple of what the one given takes."""

_SPARE_BYTES: Final = 4 << 20
"""By so much processes differ from run to run."""

_LEEWAY: Final = 2.0
"""How many times as far as the model as given a file may be from what that computes without the runtime's rewrites."""

_NOTHING_GROWS: Final = "nothing grows with these dimensions so that loops over blocks are worth it"


@dataclass(frozen=True, slots=True)
class RangeRequest:
    """What `optimize_over_sizes` is told beside the model.

    Attributes:
        ranges: Dimensions that stay open.
        target: Name of a target, or path of its file; None: the format's.
        budget: Of the process, at the largest size that is measured; None for none.
        slowdown: Time that may be added there, in percent; None for any.
        output: Path that the report names.
    """

    ranges: Mapping[str, Range]
    target: str | None
    in_place: bool
    budget: int | Percentage | None
    slowdown: float | None
    verify: bool
    seed: int
    output: str | None


@dataclass(frozen=True, slots=True)
class _GivenFile:
    """The model as given.

    Attributes:
        folder: Where its weights lie; None where it holds them.
    """

    path: Path
    folder: Path | None


@dataclass(frozen=True, slots=True)
class _BlockFile:
    """A file and what it took, beside the model as given.

    Attributes:
        leeway: How many times as far as the model as given it may be from accurate outputs.
    """

    point: BlockPoint
    model: bytes
    large: RangedRun
    small: RangedRun
    times: tuple[TimeRatio, ...]
    compared: tuple[AtSize | None, ...]
    leeway: float

    def is_right(self) -> bool:
        return all(one is None or _is_right(one, self.leeway) for one in self.compared)


def _is_right(one: AtSize, leeway: float) -> bool:
    """Whether outputs are equal, or no further from accurate ones than those of the model as given.

    The runtime's rewrites alone move saturated outputs, such as probabilities near 0, by more than what is permitted.
    """
    if one.equal or (one.error is not None and one.error <= TOLERANCE):
        return True
    return (
        one.apart is not None and one.given_apart is not None and one.apart <= max(leeway * one.given_apart, TOLERANCE)
    )


def _distance(one: AtSize) -> float:
    """Return the error of outputs, beside accurate ones where those of the model as given are further from them."""
    return (one.error or 0.0) if one.apart is None else one.apart


@dataclass(frozen=True, slots=True)
class _RangeMeasurement:
    """The model as given, and the file that is best; None where none is better.

    Attributes:
        sizes: At which outputs were compared.
    """

    runtime: str
    large_sizes: Mapping[str, int]
    small_sizes: Mapping[str, int]
    large: RangedRun
    small: RangedRun
    sizes: tuple[Mapping[str, int], ...]
    best: _BlockFile | None
    notes: tuple[str, ...] = ()


def optimize_over_sizes(
    data: bytes, path: str, options: LoadOptions, request: Request, asked: RangeRequest
) -> OptimizeResult:
    """Return a model that holds for every size in some ranges and needs less memory; the one given where none is found.

    Args:
        data: The model, read from ``path``.
        options: What is stated of sizes that do not stay open; they are fixed in the file.

    Raises:
        MemschedError: The subclass and its message say which file or option is at fault.
    """
    rules = load_target(asked.target or default_target(format_in(data).name))
    if rules.default_order != "onnxruntime":
        raise UsageError(f"--dim with a range is for --target onnxruntime, not for '{rules.name}'")
    if path == STANDARD_STREAM or not asked.verify:
        raise UsageError("--dim with a range chooses by measurement: it takes a file, and no --no-verify")
    if options.input_shapes:
        raise UsageError("--dim with a range takes no --input-shape: name the other dimensions with --dim")
    opened = format_in(data).open_model(data, path, options.dims, asked.ranges)
    large = _measurable(opened, options.dims)
    module = load_module(data, path, _stated(opened, options, large))
    prepared = prepare(module, rules, in_place=asked.in_place)
    given_file = _GivenFile(Path(path), Path(path).parent if format_of(module).external_files(module) else None)
    measured = _measure(opened, given_file, large, asked)
    placed = place(module, prepared, dataclasses.replace(request, solver="file"))
    best, given = measured.best, measured.large.process
    needed = given if best is None else best.large.process
    written = ModelBytes(data, True, Guarantee("none"))
    if best is not None:
        written = ModelBytes(best.model, False, Guarantee("none"), fixed=dict(options.dims))
    main = placed.plans[0]
    budget = asked.budget.of(given) if isinstance(asked.budget, Percentage) else asked.budget
    outcome = Outcome(
        *("optimize", module, prepared, placed.plans, placed.allocation, budget, written, asked.output),
        verification=_verification(measured),
        notes=measured.notes,
        interrupted=request.stopped(),
        requirement=(Requirement(given), Requirement(needed)),
        runtime=runtime_of(module, prepared.target).name,
        session=(given, needed),
        blocks=_section(opened, measured),
    )
    report = build(outcome, seed=asked.seed, seconds=time.monotonic() - request.run.started)
    return OptimizeResult(
        model=written.model,
        report=report,
        schedule=main.schedule,
        allocation=placed.allocation,
        module=module,
        graph=main.graph,
        verification=outcome.verification,
        budget_met=None if report.values.budget is None else report.values.budget.met,
        interrupted=request.stopped(),
    )


def _measurable(opened: OpenModel, fixed: Mapping[str, int]) -> dict[str, int]:
    """Return the largest size whose largest value is in proportion; dimensions of which nothing is stated are least."""
    most = {name: span.most if span.named else span.least for name, span in opened.ranges.items() if name not in fixed}
    return _shrunk(opened, most, _LARGEST_VALUE)


def _shrunk(opened: OpenModel, most: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return a size at which no value is larger than ``limit``: halves of ``most``, as far as it takes."""
    part = 1.0
    while True:
        sizes = {name: opened.ranges[name].nearest(round(size * part)) for name, size in most.items()}
        if opened.largest(sizes) <= limit or part < 1e-4:
            return sizes
        part /= 2


def _stated(opened: OpenModel, options: LoadOptions, sizes: Mapping[str, int]) -> LoadOptions:
    """Return what states every size of the model, to read it at ``sizes``."""
    named = {name: size for name, size in sizes.items() if "[" not in name}
    if len(named) < len(opened.ranges):
        unnamed = next(name for name in opened.ranges if name not in named)
        raise UsageError(f"--dim with a range is for dimensions with names: '{unnamed}' has none")
    return dataclasses.replace(options, dims={**options.dims, **named})


def _measure(
    opened: OpenModel, given: _GivenFile, large_sizes: Mapping[str, int], asked: RangeRequest
) -> _RangeMeasurement:
    """Run the model as given and every file that loops give, and choose."""
    shorter = {name: min(size, opened.ranges[name].nearest(_SMALL)) for name, size in large_sizes.items()}
    small_sizes = _shrunk(opened, shorter, _SMALL_VALUE)
    every = opened.points()
    most = _SPARE_WORK * _most_times(asked.slowdown)[0]
    points = [point for point in every if point.work <= most]
    notes = [] if every else [_NOTHING_GROWS]
    coarser = opened.coarser()
    if coarser > 1:
        told = " ".join(
            f"--dim {name}={span.least}..{span.most}:{coarser}" for name, span in opened.ranges.items() if span.named
        )
        notes.append(f"less memory is possible for multiples of {coarser} alone: {told}")
    notes += [f"not tried {one.name}: --max-slowdown permits less" for one in every if one.work > most]
    beyond = [
        name for name, size in large_sizes.items() if opened.ranges[name].named and size < opened.ranges[name].most
    ]
    if beyond:
        told = ", ".join(f"{name} = {large_sizes[name]:,}" for name in beyond)
        notes.append(f"measured at {told}: at larger sizes the model as given takes gigabytes")
    sizes = _sizes(opened, large_sizes)
    with tempfile.TemporaryDirectory(prefix="memsched-") as held:
        feeds = [Path(held, "large.npz"), Path(held, "small.npz")]
        first = _ran(given.path, large_sizes, feeds[0], asked.seed)
        second = _ran(given.path, small_sizes, feeds[1], asked.seed, usual=True)
        short_sizes = {name: min(size, opened.ranges[name].nearest(_SHORT)) for name, size in small_sizes.items()}
        if short_sizes != small_sizes:
            feeds.append(Path(held, "short.npz"))
            draw_at(given.path, short_sizes, feeds[2], seed=asked.seed)
        files = [Path(held, f"{number}.onnx") for number in range(len(points))]
        models = [point.build() for point in points]
        for file, model in zip(files, models, strict=True):
            file.write_bytes(model)
        accurate = _stored(opened.accurate(), Path(held, "accurate.onnx"))
        runtime, compared = compare_at(
            [given.path, *files],
            sizes,
            seed=asked.seed,
            folder=given.folder,
            accurate=accurate,
            tolerance=TOLERANCE,
        )
        tried: list[_BlockFile] = []
        for number, (file, point) in enumerate(zip(files, points, strict=True)):
            block_file = _tried(given, file, feeds, asked.slowdown)
            if isinstance(block_file, str):
                notes.append(f"not written {point.name}: {block_file}")
                continue
            outputs = tuple(row[number] if row else None for row in compared)
            leeway = _LEEWAY if accurate is None else 1.0
            tried.append(_BlockFile(point, models[number], *block_file, outputs, leeway))
    notes += [f"not written {one.point.name}: outputs differ" for one in tried if not one.is_right()]
    good = [one for one in tried if one.is_right() and _is_better(one, first, second, asked.slowdown)]
    best = min(good, key=lambda one: one.large.process, default=None)
    notes += [_refused(one, first) for one in tried if one.is_right() and one not in good]
    return _RangeMeasurement(runtime, large_sizes, small_sizes, first, second, tuple(sizes), best, tuple(notes))


def _stored(model: bytes | None, path: Path) -> Path | None:
    if model is None:
        return None
    path.write_bytes(model)
    return path


def _tried(
    given: _GivenFile, file: Path, feeds: Sequence[Path], slowdown: float | None
) -> tuple[RangedRun, RangedRun, tuple[TimeRatio, ...]] | str:
    """Return what a file takes at the large and the small size, and its times beside the model as given; or why not.

    Args:
        feeds: Of the large size, the small one, and of one that is timed alone if there is one.
    """
    runs = run_on(file, feeds[0], folder=given.folder), _usual_run(file, given.folder, feeds[1])
    limits = _most_times(slowdown)
    times: list[TimeRatio] = []
    for size, rounds, most in zip(
        feeds, (_LARGE_ROUNDS, _SMALL_ROUNDS, _SHORT_ROUNDS), (*limits, limits[1]), strict=False
    ):
        found = _raced(given, file, size, rounds, most)
        if isinstance(found, str):
            return found
        times.append(found)
    if isinstance(runs[0], str) or isinstance(runs[1], str):
        return runs[0] if isinstance(runs[0], str) else str(runs[1])
    return runs[0], runs[1], tuple(times)


def _usual_run(path: Path, folder: Path | None, feeds: Path) -> RangedRun | str:
    """Return the run of several whose process takes the middle: what opening a session takes is partly chance."""
    found: list[RangedRun] = []
    for _ in range(_CHANCES):
        one = run_on(path, feeds, folder=folder)
        if isinstance(one, str):
            return one
        found.append(one)
    return sorted(found, key=lambda one: one.process)[len(found) // 2]


def _raced(given: _GivenFile, file: Path, feeds: Path, rounds: int, most: float) -> TimeRatio | str:
    """Return a file's time beside the model as given; a busy machine gets several chances to show that it is quick."""
    best: TimeRatio | str = "it was not run"
    for _ in range(_CHANCES):
        found = race(given.path, file, feeds, rounds=rounds, folder=given.folder)
        if isinstance(found, str):
            return found
        if isinstance(best, str) or found.ratio < best.ratio:
            best = found
        if best.ratio <= most or best.first > _SLOW:
            break
    return best


def _most_times(slowdown: float | None) -> tuple[float, float]:
    """Return how many times as long a file may take at the large and at the small size.

    Where much is permitted, short runs may take longer: loops compute again there as well, and gain nothing.
    """
    most = float("inf") if slowdown is None else 1 + slowdown / 100
    return most, max(2 * most - _MOST_TIME, _MOST_TIME)


def _ran(path: Path, sizes: Mapping[str, int], feeds: Path, seed: int, *, usual: bool = False) -> RangedRun:
    """Store inputs in ``feeds``, and return what the model as given takes on them.

    Args:
        usual: By several runs.
    """
    draw_at(path, sizes, feeds, seed=seed)
    found = _usual_run(path, None, feeds) if usual else run_on(path, feeds)
    if isinstance(found, str):
        told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        raise UsageError(f"the model as given does not run at {told}: {found}")
    return found


def _is_better(one: _BlockFile, large: RangedRun, small: RangedRun, slowdown: float | None) -> bool:
    """Whether a file takes less at the large size, in time, and no more to speak of at the small one."""
    most = _most_times(slowdown)
    return (
        one.large.process < large.process
        and one.times[0].ratio <= most[0]
        and one.small.process <= _most_small(small)
        and all(times.ratio <= most[1] for times in one.times[1:])
    )


def _refused(one: _BlockFile, large: RangedRun) -> str:
    """Return why a file that is right is not written."""
    took = f"{one.large.process / 1e6:,.0f} MB at {one.times[0].ratio:.2f} x the time"
    small = f"{one.times[1].ratio:.2f} x and {one.small.process / 1e6:,.0f} MB at the small size"
    small += "".join(f", {times.ratio:.2f} x at a short one" for times in one.times[2:])
    if one.large.process >= large.process:
        return f"not written {one.point.name}: needs no less ({took})"
    return f"not written {one.point.name}: takes longer than --max-slowdown permits, or more memory ({took}; {small})"


def _most_small(given: RangedRun) -> float:
    """Return the bytes that a file may take at the small size."""
    return _MOST_MEMORY * given.process + _SPARE_BYTES


def _sizes(opened: OpenModel, large: Mapping[str, int]) -> list[Mapping[str, int]]:
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


def _verification(measured: _RangeMeasurement) -> Verification | None:
    """Return what the comparison showed of the file that is written; None where that is the one given."""
    best = measured.best
    if best is None:
        return None
    compared = [one for one in best.compared if one is not None]
    return Verification(
        runtime=measured.runtime,
        runs=len(compared),
        outputs_equal=all(one.equal for one in compared),
        max_abs_error=None,
        measured_peak_before_bytes=None,
        measured_peak_after_bytes=None,
        executed_order_matches=None,
        reason=None,
        relative_error=max((_distance(one) for one in compared), default=0.0),
    )


def _section(opened: OpenModel, measured: _RangeMeasurement) -> BlocksSection:
    """Return the report's section on ranges, loops and sizes."""
    best = measured.best
    ranges = [
        RangeRow(dimension=name, least=span.least, most=span.most if span.named else None, multiple=span.multiple)
        for name, span in opened.ranges.items()
    ]
    return BlocksSection(
        ranges=tuple(ranges),
        way=None if best is None else best.point.name,
        loops=() if best is None else tuple(_loop(row.name, row.dimension, row.ops) for row in best.point.rows),
        measured=(
            _size_row(measured.large_sizes, measured.large, None if best is None else (best.large, best.times[0])),
            _size_row(measured.small_sizes, measured.small, None if best is None else (best.small, best.times[1])),
        ),
        compared=tuple(dict(one) for one in measured.sizes) if best is not None else (),
    )


def _loop(name: str, dimension: str, ops: Sequence[str]) -> BlockLoopRow:
    return BlockLoopRow(name=name, dimension=dimension, ops=tuple(ops))


def _size_row(sizes: Mapping[str, int], given: RangedRun, written: tuple[RangedRun, TimeRatio] | None) -> SizeRow:
    if written is None:
        return SizeRow(
            sizes=dict(sizes),
            given_process_bytes=max(0, given.process),
            process_bytes=None,
            given_seconds=round(given.seconds, 6),
            seconds=None,
            time_ratio=None,
        )
    run, times = written
    return SizeRow(
        sizes=dict(sizes),
        given_process_bytes=max(0, given.process),
        process_bytes=max(0, run.process),
        given_seconds=round(times.first, 6),
        seconds=round(times.second, 6),
        time_ratio=round(times.ratio, 3),
    )
