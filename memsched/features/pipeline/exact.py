"""Exact stage schedules: the least cost of the largest stage, then the least communication at that cost; both proven.

This is the objective of RESPECT (section IV-C: peak parameter memory per stage; and communication). Layers that
belong together are condensed first. Where the places at which a stage can end can be listed, a dynamic program over
them is exact (`boundaries`); else CP-SAT (`formulation`), twice: for the peak, then for communication.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from memsched.base.errors import InternalError, UsageError
from memsched.features.pipeline import formulation
from memsched.features.pipeline.boundaries import Boundaries, ExhaustedError, all_places
from memsched.features.pipeline.condense import Condensation, Loads, condense, macs_of, parameters_of
from memsched.features.pipeline.heuristic import even_split
from memsched.features.pipeline.possible import explain
from memsched.features.pipeline.priced import ONLY_ONE, PricedStages
from memsched.features.pipeline.priced import solve as solve_priced
from memsched.features.pipeline.prices import MemoryPrice, StageMemory, TimePrice
from memsched.graph.stages import Constraints, Network, StageSchedule
from memsched.search.limits import Limits
from memsched.search.pace import MachinePace

if TYPE_CHECKING:
    from memsched.targets.model import PipelineRules

__all__ = ["Balance", "schedule"]

Balance = Literal["params", "macs", "memory", "time"]

_MOST_BOUNDARIES = 100_000
"""Most places to cut that are listed, which takes a second or less."""

_MOST_BOOLEANS = 60_000
"""Most Booleans of a model for CP-SAT: a larger one takes seconds to state."""

_MOST_TIMED_PLACES = 8_000
"""Most places to cut for which every stage between two of them that could be good is simulated."""

_MOST_MEASURED_PLACES = 60
"""The same where the memory of stages is measured, which takes milliseconds each."""

_START_EFFORT = 2.0
"""What `Limits.effort` counts for the schedule from which the search by price starts."""

_PEAK_SHARE = 0.5
"""Share of the time and of the effort for the peak; the rest is for communication."""

_DEFAULT_LIMITS = Limits(60.0)


def schedule(
    network: Network,
    constraints: Constraints,
    *,
    balance: Balance = "params",
    rules: PipelineRules | None = None,
    limits: Limits = _DEFAULT_LIMITS,
    cost: StageMemory | None = None,
) -> StageSchedule:
    """Return the schedule whose largest stage costs least, and which of those communicates least.

    The result does not depend on workers or hash seeds; of equally good ones the dynamic program takes that whose last
    stage, then the one before it, begins with the least set of groups before it, read as a number with bit i for
    group i.

    Args:
        balance: What a stage costs: bytes of its parameters, its multiply-accumulates, its peak of activation memory,
            or the nanoseconds that the simulator says.
        rules: Those of the pipeline; needed for "time".
        cost: What a stage needs; needed for "memory".

    Raises:
        UsageError: No schedule respects ``constraints``.
    """
    started = time.monotonic()
    error = explain(network, constraints)
    if error is not None:
        raise error
    deadline = math.inf if limits.time_limit is None else started + limits.time_limit
    condensed = condense(network, constraints)
    if balance in {"params", "macs"}:
        loads = macs_of(network, condensed) if balance == "macs" else parameters_of(network, condensed)
        found = _solve(condensed, loads, constraints.stages, limits.seed, deadline, effort=limits.effort)
    else:
        price = _price(network, condensed, constraints, balance, rules, cost)
        found = _priced(network, condensed, price, constraints.stages, limits, deadline)
    communication = condensed.communication(found.stages)
    proven = (found.objective, communication) == (found.lower_bound, found.communication_bound)
    return StageSchedule(
        stages=condensed.spread(found.stages),
        count=constraints.stages,
        objective=found.objective,
        lower_bound=found.lower_bound,
        communication=communication,
        communication_bound=found.communication_bound,
        status="optimal" if proven else "feasible",
        proof=found.proof,
        method="exact",
        seconds=time.monotonic() - started,
    )


def _price(
    network: Network,
    condensed: Condensation,
    constraints: Constraints,
    balance: Balance,
    rules: PipelineRules | None,
    cost: StageMemory | None,
) -> TimePrice | MemoryPrice:
    if balance == "memory":
        if cost is None:
            raise InternalError("stages cannot be balanced by memory without a function that says what they need")
        return MemoryPrice(network, condensed, cost)
    if rules is None:
        raise UsageError("--balance time needs a target with a [pipeline] table", code="no-pipeline")
    return TimePrice(network, condensed, rules, constraints.stages)


def _priced(
    network: Network,
    condensed: Condensation,
    price: TimePrice | MemoryPrice,
    count: int,
    limits: Limits,
    deadline: float,
) -> PricedStages:
    """Return the best schedule by ``price``, from those that balance parameters and computing."""
    starts = []
    for loads in (parameters_of(network, condensed), macs_of(network, condensed)):
        # Schedules that balance one kind of work are only where the search starts: they get little of the work.
        effort = _START_EFFORT if limits.effort is None else min(_START_EFFORT, limits.effort)
        start = _solve(condensed, loads, count, limits.seed, deadline, effort=effort)
        starts += [even_split(condensed, loads.weights, count), start.stages]
    most = _MOST_TIMED_PLACES if isinstance(price, TimePrice) else _MOST_MEASURED_PLACES
    prices = math.inf if limits.effort is None else limits.effort * MachinePace.PRICED_STAGES
    return solve_priced(condensed, price, starts, count, most_places=most, most_prices=prices, deadline=deadline)


def _solve(
    condensed: Condensation,
    loads: Loads,
    count: int,
    seed: int,
    deadline: float,
    *,
    effort: float | None = None,
) -> PricedStages:
    start = even_split(condensed, loads.weights, count)
    if condensed.alike(count):
        peak = max(loads.of(start, count))
        return PricedStages(
            start,
            peak,
            peak,
            condensed.communication(start),
            ONLY_ONE,
        )
    places = all_places(condensed, loads, _MOST_BOUNDARIES)
    if places is not None:
        try:
            most_pairs = None if effort is None else int(effort * MachinePace.PAIRS)
            program = Boundaries(condensed, loads, places, most_pairs=most_pairs)
            return _by_boundaries(program, condensed, loads, start, count, deadline)
        except ExhaustedError:
            pass
    if len(condensed.groups) * count > _MOST_BOOLEANS:
        peak = max(loads.of(start, count))
        proof = "the largest group of layers or an even share of all; too large to search for less"
        return PricedStages(start, peak, loads.floor(count), 0, proof)
    return _by_cpsat(condensed, loads, start, count, seed, deadline, effort)


def _by_boundaries(
    program: Boundaries, condensed: Condensation, loads: Loads, start: Sequence[int], count: int, deadline: float
) -> PricedStages:
    high = max(loads.of(start, count))
    peak = program.least_peak(count, min(loads.floor(count), high), high, deadline)
    found = None if peak is None else program.least_communication(count, peak, deadline, condensed.communication(start))
    if peak is None or found is None:
        raise InternalError("the dynamic program lost a schedule that is known")
    communication, stages = found
    proof = f"dynamic program over all {program.count:,} places to cut {len(condensed.groups):,} groups of layers"
    return PricedStages(stages, peak, peak, communication, proof)


def _by_cpsat(
    condensed: Condensation,
    loads: Loads,
    start: Sequence[int],
    count: int,
    seed: int,
    deadline: float,
    effort: float | None,
) -> PricedStages:
    high, low = max(loads.of(start, count)), loads.floor(count)
    stages: Sequence[int] = start
    now = time.monotonic()
    proof = "the largest group of layers or an even share of all"
    if high > low:
        halfway = now + _PEAK_SHARE * (deadline - now)
        half = None if effort is None else _PEAK_SHARE * effort
        solution = formulation.least_peak(condensed, loads, start, low, high, seed=seed, deadline=halfway, effort=half)
        if solution.bound > low:
            low, proof = solution.bound, "CP-SAT"
        stages = solution.stages or stages
    peak = max(loads.of(stages, count))
    rest = None if effort is None else (1 - _PEAK_SHARE) * effort
    solution = formulation.least_communication(
        condensed, loads, stages, peak, seed=seed, deadline=deadline, effort=rest
    )
    stages = solution.stages or stages
    peak = max(loads.of(stages, count))
    return PricedStages(stages, peak, low, solution.bound, f"peak: {proof}; communication: CP-SAT")
