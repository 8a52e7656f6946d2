"""Small models with a layer computed tile by tile in a WHILE, for tests of memory plans."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from tests.formats.tflite_builder import O, Sub, T, build, int32s, options

__all__ = ["LoopModel", "looped", "random_loop"]

_SCALE = (1 / 16,)


@dataclass(frozen=True)
class LoopModel:
    """A 3 x 3 MAX_POOL_2D of X, padded, in bands of rows.

    Attributes:
        shape: Of X: height, width, channels.
        band: Rows of the output that an iteration makes; it divides their number.
        stride: Of the window.
        first: Rows of padding before the first that a window reaches.
        order: In which the bands are made; by default from the top.
        start: What makes the first value of the output: "view": a no-op on the padded input; "fill": FILL, before the
            PAD if ``early``.
        early: See ``start``.
        again: A RELU that reads the padded input once more behind the loop.
        unread: Nothing reads what the loop makes.
        twice: A second WHILE with the same bodies that begins with the same values.
        known: The number of iterations follows from constants.
        relu: A RELU in place in the body.
    """

    shape: tuple[int, int, int] = (8, 6, 4)
    band: int = 2
    stride: int = 1
    first: int = 1
    order: Sequence[int] = ()
    start: str = "view"
    early: bool = False
    again: bool = False
    unread: bool = False
    twice: bool = False
    known: bool = True
    relu: bool = True

    @property
    def height(self) -> int:
        """Rows of the output."""
        return -(-self.shape[0] // self.stride)

    @property
    def width(self) -> int:
        """Columns of the output."""
        return -(-self.shape[1] // self.stride)


def _int8(name: str, shape: Sequence[int], data: bytes | None = None) -> T:
    return T(name, shape, "INT8", data, scales=_SCALE)


def _integers(name: str, *values: int, shape: Sequence[int] | None = None) -> T:
    return T(name, (len(values),) if shape is None else shape, "INT32", int32s(*values))


def looped(one: LoopModel) -> bytes:
    """Return the file; its main graph has PAD, what makes the first output, the WHILE, and what comes behind it."""
    rows, columns, channels = one.shape
    padded = (1, one.first + (one.height - 1) * one.stride + 3, (one.width - 1) * one.stride + 3, channels)
    back = (padded[1] - one.first - rows, padded[2] - 1 - columns)
    assert min(back) >= 0, "the window reaches all of the input"
    out = (1, one.height, one.width, channels)
    order = list(one.order) or list(range(one.height // one.band))
    reads = [(0, one.first - 1 + band * one.band * one.stride, 0, 0) for band in order]
    writes = [(0, band * one.band, 0, 0) for band in order]
    tensors = [
        _int8("x", (1, *one.shape)),
        _integers("pads", 0, 0, one.first, back[0], 1, back[1], 0, 0, shape=(4, 2)),
        _int8("xp", padded),
        _integers("zero", 0),
        _int8("y0", out),
        T("i", (1,), "INT32"),
        _int8("y", out),
        _int8("xq", padded),
        *([] if one.unread else [_int8("result", out)]),
    ]
    pad = [O("PAD", [0, 1], [2], options("PadOptions"))]
    ops = [*_first_output(one, tensors, out, padded, pad)]
    count = 3
    inputs = [0]
    if not one.known:
        tensors.append(T("begin", (1,), "INT32"))
        count = len(tensors) - 1
        inputs.append(count)
    loop = options("WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2)
    ops.append(O("WHILE", [count, 4, 2], [5, 6, 7], loop))
    outputs = [] if one.unread else [8]
    ops += [O("RELU", [6], [8])] if outputs else []
    if one.again:
        tensors.append(_int8("again", padded))
        ops.append(O("RELU", [2], [len(tensors) - 1]))
        outputs.append(len(tensors) - 1)
    if one.twice:
        base = len(tensors)
        tensors += [T("i2", (1,), "INT32"), _int8("y2", out), _int8("xq2", padded), _int8("result2", out)]
        ops += [O("WHILE", [count, 4, 2], [base, base + 1, base + 2], loop), O("RELU", [base + 1], [base + 3])]
        outputs.append(base + 3)
    condition = Sub(
        [
            T("i", (1,), "INT32"),
            _int8("y", out),
            _int8("xp", padded),
            T("go", (1,), "BOOL"),
            _integers("end", 4 * len(order)),
        ],
        [O("LESS", [0, 4], [3], options("LessOptions"))],
        [0, 1, 2],
        [3],
        "condition",
    )
    return build(Sub(tensors, ops, inputs, outputs), condition, _body(one, out, padded, reads, writes))


def _first_output(one: LoopModel, tensors: list[T], out: Sequence[int], padded: Sequence[int], pad: list[O]) -> list[O]:
    if one.start == "fill":
        tensors += [_integers("dims", *out), _int8("least", (), b"\x80")]
        fill = [O("FILL", [len(tensors) - 2, len(tensors) - 1], [4], options("FillOptions"))]
        return [*fill, *pad] if one.early else [*pad, *fill]
    flat, size = (1, 1, 1, math.prod(padded)), math.prod(out)
    base = len(tensors)
    tensors += [_int8("flat", flat), _integers("flat_shape", *flat), _integers("nowhere", 0, 0, 0, 0)]
    tensors += [_integers("some", 1, 1, 1, size), _int8("part", (1, 1, 1, size)), _integers("out_shape", *out)]
    return [
        *pad,
        O("RESHAPE", [2, base + 1], [base], options("ReshapeOptions")),
        O("SLICE", [base, base + 2, base + 3], [base + 4], options("SliceOptions")),
        O("RESHAPE", [base + 4, base + 5], [4], options("ReshapeOptions")),
    ]


def _body(
    one: LoopModel,
    out: Sequence[int],
    padded: Sequence[int],
    reads: Sequence[tuple[int, ...]],
    writes: Sequence[tuple[int, ...]],
) -> Sub:
    slab = (1, (one.band - 1) * one.stride + 3, padded[2], padded[3])
    piece = (1, one.band, out[2], out[3])
    window = options("Pool2DOptions", padding=1, strideW=one.stride, strideH=one.stride, filterWidth=3, filterHeight=3)
    tensors = [
        T("i", (1,), "INT32"),
        _int8("y", out),
        _int8("xp", padded),
        _integers("reads", *(value for row in reads for value in row)),
        _integers("writes", *(value for row in writes for value in row)),
        _integers("four", 4),
        T("read", (4,), "INT32"),
        _integers("slab_shape", *slab),
        _int8("slab", slab),
        _int8("piece", piece),
        _int8("mask", (1, 1, 1, 1), b"\x7f"),
        _int8("masked", piece),
        T("write", (4,), "INT32"),
        _int8("next", out),
        T("j", (1,), "INT32"),
        _int8("active", piece),
    ]
    last = 15 if one.relu else 11
    ops = [
        O("SLICE", [3, 0, 5], [6], options("SliceOptions")),
        O("SLICE", [2, 6, 7], [8], options("SliceOptions")),
        O("MAX_POOL_2D", [8], [9], window),
        O("MINIMUM", [9, 10], [11], options("MaximumMinimumOptions")),
        *([O("RELU", [11], [15])] if one.relu else []),
        O("SLICE", [4, 0, 5], [12], options("SliceOptions")),
        O("DYNAMIC_UPDATE_SLICE", [1, last, 12], [13], options("DynamicUpdateSliceOptions")),
        O("ADD", [0, 5], [14], options("AddOptions")),
    ]
    return Sub(tensors[: len(tensors) - (not one.relu)], ops, [0, 1, 2], [14, 13, 2], "body")


def random_loop(seed: int) -> LoopModel:
    """Return a small loop whose bands come in any order."""
    generator = random.Random(seed)
    stride = generator.choice([1, 1, 2])
    rows = generator.choice([4, 6, 8])
    height = -(-rows // stride)
    band = generator.choice([size for size in (1, 2, 3) if height % size == 0])
    order = list(range(height // band))
    generator.choice([lambda _: None, lambda some: some.reverse(), generator.shuffle])(order)
    return LoopModel(
        shape=(rows, generator.choice([4, 6, 14]), generator.choice([4, 8, 16])),
        band=band,
        stride=stride,
        first=generator.choice([1, 1, 2, 4]),
        order=order,
        start=generator.choice(["view", "view", "fill"]),
        early=generator.random() < 0.5,
        again=generator.random() < 0.2,
        twice=generator.random() < 0.2,
        known=generator.random() < 0.9,
        relu=generator.random() < 0.5,
    )
