"""The details that -v prints below the summary: tables, findings, notes, from the report's values alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memsched.base.shown import ROWS_SHOWN, TABLE_ROWS, UNLIMITED
from memsched.base.units import counted, format_size
from memsched.report.algebra import algebra_lines
from memsched.report.blocks import best_saving, block_lines
from memsched.report.border import border_lines
from memsched.report.budget import budget_lines
from memsched.report.chains import chain_lines
from memsched.report.chart import print_footprints
from memsched.report.frontier import frontier_rows
from memsched.report.guarantees import guarantee_lines, own_operators
from memsched.report.interpreter import interpreter_lines, kept_for_interpreter
from memsched.report.ledger import pass_lines
from memsched.report.outputs import compared, compared_in, kept_why, was_rewritten
from memsched.report.pools import pool_lines, two_arena_lines
from memsched.report.predicted import OTHER_SIZES, bound_is_void, measured_instead, missed_by
from memsched.report.refusals import plan_lines, refusal_lines, unknown_lines
from memsched.report.remat import remat_lines
from memsched.report.requirement import arena_column, frontier_column, needed_memory
from memsched.report.sessions import (
    apart_lines,
    arena_lines,
    default_session_line,
    executed_lines,
    held_back_lines,
    measured_text,
    process_lines,
    size_lines,
)
from memsched.report.text import SAME_OUTPUTS, console_table, print_line
from memsched.report.tiling import tiling_lines
from memsched.report.values.graphs import StepRow, WrittenScheduleSection
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.rewrites import OnChipSection
from memsched.report.values.shared import FiguresSection, VerificationSection
from memsched.runtimes.values import CLOSE, SAME_SEEDS

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["figure_rows", "findings", "print_details", "print_frontier", "print_operators", "step_at_peak"]

_MOST_GAPS = 0.005
"""Share of an arena that gaps may take without being named."""


def print_details(console: Console, report: OptimizeReport) -> None:
    """Print all that the summary leaves out: the orders, the footprints, every finding, the tensors at the peak, notes.

    Names are in full.
    """
    model, target = report.model, report.target
    what = f": {model.ops:,} ops, target {target.name}"
    print_line(console, f"{model.path}{what}", style="bold", whole=True)
    console.print(_table(report))
    print_footprints(console, report)
    for text, style in findings(report, UNLIMITED, verbose=True):
        print_line(console, text, style=style)
    _print_faults(console, report)
    stated = () if report.sections.verification is None else report.sections.verification.stated
    for note in (*stated, *report.verdict.notes):
        print_line(console, f"note: {note}", style="dim")
    for text in pass_lines(report):
        print_line(console, text)
    _print_options(console, report)


def _table(report: OptimizeReport) -> Any:
    table = console_table("order", "peak, bytes", f"{arena_column(report)}, bytes", left=(0,))
    table.columns[0].min_width = 19
    for name, peak, arena in figure_rows(report):
        own = name == "memsched"
        table.add_row(name, f"{peak:,}", f"{arena:,}", style="bold green" if own else None)
    return table


def figure_rows(report: OptimizeReport) -> list[tuple[str, int, int]]:
    """Return label, peak and arena of the file's order and of those that differ from it, the model written last."""
    original = report.original
    found: list[tuple[str, FiguresSection | WrittenScheduleSection]] = [
        ("file order", original.schedule),
        ("reverse post-order", original.orders.reverse_post_order),
        ("runtime's own order", original.orders.runtime_default_order),
    ]
    ordered = report.sections.open_loops is None or (
        report.sections.open_loops.way is None and report.output is not None and not report.output.unchanged
    )
    if report.command == "optimize" and ordered:
        tiling, remat = report.sections.tile, report.sections.recompute
        if tiling is not None and tiling.applied:
            found.append(("memsched, uncut", tiling.untiled))
        if remat is not None and remat.applied:
            found.append(("memsched, no remat", remat.without))
        found.append(("memsched", report.written.schedule))
    rows = [(label, figures.peak_bytes, figures.arena_bytes) for label, figures in found]
    return [row for number, row in enumerate(rows) if number == 0 or row[1:] != rows[0][1:]]


