"""Files for every size, tried beside the model as given: what they take, how long, and whether outputs agree.

Files are tried from the one that takes least memory at the largest size. The first that is right, quick, and no larger
at a short length is the best, so that the others are not timed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.commands.failures import Failures
from memsched.commands.optimize.measured_sizes import RangedSizes, seconds_to_judge
from memsched.commands.optimize.time_at_sizes import SlowFile, most_at_sizes
from memsched.formats.blocks import BlockPoint, OpenModel
from memsched.formats.capabilities import WeightPlacement
from memsched.formats.format import Format
from memsched.formats.known import capability
from memsched.report.outputs import TOLERANCE
from memsched.runtimes.child import ChildEndedError, children_until
from memsched.runtimes.known import ranged
from memsched.runtimes.measure import LEAST_RUNS, PROCESSES, Measured, middle
from memsched.runtimes.ranged import AtSize, TimeRatio
from memsched.runtimes.special import judged
from memsched.search.run import Run

__all__ = [
    "ENDED",
    "BlockFile",
    "GivenFile",
    "RangedTrials",
    "distance",
    "try_order",
    "try_points",
]

ENDED: Final = "the search was ended before it was through: a longer --time-limit may find more"
"""What is said if a limit or a user ended the trials."""

_LARGE_ROUNDS, _SMALL_ROUNDS, _SHORT_ROUNDS = 2, 10, 30
_SLOW: Final = 2.0
"""Seconds of a run that what else a machine does disturbs little."""

_BUSY: Final = 1.1
"""A thread that takes so many times as long as it computes shares its processor with others."""

_MOST_MEMORY: Final = 1.15
"""What a file may take at a small size, as a multiple of what the one given takes."""

_SPARE_BYTES: Final = 4 << 20
"""By so much processes differ from run to run."""

_LEEWAY: Final = 2.0
"""How many times as far as the model as given a file may be from what that computes without the runtime's rewrites."""

BUSY_NOTE: Final = "other programs used the processor: times are what sessions with one thread computed"


class GivenFile(FrozenValue, frozen=True):
    """The model as given.

    Attributes:
        folder: Where its weights lie; None where it holds them.
        form: Its format.
    """

    path: Path
    folder: Path | None
    form: Format


class BlockFile(FrozenValue, frozen=True):
    """A file and what it took, beside the model as given.

    Attributes:
        point: What was rewritten; None where only the order of the operators is another.
        times: At the large size and at the small one.
        runtime: In which outputs were compared.
        special: What `memsched.runtimes.special.judged` says of special values.
    """

    point: BlockPoint | None
    model: bytes
    large: Measured
    small: Measured
    times: tuple[TimeRatio, TimeRatio]
    compared: tuple[AtSize | None, ...]
    runtime: str
    special: Mapping[str, Any]


class RangedTrials(FrozenValue, frozen=True):
    """The model as given, and the file that is best; None where none is better.

    Attributes:
        notes: Why others are not written.
        ended: A limit or a user ended the trials before they were through.
        slow: The least of the files that take more time than is permitted, with its name; None if there is none.
    """

    sizes: RangedSizes
    large: Measured
    small: Measured
    best: BlockFile | None
    notes: tuple[str, ...] = ()
    ended: bool = False
    slow: tuple[str, SlowFile] | None = None


class _PointFile(FrozenValue, frozen=True):
    """A file that is tried."""

    point: BlockPoint | None
    path: Path
    large: Measured


@dataclass(slots=True)
class _PointTrial:
    """What files are tried with.

    Attributes:
        feeds: Inputs of the large size, of the small one, and of the short one where that is another.
        large, short: What the model as given takes, at the large size, and at the small one and the short one.
        mixed: What it takes where all sizes take turns, as every new one may add memory.
        busy: Whether a time was the processor's.
    """

    given: GivenFile
    feeds: Sequence[Path]
    sizes: RangedSizes
    seed: int
    slowdown: float | None
    large: Measured
    mixed: Measured
    short: Sequence[Measured]
    accurate: Path | None
    busy: bool = field(default=False)

    def turns(self) -> tuple[Sequence[Path], Sequence[Path]]:
        """Return what takes turns with the large size: nothing, and all other sizes."""
        return _turns(self.feeds)


def _turns(feeds: Sequence[Path]) -> tuple[Sequence[Path], Sequence[Path]]:
    return (), tuple(reversed(feeds[1:]))


def _peak(run: Measured) -> int:
    return run.peak


def distance(one: AtSize) -> float:
    """Return the error of outputs, beside accurate ones where those of the model as given are further from them."""
    return (one.error or 0.0) if one.apart is None else one.apart


