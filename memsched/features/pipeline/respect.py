"""The learned stage scheduler of RESPECT: a trained policy orders layers, the order is cut into stages."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from memsched.features.pipeline.condense import Condensation, Loads, condense, parameters_of
from memsched.features.pipeline.heuristic import even_split
from memsched.features.pipeline.possible import explain
from memsched.features.pipeline.respect_cut import MOST_STAGES, best_cut
from memsched.features.pipeline.respect_policy import policy_order
from memsched.graph.stages import Constraints, Network, StageSchedule
from memsched.search.limits import Limits

__all__ = ["cut_order", "schedule"]

_PROOF = "no stage schedule is below its largest group of layers and an even share; the rest was not looked at"


_DEFAULT_LIMITS = Limits(60.0)


def schedule(network: Network, constraints: Constraints, *, limits: Limits = _DEFAULT_LIMITS) -> StageSchedule:
    """Return the stages of the trained policy's order, balanced by bytes of parameters.

    What RESPECT repairs after inference (section III-B, "Post-Inference Processing") cannot go wrong here: layers
    that must share a stage are one node for the policy, and it takes nodes only after those that they need.
    Deterministic, unless the time limit is met: nothing is drawn, and sums have one order on one kind of processor.

    Args:
        limits: When the time is up, layers that the policy has not reached follow in their own order.

    Raises:
        UsageError: No schedule respects ``constraints``.
        RuntimeUnavailableError: onnxruntime is not installed.
    """
    started = time.monotonic()
    error = explain(network, constraints)
    if error is not None:
        raise error
    condensed = condense(network, constraints)
    loads = parameters_of(network, condensed)
    deadline = math.inf if limits.time_limit is None else started + limits.time_limit
    order = policy_order(condensed.preds, loads.weights, deadline=deadline)
    stages = cut_order(condensed, loads, order, constraints.stages)
    objective = max(loads.of(stages, constraints.stages))
    communication = condensed.communication(stages)
    lower_bound = loads.floor(constraints.stages)
    return StageSchedule(
        stages=condensed.spread(stages),
        count=constraints.stages,
        objective=objective,
        lower_bound=lower_bound,
        communication=communication,
        communication_bound=0,
        status="optimal" if (objective, communication) == (lower_bound, 0) else "feasible",
        proof=_PROOF,
        method="respect",
        seconds=time.monotonic() - started,
    )


def cut_order(condensed: Condensation, loads: Loads, order: Sequence[int], count: int) -> list[int]:
    """Return the stage of each group for ``order``, under the requested cuts.

    Where the order itself cannot be cut at all of these, groups are sorted by the earliest stage that the cuts leave
    them, equals as in the order: then it can. More than ``MOST_STAGES`` stages are split evenly, whatever the order.
    """
    levels = condensed.levels()
    tried = () if count > MOST_STAGES else (order, sorted(order, key=levels.__getitem__))
    for sequence in tried:
        stages = best_cut(condensed, loads, sequence, count)
        if stages is not None:
            return stages
    return even_split(condensed, loads.weights, count)
