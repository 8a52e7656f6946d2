"""The choice among loops: against all selections of loops that do not overlap, with and without places in a row."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from memsched.rewrites.tile.loop import LoopGroup
from memsched.rewrites.tile.loop_cost import LoopCost
from memsched.rewrites.tile.loop_ways import LoopWay, pareto, take_up, ways_to


def cost_of(rng: random.Random, first: int, last: int) -> LoopCost:
    """Return a loop over an interval with random figures."""
    tensors = tuple(tuple(rng.choices(range(1, 6), k=rng.randint(1, 3))) for _ in range(rng.randint(1, 2)))
    inner = max(map(sum, tensors))
    peak, ahead = inner + rng.randint(1, 12), rng.choice([0, 0, 1, 3, 5])
    return LoopCost(
        LoopGroup(tuple(range(first, last + 1)), (1, 2), (rng.randint(1, 9), rng.randint(1, 9))),
        peak=peak,
        added=rng.randint(0, 4),
        extra_macs=rng.randint(0, 4),
        tensors=tensors,
        inner=inner,
        ahead=ahead,
        copying=rng.randint(1, 24),
        behind=peak + (rng.randint(0, 6) if ahead else 0),
    )


def curves_of(rng: random.Random, count: int) -> list[list[LoopCost]]:
    """Return some ways of computing a few intervals of so many ops."""
    found = []
    longest = rng.choice([1, 2, count])
    pairs = [(first, last) for first in range(count) for last in range(first, min(count, first + longest))]
    for first, last in rng.sample(pairs, min(len(pairs), rng.randint(1, 6))):
        curve: list[LoopCost] = []
        for _ in range(rng.randint(1, 4)):
            take_up(curve, cost_of(rng, first, last))
        found.append(curve)
    return found


def selections(costs: Sequence[LoopCost], at: int = 0) -> Iterator[tuple[LoopCost, ...]]:
    """Yield all selections of loops that do not overlap, in their order, from an op on."""
    yield ()
    for one in costs:
        if one.group.ops[0] >= at:
            for rest in selections(costs, one.group.ops[-1] + 1):
                yield (one, *rest)


def least_peak(loops: Sequence[LoopCost]) -> int:
    """Return the least that loops need of all choices of which lie in a row with those right before them."""
    follows = [
        number for number in range(1, len(loops)) if loops[number - 1].group.ops[-1] + 1 == loops[number].group.ops[0]
    ]
    found = []
    for chosen in itertools.product([False, True], repeat=len(follows)):
        chained = {number for number, one in zip(follows, chosen, strict=True) if one}
        needs = []
        for number, one in enumerate(loops):
            needs.append(one.peak)
            if number not in chained:
                needs.append(one.copying if number in follows else one.behind)
            below = 0
            for later in itertools.takewhile(chained.__contains__, range(number + 1, len(loops))):
                below += loops[later].ahead
                needs.append(one.alone + below)
        found.append(max(needs, default=0))
    return min(found)


def front(found: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the pairs of ops added and of work that no other one equals or beats."""
    kept: list[tuple[int, int]] = []
    for added, work in sorted(found):
        if not kept or work < kept[-1][1]:
            kept.append((added, work))
    return kept


def test_no_selection_of_loops_is_better() -> None:
    rng, seen, together = random.Random(5), 0, 0
    for _ in range(250):
        count = rng.randint(1, 6)
        footprints = [rng.randint(5, 24) for _ in range(count)]
        curves = curves_of(rng, count)
        costs = [one for curve in curves for one in curve]
        most, anyway = rng.choice([3, 100]), rng.random() < 0.3
        chosen = [(loops, least_peak(loops)) for loops in selections(costs)]
        for level in range(8, 26, 3):
            held = {op for one in costs if one.peak <= level for op in one.group.ops} if anyway else set(range(count))
            high = {op for op in held if footprints[op] > level}
            known = [
                loops
                for loops, peak in chosen
                if peak <= level
                and high <= {op for one in loops for op in one.group.ops}
                and sum(one.extra_macs for one in loops) <= most
            ]
            ways = ways_to(level, footprints, curves, most, anyway=anyway)
            pairs = [(sum(one.added for one in loops), sum(one.extra_macs for one in loops)) for loops in known]
            assert front((way.added, way.work) for way in ways) == front(iter(pairs))
            for way in ways:
                assert (way.added, way.work) in pairs
                assert anyway or way.peak <= level
                inside = {op for one in way.loops for op in one.group.ops}
                flat = max((size for op, size in enumerate(footprints) if op not in inside), default=0)
                assert way.peak == max(flat, least_peak(way.loops))
            seen += len(ways)
            together += sum(len(way.loops) > 1 for way in ways)
    assert seen > 500
    assert together > 100


def over_one_op(op: int, *, alone: int, inner: int, ahead: int, copying: int, behind: int) -> LoopCost:
    """Return a loop over one op."""
    group, peak = LoopGroup((op,), (1, 2), (1, 1)), alone + inner
    return LoopCost(group, peak, 1, 0, ((inner,),), inner, ahead, copying, behind)


def test_a_copy_elsewhere_leaves_room_for_the_next_loop() -> None:
    loops = (
        over_one_op(0, alone=10, inner=1, ahead=0, copying=99, behind=11),
        over_one_op(1, alone=4, inner=5, ahead=5, copying=16, behind=14),
        over_one_op(2, alone=4, inner=5, ahead=4, copying=99, behind=99),
    )
    (way,) = ways_to(17, [30, 30, 30], [[one] for one in loops], 0)
    assert way.loops == loops
    # All three in a row need 10 + 5 + 4; the first two, 10 + 5, which is less than what the copy of the second needs.
    assert way.peak == 16
    assert not ways_to(15, [30, 30, 30], [[one] for one in loops], 0)


def test_a_loop_may_fit_behind_another_one_alone() -> None:
    """Behind an op by itself its padding would lie over what that op needs."""
    loops = (
        over_one_op(0, alone=6, inner=4, ahead=0, copying=99, behind=10),
        over_one_op(1, alone=8, inner=4, ahead=3, copying=99, behind=18),
    )
    (way,) = ways_to(15, [15, 30], [[one] for one in loops], 0)
    assert way.loops == loops
    (way,) = ways_to(18, [15, 30], [[one] for one in loops], 0)
    assert way.loops == loops[1:]


def test_ways_that_no_other_one_equals_or_beats_are_kept() -> None:
    """By the definition: of two that are alike in all respects one is, and one that is worse in any is not."""
    rng = random.Random(8)

    def key(way: LoopWay) -> tuple[int, int, float]:
        return way.added, way.work, -1 if way.top is None else way.top

    dropped = 0
    for _ in range(2_000):
        tops = [None, 0, 2, 3, 5, 9]
        ways = [
            LoopWay(rng.randint(0, 5), rng.randint(0, 5), (), number, rng.choice(tops[: rng.randint(1, 6)]))
            for number in range(rng.randint(0, 12))
        ]
        keys = {key(way) for way in ways}
        least = [
            one
            for one in keys
            if not any(
                other != one and all(less <= more for less, more in zip(other, one, strict=True)) for other in keys
            )
        ]
        found = pareto(ways)
        assert sorted(map(key, found)) == sorted(least)
        assert all(any(one is way for way in ways) for one in found)
        dropped += len(ways) - len(found)
    assert dropped > 1_000
