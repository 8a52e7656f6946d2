"""Exact stage schedules by a dynamic program over all places where a stage can end.

The groups before a stage boundary are closed under predecessors. Networks are long and narrow, so that they have few
such sets, often hardly more than layers; a schedule is a chain of them. What a stage holds and receives depends only on
the sets before and after it, so that the least peak, and then the least communication at that peak, are least paths.

At a boundary after j of k stages under a limit L per stage, what lies before fits into j L and what lies after into
(k - j) L: near the optimum these windows leave few sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from memsched.base.frozen import FrozenValue
from memsched.features.pipeline.condense import Condensation, Loads
from memsched.graph.dag import bitset, members, successors_of

__all__ = ["Boundaries", "ExhaustedError", "Price", "all_places"]

Price = Callable[[int, int], int]
"""What a stage costs, given the groups before it and the groups in it, as masks with bit i for group i."""

_MOST_PAIRS = 10_000_000
"""Most pairs of sets that one dynamic program looks at, which takes a few seconds."""

_MOST_BITS = 400_000_000
"""Most bits of all listed sets together: fifty megabytes."""

_MOST_STEPS = 8_000_000
"""Groups that may come next, summed over the listed sets; to list so many takes about two seconds."""


class ExhaustedError(Exception):
    """The dynamic program would take too long; another method has to do it."""


class _Set(FrozenValue, frozen=True):
    """Groups before a boundary.

    Attributes:
        mask: Bit i for group i.
        weight: Sum of the groups' own weights.
        before: What a stage of them all would cost.
        after: What a stage of all others would cost.
    """

    mask: int
    weight: int
    before: int
    after: int


def all_places(condensed: Condensation, loads: Loads, most: int) -> list[tuple[int, int]] | None:
    """Return every set of groups that may lie before a boundary, with its weight.

    None where there are more than ``most``, or where listing them would take too much memory or time.
    """
    most, steps = min(most, _MOST_BITS // max(len(condensed.groups), 1)), 0
    needs = [bitset(befores) for befores in condensed.preds]
    succs = successors_of(condensed.preds)
    first = tuple([group for group, before in enumerate(needs) if not before])
    found = {0: 0}
    waiting: list[tuple[int, tuple[int, ...]]] = [(0, first)]
    while waiting:
        mask, ready = waiting.pop()
        weight = found[mask]
        for group in ready:
            grown = mask | 1 << group
            if grown in found:
                continue
            steps += len(ready)
            if len(found) >= most or steps > _MOST_STEPS:
                return None
            found[grown] = weight + loads.weights[group]
            freed = tuple([after for after in succs[group] if not needs[after] & ~grown])
            waiting.append((grown, tuple([other for other in ready if other != group]) + freed))
    return sorted(found.items())


class Boundaries:
    """Sets of groups that may lie before a boundary, and the dynamic programs over them.

    Args:
        found: Pairs (set, sum of weights), ascending; the empty and the full set are among them.
        price: What a stage costs; None for its loads.
        slack: How much less than its loads a stage may cost, if there is a price.
        most_pairs: Most pairs of sets that one dynamic program looks at; None for as many as take a few seconds.
    """

    def __init__(
        self,
        condensed: Condensation,
        loads: Loads,
        found: Sequence[tuple[int, int]],
        *,
        price: Price | None = None,
        slack: int = 0,
        most_pairs: int | None = None,
    ) -> None:
        self.count = len(found)
        self._most_pairs = _MOST_PAIRS if most_pairs is None else most_pairs
        self._condensed = condensed
        self._price, self._slack = price, slack
        self._shared = [(size, bitset(groups)) for size, groups in loads.shared]
        everything = (1 << len(condensed.groups)) - 1
        total = sum(loads.weights)
        self._sets = [
            _Set(
                mask,
                weight,
                weight + self._shared_in(mask),
                total - weight + self._shared_in(everything & ~mask),
            )
            for mask, weight in found
        ]
        self._weights = dict(found)
        self._strict = _strict_masks(condensed.strict)
        self._flows = [(1 << flow.producer, bitset(flow.readers), flow.size, flow.to_end) for flow in condensed.flows]
        self._crossings: dict[int, tuple[list[tuple[int, int]], int]] = {}
        self._pairs = 0

    def least_peak(self, stages: int, low: int, high: int, deadline: float) -> int | None:
        """Return the least cost of the largest stage; None where it is above ``high``.

        Limits are tried from ``low``, a lower bound, in growing steps: a low limit leaves narrow windows.

        Raises:
            ExhaustedError: There are too many pairs, or ``deadline`` has passed.
        """
        limit, step = low, max((high - low) // 64, 1)
        while True:
            self._pairs = 0
            peak = self._peak_within(stages, low, min(limit, high), deadline)
            if peak is not None or limit >= high:
                return peak
            limit, step = limit + step, step * 3

    def least_communication(
        self, stages: int, limit: int, deadline: float, known: int | None = None
    ) -> tuple[int, list[int]] | None:
        """Return the least communication where no stage costs more than ``limit``, and the stages of the groups.

        Of several such schedules it is the one whose last stage, then the one before it, begins with the least set
        before it, read as a number with bit i for group i. What crosses a boundary is received at least once after
        it (by the very next stage where values are handed through): ceilings on communication are tried, each twice the
        one before, and sets above the ceiling are left out.

        Args:
            known: Communication of some schedule, of any peak: where ceilings begin, an eighth of it.

        Raises:
            ExhaustedError: As for `least_peak`.
        """
        windows = [self._sets[:1], *(self._window(level, stages, limit) for level in range(1, stages + 1))]
        most = (stages - 1) * sum([size for _, _, size, _ in self._flows])
        ceiling = most if known is None else known // 8
        while True:
            self._pairs = 0
            found = self._within(windows, limit, ceiling, deadline)
            if found is not None or ceiling >= most:
                return found
            ceiling = max(2 * ceiling, 1)

    def _within(
        self, windows: Sequence[Sequence[_Set]], limit: int, ceiling: int, deadline: float
    ) -> tuple[int, list[int]] | None:
        """Return the least communication if it is at most ``ceiling``, and the stages of the groups."""
        levels: list[dict[int, tuple[int, int]]] = [{0: (0, 0)}]
        for window in windows[1:]:
            befores = sorted((cost + self._handed(mask), mask) for mask, (cost, _) in levels[-1].items())
            if not befores:
                return None
            reached = [(cost, mask, self._weights[mask], self._read_later(mask)) for cost, mask in befores]
            following: dict[int, tuple[int, int]] = {}
            for after in window:
                to_come = self._crossing(after.mask)[1]
                if befores[0][0] + to_come > ceiling:
                    continue
                best = self._cheapest(after, reached, limit, deadline)
                if best is not None and best[0] + to_come <= ceiling:
                    following[after.mask] = best
            levels.append(following)
        mask = self._sets[-1].mask
        if mask not in levels[-1]:
            return None
        communication = levels[-1][mask][0]
        result = [0] * len(self._condensed.groups)
        for level in range(len(levels) - 1, 0, -1):
            before = levels[level][mask][1]
            for group in members(mask & ~before):
                result[group] = level - 1
            mask = before
        return communication, result

    def _peak_within(self, stages: int, low: int, limit: int, deadline: float) -> int | None:
        """Return the least cost of the largest stage if it is at most ``limit``; it is at least ``low``."""
        reached = {0: 0}
        for level in range(1, stages + 1):
            befores = sorted((peak, mask, self._weights[mask]) for mask, peak in reached.items())
            reached = {}
            for after in self._window(level, stages, limit):
                best, looked = limit + 1, 0
                for peak, mask, weight in befores:
                    looked += 1
                    # What lies below ``low`` makes no difference to the largest stage of all.
                    if peak >= best or best <= low:
                        break
                    load = after.weight - weight - self._slack
                    if load >= best or mask & ~after.mask or mask == after.mask:
                        continue
                    stage = after.mask & ~mask
                    if self._shared:
                        load += self._shared_in(stage)
                    if load >= best or (self._strict and self._forbidden(stage)):
                        continue
                    if self._price:
                        load = self._price(mask, stage)
                    best = min(best, max(peak, load))
                self._spend(looked, deadline)
                if best <= limit:
                    reached[after.mask] = best
        return reached.get(self._sets[-1].mask)

    def _cheapest(
        self,
        after: _Set,
        reached: Sequence[tuple[int, int, int, Sequence[tuple[int, int]]]],
        limit: int,
        deadline: float,
    ) -> tuple[int, int] | None:
        """Return the least communication up to the boundary ``after`` and the boundary before it."""
        best: tuple[int, int] | None = None
        room, looked = limit + self._slack, 0
        for cost, mask, weight, crossing in reached:
            looked += 1
            if best is not None and cost > best[0]:
                break
            if after.weight - weight > room or mask & ~after.mask or mask == after.mask:
                continue
            stage = after.mask & ~mask
            if self._shared and after.weight - weight + self._shared_in(stage) > room:
                continue
            if self._strict and self._forbidden(stage):
                continue
            if self._price and self._price(mask, stage) > limit:
                continue
            found = (cost + sum([size for readers, size in crossing if readers & stage]), mask)
            if best is None or found < best:
                best = found
        self._spend(looked, deadline)
        return best

    def _window(self, level: int, stages: int, limit: int) -> list[_Set]:
        """Return the sets that may lie before the boundary after ``level`` stages."""
        if level == stages:
            return self._sets[-1:]
        room = limit + self._slack
        before, after = level * room, (stages - level) * room
        return [each for each in self._sets[1:-1] if each.before <= before and each.after <= after]

    def _handed(self, mask: int) -> int:
        """Return what every possible stage behind the boundary ``mask`` receives."""
        return self._crossing(mask)[1] if self._condensed.through else 0

    def _read_later(self, mask: int) -> Sequence[tuple[int, int]]:
        """Return (readers, size) of what the stage behind the boundary ``mask`` receives if it holds a reader."""
        return () if self._condensed.through else self._crossing(mask)[0]

    def _crossing(self, mask: int) -> tuple[list[tuple[int, int]], int]:
        """Return (readers, size) of what groups of ``mask`` hand to others, and the sum of sizes."""
        found = self._crossings.get(mask)
        if found is None:
            sizes: dict[int, int] = {}
            last = mask == self._sets[-1].mask
            for producer, readers, size, to_end in self._flows:
                later = readers & ~mask
                if producer & mask and (later or (to_end and not last)):
                    sizes[later] = sizes.get(later, 0) + size
            found = self._crossings[mask] = (list(sizes.items()), sum(sizes.values()))
        return found

    def _shared_in(self, mask: int) -> int:
        return sum([size for size, groups in self._shared if groups & mask])

    def _forbidden(self, stage: int) -> bool:
        return any(stage & before and stage & afters for before, afters in self._strict)

    def _spend(self, pairs: int, deadline: float) -> None:
        self._pairs += pairs
        if self._pairs > self._most_pairs or time.monotonic() > deadline:
            raise ExhaustedError


def _strict_masks(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return per group with a cut after it its own bit and its readers'."""
    afters: dict[int, int] = {}
    for before, after in pairs:
        afters[before] = afters.get(before, 0) | 1 << after
    return [(1 << before, mask) for before, mask in sorted(afters.items())]
