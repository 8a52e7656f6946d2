"""Large values computed once for each op that reads them: no gain by itself, but what one op reads can be cut with it.

A value that many ops read must be whole, or all its readers cut in one group. A copy of its own for each reader, where
that is cheap, leaves chains: groups of two or three ops in which the value never is whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memsched.graph.model import Graph

__all__ = ["apart"]

_MOST_COPIES = 2
"""Executions at most, as a multiple of the ops."""


def apart(graph: Graph, costs: Sequence[int], repeat: Sequence[bool], most: float) -> tuple[int, ...]:
    """Return a sequence in which the largest value that several ops read is executed for each; () where none may be.

    What it is made from, and is as large, is executed for each as well.

    Args:
        graph: Its ops in a possible order.
        costs: Per op, of one execution.
        repeat: Per op whether it may be executed again.
        most: Cost of the repetitions at most.
    """
    made = {tensor: op for op, one in enumerate(graph.ops) for tensor in one.outputs}
    inputs = [
        tuple(dict.fromkeys(made[tensor] for tensor in one.inputs if tensor in made and repeat[made[tensor]]))
        for one in graph.ops
    ]
    largest = [max((graph.tensors[tensor].size for tensor in one.outputs), default=0) for one in graph.ops]
    read = [0] * len(graph.ops)
    for op in range(len(graph.ops)):
        for source in inputs[op]:
            read[source] += 1
    level = max((largest[op] for op, count in enumerate(read) if count > 1), default=0)
    split = [[source for source in sources if largest[source] >= level > 0] for sources in inputs]
    times = _times(split)
    extra = sum((count - 1) * cost for count, cost in zip(times, costs, strict=True))
    if max(times, default=1) == 1 or extra > most or sum(times) > _MOST_COPIES * len(times):
        return ()
    return tuple(_executed(split))


def _times(split: Sequence[Sequence[int]]) -> list[int]:
    """Return how often each op is executed: once for each execution of an op that has a copy of its own."""
    times = [0] * len(split)
    for op in reversed(range(len(split))):
        times[op] = max(1, times[op])
        for source in split[op]:
            times[source] += times[op]
    return times


def _executed(split: Sequence[Sequence[int]]) -> Iterator[int]:
    """Yield the sequence: what an op has a copy of right before it."""
    copied = {source for sources in split for source in sources}
    for last in range(len(split)):
        if last in copied:
            continue
        waiting = [(last, False)]
        while waiting:
            op, ready = waiting.pop()
            if ready or not split[op]:
                yield op
            else:
                waiting.append((op, True))
                waiting += [(source, False) for source in reversed(split[op])]
