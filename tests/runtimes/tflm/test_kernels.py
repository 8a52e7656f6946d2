"""Scratch buffers of TFLM's reference kernels: heads of arenas measured in a TFLM build of October 2026 (64 bit)."""

from __future__ import annotations

import math

import pytest
from flatbuffers import flexbuffers

from memsched.formats.tflite.model import FileModel, parse
from memsched.runtimes.tflm.kernels import scratch_requests
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options, pack, unpack

SIZES = {"INT8": 1, "BOOL": 1, "INT16": 2, "INT32": 4, "FLOAT32": 4}


def padded(size: int) -> int:
    return -(-size // 16) * 16


def head(model: FileModel) -> int:
    """All tensors of one operator live at once, its scratch buffers with them: every size rounded up."""
    tensors = model.subgraphs[0].tensors
    planned = [tensor for tensor in tensors if not tensor.has_data and not tensor.variable]
    sizes = [math.prod(tensor.shape) * SIZES[tensor.dtype.upper()] for tensor in planned]
    return sum(map(padded, (*sizes, *scratch_requests(model, 0, 0))))


def reduction(kind: str, dtype: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> Sub:
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    tensors = [T("x", shape, dtype), T("axes", (len(axes),), "INT32", int32s(*axes)), T("y", kept, dtype)]
    return Sub(tensors, [O(kind, [0, 1], [2], options("ReducerOptions"))], [0], [2])


@pytest.mark.parametrize(
    ("kind", "dtype", "measured"),
    [
        ("MEAN", "INT8", 464),
        ("SUM", "INT8", 464),
        ("MEAN", "INT16", 848),
        ("SUM", "FLOAT32", 1600),
        ("MEAN", "INT32", 1600),
        ("REDUCE_MAX", "INT8", 432),
        ("REDUCE_MIN", "INT16", 816),
        ("REDUCE_MAX", "FLOAT32", 1600),
        ("REDUCE_ALL", "BOOL", 432),
    ],
)
def test_reductions_ask_for_indices_axes_and_sums(kind: str, dtype: str, measured: int) -> None:
    assert head(parse(build(reduction(kind, dtype, (1, 8, 8, 6), (1, 2))))) == measured


def test_a_reduction_over_many_axes_asks_for_more() -> None:
    assert head(parse(build(reduction("MEAN", "INT8", (1, 2, 2, 2, 2), (0, 1, 2, 3, 4))))) == 112
    assert head(parse(build(reduction("MEAN", "FLOAT32", (1, 2, 2, 2, 2), (4,))))) == 144


@pytest.mark.parametrize(("dtype", "measured"), [("INT8", 336), ("FLOAT32", 1008)])
def test_add_n_asks_for_pointers_to_its_inputs(dtype: str, measured: int) -> None:
    tensors = [*(T(f"x{i}", (1, 40), dtype) for i in range(5)), T("y", (1, 40), dtype)]
    sub = Sub(tensors, [O("ADD_N", range(5), [5], options("AddNOptions"))], range(5), [5])
    assert head(parse(build(sub))) == measured


@pytest.mark.parametrize(
    ("dtype", "bias", "requested", "measured"),
    [("INT8", "INT32", (1024,), 1328), ("INT16", "INT16", (2048, 32), 2688), ("FLOAT32", "FLOAT32", (), 1216)],
)
def test_transposed_convolutions_ask_for_accumulators(
    dtype: str, bias: str, requested: tuple[int, ...], measured: int
) -> None:
    tensors = [
        T("shape", (4,), "INT32", int32s(1, 8, 8, 4)),
        T("weights", (4, 2, 2, 3), "INT8", bytes(48)),
        T("x", (1, 4, 4, 3), dtype),
        T("bias", (4,), bias, bytes(4 * SIZES[bias])),
        T("y", (1, 8, 8, 4), dtype),
    ]
    window = options("TransposeConvOptions", strideH=2, strideW=2)
    model = parse(build(Sub(tensors, [O("TRANSPOSE_CONV", [0, 1, 2, 3], [4], window)], [2], [4])))
    assert scratch_requests(model, 0, 0) == requested
    assert head(model) == measured


@pytest.mark.parametrize(
    ("kind", "x", "weights", "y", "measured"),
    [
        ("CONV_2D", (1, 4, 4, 3), (8, 3, 3, 3), (1, 4, 4, 8), 400),
        ("DEPTHWISE_CONV_2D", (1, 4, 4, 8), (1, 3, 3, 8), (1, 4, 4, 8), 336),
        ("FULLY_CONNECTED", (1, 32), (8, 32), (1, 8), 304),
    ],
)
def test_weights_of_4_bits_are_unpacked(
    kind: str, x: tuple[int, ...], weights: tuple[int, ...], y: tuple[int, ...], measured: int
) -> None:
    for dtype, bits in (("INT4", 4), ("INT8", 8)):
        data = bytes(math.prod(weights) * bits // 8)
        tensors = [T("x", x, "INT8"), T("w", weights, dtype, data), T("b", (8,), "INT32", bytes(32)), T("y", y, "INT8")]
        model = parse(build(Sub(tensors, [O(kind, [0, 1, 2], [3])], [0], [3])))
        if bits == 4:
            assert head(model) == measured
        else:
            assert scratch_requests(model, 0, 0) == ()


@pytest.mark.parametrize(
    ("dtype", "state", "requested", "measured"),
    [("INT8", "INT16", (64, 32), 144), ("FLOAT32", "FLOAT32", (64,), 176)],
)
def test_svdf_asks_for_filters_and_units(dtype: str, state: str, requested: tuple[int, ...], measured: int) -> None:
    tensors = [
        T("x", (2, 10), dtype),
        T("features", (8, 10), dtype, bytes(80 * SIZES[dtype])),
        T("time", (8, 5), state, bytes(40 * SIZES[state])),
        T("bias", (4,), "INT32", bytes(16)),
        T("state", (2, 40), state, variable=True),
        T("y", (2, 4), dtype),
    ]
    model = parse(build(Sub(tensors, [O("SVDF", range(5), [5], options("SVDFOptions", rank=2))], [0], [5])))
    assert scratch_requests(model, 0, 0) == requested
    assert head(model) == measured


@pytest.mark.parametrize(("dtype", "cell", "measured"), [("INT8", "INT16", 224), ("FLOAT32", "FLOAT32", 560)])
def test_an_lstm_asks_for_its_gates(dtype: str, cell: str, measured: int) -> None:
    weights = [T(f"i{gate}", (6, 3), dtype, bytes(18 * SIZES[dtype])) for gate in range(4)]
    weights += [T(f"r{gate}", (6, 6), dtype, bytes(36 * SIZES[dtype])) for gate in range(4)]
    biases = [T(f"b{gate}", (6,), "INT32", bytes(24)) for gate in range(4)]
    states = [T("hidden", (2, 6), dtype, variable=True), T("cell", (2, 6), cell, variable=True)]
    tensors = [T("x", (2, 5, 3), dtype), *weights, *biases, *states, T("y", (2, 5, 6), dtype)]
    read = [*range(9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14, -1, -1, -1, -1]
    kind = "UNIDIRECTIONAL_SEQUENCE_LSTM"
    model = parse(build(Sub(tensors, [O(kind, read, [15], options("UnidirectionalSequenceLSTMOptions"))], [0], [15])))
    assert head(model) == measured


def detection(custom: bytes | None) -> FileModel:
    made = [T("boxes", (1, 10, 4)), T("classes", (1, 10)), T("scores", (1, 10)), T("count", (1,))]
    tensors = [T("b", (1, 50, 4)), T("s", (1, 50, 91)), T("anchors", (50, 4), data=bytes(800)), *made]
    op = O("CUSTOM:TFLite_Detection_PostProcess", [0, 1, 2], [3, 4, 5, 6])
    model = unpack(build(Sub(tensors, [op], [0, 1], [3, 4, 5, 6])))
    model.subgraphs[0].operators[0].customOptions = None if custom is None else list(custom)
    return parse(pack(model))


def test_detection_asks_by_its_options() -> None:
    given = {"max_detections": 10, "num_classes": 90, "y_scale": 10.0, "use_regular_nms": False}
    assert head(detection(flexbuffers.Dumps(given))) == 64976


def test_damaged_options_are_none() -> None:
    sound = flexbuffers.Dumps({"max_detections": 10, "num_classes": 90, "y_scale": 10.0})
    for end in range(len(sound)):
        scratch_requests(detection(sound[:end]), 0, 0)
    for place in range(len(sound)):
        damaged = bytearray(sound)
        damaged[place] ^= 0xFF
        assert len(scratch_requests(detection(bytes(damaged)), 0, 0)) == 11
    assert scratch_requests(detection(None), 0, 0)[5] == 0


def test_most_kernels_ask_for_nothing() -> None:
    model = parse(build(Sub([T("x"), T("y")], [O("EXP", [0], [1])], [0], [1])))
    assert scratch_requests(model, 0, 0) == ()
    assert scratch_requests(parse(build(Sub([T("y")], [O("TRANSPOSE_CONV", [], [])], [], []))), 0, 0) == ()
