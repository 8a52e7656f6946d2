"""Layers that no stage boundary may separate, as groups: the smaller graph on which stages are chosen.

Groups come from what must be together (states, layers after which there is no cut, readers of one layer where these
must share a stage), and from cycles among such groups: what lies between two layers of a group belongs to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.dag import topological_order
from memsched.graph.stages import Constraints, Network

__all__ = ["Condensation", "Flow", "Loads", "condense", "macs_of", "parameters_of"]


class Flow(FrozenValue, frozen=True):
    """Values that one group hands to the same others.

    Attributes:
        size: Bytes, added up over the values.
        readers: Groups other than ``producer``, ascending.
        to_end: The values are handed on to the last stage, whether or not it reads them.
    """

    size: int
    producer: int
    readers: tuple[int, ...]
    to_end: bool = False


class Condensation(FrozenValue, frozen=True):
    """The groups of a network, in the topological order that is nearest to the layers' own.

    Attributes:
        groups: Per group its layers, ascending.
        group_of: Per layer its group.
        preds: Per group those that must not be in a later stage, ascending.
        strict: Pairs (before, after) of groups of which the second must be in a later stage.
        uncuttable: Layers after which a cut was requested, but which share a group with a reader.
        flows: What groups hand to each other, by producer and readers.
        through: Whether every stage between hands on what later ones need; else each reader receives it, once.
    """

    groups: tuple[tuple[int, ...], ...]
    group_of: tuple[int, ...]
    preds: tuple[tuple[int, ...], ...]
    strict: tuple[tuple[int, int], ...]
    uncuttable: tuple[int, ...]
    flows: tuple[Flow, ...]
    through: bool = False

    def spread(self, stages: Sequence[int]) -> tuple[int, ...]:
        """Return the stage of each layer where ``stages`` are the groups'."""
        return tuple([stages[group] for group in self.group_of])

    def communication(self, stages: Sequence[int]) -> int:
        """Return the bytes that stages receive from other stages, where ``stages`` are the groups'."""
        total, end = 0, max(stages, default=0)
        for flow in self.flows:
            home = stages[flow.producer]
            reading = {stages[reader] for reader in flow.readers} - {home}
            if self.through:
                total += flow.size * ((end if flow.to_end else max(reading, default=home)) - home)
            else:
                total += flow.size * len(reading)
        return total

    def alike(self, count: int) -> bool:
        """Whether all schedules of ``count`` stages cost the same.

        With a group in every stage they differ only in the order of the stages: what is handed through goes further in
        some orders than in others, what is sent once does not.
        """
        return count == 1 or (count == len(self.groups) and not self.through)

    def levels(self) -> list[int]:
        """Return the earliest stage that the requested cuts leave each group."""
        cuts = set(self.strict)
        result: list[int] = []
        for group, befores in enumerate(self.preds):
            result.append(max([result[other] + ((other, group) in cuts) for other in befores], default=0))
        return result


