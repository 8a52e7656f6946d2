"""Random single TFLite layers, whole and as pieces, judged in LiteRT like `onnx_pieces` does in ONNX Runtime."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from memsched.formats.module import LoadOptions
from memsched.formats.tflite import reader
from memsched.graph.model import Op, Region
from memsched.ops.ranges import PieceNeeds
from memsched.ops.rules import Refusal
from memsched.ops.windows import same_padding
from tests.formats.tflite_builder import O, Sub, T, build, options
from tests.rewrites.tile.onnx_layer import shape_of, whole_numbers
from tests.rewrites.tile.onnx_layers import met_at_ends
from tests.rewrites.tile.onnx_pieces import Verdict, deduced, random_region

Array = Any
R = random.Random


@dataclass
class Layer:
    """An operator: its operands in order, each an activation (True) or a constant, and the shape of its output."""

    kind: str
    operands: list[tuple[bool, Array]]
    output: tuple[int, ...]
    table: str
    options: dict[str, Any] = field(default_factory=dict)


def ints(*values: int) -> Array:
    return np.array(values, np.int32)


def _length(length: int, kernel: int, stride: int, dilation: int, padding: int) -> int:
    return -(-length // stride) if padding == 0 else (length - (kernel - 1) * dilation - 1) // stride + 1


def _strides(padding: int, strides: tuple[int, ...]) -> dict[str, Any]:
    return {"padding": padding, "strideH": strides[0], "strideW": strides[1]}


def conv(r: R) -> Layer:
    depthwise = r.random() < 0.5
    kernel, strides = shape_of(r, 2, 1, 4), shape_of(r, 2, 1, 3)
    dilations = shape_of(r, 2, 1, 2) if strides == (1, 1) else (1, 1)
    lengths = [r.randint((k - 1) * d + 1, 12) for k, d in zip(kernel, dilations, strict=True)]
    padding, batch, channels = r.randint(0, 1), r.randint(1, 2), r.randint(1, 4)
    made = [_length(lengths[i], kernel[i], strides[i], dilations[i], padding) for i in range(2)]
    stated = {
        **_strides(padding, strides),
        "dilationHFactor": dilations[0],
        "dilationWFactor": dilations[1],
    }
    if depthwise:
        multiplier = r.randint(1, 3)
        outputs, weights = channels * multiplier, (1, *kernel, channels * multiplier)
        stated["depthMultiplier"] = multiplier
    else:
        groups = r.choice([1, 1, 2])
        outputs = groups * r.randint(1, 3)
        weights = (outputs, *kernel, channels)
        channels *= groups
    operands = [
        (True, whole_numbers(r, (batch, *lengths, channels))),
        (False, whole_numbers(r, weights)),
        (False, whole_numbers(r, (outputs,))),
    ]
    kind = "DEPTHWISE_CONV_2D" if depthwise else "CONV_2D"
    table = "DepthwiseConv2DOptions" if depthwise else "Conv2DOptions"
    return Layer(kind, operands, (batch, *made, outputs), table, stated)


def pool(r: R) -> Layer:
    kernel, strides, padding = shape_of(r, 2, 1, 4), shape_of(r, 2, 1, 3), r.randint(0, 1)
    shape = (r.randint(1, 2), *(r.randint(k, 12) for k in kernel), r.randint(1, 3))
    made = [_length(shape[i + 1], kernel[i], strides[i], 1, padding) for i in range(2)]
    stated = {**_strides(padding, strides), "filterHeight": kernel[0], "filterWidth": kernel[1]}
    kind = r.choice(["MAX_POOL_2D", "AVERAGE_POOL_2D"])
    return Layer(kind, [(True, whole_numbers(r, shape))], (shape[0], *made, shape[3]), "Pool2DOptions", stated)


def transpose_conv(r: R) -> Layer:
    kernel, strides, padding = shape_of(r, 2, 1, 4), shape_of(r, 2, 1, 3), r.randint(0, 1)
    lengths = shape_of(r, 2, 2, 6)
    made = []
    for i in range(2):
        low = (lengths[i] - 1) * strides[i] + (1 if padding == 0 else kernel[i])
        made.append(r.randint(low, low + strides[i] - 1) if padding == 0 or strides[i] > 1 else low)
    channels, outputs = r.randint(1, 3), r.randint(1, 3)
    output = (1, *made, outputs)
    operands = [
        (False, ints(*output)),
        (False, whole_numbers(r, (outputs, *kernel, channels))),
        (True, whole_numbers(r, (1, *lengths, channels))),
    ]
    stated = _strides(padding, strides)
    return Layer("TRANSPOSE_CONV", operands, output, "TransposeConvOptions", stated)


def pad(r: R) -> Layer:
    shape = shape_of(r, 4, 4, 6)
    pads = np.array([[r.randint(0, 2) for _ in range(2)] for _ in shape], np.int32)
    output = tuple(int(size + sum(pair)) for size, pair in zip(shape, pads, strict=True))
    operands = [(True, whole_numbers(r, shape)), (False, pads)]
    kind = r.choice(["PAD", "PADV2", "MIRROR_PAD"])
    if kind == "PADV2":
        operands.append((False, np.array([5], np.float32)))
    table = {"PAD": "PadOptions", "PADV2": "PadV2Options", "MIRROR_PAD": "MirrorPadOptions"}[kind]
    return Layer(kind, operands, output, table, {"mode": r.randint(0, 1)} if kind == "MIRROR_PAD" else {})


def resize(r: R) -> Layer:
    shape = (1, r.randint(2, 7), r.randint(2, 7), r.randint(1, 3))
    made = tuple(max(1, int(size * r.choice([0.5, 1, 2, 2, 3, 4, 1.5]))) for size in shape[1:3])
    kind = r.choice(["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
    table = "ResizeBilinearOptions" if kind == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    style = r.choice([{}, {"alignCorners": True}, {"halfPixelCenters": True}, {"halfPixelCenters": True}])
    if "alignCorners" in style and r.random() < 0.8:
        made = tuple(met_at_ends(r, size) for size in shape[1:3])
    data = np.random.default_rng(r.randrange(1 << 30)).normal(size=shape).astype(np.float32)
    return Layer(kind, [(True, data), (False, ints(*made))], (1, *made, shape[3]), table, style)


def elementwise(r: R) -> Layer:
    kind, table = r.choice([("ADD", "AddOptions"), ("MUL", "MulOptions"), ("MAXIMUM", "MaximumMinimumOptions")])
    shape = shape_of(r, 4, 1, 6)
    other = shape if r.random() < 0.5 else tuple(1 if r.random() < 0.5 else size for size in shape)
    return Layer(kind, [(True, whole_numbers(r, shape)), (r.random() < 0.5, whole_numbers(r, other))], shape, table)


def concat(r: R) -> Layer:
    shape, axis = list(shape_of(r, 4, 1, 5)), r.randrange(4)
    operands, total = [], 0
    for number in range(3):
        shape[axis] = r.randint(1, 4)
        total += shape[axis]
        operands.append((number == 0 or r.random() < 0.7, whole_numbers(r, tuple(shape))))
    shape[axis] = total
    return Layer("CONCATENATION", operands, tuple(shape), "ConcatenationOptions", {"axis": r.choice([axis, axis - 4])})


def mean(r: R) -> Layer:
    shape, keep = shape_of(r, 4, 1, 5), r.random() < 0.5
    axes = sorted(r.sample(range(4), r.randint(1, 3)))
    made = tuple(1 if axis in axes else size for axis, size in enumerate(shape) if keep or axis not in axes)
    kind = r.choice(["MEAN", "SUM", "REDUCE_MAX"])
    return Layer(
        kind, [(True, whole_numbers(r, shape)), (False, ints(*axes))], made, "ReducerOptions", {"keepDims": keep}
    )


def blocks(r: R) -> Layer:
    size, (height, width, channels) = 2, shape_of(r, 3, 1, 4)
    narrow, wide = (1, height * size, width * size, channels), (1, height, width, channels * size * size)
    if r.random() < 0.5:
        return Layer(
            "DEPTH_TO_SPACE", [(True, whole_numbers(r, wide))], narrow, "DepthToSpaceOptions", {"blockSize": 2}
        )
    return Layer("SPACE_TO_DEPTH", [(True, whole_numbers(r, narrow))], wide, "SpaceToDepthOptions", {"blockSize": 2})


def slice_(r: R) -> Layer:
    shape = shape_of(r, 4, 2, 8)
    begins = [r.randrange(size - 1) for size in shape]
    if r.random() < 0.5:
        made = tuple(r.randint(1, size - begin) for size, begin in zip(shape, begins, strict=True))
        operands = [(True, whole_numbers(r, shape)), (False, ints(*begins)), (False, ints(*made))]
        return Layer("SLICE", operands, made, "SliceOptions")
    ends = [r.randint(begin + 1, size) for size, begin in zip(shape, begins, strict=True)]
    steps = [r.randint(1, 3) for _ in shape]
    made = tuple(-(-(end - begin) // step) for begin, end, step in zip(begins, ends, steps, strict=True))
    operands = [(True, whole_numbers(r, shape)), *((False, ints(*values)) for values in (begins, ends, steps))]
    return Layer("STRIDED_SLICE", operands, made, "StridedSliceOptions")


def others(r: R) -> Layer:
    shape = shape_of(r, 4, 1, 5)
    data = (True, whole_numbers(r, shape))
    kind = r.choice(["RELU", "SOFTMAX", "TRANSPOSE", "RESHAPE", "FULLY_CONNECTED", "PRELU"])
    if kind == "TRANSPOSE":
        perm = r.sample(range(4), 4)
        return Layer(kind, [data, (False, ints(*perm))], tuple(shape[axis] for axis in perm), "TransposeOptions")
    if kind == "RESHAPE":
        made = (shape[0] * shape[1], shape[2], shape[3])
        return Layer(kind, [data, (False, ints(*made))], made, "ReshapeOptions", {"newShape": list(made)})
    if kind == "FULLY_CONNECTED":
        weights = whole_numbers(r, (3, shape[3]))
        return Layer(kind, [data, (False, weights)], (*shape[:3], 3), "FullyConnectedOptions", {"keepNumDims": True})
    if kind == "PRELU":
        return Layer(kind, [data, (False, whole_numbers(r, (1, 1, shape[3])))], shape, "")
    return Layer(kind, [data], shape, "SoftmaxOptions" if kind == "SOFTMAX" else "", {})


def gather(r: R) -> Layer:
    """GATHER with and without shared axes, GATHER_ND."""
    shape = shape_of(r, r.randint(1, 4), 1, 5)
    seed = np.random.default_rng(r.randrange(1 << 30))
    if r.random() < 0.4:
        depth, outer = r.randint(1, len(shape)), shape_of(r, r.randint(1, 2), 1, 3)
        columns = [seed.integers(0, size, outer) for size in shape[:depth]]
        places = np.stack(columns, -1).astype(np.int32)
        return Layer(
            "GATHER_ND", _drawn(r, whole_numbers(r, shape), places), (*outer, *shape[depth:]), "GatherNdOptions"
        )
    axis = r.randrange(len(shape))
    shared = r.randint(0, axis)
    more = shape_of(r, r.randint(1, 2), 1, 4)
    numbers = seed.integers(0, shape[axis], (*shape[:shared], *more)).astype(np.int32)
    made = (*shape[:axis], *more, *shape[axis + 1 :])
    stated = {"axis": axis, "batchDims": shared}
    return Layer("GATHER", _drawn(r, whole_numbers(r, shape), numbers), made, "GatherOptions", stated)


def _drawn(r: R, *arrays: Array) -> list[tuple[bool, Array]]:
    """Return operands, each an activation or a constant, one an activation at the least."""
    one = r.randrange(len(arrays))
    return [(at == one or r.random() < 0.5, array) for at, array in enumerate(arrays)]


KINDS: tuple[tuple[Callable[[R], Layer], int], ...] = (
    (conv, 6), (pool, 4), (transpose_conv, 3), (pad, 2), (resize, 4), (elementwise, 2), (concat, 2), (mean, 2),
    (blocks, 1), (slice_, 2), (others, 3), (gather, 2),
)  # fmt: skip


def judge(seed: int, count: int, pieces: int = 3, layers: Sequence[Layer] | None = None) -> Verdict:
    """Judge ``count`` random layers, or those given, with ``pieces`` random regions each."""
    r = random.Random(seed)
    makers, weights = [maker for maker, _ in KINDS], [weight for _, weight in KINDS]
    if layers is None:
        layers = [r.choices(makers, weights)[0](r) for _ in range(count)]
    data, results = _run(layers)
    graph = reader.read(data, "whole.tflite", LoadOptions()).graphs[0]
    assert len(graph.ops) == len(layers)
    verdict, parts = Verdict(layers=len(layers)), []
    expected: list[tuple[Layer, Array, PieceNeeds, Region]] = []
    for number, (layer, result) in enumerate(zip(layers, results, strict=True)):
        verdict.kinds[layer.kind] += 1
        for _ in range(pieces):
            region = random_region(r, result.shape)
            found = deduced(graph, number, region)
            verdict.pieces += 1
            piece = None if isinstance(found, Refusal) else _piece(layer, graph.ops[number], found, region)
            if isinstance(found, Refusal) or piece is None:
                why = found.code if isinstance(found, Refusal) else "other-pads"
                verdict.refused += 1
                verdict.reasons[f"{layer.kind}: {why}"] += 1
                continue
            parts.append(piece)
            expected.append((layer, result[tuple(slice(*pair) for pair in region.ranges)], found, region))
    for value, (layer, wanted, found, region) in zip(_run(parts)[1] if parts else (), expected, strict=True):
        drop = found.crop if layer.kind != "TRANSPOSE_CONV" else (*found.inputs[0].pads[:3], (0, 0))
        part = value[tuple(slice(low, size - high) for size, (low, high) in zip(value.shape, drop, strict=True))]
        same = part.shape == wanted.shape and (
            np.array_equal(part, wanted) if layer.kind != "SOFTMAX" else np.allclose(part, wanted, 1e-5, 1e-6)
        )
        verdict.equal += same
        if not same:
            shapes = [array.shape for _, array in layer.operands]
            verdict.failures.append(f"{layer.kind} {layer.options} {shapes} {layer.output} {region} -> {found}")
    return verdict


def _piece(layer: Layer, op: Op, needed: PieceNeeds, region: Region) -> Layer | None:
    """Return the layer of a piece; its own pads are laid around its input, where zeros or lowest values do."""
    entries = dict(zip(op.positions, needed.inputs, strict=True))
    operands: list[tuple[bool, Array]] = []
    stated = dict(layer.options)
    computed = [stop - start for start, stop in needed.computed(region).ranges]
    for position, (activation, given) in enumerate(layer.operands):
        array = given
        if not activation:
            if "PAD" in layer.kind and position == 1:
                array = np.array(needed.inputs[0].pads, np.int32)
            for one in needed.weights:
                if one.position == position:
                    array = np.take(array, range(one.start, one.stop), one.axis)
            if array.size:
                operands.append((False, array))
            continue
        entry = entries[position]
        if entry.region is None:
            continue
        array = array[tuple(slice(*pair) for pair in entry.region.ranges)]
        if layer.kind in {"CONV_2D", "DEPTHWISE_CONV_2D", "MAX_POOL_2D"}:
            array = np.pad(array, entry.pads, constant_values=-1e9 if "POOL" in layer.kind else 0)
            stated["padding"] = 1
        elif layer.kind == "AVERAGE_POOL_2D" and not _same_fits(array, entry.pads, stated):
            return None
        elif layer.kind == "TRANSPOSE_CONV":
            spatial = zip(computed[1:3], entry.pads[1:3], strict=True)
            computed[1:3] = [size + low + high for size, (low, high) in spatial]
            stated["padding"] = 1
        operands.append((True, array))
    _restate(layer, operands, computed, needed, stated)
    return Layer(layer.kind, operands, tuple(computed), layer.table, stated)


def _same_fits(array: Array, pads: Sequence[tuple[int, int]], stated: dict[str, Any]) -> bool:
    """Whether VALID or SAME means just these pads for the piece."""
    if not any(sum(pair) for pair in pads):
        stated["padding"] = 1
        return True
    stated["padding"] = 0
    both = ((1, "filterHeight", "strideH"), (2, "filterWidth", "strideW"))
    return all(same_padding(array.shape[i], stated[k], stated[s]) == pads[i] for i, k, s in both)


def _restate(
    layer: Layer, operands: list[tuple[bool, Array]], computed: list[int], needed: PieceNeeds, stated: dict[str, Any]
) -> None:
    if layer.kind.startswith("RESIZE"):
        operands[1] = (False, ints(*computed[1:3]))
    elif layer.kind == "TRANSPOSE_CONV":
        operands[0] = (False, ints(*computed))
    elif layer.kind == "RESHAPE":
        operands[1] = (False, ints(*computed))
        stated["newShape"] = computed
    elif layer.kind in {"SLICE", "STRIDED_SLICE"}:
        names = ("begin", "size") if layer.kind == "SLICE" else ("begin", "end", "steps")
        operands[1:] = [(False, np.array(needed.attributes[name], np.int32)) for name in names]
        if layer.kind == "STRIDED_SLICE":
            stated["endMask"] = needed.attributes["end_mask"]


def model_of_layers(layers: Sequence[Layer]) -> bytes:
    """Return the model of these layers side by side."""
    return _model(layers)[0]


def _model(layers: Sequence[Layer]) -> tuple[bytes, dict[str, Array], list[str]]:
    """Return the model, what it is given by name, and the names of its outputs."""
    tensors: list[T] = []
    feeds: dict[int, Array] = {}
    ops: list[O] = []
    outputs: list[int] = []
    for number, layer in enumerate(layers):
        read = []
        for position, (activation, array) in enumerate(layer.operands):
            read.append(len(tensors))
            dtype = "INT32" if array.dtype == np.int32 else "FLOAT32"
            data = None if activation else np.ascontiguousarray(array).tobytes()
            tensors.append(T(f"t{number}_{position}", array.shape, dtype, data))
            if activation:
                feeds[read[-1]] = array
        outputs.append(len(tensors))
        tensors.append(T(f"y{number}", layer.output))
        ops.append(O(layer.kind, read, [outputs[-1]], options(layer.table, **layer.options) if layer.table else None))
    given = {tensors[tensor].name: array for tensor, array in feeds.items()}
    return build(Sub(tensors, ops, list(feeds), outputs)), given, [tensors[tensor].name for tensor in outputs]


def _run(layers: Sequence[Layer]) -> tuple[bytes, list[Array]]:
    """Return the model of these layers side by side, and their results."""
    data, feeds, outputs = _model(layers)
    interpreter = Interpreter(
        model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    interpreter.allocate_tensors()
    details = {one["name"]: one["index"] for one in interpreter.get_input_details()}
    for name, array in feeds.items():
        interpreter.set_tensor(details[name], array)
    interpreter.invoke()
    made = {one["name"]: one["index"] for one in interpreter.get_output_details()}
    return data, [interpreter.get_tensor(made[name]) for name in outputs]
