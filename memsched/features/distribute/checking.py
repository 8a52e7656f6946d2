"""The independent check of a plan: what parts need is deduced from regions, not taken from the planner's tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.check.distribution import check_distribution
from memsched.features.distribute.boxes import Box, extents_of, hull, layout_of
from memsched.features.distribute.space import constant_bytes
from memsched.graph.distribution import Distribution, Transfer
from memsched.graph.model import Graph, Region
from memsched.ops.geometry import describe
from memsched.ops.ranges import PieceNeeds, deduce, whole
from memsched.ops.rules import Geometry, Refusal
from memsched.targets.cluster import Cluster

__all__ = ["StepWork", "check_plan", "work_of"]


def check_plan(
    graph: Graph, plan: Distribution, cluster: Cluster, weights: Mapping[int, Mapping[int, int]] | None = None
) -> None:
    """Check that ``plan`` computes ``graph`` on ``cluster`` in its memory, and takes as long as it claims.

    Args:
        weights: As for `Space.of`.

    Raises:
        InternalError: It does not.
    """
    if plan.devices != len(cluster.devices):
        raise InternalError(
            f"a plan for {plan.devices} devices was made for a cluster of {len(cluster.devices)}", code="device-count"
        )
    if not cluster.router.overlap and any(step.ahead for step in plan.steps):
        raise InternalError(
            "a plan sends while its devices compute, which the cluster's do not", code="not-overlapping"
        )
    operators = _Operators(graph, weights or {})
    check_distribution(graph, plan, operators.needs, operators.constants)
    for device, used in zip(cluster.devices, plan.memory, strict=True):
        if used > device.memory:
            raise InternalError(
                f"a plan needs {used} bytes on '{device.name}', which has {device.memory}", code="too-little-memory"
            )
    seconds = sum(work.seconds(cluster) for work in _work(graph, plan, cluster, operators))
    if not math.isclose(seconds, plan.latency, rel_tol=1e-9, abs_tol=1e-15):
        raise InternalError(
            f"a plan takes {seconds} s by its cluster's model, not {plan.latency} s", code="latency-claim"
        )


class StepWork(FrozenValue, frozen=True):
    """What devices do between two synchronisations.

    Attributes:
        sent: Bytes that leave each device; -1 is the source of the network's inputs.
        received: Bytes that reach each device.
        given: Which devices receive any of the network's inputs.
        ops: Per device the type, multiply-accumulates, and bytes read and written of every part that it computes.
        ahead: Per device the bytes that it sends, and that reach it, while it computes; nothing for none.
    """

    sent: Mapping[int, int]
    received: Mapping[int, int]
    given: frozenset[int]
    ops: tuple[tuple[tuple[str, float, float], ...], ...]
    ahead: tuple[tuple[int, int], ...] = ()

    def seconds(self, cluster: Cluster) -> float:
        """Return how long the slowest takes by a cluster's model."""
        busy = {device: cluster.router.seconds(self.sent[device], self.received[device]) for device in self.sent}
        for device in self.given:
            busy[device] = max(busy[device], busy[-1])
        for device in range(len(self.ops)):
            beside = cluster.router.seconds(*self.ahead[device]) if self.ahead else 0.0
            busy[device] += max(self.computing(cluster, device), beside)
        return max(busy.values())

    def computing(self, cluster: Cluster, device: int) -> float:
        """Return how long a device computes by a cluster's model."""
        one = cluster.devices[device]
        return sum(one.time_of(kind).seconds(macs, touched) for kind, macs, touched in self.ops[device])


def work_of(
    graph: Graph, plan: Distribution, cluster: Cluster, weights: Mapping[int, Mapping[int, int]] | None = None
) -> tuple[StepWork, ...]:
    """Return what is sent and computed in every step of a plan, and after the last; ``weights`` as for `Space.of`."""
    return tuple(_work(graph, plan, cluster, _Operators(graph, weights or {})))


