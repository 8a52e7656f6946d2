"""What a caller does at a model's border, done to arrays: so that models with other inputs and outputs can be compared.

The formulas are those that the report prints. They are computed here by numpy in numbers of 32 bits, from nothing but
the steps that the caller is told, so a model is refuted where its caller would be told something else than it did.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memsched.graph.border import Border, BorderStep

__all__ = ["BorderFormulas", "InputKind", "told"]

InputKind = tuple[Any, Sequence[int], bool]
"""Element type and shape of an input, and whether it is quantised."""


def told(borders: Sequence[Border]) -> list[dict[str, Any]]:
    """Return borders as plain values for a child process."""
    return [
        {
            "side": border.side,
            "place": border.place,
            "given": border.given.name,
            "kind": [border.given.dtype, list(border.given.shape), border.given.scale is not None],
            "written": border.written.name,
            "steps": [{**dataclasses.asdict(step), "permutation": list(step.permutation)} for step in border.steps],
        }
        for border in borders
    ]


class BorderFormulas:
    """What stands between the values of a model as given and those of the one written.

    Args:
        borders: As `told` gives them.
    """

    def __init__(self, borders: Sequence[Mapping[str, Any]]) -> None:
        self._steps = {
            (one["side"], one["place"]): [
                BorderStep(**{**step, "permutation": tuple(step["permutation"])}) for step in one["steps"]
            ]
            for one in borders
        }
        self._kinds: dict[int, InputKind] = {one["place"]: one["kind"] for one in borders if one["side"] == "input"}
        self._names = {one["given"]: (one["written"], one["place"]) for one in borders if one["side"] == "input"}

    def given(self, own: Sequence[InputKind]) -> list[InputKind]:
        """Return the inputs of the model as given, ``own`` being those of the model written."""
        return [self._kinds.get(place, kind) for place, kind in enumerate(own)]

    def inputs(self, values: Sequence[Any]) -> list[Any]:
        """Return what to give the model written in place of these inputs of the model as given."""
        return [self._through("input", place, value) for place, value in enumerate(values)]

    def feed(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Do the same by names."""
        found = {}
        for name, value in values.items():
            written, place = self._names.get(name, (name, -1))
            found[written] = self._through("input", place, value)
        return found

    def outputs(self, values: Sequence[Any]) -> list[Any]:
        """Return what the outputs of the model written are as outputs of the model as given."""
        return [self._through("output", place, value) for place, value in enumerate(values)]

    def moved_only(self, given: int | str) -> bool:
        """Whether a caller leaves the values of an input of the model as given, by place or name, as they are."""
        place = self._names.get(given, (given, -1))[1] if isinstance(given, str) else given
        return all(step.kind == "transpose" for step in self._steps.get(("input", place), ()))

    def on_grid(self, place: int, value: Any) -> Any:
        """Return the nearest input that its quantised form says exactly: no way of rounding tells it apart."""
        steps = self._steps.get(("input", place), ())
        kinds = [step.kind for step in steps]
        if "quantize" not in kinds or set(kinds[: kinds.index("quantize")]) - {"transpose"}:
            return value
        before = steps[: kinds.index("quantize") + 1]
        found = value
        for step in before:
            found = _applied(step, found)
        found = _dequantised(before[-1], found)
        for step in reversed(before[:-1]):
            found = np.transpose(found, np.argsort(step.permutation))
        return np.ascontiguousarray(found)

    def results_on_grid(self, values: Sequence[Any]) -> list[Any]:
        """Return outputs of the model as given, those that a kernel made of integers free of how it rounded them.

        What is no integer's float but for the last bits stays as it is.
        """
        return [self._result_on_grid(place, value) for place, value in enumerate(values)]

    def _result_on_grid(self, place: int, value: Any) -> Any:
        steps = self._steps.get(("output", place), ())
        kinds = [step.kind for step in steps]
        if "dequantize" not in kinds or set(kinds[kinds.index("dequantize") + 1 :]) - {"transpose"}:
            return value
        step = steps[kinds.index("dequantize")]
        scale = np.float32(step.scale)
        exact = (np.rint(value / scale) * scale).astype(np.float32)
        largest = np.maximum(np.abs(value), np.abs(np.float32(step.zero_point) * scale))
        return np.where(np.abs(value - exact) <= 4 * np.finfo(np.float32).eps * largest, exact, value)

    def _through(self, side: str, place: int, value: Any) -> Any:
        for step in self._steps.get((side, place), ()):
            value = _applied(step, value)
        return value


def _applied(step: BorderStep, value: Any) -> Any:
    if step.kind == "transpose":
        return np.ascontiguousarray(np.transpose(value, step.permutation))
    if step.kind == "cast":
        return np.asarray(value).astype(step.dtype)
    if step.kind == "dequantize":
        return _dequantised(step, value)
    limits = np.iinfo(step.dtype)
    if step.kind == "shift":
        return np.clip(value.astype(np.int64) + step.offset, limits.min, limits.max).astype(step.dtype)
    with np.errstate(all="ignore"):
        quotient = np.asarray(value, np.float32) / np.float32(step.scale)
    whole = np.rint(quotient) if step.halves == "even" else _away_from_zero(quotient)
    return np.clip(whole.astype(np.float64) + step.zero_point, limits.min, limits.max).astype(step.dtype)


def _away_from_zero(values: Any) -> Any:
    """Return the nearest whole numbers, and of two equally near ones that farther from zero."""
    whole = np.trunc(values)
    return whole + np.where(np.abs(values - whole) >= 0.5, np.sign(values), 0).astype(values.dtype)


def _dequantised(step: BorderStep, value: Any) -> Any:
    return (value.astype(np.int32) - np.int32(step.zero_point)).astype(np.float32) * np.float32(step.scale)
