"""Minimum cuts against all downsets, and inner orders against all orders."""

from __future__ import annotations

import itertools
import random

from memsched.solve.fusion.closure import FusionGroup, InnerBuffer, lowest_inner_residue
from memsched.solve.fusion.inner import InnerCosts, best_inner_order


def random_group(rng: random.Random) -> FusionGroup:
    count = rng.randint(1, 7)
    preds: list[set[int]] = [set() for _ in range(count)]
    buffers = []
    for _ in range(rng.randint(1, 8)):
        creator = rng.randint(-1, count - 1)
        later = range(creator + 1, count)
        users = tuple(sorted(rng.sample(later, rng.randint(0 if creator >= 0 else 1, min(3, len(later))))))
        for user in users:
            if creator >= 0:
                preds[user].add(creator)
        survives = rng.random() < 0.3 or not users
        buffers.append(InnerBuffer(rng.randint(0, 9), creator, users, survives))
    return FusionGroup(tuple(tuple(sorted(befores)) for befores in preds), tuple(buffers))


def downsets(group: FusionGroup) -> list[int]:
    count = len(group.preds)
    return [
        done
        for done in range(1 << count)
        if all(done >> before & 1 for task in range(count) if done >> task & 1 for before in group.preds[task])
    ]


def test_the_lowest_inner_residue_is_that_of_all_downsets() -> None:
    rng = random.Random(1)
    compared = 0
    for _ in range(1500):
        group = random_group(rng)
        inner = downsets(group)[1:-1]
        expected = min((group.change(done) for done in inner), default=None)
        assert lowest_inner_residue(group) == expected, group
        compared += expected is not None
    assert compared > 1000


def test_the_inner_order_is_the_best_of_all() -> None:
    rng = random.Random(2)
    for _ in range(400):
        group = random_group(rng)
        count = len(group.preds)
        needs = {
            b: sum(1 << user for user in buffer.users) for b, buffer in enumerate(group.buffers) if not buffer.survives
        }
        created = [sum(b.size for b in group.buffers if b.creator == task) for task in range(count)]
        reads = [[b for b, buffer in enumerate(group.buffers) if task in buffer.users] for task in range(count)]
        costs = InnerCosts(
            top=[created[task] + rng.randint(0, 9) for task in range(count)],
            before=[[b for b in reads[task] if rng.random() < 0.3] for task in range(count)],
            pairs=[()] * count,
            needs=needs,
            sizes=[buffer.size for buffer in group.buffers],
        )
        peaks = {}
        for order in itertools.permutations(range(count)):
            place = {task: step for step, task in enumerate(order)}
            if any(place[before] > place[task] for task in range(count) for before in group.preds[task]):
                continue
            done, peak = 0, 0
            for task in order:
                peak = max(peak, group.change(done) + costs.excess(task, done | 1 << task))
                done |= 1 << task
            peaks[order] = peak
        found = best_inner_order(group, costs, 10_000)
        assert found.order is not None
        assert found.peak == min(peaks.values()) == peaks[found.order]


def test_an_inner_order_beyond_the_effort_is_given_up() -> None:
    group = FusionGroup(((), (), ()), tuple(InnerBuffer(1, task, (), True) for task in range(3)))
    costs = InnerCosts([1, 2, 3], [[], [], []], [(), (), ()], {}, [1, 1, 1])
    found = best_inner_order(group, costs, 2)
    assert found.order is None
    assert found.states == 2
