"""Equal ops in one, and ops that look at one element at a time exchanged with those that move elements."""

from __future__ import annotations

from typing import Final

from memsched.graph.dag import producers
from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.graph.model import Graph, Op
from memsched.ops.geometry import describe
from memsched.ops.rules import Refusal, Resampling
from memsched.ops.table import families
from memsched.rewrites.algebra.draft import AlgebraDraft, Editor
from memsched.rewrites.algebra.moves import crop_at, moves, subsamples

__all__ = ["UNARY", "crossed", "mergeable", "merged", "rearranges", "unary"]

UNARY: Final = families("dequantization", "quantization", "unary")
"""Ops that make of each element one."""

_REARRANGING: Final = families("reshape", "transpose")
"""Ops that only say where elements lie."""

_REPEATING: Final = families("expansion", "resize", "repetition")


def unary(draft: AlgebraDraft, number: int) -> bool:
    """Whether an op makes of each element of one input one element, and the same one wherever it lies.

    Kernels round the last bits of some functions otherwise in some lanes.
    """
    op = draft.graph.ops[number]
    vectors = (value for name, value in op.attributes.items() if name.startswith(CONSTANT_SHAPE))
    if op.type not in UNARY or op.positions != (0,) or any(value not in {(), (1,)} for value in vectors):
        return False
    geometry = describe(draft.graph, number, exact=not draft.sums)
    return not isinstance(geometry, Refusal) and not geometry.fixed


def mergeable(draft: AlgebraDraft, op: int, other: int) -> bool:
    """Whether two ops of a graph make equal tensors of equal inputs."""
    one, two = draft.graph.ops[op], draft.graph.ops[other]
    same = (one.type, one.inputs, one.positions, one.region, one.terms) == (
        *(two.type, two.inputs, two.positions, two.region, two.terms),
    )
    if not same or dict(one.attributes) != dict(two.attributes) or not one.inputs:
        return False
    if len(one.outputs) != 1 or len(two.outputs) != 1 or draft.constants_of(one) != draft.constants_of(two):
        return False
    made = [draft.graph.tensors[value.outputs[0]] for value in (one, two)]
    alike = (made[0].shape, made[0].dtype, made[0].size) == (made[1].shape, made[1].dtype, made[1].size)
    return (
        alike
        and draft.same_values(one.outputs[0], two.outputs[0])
        and not isinstance(describe(draft.graph, op), Refusal)
    )


def merged(draft: AlgebraDraft, later: int, kept: int) -> AlgebraDraft | None:
    """Return the draft where what op ``later`` makes is read from op ``kept``, which makes the same."""
    graph = draft.graph
    made = graph.ops[later].outputs[0]
    if kept >= later or made in graph.outputs or not mergeable(draft, later, kept):
        return None
    return Editor(draft, later).draft({made: graph.ops[kept].outputs[0]})


def crossed(draft: AlgebraDraft, reader: int, above: int) -> AlgebraDraft | None:
    """Return the draft with ops ``reader`` and ``above``, which it reads, in the other order; None where they can't.

    One of them looks at one element at a time, the other only moves elements, so every number is computed as before.
    """
    graph = draft.graph
    below, first = graph.ops[reader], graph.ops[above]
    if below.region is not None or first.region is not None or producers(graph)[below.inputs[0]] != above:
        return None
    if unary(draft, above) and len(first.inputs) == 1 and subsamples(draft, reader):
        return _crop_first(draft, reader, above)
    if unary(draft, reader) and _moves_alone(graph, above) and not (rearranges(first) and _widens(graph, below)):
        return _exchanged(draft, reader, above)
    if unary(draft, above) and len(first.inputs) == 1 and rearranges(below) and _widens(graph, first):
        return _exchanged(draft, reader, above)
    return None


def rearranges(op: Op) -> bool:
    """Whether an op only says where the elements of its one input lie."""
    return op.type in _REARRANGING and op.positions == (0,)


def _widens(graph: Graph, op: Op) -> bool:
    """Whether what an op makes of elements takes more bytes than they do."""
    return graph.tensors[op.outputs[0]].size > graph.tensors[op.inputs[0]].size


def _crop_first(draft: AlgebraDraft, reader: int, above: int) -> AlgebraDraft | None:
    """Leave elements out before the op that looks at one at a time."""
    graph = draft.graph
    below, first = graph.ops[reader], graph.ops[above]
    source, made = first.inputs[0], below.outputs[0]
    shape, whole = graph.tensors[made].shape or (), graph.tensors[source].shape or ()
    along = moves(draft, reader)
    if along is None or not draft.same_values(first.outputs[0], made):
        return None
    ends = [begin + step * (length - 1) + 1 for (begin, step), length in zip(along, shape, strict=True)]
    crop = crop_at(draft.dialect, whole, [begin for begin, _ in along], ends, [step for _, step in along])
    if crop is None:
        return None
    editor = Editor(draft, reader)
    middle = editor.tensor(source, shape, "#crop")
    editor.helper(crop[0], [source], middle, crop[1])
    editor.copy(first, [middle], made)
    return editor.draft()


def _moves_alone(graph: Graph, op: int) -> bool:
    """Whether an op only moves or repeats elements of its one input."""
    value = graph.ops[op]
    if rearranges(value):
        return True
    geometry = describe(graph, op) if value.type in _REPEATING and value.positions == (0,) else None
    if geometry is None or isinstance(geometry, Refusal) or geometry.fixed:
        return False
    rules = [one.rule for one in geometry.operands[0]]
    return all(rule.rounding != "linear" for rule in rules if isinstance(rule, Resampling))


def _exchanged(draft: AlgebraDraft, reader: int, above: int) -> AlgebraDraft | None:
    """Execute the reader first; one of the two looks at one element at a time, the other one moves elements."""
    graph = draft.graph
    below, first = graph.ops[reader], graph.ops[above]
    source, middle, made = first.inputs[0], first.outputs[0], below.outputs[0]
    moves_last = unary(draft, reader)
    # Elements lie as in ``source`` until they are moved, and mean what they do in ``made`` once they were looked at.
    shape = graph.tensors[source if moves_last else made].shape
    unlooked = (source, middle) if moves_last else (middle, made)
    if shape is None or not draft.same_values(*unlooked):
        return None
    editor = Editor(draft, reader)
    between = editor.tensor(made if moves_last else source, shape, "#early")
    editor.copy(below, [source], between)
    editor.copy(first, [between], made)
    return editor.draft()