def try_points(
    opened: OpenModel,
    given: GivenFile,
    points: Sequence[BlockPoint],
    sizes: RangedSizes,
    seed: int,
    slowdown: float | None,
    run: Run,
    judging: Run,
    failures: Failures,
) -> RangedTrials:
    """Run the model as given and the files of ``points`` until ``run`` is over, and choose until ``judging`` is.

    Raises:
        UsageError: The model as given does not run.
    """
    notes: list[str] = []
    best: BlockFile | None = None
    slow: tuple[str, SlowFile] | None = None
    with tempfile.TemporaryDirectory(prefix="memsched-") as held:
        folder = Path(held)
        trial = _trial(opened, given, sizes, seed, slowdown, folder)
        ended = False
        try:
            ranked, ended = _by_memory(trial, points, folder, notes, _ranking(trial, run, judging), failures)
            for point, file in ranked:
                if judging.over():
                    raise ChildEndedError
                with failures.left_out(point.name), children_until(judging.over):
                    found = _tried(trial, _lightest(trial, file))
                    if isinstance(found, BlockFile):
                        best = found
                        break
                    if isinstance(found, SlowFile) and (slow is None or found.peak < slow[1].peak):
                        slow = point.name, found
                    notes.append(f"not written {point.name}: {found}")
        except ChildEndedError:
            notes.append(ENDED)
            ended = True
    notes += [BUSY_NOTE] if trial.busy else []
    large = max(trial.large, trial.mixed, key=_peak)
    return RangedTrials(sizes, large, trial.short[0], best, tuple(notes), ended, slow)


def try_order(
    opened: OpenModel, given: GivenFile, before: RangedTrials, model: bytes, seed: int, slowdown: float | None
) -> BlockFile | str:
    """Run the best file so far in another order of its operators; return what it takes, or why it is not written.

    Args:
        before: What was tried before, the best of it in its own order.
    """
    best = before.best
    least = before.large if best is None else best.large
    with tempfile.TemporaryDirectory(prefix="memsched-") as held:
        folder = Path(held)
        trial = _trial(opened, given, before.sizes, seed, slowdown, folder)
        path = folder / "ordered.onnx"
        path.write_bytes(model)
        run = _usual_run(path, given.folder, trial.feeds[0])
        if isinstance(run, str):
            return run
        if run.peak > least.peak + _SPARE_BYTES:
            return f"{run.peak / 1e6:,.0f} MB, and {least.peak / 1e6:,.0f} MB in the order of the file"
        found = _tried(trial, _PointFile(None if best is None else best.point, path, run))
        return str(found) if isinstance(found, SlowFile) else found


def _trial(
    opened: OpenModel, given: GivenFile, sizes: RangedSizes, seed: int, slowdown: float | None, folder: Path
) -> _PointTrial:
    """Run the model as given, and return what files are tried with; inputs are kept in ``folder``."""
    feeds = [folder / "large.npz", folder / "small.npz"]
    ranged.draw_at(given.path, sizes.large, feeds[0], seed=seed)
    short = [_ran(given.path, sizes.small, feeds[1], seed)]
    if sizes.short != sizes.small:
        feeds.append(folder / "short.npz")
        short.append(_ran(given.path, sizes.short, feeds[2], seed))
    run = partial(ranged.run_on, given.path, feeds[0])
    large, mixed = (_checked(run(beside=one), sizes.large) for one in _turns(feeds))
    accurate = _stored(opened.accurate(), folder / "accurate.onnx")
    return _PointTrial(given, feeds, sizes, seed, slowdown, large, mixed, short, accurate)


def _ranking(trial: _PointTrial, run: Run, judging: Run) -> Run:
    """Return ``run`` without the time that judging one file takes, where that is to end with it."""
    limit, ranked = judging.limits.time_limit, run.limits.time_limit
    if limit is None or ranked is None:
        return run
    left = min(ranked, limit - seconds_to_judge(trial.large.seconds(), trial.short[0].seconds()))
    return dataclasses.replace(run, limits=dataclasses.replace(run.limits, time_limit=max(0.0, left)))


def _stored(model: bytes | None, path: Path) -> Path | None:
    if model is None:
        return None
    path.write_bytes(model)
    return path


