"""ONNX Runtime: do two models compute the same, how much memory do they take, and which order does it execute.

Every figure comes from sessions in a child process, on the very bytes that are given, with the options that
``session_instructions`` tells users to set and no others; beside it stands what a session without options needs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from memsched.base.frozen import FrozenValue
from memsched.formats.module import OrderGuarantee
from memsched.graph.border import Border
from memsched.runtimes.borders import told
from memsched.runtimes.child import TIMEOUT, ChildResult, run_in_child
from memsched.runtimes.onnxruntime.observation import OTHER_INPUTS
from memsched.runtimes.onnxruntime.verdicts import by_chance, cannot_compare, drawn, order_matches, rounded
from memsched.runtimes.package import ONNXRUNTIME
from memsched.runtimes.session_code import opening_lines
from memsched.runtimes.sessions import DEFAULT, LISTED, SessionPoint
from memsched.runtimes.values import EXECUTED_TOLERANCE, RUNS, OtherSize, Verification, short_reason

__all__ = [
    "PLAIN",
    "Comparison",
    "compare_models",
    "described",
    "session_instructions",
    "try_other_sizes",
]

_EXECUTE = "memsched.runtimes.onnxruntime.sessions:execute"
_OTHER_SIZES = "memsched.runtimes.onnxruntime.sizes:execute"
_UNOPTIMISED: Final = SessionPoint("disabled")

_FAR = 0.05
"""Share of an output's largest magnitude: farther apart than different optimisations can bring two models."""

_LEEWAY: Final = 2.0
"""How many times as far apart as sessions bring the file as given: dynamically quantised models by 4 %."""

PLAIN: Final = frozenset({"pins", "default"})
"""Guarantees that ask for nothing but what a session does by itself."""


class Comparison(FrozenValue, frozen=True):
    """Two models in ONNX Runtime, compared with a tolerance too.

    Attributes:
        verification: Bit-equality, the largest error and the measured peaks.
        outputs_close: Whether all outputs agree within the tolerance; None when they could not be compared.
        other_inputs: The first model was loaded and does not run on these inputs, which are random.
    """

    verification: Verification
    outputs_close: bool | None
    other_inputs: bool = False

    @property
    def explained(self) -> Verification:
        """The verification, with how other inputs are named where these are why nothing was compared."""
        found = self.verification
        return replace(found, reason=f"{found.reason}; {OTHER_INPUTS}") if self.other_inputs else found


def described(model: str | Path | bytes, data_folder: str | Path | None) -> dict[str, Any]:
    """Describe a model to a child process; "folder" is where its external data lies."""
    if isinstance(model, bytes):
        return {"bytes": model, "folder": None if data_folder is None else str(Path(data_folder).absolute())}
    path = Path(model).absolute()
    return {"path": str(path), "folder": str(path.parent)}


def compare_models(
    before: str | Path | bytes,
    after: str | Path | bytes,
    *,
    expected_order: Sequence[str] | None = None,
    guarantee: OrderGuarantee = "session",
    runs: int = RUNS,
    seed: int = 0,
    rtol: float = 0.0,
    atol: float = 0.0,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: str | None = None,
    data_folder: str | Path | None = None,
    timeout_seconds: float | None = TIMEOUT,
    borders: Sequence[Border] = (),
) -> Comparison:
    """Run two models on the same random inputs and compare outputs, measured peaks and the executed order.

    Args:
        before: The model as given: a path (external data is found beside it) or the file's bytes.
        after: The optimised model.
        expected_order: Names of the nodes of ``after`` (a node without a name: of one of its outputs) in the wanted
            order; None for the order of its file.
        guarantee: "pins" and "default": the order is looked for in sessions without options, graph optimisation off
            (for pins also on), and both peaks are measured in sessions without options; otherwise all of that is done
            in sessions with the options of ``session_instructions``.
        runs: Input sets to compare.
        seed: Of the inputs.
        rtol, atol: Outputs are close within ``atol + rtol * |output|``.
        input_shapes: Dimensions of inputs that the model leaves open.
        dims: Values of its symbolic dimensions.
        feeds: An .npz file with the inputs to run on once, instead of random ones.
        data_folder: Of the external data of models given as bytes.
        timeout_seconds: For everything.
        borders: What stands between the inputs and outputs of both.

    Raises:
        RuntimeUnavailableError: onnxruntime is not installed.
    """
    ONNXRUNTIME.require()
    request: dict[str, Any] = {
        "models": [described(before, data_folder), described(after, data_folder)],
        "sessions": _sessions(guarantee),
        "seed": seed,
        "input_shapes": {name: list(shape) for name, shape in (input_shapes or {}).items()},
        "dims": dict(dims or {}),
        "runs": 1 if feeds is not None else max(runs, 1),
        "feeds": feeds,
        "rtol": rtol,
        "atol": atol,
        "float_from": EXECUTED_TOLERANCE,
        "pinned": guarantee == "pins",
        "expected": None if expected_order is None else list(expected_order),
        "borders": told(borders),
    }
    result = run_in_child(_EXECUTE, request, timeout_seconds)
    if result.ok:
        return _answered(result.value, request, guarantee)
    return Comparison(_died(result, request, timeout_seconds), None)


