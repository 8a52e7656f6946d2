"""Orders and addresses for a module as it is read: the part of a pipeline that rewrites repeat for what they made."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence
from typing import Literal

import msgspec

from memsched.base.frozen import FrozenValue
from memsched.check.schedule import check_allocation, check_schedule
from memsched.commands.failures import Failures
from memsched.commands.optimize.ledger import Ledger
from memsched.formats.module import FormatName, Module
from memsched.graph.liveness import Storage
from memsched.graph.model import Allocation
from memsched.plan.orders import (
    BASELINES,
    SMALLER_ARENA,
    baselines,
    known_orders,
    plan_allocation,
    plan_module,
    plan_together,
)
from memsched.plan.values import TargetModule
from memsched.runtimes.graph_plan import GraphPlan
from memsched.runtimes.known import check_runner, check_target, runtime_of, usual_offer
from memsched.runtimes.runtime import AS_TOLD, Opening, OrderChoice, Requirement, SearchAllowance
from memsched.search.progress import Progress
from memsched.search.run import Run
from memsched.solve.joint.orders import OrderCandidate, vary
from memsched.targets.load import default_target, load_target
from memsched.targets.model import BudgetFor, Target

__all__ = [
    "GivenUpError",
    "ModulePlan",
    "Request",
    "as_stored",
    "place",
    "prepare",
    "prepare_again",
    "required_as_given",
    "required_for",
    "rules_of",
    "target_named",
]

_ORDER_SHARE = 0.6
"""Share of the work, and of a rewritten model's time, for its order: it was nearly made in that order already."""


_MOST_ORDERS, _FEW_ORDERS = 40, 8
"""Orders of one peak that a runtime's planner is asked about: of a model as it is, and of one that was rewritten."""

_WORK_PER_OP = 1e-4
"""What `Limits.effort` is charged per op for planning an order."""


class GivenUpError(Exception):
    """Optional work was abandoned because the run's time is up."""


class Request(FrozenValue, frozen=True):
    """How orders and addresses are to be found.

    Attributes:
        run: The whole run, or the part of it that may be taken.
        opening: How the file that is written will be opened.
        end: Of the whole run, on its clock.
        optional: What is asked for can be done without: it is given up at the end of the run.
        needed: It is optional, but not given up: what was found is placed at the end of the run, too, in the order in
            which it was made and at the addresses found without a search.
        slowdown: Time that rewrites may cost, in percent of the model's, where the target has a price of an operator:
            each is then weighed in, too; None: memory and multiply-accumulates alone decide.
        free_ops: So many operators more cost neither time nor memory of the process: where all is small, nothing is
            slow.
        failures: The candidates of the whole run that failed.
        ledger: What the whole run tried.
    """

    run: Run
    solver: str = "auto"
    partitions: int | Literal["auto"] = "auto"
    opening: Opening = AS_TOLD
    end: float = math.inf
    optional: bool = False
    needed: bool = False
    slowdown: float | None = None
    free_ops: int = 150
    failures: Failures = msgspec.field(default_factory=Failures)
    ledger: Ledger = msgspec.field(default_factory=Ledger)

    def stopped(self) -> bool:
        """Whether the search was asked to end."""
        return self.run.stop()

    def over(self) -> bool:
        """Whether nothing more may be started: the search was asked to end, or its time or its work is used up."""
        return self.stopped() or self.remaining() <= 0 or self.run.effort() == 0

    def remaining(self) -> float:
        """Return the seconds that are left of the whole run; may be infinite."""
        return self.run.remaining()

    def late(self) -> bool:
        """Whether the run's time is up."""
        return self.run.clock() >= self.end

    def seconds(self) -> float | None:
        """Return the seconds that are left, or the work as if it were seconds; None for no limit."""
        return self.run.effort() if self.run.limits.time_limit is None else self.remaining()

    def allowance(self) -> SearchAllowance:
        """Return how long the runtime may look for orders that suit it."""
        return SearchAllowance(self.run, self.seconds(), self.solver != "file")

    def deadline(self) -> float:
        """Return when the time of this request is up, on its clock; may be infinite."""
        return self.run.deadline()

    def effort(self) -> float | None:
        """Return the work that may be done whatever the time, as `Limits.effort`: none in a run without any time."""
        return 0.0 if self.end <= self.run.started else self.run.effort()

    def as_optional(self, *, needed: bool = False) -> Request:
        """Return a request for a rewritten model, which can be done without: it stops at the end of the whole run, too.

        What is proven of its orders is proven of no other rewrite, so progress is told without a bound.

        Args:
            needed: It is the first of its kind, and done as well as the time permits.
        """

        def told(progress: Progress) -> None:
            self.run.on_progress(dataclasses.replace(progress, lower_bound=None))

        run = dataclasses.replace(self.run, on_progress=told, stop=lambda: self.run.stop() or self.late())
        return dataclasses.replace(self, optional=True, needed=needed, run=run)

    def go_on(self) -> None:
        """Return, unless the result is optional and the time is up; when a user ends the run, the best so far is kept.

        Raises:
            GivenUpError: It can be done without, and the run's time is up.
        """
        if self.optional and not self.needed and self.late():
            raise GivenUpError

    def within(self, share: float) -> Request:
        """Return a request that may take this share of what is left of the time, and of the limit of work."""
        return dataclasses.replace(self, run=self.run.within(share))

    def taking(self, work: float) -> Request:
        """Return a request that may take so much of the work that is left, and of the time as much as this one."""
        return dataclasses.replace(self, run=self.run.taking(work))

    def rest(self) -> Request:
        """Return a request whose shares are of the work that is left; of time they always are."""
        return dataclasses.replace(self, run=self.run.rest())


