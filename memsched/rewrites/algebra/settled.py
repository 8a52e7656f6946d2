"""Replace dynamic reshapes and ops that add or remove axes by reshapes to constant shapes."""

from __future__ import annotations

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Graph, Op
from memsched.ops.table import families
from memsched.rewrites.algebra.draft import AlgebraDraft, Editor

__all__ = ["SettledShape", "settled_shapes", "with_settled_shape"]

_RESHAPES = families("reshape")
_SHAPES = frozenset({"SHAPE", "Shape"})


class SettledShape(FrozenValue, frozen=True):
    """A reshape to make static.

    Attributes:
        op: The op's name.
        saved: Bytes of the output, which no longer crosses between kernels.
    """

    op: str
    saved: int


def settled_shapes(graph: Graph, word: str) -> tuple[SettledShape, ...]:
    """Return reshapes whose target shape depends only on input shapes, and reshapes by ops other than ``word``."""
    known: set[int] = set()
    found = []
    for op in graph.ops:
        if op.type in _SHAPES or (op.inputs and known.issuperset(op.inputs) and op.effects.pure):
            known.update(op.outputs)
        elif _is_unsettled(op, word) and known.issuperset(op.inputs[1:]):
            found.append(SettledShape(op.name, graph.tensors[op.outputs[0]].size))
    return tuple(found)


def _is_unsettled(op: Op, word: str) -> bool:
    return op.type in _RESHAPES and (op.type != word or len(op.inputs) > 1)


def with_settled_shape(draft: AlgebraDraft, settled: SettledShape) -> AlgebraDraft | None:
    """Return the draft with one static reshape; None if the op is missing."""
    ops, word = draft.graph.ops, draft.dialect.reshape_type
    number = draft.number_of(settled.op)
    if number is None or not word or not _is_unsettled(ops[number], word):
        return None
    editor = Editor(draft, number)
    editor.helper(word, ops[number].inputs[:1], ops[number].outputs[0], {})
    return editor.draft()
