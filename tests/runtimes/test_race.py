"""Races on a clock that the test moves: no thread of one model counts for the other, and neither begins every round."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pytest

from memsched.runtimes import race as module
from memsched.runtimes.race import RaceRule, is_vague, race, rest


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

    def models(self, seconds: Iterable[float]) -> Callable[[], object]:
        """Return a model each run of which takes other seconds."""
        runs = map(self.model, seconds)

        def run() -> None:
            next(runs)()

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(module, "time", found)
    return found


def test_threads_that_linger_count_for_nobody_else(clock: Clock) -> None:
    assert race(clock.model(0.01, 0.08), clock.model(0.01), RaceRule(4)).processor == pytest.approx(1.0)
    assert race(clock.model(0.01), clock.model(0.02, 0.08), RaceRule(4)).processor == pytest.approx(2.0)


def test_rest_ends_although_the_process_never_does(clock: Clock) -> None:
    clock.busy = 1e9
    rest()
    assert clock.now == pytest.approx(0.2)


def test_each_model_begins_every_other_round(clock: Clock) -> None:
    begun: list[str] = []
    race(lambda: begun.append("a"), lambda: begun.append("b"), RaceRule(4))
    assert "".join(begun[2:]) in {"baabbaab", "abbaabba"}


def test_rest_ends_once_nothing_works(clock: Clock) -> None:
    clock.worked, clock.busy = 100.0, 0.012
    rest()
    assert clock.now == pytest.approx(0.02)


def test_a_turn_lasts_as_long_as_asked(clock: Clock) -> None:
    found = race(clock.model(0.01), clock.model(0.02), RaceRule(1, turn=0.09))
    assert found.rounds[0][0].processor == pytest.approx(0.01)
    assert clock.worked == pytest.approx((1 + 1 + 5) * 0.03)  # begun, timed once, and a turn of both


def test_rounds_are_added_until_the_median_is_known(clock: Clock) -> None:
    # Every turn of the second takes longer than the one before: its ratios never agree.
    found = race(clock.model(0.01), clock.models(0.01 * number for number in itertools.count(1)), RaceRule(2, most=5))
    assert len(found.rounds) == 5
    assert len(race(clock.model(0.01), clock.model(0.01), RaceRule(2, most=5)).rounds) == 2


@pytest.mark.parametrize(("limit", "rounds"), [(0.5, 9), (2.0, 25), (9.0, 9)])
def test_rounds_are_added_where_they_lie_on_both_sides_of_a_limit(clock: Clock, limit: float, rounds: int) -> None:
    second = clock.models(itertools.cycle((0.01, 0.02, 0.03)))
    found = race(clock.model(0.01), second, RaceRule(9, most=25, limit=limit))
    assert len(found.rounds) == rounds


def test_no_round_but_the_least_follows_the_end_of_time(clock: Clock) -> None:
    rule = RaceRule(9, most=25, least=3, seconds=0.01)
    assert len(race(clock.model(0.01), clock.model(0.01), rule).rounds) == 3
    assert len(race(clock.model(0.01), clock.model(0.01), RaceRule(9, most=25, seconds=0.01)).rounds) == 9


def test_what_makes_a_turn_ready_is_not_timed(clock: Clock) -> None:
    found = race(clock.model(0.01), clock.model(0.02), RaceRule(3), start=lambda _: clock.model(1.0)())
    assert found.clock == pytest.approx(2.0)
    assert [turn.clock for turn in found.quickest] == pytest.approx([0.01, 0.02])


def test_a_median_is_vague_where_ratios_differ_much_for_their_number() -> None:
    assert not is_vague([1.0] * 5)
    assert is_vague([1.0])
    assert is_vague([0.9, 0.95, 1.0, 1.05, 1.1])
    assert not is_vague([0.99, 0.995, 1.0, 1.005, 1.01])
    assert not is_vague([0.98, 0.99, 1.0, 1.01, 1.02] * 8)
