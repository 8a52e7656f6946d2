"""Elementwise ops, normalisations, reductions and matrix products of both formats, in the words of `rules`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from memsched.ops.rules import (
    FULL,
    ONE_AXIS,
    POINTWISE,
    AxisMap,
    Geometry,
    Operands,
    OpRule,
    RefusedError,
    ShapedOp,
    ruled,
    same,
    whole,
)

__all__ = ["RULES"]


def _broadcast(layer: ShapedOp, position: int) -> tuple[AxisMap, ...]:
    """Return the maps of an operand that is broadcast to the output, axes aligned at the last."""
    shape = layer.shape(position)
    shift = len(layer.output) - len(shape)
    if shift < 0:
        raise RefusedError("one of its inputs has more axes than its output", "rank")
    maps = []
    for axis, size in enumerate(shape):
        equal = size == layer.output[axis + shift]
        if not equal and size != 1:
            raise RefusedError("the shapes of its inputs do not broadcast", "no-broadcast")
        maps.append(AxisMap(axis + shift, POINTWISE) if equal and size != 1 else AxisMap(-1, FULL))
    return tuple(maps)


def _elementwise(layer: ShapedOp) -> Geometry:
    return layer.geometry({position: _broadcast(layer, position) for position in sorted(layer.shapes)})


def _unary(layer: ShapedOp) -> Geometry:
    """One data input; every other input is a scalar that configures the op."""
    if layer.data != layer.output:
        raise RefusedError("its output has another shape than its input", "shapes-differ")
    operands: Operands = {0: tuple(same(len(layer.data)))}
    for position in layer.op.positions:
        if position and layer.shape(position) not in {(), (1,)}:
            raise RefusedError(f"its input {position} is computed at run time", "run-time-input")
        if position:
            operands[position] = whole(len(layer.shape(position)))
    return layer.geometry(operands)


def _select(layer: ShapedOp) -> Geometry:
    if any(shape != layer.output for shape in layer.shapes.values()):
        raise RefusedError("its inputs have different shapes", "shapes-differ")
    return _elementwise(layer)


def _along(layer: ShapedOp, operands: Operands, positions: tuple[int, ...], axis: int, length: int) -> None:
    """Add vectors of one element per position on ``axis``; scalars stay whole."""
    for position in positions:
        shape = layer.shapes.get(position)
        if shape is not None:
            along = len(shape) == 1 and shape[0] == length
            operands[position] = (AxisMap(axis, POINTWISE),) if along else whole(len(shape))


def _batch_normalization(layer: ShapedOp) -> Geometry:
    if layer.number("training_mode") or layer.number("spatial", 1) != 1 or layer.op.attributes.get("is_test") == 0:
        raise RefusedError("it computes statistics of the whole batch", "whole-range")
    if len(layer.data) < 2:
        raise RefusedError("its input has no channels", "rank")
    operands: Operands = {0: tuple(same(len(layer.data)))}
    _along(layer, operands, (1, 2, 3, 4), 1, layer.data[1])
    return layer.geometry(operands)


def _linear_quantization(layer: ShapedOp) -> Geometry:
    """QuantizeLinear and DequantizeLinear: one scale, one per channel, or one per block."""
    operands: Operands = {0: tuple(same(len(layer.data)))}
    if layer.number("block_size") or len(layer.shapes.get(1, ())) > 1:
        raise RefusedError("it has a scale per block", "scale-per-block")
    if layer.shapes.get(1, ()) not in {(), (1,)}:
        axis = layer.axis(layer.number("axis", 1))
        _along(layer, operands, (1, 2), axis, layer.data[axis])
    else:
        _along(layer, operands, (1, 2), 0, -1)
    return layer.geometry(operands)


def _qlinear_binary(layer: ShapedOp) -> Geometry:
    """com.microsoft's quantised sums and products: operands at 0 and 3, scales between."""
    return layer.geometry({0: _broadcast(layer, 0), 3: _broadcast(layer, 3)})


def _first_only(layer: ShapedOp) -> Geometry:
    """com.microsoft's quantised activations, whose other inputs are scales."""
    return layer.geometry({0: tuple(same(len(layer.data)))})


