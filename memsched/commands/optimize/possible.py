"""What of the permissions for a model can be done to it."""

from __future__ import annotations

import dataclasses

from memsched.commands.optimize.permissions import Permissions
from memsched.commands.optimize.trials import too_large
from memsched.formats.known import format_of
from memsched.formats.module import LoadOptions, Module
from memsched.runtimes.known import runtime_of
from memsched.runtimes.runtime import Opening
from memsched.targets.model import Target

__all__ = ["possible"]


def possible(
    permitted: Permissions, module: Module, options: LoadOptions, rules: Target, opening: Opening
) -> Permissions:
    """Return what of ``permitted`` can be done to the module, and pieces for nothing only where they are known to be.

    Where files are to hold the best default order, that is not known of pieces; in pools of memory they cost traffic,
    and where the runtime joins quantised ops, time.
    """
    refusable = format_of(module).sizes_can_be_refused(module, options)
    runtime = runtime_of(module, rules, opening)
    elsewhere = rules.pools or rules.on_chip_bytes or opening.guarantee == "default" or too_large(module)
    costly = elsewhere or runtime.pieces_for or runtime.joins_quantised(module)
    free = permitted.free and refusable and not costly
    exact = permitted.algebra and refusable
    return dataclasses.replace(permitted, tile=permitted.tile and refusable, free=free, algebra=exact)