def findings(report: OptimizeReport, columns: int, *, verbose: bool) -> list[tuple[str, str | None]]:
    """Return the lines on saving, rewrites, bound, budget and verification, each with its style.

    Args:
        columns: Into which names in lines on rewrites are shortened.
        verbose: All groups and repetitions instead of the first few.
    """
    rewrites = chain_lines(report.sections.chains)
    rewrites += algebra_lines(report.sections.algebra, columns, verbose=verbose)
    rewrites += border_lines(report.sections.border, columns, verbose=verbose)
    rewrites += tiling_lines(report.sections.tile, columns, verbose=verbose)
    rewrites += remat_lines(report.sections.recompute, columns, verbose=verbose)
    refused = refusal_lines(report)
    lines = [*refused, *plan_lines(report), *_requirement_lines(report), *unknown_lines(report), *budget_lines(report)]
    if report.command == "optimize":
        lines.extend(interpreter_lines(report))
        lines.append(_saving_line(report))
        lines.extend(_structure_lines(report))
        lines.extend(held_back_lines(report))
        default, urgent = default_session_line(report)
        if default is not None and urgent:
            lines.append(default)
        lines.extend(executed_lines(report))
        lines.extend(process_lines(report))
        lines.extend(block_lines(report.sections.open_loops))
        lines.extend(rewrites)
        lines.extend(size_lines(report))
        lines.extend(guarantee_lines(report))
    if report.sections.open_loops is None:
        lines.append((_bound_text(report), None))
    if report.sections.on_chip is not None:
        lines.append((_on_chip_text(report.sections.on_chip), None))
    if report.verdict.interrupted:
        lines.append(("the search was ended early: this is the best found so far", "yellow"))
    lines.extend(_tflm_lines(report))
    lines.extend(_litert_lines(report))
    lines.extend(pool_lines(report.sections.pools))
    if report.sections.tflm is not None:
        lines.extend(
            two_arena_lines(
                report.sections.pools,
                report.sections.firmware,
                report.sections.tflm.head_bytes or report.written.schedule.arena_bytes,
            )
        )
    if report.command == "optimize":
        lines.append(_verification_line(report))
        lines.extend(apart_lines(report))
        if default is not None and not urgent:
            lines.append(default)
        if report.sections.verification is not None and report.sections.verification.outputs_vary is False:
            lines.append((f"warning: {SAME_OUTPUTS}", "yellow"))
        lines.extend(arena_lines(report))
        # Whoever sees the end alone must not miss it.
        lines.extend(refused[:1])
    return lines


def _saving_line(report: OptimizeReport) -> tuple[str, str | None]:
    saved = report.original.schedule.peak_bytes - report.written.schedule.peak_bytes
    if report.sections.open_loops is not None and report.sections.open_loops.way is not None:
        orders = report.sections.open_loops.orders
        order = "the file's" if orders is None or not orders.chosen else "another"
        some = report.sections.open_loops.loops or report.sections.open_loops.kernels
        computed = f"{'large ' if some else ''}values are computed {report.sections.open_loops.way},"
        return f"{computed} {'the rest ' if some else ''}in {order} order", "green"
    if report.output is not None and report.output.unchanged:
        return kept_for_interpreter(report) or f"the file's order is kept: {kept_why(report)}", None
    if report.sections.open_loops is not None and report.sections.open_loops.orders is not None:
        return best_saving(report.sections.open_loops.orders), "green"
    measured = measured_instead(report)
    if measured is not None:
        return measured, "yellow"
    if refusal_lines(report):
        return "nothing is saved where the model is refused", "yellow"
    return _gain_line(report, saved)


def _gain_line(report: OptimizeReport, saved: int) -> tuple[str, str | None]:
    """Return what a file that is another one saves: of the peak, or else of what the runtime allocates in all."""
    where = "" if report.verdict.unit != "litert_arena" else "without delegates: "
    if saved > 0:
        percent = f"{report.written.schedule.reduction_percent:.1f} %"
        return f"{where}saves {format_size(saved)} of peak memory, {percent} less than the file's order", "green"
    needed = needed_memory(report)
    if needed.saved > 0:
        peak = "no lower" if saved == 0 else f"{format_size(-saved)} higher"
        what = (
            f"{where}saves {format_size(needed.saved)} of the {needed.noun}, {needed.percent:.1f} % less than as given"
        )
        return f"{what}; the peak is {peak}", "green"
    if saved < 0:
        return f"the peak is {format_size(-saved)} higher than in the file's order; nothing is saved", "yellow"
    return "the file is another one, but nothing is saved by what is predicted", "yellow"


