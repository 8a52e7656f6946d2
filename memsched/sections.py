"""The report of what the pipelines found, section by section."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memsched import __version__
from memsched.formats.module import Module
from memsched.graph.model import Allocation
from memsched.planning import Baseline, GraphPlan, Lowered
from memsched.report.build import Facts, build_report
from memsched.results import Report
from memsched.runtimes.values import Verification
from memsched.targets.load import Target
from memsched.writing import Guarantee, Written

__all__ = ["Outcome", "Prepared", "build"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A module under the rules of one target."""

    target: Target
    lowered: tuple[Lowered, ...]
    baselines: Mapping[str, Baseline]
    in_place: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pipeline found, for its report."""

    command: str
    module: Module
    prepared: Prepared
    plans: tuple[GraphPlan, ...]
    allocation: Allocation
    budget_bytes: int | None = None
    written: Written | None = None
    output: str | None = None
    verification: Verification | None = None
    notes: tuple[str, ...] = ()
    interrupted: bool = False


def build(outcome: Outcome, *, seed: int, seconds: float) -> Report:
    """Return the report of ``outcome``; ``seconds`` is what the whole command took."""
    main, written = outcome.plans[0], outcome.written
    verification = outcome.verification
    facts = Facts(
        memsched_version=__version__,
        command=outcome.command,
        model=_model_section(outcome.module, main),
        output=None if written is None else _output_section(written, outcome.output),
        target=_target_section(outcome.prepared),
        baselines={name: _figures(baseline) for name, baseline in outcome.prepared.baselines.items()},
        graph=main.graph,
        schedule=main.schedule,
        checked=main.checked,
        allocation=outcome.allocation,
        operators=[op.type for plan in outcome.plans for op in plan.graph.ops],
        budget_bytes=outcome.budget_bytes,
        fused=main.fused,
        passes=main.passes,
        bodies=_body_sections(outcome.module, outcome.plans),
        order_guarantee=None if written is None else _guarantee_section(written.guarantee),
        verification=None if verification is None else _verification_section(verification),
        notes=_notes(outcome),
        interrupted=outcome.interrupted,
        seed=seed,
        seconds=seconds,
    )
    return Report(build_report(facts))


def _figures(baseline: Baseline) -> dict[str, int]:
    return {"peak_bytes": baseline.schedule.peak, "arena_bytes": baseline.allocation.arena}


def _model_section(module: Module, main: GraphPlan) -> dict[str, Any]:
    return {
        "path": module.path,
        "format": module.format,
        "sha256": module.sha256,
        "ops": len(main.graph.ops),
        "tensors": len(main.graph.tensors),
        "weights_bytes": module.weights_bytes,
        "macs": sum(op.macs for op in main.graph.ops),
        "graphs": len(module.graphs),
        "constant_ops": module.constant_ops,
    }


def _output_section(written: Written, path: str | None) -> dict[str, Any]:
    return {"path": path, "sha256": hashlib.sha256(written.model).hexdigest(), "unchanged": written.unchanged}


def _guarantee_section(guarantee: Guarantee) -> dict[str, Any]:
    return {"kind": guarantee.kind, "session_options": list(guarantee.session_options), "pins": guarantee.pins}


def _target_section(prepared: Prepared) -> dict[str, Any]:
    target = prepared.target
    return {
        "name": target.name,
        "description": target.description,
        "runtime": target.runtime,
        "alignment_bytes": target.alignment_bytes,
        "default_order": target.default_order,
        "inputs": target.inputs,
        "in_place": prepared.in_place,
    }


def _body_sections(module: Module, plans: Sequence[GraphPlan]) -> list[dict[str, Any]]:
    caller = {body.graph: body for body in reversed(module.bodies)}
    sections = []
    for index, plan in enumerate(plans[1:], start=1):
        body = caller.get(index)
        sections.append(
            {
                "graph": module.graphs[index].name,
                "parent": module.graphs[body.parent].name if body else None,
                "op": module.graphs[body.parent].ops[body.op].name if body else None,
                "ops": len(plan.graph.ops),
                "file_peak_bytes": plan.file_peak,
                "peak_bytes": plan.checked.peak,
                "lower_bound_bytes": plan.schedule.lower_bound,
                "status": plan.schedule.status,
                "proof": plan.schedule.proof,
            }
        )
    return sections


def _verification_section(verification: Verification) -> dict[str, Any]:
    error = verification.max_abs_error
    return {
        "runtime": verification.runtime,
        "outputs_equal": verification.outputs_equal,
        "max_abs_error": error if error is not None and error < float("inf") else None,
        "measured_peak_before_bytes": verification.measured_peak_before_bytes,
        "measured_peak_after_bytes": verification.measured_peak_after_bytes,
        "executed_order_matches": verification.executed_order_matches,
        "runs": verification.runs,
        "reason": verification.reason,
        "notes": list(verification.notes),
    }


def _notes(outcome: Outcome) -> list[str]:
    notes = [*outcome.module.notes, *(outcome.written.notes if outcome.written else ()), *outcome.notes]
    executed = {body.graph for body in outcome.module.bodies}
    for index, graph in enumerate(outcome.module.graphs[1:], start=1):
        if index not in executed:
            notes.append(
                f"graph '{graph.name}' is executed by no op; its peak is {outcome.plans[index].checked.peak} B"
            )
    before = outcome.prepared.baselines["file_order"].allocation.arena
    if outcome.allocation.arena > before:
        notes.append(f"the peak fell, but the arena grew from {before} to {outcome.allocation.arena} B")
    if outcome.interrupted:
        notes.append("interrupted: the best order found so far is used")
    return notes
