"""Layers left to the runtime's built-in kernels, if the delegate pads their channels: less memory, other rounding."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from memsched.base.errors import InternalError
from memsched.check.rewrite import check_made_constants
from memsched.commands.optimize.rewrite import Candidate, Proposals, RewriteBase, Ways
from memsched.commands.optimize.rewrites import Rewrites
from memsched.formats.capabilities import MadeBiases
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.formats.read_back import load_again
from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.plan.rewrite import plain, with_origins
from memsched.report.algebra import algebra_section
from memsched.report.values.rewrites import IdentityRow
from memsched.runtimes.known import runtime_of
from memsched.search.run import Run

__all__ = ["BuiltInRewrite"]

_BIAS: Final = f"{CONSTANT_SHAPE}2"
"""What a layer says of its bias, if that is a constant."""


@dataclass(frozen=True, slots=True)
class BuiltInRewrite:
    """Leave layers that a delegate computes on padded channels to built-in kernels, which round in another way."""

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
            promise = base.placed.required - sum(map(ways.saved.__getitem__, way))
            refused |= (yield Candidate(ways, way, promise)) or {}
            left = tuple(op for op in left if (op,) not in refused)
            count *= 2


class _BuiltInWays(Ways):
    """Leaves any of the layers, by name, to built-in kernels.

    Attributes:
        saved: Bytes that the delegate keeps for each layer.
        best: The layers, largest savings first.
    """

    def __init__(self, base: RewriteBase) -> None:
        super().__init__(base.given)
        runtime = runtime_of(base.module, base.prepared.target)
        padded = {op.name: runtime.padded_bytes(self.graph, op) for op in self.graph.ops if _BIAS in op.attributes}
        self.saved: Mapping[str, int] = {name: size for name, size in padded.items() if size}
        self.best = tuple(sorted(self.saved, key=lambda name: (-self.saved[name], name)))

    def write(self, base: RewriteBase, way: tuple[Any, ...], go_on: Callable[[], None]) -> tuple[Module, bytes]:
        """Return what the file is read as, and the file; see `Ways.write`."""
        data = capability(base.module, MadeBiases).with_made_biases(base.module, way)
        if data is None:
            raise InternalError("the format has no operator that makes a bias", code="cannot-replace")
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
