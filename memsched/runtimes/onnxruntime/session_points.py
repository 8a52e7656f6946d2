"""Sessions to choose from, and what one takes of its process, measured in a fresh one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Final, Literal

from memsched.errors import UsageError
from memsched.formats.module import LoadOptions
from memsched.runtimes.child import run_in_child

__all__ = ["DEFAULT", "EXECUTED", "MeasuredSession", "SessionPoint", "draw_feeds", "measure_session"]

_DRAW: Final = "memsched.runtimes.onnxruntime.session_process:draw"
_MEASURE: Final = "memsched.runtimes.onnxruntime.session_process:measure"
_RUNS: Final = 3
_TIMEOUT: Final = 600.0


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
    """

    level: Literal["disabled", "basic", "extended", "all"] = "all"
    order: Literal["file", "default"] = "default"
    reuse: bool = True
    pattern: bool = True
    arena: bool = True
    shrinkage: bool = False
    prepacking: bool = True
    threads: int = 0


DEFAULT: Final = SessionPoint()
"""A session without options."""

EXECUTED: Final = SessionPoint("disabled", "file", reuse=False, pattern=False)
"""For files that hold what is executed, in its order."""


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredSession:
    """What a session took, bytes; None where the runtime or the system does not show it.

    Attributes:
        requested: Activations that were requested at most, of the arena, in the first run or the next.
        process: Peak of the process in a later run, above what it was before the session.
        first_run: The same until the end of the first run, loading included.
        cpu_seconds: Of one run, all threads together.
    """

    requested: int | None
    process: int
    first_run: int
    cpu_seconds: float


def draw_feeds(data: bytes, folder: Path | None, options: LoadOptions, file: Path, *, seed: int) -> None:
    """Store random inputs that a model takes in ``file``.

    Raises:
        UsageError: There are none.
    """
    request = {
        "model": {"bytes": data, "folder": None if folder is None else str(folder)},
        "file": str(file),
        "seed": seed,
        "input_shapes": {name: list(shape) for name, shape in options.input_shapes.items()},
        "dims": dict(options.dims),
    }
    result = run_in_child(_DRAW, request, _TIMEOUT)
    said = result.reason if not result.ok else result.value["failed"]
    if said is not None:
        raise UsageError(f"the model cannot be run on random inputs: {' '.join(said.split())}")


def measure_session(path: Path, feeds: Path, point: SessionPoint) -> MeasuredSession | str:
    """Return what a session on a file took in a process of its own; or why it did not run.

    Args:
        feeds: What `draw_feeds` stored.
    """
    options: dict[str, Any] = {**dataclasses.asdict(point), "disabled": []}
    request = {"path": str(path.absolute()), "feeds": str(feeds.absolute()), "options": options, "runs": _RUNS}
    result = run_in_child(_MEASURE, request, _TIMEOUT)
    if not result.ok:
        return " ".join((result.reason or "it did not run").split())
    found = result.value
    return MeasuredSession(
        requested=found["lasting"],
        process=found["steady"],
        first_run=found["first"],
        cpu_seconds=found["cpu_seconds"],
    )
