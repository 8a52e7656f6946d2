"""The report of what the pipelines found, section by section."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from memsched import __version__
from memsched.base.frozen import FrozenValue
from memsched.base.units import counted
from memsched.commands.failures import CandidateFailure
from memsched.commands.optimize.layers import LayeredModel, layer_rows
from memsched.commands.optimize.verification import verification_section
from memsched.commands.results import Report
from memsched.formats.known import format_of
from memsched.formats.module import Module
from memsched.graph.border import Border
from memsched.graph.model import Allocation
from memsched.plan.orders import SMALLER_ARENA, Baseline
from memsched.plan.values import TargetModule
from memsched.report.border import interface_section
from memsched.report.build import Facts, build_report
from memsched.report.values.blocks import BlocksSection, CurveSection
from memsched.report.values.border import BorderSection, InterfaceSection
from memsched.report.values.interpreter import InterpreterSection
from memsched.report.values.layers import LayerRow
from memsched.report.values.optimize import (
    BaselinesSection,
    BodyRow,
    FileOrderSection,
    FixedDimensionRow,
    OptimizeReport,
    OutputSection,
    SuggestionRow,
    TargetSection,
)
from memsched.report.values.rewrites import (
    AlgebraSection,
    ChainSection,
    FrontierRow,
    OnChipSection,
    RematSection,
    TilingSection,
)
from memsched.report.values.runtime import (
    ByPointer,
    DroppedTensorRow,
    FirmwareSection,
    GuaranteeSection,
    KeptRow,
    PlannedTensorRow,
    PredictedPeaksSection,
    RefusedOpRow,
    RequirementParts,
    RequirementSection,
    ScratchRow,
    TflmSection,
)
from memsched.report.values.sessions import ExecutedSection, HeldBackSection, SessionRow
from memsched.report.values.shared import FailureRow, FiguresSection, ModelSection
from memsched.runtimes.arena_facts import ArenaFacts
from memsched.runtimes.firmware import FirmwareNeeds
from memsched.runtimes.graph_plan import GraphPlan
from memsched.runtimes.known import firmware_needs
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.runtime import Requirement
from memsched.runtimes.values import Verification
from memsched.targets.pool_plan import PoolPlan

__all__ = ["Outcome", "Rewrites", "build", "model_section"]


class Rewrites(FrozenValue, frozen=True):
    """What was done beside ordering, or tried: the report's sections of these names."""

    tiling: TilingSection | None = None
    remat: RematSection | None = None
    io: BorderSection | None = None
    chains: ChainSection | None = None
    algebra: AlgebraSection | None = None

    @property
    def inexact(self) -> bool:
        """Whether layers compute in another way, so that outputs may differ in their last bits."""
        sections = (self.chains, self.algebra, self.tiling, self.remat)
        return any(section is not None and section.applied for section in sections)

    def described(self) -> str:
        """Return in words what was done, such as "2 groups of layers in pieces"; empty where nothing was."""
        done = []
        if self.chains is not None and self.chains.applied:
            done.append("chains of operators in one each (fuse)")
        if self.algebra is not None and self.algebra.applied:
            name = "algebra" if self.algebra.exact else "reassociate"
            done.append(f"{counted(len(self.algebra.identities), 'operator')} computed otherwise ({name})")
        if self.io is not None and self.io.applied:
            done.append("inputs and outputs in another form (io)")
        if self.tiling is not None and self.tiling.applied:
            count = len(self.tiling.groups)
            done.append(f"{count} group{'s' if count > 1 else ''} of layers in pieces (tile)")
        if self.remat is not None and self.remat.applied:
            count = len(self.remat.copies)
            done.append(f"{count} operator{'s' if count > 1 else ''} computed again (remat)")
        return " and ".join(done)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pipeline found, for its report.

    Attributes:
        module: The model as given.
        prepared: With the baselines of the model as given.
        plans: Of the model as written, which is another graph where layers were rewritten.
        rewritten: The model with its layers rewritten; None where they were not.
        extra_macs: Multiply-accumulates that it has beside the model as given.
        borders: What its caller has to do instead of it.
        requirement: What the runtime requires for the file as given and for the result.
        runtime: The runtime's name.
        litert: Bytes that LiteRT takes for the file as given and for the result; None for another runtime.
        session: Bytes that ONNX Runtime's session needs for them, with the options that the order guarantee comes
            with; None for another runtime.
        whole_range: What a budget must hold, if that is for all sizes of a curve; else it is what the result requires.
    """

    command: Literal["optimize", "analyze"]
    module: Module
    prepared: TargetModule
    plans: tuple[GraphPlan, ...]
    allocation: Allocation
    budget_bytes: int | None = None
    written: ModelBytes | None = None
    output: str | None = None
    verification: Verification | None = None
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    tflm: ArenaFacts | None = None
    pools: PoolPlan | None = None
    rewritten: Module | None = None
    rewrites: Rewrites = field(default_factory=Rewrites)
    failures: Sequence[CandidateFailure] = ()
    extra_macs: int = 0
    borders: tuple[Border, ...] = ()
    on_chip: OnChipSection | None = None
    frontier: Sequence[FrontierRow] | None = None
    requirement: tuple[Requirement, Requirement] | None = None
    runtime: str = ""
    litert: tuple[int, int] | None = None
    session: tuple[int, int] | None = None
    suggestions: Sequence[SuggestionRow] = ()
    held_back: HeldBackSection | None = None
    interpreter: InterpreterSection | None = None
    sessions: Sequence[SessionRow] = ()
    slight: int | None = None
    executed: ExecutedSection | None = None
    blocks: BlocksSection | None = None
    curve: CurveSection | None = None
    whole_range: Requirement | None = None


def build(outcome: Outcome, *, seed: int, seconds: float, rows: bool = True) -> Report[OptimizeReport]:
    """Return the report of ``outcome``.

    Args:
        seconds: What the whole command took.
        rows: As of `Facts`.
    """
    main, written = outcome.plans[0], outcome.written
    verification = outcome.verification
    needs = _firmware_needs(outcome)
    facts = Facts(
        memsched_version=__version__,
        command=outcome.command,
        model=model_section(outcome.module),
        output=None if written is None else _output_section(written, outcome),
        target=_target_section(outcome.prepared),
        baselines=_baselines_section(outcome.prepared.baselines),
        graph=main.graph,
        schedule=main.schedule,
        checked=main.checked,
        allocation=outcome.allocation,
        operators=[op.type for plan in outcome.plans for op in plan.graph.ops],
        budget_bytes=outcome.budget_bytes,
        fused=main.fused,
        passes=main.passes,
        bodies=_body_sections(outcome.rewritten or outcome.module, outcome.plans),
        order_guarantee=None if written is None else _guarantee_section(written),
        tflm=None if outcome.tflm is None else _tflm_section(outcome.tflm, outcome.verification),
        verification=None if verification is None else verification_section(verification),
        notes=_notes(outcome),
        failures=tuple(FailureRow(what=one.what, reason=one.reason, defect=one.defect) for one in outcome.failures),
        pools=outcome.pools,
        interrupted=outcome.interrupted,
        firmware=None if needs is None else _firmware_section(*needs),
        layers=_layers(outcome, needs) if rows else (),
        rows=rows,
        tiling=outcome.rewrites.tiling,
        remat=outcome.rewrites.remat,
        chains=outcome.rewrites.chains,
        algebra=outcome.rewrites.algebra,
        io=outcome.rewrites.io,
        interface=_interface_section(outcome),
        frontier=outcome.frontier,
        extra_macs=outcome.extra_macs,
        on_chip=outcome.on_chip,
        requirement=_requirement_section(outcome),
        litert=outcome.litert,
        session=outcome.session,
        suggestions=outcome.suggestions,
        held_back=outcome.held_back,
        interpreter=outcome.interpreter,
        sessions=outcome.sessions,
        executed=outcome.executed,
        blocks=outcome.blocks,
        curve=outcome.curve,
        whole_range=None if outcome.whole_range is None else outcome.whole_range.total,
        seed=seed,
        seconds=seconds,
    )
    return Report(build_report(facts))


def _baselines_section(baselines: Mapping[str, Baseline]) -> BaselinesSection:
    """Return the figures of all baselines; of the file's order also the ops and what each of them costs."""
    given = baselines["file_order"]
    return BaselinesSection(
        file_order=FileOrderSection(
            peak_bytes=given.schedule.peak,
            arena_bytes=given.arena,
            ops=tuple(given.graph.ops[number].name for number in given.schedule.order),
            footprints_bytes=tuple(given.footprints),
        ),
        reverse_post_order=_figures(baselines["reverse_post_order"]),
        runtime_default_order=_figures(baselines["runtime_default_order"]),
    )


