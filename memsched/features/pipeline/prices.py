"""What a stage costs where that is not a sum over its layers: seconds by the simulator, or peak activation memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from memsched.features.pipeline.condense import Condensation, Loads, macs_of, parameters_of
from memsched.features.pipeline.simulate import cached, stage_time
from memsched.graph.dag import bitset, members
from memsched.graph.stages import Network
from memsched.targets.model import PipelineRules

__all__ = ["MemoryPrice", "StageMemory", "TimePrice"]

StageMemory = Callable[[Sequence[int], Sequence[int]], tuple[int, int]]
"""(layers of a stage, values that it hands on though it did not make them) -> the least known peak of its activation
memory, and a lower bound for every order of its layers, bytes."""

_NANOSECONDS = 1e9


class TimePrice:
    """Nanoseconds of a stage as `simulate` has them.

    Attributes:
        exact: Whether every price so far is what the stage costs.
        loads: Nanoseconds of each group of which a stage of it takes no less, together, than their sum less ``slack``:
            its computing, and its parameters on the link, of which the accelerator's memory saves the slack.
    """

    exact = True

    def __init__(self, network: Network, condensed: Condensation, rules: PipelineRules, stages: int) -> None:
        self._rules, self._through = rules, condensed.through
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
                bitset(condensed.group_of[reader] for reader in value.readers),
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
        after = before | stage
        if self._through:
            # Whatever crosses a boundary goes through it; only what the caller gives comes from elsewhere.
            receives = sum([size for maker, readers, size, _ in self._across(before) if maker or readers & stage])
            sends = sum([size for maker, _, size, _ in self._across(after) if maker])
        else:
            receives = sum([size for _, readers, size, _ in self._across(before) if readers & stage])
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
    """The peak of activation memory of a stage, by a function of its layers and of what it hands through.

    Attributes:
        exact: Whether every price so far is the least peak of the stage, not only the least known.
        loads: Nothing: what is live in a stage is not a sum over its groups.
    """

    slack = 0

    def __init__(self, network: Network, condensed: Condensation, cost: StageMemory) -> None:
        self._groups = condensed.groups
        self._cost = cost
        self._values = [
            (
                number,
                1 << condensed.group_of[value.producer],
                bitset(condensed.group_of[reader] for reader in value.readers),
                value.result,
            )
            for number, value in enumerate(network.values)
            if value.producer >= 0 and condensed.through
        ]
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        self.exact = True
        self.loads = Loads((0,) * len(condensed.groups))

    def __call__(self, before: int, stage: int) -> int:
        """Return the peak of the groups of ``stage`` after those of ``before``."""
        later = ~(before | stage)
        made_before = [each for each in self._values if each[1] & before]
        handed = tuple([number for number, _, readers, result in made_before if readers & later or result])
        known = self._known.get((stage, handed))
        if known is None:
            layers = sorted(layer for group in members(stage) for layer in self._groups[group])
            known, bound = self._cost(layers, handed)
            self.exact &= bound >= known
            self._known[stage, handed] = known
        return known
