"""Segments of a model run one after the other in the real runtime, against the whole model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from memsched.formats.module import Module
from memsched.runtimes.child import TIMEOUT, ChildResult, run_in_child
from memsched.runtimes.known import row_runner_of
from memsched.runtimes.special import compared_on, worth_trying
from memsched.runtimes.values import RUNS, Verification, short_reason

__all__ = ["run_in_a_row"]

EQUAL_TOO: Final = ", outputs are equal bit by bit too"


def run_in_a_row(
    module: Module,
    first: bytes | str | Path,
    segments: Sequence[bytes],
    *,
    runs: int = RUNS,
    seed: int = 0,
    tolerance: float = 0.0,
) -> Verification:
    """Run a model and then its segments on the same random inputs, and compare the model's outputs.

    Values go from segment to segment by name. Outputs must be equal bit by bit in ONNX Runtime without graph
    optimisation, in the order of the file, and in LiteRT without delegates: there every operator is computed as it
    stands. What optimisation or delegates merge across a border cannot be merged in segments, so a note says whether
    the outputs are equal with them too. An input set is run twice in a row where the model may keep a state. Further
    inputs have special values among them; these run where every operator is computed as it stands.

    Args:
        module: As it was read from ``first``: it says how inputs, and dimensions left open, are to be filled.
        first: The whole model: a path or the file's bytes, whose external data lies beside ``module.path``.
        segments: Files in order of execution.
        runs: Input sets.
        seed: Of the inputs.
        tolerance: Relative error that is permitted.

    Raises:
        RuntimeUnavailableError: The runtime is not installed.
    """
    runner = row_runner_of(module.format)
    runtime = runner.package.require()
    data = first if isinstance(first, bytes) else Path(first).read_bytes()
    request = {
        **runner.row_request(module),
        "model": data,
        "segments": list(segments),
        "runs": max(runs, 1),
        "seed": seed,
    }
    result = run_in_child(runner.row, request, TIMEOUT)
    if not result.ok:
        return _died(runtime, runner.row, request, result)
    found = _judged(runtime, runner.other_mode, result.value, request["runs"])
    if not worth_trying(found, tolerance):
        return found
    request["tolerance"] = tolerance
    return compared_on(found, runner.row_special, request, {**request, "segments": []}, runtime)


def _died(runtime: str, row: str, request: Mapping[str, Any], result: ChildResult) -> Verification:
    """Judge a comparison whose process died: run the whole model alone to see which of the two it was."""
    reason = short_reason(result.reason)
    if result.status != "timeout":
        alone = {**request, "segments": []}
        if run_in_child(row, alone, TIMEOUT).ok:
            return _verdict(runtime, equal=False, reason=f"the segments do not run: {reason}")
    return _verdict(runtime, equal=None, reason=reason)


def _judged(runtime: str, mode: str, answer: Mapping[str, Any], runs: int) -> Verification:
    plain, other = answer["plain"], answer["other"]
    if plain["failed"] is not None:
        whole = plain["failed"] == 0
        reason = f"it cannot be run: {plain['message']}"
        if not whole:
            reason = f"segment {plain['failed']} does not run: {plain['message']}"
        return _verdict(runtime, equal=None if whole else False, reason=_shorten(reason))
    if answer["mismatch"] is not None:
        return _verdict(runtime, equal=False, reason=answer["mismatch"])
    if answer["random"] is not None:
        return _verdict(runtime, equal=None, reason=f"outputs cannot be compared: {answer['random']}")
    notes = [f"output '{name}' is a constant, which no segment hands out" for name in plain["absent"]]
    if other["failed"] is not None:
        notes.append(_shorten(f"{mode}, not everything runs: {other['message']}"))
    elif other["equal"]:
        notes.append(f"{mode}{EQUAL_TOO}")
    else:
        notes.append(f"{mode}, which segments leave less to merge, outputs differ by up to {other['max_abs_error']:g}")
    equal, error = bool(plain["equal"]), float(plain["max_abs_error"])
    reason_ = None if equal else f"outputs differ by up to {error:g}"
    return Verification(
        runtime, runs, equal, error, None, None, None, reason_, tuple(notes), relative_error=plain["relative_error"]
    )


def _verdict(runtime: str, equal: bool | None, reason: str) -> Verification:
    return Verification(runtime, 0, equal, None, None, None, None, reason)


def _shorten(text: str) -> str:
    return short_reason(" ".join(text.split()))
