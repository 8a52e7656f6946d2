"""RESPECT to the letter, to be held against what the package does: stages first, repaired afterwards.

The policy orders layers and masks only those that are out; the order is cut without a look at dependencies; then layers
that must share a stage get the earliest one predicted for any of them, and what comes before something it needs is
pushed forward (section III-B, "Post-Inference Processing").
"""

from __future__ import annotations

from collections.abc import Sequence

from memsched.features.pipeline.condense import condense, parameters_of
from memsched.features.pipeline.respect import cut_order
from memsched.features.pipeline.respect_policy import policy_order
from memsched.graph.stages import Constraints, Network

__all__ = ["repaired_peak"]


def repaired_peak(network: Network, constraints: Constraints, *, parents_first: bool) -> int:
    """Return the peak of parameters per stage; a stage may be left empty."""
    layers = condense(network, Constraints(constraints.stages))
    loads = parameters_of(network, layers)
    order = policy_order(layers.preds, loads.weights, parents_first=parents_first)
    predicted = layers.spread(cut_order(layers, loads, order, constraints.stages))
    groups = condense(network, constraints)
    stages = _pushed([min(predicted[layer] for layer in group) for group in groups.groups], groups.preds)
    return max(parameters_of(network, groups).of(stages, constraints.stages))


def _pushed(stages: Sequence[int], preds: Sequence[Sequence[int]]) -> list[int]:
    result: list[int] = []
    for stage, befores in zip(stages, preds, strict=True):
        result.append(max([stage, *(result[before] for before in befores)]))
    return result
