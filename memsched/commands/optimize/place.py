"""Orders and addresses for a module as it is read: the part of a pipeline that rewrites repeat for what they made."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from memsched.check.schedule import check_allocation, check_schedule
from memsched.formats.module import Module, OrderGuarantee
from memsched.graph.model import Allocation
from memsched.planning.orders import (
    BASELINES,
    SMALLER_ARENA,
    baselines,
    known_orders,
    plan_allocation,
    plan_module,
    plan_together,
)
from memsched.planning.values import Prepared
from memsched.runtimes.graph_plan import GraphPlan, Lowered, lower_module
from memsched.runtimes.litert import requirement
from memsched.runtimes.onnxruntime import guarantee as onnxruntime_plan
from memsched.runtimes.tflm import arena as tflm
from memsched.search.limits import Limits
from memsched.search.progress import Progress
from memsched.targets.model import Target

__all__ = [
    "GivenUpError",
    "Placed",
    "Request",
    "as_stored",
    "place",
    "planner_is_known",
    "prepare",
    "prepare_again",
    "required_as_given",
    "required_for",
]

_ORDER_SHARE = 0.6
"""Of the time for a rewritten model, for its order: one that nearly is the order in which it was made already."""


class GivenUpError(Exception):
    """Work that can be done without was left, as the run's time is up."""


@dataclass(frozen=True, slots=True)
class Request:
    """How orders and addresses are to be found.

    Attributes:
        started: When the run began, on the clock of `time.monotonic`.
        limits: Of the whole run, or of the part of it that may be taken.
        tflm_plan: A memory plan of our own is to be written for TensorFlow Lite Micro.
        end: Of the whole run, on that clock.
        optional: What is asked for can be done without: it is given up at the end of the run.
        needed: It is optional, but not given up: what was found is placed at the end of the run, too, in the order in
            which it was made and at the addresses that are had without a search.
    """

    started: float
    limits: Limits
    solver: str = "auto"
    partitions: int | Literal["auto"] = "auto"
    guarantee: OrderGuarantee = "session"
    on_progress: Callable[[Progress], None] | None = None
    stop: Callable[[], bool] | None = None
    tflm_plan: bool = False
    end: float = math.inf
    optional: bool = False
    needed: bool = False

    def stopped(self) -> bool:
        """Whether the search was asked to end."""
        return self.stop is not None and self.stop()

    def over(self) -> bool:
        """Whether nothing more may be begun: the search was asked to end, or its time is up."""
        return self.stopped() or self.remaining() <= 0

    def remaining(self) -> float:
        """Return the seconds that are left of the whole run; may be infinite."""
        return self.limits.remaining(self.started, time.monotonic())

    def late(self) -> bool:
        """Whether the run's time is up."""
        return time.monotonic() >= self.end

    def seconds(self) -> float | None:
        """Return the seconds that are left, or the work as if it were seconds; None for no limit."""
        return self.limits.effort if self.limits.time_limit is None else self.remaining()

    def deadline(self) -> float:
        """Return when the time of this request is up, on the clock of `time.monotonic`; may be infinite."""
        return self.limits.deadline(self.started)

    def effort(self) -> float | None:
        """Return the work that may be done whatever the time, as `Limits.effort`: none in a run without any time."""
        return 0.0 if self.end <= self.started else self.limits.effort

    def as_optional(self, *, needed: bool = False) -> Request:
        """Return a request for a rewritten model, which can be done without: it stops at the end of the whole run, too.

        What is proven of its orders is proven of no other rewrite, so progress is told without a bound.

        Args:
            needed: It is the first of its kind, and done as well as the time permits.
        """
        asked, tell = self.stop or (lambda: False), self.on_progress

        def told(progress: Progress) -> None:
            if tell:
                tell(dataclasses.replace(progress, lower_bound=None))

        return dataclasses.replace(
            self, optional=True, needed=needed, on_progress=told, stop=lambda: asked() or self.late()
        )

    def go_on(self) -> None:
        """Pass as long as what was asked for is wanted: where only a user ends it, the best so far is, and is quick.

        Raises:
            GivenUpError: It can be done without, and the run's time is up.
        """
        if self.optional and not self.needed and self.late():
            raise GivenUpError

    def within(self, share: float) -> Request:
        """Return a request that may take this share of what is left of the time, and of the limit of work."""
        if self.limits.time_limit is None:
            if self.limits.effort is None:
                return self
            return dataclasses.replace(self, limits=dataclasses.replace(self.limits, effort=share * self.limits.effort))
        end = time.monotonic() - self.started + self.remaining() * share
        return dataclasses.replace(self, limits=dataclasses.replace(self.limits, time_limit=end))


