"""What the page says: the verdict, the proof in words, and the rows of its tables."""

from __future__ import annotations

from pathlib import PurePath

from memsched.base.shown import NAME_COLUMNS, TABLE_ROWS
from memsched.base.units import counted, format_size
from memsched.report.console import figure_rows, findings
from memsched.report.frontier import frontier_rows
from memsched.report.guarantees import own_operators
from memsched.report.interpreter import interpreter_card, kept_for_interpreter
from memsched.report.ledger import passes_of
from memsched.report.outputs import compared, kept_why
from memsched.report.page_curve import curve_table
from memsched.report.page_data import PageData
from memsched.report.page_layers import layer_table
from memsched.report.page_parts import (
    BarPart,
    Card,
    KeyEntry,
    PageWords,
    PeakRow,
    PeakWords,
    PictureWords,
    StyledText,
    SuggestedCommand,
)
from memsched.report.page_rewrites import rewrite_tables
from memsched.report.predicted import bound_is_void, measured_instead
from memsched.report.refusals import refusal_lines
from memsched.report.requirement import arena_column, frontier_column, needed_memory
from memsched.report.sessions import arena_text, held_back_lines
from memsched.report.suggestions import suggestion_lines
from memsched.report.text import SAME_OUTPUTS, shortened
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.verdict import BudgetSection
from memsched.report.verdict import verdict_line

__all__ = ["page_words"]


def page_words(report: OptimizeReport, data: PageData) -> PageWords:
    """Return what the page's template shows beside the report itself; all texts are plain and not yet escaped."""
    verdict, mood = _verdict(report)
    name = shortened(PurePath(report.model.path).name or report.model.path, NAME_COLUMNS)
    return PageWords(
        name="a model from standard input" if name == "-" else name,
        what=_what(report),
        verdict=verdict,
        mood=mood,
        lead=_lead(report),
        cards=_cards(report),
        suggestions=[SuggestedCommand(text=text, command=command) for text, command in suggestion_lines(report)],
        pictures=_pictures(report, data),
        peak=_peak(report, data),
        layers=layer_table(report),
        proof=_proof(report),
        arena_proof=_arena_proof(report),
        findings=[
            StyledText(text=text, style=style or "") for text, style in findings(report, NAME_COLUMNS, verbose=False)
        ],
        orders=_orders(report),
        rewrites=rewrite_tables(report),
        frontier=_frontier(report),
        curve=curve_table(report),
        frontier_column=frontier_column(report),
        arena_column=arena_column(report),
        verification=_verification(report),
        passes=[
            (
                row.pass_ + (row.reason and f", {row.reason}"),
                f"{row.ops_before:,}",
                f"{row.ops_after or 0:,}",
                f"{row.before_bytes:,}",
                f"{row.found_bytes or 0:,}",
                f"{row.seconds:.2f}",
            )
            for row in passes_of(report)
        ],
        bodies=_bodies(report),
        target=_target(report),
        session_options=() if report.guarantee is None else report.guarantee.session_options,
        files=_files(report),
    )


def _bytes(size: int) -> str:
    """Return the exact size, and a rounded one where that is easier to read."""
    short = format_size(size)
    return f"{size:,} B" if short.endswith(" B") else f"{size:,} B ({short})"


def _what(report: OptimizeReport) -> str:
    model = report.model
    done = "as it stands" if report.command == "analyze" else "optimised"
    return f"{counted(model.ops, 'op')}, {model.format.upper()}, {done}, target {report.target.name}"


def _rewritten(report: OptimizeReport) -> list[str]:
    """Return the names of the rewrites that the model written went through."""
    found = report.sections
    sections = {"chains": found.chains, "algebra": found.algebra, "tiling": found.tile, "remat": found.recompute}
    return [name for name, section in sections.items() if section is not None and section.applied]


def _budget_text(report: OptimizeReport, budget: BudgetSection) -> str:
    """Return whether the result fits, in a sentence."""
    required, available = budget.required_bytes, budget.budget_bytes
    if report.sections.curve is not None:
        return ""
    if refusal_lines(report):
        return "It does not run: the runtime refuses the model, whatever memory there is. "
    if budget.met:
        return f"It fits: {required:,} of {available:,} bytes are needed. "
    return (
        f"It does not fit: {required:,} bytes are needed, {available:,} are there, {budget.exceeded_bytes:,} too few. "
    )


