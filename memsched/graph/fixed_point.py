"""Fixed-point arithmetic as TensorFlow Lite's reference kernels have it: multipliers, ranges, functions of 8 bits.

A number is an integer of 32 bits times a power of two. Products are rounded twice: when the product of 64 bits becomes
32, halves upwards, and when it is shifted, halves away from zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from memsched.base.units import LARGEST_INT32

__all__ = ["activation_range", "logistic_table", "mean_multiplier", "multiplier", "rescaled_table", "softmax"]
__all__ += ["softmax_numbers", "tanh_table"]


def multiplier(real: float) -> tuple[int, int]:
    """Return (q, shift) so that q * 2 ** (shift - 31) is about ``real``, with 2 ** 30 <= q < 2 ** 31."""
    if real == 0.0:
        return 0, 0
    fraction, shift = math.frexp(real)
    found = math.floor(fraction * (1 << 31) + 0.5)
    if found == 1 << 31:
        found //= 2
        shift += 1
    if shift < -31:
        return 0, 0
    return (LARGEST_INT32, 30) if shift > 30 else (found, shift)


def scaled(value: int, by: int, shift: int) -> int:
    """Return ``value`` * ``by`` * 2 ** (``shift`` - 31), rounded twice."""
    return _halved(_product(value << max(shift, 0), by), max(-shift, 0))


def _product(one: int, other: int) -> int:
    """Return the upper half of twice the product, rounded."""
    if one == other == -LARGEST_INT32 - 1:
        return LARGEST_INT32
    product = one * other
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    return nudged // (1 << 31) if nudged >= 0 else -(-nudged // (1 << 31))


def _halved(value: int, times: int) -> int:
    """Return ``value`` / 2 ** ``times``, rounded, halves away from zero."""
    mask = (1 << times) - 1
    rest, threshold = value & mask, (mask >> 1) + (value < 0)
    return (value >> times) + (rest > threshold)


def _shifted(value: int, bits: int) -> int:
    return max(-LARGEST_INT32 - 1, min(LARGEST_INT32, value << bits))


def activation_range(activation: str, scale: float, zero: int) -> tuple[int, int]:
    """Return what 8-bit outputs of a fused activation lie between."""
    low, high = {"RELU": (0.0, None), "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0)}.get(activation, (None, None))

    def quantised(real: float) -> int:
        return zero + _rounded(np.float32(real) / np.float32(scale))

    return (
        -128 if low is None else max(-128, quantised(low)),
        127 if high is None else min(127, quantised(high)),
    )


def _rounded(value: np.float32 | float) -> int:
    """Round halves away from zero."""
    return int(math.copysign(math.floor(abs(float(value)) + 0.5), float(value)))


def _table(function: Callable[[int], int]) -> tuple[int, ...]:
    return tuple(max(-128, min(127, function(value))) for value in range(-128, 128))


def rescaled_table(
    given: tuple[float, int], made: tuple[float, int], least: int = -128, most: int = 127, slope: float | None = None
) -> tuple[int, ...]:
    """Return per 8-bit value the value of the same meaning under another (scale, zero point), within a range.

    Args:
        slope: What values below zero are multiplied by; None: nothing.
    """
    ratio = float(given[0]) / float(made[0])
    plain = multiplier(ratio)
    below = plain if slope is None else multiplier(float(given[0]) * slope / float(made[0]))

    def one(value: int) -> int:
        centred = value - given[1]
        by = plain if centred >= 0 else below
        return max(least, min(most, made[1] + scaled(centred, *by)))

    return _table(one)


def softmax_numbers(beta: float, scale: float) -> dict[str, float]:
    """Return how differences of 8-bit inputs are scaled to 5 integer bits, and which count nothing."""
    real = min(float(np.float32(beta)) * scale * (1 << 26), float(LARGEST_INT32))
    by, shift = multiplier(real)
    radius = math.floor(((1 << 5) - 1) * (1 << 26) / (1 << shift))
    return {"multiplier": by, "shift": shift, "least": -radius}


def softmax(values: Sequence[int], by: int, shift: int, least: int) -> list[int]:
    """Return the softmax of 8-bit values, as 8 bits of scale 1 / 256 and zero point -128; see `softmax_numbers`."""
    most = max(values)
    powers = [
        _exp_of_negative(scaled(value - most, by, shift), 5) if value - most >= least else None for value in values
    ]
    total = sum(_halved(power, 12) for power in powers if power is not None)
    zeros = 32 - total.bit_length()
    x, _ = _newton((total << zeros) - (1 << 31))
    scale = _shifted(x, 1)
    return [
        -128 if power is None else max(-128, min(127, _halved(_product(scale, power), 35 - zeros) - 128))
        for power in powers
    ]


def mean_multiplier(ratio: float, count: int) -> tuple[int, int]:
    """Return the multiplier of a sum of ``count`` values, from that of their mean."""
    by, shift = multiplier(ratio)
    bits = min(count.bit_length() - 1, 32, 31 + shift)
    return (by << bits) // count, shift - bits


# Functions by Newton's method and barrel shifts ----------------------------------------------------------------------

_EXP_FACTORS = tuple(round(math.exp(-(2.0**power)) * 2**31) for power in range(-2, 5))
"""e ** -(2 ** i) for i from -2 on, without integer bits."""


def _exp_of_negative(value: int, integer_bits: int) -> int:
    """Return e ** ``value`` without integer bits, of a value that is not above 0 and has so many."""
    if value == 0:
        return LARGEST_INT32
    quarter = 1 << (29 - integer_bits)
    part = (value & (quarter - 1)) - quarter
    x = _shifted(part, integer_bits) + (1 << 28)
    square = _product(x, x)
    cube = _product(square, x)
    fourth = _halved(_product(square, square), 2)
    series = _halved(_product(fourth + cube, 715827883) + square, 1)
    found = 1895147668 + _product(1895147668, x + series)
    rest = part - value
    for place, factor in enumerate(_EXP_FACTORS[: integer_bits + 2]):
        if rest & (1 << (29 - integer_bits + place)):
            found = _product(found, factor)
    return found


def _half_sum(one: int, other: int) -> int:
    total = one + other
    return (total + 1) // 2 if total >= 0 else -((1 - total) // 2)


def _newton(value: int, turns: int = 3) -> tuple[int, int]:
    """Return about 1 / ((1 + value) / 2) with two integer bits, and the half of the sum."""
    half = _half_sum(value, LARGEST_INT32)
    x = 1515870810 + _product(half, -1010580540)
    for _ in range(turns):
        rest = (1 << 29) - _product(half, x)
        x += _shifted(_product(x, rest), 2)
    return x, half


def _logistic(value: int) -> int:
    """Return 1 / (1 + e ** -value) without integer bits, of a value with four."""
    if value == 0:
        return 1 << 30
    positive = _shifted(_newton(_exp_of_negative(-abs(value), 4))[0], 1)
    return positive if value > 0 else LARGEST_INT32 - positive


def _tanh(value: int) -> int:
    """Return tanh(value) without integer bits, of a value with four."""
    if value == 0:
        return 0
    # e ** -2x: the same bits have one integer bit more.
    power = _exp_of_negative(-abs(value), 5)
    x, _ = _newton(power)
    found = _shifted(x - (1 << 29), 2)
    return found if value > 0 else -found


def _curve(given: tuple[float, int], function: Callable[[int], int], bits: int, zero: int) -> tuple[int, ...]:
    """Return the table of a function of values with four integer bits, whose result has 8 - ``bits`` of its own."""
    real = float(given[0]) * (1 << 27)
    fraction, shift = math.frexp(real)
    by = _rounded(fraction * (1 << 31))
    radius = math.floor(((1 << 4) - 1) * (1 << 27) / (1 << shift))

    def one(value: int) -> int:
        centred = value - given[1]
        if centred <= -radius:
            return -128
        if centred >= radius:
            return 127
        return _halved(function(scaled(centred, by, shift)), bits) + zero

    return _table(one)


def logistic_table(given: tuple[float, int]) -> tuple[int, ...]:
    """Return the logistic function per 8-bit input of a (scale, zero point); the output's are 1 / 256 and -128."""
    return _curve(given, _logistic, 23, -128)


def tanh_table(given: tuple[float, int]) -> tuple[int, ...]:
    """Return the hyperbolic tangent per 8-bit input of a (scale, zero point); the output's are 1 / 128 and 0."""
    return _curve(given, _tanh, 24, 0)
