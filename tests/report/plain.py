"""Reports as the plain values of their files, and back; and the report of a graph that nobody optimized."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from memsched.base.typed import converted
from memsched.check.schedule import check_schedule
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Allocation, Graph, Schedule
from memsched.report.dump import dump_report
from memsched.report.graphs import proof_section, step_rows, with_peaks, written_section
from memsched.report.values.base import Section
from memsched.report.values.border import InterfaceSection
from memsched.report.values.graphs import WrittenSection
from memsched.report.values.optimize import OptimizeReport, Sections
from memsched.report.values.shared import VerificationSection
from memsched.report.values.verdict import ProofSection
from memsched.runtimes.graph_plan import GraphPlan
from memsched.solve.allocate.arena import allocate

_Kind = TypeVar("_Kind", bound=Section)

EQUAL_OUTPUTS = VerificationSection(
    runtime="onnxruntime 1",
    runs=3,
    outputs_equal=True,
    max_abs_error=0.0,
    relative_error=0.0,
    measured_peak_before_bytes=None,
    measured_peak_after_bytes=None,
    predicted_peak_before_bytes=None,
    predicted_peak_after_bytes=None,
    executed_order_matches=None,
    reason=None,
    notes=(),
)
"""Both models were run, nothing but their outputs was looked at, and these are equal."""


def plain(values: Section) -> dict[str, Any]:
    """Return a report as its file holds it."""
    data: dict[str, Any] = json.loads(dump_report(values))
    return data


def typed(data: Mapping[str, Any]) -> OptimizeReport:
    """Return the report of ``memsched optimize`` or ``analyze`` that a file holds."""
    return converted(data, OptimizeReport)


def section(data: Mapping[str, Any] | None, kind: type[_Kind]) -> _Kind | None:
    """Return a part of a report that a file holds; None for null."""
    return None if data is None else converted(data, kind)


def with_section(data: Mapping[str, Any], **sections: Any) -> dict[str, Any]:
    """Return a report as its file holds it with other sections."""
    return {**data, "sections": {**data["sections"], **sections}}


def amended(report: OptimizeReport, **parts: Any) -> OptimizeReport:
    """Return a report with other parts, or other sections."""
    sections = {name: part for name, part in parts.items() if name in Sections.__struct_fields__}
    others = {name: part for name, part in parts.items() if name not in sections}
    changed = msgspec.structs.replace
    return changed(report, sections=changed(report.sections, **sections), **others)


def planned(graph: Graph, order: tuple[int, ...]) -> tuple[GraphPlan, Allocation]:
    """Return the plan of an order in which nobody believes, and its addresses."""
    storage = Storage.of(graph)
    profile = evaluate(storage, order)
    schedule = Schedule(order, profile.in_place(storage, order), profile.peak, 0, "feasible", "nothing", "test")
    plan = GraphPlan(graph, schedule, check_schedule(graph, schedule), profile.peak, None, ())
    return plan, allocate(graph, schedule, alignment=1)


def report_with(
    graph: Graph, order: tuple[int, ...], *, budget_bytes: int | None = None, **more: Any
) -> OptimizeReport:
    """Return the report of an order, whose original has twice its peak and three times that as its arena.

    Args:
        more: Plain values of its parts, and of its sections.
    """
    plan, allocation = planned(graph, order)
    steps = step_rows(graph, plan.schedule, plan.checked, rows=True)
    figures = {"peak_bytes": plan.checked.peak * 2, "arena_bytes": plan.checked.peak * 3}
    arena = allocation.arena
    budget = {
        "budget_bytes": budget_bytes,
        "required_bytes": arena,
        "exceeded_bytes": max(0, arena - (budget_bytes or 0)),
        "met": arena <= (budget_bytes or 0),
    }
    verdict = {
        "unit": "arena",
        "original_bytes": figures["arena_bytes"],
        "bytes": arena,
        "time_ratio": None,
        "measured": False,
        "outputs": "not_run",
        "runtime": None,
        "session": None,
        "extra_macs_percent": 0.0,
        "interrupted": False,
        "notes": [],
    }
    parts = {key: more.pop(key) for key in list(more) if key not in Sections.__struct_fields__}
    sections: dict[str, Any] = {"requirement": _REQUIREMENT | {"given_bytes": figures["arena_bytes"], "bytes": arena}}
    values: dict[str, Any] = {
        "schema_version": 2,
        "memsched_version": "0",
        "command": "analyze",
        "seed": 0,
        "seconds": 1.2346,
        "model": _MODEL | {"ops": len(graph.ops), "tensors": len(graph.tensors)},
        "output": None,
        "target": _TARGET,
        "assumed": [],
        "verdict": verdict,
        "budget": None if budget_bytes is None else budget,
        "ledger": [],
        "measurements": [],
        "original": {
            "schedule": figures,
            "orders": {"reverse_post_order": figures, "runtime_default_order": figures},
            "steps": [],
            "buffers": [],
        },
        "sections": sections | more,
        "alternatives": [],
        **parts,
    }
    proof: ProofSection = proof_section(plan, rewritten=False)
    written: WrittenSection = written_section(
        plan,
        allocation,
        steps,
        before=figures["peak_bytes"],
        operators=[op.type for op in graph.ops],
        interface=InterfaceSection(inputs=(), outputs=()),
    )
    # Names that are no text stay as they are.
    small = written_section(*planned(_NOTHING, ()), (), before=0, operators=(), interface=written.interface)
    found = converted({**values, "proof": plain(proof), "written": plain(small)}, OptimizeReport)
    return amended(msgspec.structs.replace(found, written=written), tile=with_peaks(found.sections.tile, steps))


_NOTHING = Graph("nothing", (), (), (), ())
_REQUIREMENT: dict[str, Any] = {"runtime": "", "given_parts": {}, "parts": {}}
_MODEL = {
    "path": "m.onnx",
    "format": "onnx",
    "sha256": "0" * 64,
    "weights_bytes": 0,
    "macs": 0,
    "graphs": 1,
    "constant_ops": 0,
}
_TARGET = {
    "name": "t",
    "description": "",
    "runtime": "",
    "alignment_bytes": 1,
    "default_order": "file",
    "inputs": "arena",
    "in_place": True,
}
