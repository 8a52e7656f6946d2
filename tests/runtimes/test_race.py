"""Races on a clock that the test moves: no thread of one model counts for the other, and neither begins every round."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memsched.runtimes import race as module
from memsched.runtimes.race import is_vague, race, rest


class Clock:
    """A clock of the process: models work on it at once, and their threads go on for ``busy`` seconds."""

    def __init__(self) -> None:
        self.now = self.worked = self.busy = 0.0

    def perf_counter(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.worked

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        more = min(seconds, self.busy)
        self.worked += more
        self.busy -= more

    def model(self, seconds: float, lingering: float = 0.0) -> Callable[[], object]:
        def run() -> None:
            self.now += seconds
            self.worked += seconds + min(seconds, self.busy)
            self.busy = lingering

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


def test_threads_that_linger_count_for_nobody_else(clock: Clock) -> None:
    assert race(clock.model(0.01, 0.08), clock.model(0.01), rounds=4).processor == pytest.approx(1.0)
    assert race(clock.model(0.01), clock.model(0.02, 0.08), rounds=4).processor == pytest.approx(2.0)


def test_rest_ends_although_the_process_never_does(clock: Clock) -> None:
    clock.busy = 1e9
    rest()
    assert clock.now == pytest.approx(0.2)


def test_each_model_begins_every_other_round(clock: Clock) -> None:
    begun: list[str] = []
    race(lambda: begun.append("a"), lambda: begun.append("b"), rounds=4)
    assert "".join(begun[2:]) in {"baabbaab", "abbaabba"}


def test_rest_ends_once_nothing_works(clock: Clock) -> None:
    clock.worked, clock.busy = 100.0, 0.012
    rest()
    assert clock.now == pytest.approx(0.02)


def test_a_turn_lasts_as_long_as_asked(clock: Clock) -> None:
    found = race(clock.model(0.01), clock.model(0.02), rounds=1, turn=0.09)
    assert found.rounds[0][0].processor == pytest.approx(0.01)
    assert clock.worked == pytest.approx((1 + 1 + 5) * 0.03)  # begun, timed once, and a turn of both


def test_rounds_are_added_until_they_decide(clock: Clock) -> None:
    found = race(clock.model(0.01), clock.model(0.01), rounds=2, goes_on=lambda ratios: len(ratios) < 5)
    assert len(found.rounds) == 5
    assert found.clock == pytest.approx(1.0)


def test_no_round_follows_the_end(clock: Clock) -> None:
    assert len(race(clock.model(0.01), clock.model(0.01), rounds=9, ends=lambda done: done == 3).rounds) == 3


def test_a_median_is_vague_where_ratios_differ_much_for_their_number() -> None:
    assert not is_vague([1.0] * 5)
    assert is_vague([1.0])
    assert is_vague([0.9, 0.95, 1.0, 1.05, 1.1])
    assert not is_vague([0.99, 0.995, 1.0, 1.005, 1.01])
    assert not is_vague([0.98, 0.99, 1.0, 1.01, 1.02] * 8)