class ModulePlan(FrozenValue, frozen=True):
    """Orders for all graphs of a module, and addresses for the main one.

    Attributes:
        chosen: The orders that the runtime was led to, where it takes others than those found.
        requirement: What a budget is compared with: what the file takes by its runtime's own planner, where that
            is known (TensorFlow Lite Micro, LiteRT, ONNX Runtime by the order guarantee); the arena elsewhere.
    """

    plans: tuple[GraphPlan, ...]
    allocation: Allocation
    chosen: OrderChoice | None
    requirement: Requirement

    @property
    def required(self) -> int:
        """What is required in all, bytes."""
        return self.requirement.total


def rules_of(module: Module, name: str | None, budget_for: BudgetFor | None, *, verify: bool = False) -> Target:
    """Return the target of that name, by default of the format's runtime, with what a budget is for.

    Args:
        verify: A file for it is to be run here.

    Raises:
        UsageError: Its runtime loads no such files.
        RuntimeUnavailableError: Nothing that runs them is installed, and ``verify`` says that it must be.
    """
    target = target_named(name or usual_offer(module).target, module.format, module.path)
    if verify:
        check_runner(module, target)
    return runtime_of(module, target).memory_plans.budgeted(budget_for)


def target_named(name: str | None, form: FormatName, path: str) -> Target:
    """Return the target of that name for a file of a format, by default that of the format's runtime.

    Raises:
        UsageError: Its runtime loads no such files.
    """
    target = load_target(name or default_target(form))
    check_target(path, form, target)
    return target


def prepare(module: Module, target: Target, *, in_place: bool) -> TargetModule:
    """Return ``module`` under the rules of ``target``, with what the orders cost that need no search."""
    if not in_place:
        target = msgspec.structs.replace(target, in_place=())
    lowered = runtime_of(module, target).lower(module)
    return TargetModule(target, lowered, baselines(module, lowered, target, BASELINES), in_place)


def required_as_given(module: Module, prepared: TargetModule, opening: Opening) -> Requirement:
    """Return what the file as given requires, as `ModulePlan.requirement` has it for a result."""
    given = prepared.baselines["file_order"]
    return runtime_of(module, prepared.target, opening).requires_as_given(module, prepared.lowered, given)


def prepare_again(module: Module, given: TargetModule, request: Request) -> TargetModule:
    """Return what a model was rewritten to under the rules for the model as ``given``.

    Only the order in which it was made is of interest: what others cost is told of the model as given.

    Raises:
        GivenUpError: See `Request.go_on`.
    """
    lowered = runtime_of(module, given.target).lower(module)
    request.go_on()
    known = baselines(module, lowered, given.target, ("file_order",), stop=request.run.stop)
    request.go_on()
    return dataclasses.replace(given, lowered=lowered, baselines=known)


def place(module: Module, prepared: TargetModule, request: Request, stored: ModulePlan | None = None) -> ModulePlan:
    """Return checked orders and addresses for ``module``.

    Args:
        stored: What `as_stored` returns, where that is known.

    Raises:
        GivenUpError: See `Request.go_on`.
    """
    request.go_on()
    if request.needed and request.late():
        request = dataclasses.replace(request, solver="file")
    run = request.run
    left = run.remaining() * (_ORDER_SHARE if request.optional else 1.0)
    plans = plan_module(
        module,
        prepared.lowered,
        run.within(_ORDER_SHARE).rest() if run.limits.time_limit is None else run.anew(left),
        solver=request.solver,
        partitions=request.partitions,
        known=prepared.baselines["file_order"],
    )
    # From here on, stopping ends it quickly, and what was found so far would be lost.
    runtime = runtime_of(module, prepared.target, request.opening)
    chosen = runtime.choose(module, prepared.lowered, plans, request.allowance())
    plans = chosen.plans if chosen else plans
    # A runtime that chooses orders takes no addresses.
    main, allocation = plan_together(
        plans[0],
        prepared.baselines,
        prepared.target.alignment_bytes,
        run,
        reorder=chosen is None and request.solver != "file",
    )
    plans = (main, *plans[1:])
    if chosen is not None:
        return ModulePlan(plans, allocation, chosen, Requirement(chosen.required))
    if runtime.traits.figure is None:
        required = required_for(module, prepared, plans, allocation, request)
        return ModulePlan(plans, allocation, None, required or Requirement(allocation.arena))
    placed = _by_planner(module, prepared, plans, allocation, request)
    if request.solver == "file":
        return placed
    return _never_worse(placed, stored or as_stored(module, prepared, request))


