"""An ONNX model and its segments run in ONNX Runtime: the child process's side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import onnx

from memsched.runtimes.onnxruntime.draws import Draws, same_draws
from memsched.runtimes.onnxruntime.inputs import random_feed
from memsched.runtimes.onnxruntime.opened import opened, run_once
from memsched.runtimes.row import RowPair, RunError, Values, result
from memsched.runtimes.sessions import SessionPoint
from memsched.runtimes.special import Special, judged, mixed_feed, tried
from memsched.runtimes.values import INTEGER_BOUNDS

__all__ = ["run", "special"]

_Level = Literal["disabled", "all"]

_PACKED: Final = re.compile(r"\b(u?int[24]|float4)")
"""Types of less than a byte, which ONNX Runtime's Python interface does not give out."""


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run "model" and "segments" on "runs" inputs drawn with "seed", without and with graph optimisation.

    Args:
        request: Also "folder" of external data (or None) and "input_shapes".

    Returns:
        "random": what draws random numbers and takes no seed, or None; "mismatch": how the segments draw otherwise
        than the model, or None; "plain" and "other", each with "failed"
        (the number of the model that did not run, 0 being the whole one, or None), its "message", "equal",
        "max_abs_error", "relative_error", and "absent": outputs of the model that no segment hands out.
    """
    request, proto, draws = _prepared(request)
    return {
        "random": draws.unseeded and f"{draws.unseeded} draws random numbers and takes no seed",
        "mismatch": draws.mismatch,
        "plain": result(lambda: _run_onnx(request, proto, "disabled")),
        "other": result(lambda: _run_onnx(request, proto, "all")),
    }


def special(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `memsched.runtimes.special.judged` says of special values, without graph optimisation.

    Args:
        request: As `run` has it, and "tolerance".
    """
    request, proto, draws = _prepared(request)
    if draws.unseeded or draws.mismatch:
        return judged(())

    def inputs(kind: Special, rng: Any, bound: int) -> Values:
        session = _open(request, request["model"], "disabled")
        return mixed_feed(random_feed(session, proto, {**request, "dims": {}}, rng, bound), kind, rng)

    def whole(values: Values, threads: int) -> Values:
        session = _open(request, request["model"], "disabled", threads)
        return dict(zip([one.name for one in session.get_outputs()], run_once(session, values), strict=True))

    def row(values: Values) -> Values:
        held = dict(values)
        for number in range(1, len(request["segments"]) + 1):
            _run_segment(request, number, "disabled", [held])
        return held

    pair = RowPair(request["seed"], inputs, whole, row)
    return judged(tried(pair, bounds=INTEGER_BOUNDS, tolerance=request["tolerance"]))


def _prepared(request: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any, Draws]:
    """Return the request with models that draw the same numbers, and what inputs the whole model has."""
    proto = onnx.load_model_from_string(request["model"])
    draws = same_draws(proto, [onnx.load_model_from_string(data) for data in request["segments"]])
    if draws.count:
        whole, *parts = (model.SerializeToString() for model in draws.models)
        request = {**request, "model": whole, "segments": parts}
    del proto.graph.node[:], proto.graph.initializer[:]
    return request, proto, draws


def _open(request: Mapping[str, Any], model: bytes, level: _Level, threads: int = 1) -> Any:
    """Open a session of one thread, so that runs can be compared; it follows the file's order."""
    point = SessionPoint(level, threads=threads)
    if level == "disabled":
        point = SessionPoint(level, "file", reuse=False, threads=threads)
    return opened(model, point, folder=request["folder"])


def _run_onnx(request: Mapping[str, Any], proto: Any, level: _Level) -> tuple[list[Values], list[Values]]:
    """Return per run the outputs of the whole model, and everything that its segments hand out."""
    feeds, expected = _run_whole(request, proto, level)
    values = [dict(feed) for feed in feeds]
    for number in range(1, len(request["segments"]) + 1):
        _run_segment(request, number, level, values)
    return expected, values


def _run_segment(request: Mapping[str, Any], number: int, level: _Level, values: Sequence[Values]) -> None:
    """Add what segment ``number`` hands out to the ``values`` of each run."""
    try:
        session = _open(request, request["segments"][number - 1], level)
        strange = [
            value.type for value in (*session.get_inputs(), *session.get_outputs()) if _PACKED.search(value.type)
        ]
        if strange:
            raise RunError(0, ValueError(f"values of type {strange[0]} cannot be handed over in Python"))
        reads = [value.name for value in session.get_inputs()]
        made = [value.name for value in session.get_outputs()]
        for held in values:
            held.update(zip(made, run_once(session, {name: held[name] for name in reads}), strict=True))
    except RunError:
        raise
    except Exception as error:  # the runtime raises classes of its own
        raise RunError(number, error) from error


def _run_whole(request: Mapping[str, Any], proto: Any, level: _Level) -> tuple[list[Values], list[Values]]:
    """Return the inputs of each run, with the largest bound of integers that the model runs on, and its outputs."""
    try:
        session = _open(request, request["model"], level)
        made = [value.name for value in session.get_outputs()]
    except Exception as error:
        raise RunError(0, error) from error
    failure: RunError | None = None
    for bound in INTEGER_BOUNDS:
        if failure is not None:  # generators of random numbers begin anew
            session = _open(request, request["model"], level)
        rng = np.random.default_rng(request["seed"])
        try:
            feeds = [random_feed(session, proto, {**request, "dims": {}}, rng, bound) for _ in range(request["runs"])]
            return feeds, [dict(zip(made, run_once(session, feed), strict=True)) for feed in feeds]
        except Exception as error:
            # The first message is about usual inputs.
            failure = failure or RunError(0, error)
    raise failure or RunError(0, ValueError("it does not run"))
