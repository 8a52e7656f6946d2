"""The even split of a vendor's compiler: parameters shared out along the topological order (RESPECT, section IV)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from memsched.features.pipeline.condense import Condensation, condense, parameters_of
from memsched.features.pipeline.possible import explain
from memsched.graph.stages import Constraints, Network, StageSchedule

__all__ = ["cutting_order", "even_split", "schedule"]


def schedule(network: Network, constraints: Constraints) -> StageSchedule:
    """Return the split of ``network`` that gives each stage the parameters that are due to it, in file order.

    A stage ends with the layer (or group that may not be cut) at which the parameters so far are nearest to the
    stage's end on an even scale; at the earlier of two that are equally near. Communication plays no part.

    Raises:
        UsageError: No schedule respects ``constraints``.
    """
    started = time.monotonic()
    error = explain(network, constraints)
    if error is not None:
        raise error
    condensed = condense(network, constraints)
    loads = parameters_of(network, condensed)
    stages = even_split(condensed, loads.weights, constraints.stages)
    communication = condensed.communication(stages)
    return StageSchedule(
        stages=condensed.spread(stages),
        count=constraints.stages,
        objective=max(loads.of(stages, constraints.stages)),
        lower_bound=loads.floor(constraints.stages),
        communication=communication,
        communication_bound=0,
        status="feasible",
        proof="no stage schedule is below its largest group of layers and an even share; the rest was not looked at",
        method="heuristic",
        seconds=time.monotonic() - started,
    )


def cutting_order(condensed: Condensation) -> tuple[list[int], set[int]]:
    """Return a topological order of groups whose runs can be stages, and the places in it where a stage must end."""
    levels = condensed.levels()
    order = sorted(range(len(levels)), key=lambda group: (levels[group], group))
    return order, {place for place in range(1, len(order)) if levels[order[place]] != levels[order[place - 1]]}


def even_split(condensed: Condensation, weights: Sequence[int], count: int) -> list[int]:
    """Return the stage of each group: ``count`` runs of a topological order, cut nearest to even shares of weight.

    Cut places are chosen together: the sum of their distances from an even scale is the least, and of several the
    earliest last cut is taken. Groups after a cut that was requested come after all that need not.
    """
    order, forced = cutting_order(condensed)
    sums = [0]
    for group in order:
        sums.append(sums[-1] + weights[group])
    # Per number of cuts and place of the last one: the least distance so far, and the cut before.
    distances: list[float] = [0.0, *[math.inf] * len(order)]
    chosen: list[list[int]] = []
    for cut in range(1, count + 1):
        due = sums[-1] * cut / count
        following, befores = [math.inf] * len(distances), [0] * len(distances)
        best, at = distances[0], 0
        for place in range(1, len(distances)):
            if best < math.inf and (cut < count or place == len(order)):
                following[place], befores[place] = best + abs(sums[place] - due), at
            if place in forced:
                best = math.inf
            if distances[place] < best:
                best, at = distances[place], place
        distances = following
        chosen.append(befores)
    result = [0] * len(order)
    end = len(order)
    for stage in range(count - 1, -1, -1):
        begin = chosen[stage][end]
        for place in range(begin, end):
            result[order[place]] = stage
        end = begin
    return result
