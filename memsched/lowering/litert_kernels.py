"""What LiteRT's own kernels need beside an operator's tensors: no model file shows it.

While it prepares, a kernel adds temporary tensors: most of them live during its own step, in the arena (im2col, data
quantised on the fly, sums), some as long as the interpreter does (sums of weights, transposed weights), beside the
arena or on the heap. The rules were read in the kernels' sources (``tflite/kernels/``, the file is named at each rule)
and compared with LiteRT 2.3 without delegates and with one thread, as it is by default: with more threads it replaces
the im2col of convolutions in floating point by transposed weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Graph, Op, Tensor

__all__ = [
    "ALIGNMENT",
    "OwnMemory",
    "has_own_memory",
    "is_lasting",
    "lasting_bytes",
    "lasting_sizes",
    "own_memory",
    "with_lasting",
]

_LASTING = "kept by kernels"
"""Name of the tensor that stands for what kernels keep."""
_LASTING_TYPE = "memory"

_CONSTANT_SHAPE = "constant_shape_"
ALIGNMENT = 64
"""Bytes to which LiteRT aligns every offset; sizes are not rounded up."""


class OwnMemory(FrozenValue, frozen=True):
    """What one kernel needs.

    Attributes:
        during: Bytes of each buffer that lives during its step.
        lasting: Bytes of each buffer that lives as long as the interpreter, in an arena of its own.
        heap: Bytes of each such buffer that lies elsewhere.
    """

    during: tuple[int, ...] = ()
    lasting: tuple[int, ...] = ()
    heap: tuple[int, ...] = ()

    @property
    def step_bytes(self) -> int:
        """Bytes of the step's buffers in LiteRT's arena."""
        return _laid(self.during)


_NOTHING = OwnMemory()


def own_memory(graph: Graph, op: Op) -> OwnMemory:
    """Return what the kernel of ``op`` needs, constants that are made for it included; nothing for unknown shapes."""
    rule = _RULES.get(op.type)
    try:
        found = rule(_Kernel(graph, op)) if rule is not None else _NOTHING
    except _UnknownError:
        found = _NOTHING
    made = op.attributes.get("constant_made_bytes")
    return replace(found, during=(*found.during, made)) if isinstance(made, int) else found


def has_own_memory(op: Op) -> bool:
    """Whether there is a rule for what the kernel of ``op`` needs, which follows its shapes."""
    return op.type in _RULES


def lasting_sizes(graph: Graph) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the bytes of each buffer that is kept from the first step to the last, in an arena and on the heap.

    Those are the kernels' own lasting buffers, and constants that LiteRT dequantises when it runs first.
    """
    found = [own_memory(graph, op) for op in graph.ops if op.type in _RULES]
    kept: dict[object, int] = {}
    for op in graph.ops:
        names, counted = op.attributes.get("constant_kept"), op.attributes.get("constant_kept_bytes")
        if isinstance(names, tuple) and isinstance(counted, tuple):
            kept.update((name, size) for name, size in zip(names, counted, strict=True) if isinstance(size, int))
    arena = (*(size for own in found for size in own.lasting), *kept.values())
    return arena, tuple(size for own in found for size in own.heap)


def lasting_bytes(graph: Graph) -> int:
    """Return the bytes of all buffers that are kept from the first step to the last."""
    arena, heap = lasting_sizes(graph)
    return _laid((*arena, *heap))


def with_lasting(graph: Graph) -> Graph:
    """Return ``graph`` with what is kept as one more tensor, behind its own, which is always live."""
    size = lasting_bytes(graph)
    if not size:
        return graph
    name, taken = _LASTING, {tensor.name for tensor in graph.tensors}
    while name in taken:
        name += "'"
    kept = Tensor(name, size, (size,), _LASTING_TYPE)
    return replace(graph, tensors=(*graph.tensors, kept), variables=(*graph.variables, len(graph.tensors)))


def is_lasting(graph: Graph, tensor: int) -> bool:
    """Return whether a tensor is the one that `with_lasting` added."""
    return graph.tensors[tensor].dtype == _LASTING_TYPE


def _laid(sizes: Iterable[int]) -> int:
    """Return the bytes that buffers of these sizes take side by side."""
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)


class _UnknownError(Exception):
    """A shape that a rule asks for is not known."""


