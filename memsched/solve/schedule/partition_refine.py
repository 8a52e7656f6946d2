"""Moving vertices between neighbouring stages so that fewer bytes are live across the boundaries.

Stages stay monotone along every edge, so the quotient stays acyclic, and within the balance. Two methods, of which
neither ever makes the cut larger: passes of single moves in order of gain, undone back to their best moment (Fiduccia
and Mattheyses), and minimum cuts between neighbouring stages, which find what takes many moves at once.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from memsched.solve.fusion.closure import FlowNetwork
from memsched.solve.schedule.partition_hypergraph import Balance, Hypergraph

__all__ = ["cheapest_downset", "refine_by_cuts", "refine_by_moves"]

_PASSES = 8
# A pass ends after so many moves, and this share of all vertices, without a better moment.
_PATIENCE, _PATIENCE_SHARE = 60, 0.05
# Of a buffer with more users than this, not all users' gains are looked at anew whenever one moves.
_MANY_USERS = 64
# Vertices of each side that one minimum cut looks at.
_CORRIDOR = 400
_ROUNDS = 3


def refine_by_moves(graph: Hypergraph, stages: Sequence[int], parts: int, balance: Balance) -> list[int]:
    """Return stages with a cut no larger than that of ``stages``, by moves of one vertex by one stage."""
    state = _StageMoves(graph, list(stages), parts, balance)
    for _ in range(_PASSES):
        if not state.improve():
            break
    return state.stages


class _StageMoves:
    """Stages with the end of each net kept up to date."""

    def __init__(self, graph: Hypergraph, stages: list[int], parts: int, balance: Balance) -> None:
        self.stages = stages
        self._graph = graph
        self._parts = parts
        self._balance = balance
        self._weight = [0] * parts
        for vertex, stage in enumerate(stages):
            self._weight[stage] += graph.weights[vertex]
        # Per net: users per stage, and the last stage with a user.
        self._users: list[dict[int, int]] = []
        for net in graph.nets:
            count: dict[int, int] = {}
            for user in net.users:
                count[stages[user]] = count.get(stages[user], 0) + 1
            self._users.append(count)
        self._end = [max(count, default=-1) for count in self._users]
        self._created = [sum(graph.nets[index].size for index in created) for created in graph.creates]

    def improve(self) -> bool:
        """Make one pass; True when the cut became smaller."""
        graph = self._graph
        heap: list[tuple[int, int, int]] = []
        self._push(range(len(graph)), heap)
        locked = bytearray(len(graph))
        moves: list[tuple[int, int]] = []
        gained = best = best_length = 0
        patience = max(_PATIENCE, int(_PATIENCE_SHARE * len(graph)))
        while heap and len(moves) - best_length < patience:
            negative, vertex, step = heapq.heappop(heap)
            if locked[vertex] or not self._allowed(vertex, step):
                continue
            gain = self._gain(vertex, step)
            if gain != -negative:
                heapq.heappush(heap, (-gain, vertex, step))
                continue
            locked[vertex] = 1
            changed = self._move(vertex, step)
            moves.append((vertex, step))
            gained += gain
            if gained > best:
                best, best_length = gained, len(moves)
            self._push([v for v in changed if not locked[v]], heap)
        for vertex, step in reversed(moves[best_length:]):
            self._move(vertex, -step)
        return best > 0

    def _push(self, vertices: Iterable[int], heap: list[tuple[int, int, int]]) -> None:
        for vertex in vertices:
            for step in (1, -1):
                if self._allowed(vertex, step):
                    heapq.heappush(heap, (-self._gain(vertex, step), vertex, step))

    def _allowed(self, vertex: int, step: int) -> bool:
        stage = self.stages[vertex]
        target, weight = stage + step, self._graph.weights[vertex]
        if not 0 <= target < self._parts:
            return False
        if self._weight[target] + weight > self._balance.most or self._weight[stage] - weight < self._balance.least:
            return False
        neighbours = self._graph.succs[vertex] if step > 0 else self._graph.preds[vertex]
        return all((self.stages[other] - target) * step >= 0 for other in neighbours)

    def _gain(self, vertex: int, step: int) -> int:
        """Return by how many bytes the cut falls."""
        stage, nets = self.stages[vertex], self._graph.nets
        gain = self._created[vertex] * step
        for index in self._graph.reads[vertex]:
            if self._end[index] == stage and not nets[index].kept and (step > 0 or self._users[index][stage] == 1):
                gain -= nets[index].size * step
        return gain

    def _move(self, vertex: int, step: int) -> list[int]:
        """Move a vertex and return those whose gain or freedom may have changed."""
        graph = self._graph
        stage = self.stages[vertex]
        target = stage + step
        self.stages[vertex] = target
        self._weight[stage] -= graph.weights[vertex]
        self._weight[target] += graph.weights[vertex]
        changed = [*graph.preds[vertex], *graph.succs[vertex]]
        for index in graph.reads[vertex]:
            users, end = self._users[index], self._end[index]
            users[stage] -= 1
            if not users[stage]:
                del users[stage]
            users[target] = users.get(target, 0) + 1
            if target > end:
                self._end[index] = target
            elif stage == end and stage not in users:
                # It moved by one stage, so that is where the last user is now.
                self._end[index] = target
            if len(graph.nets[index].users) <= _MANY_USERS and end in (stage, target):
                changed.extend(graph.nets[index].users)
        return list(dict.fromkeys(changed))


def refine_by_cuts(
    graph: Hypergraph,
    stages: Sequence[int],
    parts: int,
    balance: Balance,
    stop: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Return stages with a cut no larger than that of ``stages``, by minimum cuts around each boundary in turn."""
    result = list(stages)
    groups: list[list[int]] = [[] for _ in range(parts)]
    for vertex, stage in enumerate(result):
        groups[stage].append(vertex)
    cut = [True] * (parts - 1)
    for _ in range(_ROUNDS):
        active, cut = cut, [False] * (parts - 1)
        for boundary in range(parts - 1):
            if active[boundary] and not stop() and _cut_anew(graph, result, groups, boundary, balance):
                for other in range(max(0, boundary - 1), min(parts - 1, boundary + 2)):
                    cut[other] = True
        if not any(cut):
            break
    return result