def _verdict(report: OptimizeReport) -> tuple[str, str]:
    """Return the headline, and whether it is good or bad news."""
    text, style = verdict_line(report)
    mood = {"green": "good", "red": "bad"}.get(style or "", "")
    if report.budget is not None:
        mood = "good" if report.budget.met else "bad"
    return f"{text[0].upper()}{text[1:]}", mood


def _lead(report: OptimizeReport) -> str:
    """Return what was done for it, in a sentence or two."""
    before, after = report.original.schedule, report.written.schedule
    if report.command == "analyze":
        how = f"In the order of the file the peak is {_bytes(after.peak_bytes)}."
    elif _rewritten(report):
        words = {
            "chains": "activations in one operator each",
            "algebra": "operators computed otherwise",
            "tiling": "layers computed in pieces",
            "remat": "values computed again",
        }
        done = " and ".join(words[name] for name in _rewritten(report))
        how = (
            f"With {done} the peak is {_bytes(after.peak_bytes)}, {_bytes(before.peak_bytes)} in the file's "
            f"order; it does {report.verdict.extra_macs_percent:.1f} % more multiply-accumulates."
        )
    elif report.sections.held_back is not None:
        how = "The file as given is kept: " + " ".join(text for text, _ in held_back_lines(report)) + "."
    elif kept_for_interpreter(report) is not None:
        how = f"The file as given is kept: {kept_for_interpreter(report)}."
    elif report.output is not None and report.output.slight_bytes is not None:
        how = f"The file as given is kept: {kept_why(report)}."
    elif after.peak_bytes >= before.peak_bytes:
        how = f"Its peak is {_bytes(after.peak_bytes)}, as in the file's order; no order with a lower one was found."
    else:
        how = (
            f"By the order of its ops alone the peak is {_bytes(after.peak_bytes)}, "
            f"{_bytes(before.peak_bytes)} in the file's order; no work is added."
        )
    rest = "" if measured_instead(report) is None else " The runtime was measured to take otherwise."
    rest += " The search was ended early: this is the best found so far." if report.verdict.interrupted else ""
    fits = "" if report.budget is None else _budget_text(report, report.budget)
    return fits + how + rest


def _cards(report: OptimizeReport) -> list[Card]:
    before, proof = report.original.schedule, report.proof
    peak, bound = proof.bytes, proof.bound_bytes
    gap = 100 * (peak - bound) / peak if peak else 0.0
    analyzed = report.command == "analyze"
    optimal = proof.status == "optimal"
    status = f"proven optimal{own_operators(report)}" if optimal else f"at most {gap:.1f} % to gain by order"
    if bound_is_void(report):
        status = "not a bound: the memory plan lays tensors over each other that the peak counts apart"
    elif _rewritten(report):
        status += ", for this rewrite"
    needed = needed_memory(report)
    what = needed.noun.capitalize()
    cards = [(what, f"{needed.now:,} B", needed.parts_text() or _alignment(report))]
    if not analyzed:
        change = f"{needed.percent:.1f} % less now" if needed.saved > 0 else "no less now"
        if measured_instead(report) is not None:
            change = "predicted: the runtime was measured to take otherwise"
        cards.append((f"{what} as given", f"{needed.given:,} B", change))
    cards += [
        (
            "Peak of activations",
            f"{peak:,} B",
            "in the file's order" if analyzed else f"{before.peak_bytes:,} B in the file's order",
        ),
        ("Lower bound of the peak", f"{bound:,} B", status),
    ]
    if not analyzed:
        cards.append(("Extra work", f"{report.verdict.extra_macs_percent:.1f} %", "multiply-accumulates"))
    interpreter = interpreter_card(report)
    if interpreter is not None:
        cards.append(interpreter)
    mapped = report.sections.mapped
    if mapped is not None:
        more = f"{format_size(mapped.written.peak_bytes)} at the peak; "
        more += f"{format_size(mapped.given.private_bytes)} for the original"
        cards.append(("Private memory with mapped weights", format_size(mapped.written.private_bytes), more))
    if report.budget is not None:
        budget = report.budget
        share = 100 * budget.required_bytes / budget.budget_bytes if budget.budget_bytes else 0.0
        cards.append(("Budget", f"{budget.budget_bytes:,} B", f"{share:.1f} % of it needed"))
    cards.append(("Weights", format_size(report.model.weights_bytes), "constants, not in the figures above"))
    return [Card(label=label, value=value, more=more) for label, value, more in cards]


