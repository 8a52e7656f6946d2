"""What repetitions cost at least, for an order of first executions: values dropped where a step has no room for them.

Where a step needs more than the budget, some of the values that wait in it are not held. Each lies in a gap between two
uses of it, and before the gap ends it is computed again, at its cost. Which gaps are dropped at least cost, so that all
steps have room, is a covering problem: small even for a thousand ops. What it costs bounds every sequence with these
first executions, however often ops are repeated. Only the gaps of first executions count, those of repetitions do not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Final

from memsched.rewrites.recompute.nodes import Nodes
from memsched.search import cpsat
from memsched.search.run import Run

__all__ = ["Gap", "crowded", "dropping_cost"]

Gap = tuple[int, int, int]
"""The node that makes values, and the nodes between whose first executions they wait."""

_EFFORT: Final = 8.0
"""CP-SAT's own measure, about seconds of an idle machine."""


def crowded(nodes: Nodes, budget: int) -> Iterator[tuple[int, list[tuple[Gap, int]]]]:
    """Yield for each step that needs more than ``budget`` bytes how many too many, and the gaps around it in bytes."""
    load = [nodes.variables + nodes.extra[node] for node in range(nodes.count)]
    idle: list[list[tuple[Gap, int]]] = [[] for _ in range(nodes.count)]
    for value in nodes.all:
        first = max(value.maker, 0)
        last = nodes.count - 1 if value.kept else max(value.readers, default=first)
        for node in range(first, last + 1):
            load[node] += value.size
        if value.maker < 0 or value.kept or not nodes.repeat[value.maker] or not value.size:
            continue
        for left, right in itertools.pairwise(sorted({first, *value.readers})):
            for node in range(left + 1, right):
                idle[node].append(((value.maker, left, right), value.size))
    for node in range(nodes.count):
        most = max([bytes_ for _, bytes_ in nodes.credits[node]], default=0)
        if load[node] - most > budget:
            yield load[node] - most - budget, idle[node]


def dropping_cost(nodes: Nodes, budget: int, run: Run) -> int:
    """Return what repetitions cost at least where the peak is ``budget`` bytes at most; 0 where nothing is known."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    literals: dict[Gap, cp_model.IntVar] = {}
    for need, gaps in crowded(nodes, budget):
        for gap, _ in gaps:
            if gap not in literals:
                literals[gap] = model.new_bool_var("")
        if sum(size for _, size in gaps) < need:
            return 0
        model.add(sum(size * literals[gap] for gap, size in gaps) >= need)
    # An execution may serve each of its node's values in a gap of its own.
    shares = {gap: nodes.costs[gap[0]] // max(1, len(nodes.values[gap[0]])) for gap in literals}
    unit = math.gcd(*shares.values()) or 1
    model.minimize(sum(shares[gap] // unit * literal for gap, literal in literals.items()))
    left = run.effort()
    effort = min(_EFFORT, math.inf if left is None else left)
    if not literals or effort <= 0:
        return 0
    solver = cpsat.new_solver(run.limits.seed, seconds=run.remaining(), effort=effort)
    solver.parameters.linearization_level = 2
    status = cpsat.run(solver, model, run.stop)
    run.spend(solver.response_proto.deterministic_time)
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN}:
        return 0
    return max(0, math.ceil(solver.best_objective_bound - 1e-6)) * unit
