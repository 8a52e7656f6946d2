"""Convolutions in bands, where the runtime keeps tables for one image of a batch: of which layers, and the report."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from memsched.check.algebra import check_algebra
from memsched.commands.optimize.rewrite import Candidate, Proposals, RewriteBase, Ways
from memsched.commands.optimize.rewrites import Rewrites
from memsched.formats.known import format_of
from memsched.graph.model import Graph
from memsched.report.algebra import banded
from memsched.rewrites.algebra.bands import Bands, best_bands, in_bands
from memsched.rewrites.algebra.draft import AlgebraDraft
from memsched.runtimes.known import runtime_of
from memsched.search.run import Run

__all__ = ["BandsRewrite"]


@dataclass(frozen=True, slots=True)
class BandsRewrite:
    """Layers whose rows are images of a batch, so that the runtime keeps a table for one of them."""

    name = "bands"
    once = True
    described = "layers in bands of rows"

    def is_quick(self, base: RewriteBase) -> bool:
        """Whether what it finds is written however little time there is; see `Rewrite`."""
        del base
        return True

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        """Propose the layer that saves most in bands, then twice as many layers each time, and at last all of them."""
        del run
        ways = _BandWays(base)
        left, count = ways.best, 1
        refused = dict((yield Candidate(ways)) or {})
        while left and count < 2 * len(left):
            way = tuple(left[: min(count, len(left))])
            work = Fraction(ways.extra_macs(way), base.macs) if base.macs else Fraction(0)
            saved = sum(one.saved for one in way)
            refused |= (yield Candidate(ways, way, base.placed.required - saved, work, ways.extra_macs(way))) or {}
            left = tuple(one for one in left if not any(one in part for part in refused))
            count *= 2


class _BandWays(Ways):
    """Layers in bands; a part of a way is one of them."""

    proven = True

    def __init__(self, base: RewriteBase) -> None:
        super().__init__(base.executed)
        names, _ = format_of(base.module).constants_read(base.module)
        self._constants = {op.name: tuple(read) for op, read in zip(base.given.ops, names, strict=True)}
        self._draft = AlgebraDraft(self.graph, base.dialect, self._constants)
        runtime = runtime_of(base.module, base.prepared.target)
        tables = [runtime.table_bytes(self.graph, op) for op in self.graph.ops]
        found = [
            best_bands(self.graph, number, table, base.pricing.percent / 100) for number, table in enumerate(tables)
        ]
        self.best = tuple(sorted((one for one in found if one is not None), key=lambda one: -one.saved))

    def extra_macs(self, way: tuple[Bands, ...]) -> int:
        """Return the multiply-accumulates of rows that are computed in vain."""
        ops = {op.name: (number, op.macs) for number, op in enumerate(self.graph.ops)}
        extra = 0
        for one in way:
            number, macs = ops[one.op]
            extra += macs * one.count * one.rows // self.graph.shape_made(number)[one.axis] - macs
        return extra

    def parts(self, way: tuple[Bands, ...]) -> Sequence[tuple[Bands, ...]]:
        """Return the layer that saves most, the next one, the next two, the next four, and so on."""
        ends = [0, *(1 << power for power in range(len(way).bit_length())), len(way)]
        return [way[first:last] for first, last in itertools.pairwise(ends) if way[first:last]]

    def build(self, way: tuple[Bands, ...]) -> Graph:
        """Return the graph with layers in bands.

        Raises:
            InternalError: It does not compute the same, by the checker.
        """
        draft = self._draft
        for one in way:
            draft = in_bands(draft, one) or draft
        check_algebra(self.graph, draft.graph, self._constants)
        return draft.graph

    def describe(self, before: Rewrites, used: Candidate | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the layers in bands in its section on algebra."""
        del extra_macs
        if used is None:
            return before
        rows = [(one.op, one.count) for one in used.way]
        return dataclasses.replace(before, algebra=banded(before.algebra, rows))