def _alignment(report: OptimizeReport) -> str:
    return f"{report.written.allocation.alignment_bytes} B alignment"


def _pictures(report: OptimizeReport, data: PageData) -> PictureWords:
    """Return what stands beside the pictures: keys, labels, and what is left out of them."""
    values = data.values
    figures, given, unit = values.figures, values.given, values.unit
    separate = given is not None and given.total != data.steps
    analyzed = report.command == "analyze"
    after = "as it stands" if analyzed else "after" if given is not None else "the file's order, which is kept"
    peak = f"{after}: peak {figures.peak:,} B in step {max(0, figures.peak_step):,}"
    keys = [("after", peak)]
    label = f"{after.capitalize()}: peak of {figures.peak:,} bytes in step {max(0, figures.peak_step):,}."
    if given is not None and not separate:
        keys.append(("before line", f"before, the file's order: peak {given.peak:,} B in step {given.peak_step:,}"))
        label += f" Before: {given.peak:,} bytes in step {given.peak_step:,}."
    if 0 < figures.bound < figures.peak:
        keys.append(("bound dash", f"no order needs less: {figures.bound:,} B"))
    if figures.budget is not None:
        keys.append(("budget dash", f"budget: {figures.budget:,} B"))
    marks = set(values.steps.mark)
    names = ("", "pieces of layers", "executed again", "added by rewriting: slices, joins, pads")
    keys += [(style, names[kind]) for kind, style in ((1, "piece"), (2, "again"), (3, "added")) if kind in marks]
    shown = [
        ("atpeak", "live at the peak"),
        ("buffer", "other buffers, in two shades"),
        ("chosen", "chosen"),
        ("source", "what its maker reads, and where it is made"),
        ("sink", "what its readers make, and where it is read"),
    ]
    if any(values.buffers.workspace):
        shown.insert(2, ("work", "workspace of an op"))
    if values.merged:
        shown.insert(2, ("merged", "smaller buffers, merged"))
    return PictureWords(
        separate=separate,
        footprint_keys=[KeyEntry(style=style, label=text) for style, text in keys],
        map_keys=[KeyEntry(style=style, label=text) for style, text in shown],
        maps=[one.name for one in values.maps],
        axis="Sizes in bytes." if unit.name == "bytes" else f"1 {unit.name} is {unit.factor:,} bytes.",
        footprint_label=label,
        downsampled=_downsampled(data),
        merged=_merged(data),
        graph="" if values.graph is None else counted(len(values.graph.type), "op"),
        frontier="" if values.frontier is None else values.frontier.what,
    )


def _downsampled(data: PageData) -> str:
    if data.steps_drawn >= data.steps:
        return ""
    return (
        f"Downsampled: {data.steps_drawn:,} of {data.steps:,} steps are drawn, among them the least and the largest "
        "of each short stretch, so that no peak is lost."
    )


def _merged(data: PageData) -> str:
    if data.buffers_drawn >= data.buffers:
        return ""
    return (
        f"Downsampled: {data.buffers_drawn:,} of {data.buffers:,} buffers are drawn one by one, the largest and "
        "longest-lived. The grey cells are where the others lie."
    )


