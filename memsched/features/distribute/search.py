"""The search for the plan of least latency: rules, the genetic search, dynamic programs; the fastest that fits wins."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.units import format_size
from memsched.features.distribute import shares as rules
from memsched.features.distribute.bounds import latency_bound
from memsched.features.distribute.choices import OpChoices, all_shares, few_shares
from memsched.features.distribute.fused import best_blocks
from memsched.features.distribute.genetic import Settings, evolve
from memsched.features.distribute.plan import Blocks, plan_in
from memsched.features.distribute.program import ProgramResult, choose
from memsched.features.distribute.refine import refined
from memsched.features.distribute.space import NoPlanFitsError, Space
from memsched.graph.distribution import Axis, Distribution, Share
from memsched.graph.model import Graph
from memsched.search.run import Run
from memsched.targets.cluster import Cluster

__all__ = ["METHODS", "Method", "by_rule", "improved", "search", "shares_in_order"]

Method = Literal["auto", "genetic", "exact", "even", "single"]
METHODS: tuple[Method, ...] = ("auto", "genetic", "exact", "even", "single")

_WIDTH = 32
"""States that the dynamic program over a few choices keeps; more of them find hardly anything better."""

_EXACT_CHAIN = (512, 20_000)
_EXACT_GRAPH = (16, 500)
"""For the exact method: choices per op and axis times devices, and states; for chains, and for branching graphs."""

_SMALLEST = "least memory"
"""The method of a plan that is looked for because no other fits."""

_LONGEST_BLOCK = 24
_FUSED = 3
"""Plans for which fused blocks are looked for."""

_PRICES = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""How dear weights are made until a plan fits: the price of a device's whole memory, in latencies of one device."""


def search(
    graph: Graph,
    cluster: Cluster,
    run: Run,
    *,
    method: Method = "auto",
    order: Sequence[int] | None = None,
    weights: Mapping[int, Mapping[int, int]] | None = None,
    refused: Collection[tuple[int, Axis]] = (),
    home: int = 0,
    fuse: bool = True,
    least_order: bool = False,
    start: Sequence[Share] = (),
) -> Distribution:
    """Return the fastest plan found that fits the memory of every device.

    Args:
        run: Says when to end with the best found so far.
        method: "auto": rules, the dynamic program, fused blocks and local search. "genetic": GenEFlow. "exact": the
            dynamic program over all shares (of bounded granularity on long axes), one op per step. "even" and
            "single": the best even split, the best device alone.
        order: The order of execution; None for the graph's own.
        weights: Per op the bytes of its constants by position, where the graph's shapes do not tell them.
        refused: As for `Space.of`.
        home: The device that gets the outputs.
        fuse: Permit "auto" blocks of ops without a synchronisation inside.
        least_order: Whether no order needs less memory than this one on one device, which proves what it needs there.
        start: Shares of a plan in any order; "genetic" has them in its first population.

    Raises:
        DistributionError: The network cannot be distributed.
        NoPlanFitsError: No plan found fits.
        UsageError: There is no device ``home``, or no such method.
    """
    if method not in METHODS:
        action = f"choose from {', '.join(METHODS)}"
        raise UsageError(f"there is no method '{method}'", code="option-choice", action=action)
    if not 0 <= home < len(cluster.devices):
        raise UsageError(
            f"device {home} cannot get the outputs: they are numbered from 0 to {len(cluster.devices) - 1}",
            code="no-such-device",
        )
    space = Space.of(graph, order, weights, refused)
    task = _SearchGoal(space, cluster, home, run, least_order, shares_in_order(space.order, start) if start else ())
    if method in {"single", "even"}:
        plans = task.single() if method == "single" else task.even()
    elif method == "genetic":
        plans = task.genetic()
    elif method == "exact":
        plans = task.exact()
    else:
        plans = task.everything(fuse=fuse)
    return task.best(plans)


