"""The report, version 1, built from checked results, and the text of its file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final, Literal

import msgspec

from memsched.base.frozen import FrozenValue
from memsched.check.schedule import CheckedSchedule
from memsched.graph.addresses import addresses
from memsched.graph.dag import producers
from memsched.graph.model import Allocation, Graph, Schedule
from memsched.report.pools import pools_section, rows_in_pools
from memsched.report.values.blocks import BlocksSection, CurveSection
from memsched.report.values.border import BorderSection, InterfaceSection
from memsched.report.values.interpreter import InterpreterSection
from memsched.report.values.layers import LayerRow
from memsched.report.values.optimize import (
    AllocationSection,
    BaselinesSection,
    BeforeAndAfter,
    BodyRow,
    BudgetSection,
    BufferRow,
    FaultRow,
    FusionSection,
    OptimizeReport,
    OutputSection,
    PassRow,
    ResultSection,
    StepRow,
    SuggestionRow,
    TargetSection,
    WorkspaceRow,
)
from memsched.report.values.rewrites import (
    AlgebraSection,
    ChainSection,
    FrontierRow,
    OnChipSection,
    RematSection,
    TilingSection,
)
from memsched.report.values.runtime import FirmwareSection, GuaranteeSection, RequirementSection, TflmSection
from memsched.report.values.sessions import ExecutedSection, HeldBackSection, SessionRow
from memsched.report.values.shared import FailureRow, ModelSection, VerificationSection
from memsched.search.progress import PassRecord
from memsched.solve.fusion.iterate import FusedGraph
from memsched.targets.pool_plan import PoolPlan

__all__ = ["LIVE_NAMES_LIMIT", "SCHEMA_VERSION", "Facts", "build_report"]

SCHEMA_VERSION: Final = 1
LIVE_NAMES_LIMIT = 2_000_000
"""With more live names than this over all steps, only the peak step lists them: the lists grow with ops squared."""


class Facts(FrozenValue, frozen=True):
    """Everything that a report says, as values.

    The sections ``model``, ``output``, ``target``, ``baselines``, ``bodies``, ``order_guarantee``, ``tflm``,
    ``verification``, ``tiling`` (its groups' peaks still 0), ``remat``, ``io``, ``interface`` and ``frontier`` are
    handed in as the report shows them; the rest is computed here from the graph, the schedule and what the checker
    found for it.

    Attributes:
        graph: The main graph with the target's rules and its bodies' peaks as workspaces.
        checked: The checker's figures for ``schedule`` on ``graph``.
        operators: Operator types of all graphs, one entry per op.
        budget_bytes: What the arena may take; None when no budget was given.
        whole_range: Bytes that a budget is compared with, if that is for all sizes of a curve.
        pools: Where the buffers lie in the target's memories; None when it has one.
        rows: Whether there is a row for each step, buffer and layer; else there is one for the peak's step alone.
    """

    memsched_version: str
    command: Literal["optimize", "analyze"]
    model: ModelSection
    output: OutputSection | None
    target: TargetSection
    baselines: BaselinesSection
    graph: Graph
    schedule: Schedule
    checked: CheckedSchedule
    allocation: Allocation
    operators: Sequence[str]
    budget_bytes: int | None
    fused: FusedGraph | None
    passes: Sequence[PassRecord]
    bodies: Sequence[BodyRow]
    order_guarantee: GuaranteeSection | None
    verification: VerificationSection | None
    notes: Sequence[str]
    interrupted: bool
    seed: int
    seconds: float
    firmware: FirmwareSection | None = None
    tflm: TflmSection | None = None
    pools: PoolPlan | None = None
    tiling: TilingSection | None = None
    remat: RematSection | None = None
    chains: ChainSection | None = None
    algebra: AlgebraSection | None = None
    io: BorderSection | None = None
    interface: InterfaceSection | None = None
    frontier: Sequence[FrontierRow] | None = None
    extra_macs: int = 0
    on_chip: OnChipSection | None = None
    requirement: RequirementSection | None = None
    litert: tuple[int, int] | None = None
    session: tuple[int, int] | None = None
    suggestions: Sequence[SuggestionRow] = ()
    held_back: HeldBackSection | None = None
    interpreter: InterpreterSection | None = None
    sessions: Sequence[SessionRow] = ()
    executed: ExecutedSection | None = None
    blocks: BlocksSection | None = None
    curve: CurveSection | None = None
    whole_range: int | None = None
    layers: Sequence[LayerRow] = ()
    rows: bool = True
    failures: Sequence[FailureRow] = ()


def build_report(facts: Facts) -> OptimizeReport:
    """Return the report."""
    graph = facts.graph
    producer = producers(graph)
    steps = _steps(graph, facts.schedule, facts.checked, producer, rows=facts.rows)
    return OptimizeReport(
        schema_version=SCHEMA_VERSION,
        memsched_version=facts.memsched_version,
        command=facts.command,
        model=facts.model,
        output=facts.output,
        target=facts.target,
        baselines=facts.baselines,
        result=_result(facts),
        budget=_budget(facts),
        requirement=facts.requirement,
        order_guarantee=facts.order_guarantee,
        held_back=facts.held_back,
        interpreter=facts.interpreter,
        sessions=tuple(facts.sessions),
        executed=facts.executed,
        blocks=facts.blocks,
        curve=facts.curve,
        tflm=facts.tflm,
        verification=facts.verification,
        notes=tuple(facts.notes),
        failures=tuple(facts.failures),
        suggestions=tuple(facts.suggestions),
        unknown_sizes=tuple(tensor.name for tensor in graph.tensors if not tensor.sized),
        at_fault=_peak_tensors(graph, facts.checked, producer),
        operators=dict(sorted(Counter(facts.operators).items())),
        layers=tuple(facts.layers),
        firmware=facts.firmware,
        bodies=tuple(facts.bodies),
        fusion=_fusion(facts.fused),
        tiling=None if facts.tiling is None else _tiling(facts.tiling, steps),
        remat=facts.remat,
        chains=facts.chains,
        algebra=facts.algebra,
        io=facts.io,
        interface=facts.interface,
        frontier=None if facts.frontier is None else tuple(facts.frontier),
        on_chip=facts.on_chip,
        passes=tuple(map(_pass, facts.passes)),
        seed=facts.seed,
        seconds=round(facts.seconds, 4),
        allocation=_allocation(facts.allocation),
        pools=pools_section(facts.pools),
        steps=steps,
        buffers=_buffer_rows(facts) if facts.rows else (),
        workspaces=_workspace_rows(facts) if facts.rows else (),
    )


def _result(facts: Facts) -> ResultSection:
    before, peak = facts.baselines.file_order.peak_bytes, facts.checked.peak
    macs = facts.model.macs
    return ResultSection(
        peak_bytes=peak,
        lower_bound_bytes=facts.schedule.lower_bound,
        status=facts.schedule.status,
        proof=facts.schedule.proof,
        method=facts.schedule.method,
        arena_bytes=facts.allocation.arena,
        litert_bytes=_before_and_after(facts.litert),
        session_bytes=_before_and_after(facts.session),
        required_bytes=_required(facts),
        reduction_percent=round(100 * (before - peak) / before, 2) if before else 0.0,
        extra_macs_percent=round(100 * facts.extra_macs / macs, 3) if macs else 0.0,
        interrupted=facts.interrupted,
    )


def _before_and_after(figures: tuple[int, int] | None) -> BeforeAndAfter | None:
    return None if figures is None else BeforeAndAfter(before=figures[0], after=figures[1])


def _required(facts: Facts) -> int:
    """Return what the model written takes, as its runtime's own planner says where that is known.

    Where the very session that was promised showed more, that decides.
    """
    if facts.session is not None:
        return max(facts.session[1], _shown_in_session(facts) or 0)
    return facts.allocation.arena if facts.requirement is None else facts.requirement.bytes


def _shown_in_session(facts: Facts) -> int | None:
    """Return the bytes that ONNX Runtime was seen to need under the order guarantee; None where it was not run so."""
    shown, guarantee = facts.verification, facts.order_guarantee
    if shown is None or guarantee is None or not shown.at_stated_sizes:
        return None
    if guarantee.kind not in {"session", "none"} or (guarantee.kind == "none" and not guarantee.session_options):
        return shown.default_peak_after_bytes
    return shown.measured_peak_after_bytes if guarantee.session_options else None


def _budget(facts: Facts) -> BudgetSection | None:
    """Return what became of a budget: a model that its runtime refuses meets none."""
    budget = facts.budget_bytes
    if budget is None:
        return None
    required = _required(facts) if facts.whole_range is None else facts.whole_range
    refused = facts.tflm is not None and bool(facts.tflm.refused or facts.tflm.refusal)
    return BudgetSection(
        budget_bytes=budget,
        required_bytes=required,
        exceeded_bytes=max(0, required - budget),
        met=required <= budget and not refused,
    )


def _fusion(fused: FusedGraph | None) -> FusionSection | None:
    if fused is None:
        return None
    return FusionSection(
        ops_before=fused.ops_before,
        ops_after=fused.ops_after,
        monotonic=fused.monotonic,
        isolated=fused.isolated,
        iterations=fused.iterations,
    )


def _tiling(section: TilingSection, steps: Sequence[StepRow]) -> TilingSection:
    """Return the section, its groups with the peaks of their steps."""
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


def _allocation(allocation: Allocation) -> AllocationSection:
    return AllocationSection(
        method=allocation.method,
        status=allocation.status,
        lower_bound_bytes=allocation.lower_bound,
        alignment_bytes=allocation.alignment,
    )


def _pass(record: PassRecord) -> PassRow:
    return PassRow(
        name=record.name,
        seconds=round(record.seconds, 4),
        ops_before=record.ops_before,
        ops_after=record.ops_after,
        peak_before_bytes=record.peak_before_bytes,
        peak_after_bytes=record.peak_after_bytes,
        outcome=record.outcome,
    )


def _peak_step(checked: CheckedSchedule) -> int:
    """Return the first step whose footprint is the peak; 0 in a graph without steps."""
    return checked.footprints.index(checked.peak) if checked.footprints else 0


def _peak_tensors(graph: Graph, checked: CheckedSchedule, producer: Sequence[int]) -> tuple[FaultRow, ...]:
    """Return the tensors whose bytes are live at the peak, largest first: who is to blame for it."""
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


def _steps(
    graph: Graph, schedule: Schedule, checked: CheckedSchedule, producer: Sequence[int], *, rows: bool
) -> tuple[StepRow, ...]:
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


def _buffer_rows(facts: Facts) -> tuple[BufferRow, ...]:
    rows_of = partial(_buffers, facts.graph, facts.schedule, facts.checked)
    return rows_in_pools(facts.pools, facts.allocation, rows_of)


def _workspace_rows(facts: Facts) -> tuple[WorkspaceRow, ...]:
    return rows_in_pools(facts.pools, facts.allocation, partial(_workspaces, facts.graph, facts.schedule))


def _buffers(
    graph: Graph, schedule: Schedule, checked: CheckedSchedule, allocation: Allocation
) -> tuple[BufferRow, ...]:
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


def _workspaces(graph: Graph, schedule: Schedule, allocation: Allocation) -> tuple[WorkspaceRow, ...]:
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
