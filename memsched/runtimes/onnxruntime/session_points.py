"""Sessions to choose from, and what one takes of its process, measured in a fresh one."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from memsched.errors import ModelError, UsageError
from memsched.formats.module import LoadOptions
from memsched.runtimes.child import TIMEOUT, run_in_child
from memsched.runtimes.measure import LEAST_RUNS, LEAST_RUNS_OF_BODIES

__all__ = [
    "DEFAULT",
    "EXECUTED",
    "LISTED",
    "PATTERNLESS",
    "MeasuredSession",
    "MemorySplit",
    "RacedSession",
    "SessionPoint",
]
__all__ += ["described", "draw_feeds"]
__all__ += ["STEADY_SECONDS", "least_runs", "measure_session", "race_sessions", "split_of"]

_DRAW: Final = "memsched.runtimes.onnxruntime.session_process:draw"
_MEASURE: Final = "memsched.runtimes.onnxruntime.session_process:measure"
_RACE: Final = "memsched.runtimes.onnxruntime.session_process:race"
_ROUNDS: Final = 9

STEADY_SECONDS: Final = 60.0
"""After which no further run of one process begins: figures that did not settle until then say so."""


@dataclasses.dataclass(frozen=True, slots=True)
class SessionPoint:
    """How a session is opened; the defaults are those of one without options.

    Attributes:
        level: Of graph optimisation.
        order: "file": ``PRIORITY_BASED``.
        reuse: ``enable_mem_reuse``.
        pattern: ``enable_mem_pattern``.
        arena: ``enable_cpu_mem_arena``.
        shrinkage: The arena gives back what a run no longer needs, after each run.
        prepacking: Weights are stored again as kernels want them.
        threads: Of one operator; 0 for as many as there are cores.
        disabled: ``disabled_optimizers``.
        quant_qdq: Without ``session.disable_quant_qdq``: what is between quantised values is moved and doubled.
    """

    level: Literal["disabled", "basic", "extended", "all"] = "all"
    order: Literal["file", "default"] = "default"
    reuse: bool = True
    pattern: bool = True
    arena: bool = True
    shrinkage: bool = False
    prepacking: bool = True
    threads: int = 0
    disabled: tuple[str, ...] = ()
    quant_qdq: bool = True


DEFAULT: Final = SessionPoint()
"""A session without options."""

PATTERNLESS: Final = SessionPoint(pattern=False)
"""The one option that takes less of most processes and costs no time."""

EXECUTED: Final = SessionPoint("disabled", "file", reuse=False, pattern=False)
"""For files that hold what is executed, in its order."""

LISTED: Final = SessionPoint(
    "basic",
    "file",
    reuse=False,
    pattern=False,
    # They merge what was computed again on purpose, or number nodes anew.
    disabled=(
        *("CommonSubexpressionElimination", "MatMulAddFusion", "ReshapeFusion"),
        *("GeluFusionL1", "LayerNormFusionL1"),
    ),
    # Weights would be dequantised in each run, once for each of their readers, behind all nodes of the file.
    quant_qdq=False,
)
"""The options that ``--order-guarantee session`` lists."""


@dataclasses.dataclass(frozen=True, slots=True)
class MemorySplit:
    """Where the memory of a process with a session lies, bytes.

    Code, weights, copies and the arena are counted; structures and buffers are the rest, before runs and after them.

    Attributes:
        code: Pages of the runtime's library and of mapped files that the session touched.
        weights: Of the graph that the session makes of the file, less what the copies replace, as far as the process
            grew by so much when the session was opened.
        prepacked: Copies of weights in the layout that kernels want: the arena in use at rest.
        structures: The rest of what opening the session took: graph, kernels, plans, and what it left freed.
        arena_in_use: What runs took from the arena at most, beyond the prepacked copies.
        arena_slack: What the arena holds beyond that, as far as it was ever touched.
        buffers: What runs left outside the arena: outputs, what kernels, threads and the C library keep.
    """

    code: int
    weights: int
    prepacked: int
    structures: int
    arena_in_use: int
    arena_slack: int
    buffers: int

    @property
    def total(self) -> int:
        """Return the sum of all parts."""
        return sum(dataclasses.astuple(self))


def split_of(found: Mapping[str, Any], *, lasting: bool) -> MemorySplit | None:
    """Return the split that the counters of `session_process.measure` give; None where they are not all known.

    Args:
        lasting: Whether an arena keeps between runs what it took; otherwise what a run has beyond the rest is in use.
    """
    opened, rest, arena = found["parts"]["opened"], found["parts"]["rest"], found["arena"]
    if lasting and arena is None:
        return None
    at_rest = 0 if arena is None else arena["rest"]
    prepacked = min(at_rest, opened["anonymous"])
    # What is stored again takes the place of what it was made of: opening takes as much without prepacking.
    weights = min(max(0, found["parts"]["weights"] - prepacked), opened["anonymous"] - prepacked)
    grown = max(0, rest["anonymous"] - opened["anonymous"])
    if lasting:
        touched = min(grown, arena["held"] - at_rest)  # of what the arena holds, runs need not write everything
        used = min(arena["highest"] - at_rest, touched)
        slack, buffers = touched - used, grown - touched
    else:
        had = max(0, found["steady"] - rest["resident"]) + grown
        used = had if arena is None else min(had, arena["highest"] - at_rest)
        slack, buffers = had - used, 0
    return MemorySplit(
        code=max(0, rest["files"]),
        weights=weights,
        prepacked=prepacked,
        structures=max(0, opened["anonymous"] - prepacked - weights),
        arena_in_use=used,
        arena_slack=slack,
        buffers=buffers,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredSession:
    """What a session took, bytes; None where the runtime or the system does not show it.

    Attributes:
        requested: Activations that were requested at most, of the arena, in the first run or a later one.
        process: Peak of the process in all later runs, above what it was before the session.
        first_run: The same until the end of the first run, loading included.
        cpu_seconds: Of one run, all threads together.
        ratio: Of processor time to that of the session it took turns with; None where there was none.
        split: None where the runtime does not show it.
        runs: Until the process stopped growing.
        settled: Whether it did.
    """

    requested: int | None
    process: int
    first_run: int
    cpu_seconds: float
    ratio: float | None = None
    split: MemorySplit | None = None
    runs: int = 0
    settled: bool = True


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
        raise UsageError(problem, code="not-run")


def measure_session(
    path: Path,
    feeds: Path,
    point: SessionPoint,
    beside: tuple[Path, SessionPoint] | None = None,
    *,
    rounds: int = _ROUNDS,
    least: int | None = None,
    folder: Path | None = None,
) -> MeasuredSession | str:
    """Return what a session on a file took in a process of its own; or why it did not run.

    Args:
        feeds: What `draw_feeds` stored.
        beside: A file and a session that it takes turns with in being timed.
        rounds: In which they do at least; none is added to a single one.
        least: Runs at least; None for what `least_runs` says.
        folder: Where the external data of both files lies; None where it lies beside each, or there is none.
    """
    request: dict[str, Any] = {**_session(path, point, folder), "feeds": str(feeds.absolute())}
    request |= {"least": least_runs(path) if least is None else least, "seconds": STEADY_SECONDS}
    if beside is not None:
        request |= {"beside": _session(*beside, folder), "rounds": rounds}
    result = run_in_child(_MEASURE, request, TIMEOUT)
    if not result.ok:
        return " ".join((result.reason or "it did not run").split())
    found = result.value
    return MeasuredSession(
        requested=found["lasting"],
        process=found["steady"],
        first_run=found["first"],
        cpu_seconds=found["cpu_seconds"],
        ratio=found["ratio"],
        split=split_of(found, lasting=point.arena and not point.shrinkage),
        runs=found["runs"],
        settled=found["settled"],
    )


@dataclasses.dataclass(frozen=True, slots=True)
class RacedSession:
    """What a session took beside another one, without its process.

    Attributes:
        requested: As a `MeasuredSession` has it.
        ratio: Of processor time to that of the session it took turns with; None for that one.
    """

    requested: int | None
    ratio: float | None


def race_sessions(
    sessions: Sequence[tuple[Path, SessionPoint]], feeds: Path, *, rounds: int, folder: Path | None = None
) -> tuple[RacedSession | None, ...]:
    """Return what each session took, in turns with the first of them, all in one process; None of those that fail.

    Args:
        feeds: As `measure_session` has them, and ``rounds`` and ``folder``.
    """
    request = {"sessions": [_session(*one, folder) for one in sessions], "feeds": str(feeds.absolute())}
    result = run_in_child(_RACE, {**request, "rounds": rounds}, TIMEOUT)
    if not result.ok:
        return (None,) * len(sessions)
    return tuple(None if one is None else RacedSession(one["lasting"], one["ratio"]) for one in result.value)


def least_runs(path: Path) -> int:
    """Return in how many runs at least the process of a model may still grow, by what the file holds."""
    import onnx

    from memsched.formats.onnx.structure import graphs_of

    try:
        graph = onnx.load_model(path, load_external_data=False).graph
    except Exception:  # whatever it is, the runtime says it better
        return LEAST_RUNS
    return LEAST_RUNS if len(graphs_of(graph)) == 1 else LEAST_RUNS_OF_BODIES


def _session(path: Path, point: SessionPoint, folder: Path | None) -> dict[str, Any]:
    """Return a session as `session_process` has it."""
    options = {**dataclasses.asdict(point), "disabled": list(point.disabled)}
    return {"path": str(path.absolute()), "folder": None if folder is None else str(folder), "options": options}


def described(model: str | Path | bytes, data_folder: str | Path | None) -> dict[str, Any]:
    """Describe a model to a child process; "folder" is where its external data lies."""
    if isinstance(model, bytes):
        return {"bytes": model, "folder": None if data_folder is None else str(Path(data_folder).absolute())}
    path = Path(model).absolute()
    return {"path": str(path), "folder": str(path.parent)}