class _Operators:
    """What parts of ops read."""

    def __init__(self, graph: Graph, weights: Mapping[int, Mapping[int, int]]) -> None:
        self.graph = graph
        self._sizes = [{**constant_bytes(graph, op), **weights.get(place, {})} for place, op in enumerate(graph.ops)]
        layout = layout_of(graph)
        self._extents = [extents_of(tensor, layout) for tensor in graph.tensors]
        self._known: dict[tuple[int, Region], PieceNeeds | None] = {}
        self._geometries: dict[int, Geometry | Refusal] = {}

    def _needed(self, op: int, region: Region) -> PieceNeeds | None:
        """Return what a part needs; None where it is the whole op."""
        if (op, region) not in self._known:
            self._known[op, region] = self._deduced(op, region)
        return self._known[op, region]

    def _deduced(self, op: int, region: Region) -> PieceNeeds | None:
        output = self.graph.tensors[self.graph.ops[op].outputs[0]]
        if region == whole(output.shape or ()):
            return None
        if op not in self._geometries:
            self._geometries[op] = describe(self.graph, op)
        geometry = self._geometries[op]
        found = geometry if isinstance(geometry, Refusal) else deduce(geometry, self.graph.ops[op], region)
        if isinstance(found, Refusal):
            raise InternalError(f"a plan computes {region.ranges} of an op, but {found.reason}", code="not-deduced")
        if any(margin != (0, 0) for margin in found.crop):
            raise InternalError(
                f"a plan computes a part of op '{self.graph.ops[op].name}' that needs a margin", code="not-deduced"
            )
        return found

    def needs(self, op: int, region: Region) -> Sequence[Region | None]:
        """Return the region of each input that is read."""
        found = self._needed(op, region)
        if found is None:
            return [whole(self.graph.tensors[tensor].shape or ()) for tensor in self.graph.ops[op].inputs]
        return [one.region for one in found.inputs]

    def read_bytes(self, op: int, region: Region) -> int:
        """Return the bytes of activations that are read: of each tensor the smallest box around what is needed."""
        boxes: dict[int, list[Box]] = {}
        for tensor, needed in zip(self.graph.ops[op].inputs, self.needs(op, region), strict=True):
            mine = boxes.setdefault(tensor, [])
            if needed is not None:
                mine.append(self._extents[tensor].box(needed))
        return sum(self._extents[tensor].size(hull(mine)) for tensor, mine in boxes.items())

    def constants(self, op: int, region: Region) -> int:
        """Return the bytes of the constants that are read."""
        found = self._needed(op, region)
        sizes = self._sizes[op]
        if found is None:
            return sum(sizes.values())
        geometry = self._geometries[op]
        left = dict(sizes)
        for part in found.weights:
            if part.position in left and isinstance(geometry, Geometry):
                length = geometry.shapes[part.position][part.axis]
                left[part.position] = left[part.position] * (part.stop - part.start) // length
        return sum(left.values())


def _work(graph: Graph, plan: Distribution, cluster: Cluster, operators: _Operators) -> Iterator[StepWork]:
    """Yield what is sent and computed in every step, and after the last."""
    once = cluster.router.mode == "broadcast"

    def moved(transfers: Sequence[Transfer]) -> tuple[dict[int, int], dict[int, int]]:
        sent = dict.fromkeys(range(-1, plan.devices), 0)
        received = dict(sent)
        for one in transfers:
            sent[one.source] += one.size if once else one.size * len(one.targets)
            for target in one.targets:
                received[target] += one.size
        return sent, received

    for number in range(len(plan.steps) + 1):
        transfers = plan.steps[number].transfers if number < len(plan.steps) else plan.results
        sent, received = moved(transfers)
        during = moved(plan.steps[number].ahead if number < len(plan.steps) else ())
        ahead = tuple((during[0][device], during[1][device]) for device in range(plan.devices))
        ops: list[tuple[tuple[str, float, float], ...]] = []
        for mine in plan.steps[number].computations if number < len(plan.steps) else ((),) * plan.devices:
            found = []
            for part in mine:
                op = graph.ops[part.op]
                shape = graph.tensors[op.outputs[0]].shape or ()
                share = math.prod(part.region.lengths) / max(1, math.prod(shape))
                touched: float = operators.read_bytes(part.op, part.region)
                touched += share * sum(graph.tensors[tensor].size for tensor in op.outputs)
                touched += operators.constants(part.op, part.region)
                found.append((op.type, op.macs * share, touched))
            ops.append(tuple(found))
        given = frozenset(target for one in transfers if one.source < 0 for target in one.targets)
        yield StepWork(sent, received, given, tuple(ops), ahead if any(map(any, ahead)) else ())
