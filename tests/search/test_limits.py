"""Limits of a search: what is no limit is refused in one line, and the clock counts down to 0."""

from __future__ import annotations

import math
from typing import Any

import pytest

from memsched.errors import UsageError
from memsched.search.limits import Limits


def test_the_limits_that_nobody_asked_for() -> None:
    limits = Limits()
    assert (limits.time_limit, limits.seed, limits.workers, limits.rounds, limits.executor) == (60.0, 0, 1, None, None)


def test_the_smallest_and_the_largest_that_are_possible() -> None:
    for limits in (Limits(0.0), Limits(None), Limits(seed=2**31 - 1), Limits(workers=1)):
        assert limits.seed >= 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"time_limit": -0.5}, "--time-limit -0.5 is no number of seconds: give 0 or more"),
        ({"time_limit": math.nan}, "--time-limit nan is no number of seconds: give 0 or more"),
        ({"seed": -1}, f"--seed -1 is out of range: give a number from 0 to {2**31 - 1}"),
        ({"seed": 2**31}, f"--seed {2**31} is out of range: give a number from 0 to {2**31 - 1}"),
        ({"workers": 0}, "--workers 0 is not possible: give 1 or more"),
    ],
)
def test_what_is_no_limit_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Limits(**values)
    assert str(caught.value) == message


def test_limits_are_equal_wherever_the_work_is_done() -> None:
    assert Limits() == Limits(executor=object())  # type: ignore[arg-type]
    assert "executor" not in repr(Limits())
