"""The pipeline: a network in groups that stay on chip, what it moves and how long it takes."""

from __future__ import annotations

from memsched.codegen.onchip.check import check_plan
from memsched.codegen.onchip.greedy import greedy, singles
from memsched.codegen.onchip.model import Cost, Method, OnChipGroup, OnChipPlan, Policy
from memsched.codegen.onchip.network import OnChipNetwork
from memsched.codegen.onchip.optimal import Objective, optimal
from memsched.codegen.onchip.traffic import Machine, alone
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.model import Target

__all__ = ["Method", "plan"]


def plan(
    graph: Graph,
    target: Target,
    limits: Limits,
    *,
    method: Method = "optimal",
    policy: Policy = "reuse",
    objective: Objective = "traffic",
) -> OnChipPlan:
    """Return how ``graph``, not lowered and in order of execution, runs on an accelerator with on-chip memory.

    Args:
        method: "layers": each layer by itself. "flowchart": the groups of "Deep Fusion". "greedy": the same, but a
            layer only joins where that moves no more. "optimal": the best cut into groups, never worse than "greedy".
        policy: "separate": everything in a group has bytes of its own. "reuse": by lifetime and local independence.
        objective: What the best cut minimises; the other decides between equals.

    Raises:
        UsageError: The target has no on-chip memory.
    """
    run = Run(limits)
    machine = Machine.of(target)
    lowered = apply_target(graph, target)
    network = OnChipNetwork(lowered)
    before = singles(network, machine, "separate")
    if method == "layers":
        groups = singles(network, machine, policy)
    else:
        groups = greedy(network, machine, policy, all_that_fit=method == "flowchart")
    used: Method = method if method != "optimal" else "greedy"
    if method == "optimal":
        found = optimal(network, machine, policy, objective, run.deadline())
        if _key(found, objective) < _key(groups, objective):
            groups, used = found, "optimal"
    result = OnChipPlan(
        tuple(groups),
        tuple(layer.name for layer in network.layers),
        _total(before),
        sum(group.seconds for group in before),
        sum((alone(network, op) for op in range(len(network.layers))), Cost()),
        _total(groups),
        sum(group.seconds for group in groups),
        machine.capacity,
        used,
    )
    check_plan(lowered, result)
    return result


def _total(groups: list[OnChipGroup]) -> Cost:
    return sum((group.cost for group in groups), Cost())


def _key(groups: list[OnChipGroup], objective: Objective) -> tuple[int, float, float]:
    """Return the order of preference: what cannot be planned counts as if it moved everything once, and comes last."""
    refused = sum(len(group.ops) for group in groups if group.refusal is not None)
    traffic, seconds = _total(groups).traffic, sum(group.seconds for group in groups)
    return (refused, traffic, seconds) if objective == "traffic" else (refused, seconds, traffic)
