"""Whether two TFLite models agree in what they make of special values in LiteRT: the child process's side too."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from memsched.runtimes.borders import BorderFormulas
from memsched.runtimes.inputs import random_values
from memsched.runtimes.litert.answers import CompareRequest
from memsched.runtimes.litert.draws import with_same_seeds
from memsched.runtimes.litert.session import MODES, drawn_type, one_line, opened
from memsched.runtimes.special import Special, SpecialRuns, applying, compared_on, judged, mixed, worth_trying
from memsched.runtimes.values import Verification

__all__ = ["execute", "with_special_values"]

_EXECUTE: Final = "memsched.runtimes.litert.special:execute"

_INTEGER_BOUNDS: Final = (4, 1)
"""Exclusive bounds tried for integer inputs: they may be indices into an axis of unknown length."""

_WORDS: Final = {"plain": "LiteRT without delegates", "default": "LiteRT with its default delegates"}
_REFUSALS: Final = (RuntimeError, ValueError)


def with_special_values(found: Verification, request: CompareRequest, tolerance: float) -> Verification:
    """Return a verification with what both models of a request make of special values.

    Nothing is tried where something else speaks against the optimised model.
    """
    if request.before == request.after or not worth_trying(found, tolerance):
        return found
    alone = msgspec.structs.replace(request, after=request.before, borders=[])
    return compared_on(
        *(found, _EXECUTE),
        {"request": msgspec.structs.asdict(request), "tolerance": tolerance},
        {"request": msgspec.structs.asdict(alone), "tolerance": tolerance},
        "LiteRT",
    )


def execute(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Run both models of "request", a `CompareRequest`, in each mode, and return what `judged` says of it."""
    request = msgspec.convert(payload["request"], CompareRequest)
    before, after = with_same_seeds([request.before, request.after])
    request = msgspec.structs.replace(request, before=before, after=after)
    return judged(list(_runs(request, payload["tolerance"])))


def _runs(request: CompareRequest, tolerance: float) -> Iterator[SpecialRuns]:
    formulas = BorderFormulas(request.borders)
    for mode in MODES:
        for bound in _INTEGER_BOUNDS:
            expected = _of_given(request, mode, bound, formulas)
            if expected:
                found = {one: _of_written(request, mode, bound, formulas, one) for one in expected}
                again = partial(_again, request, mode, bound, formulas)
                yield SpecialRuns(_WORDS[mode], expected, found, again, tolerance)
                break


def _of_given(request: CompareRequest, mode: str, bound: int, formulas: BorderFormulas) -> dict[Special, Any]:
    found: dict[Special, Any] = {}
    with contextlib.suppress(*_REFUSALS):
        for special in applying([kind for place, kind in _kinds(request, mode) if formulas.moved_only(place)]):
            with contextlib.suppress(*_REFUSALS):
                outputs = _outputs(request.before, mode, _inputs(request, mode, bound, formulas, special))
                found[special] = formulas.results_on_grid(outputs)
    return found


def _of_written(
    request: CompareRequest, mode: str, bound: int, formulas: BorderFormulas, special: Special
) -> list[Any] | str:
    given = formulas.inputs(_inputs(request, mode, bound, formulas, special))
    try:
        return formulas.outputs(_outputs(request.after, mode, given))
    except _REFUSALS as error:
        return f"the other model is refused: {one_line(error)}"


def _again(
    request: CompareRequest, mode: str, bound: int, formulas: BorderFormulas, special: Special
) -> list[Sequence[Any]]:
    outputs = _outputs(request.before, mode, _inputs(request, mode, bound, formulas, special))
    return [formulas.results_on_grid(outputs)]


def _kinds(request: CompareRequest, mode: str) -> list[tuple[int, tuple[Any, bool]]]:
    details = opened(request.before, mode).get_input_details()
    return [(place, (drawn_type(one["dtype"]), one["quantization"][0] != 0)) for place, one in enumerate(details)]


def _inputs(request: CompareRequest, mode: str, bound: int, formulas: BorderFormulas, special: Special) -> list[Any]:
    """Return random inputs of the model as given with special values among them."""
    import numpy as np

    rng = np.random.default_rng([request.seed, len(special)])
    shapes = [one["shape"] for one in opened(request.before, mode).get_input_details()]
    found = []
    for (place, (dtype, quantized)), shape in zip(_kinds(request, mode), shapes, strict=True):
        value = random_values(dtype, shape, rng, full_range=quantized, high=bound)
        free = formulas.moved_only(place)
        found.append(mixed(value, special, rng, quantized=quantized) if free else formulas.on_grid(place, value))
    return found


def _outputs(model: bytes, mode: str, inputs: Sequence[Any]) -> list[Any]:
    interpreter = opened(model, mode)
    interpreter.allocate_tensors()
    for detail, values in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], values)
    interpreter.invoke()
    return [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]