def required_for(
    module: Module, prepared: TargetModule, plans: Sequence[GraphPlan], allocation: Allocation, request: Request
) -> Requirement | None:
    """Return what a file in the orders of ``plans`` requires; None where its runtime could not load it."""
    allowance = dataclasses.replace(request.allowance(), reorder=True)
    runtime = runtime_of(module, prepared.target, request.opening)
    return runtime.requires(module, prepared.lowered, plans, allocation, allowance)


def _by_planner(
    module: Module, prepared: TargetModule, plans: tuple[GraphPlan, ...], allocation: Allocation, request: Request
) -> ModulePlan:
    """Return ``plans`` with what their file requires, or a known order where the runtime's planner makes less of it."""
    required = required_for(module, prepared, plans, allocation, request)
    if required is None:
        return ModulePlan(plans, allocation, None, Requirement(allocation.arena))
    best = ModulePlan(plans, allocation, None, required)
    if required.total - required.beside <= allocation.arena or request.solver == "file":
        return best
    main = plans[0]
    for schedule, packed in known_orders(main, prepared.baselines, prepared.target.alignment_bytes):
        if request.over():
            break
        plan = dataclasses.replace(main, schedule=schedule, checked=check_schedule(main.graph, schedule))
        others = (plan, *plans[1:])
        required = required_for(module, prepared, others, packed, request)
        if required is not None and required.rank < best.requirement.rank:
            check_allocation(plan.graph, schedule, packed)
            best = ModulePlan(others, packed, None, required)
    return _varied(module, prepared, best, request)


def _varied(module: Module, prepared: TargetModule, best: ModulePlan, request: Request) -> ModulePlan:
    """Return the plan that its runtime's planner makes least of, among orders near ``best`` of no higher peak.

    How well the planner packs an order is as good as chance, so a few are tried, until it loses nothing.
    """
    main, alignment = best.plans[0], prepared.target.alignment_bytes
    storage, rng = Storage.of(main.graph), random.Random(request.run.limits.seed)  # noqa: S311
    limit, near = main.schedule.peak, OrderCandidate.of(storage, main.schedule.order)
    for _ in range(_FEW_ORDERS if request.optional else _MOST_ORDERS):
        if request.over() or best.requirement.total - best.requirement.beside <= limit:
            break
        request.run.spend(len(main.graph.ops) * _WORK_PER_OP)
        other = vary(storage, near, limit, rng, ())
        if other is None:
            continue
        schedule = dataclasses.replace(
            main.schedule, order=other.order, in_place=other.in_place(storage), peak=other.peak
        )
        plan = dataclasses.replace(main, schedule=schedule, checked=check_schedule(main.graph, schedule))
        packed = plan_allocation(plan, prepared.baselines["file_order"], alignment)
        others = (plan, *best.plans[1:])
        required = required_for(module, prepared, others, packed, request)
        if required is not None and required.rank <= best.requirement.rank:
            near = other
            if required.rank < best.requirement.rank:
                best = ModulePlan(others, packed, None, required)
    return best


def as_stored(module: Module, prepared: TargetModule, request: Request) -> ModulePlan:
    """Return ``module`` in the order in which its file stores it, at addresses found without a search."""
    known = prepared.baselines["file_order"]
    plans = plan_module(module, prepared.lowered, Run(request.run.limits), solver="file", known=known)
    allocation = plan_allocation(plans[0], known, prepared.target.alignment_bytes)
    allowance = dataclasses.replace(request.allowance(), reorder=False)
    runtime = runtime_of(module, prepared.target, request.opening)
    required = runtime.requires(module, prepared.lowered, plans, allocation, allowance)
    return ModulePlan(plans, allocation, None, required or Requirement(allocation.arena))


def _never_worse(found: ModulePlan, stored: ModulePlan) -> ModulePlan:
    """Return ``found``, or the file's own order where that requires less, with what was proven of all orders."""
    if stored.requirement.rank >= found.requirement.rank:
        return found
    plans = []
    for one, proven in zip(stored.plans, found.plans, strict=True):
        schedule = dataclasses.replace(
            proven.schedule,
            order=one.schedule.order,
            in_place=one.schedule.in_place,
            peak=one.schedule.peak,
            status="optimal" if one.schedule.peak == proven.schedule.lower_bound else "feasible",
            method=f"file order{SMALLER_ARENA}" if one.schedule.peak > proven.schedule.peak else one.schedule.method,
        )
        plans.append(dataclasses.replace(one, schedule=schedule, checked=check_schedule(one.graph, schedule)))
    return dataclasses.replace(stored, plans=tuple(plans))
