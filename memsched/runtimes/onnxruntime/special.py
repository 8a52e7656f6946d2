"""Whether two ONNX models agree in what they make of special values: the child process's side too.

Requests and answers are plain values, as ``memsched.runtimes.child`` can pass them.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from memsched.formats.module import OrderGuarantee
from memsched.graph.border import Border
from memsched.runtimes.borders import BorderFormulas, told
from memsched.runtimes.onnxruntime.draws import same_draws
from memsched.runtimes.onnxruntime.inputs import dtype_of, random_feed, read_feeds
from memsched.runtimes.onnxruntime.session_points import DEFAULT, LISTED, SessionPoint, described
from memsched.runtimes.onnxruntime.sessions import find_data, load_proto, open_session, run_once, session_options
from memsched.runtimes.special import SPECIALS, Special, SpecialRuns, applying, compared_on, judged, mixed, worth_trying
from memsched.runtimes.values import Verification

__all__ = ["SpecialSession", "execute", "sessions_of", "with_special_values"]

_EXECUTE: Final = "memsched.runtimes.onnxruntime.special:execute"

_INTEGER_BOUNDS: Final = (4, 2, 1)
"""Integers are often indices: where the first choice is out of bounds, smaller ones may not be."""

UNOPTIMISED: Final = SessionPoint("disabled")

_THREADS: Final = (1, 3)
"""How many threads further sessions for the model as given have: how these divide work must not count."""


@dataclasses.dataclass(frozen=True, slots=True)
class SpecialSession:
    """How both models are opened to be tried.

    Attributes:
        before: For the model as given.
        after: For the optimised one.
        words: What it is; empty where that needs no word.
        tolerance: Relative error that is permitted.
        specials: The kinds of values to try.
    """

    before: SessionPoint
    after: SessionPoint
    words: str
    tolerance: float
    specials: tuple[Special, ...] = SPECIALS


def with_special_values(
    found: Verification,
    before: str | Path | bytes,
    after: str | Path | bytes,
    sessions: Sequence[SpecialSession],
    *,
    seed: int,
    input_shapes: Mapping[str, Sequence[int]],
    dims: Mapping[str, int],
    data_folder: str | Path | None = None,
    feeds: str | None = None,
    borders: Sequence[Border] = (),
) -> Verification:
    """Return a verification with what both models make of special values; the rest is as for `verification.verify`.

    Nothing is tried where something else speaks against the optimised model.
    """
    if not sessions or not worth_trying(found, max(one.tolerance for one in sessions)):
        return found
    models = [described(before, data_folder), described(after, data_folder)]
    request: dict[str, Any] = {
        "models": models,
        "sessions": [dataclasses.asdict(one) for one in sessions],
        "seed": seed,
        "input_shapes": {name: list(shape) for name, shape in input_shapes.items()},
        "dims": dict(dims),
        "feeds": feeds,
        "borders": told(borders),
    }
    alone = {**request, "models": models[:1] * 2, "borders": []}
    return compared_on(found, _EXECUTE, request, alone, "onnxruntime")


def sessions_of(found: Verification, guarantee: OrderGuarantee, tolerance: float) -> list[SpecialSession]:
    """Return the sessions that special values are tried in: the one promised, and one without options.

    The latter counts where all bits are equal there: elsewhere it merges other operators of the one model.
    """
    promised = UNOPTIMISED if guarantee in {"pins", "default"} else LISTED
    tried = [SpecialSession(promised, promised, "", tolerance)]
    if found.default_apart == 0:
        tried.append(SpecialSession(DEFAULT, DEFAULT, "a session without options", tolerance, ("nonfinite",)))
    return tried


def execute(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run both models on special values in each session, and return what `judged` says of it."""
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    protos = [load_proto(onnx, model) for model in request["models"]]
    draws = same_draws(protos[0], protos[1:])
    if draws.unseeded or draws.mismatch:
        return judged(())
    pair = _SpecialPair(onnxruntime, draws.seeded(request), draws.models[0], draws=draws.count > 0)
    return judged(list(pair.runs()))


