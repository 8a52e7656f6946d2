"""The report of a command, made from its record."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Final

from memsched import __version__
from memsched.check.schedule import check_schedule
from memsched.commands.optimize.firmware_report import firmware_section, tflm_section
from memsched.commands.optimize.layers import LayeredModel, layer_rows
from memsched.commands.optimize.ledger import ledger_rows
from memsched.commands.optimize.placing import module_macs
from memsched.commands.optimize.record import Record
from memsched.commands.optimize.verification import verification_section
from memsched.commands.results import OptimizeResult, Report
from memsched.formats.known import format_of
from memsched.formats.module import AssumedSize, Module
from memsched.plan.orders import SMALLER_ARENA, Baseline
from memsched.plan.values import TargetModule
from memsched.report.border import interface_section
from memsched.report.graphs import (
    buffer_rows,
    fusion_section,
    proof_section,
    step_rows,
    with_peaks,
    written_section,
)
from memsched.report.measurements import measurement_rows
from memsched.report.outputs import outputs_of, time_ratio
from memsched.report.pools import pools_section
from memsched.report.sessions import smaller_process
from memsched.report.values.base import SCHEMA_VERSION
from memsched.report.values.blocks import RangeRow
from memsched.report.values.graphs import (
    OrdersSection,
    OriginalSection,
    OriginalStepRow,
    StepRow,
    WrittenSection,
)
from memsched.report.values.layers import LayerRow
from memsched.report.values.optimize import (
    BodyRow,
    FixedDimensionRow,
    OptimizeReport,
    OutputSection,
    Sections,
    TargetSection,
)
from memsched.report.values.runtime import (
    GuaranteeSection,
    PredictedPeaksSection,
    RequirementParts,
    RequirementSection,
)
from memsched.report.values.shared import FailureRow, FiguresSection, ModelSection, VerificationSection
from memsched.report.values.verdict import AssumedRow, BudgetSection, Unit, VerdictSection
from memsched.runtimes.firmware import FirmwareNeeds
from memsched.runtimes.graph_plan import GraphPlan
from memsched.runtimes.known import firmware_needs
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.runtime import Requirement
from memsched.search.run import Run

__all__ = ["assumed_rows", "model_section", "report_of", "result_of"]

_UNITS: Final[dict[str | None, Unit]] = {
    "litert": "litert_arena",
    "interpreter": "interpreter",
    "session": "requested",
}


def report_of(record: Record, *, seed: int, seconds: float, rows: bool = True) -> Report[OptimizeReport]:
    """Return the report of a record.

    Args:
        seconds: What the whole command took.
        rows: Whether there is a row for each step, buffer and layer; else there is one for the peak's step alone.
    """
    output = None if record.written is None else _output_section(record.written, record)
    main = record.final.placed.plans[0]
    steps = step_rows(main.graph, main.schedule, main.checked, rows=rows)
    sections = _sections(record, steps, rows=rows)
    digests = record.module.sha256, None if output is None else output.sha256
    verdict = _verdict(record, sections, output)
    final = record.final
    tried = ledger_rows(record.tried, main.passes, final.names, final.rewrites if final.rewritten else None)
    report = OptimizeReport(
        schema_version=SCHEMA_VERSION,
        memsched_version=__version__,
        command=record.command,
        seed=seed,
        seconds=round(seconds, 4),
        model=model_section(record.module),
        output=output,
        target=_target_section(record.final.prepared, record.target_reason),
        assumed=_assumed(record),
        verdict=verdict,
        budget=_budget(record, verdict),
        ledger=tuple(tried),
        proof=proof_section(main, rewritten=record.final.rewritten),
        measurements=measurement_rows(sections, verdict.unit, digests),
        original=_original(record.final.prepared.baselines, rows=rows),
        written=_written(record, main, steps, rows=rows),
        sections=sections,
        alternatives=record.alternatives,
    )
    return Report(report)


def result_of(record: Record, written: ModelBytes, run: Run, *, module: Module | None = None) -> OptimizeResult:
    """Return the result of a command that writes a model.

    Args:
        written: The file.
        run: The whole command's.
        module: What the file is, where that is not the original.
    """
    report = report_of(record, seed=run.limits.seed, seconds=time.monotonic() - run.started)
    main = record.final.placed.plans[0]
    return OptimizeResult(
        model=written.model,
        report=report,
        schedule=main.schedule,
        allocation=record.final.placed.allocation,
        module=module or record.module,
        graph=main.graph,
        verification=record.verification,
        budget_met=None if report.values.budget is None else report.values.budget.met,
        interrupted=record.interrupted,
        work=run.meter.done,
    )


def assumed_rows(assumed: Sequence[AssumedSize]) -> tuple[AssumedRow, ...]:
    """Return the report's rows on sizes that nobody stated."""
    return tuple(
        AssumedRow(dimension=one.dimension, sizes=(one.size,), reason=one.reason, decoder=one.decoder)
        for one in assumed
    )


