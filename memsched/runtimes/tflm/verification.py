"""Verification of TFLite models in TensorFlow Lite Micro itself: the same outputs, and the arena really used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from memsched.base.errors import ModelError
from memsched.base.shown import LISTED_REASON
from memsched.base.units import LARGEST_INT32
from memsched.formats.tflite.model import FileModel, parse
from memsched.graph.border import Border
from memsched.runtimes.arena_facts import ALIGNMENT, round_up
from memsched.runtimes.borders import told as told_borders
from memsched.runtimes.child import TIMEOUT, ChildResult, run_in_child
from memsched.runtimes.package import TFLM
from memsched.runtimes.special import with_special
from memsched.runtimes.tflite_runner import BEFORE_AND_AFTER, ModelWords
from memsched.runtimes.tflm.limits import refusals
from memsched.runtimes.tflm.persistent import least_in_wheel, tail_in_wheel, unknown_kernels
from memsched.runtimes.tflm.plan import kernel_scratch, predict
from memsched.runtimes.tflm.resolver import resolver
from memsched.runtimes.values import RUNS, MeasuredArena, Verification, short_reason

__all__ = ["LEAST_ARENA", "arena_for", "predicted", "refusal_words", "verify"]

_SESSION: Final = "memsched.runtimes.tflm.session:run"
_TRIAL: Final = "memsched.runtimes.tflm.session:try_once"
_OF_HARDWARE: Final = {"CUSTOM:ethos-u"}
"""Operators that the package does not have."""

LEAST_ARENA: Final = 1 << 24
"""Bytes beside twice what is predicted: what a model really takes is to be found out."""

_MOST_ARENA: Final = LARGEST_INT32 // ALIGNMENT * ALIGNMENT
"""TFLM counts its arena's bytes in 32 bits, in places as signed numbers."""

_GIVEN, _WRITTEN = "before", "after"


def verify(
    before: bytes,
    after: bytes,
    *,
    runs: int = RUNS,
    seed: int = 0,
    tolerance: float = 0.0,
    timeout_seconds: float | None = 600.0,
    borders: Sequence[Border] = (),
    words: ModelWords = BEFORE_AND_AFTER,
) -> Verification:
    """Run a model as given and as optimised in TensorFlow Lite Micro, in child processes, and compare.

    Outputs must be equal bit by bit over ``runs`` random inputs, on each of which both are run twice in a row. Head
    and tail of each arena are measured, in bytes, and the smallest that runs, and stand beside those predicted.

    Args:
        before: The model's file as given.
        after: The optimised model's file.
        tolerance: Relative error up to which outputs that differ are looked at further; they are not equal then.
        borders: What stands between the inputs and outputs of both.
        words: What reasons call the models.
        timeout_seconds: For both models together; models that take longer count as models that could not be run.

    Raises:
        RuntimeUnavailableError: TFLM is not installed.
        ModelError: A file is no TFLite model.
    """
    runtime = TFLM.require()
    models = {_GIVEN: parse(before), _WRITTEN: parse(after)}
    told = {name: predicted(model) for name, model in models.items()}
    request = {
        "before": before,
        "after": after,
        "arenas": [arena_for(told[name]) for name in models],
        "runs": runs,
        "seed": seed,
        "tolerance": tolerance,
        "borders": told_borders(borders),
    }
    result = run_in_child(_SESSION, request, timeout_seconds)
    if not result.ok:
        return _unknown(runtime, _failed(result))
    return _judge(runtime, result.value, models, told, tolerance, words)


def refusal_words(model: FileModel) -> str | None:
    """Return why TFLM does not run a model, in its own words.

    None where it runs, where that took too long, where TFLM is not installed, and where a firmware brings operators of
    its own, which are not there.
    """
    if not TFLM.found() or _lacks_custom_kernels(model):
        return None
    result = run_in_child(_TRIAL, {"model": model.data, "arena": arena_for(predicted(model))}, TIMEOUT)
    return short_reason(result.value, LISTED_REASON) if result.ok and result.value is not None else None


def _lacks_custom_kernels(model: FileModel) -> bool:
    kinds = {operator.type for subgraph in model.subgraphs for operator in subgraph.operators}
    return bool(resolver(model).custom or kinds & _OF_HARDWARE)


