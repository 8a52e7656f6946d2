"""Random convolutional networks in both formats: strides, every padding, pools, residual sums and branches."""

from __future__ import annotations

import random
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import numpy as np
from onnx import helper, numpy_helper

from tests.formats.tflite_builder import O, Sub, T, build, int32s, options
from tests.small_models import floats, model_of


def onnx_net(seed: int, layers: int = 7) -> bytes:  # noqa: PLR0915
    """x (1, 3, height, width) -> a few layers -> y."""
    pick = random.Random(seed)
    values = np.random.default_rng(seed)
    channels, height, width = 3, pick.randint(12, 24), pick.randint(9, 16)
    inputs = [floats("x", [1, channels, height, width])]
    nodes: list[Any] = []
    weights: list[Any] = []
    current, shape = "x", (channels, height, width)
    for layer in range(layers):
        made = f"t{layer}"
        kind = pick.choice(
            ["conv", "conv", "depthwise", "pool", "relu", "residual", "branches", "bias", "auto", "up", "pad"]
        )
        channels, height, width = shape
        if kind in {"conv", "depthwise", "auto"}:
            group = channels if kind == "depthwise" else 1
            out = channels if kind == "depthwise" else pick.choice([2, 4, 6])
            kernel, dilation = [pick.choice([1, 2, 3, 5]), pick.choice([1, 3])], [1, 1]
            stride = [pick.choice([1, 1, 2]), pick.choice([1, 2])]
            attributes: dict[str, Any] = {"pads": [pick.randint(0, 2) for _ in range(4)]}
            if kind == "auto":
                attributes = {"auto_pad": pick.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])}
            elif pick.random() < 0.3:
                dilation = [2, 1]
            spatial = _windowed((height, width), kernel, stride, dilation, attributes)
            if min(spatial) < 4:
                continue
            weight = values.normal(size=(out, channels // group, *kernel)).astype(np.float32) / 4
            weights.append(numpy_helper.from_array(weight, f"w{layer}"))
            nodes.append(
                helper.make_node(
                    "Conv", [current, f"w{layer}"], [made], made,
                    kernel_shape=kernel, strides=stride, dilations=dilation, group=group, **attributes,
                )
            )  # fmt: skip
            shape = (out, *spatial)
        elif kind == "pool":
            mode = pick.choice(["MaxPool", "AveragePool"])
            attributes = {"pads": [pick.randint(0, 1) for _ in range(4)]}
            stride = [pick.choice([1, 2]), 1]
            spatial = _windowed((height, width), [3, 2], stride, [1, 1], attributes)
            if min(spatial) < 4:
                continue
            nodes.append(
                helper.make_node(mode, [current], [made], made, kernel_shape=[3, 2], strides=stride, **attributes)
            )
            shape = (channels, *spatial)
        elif kind == "up":
            kernel, stride, extra = pick.choice([([2, 2], [2, 1], [0, 0]), ([3, 3], [2, 2], [1, 0])])
            if height > 30:
                continue
            weight = values.normal(size=(channels, 2, *kernel)).astype(np.float32) / 4
            weights.append(numpy_helper.from_array(weight, f"w{layer}"))
            pads = [pick.randint(0, 1) for _ in range(4)]
            nodes.append(
                helper.make_node(
                    "ConvTranspose", [current, f"w{layer}"], [made], made,
                    kernel_shape=kernel, strides=stride, output_padding=extra, pads=pads,
                )
            )  # fmt: skip
            sizes = zip((height, width), kernel, stride, extra, pads[:2], pads[2:], strict=True)
            shape = (2, *(step * (size - 1) + k + more - a - b for size, k, step, more, a, b in sizes))
        elif kind == "shuffle":
            if channels % 2:
                continue
            folded, whole = (1, 2, channels // 2, height, width), (1, channels, height, width)
            weights += [numpy_helper.from_array(np.array(to), f"{n}{layer}") for n, to in (("f", folded), ("w", whole))]
            nodes.append(helper.make_node("Reshape", [current, f"f{layer}"], [f"{made}.f"], f"{made}.f"))
            nodes.append(helper.make_node("Transpose", [f"{made}.f"], [f"{made}.t"], f"{made}.t", perm=[0, 2, 1, 3, 4]))
            nodes.append(helper.make_node("Reshape", [f"{made}.t", f"w{layer}"], [made], made))
        elif kind == "pad":
            pads = [0, 0, *(pick.randint(0, 2) for _ in range(2)), 0, 0, *(pick.randint(0, 2) for _ in range(2))]
            weights.append(numpy_helper.from_array(np.array(pads, np.int64), f"w{layer}"))
            mode = pick.choice(["constant", "reflect", "edge"])
            nodes.append(helper.make_node("Pad", [current, f"w{layer}"], [made], made, mode=mode))
            shape = (channels, height + pads[2] + pads[6], width + pads[3] + pads[7])
        elif kind == "relu":
            nodes.append(helper.make_node(pick.choice(["Relu", "Sigmoid"]), [current], [made], made))
        elif kind == "bias":
            weights.append(numpy_helper.from_array(values.normal(size=(1, 1, height, 1)).astype("f"), f"w{layer}"))
            nodes.append(helper.make_node("Add", [current, f"w{layer}"], [made], made))
        else:
            weight = values.normal(size=(channels, channels, 3, 3)).astype(np.float32) / 4
            weights.append(numpy_helper.from_array(weight, f"w{layer}"))
            join = "Add" if kind == "residual" else "Concat"
            axis: dict[str, Any] = {} if kind == "residual" else {"axis": 1}
            nodes.append(
                helper.make_node(
                    "Conv", [current, f"w{layer}"], [f"{made}.inner"], f"{made}.inner",
                    kernel_shape=[3, 3], pads=[1, 1, 1, 1],
                )
            )  # fmt: skip
            nodes.append(helper.make_node(join, [f"{made}.inner", current], [made], made, **axis))
            shape = (channels * (1 if kind == "residual" else 2), height, width)
        current = made
    nodes.append(helper.make_node("Tanh", [current], ["y"], "y"))
    return model_of(nodes, inputs, [floats("y", [1, *shape])], weights)


def u_net() -> bytes:
    """x (1, 3, 32, 12) -> two levels down, two up, each joined with its skip -> y."""
    values = np.random.default_rng(0)
    nodes: list[Any] = []
    weights: list[Any] = []

    def conv(name: str, given: str, shape: tuple[int, ...], kind: str = "Conv", **attributes: Any) -> str:
        weights.append(numpy_helper.from_array(values.normal(size=shape).astype(np.float32) / 4, f"{name}.w"))
        nodes.append(helper.make_node(kind, [given, f"{name}.w"], [name], name, **attributes))
        return name

    def join(name: str, *given: str) -> str:
        nodes.append(helper.make_node("Concat", given, [name], name, axis=1))
        return name

    top = conv("a", "x", (4, 3, 3, 3), pads=[1] * 4)
    middle = conv("b", top, (4, 4, 3, 3), pads=[1] * 4, strides=[2, 2])
    deep = conv("d", conv("c", middle, (4, 4, 3, 3), pads=[1] * 4, strides=[2, 2]), (4, 4, 3, 3), pads=[1] * 4)
    up = conv("e", deep, (4, 4, 2, 2), "ConvTranspose", strides=[2, 2])
    up = conv("f", join("j", middle, up), (4, 8, 3, 3), pads=[1] * 4)
    up = conv("g", up, (4, 4, 2, 2), "ConvTranspose", strides=[2, 2])
    conv("y", join("k", top, up), (2, 8, 3, 3), pads=[1] * 4)
    return model_of(nodes, [floats("x", [1, 3, 32, 12])], [floats("y", [1, 2, 32, 12])], weights)


def _windowed(
    sizes: tuple[int, int], kernel: list[int], stride: list[int], dilation: list[int], attributes: dict[str, Any]
) -> tuple[int, int]:
    found = []
    for axis in range(2):
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        auto = attributes.get("auto_pad")
        if auto in {"SAME_UPPER", "SAME_LOWER"}:
            found.append(-(-sizes[axis] // stride[axis]))
            continue
        pads = attributes.get("pads", [0] * 4)
        found.append((sizes[axis] + pads[axis] + pads[axis + 2] - reach) // stride[axis] + 1)
    return found[0], found[1]


def tflite_net(seed: int, layers: int = 7) -> bytes:  # noqa: PLR0915
    """x (1, height, width, 3) -> a few layers -> the last tensor, in float32."""
    pick = random.Random(seed)
    values = np.random.default_rng(seed)
    shape = (pick.randint(12, 24), pick.randint(9, 16), 3)
    tensors, ops = [T("x", (1, *shape))], []
    current = 0

    def add(tensor: T) -> int:
        tensors.append(tensor)
        return len(tensors) - 1

    def constant(*dims: int) -> int:
        data: bytes = (values.normal(size=dims) / 4).astype("<f4").tobytes()
        return add(T(f"w{len(tensors)}", dims, data=data))

    for _ in range(layers):
        height, width, channels = shape
        kind = pick.choice(
            ["conv", "conv", "depthwise", "depthwise", "pool", "relu", "residual", "branches", "pad", "crop"]
        )
        padding = pick.choice([0, 0, 1])
        stride = (pick.choice([1, 1, 2]), pick.choice([1, 2]))
        kernel = (pick.choice([1, 2, 3, 5]), pick.choice([1, 3]))
        if kind == "pool":
            kernel = (3, 2)
        spatial = [
            -(-size // s) if padding == 0 else (size - k) // s + 1
            for size, k, s in zip((height, width), kernel, stride, strict=True)
        ]
        if kind in {"conv", "depthwise", "pool"} and min(spatial) < 4:
            continue
        window = {"padding": padding, "strideH": stride[0], "strideW": stride[1]}
        if kind == "conv":
            out = pick.choice([2, 4, 6])
            made = add(T(f"t{len(tensors)}", (1, *spatial, out)))
            table = options("Conv2DOptions", **window, dilationHFactor=1, dilationWFactor=1)
            ops.append(O("CONV_2D", [current, constant(out, *kernel, channels), constant(out)], [made], table))
        elif kind == "depthwise":
            out = channels
            made = add(T(f"t{len(tensors)}", (1, *spatial, out)))
            table = options("DepthwiseConv2DOptions", **window, depthMultiplier=1, dilationHFactor=1, dilationWFactor=1)
            ops.append(O("DEPTHWISE_CONV_2D", [current, constant(1, *kernel, out), constant(out)], [made], table))
        elif kind == "pool":
            out = channels
            made = add(T(f"t{len(tensors)}", (1, *spatial, out)))
            table = options("Pool2DOptions", **window, filterHeight=3, filterWidth=2)
            ops.append(O(pick.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"]), [current], [made], table))
        elif kind == "pad":
            spatial, out = [height + 1, width + 2], channels
            made = add(T(f"t{len(tensors)}", (1, *spatial, out)))
            amounts = add(T(f"p{len(tensors)}", (4, 2), "INT32", int32s(0, 0, 1, 0, 1, 1, 0, 0)))
            ops.append(O("PAD", [current, amounts], [made], schema.PadOptionsT()))
        elif kind == "crop":
            spatial, out = [height - 1, width - 1], channels
            if min(spatial) < 4:
                continue
            made = add(T(f"t{len(tensors)}", (1, *spatial, out)))
            ends = [
                add(T(f"c{len(tensors)}", (4,), "INT32", int32s(*values)))
                for values in ((0, 1, 0, 0), (1, height, width - 1, channels), (1, 1, 1, 1))
            ]
            table = options("StridedSliceOptions", beginMask=9, endMask=9)
            ops.append(O("STRIDED_SLICE", [current, *ends], [made], table))
        elif kind == "relu":
            spatial, out = [height, width], channels
            made = add(T(f"t{len(tensors)}", (1, *spatial, out)))
            ops.append(O("RELU", [current], [made]))
        else:
            spatial, out = [height, width], channels * (1 if kind == "residual" else 2)
            inner = add(T(f"i{len(tensors)}", (1, height, width, channels)))
            table = options("Conv2DOptions", padding=0, strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)
            weight, bias = constant(channels, 3, 3, channels), constant(channels)
            ops.append(O("CONV_2D", [current, weight, bias], [inner], table))
            made = add(T(f"t{len(tensors)}", (1, *spatial, out)))
            join = options("AddOptions") if kind == "residual" else options("ConcatenationOptions", axis=3)
            ops.append(O("ADD" if kind == "residual" else "CONCATENATION", [inner, current], [made], join))
        current, shape = made, (spatial[0], spatial[1], out)
    result = add(T("y", (1, *shape)))
    ops.append(O("TANH", [current], [result]))
    return build(Sub(tensors, ops, outputs=[result]))