def _by_memory(
    trial: _PointTrial, points: Sequence[BlockPoint], folder: Path, notes: list[str], until: Run, failures: Failures
) -> tuple[list[tuple[BlockPoint, _PointFile]], bool]:
    """Return the files that need less than the model as given at the large size, the least first.

    Those that are not run until ``until`` is over are left out, and whether there are any is returned.
    """
    found: list[tuple[BlockPoint, _PointFile]] = []
    ended = False
    for number, point in enumerate(points):
        if until.over():
            notes.append(f"not tried {', '.join(one.name for one in points[number:])}: {ENDED}")
            ended = True
            break
        path = folder / f"{number}.onnx"
        run: Measured | str | None = None
        with contextlib.suppress(ChildEndedError), failures.left_out(point.name):
            path.write_bytes(point.build())
            with children_until(until.over):
                run = ranged.run_on(path, trial.feeds[0], folder=trial.given.folder, least=1)
        if run is None:
            continue
        if isinstance(run, str):
            notes.append(f"not written {point.name}: {run}")
        elif run.peak >= trial.large.peak:
            notes.append(f"not written {point.name}: needs no less ({run.peak / 1e6:,.0f} MB)")
        else:
            found.append((point, _PointFile(point, path, run)))
    return sorted(found, key=lambda one: one[1].large.peak), ended


def _lightest(trial: _PointTrial, file: _PointFile) -> _PointFile:
    """Return the file, or the same with its large weights first where that takes less to open."""
    before = file.path.read_bytes()
    after = capability(trial.given.form, WeightPlacement).weights_first(before)
    if after == before:
        return file
    path = file.path.with_suffix(".weights.onnx")
    path.write_bytes(after)
    large = ranged.run_on(path, trial.feeds[0], folder=trial.given.folder, least=LEAST_RUNS)
    found, known = (_runs(one, trial.given.folder, trial.feeds[-1]) for one in (path, file.path))
    if isinstance(large, str) or isinstance(found, str) or isinstance(known, str):
        return file
    # Some processes take much more than others do: the file is better of which none does.
    is_less = found[-1].peak < known[-1].peak - _SPARE_BYTES
    worse = large.peak > file.large.peak + _SPARE_BYTES
    return _PointFile(file.point, path, large) if is_less and not worse else file


def _tried(trial: _PointTrial, file: _PointFile) -> BlockFile | SlowFile | str:
    """Return what a file takes, where it is as it should be; else why it is not written."""
    large = _steady(trial, file)
    if isinstance(large, str):
        return large
    took = f"{large.peak / 1e6:,.0f} MB"
    short: list[Measured] = []
    for given, feeds, where in zip(trial.short, trial.feeds[1:], ("the small size", "a short one"), strict=False):
        run = _usual_run(file.path, trial.given.folder, feeds)
        if isinstance(run, str):
            return run
        if _is_more(run, given) and _is_more(*_even_runs(trial, file.path, feeds)):
            return f"{took}, but {run.peak / 1e6:,.0f} MB at {where}"
        short.append(run)
    limits = most_at_sizes(trial.slowdown)
    rounds = (_LARGE_ROUNDS, limits[0], ""), (_SMALL_ROUNDS, limits[1], " at the small size")
    times: list[TimeRatio] = []
    for place, (number, most, where) in enumerate((*rounds, (_SHORT_ROUNDS, limits[1], " at a short one"))):
        found = _raced(trial, file.path, place, number, most) if place < len(trial.feeds) else times[-1]
        if isinstance(found, str):
            return found
        if found.ratio > most:
            return SlowFile(large.peak, found.ratio, where)
        times.append(found)
    runtime, outputs = _compared(trial, file.path)
    if not all(one is None or _is_right(one, _LEEWAY if trial.accurate is None else 1.0) for one in outputs):
        return "outputs differ"
    special = _special(trial, file.path)
    if special["wrong"] is not None:
        return f"outputs differ {special['wrong']}"
    model, took_long = file.path.read_bytes(), (times[0], times[1])
    return BlockFile(file.point, model, large, short[0], took_long, outputs, runtime, special)


def _steady(trial: _PointTrial, file: _PointFile) -> Measured | str:
    """Return what a file takes at the large size at most, alone or in turns with others; or why it is not written."""
    alone, turns = trial.turns()
    if file.point is None:
        # Of another order the usual run is known; what it saves in small models is less than what chance adds.
        large: Measured | str = file.large
        most = trial.large.peak + _SPARE_BYTES
    else:
        large = ranged.run_on(file.path, trial.feeds[0], folder=trial.given.folder, beside=alone)
        most = trial.large.peak - 1
    mixed = ranged.run_on(file.path, trial.feeds[0], folder=trial.given.folder, beside=turns)
    if isinstance(large, str) or isinstance(mixed, str):
        return large if isinstance(large, str) else str(mixed)
    took = f"{large.peak / 1e6:,.0f} MB"
    if large.peak > most:
        return f"needs no less from some run on ({took})"
    if mixed.peak > trial.mixed.peak + _SPARE_BYTES:
        told = f"{mixed.peak / 1e6:,.0f} MB where sizes take turns"
        return f"{took}, but {told}, in which the model as given takes {trial.mixed.peak / 1e6:,.0f} MB"
    return max(large, mixed, key=_peak)


