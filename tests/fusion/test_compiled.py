"""Inner orders by the compiled core beside those in Python: the same orders, peaks and states."""

from __future__ import annotations

import random

import pytest

from memsched.core.library import library
from memsched.fusion.closure import FusionGroup, InnerBuffer
from memsched.fusion.compiled import inner_order_by_core
from memsched.fusion.inner import InnerCosts, best_inner_order


def random_group(rng: random.Random, count: int) -> tuple[FusionGroup, InnerCosts]:
    """Return a group of ``count`` tasks, some of whose buffers survive, come from outside, or lower an excess."""
    preds = tuple(tuple(before for before in range(task) if rng.random() < 2 / count) for task in range(count))
    buffers, before = [], [[] for _ in range(count)]  # type: ignore[var-annotated]
    for number in range(2 * count):
        creator = rng.randrange(-1, count - 1)
        users = tuple(sorted(rng.sample(range(creator + 1, count), min(count - creator - 1, rng.randint(1, 3)))))
        buffers.append(InnerBuffer(rng.randint(0, 9), creator, users, rng.random() < 0.2))
        before[rng.choice(users)].append(number)
    needs = {
        number: sum(1 << user for user in buffer.users) for number, buffer in enumerate(buffers) if not buffer.survives
    }
    top = [rng.randint(5, 20) for _ in range(count)]
    sizes = [buffer.size for buffer in buffers]
    return FusionGroup(preds, tuple(buffers)), InnerCosts(top, before, [()] * count, needs, sizes)


@pytest.mark.skipif(library() is None, reason="the installation has no compiled core: no C++ compiler")
@pytest.mark.parametrize("seed", range(4))
def test_equal(seed: int) -> None:
    core, rng = library(), random.Random(40 + seed)
    assert core is not None
    found = []
    for _ in range(60):
        group, costs = random_group(rng, rng.choice([1, 2, 5, 9, 14, 64]))
        most = rng.choice([1, 20, 200])
        found.append(best_inner_order(group, costs, most))
        assert inner_order_by_core(group, costs, most, core) == found[-1]
    assert {one.order is None for one in found} == {False, True}
