"""Exact stage schedules: the least cost of the largest stage, then the least communication at that cost; both proven.

This is the objective of document 4 (section IV-C: peak parameter memory per stage; and communication). Layers that
belong together are condensed first. Where the places at which a stage can end can be listed, a dynamic program over
them is exact (`boundaries`); else CP-SAT (`formulation`), twice: for the peak, then for communication.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from memsched.errors import InternalError, UsageError
from memsched.graph.limits import Limits
from memsched.graph.stages import Constraints, Network, StageSchedule
from memsched.pipeline import formulation
from memsched.pipeline.boundaries import Boundaries, ExhaustedError, boundaries
from memsched.pipeline.condense import Condensed, Loads, condense, macs_of, parameters_of
from memsched.pipeline.heuristic import even_split
from memsched.pipeline.possible import explain

if TYPE_CHECKING:
    from memsched.targets.model import PipelineRules

__all__ = ["Balance", "schedule"]

Balance = Literal["params", "macs", "memory", "time"]

_MOST_BOUNDARIES = 40_000
"""Places to cut that are listed; listing them takes below a second."""

_PEAK_SHARE = 0.5
"""Of the time, for the peak; the rest is for communication."""

_DEFAULT_LIMITS = Limits(60.0)


@dataclass(frozen=True, slots=True)
class _Found:
    """Stages of groups with what is proven of them."""

    stages: Sequence[int]
    lower_bound: int
    communication_bound: int
    proof: str


def schedule(
    network: Network,
    constraints: Constraints,
    *,
    balance: Balance = "params",
    rules: PipelineRules | None = None,
    limits: Limits = _DEFAULT_LIMITS,
    cost: Callable[[Sequence[int]], int] | None = None,
) -> StageSchedule:
    """Return the schedule whose largest stage costs least, and which of those communicates least.

    The result does not depend on workers or hash seeds; of equally good ones the dynamic program takes that whose last
    stage, then the one before it, begins with the least set of groups before it, read as a number with bit i for
    group i.

    Args:
        balance: What a stage costs: bytes of its parameters, its multiply-accumulates, its peak of activation memory,
            or the nanoseconds that the simulator says.
        rules: The pipeline's, for "time".
        cost: The peak of activation memory of a set of layers, for "memory".

    Raises:
        UsageError: No schedule respects ``constraints``.
    """
    started = time.monotonic()
    reason = explain(network, constraints)
    if reason is not None:
        raise UsageError(reason)
    if balance in {"memory", "time"} and (cost or rules):
        raise UsageError(f"stages cannot be balanced by {balance} yet")
    condensed = condense(network, constraints)
    loads = macs_of(network, condensed) if balance == "macs" else parameters_of(network, condensed)
    found = _solve(condensed, loads, constraints.stages, limits, started)
    objective = max(loads.of(found.stages, constraints.stages))
    communication = condensed.communication(found.stages)
    proven = (objective, communication) == (found.lower_bound, found.communication_bound)
    return StageSchedule(
        stages=condensed.spread(found.stages),
        count=constraints.stages,
        objective=objective,
        lower_bound=found.lower_bound,
        communication=communication,
        communication_bound=found.communication_bound,
        status="optimal" if proven else "feasible",
        proof=found.proof,
        method="exact",
        seconds=time.monotonic() - started,
    )


def _solve(condensed: Condensed, loads: Loads, count: int, limits: Limits, started: float) -> _Found:
    deadline = math.inf if limits.time_limit is None else started + limits.time_limit
    start = even_split(condensed, loads.weights, count)
    if count == 1 or count == len(condensed.groups):
        peak = max(loads.of(start, count))
        return _Found(
            start, peak, condensed.communication(start), "one stage for everything, or one for each group of layers"
        )
    program = boundaries(condensed, loads, _MOST_BOUNDARIES)
    if program is not None:
        try:
            return _by_boundaries(program, condensed, loads, start, count, deadline)
        except ExhaustedError:
            pass
    return _by_cpsat(condensed, loads, start, count, limits, deadline)


def _by_boundaries(
    program: Boundaries, condensed: Condensed, loads: Loads, start: Sequence[int], count: int, deadline: float
) -> _Found:
    high = max(loads.of(start, count))
    peak = program.least_peak(count, min(loads.floor(count), high), high, deadline)
    found = None if peak is None else program.least_communication(count, peak, deadline)
    if peak is None or found is None:
        raise InternalError("the dynamic program lost a schedule that is known")
    communication, stages = found
    proof = f"dynamic program over all {program.count:,} places to cut {len(condensed.groups):,} groups of layers"
    return _Found(stages, peak, communication, proof)


def _by_cpsat(
    condensed: Condensed, loads: Loads, start: Sequence[int], count: int, limits: Limits, deadline: float
) -> _Found:
    high, low = max(loads.of(start, count)), loads.floor(count)
    stages: Sequence[int] = start
    now = time.monotonic()
    proof = "the largest group of layers or an even share of all"
    if high > low:
        halfway = now + _PEAK_SHARE * (deadline - now)
        solution = formulation.least_peak(condensed, loads, start, low, high, seed=limits.seed, deadline=halfway)
        if solution.bound > low:
            low, proof = solution.bound, "CP-SAT"
        stages = solution.stages or stages
    peak = max(loads.of(stages, count))
    solution = formulation.least_communication(condensed, loads, stages, peak, seed=limits.seed, deadline=deadline)
    stages = solution.stages or stages
    return _Found(stages, low, solution.bound, f"peak: {proof}; communication: CP-SAT")
