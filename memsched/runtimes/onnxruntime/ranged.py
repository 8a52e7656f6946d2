"""Models with open dimensions in sessions without options, at several sizes, each in a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from memsched.base.errors import UsageError
from memsched.runtimes.child import LONG_TIMEOUT, run_in_child
from memsched.runtimes.measure import LITTLE_CHANCE, Measured, SteadyRule, measure, race_two
from memsched.runtimes.onnxruntime.session_memory import least_runs
from memsched.runtimes.onnxruntime.session_opener import SessionOpener
from memsched.runtimes.race import RaceRule
from memsched.runtimes.ranged import AtSize, RangedRace, TimeRatio
from memsched.runtimes.sessions import DEFAULT, SessionPoint

__all__ = ["compare_at", "draw_at", "race", "run_on", "runs_at", "special_at"]

_DRAW: Final = "memsched.runtimes.onnxruntime.ranged_process:draw"
_COMPARE: Final = "memsched.runtimes.onnxruntime.ranged_process:compare_sizes"
_SPECIAL: Final = "memsched.runtimes.onnxruntime.ranged_process:special_at_sizes"


def draw_at(path: Path, sizes: Mapping[str, int], file: Path, *, seed: int) -> None:
    """Store random inputs of a model at a size in ``file``.

    Raises:
        UsageError: There are none.
    """
    request = {"path": str(path.absolute()), "folder": None, "sizes": dict(sizes), "seed": seed, "file": str(file)}
    result = run_in_child(_DRAW, request, LONG_TIMEOUT)
    if not result.ok:
        problem = f"the model has no random inputs at {dict(sizes)}: {result.reason}"
        raise UsageError(problem, code="no-inputs-at-size")


def run_on(
    path: Path,
    feeds: Path,
    *,
    folder: Path | None = None,
    even: bool = False,
    beside: Sequence[Path] = (),
    least: int | None = None,
) -> Measured | str:
    """Return what a model takes on inputs that were stored, in a process of its own; or why it does not run.

    What it had before the runtime was imported is left out.

    Args:
        folder: Where weights lie that the file names, if not beside it.
        even: In a process that gives back what is freed at once, so that chance has no part in what it takes.
        beside: Inputs of other sizes, which take turns with these.
        least: Runs at least; None for what `least_runs` says.
    """
    opener = _opener(path, (*beside, feeds), folder, even=even)
    return measure(opener, SteadyRule(least_runs(path) if least is None else least), timeout=LONG_TIMEOUT)


def runs_at(path: Path, sizes: Mapping[str, int], *, seed: int, most: int) -> list[Measured] | str:
    """Return what processes of a model take at a size, one each; or why it does not run.

    What opening a session takes is partly chance, some megabytes, as the system places blocks at random addresses.
    Where that does not count one process is run.

    Args:
        most: Processes where it counts.
    """
    with tempfile.TemporaryDirectory(prefix="memsched-") as held:
        feeds = Path(held, "feeds.npz")
        try:
            draw_at(path, sizes, feeds, seed=seed)
        except UsageError as error:
            return str(error)
        runs: list[Measured] = []
        while len(runs) < most:
            one = run_on(path, feeds)
            if isinstance(one, str):
                return one
            if one.peak >= LITTLE_CHANCE:
                return [one]
            runs.append(one)
    return runs


def race(
    first: Path, second: Path, feeds: Path, *, rounds: int, folder: Path | None = None, threads: int | None = None
) -> RangedRace | str:
    """Return how long two models take on stored inputs, run in turns in one process; or why they do not run.

    Args:
        threads: Of each session; None for what one without options takes.
    """
    point = DEFAULT if threads is None else SessionPoint(threads=threads)
    given, other = (_opener(path, (feeds,), folder, point) for path in (first, second))
    found = race_two(given, other, RaceRule(rounds), timeout=LONG_TIMEOUT)
    if isinstance(found, str):
        return found
    least = found.quickest
    firsts = [turns[0] for turns in found.rounds]
    return RangedRace(
        TimeRatio(least[0].clock, least[1].clock, found.clock),
        TimeRatio(least[0].processor, least[1].processor, found.processor),
        sum(turn.clock for turn in firsts) / sum(turn.processor for turn in firsts),
    )


def compare_at(
    paths: Sequence[Path],
    sizes: Sequence[Mapping[str, int]],
    *,
    seed: int,
    folder: Path | None = None,
    accurate: Path | None = None,
    tolerance: float = 0.0,
) -> tuple[str, list[list[AtSize]]]:
    """Return the runtime's name, and per size how each of the further models compares with the first.

    Sizes that the first does not run at are left out of what is compared: their list is empty.

    Args:
        accurate: A model with more accurate outputs, to compare both with where they are further apart than
            ``tolerance``; None: the first one, whose graph the runtime then leaves as it is.

    Raises:
        UsageError: The first runs at none of them.
    """
    request = _comparison(paths, sizes, seed, folder, accurate, tolerance)
    result = run_in_child(_COMPARE, request, LONG_TIMEOUT)
    if not result.ok:
        problem = f"the model does not run at these sizes: {result.reason}"
        raise UsageError(problem, code="fails-at-inputs")
    rows = result.value["rows"]
    said = [row["given"] for row in rows if row["given"] is not None]
    if len(said) == len(rows):
        raise UsageError(f"the model does not run at any of these sizes: {said[0]}", code="fails-at-inputs")
    return f"onnxruntime {result.value['version']}", [[AtSize(**one) for one in row["others"]] for row in rows]


def special_at(
    paths: tuple[Path, Path],
    sizes: Sequence[Mapping[str, int]],
    *,
    seed: int,
    folder: Path | None,
    accurate: Path | None,
    tolerance: float,
) -> Mapping[str, Any] | None:
    """Return what `memsched.runtimes.special.judged` says of two models at these sizes; None if the first fails.

    Args:
        paths, sizes, folder, accurate, tolerance: As `compare_at` has them.
    """
    from memsched.runtimes.special import shown_by  # numpy takes as long as all of this package

    request = _comparison(paths, sizes, seed, folder, accurate, tolerance)
    alone = _comparison(paths[:1] * 2, sizes, seed, folder, accurate, tolerance)
    return shown_by(_SPECIAL, request, alone, "onnxruntime", LONG_TIMEOUT)


def _comparison(
    paths: Sequence[Path],
    sizes: Sequence[Mapping[str, int]],
    seed: int,
    folder: Path | None,
    accurate: Path | None,
    tolerance: float,
) -> dict[str, Any]:
    return {
        "paths": [str(path.absolute()) for path in paths],
        "folder": _told(folder),
        "sizes": [dict(one) for one in sizes],
        "seed": seed,
        "accurate": None if accurate is None else str(accurate.absolute()),
        "tolerance": tolerance,
    }


def _opener(
    path: Path, feeds: Sequence[Path], folder: Path | None, point: SessionPoint = DEFAULT, *, even: bool = False
) -> SessionOpener:
    files = tuple(str(one) for one in feeds)
    return SessionOpener(str(path.absolute()), files, point, _told(folder), whole=True, even=even)


def _told(folder: Path | None) -> str | None:
    return None if folder is None else str(folder.absolute())
