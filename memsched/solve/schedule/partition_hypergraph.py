"""The tasks as a hypergraph that partitioning cuts: one hyper-edge per crossing buffer, however many read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks
from memsched.graph.dag import successors_of, topological_order

__all__ = ["Balance", "Hypergraph", "Net"]


class Net(FrozenValue, frozen=True):
    """A buffer as partitioning sees it.

    Attributes:
        size: Bytes.
        creator: The creating vertex; -1 for a buffer that is there from the start.
        users: The other vertices that read it, ascending.
        kept: Whether it is live to the end.
    """

    size: int
    creator: int
    users: tuple[int, ...]
    kept: bool


class Balance(FrozenValue, frozen=True):
    """The fewest and the most tasks that a stage may hold."""

    least: int
    most: int

    @staticmethod
    def of(tasks: int, parts: int, epsilon: float) -> Balance:
        """Return what equal shares of ``tasks`` allow when each may be off by the fraction ``epsilon``."""
        share = tasks / parts
        least = max(1, min(int(share), int(share * (1 - epsilon))))
        return Balance(least, max(-(-tasks // parts), int(share * (1 + epsilon))))


@dataclass(frozen=True)
class Hypergraph:
    """Vertices, each one task or several that stay together, with precedence and nets.

    Vertices are numbered topologically.

    Attributes:
        weights: Tasks per vertex.
        preds: Per vertex its direct predecessors.
        nets: The buffers whose place in the stages can cost anything.
    """

    weights: tuple[int, ...]
    preds: tuple[tuple[int, ...], ...]
    nets: tuple[Net, ...]

    def __len__(self) -> int:
        return len(self.weights)

    @cached_property
    def succs(self) -> tuple[tuple[int, ...], ...]:
        """Per vertex its direct successors."""
        return tuple(successors_of(self.preds))

    @cached_property
    def creates(self) -> tuple[tuple[int, ...], ...]:
        """Per vertex the nets that it creates."""
        result: list[list[int]] = [[] for _ in self.weights]
        for index, net in enumerate(self.nets):
            if net.creator >= 0:
                result[net.creator].append(index)
        return tuple(map(tuple, result))

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """Per vertex the nets that it reads."""
        result: list[list[int]] = [[] for _ in self.weights]
        for index, net in enumerate(self.nets):
            for user in net.users:
                result[user].append(index)
        return tuple(map(tuple, result))

    @staticmethod
    def of(tasks: Tasks, order: Sequence[int] | None = None) -> Hypergraph:
        """Return the hypergraph of ``tasks`` in linear time: vertex i is task ``order[i]``, or task i without it."""
        order = range(len(tasks)) if order is None else order
        place = [0] * len(tasks)
        for vertex, task in enumerate(order):
            place[task] = vertex
        creator = [-1] * len(tasks.sizes)
        for task, created in enumerate(tasks.creates):
            for buffer in created:
                creator[buffer] = place[task]
        nets = (
            Net(size, made_by, tuple(sorted([place[user] for user in users])), kept)
            for size, made_by, users, kept in zip(tasks.sizes, creator, tasks.users, tasks.kept, strict=True)
        )
        preds = tuple(tuple(sorted([place[before] for before in tasks.preds[task]])) for task in order)
        return Hypergraph((1,) * len(tasks), preds, tuple(net for net in nets if _can_cost(net)))

    def cut(self, stages: Sequence[int], parts: int) -> int:
        """Return the bytes live across the boundaries of the stages, summed over the boundaries.

        What is live across them in any case, a graph input that is also an output, is left out. A buffer that
        crosses several boundaries counts at each: it takes room in every stage in between.
        """
        return sum(net.size * (_end(net, stages, parts) - _start(net, stages)) for net in self.nets)

    def residues(self, order: Sequence[int]) -> list[int]:
        """Return the bytes of nets live before the first vertex of ``order`` and after each."""
        left = [len(net.users) + net.kept for net in self.nets]
        live = sum(net.size for net in self.nets if net.creator < 0)
        result = [live]
        for vertex in order:
            for index in self.reads[vertex]:
                left[index] -= 1
                if not left[index]:
                    live -= self.nets[index].size
            live += sum(self.nets[index].size for index in self.creates[vertex])
            result.append(live)
        return result

    def contract(self, cluster: Sequence[int]) -> tuple[Hypergraph, list[int]]:
        """Return the hypergraph of clusters, numbered topologically, and the new vertex of each old one.

        Args:
            cluster: Per vertex a name of its cluster; contracting must not make a cycle.
        """
        names = sorted(set(cluster))
        index = {name: place for place, name in enumerate(names)}
        edges: list[set[int]] = [set() for _ in names]
        for vertex, befores in enumerate(self.preds):
            own = index[cluster[vertex]]
            edges[own].update(index[cluster[before]] for before in befores)
            edges[own].discard(own)
        number = _topological(edges)
        vertex_of = [number[index[name]] for name in cluster]
        weights = [0] * len(names)
        for vertex, weight in enumerate(self.weights):
            weights[vertex_of[vertex]] += weight
        preds: list[tuple[int, ...]] = [()] * len(names)
        for place, befores_of in enumerate(edges):
            preds[number[place]] = tuple(sorted(number[before] for before in befores_of))
        return Hypergraph(tuple(weights), tuple(preds), _merged(self.nets, vertex_of)), vertex_of


def _can_cost(net: Net) -> bool:
    """Whether the net crosses boundaries in some assignment of stages but not in all."""
    return net.size > 0 and (bool(net.users) or net.kept) and not (net.creator < 0 and net.kept)


def _start(net: Net, stages: Sequence[int]) -> int:
    return stages[net.creator] if net.creator >= 0 else 0


def _end(net: Net, stages: Sequence[int], parts: int) -> int:
    return parts - 1 if net.kept else max([stages[user] for user in net.users])


def _merged(nets: Sequence[Net], vertex_of: Sequence[int]) -> tuple[Net, ...]:
    """Return the nets between clusters; those that join the same ones become one."""
    sizes: dict[tuple[int, tuple[int, ...], bool], int] = {}
    for net in nets:
        creator = vertex_of[net.creator] if net.creator >= 0 else -1
        users = tuple(sorted({vertex_of[user] for user in net.users} - {creator}))
        key = (creator, users, net.kept)
        sizes[key] = sizes.get(key, 0) + net.size
    merged = (Net(size, creator, users, kept) for (creator, users, kept), size in sizes.items())
    return tuple(net for net in merged if net.users or net.kept)


def _topological(befores: Sequence[set[int]]) -> list[int]:
    """Return each vertex's number, ties by index.

    Raises:
        ValueError: There is a cycle.
    """
    order = topological_order([tuple(before) for before in befores], range(len(befores)))
    if len(order) != len(befores):
        raise ValueError("contracting these clusters makes a cycle")
    number = [-1] * len(befores)
    for position, vertex in enumerate(order):
        number[vertex] = position
    return number
