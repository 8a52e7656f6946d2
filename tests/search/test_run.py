"""A run knows its time by its own clock, and what is given away of it is never more than is left."""

from __future__ import annotations

import math

from memsched.search.limits import Limits
from memsched.search.progress import Progress
from memsched.search.run import Run


class Clock:
    """Shows the time that it was set to."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_the_time_left_falls_to_0_and_never_below() -> None:
    clock = Clock(100.0)
    run = Run(Limits(5.0), 100.0, clock=clock)
    left = []
    for clock.now in (100.0, 104.5, 105.0, 107.0):
        left.append((run.remaining(), run.elapsed(), run.late()))
    assert left == [(5.0, 0.0, False), (0.5, 4.5, False), (0.0, 5.0, True), (0.0, 7.0, True)]
    assert run.deadline() == 105.0
    assert Run(Limits(0.0), 100.0, clock=Clock(100.0)).over()


def test_without_a_limit_of_time_only_a_user_ends_it() -> None:
    asked = [False]
    run = Run(Limits(None), 3.0, stop=lambda: asked[0], clock=Clock(1e9))
    assert (run.deadline(), run.remaining(), run.over()) == (math.inf, math.inf, False)
    asked[0] = True
    assert run.over()
    assert not run.late()


def test_a_part_is_of_what_is_left_and_ends_with_the_whole() -> None:
    clock = Clock(102.0)
    run = Run(Limits(10.0, seed=4), 100.0, clock=clock)
    part = run.within(0.25)
    assert (part.started, part.remaining(), part.limits.seed) == (100.0, 2.0, 4)
    assert part.within(1.0).deadline() == part.deadline() == 104.0
    assert run.until(0.25).deadline() == 102.5
    clock.now = 104.0
    assert part.over()
    assert not run.over()
    assert run.within(0.5).deadline() == 107.0


def test_work_is_shared_out_before_time() -> None:
    assert Run(Limits(None, effort=8.0)).within(0.5).limits.effort == 4.0
    for part in (Run(Limits(10.0, effort=8.0)).within(0.5), Run(Limits(10.0, effort=8.0)).until(0.5)):
        assert (part.limits.time_limit, part.limits.effort) == (10.0, 4.0)
    assert Run(Limits(None)).within(0.5).limits == Limits(None)
    assert Run(Limits(None, effort=8.0)).until(0.5).limits.effort == 4.0


def test_all_parts_draw_on_one_meter() -> None:
    run = Run(Limits(None, effort=8.0))
    part = run.within(0.5)
    part.spend(3.0)
    assert (part.effort(), run.effort(), run.meter.done) == (1.0, 5.0, 3.0)
    # A share is of the limit, whatever was used, as far as so much is left.
    assert (run.within(0.5).effort(), run.within(0.75).effort(), run.until(0.5).effort()) == (4.0, 5.0, 1.0)
    assert run.rest().within(0.5).effort() == 2.5
    part.spend(2.0)
    assert (part.effort(), part.over(), part.late(), run.over()) == (0.0, True, False, False)
    assert run.anew(None).limits.effort == 3.0
    assert run.again(Limits(None, effort=8.0)).effort() == 8.0
    assert Run(Limits(None)).effort() is None


def test_a_search_that_counts_no_work_pays_whenever_it_asks() -> None:
    run = Run(Limits(None, effort=1.0)).paying(0.25)
    assert [run.over() for _ in range(5)] == [False, False, False, True, True]
    assert run.meter.done == 1.0


def test_a_run_that_begins_again_is_for_the_same_user() -> None:
    told: list[Progress] = []
    clock = Clock(0.0)
    run = Run(Limits(1.0), 0.0, stop=lambda: True, on_progress=told.append, clock=clock)
    clock.now = 50.0
    again = run.again(Limits(2.0))
    assert again.deadline() == 52.0
    assert again.stop()
    clock.now = 51.0
    again.tell("search", 7, 5)
    again.quiet().tell("search", 6, 5)
    assert told == [Progress("search", 7, 5, 1.0)]


def test_who_says_nothing_is_asked_and_told_nothing() -> None:
    run = Run.of(Limits(None), 1.0)
    assert run.started == 1.0
    assert not run.over()
    run.tell("search", 1, 0)