def _interface_section(outcome: Outcome) -> InterfaceSection:
    written = outcome.rewritten or outcome.module
    return interface_section(format_of(written).interface(written), outcome.borders)


def _requirement_section(outcome: Outcome) -> RequirementSection | None:
    if outcome.requirement is None:
        return None
    given, result = outcome.requirement
    measured = _measured_peaks(outcome)
    return RequirementSection(
        runtime=outcome.runtime,
        given_bytes=given.total,
        bytes=result.total,
        given_parts=_parts(given),
        parts=_parts(result),
        measured_given_bytes=measured[0],
        measured_bytes=measured[1],
        structures_bytes=max(0, result.structures),
    )


def _measured_peaks(outcome: Outcome) -> tuple[int | None, int | None]:
    """Return what running both models showed of that which is required; None where another quantity was shown."""
    shown, written = outcome.verification, outcome.written
    if shown is None or written is None or not shown.at_stated_sizes:
        return None, None
    if outcome.session is not None and written.guarantee.kind != "session":
        return shown.default_peak_before_bytes, shown.default_peak_after_bytes
    # A file that is kept is measured in a session without options, which is not the one required.
    same = outcome.litert is not None or (outcome.session is not None and len(shown.measured_with) > 1)
    return (shown.measured_peak_before_bytes, shown.measured_peak_after_bytes) if same else (None, None)