# Reductions and normalisations ------------------------------------------------------------------------------------


def _normalised(layer: ShapedOp, axes: set[int], vectors: tuple[int, ...] = ()) -> Geometry:
    """An op of the input's shape, each of whose elements depends on all others along ``axes``."""
    rank = len(layer.data)
    maps = tuple(AxisMap(-1, FULL) if axis in axes else AxisMap(axis, POINTWISE) for axis in range(rank))
    operands: Operands = {0: maps}
    for position in vectors:
        if position in layer.shapes:
            operands[position] = whole(len(layer.shapes[position]))
    reason = "each element depends on all others along it"
    return layer.geometry(operands, {axis: f"axis {axis} is normalised: {reason}" for axis in sorted(axes)})


def _softmax(layer: ShapedOp) -> Geometry:
    """Up to opset 12 the axes from ``axis`` (default 1) on are one; later it is one axis (default the last)."""
    rank = len(layer.data)
    stated = layer.op.attributes.get("axis")
    first = layer.axis(layer.number("axis")) if stated is not None else min(1, rank - 1)
    return _normalised(layer, {first} if layer.number(ONE_AXIS) else set(range(first, rank)))


def _last_axis(layer: ShapedOp) -> Geometry:
    layer.only(0)
    return _normalised(layer, {len(layer.data) - 1})


def _layer_normalization(layer: ShapedOp) -> Geometry:
    rank = len(layer.data)
    return _normalised(layer, set(range(layer.axis(layer.number("axis", -1)), rank)), (1, 2))


def _instance_normalization(layer: ShapedOp) -> Geometry:
    rank = len(layer.data)
    geometry = _normalised(layer, set(range(2, rank)), (1, 2))
    operands: Operands = dict(geometry.operands)
    _along(layer, operands, (1, 2), 1, layer.data[1])
    return layer.geometry(operands, geometry.fixed)


def _group_normalization(layer: ShapedOp) -> Geometry:
    return _normalised(layer, set(range(1, len(layer.data))), (1, 2))


def _lp_normalization(layer: ShapedOp) -> Geometry:
    return _normalised(layer, {layer.axis(layer.number("axis", -1))})


def _lrn(layer: ShapedOp) -> Geometry:
    return _normalised(layer, {1})


def _reduction(layer: ShapedOp) -> Geometry:
    """Without axes, ONNX's reductions reduce all."""
    layer.only(0)
    if "axes" not in layer.op.attributes and 1 in layer.shapes:
        raise RefusedError("its axes are not constant", "not-constant")
    axes = _stated_axes(layer, ())
    if not axes and layer.number("noop_with_empty_axes"):
        raise RefusedError("it reduces nothing", "bad-axes")
    return _reduced(layer, axes or set(range(len(layer.data))), bool(layer.number("keepdims", 1)))


def _tflite_reduction(layer: ShapedOp) -> Geometry:
    layer.only(0)
    axes = _stated_axes(layer)
    return _reduced(layer, axes or set(range(len(layer.data))), bool(layer.number("keep_dims")))


def _stated_axes(layer: ShapedOp, default: tuple[int, ...] | None = None) -> set[int]:
    return {layer.axis(axis) for axis in layer.ints("axes", default)}


def _arg_reduction(layer: ShapedOp) -> Geometry:
    layer.only(0)
    return _reduced(layer, {layer.axis(layer.number("axis"))}, bool(layer.number("keepdims", 1)))


def _tflite_arg_reduction(layer: ShapedOp) -> Geometry:
    layer.only(0)
    return _reduced(layer, {layer.axis(layer.ints("axis")[0])}, keep=False)


def _reduced(layer: ShapedOp, axes: set[int], keep: bool) -> Geometry:
    maps, out = [], 0
    for axis in range(len(layer.data)):
        if axis in axes:
            maps.append(AxisMap(-1, FULL))
            out += keep
        else:
            maps.append(AxisMap(out, POINTWISE))
            out += 1
    if out != len(layer.output):
        raise RefusedError("its output has another rank than its axes say", "rank")
    return layer.geometry({0: tuple(maps)})


# Matrix products --------------------------------------------------------------------------------------------------


