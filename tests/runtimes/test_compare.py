from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from memsched.runtimes.compare import compare, digest, vary
from memsched.runtimes.inputs import DRAWS, Draw, random_values

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (np.array([1, 2], np.float32), np.array([1, 2], np.float32), (True, 0.0)),
        (np.array([1, 2], np.float32), np.array([1, 2.5], np.float32), (False, 0.5)),
        (np.array([NAN], np.float32), np.array([NAN], np.float32), (True, 0.0)),
        (np.array([NAN, 1], np.float32), np.array([NAN, 2], np.float32), (False, 1.0)),
        (np.array([NAN], np.float32), np.array([1], np.float32), (False, INF)),
        (np.array([INF], np.float32), np.array([INF], np.float32), (True, 0.0)),
        (np.array([INF], np.float32), np.array([-INF], np.float32), (False, INF)),
        (np.array([0.0], np.float32), np.array([-0.0], np.float32), (False, 0.0)),
        (np.array([0x7FC00001], np.uint32).view(np.float32), np.array([NAN], np.float32), (False, 0.0)),
        (np.array([1], np.float32), np.array([1], np.float64), (False, INF)),
        (np.array([1], np.float32), np.array([[1]], np.float32), (False, INF)),
        (np.array([2**62], np.int64), np.array([2**62 + 1], np.int64), (False, 1.0)),
        (np.array([0], np.uint8), np.array([255], np.uint8), (False, 255.0)),
        (np.array([True]), np.array([False]), (False, 1.0)),
        (np.array([3 + 4j], np.complex64), np.array([0], np.complex64), (False, 5.0)),
        (np.array(["a", "b"]), np.array(["a", "b"], dtype=object), (True, 0.0)),
        (np.array(["a"]), np.array(["b"]), (False, INF)),
        (np.zeros((0, 3)), np.zeros((0, 3)), (True, 0.0)),
    ],
)
def test_arrays(one: Any, other: Any, expected: tuple[bool, float]) -> None:
    assert compare([one], [other]) == expected


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ([[np.zeros(2)], None], [[np.zeros(2)], None], True),
        ([[np.zeros(2)]], [np.zeros(2)], False),
        ([{"a": 1.0}], [{"a": 1.0}], True),
        ([{"a": 1.0}], [{"b": 1.0}], False),
        ([None], [np.zeros(1)], False),
        ([np.zeros(1)], [np.zeros(1), np.zeros(1)], False),
    ],
)
def test_nested_outputs(one: list[Any], other: list[Any], equal: bool) -> None:
    assert compare(one, other)[0] is equal


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 2)])
@pytest.mark.parametrize(
    "dtype",
    [
        *("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "uint64", "bool", "complex64"),
        *("S4", "object", ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e4m3fn),
    ],
)
def test_random_values(dtype: Any, shape: tuple[int, ...], draw: Draw) -> None:
    first, again = (random_values(dtype, shape, np.random.default_rng(3), draw=draw) for _ in range(2))
    assert (first.dtype, first.shape) == (np.dtype(dtype), shape)
    assert compare([first], [again])[0]


def test_integers_stay_small_unless_they_are_quantised() -> None:
    rng = np.random.default_rng(0)
    small = random_values("int32", (1000,), rng, high=3)
    assert (small.min(), small.max()) == (0, 2)
    assert random_values("int16", (1000,), rng, full_range=True).min() < -30_000
    assert set(random_values("int8", (20_000,), rng).tolist()) == set(range(-128, 128))


def test_draws_differ_in_smoothness_and_magnitude() -> None:
    noise, smooth, large, small = (
        random_values("float32", (30, 30), np.random.default_rng(0), draw=draw) for draw in DRAWS
    )
    assert (smooth[:8, :8] == smooth[0, 0]).all()
    assert len(np.unique(smooth)) == 16
    assert np.allclose(large, 16 * noise)
    assert np.allclose(small, noise / 16)


def test_outputs_vary_when_any_differs_between_runs() -> None:
    same = [[np.zeros(2), np.ones(2)], [np.zeros(2), np.ones(2)]]
    assert not vary(same)
    assert not vary(same[:1])
    assert vary([*same, [np.zeros(2), np.array([1.0, 1.5])]])
    assert not vary([[np.array([np.nan])], [np.array([np.nan])]])


def test_digests_are_the_same_where_all_bytes_are() -> None:
    floats = np.array([1.0, np.nan, -0.0], np.float32)
    outputs = [floats, {"a": np.arange(3)}, [np.array(["x"], object)], None]
    assert digest(outputs) == digest([floats.copy(), {"a": np.arange(3)}, [np.array(["x"], object)], None])
    others = [
        [floats[:2], *outputs[1:]],
        [floats.astype(np.float64), *outputs[1:]],
        [np.abs(floats), *outputs[1:]],
        [floats.reshape(3, 1), *outputs[1:]],
        [*outputs[:2], [np.array(["y"], object)], None],
        outputs[:3],
    ]
    assert digest(outputs) not in {digest(other) for other in others}
