"""Split a convolution into bands of output rows, and compute the bands as one batch.

XNNPACK keeps one table of input pointers for each convolution. The table covers one image and serves the whole batch,
so a batch of N bands needs an N-th of the table. A reshape of the padded input yields the bands; the halo of each band
is copied from the next band. Every output element sums the same products in the same order.
"""

from __future__ import annotations

import math

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Graph, Op
from memsched.ops.geometry import describe
from memsched.ops.rules import Refusal, Window
from memsched.ops.table import families
from memsched.rewrites.algebra.draft import AlgebraDraft, Editor

__all__ = ["Bands", "best_bands", "in_bands"]

_CONVOLUTIONS = families("convolution")
_AXES = (1, 2)


class Bands(FrozenValue, frozen=True):
    """A split of one op into bands.

    Attributes:
        op: The op's name.
        axis: First output axis after the batch with more than one element.
        rows: Output elements of one band along the axis.
        count: Number of bands.
        saved: Table bytes saved, minus the bytes of the halos.
    """

    op: str
    axis: int
    rows: int
    count: int
    saved: int = 0


class _BandLayer(FrozenValue, frozen=True):
    """An op that bands can compute.

    Attributes:
        windows: One window for each axis of `_AXES`.
        read: Input shape.
        made: Output shape.
        width: Input bytes for each element along ``axis``.
    """

    op: Op
    axis: int
    windows: tuple[Window, ...]
    read: tuple[int, ...]
    made: tuple[int, ...]
    width: int

    @property
    def along(self) -> Window:
        return self.windows[_AXES.index(self.axis)]

    @property
    def shared(self) -> int:
        """Size of a band's halo: elements shared with the next band."""
        return max(0, (self.along.kernel - 1) * self.along.dilation + 1 - self.along.stride)

    def is_cut(self, rows: int) -> bool:
        """Return whether this size gives several bands, each with a halo inside the next band."""
        return rows < self.made[self.axis] and self.shared <= rows * self.along.stride


