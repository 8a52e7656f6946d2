"""The table of what TensorFlow Lite Micro's kernels take, held to the package that is installed."""

from __future__ import annotations

import numpy as np
import pytest

from memsched.formats.tflite.model import parse
from memsched.formats.tflite.schema import operator_types
from memsched.runtimes.tflm.limits import AXES, KERNELS, new_refusals, refusals
from memsched.runtimes.tflm.resolver import BUILTIN
from memsched.runtimes.tflm.sources import Sources
from tests.formats.tflite_builder import MODELS, O, Sub, T, build, options
from tests.runtimes.tflm.interpreter import needs_tflm, run_all
from tests.runtimes.tflm.kernel_models import CASES, model, of_axes, strided

_NO_OPERATORS = {"CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"}


HYBRID_LSTM = ("UNIDIRECTIONAL_SEQUENCE_LSTM", "float32", "int8")
"""It runs, but what it computes is wrong."""
LSTMS = (("float32",) * 5, ("float32", "int8", "float32", "float32", "float32"))


def softmax(dtype: str, scale: float, beta: float = 1.0) -> bytes:
    made = (1 / 256, -128) if dtype == "INT8" else (1 / 32768, 0)
    tensors = [T("x", dtype=dtype, scales=(scale,)), T("y", dtype=dtype, scales=made[:1], zero_point=int(made[1]))]
    return build(Sub(tensors, [O("SOFTMAX", [0], [1], options("SoftmaxOptions", beta=beta))], [0], [1]))


def join(count: int) -> bytes:
    tensors = [*(T(f"x{number}") for number in range(count)), T("y", (1, 4 * count))]
    op = O("CONCATENATION", range(count), [count], options("ConcatenationOptions", axis=1))
    return build(Sub(tensors, [op], range(count), [count]))


def test_the_table_is_of_operators_that_there_are() -> None:
    assert KERNELS.keys() == CASES.keys()
    assert KERNELS.keys() <= BUILTIN.keys()
    assert all(kernel.taken <= kernel.tried for kernel in KERNELS.values())


@needs_tflm
@pytest.mark.parametrize("kind", KERNELS)
def test_each_kernel_takes_what_the_table_says_and_nothing_else_that_was_tried(kind: str) -> None:
    tried = sorted(KERNELS[kind].tried)
    models = [model(kind, CASES[kind], types) for types in tried]
    ran = {types for types, one in zip(tried, run_all(models, runs=1), strict=True) if not one.refused}
    assert ran == KERNELS[kind].taken
    said = {types for types, one in zip(tried, models, strict=True) if not refusals(parse(one))}
    assert said == {types for types in ran if (kind, *types[:2]) != HYBRID_LSTM}


@needs_tflm
def test_operators_without_a_kernel_are_those_that_the_package_lacks() -> None:
    kinds = [kind for kind in operator_types().values() if kind not in _NO_OPERATORS]
    models = [build(Sub([T("x"), T("y")], [O(kind, [0], [1])], [0], [1])) for kind in kinds]
    lacking = {kind for kind, one in zip(kinds, run_all(models, runs=1), strict=True) if "Didn't find op" in one.words}
    assert lacking == set(kinds) - BUILTIN.keys()
    said = {kind for kind, one in zip(kinds, models, strict=True) if "no kernel" in str(refusals(parse(one)))}
    assert said == lacking


@needs_tflm
def test_kernels_take_as_many_axes_as_the_table_says() -> None:
    rows = [(kind, axes, dtype) for kind in AXES for axes in range(1, 9) for dtype in ("float32", "int8")]
    models = [of_axes(*row) for row in rows]
    ran = [row for row, one in zip(rows, run_all(models, runs=1), strict=True) if not one.refused]
    assert ran == [row for row, one in zip(rows, models, strict=True) if not refusals(parse(one))]
    for kind, axes, dtype in rows:
        least, most, types = AXES[kind]
        assert ((kind, axes, dtype) in ran) == (least <= axes <= most or dtype not in (types or (dtype,)))


@needs_tflm
def test_the_masks_of_a_strided_slice() -> None:
    models = [strided(beginMask=1, endMask=1), strided(ellipsisMask=2), strided(newAxisMask=1)]
    assert [one.refused for one in run_all(models, runs=1)] == [False, False, True]
    assert [bool(refusals(parse(one))) for one in models] == [False, False, True]


@needs_tflm
def test_a_hybrid_lstm_computes_what_is_wrong() -> None:
    """All weights, inputs and biases are 1, so that all cells of a step are equal."""
    whole, hybrid = (model(HYBRID_LSTM[0], CASES[HYBRID_LSTM[0]], types) for types in LSTMS)
    (right, wrong) = run_all([whole, hybrid], runs=1)
    assert right.outputs is not None
    assert wrong.outputs is not None
    assert np.ptp(right.outputs[0][0], axis=-1).max() == 0
    assert np.ptp(wrong.outputs[0][0], axis=-1).max() != 0
    assert len(refusals(parse(hybrid))) == 1
    assert not refusals(parse(whole))


@needs_tflm
@pytest.mark.parametrize("count", [Sources.MOST_JOINED, Sources.MOST_JOINED + 1])
def test_joins(count: int) -> None:
    (ran,) = run_all([join(count)], runs=1)
    assert ran.refused == bool(refusals(parse(join(count)))) == (count > Sources.MOST_JOINED)


@needs_tflm
@pytest.mark.parametrize("dtype", ["INT8", "INT16"])
@pytest.mark.parametrize(("scale", "beta"), [(1.49e-8, 1.0), (1.4902e-8, 1.0), (7.8e-9, 1.0), (7.8e-9, 2.0)])
def test_the_scale_of_softmax(dtype: str, scale: float, beta: float) -> None:
    data = softmax(dtype, scale, beta)
    (ran,) = run_all([data], runs=1)
    assert ran.refused == bool(refusals(parse(data))) == (dtype == "INT8" and scale * beta * 2**26 <= 1)


@pytest.mark.parametrize("path", sorted(MODELS.glob("*.tflite")), ids=lambda path: path.stem)
def test_models_that_run_are_not_called_refused(path: object) -> None:
    assert refusals(parse((MODELS / str(path)).read_bytes())) == ()


def test_a_refusal_says_which_operator_and_why() -> None:
    (one,) = refusals(parse(softmax("INT8", 7.8e-9)))
    assert (one.subgraph, one.operator, one.type, one.name) == (0, 0, "SOFTMAX", "y")
    assert "7.8e-09" in one.reason
    hybrid = model("CONV_2D", CASES["CONV_2D"], ("float32", "int8", "float32", "float32"))
    reason = refusals(parse(hybrid))[0].reason
    assert "float32" in reason
    assert "int8" in reason


def test_only_what_the_given_model_did_not_have_is_new() -> None:
    few, many = parse(join(10)), parse(join(12))
    assert len(new_refusals(few, many)) == 1
    assert new_refusals(many, many) == ()