def _on_chip_text(on_chip: OnChipSection) -> str:
    """Return what groups of layers that stay on chip save of an accelerator's traffic and time."""
    traffic, seconds = on_chip.traffic, on_chip.time_seconds
    before, after = traffic.before_bytes, traffic.after_bytes
    saved = 100 * (before - after) / before if before else 0.0
    faster = seconds.before / seconds.after if seconds.after else 1.0
    return (
        f"{len(on_chip.groups)} groups of layers stay in {format_size(on_chip.on_chip_bytes)} on chip: "
        f"DRAM traffic {before:,} -> {after:,} B ({saved:.1f} % less), "
        f"time {1000 * seconds.before:.2f} -> {1000 * seconds.after:.2f} ms ({faster:.2f}x)"
    )


def _bound_text(report: OptimizeReport) -> str:
    """Return what is proven of the peak."""
    proof = report.proof
    peak, bound, witness = proof.bytes, proof.bound_bytes, proof.witness
    gap = 100 * (peak - bound) / peak if peak else 0.0
    if bound_is_void(report):
        return "no bound is known: the memory plan lays tensors over each other that the peak counts apart"
    if measured_instead(report) is not None:
        return (
            f"no order has less than {bound:,} B by the table's figures ({witness}), which do not hold in this runtime"
        )
    if was_rewritten(report):
        rest = "proven for this rewritten model alone" if proof.status == "optimal" else f"gap {gap:.1f} %"
        return f"no order of the rewritten model needs less than {bound:,} B, {rest} ({witness}); other rewrites may"
    if proof.status == "optimal":
        return f"proven optimal{own_operators(report)}: no order needs less than {bound:,} B ({witness})"
    if report.command == "analyze":
        return f"no order needs less than {bound:,} B: up to {gap:.1f} % may be saved by another order"
    return f"lower bound {bound:,} B, gap {gap:.1f} %: not proven optimal ({witness})"


def _tflm_lines(report: OptimizeReport) -> list[tuple[str, str | None]]:
    tflm = report.sections.tflm
    if tflm is None:
        return []
    heads = (
        ("as given", tflm.file_head_bytes),
        ("in this order", tflm.order_head_bytes),
        ("with this plan", tflm.plan_head_bytes),
    )
    shown = ", ".join(f"{head:,} B {label}" for label, head in heads if head is not None)
    lines: list[tuple[str, str | None]] = [(f"TensorFlow Lite Micro's head of the arena: {shown or 'unknown'}", None)]
    return lines


def _requirement_lines(report: OptimizeReport) -> list[tuple[str, str | None]]:
    """Say what TensorFlow Lite Micro's arena must hold in all, and what for."""
    if report.sections.tflm is None:
        return []
    # What stays is most of what is left; reports of one part alone have been asked for that part.
    needed = needed_memory(report)
    shown = ", ".join(f"{size:,} B {name}" for name, size in needed.parts)
    what = "TensorFlow Lite Micro's arena" if needed.noun == "arena" else f"the {needed.noun}"
    if report.command == "analyze":
        return [(f"{what} takes {needed.now:,} B: {shown}", None)]
    if refusal_lines(report):
        return [(f"by its rules {what} would take {needed.given:,} B as given, {needed.now:,} B now: {shown}", None)]
    less = f", {needed.percent:.1f} % less" if needed.saved > 0 else ""
    text = f"{what} takes {needed.given:,} B as given, {needed.now:,} B now{less}: {shown}"
    return [(text, "green" if needed.saved > 0 else None)]


def _structure_lines(report: OptimizeReport) -> list[tuple[str, str | None]]:
    """Say what more operators take of a process beside activations: it decides, too, which ways are best."""
    taken = report.sections.requirement.structures_bytes
    if not taken:
        return []
    return [(f"a session has structures for its operators: about {format_size(taken)} more beside that", None)]


def _litert_lines(report: OptimizeReport) -> list[tuple[str, str | None]]:
    """Say what LiteRT takes where its own planner leaves gaps that are not in the arenas above."""
    if report.verdict.unit != "litert_arena":
        return []
    taken = report.sections.requirement
    pairs = (
        (taken.given_bytes, report.original.schedule.arena_bytes),
        (taken.bytes, report.written.schedule.arena_bytes),
    )
    if all(own <= (1 + _MOST_GAPS) * arena for own, arena in pairs):
        return []
    after = f", {taken.bytes:,} B as optimised" if report.command == "optimize" else ""
    return [(f"LiteRT's own planner leaves gaps: it takes {taken.given_bytes:,} B as given{after}", "yellow")]


