"""What LiteRT's kernels need of their own, operator by operator: the predicted bytes are those that it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import memsched
from memsched.runtimes.litert import session
from memsched.runtimes.litert.probe import probe
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options
from tests.runtimes.litert.test_memory import SLACK, arenas

_BYTES = {"BOOL": 1, "FLOAT16": 2, "FLOAT32": 4, "INT16": 2, "INT32": 4, "INT64": 8, "INT8": 1, "UINT8": 1}
SCALE = (0.5,)


def constant(name: str, shape: Sequence[int], dtype: str = "FLOAT32", scales: Sequence[float] = (), axis: int = 0) -> T:
    size = -(-math.prod(shape) // 2) if dtype == "INT4" else math.prod(shape) * _BYTES[dtype]
    return T(name, shape, dtype, bytes(size), scales=scales, axis=axis)


def data(name: str, shape: Sequence[int], dtype: str = "FLOAT32") -> T:
    return T(name, shape, dtype, scales=() if dtype in {"BOOL", "FLOAT32", "INT32", "INT64"} else SCALE)


def one(op: str, tensors: Sequence[T], reads: Sequence[int], made: int, table: object = None) -> Sub:
    return Sub(tensors, [O(op, reads, [made], table)], [0], [made])


def spread(count: int, differ: bool) -> list[float]:
    """Return scales of so many channels, which differ or do not."""
    return [0.5 + 0.25 * differ * index for index in range(count)]


def convolution(
    kind: str,
    window: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    *,
    batch: int = 1,
    padding: int = 0,
    groups: int = 1,
    differ: bool = True,
) -> Sub:
    """Return a CONV_2D of 6 channels to 8: floating point, integers, or "hybrid" of both."""
    dtype = {"int8": "INT8", "uint8": "UINT8", "int16": "INT16"}.get(kind, "FLOAT32")
    weights = {"float": "FLOAT32", "uint8": "UINT8"}.get(kind, "INT8")
    bias = {"int8": "INT32", "uint8": "INT32", "int16": "INT64"}.get(kind, "FLOAT32")
    many = kind in {"hybrid", "int8", "int16"}
    scales = () if kind == "float" else spread(8, differ) if many else SCALE
    reach = [1 + (size - 1) * step for size, step in zip(window, dilation, strict=True)]
    sizes = [
        -(-size // step) if not padding else (size - over + step) // step
        for size, over, step in zip((17, 14), reach, stride, strict=True)
    ]
    # What a bias is multiplied by follows from the data's scale.
    tensors = [
        data("x", (batch, 17, 14, 6), dtype),
        constant("w", (8, *window, 6 // groups), weights, scales),
        constant("b", (8,), bias, () if kind in {"float", "hybrid"} else [0.5 * one for one in scales]),
        data("y", (batch, *sizes, 8), dtype),
    ]
    how = {"strideH": stride[0], "strideW": stride[1], "dilationHFactor": dilation[0], "dilationWFactor": dilation[1]}
    return one("CONV_2D", tensors, [0, 1, 2], 3, options("Conv2DOptions", padding=padding, **how))


def convolutions() -> Iterator[tuple[str, Sub]]:
    for kind in ("float", "int8", "uint8", "int16", "hybrid"):
        for window, stride, dilation in (
            ((1, 1), (1, 1), (1, 1)),
            ((1, 1), (2, 2), (1, 1)),
            ((3, 3), (1, 1), (1, 1)),
            ((5, 2), (2, 3), (1, 1)),
            ((3, 3), (1, 1), (2, 2)),
            ((1, 7), (1, 2), (1, 1)),
        ):
            if kind != "hybrid" or dilation == (1, 1):
                yield f"{kind}-{window}-{stride}-{dilation}", convolution(kind, window, stride, dilation)
        yield f"{kind}-valid", convolution(kind, padding=1)
        yield f"{kind}-batch", convolution(kind, batch=3)
    for kind in ("float", "int8"):
        yield f"{kind}-groups", convolution(kind, groups=2)
    yield "hybrid-equal-scales", convolution("hybrid", differ=False)


def depthwise(kind: str) -> Sub:
    dtype = "INT8" if kind == "int8" else "FLOAT32"
    scales = () if kind == "float" else spread(6, differ=True)
    tensors = [
        data("x", (2, 17, 14, 6), dtype),
        constant("w", (1, 3, 3, 6), "FLOAT32" if kind == "float" else "INT8", scales, 3),
        constant("b", (6,), "INT32" if kind == "int8" else "FLOAT32", scales if kind == "int8" else ()),
        data("y", (2, 17, 14, 6), dtype),
    ]
    table = options("DepthwiseConv2DOptions", strideH=1, strideW=1, depthMultiplier=1)
    return one("DEPTHWISE_CONV_2D", tensors, [0, 1, 2], 3, table)


def dense(kind: str, rows: int, depth: int, units: int) -> Sub:
    dtype = "INT8" if kind == "int8" else "FLOAT32"
    stored = {"float": "FLOAT32", "hybrid4": "INT4"}.get(kind, "INT8")
    tensors = [
        data("x", (rows, depth), dtype),
        constant("w", (units, depth), stored, () if kind == "float" else SCALE),
        data("y", (rows, units), dtype),
    ]
    return one("FULLY_CONNECTED", tensors, [0, 1, -1], 2, options("FullyConnectedOptions"))


def transposed(kind: str) -> Sub:
    dtype = "INT8" if kind == "int8" else "FLOAT32"
    tensors = [
        data("x", (1, 9, 7, 6), dtype),
        constant("w", (8, 3, 3, 6), "FLOAT32" if kind == "float" else "INT8", () if kind == "float" else SCALE),
        T("shape", (4,), "INT32", int32s(1, 18, 14, 8)),
        data("y", (1, 18, 14, 8), dtype),
    ]
    return one("TRANSPOSE_CONV", tensors, [2, 1, 0], 3, options("TransposeConvOptions", strideH=2, strideW=2))


def product(kind: str, adj: tuple[bool, bool], left: Sequence[int], right: Sequence[int], *, fixed: bool) -> Sub:
    dtype = "INT8" if kind == "int8" else "FLOAT32"
    weights = "FLOAT32" if kind == "float" else "INT8"
    other = constant("w", right, weights, () if kind == "float" else SCALE) if fixed else data("w", right, weights)
    rows, columns = left[-1 if adj[0] else -2], right[-2 if adj[1] else -1]
    tensors = [data("x", left, dtype), other, data("y", (*left[:-2], rows, columns), dtype)]
    op = O("BATCH_MATMUL", [0, 1], [2], options("BatchMatMulOptions", adjX=adj[0], adjY=adj[1]))
    return Sub(tensors, [op], [0] if fixed else [0, 1], [2])


def products() -> Iterator[tuple[str, Sub]]:
    for adj in ((False, False), (False, True), (True, False), (True, True)):
        left = (3, 24, 40) if adj[0] else (3, 40, 24)
        right = (3, 56, 24) if adj[1] else (3, 24, 56)
        for kind, fixed in (("float", False), ("float", True), ("int8", False), ("hybrid", True)):
            yield f"{kind}-{adj}-{fixed}", product(kind, adj, left, right, fixed=fixed)


def reduction(op: str, dtype: str, axes: Sequence[int], *, keep: bool) -> Sub:
    shape = (2, 9, 13, 40)
    made = [1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes]
    tensors = [data("x", shape, dtype), T("axes", (len(axes),), "INT32", int32s(*axes)), data("y", made, dtype)]
    return one(op, tensors, [0, 1], 2, options("ReducerOptions", keepDims=keep))


def reductions() -> Iterator[tuple[str, Sub]]:
    for op, dtypes in {
        "MEAN": ("FLOAT32", "INT8", "UINT8", "INT16", "INT32"),
        "SUM": ("FLOAT32", "INT8", "INT32", "INT64"),
        "REDUCE_PROD": ("FLOAT32", "INT32"),
        "REDUCE_MAX": ("FLOAT32", "INT8"),
        "REDUCE_MIN": ("FLOAT32", "INT32"),
        "REDUCE_ANY": ("BOOL",),
        "REDUCE_ALL": ("BOOL",),
    }.items():
        for dtype in dtypes:
            yield f"{op}-{dtype}", reduction(op, dtype, (1, 2), keep=True)
        yield f"{op}-last", reduction(op, dtypes[0], (3,), keep=False)


def volume(window: Sequence[int], stride: int) -> Sub:
    sizes = [-(-size // stride) for size in (6, 7, 8)]
    tensors = [
        data("x", (1, 6, 7, 8, 3)),
        constant("w", (*window, 3, 5)),
        constant("b", (5,)),
        data("y", (1, *sizes, 5)),
    ]
    how = {"strideD": stride, "strideH": stride, "strideW": stride}
    return one("CONV_3D", tensors, [0, 1, 2], 3, options("Conv3DOptions", padding=0, **how))


def transposed_volume() -> Sub:
    tensors = [
        data("x", (1, 3, 4, 5, 3)),
        constant("w", (2, 2, 2, 7, 3)),
        T("shape", (5,), "INT32", int32s(1, 6, 8, 10, 7)),
        data("y", (1, 6, 8, 10, 7)),
    ]
    how = {"strideD": 2, "strideH": 2, "strideW": 2}
    return one("CONV_3D_TRANSPOSE", tensors, [2, 1, 0], 3, options("Conv3DOptions", padding=0, **how))


def filtered(kind: str) -> Sub:
    """Return an SVDF of 2 x 20 numbers through 32 filters of rank 2 over 10 steps."""
    weights = "FLOAT32" if kind == "float" else "INT8"
    scales = () if kind == "float" else SCALE
    tensors = [
        data("x", (2, 20)),
        constant("features", (32, 20), weights, scales),
        constant("time", (32, 10), weights, scales),
        T("state", (2, 320), variable=True),
        data("y", (2, 16)),
    ]
    return one("SVDF", tensors, [0, 1, 2, -1, 3], 4, options("SVDFOptions", rank=2))


def recurrent(kind: str, *, sequence: bool) -> Sub:
    weights = "FLOAT32" if kind == "float" else "INT8"
    scales = () if kind == "float" else SCALE
    tensors = [
        data("x", (2, 5, 24) if sequence else (2, 24)),
        constant("w", (40, 24), weights, scales),
        constant("r", (40, 40), weights, scales),
        constant("b", (40,)),
        T("state", (2, 40), variable=True),
        data("y", (2, 5, 40) if sequence else (2, 40)),
    ]
    name = "UNIDIRECTIONAL_SEQUENCE_RNN" if sequence else "RNN"
    table = options("SequenceRNNOptions" if sequence else "RNNOptions", fusedActivationFunction=4)
    return one(name, tensors, [0, 1, 2, 3, 4], 5, table)


def memory(kind: str, *, coupled: bool) -> Sub:
    """Return a UNIDIRECTIONAL_SEQUENCE_LSTM of 24 inputs and 40 cells, with or without an input gate of its own."""
    weights = "FLOAT32" if kind == "float" else "INT8"
    scales = () if kind == "float" else SCALE
    tensors = [data("x", (2, 5, 24))]
    reads = [0]
    for position in range(1, 20):
        gate = position in {1, 5, 12}
        if position in {9, 10, 11, 16, 17} or (gate and coupled):
            reads.append(-1)
            continue
        reads.append(len(tensors))
        if position >= 18:
            tensors.append(T(f"s{position}", (2, 40), variable=True))
        elif position >= 12:
            tensors.append(constant(f"b{position}", (40,)))
        else:
            tensors.append(constant(f"w{position}", (40, 24 if position < 5 else 40), weights, scales))
    tensors.append(data("y", (2, 5, 40)))
    table = options("UnidirectionalSequenceLSTMOptions", fusedActivationFunction=4)
    return one("UNIDIRECTIONAL_SEQUENCE_LSTM", tensors, [*reads, -1, -1, -1, -1], len(tensors) - 1, table)


def stored_small() -> Sub:
    """Return a product by weights that the file stores in 16 bits."""
    tensors = [
        data("x", (4, 24)),
        T("w16", (56, 24), "FLOAT16", bytes(56 * 24 * 2)),
        data("w", (56, 24)),
        data("y", (4, 56)),
        data("z", (4, 56)),
    ]
    ops = [
        O("DEQUANTIZE", [1], [2]),
        O("FULLY_CONNECTED", [0, 2, -1], [3], options("FullyConnectedOptions")),
        O("NEG", [3], [4]),
    ]
    return Sub(tensors, ops, [0], [4])


CASES: dict[str, Sub] = {
    **{f"conv-{name}": sub for name, sub in convolutions()},
    **{f"depthwise-{kind}": depthwise(kind) for kind in ("float", "int8", "hybrid")},
    **{
        f"dense-{kind}-{rows}-{depth}-{units}": dense(kind, rows, depth, units)
        for kind in ("float", "int8", "hybrid", "hybrid4")
        for rows, depth, units in ((1, 64, 32), (5, 96, 30), (3, 24, 7))
    },
    **{f"transposed-{kind}": transposed(kind) for kind in ("float", "int8", "hybrid")},
    **{f"product-{name}": sub for name, sub in products()},
    **dict(reductions()),
    "volume": volume((3, 3, 3), 1),
    "volume-stride": volume((1, 1, 1), 2),
    "volume-point": volume((1, 1, 1), 1),
    "volume-transposed": transposed_volume(),
    "svdf-float": filtered("float"),
    "svdf-hybrid": filtered("hybrid"),
    **{
        f"rnn-{kind}-{sequence}": recurrent(kind, sequence=sequence)
        for kind in ("float", "hybrid")
        for sequence in (False, True)
    },
    **{
        f"lstm-{kind}-{coupled}": memory(kind, coupled=coupled)
        for kind in ("float", "hybrid")
        for coupled in (False, True)
    },
    "stored-small": stored_small(),
}


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_needs_what_is_predicted(name: str) -> None:
    predicted, measured = arenas(build(CASES[name]))
    assert abs(predicted - measured) < SLACK


def test_the_im2col_of_a_small_resnet_is_counted_to_the_byte() -> None:
    shape = (1, 32, 32, 16)
    tensors = [
        data("x", shape, "INT8"),
        constant("w", (16, 3, 3, 16), "INT8", SCALE),
        constant("b", (16,), "INT32", (0.25,)),
        data("y", shape, "INT8"),
    ]
    model = build(one("CONV_2D", tensors, [0, 1, 2], 3, options("Conv2DOptions", strideH=1, strideW=1)))
    assert arenas(model) == (2 * 16 * 32 * 32 + 3 * 3 * 16 * 32 * 32,) * 2


def test_budgets_and_verification_are_about_what_litert_takes() -> None:
    model = build(CASES["conv-int8-(3, 3)-(1, 1)-(1, 1)"])
    predicted, measured = arenas(model)
    found = memsched.optimize(model, target="litert-reference", budget=predicted, effort=3)
    assert found.budget_met
    assert not memsched.optimize(
        model, target="litert-reference", budget=predicted - 1, verify=False, effort=3
    ).budget_met
    verification = found.report["sections"]["verification"]
    assert verification["predicted_peak_before_bytes"] == verification["predicted_peak_after_bytes"] == predicted
    assert verification["measured_peak_before_bytes"] == measured
    notes = " ".join(verification["notes"])
    assert "without delegates" in notes
    # With delegates it is the arena that was measured; of a file that is written, the whole process is, too.
    assert "default delegates" in verification["default_session"]
    assert "own arena" in verification["default_session"]
    assert verification["default_peak_after_bytes"] is not None
    # Another target's figures are not LiteRT's.
    other = memsched.optimize(model, target="ideal", effort=3).report["sections"]["verification"]
    assert other["predicted_peak_after_bytes"] is None


def test_pieces_of_a_convolution_are_predicted_as_well() -> None:
    """Each piece has an im2col of its own rows."""
    tensors = [data("x", (1, 48, 48, 3), "INT8")]
    ops = []
    for layer, (depth, filters) in enumerate(((3, 16), (16, 16), (16, 4))):
        place = len(tensors)
        tensors += [
            constant(f"w{layer}", (filters, 3, 3, depth), "INT8", SCALE),
            constant(f"b{layer}", (filters,), "INT32", (0.25,)),
            data(f"y{layer}", (1, 48, 48, filters), "INT8"),
        ]
        table = options("Conv2DOptions", strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)
        ops.append(O("CONV_2D", [place - 1 if layer else 0, place, place + 1], [place + 2], table))
    given = build(Sub(tensors, ops, [0], [len(tensors) - 1]))
    cut = memsched.optimize(given, target="litert-reference", level=2, verify=False, max_extra_macs=30.0, effort=3)
    predicted, measured = arenas(cut.model)
    assert abs(predicted - measured) < SLACK
    # Whole, one layer's im2col alone takes 3 x 3 x 16 x 48 x 48 bytes.
    assert predicted < 3 * 3 * 16 * 48 * 48 < arenas(given)[1]


def test_what_follows_a_shape_that_is_computed_is_planned_later() -> None:
    """LiteRT lays what is behind a RESHAPE to a computed shape around what is placed by then."""
    tensors = [
        data("x", (1, 1000)),
        data("small", (1, 1000)),
        T("size", (2,), "INT32"),
        data("flat", (500, 2)),
        T("multiples", (2,), "INT32", int32s(1, 4)),
        data("wide", (500, 8)),
        T("axis", (1,), "INT32", int32s(1)),
        data("y", (500,)),
        T("zero", (2,), "INT32", int32s(0, 0)),
    ]
    ops = [
        O("NEG", [0], [1]),
        O("ADD", [9, 8], [2], options("AddOptions")),
        O("RESHAPE", [1, 2], [3], options("ReshapeOptions")),
        O("TILE", [3, 4], [5]),
        O("SUM", [5, 6], [7], options("ReducerOptions", keepDims=False)),
    ]
    tensors.append(T("asked", (2,), "INT32"))
    model = build(Sub(tensors, ops, [0, 9], [7]))
    predicted = memsched.analyze(model, target="litert-reference", budget=0).report["budget"]["required_bytes"]
    interpreter, operators = session._load(model, "plain")
    interpreter.set_tensor(9, np.array([500, 2], np.int32))
    interpreter.invoke()
    measured = probe(interpreter, operators).arena_bytes
    assert measured is not None
    assert abs(predicted - measured) < SLACK
    # Planned at once, the larger tensor would come first, and the smaller one would leave no gap behind.
    assert predicted > 4 * (1000 + 1000 + 4000)
