"""Verification of TFLite models in LiteRT: the same outputs, the order really executed, the arena really used."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from memsched.base.shown import LISTED_REASON
from memsched.formats.tflite.model import parse
from memsched.formats.tflite.open_sizes import open_axes
from memsched.graph.border import Border
from memsched.runtimes.borders import told
from memsched.runtimes.child import ChildResult, run_in_child
from memsched.runtimes.litert.answers import CompareRequest, ModeAnswer, ModeAnswers, SizesAnswer, SizesRequest
from memsched.runtimes.litert.draws import count_draws, draw_mismatch
from memsched.runtimes.litert.special import with_special_values
from memsched.runtimes.package import LITERT
from memsched.runtimes.tflite_runner import BEFORE_AND_AFTER, ModelWords
from memsched.runtimes.values import RUNS, SAME_SEEDS, OtherSize, Verification, short_reason

__all__ = ["try_other_sizes", "verify"]

PLAIN: Final = "LiteRT without delegates"
DEFAULT_SESSION: Final = "with its default delegates, as Interpreter(path) opens it, LiteRT's own arena"
OTHER_ORDER: Final = (
    "with its default delegates LiteRT executes another order: metadata model_control_dependencies keeps it"
)
ARENA_UNSEEN: Final = "LiteRT's arena could not be measured (several subgraphs, or tensors outside of it)"

_PLAIN_APART = "without delegates, outputs differ by up to {:.1e} of their largest magnitude"

_OTHER_SIZES = "memsched.runtimes.litert.sizes:execute"
_SESSION = "memsched.runtimes.litert.session:run"
_ON_GRID = (
    "at the border the models are compared on floats that integers stand for: LiteRT's fast kernels round the last "
    "bits of others in ways of their own"
)


def verify(
    before: bytes,
    after: bytes,
    *,
    runs: int = RUNS,
    seed: int = 0,
    tolerance: float = 0.0,
    timeout_seconds: float | None = 300.0,
    borders: Sequence[Border] = (),
    words: ModelWords = BEFORE_AND_AFTER,
    plain_tolerance: float | None = None,
    kernels: bool = False,
) -> Verification:
    """Run a model as given and as optimised in LiteRT, in a child process, and compare.

    Outputs must be equal bit by bit without delegates and with those that LiteRT applies by itself, over ``runs``
    random inputs, each run twice in a row from reset state. Order and arena (LiteRT's own, in bytes: alignment,
    scratch tensors and state included) are seen without delegates; a note says where delegates change the order.

    Args:
        before: The model's file as given.
        after: The optimised model's file.
        tolerance: Relative error up to which outputs that differ are looked at further; they are not equal then.
        borders: What stands between the inputs and outputs of both. What is quantised there is drawn from, and compared
            as, what its integers say exactly: LiteRT's delegates round other numbers in ways of their own.
        words: What reasons call the models.
        timeout_seconds: For each child process; a model that takes longer counts as one that could not be run.
        plain_tolerance: Relative error permitted without delegates, if only outputs with delegates must be equal;
            None: ``tolerance``.
        kernels: Layers of ``after`` are left to built-in kernels. With delegates, outputs may differ by what the
            distance between the kernels explains; see `memsched.runtimes.compare.within_own`.

    Raises:
        RuntimeUnavailableError: LiteRT is not installed.
    """
    runtime = LITERT.require()
    if mismatch := draw_mismatch(before, [after]):
        return _refuted(runtime, 0, None, mismatch)
    request = CompareRequest(
        before=before, after=after, runs=runs, seed=seed, probe=True, borders=told(borders), kernels=kernels
    )
    result = _run(request, timeout_seconds)
    if result.status == "crash":
        # Looking inside is the least tried part: a crash may be its own.
        result = _run(replace(request, probe=False), timeout_seconds)
    if not result.ok:
        return _failed(runtime, request, result, timeout_seconds, words)
    tolerances = tolerance, tolerance if plain_tolerance is None else plain_tolerance
    found = _judge(runtime, msgspec.convert(result.value, ModeAnswers), tolerances, words)
    found = with_special_values(found, request, *tolerances)
    if count := count_draws(before):
        note = f"{count} operators draw random numbers: each is in both models once; {SAME_SEEDS}"
        found = dataclasses.replace(found, notes=(*found.notes, note))
    rounded = any(step.kind in {"quantize", "dequantize"} for border in borders for step in border.steps)
    return dataclasses.replace(found, notes=(*found.notes, _ON_GRID)) if rounded else found


def try_other_sizes(
    before: bytes,
    after: bytes,
    *,
    seed: int = 0,
    tolerance: float = 0.0,
    atol: float = 0.0,
    timeout_seconds: float | None = 300.0,
    borders: Sequence[Border] = (),
    kernels: bool = False,
) -> tuple[tuple[OtherSize, ...], tuple[str, ...]]:
    """Run both models, in both modes of `verify`, at another size of each axis that ``before`` leaves open.

    Args:
        tolerance: Relative error that is permitted.
        atol: Absolute error that is permitted.
        kernels: As `verify` has it.

    Returns:
        The outcome of each size, and notes for the report.

    Raises:
        RuntimeUnavailableError: LiteRT is not installed.
    """
    LITERT.require()
    if not any(open_axes(parse(before))):
        return (), ()
    request = SizesRequest(
        before=before, after=after, seed=seed, tolerance=tolerance, atol=atol, borders=told(borders), kernels=kernels
    )
    result = run_in_child(_OTHER_SIZES, msgspec.structs.asdict(request), timeout_seconds)
    if result.status == "crash":
        alone = replace(request, after=before, borders=[])
        if run_in_child(_OTHER_SIZES, msgspec.structs.asdict(alone), timeout_seconds).ok:
            crash = short_reason(f"LiteRT crashes: {result.reason}", LISTED_REASON)
            return (OtherSize("sizes", 0, "wrong", crash),), ()
    if not result.ok:
        return (), (f"other sizes were not tried: {short_reason(result.reason, LISTED_REASON)}",)
    answer = msgspec.convert(result.value, SizesAnswer)
    notes = [f"no other size of {name} was found that {BEFORE_AND_AFTER.first} accepts" for name in answer.untried]
    return tuple(OtherSize(**size) for size in answer.sizes), tuple(notes)


def _run(request: CompareRequest, timeout_seconds: float | None) -> ChildResult:
    return run_in_child(_SESSION, msgspec.structs.asdict(request), timeout_seconds)


def _unknown(runtime: str, reason: str) -> Verification:
    return Verification(runtime, 0, None, None, None, None, None, short_reason(reason, LISTED_REASON))


def _refuted(runtime: str, runs: int, error: float | None, reason: str) -> Verification:
    return Verification(runtime, runs, False, error, None, None, None, short_reason(reason, LISTED_REASON))


def _failed(
    runtime: str, request: CompareRequest, result: ChildResult, timeout_seconds: float | None, words: ModelWords
) -> Verification:
    """Find out whose fault it is that the child did not answer."""
    if result.status == "error":
        return _unknown(runtime, f"LiteRT could not be used: {result.reason}")
    alone = _run(replace(request, after=request.before, probe=False, borders=[]), timeout_seconds)
    if result.status == "timeout":
        return _unknown(runtime, f"running both models was {result.reason}")
    if alone.status == "crash":
        return _unknown(runtime, f"LiteRT crashes on {words.first}: {alone.reason}")
    if not alone.ok:
        return _unknown(runtime, f"LiteRT crashed ({result.reason}), and {words.first} alone: {alone.reason}")
    return _refuted(runtime, 0, None, f"LiteRT crashes on {words.second} only: {result.reason}")


def _judge(runtime: str, answers: ModeAnswers, tolerances: tuple[float, float], words: ModelWords) -> Verification:
    """Make one verdict of what both modes showed.

    Args:
        tolerances: With delegates and without. If the second is larger, equal outputs with delegates are enough.
    """
    plain, default = answers.plain, answers.default
    modes = {PLAIN: plain, "LiteRT with its default delegates": default}
    by_default = tolerances[1] > tolerances[0] and default.before_error is None
    permitted = {mode: tolerances[by_default and found is plain] for mode, found in modes.items()}
    for mode, found in modes.items():
        tolerance = permitted[mode]
        if found.after_error is not None:
            return _refuted(
                runtime, 0, None, _refusal(f"{mode} refuses {words.second} only: {found.after_error}", words)
            )
        if found.equal is False and found.repeatable and not found.near(tolerance) and found.own_error is None:
            error = found.max_abs_error if math.isfinite(found.max_abs_error) else None
            return _refuted(runtime, found.runs, error, f"outputs differ in {mode}")
    ran = [
        found
        for mode, found in modes.items()
        if found.equal or found.near(permitted[mode]) or found.own_error is not None
    ]
    refused = {mode: found.before_error for mode, found in modes.items() if found.before_error is not None}
    if not ran:
        if refused:
            return _unknown(runtime, _refusal(f"LiteRT refuses {words.first}: {next(iter(refused.values()))}", words))
        return _unknown(runtime, f"{words.first} gives other outputs each time it is run on the same inputs")
    notes = [f"not run in {mode}: {short_reason(reason, LISTED_REASON)}" for mode, reason in refused.items()]
    if by_default and default in ran:
        notes += [] if plain.equal or plain not in ran else [_PLAIN_APART.format(plain.relative_error)]
        ran = [default]
    matches, reason = _order(answers, notes)
    notes += _session(plain)
    return Verification(
        runtime=runtime,
        runs=min(found.runs for found in ran),
        outputs_equal=all(found.equal for found in ran),
        max_abs_error=max(found.max_abs_error for found in ran),
        measured_peak_before_bytes=plain.arena_before,
        measured_peak_after_bytes=plain.arena_after,
        executed_order_matches=matches,
        reason=reason,
        notes=tuple(notes),
        relative_error=max(found.relative_error for found in ran),
        own_error=default.own_error,
        outputs_vary=ran[0].vary,
        default_session=DEFAULT_SESSION,
        default_peak_before_bytes=default.arena_before,
        default_peak_after_bytes=default.arena_after,
    )


def _session(plain: ModeAnswer) -> list[str]:
    """Say in which session the peaks were measured."""
    if plain.arena_before is None or plain.arena_after is None:
        return []
    session = "Interpreter(..., experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)"
    return [f"peaks are measured without delegates, and what processes take is not compared: {session}"]


def _order(answers: ModeAnswers, notes: list[str]) -> tuple[bool | None, str | None]:
    """Return whether the file's order is executed without delegates, and why that or the arena could not be seen."""
    plain, default = answers.plain.order_after, answers.default.order_after
    if default is not None and default != tuple(range(len(default))):
        notes.append(OTHER_ORDER)
    unseen = []
    if plain is None:
        unseen.append("the order that LiteRT executes could not be seen")
    if answers.plain.arena_after is None or answers.plain.arena_before is None:
        unseen.append(ARENA_UNSEEN)
    return None if plain is None else plain == tuple(range(len(plain))), "; ".join(unseen) or None


def _refusal(reason: str, words: ModelWords) -> str:
    return short_reason(reason, LISTED_REASON - len(words.elsewhere)) + words.elsewhere
