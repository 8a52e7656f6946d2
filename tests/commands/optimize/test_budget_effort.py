"""Budgets under a limit of work: what is reached without one meets every budget as large, with as much work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import memsched
from tests.commands.optimize.test_choose import both, convolutions, skip_connection
from tests.permissions import allowed
from tests.rewrites.tile.random_nets import onnx_net, tflite_net

NETWORKS: dict[str, tuple[Callable[[], bytes], str]] = {
    "pieces": (convolutions, "tile"),
    "again": (skip_connection, "remat"),
    "both": (both, "tile remat"),
    "random": (lambda: onnx_net(0), "tile remat"),
    "random, tflite": (lambda: tflite_net(4), "tile remat"),
}


def optimized(data: bytes, effort: float, budget: int | None, permitted: str) -> memsched.OptimizeResult:
    tile, remat = "tile" in permitted, "remat" in permitted
    return memsched.optimize(
        data, effort=effort, budget=budget, allow=allowed(tile=tile, remat=remat), max_extra_macs=60.0, verify=False
    )


@pytest.mark.parametrize("effort", [0.02, 0.1])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_reached_without_a_budget_meets_every_budget_as_large(name: str, effort: float) -> None:
    make, permitted = NETWORKS[name]
    data = make()
    reached = optimized(data, effort, None, permitted).report["verdict"]["bytes"]
    given = memsched.analyze(data, budget=0).report["budget"]["required_bytes"]
    for budget in (reached, (2 * reached + given) // 3, (reached + 2 * given) // 3, given):
        found = optimized(data, effort, budget, permitted)
        assert found.budget_met, (budget, reached)
        assert found.report["verdict"]["bytes"] <= budget
    # What cannot be met changes nothing about what is reached.
    assert optimized(data, effort, 1, permitted).report["verdict"]["bytes"] <= reached
