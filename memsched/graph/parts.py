"""A part of a graph as a graph of its own: what it is given from outside, and what others need of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memsched.graph.model import Graph

__all__ = ["part_of", "readers_of"]


def readers_of(graph: Graph) -> list[list[int]]:
    """Return, per tensor, the ops that read it."""
    readers: list[list[int]] = [[] for _ in graph.tensors]
    for number, op in enumerate(graph.ops):
        for tensor in dict.fromkeys(op.inputs):
            readers[tensor].append(number)
    return readers


def part_of(
    graph: Graph,
    ops: Sequence[int],
    readers: Sequence[Sequence[int]] | None = None,
    handed: Sequence[int] = (),
) -> Graph:
    """Return the graph of ``ops`` alone, in the order given.

    Its inputs are the tensors that they read and do not make; its outputs those that other ops, or the caller of
    ``graph``, need. Variables of ``graph`` that they touch stay variables.

    Args:
        readers: What `readers_of` says of ``graph``, where many parts of it are made.
        handed: Tensors that the part is given and hands on, whether or not it reads them.
    """
    inside = set(ops)
    readers = readers_of(graph) if readers is None else readers
    made = {tensor for op in ops for tensor in graph.ops[op].outputs}
    read = dict.fromkeys(tensor for op in ops for tensor in graph.ops[op].inputs)
    results_of_all = set(graph.outputs)
    variables = [tensor for tensor in graph.variables if tensor in made or tensor in read]
    held = set(variables)
    read.update(dict.fromkeys(handed))
    given = [tensor for tensor in read if tensor not in made and tensor not in held]
    results = [
        tensor
        for tensor in sorted(made - held)
        if tensor in results_of_all or any(reader not in inside for reader in readers[tensor])
    ] + list(handed)
    number = {tensor: place for place, tensor in enumerate(sorted({*made, *read, *held}))}
    position = {op: place for place, op in enumerate(ops)}
    return Graph(
        name=graph.name,
        tensors=tuple(graph.tensors[tensor] for tensor in number),
        ops=tuple(
            replace(
                graph.ops[op],
                inputs=tuple(number[tensor] for tensor in graph.ops[op].inputs),
                outputs=tuple(number[tensor] for tensor in graph.ops[op].outputs),
                views=tuple((number[output], number[source]) for output, source in graph.ops[op].views),
                in_place=tuple((number[output], number[source]) for output, source in graph.ops[op].in_place),
            )
            for op in ops
        ),
        inputs=tuple(number[tensor] for tensor in given),
        outputs=tuple(number[tensor] for tensor in results),
        variables=tuple(number[tensor] for tensor in variables),
        dependencies=tuple(
            (position[before], position[after])
            for before, after in graph.dependencies
            if before in position and after in position
        ),
        cut_for=graph.cut_for,
    )