@dataclass(frozen=True, slots=True)
class Placed:
    """Orders for all graphs of a module, and addresses for the main one.

    Attributes:
        chosen: What ONNX Runtime's planner makes of the orders, where that is known.
        required: Bytes that a budget is compared with: what the file takes by its runtime's own planner, where that
            is known (TensorFlow Lite Micro, LiteRT, ONNX Runtime by the order guarantee); the arena elsewhere.
    """

    plans: tuple[GraphPlan, ...]
    allocation: Allocation
    chosen: onnxruntime_plan.Chosen | None
    required: int


def prepare(module: Module, target: Target, *, in_place: bool) -> Prepared:
    """Return ``module`` under the rules of ``target``, with what the orders cost that need no search."""
    if not in_place:
        target = msgspec.structs.replace(target, in_place=())
    lowered = _lowered(module, target)
    return Prepared(target, lowered, baselines(module, lowered, target, BASELINES), in_place)


def required_as_given(module: Module, prepared: Prepared, guarantee: OrderGuarantee = "session") -> int:
    """Return the bytes that the file as given requires: the figure for it that `Placed.required` is for a result."""
    given = prepared.baselines["file_order"]
    if onnxruntime_plan.applies(module, prepared.target, guarantee):
        return onnxruntime_plan.required_as_stored(module, prepared.lowered, guarantee)
    if requirement.applies(module, prepared.target):
        return requirement.required_bytes(given.graph, given.schedule, given.allocation)
    head = tflm.analyzed(module).file_head if tflm.applies(module, prepared.target) else None
    return given.allocation.arena if head is None else head


def prepare_again(module: Module, given: Prepared, request: Request) -> Prepared:
    """Return what a model was rewritten to under the rules for the model as ``given``.

    Only the order in which it was made is of interest: what others cost is told of the model as given.

    Raises:
        GivenUpError: See `Request.go_on`.
    """
    lowered = _lowered(module, given.target)
    request.go_on()
    known = baselines(module, lowered, given.target, ("file_order",), stop=request.stop)
    request.go_on()
    return dataclasses.replace(given, lowered=lowered, baselines=known)


def _lowered(module: Module, target: Target) -> tuple[Lowered, ...]:
    lowered = lower_module(module, target)
    return tflm.with_scratch(module, lowered) if tflm.applies(module, target) else lowered


def place(module: Module, prepared: Prepared, request: Request) -> Placed:
    """Return checked orders and addresses for ``module``.

    Raises:
        GivenUpError: See `Request.go_on`.
    """
    request.go_on()
    if request.needed and request.late():
        request = dataclasses.replace(request, solver="file")
    left = request.remaining() * (_ORDER_SHARE if request.optional else 1.0)
    plans = plan_module(
        module,
        prepared.lowered,
        dataclasses.replace(request.limits, time_limit=None if request.limits.time_limit is None else left),
        solver=request.solver,
        # Cutting the graph is not counted as work, and a rewritten graph is made in a good order.
        partitions=1 if request.optional and request.limits.time_limit is None else request.partitions,
        on_progress=request.on_progress,
        stop=request.stop,
    )
    # From here on stopping makes it quick, and what there is would be lost.
    chosen = _for_onnxruntime(module, prepared, plans, request)
    plans = chosen.plans if chosen else plans
    # ONNX Runtime's figures are those of the orders chosen for it, and it takes no addresses.
    main, allocation = plan_together(
        *(plans[0], prepared.baselines, prepared.target.alignment_bytes, request.limits),
        started=request.started,
        reorder=chosen is None and request.solver != "file",
        on_progress=request.on_progress,
        stop=request.stop,
    )
    if chosen is not None:
        return Placed((main, *plans[1:]), allocation, chosen, chosen.required)
    placed = Placed((main, *plans[1:]), allocation, None, allocation.arena)
    needs = _needs(module, prepared.target, request)
    if needs is None:
        return placed
    placed = _by_planner(prepared, placed, request, needs)
    return placed if request.solver == "file" else _never_worse(placed, as_stored(module, prepared, request))


