"""Fixed-point arithmetic: multipliers and products beside exact ones, functions beside LiteRT's reference kernels."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsched.graph.fixed_point import (
    activation_range,
    logistic_table,
    mean_multiplier,
    multiplier,
    rescaled_table,
    scaled,
    softmax,
    softmax_numbers,
    tanh_table,
)
from tests.formats.tflite_builder import O, Sub, T, build, options

EVERY = np.arange(-128, 128, dtype=np.int8)
MOST = (1 << 31) - 1


def rounded(value: Fraction) -> int:
    """Round halves away from zero."""
    whole = math.floor(abs(value) + Fraction(1, 2))
    return whole if value >= 0 else -whole


@given(st.floats(2.0**-31, 2.0**29))
def test_a_multiplier_is_the_nearest_of_31_bits(real: float) -> None:
    by, shift = multiplier(real)
    assert 1 << 30 <= by <= MOST
    assert abs(Fraction(by) * Fraction(2) ** (shift - 31) - Fraction(real)) <= Fraction(2) ** (shift - 32)


@pytest.mark.parametrize(
    ("real", "found"),
    [
        (0.0, (0, 0)),
        (2.0**-33, (0, 0)),
        (2.0**-32, (1 << 30, -31)),
        (0.5, (1 << 30, 0)),
        (1.0 - 2.0**-33, (1 << 30, 1)),
        (2.0**29, (1 << 30, 30)),
        (2.0**30, (MOST, 30)),
        (2.0**40, (MOST, 30)),
    ],
)
def test_multipliers_at_the_ends(real: float, found: tuple[int, int]) -> None:
    assert multiplier(real) == found


@given(st.integers(-(2**20), 2**20), st.integers(2**30, MOST), st.integers(-20, 8))
def test_a_product_is_rounded_twice(value: int, by: int, shift: int) -> None:
    product = math.floor(Fraction(value * 2 ** max(shift, 0) * by, 1 << 31) + Fraction(1, 2))
    assert scaled(value, by, shift) == rounded(Fraction(product, 2 ** max(-shift, 0)))


def test_the_one_product_that_overflows_is_the_largest_number() -> None:
    assert scaled(-(1 << 31), -(1 << 31), 0) == MOST


@given(st.floats(2.0**-10, 4.0), st.integers(1, 5000), st.integers(-128, 127))
def test_a_mean_is_a_sum_times_its_multiplier(ratio: float, count: int, value: int) -> None:
    by, shift = mean_multiplier(ratio, count)
    assert abs(scaled(value * count, by, shift) - value * ratio) <= 1.0 + abs(value * ratio) * 2.0**-15


@pytest.mark.parametrize(
    ("activation", "found"),
    [("NONE", (-128, 127)), ("RELU", (-28, 127)), ("RELU6", (-28, 92)), ("RELU_N1_TO_1", (-48, -8))],
)
def test_what_a_fused_activation_lets_through(activation: str, found: tuple[int, int]) -> None:
    assert activation_range(activation, 0.05, -28) == found


def in_reference_kernel(
    kind: str, scale: float, zero: int, made: tuple[float, int], chosen: object = None
) -> list[int]:
    """Return the outputs of one operator of LiteRT's reference kernels for every 8-bit value."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    tensors = [
        T("x", (1, 256), "INT8", scales=[scale], zero_point=zero),
        T("y", (1, 256), "INT8", scales=[made[0]], zero_point=made[1]),
    ]
    data = build(Sub(tensors, [O(kind, [0], [1], chosen)], [0], [1]))
    session = interpreter.Interpreter(
        model_content=data, experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_REF
    )
    session.allocate_tensors()
    session.set_tensor(session.get_input_details()[0]["index"], EVERY[None])
    session.invoke()
    return [int(value) for value in session.get_tensor(session.get_output_details()[0]["index"])[0]]


SCALES = [(0.01, 0), (0.05, -20), (0.0625, 127), (0.2, -128), (1.5, 3)]


@pytest.mark.parametrize(("scale", "zero"), SCALES)
def test_functions_give_the_bits_of_the_reference_kernels(scale: float, zero: int) -> None:
    stored = float(np.float32(scale))
    logistic = in_reference_kernel("LOGISTIC", scale, zero, (1 / 256, -128))
    assert list(logistic_table((stored, zero))) == logistic
    assert list(tanh_table((stored, zero))) == in_reference_kernel("TANH", scale, zero, (1 / 128, 0))
    made = (0.07, 5)
    rescaled = rescaled_table((stored, zero), (float(np.float32(made[0])), made[1]))
    assert list(rescaled) == in_reference_kernel("QUANTIZE", scale, zero, made)
    leaky = in_reference_kernel("LEAKY_RELU", scale, zero, made, options("LeakyReluOptions", alpha=0.3))
    slope = float(np.float32(0.3))
    assert list(rescaled_table((stored, zero), (float(np.float32(made[0])), made[1]), slope=slope)) == leaky


@pytest.mark.parametrize(("scale", "zero"), SCALES)
@pytest.mark.parametrize("beta", [1.0, 0.5])
def test_a_softmax_gives_the_bits_of_the_reference_kernel(scale: float, zero: int, beta: float) -> None:
    numbers = softmax_numbers(beta, float(np.float32(scale)))
    found = softmax([int(value) for value in EVERY], *(int(numbers[name]) for name in ("multiplier", "shift", "least")))
    assert found == in_reference_kernel("SOFTMAX", scale, zero, (1 / 256, -128), options("SoftmaxOptions", beta=beta))