def _cut_anew(graph: Hypergraph, stages: list[int], groups: list[list[int]], boundary: int, balance: Balance) -> bool:
    """Put the boundary where fewer bytes cross it, as far as the balance allows; True when it moved.

    The wider the corridor in which it may move, the better the cut, but only a narrow one is sure to keep the balance.
    """
    before, after = groups[boundary], groups[boundary + 1]
    weight = sum(graph.weights[vertex] for vertex in before)
    total = weight + sum(graph.weights[vertex] for vertex in after)
    least = max(balance.least, total - balance.most)
    for factor in (4, 2, 1):
        inner = _nearest(graph, reversed(before), factor * (weight - least))
        outer = _nearest(graph, after, factor * (total - weight - least))
        found = cheapest_downset(graph, [*inner, *outer], lambda vertex: stages[vertex] <= boundary)
        moved_out = [vertex for vertex in inner if vertex not in found]
        moved_in = [vertex for vertex in outer if vertex in found]
        new = weight + sum(graph.weights[v] for v in moved_in) - sum(graph.weights[v] for v in moved_out)
        if not least <= new <= total - least:
            continue
        if not moved_in and not moved_out:
            return False
        if _boundary_gain(graph, stages, boundary, moved_in, moved_out) <= 0:
            return False
        for vertex in moved_in:
            stages[vertex] = boundary
        for vertex in moved_out:
            stages[vertex] = boundary + 1
        union = sorted([*before, *after])
        groups[boundary] = [vertex for vertex in union if stages[vertex] == boundary]
        groups[boundary + 1] = [vertex for vertex in union if stages[vertex] == boundary + 1]
        return True
    return False


def _nearest(graph: Hypergraph, vertices: Iterable[int], budget: int) -> list[int]:
    """Return the first of ``vertices``, in topological order from the boundary, that weigh no more than ``budget``."""
    result: list[int] = []
    for vertex in vertices:
        budget -= graph.weights[vertex]
        if budget < 0 or len(result) >= _CORRIDOR:
            break
        result.append(vertex)
    return result


def _boundary_gain(
    graph: Hypergraph, stages: Sequence[int], boundary: int, moved_in: Sequence[int], moved_out: Sequence[int]
) -> int:
    """Return by how many bytes the residue at the boundary falls when some vertices change sides."""
    after = {**dict.fromkeys(moved_in, True), **dict.fromkeys(moved_out, False)}
    touched = dict.fromkeys(index for v in after for index in (*graph.reads[v], *graph.creates[v]))
    gain = 0
    for index in touched:
        net = graph.nets[index]
        old = (net.creator < 0 or stages[net.creator] <= boundary) and (
            net.kept or any(stages[user] > boundary for user in reversed(net.users))
        )
        new = (net.creator < 0 or after.get(net.creator, stages[net.creator] <= boundary)) and (
            net.kept or not all(after.get(user, stages[user] <= boundary) for user in reversed(net.users))
        )
        gain += net.size * (old - new)
    return gain


def cheapest_downset(graph: Hypergraph, corridor: Iterable[int], inside: Callable[[int], bool]) -> set[int]:
    """Return the members of ``corridor`` in the smallest downset after which the fewest bytes are live.

    The downset holds every vertex that is ``inside`` and none other outside the corridor. A minimum cut: the source's
    side is the downset, and edges without limit lead from each vertex to its predecessors.

    Args:
        corridor: Vertices that may be in or out; with those inside they are closed under predecessors.
        inside: Whether a vertex outside the corridor is in the downset.
    """
    node = {vertex: place for place, vertex in enumerate(sorted(corridor))}
    touched = sorted({index for v in node for index in (*graph.reads[v], *graph.creates[v])})
    source = len(node) + len(touched)
    sink = source + 1
    unlimited = 1 + sum(graph.nets[index].size for index in touched)
    network = FlowNetwork(sink + 1)
    for vertex, place in node.items():
        for before in graph.preds[vertex]:
            if before in node:
                network.connect(place, node[before], unlimited)
    for place, index in enumerate(touched, start=len(node)):
        net = graph.nets[index]
        live_after = net.kept or any(user not in node and not inside(user) for user in reversed(net.users))
        if net.creator in node:
            network.connect(node[net.creator], sink if live_after else place, net.size)
        elif not live_after:
            network.connect(source, place, net.size)
        if not live_after:
            for user in net.users:
                if user in node:
                    network.connect(place, node[user], unlimited)
    network.maximum_flow(source, sink)
    side = network.source_side(source)
    return {vertex for vertex, place in node.items() if side[place]}
