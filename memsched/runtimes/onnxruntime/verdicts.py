"""What comparing two models in ONNX Runtime says beside its figures: notes, and whether the wanted order ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from memsched.runtimes.values import EXECUTED_TOLERANCE, SAME_SEEDS, Verification

__all__ = ["by_chance", "cannot_compare", "drawn", "equal_by_default", "order_matches", "rounded"]

_HOISTED: Final = frozenset({"Shape", "Size"})


def rounded(errors: Sequence[float] | None) -> list[str]:
    """Return the note on how far rounding of activations takes the outputs of dynamically quantized models."""
    if errors is None:
        return []
    given, written = errors
    text = (
        "activations are rounded by their range in each run, so that a last bit moves whole steps: without options, "
        f"the file as given is off its own weights in floats by up to {given:.1e} of the largest magnitude, this file "
        f"by {written:.1e}"
    )
    return [text]


def by_chance(given: Mapping[str, Any], written: Mapping[str, Any]) -> list[str]:
    """Return notes on what sessions without options requested where that differed from session to session."""
    files = {"the file as given": given, "this file": written}
    return [
        f"sessions without options requested {one['least_bytes']:,} to {one['lasting_bytes']:,} B for {file}: in which "
        "order they change layouts is chance, and the largest counts"
        for file, one in files.items()
        if one["least_bytes"] is not None and one["least_bytes"] != one["lasting_bytes"]
    ]


def drawn(answer: Mapping[str, Any]) -> list[str]:
    """Return the note on how models that draw random numbers were compared; nothing if they do not draw."""
    draws = answer["draws"]
    if not draws["count"] or draws["mismatch"]:
        return []
    ops, are = ("1 op draws", "it is") if draws["count"] == 1 else (f"{draws['count']} ops draw", "each is")
    seeds = f"; {SAME_SEEDS}" if draws["seeded"] else ""
    return [f"{ops} random numbers: {are} in both models once{seeds}"]


def cannot_compare(answer: Mapping[str, Any]) -> str:
    """Return why outputs of models that draw random numbers say nothing."""
    return f"outputs cannot be compared: {answer['random']} draws random numbers and takes no seed"


def equal_by_default(found: Verification) -> Verification | None:
    """Return the comparison of sessions without options, if those give equal outputs and others only round differently.

    A file that stores the graph of a session without options was optimized once more than the other file in a session
    that optimizes less.
    """
    error = found.relative_error
    if found.default_apart != 0 or error is None or error > EXECUTED_TOLERANCE:
        return None
    other = f"outputs are equal in sessions without options; where sessions optimize less, they differ by {error:.1e}"
    return replace(
        found,
        outputs_equal=True,
        max_abs_error=0.0,
        reason=None,
        measured_peak_before_bytes=found.default_peak_before_bytes,
        measured_peak_after_bytes=found.default_peak_after_bytes,
        measured_with=(),
        stated=(f"{other} of their largest magnitude", *found.stated),
    )


def order_matches(model: Mapping[str, Any], executed: Sequence[int], notes: list[str]) -> bool:
    """Whether the nodes that ran under their own names ran in the wanted order, as far as order means anything."""
    free = set(model["free"])
    hoisted = {at for at, (_, kind) in enumerate(model["nodes"]) if kind in _HOISTED}
    ran = set(executed)
    if hoisted - free:
        notes.append("Shape and Size nodes are disregarded in the order: onnxruntime runs them as soon as it can")
    wanted = [at for at in model["expected"] if at not in free and at not in hoisted]
    missing = sum(at not in ran for at in wanted)
    if missing:
        notes.append(
            f"{missing} of {len(wanted)} nodes are disregarded in the order: onnxruntime expanded or merged them"
        )
    relevant = set(wanted)
    return [at for at in wanted if at in ran] == [at for at in executed if at in relevant]
