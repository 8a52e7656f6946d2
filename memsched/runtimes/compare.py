"""Whether the outputs of two runs are the same bit for bit, and if not, how far apart they are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memsched.base.frozen import FrozenValue

__all__ = ["Disagreement", "close", "compare", "digest", "disagreement", "relative_error", "vary", "within_own"]


class Disagreement(FrozenValue, frozen=True):
    """How outputs differ whose NaN are equal whatever their sign and payload.

    Attributes:
        words: What is where, for the user.
        off: The largest difference by the output's largest finite magnitude, if only finite values differ; 0 between
            zeros of different signs.
    """

    words: str
    off: float = math.inf


def compare(first: Sequence[Any], second: Sequence[Any]) -> tuple[bool, float]:
    """Compare two lists of outputs: arrays, or what runtimes return beside them (lists, mappings, None, scalars).

    Returns:
        Whether shapes, types and all bytes agree (NaN patterns included), and the largest absolute difference:
        infinite where shapes, types, text or the places of NaN or infinity differ; two NaN differ by 0.
    """
    left, right = _leaves(first), _leaves(second)
    if len(left) != len(right):
        return False, math.inf
    equal, error = True, 0.0
    for one, other in zip(left, right, strict=True):
        same, distance = _compare_arrays(one, other)
        equal, error = equal and same, max(error, distance)
    return equal, error


def close(first: Sequence[Any], second: Sequence[Any], rtol: float, atol: float) -> bool:
    """Whether all elements agree within ``atol + rtol * |second|``; structure, shapes, types and text must be the same.

    Two NaN agree, and so do equal infinities.
    """
    left, right = _leaves(first), _leaves(second)
    if len(left) != len(right):
        return False
    for one, other in zip(left, right, strict=True):
        if one.dtype.kind in "OSU" or other.dtype.kind in "OSU":
            if one.shape != other.shape or one.tolist() != other.tolist():
                return False
        elif one.dtype != other.dtype or one.shape != other.shape:
            return False
        elif one.tobytes() != other.tobytes():
            wide: Any = np.complex128 if one.dtype.kind == "c" else np.float64
            if not np.allclose(one.astype(wide), other.astype(wide), rtol=rtol, atol=atol, equal_nan=True):
                return False
    return True


def digest(outputs: Sequence[Any]) -> str:
    """Return a digest that is the same for outputs which `compare` calls equal, and for no others."""
    import hashlib

    found = hashlib.sha256()
    for leaf in _leaves(outputs):
        text = leaf.dtype.kind in "OSU"
        found.update(f"{'text' if text else leaf.dtype.name}{leaf.shape}".encode())
        raw = np.ascontiguousarray(leaf).reshape(-1)
        found.update(repr(leaf.tolist()).encode() if text else raw.view(np.uint8).data)
    return found.hexdigest()


def within_own(given: Sequence[Any], other: Sequence[Any], found: Sequence[Any], outputs: int) -> bool:
    """Whether outputs differ from a model's by no more than two sets of kernels explain that round in their own ways.

    If ``found`` is no further from exact outputs than the model's own outputs are with either kernels, the distance of
    ``found`` is at most twice the distance between the kernels. Integers may differ by 1 in any case: what is rounded
    otherwise may reach the next integer.

    Args:
        given: The model's outputs, run by run.
        other: The same with other kernels.
        found: The outputs to judge.
        outputs: How many arrays a run has.
    """
    for place in range(outputs):
        mine = given[place::outputs]
        least = 1.0 if all(np.asarray(one).dtype.kind in "iu" for one in mine) else 0.0
        own, off = (compare(mine, some[place::outputs])[1] for some in (other, found))
        if off > max(2 * own, least):
            return False
    return len(given) == len(found)


def vary(runs: Sequence[Sequence[Any]]) -> bool:
    """Whether the outputs of runs on different inputs are not all the same, so that comparing them says something."""
    return any(not compare(runs[0], other)[0] for other in runs[1:])


def relative_error(first: Sequence[Any], second: Sequence[Any]) -> float:
    """Return the largest difference of any output by that output's largest magnitude in ``first``.

    Integers that differ at all, and values that `compare` calls infinitely far apart, give infinity.
    """
    left, right = _leaves(first), _leaves(second)
    if len(left) != len(right):
        return math.inf
    worst = 0.0
    for one, other in zip(left, right, strict=True):
        same, distance = _compare_arrays(one, other)
        if same or not distance:
            continue
        if one.dtype.kind not in "fc":
            return math.inf
        finite = np.abs(one[np.isfinite(one)].astype(np.complex128 if one.dtype.kind == "c" else np.float64))
        largest = float(finite.max()) if finite.size else 0.0
        worst = max(worst, distance / largest if largest else math.inf)
    return worst


def disagreement(first: Sequence[Any], second: Sequence[Any]) -> Disagreement | None:
    """Return how outputs differ, other than in what NaN are made of; None where they do not."""
    left, right = _leaves(first), _leaves(second)
    if [(one.shape, one.dtype) for one in left] != [(one.shape, one.dtype) for one in right]:
        return Disagreement("outputs have other shapes or types")
    worst: Disagreement | None = None
    for one, other in zip(left, right, strict=True):
        found = _disagreeing(one, other)
        if found is not None and (worst is None or found.off > worst.off):
            worst = found
    return worst


def _disagreeing(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> Disagreement | None:
    if one.dtype.kind in "OSU":
        return None if one.tolist() == other.tolist() else Disagreement("a text is another")
    if one.tobytes() == other.tobytes():
        return None
    if one.dtype.kind == "c":
        one, other = (value.view(f"f{value.dtype.itemsize // 2}") for value in (one, other))
    a, b = one.reshape(-1), other.reshape(-1)
    if one.dtype.kind in "iub":
        at = np.flatnonzero(a != b)[0]
        return Disagreement(f"an output is {b[at]} where that of the model as given is {a[at]}")
    bits = f"u{a.dtype.itemsize}"
    differ = (a.view(bits) != b.view(bits)) & ~(np.isnan(a) & np.isnan(b))
    if not differ.any():
        return None
    wide = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(wide[0]) & np.isfinite(wide[1])
    places = np.flatnonzero(differ & ~finite)
    distance = np.where(finite, np.abs(np.where(finite, wide[0], 0) - np.where(finite, wide[1], 0)), 0)
    at = int(places[0] if len(places) else np.argmax(np.where(differ, distance, -1)))
    largest = float(np.abs(wide[0][np.isfinite(wide[0])]).max(initial=0.0))
    share = float(distance.max()) / largest if largest else math.inf if distance.max() else 0.0
    words = f"an output is {wide[1][at]:g} where that of the model as given is {wide[0][at]:g}"
    return Disagreement(words, math.inf if len(places) else share)


def _leaves(values: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """Flatten nested outputs; a text stands for each list, mapping and None, so that their structure counts too."""
    leaves: list[np.ndarray[Any, Any]] = []
    pending: list[Any] = list(reversed(values))
    while pending:
        value = pending.pop()
        if isinstance(value, Mapping):
            leaves.append(np.array(f"mapping of {len(value)}"))
            pending.extend(part for pair in reversed(list(value.items())) for part in reversed(pair))
        elif isinstance(value, (list, tuple)):
            leaves.append(np.array(f"list of {len(value)}"))
            pending.extend(reversed(value))
        else:
            leaves.append(np.array("nothing") if value is None else np.asarray(value))
    return leaves


def _compare_arrays(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> tuple[bool, float]:
    if one.dtype.kind in "OSU" or other.dtype.kind in "OSU":
        same = one.shape == other.shape and one.tolist() == other.tolist()
        return same, 0.0 if same else math.inf
    if one.dtype != other.dtype or one.shape != other.shape:
        return False, math.inf
    if one.tobytes() == other.tobytes():
        return True, 0.0
    exact = one.dtype.kind in "iub" and one.dtype.itemsize >= 8
    wide: Any = object if exact else np.complex128 if one.dtype.kind == "c" else np.float64
    a, b = one.astype(wide), other.astype(wide)
    if exact:
        return False, float(np.max(np.abs(a - b)))
    differ = (a != b) & ~(np.isnan(a) & np.isnan(b))
    if not differ.any():
        return False, 0.0
    with np.errstate(all="ignore"):
        distance = float(np.max(np.abs(a[differ] - b[differ])))
    return False, math.inf if math.isnan(distance) else distance
