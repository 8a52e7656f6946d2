"""One operator with its operands, and the values that these are drawn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

__all__ = ["SETS", "Case", "Operand", "draw"]

Array = Any

Sets = Literal["plain", "mixed", "sparse", "tiny", "huge"]
SETS: tuple[Sets, ...] = ("plain", "mixed", "sparse", "tiny", "huge")
"""Sets of values: ordinary ones; with one in eight special; with a few NaN and infinities; zeros of both signs and
denormals; magnitudes that saturate."""

_SPECIAL = (np.nan, -np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40, 1e-45, 88.7, -103.5, 0.5, 2.5)
_TINY = (-0.0, 0.0, 1e-40, -1e-40, 1e-45, -1.2e-38, 1.0, -1.0)
_SMALL = {"float16": (-0.0, 0.0, 6e-8, -6e-8, 3e-5, 1.0, -1.0)}


@dataclass(frozen=True)
class Operand:
    """An activation, or a constant where ``value`` is given.

    Attributes:
        low: Least value of what is drawn; with ``high`` the model's own limits (divisors, shifts).
        scales: Of quantised TFLite tensors: one, or one per index of ``axis``.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    value: Array | None = None
    low: float | None = None
    high: float | None = None
    scales: tuple[float, ...] = ()
    zero_point: int = 0
    axis: int = 0


@dataclass(frozen=True)
class Case:
    """An operator, as both formats have it: None for an operand that is left out.

    Attributes:
        attributes: ONNX attributes, or the fields of TFLite's options.
        output: What it makes; TFLite files state it, ONNX Runtime finds it.
        table: TFLite's table of options.
        dtype: That the table of cuts names it by; by default the first activation's.
    """

    kind: str
    operands: tuple[Operand | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    output: Operand | None = None
    table: str = ""
    opset: int = 21

    @property
    def dtype(self) -> str:
        """Return the element type of the first activation."""
        return next(one.dtype for one in self.operands if one is not None and one.value is None)


def draw(operand: Operand, values: Sets, rng: np.random.Generator) -> Array:
    """Return an array for an activation."""
    dtype = np.dtype(operand.dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, operand.shape).astype(bool)
    if dtype.kind in "iu":
        return _integers(operand, values, rng)
    array = rng.standard_normal(operand.shape) * rng.choice((1, 1, 1, 8), operand.shape)
    if values == "mixed":
        array = np.where(rng.random(operand.shape) < 1 / 8, rng.choice(_SPECIAL, operand.shape), array)
    elif values == "sparse" and array.size:
        flat = array.reshape(-1)
        for special in (np.nan, np.inf, -np.inf):
            flat[rng.integers(flat.size, size=1 + flat.size // 400)] = special
    elif values == "tiny":
        array = rng.choice(_SMALL.get(operand.dtype, _TINY), operand.shape)
    elif values == "huge":
        array = np.clip(array, -7, 7) * (float(np.finfo(dtype).max) / 8)
    if operand.low is not None or operand.high is not None:
        array = np.clip(array, operand.low, operand.high)
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(dtype)


def _integers(operand: Operand, values: Sets, rng: np.random.Generator) -> Array:
    info = np.iinfo(operand.dtype)
    low = info.min if operand.low is None else int(operand.low)
    high = info.max if operand.high is None else int(operand.high)
    if values == "plain" and info.bits > 16 and operand.high is None:
        low, high = max(low, -100), 100
    if values in {"tiny", "mixed"}:
        some = [one for one in (low, high, 0, 1, -1, high - 1) if low <= one <= high]
        return np.asarray(rng.choice(np.array(some, operand.dtype), operand.shape))
    return np.asarray(rng.integers(low, high, operand.shape, dtype=operand.dtype, endpoint=True))