def predicted(model: FileModel) -> tuple[int, int] | None:
    """Return the head and the tail, bytes, that the package should show of a model's arena.

    None where a kernel's needs are not known, and where TFLM would refuse the plan that the file brings.
    """
    if unknown_kernels(model):
        return None
    try:
        return predict(model, kernel_scratch(model)).head, tail_in_wheel(model)
    except ModelError:
        return None


def arena_for(told: tuple[int, int] | None) -> int:
    """Return room for a model that needs twice what was predicted, and more.

    A multiple of 16, as the figures hold for: the tail grows down from the arena's end.
    """
    return min(_MOST_ARENA, round_up(LEAST_ARENA + 2 * sum(told or ())))


def _failed(result: ChildResult) -> str:
    if result.status == "timeout":
        return f"running both models was {result.reason}"
    return f"TensorFlow Lite Micro could not be used: {result.reason}"


def _unknown(runtime: str, reason: str) -> Verification:
    return Verification(runtime, 0, None, None, None, None, None, short_reason(reason, LISTED_REASON))


def _judge(
    runtime: str,
    found: Mapping[str, Any],
    models: Mapping[str, FileModel],
    told: Mapping[str, tuple[int, int] | None],
    tolerance: float,
    words: ModelWords,
) -> Verification:
    """Make a verdict of what both models showed."""
    if "before_error" in found:
        why = _why(found["before_error"], models[_GIVEN])
        refused = None if _lacks_custom_kernels(models[_GIVEN]) else short_reason(found["before_error"], LISTED_REASON)
        return replace(_unknown(runtime, f"it refuses {words.first}: {why}"), refused=refused)
    before = _measured(_GIVEN, found, models, told)
    if "after_error" in found:
        why = _why(found["after_error"], models[_WRITTEN])
        return _refuted(runtime, 0, None, f"it refuses {words.second} only: {why}", before)
    after = _measured(_WRITTEN, found, models, told)
    if not found["equal"]:
        if not found["repeatable"]:
            reason = f"{words.first} gives other outputs each time it is run on the same inputs"
            return _unknown(runtime, reason)
        if found["relative_error"] > tolerance:
            again = "" if found["steady"] else ", and the second run on an input differs from the first"
            error = found["max_abs_error"] if math.isfinite(found["max_abs_error"]) else None
            return _refuted(runtime, found["runs"], error, f"outputs differ{again}", before, after)
    verdict = Verification(
        runtime=runtime,
        runs=found["runs"],
        outputs_equal=found["equal"],
        max_abs_error=found["max_abs_error"],
        measured_peak_before_bytes=before.measured_least,
        measured_peak_after_bytes=after.measured_least,
        executed_order_matches=None,
        reason=None,
        predicted_peak_before_bytes=before.predicted_least,
        predicted_peak_after_bytes=after.predicted_least,
        relative_error=found["relative_error"],
        outputs_vary=found["vary"],
        arenas=(before, after),
    )
    return verdict if found["special"] is None else with_special(verdict, found["special"])


def _refuted(runtime: str, runs: int, error: float | None, reason: str, *arenas: MeasuredArena) -> Verification:
    return Verification(
        runtime, runs, False, error, None, None, None, short_reason(reason, LISTED_REASON), arenas=arenas
    )


def _measured(
    name: str,
    found: Mapping[str, Any],
    models: Mapping[str, FileModel],
    told: Mapping[str, tuple[int, int] | None],
) -> MeasuredArena:
    head, tail = told[name] or (None, None)
    least = None if head is None else least_in_wheel(models[name], head)
    measured = (found[f"{what}_{name}"] for what in ("head", "tail", "least", "seconds"))
    measured_head, measured_tail, measured_least, seconds = measured
    return MeasuredArena(measured_head, measured_tail, head, tail, measured_least, least, seconds)


def _why(words: str, model: FileModel) -> str:
    """Return TFLM's words, and what is known where it has none: some checks abort without any."""
    known = refusals(model)
    return words if not known else f"{words} ({known[0].type} '{known[0].name}': {known[0].reason})"
