"""What of the permissions for a model can be done to it, and which models are too large for more than an order."""

from __future__ import annotations

import dataclasses

from memsched.commands.optimize.permissions import Permissions
from memsched.formats.capabilities import SizeGuards
from memsched.formats.known import capability
from memsched.formats.module import LoadOptions, Module
from memsched.runtimes.known import runtime_of
from memsched.runtimes.runtime import Opening
from memsched.targets.model import Target

__all__ = ["MOST_OPS", "possible", "too_large"]

MOST_OPS = 1_500
"""Ops beyond which nothing is looked for beside the order unasked."""

_MOST_BYTES = 100 << 20
"""Most bytes of weights: larger files take too long to write and read for a trial."""

_MOST_INPUTS = 20 * MOST_OPS
"""Reads of tensors by all ops together, beyond which nothing is tried either."""


def possible(
    permitted: Permissions, module: Module, options: LoadOptions, rules: Target, opening: Opening
) -> Permissions:
    """Return what of ``permitted`` can be done to the module, and what costs nothing only where that is known.

    Where files are to hold the best default order, that is not known of pieces; in pools of memory they cost traffic,
    and where the runtime joins quantised ops, time.
    """
    refusable = capability(module, SizeGuards).sizes_can_be_refused(module, options)
    runtime = runtime_of(module, rules, opening)
    elsewhere = rules.pools or rules.on_chip_bytes or opening.guarantee == "default" or too_large(module)
    costly = elsewhere or runtime.traits.tiles_for or runtime.joins_quantised(module)
    # What a session executes holds for one size as well.
    opened = permitted.opening and not any(one.free for one in options.assumed)
    delegated = runtime.keeps_tables and not too_large(module)
    bands = permitted.bands and refusable and delegated
    permitted = dataclasses.replace(permitted, built_in=permitted.built_in and delegated)
    if permitted.free and costly:
        return dataclasses.replace(permitted, tile=False, remat=False, algebra=False, bands=bands, opening=opened)
    exact = permitted.algebra and refusable
    return dataclasses.replace(permitted, tile=permitted.tile and refusable, algebra=exact, bands=bands, opening=opened)


def too_large(module: Module) -> bool:
    """Whether a module takes too long to write and read for what is looked for beside its order."""
    ops = [op for graph in module.graphs for op in graph.ops]
    reads = sum(len(op.inputs) for op in ops)
    return len(ops) > MOST_OPS or reads > _MOST_INPUTS or module.weights_bytes > _MOST_BYTES
