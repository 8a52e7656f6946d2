"""What reads a concatenation, computed for each of its inputs: concatenated afterwards, or added."""

from __future__ import annotations

from typing import Final

from memsched.graph.dag import producers
from memsched.graph.model import Graph, Op, Region
from memsched.ops.geometry import describe
from memsched.ops.ranges import PieceNeeds, deduce
from memsched.ops.rules import FULL, ChannelGroups, Geometry, Pointwise, Refusal, Shift, Window
from memsched.ops.table import families
from memsched.rewrites.algebra.draft import AlgebraDraft, Editor
from memsched.rewrites.algebra.exchange import UNARY
from memsched.rewrites.algebra.moves import FLOATS

__all__ = ["joined", "split", "summed"]

_JOINS: Final = families("concatenation")
_DIVIDED: Final = UNARY | families("broadcast", "convolution", "norm pool", "pad", "pool", "slice")
"""Ops of which a range of channels may be computed apart from others, if the table of cuts says so."""

_SUMS: Final = families("convolution", "matrix product")
"""Ops whose results are sums over an axis, and for which the formats can cut what is multiplied."""


def joined(graph: Graph, op: int) -> tuple[int, list[tuple[int, int]]] | None:
    """Return the axis of a concatenation and the range of each of its inputs along it; None for other ops."""
    value = graph.ops[op]
    if value.type not in _JOINS or value.attributes.get("fused_activation_function", "NONE") != "NONE":
        return None
    geometry = describe(graph, op)
    if isinstance(geometry, Refusal) or value.positions != tuple(range(len(geometry.shapes))):
        return None
    axis, spans = -1, []
    for position in value.positions:
        for along, one in enumerate(geometry.operands[position]):
            if isinstance(one.rule, Shift):
                axis = along
                spans.append((one.rule.offset, one.rule.offset + geometry.shapes[position][along]))
    return (axis, spans) if len(spans) > 1 and all(begin < end for begin, end in spans) else None


def split(draft: AlgebraDraft, reader: int, join: int) -> AlgebraDraft | None:
    """Return the draft with op ``reader`` computed for each input of the concatenation ``join``; None where it can't.

    Every number is computed as before.
    """
    graph = draft.graph
    value, found = graph.ops[reader], joined(graph, join)
    geometry = describe(graph, reader, exact=not draft.sums)
    if found is None or isinstance(geometry, Refusal) or value.type not in _DIVIDED or value.region is not None:
        return None
    if value.origin is not None and draft.constants_of(value):
        return None
    axis, spans = found
    output = _output_axis(value, geometry, graph.ops[join].outputs[0], axis)
    if output is None or output in geometry.fixed:
        return None
    editor, parts = Editor(draft, reader), []
    for number, span in enumerate(spans):
        part = _part(draft, reader, geometry, join, number, span, output)
        if part is None:
            return None
        region, needed, reads = part
        made = editor.tensor(value.outputs[0], [end - begin for begin, end in region.ranges], f"#{number}")
        attributes = {**value.attributes, **needed.attributes}
        editor.copy(value, reads, made, region=region, attributes=attributes, macs=needed.macs)
        parts.append(made)
    editor.helper(draft.dialect.concat_type, parts, value.outputs[0], draft.dialect.concat_attributes(output))
    return editor.draft()


def _output_axis(value: Op, geometry: Geometry, tensor: int, axis: int) -> int | None:
    """Return the axis of the output that follows ``axis`` of an input, element by element or group by group.

    Where an op sums over whole axes, how it rounds may depend on what lies beside them.
    """
    for position, read in zip(value.positions, value.inputs, strict=True):
        if read == tensor:
            one = geometry.operands[position][axis]
            if any(other.rule == FULL for other in geometry.operands[position]):
                return None
            if isinstance(one.rule, Pointwise | ChannelGroups) or one.rule == Window(1):
                return one.output
    return None


