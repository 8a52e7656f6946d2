"""Stages run one after the other in TensorFlow Lite Micro against the whole model: the child process's side.

As in firmware every stage gets an interpreter of its own for every inference, and its arena is of no more use when it
has run. A check that fails in TFLM aborts this process.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from memsched.runtimes.borders import BorderFormulas
from memsched.runtimes.compare import compare, relative_error, vary
from memsched.runtimes.inputs import DRAWS, random_values
from memsched.runtimes.race import RaceRule, race
from memsched.runtimes.special import Special, judged, mixed_inputs, rng_of, tried
from memsched.runtimes.tflm.opened import opened, recorded
from memsched.runtimes.values import INVOKES, STAGED

__all__ = ["run", "special"]

_TURNS: Final = RaceRule(rounds=5, most=15, turn=0.05)


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the model "whole", then its "stages", on "runs" inputs drawn with "seed", each twice in a row.

    Args:
        request: Also "inputs" and "outputs": names of those of the model that was cut; "borders": what stands between
            them and the whole model's, as `memsched.runtimes.borders.told` has it; "reads" and "makes":
            per stage those of its inputs and outputs; "arena": bytes for each interpreter; "seconds": where so many are
            too few for all inputs, as many as they are enough for are drawn, but one at least; None for no limit.

    Returns:
        "runs": inputs; "equal", "max_abs_error", "relative_error"; "vary" (the model's outputs vary from input to
        input; None for a single one), "twice_equal" (both runs on an input give the same outputs); "arenas": head and
        tail of the whole model and of each stage, bytes; "time_ratio": processor time of the stages' invocations to
        that of the whole model's; that the wheel reads files in Python would outlast what allocation takes in firmware.
    """
    started = time.monotonic()

    whole = opened(request["whole"], request["arena"])
    details = [whole.get_input_details(number) for number in range(len(request["inputs"]))]
    runs: int = request["runs"]
    if request["seconds"] is not None:
        runs = _affordable(whole, details, request, started)
    late = started + (request["seconds"] if request["seconds"] is not None else float("inf"))
    for draw in DRAWS:
        begun = time.monotonic()
        drawn = [_values(details, request["seed"], number, draw) for number in range(runs)]
        expected = [_whole(whole, values, request) for values in drawn for _ in range(INVOKES)]
        varies = vary(expected[::INVOKES]) if runs > 1 else None
        now = time.monotonic()
        if varies is not False or now + (1 + STAGED) * (now - begun) > late:
            break
    arenas = [_allocated(whole)]
    found = [_in_stages(values, request, arenas) for values in drawn for _ in range(INVOKES)]
    flat = [output for outputs in expected for output in outputs]
    others = [output for outputs in found for output in outputs]
    equal, error = compare(flat, others)
    twice = all(
        np.array_equal(one, other)
        for first, second in zip(found[::INVOKES], found[1::INVOKES], strict=True)
        for one, other in zip(first, second, strict=True)
    )
    return {
        "runs": runs,
        "equal": equal,
        "max_abs_error": error,
        "relative_error": relative_error(flat, others),
        "vary": varies,
        "twice_equal": twice,
        "arenas": arenas,
        "time_ratio": _time_ratio(whole, drawn[0], request),
    }


def _time_ratio(whole: Any, values: Sequence[Any], request: Mapping[str, Any]) -> float:
    stages = [opened(model, request["arena"]) for model in request["stages"]]
    _handed_on(values, stages, request, None)
    return race(whole.invoke, lambda: [stage.invoke() for stage in stages], _TURNS).processor


