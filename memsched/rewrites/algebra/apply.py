"""Which identities a graph has, and the graph that they lead to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memsched.graph.dag import producers
from memsched.graph.identity import Identity
from memsched.rewrites.algebra.copies import copied, growing
from memsched.rewrites.algebra.draft import AlgebraDraft, readers_of
from memsched.rewrites.algebra.exchange import crossed, mergeable, merged, rearranges, unary
from memsched.rewrites.algebra.moves import row_above, shifted, subsamples
from memsched.rewrites.algebra.parts import joined, split, summed

__all__ = ["applied", "drafted", "identities"]

_RULES = {"merge": merged, "shift": shifted, "cross": crossed, "late": copied, "split": split, "sum": summed}


def applied(draft: AlgebraDraft, identity: Identity) -> AlgebraDraft | None:
    """Return the draft with one op computed otherwise; None where it has no such ops, or they don't permit it."""
    number = {op.name: place for place, op in enumerate(draft.graph.ops)}
    if identity.op not in number or identity.over not in number:
        return None
    tied = {op for pair in draft.graph.dependencies for op in pair}
    op, over = number[identity.op], number[identity.over]
    pure = draft.graph.ops[op].effects.pure and draft.graph.ops[over].effects.pure
    return None if {op, over} & tied or not pure else _RULES[identity.kind](draft, op, over)


def drafted(draft: AlgebraDraft, way: Sequence[Identity]) -> AlgebraDraft:
    """Return what a graph becomes by identities in turn; those that it does not have any more are left out."""
    for identity in way:
        draft = applied(draft, identity) or draft
    return draft


def identities(draft: AlgebraDraft) -> Iterator[Identity]:
    """Yield what may be done to a graph, by what is read; that it can be done is only known once it is."""
    graph = draft.graph
    readers, made_by = readers_of(graph), producers(graph)
    for tensor, users in readers.items():
        yield from _equal(draft, users)
        source = made_by[tensor]
        if source >= 0:
            for user in users:
                yield from _at(draft, user, source, made_by)
            if growing(graph, source):
                # The first reader keeps what is there.
                yield from (Identity("late", graph.ops[user].name, graph.ops[source].name) for user in users[1:])


def _equal(draft: AlgebraDraft, users: Sequence[int]) -> Iterator[Identity]:
    ops = draft.graph.ops
    kept: dict[tuple[object, ...], int] = {}
    for user in users:
        if len(ops[user].outputs) != 1:
            continue
        other = kept.setdefault((ops[user].type, ops[user].inputs), user)
        if other != user and mergeable(draft, user, other):
            yield Identity("merge", ops[user].name, ops[other].name)


def _at(draft: AlgebraDraft, user: int, source: int, made_by: Sequence[int]) -> Iterator[Identity]:
    graph = draft.graph
    value, above = graph.ops[user], graph.ops[source]
    if not above.inputs or not value.inputs or not value.outputs:
        return
    if joined(graph, source) is not None:
        yield Identity("split", value.name, above.name)
        if draft.sums:
            yield Identity("sum", value.name, above.name)
        return
    row = row_above(draft, user, made_by)
    if len(row) > 1:
        yield Identity("shift", value.name, graph.ops[row[-1]].name)
    if (unary(draft, source) and (subsamples(draft, user) or rearranges(value))) or unary(draft, user):
        yield Identity("cross", value.name, above.name)
