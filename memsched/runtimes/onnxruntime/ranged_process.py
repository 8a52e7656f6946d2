"""Models with open dimensions at several sizes: inputs, and whether outputs agree. The child process's side.

Called through ``run_in_child``; requests and answers are plain values. Sessions have no options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

from memsched.formats.onnx.types import length_of
from memsched.runtimes.compare import compare, relative_error
from memsched.runtimes.onnxruntime.draws import same_draws
from memsched.runtimes.onnxruntime.inputs import random_feed
from memsched.runtimes.onnxruntime.opened import opened, run_once, runtime
from memsched.runtimes.sessions import DEFAULT, SessionPoint
from memsched.runtimes.special import THREADS, Special, judged, mixed_feed, rng_of, tried
from memsched.runtimes.values import BOUND, one_line

__all__ = ["compare_sizes", "draw", "special_at_sizes"]

_UNOPTIMISED: Final = SessionPoint("disabled")
"""Leaves the graph as it is."""

_NOTHING: Final = 1e-6


def draw(request: Mapping[str, Any]) -> None:
    """Store random inputs of a model at some sizes in "file", an .npz.

    Args:
        request: "path" and "folder" as `_opened` has them; "sizes": lengths of open dimensions; "seed"; "file".
    """
    session, proto = _opened(request["path"], request["folder"])
    np.savez(request["file"], **_feed(session, proto, request["sizes"], np.random.default_rng(request["seed"])))


def compare_sizes(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run models beside the first one at several sizes.

    Args:
        request: "paths": the model as given, then others; "folder", "sizes", "seed"; "accurate": a model to compare
            with, unoptimised, where outputs are further apart than "tolerance"; None: the one as given.

    Returns:
        "version"; "rows": per size "given": why the first does not run, or None; "others": per other model "equal",
        "error": relative to the largest output, "message": why it does not run, or None, and "given_apart", "apart",
        errors beside the accurate model, where that was run.
    """
    (given, proto), *others = _opened_alike(request["paths"], request["folder"])
    rows: list[dict[str, Any]] = []
    for number, sizes in enumerate(request["sizes"]):
        rng = np.random.default_rng(request["seed"] + number)
        try:
            feed = _feed(given, proto, sizes, rng)
            expected = run_once(given, feed)
        except Exception as error:  # the runtime raises classes of its own
            rows.append({"given": one_line(error), "others": []})
            continue
        accurate = _Accurate(request, feed, expected)
        rows.append({"given": None, "others": [_judged(session, feed, expected, accurate) for session, _ in others]})
    return {"version": runtime().__version__, "rows": rows}


