"""Execution orders that cost next to nothing: the baselines, and where the searches start.

All are deterministic and take time linear in the graph (times a logarithm for the greedy ones), without recursion.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from memsched.graph.liveness import Storage, match_in_place
from memsched.solve.schedule.compiled_orders import post_order

__all__ = ["ORDERS", "depth_first", "file_order", "greedy", "release_first", "reverse_post_order"]

_Key = tuple[int, int, int]


def file_order(storage: Storage) -> tuple[int, ...]:
    """Return the order in which the model stores its ops."""
    return tuple(range(len(storage.preds)))


def reverse_post_order(storage: Storage) -> tuple[int, ...]:
    """Return the order of the compilers that know nothing of memory ("Iterative Graph Optimization", V-A2: RPO).

    A depth-first walk against the edges, from the ops that no other needs in file order; an op comes after its
    predecessors, which are visited in file order: the reverse of the graph in post-order, as TVM and TensorFlow Lite
    visit an expression. This tie-break gives all nine RPO figures of that paper's networks as rebuilt.
    """
    found = post_order(storage.uses, last_first=False)
    return depth_first(storage.preds, storage.succs) if found is None else found


def depth_first(preds: Sequence[Sequence[int]], succs: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return nodes in the order in which a depth-first walk against the edges, from those without a successor, ends."""
    placed = [False] * len(preds)
    result: list[int] = []
    for sink in (node for node, afters in enumerate(succs) if not afters):
        stack = [(sink, 0)]
        while stack:
            node, position = stack.pop()
            if placed[node]:
                continue
            befores = preds[node]
            while position < len(befores) and placed[befores[position]]:
                position += 1
            if position == len(befores):
                placed[node] = True
                result.append(node)
            else:
                stack.append((node, position + 1))
                stack.append((befores[position], 0))
    return tuple(result)


def greedy(storage: Storage) -> tuple[int, ...]:
    """Return the list schedule that always runs the ready op with the least footprint.

    Ties by the least net change of the residue, then by file order.
    """
    return _list_schedule(storage, lambda excess, net, _: (excess, net, 0))


def release_first(storage: Storage) -> tuple[int, ...]:
    """Return the list schedule that always runs the ready op that releases the most bytes; ties by file order."""
    return _list_schedule(storage, lambda _excess, _net, released: (-released, 0, 0))


def _list_schedule(storage: Storage, rank: Callable[[int, int, int], _Key]) -> tuple[int, ...]:
    """Run the ready op of the least ``rank(excess, net change, released bytes)``, ties by file order.

    An op's figures change only when one of its buffers is left to it alone, so each buffer causes one new entry in
    the heap; entries that are no longer true are skipped.
    """
    remaining = storage.remaining_uses()
    waiting = [len(befores) for befores in storage.preds]
    ranks: list[_Key | None] = [None] * len(waiting)
    heap: list[tuple[_Key, int]] = []

    def offer(op: int) -> None:
        ranks[op] = key = rank(*_cost(storage, op, remaining))
        heapq.heappush(heap, (key, op))

    for op, count in enumerate(waiting):
        if not count:
            offer(op)
    result: list[int] = []
    while heap:
        key, op = heapq.heappop(heap)
        if ranks[op] != key:
            continue
        ranks[op] = None
        waiting[op] = -1
        result.append(op)
        changed: list[int] = []
        for buffer in storage.reads[op]:
            remaining[buffer] -= 1
            if remaining[buffer] == 1:
                # The only user that has not run yet; found by one pass over the users, once per buffer.
                changed.extend(user for user in storage.users[buffer] if waiting[user] >= 0)
        for after in storage.succs[op]:
            waiting[after] -= 1
            if not waiting[after]:
                offer(after)
        for user in changed:
            if ranks[user] is not None:
                offer(user)
    return tuple(result)


def _cost(storage: Storage, op: int, remaining: list[int]) -> tuple[int, int, int]:
    """Return the bytes of ``op``'s footprint above the residue before it, its net change and what it releases."""
    sizes = storage.sizes
    released = created = unread = 0
    for buffer in storage.reads[op]:
        if remaining[buffer] == 1:
            released += sizes[buffer]
    for buffer in storage.creates[op]:
        created += sizes[buffer]
        if not remaining[buffer]:
            unread += sizes[buffer]
    pairs = [pair for pair in storage.takes[op] if remaining[pair[1]] == 1]
    merged = sum([sizes[buffer] for buffer, _ in match_in_place(pairs, sizes)]) if pairs else 0
    return created + storage.workspace[op] - merged, created - released - unread, released + unread


ORDERS: Mapping[str, Callable[[Storage], tuple[int, ...]]] = MappingProxyType(
    {
        "file": file_order,
        "reverse post-order": reverse_post_order,
        "greedy": greedy,
        "release first": release_first,
    }
)
"""By name, in order of preference among equals."""
