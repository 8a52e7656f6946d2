"""C without an interpreter: a measured alternative to a file for firmware."""

from __future__ import annotations

import dataclasses

from memsched.base.errors import MemschedError
from memsched.codegen.streaming.emit import ram_bytes
from memsched.commands.declared import AUTO
from memsched.commands.optimize.command_lines import with_options
from memsched.commands.optimize.emit import StreamedModel, emit
from memsched.commands.optimize.finished import FinishedModel
from memsched.commands.optimize.place import Request
from memsched.commands.optimize.trials import MOST_OPS_OF_LOOPS
from memsched.commands.optimize.worth import MOST_LEFT
from memsched.commands.options import Options
from memsched.formats.module import Module
from memsched.formats.staging import STANDARD_STREAM
from memsched.report.values.verdict import AlternativeRow, CallerChange
from memsched.runtimes.known import relay_rules_of
from memsched.targets.model import Target

__all__ = ["as_c"]


def as_c(
    module: Module, rules: Target, done: FinishedModel, options: Options, request: Request
) -> AlternativeRow | None:
    """Return C that needs much less memory than the written file, or None.

    Args:
        module: The original.
        rules: Rules of the target.
        done: The written file.
    """
    firmware = relay_rules_of(module, rules) is not None and len(module.graphs[0].ops) <= MOST_OPS_OF_LOOPS
    plain = options.free and options.verify and options.budget is None and not (options.dims or options.input_shapes)
    refused = done.verification is not None and done.verification.refused is not None
    if not firmware or not plain or refused or done.ended or module.path == STANDARD_STREAM:
        return None
    asked = dataclasses.replace(options, may_change=())
    if options.time_limit != AUTO:
        asked = dataclasses.replace(asked, time_limit=request.remaining())
    try:
        made = emit(module.path, asked)
    except MemschedError:
        return None
    needed = done.needed[1].total
    if not isinstance(made, StreamedModel) or made.run is None or not made.run.equal:
        return None
    ram = ram_bytes(made.plan.arena, made.code.state)
    if ram > MOST_LEFT * needed:
        return None
    border: tuple[CallerChange, ...] = ("inputs",) if made.plan.network.scales else ()
    target = [] if options.target is None else ["--target", options.target]
    return AlternativeRow(
        command=with_options(["optimize", module.path, *target], "--emit", "c"),
        what="C without an interpreter (RAM without the stack)",
        bytes=ram,
        saving_bytes=needed - ram,
        extra_macs_percent=0.0,
        time_ratio=made.run.time_ratio,
        changes=(*border, "opening"),
    )