def _factors(layer: ShapedOp, right: int, transposed: tuple[str, str] = ("", "")) -> Operands:
    """Return the maps of the factors at 0 and ``right``, both of two axes or more, broadcast before the last two."""
    rank = len(layer.output)
    operands: Operands = {}
    for side, position in enumerate((0, right)):
        shape = layer.shape(position)
        if len(shape) < 2 or len(shape) > rank:
            raise RefusedError("one of its factors is a vector", "rank")
        shift = rank - len(shape)
        maps = []
        for axis, size in enumerate(shape[:-2]):
            follows = size == layer.output[axis + shift] and size != 1
            maps.append(AxisMap(axis + shift, POINTWISE) if follows else AxisMap(-1, FULL))
        kept, summed = AxisMap(rank - 2 + side, POINTWISE), AxisMap(-1, FULL)
        # The left factor keeps its rows and the right one its columns, unless it is transposed.
        swapped = bool(transposed[side] and layer.number(transposed[side]))
        maps += [kept, summed] if (side == 0) != swapped else [summed, kept]
        operands[position] = tuple(maps)
    return operands


def _matmul(layer: ShapedOp) -> Geometry:
    return layer.geometry(_factors(layer, 1))


def _matmul_integer(layer: ShapedOp) -> Geometry:
    """MatMulInteger: zero points at 2 and 3, one for all, or one per row of the left factor or column of the right."""
    return _quantized_product(layer, 1, rows=(2,), columns=(3,))


def _qlinear_matmul(layer: ShapedOp) -> Geometry:
    """QLinearMatMul: scales and zero points behind each factor, and those of the output."""
    return _quantized_product(layer, 3, rows=(1, 2), columns=(4, 5), others=(6, 7))


def _quantized_product(
    layer: ShapedOp, right: int, rows: tuple[int, ...], columns: tuple[int, ...], others: tuple[int, ...] = ()
) -> Geometry:
    operands, rank = _factors(layer, right), len(layer.output)
    if any(len(layer.shapes.get(position, ())) > 1 for position in (*rows, *columns, *others)):
        raise RefusedError("it has zero points per matrix", "zero-points")
    _along(layer, operands, rows, rank - 2, layer.output[-2])
    _along(layer, operands, columns, rank - 1, layer.output[-1])
    _along(layer, operands, others, 0, -1)
    return layer.geometry(operands)


def _batch_matmul(layer: ShapedOp) -> Geometry:
    return layer.geometry(_factors(layer, 1, ("adj_x", "adj_y")))


def _gemm(layer: ShapedOp) -> Geometry:
    operands = _factors(layer, 1, ("transA", "transB"))
    if 2 in layer.shapes:
        operands[2] = _broadcast(layer, 2)
    return layer.geometry(operands)


def _fully_connected(layer: ShapedOp) -> Geometry:
    layer.only(0, 1, 2)
    outputs, inputs = layer.shape(1, 2)
    rank, made = len(layer.data), len(layer.output)
    if layer.text("weights_format") or not rank or layer.output[-1] != outputs:
        raise RefusedError("its weights are not laid out as (out, in)", "weights-layout")
    fixed: dict[int, str] = {}
    if rank == made and layer.data[:-1] == layer.output[:-1] and layer.data[-1] == inputs:
        maps = (*same(rank)[:-1], AxisMap(-1, FULL))
    else:
        maps = whole(rank)
        fixed = dict.fromkeys(range(made - 1), "its rows are reshaped")
    operands: Operands = {0: maps, 1: (AxisMap(made - 1, POINTWISE), AxisMap(-1, FULL))}
    _along(layer, operands, (2,), made - 1, outputs)
    return layer.geometry(operands, fixed)


# Tables -----------------------------------------------------------------------------------------------------------

