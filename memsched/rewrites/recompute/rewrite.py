"""From a sequence that executes some ops several times to a graph in which each execution is an op of its own.

Each reader takes the value that was computed last before it. What no later execution needs is left out, so a sequence
says no more than "by now this value should be there again".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph, Op, Tensor
from memsched.graph.replacement import names_of, rebuilt, unused_name
from memsched.rewrites.recompute.unread import Readers

__all__ = ["RematGraph", "extra_bytes", "rematerialise", "repeatable"]


class RematGraph(FrozenValue, frozen=True):
    """A graph in which some ops are executed several times.

    Attributes:
        graph: Its ops are in the order of the sequence; copies have an ``origin``.
        sequence: The executions that are left, as ops of the given graph; one per op of ``graph``.
        extra_macs: Multiply-accumulates of the copies.
        extra_bytes: Bytes that the copies read and write.
    """

    graph: Graph
    sequence: tuple[int, ...]
    extra_macs: int
    extra_bytes: int


def repeatable(graph: Graph) -> tuple[bool, ...]:
    """Return per op whether executing it again gives the same values and has no other effect."""
    tied = {op for pair in graph.dependencies for op in pair}
    states = set(graph.variables)
    return tuple(
        bool(op.outputs)
        and number not in tied
        and op.effects.repeatable()
        and not states & {*op.inputs, *op.outputs}
        # An output of a graph has one name, and one op that makes it.
        and not any(tensor in graph.outputs for tensor in op.outputs)
        for number, op in enumerate(graph.ops)
    )


def rematerialise(graph: Graph, sequence: Sequence[int], dialect: Dialect) -> RematGraph:
    """Return ``graph`` as executed by ``sequence``.

    Args:
        sequence: Indices of ops, each at least once and after its inputs; repetitions of an op are further copies.

    Raises:
        InternalError: An op is missing, or comes before its inputs.
    """
    readers = Readers.of(graph)
    _check_order(graph, readers.operands, sequence)
    kept = readers.needed(sequence)
    tensors = list(graph.tensors)
    names = names_of(graph)
    current: dict[int, int] = {tensor: tensor for tensor in (*graph.inputs, *graph.variables)}
    runs: dict[int, int] = {}
    place: dict[int, int] = {}
    ops: list[Op] = []
    macs = moved = 0
    for number in kept:
        op = graph.ops[number]
        run = runs[number] = runs.get(number, -1) + 1
        inputs = tuple(current[tensor] for tensor in op.inputs)
        if not run:
            place[number] = len(ops)
            ops.append(_reading(op, inputs, op.outputs))
            current.update((tensor, tensor) for tensor in op.outputs)
            continue
        outputs = []
        for tensor in op.outputs:
            tensors.append(_copy(tensors[tensor], run, names))
            current[tensor] = len(tensors) - 1
            outputs.append(current[tensor])
        name = unused_name(f"{op.name}#again{run}", names)
        attributes = dialect.copy_attributes(op, run)
        copy = _reading(op, inputs, tuple(outputs))
        ops.append(replace(copy, name=name, attributes=attributes, origin=op.name))
        macs += op.macs
        moved += extra_bytes(graph, number)
    result = rebuilt(graph, tensors, ops, place)
    return RematGraph(result, tuple(kept), macs, moved)


def _reading(op: Op, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Op:
    """Return ``op`` on other tensors, what it shares with them included."""
    now = dict(zip((*op.inputs, *op.outputs), (*inputs, *outputs), strict=True))
    return replace(
        op,
        inputs=inputs,
        outputs=outputs,
        views=tuple((now[output], now[read]) for output, read in op.views),
        in_place=tuple((now[output], now[read]) for output, read in op.in_place),
    )


def extra_bytes(graph: Graph, op: int) -> int:
    """Return the bytes that one execution of an op reads and writes, constants left out."""
    value = graph.ops[op]
    return sum(graph.tensors[tensor].size for tensor in (*value.inputs, *value.outputs))


def _check_order(graph: Graph, reads: Sequence[Sequence[int]], sequence: Sequence[int]) -> None:
    done: set[int] = set()
    for number in sequence:
        if not done.issuperset(reads[number]):
            raise InternalError(f"op '{graph.ops[number].name}' comes before its input", code="order")
        done.add(number)
    if len(done) != len(graph.ops):
        raise InternalError("a sequence does not execute every op", code="op-missing")


def _copy(tensor: Tensor, run: int, names: set[str]) -> Tensor:
    return replace(tensor, name=unused_name(f"{tensor.name}#again{run}", names))
