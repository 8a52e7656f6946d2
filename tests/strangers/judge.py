"""One model optimised in one way: what is written computes the same, or one clear line says why nothing is."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnxruntime

import memsched
from memsched.base.errors import InternalError, MemschedError, VerificationError
from tests.strangers.ways import Way

__all__ = ["Outcome", "Subject", "judge"]

Verdict = Literal["same as recorded", "same", "unchanged", "written, not run", "refused", "FAILED"]
Values = list[Any]
Runner = Callable[[Sequence[Any]], "Values | str"]

_TOLERANCE = 1e-5
"""Of an output's largest magnitude, where pieces add up in another order; documented in README.md."""

_ROUNDING = {2: 2e-3, 4: 1e-4, 8: 1e-9}
"""By bytes of a float: what two graph optimisations of ONNX Runtime make of one model."""


@dataclass(frozen=True)
class Subject:
    """A model with values for its inputs, in order, and what they make, where somebody wrote that down."""

    suite: str
    name: str
    model: bytes
    inputs: tuple[tuple[Any, ...], ...] = ()
    recorded: tuple[tuple[Any, ...], ...] = ()
    rtol: float = 1e-3
    atol: float = 1e-5


@dataclass(frozen=True)
class Outcome:
    """What became of a model: the verdict, and the reason where there is one."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True)
class _Reference:
    """What a session made of the model as given: for each set of inputs its outputs, or why there are none."""

    made: tuple[Values | str, ...]
    as_recorded: bool


def judge(subject: Subject, ways: Sequence[Way]) -> list[Outcome]:
    """Return an outcome for each of ``ways``."""
    os.environ["MEMSCHED_DEFECTS"] = "raise"
    if subject.model[4:8] == b"TFL3":
        return [_in_tflite(subject, way) for way in ways]
    references = {session: _reference(subject, session) for session in (False, True)}
    return [_in_onnx(subject, way, references) for way in ways]


def _optimize(subject: Subject, way: Way) -> memsched.OptimizeResult | Outcome:
    options = {name.rstrip("_"): value for name, value in way.options.items()}
    try:
        result = memsched.optimize(subject.model, **options)
    except (InternalError, VerificationError) as error:
        return Outcome("FAILED", f"{type(error).__name__}: {error}")
    except MemschedError as error:
        words = str(error)
        good = error.exit_code in {1, 2} and words and "\n" not in words
        return Outcome("refused" if good else "FAILED", words)
    except Exception:
        return Outcome("FAILED", traceback.format_exc())
    needed = result.report.data["sections"]["requirement"]
    if needed["bytes"] > needed["given_bytes"]:
        return Outcome("FAILED", f"worse: {needed['given_bytes']} -> {needed['bytes']}")
    return result


def _in_onnx(subject: Subject, way: Way, references: dict[bool, _Reference]) -> Outcome:
    result = _optimize(subject, way)
    if isinstance(result, Outcome):
        return result
    if result.model == subject.model:
        return Outcome("unchanged")
    compared = False
    for session in (True,) if way.session else (False, True):
        reference = references[session]
        run = _runner(result.model, session=session)
        for feeds, before in zip(subject.inputs, reference.made, strict=True):
            if isinstance(before, str):
                continue
            after = run if isinstance(run, str) else run(feeds)
            if isinstance(after, str):
                return Outcome("FAILED", f"what was written does not run: {after}")
            told = _differ(before, after, exact=way.exact and not session, sessions=session)
            if told:
                return Outcome("FAILED", f"{'session without options' if session else 'as ordered'}: {told}")
            compared = True
    if not compared:
        reasons = [made for made in references[way.session].made if isinstance(made, str)]
        return Outcome("written, not run", (reasons or ["no inputs"])[0])
    return Outcome("same as recorded" if references[way.session].as_recorded else "same")


def _in_tflite(subject: Subject, way: Way) -> Outcome:
    """`optimize` runs both files itself, in LiteRT or TensorFlow Lite Micro, and ends with an error if they differ."""
    result = _optimize(subject, way)
    if isinstance(result, Outcome):
        return result
    if result.model == subject.model:
        return Outcome("unchanged")
    checked = result.report.data["sections"]["verification"]
    if checked is None:
        return Outcome("written, not run", "; ".join(result.report.data["verdict"]["notes"])[:300])
    return Outcome("same") if checked["outputs_equal"] else Outcome("FAILED", str(checked["verdict"]["notes"]))


def _reference(subject: Subject, session: bool) -> _Reference:
    """Run the model as given, twice: what draws anew can be compared with nothing."""
    made: list[Values | str] = []
    first, second = (_runner(subject.model, session=session) for _ in range(2))
    for feeds in subject.inputs:
        if isinstance(first, str) or isinstance(second, str):
            made.append(first if isinstance(first, str) else str(second))
            continue
        one, other = first(feeds), second(feeds)
        if not isinstance(one, str) and not isinstance(other, str) and _differ(one, other, exact=True, sessions=False):
            one = "two sessions give two results"
        made.append(one)
    close = [
        not isinstance(values, str) and all(map(_close, values, recorded, _repeat(subject)))
        for values, recorded in zip(made, subject.recorded, strict=False)
    ]
    return _Reference(tuple(made), bool(close) and all(close))


def _repeat(subject: Subject) -> list[tuple[float, float]]:
    return [(subject.rtol, subject.atol)] * max(map(len, subject.recorded))


def _runner(model: bytes, *, session: bool) -> Runner | str:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if not session:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        opened = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return _first_line(error)
    names = [value.name for value in opened.get_inputs()]

    def run(feeds: Sequence[Any]) -> Values | str:
        try:
            return list(opened.run(None, dict(zip(names, feeds, strict=False))))
        except Exception as error:
            return _first_line(error)

    return run


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def _differ(left: Any, right: Any, *, exact: bool, sessions: bool) -> str:
    """Return how two values differ by more than they may; "" where they do not."""
    if isinstance(left, list):
        if not isinstance(right, list) or len(left) != len(right):
            return "other lengths"
        told = [_differ(a, b, exact=exact, sessions=sessions) for a, b in zip(left, right, strict=True)]
        return next((words for words in told if words), "")
    if left is None or isinstance(left, (str, dict)):
        return "" if bool(left == right) else f"{left} and {right}"
    one, other = np.asarray(left), np.asarray(right)
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{one.dtype}{one.shape} and {other.dtype}{other.shape}"
    if one.dtype == object:
        return "" if bool((one == other).all()) else "other words"
    if one.tobytes() == other.tobytes():
        return ""
    return _told(one, other) if exact or one.dtype.kind not in "fc" else _far(one, other, sessions)


def _far(one: Any, other: Any, sessions: bool) -> str:
    allowed = _TOLERANCE
    if sessions or one.dtype.itemsize == 2:
        allowed = max(allowed, _ROUNDING.get(one.dtype.itemsize, allowed))
    one, other = one.astype(np.complex128), other.astype(np.complex128)
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return "other infinities or NaN"
    largest = float(np.max(np.abs(one[finite]), initial=0.0)) or 1.0
    error = float(np.max(np.abs(one[finite] - other[finite]), initial=0.0)) / largest
    return "" if error <= allowed else f"by {error:.1e} of the largest value"


def _told(one: Any, other: Any) -> str:
    if one.dtype.kind == "f" and np.array_equal(one, other, equal_nan=True):
        return ""  # The sign of a zero, or another NaN.
    try:
        error = float(np.max(np.abs(one.astype(np.float64) - other.astype(np.float64))))
    except (TypeError, ValueError):
        return "other bytes"
    return f"other bits, by {error:.3g}"


def _close(left: Any, right: Any, within: tuple[float, float]) -> bool:
    if isinstance(left, list) or isinstance(right, list):
        return (
            isinstance(left, list)
            and isinstance(right, list)
            and len(left) == len(right)
            and all(_close(a, b, within) for a, b in zip(left, right, strict=True))
        )
    if left is None or right is None:
        return left is right
    one, other = np.asarray(left), np.asarray(right)
    if one.shape != other.shape:
        return False
    if one.dtype.kind not in "biufc" or other.dtype.kind not in "biufc":
        return bool(one.tolist() == other.tolist())
    return bool(np.allclose(one.astype(np.complex128), other.astype(np.complex128), *within, equal_nan=True))
