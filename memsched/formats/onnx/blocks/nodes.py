"""The nodes of a graph that was rewritten: in an order that executes, without those that nothing needs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from onnx import GraphProto, NodeProto

from memsched.base.errors import InternalError
from memsched.formats.onnx.blocks.regions import names_read

__all__ = ["replace_nodes"]


def replace_nodes(graph: GraphProto, nodes: Sequence[NodeProto]) -> None:
    """Put ``nodes`` into ``graph`` in place of its own, with what is declared and held for them alone.

    Each follows those that it reads from, else in the order given; what leads to no output is left out.

    Raises:
        InternalError: They form a circle.
    """
    maker = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    reads = [list(dict.fromkeys(names_read(node))) for node in nodes]
    wanted: set[int] = set()
    waiting = [maker[value.name] for value in graph.output if value.name in maker]
    while waiting:
        place = waiting.pop()
        if place not in wanted:
            wanted.add(place)
            waiting.extend(maker[name] for name in reads[place] if name in maker)
    ordered = [nodes[place] for place in _sorted(wanted, maker, reads)]
    del graph.node[:]
    graph.node.extend(ordered)
    held = {name for place in wanted for name in (*reads[place], *nodes[place].output)}
    held.update(value.name for value in (*graph.output, *graph.input))
    for field in (graph.initializer, graph.value_info):
        kept = [one for one in field if one.name in held]
        del field[:]
        field.extend(kept)


def _sorted(wanted: set[int], maker: dict[str, int], reads: Sequence[Sequence[str]]) -> list[int]:
    left = {place: len({maker[name] for name in reads[place] if name in maker}) for place in wanted}
    readers: dict[int, list[int]] = {}
    for place in wanted:
        for before in {maker[name] for name in reads[place] if name in maker}:
            readers.setdefault(before, []).append(place)
    ready = [place for place in wanted if not left[place]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for reader in readers.get(place, ()):
            left[reader] -= 1
            if not left[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(wanted):
        raise InternalError("loops read what follows from them", code="loops-in-a-circle")
    return order
