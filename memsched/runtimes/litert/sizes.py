"""Runs a model and the one optimized from it at sizes that it was not optimized for: the child process's side.

Both are resized as callers do it who do not ask LiteRT to be strict. A file whose signature states its sizes may be
wrong then, and only then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from memsched.base.frozen import FrozenValue
from memsched.base.shown import LISTED_REASON
from memsched.runtimes.borders import BorderFormulas
from memsched.runtimes.compare import compare, relative_error, within_own
from memsched.runtimes.inputs import random_values
from memsched.runtimes.litert.answers import SizesAnswer, SizesRequest
from memsched.runtimes.litert.draws import with_same_seeds
from memsched.runtimes.litert.session import MODES, input_kinds, one_line, opened, run_on
from memsched.runtimes.values import INTEGER_BOUNDS, candidate_sizes, short_reason

__all__ = ["execute"]


_STRICTLY: Final = "only if the resize is strict: "
_REFUSALS: Final = (RuntimeError, ValueError)


def execute(payload: Mapping[str, object]) -> Mapping[str, object]:
    """Run both models at another size of each axis that the first one leaves open.

    A `SizesRequest` to a `SizesAnswer`, as plain values. The same axis of several inputs changes together. Axes of
    which the first model takes no other size change together in the end.
    """
    request = msgspec.convert(payload, SizesRequest)
    before, after = with_same_seeds([request.before, request.after])
    pair = _ResizedModels(msgspec.structs.replace(request, before=before, after=after))
    sizes: list[dict[str, Any]] = []
    untried: list[_OpenAxis] = []
    for axis in pair.open:
        found = pair.judged([axis])
        sizes += [] if found is None else [found]
        untried += [axis] if found is None else []
    if len(untried) > 1 and (found := pair.judged(untried)) is not None:
        sizes.append(found)
        untried = []
    answer = SizesAnswer(sizes=sizes, untried=[axis.name for axis in untried])
    values: Mapping[str, object] = msgspec.to_builtins(answer)
    return values


class _OpenAxis(FrozenValue, frozen=True):
    """An axis that inputs, by their numbers, leave open; its size is that of the first of them."""

    axis: int
    inputs: tuple[int, ...]
    name: str
    size: int


class _ResizedModels:
    """Both models.

    Attributes:
        open: The axes that the first leaves open.
    """

    def __init__(self, request: SizesRequest) -> None:
        self._request = request
        self._formulas = BorderFormulas(request.borders)
        details = opened(request.before, "plain").get_input_details()
        self._shapes = [[int(size) for size in one["shape"]] for one in details]
        found: dict[int, list[int]] = {}
        for number, one in enumerate(details):
            for axis, size in enumerate(one["shape_signature"]):
                if size == -1:
                    found.setdefault(axis, []).append(number)
        self.open = [
            _OpenAxis(
                axis,
                tuple(numbers),
                ", ".join(f"{details[number]['name']}[{axis}]" for number in numbers),
                self._shapes[numbers[0]][axis],
            )
            for axis, numbers in sorted(found.items())
        ]

    def judged(self, axes: Sequence[_OpenAxis]) -> dict[str, Any] | None:
        """Return what became of the optimized model at the first size that the other takes; None if it takes none."""
        for size in candidate_sizes(axes[0].size):
            shapes = [list(shape) for shape in self._shapes]
            for one in axes:
                for number in one.inputs:
                    # Axes that change together keep their proportion.
                    shapes[number][one.axis] = max(1, shapes[number][one.axis] * size // axes[0].size)
            expected = self._expected(shapes)
            if expected is not None:
                outcome, reason = self._outcome(*expected)
                name = ", ".join(one.name for one in axes)
                return {"dimension": name, "size": size, "outcome": outcome, "reason": reason}
        return None

    def _expected(self, shapes: Sequence[Sequence[int]]) -> tuple[list[Any], dict[str, list[Any]]] | None:
        """Return inputs of these shapes and the first model's outputs per mode; None if it runs in none."""
        for bound in (INTEGER_BOUNDS[0], INTEGER_BOUNDS[-1]):
            inputs = self._drawn(shapes, bound)
            found = {}
            for mode in MODES:
                with contextlib.suppress(*_REFUSALS):
                    once, again = (_outputs(self._request.before, mode, inputs) for _ in range(2))
                    # Outputs that vary by themselves say nothing.
                    if compare(once, again)[0]:
                        found[mode] = self._formulas.results_on_grid(once)
            if found:
                return inputs, found
        return None

    def _drawn(self, shapes: Sequence[Sequence[int]], bound: int) -> list[Any]:
        rng = np.random.default_rng(self._request.seed)
        kinds = input_kinds(opened(self._request.before, "plain"))
        return [
            self._formulas.on_grid(place, random_values(dtype, shape, rng, full_range=quantized, high=bound))
            for place, ((dtype, _, quantized), shape) in enumerate(zip(kinds, shapes, strict=True))
        ]

    def _outcome(self, inputs: Sequence[Any], expected: Mapping[str, Sequence[Any]]) -> tuple[str, str | None]:
        """Compare the optimized model's outputs in each mode; a refusal is as good as the right ones."""
        refusals = []
        given = self._formulas.inputs(inputs)
        for mode, outputs in expected.items():
            try:
                found = self._formulas.outputs(_outputs(self._request.after, mode, given))
            except _REFUSALS as error:
                refusals.append(short_reason(one_line(error), LISTED_REASON))
                continue
            plain = expected.get("plain") if self._request.kernels and mode == "default" else None
            wrong = self._wrong(outputs, found, plain)
            if wrong is not None:
                strict = self._strict_refusal(given)
                return ("wrong", wrong) if strict is None else ("refused", strict)
        return ("refused", refusals[0]) if refusals else ("equal", None)

    def _strict_refusal(self, inputs: Sequence[Any]) -> str | None:
        """Return what LiteRT says if it is asked to heed the signature of the optimized model."""
        try:
            _resize(opened(self._request.after, "plain"), inputs, strict=True)
        except _REFUSALS as error:
            return short_reason(_STRICTLY + one_line(error), LISTED_REASON)
        return None

    def _wrong(self, expected: Sequence[Any], found: Sequence[Any], plain: Sequence[Any] | None) -> str | None:
        """Return what is wrong; ``plain``: outputs of the first model with other kernels that explain differences."""
        for one, other in zip(expected, found, strict=True):
            if one.shape != other.shape:
                return f"an output has shape {list(other.shape)} where the model as given has {list(one.shape)}"
        equal, distance = compare(expected, found)
        error = relative_error(expected, found)
        if equal or error <= self._request.tolerance or distance <= self._request.atol:
            return None
        if plain is not None and within_own(expected, plain, found, len(expected)):
            return None
        return f"an output is off by {error:.1e} of its largest magnitude"


def _outputs(model: bytes, mode: str, inputs: Sequence[Any]) -> list[Any]:
    """Resize a model to its inputs and run it."""
    interpreter = opened(model, mode)
    _resize(interpreter, inputs, strict=False)
    interpreter.allocate_tensors()
    return run_on(interpreter, inputs)


def _resize(interpreter: Any, inputs: Sequence[Any], *, strict: bool) -> None:
    for detail, values in zip(interpreter.get_input_details(), inputs, strict=True):
        if tuple(detail["shape"]) != values.shape:
            interpreter.resize_tensor_input(detail["index"], values.shape, strict=strict)