def _sessions(guarantee: OrderGuarantee) -> list[dict[str, Any]]:
    """Return the sessions that both models are run in: those that keep the order, and those without options."""
    first = _UNOPTIMISED if guarantee in PLAIN else LISTED
    return [
        {"model": 0, "options": asdict(first), "required": True, "reference": 0},
        {"model": 1, "options": asdict(first), "required": True, "reference": 0},
        {"model": 0, "options": asdict(DEFAULT), "required": False, "reference": 1},
        {"model": 1, "options": asdict(DEFAULT), "required": False, "reference": 2},
    ]


def _answered(answer: Mapping[str, Any], request: Mapping[str, Any], guarantee: OrderGuarantee) -> Comparison:
    """Return the comparison that a child's answer to a request is."""
    feeds = request["feeds"]
    if answer["failed"] is not None:
        verdict = _failed(answer["failed"], answer["message"], _runtime(answer))
        other_inputs = feeds is None and answer["failed"] == 0 and answer["loaded"]
        return Comparison(verdict, None, other_inputs)
    judged = _judged(answer, guarantee, request["runs"])
    return replace(judged, verification=replace(judged.verification, feeds=feeds))


def try_other_sizes(
    before: str | Path | bytes,
    after: str | Path | bytes,
    *,
    guarantee: OrderGuarantee = "session",
    tolerance: float = 0.0,
    rtol: float = 0.0,
    atol: float = 0.0,
    seed: int = 0,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    data_folder: str | Path | None = None,
    timeout_seconds: float | None = TIMEOUT,
    borders: Sequence[Border] = (),
) -> tuple[tuple[OtherSize, ...], tuple[str, ...]]:
    """Run both models at two further sizes of every dimension of an input that ``before`` leaves open.

    Both are run with the options of ``session_instructions`` and in a session without options.

    Args:
        tolerance: Relative error that is permitted.
        rtol: As for `compare_models`, which permits what is within it, too.
        atol: The same.

    Returns:
        The outcome of each size, and notes for the report.

    Raises:
        RuntimeUnavailableError: onnxruntime is not installed.
    """
    ONNXRUNTIME.require()
    first = _UNOPTIMISED if guarantee in PLAIN else LISTED
    request: dict[str, Any] = {
        "models": [described(before, data_folder), described(after, data_folder)],
        "sessions": [asdict(first), asdict(DEFAULT)],
        "tolerance": tolerance,
        "rtol": rtol,
        "atol": atol,
        "far": _FAR,
        "seed": seed,
        "input_shapes": {name: list(shape) for name, shape in (input_shapes or {}).items()},
        "dims": dict(dims or {}),
        "borders": told(borders),
    }
    result = run_in_child(_OTHER_SIZES, request, timeout_seconds)
    if result.status == "crash":
        return (OtherSize("sizes", 0, "wrong", f"onnxruntime: {short_reason(result.reason)}"),), ()
    if not result.ok:
        return (), (f"other sizes were not tried: {short_reason(result.reason)}",)
    notes = [f"no other size of {name} was found that the model as given accepts" for name in result.value["untried"]]
    return tuple(OtherSize(**size) for size in result.value["sizes"]), tuple(notes)


def session_instructions(guarantee: OrderGuarantee) -> list[str]:
    """Return the lines of Python by which an ONNX Runtime session executes the file's order."""
    if guarantee == "pins":
        return ["session = onnxruntime.InferenceSession(path)  # the order is in the model: no option is needed"]
    if guarantee == "default":
        return ["session = onnxruntime.InferenceSession(path)  # its default order is the wanted one: no option"]
    return list(opening_lines(LISTED))


def _runtime(answer: Mapping[str, Any]) -> str:
    return f"onnxruntime {answer['version']}"