def _verification_line(report: OptimizeReport) -> tuple[str, str | None]:
    verification = report.sections.verification
    if verification is None:
        return "not verified", "yellow"
    runtime, reason = verification.runtime, verification.reason
    if verification.outputs_equal is None:
        return f"not verified in {runtime}: {reason}", "yellow"
    good, equal = compared(report.sections)
    if not good:
        return f"outputs differ in {runtime}: {reason}", "red"
    inputs = (
        f"{verification.runs} random inputs" if verification.feeds is None else f"the inputs in {verification.feeds}"
    )
    seeds = ", drawing with the same seeds" if any(SAME_SEEDS in note for note in verification.notes) else ""
    text = f"verified in {runtime}: outputs {equal} on {inputs}{compared_in(report)}{seeds}"
    text += measured_text(report, verification)
    surprise = _surprise(verification)
    text += surprise
    matches = verification.executed_order_matches
    if matches is not None:
        text += "; it executes this order" if matches else f"; it does not execute this order ({reason})"
    return text, "green" if matches is not False and not surprise else "yellow"


def _surprise(verification: VerificationSection) -> str:
    """Return by how much the measured peaks miss the predicted ones; empty where they do not, or nothing is known."""
    if not verification.at_stated_sizes:
        return f", {OTHER_SIZES}"
    off = missed_by(verification)
    if off <= CLOSE:
        return ""
    pair = (verification.predicted_peak_before_bytes, verification.predicted_peak_after_bytes)
    shown = " -> ".join(f"{predicted:,}" for predicted in pair if predicted is not None)
    return f", which is up to {100 * off:.1f} % off the {shown} B predicted: the figures above do not hold there"


def _print_faults(console: Console, report: OptimizeReport) -> None:
    faults, step = report.written.at_fault, step_at_peak(report)
    if not faults:
        return
    where = "the peak's bytes"
    if step is not None:
        where += f" in step {step.index}, {step.type} '{step.op}'"
    print_line(console, f"{where}:")
    for fault in faults[:TABLE_ROWS]:
        print_line(console, f"  {fault.size_bytes:>14,}  {fault.tensor}")
    if step is not None and step.workspace_bytes:
        print_line(console, f"  {step.workspace_bytes:>14,}  (workspace)")
    if len(faults) > TABLE_ROWS:
        rest = sum(fault.size_bytes for fault in faults[TABLE_ROWS:])
        print_line(console, f"  {rest:>14,}  in {len(faults) - TABLE_ROWS} more")


def step_at_peak(report: OptimizeReport) -> StepRow | None:
    """Return the first step with the peak; None if the report has no row for it."""
    peak = report.written.schedule.peak_bytes
    return next((step for step in report.written.steps if step.footprint_bytes == peak), None)


def _print_options(console: Console, report: OptimizeReport) -> None:
    guarantee = report.guarantee
    if guarantee is not None and guarantee.session_options:
        wanted = "to execute this order" if guarantee.kind == "session" else "for the least memory"
        print_line(console, f"{wanted}, open the session so:")
        for option in guarantee.session_options:
            print_line(console, f"  {option}", whole=True)


def print_operators(console: Console, report: OptimizeReport) -> None:
    """Print the operator types by how often they occur."""
    counts = sorted(report.written.operators.items(), key=lambda item: (-item[1], item[0]))
    if counts:
        print_line(console, f"operators: {', '.join(f'{name} {count:,}' for name, count in counts)}")


def print_frontier(console: Console, report: OptimizeReport, *, verbose: bool = False) -> None:
    """Print a table of peaks with the least extra work known for each."""
    steps = report.sections.frontier or ()
    table = console_table(f"{frontier_column(report)}, bytes", "%", "MACs, +%", "work, +%", "by", left=(4,))
    rows = frontier_rows(steps, verbose=verbose, most=ROWS_SHOWN)
    for row in rows:
        table.add_row(*row)
    print_line(console, "what less memory costs, work being multiply-accumulates and bytes moved:")
    console.print(table)
    if len(rows) < len(steps):
        print_line(
            console, f"{counted(len(steps) - len(rows), 'step')} between them: see the report, or -v", style="dim"
        )
