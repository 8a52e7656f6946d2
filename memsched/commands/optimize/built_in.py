"""Layers left to the runtime's built-in kernels, if these need less memory than the delegate: they round otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from memsched.base.errors import InternalError
from memsched.check.rewrite import check_made_constants
from memsched.commands.optimize.rewrite import Candidate, Proposals, RewriteBase, Ways
from memsched.commands.optimize.rewrites import Rewrites
from memsched.formats.capabilities import MadeConstants
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.formats.read_back import load_again
from memsched.lowering.prices import Avoidable
from memsched.plan.rewrite import plain, with_origins
from memsched.report.algebra import algebra_section
from memsched.report.values.rewrites import IdentityRow
from memsched.runtimes.known import runtime_of
from memsched.search.run import Run

__all__ = ["BuiltInRewrite"]


@dataclass(frozen=True, slots=True)
class BuiltInRewrite:
    """Leave layers for which a delegate keeps more than it need to built-in kernels, which round in another way."""

    name = "built-in"
    once = True
    described = "layers left to built-in kernels"

    def is_quick(self, base: RewriteBase) -> bool:
        """Return True: there is nothing to search for; see `Rewrite`."""
        del base
        return True

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        """Propose the layer that saves most, then twice as many layers each time, up to all layers."""
        del run
        ways, count = _BuiltInWays(base), 1
        left = ways.best
        refused = dict((yield Candidate(ways)) or {})
        while left and count < 2 * len(left):
            way = tuple(left[:count])
            promise = base.placed.required - sum(ways.kept[op].saved for op in way)
            refused |= (yield Candidate(ways, way, promise)) or {}
            left = tuple(op for op in left if (op,) not in refused)
            count *= 2


class _BuiltInWays(Ways):
    """Leaves any of the layers, by name, to built-in kernels.

    Attributes:
        kept: What the delegate keeps for each layer.
        best: The layers, largest savings first.
    """

    def __init__(self, base: RewriteBase) -> None:
        super().__init__(base.given)
        runtime = runtime_of(base.module, base.prepared.target)
        known = {op.name: runtime.avoidable(self.graph, op) for op in self.graph.ops}
        self.kept: Mapping[str, Avoidable] = {name: one for name, one in known.items() if one is not None}
        self.best = tuple(sorted(self.kept, key=lambda name: (-self.kept[name].saved, name)))

    def write(self, base: RewriteBase, way: tuple[Any, ...], go_on: Callable[[], None]) -> tuple[Module, bytes]:
        """Return what the file is read as, and the file; see `Ways.write`."""
        places = {op: self.kept[op].place for op in way}
        data = capability(base.module, MadeConstants).with_made_constants(base.module, places)
        if data is None:
            raise InternalError("the format has no operator that makes a constant", code="cannot-replace")
        go_on()
        again = load_again(base.module, data, base.options, "rewritten")
        go_on()
        given = plain(base.module)
        check_made_constants(given.graphs[0], again.graphs[0], way)
        return (again if given is base.module else with_origins(again, base.module)), data

    def describe(self, before: Rewrites, used: Candidate | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the layers in its algebra section."""
        del extra_macs
        if used is None:
            return before
        rows = [IdentityRow(kind="kernel", op=op, over="") for op in used.way]
        return dataclasses.replace(before, algebra=algebra_section(before.algebra, rows))
