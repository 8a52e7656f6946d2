"""The last step of every rewrite of a graph: names that nothing else has, and tensors that are gone left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from memsched.graph.model import Graph, Op, Tensor

__all__ = ["names_of", "rebuilt", "unused_name"]


def names_of(graph: Graph) -> set[str]:
    """Return the names of all tensors and ops."""
    return {tensor.name for tensor in graph.tensors} | {op.name for op in graph.ops}


def unused_name(wanted: str, taken: set[str], mark: str = ".") -> str:
    """Return ``wanted``, with ``mark`` and a number behind it where it is taken; from then on it is."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}{mark}{number}"
    taken.add(name)
    return name


def rebuilt(
    graph: Graph, tensors: Sequence[Tensor], ops: Sequence[Op], place: Mapping[int, int], gone: Collection[int] = ()
) -> Graph:
    """Return ``graph`` with other tensors and ops.

    Args:
        tensors: Those of ``graph`` and, behind them, new ones.
        ops: They refer to ``tensors``.
        place: Per op of ``graph`` that another one is tied to its index in ``ops``.
        gone: Tensors to be left out; the others move up.
    """
    tied = tuple((place[before], place[after]) for before, after in graph.dependencies)
    if not gone:
        return replace(graph, tensors=tuple(tensors), ops=tuple(ops), dependencies=tied)
    left = [tensor for tensor in range(len(tensors)) if tensor not in gone]
    number = {old: new for new, old in enumerate(left)}

    def moved(given: Sequence[int]) -> tuple[int, ...]:
        return tuple(number[tensor] for tensor in given)

    return replace(
        graph,
        tensors=tuple(tensors[tensor] for tensor in left),
        ops=tuple(replace(op, inputs=moved(op.inputs), outputs=moved(op.outputs)) for op in ops),
        inputs=moved(graph.inputs),
        outputs=moved(graph.outputs),
        variables=moved(graph.variables),
        dependencies=tied,
    )
