"""Searches that are asked to end, or run out of time, wherever that happens: what is left is whole and never worse."""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import pytest

import memsched
from memsched.commands.optimize.place import GivenUpError, Request
from memsched.search.limits import Limits
from memsched.search.progress import Progress
from memsched.search.run import Run
from tests.commands.optimize.test_choose import convolutions, skip_connection
from tests.rewrites.tile.random_nets import onnx_net, tflite_net

REWRITES: dict[str, Any] = {"allow": ("all",), "max_extra_macs": 100.0, "budget": 1}


def request(end: float, *, stopped: bool = False) -> Request:
    return Request(Run(Limits(None), stop=lambda: stopped), end=end)


def test_only_what_can_be_done_without_is_given_up() -> None:
    late = request(time.monotonic() - 1)
    late.go_on()
    with pytest.raises(GivenUpError):
        late.as_optional().go_on()
    request(math.inf).as_optional().go_on()
    request(math.inf, stopped=True).as_optional().go_on()
    assert late.as_optional().stopped()
    late.as_optional(needed=True).go_on()
    assert late.as_optional(needed=True).stopped()


def test_a_share_of_the_time_does_not_move_the_end_of_the_run() -> None:
    whole = Request(Run(Limits(100.0)), end=time.monotonic() + 100.0)
    part = whole.within(0.25)
    assert part.remaining() < 30
    assert part.end == whole.end
    part.as_optional().go_on()


@pytest.mark.parametrize("last", [0, 1, 5, 20, 60, 180, 500])
@pytest.mark.parametrize("data", [onnx_net(0), tflite_net(4)], ids=["onnx", "tflite"])
def test_a_search_may_be_ended_anywhere(data: bytes, last: int) -> None:
    asked = itertools.count()
    ended = memsched.optimize(
        data,
        time_limit=None,
        hooks=memsched.Hooks(stop=lambda: next(asked) >= last),
        order_guarantee="session",
        **REWRITES,
    )
    assert ended.interrupted == (next(asked) > last)
    assert ended.verification is not None
    assert ended.verification.outputs_equal or (ended.verification.relative_error or 0) <= 1e-5
    assert ended.report["written"]["schedule"]["peak_bytes"] <= ended.report["original"]["schedule"]["peak_bytes"]


@pytest.mark.parametrize("data", [onnx_net(0), tflite_net(4)], ids=["onnx", "tflite"])
def test_no_time_at_all_is_enough_for_a_model(data: bytes) -> None:
    result = memsched.optimize(data, time_limit=0, verify=True, order_guarantee="session", **REWRITES)
    assert result.verification is not None
    assert result.verification.outputs_equal
    assert result.report["sections"]["tile"]["applied"] is False
    assert result.report["sections"]["recompute"]["applied"] is False


@pytest.mark.parametrize(
    ("data", "stage", "section"),
    [(convolutions(), "tiling", "tile"), (skip_connection(), "rematerialisation", "recompute")],
    ids=["tile", "remat"],
)
def test_the_first_that_is_found_is_written_although_the_time_is_up(
    monkeypatch: pytest.MonkeyPatch, data: bytes, stage: str, section: str
) -> None:
    """The clock is an hour later from the moment at which a search tells that something needs less."""
    clock, late = time.monotonic, [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock() + late[0])
    first: list[int] = []

    def tell(progress: Progress) -> None:
        first.append(progress.best_peak)
        if progress.stage == stage and progress.best_peak < first[0]:
            late[0] = 3600.0

    permitted: dict[str, Any] = {
        "allow": ("reorder", "inplace", "tile" if section == "tile" else "remat"),
        "max_extra_macs": 50.0,
    }
    result = memsched.optimize(
        data, time_limit=600, hooks=memsched.Hooks(on_progress=tell), order_guarantee="session", **permitted
    )
    assert late[0]
    report = result.report
    assert report["sections"][section]["applied"]
    assert report["written"]["schedule"]["arena_bytes"] < report["original"]["schedule"]["arena_bytes"]
    assert result.verification is not None
    assert (result.verification.relative_error or 0) <= 1e-5


def test_without_any_time_nothing_is_begun() -> None:
    report = memsched.optimize(convolutions(), time_limit=0, level=2, verify=False).report
    assert not report["sections"]["tile"]["applied"]
    assert not report["sections"]["tile"]["judged"]
