"""What ``memsched pipeline`` shows: the summary that people read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsched.base.units import counted, format_size
from memsched.report.text import console_table, print_line, shortened
from memsched.report.values.pipeline import PipelineReport
from memsched.report.values.shared import VerificationSection

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_pipeline"]

_UNITS = {"params": "parameters", "macs": "multiply-accumulates", "memory": "activation memory", "time": "time"}


def print_pipeline(console: Console, report: PipelineReport, *, report_path: str | None, verbose: bool) -> None:
    """Print a row per stage, what is proven, the simulation, and whether the segments compute what the model does.

    Args:
        report_path: Where the report was written, if anywhere.
        verbose: Tensors that go from stage to stage, and the simulation's assumptions.
    """
    model, request = report.model, report.request
    stages = counted(request.stages, "stage")
    print_line(console, f"{model.path}: {model.ops:,} ops in {stages}, target {report.target.name}", style="bold")
    console.print(_table(report))
    for text, style in _findings(report):
        print_line(console, text, style=style)
    if verbose:
        _print_values(console, report)
    for note in report.notes:
        print_line(console, f"note: {note}", style="dim")
    folder = Path(report.stages[0].path)
    print_line(console, f"segments: {folder} and so on", whole=True)
    if report.annotated is not None:
        print_line(console, f"whole model with stages: {report.annotated.path}", whole=True)
    if report_path is not None:
        print_line(console, f"report: {report_path}", whole=True)


def _table(report: PipelineReport) -> Any:
    off_cache = any(stage.off_cache_bytes for stage in report.stages)
    headings = ["stage", "ops", "parameters", *(["off chip"] if off_cache else []), "activations", "receives", "ms"]
    table = console_table(*headings)
    for stage in report.stages:
        table.add_row(
            f"{stage.index + 1}",
            f"{len(stage.ops):,}",
            format_size(stage.parameters_bytes),
            *([format_size(stage.off_cache_bytes)] if off_cache else []),
            format_size(stage.arena_bytes),
            format_size(stage.receives_bytes),
            f"{1000 * stage.seconds.total_seconds:.2f}",
        )
    return table


def _findings(report: PipelineReport) -> list[tuple[str, str | None]]:
    result, simulation, verification = report.result, report.simulation, report.verification
    balanced = result.balanced
    lines: list[tuple[str, str | None]] = []
    unit = _UNITS[balanced.unit]
    if result.status == "optimal":
        lines.append((f"proven: no other cut has a largest stage with less {unit}, or sends less at that", "green"))
    elif balanced.largest == balanced.lower_bound:
        lines.append((f"the largest stage has the least {unit} possible; less might be sent between stages", None))
    else:
        over = 100 * (balanced.largest / balanced.lower_bound - 1) if balanced.lower_bound else 0.0
        bound = f"{over:.1f} % above the bound" if balanced.lower_bound else "without a bound"
        lines.append((f"the largest stage's {unit}: {bound} (found by {result.method})", None))
    sent = f"{format_size(result.communication_bytes)} between stages, {_ways(report)}"
    lines.append((f"{sent}; {format_size(result.inputs_bytes)} of inputs", None))
    speed = simulation.speed_up_over_heuristic
    against = "" if speed is None else f", {speed:.2f}x the vendor's even split"
    per_second, latency = simulation.throughput_per_second, 1000 * simulation.latency_seconds
    lines.append((f"simulated: {per_second:,.1f} inferences/s{against}; {latency:,.2f} ms for one", None))
    on_chip = not any(stage.off_cache_bytes for stage in report.stages)
    if on_chip and speed is not None and speed < 1 and balanced.unit == "params":
        lines.append(("all parameters fit on chip either way: --balance time makes the slowest stage faster", "yellow"))
    if verification is not None:
        lines.append(_verdict(verification))
    return lines


def _ways(report: PipelineReport) -> str:
    if report.request.skips == "through":
        return "tensors that skip stages are handed through each"
    return "tensors that skip stages are sent once to each stage that reads them"


def _verdict(verification: VerificationSection) -> tuple[str, str | None]:
    runtime = verification.runtime
    if verification.outputs_equal:
        return f"run in a row in {runtime}: outputs bit-equal to the whole model's", "green"
    if verification.outputs_equal is None:
        return f"not run in {runtime}: {verification.reason}", "yellow"
    return f"run in a row in {runtime}: outputs within {verification.relative_error:.1e} of the whole model's", None


def _print_values(console: Console, report: PipelineReport) -> None:
    for stage in report.stages:
        for value in stage.receives:
            maker = value.made_in_stage
            source = "input of the model" if maker is None else f"from stage {maker + 1}"
            name = shortened(value.tensor, max(20, console.width - 40))
            print_line(console, f"  stage {stage.index + 1} <- {name}: {format_size(value.size_bytes)}, {source}")
    for text in report.simulation.assumptions:
        print_line(console, f"  assumed: {text}", style="dim")
