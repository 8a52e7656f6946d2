"""The smallest arenas in which models of one operator run: preparing its kernel takes more than planning does."""

from __future__ import annotations

import pytest

from memsched.formats.tflite.model import parse
from memsched.runtimes.tflm.persistent import estimates, least_in_wheel
from memsched.runtimes.tflm.session import InputDraws, _least, attempt
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options
from tests.runtimes.tflm.interpreter import needs_tflm
from tests.runtimes.tflm.kernel_models import CASES, model

pytestmark = needs_tflm

ROOM = 1 << 20


def least(data: bytes) -> tuple[int | None, int]:
    """Return the smallest arena in which a model runs, as measured and as predicted."""
    drawn = InputDraws(1, 0)
    trial = attempt(data, ROOM, drawn)
    assert trial.head is not None, trial.words
    return _least(data, ROOM, drawn, trial), least_in_wheel(parse(data), trial.head)


def reduced(kind: str, dtype: str, axes: tuple[int, ...], made: tuple[int, ...], *, count: int = 1) -> bytes:
    scales = (1.0,) if dtype != "FLOAT32" else ()
    tensors = [T("x", (1, 4, 4, 2), dtype, scales=scales), T("axes", (len(axes),), "INT32", int32s(*axes))]
    tensors += [T(f"y{number}", made, dtype, scales=scales) for number in range(count)]
    keeps = options("ReducerOptions", keepDims=len(made) == 4)
    ops = [O(kind, [number + 1 if number else 0, 1], [number + 2], keeps) for number in range(count)]
    return build(Sub(tensors, ops, [0], [count + 1]))


@pytest.mark.parametrize("dtype", ["FLOAT32", "INT8", "INT16"])
@pytest.mark.parametrize(("axes", "made"), [((1, 2), (1, 2)), ((1, 2), (1, 1, 1, 2)), ((3,), (1, 4, 4))])
def test_means(dtype: str, axes: tuple[int, ...], made: tuple[int, ...]) -> None:
    measured, predicted = least(reduced("MEAN", dtype, axes, made))
    assert measured == predicted


@pytest.mark.parametrize("kind", ["SUM", "REDUCE_MAX", "REDUCE_MIN"])
@pytest.mark.parametrize("dtype", ["FLOAT32", "INT8"])
def test_other_reductions(kind: str, dtype: str) -> None:
    measured, predicted = least(reduced(kind, dtype, (1, 2), (1, 2)))
    assert measured == predicted


@pytest.mark.parametrize("count", [2, 3])
def test_several_means(count: int) -> None:
    measured, predicted = least(reduced("MEAN", "INT8", (1, 2), (1, 1, 1, 2), count=count))
    assert measured == predicted


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        ("ADD", ("int8",) * 3),
        ("CONCATENATION", ("float32",) * 3),
        ("CONV_2D", ("float32", "float32", "none", "float32")),
        ("CONV_2D", ("int8", "int8", "int32", "int8")),
        ("DEPTHWISE_CONV_2D", ("int16", "int8", "int64", "int16")),
        ("EQUAL", ("int8", "int8", "bool")),
        ("FULLY_CONNECTED", ("int8", "int4", "int32", "int8")),
        ("MAXIMUM", ("int8",) * 3),
        ("RESHAPE", ("int8",) * 2),
        ("SPLIT", ("int8",) * 2),
        ("TANH", ("int16",) * 2),
        ("TRANSPOSE_CONV", ("float32", "float32", "float32", "float32")),
        ("TRANSPOSE_CONV", ("int8", "int8", "int32", "int8")),
    ],
    ids=lambda one: one if isinstance(one, str) else "-".join(one),
)
def test_other_kernels(kind: str, types: tuple[str, ...]) -> None:
    measured, predicted = least(model(kind, CASES[kind], types))
    assert measured == predicted


def test_a_firmware_needs_as_much_for_a_moment() -> None:
    needs = estimates(parse(model("CONV_2D", CASES["CONV_2D"], ("int8", "int8", "none", "int8"))))
    # Six tensors with a scale each, and the requests of one kernel.
    assert needs[64].planning_apart == 6 * (64 + 24 + 8) + 12 * 16
    assert needs[32].planning_apart == 6 * (40 + 12 + 8) + 12 * 12
