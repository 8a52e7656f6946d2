"""What a rewrite is: a value whose method proposes graphs for a model, better and better ones; see `driver`."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Protocol

from memsched.base.frozen import FrozenValue
from memsched.commands.optimize.place import ModulePlan
from memsched.commands.optimize.rewrites import Rewrites
from memsched.formats.module import LoadOptions, Module
from memsched.graph.border import Border
from memsched.graph.dag import in_order
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph
from memsched.lowering.prices import NOTHING_KEPT, Prices
from memsched.plan.rewrite import dialect_of, plain, read_back, with_origins
from memsched.plan.values import TargetModule
from memsched.runtimes.known import runtime_of
from memsched.runtimes.runtime import AS_TOLD, Opening
from memsched.runtimes.sessions import ExecutedModel
from memsched.search.run import Run

__all__ = ["Candidate", "Pricing", "Proposals", "Rewrite", "RewriteBase", "Turned", "Ways"]


class Pricing(FrozenValue, frozen=True):
    """What rewrites may cost.

    Attributes:
        percent: Extra work, in percent of the model's: multiply-accumulates, for values computed again bytes moved
            as well.
        slowdown: Extra time, in percent, where the target has a price of an operator: each is then weighed in, too;
            None: memory and multiply-accumulates alone decide.
        free_ops: So many operators more cost neither time nor memory of the process: where all is small, nothing is
            slow.
        cautious: It is to hold however the model is run.
        exact: The last bits of floats may not change.
        budgeted: A budget is for what the runtime requires, beside which its own structures lie: of an op, only the
            time counts.
    """

    percent: float = 15.0
    slowdown: float | None = None
    free_ops: int = 150
    cautious: bool = False
    exact: bool = False
    budgeted: bool = False


class RewriteBase(FrozenValue, frozen=True):
    """The model that a rewrite starts from, which may itself have been rewritten before.

    Attributes:
        placed: Its orders and addresses.
        options: What is stated of its sizes.
        pricing: What may still be spent.
        opening: How the file that is written will be opened.
        data: Its file.
    """

    module: Module
    prepared: TargetModule
    placed: ModulePlan
    options: LoadOptions
    pricing: Pricing = Pricing()
    opening: Opening = AS_TOLD
    data: bytes = b""

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

    @property
    def executed(self) -> Graph:
        """The same with its ops in the order of execution."""
        return in_order(self.given, self.order)

    @property
    def macs(self) -> int:
        """Multiply-accumulates."""
        return sum(op.macs for op in self.module.graphs[0].ops)

    def for_free(self) -> RewriteBase:
        """Return the same with no extra work permitted."""
        return replace(self, pricing=replace(self.pricing, percent=0.0))

    def prices(self) -> Prices | None:
        """Return what an op costs beside activations, as far as that counts."""
        found, pricing = self._prices(), self.pricing
        if found is None or found.pace is None:
            return found
        if pricing.slowdown is None:
            return None
        if pricing.budgeted:
            return replace(found, of_op=lambda _graph, _op: NOTHING_KEPT, of_slice=NOTHING_KEPT)
        return replace(found, free=found.of_slice.persistent * pricing.free_ops)

    def most_time(self) -> float:
        """Return the extra time that is permitted, as prices count it; may be infinite."""
        found, pricing = self._prices(), self.pricing
        if found is None or found.pace is None or pricing.slowdown is None:
            return math.inf
        permitted = found.pace.of_graph(self.given) * pricing.slowdown / 100
        return max(permitted, found.pace.of_op * pricing.free_ops)

    def _prices(self) -> Prices | None:
        found = runtime_of(self.module, self.prepared.target).prices(self.module)
        if found is None or found.cautious is None or not self.pricing.cautious:
            return found
        return replace(found, pace=found.cautious)


class Turned(FrozenValue, frozen=True):
    """A model that stands for its base in another form: what a session executes of it.

    Attributes:
        module: What the session executes of the model as given, with which it is compared.
        prepared: Its rules and baselines.
        slowdown: Time that it takes beyond ``module``, in percent as estimated.
    """

    executed: ExecutedModel
    module: Module
    prepared: TargetModule
    slowdown: float


class Ways:
    """What makes graphs of the ways that a rewrite found in one base, and says in the report what they do.

    A way is a tuple of parts, such as groups of layers in pieces; the empty one does nothing.

    Attributes:
        graph: What ways are built from.
        proven: Whether `build` has its graphs checked by what they compute, and not only by what they are made of.
        stands: Whether a way without gain is a base for other rewrites all the same.
        turned: What was made of the base, if that is another form of it; known once it was written.
    """

    proven = False
    stands = False
    turned: Turned | None = None

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def build(self, way: tuple[Any, ...]) -> Graph:
        """Return `graph` rewritten."""
        raise NotImplementedError

    def ops(self, way: tuple[Any, ...]) -> int:
        """Return how many ops `build` leaves, about."""
        del way
        return len(self.graph.ops)

    def write(self, base: RewriteBase, way: tuple[Any, ...], go_on: Callable[[], None]) -> tuple[Module, bytes]:
        """Return what the file of a way is read as, and the file.

        Args:
            go_on: Called between the steps; may raise to give up.

        Raises:
            InternalError: The file does not hold the graph.
            ModelError: The target's runtime would refuse an operator.
        """
        given = plain(base.module)
        module, data = read_back(
            given,
            self.build(way),
            base.options,
            base.prepared.target,
            go_on,
            self.borders(way),
            proven=self.proven,
            opening=base.opening,
        )
        return (module if given is base.module else with_origins(module, base.module)), data

    def borders(self, way: tuple[Any, ...]) -> tuple[Border, ...]:
        """Return what the caller has to do instead of the model; nothing where inputs and outputs stay."""
        del way
        return ()

    def parts(self, way: tuple[Any, ...]) -> Sequence[tuple[Any, ...]]:
        """Return what may be done alone of a way."""
        return [(part,) for part in way]

    def coarser(self, part: tuple[Any, ...]) -> Sequence[tuple[Any, ...]]:
        """Return what does less in place of one of `parts`, such as half as many pieces; empty where nothing can."""
        del part
        return ()

    def cost(self, candidate: Candidate) -> int:
        """Return a candidate's extra work in multiply-accumulates and bytes moved, in which all rewrites compare."""
        return candidate.extra_macs

    def describe(self, before: Rewrites, used: Candidate | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the report's section on this rewrite.

        Args:
            used: What the model was rewritten to; None where it was not.
            extra_macs: Multiply-accumulates that it then has beside those of `graph`.
        """
        del used, extra_macs
        return before


@dataclass(frozen=True, slots=True)
class Candidate:
    """A graph that a rewrite can make of its base, before it is written.

    Attributes:
        ways: What builds it.
        way: Its parts; none: nothing is done, and the candidate only says what proposes.
        promise: Bytes that it needs by the rewrite's own estimate: by liveness, with what is known to be kept beside.
        work: Extra work, as a part of the base's.
        extra_macs: Multiply-accumulates that the base does not have.
    """

    ways: Ways
    way: tuple[Any, ...] = ()
    promise: int = 0
    work: Fraction = Fraction(0)
    extra_macs: int = 0


Refusals = Mapping[tuple[Any, ...], str]
"""Parts of ways that no file could be written with, each with the reason."""

Proposals = Generator["Candidate | None", "Refusals | None", None]
"""What a rewrite proposes: a candidate whenever it has a better one, and None after each bit of work.

What is sent to it could not be written, and must not be proposed again. A None for which nothing was done asks what
became of the candidates before it. If it ends, nothing is left to look for.
"""


class Rewrite(Protocol):
    """One kind of rewrite: a value whose fields are its options."""

    @property
    def name(self) -> str:
        """What the user permits it by."""

    @property
    def described(self) -> str:
        """The rewrite in words, for a failure."""

    @property
    def once(self) -> bool:
        """Whether it does all that can be done at once, so that it is done once, before others."""

    def is_quick(self, base: RewriteBase) -> bool:
        """Whether what it finds is written however little time there is: its search is complete, and takes no time."""

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        """Propose what the base may become; first, with an empty way, who proposes.

        The work done is told to ``run``, in units counted and never timed, and so is the best so far. Nothing that is
        proposed depends on a limit, a budget or the clock; ``run`` says when the user wants no more.
        """
