"""When models are made of what a search has found: with more work nothing that was found is lost."""

from __future__ import annotations

import itertools

import memsched
from memsched.commands.optimize.looks import Looks
from memsched.commands.optimize.place import Request
from memsched.search.limits import Limits
from memsched.search.run import Run
from scripts.bench.runner.models import built


def looked_at(effort: float) -> list[float]:
    """Return the work at each look of a search that needs more than it gets and whose peak falls all the time."""
    looks, found, peak = Looks(), [], 1000.0
    looks.within(Request(Run(Limits(None, effort=effort))), 0.0)
    while True:
        peak *= 0.9
        assert looks.worth(peak, last=False)
        found.append(looks.at)
        if not looks.next():
            return found


def test_more_work_adds_looks_to_those_of_less() -> None:
    amounts = [looked_at(effort) for effort in (3.0, 8.0, 30.0, 100.0)]
    for less, more in itertools.pairwise(amounts):
        assert more[: len(less)] == less
        assert len(more) > len(less)
    # Most of the limit is used, and all looks together leave enough for models.
    assert all(
        0.5 * effort <= found[-1] <= 0.71 * effort for found, effort in zip(amounts[1:], (8, 30, 100), strict=True)
    )


def test_a_small_limit_is_looked_at_once_at_its_end() -> None:
    assert looked_at(1.0) == [0.71]


def test_a_peak_that_hardly_fell_is_not_worth_a_model_in_between() -> None:
    looks = Looks()
    looks.within(Request(Run(Limits(None, effort=100.0))), 0.0)
    assert looks.worth(100.0, last=False)
    assert looks.next()
    assert not looks.worth(99.0, last=False)
    assert looks.worth(99.0, last=True)
    assert looks.next()
    assert looks.worth(98.9, last=False)
    assert not looks.worth(98.9, last=True)
    looks.again()
    assert looks.worth(98.9, last=True)


def test_without_a_limit_there_is_none() -> None:
    looks = Looks()
    looks.within(Request(Run(Limits(None))), 0.0)
    assert not looks.fixed


def test_more_work_requires_no_more() -> None:
    data = built("hrnet_w18_small_v1")
    required = []
    for effort in (6.0, 12.0):
        report = memsched.optimize(data, effort=effort, level=2, verify=False).report
        required.append(report["requirement"]["bytes"] + report["requirement"]["structures_bytes"])
    assert required[1] <= required[0]