def _peak(report: OptimizeReport, data: PageData) -> PeakWords:
    """Return the table of what is live at the peak."""
    peak, faults, steps = report.written.schedule.peak_bytes, report.written.at_fault, report.written.steps
    place = {name: index for index, name in _drawn_names(report, data)}
    rows = [
        _fault(
            shortened(fault.tensor, NAME_COLUMNS),
            place.get(fault.tensor),
            "an input" if fault.producer is None else shortened(fault.producer, NAME_COLUMNS),
            f"{fault.first_step:,} to {fault.last_step:,}",
            fault.size_bytes,
            peak,
        )
        for fault in faults[:TABLE_ROWS]
    ]
    bar = [BarPart(share=row.share, style="", label=row.name) for row in rows]
    rest = sum(fault.size_bytes for fault in faults[len(bar) :])
    if rest:
        bar.append(BarPart(share=_share(rest, peak), style="rest", label="all others"))
    index = data.values.figures.peak_step
    if index < 0:
        return PeakWords(text="The model has no steps.", faults=rows, bar=bar, more="")
    step = steps[index]
    workspace = step.workspace_bytes
    if workspace:
        rows.append(_fault("workspace of the op", None, "", f"{index:,}", workspace, peak))
        bar.append(BarPart(share=_share(workspace, peak), style="work", label="workspace"))
    shared = sum(fault.size_bytes for fault in faults) + workspace - peak
    text = (
        f"Step {index:,}, {' '.join(shortened(name, NAME_COLUMNS) for name in (step.type, step.op))}, "
        f"needs {_bytes(peak)}: "
        f"{counted(len(faults), 'tensor')} {'are' if len(faults) != 1 else 'is'} live in it."
    )
    if shared > 0:
        text += f" {_bytes(shared)} of them are counted once, as an output takes its input's bytes."
    hidden = faults[TABLE_ROWS:]
    size = sum(fault.size_bytes for fault in hidden)
    more = f"and {counted(len(hidden), 'smaller tensor')} with {_bytes(size)} together" if hidden else ""
    return PeakWords(text=text, faults=rows, bar=bar, more=more)


def _drawn_names(report: OptimizeReport, data: PageData) -> list[tuple[int, str]]:
    """Return the places of the page's buffers with their names in the report."""
    return [(place, report.written.buffers[order].tensor) for place, order in enumerate(data.tensors)]


def _fault(name: str, place: int | None, producer: str, steps: str, size: int, peak: int) -> PeakRow:
    share = _share(size, peak)
    return PeakRow(
        name=name,
        place=place,
        producer=producer,
        steps=steps,
        size=f"{size:,}",
        share=share,
        percent=f"{share:.1f} %",
    )


def _share(size: int, peak: int) -> float:
    return round(100 * size / peak, 2) if peak else 0.0


def _proof(report: OptimizeReport) -> str:
    """Return what is known of the peak, and what "optimal" or "feasible" means."""
    proof = report.proof
    peak, bound = proof.bytes, proof.bound_bytes
    how = f" How it is known: {proof.witness}." if proof.witness else ""
    alone = (
        " That holds for the model with these rewrites; other rewrites may need less."
        if _rewritten(report)
        else (" That is about orders alone: layers in pieces, or values computed again, may need less.")
    )
    if measured_instead(report) is not None:
        alone += " The runtime was measured not to execute them so: the figures do not hold there."
    if proof.status == "optimal":
        return (
            f"Optimal: it is proven that no order of these ops has a peak below {bound:,} bytes, and this one has "
            f"{peak:,}.{how}{alone}"
        )
    gap = 100 * (peak - bound) / peak if peak else 0.0
    return (
        f"Feasible: this order was checked and holds, but it is not proven that none is better. The least peak of any "
        f"order lies between {bound:,} and {peak:,} bytes, so another order saves {gap:.1f} % at most.{how}{alone}"
    )


def _arena_proof(report: OptimizeReport) -> str:
    allocation, after = report.written.allocation, report.written.schedule
    arena, bound = after.arena_bytes, allocation.lower_bound_bytes
    lost = arena - after.peak_bytes
    gap = "as much as the peak" if lost == 0 else f"{abs(lost):,} bytes {'more' if lost > 0 else 'less'} than the peak"
    text = f"The addresses take {arena:,} bytes, {gap}"
    if lost > 0:
        text += ", for alignment and gaps between the buffers"
    if allocation.status == "optimal":
        return f"{text}. Optimal: for this order no addresses take less."
    return f"{text}. Feasible: for this order addresses that take as little as {bound:,} bytes are not excluded."


def _orders(report: OptimizeReport) -> list[tuple[str, ...]]:
    rows = figure_rows(report)
    before = rows[0][1]
    return [
        (label, f"{peak:,}", f"{arena:,}", f"{100 * (peak - before) / before:+.2f}" if before else "")
        for label, peak, arena in rows
    ]