class Loads(FrozenValue, frozen=True):
    """What a stage costs by the groups in it: the sum of ``weights``, and each of ``shared`` once.

    Attributes:
        weights: Per group its weight.
        shared: Pairs (size, groups): counted once in each stage that holds one of the groups.
    """

    weights: tuple[int, ...]
    shared: tuple[tuple[int, tuple[int, ...]], ...] = ()

    def of(self, stages: Sequence[int], count: int) -> list[int]:
        """Return what each of ``count`` stages costs."""
        result = [0] * count
        for group, stage in enumerate(stages):
            result[stage] += self.weights[group]
        for size, groups in self.shared:
            for stage in {stages[group] for group in groups}:
                result[stage] += size
        return result

    def floor(self, count: int) -> int:
        """Return a lower bound of what the largest of ``count`` stages costs: the largest group, or an even share."""
        alone = list(self.weights)
        for size, groups in self.shared:
            for group in groups:
                alone[group] += size
        total = sum(self.weights) + sum([size for size, _ in self.shared])
        return max(*alone, -(-total // count)) if alone else 0


def condense(network: Network, constraints: Constraints) -> Condensation:
    """Return the groups of ``network`` under ``constraints``, in linear time but for the search for cycles."""
    count = len(network.layers)
    preds = _preds(network)
    unions = _Unions(count)
    for bound in _bound_together(network, constraints):
        unions.join(bound)
    roots = [unions.root(layer) for layer in range(count)]
    if any(root != layer for layer, root in enumerate(roots)):
        for cycle in _cycles(roots, preds):
            unions.join(cycle)
        roots = [unions.root(layer) for layer in range(count)]
    # A root is the least layer of its group, so that ranks are where groups begin.
    firsts = [layer for layer in range(count) if roots[layer] == layer]
    number = {root: index for index, root in enumerate(firsts)}
    before: list[set[int]] = [set() for _ in firsts]
    for layer, befores in enumerate(preds):
        home = number[roots[layer]]
        before[home].update(number[roots[other]] for other in befores)
    order = topological_order([sorted(found - {index}) for index, found in enumerate(before)], range(len(firsts)))
    place = {index: position for position, index in enumerate(order)}
    group_of = tuple([place[number[root]] for root in roots])
    groups: list[list[int]] = [[] for _ in firsts]
    for layer, group in enumerate(group_of):
        groups[group].append(layer)
    strict, uncuttable = _strict(network, constraints, group_of)
    through = constraints.skips == "through"
    return Condensation(
        groups=tuple([tuple(group) for group in groups]),
        group_of=group_of,
        preds=tuple([tuple(sorted({place[other] for other in before[index]} - {place[index]})) for index in order]),
        strict=strict,
        uncuttable=uncuttable,
        flows=_flows(network, group_of, through=through),
        through=through,
    )


def parameters_of(network: Network, condensed: Condensation) -> Loads:
    """Return what stages hold: bytes of constants, each counted once per stage."""
    users: list[set[int]] = [set() for _ in network.constants]
    for layer, group in zip(network.layers, condensed.group_of, strict=True):
        for constant in layer.constants:
            users[constant].add(group)
    weights = [0] * len(condensed.groups)
    shared: dict[tuple[int, ...], int] = {}
    for size, groups in zip(network.constants, users, strict=True):
        if len(groups) == 1:
            weights[next(iter(groups))] += size
        elif groups and size:
            among = tuple(sorted(groups))
            shared[among] = shared.get(among, 0) + size
    return Loads(tuple(weights), tuple([(size, groups) for groups, size in sorted(shared.items())]))


def macs_of(network: Network, condensed: Condensation) -> Loads:
    """Return what stages compute, in multiply-accumulates."""
    return Loads(tuple([sum(network.layers[layer].macs for layer in group) for group in condensed.groups]))


def _preds(network: Network) -> list[tuple[int, ...]]:
    """Return per layer those that must not be in a later stage: those it names, and the producers of what it reads."""
    result = [set(layer.preds) for layer in network.layers]
    for value in network.values:
        if value.producer >= 0:
            for reader in value.readers:
                result[reader].add(value.producer)
    return [tuple(sorted(found - {layer})) for layer, found in enumerate(result)]


def _bound_together(network: Network, constraints: Constraints) -> Iterable[tuple[int, ...]]:
    """Yield sets of layers that must share a stage."""
    yield from network.together
    never = set(constraints.never_cut)
    children: dict[int, list[int]] = {}
    for value in network.values:
        if value.producer in never:
            yield (value.producer, *value.readers)
        if value.producer >= 0:
            children.setdefault(value.producer, []).extend(value.readers)
    if constraints.children_together:
        yield from [tuple(readers) for readers in children.values()]


def _strict(
    network: Network, constraints: Constraints, group_of: Sequence[int]
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """Return the pairs of groups between which there is a cut, and the layers after which there can be none."""
    asked = set(constraints.cut_after)
    pairs: set[tuple[int, int]] = set()
    impossible: set[int] = set()
    for value in network.values:
        if value.producer in asked:
            home = group_of[value.producer]
            others = {group_of[reader] for reader in value.readers}
            pairs.update((home, other) for other in others - {home})
            if home in others:
                impossible.add(value.producer)
    return tuple(sorted(pairs)), tuple(sorted(impossible))


def _flows(network: Network, group_of: Sequence[int], *, through: bool) -> tuple[Flow, ...]:
    sizes: dict[tuple[int, tuple[int, ...], bool], int] = {}
    for value in network.values:
        if value.producer >= 0 and value.size:
            home = group_of[value.producer]
            readers = tuple(sorted({group_of[reader] for reader in value.readers} - {home}))
            to_end = through and value.result
            if readers or to_end:
                sizes[home, readers, to_end] = sizes.get((home, readers, to_end), 0) + value.size
    return tuple([Flow(size, *key) for key, size in sorted(sizes.items())])


def _cycles(roots: Sequence[int], preds: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return sets of group roots that lie on cycles with each other."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(roots)
    graph.add_edges_from((roots[other], roots[layer]) for layer, befores in enumerate(preds) for other in befores)
    return [sorted(found) for found in nx.strongly_connected_components(graph) if len(found) > 1]


class _Unions:
    """Disjoint sets whose root is their least member."""

    def __init__(self, count: int) -> None:
        self._parents = list(range(count))

    def root(self, member: int) -> int:
        parents = self._parents
        while parents[member] != member:
            parents[member] = parents[parents[member]]
            member = parents[member]
        return member

    def join(self, members: Iterable[int]) -> None:
        roots = sorted({self.root(member) for member in members})
        for other in roots[1:]:
            self._parents[other] = roots[0]
