"""A module made ready for planning."""

from __future__ import annotations

from collections.abc import Mapping

from memsched.base.frozen import FrozenValue
from memsched.plan.orders import Baseline
from memsched.runtimes.graph_plan import LoweredGraph
from memsched.targets.load import Target

__all__ = ["TargetModule"]


class TargetModule(FrozenValue, frozen=True):
    """A module under the rules of one target."""

    target: Target
    lowered: tuple[LoweredGraph, ...]
    baselines: Mapping[str, Baseline]
    in_place: bool
