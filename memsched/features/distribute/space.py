"""A network as distribution sees it: per op the ways to divide it, per tensor its axes and how long it is needed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from memsched.base.errors import MemschedError, UsageError
from memsched.base.frozen import FrozenValue
from memsched.features.distribute.boxes import EMPTY, Box, Extents, extents_of, hull, layout_of, volume
from memsched.features.distribute.divisions import Division, divide, undivided
from memsched.graph import dag
from memsched.graph.distribution import Axis, Distribution, Share
from memsched.graph.liveness import Storage
from memsched.graph.model import Graph, Op
from memsched.ops.geometry import describe
from memsched.ops.rules import CONSTANT_SHAPE, Geometry

__all__ = ["DistributionError", "NoPlanFitsError", "Space", "constant_bytes"]

_AXES: tuple[Axis, ...] = ("channels", "rows")


class DistributionError(MemschedError):
    """A network cannot be distributed at all."""

    code = "not-distributable"


class NoPlanFitsError(MemschedError):
    """No plan that was found fits the memory of the cluster's devices.

    Attributes:
        needed: Per device the bytes of the plan that exceeds the memories least.
        least: The bytes that every device would need if all had the same memory, by the best plan found for that.
        proven: Whether no plan at all needs less.
        smallest: The plan that ``least`` is of, where there is one.
    """

    code = "no-plan-fits"
    exit_code = 3

    def __init__(
        self,
        message: str,
        needed: tuple[int, ...],
        least: int,
        *,
        proven: bool,
        smallest: Distribution | None = None,
    ) -> None:
        super().__init__(message)
        self.smallest = smallest
        self.needed = needed
        self.least = least
        self.proven = proven


class Space(FrozenValue, frozen=True):
    """All ways of dividing the ops of a network, in an order of execution.

    Attributes:
        order: Op indices; positions below are places in it.
        extents: Per tensor its axes.
        divisions: Per position the ways of dividing the op; "whole" is always one.
        geometries: Per position what region deduction knows about the op; None where it knows nothing.
        first: Per tensor the position of the op that makes it, -1 for inputs of the network.
        last: Per tensor the position of its last reader, the number of ops for outputs of the network, ``first``
            where nothing reads it.
        readers: Per tensor the positions of the ops that read it, ascending.
        results: Outputs of the network, each once.
    """

    graph: Graph
    order: tuple[int, ...]
    extents: tuple[Extents, ...]
    divisions: tuple[Mapping[Axis, Division], ...]
    geometries: tuple[Geometry | None, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]
    readers: tuple[tuple[int, ...], ...]
    results: tuple[int, ...]

    @staticmethod
    def of(
        graph: Graph,
        order: Sequence[int] | None = None,
        weights: Mapping[int, Mapping[int, int]] | None = None,
        refused: Collection[tuple[int, Axis]] = (),
    ) -> Space:
        """Return the space of ``graph``.

        Args:
            order: The order of execution; None for the graph's own.
            weights: Per op the bytes of its constants by position. What it does not name follows from the shapes
                that the graph states (`constant_bytes`).
            refused: (op, axis) along which no op is divided, whatever its regions permit.

        Raises:
            DistributionError: The network keeps a state, which no two devices could share.
        """
        _check(graph)
        order = tuple(range(len(graph.ops))) if order is None else tuple(order)
        if sorted(order) != list(range(len(graph.ops))):
            raise UsageError(
                f"an order of {len(order)} ops does not fit a graph of {len(graph.ops)}", code="order-incomplete"
            )
        layout = layout_of(graph)
        extents = tuple(extents_of(tensor, layout) for tensor in graph.tensors)
        divisions: list[Mapping[Axis, Division]] = []
        geometries: list[Geometry | None] = []
        for index in order:
            op = graph.ops[index]
            constants = {**constant_bytes(graph, op), **((weights or {}).get(index, {}))}
            geometry = describe(graph, index)
            known = geometry if isinstance(geometry, Geometry) else None
            geometries.append(known)
            found: dict[Axis, Division] = {"whole": undivided(op, extents, constants.values())}
            for axis in _AXES if known is not None else ():
                permitted = known is not None and (index, axis) not in refused
                division = divide(op, known, axis, extents, constants) if known is not None and permitted else None
                if division is not None:
                    found[axis] = division
            divisions.append(found)
        return Space(graph, order, extents, tuple(divisions), tuple(geometries), *_lifetimes(graph, order))

    def op(self, position: int) -> Op:
        """Return the op at a position."""
        return self.graph.ops[self.order[position]]

    def division(self, position: int, share: Share) -> Division:
        """Return the division that ``share`` applies to its op.

        Raises:
            UsageError: The op cannot be divided so, or the bounds are not valid.
        """
        op = self.op(position)
        division = self.divisions[position].get(share.axis)
        if share.op != self.order[position] or division is None:
            problem = f"op '{op.name}' ({op.type}) is not at this place, or cannot be divided by {share.axis}"
            raise UsageError(problem, code="not-divisible")
        bounds = share.bounds
        rising = all(low <= high for low, high in itertools.pairwise(bounds))
        if not rising or bounds[0] != 0 or bounds[-1] != division.length:
            problem = f"bounds {list(bounds)} do not rise from 0 to {division.length}"
            raise UsageError(problem, code="bad-bounds", location=f"op '{op.name}'")
        if any(bound % division.unit and bound != division.length for bound in bounds):
            problem = f"bounds {list(bounds)} are no multiples of {division.unit}"
            raise UsageError(problem, code="bad-bounds", location=f"op '{op.name}'")
        return division

    def needs(self, division: Division, start: int, stop: int) -> list[Box]:
        """Return, per tensor that the op reads, the box that the part [start, stop) of its output needs."""
        if start >= stop:
            return [EMPTY] * len(division.tensors)
        first, last, units = division.unit_of(start), division.unit_of(stop), division.units
        result = []
        for channels, rows in zip(division.channels, division.rows, strict=True):
            boxes: list[Box] = []
            for one, other in zip(channels, rows, strict=True):
                low, high = one if isinstance(one, tuple) else one.of(first, last, units)
                top, bottom = other if isinstance(other, tuple) else other.of(first, last, units)
                boxes.append((low, high, top, bottom))
            result.append(hull([box for box in boxes if volume(box)]))
        return result

    def output_bytes(self, position: int, share: float = 1.0) -> float:
        """Return the bytes of the part ``share`` of all outputs of an op."""
        return share * sum(self.graph.tensors[tensor].size for tensor in self.op(position).outputs)


def constant_bytes(graph: Graph, op: Op) -> dict[int, int]:
    """Return the bytes of an op's constants by position, as far as the graph tells their shapes.

    Elements are taken to be as large as those of the op's output; beside outputs of 8 bits, those of vectors (biases)
    have 32.
    """
    output = graph.tensors[op.outputs[0]] if op.outputs else None
    elements = math.prod(output.shape) if output is not None and output.shape else 0
    width = max(1, output.size // elements) if output is not None and elements else 4
    result = {}
    for name, value in op.attributes.items():
        if name.startswith(CONSTANT_SHAPE) and isinstance(value, tuple):
            shape = [int(size) for size in value]
            one = 4 if width == 1 and len(shape) == 1 else width
            result[int(name[len(CONSTANT_SHAPE) :])] = math.prod(shape) * one
    return dict(sorted(result.items()))


def _check(graph: Graph) -> None:
    if graph.variables or any(op.effects.stateful for op in graph.ops):
        raise DistributionError(f"graph '{graph.name}' keeps a state, which no two devices can share", code="stateful")
    if graph.dependencies:
        first, second = (graph.ops[op] for op in graph.dependencies[0])
        raise DistributionError(
            f"op '{first.name}' ({first.type}) must run before '{second.name}' ({second.type}) although neither reads "
            "the other's output, and devices keep no such order",
            code="order-unkept",
        )
    if not graph.ops:
        raise DistributionError(f"graph '{graph.name}' has no ops to distribute", code="nothing-to-distribute")
    for op in graph.ops:
        if op.effects.captures:
            problem = f"op '{op.name}' ({op.type}) executes another graph, which is not distributed"
            raise DistributionError(problem, code="nested-graph")
        if not op.outputs:
            raise DistributionError(
                f"op '{op.name}' ({op.type}) has no output that a device could keep", code="no-output"
            )
    exchanged = {tensor for op in graph.ops for tensor in op.inputs} | {*graph.inputs, *graph.outputs}
    for number, tensor in enumerate(graph.tensors):
        if not tensor.sized and number in exchanged:
            problem = f"nothing states the size of '{tensor.name}', which devices would send each other"
            raise DistributionError(problem, code="unknown-size")


def _lifetimes(
    graph: Graph, order: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Return first, last, readers and results by the memory model; pieces on devices share no bytes."""
    place = {op: position for position, op in enumerate(order)}
    preds = dag.predecessors(graph)
    if any(place[before] > place[op] for op in range(len(order)) for before in preds[op]):
        raise UsageError("an order executes an op before what it reads is there", code="order-reads-early")
    ops = tuple(replace(op, views=(), view_offsets=(), in_place=()) for op in graph.ops)
    storage = Storage.of(replace(graph, ops=ops))
    first, last = [-1] * len(graph.tensors), [-1] * len(graph.tensors)
    readers: list[tuple[int, ...]] = [()] * len(graph.tensors)
    for buffer, tensor in enumerate(storage.tensor_of):
        maker = storage.creator[buffer]
        first[tensor] = place[maker] if maker >= 0 else -1
        readers[tensor] = tuple(sorted(place[user] for user in storage.users[buffer]))
        last[tensor] = len(order) if storage.kept[buffer] else max(readers[tensor], default=first[tensor])
    return tuple(first), tuple(last), tuple(readers), tuple(dict.fromkeys(graph.outputs))
