"""Cases of every ONNX operator that has a rule."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from memsched.ops import values
from tests.tools.cuts.case import Case, Operand

__all__ = ["cases"]

FLOATS = ("float32", "float16", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
TYPES = (*FLOATS, *INTEGERS, "bool")
SHAPES: tuple[tuple[int, ...], ...] = ((2, 3, 5, 7), (1, 6, 33, 17), (1, 16, 8, 16), (19, 130))
_OPSETS = {"Swish": 24, "RMSNormalization": 23, "Upsample": 9}


def cases() -> Iterator[Case]:
    """Yield all of them."""
    yield from _elementwise()
    yield from _unary()
    yield from _reductions()
    yield from _normalizations()
    yield from _products()
    yield from _windows()
    yield from _quantized()
    yield from _moved()


def _weights(*shape: int, dtype: str = "float32", seed: int = 0) -> Operand:
    rng = np.random.default_rng([*shape, seed])
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        value: Any = rng.integers(max(info.min, -100), min(info.max, 200), shape).astype(dtype)
    else:
        value = (rng.standard_normal(shape) / 2).astype(dtype)
    return Operand(shape, dtype, value)


def constant(value: Any, dtype: str) -> Operand:
    """Return an operand that is stated."""
    array = np.array(value, dtype)
    return Operand(array.shape, dtype, array)


def _limits(kind: str, dtype: str) -> dict[str, Any]:
    """Return within what the second operand lies: a division by 0 ends the process."""
    whole = np.dtype(dtype).kind in "iu"
    if kind in {"Div", "Mod"} and whole:
        return {"low": 1, "high": 100}
    if kind == "BitShift":
        return {"low": 0, "high": 7}
    if kind == "Pow" and whole:
        return {"low": 0, "high": 3}
    return {}


def _elementwise() -> Iterator[Case]:
    kinds = [kind for kind in values._ELEMENTWISE if not kind.isupper()]
    for kind in kinds:
        for dtype in TYPES:
            for shape in SHAPES:
                first, limits = Operand(shape, dtype), _limits(kind, dtype)
                if kind == "Mod" and np.dtype(dtype).kind in "iu":
                    first = Operand(shape, dtype, low=0)
                attributes: dict[str, Any] = {"direction": "RIGHT"} if kind == "BitShift" else {}
                if kind == "Mod":
                    attributes = {"fmod": int(dtype in FLOATS)}
                if kind == "Where":
                    condition = Operand(shape, "bool")
                    yield Case(kind, (condition, first, Operand(shape, dtype)))
                    wide = Operand((*(1 for _ in shape[:-1]), shape[-1]), "bool")
                    yield Case(kind, (wide, first, Operand((), dtype)))
                    yield Case(kind, (condition, first, constant(0, dtype)))
                    continue
                yield Case(kind, (first, Operand(shape, dtype, **limits)), attributes)
                vector = (*shape[-3:-2], *(1 for _ in shape[-2:])) if len(shape) > 2 else shape[-1:]
                other = Operand(vector, dtype, **limits)
                yield Case(kind, (first, other), attributes)


def _unary() -> Iterator[Case]:
    for kind in values._UNARY:
        if kind.isupper():
            continue
        for dtype in TYPES:
            for shape in SHAPES:
                if kind == "Cast":
                    for to in (1, 6, 10, 3):
                        yield Case(kind, (_castable(shape, dtype, to),), {"to": to})
                elif kind == "Clip":
                    low, high = (constant(one, dtype) for one in (-1 if np.dtype(dtype).kind != "u" else 1, 2))
                    yield Case(kind, (Operand(shape, dtype), low, high))
                else:
                    yield Case(kind, (Operand(shape, dtype),), opset=_OPSETS.get(kind, 21))
    for shape in SHAPES:
        yield Case("Dropout", (Operand(shape),), {}, opset=11)


def _castable(shape: tuple[int, ...], dtype: str, to: int) -> Operand:
    """Floats outside of an integer type have no defined value."""
    limit = {6: 1e6, 3: 100.0}.get(to)
    return (
        Operand(shape, dtype, low=limit and -limit, high=limit) if dtype in FLOATS and limit else Operand(shape, dtype)
    )


_REDUCED: Sequence[tuple[tuple[int, ...], tuple[int, ...]]] = (
    ((2, 6, 9, 7), (2, 3)), ((2, 6, 9, 7), (1,)), ((3, 8, 16, 16), (2, 3)), ((3, 8, 16, 16), (1, 2)), ((5, 37), (1,)),
    ((37, 21), (0,)), ((4, 5, 48), (2,)), ((3, 33, 20), (1,)), ((2, 3, 5, 33), (0, 2)), ((7, 64), (1,)),
)  # fmt: skip


def _reductions() -> Iterator[Case]:
    for kind in values._REDUCTIONS:
        for dtype in TYPES:
            for shape, axes in _REDUCED:
                yield Case(kind, (Operand(shape, dtype), constant(axes, "int64")), {"keepdims": 1}, opset=20)
    for kind in ("ArgMax", "ArgMin"):
        for dtype in TYPES:
            for shape, axes in _REDUCED:
                for last in (0, 1):
                    stated = {"axis": axes[-1], "keepdims": 1, "select_last_index": last}
                    yield Case(kind, (Operand(shape, dtype),), stated)


def _normalizations() -> Iterator[Case]:
    for dtype in FLOATS:
        for shape in ((2, 6, 9, 7), (1, 8, 33, 16), (3, 5, 64), (2, 5, 200)):
            x, channels = Operand(shape, dtype), shape[1]
            vectors = [_weights(channels, dtype=dtype, seed=one) for one in range(3)]
            positive = constant(np.abs(np.asarray(vectors[2].value)) + 0.5, dtype)
            yield Case("BatchNormalization", (x, *vectors, positive))
            for axis in (-1, 1):
                yield Case("Softmax", (x,), {"axis": axis})
                yield Case("LogSoftmax", (x,), {"axis": axis})
                yield Case("LpNormalization", (x,), {"axis": axis})
                yield Case("LpNormalization", (x,), {"axis": axis, "p": 1})
                whole = [_weights(*shape[axis:], dtype=dtype, seed=one) for one in range(2)]
                yield Case("LayerNormalization", (x, *whole), {"axis": axis})
                yield Case("RMSNormalization", (x, whole[0]), {"axis": axis}, opset=23)
                yield Case("SimplifiedLayerNormalization", (x, whole[0]), {"axis": axis})
            yield Case("Softmax", (x,), {"axis": 1}, opset=11)
            yield Case("InstanceNormalization", (x, *vectors[:2]))
            if len(shape) == 4:
                yield Case("LRN", (x,), {"size": 3})
                yield Case("GroupNormalization", (x, *vectors[:2]), {"num_groups": 2})


def _products() -> Iterator[Case]:
    for dtype in (*FLOATS, "int32", "uint32", "int64", "uint64"):
        for m, k, n in ((5, 7, 3), (33, 40, 17), (64, 300, 48), (130, 640, 37), (16, 16, 16)):
            yield Case("MatMul", (Operand((m, k), dtype), _weights(k, n, dtype=dtype)))
            yield Case("MatMul", (Operand((m, k), dtype), Operand((k, n), dtype)))
            yield Case("MatMul", (Operand((2, 3, m, k), dtype), Operand((2, 3, k, n), dtype)))
            yield Case("MatMul", (Operand((3, m, k), dtype), _weights(k, n, dtype=dtype)))
            yield Case("MatMul", (_weights(m, k, dtype=dtype), Operand((k, n), dtype)))
            yield Case("Gemm", (Operand((m, k), dtype), _weights(k, n, dtype=dtype), _weights(n, dtype=dtype)))
            yield Case("Gemm", (_weights(m, k, dtype=dtype), Operand((k, n), dtype)))
            stated = {"transA": 1, "transB": 1}
            yield Case("Gemm", (Operand((k, m), dtype), _weights(n, k, dtype=dtype), _weights(n, dtype=dtype)), stated)
            yield Case("Gemm", (Operand((m, k), dtype), Operand((n, k), dtype)), {"transB": 1, "alpha": 0.5})
    yield from _quantized_products()


def _quantized_products() -> Iterator[Case]:
    for dtype in ("int8", "uint8"):
        zero, scale, result = constant(3, dtype), constant(0.05, "float32"), constant(0.3, "float32")
        for m, k, n in ((5, 7, 3), (33, 40, 17), (64, 300, 48), (130, 640, 37), (16, 16, 16)):
            x, weights = Operand((m, k), dtype), _weights(k, n, dtype="int8")
            zeros = constant(np.arange(n) % 5, "int8")
            batch = Operand((3, m, k), dtype), Operand((3, k, n), dtype)
            yield Case("MatMulInteger", (x, weights))
            yield Case("MatMulInteger", (x, weights, zero, zeros))
            yield Case("MatMulInteger", (batch[0], weights, zero))
            yield Case("MatMulInteger", (*batch, zero, zero))
            per = constant(np.linspace(0.01, 0.03, n), "float32")
            yield Case("QLinearMatMul", (x, scale, zero, weights, scale, constant(1, "int8"), result, zero))
            yield Case("QLinearMatMul", (x, scale, zero, weights, per, zeros, result, zero))
            yield Case("QLinearMatMul", (batch[0], scale, zero, weights, scale, constant(1, "int8"), result, zero))
            yield Case("QLinearMatMul", (batch[0], scale, zero, batch[1], scale, zero, result, zero))


_CONVOLUTIONS: Sequence[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = (
    ((2, 3, 15, 11), (8, 3, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
    ((2, 1, 15, 11), (6, 1, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 16, 14, 14), (32, 16, 1, 1), {}),
    ((1, 32, 13, 9), (24, 32, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 64, 28, 28), (64, 64, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((1, 5, 20, 17), (7, 5, 3, 5), {"pads": [1, 2, 1, 2], "dilations": [1, 2]}),
    ((1, 24, 15, 15), (24, 1, 3, 3), {"group": 24, "pads": [1, 1, 1, 1]}),
    ((1, 16, 15, 15), (32, 4, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    ((1, 144, 7, 7), (48, 144, 1, 1), {}),
    ((1, 12, 40), (16, 12, 5), {"pads": [2, 2]}),
)  # fmt: skip


def _windows() -> Iterator[Case]:
    for dtype in FLOATS:
        for shape, kernel, stated in _CONVOLUTIONS:
            weights = (_weights(*kernel, dtype=dtype), _weights(kernel[0], dtype=dtype))
            yield Case("Conv", (Operand(shape, dtype), *weights), stated)
            if shape[0] > 1:
                yield Case("Conv", (Operand(shape, dtype), Operand(kernel, dtype)), stated)
            for activation in ("Relu", "Sigmoid"):
                yield Case(
                    "com.microsoft.FusedConv", (Operand(shape, dtype), *weights), {**stated, "activation": activation}
                )
            groups = stated.get("group", 1)
            turned = {one: value for one, value in stated.items() if one != "strides"} | {
                "strides": [2] * (len(shape) - 2)
            }
            other = _weights(shape[1], kernel[0] // groups, *kernel[2:], dtype=dtype)
            yield Case("ConvTranspose", (Operand(shape, dtype), other, weights[1]), turned)
    for dtype in (*FLOATS, "int8", "uint8"):
        for shape in ((2, 6, 15, 11), (1, 16, 14, 33), (1, 3, 40)):
            stated = {"kernel_shape": [3] * (len(shape) - 2), "strides": [2] * (len(shape) - 2)}
            for kind in ("MaxPool", "AveragePool", "LpPool"):
                yield Case(kind, (Operand(shape, dtype),), {**stated, "pads": [1] * 2 * (len(shape) - 2)})
                yield Case(kind, (Operand(shape, dtype),), stated)
                yield Case(kind, (Operand(shape, dtype),), {"kernel_shape": stated["kernel_shape"]})
            for kind in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
                yield Case(kind, (Operand(shape, dtype),))


def _quantized() -> Iterator[Case]:
    for dtype in ("int8", "uint8"):
        scale, zero = constant(0.05, "float32"), constant(3, dtype)
        for shape, kernel, stated in _CONVOLUTIONS:
            weights = _weights(*kernel, dtype="int8")
            for per in (constant(0.02, "float32"), constant(np.linspace(0.01, 0.03, kernel[0]), "float32")):
                zeros = constant(np.zeros(per.shape), "int8")
                bias = _weights(kernel[0], dtype="int32")
                operands = (
                    Operand(shape, dtype),
                    scale,
                    zero,
                    weights,
                    per,
                    zeros,
                    constant(0.3, "float32"),
                    zero,
                    bias,
                )
                yield Case("QLinearConv", operands, stated)
            yield Case("ConvInteger", (Operand(shape, dtype), weights, zero), stated)
        for shape in SHAPES:
            x = Operand(shape, dtype)
            for kind in ("Add", "Mul"):
                yield Case(
                    f"com.microsoft.QLinear{kind}",
                    (x, scale, zero, Operand(shape, dtype), scale, zero, constant(0.09, "float32"), zero),
                )
            yield Case("com.microsoft.QLinearSigmoid", (x, scale, zero, constant(1 / 256, "float32"), zero))
            yield Case("com.microsoft.QLinearLeakyRelu", (x, scale, zero, scale, zero), {"alpha": 0.1})
            axis = 1 if len(shape) == 4 else 0
            per = constant(np.linspace(0.02, 0.06, shape[axis]), "float32")
            zeros = constant(np.arange(shape[axis]) % 5, dtype)
            for domain in ("", "com.microsoft."):
                yield Case(f"{domain}DequantizeLinear", (x, scale, zero))
                yield Case(f"{domain}DequantizeLinear", (x, per, zeros), {"axis": axis})
                for real in ("float32", "float16"):
                    scales = constant(scale.value, real), constant(per.value, real)
                    yield Case(f"{domain}QuantizeLinear", (Operand(shape, real), scales[0], zero))
                    yield Case(f"{domain}QuantizeLinear", (Operand(shape, real), scales[1], zeros), {"axis": axis})


def _moved() -> Iterator[Case]:
    r = random.Random(0)
    for dtype in TYPES:
        x = Operand((2, 4, 6, 8), dtype)
        yield Case("Concat", (x, Operand((2, 3, 6, 8), dtype), x), {"axis": 1})
        yield Case("Concat", (x, Operand((2, 4, 6, 5), dtype)), {"axis": 3})
        yield Case("Split", (x,), {"axis": 1, "num_outputs": 1})
        yield Case("Transpose", (x,), {"perm": r.sample(range(4), 4)})
        yield Case("Reshape", (x, constant([2, 24, 8], "int64")))
        yield Case("Reshape", (x, constant([2, 2, 2, 48], "int64")))
        yield Case("Flatten", (x,), {"axis": 2})
        yield Case("Squeeze", (Operand((2, 1, 6), dtype), constant([1], "int64")))
        yield Case("Unsqueeze", (x, constant([1], "int64")))
        yield Case("Expand", (Operand((1, 4, 1, 8), dtype), constant([2, 4, 6, 8], "int64")))
        yield Case("Tile", (x, constant([1, 2, 1, 1], "int64")))
        yield Case("DepthToSpace", (x,), {"blocksize": 2})
        yield Case("DepthToSpace", (Operand((1, 8, 3, 5), dtype),), {"blocksize": 2, "mode": "CRD"})
        yield Case("SpaceToDepth", (x,), {"blocksize": 2})
        for mode in ("constant", "edge", "reflect"):
            yield Case("Pad", (x, constant([0, 1, 2, 1, 0, 0, 1, 3], "int64")), {"mode": mode})
        ranges = ([1, 0, 5], [4, 6, -9], [1, 2, 3], [1, 2, -1])
        yield Case("Slice", (x, *(constant(one, "int64") for one in ranges)))
        numbers = constant([3, 0, -1, 2, 2], "int64")
        yield Case("Gather", (x, numbers), {"axis": 1})
        yield Case("Gather", (x, Operand((3, 5), "int64", low=-8, high=7)), {"axis": 3})
        yield Case("GatherND", (x, constant([[0, 1], [1, 3], [1, -1]], "int64")))
        yield Case("GatherElements", (x, Operand((2, 4, 6, 5), "int64", low=-8, high=7)), {"axis": 3})
        yield Case(
            "ScatterElements",
            (x, Operand((2, 4, 6, 2), "int64", low=-8, high=7), Operand((2, 4, 6, 2), dtype)),
            {"axis": 3},
        )
        for reduction in ("none", "add", "mul", "max", "min"):
            updates = (constant([[1], [0]], "int64"), Operand((2, 4, 6, 8), dtype))
            yield Case("ScatterND", (x, *updates), {"reduction": reduction})
    for dtype in (*FLOATS, "int8", "uint8", "int32"):
        for mode in ("nearest", "linear"):
            for transformation in ("half_pixel", "asymmetric", "pytorch_half_pixel"):
                sizes = constant([1, 1, 2, 2], "float32")
                for shape in ((2, 3, 6, 9), (1, 8, 7, 16)):
                    stated = {"mode": mode, "coordinate_transformation_mode": transformation}
                    yield Case("Resize", (Operand(shape, dtype), None, sizes), stated)
            yield Case("Upsample", (Operand((1, 8, 7, 16), dtype), sizes), {"mode": mode}, opset=9)
