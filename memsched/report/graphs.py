"""The rows of a report on a graph: the steps of its order, and the addresses of its tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

import msgspec

from memsched.check.schedule import CheckedSchedule
from memsched.graph.addresses import addresses
from memsched.graph.dag import producers
from memsched.graph.model import Allocation, Graph, Schedule
from memsched.report.pools import rows_in_pools
from memsched.report.values.border import InterfaceSection
from memsched.report.values.graphs import (
    AllocationSection,
    BufferRow,
    FaultRow,
    StepRow,
    WorkspaceRow,
    WrittenScheduleSection,
    WrittenSection,
)
from memsched.report.values.optimize import FusionSection
from memsched.report.values.rewrites import TilingSection
from memsched.report.values.verdict import ProofSection
from memsched.runtimes.graph_plan import GraphPlan
from memsched.solve.fusion.iterate import FusedGraph
from memsched.targets.pool_plan import PoolPlan

__all__ = [
    "LIVE_NAMES_LIMIT",
    "buffer_rows",
    "fusion_section",
    "proof_section",
    "step_rows",
    "with_peaks",
    "written_section",
]

LIVE_NAMES_LIMIT = 2_000_000
"""With more live names than this over all steps, only the peak step lists them: the lists grow with ops squared."""


def written_section(
    plan: GraphPlan,
    allocation: Allocation,
    steps: tuple[StepRow, ...],
    *,
    before: int,
    operators: Iterable[str],
    interface: InterfaceSection,
    pools: PoolPlan | None = None,
    rows: bool = True,
) -> WrittenSection:
    """Return the main graph of the model written.

    Args:
        steps: Its `step_rows`.
        before: The peak of the original, in bytes.
        operators: The type of each operator of all graphs.
        pools: Where the buffers lie in the target's memories; None if it has one.
        rows: Whether there is a row for each buffer.
    """
    graph, peak = plan.graph, plan.checked.peak
    buffers = partial(buffer_rows, graph, plan.schedule, plan.checked)
    spaces = partial(_workspace_rows, graph, plan.schedule)
    return WrittenSection(
        schedule=WrittenScheduleSection(
            peak_bytes=peak,
            arena_bytes=allocation.arena,
            reduction_percent=round(100 * (before - peak) / before, 2) if before else 0.0,
            method=plan.schedule.method,
        ),
        allocation=_allocation_section(allocation),
        at_fault=_peak_tensors(graph, plan.checked),
        unknown_sizes=tuple(tensor.name for tensor in graph.tensors if not tensor.sized),
        operators=dict(sorted(Counter(operators).items())),
        interface=interface,
        steps=steps,
        buffers=rows_in_pools(pools, allocation, buffers) if rows else (),
        workspaces=rows_in_pools(pools, allocation, spaces) if rows else (),
    )


def proof_section(plan: GraphPlan, *, rewritten: bool) -> ProofSection:
    """Return what is proven of the peak of an order."""
    found = plan.schedule
    return ProofSection(
        bytes=plan.checked.peak,
        bound_bytes=found.lower_bound,
        status=found.status,
        witness=found.proof,
        scope="written" if rewritten else "original",
    )


def fusion_section(fused: FusedGraph | None) -> FusionSection | None:
    """Return how far the graph was simplified; None if it was not."""
    if fused is None:
        return None
    return FusionSection(
        ops_before=fused.ops_before,
        ops_after=fused.ops_after,
        monotonic=fused.monotonic,
        isolated=fused.isolated,
        iterations=fused.iterations,
    )


def with_peaks(section: TilingSection | None, steps: Sequence[StepRow]) -> TilingSection | None:
    """Return the section, its groups with the peaks of their steps."""
    if section is None:
        return None
    indices: dict[str, list[int]] = {}
    for step in steps:
        indices.setdefault(step.origin or step.op, []).append(step.index)
    groups = []
    for group in section.groups:
        own = [index for op in group.ops for index in indices.get(op, ())]
        if group.form != "pieces":
            # What a loop adds is named after what it makes.
            own += [step.index for step in steps if step.op.startswith(f"{group.ops[-1]}#")]
        during = steps[min(own) : max(own) + 1] if own else ()
        peak = max((step.footprint_bytes for step in during), default=0)
        groups.append(msgspec.structs.replace(group, peak_bytes=peak))
    return msgspec.structs.replace(section, groups=tuple(groups))


def _allocation_section(allocation: Allocation) -> AllocationSection:
    """Return how the addresses were found."""
    return AllocationSection(
        method=allocation.method,
        status=allocation.status,
        lower_bound_bytes=allocation.lower_bound,
        alignment_bytes=allocation.alignment,
    )


def _peak_step(checked: CheckedSchedule) -> int:
    """Return the first step whose footprint is the peak; 0 in a graph without steps."""
    return checked.footprints.index(checked.peak) if checked.footprints else 0


def _peak_tensors(graph: Graph, checked: CheckedSchedule) -> tuple[FaultRow, ...]:
    """Return the tensors whose bytes are live at the peak, largest first: who is to blame for it."""
    producer = producers(graph)
    live = _live_in(checked, _peak_step(checked))
    return tuple(
        FaultRow(
            tensor=graph.tensors[tensor].name,
            size_bytes=checked.bytes_of[tensor],
            producer=graph.ops[producer[tensor]].name if producer[tensor] >= 0 else None,
            first_step=checked.first_step[tensor],
            last_step=checked.last_step[tensor],
        )
        for tensor in sorted(live, key=lambda tensor: (-checked.bytes_of[tensor], tensor))
    )


def _live_in(checked: CheckedSchedule, step: int) -> list[int]:
    """Return the tensors whose bytes are live in a step."""
    spans = zip(checked.bytes_of, checked.first_step, checked.last_step, strict=True)
    return [tensor for tensor, (size, first, last) in enumerate(spans) if first <= step <= last and size]


def step_rows(graph: Graph, schedule: Schedule, checked: CheckedSchedule, *, rows: bool) -> tuple[StepRow, ...]:
    """Return the steps of an order; without ``rows`` the one of the peak alone."""
    producer = producers(graph)
    steps = []
    if rows or not schedule.order:
        shown: Sequence[int] = range(len(schedule.order))
        live: Sequence[list[str] | None] = _live_names(graph, checked)
    else:
        shown = (_peak_step(checked),)
        live = [[graph.tensors[tensor].name for tensor in _live_in(checked, shown[0])]]
    step_of = [0] * len(schedule.order)
    for step, number in enumerate(schedule.order):
        step_of[number] = step
    for index, names in zip(shown, live, strict=True):
        op, footprint = graph.ops[schedule.order[index]], checked.footprints[index]
        before = {step_of[producer[tensor]] for tensor in op.inputs if producer[tensor] >= 0}
        steps.append(
            StepRow(
                index=index,
                op=op.name,
                type=op.type,
                origin=op.origin,
                region=None if op.region is None else op.region.ranges,
                live_bytes=footprint - op.workspace,
                workspace_bytes=op.workspace,
                footprint_bytes=footprint,
                live=None if names is None else tuple(names),
                reads_from=tuple(sorted(before)) if len(before) > 1 else tuple(before),
            )
        )
    return tuple(steps)


def _live_names(graph: Graph, checked: CheckedSchedule) -> list[list[str] | None]:
    """Return per step the tensors whose bytes are live in it; None everywhere but at the peak if they are too many."""
    count = len(checked.footprints)
    held = [tensor for tensor, size in enumerate(checked.bytes_of) if size]
    total = sum(checked.last_step[tensor] - checked.first_step[tensor] + 1 for tensor in held)
    peak = _peak_step(checked)
    if total > LIVE_NAMES_LIMIT:
        none: list[list[str] | None] = [None] * count
        return [*none[:peak], [graph.tensors[tensor].name for tensor in _live_in(checked, peak)], *none[peak + 1 :]]
    lists: list[list[str]] = [[] for _ in range(count)]
    for tensor in held:
        for step in range(checked.first_step[tensor], min(checked.last_step[tensor] + 1, count)):
            lists[step].append(graph.tensors[tensor].name)
    return list(lists)


def buffer_rows(
    graph: Graph, schedule: Schedule, checked: CheckedSchedule, allocation: Allocation
) -> tuple[BufferRow, ...]:
    """Return the tensors that have an address."""
    names = [tensor.name for tensor in graph.tensors]
    replaced = {choice.output: choice.input for choice in schedule.in_place}
    shown, pieces = _views(graph)
    first, last = _lifetimes(graph, schedule)
    produced, read = _accesses(graph, schedule)
    where = {tensor: address for tensor, address in enumerate(addresses(graph, allocation)) if address is not None}
    placed = dict.fromkeys([tensor for placement in allocation.placements for tensor in placement.tensors])
    # Concatenations of pieces, and views of them, have an address, but no buffer of their own.
    others = [tensor for tensor in where if tensor not in placed]
    result = []
    for tensor in (*placed, *others):
        held = checked.bytes_of[tensor] > 0 and tensor not in pieces
        result.append(
            BufferRow(
                tensor=names[tensor],
                offset_bytes=where[tensor],
                size_bytes=graph.tensors[tensor].size,
                first_step=checked.first_step[tensor] if held else first[tensor],
                last_step=checked.last_step[tensor] if held else last[tensor],
                in_place_of=names[replaced[tensor]] if tensor in replaced else None,
                view_of=names[shown[tensor]] if tensor in shown else None,
                consists_of=tuple([names[piece] for piece in pieces[tensor]]) if tensor in pieces else (),
                produced_in=produced[tensor],
                read_in=tuple(read[tensor]),
                shape=graph.tensors[tensor].shape,
                dtype=graph.tensors[tensor].dtype,
            )
        )
    return tuple(result)


def _views(graph: Graph) -> tuple[dict[int, int], dict[int, list[int]]]:
    """Return the tensor in whose bytes each view lies, and the pieces that lie inside each concatenation."""
    read_by: dict[int, list[int]] = {}
    for op in graph.ops:
        for output, read in dict.fromkeys(op.views) if op.views else ():
            read_by.setdefault(output, []).append(read)
    tensors = graph.tensors
    pieces = {
        output: read
        for output, read in read_by.items()
        if len(read) > 1 or tensors[output].size > sum(tensors[piece].size for piece in read)
    }
    return {output: read[0] for output, read in read_by.items() if output not in pieces}, pieces


def _workspace_rows(graph: Graph, schedule: Schedule, allocation: Allocation) -> tuple[WorkspaceRow, ...]:
    """Return the addresses of what ops need beside their tensors."""
    return tuple(
        WorkspaceRow(
            op=graph.ops[schedule.order[placement.first_step]].name,
            offset_bytes=placement.offset,
            size_bytes=graph.ops[schedule.order[placement.first_step]].workspace,
            step=placement.first_step,
        )
        for placement in allocation.placements
        if not placement.tensors
    )


def _lifetimes(graph: Graph, schedule: Schedule) -> tuple[list[int], list[int]]:
    """Return per tensor the step that produces it and its own last reader's, views of it not counted."""
    first, last = [0] * len(graph.tensors), [0] * len(graph.tensors)
    for step, number in enumerate(schedule.order):
        for tensor in graph.ops[number].outputs:
            first[tensor] = last[tensor] = step
        for tensor in graph.ops[number].inputs:
            last[tensor] = step
    for tensor in (*graph.outputs, *graph.variables):
        last[tensor] = max(0, len(schedule.order) - 1)
    return first, last


def _accesses(graph: Graph, schedule: Schedule) -> tuple[list[int | None], list[list[int]]]:
    """Return per tensor the step that produces it, None for inputs and variables, and the steps that read it."""
    produced: list[int | None] = [None] * len(graph.tensors)
    read: list[list[int]] = [[] for _ in graph.tensors]
    for step, number in enumerate(schedule.order):
        for tensor in graph.ops[number].outputs:
            produced[tensor] = step
        for tensor in dict.fromkeys(graph.ops[number].inputs):
            read[tensor].append(step)
    return produced, read
