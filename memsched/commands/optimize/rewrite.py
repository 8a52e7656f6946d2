"""What a rewrite is: within limits it searches, builds a graph of what it found, and describes that in the report."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from memsched.commands.optimize.candidates import Lookout
from memsched.commands.optimize.looks import Looks
from memsched.commands.optimize.place import ModulePlan, Request
from memsched.commands.optimize.report import Rewrites
from memsched.formats.module import LoadOptions, Module
from memsched.frozen import FrozenValue
from memsched.graph.border import Border
from memsched.graph.dag import in_order
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph
from memsched.lowering.prices import NOTHING_KEPT, Prices
from memsched.planning.rewrite import dialect_of, plain
from memsched.planning.values import TargetModule
from memsched.runtimes.known import runtime_of

__all__ = ["Maker", "Part", "Rewrite", "RewriteBase", "RewritePoint"]

Part = TypeVar("Part", bound=Hashable)


class RewriteBase(FrozenValue, frozen=True):
    """The model that a rewrite starts from, which may itself have been rewritten before.

    Attributes:
        placed: Its orders and addresses; a rewrite's result requires less, or there is none.
    """

    module: Module
    prepared: TargetModule
    placed: ModulePlan
    options: LoadOptions

    @property
    def given(self) -> Graph:
        """The main graph as one that is given: its ops say nothing of what they were made from."""
        return plain(self.module).graphs[0]

    @property
    def to_cut(self) -> Graph:
        """The graph that is executed, its pieces judged by the runtime that the target is for."""
        return replace(self.executed, cut_for=self.prepared.target.executed_by)

    @property
    def order(self) -> tuple[int, ...]:
        """The order of the main graph's ops."""
        return self.placed.plans[0].schedule.order

    @property
    def peak(self) -> int:
        """Bytes, by liveness."""
        return self.placed.plans[0].schedule.peak

    @property
    def dialect(self) -> Dialect:
        """How the format says what rewrites add."""
        return dialect_of(self.module, self.prepared.target)

    def prices(self, request: Request, budget: int | None) -> Prices | None:
        """Return what an op costs beside activations, as far as that counts.

        The runtime's own structures lie beside what it requires, which is what a budget is for: there only the time of
        an op counts.
        """
        found = self._prices(request)
        if found is None or found.pace is None:
            return found
        if request.slowdown is None:
            return None
        if budget is None:
            return replace(found, free=found.of_slice.persistent * request.free_ops)
        return replace(found, of_op=lambda _graph, _op: NOTHING_KEPT, of_slice=NOTHING_KEPT)

    def most_time(self, request: Request) -> float:
        """Return the extra time that is permitted, as prices count it; may be infinite."""
        found = self._prices(request)
        if found is None or found.pace is None or request.slowdown is None:
            return math.inf
        permitted = found.pace.of_graph(self.given) * request.slowdown / 100
        return max(permitted, found.pace.of_op * request.free_ops)

    def _prices(self, request: Request) -> Prices | None:
        found = runtime_of(self.module, self.prepared.target).prices(self.module)
        if found is None or found.cautious is None or not request.cautious:
            return found
        return replace(found, pace=found.cautious)

    @property
    def executed(self) -> Graph:
        """The same with its ops in the order of execution."""
        return in_order(self.given, self.order)


@dataclass(frozen=True, slots=True)
class RewritePoint(Generic[Part]):
    """What a search for one kind of rewrite found, in exact figures.

    Attributes:
        peak: Bytes, by liveness, with what is known to be kept beside them.
        work: Extra work, in the unit of the rewrite's `Rewrite.total`.
        extra_macs: Multiply-accumulates that the graph searched does not have.
        way: What `Rewrite.build` makes of the graph.
    """

    peak: int
    work: int
    extra_macs: int
    way: tuple[Part, ...]


class Rewrite(Protocol[Part]):
    """One kind of rewrite of one model within one request: its search, the graphs that it leads to, its report."""

    @property
    def graph(self) -> Graph:
        """What points are built from, its ops in order of execution."""

    @property
    def total(self) -> int:
        """The work of that graph, as `RewritePoint.work` counts it."""

    @property
    def share(self) -> float:
        """The share of the time left for orders and addresses of one model.

        It is made in a good order, and more may follow.
        """

    @property
    def small(self) -> bool:
        """Whether what is found is written however little time there is: the search is complete, and all is quick."""

    @property
    def told_as_stored(self) -> bool:
        """Whether what models require in the order in which they are made tells which are worth placing."""

    @property
    def proven(self) -> bool:
        """Whether `build` has its graphs checked, by what they compute, and not only by what they are made of."""

    @property
    def finished(self) -> bool:
        """Whether the search ended before its time was up."""

    @property
    def looks(self) -> Looks | None:
        """Where `search` pauses by a limit of work, to have models made; None: it does not."""

    def resume(self, request: Request) -> None:
        """Take up the search, first or again, within a request."""

    def search(
        self, meets: Callable[[RewritePoint[Part]], bool], lookout: Lookout[RewritePoint[Part]] | None
    ) -> Sequence[RewritePoint[Part]]:
        """Search, or go on with it, and return the permitted points to make models of: rising work, falling peaks.

        It may pause early, to leave time for these models.

        Args:
            meets: Whether a point's model meets the budget, which may be asked of points underway.
            lookout: Search as without a budget, but no longer than until this sees that it is met. So what is reached
                without a budget meets every budget as large. None: for the least work within the budget, if there is
                one.
        """

    def search_out(self) -> Sequence[RewritePoint[Part]]:
        """Search until nothing is left or the time is up, and return the permitted points."""

    def goes_on(self, seconds: float) -> bool:
        """Return whether to call `search` again; making models of the last points took so many seconds."""

    def drop(self, reasons: Mapping[tuple[Part, ...], str], *, last: bool) -> None:
        """Leave out what cannot be written, with the reasons; `search` then returns what is left.

        Args:
            last: There is no time to search for anything in its place.
        """

    def parts(self, way: tuple[Part, ...]) -> Sequence[tuple[Part, ...]]:
        """Return what may be done alone of a way; empty where it does nothing but order."""

    def coarser(self, part: tuple[Part, ...]) -> Sequence[tuple[Part, ...]]:
        """Return what does less in place of one of `parts`, such as half as many pieces; empty where nothing can."""

    def borders(self, way: tuple[Part, ...]) -> tuple[Border, ...]:
        """Return what the caller has to do instead of the model; nothing where inputs and outputs stay."""

    def build(self, way: tuple[Part, ...]) -> Graph:
        """Return `graph` rewritten."""

    def cost(self, point: RewritePoint[Part]) -> int:
        """Return a point's extra work in multiply-accumulates and bytes moved, in which all rewrites compare."""

    def describe(self, before: Rewrites, used: RewritePoint[Part] | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the report's section on this rewrite.

        Args:
            used: What the model was rewritten to; None where it was not.
            extra_macs: Multiply-accumulates that it then has beside those of `graph`.
        """


Maker = Callable[[RewriteBase, Request, float, "int | None"], Rewrite[Part]]
"""Makes a rewrite of a model: within a request, up to a percentage of extra work, for a budget (bytes) if there is one:
then the least work that meets it is sought, else the least peak."""
