"""Targets with several memories, through the commands: the section, each row's pool, and what people read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import memsched
from memsched.cli.main import main
from memsched.commands.optimize.pools import plan_pools
from memsched.plan.orders import plan_module
from memsched.report.schema import json_schema
from memsched.runtimes.graph_plan import lower_module
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests import small_models
from tests.formats.tflite_builder import MODELS
from tests.outcomes import line_with

SCHEMA = jsonschema.Draft202012Validator(json_schema("report"))


def target(folder: Path, *pools: str) -> str:
    path = folder / "chip.toml"
    path.write_text('extends = "ideal"\n' + "".join(f"[[pools]]\n{pool}\n" for pool in pools), encoding="utf-8")
    return str(path)


def two(folder: Path, size: int) -> str:
    return target(folder, f'name = "sram"\nsize = {size}\ncost = 2', 'name = "dram"\ncost = 9')


def overlaps(rows: list[dict[str, Any]]) -> bool:
    """Whether two rows that do not lie at the same address share bytes of a pool while both are live."""
    return any(
        a["pool"] == b["pool"]
        and a["offset_bytes"] < b["offset_bytes"] < a["offset_bytes"] + a["size_bytes"]
        and a["first_step"] <= b["last_step"]
        and b["first_step"] <= a["last_step"]
        for a in rows
        for b in rows
    )


def test_every_address_names_its_pool(tmp_path: Path) -> None:
    whole = memsched.optimize(small_models.branches(), target="ideal", verify=False)
    size = whole.schedule.peak // 2
    result = memsched.optimize(small_models.branches(), target=two(tmp_path, size), verify=False)
    report = result.report.data
    SCHEMA.validate(json.loads(result.report.to_json()))
    section = report["sections"]["pools"]
    sram, dram = section["pools"]
    assert (sram["name"], sram["size_bytes"], dram["name"], dram["size_bytes"]) == ("sram", size, "dram", None)
    assert section["status"] == "optimal"
    assert section["weighted_traffic"] == section["lower_bound"]
    assert section["weighted_traffic"] == 2 * sram["accessed_bytes"] + 9 * dram["accessed_bytes"]
    assert section["last_pool_weighted_traffic"] == 9 * (sram["accessed_bytes"] + dram["accessed_bytes"])
    assert {row["pool"] for row in report["written"]["buffers"]} == {"sram", "dram"}
    assert max(r["offset_bytes"] + r["size_bytes"] for r in report["written"]["buffers"] if r["pool"] == "sram") <= size
    assert not overlaps(report["written"]["buffers"])
    assert {row["tensor"] for row in report["written"]["buffers"]} == {
        row["tensor"] for row in whole.report["written"]["buffers"]
    }
    assert whole.report["sections"]["pools"] is None
    assert all("pool" not in row for row in whole.report["written"]["buffers"])


def test_enough_fast_memory_takes_all(tmp_path: Path) -> None:
    result = memsched.optimize(small_models.branches(), target=two(tmp_path, 1 << 20), verify=False)
    assert {row["pool"] for row in result.report["written"]["buffers"]} == {"sram"}
    assert result.report["sections"]["pools"]["status"] == "optimal"


def test_what_people_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(small_models.branches())
    assert main(["analyze", str(model), "--target", two(tmp_path, 256)]) == 0
    out = capsys.readouterr().out
    assert "pools: sram" in out
    assert main(["analyze", str(model), "--target", two(tmp_path, 256), "--json"]) == 0
    section = json.loads(capsys.readouterr().out)["sections"]["pools"]
    assert line_with(out, *(f" {section[name]:,}" for name in ("weighted_traffic", "last_pool_weighted_traffic")))
    assert main(["analyze", str(model), "--target", target(tmp_path, 'name = "only"\nsize = 8')]) == 0
    assert line_with(capsys.readouterr().out, "pools ", " 8 B ")
    assert main(["analyze", str(model), "--target", target(tmp_path, 'name = "only"\nsize = 8'), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    SCHEMA.validate(report)
    assert report["sections"]["pools"]["status"] == "infeasible"
    assert report["sections"]["pools"]["weighted_traffic"] is None
    assert report["written"]["buffers"]


def test_two_arenas_of_tflm_lie_in_the_first_pools_with_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "board.toml"
    for fast, first, second in (
        (56 << 10, "55,296 B in fast", "27,024 B in slow"),
        (20 << 10, "55,296 B in slow", "27,024 B in none"),
    ):
        pools = f'[[pools]]\nname = "fast"\nsize = {fast}\n[[pools]]\nname = "slow"\nsize = "80KB"\ncost = 4\n'
        path.write_text(f'extends = "tflm"\n{pools}', encoding="utf-8")
        main(["analyze", str(MODELS / "person_detect.tflite"), "--target", str(path), "-v"])
        (line,) = [line for line in capsys.readouterr().out.splitlines() if "non-persistent" in line]
        assert first in line
        assert second in line


def test_pools_that_are_too_small_are_a_budget_that_is_not_met(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(small_models.branches())
    chip = target(tmp_path, 'name = "fast"\nsize = 8', 'name = "slow"\nsize = 64')
    assert main(["optimize", str(model), "--target", chip, "--no-verify", "-q"]) == 3
    taken = capsys.readouterr()
    assert taken.out == ""
    assert "72 B" in taken.err
    assert main(["optimize", str(model), "--target", two(tmp_path, 8), "--no-verify", "-q"]) == 0


def test_the_placement_has_time_of_its_own(tmp_path: Path) -> None:
    module = memsched.load(small_models.branches())
    chip = load_target(two(tmp_path, 64))
    plan = plan_module(module, lower_module(module, chip), Run(Limits()), solver="file")[0]
    late = plan_pools(plan, chip, Run(Limits(time_limit=20.0), started=-100.0))
    assert late is not None
    assert late.status == "optimal"
    assert plan_pools(plan, load_target("ideal"), Run(Limits(), started=0.0)) is None