def _is_more(run: Measured, given: Measured) -> bool:
    return run.peak > _MOST_MEMORY * given.peak + _SPARE_BYTES


def _even_runs(trial: _PointTrial, path: Path, feeds: Path) -> tuple[Measured, Measured]:
    """Return runs of a file and of the model as given in processes that keep nothing of what they free.

    Whether the C library gives back what opening a session frees is chance, and of small models most of the memory.
    """
    folder = trial.given.folder
    found, given = (ranged.run_on(one, feeds, folder=folder, even=True) for one in (path, trial.given.path))
    if isinstance(found, str) or isinstance(given, str):
        raise UsageError(found if isinstance(found, str) else str(given), code="fails-at-inputs")
    return found, given


def _compared(trial: _PointTrial, path: Path) -> tuple[str, tuple[AtSize | None, ...]]:
    """Return the runtime's name, and how outputs compare at each size; None where the model as given does not run."""
    runtime, rows = ranged.compare_at(
        [trial.given.path, path],
        trial.sizes.compared,
        seed=trial.seed,
        folder=trial.given.folder,
        accurate=trial.accurate,
        tolerance=TOLERANCE,
    )
    return runtime, tuple(row[0] if row else None for row in rows)


def _special(trial: _PointTrial, path: Path) -> Mapping[str, Any]:
    """Return what outputs show on special values at the large and the small size, as `judged` says it."""
    found = ranged.special_at(
        (trial.given.path, path),
        list({tuple(one.items()): one for one in (trial.sizes.large, trial.sizes.small)}.values()),
        seed=trial.seed,
        folder=trial.given.folder,
        accurate=trial.accurate,
        tolerance=TOLERANCE,
    )
    return judged(()) if found is None else found


def _is_right(one: AtSize, leeway: float) -> bool:
    """Whether outputs are equal, or no further from accurate ones than those of the model as given.

    The runtime's rewrites alone move saturated outputs, such as probabilities near 0, by more than what is permitted.

    Args:
        leeway: How many times as far as the model as given a file may be from accurate outputs.
    """
    if one.equal or (one.error is not None and one.error <= TOLERANCE):
        return True
    return (
        one.apart is not None and one.given_apart is not None and one.apart <= max(leeway * one.given_apart, TOLERANCE)
    )


def _usual_run(path: Path, folder: Path | None, feeds: Path) -> Measured | str:
    """Return the run of several whose process takes the middle: what opening a session takes is partly chance."""
    found = _runs(path, folder, feeds)
    return found if isinstance(found, str) else middle(found)


def _runs(path: Path, folder: Path | None, feeds: Path) -> list[Measured] | str:
    """Return some runs in processes of their own, that whose process takes least first."""
    found: list[Measured] = []
    for _ in range(PROCESSES):
        one = ranged.run_on(path, feeds, folder=folder)
        if isinstance(one, str):
            return one
        found.append(one)
    return sorted(found, key=_peak)


def _raced(trial: _PointTrial, file: Path, place: int, rounds: int, most: float) -> TimeRatio | str:
    """Return a file's time beside the model as given, of the quickest of some chances.

    Threads that wait for each other lose more than their share of a processor that others use: where a thread alone
    takes longer than it computes, what it computes counts.
    """
    best: TimeRatio | None = None
    given, feeds = trial.given, trial.feeds[place]
    for _ in range(PROCESSES):
        alone = ranged.race(given.path, file, feeds, rounds=rounds, folder=given.folder, threads=1)
        if isinstance(alone, str):
            return alone
        found = alone.processor
        if alone.busy > _BUSY:
            trial.busy = True
        else:
            usual = ranged.race(given.path, file, feeds, rounds=rounds, folder=given.folder)
            if isinstance(usual, str):
                return usual
            found = usual.clock
        best = found if best is None or found.ratio < best.ratio else best
        if best.ratio <= most or best.first > _SLOW:
            break
    return best or "it was not run"


def _ran(path: Path, sizes: Mapping[str, int], feeds: Path, seed: int) -> Measured:
    """Store inputs in ``feeds``, and return what the model as given usually takes on them."""
    ranged.draw_at(path, sizes, feeds, seed=seed)
    return _checked(_usual_run(path, None, feeds), sizes)


def _checked(found: Measured | str, sizes: Mapping[str, int]) -> Measured:
    if isinstance(found, str):
        told = ", ".join(f"{name} = {size}" for name, size in sizes.items())
        raise UsageError(f"the model as given does not run at {told}: {found}", code="fails-at-inputs")
    return found
