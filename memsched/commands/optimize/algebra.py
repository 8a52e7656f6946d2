"""Exact algebra: the search for identities that lower the peak, the graph that they lead to, and what is reported."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memsched.check.algebra import check_algebra
from memsched.commands.optimize.rewrite import Candidate, Proposals, Refusals, RewriteBase, Ways
from memsched.commands.optimize.rewrites import Rewrites
from memsched.formats.known import format_of
from memsched.graph.identity import Identity
from memsched.graph.model import Graph
from memsched.report.algebra import algebra_section
from memsched.report.values.rewrites import IdentityRow
from memsched.rewrites.algebra.apply import drafted
from memsched.rewrites.algebra.draft import AlgebraDraft
from memsched.rewrites.algebra.search import AlgebraSearch
from memsched.search.run import Run

__all__ = ["AlgebraRewrite", "draft_of"]


def draft_of(base: RewriteBase, graph: Graph, *, sums: bool = False) -> AlgebraDraft:
    """Return the draft of a base's graph; ``sums``: sums may be added up in another order."""
    names, _ = format_of(base.module).constants_read(base.module)
    constants = {op.name: tuple(read) for op, read in zip(base.given.ops, names, strict=True)}
    return AlgebraDraft(graph, base.dialect, constants, sums=sums)


@dataclass(frozen=True, slots=True)
class AlgebraRewrite:
    """Ops computed otherwise with the same values.

    Attributes:
        sums: Sums may be added up in another order.
    """

    sums: bool = False

    name = "algebra"
    once = True
    described = "operators computed otherwise (algebra)"

    def is_quick(self, base: RewriteBase) -> bool:
        """Whether what it finds is written however little time there is; see `Rewrite`."""
        del base
        return False

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        """Propose identities that lower the peak; once more without those that cannot be written."""
        ways = _AlgebraWays(base, sums=self.sums)
        refused = dict((yield Candidate(ways)) or {})
        again = True
        while again:
            if refused:
                ways.drop(refused)
            refused = {}
            for point in ways.search.run(run):
                if point is None:
                    refused |= (yield None) or {}
                else:
                    refused |= (yield Candidate(ways, point.way, point.peak)) or {}
            refused |= (yield None) or {}
            again = bool(refused)
        ways.finished = not run.over()


class _AlgebraWays(Ways):
    """Ops computed otherwise; a part of a way is an identity, which may need those before it. It does no work."""

    proven = True

    def __init__(self, base: RewriteBase, *, sums: bool) -> None:
        super().__init__(base.executed)
        self._draft = draft_of(base, self.graph, sums=sums)
        self.search = AlgebraSearch(self._draft, base.prepared.target)
        self.finished = False

    def drop(self, refused: Refusals) -> None:
        """Leave identities out that cannot be written."""
        self.search.drop({identity for way in refused for identity in way})

    def build(self, way: tuple[Identity, ...]) -> Graph:
        """Return the graph with ops computed otherwise.

        Raises:
            InternalError: It does not compute the same, by the checker.
        """
        made = drafted(self._draft, way).graph
        check_algebra(self.graph, made, self._draft.constants)
        return made

    def describe(self, before: Rewrites, used: Candidate | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the section on algebra; what is required follows later."""
        del extra_macs
        rows = [] if used is None else [IdentityRow(kind=one.kind, op=one.op, over=one.over) for one in used.way]
        section = algebra_section(before.algebra, rows, self.search.judged, finished=self.finished)
        return replace(before, algebra=section)