def special(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `memsched.runtimes.special.judged` says of special values.

    Args:
        request: As `run` has it, and "tolerance", and the "kinds" of values to try.
    """
    return judged(tried(_StagedPair(request), specials=request["kinds"], tolerance=request["tolerance"]))


class _StagedPair:
    """The whole model and its stages, as a `memsched.runtimes.special.SpecialPair`."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self._request = request

    def given(self, special: Special, bound: int) -> list[Any]:
        """Return the outputs of the whole model."""
        return _whole(self._opened(), self._values(special, bound), self._request)

    def written(self, special: Special, bound: int) -> list[Any]:
        """Return those of the stages."""
        if not self._request["stages"]:
            return self.given(special, bound)
        return _in_stages(self._values(special, bound), self._request, None)

    def again(self, special: Special, bound: int) -> list[Any]:
        """Return the outputs of another run."""
        return [self.given(special, bound)]

    def _opened(self) -> Any:
        return opened(self._request["whole"], self._request["arena"])

    def _values(self, special: Special, bound: int) -> list[Any]:

        whole, formulas = self._opened(), BorderFormulas(self._request["borders"])
        details = [whole.get_input_details(number) for number in range(len(self._request["inputs"]))]
        values = _values(details, self._request["seed"], 0, "noise", bound)
        free = [formulas.moved_only(place) for place in range(len(details))]
        rng = rng_of(self._request["seed"], special)
        mixed = mixed_inputs(values, special, rng, free, [_quantized(one) for one in details])
        return [
            value if is_free else formulas.on_grid(place, value)
            for place, (value, is_free) in enumerate(zip(mixed, free, strict=True))
        ]


def _affordable(
    interpreter: Any, details: Sequence[Mapping[str, Any]], request: Mapping[str, Any], began: float
) -> int:
    """Return on how many inputs the model and its stages can be run within "seconds", which began at ``began``."""
    values = _values(details, request["seed"], 0, DRAWS[0])
    begun = time.monotonic()
    _whole(interpreter, values, request)
    now = time.monotonic()
    each = INVOKES * (1 + STAGED) * (now - begun)
    left = began + request["seconds"] - now
    return int(max(1, min(request["runs"], left / max(each, 1e-9))))


def _values(details: Sequence[Mapping[str, Any]], seed: int, number: int, draw: Any, high: int = 4) -> list[Any]:
    rng = np.random.default_rng(np.random.SeedSequence([seed, number]))
    return [
        random_values(
            one["dtype"],
            one["shape"],
            rng,
            full_range=_quantized(one),
            high=high,
            draw=draw,
        )
        for one in details
    ]


def _quantized(detail: Mapping[str, Any]) -> bool:
    return len(detail["quantization_parameters"]["scales"]) > 0


def _whole(interpreter: Any, values: Sequence[Any], request: Mapping[str, Any]) -> list[Any]:
    return _executed(interpreter, values, len(request["outputs"]))


def _executed(interpreter: Any, values: Sequence[Any], outputs: int) -> list[Any]:
    for number, value in enumerate(values):
        interpreter.set_input(value, number)
    interpreter.invoke()
    return [np.array(interpreter.get_output(number)) for number in range(outputs)]


def _in_stages(values: Sequence[Any], request: Mapping[str, Any], arenas: list[tuple[int, int]] | None) -> list[Any]:
    """Return the outputs of the stages; add to ``arenas`` what each takes if that holds what the whole model takes."""
    stages = (opened(model, request["arena"]) for model in request["stages"])
    return _handed_on(values, stages, request, arenas if arenas is not None and len(arenas) == 1 else None)


def _handed_on(
    values: Sequence[Any], stages: Iterable[Any], request: Mapping[str, Any], arenas: list[tuple[int, int]] | None
) -> list[Any]:
    """Return the outputs of interpreters of which each reads what those before it made."""
    formulas = BorderFormulas(request["borders"])
    there = dict(zip(request["inputs"], formulas.inputs(values), strict=True))
    for interpreter, reads, makes in zip(stages, request["reads"], request["makes"], strict=True):
        made = _executed(interpreter, [there[name] for name in reads], len(makes))
        there.update(zip(makes, made, strict=True))
        if arenas is not None:
            arenas.append(_allocated(interpreter))
    return formulas.outputs([there[name] for name in request["outputs"]])


def _allocated(interpreter: Any) -> tuple[int, int]:
    """Return head and tail of an interpreter's arena, which TFLM writes to standard error."""
    kept = os.dup(1), os.dup(2)
    with tempfile.TemporaryFile() as log:
        try:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            interpreter.print_allocations()
        finally:
            for number, old in enumerate(kept, 1):
                os.dup2(old, number)
                os.close(old)
        log.seek(0)
        found = recorded(log.read().decode("utf-8", "replace"))
    if found.head is None or found.tail is None:
        raise ValueError("nothing was recorded of the arena")
    return found.head, found.tail