def _assumed(record: Record) -> tuple[AssumedRow, ...]:
    rows = list(assumed_rows(record.assumed))
    sizes = {name: (size,) for name, size in record.final.options.dims.items()}
    sizes |= {} if record.written is None else {name: (size,) for name, size in record.written.fixed.items()}
    known = {one.dimension for one in rows}
    rows += [AssumedRow(dimension=name, sizes=size) for name, size in sizes.items() if name not in known]
    spans: Sequence[RangeRow] = () if record.open_loops is None else record.open_loops.ranges
    for one in spans:
        ends = (one.least,) if one.most is None else (one.least, one.most)
        rows.append(AssumedRow(dimension=one.dimension, sizes=ends))
    return tuple(rows)


def _verdict(record: Record, sections: Sections, output: OutputSection | None) -> VerdictSection:
    required, total = sections.requirement, module_macs(record.module)
    shown, unit = sections.verification, _unit(record)
    in_session = unit in {"requested", "process"}
    both = required.measured_given_bytes is not None and required.measured_bytes is not None
    figures = required.given_bytes, _required(record, shown) if in_session else required.bytes
    process = smaller_process(sections.sessions)
    if unit == "requested" and record.budget is None and process is not None and figures[1] > figures[0]:
        # The file was written for its process.
        unit, figures = "process", process
    return VerdictSection(
        unit=unit,
        original_bytes=figures[0],
        bytes=figures[1],
        time_ratio=time_ratio(sections),
        measured=both or (record.open_loops is not None and bool(record.open_loops.measured)),
        outputs=outputs_of(sections),
        runtime=None if shown is None else shown.runtime,
        session=output.guarantee.kind if output is not None and in_session else None,
        extra_macs_percent=round(100 * record.final.extra_macs / total, 3) if total else 0.0,
        interrupted=record.interrupted,
        notes=_notes(record),
    )


def _unit(record: Record) -> Unit:
    rows = () if record.curve is None else record.curve.rows
    if record.open_loops is not None or any(row.process_bytes is not None for row in rows):
        return "process"
    if record.traits.figure in _UNITS:
        return _UNITS[record.traits.figure]
    if record.facts is None:
        return "arena"
    return "tflm_arena" if "persistent" in dict(record.needed[1].parts) else "tflm_planned"


def _required(record: Record, shown: VerificationSection | None) -> int:
    """Return what a session needs for the model written: if the very session promised showed more, that decides."""
    needed, written = record.needed[1].total, record.written
    if shown is None or written is None or not shown.at_stated_sizes:
        return needed
    kind, opened = written.guarantee.kind, written.opened_with_options and bool(written.guarantee.session_options)
    if kind not in {"session", "none"} or (kind == "none" and not opened):
        return max(needed, shown.default_peak_after_bytes or 0)
    return max(needed, (shown.measured_peak_after_bytes or 0) if opened else 0)


