"""``memsched verify``: whether two models compute the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from memsched.base.errors import ModelError
from memsched.cli.display import Display
from memsched.cli.exit_code import ExitCode
from memsched.cli.groups import HelpCommand
from memsched.cli.options import options_of, output_options, taken
from memsched.commands.options import VerifyOptions

if TYPE_CHECKING:
    from rich.console import Console

    from memsched.commands.verify import ModelComparison

__all__ = ["command"]


@click.command("verify", cls=HelpCommand, short_help="Run two models and compare them.")
@click.argument("a")
@click.argument("b")
@options_of(VerifyOptions)
@output_options
def command(**options: Any) -> int:
    """Run models A and B on the same random inputs in their real runtime.

    The outputs must be equal bit for bit, or within --atol + --rtol * |output of A|, also at other sizes that A leaves
    open and B does not refuse; otherwise the exit code is 4.
    Measured peaks are shown side by side. Where a model cannot be run, the exit code is 1.
    """
    from memsched.cli.terminal import interruptible
    from memsched.commands.optimize.optimize import verify

    display = taken(Display, options)
    with interruptible():
        found = verify(options["a"], options["b"], taken(VerifyOptions, options))
    if display.as_json:
        click.echo(json.dumps(_values(found), indent=2))
    else:
        _print(display.console(stderr=False), found)
    if found.same is None:
        raise ModelError(
            f"not compared in {found.verification.runtime}: {found.verification.reason}", code="not-compared"
        )
    return 0 if found.same else ExitCode.DIFFERENT


def _values(found: ModelComparison) -> Mapping[str, Any]:
    error = found.verification.max_abs_error
    values = dataclasses.asdict(found.verification)
    values["max_abs_error"] = error if error is not None and error < float("inf") else None
    return {"passed": found.same, "rtol": found.rtol, "atol": found.atol, **values}


def _print(console: Console, found: ModelComparison) -> None:
    from memsched.report.sessions import tried_lines
    from memsched.report.text import SAME_OUTPUTS, print_line

    verification = found.verification

    def line(text: str, style: str | None = None) -> None:
        print_line(console, text, style)

    for name, peak in (
        ("A", verification.measured_peak_before_bytes),
        ("B", verification.measured_peak_after_bytes),
    ):
        if peak is not None:
            what = "smallest arena that runs" if verification.arenas else "measured peak of"
            line(f"{what} {name}: {peak:,} B")
    for name, arena in zip("AB", verification.arenas, strict=False):
        text = f"arena of {name}: measured {arena.measured_head or 0:,} B head + {arena.measured_tail or 0:,} B tail"
        if arena.as_predicted:
            line(f"{text}, as predicted")
        elif arena.as_predicted is False:
            line(f"{text}, predicted {arena.predicted_head:,} + {arena.predicted_tail:,} B: please report it", "yellow")
        else:
            line(f"{text}; what its kernels need is not known to memsched", "yellow")
    for note in (*verification.stated, *verification.notes):
        line(f"note: {note}", "dim")
    if found.same is None:
        return
    for text, style in tried_lines(verification.other_sizes):
        line(text, style)
    if verification.outputs_vary is False:
        line(f"warning: {SAME_OUTPUTS}", "yellow")
    on = f"on {verification.runs} random inputs in {verification.runtime}"
    wrong = verification.wrong_elsewhere
    if wrong is not None:
        line(f"FAILED: B is wrong at {wrong.dimension} = {wrong.size}, which A leaves open: {wrong.reason}", "red")
    elif verification.special_wrong is not None:
        line(f"FAILED: {verification.special_wrong}; outputs are equal {on}", "red")
    elif verification.outputs_equal:
        line(f"PASSED: outputs bit-equal {on}", "green")
    elif found.same:
        line(f"PASSED: outputs differ by up to {verification.max_abs_error:g}, within the tolerance, {on}", "green")
    else:
        line(f"FAILED: {verification.reason or 'outputs differ'} {on}", "red")