def _parts(required: Requirement) -> RequirementParts:
    return RequirementParts(**{f"{name}_bytes": size for name, size in required.parts})


def _figures(baseline: Baseline) -> FiguresSection:
    return FiguresSection(peak_bytes=baseline.schedule.peak, arena_bytes=baseline.arena)


def model_section(module: Module) -> ModelSection:
    """Return the section of a report that says which model was read."""
    main = module.graphs[0]
    return ModelSection(
        path=module.path,
        format=module.format,
        sha256=module.sha256,
        ops=len(main.ops),
        tensors=len(main.tensors),
        weights_bytes=module.weights_bytes,
        macs=sum(op.macs for op in main.ops),
        graphs=len(module.graphs),
        constant_ops=module.constant_ops,
    )


def _output_section(written: ModelBytes, outcome: Outcome) -> OutputSection:
    return OutputSection(
        path=outcome.output,
        sha256=hashlib.sha256(written.model).hexdigest(),
        unchanged=written.unchanged,
        slight_bytes=outcome.slight if written.unchanged else None,
        fixed_dimensions=tuple(FixedDimensionRow(dimension=name, size=size) for name, size in written.fixed.items()),
    )


def _guarantee_section(written: ModelBytes) -> GuaranteeSection:
    guarantee = written.guarantee
    return GuaranteeSection(
        kind=guarantee.kind,
        # Nothing has to be done for the file as given, unless its session's figure was compared with a budget.
        session_options=tuple(guarantee.session_options) if written.opened_with_options else (),
        pins=guarantee.pins,
        predicted_peak_bytes=None if guarantee.predicted is None else PredictedPeaksSection(**guarantee.predicted),
    )


def _target_section(prepared: TargetModule) -> TargetSection:
    target = prepared.target
    return TargetSection(
        name=target.name,
        description=target.description,
        runtime=target.runtime,
        alignment_bytes=target.alignment_bytes,
        default_order=target.default_order,
        inputs=target.inputs,
        in_place=prepared.in_place,
    )


def _body_sections(module: Module, plans: Sequence[GraphPlan]) -> list[BodyRow]:
    caller = {body.graph: body for body in reversed(module.bodies)}
    sections = []
    for index, plan in enumerate(plans[1:], start=1):
        body = caller.get(index)
        sections.append(
            BodyRow(
                graph=module.graphs[index].name,
                parent=module.graphs[body.parent].name if body else None,
                op=module.graphs[body.parent].ops[body.op].name if body else None,
                ops=len(plan.graph.ops),
                file_peak_bytes=plan.file_peak,
                peak_bytes=plan.checked.peak,
                lower_bound_bytes=plan.schedule.lower_bound,
                status=plan.schedule.status,
                proof=plan.schedule.proof,
            )
        )
    return sections


def _firmware_needs(outcome: Outcome) -> tuple[FirmwareNeeds, FirmwareNeeds] | None:
    """Return what the model as given needs beside its tensors, and the one written; None for another format."""
    kernels = outcome.prepared.target.kernels
    given = firmware_needs(outcome.module, kernels)
    if given is None:
        return None
    return given, (given if outcome.rewritten is None else firmware_needs(outcome.rewritten, kernels)) or given