_ELEMENTWISE: Final = (
    "Add", "And", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "PRelu", "Pow", "Sub", "Sum", "Where", "Xor",
    "com.microsoft.BiasGelu",
    "ADD", "ADD_N", "ATAN2", "BITWISE_XOR", "DIV", "EQUAL", "FLOOR_DIV", "FLOOR_MOD", "GREATER", "GREATER_EQUAL",
    "LESS", "LESS_EQUAL", "LOGICAL_AND", "LOGICAL_OR", "MAXIMUM", "MINIMUM", "MUL", "NOT_EQUAL", "POW", "PRELU",
    "RIGHT_SHIFT", "SELECT_V2", "SQUARED_DIFFERENCE", "SUB",
)  # fmt: skip
_UNARY: Final = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
    "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign",
    "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
    "com.microsoft.FastGelu", "com.microsoft.Gelu", "com.microsoft.QuickGelu",
    "ABS", "CAST", "CEIL", "COS", "DEQUANTIZE", "ELU", "EXP", "FAKE_QUANT", "FLOOR", "GELU", "HARD_SWISH",
    "LEAKY_RELU", "LOG", "LOGICAL_NOT", "LOGISTIC", "NEG", "QUANTIZE", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1",
    "ROUND", "RSQRT", "SIGN", "SIN", "SQRT", "SQUARE", "TANH",
)  # fmt: skip
_REDUCTIONS: Final = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
_TFLITE_REDUCTIONS: Final = ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL")
_QUANTIZERS: Final = ("QuantizeLinear", "com.microsoft.QuantizeLinear")
_DEQUANTIZERS: Final = ("DequantizeLinear", "com.microsoft.DequantizeLinear")

RULES: Final[Mapping[str, OpRule]] = {
    **ruled("elementwise", _elementwise, *_ELEMENTWISE, families=("broadcast",)),
    **ruled("elementwise", _unary, *_UNARY, families=("unary",)),
    # Some of these are of other families, too.
    **ruled("elementwise", _unary, "Identity", families=("unary", "view")),
    **ruled("elementwise", _unary, "Cast", "CAST", families=("cast", "unary")),
    **ruled("elementwise", _unary, "QUANTIZE", families=("quantization", "unary")),
    # It casts floats of half precision.
    **ruled("elementwise", _unary, "DEQUANTIZE", families=("cast", "dequantization", "unary")),
    **ruled("movement", _unary, "Dropout", alike=True),
    **ruled("elementwise", _select, "SELECT"),
    **ruled("channelwise", _batch_normalization, "BatchNormalization", families=("batch normalization",)),
    **ruled("channelwise", _linear_quantization, *_QUANTIZERS, families=("quantization",)),
    **ruled("channelwise", _linear_quantization, *_DEQUANTIZERS, families=("dequantization",)),
    **ruled("channelwise", _qlinear_binary, "com.microsoft.QLinearAdd", "com.microsoft.QLinearMul"),
    **ruled("channelwise", _first_only, "com.microsoft.QLinearSigmoid", "com.microsoft.QLinearLeakyRelu"),
    **ruled("reduction", _reduction, *_REDUCTIONS, families=("axis reduction",)),
    **ruled("reduction", _tflite_reduction, *_TFLITE_REDUCTIONS, families=("axis reduction",)),
    **ruled("reduction", _arg_reduction, "ArgMax", "ArgMin"),
    **ruled("reduction", _tflite_arg_reduction, "ARG_MAX", "ARG_MIN"),
    **ruled("reduction", _softmax, "Softmax", "LogSoftmax", families=("softmax",)),
    **ruled("reduction", _last_axis, "SOFTMAX", "LOG_SOFTMAX", "L2_NORMALIZATION"),
    **ruled(
        "reduction", _layer_normalization, "LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization"
    ),
    **ruled("reduction", _instance_normalization, "InstanceNormalization"),
    **ruled("reduction", _group_normalization, "GroupNormalization"),
    **ruled("reduction", _lp_normalization, "LpNormalization"),
    **ruled("reduction", _lrn, "LRN"),
    **ruled("product", _matmul, "MatMul", families=("matrix product",)),
    **ruled("product", _matmul_integer, "MatMulInteger"),
    **ruled("product", _qlinear_matmul, "QLinearMatMul"),
    **ruled("product", _gemm, "Gemm"),
    **ruled("product", _batch_matmul, "BATCH_MATMUL"),
    **ruled("product", _fully_connected, "FULLY_CONNECTED"),
}