def _died(result: ChildResult, request: dict[str, Any], timeout_seconds: float | None) -> Verification:
    """Judge a comparison whose process died: run the first model alone to see which of the two it was."""
    reason = f"onnxruntime: {short_reason(result.reason)}"
    if result.status != "timeout":
        alone = {**request, "models": request["models"][:1], "sessions": request["sessions"][:1]}
        if run_in_child(_EXECUTE, alone, timeout_seconds).ok:
            return _verdict("onnxruntime", equal=False, reason=f"the optimised model does not run: {reason}")
    return _verdict("onnxruntime", equal=None, reason=reason)


def _failed(session: int, message: str, runtime: str) -> Verification:
    if session == 0:
        return _verdict(runtime, equal=None, reason=_shorten(message))
    return _verdict(runtime, equal=False, reason=f"the optimised model does not run: {_shorten(message)}")


def _verdict(runtime: str, equal: bool | None, reason: str) -> Verification:
    return Verification(runtime, 0, equal, None, None, None, None, reason)


def _outputs(answer: Mapping[str, Any]) -> tuple[bool | None, bool | None, float | None, list[str]]:
    """Return whether outputs are equal, or near, by how much they differ, and why they are not equal, or not known."""
    after = answer["sessions"][1]
    equal, near, error = after["equal"], after["close"], after["max_abs_error"]
    if answer["draws"]["mismatch"]:
        return False, False, error, [answer["draws"]["mismatch"]]
    if not equal and answer["random"] is not None:
        return None, None, None, [cannot_compare(answer)]
    return equal, near, error, [] if equal else [f"outputs differ by up to {error:g}"]


def _judged(answer: Mapping[str, Any], guarantee: OrderGuarantee, runs: int) -> Comparison:
    before, after, given, default = answer["sessions"]
    equal, near, error, reasons = _outputs(answer)
    notes: list[str] = []
    stated: list[str] = []
    notes.extend(drawn(answer))
    matches = order_matches(answer["models"][1], after["order"], notes)
    if not matches:
        reasons.append("onnxruntime did not execute the wanted order")
    relative: float | None = None if equal is None else after["relative_error"]
    if default["order"] is None:
        notes.append(f"without options it does not run: {_shorten(default['message'])}")
    else:
        if guarantee == "pins" and not order_matches(answer["models"][1], default["order"], []):
            matches = False
            reasons.append("with graph optimisation, onnxruntime did not execute the wanted order")
        apart = default["relative_error"]
        if given["order"] is not None and answer["random"] is None and apart:
            # What is merged differs from model to model, and with it the last bits.
            own = given["relative_error"]
            text = f"without options, outputs differ by up to {apart:.1e} of their largest magnitude"
            text += f"; those of the file as given differ by {own:.1e} between that session and the one compared in"
            stated.append(text)
            # What the runtime rounds otherwise from session to session is no fault of the file.
            if after["relative_error"] < max(_FAR, _LEEWAY * own) < apart < math.inf:
                equal, near, relative = False, False, apart
                reasons.append(text)
    stated.extend(rounded(answer["float_errors"]))
    stated.extend(by_chance(given, default))
    measured = (given, default) if guarantee in PLAIN else (before, after)
    if after["peak_bytes"] is None:
        reasons.append("peaks are not measured: profiles of ONNX Runtime before 1.29 carry no memory figures")
    verification = Verification(
        _runtime(answer),
        runs,
        equal,
        error,
        measured[0]["peak_bytes"],
        measured[1]["peak_bytes"],
        matches,
        "; ".join(reasons) or None,
        tuple(notes),
        stated=tuple(stated),
        relative_error=relative,
        outputs_vary=answer["vary"],
        default_session="a session without options, as InferenceSession(path) opens it,",
        default_peak_before_bytes=given["lasting_bytes"],
        default_peak_after_bytes=default["lasting_bytes"],
        measured_with=tuple(session_instructions(guarantee)),
        default_apart=_apart(given, default),
        default_relative_error=None if guarantee in PLAIN or equal is None else given.get("relative_error"),
    )
    return Comparison(verification, near)


def _apart(given: Mapping[str, Any], default: Mapping[str, Any]) -> float | None:
    """Return how far apart sessions without options are; None where one did not run."""
    if given["order"] is None or default["order"] is None:
        return None
    return 0.0 if default["equal"] else float(default["relative_error"])


def _shorten(text: str) -> str:
    return short_reason(" ".join(text.split()))