def _budget(record: Record, verdict: VerdictSection) -> BudgetSection | None:
    """Return what became of a budget: a model that its runtime refuses meets none."""
    budget = record.budget
    if budget is None:
        return None
    required = verdict.bytes if record.whole_range is None else record.whole_range.total
    facts, shown = record.facts, record.verification
    refused = facts is not None and bool(facts.refusals or facts.words or (shown is not None and shown.refused))
    return BudgetSection(
        budget_bytes=budget,
        required_bytes=required,
        exceeded_bytes=max(0, required - budget),
        met=required <= budget and not refused,
    )


def _original(baselines: Mapping[str, Baseline], *, rows: bool) -> OriginalSection:
    """Return the original in its own order, and the figures of other orders."""
    given = baselines["file_order"]
    ops = [given.graph.ops[number].name for number in given.schedule.order]
    return OriginalSection(
        schedule=_figures(given),
        orders=OrdersSection(
            reverse_post_order=_figures(baselines["reverse_post_order"]),
            runtime_default_order=_figures(baselines["runtime_default_order"]),
        ),
        steps=tuple(
            OriginalStepRow(op=name, footprint_bytes=size) for name, size in zip(ops, given.footprints, strict=True)
        ),
        buffers=buffer_rows(given.graph, given.schedule, check_schedule(given.graph, given.schedule), given.allocation)
        if rows
        else (),
    )


def _figures(baseline: Baseline) -> FiguresSection:
    return FiguresSection(peak_bytes=baseline.schedule.peak, arena_bytes=baseline.arena)


def _written(record: Record, main: GraphPlan, steps: tuple[StepRow, ...], *, rows: bool) -> WrittenSection:
    final, written = record.final, record.rewritten
    return written_section(
        main,
        final.placed.allocation,
        steps,
        before=final.prepared.baselines["file_order"].schedule.peak,
        operators=(op.type for plan in final.placed.plans for op in plan.graph.ops),
        interface=interface_section(format_of(written).interface(written), final.borders),
        pools=record.pools,
        rows=rows,
    )


def _sections(record: Record, steps: tuple[StepRow, ...], *, rows: bool) -> Sections:
    final, needs, shown = record.final, _firmware_needs(record), record.verification
    rewrites = final.rewrites
    return Sections(
        requirement=_requirement_section(record),
        verification=None if shown is None else verification_section(shown),
        held_back=record.held_back,
        interpreter=record.interpreter,
        sessions=record.sessions,
        executed=record.executed,
        open_loops=record.open_loops,
        curve=record.curve,
        tflm=None if record.facts is None else tflm_section(record.facts, shown),
        firmware=None if needs is None else firmware_section(*needs),
        failures=tuple(FailureRow(what=one.what, reason=one.reason, defect=one.defect) for one in record.failures),
        layers=_layers(record, needs) if rows else (),
        bodies=_body_sections(record.rewritten, final.placed.plans),
        fusion=fusion_section(final.placed.plans[0].fused),
        tile=with_peaks(rewrites.tiling, steps),
        recompute=rewrites.remat,
        chains=rewrites.chains,
        algebra=rewrites.algebra,
        border=rewrites.io,
        frontier=record.frontier,
        on_chip=record.on_chip,
        pools=pools_section(record.pools),
    )


def _requirement_section(record: Record) -> RequirementSection:
    given, result = record.needed
    measured = _measured_peaks(record)
    return RequirementSection(
        runtime=record.traits.name,
        given_bytes=given.total,
        bytes=result.total,
        given_parts=_parts(given),
        parts=_parts(result),
        measured_given_bytes=measured[0],
        measured_bytes=measured[1],
        structures_bytes=max(0, result.structures),
    )


