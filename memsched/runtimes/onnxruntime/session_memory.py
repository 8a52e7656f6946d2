"""What a session takes of its process, measured in a fresh one, and how long it takes beside another."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from memsched.base.errors import ModelError, UsageError
from memsched.formats.module import LoadOptions
from memsched.runtimes.child import TIMEOUT, run_in_child
from memsched.runtimes.measure import (
    LEAST_RUNS,
    LEAST_RUNS_OF_BODIES,
    Measured,
    Raced,
    SteadyRule,
    measure,
    race_models,
)
from memsched.runtimes.onnxruntime.session_opener import SessionOpener
from memsched.runtimes.race import RaceRule
from memsched.runtimes.sessions import MemorySplit, SessionPoint

__all__ = ["draw_feeds", "least_runs", "measure_session", "race_pair", "race_sessions", "session_opener"]
__all__ += ["split_of"]

_DRAW: Final = "memsched.runtimes.onnxruntime.session_inputs:draw"
_ROUNDS: Final = 9

_TURN: Final = 0.1
"""Processor seconds that a turn of being timed takes at least."""

_SHORT_TURN: Final = 0.02
"""The same of small models, whose sessions are timed for nothing but the options to recommend."""

_MOST_ROUNDS: Final = 20
"""Rounds of such turns at most; short turns have fewer, as their sessions are many."""

_RACE: Final = 5.0
"""Seconds after which no round is added: long runs differ less by chance."""


def split_of(found: Measured, *, lasting: bool) -> MemorySplit | None:
    """Return the split that a session's counters give; None where they are not all known.

    Args:
        lasting: Whether an arena keeps between runs what it took; otherwise what a run has beyond the rest is in use.
    """
    opened, rest, arena = found.opened, found.rest, found.own.arena
    if lasting and arena is None:
        return None
    at_rest = 0 if arena is None else arena.rest
    prepacked = min(at_rest, opened.private)
    # What is stored again takes the place of what it was made of: opening takes as much without prepacking.
    weights = min(max(0, found.own.weights - prepacked), opened.private - prepacked)
    grown = max(0, rest.private - opened.private)
    if lasting and arena is not None:
        touched = min(grown, arena.held - at_rest)  # of what the arena holds, runs need not write everything
        used = min(arena.highest - at_rest, touched)
        slack, buffers = touched - used, grown - touched
    else:
        had = max(0, found.peak - rest.resident) + grown
        used = had if arena is None else min(had, arena.highest - at_rest)
        slack, buffers = had - used, 0
    return MemorySplit(
        code=max(0, rest.files),
        weights=weights,
        prepacked=prepacked,
        structures=max(0, opened.private - prepacked - weights),
        arena_in_use=used,
        arena_slack=slack,
        buffers=buffers,
    )


def draw_feeds(data: bytes, folder: Path | None, options: LoadOptions, file: Path, *, seed: int) -> None:
    """Store inputs that a model takes in ``file``: the stated ones, or random ones.

    Raises:
        ModelError: ONNX Runtime does not load the model.
        UsageError: There are none.
    """
    if options.feeds is not None:
        shutil.copyfile(options.feeds, file)
        return
    request = {
        "model": {"bytes": data, "folder": None if folder is None else str(folder.absolute())},
        "file": str(file.absolute()),
        "seed": seed,
        "input_shapes": {name: list(shape) for name, shape in options.input_shapes.items()},
        "dims": dict(options.dims),
    }
    result = run_in_child(_DRAW, request, TIMEOUT)
    if result.ok and not result.value["loaded"]:
        raise ModelError(f"onnxruntime does not load the model: {result.value['failed']}", code="not-loaded")
    said = result.reason if not result.ok else result.value["failed"]
    if said is not None:
        problem = f"the model cannot be run on random inputs: {' '.join(said.split())}"
        raise UsageError(problem, code="fails-at-inputs")


def measure_session(
    path: Path,
    feeds: Path,
    point: SessionPoint,
    beside: tuple[Path, SessionPoint] | None = None,
    *,
    rounds: int = _ROUNDS,
    least: int | None = None,
    folder: Path | None = None,
    split: bool = False,
) -> Measured | str:
    """Return what a session on a file took in a process of its own; or why it did not run.

    Its peak is that of all runs but the first.

    Args:
        feeds: What `draw_feeds` stored.
        beside: A file and a session that it takes turns with in being timed.
        rounds: In which they do at least; none is added to a single one.
        least: Runs at least; None for what `least_runs` says.
        folder: Where the external data of both files lies; None where it lies beside each, or there is none.
        split: Whether `split_of` is asked for.
    """
    opener = session_opener(path, point, feeds, folder, "split" if split else "requested")
    other = None if beside is None else session_opener(*beside, feeds, folder)
    rule = SteadyRule(least_runs(path) if least is None else least, peak_from="second run")
    turns = _turns(rounds, _TURN, _MOST_ROUNDS)
    found = measure(opener, rule, beside=other, turns=turns, timeout=TIMEOUT)
    if isinstance(found, str) or found.raced is None or other is None:
        return found
    raced = _undisturbed([Raced(), found.raced], [other, opener], turns)[1]
    return found if isinstance(raced, str) else msgspec.structs.replace(found, raced=raced)


def race_sessions(
    sessions: Sequence[tuple[Path, SessionPoint]], feeds: Path, *, rounds: int, folder: Path | None = None
) -> tuple[Raced | None, ...]:
    """Return what each session requested, in turns with the first of them, all in one process; None of those that fail.

    Args:
        feeds: As `measure_session` has them, and ``rounds`` and ``folder``.
    """
    openers = [session_opener(*one, feeds, folder, "requested") for one in sessions]
    turns = _turns(rounds, _SHORT_TURN, _ROUNDS)
    found = _undisturbed(race_models(openers, turns, timeout=TIMEOUT), openers, turns)
    return tuple(None if isinstance(one, str) else one for one in found)


def race_pair(first: SessionOpener, second: SessionOpener) -> float | str:
    """Return the ratio of the processor times of two sessions, second to first, measured in turns; or the error."""
    turns, openers = _turns(_ROUNDS, _TURN, _MOST_ROUNDS), (first, second)
    found = _undisturbed(race_models(openers, turns, timeout=TIMEOUT), openers, turns)[1]
    return found if isinstance(found, str) else found.ratio or 1.0


def _turns(rounds: int, turn: float, most: int) -> RaceRule:
    return RaceRule(rounds=rounds, most=most if rounds > 1 else 1, seconds=_RACE, turn=turn)


def _undisturbed(
    found: Sequence[Raced | str], openers: Sequence[SessionOpener], turns: RaceRule
) -> Sequence[Raced | str]:
    """Return the same, with sessions of one thread each where other programs used the processors.

    Threads that wait busily for one that has no processor count as computing.
    """
    again = [number for number, one in enumerate(found) if not isinstance(one, str) and one.busy]
    if not again:
        return found
    alone = [
        msgspec.structs.replace(one, point=dataclasses.replace(one.point, threads=1), asked="nothing")
        for one in (openers[0], *(openers[number] for number in again))
    ]
    others = dict(zip(again, race_models(alone, turns, timeout=TIMEOUT)[1:], strict=True))

    def known(number: int, one: Raced | str) -> Raced | str:
        other = others.get(number)
        if isinstance(one, str) or other is None:
            return one
        return other if isinstance(other, str) else msgspec.structs.replace(one, race=other.race)

    return [known(number, one) for number, one in enumerate(found)]


def least_runs(path: Path) -> int:
    """Return in how many runs at least the process of a model may still grow, by what the file holds."""
    import onnx

    from memsched.formats.onnx.structure import graphs_of

    try:
        graph = onnx.load_model(path, load_external_data=False).graph
    except Exception:  # whatever it is, the runtime says it better
        return LEAST_RUNS
    return LEAST_RUNS if len(graphs_of(graph)) == 1 else LEAST_RUNS_OF_BODIES


def session_opener(
    path: Path,
    point: SessionPoint,
    feeds: Path,
    folder: Path | None,
    asked: Literal["nothing", "requested", "split"] = "nothing",
) -> SessionOpener:
    """Return how a session on a file is opened, with inputs that `draw_feeds` stored."""
    told = None if folder is None else str(folder)
    return SessionOpener(str(path.absolute()), (str(feeds.absolute()),), point, told, asked=asked)
