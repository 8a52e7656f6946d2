"""What a stage costs where that is no sum over its layers: seconds by the simulator, or peak activation memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from memsched.graph.stages import Network
from memsched.pipeline.boundaries import mask_of, members
from memsched.pipeline.condense import Condensed, Loads, macs_of, parameters_of
from memsched.pipeline.simulate import cached, stage_time
from memsched.targets.model import PipelineRules

__all__ = ["MemoryPrice", "TimePrice"]

_NANOSECONDS = 1e9


class TimePrice:
    """Nanoseconds of a stage as `simulate` has them, values that skip stages being sent once.

    Attributes:
        loads: Nanoseconds of each group of which a stage of it takes no less, together, than their sum less ``slack``:
            its computing, and its parameters on the link, of which the accelerator's memory saves the slack.
    """

    def __init__(self, network: Network, condensed: Condensed, rules: PipelineRules, stages: int) -> None:
        self._rules = rules
        groups = [1 << group for group in condensed.group_of]
        parameters = parameters_of(network, condensed)
        self._sizes, self._own, self._shares = network.constants, parameters.weights, bool(parameters.shared)
        self._macs = macs_of(network, condensed).weights
        self._constants = [
            (group, constant)
            for group, layer in zip(groups, network.layers, strict=True)
            for constant in layer.constants
        ]
        self._values = [
            (
                groups[value.producer] if value.producer >= 0 else 0,
                mask_of(sorted({condensed.group_of[reader] for reader in value.readers})),
                value.size,
                value.result,
            )
            for value in network.values
        ]
        compute = [_NANOSECONDS * 2 * macs / (rules.ops_per_second * rules.utilisation) for macs in self._macs]
        sent = [_NANOSECONDS * size / rules.link_bytes_per_second for size in self._own]
        saved = math.ceil(_NANOSECONDS * rules.parameter_cache_bytes / rules.link_bytes_per_second)
        self.loads, self.slack = Loads(tuple([int(each) for each in compute])), 0
        if sum(sent) > saved * stages:
            both = zip(compute, sent, strict=True)
            self.loads, self.slack = Loads(tuple([int(first + second) for first, second in both])), saved
        self._known: dict[tuple[int, int], int] = {}
        self._summed: dict[int, tuple[int, int]] = {}
        self._crossing: dict[int, list[tuple[int, int, int, bool]]] = {}

    def __call__(self, before: int, stage: int) -> int:
        """Return what the groups of ``stage`` take after those of ``before``."""
        known = self._known.get((before, stage))
        if known is None:
            known = self._known[before, stage] = self._price(before, stage)
        return known

    def _price(self, before: int, stage: int) -> int:
        receives = sum([size for _, readers, size, _ in self._across(before) if readers & stage])
        after = before | stage
        sends = sum([size for maker, _, size, _ in self._across(after) if maker & stage])
        macs, parameters = (late - early for late, early in zip(self._sums(after), self._sums(before), strict=True))
        on, off = parameters, 0
        if self._shares or parameters > self._rules.parameter_cache_bytes:
            on, off = self._cached(stage)
        return round(_NANOSECONDS * stage_time(on, off, macs, receives, sends, self._rules).total)

    def _sums(self, before: int) -> tuple[int, int]:
        """Return what groups of ``before`` compute, and their own parameters, added up."""
        found = self._summed.get(before)
        if found is None:
            groups = members(before)
            found = self._summed[before] = (
                sum([self._macs[group] for group in groups]),
                sum([self._own[group] for group in groups]),
            )
        return found

    def _cached(self, stage: int) -> tuple[int, int]:
        """Return the bytes of parameters that stay on the accelerator, and those that do not."""
        used = dict.fromkeys([constant for group, constant in self._constants if group & stage])
        return cached([self._sizes[constant] for constant in used], self._rules.parameter_cache_bytes)

    def _across(self, before: int) -> list[tuple[int, int, int, bool]]:
        """Return the values that groups of ``before``, or the caller, hand to others, or to the caller."""
        found = self._crossing.get(before)
        if found is None:
            found = self._crossing[before] = [
                each for each in self._values if (not each[0] or each[0] & before) and (each[1] & ~before or each[3])
            ]
        return found


class MemoryPrice:
    """The peak of activation memory of a stage, by a function of its layers.

    Attributes:
        loads: Nothing: what is live in a stage is no sum over its groups.
    """

    slack = 0

    def __init__(self, condensed: Condensed, cost: Callable[[Sequence[int]], int]) -> None:
        self._groups = condensed.groups
        self._cost = cost
        self._known: dict[int, int] = {}
        self.loads = Loads((0,) * len(condensed.groups))

    def __call__(self, before: int, stage: int) -> int:  # noqa: ARG002 - a price
        """Return the peak of the groups of ``stage``."""
        known = self._known.get(stage)
        if known is None:
            layers = sorted(layer for group in members(stage) for layer in self._groups[group])
            known = self._known[stage] = self._cost(layers)
        return known