def _layers(outcome: Outcome, needs: tuple[FirmwareNeeds, FirmwareNeeds] | None) -> tuple[LayerRow, ...]:
    baseline, main = outcome.prepared.baselines["file_order"], outcome.plans[0]
    kept = (None, None) if needs is None or outcome.tflm is None else tuple(one.kept_by_op for one in needs)
    return layer_rows(
        LayeredModel(outcome.module, baseline.graph, baseline.schedule.order, baseline.footprints, kept[0]),
        LayeredModel(
            outcome.rewritten or outcome.module, main.graph, main.schedule.order, main.checked.footprints, kept[1]
        ),
        () if outcome.rewrites.tiling is None else outcome.rewrites.tiling.groups,
    )


def _firmware_section(given: FirmwareNeeds, needs: FirmwareNeeds) -> FirmwareSection:
    return FirmwareSection(
        resolver_calls=needs.resolver.calls,
        unsupported_operators=needs.resolver.unsupported,
        custom_operators=needs.resolver.custom,
        scratch=tuple(
            ScratchRow(subgraph=one.subgraph, operator=one.operator, type=one.type, requests_bytes=one.requests)
            for one in needs.scratch
        ),
        persistent_bytes_estimate=_by_pointer({bits: one.persistent for bits, one in needs.estimates.items()}),
        planning_bytes_estimate=_by_pointer({bits: one.planning for bits, one in needs.estimates.items()}),
        assumptions=needs.assumptions,
        kept=tuple(
            KeptRow(subgraph=graph, operator=operator, type=kind, bytes=size)
            for graph, operator, kind, size in needs.kept
        ),
        unknown_kernels=needs.unknown,
        resource_variables=needs.variables,
        file_persistent_bytes_estimate=_by_pointer({bits: one.persistent for bits, one in given.estimates.items()}),
        file_planning_bytes_estimate=_by_pointer({bits: one.planning for bits, one in given.estimates.items()}),
        apart_persistent_bytes_estimate=_by_pointer({bits: one.apart for bits, one in needs.estimates.items()}),
        apart_planning_bytes_estimate=_by_pointer({bits: one.planning_apart for bits, one in needs.estimates.items()}),
    )


def _by_pointer(figures: Mapping[int, int]) -> ByPointer:
    return ByPointer(bits_64=figures[64], bits_32=figures[32])


def _tflm_section(facts: ArenaFacts, verification: Verification | None) -> TflmSection:
    heads = (facts.plan_head, facts.order_head, facts.file_head)
    return TflmSection(
        head_bytes=next((head for head in heads if head is not None), None),
        file_head_bytes=facts.file_head,
        order_head_bytes=facts.order_head,
        plan_head_bytes=facts.plan_head,
        refusal=facts.words or (None if verification is None else verification.refused),
        refused=tuple(RefusedOpRow(**dataclasses.asdict(one)) for one in facts.refusals),
        plan_fault=facts.plan_fault,
        dropped=tuple(
            DroppedTensorRow(subgraph=one.subgraph, index=one.tensor, tensor=one.name, size_bytes=one.size)
            for one in facts.dropped
        ),
        plan=tuple(
            PlannedTensorRow(subgraph=subgraph, index=index, tensor=facts.names[subgraph, index], offset_bytes=offset)
            for (subgraph, index), offset in sorted(facts.offsets.items())
        ),
    )


def _notes(outcome: Outcome) -> list[str]:
    notes = [one.told() for one in outcome.failures]
    notes += [*outcome.module.notes, *(outcome.written.notes if outcome.written else ()), *outcome.notes]
    written = outcome.rewritten or outcome.module
    executed = {body.graph for body in written.bodies}
    for index, graph in enumerate(written.graphs[1:], start=1):
        if index not in executed:
            notes.append(
                f"graph '{graph.name}' is executed by no op; its peak is {outcome.plans[index].checked.peak} B"
            )
    given, peak = outcome.prepared.baselines["file_order"], outcome.plans[0].checked.peak
    if outcome.allocation.arena > given.arena:
        fell = "is the same" if peak == given.schedule.peak else "fell" if peak < given.schedule.peak else "grew, too"
        notes.append(f"the arena grew from {given.arena} to {outcome.allocation.arena} B; the peak {fell}")
    known, smaller, _ = outcome.plans[0].schedule.method.partition(SMALLER_ARENA)
    if smaller:
        notes.append(f"the {known} is used for its smaller arena: orders of no larger peak were found that need more")
    if outcome.interrupted and outcome.command == "optimize":
        notes.append("the search was ended early: the best order found so far is used")
    return notes
