"""What layers compute, in numpy, of a piece that lies on chip; shares nothing with the sources in C."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memsched.base.errors import InternalError
from memsched.codegen.onchip.network import OnChipNetwork, Range
from memsched.graph import fixed_point
from memsched.graph.kernel import LayerKernel
from memsched.ops.rules import Resampling, Rule, Shift, Stride, WholeAxis, Window

__all__ = ["PIECE_KERNELS", "Array", "PiecePart", "PieceWords"]

Array = Any
"""An array of numpy."""


@dataclass(frozen=True, slots=True, eq=False)
class PiecePart:
    """What of a tensor lies on chip: an array (batch, rows, columns, channels), and where it begins."""

    values: Array
    rows: Range
    columns: Range
    channels: Range


@dataclass(frozen=True, slots=True, eq=False)
class PieceWords:
    """One layer of one piece: its inputs, by tensor, and rows, columns and channels of the output."""

    network: OnChipNetwork
    op: int
    kernel: LayerKernel
    parts: Mapping[int, PiecePart]
    spans: tuple[Range, Range, Range]

    @property
    def tensor(self) -> int:
        """The first input."""
        return self.network.layers[self.op].reads[0]

    @property
    def given(self) -> PiecePart:
        """What is on chip of it."""
        return self.parts[self.tensor]

    @property
    def eight(self) -> bool:
        """Whether it computes with 8 bits."""
        return self.kernel.dtype == "int8"

    def rule(self, tensor: int, axis: int, position: int | None = None) -> Rule | None:
        """Return how ``axis`` (0 batch .. 3 channels) of an input follows the output's; None where it is not known.

        Args:
            position: The operator's, where it may read the tensor several times; by default the first.
        """
        one, axes = self.network.graph.ops[self.op], self.network.maps[tensor].axes
        geometry = self.network.geometries.get(self.op)
        if geometry is None:
            return None
        maps = geometry.operands[one.positions[one.inputs.index(tensor)] if position is None else position]
        if axes:
            return maps[axes[axis]].rule
        return maps[-1].rule if axis == 3 and maps else None

    def number(self, name: str) -> int:
        """Return a number of the kernel's, an integer."""
        return int(self.kernel.numbers[name])

    def clamped(self, values: Array) -> Array:
        """Return values within the activation's range."""
        import numpy as np

        numbers = self.kernel.numbers
        if self.eight:
            return np.clip(values, numbers["least"], numbers["most"]).astype(np.int8)
        return np.clip(values, np.float32(numbers["low"]), np.float32(numbers["high"]))


def _taps(words: PieceWords, axis: int, kernel: int) -> list[tuple[Array, Array]]:
    """Return per tap of a window along rows (0) or columns (1) the places that it reads, and which are in the input."""
    import numpy as np

    rule = words.rule(words.tensor, axis + 1)
    stride, dilation, pad = 1, 1, 0
    if isinstance(rule, Window):
        stride, dilation, pad = rule.stride, rule.dilation, rule.pad_before
    elif isinstance(rule, WholeAxis):
        stride = kernel
    start, stop = words.spans[axis]
    begin, end = words.given.columns if axis else words.given.rows
    length = words.network.maps[words.tensor].length(axis)
    found = []
    for tap in range(kernel):
        places = np.arange(start, stop) * stride - pad + tap * dilation
        inside = (places >= 0) & (places < length)
        if bool(np.any(inside & ((places < begin) | (places >= end)))):
            raise InternalError(f"'{words.network.layers[words.op].name}' reads what is not on chip", code="not-held")
        found.append((np.where(inside, places - begin, 0), inside))
    return found


def _windows(words: PieceWords, kernel: tuple[int, int], values: Array) -> list[tuple[int, int, Array, Array]]:
    """Return per tap its place, the values there (batch, rows, columns, channels), and which are inside."""
    rows, columns = (_taps(words, axis, kernel[axis]) for axis in (0, 1))
    return [
        (y, x, values[:, at][:, :, across], down[:, None] & along[None, :])
        for y, (at, down) in enumerate(rows)
        for x, (across, along) in enumerate(columns)
    ]


