"""Limits of a search: what is no limit is refused in one line, and the clock counts down to 0."""

from __future__ import annotations

import math
from typing import Any

import pytest

from memsched.base.errors import UsageError
from memsched.search.limits import Limits
from tests.failures import fails


def test_the_limits_that_nobody_asked_for() -> None:
    limits = Limits()
    assert (limits.time_limit, limits.seed, limits.workers, limits.rounds, limits.executor) == (60.0, 0, 1, None, None)


def test_the_smallest_and_the_largest_that_are_possible() -> None:
    for limits in (Limits(0.0), Limits(None), Limits(seed=2**31 - 1), Limits(workers=1)):
        assert limits.seed >= 0


@pytest.mark.parametrize(
    ("values", "about"),
    [
        ({"time_limit": -0.5}, ["--time-limit -0.5", "0"]),
        ({"time_limit": math.nan}, ["--time-limit nan", "0"]),
        ({"seed": -1}, ["--seed -1", str(2**31 - 1)]),
        ({"seed": 2**31}, [f"--seed {2**31}", str(2**31 - 1)]),
        ({"workers": 0}, ["--workers 0", "1"]),
    ],
)
def test_what_is_no_limit_is_refused(values: dict[str, Any], about: list[str]) -> None:
    with fails("option-range", *about) as caught:
        Limits(**values)
    assert isinstance(caught.value, UsageError)


def test_limits_are_equal_wherever_the_work_is_done() -> None:
    assert Limits() == Limits(executor=object())  # type: ignore[arg-type]
    assert "executor" not in repr(Limits())
