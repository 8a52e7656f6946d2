"""LiteRT's default interpreter in a process of its own: the memory it takes and its time. The child process's side.

Called through ``run_in_child``; requests and answers are plain values. Figures of the process are those of Linux
(``/proc/self``).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from memsched.runtimes.measure import forget_highest, process_bytes, run_until_steady
from memsched.runtimes.race import race

__all__ = ["measure", "take_turns"]

_TURN: Final = 0.05
"""Processor seconds of a turn, at least; a shorter one is lost in the clock's resolution and the caches' state."""

_MIN_ROUNDS: Final = 3
_ROUNDS: Final = 9
_MAX_ROUNDS: Final = 25


def measure(request: Mapping[str, Any]) -> dict[str, int]:
    """Open a file as ``Interpreter(model_path=...)`` does, run it to the steady state, and return the memory taken.

    Args:
        request: "path" of the file; "seed" of its inputs.

    Returns:
        Bytes beyond the process before the interpreter: "private" (growth of anonymous memory after the last run),
        "peak" (of resident memory, which mapped files are part of); "runs".
    """
    from ai_edge_litert.interpreter import Interpreter

    draw = _drawing(request["seed"])  # this and the runtime are loaded before the first figure is read
    private, resident = process_bytes("RssAnon:"), process_bytes("VmRSS:")
    forget_highest()
    run = _opened(Interpreter, request["path"], draw)
    seen = run_until_steady(lambda _: run(), resident)
    return {"private": max(0, seen.private - private), "peak": max(0, seen.peak - resident), "runs": seen.runs}


def take_turns(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run two files by turns in one process, and return how much longer the second one takes.

    Args:
        request: "paths" of the files; "seed" of their inputs; "limit": the ratio that decides; rounds are added if
            those so far lie on both sides of it. "seconds" after which no round is begun.

    Returns:
        "ratio": of the processor times of both, the median of all rounds.
    """
    from ai_edge_litert.interpreter import Interpreter

    ended = time.monotonic() + request["seconds"]
    first, second = (_opened(Interpreter, path, _drawing(request["seed"])) for path in request["paths"])
    found = race(
        first,
        second,
        rounds=_ROUNDS,
        turn=_TURN,
        goes_on=partial(_undecided, request["limit"]),
        ends=lambda rounds: rounds == _MAX_ROUNDS or (rounds >= _MIN_ROUNDS and time.monotonic() > ended),
    )
    return {"ratio": found.processor}


def _undecided(limit: float, ratios: Sequence[float]) -> bool:
    """Return whether the middle half of the ratios lies on both sides of a limit."""
    low, _, high = statistics.quantiles(ratios, n=4)
    return low <= limit <= high


_Draw = Callable[[Any], Any]
"""Gives an array for an input, of which an interpreter says the details."""


def _drawing(seed: int) -> _Draw:
    import numpy as np

    from memsched.runtimes.inputs import random_values

    rng = np.random.default_rng(seed)

    def draw(one: Any) -> Any:
        text = np.dtype(one["dtype"]).kind in "OSU"
        # Integers that are not quantised are 0: they may be indices into an axis of any length.
        quantized = one["quantization"][0] != 0
        return random_values("S4" if text else one["dtype"], one["shape"], rng, full_range=quantized, high=1)

    return draw


def _opened(interpreter_type: Any, path: str, draw: _Draw) -> Callable[[], None]:
    """Open a file as people do; return what runs it once, each time on the same inputs."""
    interpreter = interpreter_type(model_path=path)
    interpreter.allocate_tensors()
    inputs = [(one["index"], draw(one)) for one in interpreter.get_input_details()]

    def run() -> None:
        for index, values in inputs:
            interpreter.set_tensor(index, values)
        interpreter.invoke()

    return run
