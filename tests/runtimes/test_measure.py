"""Runs until a process stops growing: blocks that later runs keep are in what is measured."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from memsched.runtimes import measure
from memsched.runtimes.measure import LEAST_RUNS, SteadyRuns, forget_highest, process_bytes, run_until_steady

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="figures of /proc")

_BLOCK = 8 << 20


@pytest.fixture
def growing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[SteadyRuns, list[int]]]:
    """Return what is measured of a process that grows by a block in the runs that are named, and the sizes run."""
    taken, ran = [0], list[int]()
    monkeypatch.setattr(measure, "process_bytes", lambda _: taken[0])

    def measured(blocks: set[int], *, sizes: int = 1, seconds: float | None = None) -> tuple[SteadyRuns, list[int]]:
        def run(number: int) -> None:
            ran.append(number)
            taken[0] += _BLOCK * (len(ran) in blocks)

        return run_until_steady(run, 0, sizes=sizes, seconds=seconds), ran

    return measured


@pytest.mark.parametrize("grows", [{1}, {1, 2}, {1, 2, 3}, {1, 5}, {1, 3, 5, 7, 9}])
def test_all_that_later_runs_keep_is_measured(
    growing: Callable[..., tuple[SteadyRuns, list[int]]], grows: set[int]
) -> None:
    found, ran = growing(grows)
    assert found.settled
    assert found.peak == _BLOCK * len(grows)
    assert len(ran) == found.runs == max(LEAST_RUNS, max(grows) + 2)


def test_a_process_that_never_stops_growing_is_told_from_one_that_did(
    growing: Callable[..., tuple[SteadyRuns, list[int]]],
) -> None:
    found, _ = growing(set(range(100)))
    assert not found.settled


def test_sizes_take_turns_until_none_of_them_adds_memory(
    growing: Callable[..., tuple[SteadyRuns, list[int]]],
) -> None:
    found, ran = growing({1, 2, 3, 9}, sizes=3)
    assert ran[:6] == [0, 1, 2, 0, 1, 2]
    assert found.settled
    assert found.peak == 4 * _BLOCK
    assert found.runs == 15


def test_the_highest_memory_of_a_real_process_is_measured() -> None:
    forget_highest()  # other tests of this process took more
    before = process_bytes("VmHWM:")
    found = run_until_steady(lambda _: bytearray(b"1") * (64 << 20), before)
    assert found.settled
    assert found.peak - before >= 60 << 20


def test_time_ends_what_has_not_settled(growing: Callable[..., tuple[SteadyRuns, list[int]]]) -> None:
    found, ran = growing({1, 2, 3, 4}, seconds=0)
    assert not found.settled
    assert len(ran) == 2