def best_bands(graph: Graph, op: int, table: int, extra: float) -> Bands | None:
    """Return the split with the smallest table; None if it saves less than half the input's bytes.

    Bands copy the input, which takes time.

    Args:
        table: Bytes of the op's table, proportional to the rows of one image.
        extra: Fraction of additional rows that padding the last band may add.
    """
    layer = _layer_of(graph, op) if table else None
    if layer is None:
        return None
    length = layer.made[layer.axis]
    best: tuple[int, int] | None = None
    for rows in range(1, length // 2 + length % 2 + 1):
        count = -(-length // rows)
        if not layer.is_cut(rows) or count * rows > (1 + extra) * length:
            continue
        cost = table * rows // length + count * layer.shared * layer.width
        cost += graph.tensors[layer.op.outputs[0]].size if count * rows > length else 0
        best = min(best or (cost, rows), (cost, rows))
    if best is None or 2 * (table - best[0]) < layer.width * layer.read[layer.axis]:
        return None
    return Bands(layer.op.name, layer.axis, best[1], -(-length // best[1]), table - best[0])


def _layer_of(graph: Graph, op: int) -> _BandLayer | None:
    """Return the layer of an op; None if bands cannot compute it."""
    value = graph.ops[op]
    if value.type not in _CONVOLUTIONS or len(value.outputs) != 1 or value.positions != (0,) or not value.effects.pure:
        return None
    geometry = describe(graph, op)
    if isinstance(geometry, Refusal) or value.region is not None or value.terms is not None:
        return None
    read, made = graph.tensors[value.inputs[0]], geometry.shape
    rules = [one.rule for one in geometry.operands[0]]
    windows = tuple(rule for rule in (rules[axis] for axis in _AXES if axis < len(rules)) if isinstance(rule, Window))
    if len(made) != 4 or len(windows) != len(_AXES) or made[0] != 1 or read.shape is None:
        return None
    axis = next((axis for axis in _AXES if made[axis] > 1), 0)
    # A reshape can only form bands along the first axis with more than one element.
    if not axis or math.prod(read.shape[:axis]) != 1 or any(windows[at].kernel > 1 for at in range(axis - 1)):
        return None
    return _BandLayer(value, axis, windows, read.shape, made, read.size // max(1, read.shape[axis]))


def in_bands(draft: AlgebraDraft, bands: Bands) -> AlgebraDraft | None:
    """Return the draft with one op in bands; None if the op is missing or the format lacks a helper op."""
    number = draft.number_of(bands.op)
    layer = None if number is None else _layer_of(draft.graph, number)
    words, attributes = draft.dialect, None
    if layer is not None:
        attributes = words.piece_attributes(layer.op, ((0, 0),) * len(_AXES))
    reshape = words.reshape_type
    if number is None or layer is None or attributes is None or not reshape or not layer.is_cut(bands.rows):
        return None
    editor, (read,), (made,) = Editor(draft, number), layer.op.inputs, layer.op.outputs
    shape = [*layer.made[: bands.axis], bands.rows, *layer.made[bands.axis + 1 :]]
    shape[0] = bands.count
    whole = [*layer.made[: bands.axis], bands.count * bands.rows, *layer.made[bands.axis + 1 :]]
    source = _banded(editor, draft, layer, bands, read)
    parts = editor.tensor(made, shape, "#bands")
    macs = layer.op.macs * bands.count * bands.rows // layer.made[bands.axis]
    editor.copy(layer.op, [source], parts, attributes=attributes, macs=macs)
    if tuple(whole) == layer.made:
        editor.helper(reshape, [parts], made, {})
        return editor.draft()
    joined = editor.tensor(made, whole, "#rows")
    editor.helper(reshape, [parts], joined, {})
    editor.helper(words.slice_type, [joined], made, words.slice_attributes(whole, [0] * 4, layer.made))
    return editor.draft()


def _banded(editor: Editor, draft: AlgebraDraft, layer: _BandLayer, bands: Bands, read: int) -> int:
    """Add the ops that form the batch of input bands with their halos, and return its tensor."""
    words, axis, step = draft.dialect, bands.axis, bands.rows * layer.along.stride
    length = bands.count * step
    own, shape = _rows(editor, draft, layer, read, (0, length))
    views = [bands.count, *shape[1:axis], step, *shape[axis + 1 :]]
    rows = editor.tensor(read, views, "#own")
    editor.helper(words.reshape_type, [own], rows, {})
    if not layer.shared:
        return rows
    begins, ends = [1, 0, 0, 0], list(views)
    ends[axis] = layer.shared
    parts = [editor.tensor(read, [end - begin for begin, end in zip(begins, ends, strict=True)], "#next")]
    editor.helper(words.slice_type, [rows], parts[0], words.slice_attributes(views, begins, ends))
    shape = [bands.count, *ends[1:]]
    shared = editor.tensor(read, shape, "#shared")
    if layer.along.pad_before + layer.read[axis] <= length:
        words_of_pad = words.pad_attributes([(0, 1), (0, 0), (0, 0), (0, 0)])
        editor.helper(words.pad_type, parts, shared, words_of_pad)
    else:
        parts.append(_rows(editor, draft, layer, read, (length, length + layer.shared))[0])
        editor.helper(words.concat_type, parts, shared, words.concat_attributes(0))
    views[axis] += layer.shared
    together = editor.tensor(read, views, "#bands")
    editor.helper(words.concat_type, [rows, shared], together, words.concat_attributes(axis))
    return together


def _rows(
    editor: Editor, draft: AlgebraDraft, layer: _BandLayer, read: int, span: tuple[int, int]
) -> tuple[int, list[int]]:
    """Add the ops that form a range of rows of the padded input; return the tensor and its shape.

    Args:
        span: First row and end row, counted from the start of the padding.
    """
    words, axis, shape = draft.dialect, layer.axis, list(layer.read)
    pads = [(0, 0)] * len(shape)
    for along, window in zip(_AXES, layer.windows, strict=True):
        pads[along] = window.pad_before, window.pad_after
    first, last = (at - layer.along.pad_before for at in span)
    begin, end = max(0, first), min(shape[axis], last)
    pads[axis] = begin - first, last - end
    if (begin, end) != (0, shape[axis]):
        begins, ends = [0] * len(shape), list(shape)
        begins[axis], ends[axis] = begin, end
        shape[axis] = end - begin
        cropped = editor.tensor(read, shape, "#cropped")
        editor.helper(words.slice_type, [read], cropped, words.slice_attributes(layer.read, begins, ends))
        read = cropped
    if not any(map(sum, pads)):
        return read, shape
    shape = [before + size + behind for size, (before, behind) in zip(shape, pads, strict=True)]
    padded = editor.tensor(read, shape, "#padded")
    editor.helper(words.pad_type, [read], padded, words.pad_attributes(pads))
    return padded, shape
