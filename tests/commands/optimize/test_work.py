"""`--effort` limits the command: whatever its searches are, what they do together stays within it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import memsched
from memsched.runtimes.tflm import layout
from memsched.search.pace import MachinePace
from tests.commands.optimize.test_choose import both, convolutions, skip_connection
from tests.rewrites.tile.random_nets import onnx_net, tflite_net

NETWORKS: dict[str, Callable[[], bytes]] = {
    "pieces": convolutions,
    "again": skip_connection,
    "both": both,
    "random": lambda: onnx_net(0),
    "random, tflite": lambda: tflite_net(4),
}
SLACK = 0.1
"""Of the effort: a search ends with the step that it has begun."""

MOST_PLANS = 8
"""Plans of memory for TensorFlow Lite Micro that one result needs: in the order as given, of one model, to write it."""

LEAST = 0.01
"""As effort: the smallest steps of all searches together."""


def optimized(data: bytes | Path, effort: float, budget: int | str | None = None) -> memsched.OptimizeResult:
    return memsched.optimize(data, effort=effort, budget=budget, level=3, max_extra_macs=60.0, verify=False)


@pytest.mark.parametrize("effort", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("name", NETWORKS)
def test_all_searches_together_do_no_more(name: str, effort: float) -> None:
    data = NETWORKS[name]()
    for budget in (None, "50%", 1):
        work = optimized(data, effort, budget).work
        assert work <= (1 + SLACK) * effort + LEAST, (budget, work)
        assert work > 0 or not effort


@pytest.mark.parametrize("budget", [None, "40%"])
def test_a_real_network(budget: str | None) -> None:
    path = Path(__file__).parents[3] / "models" / "person_detect.tflite"
    assert 0.05 < optimized(path, 0.5, budget).work <= (1 + SLACK) * 0.5 + LEAST


def test_a_busy_machine_changes_nothing() -> None:
    data = both()
    alone = optimized(data, 0.1)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            beside = optimized(data, 0.1)
        finally:
            busy.kill()
    assert (beside.model, beside.work) == (alone.model, alone.work)


def test_planning_and_writing_for_tflm_are_work(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parents[3] / "models" / "person_detect.tflite"
    planned: list[float] = []
    offsets = layout._PlanSearch.offsets

    def counted(search: layout._PlanSearch) -> dict[tuple[int, int], int]:
        planned.append(search._run.meter.done)
        return offsets(search)

    monkeypatch.setattr(layout._PlanSearch, "offsets", counted)
    monkeypatch.setattr(MachinePace, "BLOCK_SECONDS", 0.01)
    found = memsched.optimize(path, target="tflm-reference", effort=1.0, level=2, max_extra_macs=15.0, verify=False)
    # Each takes as much as all that is permitted: none of a candidate follows but those that a result needs.
    assert found.work > 1.0
    assert len(planned) <= MOST_PLANS