def special_at_sizes(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `memsched.runtimes.special.judged` says of special values at several sizes.

    Args:
        request: As `compare_sizes` has it, with one model beside the first.
    """
    runs = []
    for sizes in request["sizes"]:
        words = "a session at " + ", ".join(f"{name} = {size:,}" for name, size in sizes.items())
        runs += tried(_SizePair(request, sizes), bounds=(BOUND,), session=words, tolerance=request["tolerance"])
    return judged(runs)


class _SizePair:
    """Two models at one size, as a `memsched.runtimes.special.SpecialPair`."""

    def __init__(self, request: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        self._request, self._sizes = request, sizes
        first = onnx.load_model(request["paths"][0], load_external_data=False)
        # What draws random numbers begins anew in every run.
        self._draws = same_draws(first, ()).count > 0
        self._opened = _opened_alike(request["paths"], request["folder"])

    def given(self, special: Special, bound: int) -> Any:
        """Return the outputs of the first model."""
        return run_once(self._session(0), self._feed(special, bound))

    def written(self, special: Special, bound: int) -> Any:
        """Return those of the other one."""
        session = self._session(1)
        if isinstance(session, str):
            raise ValueError(session)
        return run_once(session, self._feed(special, bound))

    def again(self, special: Special, bound: int) -> list[Any]:
        """Return the first model's outputs with other numbers of threads, and more accurate ones."""
        if self._draws:
            return []
        path, folder = self._request["paths"][0], self._request["folder"]
        sessions = [_opened(path, folder, SessionPoint(threads=threads), described=False)[0] for threads in THREADS]
        accurate = self._request["accurate"] or path
        sessions.append(_opened(accurate, folder, _UNOPTIMISED, described=False)[0])
        return [run_once(session, self._feed(special, bound)) for session in sessions]

    def _session(self, number: int) -> Any:
        if self._draws:
            self._opened = _opened_alike(self._request["paths"], self._request["folder"])
        return self._opened[number][0]

    def _feed(self, special: Special, bound: int) -> dict[str, Any]:
        rng = rng_of(self._request["seed"], special)
        session, proto = self._opened[0]
        return mixed_feed(_feed(session, proto, self._sizes, rng, bound), special, rng)


class _Accurate:
    """Outputs of a more accurate model, computed when they are asked for.

    Args:
        request: As `compare_sizes` has it.
        expected: What the model as given computes.
    """

    def __init__(self, request: Mapping[str, Any], feed: Mapping[str, Any], expected: Any) -> None:
        self.path, self.folder = request["accurate"] or request["paths"][0], request["folder"]
        self.tolerance = request["tolerance"]
        self.feed, self.expected = feed, expected
        self.outputs: Any = None

    def beside(self, found: Any, error: float) -> dict[str, float]:
        """Return the errors of the model as given and of another one, where these are too far apart."""
        if error <= self.tolerance:
            return {}
        if self.outputs is None:
            session, _ = _opened(self.path, self.folder, _UNOPTIMISED, described=False)
            self.outputs = run_once(session, self.feed)
        return {
            "given_apart": relative_error(self.outputs, self.expected),
            "apart": relative_error(self.outputs, found),
        }


def _opened_alike(paths: Sequence[str], folder: str | None) -> list[tuple[Any, Any]]:
    """Return a session of each model and the first model; what draws random numbers has the same seeds in all.

    In place of the session of a model that draws otherwise than the first there is a text that says how.
    """
    first = onnx.load_model(paths[0], load_external_data=False)
    if not same_draws(first, ()).count:
        return [_opened(path, folder, described=not number) for number, path in enumerate(paths)]
    sessions: list[tuple[Any, Any]] = []
    for path in paths:
        model = onnx.load_model(path, load_external_data=False)
        mismatch = same_draws(first, [model]).mismatch
        seeded = same_draws(model, ()).models[0].SerializeToString()
        beside = folder or str(Path(path).parent)
        sessions.append((mismatch or _opened(path, beside, described=False, seeded=seeded)[0], first))
    return sessions


def _judged(session: Any, feed: Mapping[str, Any], expected: Any, accurate: _Accurate) -> dict[str, Any]:
    if isinstance(session, str):
        return {"equal": False, "error": None, "message": session}
    try:
        found = run_once(session, feed)
    except Exception as error:  # the runtime raises classes of its own
        return {"equal": False, "error": None, "message": one_line(error)}
    shapes = [getattr(one, "shape", None) for one in expected], [getattr(one, "shape", None) for one in found]
    if shapes[0] != shapes[1]:
        return {"equal": False, "error": None, "message": f"shapes {shapes[1]} in place of {shapes[0]}"}
    same, _ = compare(expected, found)
    # Probabilities that round to nothing say nothing.
    apart = 0.0 if _are_nothing(expected) and _are_nothing(found) else relative_error(expected, found)
    return {"equal": same, "error": apart, "message": None, **accurate.beside(found, apart)}


def _are_nothing(outputs: Any) -> bool:
    return all(getattr(one, "dtype", None) == np.float32 and np.abs(one).max(initial=0) < _NOTHING for one in outputs)


def _opened(
    path: str,
    folder: str | None,
    point: SessionPoint = DEFAULT,
    *,
    described: bool = True,
    seeded: bytes | None = None,
) -> tuple[Any, Any]:
    """Return a session, and the model where it is wanted.

    Args:
        folder: Where the weights lie that the file names; None: it names none, or they are beside it.
        point: How it is opened.
        seeded: What is opened in place of the file: the model with seeds.
    """
    proto = onnx.load_model(path, load_external_data=False) if described else None
    return opened(seeded or path, point, folder=folder), proto


def _feed(session: Any, proto: Any, sizes: Mapping[str, int], rng: Any, bound: int = BOUND) -> dict[str, Any]:
    shapes: dict[str, list[int]] = {}
    for value in session.get_inputs():
        dims = [
            one if isinstance(one, int) else _length(one, sizes, f"{value.name}[{axis}]")
            for axis, one in enumerate(value.shape)
        ]
        shapes[value.name] = dims
    return random_feed(session, proto, {"input_shapes": shapes, "dims": {}}, rng, bound)


def _length(name: str | None, sizes: Mapping[str, int], place: str) -> int:
    known = None if name is None else length_of(name, sizes)
    return sizes.get(place, 1) if known is None else known
