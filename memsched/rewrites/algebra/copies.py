"""Ops that make much of little, executed for each reader by itself: what waits then is what they read."""

from __future__ import annotations

from typing import Final

from memsched.graph.dag import producers
from memsched.graph.model import Graph
from memsched.ops.table import families
from memsched.rewrites.algebra.draft import AlgebraDraft, Editor
from memsched.rewrites.algebra.exchange import UNARY

__all__ = ["copied", "growing"]

_GROWING: Final = UNARY | families("expansion", "interpolation", "repetition", "resize")
"""Ops that repeat elements, lay others between them or say them in more bytes, and always alike."""


def growing(graph: Graph, op: int) -> bool:
    """Whether an op makes more bytes than it reads, by no work that is counted."""
    value = graph.ops[op]
    if value.type not in _GROWING or value.macs or value.region is not None:
        return False
    if len(value.inputs) != 1 or len(value.outputs) != 1 or value.outputs[0] in graph.outputs:
        return False
    return graph.tensors[value.outputs[0]].size > graph.tensors[value.inputs[0]].size


def copied(draft: AlgebraDraft, reader: int, source: int) -> AlgebraDraft | None:
    """Return the draft where op ``reader`` reads what a copy of op ``source`` makes; None where nothing else reads it.

    Every number is computed as before.
    """
    graph = draft.graph
    value, maker = graph.ops[reader], graph.ops[source]
    if not growing(graph, source) or value.region is not None:
        return None
    made = maker.outputs[0]
    readers = [number for number, op in enumerate(graph.ops) if made in op.inputs]
    if len(readers) < 2 or reader not in readers or producers(graph)[made] != source:
        return None
    editor = Editor(draft, reader)
    own = editor.tensor(made, graph.tensors[made].shape or (), "#late")
    editor.copy(maker, [maker.inputs[0]], own, attributes=draft.dialect.copy_attributes(maker, len(graph.tensors)))
    editor.keep(value, [own if tensor == made else tensor for tensor in value.inputs])
    return editor.draft()