def _rescaled(values: Array, by: Array, shift: Array) -> Array:
    """Return values * by * 2 ** (shift - 31), rounded twice, halves away from zero."""
    import numpy as np

    by, shift = np.asarray(by, np.int64), np.asarray(shift, np.int64)
    products = (values.astype(np.int64) << np.maximum(shift, 0)) * by
    nudged = products + np.where(products >= 0, 1 << 30, 1 - (1 << 30))
    high = np.where(nudged >= 0, nudged >> 31, -((-nudged) >> 31))
    right = np.maximum(-shift, 0)
    mask = (np.int64(1) << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


def _conv(words: PieceWords) -> Array:
    import numpy as np

    weights = words.kernel.constants[0]
    given, number = words.given, words.kernel.numbers
    values = given.values.astype(np.int64 if words.eight else np.float32)
    values = values - words.number("input_zero") if words.eight else values
    first, last = words.spans[2]
    whole = words.network.maps[words.tensor]
    if weights.shape[3] * int(number["groups"]) != whole.channels:
        # A matrix takes all values of a map in the order of the file.
        weights = weights.reshape(len(weights), whole.rows, whole.columns, whole.channels)
    elif words.kernel.permutes:
        values = _in_the_file_s_order(words, values)
    kernel = weights.shape[1:3]
    each, made = weights.shape[3], len(weights) // int(number["groups"])
    rows, columns = (stop - start for start, stop in words.spans[:2])
    total = np.zeros((len(values), rows, columns, last - first), values.dtype)
    for y, x, read, inside in _windows(words, (kernel[0], kernel[1]), values):
        taken = np.where(inside[None, :, :, None], read, 0)
        for group in range(first // made, -(-last // made)):
            low, high = max(first, group * made), min(last, (group + 1) * made)
            begin = group * each - given.channels[0]
            total[..., low - first : high - first] += taken[..., begin : begin + each] @ weights[
                low:high, y, x
            ].T.astype(values.dtype)
    if len(words.kernel.constants) > 1:
        total = total + words.kernel.constants[1][first:last]
    if not words.eight:
        return words.clamped(total)
    tables = words.kernel.tables
    spread = slice(first, last) if words.number("per_channel") else slice(None)
    scaled = _rescaled(total, tables["multipliers"][spread], tables["shifts"][spread])
    return words.clamped(scaled + words.number("output_zero"))


def _in_the_file_s_order(words: PieceWords, values: Array) -> Array:
    """Return a vector that was a map with channels last as its file, whose maps have channels first, flattens it."""
    import numpy as np

    network, tensor = words.network, words.tensor
    while not network.maps[tensor].axes and tensor in network.producer:
        layer = network.layers[network.producer[tensor]]
        if len(layer.reads) != 1 or network.maps[layer.reads[0]].size != network.maps[tensor].size:
            return values
        tensor = layer.reads[0]
    one = network.maps[tensor]
    if one.axes[1:2] != (2,):
        return values
    moved = np.transpose(values.reshape(one.rows, one.columns, one.channels), (2, 0, 1))
    return np.ascontiguousarray(moved).reshape(values.shape)


def _pool(words: PieceWords) -> Array:
    import numpy as np

    kernel = []
    for axis in (1, 2):
        rule = words.rule(words.tensor, axis)
        whole = words.network.maps[words.tensor].length(axis - 1)
        kernel.append(rule.kernel if isinstance(rule, Window) else whole if isinstance(rule, WholeAxis) else 1)
    first, last = (at - words.given.channels[0] for at in words.spans[2])
    values = words.given.values[..., first:last].astype(np.int64 if words.eight else np.float32)
    least = -128 if words.eight else -np.inf
    average = words.kernel.word != "largest"
    total: Array = None
    count: Array = 0
    for _, _, taken, inside in _windows(words, (kernel[0], kernel[1]), values):
        shown = inside[None, :, :, None]
        one = np.where(shown, taken, 0 if average else least)
        total = one if total is None else total + one if average else np.maximum(total, one)
        count = count + (shown if words.kernel.word == "average" else 1)
    if average and words.eight:
        half = count // 2
        total = np.where(total > 0, (total + half) // count, -((-(total - half)) // count))
    elif average:
        total = total / np.asarray(count, np.float32)
    return words.clamped(total)


def _mean(words: PieceWords) -> Array:
    import numpy as np

    first, last = (at - words.given.channels[0] for at in words.spans[2])
    values = words.given.values[..., first:last]
    if not words.eight:
        return values.mean(axis=(1, 2), dtype=np.float32)
    total = values.astype(np.int64).sum(axis=(1, 2)) - words.number("input_zero") * values.shape[1] * values.shape[2]
    found = _rescaled(total, words.number("multiplier"), words.number("shift")) + words.number("output_zero")
    return np.clip(found, -128, 127)


def _aligned(words: PieceWords, part: PiecePart, tensor: int) -> Array:
    """Return what of an operand meets the output's piece."""
    one, slices = words.network.maps[tensor], [slice(None)]
    lengths = (one.rows, one.columns, one.channels)
    held = (part.rows, part.columns, part.channels)
    for length, begin, span in zip(lengths, held, words.spans, strict=True):
        slices.append(slice(span[0] - begin[0], span[1] - begin[0]) if length > 1 else slice(None))
    return part.values[tuple(slices)]


def _unary(words: PieceWords) -> Array:
    import numpy as np

    x = _aligned(words, words.given, words.tensor)
    a, b = np.float32(words.kernel.numbers["a"]), np.float32(words.kernel.numbers["b"])
    found: Mapping[str, Callable[[], Array]] = {
        "clip": lambda: np.clip(x, a, b),
        "sigmoid": lambda: 1 / (1 + np.exp(-x)),
        "tanh": lambda: np.tanh(x),
        "leaky_relu": lambda: np.where(x < 0, a * x, x),
        "hard_sigmoid": lambda: np.clip(a * x + b, 0, 1),
        "hard_swish": lambda: x * np.clip(x / 6 + np.float32(0.5), 0, 1),
        "exp": lambda: np.exp(x),
        "abs": lambda: np.abs(x),
        "neg": lambda: -x,
        "sqrt": lambda: np.sqrt(x),
        "elu": lambda: np.where(x < 0, a * np.expm1(x), x),
        "erf": lambda: np.vectorize(math.erf)(x),
    }
    return found[words.kernel.word]()


def _table(words: PieceWords) -> Array:
    import numpy as np

    x = _aligned(words, words.given, words.tensor)
    return np.array(words.kernel.tables["table"], np.int8)[x.astype(np.int64) + 128]


def _quantize(words: PieceWords) -> Array:
    import numpy as np

    x = _aligned(words, words.given, words.tensor) / np.float32(words.kernel.numbers["scale"])
    return np.clip(np.copysign(np.floor(np.abs(x) + 0.5), x) + words.number("zero"), -128, 127)


def _dequantize(words: PieceWords) -> Array:
    import numpy as np

    x = _aligned(words, words.given, words.tensor).astype(np.int32) - words.number("zero")
    return np.float32(words.kernel.numbers["scale"]) * x.astype(np.float32)


def _operand(words: PieceWords, operand: int) -> Array:
    if operand >= 0:
        return _aligned(words, words.parts[operand], operand)
    values = words.kernel.constants[-1 - operand]
    if values.ndim == 0:
        return values
    shaped = values if values.ndim == 4 else values.reshape(1, 1, 1, -1)
    slices = [slice(*span) if shaped.shape[axis + 1] > 1 else slice(None) for axis, span in enumerate(words.spans)]
    place = (slice(None), *slices)
    return shaped[place]


def _binary(words: PieceWords) -> Array:
    import numpy as np

    one, other = (_operand(words, operand) for operand in words.kernel.operands)
    word = words.kernel.word
    if not words.eight:
        found: Mapping[str, Callable[[], Array]] = {
            "add": lambda: one + other,
            "sub": lambda: one - other,
            "mul": lambda: one * other,
            "div": lambda: one / other,
            "max": lambda: np.maximum(one, other),
            "min": lambda: np.minimum(one, other),
            "prelu": lambda: np.where(one < 0, one * other, one),
        }
        return words.clamped(found[word]())
    sides = [values.astype(np.int64) - words.number(f"zero_{place}") for place, values in enumerate((one, other))]
    if word == "mul":
        total = sides[0] * sides[1]
    else:
        left = words.number("left_shift")
        sides = [
            _rescaled(values << left, words.number(f"multiplier_{place}"), words.number(f"shift_{place}"))
            for place, values in enumerate(sides)
        ]
        total = sides[0] + sides[1] if word == "add" else sides[0] - sides[1]
    scaled = _rescaled(total, words.number("output_multiplier"), words.number("output_shift"))
    return words.clamped(scaled + words.number("output_zero"))


def _normalise(words: PieceWords) -> Array:
    import numpy as np

    scale, bias, mean, variance = (values[slice(*words.spans[2])] for values in words.kernel.constants)
    x = _aligned(words, words.given, words.tensor)
    return (x - mean) * (scale / np.sqrt(variance + np.float32(words.kernel.numbers["epsilon"]))) + bias


def _sources(rule: Rule | None, places: Array) -> Array:
    """Return the input's places of output places along one axis, which may lie outside it."""
    if isinstance(rule, Shift):
        return places - rule.offset
    if isinstance(rule, Window):
        return places - rule.pad_before
    if isinstance(rule, Stride):
        return rule.begin + rule.step * places
    if isinstance(rule, Resampling):
        return places * rule.scale.denominator // rule.scale.numerator
    return places


def _move(words: PieceWords) -> Array:
    import numpy as np

    made = words.network.maps[words.network.layers[words.op].writes[0]]
    spans = ((0, made.batch), *words.spans)
    result = np.full([stop - start for start, stop in spans], words.kernel.numbers["fill"], words.given.values.dtype)
    op = words.network.graph.ops[words.op]
    for tensor, position in zip(op.inputs, op.positions, strict=True):
        part, one = words.parts.get(tensor), words.network.maps[tensor]
        lengths = (one.batch, one.rows, one.columns, one.channels)
        if part is None:
            continue
        begins = (0, part.rows[0], part.columns[0], part.channels[0])
        to, source = [], []
        for axis, (span, length, begin) in enumerate(zip(spans, lengths, begins, strict=True)):
            places = _sources(words.rule(tensor, axis, position), np.arange(*span))
            inside = np.flatnonzero((places >= 0) & (places < length))
            to.append(inside)
            source.append(places[inside] - begin)
        result[np.ix_(*to)] = part.values[np.ix_(*source)]
    return result


def _softmax(words: PieceWords) -> Array:
    import numpy as np

    x = words.given.values
    if not words.eight:
        powers = np.exp((x - x.max(axis=-1, keepdims=True)) * np.float32(words.kernel.numbers["beta"]))
        return powers / powers.sum(axis=-1, keepdims=True)
    numbers = [words.number(name) for name in ("multiplier", "shift", "least")]
    lines = [fixed_point.softmax(line.tolist(), *numbers) for line in x.reshape(-1, x.shape[-1])]
    return np.array(lines, np.int8).reshape(x.shape)


def _lrn(words: PieceWords) -> Array:
    import numpy as np

    x, size = words.given.values, words.number("size")
    below = (size - 1) // 2
    squares = np.pad(x * x, [(0, 0)] * 3 + [(below, size - 1 - below)])
    total = sum(squares[..., at : at + x.shape[-1]] for at in range(size))
    numbers = words.kernel.numbers
    return x / (numbers["bias"] + numbers["alpha"] / size * total) ** numbers["beta"]


def _copy(words: PieceWords) -> Array:
    return words.given.values


PIECE_KERNELS: Final[Mapping[str, Callable[[PieceWords], Array]]] = {
    "conv": _conv,
    "pool": _pool,
    "mean": _mean,
    "unary": _unary,
    "table": _table,
    "quantize": _quantize,
    "dequantize": _dequantize,
    "binary": _binary,
    "normalise": _normalise,
    "move": _move,
    "softmax": _softmax,
    "lrn": _lrn,
    "copy": _copy,
}
