"""Random single ONNX layers of every kind that can be tiled, on small whole numbers, so that sums are exact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.rewrites.tile.onnx_indexed_layers import elements, gather, gather_nd, scatter_nd
from tests.rewrites.tile.onnx_layer import Layer, R, shape_of, whole_numbers


def pads_and_strides(r: R, layer: Layer, kernel: tuple[int, ...], lengths: list[int], pool: bool = False) -> None:
    """State strides, dilations and a padding of some style, so that each output axis has an element."""
    rank = len(kernel)
    if r.random() < 0.8:
        layer.attributes["strides"] = [r.randint(1, 3) for _ in range(rank)]
    dilations = [r.randint(1, 3) if lengths[i] > (kernel[i] - 1) * 3 else 1 for i in range(rank)]
    style = r.choice(["pads", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "none"])
    if style.startswith("SAME"):  # ONNX Runtime refuses the two together
        dilations = [1] * rank
        if pool:  # and a SAME pool whose strides are longer than its kernel
            layer.attributes["strides"] = [min(one, 2, one) for i, one in enumerate(kernel)]
    if any(one > 1 for one in dilations):
        layer.attributes["dilations"] = dilations
    if style == "pads":
        most = [kernel[i] - 1 if pool else kernel[i] + 1 for i in range(rank)]
        layer.attributes["pads"] = [r.randint(0, most[i % rank]) for i in range(2 * rank)]
    elif style != "none":
        layer.attributes["auto_pad"] = style


def conv(r: R) -> Layer:
    rank = r.choice([1, 2, 2, 2, 3])
    layer = Layer("Conv")
    groups = r.choice([1, 1, 1, 2, 3, 4])
    per_group, multiplier = r.randint(1, 3), r.randint(1, 3)
    if r.random() < 0.3:
        groups, per_group = r.randint(1, 6), 1
    kernel = shape_of(r, rank, 1, 4)
    lengths = [r.randint(max(kernel), 14 if rank < 3 else 7) for _ in range(rank)]
    layer.give(whole_numbers(r, (r.randint(1, 2), groups * per_group, *lengths)))
    layer.state(whole_numbers(r, (groups * multiplier, per_group, *kernel)))
    if r.random() < 0.5:
        layer.state(whole_numbers(r, (groups * multiplier,)))
    if groups > 1:
        layer.attributes["group"] = groups
    if r.random() < 0.5:
        layer.attributes["kernel_shape"] = list(kernel)
    pads_and_strides(r, layer, kernel, lengths)
    return layer


def qlinear_conv(r: R) -> Layer:
    base = conv(r)
    while len(base.data["x0"].shape) != 4:
        base = conv(r)
    layer = Layer("QLinearConv", attributes=base.attributes)
    x, w = base.data["x0"], base.constants["c1"]
    per_channel = r.random() < 0.5
    layer.give((x + 8).astype(np.uint8))
    layer.state(np.float32(0.5))
    layer.state(np.uint8(r.randint(0, 12)))
    layer.state(w.astype(np.int8))
    scale = 0.25 * (1 + np.arange(len(w), dtype=np.float32)) if per_channel else np.float32(0.25)
    layer.state(scale)
    layer.state(np.zeros(len(w), np.int8) if per_channel else np.int8(0))
    layer.state(np.float32(2))
    layer.state(np.uint8(100))
    if "c2" in base.constants:
        layer.state(base.constants["c2"].astype(np.int32))
    return layer


def pool(r: R) -> Layer:
    rank = r.choice([1, 2, 2, 2, 3])
    layer = Layer(r.choice(["MaxPool", "AveragePool", "AveragePool", "LpPool"]))
    kernel = shape_of(r, rank, 1, 4)
    lengths = [r.randint(max(kernel), 14 if rank < 3 else 7) for _ in range(rank)]
    layer.give(whole_numbers(r, (r.randint(1, 2), r.randint(1, 3), *lengths)))
    layer.attributes["kernel_shape"] = list(kernel)
    pads_and_strides(r, layer, kernel, lengths, pool=True)
    if layer.kind == "AveragePool":
        layer.attributes["count_include_pad"] = r.randint(0, 1)
    if r.random() < 0.4 and "auto_pad" not in layer.attributes:
        layer.attributes["ceil_mode"] = 1
    return layer


def conv_transpose(r: R) -> Layer:
    rank = r.choice([1, 2, 2, 2])
    layer = Layer("ConvTranspose")
    groups, per_group, out = r.choice([1, 1, 2, 3]), r.randint(1, 3), r.randint(1, 3)
    kernel, lengths = shape_of(r, rank, 1, 4), shape_of(r, rank, 2, 8)
    layer.give(whole_numbers(r, (r.randint(1, 2), groups * per_group, *lengths)))
    layer.state(whole_numbers(r, (groups * per_group, out, *kernel)))
    if r.random() < 0.5:
        layer.state(whole_numbers(r, (groups * out,)))
    strides = [r.randint(1, 4) for _ in range(rank)]
    dilations = [r.randint(1, 2) for _ in range(rank)]
    layer.attributes.update(strides=strides, dilations=dilations, group=groups)
    style = r.choice(["pads", "pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", "output_shape", "none"])
    full = [strides[i] * (lengths[i] - 1) + (kernel[i] - 1) * dilations[i] + 1 for i in range(rank)]
    if style == "pads":
        layer.attributes["pads"] = [r.randint(0, min(2, (full[i % rank] - 1) // 2)) for i in range(2 * rank)]
    elif style == "output_shape":
        # ONNX's inference gives no whole shape where an output is shorter than its input.
        layer.attributes["output_shape"] = [r.randint(max(lengths[i], full[i] - 4), full[i]) for i in range(rank)]
        layer.attributes["auto_pad"] = r.choice(["NOTSET", "SAME_UPPER", "SAME_LOWER"])
    elif style != "none":
        layer.attributes["auto_pad"] = style
    if style in {"pads", "none", "VALID"} and r.random() < 0.5:
        layer.attributes["output_padding"] = [r.randint(0, max(0, strides[i] - 1)) for i in range(rank)]
    return layer


def pad(r: R) -> Layer:
    rank = r.randint(1, 4)
    layer = Layer("Pad", attributes={"mode": r.choice(["constant", "constant", "edge", "reflect", "wrap"])})
    shape = shape_of(r, rank, 4, 9)
    layer.give(whole_numbers(r, shape))
    axes = sorted(r.sample(range(rank), r.randint(1, rank)))
    layer.state(np.array([r.randint(0, 3) for _ in range(2 * len(axes))], np.int64))
    layer.state(np.float32(7))
    if len(axes) < rank or r.random() < 0.5:
        layer.state(np.array(axes, np.int64))
    return layer


def elementwise(r: R) -> Layer:
    layer = Layer(r.choice(["Add", "Sub", "Mul", "Max", "Min", "PRelu", "Sum"]))
    shape = shape_of(r, r.randint(1, 4), 1, 7)

    def other() -> tuple[int, ...]:
        return tuple(1 if r.random() < 0.3 else size for size in shape[r.randrange(len(shape)) :])

    layer.give(whole_numbers(r, shape))
    second = whole_numbers(r, shape if r.random() < 0.3 else other())
    layer.give(second) if r.random() < 0.5 else layer.state(second)
    if layer.kind == "Sum":
        layer.give(whole_numbers(r, other()))
    return layer


def where(r: R) -> Layer:
    layer = Layer("Where")
    shape = shape_of(r, 3, 1, 6)
    layer.give(whole_numbers(r, shape[1:]) > 0)
    layer.give(whole_numbers(r, shape))
    layer.state(whole_numbers(r, (shape[0], 1, shape[2])))
    return layer


def unary(r: R) -> Layer:
    layer = Layer(r.choice(["Relu", "Abs", "Neg", "Clip", "LeakyRelu", "HardSwish", "Identity", "Sign", "Cast"]))
    layer.give(whole_numbers(r, shape_of(r, r.randint(1, 4), 1, 8)))
    if layer.kind == "Clip":
        layer.state(np.float32(-1))
        layer.state(np.float32(2))
    if layer.kind == "Cast":
        layer.attributes["to"] = 6
    return layer


def batch_normalization(r: R) -> Layer:
    layer = Layer("BatchNormalization", exact=False)
    shape = shape_of(r, r.choice([2, 3, 4]), 1, 6)
    layer.give(whole_numbers(r, shape))
    for low in (-3, -3, -3, 1):
        layer.state(whole_numbers(r, (shape[1],), low, 5))
    return layer


def concat(r: R) -> Layer:
    rank = r.randint(1, 4)
    axis = r.randrange(rank)
    layer = Layer("Concat", attributes={"axis": axis if r.random() < 0.5 else axis - rank})
    shape = list(shape_of(r, rank, 1, 5))
    for number in range(r.randint(2, 4)):
        shape[axis] = r.randint(1, 5)
        array = whole_numbers(r, tuple(shape))
        layer.give(array) if number == 0 or r.random() < 0.7 else layer.state(array)
    return layer


SCALES = (0.25, 0.5, 1.0, 1.5, 2.0, 2.0, 3.0, 4.0, 0.6, 2.5, 1.0 / 3)


def met_at_ends(r: R, length: int) -> int:
    """Return a length of which elements between the ends lie on such of ``length``, where there are any."""
    return 1 + int((length - 1) * r.choice([0.5, 1, 2, 2, 3, 4, 1.5]))


def resize(r: R) -> Layer:
    opset = r.choice([10, 11, 13, 19])
    shape = (1, r.randint(1, 2), r.randint(3, 9), r.randint(3, 9))
    layer = Layer("Resize", attributes={"mode": r.choice(["nearest", "linear", "linear", "cubic"])}, opset=opset)
    if opset == 10:
        layer.kind, layer.opset = r.choice([("Resize", 10), ("Upsample", 9)])
        layer.attributes["mode"] = r.choice(["nearest", "linear"])
    # Any numbers at all, for interpolation must be the same to the last bit.
    layer.give(np.random.default_rng(r.randrange(1 << 30)).normal(size=shape).astype(np.float32))
    allowed = [one for one in SCALES if one >= 1] if layer.kind == "Upsample" else SCALES
    scales = [1.0, 1.0, r.choice(allowed), r.choice(allowed)]
    if opset == 10:
        layer.state(np.array(scales, np.float32))
        return layer
    modes = ["half_pixel", "half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners"]
    more = {11: ["tf_half_pixel_for_nn"], 19: ["half_pixel_symmetric"]}
    layer.attributes["coordinate_transformation_mode"] = r.choice(modes + more.get(opset, []))
    layer.attributes["nearest_mode"] = r.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    absent = np.zeros(0, np.float32)
    layer.state(absent) if opset == 11 else layer.skip()
    if layer.attributes["coordinate_transformation_mode"] == "align_corners" and r.random() < 0.8:
        # Elements between the ends meet.
        layer.state(absent) if opset == 11 else layer.skip()
        layer.state(np.array([*shape[:2], *(met_at_ends(r, n) for n in shape[2:])], np.int64))
    elif r.random() < 0.5:
        layer.state(np.array(scales, np.float32))
    else:
        layer.state(absent) if opset == 11 else layer.skip()
        sizes = [max(1, round(n * s)) for n, s in zip(shape, scales, strict=True)]
        if opset == 19:
            layer.attributes["axes"], sizes = [2, 3], sizes[2:]
        layer.state(np.array(sizes, np.int64))
    return layer


def depth_to_space(r: R) -> Layer:
    size = r.randint(1, 3)
    if r.random() < 0.3:
        layer = Layer("SpaceToDepth", attributes={"blocksize": size})
        layer.give(whole_numbers(r, (r.randint(1, 2), r.randint(1, 4), size * r.randint(1, 4), size * r.randint(1, 4))))
        return layer
    layer = Layer("DepthToSpace", attributes={"blocksize": size, "mode": r.choice(["DCR", "CRD"])})
    layer.give(whole_numbers(r, (r.randint(1, 2), size * size * r.randint(1, 4), r.randint(1, 5), r.randint(1, 5))))
    return layer


def transpose(r: R) -> Layer:
    rank = r.randint(1, 4)
    layer = Layer("Transpose")
    if r.random() < 0.8:
        layer.attributes["perm"] = r.sample(range(rank), rank)
    layer.give(whole_numbers(r, shape_of(r, rank, 1, 6)))
    return layer


def reshape(r: R) -> Layer:
    a, b, c, d = (r.choice([1, 2, 3, 4, 6]) for _ in range(4))
    given = r.choice([(a, b, c, d), (a, b * c, d), (a * b, c, d), (a, b, c * d), (a * b * c, d)])
    if r.random() < 0.2:
        layer = Layer("Flatten", attributes={"axis": r.randint(0, len(given))})
        layer.give(whole_numbers(r, given))
        return layer
    made = r.choice([(a, b, c, d), (a, b * c, d), (a * b, c, d), (a, 1, b, c * d), (a * b * c, d), (a * b * c * d,)])
    layer = Layer("Reshape")
    layer.give(whole_numbers(r, given))
    layer.state(np.array(made, np.int64))
    return layer


def slice_(r: R) -> Layer:
    rank = r.randint(1, 4)
    shape = shape_of(r, rank, 3, 10)
    layer = Layer("Slice")
    layer.give(whole_numbers(r, shape))
    axes = r.sample(range(rank), r.randint(1, rank))
    starts, ends, steps = [], [], []
    for axis in axes:
        low, step = r.randrange(shape[axis] - 1), r.choice([1, 1, 2, 3, -1, -2])
        high = r.randint(low + 1, shape[axis])
        if step > 0:
            starts.append(low if r.random() < 0.5 else low - shape[axis])
            ends.append(high if r.random() < 0.7 else 1 << 40)
        else:
            starts.append(high - 1 if r.random() < 0.7 else 1000)
            ends.append(low - 1 if low > 0 else -(1 << 40))
        steps.append(step)
    for values in (starts, ends, axes, steps):
        layer.state(np.array(values, np.int64))
    return layer


def expand(r: R) -> Layer:
    shape = shape_of(r, r.randint(1, 4), 1, 6)
    layer = Layer("Expand")
    layer.give(whole_numbers(r, tuple(1 if r.random() < 0.5 else size for size in shape)))
    layer.state(np.array(shape, np.int64))
    return layer


def reduce(r: R) -> Layer:
    rank = r.randint(1, 4)
    layer = Layer(r.choice(["ReduceMean", "ReduceSum", "ReduceMax"]), opset=18)
    layer.attributes["keepdims"] = r.randint(0, 1)
    layer.give(whole_numbers(r, shape_of(r, rank, 1, 6)))
    axes = r.sample(range(rank), r.randint(1, rank))
    layer.state(np.array([axis if r.random() < 0.5 else axis - rank for axis in axes], np.int64))
    return layer


def arg_max(r: R) -> Layer:
    rank = r.randint(1, 4)
    layer = Layer(r.choice(["ArgMax", "ArgMin"]))
    layer.attributes.update(axis=r.randrange(rank), keepdims=r.randint(0, 1))
    layer.give(whole_numbers(r, shape_of(r, rank, 1, 6)))
    return layer


def normalization(r: R) -> Layer:
    layer = Layer(
        r.choice(["Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization", "LpNormalization", "LRN"]),
        exact=False,
    )
    shape = shape_of(r, 4 if layer.kind == "LRN" else 3, 2, 6)
    axis = r.randrange(-3, 3)
    layer.give(whole_numbers(r, shape))
    if layer.kind == "LayerNormalization":
        vector = shape[axis % 3 :]
        layer.state(whole_numbers(r, vector))
        layer.state(whole_numbers(r, vector))
    if layer.kind == "InstanceNormalization":
        layer.state(whole_numbers(r, shape[1:2]))
        layer.state(whole_numbers(r, shape[1:2]))
    elif layer.kind == "LRN":
        layer.attributes["size"] = 3
    elif r.random() < 0.8 or layer.kind == "LayerNormalization":
        layer.attributes["axis"] = axis
    if layer.kind in {"Softmax", "LogSoftmax"}:
        layer.opset = r.choice([10, 13])
        if layer.opset == 10 and axis < 0 and "axis" in layer.attributes:
            layer.attributes["axis"] = axis + 3
    return layer


def quantize(r: R) -> Layer:
    shape = shape_of(r, r.choice([2, 3, 4]), 1, 6)
    layer = Layer(r.choice(["QuantizeLinear", "DequantizeLinear"]))
    x = whole_numbers(r, shape)
    layer.give(x if layer.kind == "QuantizeLinear" else (x + 10).astype(np.uint8))
    if r.random() < 0.6:
        axis = r.randrange(len(shape))
        layer.attributes["axis"] = axis
        layer.state(0.25 * (1 + np.arange(shape[axis], dtype=np.float32)))
        layer.state(np.arange(shape[axis], dtype=np.uint8))
    else:
        layer.state(np.float32(0.5))
        layer.state(np.uint8(3))
    return layer


def product(r: R) -> Layer:
    m, k, n = shape_of(r, 3, 1, 7)
    if r.random() < 0.4:
        layer = Layer("Gemm", attributes={"transA": r.randint(0, 1), "transB": r.randint(0, 1)})
        layer.give(whole_numbers(r, (k, m) if layer.attributes["transA"] else (m, k)))
        second = whole_numbers(r, (n, k) if layer.attributes["transB"] else (k, n))
        layer.give(second) if r.random() < 0.3 else layer.state(second)
        if r.random() < 0.7:
            layer.state(whole_numbers(r, r.choice([(n,), (m, n), (1, n), (m, 1), ()])))
        return layer
    layer = Layer("MatMul")
    batch = shape_of(r, r.randint(0, 2), 1, 4)
    layer.give(whole_numbers(r, (*batch, m, k)))
    shorter = tuple(1 if r.random() < 0.3 else size for size in batch[r.randint(0, len(batch)) :])
    second = whole_numbers(r, (*shorter, k, n))
    layer.give(second) if r.random() < 0.5 else layer.state(second)
    return layer


def global_pool(r: R) -> Layer:
    layer = Layer(r.choice(["GlobalAveragePool", "GlobalMaxPool"]))
    layer.give(whole_numbers(r, shape_of(r, 4, 1, 6)))
    return layer


KINDS: tuple[tuple[Callable[[R], Layer], int], ...] = (
    (conv, 8),
    (qlinear_conv, 2),
    (pool, 8),
    (conv_transpose, 5),
    (pad, 3),
    (elementwise, 3),
    (where, 1),
    (unary, 1),
    (batch_normalization, 1),
    (concat, 2),
    (resize, 7),
    (depth_to_space, 2),
    (transpose, 1),
    (reshape, 3),
    (slice_, 2),
    (expand, 1),
    (reduce, 2),
    (arg_max, 1),
    (normalization, 3),
    (quantize, 1),
    (product, 2),
    (global_pool, 1),
    (gather, 2),
    (gather_nd, 2),
    (scatter_nd, 2),
    (elements, 2),
)
"""Makers of layers, each with how often it is drawn."""


def random_layer(r: R) -> Layer:
    return r.choices([maker for maker, _ in KINDS], [weight for _, weight in KINDS])[0](r)