class _Kernel:
    """An op as a kernel sees it: tensors by the operator's positions, constants by their shapes."""

    def __init__(self, graph: Graph, op: Op) -> None:
        self._graph = graph
        self.op = op
        self._tensors = {
            position: graph.tensors[tensor] for position, tensor in zip(op.positions, op.inputs, strict=True)
        }

    @property
    def hybrid(self) -> bool:
        """Whether it multiplies data of floating point by integer weights."""
        return bool(self.op.attributes.get("hybrid"))

    def computed(self, position: int) -> bool:
        """Return whether the input at a position is no constant."""
        return position in self._tensors

    def tensor(self, position: int) -> Tensor:
        """Return the activation at a position."""
        if position not in self._tensors:
            raise _UnknownError
        return self._tensors[position]

    def has(self, position: int) -> bool:
        """Return whether there is an input at a position."""
        return position in self._tensors or f"{_CONSTANT_SHAPE}{position}" in self.op.attributes

    def shape(self, position: int, rank: int | None = None) -> tuple[int, ...]:
        """Return the shape of an input, which has ``rank`` axes."""
        if position in self._tensors:
            return _known(self._tensors[position].shape, rank)
        stated = self.op.attributes.get(f"{_CONSTANT_SHAPE}{position}")
        return _known(tuple(int(size) for size in stated) if isinstance(stated, tuple) else None, rank)

    def elements(self, position: int) -> int:
        """Return the elements of an input."""
        return math.prod(self.shape(position))

    def width(self, position: int) -> int:
        """Return the bytes of one element of an activation."""
        tensor = self.tensor(position)
        return max(1, tensor.size // max(1, math.prod(_known(tensor.shape))))

    def output(self, rank: int | None = None) -> tuple[int, ...]:
        """Return the shape of the first output."""
        if not self.op.outputs:
            raise _UnknownError
        return _known(self._graph.tensors[self.op.outputs[0]].shape, rank)

    def flag(self, name: str) -> bool:
        """Return an option that is true or false."""
        return bool(self.op.attributes.get(name))

    def numbers(self, name: str) -> tuple[int, ...]:
        """Return an option that is a list of integers; empty where it is absent."""
        found = self.op.attributes.get(name, ())
        return tuple(int(value) for value in found) if isinstance(found, tuple) else ()


def _known(shape: tuple[int, ...] | None, rank: int | None = None) -> tuple[int, ...]:
    if shape is None or (rank is not None and len(shape) != rank):
        raise _UnknownError
    return shape


def _moves(kernel: _Kernel, window: tuple[int, ...]) -> bool:
    """Return whether a convolution looks at more than one place, or leaves some out."""
    return any(value != 1 for value in (*window, *kernel.numbers("strides"), *kernel.numbers("dilations")))


def _conv_2d(kernel: _Kernel) -> OwnMemory:
    # conv.cc: per place of the output the data that the window sees; hybrid data is quantised, a scale to a pixel.
    batch, rows, columns, channels = kernel.shape(0, 4)
    filters, height, width, depth = kernel.shape(1, 4)
    places = math.prod(kernel.output(4)[:3])
    during = []
    if _moves(kernel, (height, width)):
        during.append(places * height * width * depth * (1 if kernel.hybrid else kernel.width(0)))
    if not kernel.hybrid:
        return OwnMemory(tuple(during))
    pixels = 4 * batch * rows * columns * (channels // max(1, depth))
    during += [batch * rows * columns * channels, pixels, 4 * filters * places]
    if not kernel.flag("scales_differ"):
        return OwnMemory(tuple(during))
    return OwnMemory((*during, pixels), (4 * filters,))


def _depthwise_conv_2d(kernel: _Kernel) -> OwnMemory:
    # depthwise_conv.cc: hybrid data is quantised, with a scale and an offset per batch.
    if not kernel.hybrid:
        return _NOTHING
    batch = kernel.shape(0, 4)[0]
    return OwnMemory((kernel.elements(0), 4 * batch, 4 * batch))


def _fully_connected(kernel: _Kernel) -> OwnMemory:
    # fully_connected.cc: hybrid data is quantised, with a scale and an offset per row; sums of the weights are kept.
    if not kernel.hybrid:
        return _NOTHING
    units, depth = kernel.shape(1, 2)
    rows = kernel.elements(0) // max(1, depth)
    if kernel.op.attributes.get("weights_bits") == 4 and depth % 2 == 0 and units >= 4 and depth >= 32 and rows:
        return _packed_fully_connected(rows, depth, units)
    return OwnMemory((kernel.elements(0), 4 * rows, 4 * units * rows, 4 * rows), (4 * units,))


def _packed_fully_connected(rows: int, depth: int, units: int) -> OwnMemory:
    # fully_connected.cc: weights of 4 bits in blocks of 4 x 32, and rows in blocks of at most 4.
    block = next(size for size in (4, 2, 1) if rows >= size)
    rows, depth, units = _up(rows, block), _up(depth, 32), _up(units, 4)
    return OwnMemory((rows * depth, 4 * rows, 4 * rows * units, 4 * rows))


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _transpose_conv(kernel: _Kernel) -> OwnMemory:
    # transpose_conv.cc: products per place of the data, the weights transposed, sums of quantised outputs: on the heap.
    _, rows, columns, channels = kernel.shape(2, 4)
    filters, height, width, _ = kernel.shape(1, 4)
    integers = kernel.tensor(2).dtype in {"int8", "int16", "uint8"}
    heap = [4 * rows * columns * filters * height * width]
    if not kernel.computed(1):
        heap.append(kernel.elements(1) * (1 if integers or kernel.hybrid else 4))
    if integers:
        heap.append((8 if kernel.tensor(2).dtype == "int16" else 4) * math.prod(kernel.output(4)))
    if not kernel.hybrid:
        return OwnMemory(heap=tuple(heap))
    pixels = 4 * (kernel.elements(2) // max(1, channels))
    return OwnMemory((kernel.elements(2), pixels, pixels), heap=tuple(heap))


def _conv_3d(kernel: _Kernel) -> OwnMemory:
    # conv3d.cc: as in two dimensions.
    *window, depth, _ = kernel.shape(1, 5)
    if not _moves(kernel, tuple(window)):
        return _NOTHING
    return OwnMemory((4 * math.prod(kernel.output(5)[:4]) * math.prod(window) * depth,))


def _conv_3d_transpose(kernel: _Kernel) -> OwnMemory:
    # conv3d_transpose.cc: products per place of the data, on the heap; none where it is dilated.
    if any(value > 1 for value in kernel.numbers("dilations")):
        return _NOTHING
    return OwnMemory(heap=(4 * math.prod(kernel.shape(2, 5)[1:4]) * math.prod(kernel.shape(1, 5)[:4]),))


def _batch_matmul(kernel: _Kernel) -> OwnMemory:
    # batch_matmul.cc: both operands transposed, a constant one for good; hybrid data is quantised, sums are kept.
    left, right = kernel.shape(0), kernel.shape(1)
    if len(left) < 2 or len(right) < 2:
        raise _UnknownError
    hybrid = kernel.hybrid
    other = math.prod(right) * (kernel.width(1) if kernel.computed(1) else 1 if hybrid else kernel.width(0))
    during = [math.prod(left) * (kernel.width(0) if kernel.computed(0) else kernel.width(1))]
    lasting = [] if kernel.computed(1) else [other]
    during += [other] if kernel.computed(1) else []
    if hybrid:
        rows = left[-1] if kernel.flag("adj_x") else left[-2]
        units = right[-2] if kernel.flag("adj_y") else right[-1]
        every = 4 * math.prod(left[:-2]) * rows
        during += [math.prod(left), every, 4 * units * rows, every]
        lasting.append(4 * math.prod(right[:-2]) * units)
    return OwnMemory(tuple(during), tuple(lasting))


_SUM_WIDTHS = {"bool": 1, "float32": 4, "int16": 4, "int32": 8, "int64": 8, "int8": 4, "uint8": 4}


def _reduction(kernel: _Kernel) -> OwnMemory:
    # reduce.cc: an index per axis, and the resolved axes.
    return OwnMemory((4 * len(kernel.shape(0)), 4 * len(kernel.numbers("axes"))))


def _sum(kernel: _Kernel) -> OwnMemory:
    # reduce.cc: sums and products are collected in a wider type.
    width = _SUM_WIDTHS.get(kernel.tensor(0).dtype, 4)
    return OwnMemory((*_reduction(kernel).during, width * math.prod(kernel.output())))


def _svdf(kernel: _Kernel) -> OwnMemory:
    # svdf.cc: 4 bytes per filter; hybrid data is quantised, weights and sums are kept in floating point.
    batch = kernel.shape(0, 2)[0]
    filters = kernel.shape(1, 2)[0]
    scratch = 4 * batch * filters
    if kernel.tensor(0).dtype == "int8":
        rank = kernel.op.attributes.get("rank")
        return OwnMemory((scratch, scratch // rank if isinstance(rank, int) and rank > 0 else scratch))
    if not kernel.hybrid:
        return OwnMemory((scratch,))
    return OwnMemory((scratch, kernel.elements(0), 4 * batch, 4 * batch), (4 * kernel.elements(2), 4 * filters))


def _rnn(kernel: _Kernel) -> OwnMemory:
    # basic_rnn.cc, unidirectional_sequence_rnn.cc: hybrid data and state are quantised, sums of the weights are kept.
    if not kernel.hybrid:
        return _NOTHING
    data, units = kernel.shape(0), kernel.shape(1, 2)[0]
    batch = data[1] if len(data) == 3 and kernel.flag("time_major") else data[0]
    quantized = (math.prod(data), kernel.elements(4))
    return OwnMemory((*quantized, 4 * batch, 4 * units * batch, 4 * batch), (8 * units,))


def _lstm(kernel: _Kernel) -> OwnMemory:
    # lstm.cc, unidirectional_sequence_lstm.cc: the gates side by side, in a sequence with 16 more elements that keep
    # ruy from copying; hybrid data and states are quantised, sums are kept.
    if not kernel.has(8):
        return _NOTHING  # The basic kernel, whose working areas are tensors of the file.
    data, cells = kernel.shape(0), kernel.shape(4, 2)[0]
    batch = data[1] if len(data) == 3 and kernel.flag("time_major") else data[0]
    if kernel.tensor(0).dtype == "int8":
        return OwnMemory((*(2 * batch * cells,) * 4, batch * cells, 4 * batch * cells))
    coupled = not kernel.has(1)
    gates = 4 * batch * (cells * (4 if coupled else 5) + (16 if len(data) == 3 else 0))
    if not kernel.hybrid:
        return OwnMemory((gates,))
    recurrent = kernel.shape(8)
    outputs = recurrent[0] if len(recurrent) == 1 else recurrent[1]
    rows = (6 if coupled else 8) + (math.ceil(outputs / max(1, cells)) if kernel.has(16) else 0)
    states = (kernel.elements(18), kernel.elements(19))
    per_batch = (4 * batch,) * 5
    return OwnMemory((gates, math.prod(data), *states, *per_batch, 4 * cells, 4 * cells * batch), (4 * rows * cells,))


def _two_lstms(kernel: _Kernel) -> OwnMemory:
    # bidirectional_sequence_lstm.cc: gates forth and back, the former with 16 more elements; the rest is as for one.
    data, forth, back = kernel.shape(0, 3), kernel.shape(6, 2), kernel.shape(23, 2)
    batch = data[1] if kernel.flag("time_major") else data[0]
    rows = [4 if not kernel.has(first) else 5 for first in (1, 18)]
    gates = [4 * batch * (rows[0] * forth[0] + 16), 4 * batch * rows[1] * back[0]]
    if not kernel.hybrid:
        return OwnMemory(tuple(gates))
    states = [kernel.elements(position) for position in (35, 36, 37, 38)]
    widest = max(forth[0], back[0])
    sums = [4 * 2 * (gate - 1) * one[0] for gate, one in zip(rows, (forth, back), strict=True)]
    per_batch = (4 * batch,) * 7
    return OwnMemory((*gates, math.prod(data), *states, *per_batch, 4 * widest, 4 * widest * batch), tuple(sums))


def _rfft_2d(kernel: _Kernel) -> OwnMemory:
    # rfft2d.cc, fft2d: rows in double precision with pointers to them, on the heap, and two working areas.
    if len(kernel.output()) < 2:
        return _NOTHING
    rows, columns = kernel.output()[-2], 2 * (kernel.output()[-1] - 1)
    areas = (4 * (2 + math.isqrt(max(rows, columns // 2))), 8 * max(rows, columns) // 2)
    return OwnMemory((*areas, 8 * rows * (columns + 2), 8 * rows))


def _detection_postprocess(kernel: _Kernel) -> OwnMemory:
    # detection_postprocess.cc: boxes as corners, and scores in floating point.
    boxes, scores = kernel.shape(0, 3), kernel.shape(1, 3)
    return OwnMemory((16 * boxes[1], 4 * scores[1] * scores[2]))


_RULES: Mapping[str, Callable[[_Kernel], OwnMemory]] = {
    "BATCH_MATMUL": _batch_matmul,
    "BIDIRECTIONAL_SEQUENCE_LSTM": _two_lstms,
    "CONV_2D": _conv_2d,
    "CONV_3D": _conv_3d,
    "CONV_3D_TRANSPOSE": _conv_3d_transpose,
    "CUSTOM:TFLite_Detection_PostProcess": _detection_postprocess,
    "DEPTHWISE_CONV_2D": _depthwise_conv_2d,
    "FULLY_CONNECTED": _fully_connected,
    "LSTM": _lstm,
    "MEAN": _sum,
    "REDUCE_ALL": _reduction,
    "REDUCE_ANY": _reduction,
    "REDUCE_MAX": _reduction,
    "REDUCE_MIN": _reduction,
    "REDUCE_PROD": _sum,
    "RFFT2D": _rfft_2d,
    "RNN": _rnn,
    "SUM": _sum,
    "SVDF": _svdf,
    "TRANSPOSE_CONV": _transpose_conv,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn,
}
