"""Budgets that are called impossible."""

from __future__ import annotations

from pathlib import Path

import memsched
from scripts.bench.budget import impossibility, least_of_all
from tests.rewrites.tile.looped_nets import looped_net
from tests.rewrites.tile.random_nets import tflite_net


def test_no_rewritten_model_needs_less_than_what_all_need(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    for seed, make in ((1, looped_net), (2, tflite_net), (5, tflite_net)):
        path.write_bytes(make(seed))
        given = memsched.optimize(str(path), target="tflm", solver="file", verify=False).report.data
        least = least_of_all(path, "tflm", given)
        found = memsched.optimize(
            str(path),
            target="tflm",
            allow=("reorder", "inplace", "tile", "remat", "algebra"),
            max_extra_macs=1000.0,
            effort=0.3,
            verify=False,
        ).report.data["sections"]["requirement"]
        assert (
            0
            < given["sections"]["requirement"]["parts"]["persistent_bytes"]
            < least
            <= found["bytes"]
            <= found["given_bytes"]
        )


def test_a_budget_below_what_pieces_need_is_impossible_in_pieces_of_the_own_operators() -> None:
    found = {"tile": {"lower_bound_bytes": 500}, "algebra": {"applied": False}}

    def verdict(budget: int, **sections: object) -> str:
        return impossibility(budget, 400, {"sections": {**found, **sections}})

    assert verdict(300) == "impossible"
    assert verdict(450) == "impossible in pieces"
    assert verdict(500) == "no"
    assert verdict(450, algebra={"applied": True}) == "no"
    assert verdict(450, tile={"lower_bound_bytes": None}) == "no"
    assert verdict(450, tile=None, algebra=None) == "no"
