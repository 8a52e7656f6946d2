"""Rewrites for LiteRT's default delegate: bands, which shrink its tables, and ops that keep its partitions whole."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from memsched.check.algebra import check_algebra
from memsched.commands.optimize.algebra import draft_of
from memsched.commands.optimize.rewrite import Candidate, Proposals, RewriteBase, Ways
from memsched.commands.optimize.rewrites import Rewrites
from memsched.graph.model import Graph, Op
from memsched.report.algebra import algebra_section
from memsched.report.values.rewrites import IdentityRow
from memsched.rewrites.algebra.bands import Bands, best_bands, in_bands
from memsched.rewrites.algebra.draft import AlgebraDraft
from memsched.rewrites.algebra.settled import SettledShape, settled_shapes, with_settled_shape
from memsched.rewrites.algebra.trees import Tree, as_tree, trees_of
from memsched.runtimes.known import runtime_of
from memsched.search.run import Run

__all__ = ["BandsRewrite"]

_Part = Bands | SettledShape | Tree

_MAX_ELEMENTS: Final = 1 << 24
"""Largest tensor of a banded layer: the checker computes it in 64-bit integers, 128 MB."""


@dataclass(frozen=True, slots=True)
class BandsRewrite:
    """Split convolutions into bands and concatenations into trees, and make reshapes static."""

    name = "bands"
    once = True
    described = "bands of rows, and operators that the delegate accepts"

    def is_quick(self, base: RewriteBase) -> bool:
        """Return True: the search is complete and fast; see `Rewrite`."""
        del base
        return True

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        """Propose the part that saves most, then twice as many parts each time, up to all parts."""
        del run
        ways = _BandWays(base)
        left, count = ways.best, 1
        refused = dict((yield Candidate(ways)) or {})
        while left and count < 2 * len(left):
            way = tuple(left[: min(count, len(left))])
            macs = sum(ways.extra_macs(one) for one in way)
            work = Fraction(macs, base.macs) if base.macs else Fraction(0)
            saved = sum(one.saved for one in way)
            refused |= (yield Candidate(ways, way, base.placed.required - saved, work, macs)) or {}
            left = tuple(one for one in left if not any(one in part for part in refused))
            count *= 2


class _BandWays(Ways):
    """Builds any subset of the parts."""

    proven = True

    def __init__(self, base: RewriteBase) -> None:
        super().__init__(base.executed)
        self._draft = draft_of(base, self.graph)
        self._number = {op.name: number for number, op in enumerate(self.graph.ops)}
        runtime = runtime_of(base.module, base.prepared.target)
        tables = [runtime.table_bytes(self.graph, op) for op in self.graph.ops]
        extra, most = base.pricing.percent / 100, runtime.most_joined
        cut = (
            best_bands(self.graph, number, table, extra)
            for number, table in enumerate(tables)
            if self._is_small(self.graph.ops[number])
        )
        found: list[_Part] = [one for one in cut if one is not None]
        if most is not None:
            found += [*trees_of(self.graph, most), *settled_shapes(self.graph, base.dialect.reshape_type)]
        self.best = tuple(sorted(found, key=lambda one: (-one.saved, one.op)))

    def _is_small(self, op: Op) -> bool:
        shapes = (self.graph.tensors[tensor].shape or () for tensor in (*op.inputs, *op.outputs))
        return all(math.prod(shape) <= _MAX_ELEMENTS for shape in shapes)

    def extra_macs(self, part: _Part) -> int:
        """Return the multiply-accumulates of the rows that pad the last band."""
        if not isinstance(part, Bands):
            return 0
        number = self._number[part.op]
        macs = self.graph.ops[number].macs
        return macs * part.count * part.rows // self.graph.shape_made(number)[part.axis] - macs

    def parts(self, way: tuple[_Part, ...]) -> Sequence[tuple[_Part, ...]]:
        """Return the parts in groups of 1, 1, 2, 4, ..., largest savings first."""
        ends = [0, *(1 << power for power in range(len(way).bit_length())), len(way)]
        return [way[first:last] for first, last in itertools.pairwise(ends) if way[first:last]]

    def build(self, way: tuple[_Part, ...]) -> Graph:
        """Return the rewritten graph.

        Raises:
            InternalError: The checker found different values.
        """
        draft = self._draft
        for one in way:
            draft = _done(draft, one) or draft
        check_algebra(self.graph, draft.graph, self._draft.constants)
        return draft.graph

    def describe(self, before: Rewrites, used: Candidate | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the applied parts in its algebra section."""
        del extra_macs
        if used is None:
            return before
        return dataclasses.replace(before, algebra=algebra_section(before.algebra, [_row(one) for one in used.way]))


def _done(draft: AlgebraDraft, part: _Part) -> AlgebraDraft | None:
    if isinstance(part, Bands):
        return in_bands(draft, part)
    return as_tree(draft, part) if isinstance(part, Tree) else with_settled_shape(draft, part)


def _row(part: _Part) -> IdentityRow:
    if isinstance(part, SettledShape):
        return IdentityRow(kind="shape", op=part.op, over="")
    return IdentityRow(kind="band" if isinstance(part, Bands) else "tree", op=part.op, over="", count=part.count)
