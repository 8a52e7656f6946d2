"""The threshold search with events: every direction against brute force, and what events promise."""

from __future__ import annotations

import itertools
import random

import pytest

from memsched.graph.contraction import Tasks
from memsched.graph.dag import members
from memsched.solve.schedule.events import find_events
from memsched.solve.schedule.moves import Moves, backward_moves, final_residue, forward_moves
from memsched.solve.schedule.threshold import ThresholdSearch
from tests.brute_force import optimal_peak
from tests.random_graphs import random_graph
from tests.solve.schedule.test_exact import chains, peak_of, tasks_of


def direction(tasks: Tasks, *, forward: bool) -> tuple[Moves, int]:
    """Return the moves of a direction, and the residue before the first of them."""
    return (forward_moves(tasks), tasks.initial) if forward else (backward_moves(tasks), final_residue(tasks))


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_each_direction_alone_agrees_with_brute_force(seed: int, forward: bool) -> None:
    rng = random.Random(700 + seed)
    for _ in range(60):
        graph = random_graph(rng, rng.randint(1, 11))
        tasks = tasks_of(graph)
        moves, residue = direction(tasks, forward=forward)
        search = ThresholdSearch(moves, residue, find_events(moves))
        assert search.run(0, None, 1_000_000, lambda: False) == "found"
        path = search.path()
        order = path if forward else tuple(reversed(path))
        assert search.threshold == optimal_peak(graph)
        assert peak_of(tasks, order) == search.threshold


@pytest.mark.parametrize("forward", [True, False])
def test_what_dies_only_raises_a_task_above_the_later_residue(forward: bool) -> None:
    # What the proofs of `events` rest on: bexc is monotone in the set of shared buffers.
    rng = random.Random(3)
    for _ in range(200):
        moves, _ = direction(tasks_of(random_graph(rng, rng.randint(2, 12))), forward=forward)
        for task, shared in enumerate(moves.shared):
            places = range(min(len(shared), 5))
            for few in itertools.chain.from_iterable(
                itertools.combinations(places, size) for size in range(len(places))
            ):
                for one in set(places) - set(few):
                    fewer = sum(1 << place for place in few)
                    lower, higher = (above(moves, task, dying) for dying in (fewer, fewer | 1 << one))
                    assert lower <= higher if forward else lower >= higher


def above(moves: Moves, task: int, dying: int) -> int:
    """Return a task's footprint above the residue after it, bytes."""
    change = moves.change[task] + moves.sign * sum(moves.shared[task][place][1] for place in members(dying))
    return moves.excess(task, dying) - change


def test_risers_are_not_branched_on() -> None:
    # Eight branches of three ops that only grow until they are joined have 4^8 downsets.
    tasks = tasks_of(chains(8, 3, (1, 2, 3, 4)))
    moves, residue = direction(tasks, forward=True)
    search = ThresholdSearch(moves, residue, find_events(moves))
    assert search.run(0, None, 1_000_000, lambda: False) == "found"
    assert search.states < 100


def test_too_many_ways_to_meet_buffers_are_none() -> None:
    rng = random.Random(5)
    graph = random_graph(rng, 11)
    tasks = tasks_of(graph)
    moves, residue = direction(tasks, forward=False)
    events = find_events(moves, most_ways=1)
    assert events.risers == 0
    search = ThresholdSearch(moves, residue, events)
    assert search.run(0, None, 1_000_000, lambda: False) == "found"
    assert search.threshold == optimal_peak(graph)


def test_large_problems_branch_on_every_move_and_hear_stop_soon() -> None:
    # Two hundred branches of one op would make every state look at all of them.
    moves, residue = direction(tasks_of(chains(200, 2, (1, 2, 3))), forward=True)
    events = find_events(moves)
    assert events.risers == 0
    search, asked = ThresholdSearch(moves, residue, events), itertools.count()
    assert search.run(0, None, 50, lambda: next(asked) == 3) == "stopped"
    assert search.states < 50
