"""Pads that feed a convolution, folded into its own padding: they cost a copy of its input, whole or in pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from memsched.graph.dialect import Attributes, Dialect
from memsched.graph.model import Graph, Op
from memsched.graph.replacement import names_of, rebuilt
from memsched.ops.geometry import describe
from memsched.ops.rules import Geometry, Window
from memsched.ops.table import families

__all__ = ["fold_pads"]

_CONVOLUTIONS = families("convolution")


def fold_pads(graph: Graph, dialect: Dialect) -> Graph:
    """Return ``graph`` without the pads that its convolutions can add themselves, with equal results.

    Such a convolution names the original one as its ``origin``. A pad is folded if it adds zeros (the zero point)
    around an image that only one convolution reads, and if the format can state the sum of both paddings.
    """
    producer = {tensor: number for number, op in enumerate(graph.ops) for tensor in op.outputs}
    reads = Counter(tensor for op in graph.ops for tensor in op.inputs)
    tied = {op for pair in graph.dependencies for op in pair}
    gone: dict[int, Op] = {}
    ops: dict[int, Op] = {}
    names = names_of(graph)
    for number, op in enumerate(graph.ops):
        pad = producer.get(op.inputs[0], -1) if op.type in _CONVOLUTIONS and op.inputs else -1
        if pad < 0 or {pad, number} & tied or reads[op.inputs[0]] > 1 or op.inputs[0] in graph.outputs:
            continue
        attributes = _folded(graph, pad, number, dialect)
        name = f"{op.name}#padded"
        if attributes is not None and name not in names:
            inputs = (graph.ops[pad].inputs[0], *op.inputs[1:])
            origin = op.origin or op.name
            ops[number] = replace(op, name=name, inputs=inputs, attributes=attributes, origin=origin)
            gone[pad] = graph.ops[pad]
    return _without(graph, gone, ops) if gone else graph


def _folded(graph: Graph, pad: int, conv: int, dialect: Dialect) -> Attributes | None:
    """Return the convolution's attributes with the pad's padding added; None where that cannot be."""
    given, value = graph.ops[pad], graph.ops[conv]
    if given.type != dialect.pad_type or given.attributes.get("mode", "constant") != "constant":
        return None
    if any(_is_not_zero(given.attributes.get(name)) for name in ("constant_value", "value")):
        return None
    around, window = describe(graph, pad), describe(graph, conv)
    if not isinstance(around, Geometry) or not isinstance(window, Geometry):
        return None
    added = [_padding(one.rule) for one in around.operands[0]]
    windows = [(axis, one.rule) for axis, one in enumerate(window.operands[0]) if isinstance(one.rule, Window)]
    spatial = {axis for axis, _ in windows}
    if any(pair is None or (pair != (0, 0) and axis not in spatial) for axis, pair in enumerate(added)):
        return None
    both = []
    for axis, rule in windows:
        before, after = added[axis] or (0, 0)
        both.append((rule.pad_before + before, rule.pad_after + after))
    own = dialect.piece_attributes(value, tuple(both))
    if own is not None:
        return own
    same = {**value.attributes, "padding": "SAME"}
    lengths = [around.shapes[0][axis] for axis, _ in windows]
    rules = [rule for _, rule in windows]
    fits = all(_adds(rule, length, pads) for rule, length, pads in zip(rules, lengths, both, strict=True))
    return same if fits and dialect.pads_by_size(replace(value, attributes=same)) else None


def _is_not_zero(value: object) -> bool:
    entries: Sequence[object] = value if isinstance(value, tuple) else (value,)
    return any(entry not in {None, 0} for entry in entries)


def _padding(rule: object) -> tuple[int, int] | None:
    """Return what a pad adds along an axis; None where that is no constant."""
    if isinstance(rule, Window):
        return rule.pad_before, rule.pad_after
    return (0, 0) if type(rule).__name__ == "Pointwise" else None


def _adds(rule: Window, length: int, pads: tuple[int, int]) -> bool:
    """Whether padding by the size of an axis of this length (SAME) adds just ``pads``."""
    reach = (rule.kernel - 1) * rule.dilation + 1
    total = max((-(-length // rule.stride) - 1) * rule.stride + reach - length, 0)
    return pads == (total // 2, total - total // 2)


def _without(graph: Graph, gone: Mapping[int, Op], ops: Mapping[int, Op]) -> Graph:
    """Return the graph with ``ops`` replaced and the ops in ``gone`` left out, with what they made."""
    kept = [op for op in range(len(graph.ops)) if op not in gone]
    place = {old: new for new, old in enumerate(kept)}
    dropped = {tensor for op in gone.values() for tensor in op.outputs}
    return rebuilt(graph, graph.tensors, [ops.get(op, graph.ops[op]) for op in kept], place, dropped)
