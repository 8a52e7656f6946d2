"""Which order to write for ONNX Runtime, by what makes it keep an order, and what it will cost there.

The scheduler's order has the least peak of liveness. What a session really requests depends on two more things: whose
order it takes, and whether it hands dead buffers on. A file is changed only where the predicted peak falls, so that
no session needs more than one without options needs for the file as given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from memsched.base.frozen import FrozenValue
from memsched.check.schedule import check_schedule
from memsched.formats.module import Body, Module, OrderGuarantee
from memsched.graph.dag import predecessors, successors_of
from memsched.graph.liveness import evaluate
from memsched.graph.model import Graph
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph, bodies_by_parent, bottom_up, with_bodies
from memsched.runtimes.onnxruntime.default_rule import best_default_order
from memsched.runtimes.onnxruntime.orders import default_order, priority_order, walk_backwards
from memsched.runtimes.onnxruntime.reuse import PlannerGraph, ReuseProfile, simulate_reuse
from memsched.runtimes.onnxruntime.reuse_search import least_with_reuse
from memsched.runtimes.output import Guarantee
from memsched.search.pace import MachinePace
from memsched.solve.schedule.orders import ORDERS

__all__ = [
    "GuaranteePlans",
    "PredictedPeaks",
    "choose",
    "effort_for",
    "plans_as_stored",
    "required_as_stored",
    "work_of",
]

_EFFORT = 200_000

_Order = tuple[int, ...]


class PredictedPeaks(FrozenValue, frozen=True):
    """Peaks of the main graph as ONNX Runtime requests the bytes, with workspaces.

    Attributes:
        given: A session without options on the file as given.
        none: A session without options on the file that "none" writes.
        default: A session without options on the file that "default" writes.
        session: The order of "session", but dead buffers are handed on.
        session_without_reuse: The order of "session" with all options that the report lists.
        pins: A session without options on the file that "pins" writes.
        before_requested: What the verification should measure for the file as given: without workspaces.
        after_requested: The same for the file written.
    """

    given: int
    none: int
    default: int
    session: int
    session_without_reuse: int
    pins: int
    before_requested: int
    after_requested: int

    def peaks(self) -> dict[str, int]:
        """Return the peaks by guarantee, as the report shows them."""
        names = ("given", "none", "default", "session", "session_without_reuse", "pins")
        return {name: getattr(self, name) for name in names}


class GuaranteePlans(FrozenValue, frozen=True):
    """Plans for one guarantee.

    Attributes:
        keep: Nothing better was found for it: the file stays as it is.
        required: Bytes that the session needs which the guarantee promises: with the options that the report lists
            for "session", without any for the others.
    """

    plans: tuple[GraphPlan, ...]
    predicted: PredictedPeaks
    keep: bool
    required: int

    def compared_with(self, given: GuaranteePlans) -> GuaranteePlans:
        """Return this choice for a rewritten model, compared with what the model as given needs."""
        before = given.predicted
        predicted = replace(self.predicted, given=before.given, before_requested=before.before_requested)
        return replace(self, predicted=predicted)

    def describe(self, guarantee: Guarantee) -> Guarantee:
        """Return ``guarantee`` with what was predicted, and the order that runs where the file stores another."""
        main = self.plans[0]
        names = tuple(main.graph.ops[op].name for op in main.schedule.order)
        return replace(
            guarantee,
            predicted=self.predicted.peaks(),
            requested=(self.predicted.before_requested, self.predicted.after_requested),
            executed=None if main.stored_order == main.schedule.order else names,
        )


def effort_for(seconds: float | None) -> int:
    """Return the ops to simulate in the ``seconds`` that are left; None for no limit."""
    return _EFFORT if seconds is None else min(_EFFORT, int(seconds * MachinePace.SESSION_OPS))


def work_of(effort: int, guarantee: OrderGuarantee) -> float:
    """Return in seconds of an idle machine what a search for a guarantee takes that may simulate so many ops."""
    return effort / MachinePace.SESSION_OPS if guarantee in _WITHOUT_OPTIONS else 0.0


def choose(
    module: Module,
    lowered: Sequence[LoweredGraph],
    plans: Sequence[GraphPlan],
    guarantee: OrderGuarantee,
    *,
    reorder: bool = True,
    effort: int = _EFFORT,
    seed: int = 0,
    stop: Callable[[], bool] | None = None,
) -> GuaranteePlans:
    """Return the plans to write for ``guarantee``, and what each guarantee would give.

    Args:
        plans: The scheduler's, for the graphs of ``module``.
        reorder: Whether any order but the file's may be written.
        effort: Ops to simulate in the search for the guarantee that was requested; the others get what is found without
            one.
        stop: Polled often; True ends the search with the best order so far.

    Raises:
        InternalError: The checker rejects a plan.
    """
    run = _GuaranteeSearch(module, guarantee, reorder, effort, seed, stop or (lambda: False))
    for index in bottom_up(module):
        run.graph(index, lowered[index], plans[index])
    without_options = guarantee in _WITHOUT_OPTIONS
    peaks = {way: run.peaks[way][0] for way in _WAYS}
    # Without a better order the pins would cost time, and another file order would change nothing.
    worse = peaks[guarantee] >= peaks["given"] or run.requested[guarantee][0] > run.requested["given"][0]
    keep = without_options and worse and (reorder or guarantee == "default")
    if keep:
        peaks[guarantee] = peaks["given"]
    predicted = PredictedPeaks(
        **{way: peaks[way] for way in _SHOWN},
        before_requested=run.requested["given" if without_options else "file"][0],
        after_requested=run.requested[("given" if keep else guarantee) if without_options else "written"][0],
    )
    required = peaks["session_without_reuse" if guarantee == "session" else guarantee]
    return GuaranteePlans(run.plans("given" if keep else guarantee), predicted, keep, required)


def required_as_stored(
    module: Module,
    lowered: Sequence[LoweredGraph],
    guarantee: OrderGuarantee,
    orders: Sequence[_Order] | None = None,
) -> int:
    """Return the bytes that the session which ``guarantee`` promises needs for the file as it is.

    It is `GuaranteePlans.required` of that file.

    That session has the options that the report lists for "session", and none for the others.

    Args:
        orders: Per graph another order in which the file stores its ops; None for the module's own.
    """
    peaks: dict[int, int] = {}
    all_bodies = bodies_by_parent(module)
    for index in bottom_up(module):
        graph, with_options = lowered[index].graph, guarantee == "session"
        planned = PlannerGraph.of(graph, lowered[index].storage)
        bodies = all_bodies.get(index, ())
        stored = range(len(graph.ops)) if orders is None else orders[index]
        order = priority_order(graph, stored) if with_options else _by_default(graph, stored)
        peaks[index] = simulate_reuse(_with_bodies(planned, bodies, peaks), order, reuse=not with_options).peak
    return peaks[0]


def _by_default(graph: Graph, stored: Sequence[int]) -> _Order:
    """Return what a session without options executes of a graph that a file stores in some order."""
    preds = predecessors(graph)
    return walk_backwards(preds, successors_of(preds), stored)


def plans_as_stored(
    module: Module, lowered: Sequence[LoweredGraph], plans: Sequence[GraphPlan], orders: Sequence[_Order]
) -> tuple[GraphPlan, ...]:
    """Return checked plans of what a session without options executes of a file that stores its ops in ``orders``.

    Args:
        plans: Of the graphs of ``module``, in any order.
    """
    runs = [_by_default(one.graph, stored) for one, stored in zip(lowered, orders, strict=True)]
    return _in_orders(module, tuple(zip(lowered, plans, strict=True)), runs, orders)


_SHOWN = ("given", "none", "default", "session", "session_without_reuse", "pins")
_WAYS = (*_SHOWN, "file", "written")
"""Ways to run a module. "file" is the given file's order, "written" that of the file that "session" or "none" writes,
both with the options that the report lists."""

_WITHOUT_REUSE = frozenset({"session_without_reuse", "file", "written"})
_WITHOUT_OPTIONS = frozenset({"pins", "default"})


class _Orders(FrozenValue, frozen=True):
    """Per way the order that runs, and per guarantee the one to store in the file."""

    runs: Mapping[str, _Order]
    stored: Mapping[str, _Order]


class _GuaranteeSearch:
    """One call's state: per way and graph, the peak with and without workspaces."""

    def __init__(
        self,
        module: Module,
        guarantee: OrderGuarantee,
        reorder: bool,
        effort: int,
        seed: int,
        stop: Callable[[], bool],
    ) -> None:
        self.module, self.guarantee, self.reorder = module, guarantee, reorder
        self.bodies = bodies_by_parent(module)
        self.effort, self.seed, self.stop = effort, seed, stop
        self.peaks: dict[str, dict[int, int]] = {way: {} for way in _WAYS}
        self.requested: dict[str, dict[int, int]] = {way: {} for way in _WAYS}
        self.orders: dict[int, _Orders] = {}
        self.given: dict[int, tuple[LoweredGraph, GraphPlan]] = {}

    def graph(self, index: int, lowered: LoweredGraph, plan: GraphPlan) -> None:
        """Find the orders of one graph, after those that its ops execute, and what they cost."""
        planned = PlannerGraph.of(lowered.graph, lowered.storage)
        bodies = self.bodies.get(index, ())
        orders = self._orders(lowered, plan, _with_bodies(planned, bodies, self.peaks["given"]))
        bare = replace(planned, storage=replace(planned.storage, workspace=(0,) * len(lowered.graph.ops)))
        for way in _WAYS:
            reuse, order = way not in _WITHOUT_REUSE, orders.runs[way]
            for figures, alone in ((self.peaks[way], planned), (self.requested[way], bare)):
                figures[index] = simulate_reuse(_with_bodies(alone, bodies, figures), order, reuse=reuse).peak
        self.orders[index] = orders
        self.given[index] = (lowered, plan)

    def _orders(self, lowered: LoweredGraph, plan: GraphPlan, planned: PlannerGraph) -> _Orders:
        graph, storage = lowered.graph, lowered.storage
        file = tuple(range(len(graph.ops)))
        best, given = plan.schedule.order, default_order(graph)
        session = none = pins = best
        default, stored = given, file
        if self.reorder:
            candidates = list(dict.fromkeys([best, given, *(rule(storage) for rule in ORDERS.values())]))
            session = _for_session(lowered, planned, [best, given, file])
            none = _for_plain_sessions(lowered, planned, candidates)
            found = best_default_order(planned, candidates, **self._limits("default", plan))
            default, stored = found.executed, found.file_order
            pins = least_with_reuse(planned, [*candidates, default], **self._limits("pins", plan)).order
        by_file = priority_order(graph, session)
        runs = {
            "given": given,
            "none": walk_backwards(storage.preds, storage.succs, none),
            "default": default,
            "session": by_file,
            "session_without_reuse": by_file,
            "pins": pins,
            "file": priority_order(graph),
            "written": priority_order(graph, none) if self.guarantee == "none" else by_file,
        }
        return _Orders(runs, {"given": file, "none": none, "default": stored, "session": session, "pins": pins})

    def _limits(self, guarantee: OrderGuarantee, plan: GraphPlan) -> _GuaranteeLimits:
        effort = self.effort if guarantee == self.guarantee else 0
        return {"lower_bound": plan.schedule.lower_bound, "effort": effort, "seed": self.seed, "stop": self.stop}

    def plans(self, guarantee: str) -> tuple[GraphPlan, ...]:
        """Return the checked plans: what runs, and what is stored for it."""
        graphs = range(len(self.module.graphs))
        stored = [self.orders[index].stored[guarantee] for index in graphs]
        by_rule = guarantee in {"default", "given"}
        runs = [self.orders[index].runs[guarantee] for index in graphs] if by_rule else stored
        return _in_orders(self.module, [self.given[index] for index in graphs], runs, stored)


