"""Work as a limit instead of seconds: the same result on every machine, however busy."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import pytest

import memsched
from memsched.commands.optimize.place import Request
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import schedule_graph
from tests.commands.optimize.test_choose import both, convolutions, skip_connection
from tests.failures import fails
from tests.random_graphs import random_layered_graph
from tests.rewrites.tile.random_nets import onnx_net, tflite_net

CLOCK = time.monotonic
CLOCKS: dict[str, Callable[[], float]] = {
    "stopped": lambda: 0.0,
    "a thousand times as fast": lambda: 1000 * CLOCK(),
}


def without_seconds(value: Any) -> Any:
    """``value`` without what is measured."""
    if isinstance(value, dict):
        return {
            key: without_seconds(item)
            for key, item in value.items()
            if "seconds" not in key and not key.startswith("measured")
        }
    return [without_seconds(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("data", "effort"),
    [(convolutions(), 0.02), (skip_connection(), 1.0), (onnx_net(0), 0.1), (tflite_net(4), 0.1)],
    ids=["tile", "remat", "random", "random, tflite"],
)
def test_the_clock_does_not_matter(monkeypatch: pytest.MonkeyPatch, data: bytes, effort: float) -> None:
    results = []
    for clock in CLOCKS.values():
        monkeypatch.setattr("time.monotonic", clock)
        found = memsched.optimize(data, effort=effort, level=3, max_extra_macs=60.0, verify=False)
        results.append((found.model, without_seconds(found.report.data)))
    assert results[0] == results[1]


def test_neither_does_it_for_an_order(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = random_layered_graph(random.Random(5), 90, width=14)
    peaks = []
    for effort in (0.0, 0.1):
        found = []
        for clock in CLOCKS.values():
            monkeypatch.setattr("time.monotonic", clock)
            schedule = schedule_graph(graph, Run(Limits(None, effort=effort))).schedule
            found.append((schedule.order, schedule.lower_bound, schedule.states))
        assert found[0] == found[1]
        peaks.append(schedule.peak)
    assert peaks[1] < peaks[0]


def test_nor_for_the_frontier(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for clock in CLOCKS.values():
        monkeypatch.setattr("time.monotonic", clock)
        found.append(memsched.analyze(both(), frontier=True, effort=0.1).report["sections"]["frontier"])
    assert found[0] == found[1]
    assert len(found[0]) > 1


def test_a_share_of_the_work() -> None:
    request = Request(Run(Limits(None, effort=8.0), 0.0))
    assert request.within(0.5).within(0.25).effort() == 1.0
    assert request.within(0.5).remaining() == float("inf")
    assert Request(Run(Limits(None), 0.0)).within(0.5).effort() is None
    assert Request(Run(Limits(0.0), 5.0), end=5.0).effort() == 0.0


@pytest.mark.parametrize("effort", [-1.0, float("nan")])
def test_an_effort_that_is_none(effort: float) -> None:
    with fails("option-range", f"--effort {effort}"):
        memsched.optimize(convolutions(), effort=effort)
