"""Random inputs of the right types, in ranges that models of all kinds can run on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

__all__ = ["DRAWS", "Draw", "random_values"]

Draw = Literal["noise", "smooth", "large", "small"]
"""A way to draw inputs: element by element, alike among neighbours, or such noise of other magnitudes."""

DRAWS: tuple[Draw, ...] = get_args(Draw)
"""Tried in turn until a model's outputs vary with its inputs: only then do equal outputs say something."""


_MAGNITUDE = 16
_AT_ONCE = 4096
"""Floats drawn at once, each as 8 bytes."""

_NEIGHBOURS = 8
"""Elements along an axis that smooth inputs give one value."""


def random_values(
    dtype: Any,
    shape: Sequence[int],
    rng: np.random.Generator,
    *,
    full_range: bool = False,
    high: int = 4,
    draw: Draw = "noise",
) -> np.ndarray[Any, Any]:
    """Return an array of ``dtype`` (anything that numpy takes for one, ml_dtypes included) and ``shape``.

    Floats and complex numbers are N(0, 1). Integers lie in [0, high), since they often are indices or lengths, but
    8-bit ones take their whole range, and so do others with ``full_range`` (quantised tensors). Strings are
    short decimal numbers.

    Args:
        full_range: Integers are quantised values.
        high: Exclusive bound of other integers.
        draw: What is drawn; other magnitudes are for floats and complex numbers alone.
    """
    if draw == "smooth" and len(shape):
        coarse = random_values(dtype, [-(-n // _NEIGHBOURS) for n in shape], rng, full_range=full_range, high=high)
        for axis in range(len(shape)):
            coarse = coarse.repeat(_NEIGHBOURS, axis=axis)
        smooth: np.ndarray[Any, Any] = coarse[tuple(slice(n) for n in shape)].copy()
        return smooth
    magnitude = {"large": _MAGNITUDE, "small": 1 / _MAGNITUDE}.get(draw, 1)
    kind = np.dtype(dtype)
    dims = tuple(shape)
    if kind.kind == "b":
        return rng.integers(0, 2, dims).astype(np.bool_)
    if kind.kind in "iu":
        if full_range or kind.itemsize == 1:
            bounds = np.iinfo(kind)
            return rng.integers(bounds.min, bounds.max, dims, dtype=kind, endpoint=True)
        return rng.integers(0, max(high, 1), dims).astype(kind)
    if kind.kind == "c":
        return np.asarray(magnitude * (rng.standard_normal(dims) + 1j * rng.standard_normal(dims))).astype(kind)
    if kind.kind in "OSU":
        texts = [str(value) for value in rng.integers(0, 100, int(np.prod(dims, dtype=np.int64)))]
        return np.array(texts, dtype=object if kind.kind == "O" else kind).reshape(dims)
    if kind.name in {"int4", "uint4", "int2", "uint2"}:
        return rng.integers(0, 2, dims).astype(kind)
    made = np.empty(dims, kind)
    flat = made.reshape(-1)
    # Of a whole input, the wider numbers would count as memory of the model that is measured.
    for first in range(0, flat.size, _AT_ONCE):
        part = flat[first : first + _AT_ONCE]
        part[:] = (magnitude * rng.standard_normal(part.size)).astype(kind)
    return made
