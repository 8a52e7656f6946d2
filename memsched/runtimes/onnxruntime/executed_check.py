"""A model in the session that people open, against the graph which that session executes, ordered."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from memsched.formats.module import LoadOptions
from memsched.runtimes.child import TIMEOUT, run_in_child
from memsched.runtimes.onnxruntime.inputs import at_stated_sizes
from memsched.runtimes.onnxruntime.special import SpecialSession, with_special_values
from memsched.runtimes.onnxruntime.verdicts import cannot_compare, drawn, order_matches
from memsched.runtimes.package import ONNXRUNTIME
from memsched.runtimes.session_code import opening_lines
from memsched.runtimes.sessions import EXECUTED, Level, SessionPoint
from memsched.runtimes.values import EXECUTED_TOLERANCE, RUNS, Verification

__all__ = ["verify_executed"]

_EXECUTE: Final = "memsched.runtimes.onnxruntime.sessions:execute"


def verify_executed(
    given: bytes,
    folder: Path | None,
    written: bytes,
    options: LoadOptions,
    level: Level,
    *,
    expected: Sequence[str] | None,
    predicted: int,
    seed: int,
) -> Verification:
    """Run the model as given in a session of ``level``, and ``written`` with the options of `EXECUTED`.

    Args:
        folder: Where the external data of ``given`` lies.
        expected: Names of the nodes of ``written`` in the order wanted; None for that of the file.
        predicted: What ``written`` should request at most, bytes.

    Raises:
        RuntimeUnavailableError: onnxruntime is not installed.
    """
    runtime, runs = ONNXRUNTIME.require(), RUNS if options.feeds is None else 1
    request = {
        "models": [
            {"bytes": given, "folder": None if folder is None else str(folder)},
            {"bytes": written, "folder": None},
        ],
        "sessions": [_session(0, SessionPoint(level)), _session(1, EXECUTED)],
        "runs": runs,
        "seed": seed,
        "rtol": EXECUTED_TOLERANCE,
        "atol": 0.0,
        "input_shapes": {name: list(shape) for name, shape in options.input_shapes.items()},
        "dims": dict(options.dims),
        "feeds": options.feeds,
        "borders": [],
        "float_from": None,
        "pinned": False,
        "expected": None if expected is None else list(expected),
    }
    result = run_in_child(_EXECUTE, request, TIMEOUT)
    answer: Mapping[str, Any] = result.value if result.ok else {"failed": 0, "message": result.reason}
    if answer["failed"] is not None:
        whose = "the file written does not run: " if answer["failed"] else ""
        said = " ".join((answer["message"] or "").split())
        equal = False if answer["failed"] else None
        return Verification(runtime, 0, equal, None, None, None, None, f"{whose}{said}")
    found = dataclasses.replace(_judged(answer, runtime, predicted, runs), feeds=options.feeds)
    found = dataclasses.replace(found, at_stated_sizes=at_stated_sizes(found, given, options))
    return with_special_values(
        found,
        given,
        written,
        [SpecialSession(SessionPoint(level), EXECUTED, "", EXECUTED_TOLERANCE)],
        seed=seed,
        input_shapes=options.input_shapes,
        dims=options.dims,
        data_folder=folder,
        feeds=options.feeds,
    )


def _session(model: int, point: SessionPoint) -> dict[str, Any]:
    return {"model": model, "options": dataclasses.asdict(point), "required": True, "reference": 0}


def _judged(answer: Mapping[str, Any], runtime: str, predicted: int, runs: int) -> Verification:
    before, after = answer["sessions"]
    notes = drawn(answer)
    matches = order_matches(answer["models"][1], after["order"], notes)
    reasons = [] if matches else ["onnxruntime did not execute the wanted order"]
    equal: bool | None = after["equal"]
    error: float | None = after["max_abs_error"]
    relative: float | None = after["relative_error"]
    if answer["draws"]["mismatch"]:
        equal = False
        reasons.append(answer["draws"]["mismatch"])
    elif not equal and answer["random"] is not None:
        equal = error = relative = None
        reasons.append(cannot_compare(answer))
    elif not equal:
        reasons.append(f"outputs differ by up to {error:g}")
    return Verification(
        runtime,
        runs,
        equal,
        error,
        before["lasting_bytes"],
        after["lasting_bytes"],
        matches,
        "; ".join(reasons) or None,
        tuple(notes),
        predicted_peak_after_bytes=predicted,
        relative_error=relative,
        outputs_vary=answer["vary"],
        measured_with=opening_lines(EXECUTED),
    )
