"""Cases of every TFLite operator that has a rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from memsched.ops import values
from tests.tools.cuts.case import Case, Operand

__all__ = ["cases"]

TYPES = ("float32", "int8", "uint8", "int16", "int32", "int64", "bool")
QUANTIZED = ("int8", "uint8", "int16")
SHAPES: tuple[tuple[int, ...], ...] = ((2, 3, 5, 7), (1, 13, 9, 16), (1, 6, 11, 21), (19, 130))
_SCALE = {"int8": 0.05, "uint8": 0.05, "int16": 0.001}
_FIXED = {
    "LOGISTIC": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
    "TANH": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)},
    "SOFTMAX": {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)},
    "LOG_SOFTMAX": {"int8": (16 / 256, 127), "uint8": (16 / 256, 255)},
    "L2_NORMALIZATION": {"int8": (1 / 128, 0), "uint8": (1 / 128, 128)},
}
_TRUTHS = ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")
_TABLES = {
    "ADD": "AddOptions", "SUB": "SubOptions", "MUL": "MulOptions", "DIV": "DivOptions", "POW": "PowOptions",
    "MAXIMUM": "MaximumMinimumOptions", "MINIMUM": "MaximumMinimumOptions", "SQUARED_DIFFERENCE":
    "SquaredDifferenceOptions", "LEAKY_RELU": "LeakyReluOptions", "GELU": "GeluOptions", "FAKE_QUANT":
    "FakeQuantOptions", "CAST": "CastOptions", "SOFTMAX": "SoftmaxOptions", "LOG_SOFTMAX": "LogSoftmaxOptions",
    "L2_NORMALIZATION": "L2NormOptions",
}  # fmt: skip


def cases() -> Iterator[Case]:
    """Yield all of them."""
    yield from _elementwise()
    yield from _unary()
    yield from _reductions()
    yield from _products()
    yield from _windows()
    yield from _moved()


def shapes(dtype: str) -> Sequence[tuple[int, ...]]:
    """Return shapes for a type; in whole numbers nothing is rounded by the lane that it lies in."""
    return SHAPES if dtype == "float32" else SHAPES[1::2]


def tensor(
    shape: Sequence[int], dtype: str, scale: float | None = None, zero: int | None = None, **more: Any
) -> Operand:
    """Return an activation; of 8 and 16 bits it is quantised."""
    if dtype not in QUANTIZED:
        return Operand(tuple(shape), dtype, **more)
    zero = {"int8": 3, "uint8": 120, "int16": 0}[dtype] if zero is None else zero
    return Operand(tuple(shape), dtype, scales=(_SCALE[dtype] if scale is None else scale,), zero_point=zero, **more)


def weights(*shape: int, dtype: str, axis: int | None = None, seed: int = 0) -> Operand:
    """Return a constant; an ``axis`` has a scale per index."""
    rng = np.random.default_rng([*shape, seed])
    if dtype == "float32":
        return Operand(shape, dtype, (rng.standard_normal(shape) / 2).astype(np.float32))
    low, high = (-127, 127) if dtype == "int8" else (0, 255) if dtype == "uint8" else (-1000, 1000)
    value = rng.integers(low, high, shape).astype(dtype)
    count = 1 if axis is None else shape[axis]
    scales = tuple(float(one) for one in np.linspace(0.004, 0.02, count))
    zero = 128 if dtype == "uint8" else 0
    return Operand(shape, dtype, value, scales=scales, axis=axis or 0, zero_point=zero)


def ints(*numbers: Any) -> Operand:
    array = np.array(numbers, np.int32)
    return Operand(array.shape, "int32", array)


def _limits(kind: str, dtype: str) -> dict[str, Any]:
    whole = dtype in {"int32", "int64", "int16", "int8", "uint8"}
    if kind in {"FLOOR_DIV", "FLOOR_MOD", "DIV"} and whole:
        return {"low": 121 if dtype == "uint8" else 4, "high": 127}  # above the zero point
    if kind == "RIGHT_SHIFT":
        return {"low": 0, "high": 7}
    if kind == "POW" and whole:
        return {"low": 0, "high": 3}
    return {}


def _elementwise() -> Iterator[Case]:
    for kind in (one for one in values._ELEMENTWISE if one.isupper()):
        for dtype in TYPES:
            for shape in shapes(dtype):
                first = tensor(shape, dtype)
                made = Operand(shape, "bool") if kind in _TRUTHS else tensor(shape, dtype)
                scale = 0.08 if dtype != "int16" else 0.001
                if made.scales and kind not in {"MAXIMUM", "MINIMUM", "SELECT_V2"}:
                    made = replace(made, scales=(scale,))
                table = _TABLES.get(kind, "")
                limits = _limits(kind, dtype)
                if kind == "SELECT_V2":
                    yield Case(kind, (Operand(shape, "bool"), first, first), {}, made)
                    continue
                if kind == "PRELU":
                    yield Case(kind, (first, weights(*(1 for _ in shape[:-1]), shape[-1], dtype=dtype)), {}, made)
                    continue
                yield Case(kind, (first, tensor(shape, dtype, **limits)), {}, made, table)
                if kind in {"ATAN2", "ADD_N"}:
                    continue
                yield Case(
                    kind, (first, tensor((1,) * (len(shape) - 1) + shape[-1:], dtype, **limits)), {}, made, table
                )
    for dtype in TYPES:
        for shape in shapes(dtype):
            first = tensor(shape, dtype)
            yield Case("SELECT", (Operand(shape, "bool"), first, first), {}, first)


def _unary() -> Iterator[Case]:
    for kind in (one for one in values._UNARY if one.isupper()):
        for dtype in TYPES:
            for shape in shapes(dtype):
                first = tensor(shape, dtype)
                if kind in {"DEQUANTIZE", "QUANTIZE", "CAST"}:
                    yield from _converted(kind, first)
                    continue
                made = tensor(shape, dtype, *_FIXED.get(kind, {}).get(dtype, ()))
                stated = {"alpha": 0.1} if kind == "LEAKY_RELU" else {}
                if kind == "FAKE_QUANT":
                    stated = {"min": -6.0, "max": 6.0, "numBits": 8}
                yield Case(kind, (first,), stated, made, _TABLES.get(kind, ""))
    for kind in ("SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION"):
        for dtype in TYPES:
            for shape in shapes(dtype):
                made = tensor(shape, dtype, *_FIXED.get(kind, {}).get(dtype, ()))
                yield Case(
                    kind, (tensor(shape, dtype),), {"beta": 1.0} if kind == "SOFTMAX" else {}, made, _TABLES[kind]
                )


def _converted(kind: str, first: Operand) -> Iterator[Case]:
    if kind == "DEQUANTIZE":
        yield Case(kind, (first,), {}, Operand(first.shape))
        return
    for dtype in TYPES:
        made = tensor(first.shape, dtype, 0.07 if dtype != "int16" else 0.002, None)
        if kind == "QUANTIZE":
            yield Case(kind, (first,), {}, made)
        elif first.dtype != "float32" or dtype == "bool":
            yield Case(kind, (replace(first, scales=()),), {}, replace(made, scales=()), "")
        else:
            yield Case(kind, (replace(first, low=-100, high=100),), {}, replace(made, scales=()), "")


_REDUCED: Sequence[tuple[tuple[int, ...], tuple[int, ...]]] = (
    ((2, 9, 7, 6), (1, 2)), ((1, 9, 7, 16), (3,)), ((3, 8, 16, 21), (1, 2)), ((1, 8, 16, 5), (2, 3)), ((5, 37), (1,)),
    ((37, 21), (0,)), ((4, 5, 48), (2,)), ((3, 33, 20), (1,)), ((2, 3, 5, 33), (0, 2)),
)  # fmt: skip


def _reductions() -> Iterator[Case]:
    for kind in values._TFLITE_REDUCTIONS:
        for dtype in TYPES:
            for shape, axes in _REDUCED:
                made = tuple(1 if place in axes else size for place, size in enumerate(shape))
                for scale in (None, 0.03):
                    same = tensor(made, dtype, scale if dtype != "int16" else None)
                    yield Case(kind, (tensor(shape, dtype), ints(*axes)), {"keepDims": True}, same, "ReducerOptions")
    for kind in ("ARG_MAX", "ARG_MIN"):
        for dtype in TYPES:
            for shape, axes in _REDUCED:
                made = tuple(size for place, size in enumerate(shape) if place != axes[-1])
                table = "ArgMaxOptions" if kind == "ARG_MAX" else "ArgMinOptions"
                axis = ints(axes[-1])
                yield Case(kind, (tensor(shape, dtype), axis), {"outputType": 2}, Operand(made, "int32"), table)


def _products() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16"):
        held = "int8" if dtype == "int16" else dtype
        for m, k, n in ((5, 7, 3), (33, 40, 17), (24, 300, 18), (16, 16, 16)):
            made = tensor((m, n), dtype, None if dtype == "float32" else 0.5 if dtype != "int16" else 0.01)
            for axis in (None, 0):
                bias = _bias(n, dtype)
                yield Case(
                    "FULLY_CONNECTED", (tensor((m, k), dtype), weights(n, k, dtype=held, axis=axis), bias),
                    {"keepNumDims": True}, made, "FullyConnectedOptions",
                )  # fmt: skip
                if axis is None:
                    given = Operand((n, k), held, scales=(0.01,) if held != "float32" else ())
                    yield Case(
                        "FULLY_CONNECTED", (tensor((m, k), dtype), given, None), {"keepNumDims": True}, made,
                        "FullyConnectedOptions",
                    )  # fmt: skip
                    three = replace(made, shape=(2, m, n))
                    yield Case(
                        "FULLY_CONNECTED", (tensor((2, m, k), dtype), weights(n, k, dtype=held, axis=axis), bias),
                        {"keepNumDims": True}, three, "FullyConnectedOptions",
                    )  # fmt: skip
            for batch in ((), (2, 3)):
                out = replace(made, shape=(*batch, m, n))
                left, right = tensor((*batch, m, k), dtype), tensor((*batch, k, n), dtype)
                yield Case("BATCH_MATMUL", (left, right), {}, out, "BatchMatMulOptions")
                turned = tensor((*batch, n, k), dtype)
                yield Case("BATCH_MATMUL", (left, turned), {"adjY": True}, out, "BatchMatMulOptions")


def _bias(n: int, dtype: str) -> Operand:
    if dtype == "float32":
        return weights(n, dtype="float32")
    wide = "int64" if dtype == "int16" else "int32"
    return Operand((n,), wide, np.random.default_rng(n).integers(-500, 500, n).astype(wide), scales=(0.001,))


_CONVOLUTIONS: Sequence[tuple[tuple[int, ...], int, tuple[int, int], tuple[int, int], tuple[int, int]]] = (
    ((2, 15, 11, 3), 8, (3, 3), (2, 2), (1, 1)),
    ((2, 15, 11, 1), 6, (3, 3), (1, 1), (1, 1)),
    ((1, 14, 14, 16), 32, (1, 1), (1, 1), (1, 1)),
    ((1, 13, 9, 32), 24, (3, 3), (1, 1), (1, 1)),
    ((1, 20, 17, 5), 7, (3, 5), (1, 1), (1, 2)),
    ((1, 24, 10, 8), 8, (3, 3), (2, 2), (1, 1)),
    ((1, 6, 5, 16), 4, (3, 3), (1, 1), (1, 1)),
    ((1, 28, 28, 48), 64, (3, 3), (1, 1), (1, 1)),
)  # fmt: skip


def _windows() -> Iterator[Case]:
    for dtype in ("float32", "int8", "uint8", "int16"):
        for found in _CONVOLUTIONS if dtype == "float32" else _CONVOLUTIONS[:-1]:
            for padding in (0, 1):
                yield from _convolutions(dtype, padding, *found)
                shape, _, kernel, strides, _ = found
                stated = {"padding": padding, "strideH": strides[0], "strideW": strides[1], "filterHeight": kernel[0]}
                made = _lengths(shape, kernel, strides, (1, 1), padding)
                for kind in ("MAX_POOL_2D", "AVERAGE_POOL_2D", "L2_POOL_2D"):
                    out = tensor((shape[0], *made, shape[3]), dtype)
                    yield Case(
                        kind, (tensor(shape, dtype),), {**stated, "filterWidth": kernel[1]}, out, "Pool2DOptions"
                    )


def _lengths(
    shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], padding: int
) -> list[int]:
    found = []
    for place in range(2):
        length, reach = shape[place + 1], (kernel[place] - 1) * dilations[place] + 1
        found.append(-(-length // strides[place]) if padding == 0 else (length - reach) // strides[place] + 1)
    return found


def _convolutions(
    dtype: str,
    padding: int,
    shape: tuple[int, ...],
    outputs: int,
    kernel: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
) -> Iterator[Case]:
    held = "int8" if dtype == "int16" else dtype
    channels, big = shape[3], {"int8": 0.3, "uint8": 0.3, "int16": 0.01}.get(dtype)
    made = _lengths(shape, kernel, strides, dilations, padding)
    plain = {"padding": padding, "strideH": strides[0], "strideW": strides[1]}
    stated = {**plain, "dilationHFactor": dilations[0], "dilationWFactor": dilations[1]}
    x = tensor(shape, dtype)
    for axis in (None,) if dtype in {"float32", "uint8"} else (None, 0):
        held_by = weights(outputs, *kernel, channels, dtype=held, axis=axis)
        for activation in (0, 3) if dtype == "float32" else (0,):
            yield Case(
                "CONV_2D", (x, held_by, _bias(outputs, dtype)), {**stated, "fusedActivationFunction": activation},
                tensor((shape[0], *made, outputs), dtype, big), "Conv2DOptions",
            )  # fmt: skip
        full = [length * stride if padding == 0 else (length - 1) * stride + size
                for length, stride, size in zip(shape[1:3], strides, kernel, strict=True)]  # fmt: skip
        out = (shape[0], *full, outputs)
        yield Case("TRANSPOSE_CONV", (ints(*out), held_by, x), plain, tensor(out, dtype, big), "TransposeConvOptions")
        yield Case(
            "TRANSPOSE_CONV", (ints(*out), held_by, x, _bias(outputs, dtype)), plain, tensor(out, dtype, big),
            "TransposeConvOptions",
        )  # fmt: skip
    for multiplier in (1, 2) if channels > 1 else (3, 16, 32):
        for axis in (None,) if dtype in {"float32", "uint8"} else (None, 3):
            depthwise = weights(1, *kernel, channels * multiplier, dtype=held, axis=axis)
            yield Case(
                "DEPTHWISE_CONV_2D", (x, depthwise, _bias(channels * multiplier, dtype)),
                {**stated, "depthMultiplier": multiplier}, tensor((shape[0], *made, channels * multiplier), dtype, big),
                "DepthwiseConv2DOptions",
            )  # fmt: skip


def _moved() -> Iterator[Case]:
    for dtype in TYPES:

        def t(*shape: int) -> Operand:
            return tensor(shape, dtype)  # noqa: B023

        x = t(2, 4, 6, 8)
        yield Case("CONCATENATION", (x, t(2, 3, 6, 8), x), {"axis": 1}, t(2, 11, 6, 8), "ConcatenationOptions")
        yield Case("CONCATENATION", (x, t(2, 4, 6, 5)), {"axis": 3}, t(2, 4, 6, 13), "ConcatenationOptions")
        yield Case("TRANSPOSE", (x, ints(0, 3, 1, 2)), {}, t(2, 8, 4, 6), "TransposeOptions")
        yield Case("TRANSPOSE", (x, ints(2, 1, 0, 3)), {}, t(6, 4, 2, 8), "TransposeOptions")
        yield Case("RESHAPE", (x, ints(2, 24, 8)), {"newShape": [2, 24, 8]}, t(2, 24, 8), "ReshapeOptions")
        yield Case("SQUEEZE", (t(2, 1, 6),), {"squeezeDims": [1]}, t(2, 6), "SqueezeOptions")
        yield Case("EXPAND_DIMS", (x, ints(1)), {}, t(2, 1, 4, 6, 8), "ExpandDimsOptions")
        yield Case("BROADCAST_TO", (t(1, 4, 1, 8), ints(2, 4, 6, 8)), {}, x, "BroadcastToOptions")
        yield Case("TILE", (x, ints(1, 2, 1, 1)), {}, t(2, 8, 6, 8), "TileOptions")
        yield Case("DEPTH_TO_SPACE", (x,), {"blockSize": 2}, t(2, 8, 12, 2), "DepthToSpaceOptions")
        yield Case("SPACE_TO_DEPTH", (x,), {"blockSize": 2}, t(2, 2, 3, 32), "SpaceToDepthOptions")
        pads = ints([0, 0], [1, 2], [2, 1], [0, 3])
        yield Case("PAD", (x, pads), {}, t(2, 7, 9, 11), "PadOptions")
        filler = Operand((1,), dtype, np.array([1], dtype), scales=x.scales, zero_point=x.zero_point)
        yield Case("PADV2", (x, pads, filler), {}, t(2, 7, 9, 11), "PadV2Options")
        for mode in (0, 1):
            yield Case("MIRROR_PAD", (x, pads), {"mode": mode}, t(2, 7, 9, 11), "MirrorPadOptions")
        yield Case("SLICE", (x, ints(0, 1, 2, 3), ints(2, 3, 3, 4)), {}, t(2, 3, 3, 4), "SliceOptions")
        steps = (ints(0, 1, 0, 7), ints(2, 4, 6, 0), ints(1, 1, 2, -2))
        yield Case("STRIDED_SLICE", (x, *steps), {}, t(2, 3, 3, 4), "StridedSliceOptions")
        yield Case("GATHER", (x, ints(3, 0, 1, 2, 2)), {"axis": 1}, t(2, 5, 6, 8), "GatherOptions")
        numbers = Operand((3, 5), "int32", low=0, high=7)
        yield Case("GATHER", (x, numbers), {"axis": 3}, t(2, 4, 6, 3, 5), "GatherOptions")
        yield Case("GATHER_ND", (x, ints([0, 1], [1, 3], [1, 0])), {}, t(3, 6, 8), "GatherNdOptions")
        for half in (False, True):
            for shape in ((2, 6, 9, 3), (1, 7, 5, 16)):
                made = t(shape[0], shape[1] * 2, shape[2] * 2, shape[3])
                size = ints(*made.shape[1:3])
                for kind, table in (
                    ("RESIZE_BILINEAR", "ResizeBilinearOptions"),
                    ("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
                ):
                    yield Case(kind, (t(*shape), size), {"halfPixelCenters": half}, made, table)
