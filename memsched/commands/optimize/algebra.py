"""Exact algebra: the search for identities that lower the peak, the graph that they lead to, and what is reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from memsched.algebra.apply import drafted
from memsched.algebra.draft import AlgebraDraft
from memsched.algebra.search import AlgebraPoint, AlgebraSearch
from memsched.check.algebra import check_algebra
from memsched.commands.optimize.candidates import Lookout
from memsched.commands.optimize.place import Request
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import RewriteBase, RewritePoint
from memsched.formats.known import format_of
from memsched.graph.border import Border
from memsched.graph.identity import Identity
from memsched.graph.model import Graph
from memsched.report.algebra import algebra_section

__all__ = ["AlgebraRewrite"]

_SEARCH_SHARE = 0.6
"""Share of the time left for the search; orders and addresses of what it found take the rest."""


class AlgebraRewrite:
    """Ops computed otherwise with the same values; it does no work, as far as is counted. See `Rewrite`.

    A part of a way is an identity, which may need those before it.

    Args:
        sums: Sums may be added up in another order.
    """

    share = 0.5
    small = False
    told_as_stored = False
    proven = True
    looks = None

    def __init__(self, base: RewriteBase, request: Request, percent: float, budget: int | None, *, sums: bool) -> None:
        del percent, budget
        self._base, self._request = base, request
        self.graph = base.executed
        self.total = sum(op.macs for op in self.graph.ops)
        names, _ = format_of(base.module).constants_read(base.module)
        self._constants = {op.name: tuple(read) for op, read in zip(base.given.ops, names, strict=True)}
        self._draft = AlgebraDraft(self.graph, base.dialect, self._constants, sums=sums)
        self._search = AlgebraSearch(self._draft, base.prepared.target)
        self._points: list[AlgebraPoint] | None = None
        self.finished = False

    def resume(self, request: Request) -> None:
        """Search within another request from now on."""
        self._request = request

    def search(
        self, meets: Callable[[RewritePoint[Identity]], bool], lookout: Lookout[RewritePoint[Identity]] | None
    ) -> Sequence[RewritePoint[Identity]]:
        """Search once, and again where something could not be written."""
        del meets, lookout
        return self._found(self._request.within(_SEARCH_SHARE))

    def search_out(self) -> Sequence[RewritePoint[Identity]]:
        """Search until nothing is left or the time is up."""
        return self._found(self._request)

    def _found(self, request: Request) -> Sequence[RewritePoint[Identity]]:
        if self._points is None:
            self._points = self._search.run(request.run)
            self.finished = not request.run.over()
        return [RewritePoint(point.peak, 0, 0, point.way) for point in self._points]

    def goes_on(self, seconds: float) -> bool:
        """Return False: one search is all."""
        del seconds
        return False

    def drop(self, reasons: Mapping[tuple[Identity, ...], str], *, last: bool) -> None:
        """Leave identities out that cannot be written; others are looked for where there is time."""
        gone = {identity for way in reasons for identity in way}
        self._search.drop(gone)
        left = [point for point in self._points or () if gone.isdisjoint(point.way)]
        self._points = left if last else None

    def parts(self, way: tuple[Identity, ...]) -> Sequence[tuple[Identity, ...]]:
        """Return each identity by itself."""
        return [(identity,) for identity in way]

    def coarser(self, part: tuple[Identity, ...]) -> Sequence[tuple[Identity, ...]]:
        """Return nothing: a part is done or left."""
        del part
        return ()

    def borders(self, way: tuple[Identity, ...]) -> tuple[Border, ...]:
        """Return nothing: inputs and outputs stay."""
        del way
        return ()

    def build(self, way: tuple[Identity, ...]) -> Graph:
        """Return the graph with ops computed otherwise.

        Raises:
            InternalError: It does not compute the same, by the checker.
        """
        made = drafted(self._draft, way).graph
        check_algebra(self.graph, made, self._constants)
        return made

    def cost(self, point: RewritePoint[Identity]) -> int:
        """Return 0: no work is added."""
        del point
        return 0

    def describe(self, before: Rewrites, used: RewritePoint[Identity] | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the section on algebra; what is required follows later."""
        del extra_macs
        way = () if used is None else used.way
        return replace(before, algebra=algebra_section(way, self._search.judged, finished=self.finished))