def _measured_peaks(record: Record) -> tuple[int | None, int | None]:
    """Return what running both models showed of that which is required; None where another quantity was shown."""
    shown, written = record.verification, record.written
    if shown is None or written is None or not shown.at_stated_sizes:
        return None, None
    unit = _unit(record)
    in_session = unit in {"requested", "process"}
    if in_session and written.guarantee.kind != "session":
        return shown.default_peak_before_bytes, shown.default_peak_after_bytes
    # A file that is kept is measured in a session without options, which is not the one required.
    same = unit == "litert_arena" or (in_session and len(shown.measured_with) > 1)
    return (shown.measured_peak_before_bytes, shown.measured_peak_after_bytes) if same else (None, None)


def _parts(required: Requirement) -> RequirementParts:
    return RequirementParts(**{f"{name}_bytes": size for name, size in required.parts})


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
        macs=module_macs(module),
        graphs=len(module.graphs),
        constant_ops=module.constant_ops,
    )


def _output_section(written: ModelBytes, record: Record) -> OutputSection:
    return OutputSection(
        path=record.output,
        sha256=hashlib.sha256(written.model).hexdigest(),
        unchanged=written.unchanged,
        slight_bytes=record.slight if written.unchanged else None,
        fixed_dimensions=tuple(FixedDimensionRow(dimension=name, size=size) for name, size in written.fixed.items()),
        guarantee=_guarantee_section(written),
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


def _target_section(prepared: TargetModule, reason: str) -> TargetSection:
    target = prepared.target
    return TargetSection(
        name=target.name,
        description=target.description,
        runtime=target.runtime,
        alignment_bytes=target.alignment_bytes,
        default_order=target.default_order,
        inputs=target.inputs,
        in_place=prepared.in_place,
        reason=reason,
    )


def _body_sections(module: Module, plans: Sequence[GraphPlan]) -> tuple[BodyRow, ...]:
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
    return tuple(sections)


def _firmware_needs(record: Record) -> tuple[FirmwareNeeds, FirmwareNeeds] | None:
    """Return what the model as given needs beside its tensors, and the one written; None for another format."""
    kernels = record.final.prepared.target.kernels
    given = firmware_needs(record.module, kernels)
    if given is None:
        return None
    return given, firmware_needs(record.rewritten, kernels) or given


def _layers(record: Record, needs: tuple[FirmwareNeeds, FirmwareNeeds] | None) -> tuple[LayerRow, ...]:
    baseline, main = record.final.prepared.baselines["file_order"], record.final.placed.plans[0]
    kept = (None, None) if needs is None or record.facts is None else tuple(one.kept_by_op for one in needs)
    return layer_rows(
        LayeredModel(record.module, baseline.graph, baseline.schedule.order, baseline.footprints, kept[0]),
        LayeredModel(record.rewritten, main.graph, main.schedule.order, main.checked.footprints, kept[1]),
        () if record.final.rewrites.tiling is None else record.final.rewrites.tiling.groups,
    )


def _notes(record: Record) -> tuple[str, ...]:
    notes = [one.told() for one in record.failures]
    notes += [*record.module.notes, *(record.written.notes if record.written else ()), *record.notes]
    written = record.rewritten
    executed = {body.graph for body in written.bodies}
    for index, graph in enumerate(written.graphs[1:], start=1):
        if index not in executed:
            alone = record.final.placed.plans[index].checked.peak
            notes.append(f"graph '{graph.name}' is executed by no op; its peak is {alone} B")
    given, peak = record.final.prepared.baselines["file_order"], record.final.placed.plans[0].checked.peak
    if record.final.placed.allocation.arena > given.arena:
        fell = "is the same" if peak == given.schedule.peak else "fell" if peak < given.schedule.peak else "grew, too"
        notes.append(f"the arena grew from {given.arena} to {record.final.placed.allocation.arena} B; the peak {fell}")
    known, smaller, _ = record.final.placed.plans[0].schedule.method.partition(SMALLER_ARENA)
    if smaller:
        notes.append(f"the {known} is used for its smaller arena: orders of no larger peak were found that need more")
    if record.interrupted and record.command == "optimize":
        notes.append("the search was ended early: the best order found so far is used")
    return tuple(notes)
