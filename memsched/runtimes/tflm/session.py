"""Models run in TensorFlow Lite Micro on the same random inputs: the child process's side of `verification`.

A check that fails in TFLM aborts its process. So each model is run in a fork of this one, which has imported TFLM once,
and what it wrote before it died is the answer.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO, Any

import numpy as np

from memsched.base.frozen import FrozenValue
from memsched.formats.tflite.model import parse
from memsched.runtimes.arena_facts import ALIGNMENT
from memsched.runtimes.borders import BorderFormulas
from memsched.runtimes.compare import compare, relative_error, vary
from memsched.runtimes.inputs import DRAWS, Draw, random_values
from memsched.runtimes.special import Special, judged, mixed_inputs, tried
from memsched.runtimes.tflm.opened import RECORDS, opened, recorded
from memsched.runtimes.values import INTEGER_BOUNDS, INVOKES

__all__ = ["InputDraws", "Trial", "attempt", "run", "try_once"]


_USUAL_RANGE, _SAFE_RANGE = INTEGER_BOUNDS[0], INTEGER_BOUNDS[-1]
"""Exclusive bounds tried for integer inputs: they may be indices into an axis of unknown length."""

_TURNS = 5
"""Forks in which each model is timed: after so many the ratio of both stays within 2 %."""

_INVOKES_OF_A_TURN = 4


class InputDraws(FrozenValue, frozen=True):
    """How inputs are drawn: integers that are not quantised below ``high``; a model runs ``invokes`` times on each.

    Attributes:
        borders: What callers do instead of the model, whose outputs then are those of the model as given; see
            `memsched.runtimes.borders.told`.
        special: What is mixed into the inputs.
        kept: Inputs, by place, into which it is not.
    """

    runs: int
    seed: int
    invokes: int = INVOKES
    high: int = _USUAL_RANGE
    draw: Draw = "noise"
    borders: tuple[Mapping[str, Any], ...] = ()
    special: Special | None = None
    kept: tuple[int, ...] = ()


class Trial(FrozenValue, frozen=True):
    """What TFLM made of a model.

    Attributes:
        outputs: Per invocation the outputs; None where it was refused, or the process died.
        words: What TFLM wrote of it, in one line; where the process died without a word, how.
        head: Bytes of the arena's planned part; None where it was refused.
        tail: Bytes at its end that stay, those of the wheel's recorder included.
        seconds: Processor time of the shortest invocation.
    """

    outputs: list[list[Any]] | None
    words: str
    head: int | None = None
    tail: int | None = None
    seconds: float | None = None

    @property
    def refused(self) -> bool:
        """Whether it did not load, or did not run."""
        return self.outputs is None

    @property
    def refusal(self) -> str | None:
        """Why, in TFLM's words; None where it ran."""
        return self.words if self.refused else None


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the model "before", then "after", on "runs" inputs drawn with "seed", each twice in a row.

    Args:
        request: Also "arenas": bytes of the arena that each model gets; "tolerance": relative error that is permitted;
            "borders": what stands between the inputs and outputs of both, as `memsched.runtimes.borders.told` has it.

    Returns:
        "before_error" or "after_error" (a model could not be loaded or run, in TFLM's words), or "runs", "equal",
        "max_abs_error", "relative_error", "repeatable" (the model as given gives the same outputs twice), "steady" (the
        second run on an input gives the outputs of the first) and "vary" (the outputs of the model as given vary from
        input to input; None for a single one), "special" (what `memsched.runtimes.special.judged` returns; None where
        outputs differ by more than "tolerance"); per model that ran "head_before" and so on, "tail_..", "least_.."
        (bytes of the smallest arena that runs), "seconds_..".
    """
    before_arena, after_arena = request["arenas"]
    drawn, before, varies = _as_given(request["before"], before_arena, InputDraws(request["runs"], request["seed"]))
    if before.outputs is None:
        return {"before_error": before.words}
    written = replace(drawn, borders=tuple(request["borders"]))
    after = attempt(request["after"], after_arena, written)
    measured = _measured("before", before, _least(request["before"], before_arena, drawn, before))
    if after.outputs is None:
        return {"after_error": after.words, **measured}
    seconds = _least_seconds(request, (before, drawn), (after, written))
    expected, found = _flat(before.outputs), _flat(after.outputs)
    equal, error = compare(expected, found)
    again = before.outputs if equal else attempt(request["before"], before_arena, drawn).outputs
    off, tolerance = relative_error(expected, found), request["tolerance"]
    return {
        "runs": drawn.runs,
        "equal": equal,
        "max_abs_error": error,
        "relative_error": off,
        "special": _special(request, drawn, written, tolerance) if equal or off <= tolerance else None,
        "repeatable": again is not None and compare(expected, _flat(again))[0],
        "steady": compare(_flat(after.outputs[::INVOKES]), _flat(after.outputs[1::INVOKES]))[0],
        "vary": varies,
        **measured,
        "seconds_before": seconds[0],
        **_measured("after", after, _least(request["after"], after_arena, written, after)),
        "seconds_after": seconds[1],
    }


def _least_seconds(request: Mapping[str, Any], *models: tuple[Trial, InputDraws]) -> list[float | None]:
    """Return the shortest invocation of both models, in several forks that take turns: one alone may be disturbed."""
    least = [trial.seconds for trial, _ in models]
    data = (request["before"], request["after"])
    for _ in range(0 if data[0] == data[1] else _TURNS):
        for place, (_, drawn) in enumerate(models):
            again = attempt(data[place], request["arenas"][place], replace(drawn, runs=1, invokes=_INVOKES_OF_A_TURN))
            least[place] = min((one for one in (least[place], again.seconds) if one is not None), default=None)
    return least


def _special(request: Mapping[str, Any], drawn: InputDraws, written: InputDraws, tolerance: float) -> Mapping[str, Any]:
    """Run both models on special values."""
    if request["before"] == request["after"]:
        return judged(())
    # Inputs are drawn as ordinary ones were: integers on which the model runs are known.
    return judged(tried(_ForkPair(request, drawn, written), bounds=(drawn.high,), tolerance=tolerance))


class _ForkPair:
    """Both models of a request, each run in a fork of its own, as a `memsched.runtimes.special.SpecialPair`."""

    def __init__(self, request: Mapping[str, Any], drawn: InputDraws, written: InputDraws) -> None:
        formulas = BorderFormulas(written.borders)
        self._request, self._drawn, self._written = request, drawn, written
        self._kept = tuple(place for place in range(_ports(request["before"])[0]) if not formulas.moved_only(place))

    def given(self, special: Special, bound: int) -> list[Any]:
        """Return the outputs of the model as given."""
        return self._once("before", replace(self._drawn, high=bound, special=special))

    def written(self, special: Special, bound: int) -> list[Any]:
        """Return those of the other one."""
        return self._once("after", replace(self._written, high=bound, special=special))

    def again(self, special: Special, bound: int) -> list[Any]:
        """Return the outputs of another run."""
        return [self.given(special, bound)]

    def _once(self, model: str, drawn: InputDraws) -> list[Any]:
        arena = self._request["arenas"][model == "after"]
        trial = attempt(self._request[model], arena, replace(drawn, runs=1, invokes=1, kept=self._kept))
        if trial.outputs is None:
            raise ValueError(trial.words)
        return trial.outputs[0]


def try_once(request: Mapping[str, Any]) -> str | None:
    """Return why "model" does not run in an arena of "arena" bytes, in TFLM's words; None where it does."""
    return _as_given(request["model"], request["arena"], InputDraws(1, 0))[1].refusal


def _measured(name: str, trial: Trial, least: int | None) -> dict[str, Any]:
    found = {"head": trial.head, "tail": trial.tail, "least": least, "seconds": trial.seconds}
    return {f"{what}_{name}": value for what, value in found.items()}


def _least(model: bytes, arena: int, drawn: InputDraws, trial: Trial) -> int | None:
    """Return the smallest arena, a multiple of 16, in which a model runs; None where nothing says what it used.

    Most run in what they use, and are run once more for that; planning needs more than small ones use.
    """
    if trial.head is None or trial.tail is None:
        return None
    once = replace(drawn, runs=1, invokes=1)

    def refused(size: int) -> bool:
        return attempt(model, size, once).refused

    least = -(-(trial.head + trial.tail) // ALIGNMENT) * ALIGNMENT
    if not refused(least):
        return least
    step = ALIGNMENT
    while least + step < arena and refused(least + step):
        least, step = least + step, 2 * step
    most = min(least + step, arena)
    while most - least > ALIGNMENT:
        middle = (least + most) // (2 * ALIGNMENT) * ALIGNMENT
        least, most = (middle, most) if refused(middle) else (least, middle)
    return most


def _as_given(model: bytes, arena: int, drawn: InputDraws) -> tuple[InputDraws, Trial, bool | None]:
    """Return inputs on which a model runs, and on which its outputs vary where any do; and its run."""
    first = attempt(model, arena, drawn)
    if first.outputs is None:
        smaller = replace(drawn, high=_SAFE_RANGE)
        safe = attempt(model, arena, smaller)
        if safe.outputs is None:
            return drawn, first, None
        drawn, first = smaller, safe
    if drawn.runs < 2 or first.outputs is None:
        return drawn, first, None
    for draw in DRAWS:
        other = replace(drawn, draw=draw)
        trial = first if other == drawn else attempt(model, arena, other)
        if trial.outputs is not None and vary(trial.outputs[::INVOKES]):
            return other, trial, True
    return drawn, first, False


def _flat(runs: Sequence[Sequence[Any]]) -> list[Any]:
    return [output for run in runs for output in run]


def attempt(model: bytes, arena: int, drawn: InputDraws, *, patience: int = 0) -> Trial:
    """Run a model in a fork of this process.

    Args:
        arena: Bytes of its arena.
        patience: Seconds after which it is ended; 0 waits for ever.
    """
    ports = _ports(model)
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as answer:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if not child:
            _child(model, ports, arena, drawn, log, answer, patience)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        log.seek(0)
        said = log.read().decode("utf-8", "replace")
        words = " ".join(line.strip() for line in said.splitlines() if line.strip() and not line.startswith(RECORDS))
        if code:
            return Trial(None, words or _end(code))
        answer.seek(0)
        outputs, seconds = _read_answer(answer)
        arena_parts = recorded(said)
        return Trial(outputs, words, arena_parts.head, arena_parts.tail, seconds)


def _end(code: int) -> str:
    if code > 0:
        return f"the process ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"the process was ended by {signal.Signals(-code).name}"
    return f"the process was ended by signal {-code}"


def _ports(model: bytes) -> tuple[int, int]:
    """Return how many inputs and outputs a model has; import what each fork would otherwise import again."""
    from tflite_micro.python.tflite_micro import runtime  # noqa: F401

    main = parse(model).subgraphs[0]
    return len(main.inputs), len(main.outputs)


def _child(
    model: bytes,
    ports: tuple[int, int],
    arena: int,
    drawn: InputDraws,
    log: IO[bytes],
    answer: IO[bytes],
    patience: int,
) -> None:
    """Run a model, write what it gave to ``answer``, and end this process, whose crash is an answer, too."""
    faulthandler.disable()
    signal.alarm(patience)
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    code = 0
    try:
        _write_answer(answer, *_outputs(model, ports, arena, drawn))
        answer.flush()
    except Exception as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        code = 1
    finally:
        os._exit(code)


def _write_answer(answer: IO[bytes], runs: Sequence[Sequence[Any]], seconds: float) -> None:
    """Write the outputs of runs: a line of JSON says what they are, their bytes follow."""
    kinds = [[(str(value.dtype), list(value.shape)) for value in values] for values in runs]
    answer.write(json.dumps({"runs": kinds, "seconds": seconds}).encode() + b"\n")
    for value in _flat(runs):
        answer.write(value.tobytes())


def _read_answer(answer: IO[bytes]) -> tuple[list[list[Any]], float]:
    told = json.loads(answer.readline())
    runs = []
    for kinds in told["runs"]:
        values = []
        for dtype, shape in kinds:
            size = math.prod(shape) * np.dtype(dtype).itemsize
            values.append(np.frombuffer(answer.read(size), dtype).reshape(shape))
        runs.append(values)
    return runs, float(told["seconds"])


def _outputs(model: bytes, ports: tuple[int, int], arena: int, drawn: InputDraws) -> tuple[list[list[Any]], float]:
    """Return all outputs of all invocations, with the state of variables reset for each input, and the least time."""
    inputs, outputs = ports
    interpreter = opened(model, arena)
    details = [interpreter.get_input_details(index) for index in range(inputs)]
    formulas = BorderFormulas(drawn.borders)
    kinds = formulas.given(
        [(one["dtype"], one["shape"], len(one["quantization_parameters"]["scales"]) > 0) for one in details]
    )
    free = [place not in drawn.kept for place in range(len(kinds))]
    found, seconds = [], float("inf")
    for number in range(drawn.runs):
        rng = np.random.default_rng(np.random.SeedSequence([drawn.seed, number]))
        given = [
            random_values(dtype, shape, rng, full_range=quantized, high=drawn.high, draw=drawn.draw)
            for dtype, shape, quantized in kinds
        ]
        if drawn.special is not None:
            given = mixed_inputs(given, drawn.special, rng, free, [quantized for _, _, quantized in kinds])
        values = formulas.inputs(given)
        if number:
            interpreter.reset()
        for _ in range(drawn.invokes):
            # The inputs' memory is used again within a run.
            for index, value in enumerate(values):
                interpreter.set_input(value, index)
            started = time.thread_time()
            interpreter.invoke()
            seconds = min(seconds, time.thread_time() - started)
            made = [np.array(interpreter.get_output(index)) for index in range(outputs)]
            found.append(formulas.outputs(made))
    interpreter.print_allocations()
    return found, seconds