def _frontier(report: OptimizeReport) -> list[tuple[str, ...]]:
    steps = report.sections.frontier
    return [(row[-1], *row[:-1]) for row in frontier_rows(steps, verbose=False)] if steps else []


def _verification(report: OptimizeReport) -> list[tuple[str, str]]:
    verification = report.sections.verification
    if verification is None:
        why = "this command only looks at the model" if report.command == "analyze" else "see the notes"
        return [("result", f"not verified: {why}")]
    equal = "could not be run" if verification.outputs_equal is None else compared(report.sections)[1]
    matches = {None: "not seen", True: "yes", False: "no"}[verification.executed_order_matches]
    rows = [
        ("runtime", verification.runtime),
        ("outputs", f"{equal}, {counted(verification.runs, 'random input')}"),
        ("it executes this order", matches),
    ]
    if verification.outputs_vary is False:
        rows.append(("warning", SAME_OUTPUTS))
    errors = (
        ("largest difference", verification.max_abs_error),
        ("largest relative difference", verification.relative_error),
    )
    rows += [(label, f"{error:.3g}") for label, error in errors if error is not None]
    peaks = (
        (
            "peak, measured in the runtime",
            verification.measured_peak_before_bytes,
            verification.measured_peak_after_bytes,
        ),
        (
            "peak, predicted in the runtime",
            verification.predicted_peak_before_bytes,
            verification.predicted_peak_after_bytes,
        ),
        ("session without options", verification.default_peak_before_bytes, verification.default_peak_after_bytes),
    )
    rows += [
        (label, f"{before:,} B before, {after:,} B after")
        for label, before, after in peaks
        if before is not None and after is not None
    ]
    arenas = (("of the model as given", verification.arena_before), ("of the model written", verification.arena_after))
    rows += [(f"arena {label}", arena_text(arena)) for label, arena in arenas if arena is not None]
    rows += [
        (f"at {one.dimension} = {one.size}", " ".join(filter(None, (one.outcome, one.reason))))
        for one in verification.other_sizes
    ]
    if verification.reason:
        rows.append(("because", verification.reason))
    return rows + [("note", note) for note in (*verification.stated, *verification.notes)]


def _bodies(report: OptimizeReport) -> list[tuple[str, ...]]:
    return [
        (
            shortened(body.graph, NAME_COLUMNS),
            "no op" if body.op is None else shortened(body.op, NAME_COLUMNS),
            f"{body.status}: {body.proof}" if body.proof else body.status,
            f"{body.ops:,}",
            f"{body.file_peak_bytes:,}",
            f"{body.peak_bytes:,}",
            f"{body.lower_bound_bytes:,}",
        )
        for body in report.sections.bodies[:TABLE_ROWS]
    ]


def _target(report: OptimizeReport) -> list[tuple[str, str]]:
    target = report.target
    inputs = {
        "arena": "counted until their last reader",
        "kept": "counted to the end",
        "caller": "the caller's, not counted",
    }
    rows = [
        ("target", f"{target.name}: {target.description}" if target.description else target.name),
        ("alignment", f"{target.alignment_bytes:,} B"),
        ("a model's inputs are", inputs[target.inputs]),
        ("in-place writes", "permitted where the target does them" if target.in_place else "not permitted"),
        ("runtime's own order", "the file's" if target.default_order == "file" else "ONNX Runtime's"),
    ]
    held = report.guarantee
    return [*rows, ("what holds the order", held.kind.replace("_", " "))] if held is not None else rows


def _files(report: OptimizeReport) -> list[tuple[str, str]]:
    model, output = report.model, report.output
    rows = [("model", model.path), ("its SHA-256", model.sha256)]
    if output is not None:
        same = " (the input, unchanged)" if output.unchanged else ""
        withheld = report.budget is not None and report.budget.withheld
        missed = "no file, as the budget is missed" if withheld else "not named"
        rows.append(("written", f"{output.path or missed}{same}"))
        rows.append(("its SHA-256", output.sha256))
        held = output.fixed_dimensions
        rows += [("holds for", ", ".join(f"{one.dimension} = {one.size}" for one in held))] if held else []
    return [
        *rows,
        ("order found by", report.written.schedule.method),
        ("addresses found by", report.written.allocation.method),
    ]
