"""Models in sessions: one compared with another, or one alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from memsched.base.frozen import FrozenValue
from memsched.runtimes.child import TIMEOUT, run_in_child
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime.ranged import runs_at
from memsched.runtimes.onnxruntime.verification import compare_models, described
from memsched.runtimes.sessions import LISTED
from memsched.runtimes.values import Verification


def verify(before: str | Path | bytes, after: str | Path | bytes, **how: Any) -> Verification:
    """Return what comparing two models shows, which is how `compare_models` takes it."""
    return compare_models(before, after, **how).explained


def run_at(path: Path, sizes: Mapping[str, int], *, seed: int) -> Measured | str:
    """Return what a model takes at a size, in a process of its own; or why it does not run."""
    runs = runs_at(path, sizes, seed=seed, most=1)
    return runs if isinstance(runs, str) else runs[0]


class Measurement(FrozenValue, frozen=True):
    """One model as ONNX Runtime ran it.

    Attributes:
        peak_bytes: Activation memory requested at most, weights and inputs excluded; None when it could not run.
        executed: File positions of the main graph's nodes in the order they ran; None when it could not run.
        reason: Why not, in the runtime's words.
    """

    peak_bytes: int | None
    executed: tuple[int, ...] | None
    reason: str | None


def measure(
    model: str | Path | bytes,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    level: Literal["disabled", "basic", "extended", "all"] = "basic",
    order: Literal["file", "default"] = "file",
    reuse: bool | None = None,
) -> Measurement:
    """Run one model once on random inputs, with the options of `session_instructions` where none is stated.

    Args:
        level: Of ONNX Runtime's graph optimisation.
        order: "file" sets the session option that honours the file; "default" does not.
        reuse: Whether dead buffers are handed on (``enable_mem_reuse``); None for what goes with the order: not with
            the options that `session_instructions` lists, otherwise as in any session.
    """
    handed_on = order == "default" if reuse is None else reuse
    options = asdict(replace(LISTED, level=level, order=order, reuse=handed_on))
    request = {
        "models": [described(model, None)],
        "sessions": [{"model": 0, "options": options, "required": True, "reference": 0}],
        "runs": 1,
        "feeds": None,
        "seed": 0,
        "rtol": 0.0,
        "atol": 0.0,
        "input_shapes": {name: list(shape) for name, shape in (input_shapes or {}).items()},
        "dims": dict(dims or {}),
        "float_from": None,
        "pinned": False,
        "expected": None,
        "borders": [],
    }
    result = run_in_child("memsched.runtimes.onnxruntime.sessions:execute", request, TIMEOUT)
    if not result.ok:
        return Measurement(None, None, result.reason or "it did not run")
    if result.value["failed"] is not None:
        return Measurement(None, None, result.value["message"])
    shown = result.value["sessions"][0]
    return Measurement(shown["peak_bytes"], tuple(shown["order"]), None)