class _GuaranteeLimits(TypedDict):
    lower_bound: int
    effort: int
    seed: int
    stop: Callable[[], bool]


def _in_orders(
    module: Module,
    given: Sequence[tuple[LoweredGraph, GraphPlan]],
    runs: Sequence[_Order],
    stored: Sequence[_Order],
) -> tuple[GraphPlan, ...]:
    """Return the plans of all graphs in the orders that run."""
    result: dict[int, GraphPlan] = {}
    peaks: dict[int, int] = {}
    all_bodies = bodies_by_parent(module)
    for index in bottom_up(module):
        order, (lowered, plan) = runs[index], given[index]
        bodies = all_bodies.get(index, ())
        if order != plan.schedule.order or any(
            peaks[body.graph] != given[body.graph][1].checked.peak for body in bodies
        ):
            plan = _planned(plan, with_bodies(lowered, bodies, peaks), order)
        result[index] = replace(plan, stored=stored[index])
        peaks[index] = plan.checked.peak
    return tuple(result[index] for index in range(len(result)))


def _planned(plan: GraphPlan, lowered: LoweredGraph, order: _Order) -> GraphPlan:
    """Return ``plan`` with another order; what was proven about every order still holds."""
    profile = evaluate(lowered.storage, order)
    schedule = replace(
        plan.schedule,
        order=order,
        in_place=profile.in_place(lowered.storage, order),
        peak=profile.peak,
        status="optimal" if profile.peak == plan.schedule.lower_bound else "feasible",
        method="chosen for the order guarantee",
    )
    return replace(plan, graph=lowered.graph, schedule=schedule, checked=check_schedule(lowered.graph, schedule))


