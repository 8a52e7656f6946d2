"""Runs a model and the one optimised from it at sizes that it was not optimised for: the child process's side.

Requests and answers are plain values, as ``memsched.runtimes.child`` can pass them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import onnx

from memsched.base.shown import LISTED_REASON
from memsched.formats.onnx.dimensions import OpenDimension, open_inputs
from memsched.runtimes.borders import BorderFormulas
from memsched.runtimes.compare import close, compare, relative_error
from memsched.runtimes.onnxruntime.draws import Draws, same_draws
from memsched.runtimes.onnxruntime.inputs import random_feed
from memsched.runtimes.onnxruntime.opened import opened, run_once
from memsched.runtimes.onnxruntime.sessions import load_proto
from memsched.runtimes.sessions import SessionPoint
from memsched.runtimes.values import INTEGER_BOUNDS, candidate_sizes, one_line, short_reason

__all__ = ["execute"]

_WANTED: Final = 2
"""Sizes that are tried of each open dimension, of those that the model as given accepts."""

_MOST_DIMENSIONS: Final = 8


def execute(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run both models at two further sizes of every dimension that the first one leaves open.

    Args:
        request: "models": the one as given and the optimised one, as in `onnxruntime_sessions.execute`; "sessions":
            options in which both are run; of the first "tolerance" is the relative error that is permitted, of the
            others "far", and of all what "rtol" and "atol" permit; "input_shapes", "dims": the sizes known so far;
            "seed"; "borders": what stands between the inputs and outputs of both.

    Returns:
        "sizes": each {"dimension", "size", "outcome", "reason"} as `memsched.runtimes.values.OtherSize` has them;
        "untried": dimensions of which the model as given accepts no other size that was tried, not even together.
    """
    protos = [load_proto(onnx, model) for model in request["models"]]
    draws = same_draws(protos[0], protos[1:])
    request = draws.seeded(request)
    runner = _SessionPairs(request, protos, draws)
    sizes: list[dict[str, Any]] = []
    untried: list[OpenDimension] = []
    for dimension in runner.open[:_MOST_DIMENSIONS]:
        found = list(runner.judged([dimension]))
        sizes.extend(found)
        if not found:
            untried.append(dimension)
    if len(untried) > 1:
        found = list(runner.judged(untried))
        sizes.extend(found)
        untried = [] if found else untried
    return {"sizes": sizes, "untried": [dimension.name for dimension in untried]}


class _SessionPairs:
    """Sessions of both models, in pairs."""

    def __init__(self, request: Mapping[str, Any], protos: Sequence[Any], draws: Draws) -> None:
        self._request, self._protos = request, protos
        self._formulas = BorderFormulas(request["borders"])
        self._draws = draws
        self._opened = [
            [partial(_open, model, wanted) for model in request["models"]] for wanted in request["sessions"]
        ]
        self._pairs = [[opened() for opened in pair] for pair in self._opened]
        self._known = _known_shapes(protos[0], request)
        self.open = [one for one in open_inputs(protos[0]) if all(name in self._known for name, _ in one.places)]

    def judged(self, dimensions: Sequence[OpenDimension]) -> Iterator[dict[str, Any]]:
        """Yield what became of the optimised model at sizes that the model as given accepts; two at most."""
        name, axis = dimensions[0].places[0]
        accepted = 0
        for size in candidate_sizes(self._known[name][axis]):
            feed = self._feed(dimensions, size)
            expected = [] if feed is None else [self._accepted(number, feed) for number in range(len(self._pairs))]
            if feed is None or not all(expected):
                continue
            outcome, reason = self._outcome(expected, feed)
            what = ", ".join(one.name for one in dimensions)
            yield {"dimension": what, "size": size, "outcome": outcome, "reason": reason}
            accepted += 1
            if accepted == _WANTED:
                return

    def _feed(self, dimensions: Sequence[OpenDimension], size: int) -> dict[str, Any] | None:
        """Return inputs of this size on which the model as given runs; None where there are none."""
        name, axis = dimensions[0].places[0]
        base = self._known[name][axis]
        shapes = {known: list(shape) for known, shape in self._known.items()}
        for one in dimensions:
            for place, at in one.places:
                # Those that change together keep their proportion.
                shapes[place][at] = max(1, shapes[place][at] * size // base) if len(dimensions) > 1 else size
        request = {**self._request, "input_shapes": shapes}
        for bound in (INTEGER_BOUNDS[0], INTEGER_BOUNDS[-1]):
            with contextlib.suppress(Exception):
                rng = np.random.default_rng(self._request["seed"])
                feed = random_feed(self._pairs[0][0], self._protos[0], request, rng, bound)
                run_once(self._pairs[0][0], feed)
                return feed
        return None

    def _run(self, number: int, model: int, feed: Mapping[str, Any]) -> list[Any]:
        """Run a model, in a new session if generators of random numbers must begin anew."""
        fresh = self._draws.count > 0
        return run_once(self._opened[number][model]() if fresh else self._pairs[number][model], feed)

    def _accepted(self, number: int, feed: Mapping[str, Any]) -> list[Any] | None:
        with contextlib.suppress(Exception):
            return self._run(number, 0, feed)
        return None

    def _outcome(self, expected: Sequence[Any], feed: Mapping[str, Any]) -> tuple[str, str | None]:
        """Compare the optimised model's answer in each session; refusing is as good as the right one."""
        refusals = []
        for number in range(len(self._pairs)):
            try:
                found = self._formulas.outputs(self._run(number, 1, self._formulas.feed(feed)))
            except Exception as error:  # the runtime raises classes of its own: it says that the size is wrong
                refusals.append(short_reason(one_line(error), LISTED_REASON))
                continue
            wrong = self._wrong(expected[number], found, self._request["far" if number else "tolerance"])
            if wrong:
                return "wrong", wrong
        return ("refused", refusals[0]) if refusals else ("equal", None)

    def _wrong(self, expected: Sequence[Any], found: Sequence[Any], tolerance: float) -> str | None:
        for one, other in zip(expected, found, strict=True):
            shapes = getattr(one, "shape", None), getattr(other, "shape", None)
            if shapes[0] != shapes[1]:
                return (
                    f"an output has shape {list(shapes[1] or ())} where the model as given has {list(shapes[0] or ())}"
                )
        if self._draws.unseeded or compare(expected, found)[0]:
            return None
        if close(found, expected, self._request["rtol"], self._request["atol"]):
            return None
        error = relative_error(expected, found)
        # Integers that differ in their last bit are infinitely far apart: optimisation may round them otherwise.
        if error <= tolerance or (error == math.inf and tolerance == self._request["far"]):
            return None
        return f"an output is off by {error:.1e} of its largest magnitude"


def _open(model: Mapping[str, Any], wanted: Mapping[str, Any]) -> Any:
    point = msgspec.convert(wanted, SessionPoint)
    return opened(model.get("bytes") or model["path"], point, folder=model["folder"])


def _known_shapes(proto: Any, request: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the inputs' shapes at the size that is known to run."""
    found: dict[str, tuple[int, ...]] = {}
    for value in proto.graph.input:
        if value.name in request["input_shapes"]:
            found[value.name] = tuple(request["input_shapes"][value.name])
            continue
        dims = value.type.tensor_type.shape.dim
        sizes = [dim.dim_value if dim.dim_value > 0 else request["dims"].get(dim.dim_param) for dim in dims]
        if value.type.HasField("tensor_type") and None not in sizes:
            found[value.name] = tuple(sizes)
    return found
