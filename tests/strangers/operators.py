"""Operators of ONNX by what must hold of their operands: types, ranks, sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.strangers.growing import Growing, Value

__all__ = ["OPERATORS"]

_F = ("float32",)
_NUMBERS = ("float32", "float32", "float32", "int64", "int32", "float64")
_ANY = ("float32", "float32", "float32", "int64", "int32", "bool", "uint8", "float64")
_RANKS = (1, 2, 3, 4)

_UNARY = (
    *("Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Reciprocal", "Erf", "Softplus", "Softsign"),
    *("Selu", "Elu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "HardSwish", "Celu", "Gelu", "Mish", "Ceil"),
    *("Floor", "Round", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh"),
    *("Sign", "Identity", "GlobalLpPool", "GlobalMaxPool", "GlobalAveragePool", "MeanVarianceNormalization"),
)
_OWN = ("Gelu", "QuickGelu", "FastGelu")
_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Pow", "PRelu", "Mod")
_COMPARED = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
_REDUCED = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")


def _unary(g: Growing) -> None:
    kind = g.rng.choice(_UNARY)
    if kind.startswith(("Global", "Mean")):
        x = g.pick(_F, (4,))
        dims = x.dims if kind.startswith("Mean") else (*x.dims[:2], 1, 1)
        g.emit(kind, [x], ("float32", dims))
        return
    x = g.pick(_F)
    if g.rng.random() < 0.1:
        g.emit(g.rng.choice(_OWN), [x], ("float32", x.dims), domain="com.microsoft")
        return
    g.emit(kind, [x], ("float32", x.dims))


def _tested(g: Growing) -> None:
    kind = g.rng.choice(("IsNaN", "IsInf", "Not", "BitwiseNot"))
    dtype = {"Not": "bool", "BitwiseNot": "int32"}.get(kind, "float32")
    x = g.pick((dtype,))
    g.emit(kind, [x], ("bool" if kind.startswith("Is") else dtype, x.dims))


def _other(g: Growing, x: Value) -> Value | str:
    """Return an operand that ``x`` can be broadcast with: another value, or a constant."""
    if g.rng.random() < 0.6:
        same = [value for value in g.values if value.dtype == x.dtype and value.rank == x.rank]
        y = g.rng.choice(same)
        g.read.add(y.name)
        g.require(*(a == b for a, b in zip(x.dims, y.dims, strict=True) if a is not b))
        return y
    dims: list[Any] = [dim if g.rng.random() < 0.5 else 1 for dim in x.dims]
    return g.weights(*dims[g.rng.randrange(x.rank + 1) :], low=1, high=9, dtype=x.dtype)


def _binary(g: Growing) -> None:
    kind = g.rng.choice(_BINARY)
    x = g.pick(_F if kind in {"Pow", "PRelu", "Mod", "Mean", "Sum", "Div"} else _NUMBERS)
    attributes: dict[str, Any] = {"fmod": 1} if kind == "Mod" else {}
    g.emit(kind, [x, _other(g, x)], (x.dtype, x.dims), **attributes)


def _compared(g: Growing) -> None:
    x = g.pick(("float32", "int64", "int32"))
    g.emit(g.rng.choice(_COMPARED), [x, _other(g, x)], ("bool", x.dims))


def _logic(g: Growing) -> None:
    if g.rng.random() < 0.5:
        x = g.pick(("bool",))
        same = [value for value in g.values if value.dtype == "bool" and value.rank == x.rank]
        y = g.rng.choice(same)
        g.require(*(a == b for a, b in zip(x.dims, y.dims, strict=True) if a is not b))
        g.read.add(y.name)
        g.emit(g.rng.choice(("And", "Or", "Xor")), [x, y], ("bool", x.dims))
        return
    x = g.pick(("int32", "int64"))
    g.emit(g.rng.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor")), [x, _other(g, x)], (x.dtype, x.dims))


def _where(g: Growing) -> None:
    x = g.pick(("float32", "int64"))
    masks = [value for value in g.values if value.dtype == "bool" and value.rank == x.rank]
    mask = g.rng.choice(masks) if masks else g.fresh("bool", x.rank)
    g.read.add(mask.name)
    g.require(*(a == b for a, b in zip(mask.dims, x.dims, strict=True)))
    g.emit("Where", [mask, x, _other(g, x)], (x.dtype, x.dims))


def _cast(g: Growing) -> None:
    x = g.pick(("int64", "int32", "bool", "uint8", "float64", "float32"))
    to = g.rng.choice(("float32", "float32", "float64") if x.dtype == "float32" else ("float32", "int64", "int32"))
    g.emit("Cast", [x], (to, x.dims), to=helper.np_dtype_to_tensor_dtype(np.dtype(to)))


def _clip(g: Growing) -> None:
    x = g.pick(_F)
    g.emit("Clip", [x, g.weights(low=-1, high=0), g.weights(low=0.1, high=6)], ("float32", x.dims))


def _reduce(g: Growing) -> None:
    kind, x, keep = g.rng.choice(_REDUCED), g.pick(_F), g.rng.randrange(2)
    axes = sorted(g.rng.sample(range(x.rank), g.rng.randint(1, x.rank)))
    if len(axes) == x.rank and not keep:
        keep = 1
    dims = [1 if place in axes else dim for place, dim in enumerate(x.dims) if keep or place not in axes]
    g.emit(f"Reduce{kind}", [x, g.ints(*axes)], ("float32", dims), keepdims=keep)


def _arg(g: Growing) -> None:
    x = g.pick(_F)
    axis = g.rng.randrange(x.rank)
    dims = [1 if place == axis else dim for place, dim in enumerate(x.dims)]
    g.emit(g.rng.choice(("ArgMax", "ArgMin")), [x], ("int64", dims), axis=axis, keepdims=1)


def _along(g: Growing) -> None:
    kind = g.rng.choice(("Softmax", "Softmax", "LogSoftmax", "Hardmax", "LpNormalization", "CumSum", "TopK"))
    x = g.pick(_F)
    axis = g.rng.randrange(x.rank)
    if kind == "CumSum":
        place = g.constant(lambda at: np.array(axis, np.int64))
        g.emit(kind, [x, place], ("float32", x.dims), reverse=g.rng.randrange(2))
        return
    if kind == "TopK":
        count = g.var(1, 8)
        g.require(count <= x.dims[axis])
        dims = [count if place == axis else dim for place, dim in enumerate(x.dims)]
        g.emit(kind, [x, g.ints(count)], ("float32", dims), ("int64", dims), axis=axis)
        return
    g.emit(kind, [x], ("float32", x.dims), axis=axis)


def _window(g: Growing, sizes: Sequence[Any], dilated: bool) -> tuple[list[Any], dict[str, Any]]:
    """Return what is left of ``sizes`` behind a window whose size, stride and pads the solver chooses."""
    kernel, stride, pad = g.var(1, 5), g.var(1, 2), g.var(0, 2)
    dilation = g.rng.choice((1, 1, 2)) if dilated else 1
    g.require(2 * pad < kernel)
    left = []
    for size in sizes:
        rest = size + 2 * pad - dilation * (kernel - 1) - 1
        g.require(rest >= 0)
        left.append(g.quotient(rest, stride) + 1)
    count = len(sizes)
    attributes: dict[str, Any] = {"kernel_shape": [kernel] * count, "strides": [stride] * count}
    attributes["pads"] = [pad] * (2 * count)
    if dilated:
        attributes["dilations"] = [dilation] * count
    return left, attributes


def _conv(g: Growing) -> None:
    x = g.pick(_F, (4, 4, 3))
    sizes, attributes = _window(g, x.dims[2:], dilated=True)
    kernel = attributes["kernel_shape"]
    if g.rng.random() < 0.3:
        depth = x.dims[1]
        inputs: list[Value | str] = [x, g.weights(depth, 1, *kernel), g.weights(depth)]
        attributes["group"] = depth
    else:
        depth = g.var(1, 16)
        inputs = [x, g.weights(depth, x.dims[1], *kernel)]
    g.emit("Conv", inputs, ("float32", [x.dims[0], depth, *sizes]), **attributes)


def _transposed(g: Growing) -> None:
    x = g.pick(_F, (4,))
    kernel, stride, depth = g.var(1, 4), g.rng.choice((1, 2)), g.var(1, 8)
    sizes = [(size - 1) * stride + kernel for size in x.dims[2:]]
    w = g.weights(x.dims[1], depth, kernel, kernel)
    dims = [x.dims[0], depth, *sizes]
    g.emit("ConvTranspose", [x, w], ("float32", dims), kernel_shape=[kernel] * 2, strides=[stride] * 2)


def _pool(g: Growing) -> None:
    x = g.pick(_F, (4, 4, 3))
    sizes, attributes = _window(g, x.dims[2:], dilated=False)
    kind = g.rng.choice(("MaxPool", "MaxPool", "AveragePool", "LpPool"))
    g.emit(kind, [x], ("float32", [*x.dims[:2], *sizes]), **attributes)


def _normal(g: Growing) -> None:
    kind = g.rng.choice(("BatchNormalization", "InstanceNormalization", "LayerNormalization", "LRN", "Dropout"))
    x = g.pick(_F, (4,) if kind in {"LRN", "BatchNormalization", "InstanceNormalization"} else (2, 3, 4))
    inputs: list[Value | str] = [x]
    attributes: dict[str, Any] = {}
    if kind == "LayerNormalization":
        attributes["axis"] = -1
        inputs += [g.weights(x.dims[-1]), g.weights(x.dims[-1])]
    elif kind == "LRN":
        attributes["size"] = 3
    elif kind != "Dropout":
        inputs += [g.weights(x.dims[1], low=0.5, high=1.5), g.weights(x.dims[1])]
        if kind == "BatchNormalization":
            inputs += [g.weights(x.dims[1]), g.weights(x.dims[1], low=0.5, high=1.5)]
    g.emit(kind, inputs, ("float32", x.dims), **attributes)


def _groups(g: Growing) -> None:
    x = g.pick(_F, (3, 4))
    count, each = g.rng.choice((1, 2)), g.var(1, 8)
    g.require(x.dims[1] == count * each)
    inputs: list[Value | str] = [x, g.weights(x.dims[1]), g.weights(x.dims[1])]
    g.emit("GroupNormalization", inputs, ("float32", x.dims), num_groups=count)


def _blocks(g: Growing) -> None:
    x = g.pick(_F, (4,))
    n, c, h, w = x.dims
    part, other, third = g.var(1, 8), g.var(1, 8), g.var(1, 8)
    if g.rng.random() < 0.5:
        g.require(c == 4 * part)
        mode = g.rng.choice(("DCR", "CRD"))
        g.emit("DepthToSpace", [x], ("float32", [n, part, 2 * h, 2 * w]), blocksize=2, mode=mode)
        return
    g.require(h == 2 * other, w == 2 * third)
    g.emit("SpaceToDepth", [x], ("float32", [n, 4 * c, other, third]), blocksize=2)


def _resize(g: Growing) -> None:
    x = g.pick(_F, (4,))
    scale = g.constant(lambda at: np.array([1, 1, 2, 2], np.float32))
    mode = g.rng.choice(("nearest", "linear"))
    dims = [*x.dims[:2], 2 * x.dims[2], 2 * x.dims[3]]
    g.emit("Resize", [x, "", scale], ("float32", dims), mode=mode, coordinate_transformation_mode="asymmetric")


def _product(g: Growing) -> None:
    x = g.pick(_F, (2, 3, 4))
    kind = g.rng.choice(("MatMul", "MatMul", "pair", "Gemm", "Einsum", "MatMulInteger"))
    width = g.var(1, 16)
    if kind == "MatMul":
        g.emit(kind, [x, g.weights(x.dims[-1], width)], ("float32", [*x.dims[:-1], width]))
    elif kind == "pair":
        y = g.pick(_F, (x.rank,))
        g.require(*(a == b for a, b in zip(x.dims[:-2], y.dims[:-2], strict=True) if a is not b))
        g.require(x.dims[-1] == y.dims[-2])
        g.emit("MatMul", [x, y], ("float32", [*x.dims[:-1], y.dims[-1]]))
    elif kind == "Gemm":
        x = g.pick(_F, (2,))
        w = g.weights(width, x.dims[1])
        g.emit(kind, [x, w, g.weights(width)], ("float32", [x.dims[0], width]), transB=1, alpha=0.5)
    elif kind == "Einsum":
        x = g.pick(_F, (3,))
        w = g.weights(x.dims[2], width)
        g.emit(kind, [x, w], ("float32", [x.dims[0], width, x.dims[1]]), equation="abc,cd->adb")
    else:
        x = g.pick(("uint8",), (2, 3))
        w = g.weights(x.dims[-1], width, low=0, high=50, dtype="uint8")
        g.emit(kind, [x, w], ("int32", [*x.dims[:-1], width]))


def _quantized(g: Growing) -> None:
    scale, zero = g.constant(lambda at: np.float32(0.02)), g.constant(lambda at: np.uint8(128))
    if g.rng.random() < 0.5:
        x = g.pick(_F)
        g.emit("QuantizeLinear", [x, scale, zero], ("uint8", x.dims))
        return
    x = g.pick(("uint8",))
    g.emit("DequantizeLinear", [x, scale, zero], ("float32", x.dims))


def _concat(g: Growing) -> None:
    x = g.pick(_ANY)
    axis = g.rng.randrange(x.rank)
    same = [value for value in g.values if value.dtype == x.dtype and value.rank == x.rank]
    parts = [x, *(g.rng.choice(same) for _ in range(g.rng.randint(1, 2)))]
    for y in parts[1:]:
        g.read.add(y.name)
        pairs = enumerate(zip(x.dims, y.dims, strict=True))
        g.require(*(a == b for place, (a, b) in pairs if place != axis and a is not b))
    total = sum(y.dims[axis] for y in parts)
    g.emit("Concat", parts, (x.dtype, [*x.dims[:axis], total, *x.dims[axis + 1 :]]), axis=axis)


def _split(g: Growing) -> None:
    x = g.pick(_ANY)
    axis = g.rng.randrange(x.rank)
    first = g.var(1, 12)
    rest = x.dims[axis] - first
    g.require(rest >= 1)
    made = [(x.dtype, [*x.dims[:axis], size, *x.dims[axis + 1 :]]) for size in (first, rest)]
    g.emit("Split", [x, g.ints(first, rest)], *made, axis=axis)


def _slice(g: Growing) -> None:
    x = g.pick(_ANY)
    axis = g.rng.randrange(x.rank)
    start, size, step = g.var(0, 6), g.var(1, 12), g.rng.choice((1, 1, 2))
    end = start + step * (size - 1) + 1
    g.require(end <= x.dims[axis])
    inputs: list[Value | str] = [x, g.ints(start), g.ints(end), g.ints(axis), g.ints(step)]
    g.emit("Slice", inputs, (x.dtype, [*x.dims[:axis], size, *x.dims[axis + 1 :]]))


def _pad(g: Growing) -> None:
    x = g.pick(_F)
    before, after = [g.var(0, 2) for _ in x.dims], [g.var(0, 2) for _ in x.dims]
    mode = g.rng.choice(("constant", "edge", "reflect"))
    if mode == "reflect":
        for dim, one, other in zip(x.dims, before, after, strict=True):
            g.require(one < dim, other < dim)
    dims = [dim + one + other for dim, one, other in zip(x.dims, before, after, strict=True)]
    g.emit("Pad", [x, g.ints(*before, *after)], ("float32", dims), mode=mode)


def _moved(g: Growing) -> None:
    x = g.pick(_ANY, (2, 3, 4))
    order = g.rng.sample(range(x.rank), x.rank)
    g.emit("Transpose", [x], (x.dtype, [x.dims[place] for place in order]), perm=order)


def _reshape(g: Growing) -> None:
    x = g.pick(_ANY)
    kind = g.rng.choice(("Reshape", "Flatten", "Unsqueeze", "Squeeze", "Expand", "Tile"))
    if kind == "Reshape":
        dims = [g.var(1, 32) for _ in range(g.rng.randint(1, 4))]
        g.require(g.product(dims) == g.product(x.dims))
        g.emit(kind, [x, g.ints(*dims)], (x.dtype, dims))
    elif kind == "Flatten":
        axis = g.rng.randrange(x.rank)
        dims = [g.product(x.dims[:axis]), g.product(x.dims[axis:])]
        g.emit(kind, [x], (x.dtype, dims), axis=axis)
    elif kind == "Unsqueeze":
        axis = g.rng.randrange(x.rank + 1)
        g.emit(kind, [x, g.ints(axis)], (x.dtype, [*x.dims[:axis], 1, *x.dims[axis:]]))
    elif kind == "Squeeze":
        axis = g.rng.randrange(x.rank)
        g.require(x.dims[axis] == 1, x.rank > 1)
        g.emit(kind, [x, g.ints(axis)], (x.dtype, [*x.dims[:axis], *x.dims[axis + 1 :]]))
    elif kind == "Expand":
        wide = g.var(1, 12)
        g.require(x.dims[0] == 1)
        g.emit(kind, [x, g.ints(wide, *x.dims[1:])], (x.dtype, [wide, *x.dims[1:]]))
    else:
        axis = g.rng.randrange(x.rank)
        times = [2 if place == axis else 1 for place in range(x.rank)]
        dims = [time * dim for time, dim in zip(times, x.dims, strict=True)]
        g.emit(kind, [x, g.ints(*times)], (x.dtype, dims))


def _indices(g: Growing, shape: Sequence[Any], most: Any) -> str:
    seed = g.rng.randrange(1 << 30)
    return g.constant(
        lambda at: np.random.default_rng(seed).integers(0, at(most), [at(dim) for dim in shape]).astype(np.int64)
    )


def _gather(g: Growing) -> None:
    x = g.pick(_ANY)
    axis, count = g.rng.randrange(x.rank), g.var(1, 12)
    kind = g.rng.choice(("Gather", "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"))
    dims = [*x.dims[:axis], count, *x.dims[axis + 1 :]]
    if kind == "Gather":
        g.emit(kind, [x, _indices(g, [count], x.dims[axis])], (x.dtype, dims), axis=axis)
    elif kind == "GatherElements":
        g.emit(kind, [x, _indices(g, dims, x.dims[axis])], (x.dtype, dims), axis=axis)
    elif kind == "GatherND":
        g.emit(kind, [x, _indices(g, [count, 1], x.dims[0])], (x.dtype, [count, *x.dims[1:]]))
    elif kind == "ScatterElements":
        places = g.constant(lambda at: np.zeros([1] * x.rank, np.int64))
        g.emit(kind, [x, places, g.weights(*[1] * x.rank, dtype=x.dtype, high=5)], (x.dtype, x.dims), axis=axis)
    else:
        places = g.constant(lambda at: np.zeros((1, 1), np.int64))
        g.emit(kind, [x, places, g.weights(1, *x.dims[1:], dtype=x.dtype, high=5)], (x.dtype, x.dims))


def _square(g: Growing) -> None:
    x = g.pick(_F, (2, 3, 4))
    if g.rng.random() < 0.6:
        g.emit("Trilu", [x], ("float32", x.dims), upper=g.rng.randrange(2))
        return
    x = g.pick(_F, (2,))
    g.emit("EyeLike", [x], ("float32", x.dims), dtype=TensorProto.FLOAT)


def _onehot(g: Growing) -> None:
    x = g.pick(("int64",), (1, 2, 3))
    depth = g.var(1, 8)
    values = g.constant(lambda at: np.array([0, 1], np.float32))
    g.emit("OneHot", [x, g.ints(depth), values], ("float32", [*x.dims, depth]), axis=-1)


def _recurrent(g: Growing) -> None:
    kind, x = g.rng.choice(("LSTM", "GRU", "RNN")), g.pick(_F, (3,))
    gates, hidden = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], g.var(1, 8)
    length, batch, width = x.dims
    inputs: list[Value | str] = [x, g.weights(1, gates * hidden, width), g.weights(1, gates * hidden, hidden)]
    state = ("float32", [1, batch, hidden])
    made = [("float32", [length, 1, batch, hidden]), state]
    g.emit(kind, inputs, *made, *([state] if kind == "LSTM" else []), hidden_size=hidden)


def _drawn(g: Growing) -> None:
    kind = g.rng.choice(("RandomNormalLike", "RandomUniformLike", "RandomNormal", "RandomUniform", "Bernoulli"))
    x = g.pick(_F)
    inputs = [x] if kind.endswith(("Like", "Bernoulli")) else []
    attributes: dict[str, Any] = {"seed": float(g.rng.randint(1, 99))}
    if kind == "Bernoulli":
        inputs = g.emit("Sigmoid", [x], ("float32", x.dims))
        g.read.add(inputs[0].name)
    elif not inputs:
        attributes["shape"] = list(x.dims)
    g.emit(kind, inputs, ("float32", x.dims), **attributes)


def _described(g: Growing) -> None:
    x = g.pick(_ANY)
    kind = g.rng.choice(("Shape", "ConstantOfShape"))
    if kind == "Shape":
        g.emit(kind, [x], ("int64", [x.rank]))
        return
    g.emit(kind, [g.ints(*x.dims)], ("float32", x.dims))


def _either(g: Growing) -> None:
    """One of two branches, which read what lies outside."""
    x = g.pick(_F)
    bodies = []
    for kind, name in (("Relu", "then"), ("Tanh", "else")):
        made = f"{name}.{len(g.nodes)}"
        node = helper.make_node(kind, [x.name], [made])
        info = helper.make_tensor_value_info(made, TensorProto.FLOAT, None)
        bodies.append(helper.make_graph([node], name, [], [info]))
    small = g.emit("ReduceMean", [x], ("float32", [1] * x.rank), keepdims=1)[0]
    flat = g.emit("Reshape", [small, g.ints()], ("float32", []))[0]
    zero = g.constant(lambda at: np.float32(0))
    mask = g.emit("Greater", [flat, zero], ("bool", []))[0]
    g.read |= {small.name, flat.name, mask.name}
    g.emit("If", [mask], ("float32", x.dims), then_branch=bodies[0], else_branch=bodies[1])


Operator = Callable[[Growing], None]

OPERATORS: Sequence[tuple[int, Operator]] = (
    *((4, _unary), (1, _tested), (5, _binary), (1, _compared), (1, _logic), (1, _where), (2, _cast), (1, _clip)),
    *((2, _reduce), (1, _arg), (2, _along), (7, _conv), (1, _transposed), (3, _pool), (3, _normal), (1, _groups)),
    *((1, _blocks), (1, _resize), (3, _product), (2, _quantized), (4, _concat), (2, _split), (2, _slice), (2, _pad)),
    *((2, _moved), (3, _reshape), (2, _gather), (1, _square), (1, _onehot), (1, _recurrent), (1, _drawn)),
    *((1, _described), (1, _either)),
)
"""Each with how often it is drawn."""
