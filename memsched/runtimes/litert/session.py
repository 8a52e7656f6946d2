"""Two models run in LiteRT on the same random inputs: the child process's side of `verification`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from memsched.base.frozen import FrozenValue
from memsched.runtimes.borders import BorderFormulas, InputKind
from memsched.runtimes.compare import compare, relative_error, vary, within_own
from memsched.runtimes.inputs import DRAWS, Draw, random_values
from memsched.runtimes.litert.answers import CompareRequest, ModeAnswer, ModeAnswers
from memsched.runtimes.litert.draws import with_same_seeds
from memsched.runtimes.litert.probe import probe
from memsched.runtimes.values import INTEGER_BOUNDS, INVOKES

__all__ = ["MODES", "input_kinds", "one_line", "opened", "run", "run_on"]

MODES: Final = ("plain", "default")
"""Without delegates, and with those that LiteRT applies by itself."""


_USUAL_RANGE, _SAFE_RANGE = INTEGER_BOUNDS[0], INTEGER_BOUNDS[-1]
"""Exclusive bounds tried for integer inputs: they may be indices into an axis of unknown length."""


class _InputRange(FrozenValue, frozen=True):
    """How inputs are drawn: integers below ``high``, and whether the outputs vary then (None: unknown)."""

    high: int
    draw: Draw = "noise"
    vary: bool | None = None


def run(payload: Mapping[str, object]) -> Mapping[str, object]:
    """Compare two models with and without LiteRT's delegates: a `CompareRequest` to `ModeAnswers`, as plain values."""
    request = msgspec.convert(payload, CompareRequest)
    before, after = with_same_seeds([request.before, request.after])
    request = msgspec.structs.replace(request, before=before, after=after)
    answers = ModeAnswers(plain=_compare_models(request, "plain"), default=_compare_models(request, "default"))
    values: Mapping[str, object] = msgspec.to_builtins(answers)
    return values


def opened(model: bytes, mode: str, threads: int = 1) -> Any:
    """Return an interpreter of a model in one of `MODES`, without memory for its tensors."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if mode == "plain" else OpResolverType.AUTO
    return Interpreter(model_content=model, num_threads=threads, experimental_op_resolver_type=resolver)


def _load(model: bytes, mode: str) -> Any:
    interpreter = opened(model, mode)
    operators = interpreter._interpreter.NumNodes()
    interpreter.allocate_tensors()
    return interpreter, operators


def _compare_models(request: CompareRequest, mode: str) -> ModeAnswer:
    try:
        expected, drawn = _run_as_given(request, mode)
    except (ValueError, RuntimeError) as error:
        return ModeAnswer(before_error=one_line(error))
    try:
        found = _flat(_run_all(request, request.after, mode, drawn))
    except (ValueError, RuntimeError) as error:
        return ModeAnswer(after_error=one_line(error))
    equal, max_abs_error = compare(expected, found)
    repeatable = equal or compare(expected, _flat(_run_all(request, request.before, mode, drawn)))[0]
    answer = ModeAnswer(
        runs=request.runs,
        equal=equal,
        max_abs_error=max_abs_error,
        relative_error=relative_error(expected, found),
        repeatable=repeatable,
        vary=drawn.vary,
    )
    if mode == "default" and request.kernels and not equal:
        answer = _explained(answer, request, drawn, expected, found)
    return _probed(answer, request, mode, drawn) if request.probe else answer


def _explained(
    answer: ModeAnswer, request: CompareRequest, drawn: _InputRange, expected: Sequence[Any], found: Sequence[Any]
) -> ModeAnswer:
    """Return the answer with the difference of the model's own outputs between kernels, if that explains the other."""
    try:
        plain = _flat(_run_all(request, request.before, "plain", drawn))
    except (ValueError, RuntimeError):
        return answer
    outputs = len(expected) // (request.runs * INVOKES)
    if not within_own(expected, plain, found, outputs):
        return answer
    return msgspec.structs.replace(answer, own_error=compare(expected, plain)[1])