class _SpecialPair:
    """Both models, on the same inputs.

    Args:
        draws: The models draw random numbers: each run has a session of its own, so that generators begin anew.
    """

    def __init__(self, onnxruntime: Any, request: Mapping[str, Any], proto: Any, *, draws: bool) -> None:
        self._onnxruntime, self._request, self._proto, self._draws = onnxruntime, request, proto, draws
        self._formulas = BorderFormulas(request["borders"])
        self._bound = _INTEGER_BOUNDS[0]

    def runs(self) -> Iterator[SpecialRuns]:
        """Yield what each session makes of the kinds of values that its inputs can have."""
        for wanted in self._request["sessions"]:
            given = self._given(wanted)
            if given:
                written = self._written(wanted, list(given))
                again = partial(self._again, wanted)
                yield SpecialRuns(wanted["words"], given, written, again, wanted["tolerance"])

    def _given(self, wanted: Mapping[str, Any]) -> dict[Special, Any]:
        """Return the outputs of the model as given, of kinds on which it runs with some integers."""
        session = self._open(wanted, 0)
        specials = [one for one in applying(self._kinds(session)) if one in wanted["specials"]]
        for bound in _INTEGER_BOUNDS if self._request["feeds"] is None else _INTEGER_BOUNDS[:1]:
            self._bound = bound
            found: dict[Special, Any] = {}
            for special in specials:
                with contextlib.suppress(Exception):  # the runtime raises classes of its own
                    feed = self._feed(session, special)
                    found[special] = run_once(self._open(wanted, 0) if self._draws else session, feed)
            if found:
                return found
        return {}

    def _written(self, wanted: Mapping[str, Any], specials: Sequence[Special]) -> dict[Special, Any]:
        session, given = self._open(wanted, 1), self._open(wanted, 0)
        found: dict[Special, Any] = {}
        for special in specials:
            feed = self._formulas.feed(self._feed(given, special))
            try:
                outputs = run_once(self._open(wanted, 1) if self._draws else session, feed)
            except Exception as error:  # the runtime raises classes of its own
                found[special] = f"the other model does not run: {' '.join(str(error).split())[:200]}"
            else:
                found[special] = self._formulas.outputs(outputs)
        return found

    def _again(self, wanted: Mapping[str, Any], special: Special) -> list[Any]:
        """Return the outputs of the model as given with other numbers of threads."""
        sessions = [self._open(wanted, 0, threads) for threads in _THREADS]
        return [run_once(session, self._feed(session, special)) for session in sessions]

    def _open(self, wanted: Mapping[str, Any], model: int, threads: int = 0) -> Any:
        point = wanted["after" if model else "before"]
        options = session_options(self._onnxruntime, point)
        options.intra_op_num_threads = threads
        file = self._request["models"][model]
        source = file.get("bytes") or file["path"]
        if not isinstance(source, str):
            find_data(options, file["folder"])
        return open_session(self._onnxruntime, source, options, point)

    def _kinds(self, session: Any) -> list[tuple[Any, bool]]:
        plain = [one for one in session.get_inputs() if self._formulas.moved_only(one.name)]
        return [(dtype_of(one.type[7:-1]), False) for one in plain if one.type.startswith("tensor(")]

    def _feed(self, session: Any, special: Special) -> dict[str, Any]:
        """Return the inputs that were stated, or random ones, with special values among them."""
        import numpy as np

        rng = np.random.default_rng([self._request["seed"], len(special)])
        stated = self._request["feeds"]
        if stated is not None:
            feed = read_feeds(stated, [value.name for value in session.get_inputs()])
        else:
            feed = random_feed(session, self._proto, self._request, rng, self._bound)
        return {
            name: mixed(value, special, rng)
            if isinstance(value, np.ndarray) and self._formulas.moved_only(name)
            else value
            for name, value in feed.items()
        }