def by_rule(
    space: Space, cluster: Cluster, run: Run, method: Literal["even", "single"], *, home: int = 0
) -> Distribution:
    """Return the plan that a rule makes: what `search` finds by it, or the fastest where none fits."""
    task = _SearchGoal(space, cluster, home, run)
    plans = task.single() if method == "single" else task.even()
    return task.fastest([one for one in plans if task.fits(one.memory)] or plans)


def shares_in_order(order: Sequence[int], shares: Sequence[Share]) -> tuple[Share, ...]:
    """Return shares, one per op, in another order of execution."""
    of = {share.op: share for share in shares}
    return tuple(of[op] for op in order)


def improved(
    space: Space, shares: Sequence[Share], cluster: Cluster, run: Run, *, home: int = 0
) -> Distribution | None:
    """Return the fastest plan that fused blocks and moved bounds make of shares in the order of ``space``.

    None where none fits.
    """
    task = _SearchGoal(space, cluster, home, run)
    return task.made_faster(task.plan(shares_in_order(space.order, shares), "given"))


class _SearchGoal(FrozenValue, frozen=True):
    """The plan that is looked for."""

    space: Space
    cluster: Cluster
    home: int
    run: Run
    least_order: bool = False
    start: tuple[Share, ...] = ()

    def plan(self, shares: Sequence[Share], method: str, blocks: Blocks | None = None) -> Distribution:
        return plan_in(self.space, shares, self.cluster, blocks=blocks, home=self.home, method=method)

    def fits(self, memory: Sequence[int]) -> bool:
        return all(used <= device.memory for used, device in zip(memory, self.cluster.devices, strict=True))

    # Rules --------------------------------------------------------------------------------------------------------

    def single(self) -> list[Distribution]:
        """Return every device alone; of equal devices only one, preferably the one that gets the outputs."""
        count = len(self.cluster.devices)
        whole = ((0, len(self.space.order)),)
        chosen = rules.different_devices(self.cluster, self.home)
        return [self.plan(rules.single(self.space, device, count), "single", whole) for device in chosen]

    def axes_by_memory(self) -> list[Axis]:
        memory = sum(device.memory for device in self.cluster.devices)
        return [rules.axis_by_memory(self.space, place, memory) for place in range(len(self.space.order))]

    def axes_by_rows(self) -> list[Axis]:
        wanted: tuple[Axis, ...] = ("rows", "channels", "whole")
        return [next(axis for axis in wanted if axis in found) for found in self.space.divisions]

    def even(self) -> list[Distribution]:
        count = len(self.cluster.devices)
        axes = (self.axes_by_memory(), self.axes_by_rows())
        return [self.plan(rules.even(self.space, one, count), "even") for one in axes]

    def proportional(self) -> list[Distribution]:
        axes = (self.axes_by_memory(), self.axes_by_rows())
        return [self.plan(rules.proportional(self.space, one, self.cluster), "proportional") for one in axes]

    # Searches -----------------------------------------------------------------------------------------------------

    def genetic(self) -> list[Distribution]:
        """Return what GenEFlow finds along the axes that MemoriaNova's rule chooses, and along rows."""
        count = len(self.cluster.devices)
        result = []
        for axes, part in ((self.axes_by_memory(), 0.5), (self.axes_by_rows(), 1.0)):
            seeds = [rules.even(self.space, axes, count), rules.proportional(self.space, axes, self.cluster)]
            if [share.axis for share in self.start] == axes:
                seeds.append(self.start)
            for device in range(count):
                alone = [1.0 if one == device else 0.0 for one in range(count)]
                seeds.append(
                    tuple(
                        rules.by_weights(self.space.order[place], self.space.divisions[place][axis], alone)
                        for place, axis in enumerate(axes)
                    )
                )
            found = evolve(
                self.space, self.cluster, axes, seeds, self.run.until(part), settings=Settings(), home=self.home
            )  # fmt: skip
            result.append(self.plan(found, "genetic"))
        return result

    def exact(self) -> list[Distribution]:
        """Return what the dynamic program finds over all shares, with its latency as bound where that is proven."""
        count = len(self.cluster.devices)
        chain = all(len(readers) <= 1 for readers in self.space.readers)
        most, width = _EXACT_CHAIN if chain else _EXACT_GRAPH
        choices, complete = [], True
        for position in range(len(self.space.order)):
            shares, all_of_them = all_shares(self.space, position, count, most // count)
            complete &= all_of_them
            choices.append(OpChoices.of(self.space, self.cluster, position, [*self.few(position), *shares]))
            if self.run.over():
                return [*self.single(), *self.even()]
        found = choose(self.space, self.cluster, choices, width=width, home=self.home, follow=False, stop=self.run.over)
        if found is None:
            return [*self.single(), *self.even()]
        plan = self.plan(found.shares, "exact")
        # The program knows nothing of what goes ahead.
        proven = complete and found.complete and not self.cluster.router.overlap
        return [replace(plan, lower_bound=plan.latency) if proven else plan]

    def everything(self, *, fuse: bool) -> list[Distribution]:
        """Return the plans of all rules and of the dynamic program, and what was made of the best of them."""
        single = self.single()
        plans = [*single, *(self.even() if not self.run.over() else ())]
        plans.extend(self.proportional() if not self.run.over() else ())
        if len(self.cluster.devices) > 1 and not self.run.over():
            scale = min(one.latency for one in single)
            found = self._chosen(scale)
            if found is not None:
                plans.append(self.plan(found.shares, "program"))
        # The most promising comes first: the time may end.
        tried: set[tuple[Share, ...]] = set()
        if fuse:
            plans.extend(self._fused_best(plans, tried))
        plans.extend([self.refined(one) for one in self._fastest(plans)[:1]])
        for _ in range(_FUSED if fuse else 0):
            plans.extend(self._fused_best(plans, tried))
        # A search within the reported least memory must succeed.
        return plans if self._fastest(plans) else [*plans, *self._smallest()]

    def _smallest(self) -> list[Distribution]:
        """Return the plan of least memory that the dynamic program finds, at any latency; nothing for one device.

        It is looked for even when the time is up: without it nothing can be said about what would do.
        """
        if len(self.cluster.devices) == 1:
            return []
        found = choose(
            self.space,
            self.cluster,
            self._tables(lambda: False),
            width=_WIDTH,
            home=self.home,
            price=math.inf,
            fits=False,
        )
        return [] if found is None else [self.plan(found.shares, _SMALLEST)]

    def _fused_best(self, plans: Sequence[Distribution], tried: set[tuple[Share, ...]]) -> list[Distribution]:
        """Return what fused blocks make of the fastest plan whose shares are not among ``tried``; they are then."""
        for one in self._fastest(plans):
            if one.shares not in tried and not self.run.over():
                tried.add(one.shares)
                return self.fused(one)
        return []

    def _fastest(self, plans: Sequence[Distribution]) -> list[Distribution]:
        """Return the plans that fit, the fastest first, and only one of those with the same shares and blocks."""
        fitting = sorted((one for one in plans if self.fits(one.memory)), key=lambda one: one.latency)
        return list({(one.shares, _blocks_of(one)): one for one in reversed(fitting)}.values())[::-1]

    def _chosen(self, scale: float) -> ProgramResult | None:
        """Return the dynamic program's best over a few shares; weights are made dearer until they fit."""
        choices = self._tables(self.run.over)
        for price in _PRICES if choices else ():
            found = choose(
                self.space, self.cluster, choices, width=_WIDTH, home=self.home, price=price * scale, stop=self.run.over
            )
            if found is not None or self.run.over():
                return found
        return None

    def _tables(self, stop: Callable[[], bool]) -> list[OpChoices]:
        """Return the choices; nothing if the search was stopped."""
        result: list[OpChoices] = []
        for position in range(len(self.space.order)):
            if stop():
                return []
            result.append(OpChoices.of(self.space, self.cluster, position, self.few(position)))
        return result

    def few(self, position: int) -> list[Share]:
        """Return shares worth trying: in proportion to the speeds of the fastest 2, 3, ... devices, and even ones."""
        count = len(self.cluster.devices)
        speeds = rules.speeds(self.space, position, self.cluster)
        fastest = sorted(range(count), key=lambda device: (-speeds[device], device != self.home, device))
        profiles = [
            [1.0] * count,
            *(
                [speeds[device] if device in fastest[:number] else 0.0 for device in range(count)]
                for number in range(count, 1, -1)
            ),
        ]
        return few_shares(self.space, self.cluster, position, profiles)

    def fused(self, plan: Distribution) -> list[Distribution]:
        """Return what fused blocks make of a plan."""
        found = best_blocks(self.space, plan.shares, self.cluster, longest=_LONGEST_BLOCK, stop=self.run.over)
        return [] if found is None else [self.plan(plan.shares, "fused", found)]

    def refined(self, plan: Distribution) -> Distribution:
        """Return what moving the bounds of a plan makes of it; the plan where there is no time for that."""
        if self.run.over():
            return plan
        blocks = _blocks_of(plan)
        shares = refined(self.space, plan.shares, self.cluster, blocks, home=self.home, stop=self.run.over)
        return self.plan(shares, "refined", blocks)

    def made_faster(self, plan: Distribution) -> Distribution | None:
        """Return the fastest plan that fused blocks and moved bounds make of a plan; None where none fits."""
        plans, tried = [plan], set[tuple[Share, ...]]()
        plans.extend(self._fused_best(plans, tried))
        plans.extend([self.refined(one) for one in self._fastest(plans)[:1]])
        plans.extend(self._fused_best(plans, tried))
        return next(iter(self._fastest(plans)), None)

    # The answer ---------------------------------------------------------------------------------------------------

    def best(self, plans: Sequence[Distribution]) -> Distribution:
        """Return the fastest of ``plans`` that fits, with a bound.

        Raises:
            NoPlanFitsError: None does.
        """
        fitting = [one for one in plans if self.fits(one.memory)]
        if not fitting:
            raise self._too_small(plans)
        found = self.fastest(fitting)
        if found.lower_bound:
            return found
        return replace(found, lower_bound=min(found.latency, latency_bound(self.space, self.cluster)))

    def fastest(self, plans: Sequence[Distribution]) -> Distribution:
        """Return the fastest of ``plans``; of those that differ only by rounding, the one that synchronises least."""
        return min(plans, key=lambda one: (float(f"{one.latency:.9e}"), len(one.steps)))

    def _begins_with_its_inputs(self) -> bool:
        """Whether all inputs must be there first in every order: there is one, and every op reads something."""
        graph = self.space.graph
        return len(graph.inputs) <= 1 and all(op.inputs for op in graph.ops)

    def _too_small(self, plans: Sequence[Distribution]) -> NoPlanFitsError:
        count = len(self.cluster.devices)
        tried = [*plans, *self.single(), *self.even()]
        if all(one.method != _SMALLEST for one in plans):
            tried += self._smallest()
        limits = [device.memory for device in self.cluster.devices]
        excess = [sum(max(0, u - m) for u, m in zip(one.memory, limits, strict=True)) for one in tried]
        nearest = tried[excess.index(min(excess))]
        smallest = min(tried, key=lambda one: max(one.memory))
        least = max(smallest.memory)
        proven = count == 1 and self.least_order and self._begins_with_its_inputs()
        known = "is needed" if proven else "would do, by the best plan found"
        return NoPlanFitsError(
            f"no plan for '{self.space.graph.name}' fits the memory of cluster '{self.cluster.name}': "
            f"{format_size(least)} on every device {known} ({least} bytes), but they have "
            f"{', '.join(format_size(size) for size in dict.fromkeys(limits))}",
            nearest.memory, least, proven=proven, smallest=smallest,
        )  # fmt: skip


def _blocks_of(plan: Distribution) -> Blocks:
    """Return the runs of positions that a plan's steps are."""
    place = {share.op: position for position, share in enumerate(plan.shares)}
    starts = [min(place[one.op] for mine in step.computations for one in mine) for step in plan.steps]
    return tuple(zip([0, *starts[1:]], [*starts[1:], len(plan.shares)], strict=True))