def planner_is_known(module: Module, target: Target, guarantee: OrderGuarantee) -> bool:
    """Return whether the target's runtime lays tensors by a planner of its own, which is known here."""
    return (
        tflm.applies(module, target)
        or requirement.applies(module, target)
        or onnxruntime_plan.applies(module, target, guarantee)
    )


_Needs = Callable[[Sequence[GraphPlan], Allocation], int | None]
"""What tells the bytes that a runtime's own planner takes for the orders of all graphs; None where it takes none."""


def _needs(module: Module, target: Target, request: Request) -> _Needs | None:
    """Return what the runtime's own planner makes of orders, where that is known."""
    if tflm.applies(module, target):
        return lambda plans, _: tflm.required_bytes(module, plans, plan=request.tflm_plan)
    if requirement.applies(module, target):
        return lambda plans, allocation: requirement.required_bytes(plans[0].graph, plans[0].schedule, allocation)
    return None


def required_for(
    module: Module, prepared: Prepared, plans: Sequence[GraphPlan], allocation: Allocation, request: Request
) -> int | None:
    """Return the bytes that a file in the orders of ``plans`` requires; None where its runtime could not load it."""
    chosen = _for_onnxruntime(module, prepared, tuple(plans), dataclasses.replace(request, solver="auto"))
    if chosen is not None:
        return chosen.required
    needs = _needs(module, prepared.target, request)
    return allocation.arena if needs is None else needs(plans, allocation)


def _by_planner(prepared: Prepared, placed: Placed, request: Request, needs: _Needs) -> Placed:
    """Return ``placed`` with what its file requires, or a known order where the runtime's planner makes less of it."""
    required = needs(placed.plans, placed.allocation)
    if required is None:
        return placed
    best = dataclasses.replace(placed, required=required)
    if required <= placed.allocation.arena or request.solver == "file":
        return best
    main = placed.plans[0]
    for schedule, allocation in known_orders(main, prepared.baselines, prepared.target.alignment_bytes):
        if request.over():
            break
        plan = dataclasses.replace(main, schedule=schedule, checked=check_schedule(main.graph, schedule))
        plans = (plan, *placed.plans[1:])
        required = needs(plans, allocation)
        if required is not None and required < best.required:
            check_allocation(plan.graph, schedule, allocation)
            best = Placed(plans, allocation, placed.chosen, required)
    return best


def as_stored(module: Module, prepared: Prepared, request: Request) -> Placed:
    """Return ``module`` in the order in which its file stores it, at addresses that are had without a search."""
    plans = plan_module(module, prepared.lowered, request.limits, solver="file")
    allocation = plan_allocation(plans[0], prepared.baselines["file_order"], prepared.target.alignment_bytes)
    if onnxruntime_plan.applies(module, prepared.target, request.guarantee):
        required = onnxruntime_plan.required_as_stored(module, prepared.lowered, request.guarantee)
        return Placed(plans, allocation, None, required)
    needs = _needs(module, prepared.target, request)
    found = needs(plans, allocation) if needs is not None else None
    return Placed(plans, allocation, None, allocation.arena if found is None else found)


def _never_worse(found: Placed, stored: Placed) -> Placed:
    """Return ``found``, or the file's own order where that requires less, with what was proven of all orders."""
    if stored.required >= found.required:
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


def _for_onnxruntime(
    module: Module, prepared: Prepared, plans: tuple[GraphPlan, ...], request: Request
) -> onnxruntime_plan.Chosen | None:
    """Return what to write for the guarantee where ONNX Runtime's planner is known; None elsewhere."""
    if not onnxruntime_plan.applies(module, prepared.target, request.guarantee):
        return None
    return onnxruntime_plan.choose(
        module,
        prepared.lowered,
        plans,
        request.guarantee,
        reorder=request.solver != "file",
        effort=onnxruntime_plan.effort_for(request.seconds()),
        seed=request.limits.seed,
        stop=request.stop,
    )
