"""The compiled core beside Python: the same inner orders, peaks and states; the same monotonic fusions and work."""

from __future__ import annotations

import random

import pytest

from memsched.core.library import library
from memsched.graph.liveness import Storage
from memsched.solve.fusion import compiled_monotonic
from memsched.solve.fusion.closure import FusionGroup, InnerBuffer
from memsched.solve.fusion.compiled import inner_order_by_core
from memsched.solve.fusion.compiled_monotonic import fused_monotonic
from memsched.solve.fusion.inner import InnerCosts, best_inner_order
from memsched.solve.fusion.quotient import FusionState
from tests.random_graphs import random_graph

WITH_CORE = pytest.mark.skipif(library() is None, reason="the installation has no compiled core: no C++ compiler")


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


@WITH_CORE
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


def fused(storage: Storage, reachability_limit: int, budget: int) -> tuple[dict[str, object], int]:
    graph, fusions = fused_monotonic(storage, reachability_limit, budget, None)
    return {name: getattr(graph, name) for name in FusionState.__struct_fields__}, fusions


@WITH_CORE
@pytest.mark.parametrize("seed", range(4))
def test_equal_monotonic_fusions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With reachability and without, to the end and until the work is spent."""
    rng, made = random.Random(60 + seed), 0
    for _ in range(100):
        storage = Storage.of(random_graph(rng, rng.randint(1, 40)))
        reachability_limit, budget = rng.choice([20_000, 20_000, 0]), rng.choice([10**9, rng.randint(0, 400)])
        by_core = fused(storage, reachability_limit, budget)
        with monkeypatch.context() as patched:
            patched.setattr(compiled_monotonic, "library", lambda: None)
            assert fused(storage, reachability_limit, budget) == by_core
        made += by_core[1]
    assert made > 400


@WITH_CORE
def test_what_stops_a_fusion_passes_through_the_core() -> None:
    def broken() -> bool:
        raise KeyError("asked")

    with pytest.raises(KeyError, match="asked"):
        fused_monotonic(Storage.of(random_graph(random.Random(1), 9)), 20_000, 10**9, broken)
