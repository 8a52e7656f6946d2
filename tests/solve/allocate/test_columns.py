"""Buffers as arrays beside buffers one by one, and the compiled sweep beside the one in Python."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from memsched.check.schedule import check_allocation
from memsched.core.library import library
from memsched.graph import liveness
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Placement
from memsched.solve.allocate import arena, greedy
from memsched.solve.allocate.arena import allocate, packed
from memsched.solve.allocate.buffers import buffers
from memsched.solve.allocate.columns import columns_of
from tests.graph.examples import schedule_of
from tests.random_graphs import random_graph, random_order


def test_the_same_buffers_in_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "MANY_OPS", 0)
    monkeypatch.setattr(arena, "MOST_SCANNED", 0)
    rng, seen = random.Random(5), 0
    for _ in range(250):
        graph = random_graph(rng, rng.randint(1, 14), layable=True)
        order, storage = random_order(rng, graph), Storage.of(graph)
        profile = evaluate(storage, order)
        schedule = schedule_of(order, profile.peak, profile.in_place(storage, order))
        assert storage.uses is not None
        spans = columns_of(graph, schedule, storage, storage.uses)
        if spans is None:
            assert any(len(places) > 1 for places in storage.buffers_of)
            continue
        seen += 1
        columns = zip(spans.begins.tolist(), spans.ends.tolist(), spans.sizes.tolist(), spans.named(), strict=True)
        wanted = buffers(graph, schedule, storage)
        assert list(columns) == [(one.first_step, one.last_step, one.size, one.tensors) for one in wanted]
        if wanted:
            check_allocation(graph, schedule, allocate(graph, schedule, alignment=rng.choice([1, 4])))
    assert seen > 80


def test_addresses_are_made_once_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "MANY_OPS", 0)
    monkeypatch.setattr(arena, "MOST_SCANNED", 0)
    rng, later = random.Random(8), 0
    made: list[object] = []

    def placement(*parts: Any) -> Placement:
        made.append(parts)
        return Placement(*parts)

    monkeypatch.setattr(arena, "Placement", placement)
    for _ in range(150):
        graph = random_graph(rng, rng.randint(1, 14), layable=True)
        order, storage = random_order(rng, graph), Storage.of(graph)
        profile = evaluate(storage, order)
        schedule = schedule_of(order, profile.peak, profile.in_place(storage, order))
        made.clear()
        found = packed(graph, schedule, alignment=4)
        kept = not made
        assert found.allocation is found.allocation
        assert (
            found.arena
            == found.allocation.arena
            == max((one.offset + one.size for one in found.allocation.placements), default=0)
        )
        assert found.allocation == allocate(graph, schedule, alignment=4)
        assert copy.copy(found).allocation == found.allocation
        later += kept and bool(made)
    assert later > 50


@pytest.mark.skipif(library() is None, reason="the installation has no compiled core: no C++ compiler")
@pytest.mark.parametrize("tight", [True, False])
def test_the_compiled_sweep_places_as_the_one_in_python(tight: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(tight)
    for _ in range(150):
        count, steps, largest = rng.randint(1, 60), rng.randint(1, 30), rng.choice([2, 9, 300])
        begins = [rng.randint(-steps, steps) for _ in range(count)]
        ends = [begin + rng.randint(1, steps) for begin in begins]
        sizes = [rng.randint(0, largest) for _ in range(count)]
        found = greedy.sweep(begins, ends, sizes, tight=tight)
        with monkeypatch.context() as patched:
            patched.setattr(greedy, "library", lambda: None)
            assert found == greedy.sweep(begins, ends, sizes, tight=tight)
