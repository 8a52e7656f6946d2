"""An ONNX model and its segments run in ONNX Runtime: the child process's side."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from memsched.runtimes.onnxruntime.draws import Draws, same_draws
from memsched.runtimes.onnxruntime.inputs import random_feed
from memsched.runtimes.onnxruntime.sessions import GRAPH_LEVELS, find_data, run_once
from memsched.runtimes.row import RowPair, RunError, Values, result
from memsched.runtimes.special import Special, judged, mixed_feed, tried
from memsched.runtimes.values import INTEGER_BOUNDS

__all__ = ["run", "special"]

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
    onnxruntime, request, proto, draws = _prepared(request)
    return {
        "random": draws.unseeded and f"{draws.unseeded} draws random numbers and takes no seed",
        "mismatch": draws.mismatch,
        "plain": result(lambda: _run_onnx(onnxruntime, request, proto, "disabled")),
        "other": result(lambda: _run_onnx(onnxruntime, request, proto, "all")),
    }


def special(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `memsched.runtimes.special.judged` says of special values, without graph optimisation.

    Args:
        request: As `run` has it, and "tolerance".
    """
    onnxruntime, request, proto, draws = _prepared(request)
    if draws.unseeded or draws.mismatch:
        return judged(())

    def inputs(kind: Special, rng: Any, bound: int) -> Values:
        session = _open(onnxruntime, request, request["model"], "disabled")
        return mixed_feed(random_feed(session, proto, {**request, "dims": {}}, rng, bound), kind, rng)

    def whole(values: Values, threads: int) -> Values:
        session = _open(onnxruntime, request, request["model"], "disabled", threads)
        return dict(zip([one.name for one in session.get_outputs()], run_once(session, values), strict=True))

    def row(values: Values) -> Values:
        held = dict(values)
        for number in range(1, len(request["segments"]) + 1):
            _run_segment(onnxruntime, request, number, "disabled", [held])
        return held

    pair = RowPair(request["seed"], inputs, whole, row)
    return judged(tried(pair, bounds=INTEGER_BOUNDS, tolerance=request["tolerance"]))


def _prepared(request: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any], Any, Draws]:
    """Return the runtime, the request with models that draw the same numbers, and what inputs the whole model has."""
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    proto = onnx.load_model_from_string(request["model"])
    draws = same_draws(proto, [onnx.load_model_from_string(data) for data in request["segments"]])
    if draws.count:
        whole, *parts = (model.SerializeToString() for model in draws.models)
        request = {**request, "model": whole, "segments": parts}
    del proto.graph.node[:], proto.graph.initializer[:]
    return onnxruntime, request, proto, draws


def _open(onnxruntime: Any, request: Mapping[str, Any], model: bytes, level: str, threads: int = 1) -> Any:
    """Open a session of one thread, so that runs can be compared; it follows the file's order."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, GRAPH_LEVELS[level])
    if level == "disabled":
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
        options.enable_mem_reuse = False
    find_data(options, request["folder"])
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _run_onnx(
    onnxruntime: Any, request: Mapping[str, Any], proto: Any, level: str
) -> tuple[list[Values], list[Values]]:
    """Return per run the outputs of the whole model, and everything that its segments hand out."""
    feeds, expected = _run_whole(onnxruntime, request, proto, level)
    values = [dict(feed) for feed in feeds]
    for number in range(1, len(request["segments"]) + 1):
        _run_segment(onnxruntime, request, number, level, values)
    return expected, values


def _run_segment(
    onnxruntime: Any, request: Mapping[str, Any], number: int, level: str, values: Sequence[Values]
) -> None:
    """Add what segment ``number`` hands out to the ``values`` of each run."""
    try:
        session = _open(onnxruntime, request, request["segments"][number - 1], level)
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


def _run_whole(
    onnxruntime: Any, request: Mapping[str, Any], proto: Any, level: str
) -> tuple[list[Values], list[Values]]:
    """Return the inputs of each run, with the largest bound of integers that the model runs on, and its outputs."""
    import numpy as np

    try:
        session = _open(onnxruntime, request, request["model"], level)
        made = [value.name for value in session.get_outputs()]
    except Exception as error:
        raise RunError(0, error) from error
    failure: RunError | None = None
    for bound in INTEGER_BOUNDS:
        if failure is not None:  # generators of random numbers begin anew
            session = _open(onnxruntime, request, request["model"], level)
        rng = np.random.default_rng(request["seed"])
        try:
            feeds = [random_feed(session, proto, {**request, "dims": {}}, rng, bound) for _ in range(request["runs"])]
            return feeds, [dict(zip(made, run_once(session, feed), strict=True)) for feed in feeds]
        except Exception as error:
            # The first message is about usual inputs.
            failure = failure or RunError(0, error)
    raise failure or RunError(0, ValueError("it does not run"))