def _run_as_given(request: CompareRequest, mode: str) -> tuple[list[Any], _InputRange]:
    """Return the outputs of the model as given, with inputs on which it runs, and on which they vary where any do."""
    drawn = _InputRange(_USUAL_RANGE)
    try:
        first = _run_all(request, request.before, mode, drawn)
    except RuntimeError:
        drawn = _InputRange(_SAFE_RANGE)
        first = _run_all(request, request.before, mode, drawn)
    if len(first) < 2:
        return _flat(first), drawn
    for draw in DRAWS:
        runs = first if draw == drawn.draw else _run_all(request, request.before, mode, replace(drawn, draw=draw))
        if vary(runs):
            return _flat(runs), replace(drawn, draw=draw, vary=True)
    return _flat(first), replace(drawn, vary=False)


def _run_all(request: CompareRequest, model: bytes, mode: str, drawn: _InputRange) -> list[list[Any]]:
    """Load a model anew, so that no state is left from before, and return its outputs run by run."""
    interpreter, _ = _load(model, mode)
    seeds = [np.random.SeedSequence([request.seed, number]) for number in range(request.runs)]
    return [_outputs(interpreter, seed, drawn, _Ends.of(request, model)) for seed in seeds]


class _Ends(FrozenValue, frozen=True):
    """What callers do at the border: to the inputs and outputs of the model written, and to no others."""

    formulas: BorderFormulas
    written: bool

    @staticmethod
    def of(request: CompareRequest, model: bytes) -> _Ends:
        return _Ends(BorderFormulas(request.borders), model is request.after)

    def values(self, own: Sequence[InputKind], rng: Any, drawn: _InputRange) -> list[Any]:
        """Return random inputs for a model, ``own`` being what it takes."""
        kinds = self.formulas.given(own)
        values = [
            self.formulas.on_grid(
                place, random_values(dtype, shape, rng, full_range=quantized, high=drawn.high, draw=drawn.draw)
            )
            for place, (dtype, shape, quantized) in enumerate(kinds)
        ]
        return self.formulas.inputs(values) if self.written else values

    def outputs(self, values: Sequence[Any]) -> list[Any]:
        """Return a model's outputs as those of the model as given."""
        return self.formulas.outputs(values) if self.written else self.formulas.results_on_grid(values)


def _flat(runs: Sequence[Sequence[Any]]) -> list[Any]:
    return [output for run in runs for output in run]


def _outputs(interpreter: Any, seed: Any, drawn: _InputRange, ends: _Ends) -> list[Any]:
    """Reset the state, run a few times in a row and return all outputs of all runs."""
    rng = np.random.default_rng(seed)
    interpreter.reset_all_variables()
    found = []
    for _ in range(INVOKES):
        values = ends.values(input_kinds(interpreter), rng, drawn)
        found += ends.outputs(run_on(interpreter, values))
    return found


def input_kinds(interpreter: Any) -> list[InputKind]:
    """Return per input the type of which values are drawn, the shape, and whether it is quantised."""
    return [
        ("S4" if np.dtype(one["dtype"]).kind in "OSU" else one["dtype"], one["shape"], one["quantization"][0] != 0)
        for one in interpreter.get_input_details()
    ]


def run_on(interpreter: Any, inputs: Sequence[Any]) -> list[Any]:
    """Run once; return the outputs."""
    for detail, values in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(detail["index"], values)
    interpreter.invoke()
    return [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]


def _probed(answer: ModeAnswer, request: CompareRequest, mode: str, drawn: _InputRange) -> ModeAnswer:
    seen = []
    for model in (request.before, request.after):
        interpreter, operators = _load(model, mode)
        _outputs(interpreter, np.random.SeedSequence([request.seed, 0]), drawn, _Ends.of(request, model))
        seen.append(probe(interpreter, operators))
    before, after = seen
    return msgspec.structs.replace(
        answer,
        order_before=before.order,
        order_after=after.order,
        arena_before=before.arena_bytes,
        arena_after=after.arena_bytes,
    )


def one_line(error: Exception) -> str:
    """Return what LiteRT says of an error, in one line."""
    # LiteRT hands its lines over as one.
    lines = re.sub(r"(?<=[\w)])\.(?=[A-Z])", ". ", str(error))
    return " ".join(lines.split()) or type(error).__name__