def _with_bodies(planned: PlannerGraph, bodies: Sequence[Body], peaks: Mapping[int, int]) -> PlannerGraph:
    """Return ``planned`` with the largest peak of each op's bodies added to its workspace."""
    if not bodies:
        return planned
    largest: dict[int, int] = {}
    for body in bodies:
        largest[body.op] = max(largest.get(body.op, 0), peaks[body.graph] - body.handed)
    workspace = tuple(own + largest.get(op, 0) for op, own in enumerate(planned.storage.workspace))
    return replace(planned, storage=replace(planned.storage, workspace=workspace))


def _by_file(lowered: LoweredGraph, planned: PlannerGraph, order: _Order) -> int:
    """Return the peak of a file stored in ``order`` with the options that the report lists."""
    return simulate_reuse(planned, priority_order(lowered.graph, order), reuse=False).peak


def _for_session(lowered: LoweredGraph, planned: PlannerGraph, candidates: Sequence[_Order]) -> _Order:
    """Return the order of least peak with the listed options, of those whose measurable peak does not rise.

    What a profile shows leaves workspaces out, so it may rise although less is needed: users would see that. No order
    needs more than the file's own.
    """
    storage = lowered.storage
    file = tuple(range(len(storage.preds)))
    measured = simulate_reuse(planned, walk_backwards(storage.preds, storage.succs, file)).requested_peak
    most = _by_file(lowered, planned, file)

    def rank(order: _Order) -> tuple[bool, bool, int]:
        found = simulate_reuse(planned, priority_order(lowered.graph, order), reuse=False)
        return found.peak > most, found.requested_peak > measured, found.peak

    return min(candidates, key=rank)


def _for_plain_sessions(lowered: LoweredGraph, planned: PlannerGraph, candidates: Sequence[_Order]) -> _Order:
    """Return the file order with the least peak among those that cost sessions without options nothing.

    They ignore the file's order, but what they make of another one may be worse than what they made of the given one.
    """
    storage = lowered.storage
    file = tuple(range(len(storage.preds)))

    def plain(order: _Order) -> ReuseProfile:
        return simulate_reuse(planned, walk_backwards(storage.preds, storage.succs, order))

    given, best = plain(file), file
    least = _by_file(lowered, planned, file)
    for order in candidates:
        peak = _by_file(lowered, planned, order)
        if peak < least:
            found = plain(order)
            # Neither what is needed nor what can be measured may rise.
            if found.peak <= given.peak and found.requested_peak <= given.requested_peak:
                best, least = order, peak
    return best
