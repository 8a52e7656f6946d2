"""Pads, crops and subsamplings in a row: one crop, with steps, and one pad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memsched.base.frozen import FrozenValue
from memsched.graph.dag import producers
from memsched.graph.dialect import Attributes, Dialect
from memsched.graph.model import Op
from memsched.ops.geometry import describe
from memsched.ops.rules import POINTWISE, Refusal, Stride, Window
from memsched.ops.table import families
from memsched.rewrites.algebra.draft import AlgebraDraft, Editor

__all__ = ["FLOATS", "crop_at", "moves", "row_above", "shifted", "subsamples"]

_CROPS: Final = families("slice")
_PADS: Final = families("pad")
FLOATS: Final = frozenset({"float16", "float32", "float64"})
_CLAMPING: Final = frozenset({"AVERAGE_POOL_2D", "MAX_POOL_2D"})
"""Pools that make of infinities the largest finite floats, even over windows of one element."""

_POOLS: Final = families("pool")


class _AxisShift(FrozenValue, frozen=True):
    """Along one axis: element i of the result is element ``begin + step * i`` of the source for i in [low, high).

    All others are padding.
    """

    begin: int
    step: int
    low: int
    high: int

    def through(self, begin: int, step: int, length: int) -> _AxisShift:
        """Return the shift from a source further up, of which element j here is element ``begin + step * j``."""
        first, steps = begin + step * self.begin, step * self.step
        low = max(self.low, -(first // steps))
        return _AxisShift(first, steps, low, min(self.high, (length - 1 - first) // steps + 1))


def moves(draft: AlgebraDraft, op: int) -> list[tuple[int, int]] | None:
    """Return per axis (begin, step) of an op that moves elements of its only input; None for others.

    Element i of what it makes is element begin + step * i of what it reads, and zero where there is none.
    """
    graph = draft.graph
    value = graph.ops[op]
    if value.type not in _CROPS | _PADS | _POOLS or len(value.inputs) != 1:
        return None
    geometry = describe(graph, op)
    if isinstance(geometry, Refusal) or geometry.fixed or not _plain(value):
        return None
    if value.type in _CLAMPING and not draft.sums and graph.tensors[value.inputs[0]].dtype in FLOATS:
        return None
    found = []
    for axis, one in enumerate(geometry.operands[0]):
        rule = one.rule
        if one.output != axis:
            return None
        if rule == POINTWISE:
            found.append((0, 1))
        elif isinstance(rule, Stride) and rule.step > 0:
            found.append((rule.begin, rule.step))
        elif isinstance(rule, Window) and rule.kernel == 1 and rule.pad_before >= 0:
            if value.type in _POOLS and (rule.pad_before or rule.pad_after):
                return None
            found.append((-rule.pad_before, rule.stride))
        else:
            return None
    return found


def _plain(op: Op) -> bool:
    """Whether an op leaves values as they are, and pads with zero."""
    if op.attributes.get("fused_activation_function", "NONE") != "NONE" or op.attributes.get("ceil_mode"):
        return False
    filled = op.attributes.get("constant_value", (0,))
    return "constant_shape_2" not in op.attributes and filled in {(0,), (0.0,), ()} if op.type in _PADS else True


def subsamples(draft: AlgebraDraft, op: int) -> bool:
    """Whether an op only leaves elements of its input out."""
    return draft.graph.ops[op].type not in _PADS and moves(draft, op) is not None


def row_above(draft: AlgebraDraft, op: int, made_by: Sequence[int]) -> list[int]:
    """Return the ops in a row that end with ``op`` and only move elements, the last one first."""
    row: list[int] = []
    while op >= 0 and moves(draft, op) is not None:
        row.append(op)
        op = made_by[draft.graph.ops[op].inputs[0]]
    return row


def shifted(draft: AlgebraDraft, sink: int, top: int) -> AlgebraDraft | None:
    """Return the draft with the row of ops from ``top`` to ``sink`` as one crop and one pad; None where there is none.

    That is exact: no number is computed.
    """
    graph = draft.graph
    row = row_above(draft, sink, producers(graph))
    if top not in row[1:]:
        return None
    row = row[: row.index(top) + 1]
    source, made = graph.ops[top].inputs[0], graph.ops[sink].outputs[0]
    shape, whole = graph.tensors[made].shape or (), graph.tensors[source].shape or ()
    along = [_AxisShift(0, 1, 0, length) for length in shape]
    for op in row:
        lengths = graph.tensors[graph.ops[op].inputs[0]].shape or ()
        found = moves(draft, op) or []
        along = [one.through(*step, length) for one, step, length in zip(along, found, lengths, strict=True)]
    if any(one.low >= one.high for one in along) or not draft.same_values(source, made):
        return None
    starts = [one.begin + one.step * one.low for one in along]
    ends = [one.begin + one.step * (one.high - 1) + 1 for one in along]
    pads = [(one.low, length - one.high) for one, length in zip(along, shape, strict=True)]
    crop = crop_at(draft.dialect, whole, starts, ends, [one.step for one in along])
    if crop is None:
        return None
    editor = Editor(draft, sink)
    at, padded = source, any(pair != (0, 0) for pair in pads)
    if (starts, ends) != ([0] * len(whole), list(whole)) or any(one.step > 1 for one in along):
        cut = [one.high - one.low for one in along]
        at = editor.tensor(made, cut, "#crop") if padded else made
        editor.helper(crop[0], [source], at, crop[1])
    if padded:
        editor.helper(draft.dialect.pad_type, [at], made, draft.dialect.pad_attributes(pads))
    waiting = sum(graph.tensors[graph.ops[op].outputs[0]].size for op in row[1:])
    if at != source or padded:
        # A crop and a pad are such a row again.
        return editor.draft() if waiting > editor.tensors[at].size * (at not in (source, made)) else None
    return None if made in graph.outputs else editor.draft({made: source})


def crop_at(
    dialect: Dialect, shape: Sequence[int], starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]
) -> tuple[str, Attributes] | None:
    """Return the type and the attributes of a crop with steps; None where the format has none."""
    if all(step == 1 for step in steps):
        return dialect.slice_type, dialect.slice_attributes(shape, starts, ends)
    if dialect.stepped is None:
        return None
    return dialect.stepped.type, dialect.stepped.attributes(shape, starts, ends, steps)
