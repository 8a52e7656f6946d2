"""A TFLite model and its segments run in LiteRT: the child process's side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memsched.runtimes.inputs import random_values
from memsched.runtimes.litert.draws import draw_mismatch, with_same_seeds
from memsched.runtimes.litert.session import input_kinds, opened, run_on
from memsched.runtimes.row import RowPair, RunError, Values, result
from memsched.runtimes.special import Special, judged, mixed_inputs, tried
from memsched.runtimes.values import INTEGER_BOUNDS, INVOKES

__all__ = ["run", "special"]


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do what `memsched.runtimes.onnxruntime.row.run` does in LiteRT, without and with its delegates.

    Args:
        request: Also "names": pairs of the index of a tensor of the whole model and the name that segments give it.
    """
    mismatch = draw_mismatch(request["model"], request["segments"]) if request["segments"] else None
    whole, *parts = with_same_seeds([request["model"], *request["segments"]])
    request = {**request, "model": whole, "segments": parts}
    plain = result(lambda: _run_tflite(request, "plain"))
    random = None
    if plain["failed"] is None and not plain["equal"]:
        again = result(lambda: (_run_tflite(request, "plain")[0], _run_tflite(request, "plain")[0]))
        random = None if again["equal"] else "an operator draws random numbers"
    other = result(lambda: _run_tflite(request, "default"))
    return {"random": random, "mismatch": mismatch, "plain": plain, "other": other}


def special(request: Mapping[str, Any]) -> dict[str, Any]:
    """Do what `memsched.runtimes.onnxruntime.row.special` does in LiteRT, without delegates."""
    models = with_same_seeds([request["model"], *request["segments"]])
    names = {int(tensor): str(name) for tensor, name in request["names"]}

    def inputs(kind: Special, rng: Any, bound: int) -> Values:
        return _load(models[0], "plain", names, 0).random(rng, bound, kind)

    def whole(values: Values, threads: int) -> Values:
        return _Interpreter(models[0], "plain", names, threads).invoke(values)

    def row(values: Values) -> Values:
        held = dict(values)
        for number, model in enumerate(models[1:], 1):
            held.update(_invoke(_load(model, "plain", {}, number), number, held))
        return held

    return judged(tried(RowPair(request["seed"], inputs, whole, row), tolerance=request["tolerance"]))


def _run_tflite(request: Mapping[str, Any], mode: str) -> tuple[list[Values], list[Values]]:
    """Return per invocation the outputs of the whole model, and everything that its segments hand out."""
    names = {int(tensor): str(name) for tensor, name in request["names"]}
    models = [request["model"], *request["segments"]]
    loaded = [_load(model, mode, {} if number else names, number) for number, model in enumerate(models)]
    failure: RunError | None = None
    for bound in INTEGER_BOUNDS:
        found = _attempt(loaded, request, bound)
        if not isinstance(found, RunError):
            return found
        # The first message is about usual inputs; on inputs that suit the whole model the segments must run too.
        failure = found if failure is None or found.number else failure
        if found.number:
            break
    raise failure or ValueError("no bound was tried")


def _attempt(
    loaded: Sequence[_Interpreter], request: Mapping[str, Any], bound: int
) -> tuple[list[Values], list[Values]] | RunError:
    try:
        return _run_loaded(loaded, request, bound)
    except RunError as error:
        return error


def _load(model: bytes, mode: str, names: Mapping[int, str], number: int) -> _Interpreter:
    try:
        return _Interpreter(model, mode, names)
    except (ValueError, RuntimeError) as error:
        raise RunError(number, error) from error


def _run_loaded(
    loaded: Sequence[_Interpreter], request: Mapping[str, Any], bound: int
) -> tuple[list[Values], list[Values]]:
    expected: list[Values] = []
    found: list[Values] = []
    for run in range(request["runs"]):
        rng = np.random.default_rng(np.random.SeedSequence([request["seed"], run]))
        for one in loaded:
            one.reset()
        for _ in range(INVOKES):
            values = loaded[0].random(rng, bound)
            expected.append(_invoke(loaded[0], 0, values))
            held = dict(values)
            for number, one in enumerate(loaded[1:], 1):
                held.update(_invoke(one, number, held))
            found.append(held)
    return expected, found


def _invoke(interpreter: _Interpreter, number: int, values: Values) -> Values:
    try:
        return interpreter.invoke(values)
    except (ValueError, RuntimeError, KeyError) as error:
        raise RunError(number, error) from error


class _Interpreter:
    """One model in LiteRT, fed and asked by names."""

    def __init__(self, model: bytes, mode: str, names: Mapping[int, str], threads: int = 1) -> None:
        self._interpreter = opened(model, mode, threads)
        self._interpreter.allocate_tensors()
        self._names = names

    def reset(self) -> None:
        """Forget all state."""
        self._interpreter.reset_all_variables()

    def random(self, rng: Any, bound: int, special: Special | None = None) -> Values:
        """Return random values for all inputs; integers that are not quantised lie below ``bound``.

        Args:
            special: What is to be among them.
        """
        kinds = input_kinds(self._interpreter)
        drawn = [random_values(dtype, shape, rng, full_range=grid, high=bound) for dtype, shape, grid in kinds]
        if special is not None:
            drawn = mixed_inputs(drawn, special, rng, [True] * len(kinds), [grid for _, _, grid in kinds])
        return dict(zip(map(self._name, self._interpreter.get_input_details()), drawn, strict=True))

    def invoke(self, values: Values) -> Values:
        """Run once; the inputs take the shapes of the values that are given."""
        details: Sequence[Mapping[str, Any]] = self._interpreter.get_input_details()
        changed = False
        for detail in details:
            value = values[self._name(detail)]
            if tuple(detail["shape"]) != value.shape:
                self._interpreter.resize_tensor_input(detail["index"], value.shape)
                changed = True
        if changed:
            self._interpreter.allocate_tensors()
        made = run_on(self._interpreter, [values[self._name(detail)] for detail in details])
        return dict(zip(map(self._name, self._interpreter.get_output_details()), made, strict=True))

    def _name(self, detail: Mapping[str, Any]) -> str:
        return self._names.get(detail["index"], detail["name"])