def _part(
    draft: AlgebraDraft, reader: int, geometry: Geometry, join: int, number: int, span: tuple[int, int], output: int
) -> tuple[Region, PieceNeeds, list[int]] | None:
    """Return the part of the output that follows from input ``number`` of the concatenation, and what it reads."""
    graph, value = draft.graph, draft.graph.ops[reader]
    joint = graph.ops[join].outputs[0]
    span = _of_groups(geometry, value, joint, span)
    ranges = [(0, length) for length in geometry.shape]
    ranges[output] = span
    region = Region(tuple(ranges))
    needed = deduce(geometry, value, region) if span[0] < span[1] <= geometry.shape[output] else None
    if not isinstance(needed, PieceNeeds) or any(pair != (0, 0) for pair in needed.crop):
        return None
    made_by = producers(graph)
    reads = []
    for tensor, one in zip(value.inputs, needed.inputs, strict=True):
        shape = graph.tensors[tensor].shape or ()
        if one.region is None:
            return None
        if one.region.ranges == tuple((0, length) for length in shape) and tensor != joint:
            reads.append(tensor)
            continue
        source = made_by[tensor]
        at = joined(graph, source) if source >= 0 else None
        if at is None or len(at[1]) != len(graph.ops[join].inputs):
            return None
        wanted = [(0, length) for length in shape]
        wanted[at[0]] = at[1][number]
        branch = graph.ops[source].inputs[number]
        if one.region.ranges != tuple(wanted) or not draft.same_values(branch, tensor):
            return None
        reads.append(branch)
    return region, needed, reads


def _of_groups(geometry: Geometry, value: Op, tensor: int, span: tuple[int, int]) -> tuple[int, int]:
    """Return the range of the output that a range of the channels of ``tensor`` makes."""
    for position, read in zip(value.positions, value.inputs, strict=True):
        rules = [one.rule for one in geometry.operands[position]] if read == tensor else []
        groups = next((rule for rule in rules if isinstance(rule, ChannelGroups)), None)
        if groups is not None:
            if any(end % groups.inputs for end in span):
                return (0, 0)
            return span[0] // groups.inputs * groups.outputs, span[1] // groups.inputs * groups.outputs
    return span


def summed(draft: AlgebraDraft, reader: int, join: int) -> AlgebraDraft | None:
    """Return the draft with op ``reader`` as the sum of what it makes of each input of ``join``; None where it can't.

    Floats are added in another order, and so rounded otherwise.
    """
    graph = draft.graph
    value, found = graph.ops[reader], joined(graph, join)
    geometry = describe(graph, reader)
    add = draft.dialect.add
    if found is None or isinstance(geometry, Refusal) or not _adds_up(graph, value, geometry, join, found[0]):
        return None
    if (
        add is None
        or value.origin is not None
        or not all(draft.same_values(branch, graph.ops[join].outputs[0]) for branch in graph.ops[join].inputs)
    ):
        return None
    editor, made = Editor(draft, reader), value.outputs[0]
    spans, shape = found[1], graph.tensors[made].shape or ()
    made_by = producers(graph)
    # What is made first is added first.
    order = sorted(range(len(spans)), key=lambda number: made_by[graph.ops[join].inputs[number]])
    whole, total = spans[-1][1], -1
    fused = value.attributes.get("fused_activation_function", "NONE")
    for step, number in enumerate(order):
        begin, end = spans[number]
        part = editor.tensor(made, shape, f"#{number}")
        attributes = dict(value.attributes)
        if fused != "NONE":
            attributes["fused_activation_function"] = "NONE"
        terms, macs = (begin, end), value.macs * (end - begin) // whole
        editor.copy(value, [graph.ops[join].inputs[number]], part, terms=terms, attributes=attributes, macs=macs)
        if step == 0:
            total = part
            continue
        last = step == len(order) - 1
        both = made if last else editor.tensor(made, shape, "#sum")
        editor.helper(add.type, [total, part], both, add.attributes(str(fused) if last else "NONE"))
        total = both
    return editor.draft()


def _adds_up(graph: Graph, value: Op, geometry: Geometry, join: int, axis: int) -> bool:
    """Whether an op sums over the axis of a concatenation that it reads alone, in floats."""
    if value.type not in _SUMS or tuple(value.inputs) != graph.ops[join].outputs or value.positions != (0,):
        return False
    if graph.tensors[value.outputs[0]].dtype not in FLOATS or geometry.group is not None:
        return False
    return geometry.operands[0][axis].rule == FULL
