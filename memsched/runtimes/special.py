"""Inputs with special values among random ones, and what two models that ran on them have to agree in."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, Protocol, get_args

import numpy as np

from memsched.base.frozen import FrozenValue
from memsched.base.shown import LISTED_REASON
from memsched.runtimes.child import TIMEOUT, run_in_child
from memsched.runtimes.compare import Disagreement, disagreement, within_own
from memsched.runtimes.values import Verification, short_reason

__all__ = [
    "SPECIALS",
    "THREADS",
    "Special",
    "SpecialPair",
    "SpecialRuns",
    "applying",
    "compared_on",
    "judged",
    "mixed",
    "mixed_feed",
    "mixed_inputs",
    "rng_of",
    "shown_by",
    "tried",
    "with_special",
    "words_of",
    "worth_trying",
]

Special = Literal["nonfinite", "tiny", "extreme"]
"""Values that are mixed into random ones: NaN and infinities; zeros of both signs and denormals; the largest ones."""

SPECIALS: Final[tuple[Special, ...]] = get_args(Special)

WORDS: Final[Mapping[Special, str]] = {
    "nonfinite": "NaN and infinities",
    "tiny": "zeros of both signs and denormals",
    "extreme": "the largest values of their type",
}

_RARE: Final = 400
"""Elements of which one of each rare value is, so that sums over few of them stay finite."""

_OFTEN: Final = 16
"""The same of small tensors, in which each lane of a kernel meets them so, ``_MOST`` times at most."""

_MOST: Final = 64

THREADS: Final = (1, 3)
"""Threads of further sessions for the model as given: how these divide work must not count."""


Outputs = Sequence[Any]


class SpecialPair(Protocol):
    """The model as given and the one written, run on the same inputs with special values among them.

    Each function raises what the runtime does if the model does not run, and a ValueError if no input has such values.
    ``bound`` is that of integers that may be indices.
    """

    def given(self, special: Special, bound: int) -> Outputs:
        """Return the outputs of the model as given."""

    def written(self, special: Special, bound: int) -> Outputs:
        """Return those of the other one, in the form of those of the model as given."""

    def again(self, special: Special, bound: int) -> Sequence[Outputs]:
        """Return the outputs of further runs of the model as given, which may divide work otherwise."""


class SpecialRuns(FrozenValue, frozen=True):
    """What a model as given and the one written make of special values in one session.

    Attributes:
        session: In words; empty where there is but one.
        given: Outputs of the model as given; kinds on which it does not run are left out.
        written: Those of the other model, or why it does not run.
        again: Runs the model as given once more on a kind, in another session.
        tolerance: Relative error that is permitted.
        other: Runs the model as given on a kind with other kernels, which explain differences; None: nothing does.
    """

    session: str
    given: Mapping[Special, Outputs]
    written: Mapping[Special, Outputs | str]
    again: Callable[[Special], Sequence[Outputs]]
    tolerance: float
    other: Callable[[Special], Outputs] | None = None


def applying(kinds: Sequence[tuple[Any, bool]]) -> tuple[Special, ...]:
    """Return the kinds of special values that inputs of these element types have; with each: whether it is quantised.

    Other integers may be indices or lengths, of which none is special.
    """
    found = {special for dtype, quantized in kinds for special in _of_type(np.dtype(dtype), quantized)}
    return tuple(special for special in SPECIALS if special in found)


def _of_type(dtype: np.dtype[Any], quantized: bool) -> tuple[Special, ...]:
    if _limits(dtype) is not None:
        return SPECIALS
    return ("extreme",) if dtype.kind in "iu" and (quantized or dtype.itemsize == 1) else ()


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any] | None:
    """Return the largest and the smallest positive value of a type of floats with NaN and infinities; else None."""
    if dtype.kind == "f":
        return np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    if dtype.name == "bfloat16":
        return 3.38e38, 9.2e-41
    return None


def rng_of(seed: int, special: Special) -> np.random.Generator:
    """Return what draws inputs and the places of special values among them: anew for both models, the same for both."""
    return np.random.default_rng([seed, len(special)])


def mixed(values: Any, special: Special, rng: np.random.Generator, *, quantized: bool = False) -> Any:
    """Return an array with special values among its own; one of a type that has none of them as it is."""
    if not values.size or special not in _of_type(values.dtype, quantized):
        return values
    found, flat = values.copy(), values.size
    if values.dtype.kind in "iu":
        ends = np.array([np.iinfo(values.dtype).min, np.iinfo(values.dtype).max], values.dtype)
        return np.where(rng.random(values.shape) < 1 / 4, rng.choice(ends, values.shape), found)
    largest, least = _limits(values.dtype) or (1, 1)
    if special == "tiny":
        some = np.array([-0.0, 0.0, least, -least, 1000 * least, -1000 * least]).astype(values.dtype)
        return np.where(rng.random(values.shape) < 1 / 2, rng.choice(some, values.shape), found)
    rare = (np.nan, np.inf, -np.inf) if special == "nonfinite" else (largest, -largest)
    count = max(1, min(flat // _OFTEN, _MOST), flat // _RARE)
    for one in rare:
        found.reshape(-1)[rng.integers(flat, size=count)] = one
    return found


def mixed_inputs(
    values: Sequence[Any], special: Special, rng: np.random.Generator, free: Sequence[bool], quantized: Sequence[bool]
) -> list[Any]:
    """Return a model's inputs with special values among them; what is no array stays as it is.

    Args:
        free: Which inputs may have them.
        quantized: Which are quantised.

    Raises:
        ValueError: None of these has such values.
    """
    open_ = [is_free and isinstance(value, np.ndarray) for value, is_free in zip(values, free, strict=True)]
    kinds = [(value.dtype, grid) for value, grid, one in zip(values, quantized, open_, strict=True) if one]
    if special not in applying(kinds):
        raise ValueError("no input has such values")
    return [
        mixed(value, special, rng, quantized=grid) if one else value
        for value, grid, one in zip(values, quantized, open_, strict=True)
    ]


def mixed_feed(
    feed: Mapping[str, Any], special: Special, rng: np.random.Generator, free: Callable[[str], bool] = lambda _: True
) -> dict[str, Any]:
    """Do the same by names, to inputs that are not quantised."""
    values = mixed_inputs(list(feed.values()), special, rng, [free(name) for name in feed], [False] * len(feed))
    return dict(zip(feed, values, strict=True))


def tried(
    pair: SpecialPair,
    *,
    specials: Sequence[Special] = SPECIALS,
    bounds: Sequence[int] = (4, 1),
    session: str = "",
    tolerance: float = 0.0,
    other: Callable[[Special, int], Outputs] | None = None,
) -> list[SpecialRuns]:
    """Return what both models make of the kinds of special values in one session; nothing if the one given never runs.

    Args:
        specials: The kinds.
        bounds: Of integers, largest first: with the first on which the model as given runs on some kind, both are run.
        session: As `SpecialRuns` has it.
        other: The same, with the bound of integers.
    """
    for bound in bounds:
        given: dict[Special, Outputs] = {}
        for special in specials:
            with contextlib.suppress(Exception):  # runtimes raise classes of their own
                given[special] = pair.given(special, bound)
        if given:
            written = {special: _written(pair, special, bound) for special in given}
            again, kernels = (
                partial(pair.again, bound=bound),
                None if other is None else partial(_bounded, other, bound),
            )
            return [SpecialRuns(session, given, written, again, tolerance, kernels)]
    return []


def _bounded(run: Callable[[Special, int], Outputs], bound: int, special: Special) -> Outputs:
    return run(special, bound)


def _written(pair: SpecialPair, special: Special, bound: int) -> Outputs | str:
    try:
        return pair.written(special, bound)
    except Exception as error:  # runtimes raise classes of their own
        return f"the other model does not run: {short_reason(' '.join(str(error).split()), LISTED_REASON)}"


def judged(runs: Sequence[SpecialRuns]) -> dict[str, Any]:
    """Return what sessions showed, as plain values.

    Returns:
        "tried": kinds on which both models ran; "off": the largest relative error of finite values, None where all bits
        are equal; "wrong": in words, None where the models agree.
    """
    tried: dict[Special, None] = {}
    off: float | None = None
    for one in runs:
        for special, expected in one.given.items():
            found = one.written[special]
            gap = Disagreement(found) if isinstance(found, str) else disagreement(expected, found)
            if gap is not None and not _permitted(special, gap, one.tolerance):
                again = [disagreement(expected, other) for other in one.again(special)]
                # Where threads share the work of a maximum, the model as given may not agree with itself.
                if any(own is not None and own.off >= gap.off for own in again):
                    continue
                if _explained(one, special):
                    tried[special] = None
                    continue
                where = f" in {one.session}" if one.session else ""
                return {"tried": [], "off": None, "wrong": f"on inputs with {WORDS[special]}{where} {gap.words}"}
            if gap is not None:
                off = max(off or 0.0, gap.off if math.isfinite(gap.off) and special != "extreme" else 0.0)
            tried[special] = None
    return {"tried": list(tried), "off": off, "wrong": None}


def _explained(runs: SpecialRuns, special: Special) -> bool:
    """Whether the model as given differs as much from itself with other kernels."""
    given, found = runs.given[special], runs.written[special]
    if runs.other is None or isinstance(found, str):
        return False
    return within_own(given, runs.other(special), found, len(given))


def _permitted(special: Special, gap: Disagreement, tolerance: float) -> bool:
    """Whether last bits may differ, and no more does; what is rounded otherwise may overflow."""
    return bool(tolerance) and (special == "extreme" or gap.off <= tolerance)


def worth_trying(found: Verification, tolerance: float) -> bool:
    """Whether nothing else speaks against a model, so that special values may."""
    if not found.runs or found.wrong_elsewhere is not None:
        return False
    if found.own_error is not None:
        return True
    error = found.relative_error
    return bool(found.outputs_equal) or (bool(tolerance) and error is not None and error <= tolerance)


def compared_on(
    found: Verification, function: str, request: Mapping[str, Any], alone: Mapping[str, Any], word: str
) -> Verification:
    """Return a verification with what both models make of special values, as a child process runs them.

    Args:
        function: What the child runs on ``request``; it returns what `judged` does.
        alone: A request for the model as given in place of both, for when one of them ends the process.
        word: What the runtime is called.
    """
    shown = shown_by(function, request, alone, word)
    return found if shown is None else with_special(found, shown)


def shown_by(
    function: str, request: Mapping[str, Any], alone: Mapping[str, Any], word: str, timeout: float = TIMEOUT
) -> Mapping[str, Any] | None:
    """Return what `judged` says of both models in a child process; None if the model as given is what fails.

    Args:
        function, request, alone, word: As `compared_on` has them.
        timeout: Seconds.
    """
    result = run_in_child(function, request, timeout)
    if result.ok:
        shown: Mapping[str, Any] = result.value
        return shown
    if result.status == "crash" and run_in_child(function, alone, timeout).ok:
        return {"tried": [], "off": None, "wrong": f"on special values {word} crashes on the other model"}
    return None


def words_of(tried: Sequence[Special]) -> tuple[str, ...]:
    """Return kinds of special values in words."""
    return tuple(WORDS[special] for special in tried)


def with_special(found: Verification, shown: Mapping[str, Any]) -> Verification:
    """Return a verification with what `judged` returned."""
    if shown["wrong"] is not None:
        wrong = str(shown["wrong"])
        return replace(
            found, outputs_equal=False, max_abs_error=None, relative_error=None, reason=wrong, special_wrong=wrong
        )
    found = replace(found, special_values=words_of(shown["tried"]))
    if shown["off"] is None:
        return found
    return replace(
        found,
        outputs_equal=False,
        max_abs_error=found.max_abs_error or 0.0,
        relative_error=max(found.relative_error or 0.0, shown["off"]),
    )
