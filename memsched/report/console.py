"""The summary that people read: from the report's values alone, in 60 columns or more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memsched.report.text import printable
from memsched.units import format_size

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["budget_verdict", "print_operators", "print_summary"]

_FAULTS_SHOWN = 5
_FAULTS_SHOWN_VERBOSE = 50
_LABELS = {
    "file_order": "file order",
    "reverse_post_order": "reverse post-order",
    "runtime_default_order": "runtime's own order",
}


def print_summary(
    console: Console, report: Mapping[str, Any], *, report_path: str | None, verbose: bool = False
) -> None:
    """Print a table of peaks and arenas, the saving, the bound, the verification, and who holds the peak's bytes.

    Args:
        report_path: Where the report was written, if anywhere.
        verbose: More tensors at the peak, and the passes.
    """
    model, target = report["model"], report["target"]
    _line(console, f"{model['path']}: {model['ops']:,} ops, target {target['name']}", style="bold")
    console.print(_table(report))
    for text, style in _findings(report):
        _line(console, text, style=style)
    _print_faults(console, report, _FAULTS_SHOWN_VERBOSE if verbose else _FAULTS_SHOWN)
    for note in report["notes"]:
        _line(console, f"note: {note}", style="dim")
    if verbose:
        for record in report["passes"]:
            _line(
                console,
                f"pass {record['name']}: {record['ops_before']:,} -> {record['ops_after']:,} ops, "
                f"{record['peak_before_bytes']:,} -> {record['peak_after_bytes']:,} B, {record['seconds']:.2f} s",
            )
    _print_files(console, report, report_path)


def _line(console: Console, text: str, style: str | None = None) -> None:
    """Print one line as it is: no markup, no wrapping, nothing that a terminal would act on."""
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def _table(report: Mapping[str, Any]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("order", min_width=19, no_wrap=True)
    table.add_column("peak, bytes", justify="right", no_wrap=True)
    table.add_column("arena, bytes", justify="right", no_wrap=True)
    optimized = report["command"] == "optimize"
    for name, figures in report["baselines"].items():
        table.add_row(_LABELS[name], f"{figures['peak_bytes']:,}", f"{figures['arena_bytes']:,}")
    if optimized:
        result = report["result"]
        table.add_row("memsched", f"{result['peak_bytes']:,}", f"{result['arena_bytes']:,}", style="bold green")
    return table


def _findings(report: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return the lines on saving, bound, budget and verification, each with its style."""
    result, before = report["result"], report["baselines"]["file_order"]["peak_bytes"]
    peak, bound = result["peak_bytes"], result["lower_bound_bytes"]
    lines: list[tuple[str, str | None]] = []
    if report["command"] == "optimize":
        saved = before - peak
        text = (
            f"saves {format_size(saved)} of peak memory, {result['reduction_percent']:.1f} % less than the file's order"
        )
        lines.append((text, "green") if saved else ("the file's order is kept: nothing better was found", None))
    if result["status"] == "optimal":
        lines.append((f"proven optimal: no order needs less than {bound:,} B ({result['proof']})", None))
    else:
        gap = 100 * (peak - bound) / peak if peak else 0.0
        if report["command"] == "analyze":
            lines.append(
                (f"no order needs less than {bound:,} B: up to {gap:.1f} % may be saved by another order", None)
            )
        else:
            lines.append((f"lower bound {bound:,} B, gap {gap:.1f} %: not proven optimal ({result['proof']})", None))
    if result["interrupted"]:
        lines.append(("interrupted: this is the best order found so far", "yellow"))
    lines.extend(_budget_lines(report))
    if report["command"] == "optimize":
        lines.append(_verification_line(report["verification"]))
    return lines


def _budget_lines(report: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    budget = report["budget"]
    if budget is None:
        return []
    required, available = budget["required_bytes"], budget["budget_bytes"]
    if budget["met"]:
        return [(f"budget met: the arena takes {required:,} of {available:,} B", "green")]
    return [(budget_verdict(report), "red")]


def budget_verdict(report: Mapping[str, Any]) -> str:
    """Return in a line by how much the arena exceeds the budget, and whether another order could meet it."""
    budget, bound = report["budget"], report["result"]["lower_bound_bytes"]
    available = budget["budget_bytes"]
    verdict = (
        f"no order can meet it, as each has a peak of {bound:,} B or more"
        if bound > available
        else "it is not proven that no order can meet it"
    )
    return (
        f"budget exceeded: the arena requires {budget['required_bytes']:,} B, {available:,} B are available, "
        f"{budget['exceeded_bytes']:,} B too many; {verdict}"
    )


def _verification_line(verification: Mapping[str, Any] | None) -> tuple[str, str | None]:
    if verification is None:
        return "not verified", "yellow"
    runtime, reason = verification["runtime"], verification["reason"]
    if verification["outputs_equal"] is None:
        return f"not verified in {runtime}: {reason}", "yellow"
    if not verification["outputs_equal"]:
        return f"outputs differ in {runtime}: {reason}", "red"
    text = f"verified in {runtime}: outputs bit-equal on {verification['runs']} random inputs"
    before, after = verification["measured_peak_before_bytes"], verification["measured_peak_after_bytes"]
    if before is not None and after is not None:
        text += f"; measured peak {before:,} -> {after:,} B"
    matches = verification["executed_order_matches"]
    if matches is not None:
        text += "; it executes this order" if matches else f"; it does not execute this order ({reason})"
    return text, "green" if matches is not False else "yellow"


def _print_faults(console: Console, report: Mapping[str, Any], limit: int) -> None:
    faults = report["at_fault"]
    if not faults:
        return
    step = next((step for step in report["steps"] if step["footprint_bytes"] == report["result"]["peak_bytes"]), None)
    where = f" in step {step['index']}, {step['type']} '{step['op']}'" if step is not None else ""
    _line(console, f"the peak's bytes{where}:")
    for fault in faults[:limit]:
        _line(console, f"  {fault['size_bytes']:>14,}  {fault['tensor']}")
    if step is not None and step["workspace_bytes"]:
        _line(console, f"  {step['workspace_bytes']:>14,}  (workspace)")
    if len(faults) > limit:
        rest = sum(fault["size_bytes"] for fault in faults[limit:])
        _line(console, f"  {rest:>14,}  in {len(faults) - limit} more")


def _print_files(console: Console, report: Mapping[str, Any], report_path: str | None) -> None:
    output, guarantee = report["output"], report["order_guarantee"]
    if output is not None and output["path"] is not None:
        unchanged = " (the input, unchanged)" if output["unchanged"] else ""
        _line(console, f"model:  {output['path']}{unchanged}")
    if report_path is not None:
        _line(console, f"report: {report_path}")
    if guarantee is not None and guarantee["session_options"]:
        _line(console, "to execute this order, open the session so:")
        for option in guarantee["session_options"]:
            _line(console, f"  {option}")


def print_operators(console: Console, report: Mapping[str, Any], limit: int | None) -> None:
    """Print the operator types by how often they occur, the ``limit`` most frequent of them."""
    counts = sorted(report["operators"].items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name} {count:,}" for name, count in counts[:limit])
    rest = "" if limit is None or len(counts) <= limit else f" and {len(counts) - limit} types more"
    if counts:
        _line(console, f"operators: {shown}{rest}")
