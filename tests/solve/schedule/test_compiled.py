"""The compiled threshold search beside the one in Python: the same states, thresholds and orders."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable

import pytest

from memsched.core import library as core
from memsched.solve.schedule.compiled import CompiledThresholdSearch, DirectedSearch, directed_search
from memsched.solve.schedule.events import find_events
from memsched.solve.schedule.threshold import ThresholdSearch
from tests.failures import fails
from tests.random_graphs import random_graph
from tests.solve.schedule.test_events import direction
from tests.solve.schedule.test_exact import chains, tasks_of

compiled = pytest.mark.skipif(core.library() is None, reason="the installation has no compiled core: no C++ compiler")


def both(size: int, rng: random.Random, *, forward: bool) -> tuple[ThresholdSearch, CompiledThresholdSearch]:
    """Return the two searches of a random graph."""
    moves, residue = direction(tasks_of(random_graph(rng, size)), forward=forward)
    events, library = find_events(moves), core.library()
    assert library is not None
    return ThresholdSearch(moves, residue, events), CompiledThresholdSearch(moves, residue, events, library)


@compiled
@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_equal_step_by_step(seed: int, forward: bool) -> None:
    rng = random.Random(900 + seed)
    for _ in range(30):
        one, other = both(rng.randint(1, 28), rng, forward=forward)
        threshold, upper = rng.choice([0, 0, 15]), rng.choice([None, None, 60])
        ending = ""
        while ending not in {"found", "exhausted"}:
            budget = rng.choice([1, 3, 50, 400])
            ending = one.run(threshold, upper, budget, lambda: False)
            assert other.run(threshold, upper, budget, lambda: False) == ending
            assert (one.states, one.threshold) == (other.states, other.threshold)
            threshold = max(threshold, one.threshold)
        if ending == "found":
            assert one.path() == other.path()


@compiled
def test_sets_of_several_words() -> None:
    for count, length in ((9, 12), (11, 14), (13, 20), (20, 19), (24, 21)):
        moves, residue = direction(tasks_of(chains(count, length, (9, 4, 7, 2, 8, 3))), forward=True)
        events, library = find_events(moves), core.library()
        assert library is not None
        found: list[DirectedSearch] = [
            ThresholdSearch(moves, residue, events),
            CompiledThresholdSearch(moves, residue, events, library),
        ]
        results = [(one.run(0, None, 300, lambda: False), one.states, one.threshold) for one in found]
        assert results[0] == results[1]


@compiled
def test_stop_is_asked_and_what_it_raises_arrives() -> None:
    def raising() -> bool:
        raise KeyboardInterrupt

    def search() -> DirectedSearch:
        return both(20, random.Random(4), forward=True)[1]

    assert search().run(0, None, 1_000, lambda: True) == "stopped"
    with pytest.raises(KeyboardInterrupt):
        search().run(0, None, 1_000, raising)


def test_large_problems_are_left_to_python() -> None:
    moves, residue = direction(tasks_of(chains(30, 18, (9, 4, 7))), forward=True)
    assert isinstance(directed_search(moves, residue), ThresholdSearch)


@pytest.mark.parametrize(("choice", "load"), [("0", lambda: pytest.fail("loaded")), ("auto", lambda: None)])
def test_python_where_it_is_chosen_or_alone(
    choice: str, load: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMSCHED_CORE", choice)
    monkeypatch.setattr(core, "_load", load)
    assert core.library.__wrapped__() is None


def test_a_core_that_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMSCHED_CORE", "1")
    monkeypatch.setattr(core, "_load", lambda: None)
    with fails("no-compiled-core", "MEMSCHED_CORE=1"):
        core.library.__wrapped__()


def test_the_command_line_loads_no_core() -> None:
    said = "import sys, memsched.cli.main; print('memsched.core.library' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
