"""Whether two ONNX models agree in what they make of special values: the child process's side too.

Requests and answers are plain values, as ``memsched.runtimes.child`` can pass them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from memsched.formats.module import OrderGuarantee
from memsched.graph.border import Border
from memsched.runtimes.borders import BorderFormulas, told
from memsched.runtimes.onnxruntime.draws import same_draws
from memsched.runtimes.onnxruntime.inputs import random_feed, read_feeds
from memsched.runtimes.onnxruntime.opened import opened, run_once
from memsched.runtimes.onnxruntime.sessions import load_proto
from memsched.runtimes.onnxruntime.verification import described
from memsched.runtimes.sessions import DEFAULT, LISTED, SessionPoint
from memsched.runtimes.special import (
    SPECIALS,
    THREADS,
    Special,
    SpecialRuns,
    compared_on,
    judged,
    mixed_feed,
    rng_of,
    tried,
    worth_trying,
)
from memsched.runtimes.values import INTEGER_BOUNDS, Verification

__all__ = ["SpecialSession", "execute", "sessions_of", "with_special_values"]

_EXECUTE: Final = "memsched.runtimes.onnxruntime.special:execute"

UNOPTIMISED: Final = SessionPoint("disabled")


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
    """Return a verification with what both models make of special values; the rest is as for `compare_models`.

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

    protos = [load_proto(onnx, model) for model in request["models"]]
    draws = same_draws(protos[0], protos[1:])
    if draws.unseeded or draws.mismatch:
        return judged(())
    seeded, proto, drawn = draws.seeded(request), draws.models[0], draws.count > 0
    pairs = (_SessionPair(seeded, proto, wanted, draws=drawn) for wanted in seeded["sessions"])
    return judged([one for pair in pairs for one in pair.runs()])


class _SessionPair:
    """Both models in one kind of session, as a `SpecialPair`.

    Args:
        wanted: The kind, a `SpecialSession`.
        draws: The models draw random numbers: each run has a session of its own, so that generators begin anew.
    """

    def __init__(self, request: Mapping[str, Any], proto: Any, wanted: Mapping[str, Any], *, draws: bool) -> None:
        self._request, self._proto, self._wanted = request, proto, wanted
        self._draws = draws
        self._formulas = BorderFormulas(request["borders"])
        self._opened: dict[int, Any] = {}

    def runs(self) -> list[SpecialRuns]:
        """Return what the session makes of the kinds of values that its inputs can have."""
        return tried(
            self,
            specials=self._wanted["specials"],
            bounds=INTEGER_BOUNDS if self._request["feeds"] is None else INTEGER_BOUNDS[:1],
            session=self._wanted["words"],
            tolerance=self._wanted["tolerance"],
        )

    def given(self, special: Special, bound: int) -> Any:
        """Return the outputs of the model as given; see `SpecialPair.given`."""
        return run_once(self._fresh(0), self._feed(special, bound))

    def written(self, special: Special, bound: int) -> Any:
        """Return those of the other one; see `SpecialPair.written`."""
        feed = self._formulas.feed(self._feed(special, bound))
        return self._formulas.outputs(run_once(self._fresh(1), feed))

    def again(self, special: Special, bound: int) -> list[Any]:
        """Return the outputs of the model as given with other numbers of threads; see `SpecialPair.again`."""
        return [run_once(self._open(0, threads), self._feed(special, bound)) for threads in THREADS]

    def _fresh(self, model: int) -> Any:
        return self._open(model) if self._draws else self._session(model)

    def _session(self, model: int) -> Any:
        if model not in self._opened:
            self._opened[model] = self._open(model)
        return self._opened[model]

    def _open(self, model: int, threads: int = 0) -> Any:
        point = msgspec.convert({**self._wanted["after" if model else "before"], "threads": threads}, SessionPoint)
        file = self._request["models"][model]
        return opened(file.get("bytes") or file["path"], point, folder=file["folder"])

    def _feed(self, special: Special, bound: int) -> dict[str, Any]:
        """Return the inputs that were stated, or random ones, with special values among them."""
        rng = rng_of(self._request["seed"], special)
        stated, session = self._request["feeds"], self._session(0)
        if stated is not None:
            feed = read_feeds(stated, [value.name for value in session.get_inputs()])
        else:
            feed = random_feed(session, self._proto, self._request, rng, bound)
        return mixed_feed(feed, special, rng, self._formulas.moved_only)
