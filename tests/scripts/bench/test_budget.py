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
        ).report.data["requirement"]
        assert 0 < given["requirement"]["parts"]["persistent_bytes"] < least <= found["bytes"] <= found["given_bytes"]


def test_a_budget_below_what_pieces_need_is_impossible_in_pieces_of_the_own_operators() -> None:
    found = {"tiling": {"lower_bound_bytes": 500}, "algebra": {"applied": False}}
    assert impossibility(300, 400, found) == "impossible"
    assert impossibility(450, 400, found) == "impossible in pieces"
    assert impossibility(500, 400, found) == "no"
    assert impossibility(450, 400, {**found, "algebra": {"applied": True}}) == "no"
    assert impossibility(450, 400, {**found, "tiling": {"lower_bound_bytes": None}}) == "no"
    assert impossibility(450, 400, {"tiling": None, "algebra": None}) == "no"
