"""What ``memsched relay`` shows: the summary that people read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsched.base.units import counted, format_size
from memsched.report.border import border_lines
from memsched.report.text import SAME_OUTPUTS, WITHHELD, console_table, print_line, shortened
from memsched.report.values.relay import RelayReport, RelayResult, RelayVerification

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_relay"]


def print_relay(console: Console, report: RelayReport, *, report_path: str | None, verbose: bool) -> None:
    """Print a row per stage, what the block must hold, and whether the stages compute what the model does.

    Args:
        report_path: Where the report was written, if anywhere.
        verbose: Tensors that are handed over, and the calls of the resolver.
    """
    model, stages = report.model, counted(len(report.stages), "stage")
    print_line(console, f"{model.path}: {model.ops:,} ops in {stages}, target {report.target.name}", style="bold")
    console.print(_table(report))
    for text, style in _findings(report, console.width):
        print_line(console, text, style=style)
    if verbose:
        _print_hand_overs(console, report)
        print_line(console, f"  resolver: {', '.join(report.runner.resolver_calls)}")
    for note in report.notes:
        print_line(console, f"note: {note}", style="dim")
    if report.budget is not None and report.budget.withheld:
        print_line(console, WITHHELD, style="red")
        return
    print_line(console, f"stages: {Path(report.stages[0].path)}{' and so on' if len(report.stages) > 1 else ''}")
    print_line(console, f"runner: {report.runner.header}, {report.runner.source}", whole=True)
    if report_path is not None:
        print_line(console, f"report: {report_path}", whole=True)


def _table(report: RelayReport) -> Any:
    work = any(stage.extra_macs for stage in report.stages)
    headings = ("stage", "ops", "head", "kept", "arena", "handed\nover", *(["extra\nMACs"] if work else []), "file")
    table = console_table(*headings)
    for stage in report.stages:
        arena = stage.arena
        kept = arena.persistent_bytes.bits_64 if report.target.pointer_bits == 64 else arena.persistent_bytes.bits_32
        table.add_row(
            f"{stage.index + 1}",
            f"{len(stage.ops):,}",
            f"{arena.head_bytes:,} B",
            f"{kept:,} B",
            f"{arena.bytes:,} B",
            f"{stage.hand_over_bytes:,} B",
            *([f"{100 * stage.extra_macs / max(1, stage.macs):.1f} %"] if work else []),
            format_size(stage.file_bytes),
        )
    return table


def _findings(report: RelayReport, columns: int) -> list[tuple[str, str | None]]:
    result, budget, bits = report.result, report.budget, report.target.pointer_bits
    share = 100 * (result.block_bytes / result.given_bytes - 1)
    block = f"one block of {result.block_bytes:,} B ({bits} bit) for all arenas and what is handed over"
    given = f"the file as given: {result.given_bytes:,} B ({share:+.1f} %)"
    better = "green" if result.block_bytes < result.given_bytes else None
    lines: list[tuple[str, str | None]] = [(f"{block}; {given}", better)]
    if budget is not None:
        lines.append(
            (f"budget {budget.budget_bytes:,} B: met", "green")
            if budget.met
            else (f"budget {budget.budget_bytes:,} B: exceeded by {budget.exceeded_bytes:,} B", "red")
        )
    if budget is None or not budget.met:
        lines.append((_proven(result, report.request.stages), None))
    lines += border_lines(report.io, columns, verbose=False, of="as one file")
    if report.runner.custom_operators:
        custom = ", ".join(report.runner.custom_operators)
        lines.append((f"the runner needs a resolver of yours, with {custom}", "yellow"))
    if report.verification is not None:
        lines += _verdict(report.verification)
    return lines


def _proven(result: RelayResult, most: int | None) -> str:
    """Return how the search ended, and of which stages, ``most`` at most, it is proven that they need no less."""
    tried = "in the model's order" if result.orders_tried == 1 else f"in the {result.orders_tried} orders tried"
    ended = "the search ended by itself" if result.finished else "the search was ended before it was through"
    stages = "stages" if most is None else "single stage" if most == 1 else f"{most} stages or fewer"
    need = "needs" if most == 1 else "need"
    if result.least_bytes is None:
        about = f"{'a ' if most == 1 else ''}{stages} {tried} {need} about {result.estimated_bound_bytes:,} B at least"
        return f"{ended}; nothing is proven where layers may be rewritten: by an estimate {about}"
    if result.least_bytes == result.block_bytes:
        return f"proven: no {stages} {tried} {need} less without rewriting layers"
    least = f"{result.least_bytes:,} B"
    return f"{ended}; proven: no {stages} {tried} {need} less than {least} without rewriting layers"


def _verdict(verification: RelayVerification) -> list[tuple[str, str | None]]:
    runtime = verification.runtime
    if verification.outputs_equal is None:
        return [(f"not run in {runtime}: {verification.reason}", "yellow")]
    runs = counted(verification.runs, "input")
    time = "" if verification.time_ratio is None else f", time {verification.time_ratio:.2f}x"
    lines: list[tuple[str, str | None]] = [
        (f"run one after the other in {runtime}: outputs bit-equal to the whole model's on {runs}{time}", "green")
    ]
    if verification.outputs_vary is False:
        lines.append((SAME_OUTPUTS, "yellow"))
    return lines


def _print_hand_overs(console: Console, report: RelayReport) -> None:
    for one in report.hand_overs:
        source = "input of the model" if one.made_in_stage is None else f"from stage {one.made_in_stage + 1}"
        to = "output of the model" if one.last_read_in_stage is None else f"to stage {one.last_read_in_stage + 1}"
        name = shortened(one.tensor, max(20, console.width - 60))
        print_line(console, f"  {name}: {one.size_bytes:,} B, {source} {to}, at the end less {one.from_end_bytes:,} B")
