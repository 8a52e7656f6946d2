"""Whether two TFLite models agree in what they make of special values in LiteRT: the child process's side too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from memsched.runtimes.borders import BorderFormulas
from memsched.runtimes.inputs import random_values
from memsched.runtimes.litert.answers import CompareRequest
from memsched.runtimes.litert.draws import with_same_seeds
from memsched.runtimes.litert.session import input_kinds, opened, run_on
from memsched.runtimes.special import (
    Special,
    SpecialRuns,
    compared_on,
    judged,
    mixed_inputs,
    rng_of,
    tried,
    worth_trying,
)
from memsched.runtimes.values import Verification

__all__ = ["execute", "with_special_values"]

_EXECUTE: Final = "memsched.runtimes.litert.special:execute"

_WORDS: Final = {"plain": "LiteRT without delegates", "default": "LiteRT with its default delegates"}


def with_special_values(
    found: Verification, request: CompareRequest, tolerance: float, plain_tolerance: float
) -> Verification:
    """Return a verification with what both models of a request make of special values.

    Nothing is tried where something else speaks against the optimised model.

    Args:
        tolerance: Relative error permitted with delegates.
        plain_tolerance: Relative error permitted without delegates.
    """
    if request.before == request.after or not worth_trying(found, tolerance):
        return found
    alone = msgspec.structs.replace(request, after=request.before, borders=[])
    tolerances = {"default": tolerance, "plain": plain_tolerance}
    return compared_on(
        found,
        _EXECUTE,
        {"request": msgspec.structs.asdict(request), "tolerances": tolerances},
        {"request": msgspec.structs.asdict(alone), "tolerances": tolerances},
        "LiteRT",
    )


def execute(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Run both models of "request", a `CompareRequest`, in each mode, and return what `judged` says of it."""
    request = msgspec.convert(payload["request"], CompareRequest)
    before, after = with_same_seeds([request.before, request.after])
    request = msgspec.structs.replace(request, before=before, after=after)
    found = [one for mode, words in _WORDS.items() for one in _tried(request, mode, words, payload["tolerances"][mode])]
    return judged(found)


def _tried(request: CompareRequest, mode: str, words: str, tolerance: float) -> list[SpecialRuns]:
    pair = _ModePair(request, mode)
    other = _ModePair(request, "plain").given if request.kernels and mode == "default" else None
    return tried(pair, session=words, tolerance=tolerance, other=other)


class _ModePair:
    """Both models of a request in one mode, as a `SpecialPair`."""

    def __init__(self, request: CompareRequest, mode: str) -> None:
        self._request, self._mode = request, mode
        self._formulas = BorderFormulas(request.borders)

    def given(self, special: Special, bound: int) -> Any:
        """Return the outputs of the model as given; see `SpecialPair.given`."""
        return self._formulas.results_on_grid(_outputs(self._request.before, self._mode, self._inputs(special, bound)))

    def written(self, special: Special, bound: int) -> Any:
        """Return those of the other one; see `SpecialPair.written`."""
        inputs = self._formulas.inputs(self._inputs(special, bound))
        return self._formulas.outputs(_outputs(self._request.after, self._mode, inputs))

    def again(self, special: Special, bound: int) -> list[Any]:
        """Return the outputs of another run; see `SpecialPair.again`."""
        return [self.given(special, bound)]

    def _inputs(self, special: Special, bound: int) -> list[Any]:
        """Return random inputs of the model as given with special values among them."""
        rng = rng_of(self._request.seed, special)
        kinds = input_kinds(opened(self._request.before, self._mode))
        free = [self._formulas.moved_only(place) for place in range(len(kinds))]
        drawn = [random_values(dtype, shape, rng, full_range=grid, high=bound) for dtype, shape, grid in kinds]
        values = mixed_inputs(drawn, special, rng, free, [grid for _, _, grid in kinds])
        return [
            value if is_free else self._formulas.on_grid(place, value)
            for place, (value, is_free) in enumerate(zip(values, free, strict=True))
        ]


def _outputs(model: bytes, mode: str, inputs: Sequence[Any]) -> list[Any]:
    interpreter = opened(model, mode)
    interpreter.allocate_tensors()
    return run_on(interpreter, inputs)
