"""The pipeline: a network in groups that stay on chip, what it moves and how long it takes, and a report's section."""

from __future__ import annotations

import time
from typing import Any, Literal

from memsched.graph.limits import Limits
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.targets.model import Target
from memsched.tiling.onchip.check import check_plan
from memsched.tiling.onchip.greedy import greedy, singles
from memsched.tiling.onchip.model import Buffer, Cost, OnChipGroup, OnChipPlan, Policy
from memsched.tiling.onchip.network import Network, Range
from memsched.tiling.onchip.optimal import Objective, optimal
from memsched.tiling.onchip.traffic import Machine, alone

__all__ = ["Method", "plan", "section"]

Method = Literal["greedy", "optimal"]


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
        method: "greedy": the document's groups. "optimal": the best cut into groups, never worse than the greedy one.
        policy: "separate": everything in a group has bytes of its own. "reuse": by lifetime and local independence.
        objective: What the best cut is best in; the other decides between equals.

    Raises:
        TargetError: The target has no on-chip memory.
    """
    started = time.monotonic()
    machine = Machine.of(target)
    lowered = apply_target(graph, target)
    network = Network(lowered)
    before = singles(network, machine, "separate")
    groups, used = greedy(network, machine, policy), "greedy"
    if method == "optimal":
        found = optimal(network, machine, policy, objective, limits.deadline(started))
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


def _key(groups: list[OnChipGroup], objective: Objective) -> tuple[float, float]:
    traffic, seconds = _total(groups).traffic, sum(group.seconds for group in groups)
    return (traffic, seconds) if objective == "traffic" else (seconds, traffic)


def section(plan_: OnChipPlan) -> dict[str, Any]:
    """Return a plan as a report has it: sizes and addresses in bytes, ranges half-open, in elements.

    A piece holds the product of one range per axis of each buffer, laid out as batch, rows, columns, channels; an
    axis that a buffer is not cut on has one range for all pieces.
    """
    return {
        "on_chip_bytes": plan_.capacity,
        "method": plan_.method,
        "groups": [_group(plan_, group) for group in plan_.groups],
        "traffic": {
            "before_bytes": plan_.before.traffic,
            "after_bytes": plan_.cost.traffic,
            "each_operand_once_bytes": plan_.once.traffic,
        },
        "flops": {"before": plan_.before.flops, "after": plan_.cost.flops},
        "time_seconds": {"before": plan_.before_seconds, "after": plan_.seconds},
    }


def _group(plan_: OnChipPlan, group: OnChipGroup) -> dict[str, Any]:
    tile = group.tile
    return {
        "ops": [plan_.names[op] for op in group.ops],
        "pieces": {"rows": tile.rows, "columns": tile.columns, "channels": tile.channels},
        "weights": tile.weights,
        "used_bytes": group.height,
        "read_bytes": group.cost.read,
        "written_bytes": group.cost.written,
        "flops": group.cost.flops,
        "time_seconds": group.seconds,
        "reason": group.refusal,
        "buffers": [_buffer(buffer) for buffer in group.buffers],
    }


def _buffer(buffer: Buffer) -> dict[str, Any]:
    return {
        "name": buffer.name,
        "kind": buffer.kind,
        "address": buffer.offset,
        "size": buffer.size,
        "first_step": buffer.first,
        "last_step": buffer.last,
        "rows": _ranges(buffer.rows),
        "columns": _ranges(buffer.columns),
        "channels": _ranges(buffer.channels),
    }


def _ranges(ranges: tuple[Range | None, ...]) -> list[list[int] | None]:
    return [None if span is None else list(span) for span in ranges]
