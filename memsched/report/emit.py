"""What ``memsched optimize --emit c`` shows: the summary that people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from memsched.base.units import counted
from memsched.report.text import SAME_OUTPUTS, print_line
from memsched.report.values.emit import EmitReport
from memsched.report.values.stream import StreamReport

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_emitted", "print_streamed"]

_INPUTS: Mapping[str, str] = {
    "held": "the input held in it, and destroyed",
    "elsewhere": "the input of {0:,} B with the caller",
    "rows": "the input of {0:,} B pushed row by row",
}


def print_emitted(console: Console, report: EmitReport, *, report_path: str | None, verbose: bool) -> None:
    """Print the traffic with and without the groups, what memory the program needs, and how it is run here.

    Args:
        report_path: Where the report was written, if anywhere.
        verbose: A line for each group.
    """
    model, chip, result = report.model, report.on_chip, report.result
    groups = [group for group in chip.groups if group.read_bytes + group.written_bytes]
    head = f"{model.path}: {model.ops:,} ops in {counted(len(groups), 'group')} on chip, target {report.target.name}"
    print_line(console, head, style="bold")
    before, after = chip.traffic.before_bytes, chip.traffic.after_bytes
    saved = f" ({100 * (1 - after / before):.1f} % less)" if before else ""
    print_line(console, f"DRAM traffic: {before:,} B -> {after:,} B{saved}")
    seconds = chip.time_seconds
    if seconds.before:
        print_line(console, f"time, as estimated: {1e3 * seconds.before:.2f} ms -> {1e3 * seconds.after:.2f} ms")
    print_line(
        console,
        f"memory: {result.chip_bytes:,} of {report.target.on_chip_bytes:,} B on chip; DRAM: {result.dram_bytes:,} B "
        f"for activations, {result.weights_bytes:,} B of weights",
    )
    if verbose:
        for group in groups:
            pieces = f"{group.pieces.rows} x {group.pieces.columns} x {group.pieces.channels} pieces"
            moved = f"{group.read_bytes:,} B loaded, {group.written_bytes:,} B stored"
            print_line(
                console, f"  {group.ops[0]} .. {group.ops[-1]}: {counted(len(group.ops), 'op')}, {pieces}, {moved}"
            )
    print_line(console, f"written: {result.folder}: {', '.join(result.files)}", whole=True)
    if report_path is not None:
        print_line(console, f"report: {report_path}", whole=True)


def print_streamed(console: Console, report: StreamReport, *, report_path: str | None, verbose: bool) -> None:
    """Print the memory that the C needs, and the files.

    Args:
        report_path: Where the report was written, if anywhere.
        verbose: A line for each segment.
    """
    result, run = report.result, report.run
    time = "" if run is None or run.time_ratio is None else f", time {run.time_ratio:.2f}x the interpreter's"
    equal = ", outputs bit-equal" if run is not None and run.outputs == "bit_equal" else ""
    verdict = f"C without an interpreter: {result.ram_bytes:,} B of RAM beside the stack{time}{equal}"
    print_line(console, verdict, style="bold")
    if report.budget is not None:
        available, spare = report.budget.budget_bytes, report.budget.budget_bytes - report.budget.required_bytes
        print_line(console, f"budget of {available:,} B met, {spare:,} B to spare", style="green")
    print_line(
        console,
        f"arena: {result.arena_bytes:,} B, {_INPUTS[result.input].format(result.input_bytes)}; state: "
        f"{result.state_bytes:,} B",
    )
    print_line(console, f"flash: {result.flash_bytes:,} B of weights and tables; {result.macs:,} MACs, none added")
    if verbose:
        for one in report.segments:
            print_line(console, f"  {one.first} .. {one.last}: {counted(one.layers, 'layer')}, {one.bytes:,} B")
    if run is not None and run.outputs == "bit_equal":
        print_line(
            console, f"run beside {run.runtime} on this machine, on {counted(run.runs, 'input')} and both extremes"
        )
        if not run.outputs_vary:
            print_line(console, SAME_OUTPUTS, style="yellow")
    for note in report.notes:
        print_line(console, f"note: {note}", style="dim")
    print_line(console, f"written: {result.folder}: {', '.join(result.files)}", whole=True)
    if report_path is not None:
        print_line(console, f"report: {report_path}", whole=True)
