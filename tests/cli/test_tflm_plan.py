"""``memsched optimize --tflm-plan`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

from memsched.formats.tflite.model import parse
from memsched.runtimes.tflm.plan import given_plan
from tests.cli.conftest import Run
from tests.runtimes.tflm.test_plan import three_branches


def test_a_plan_is_written_and_its_head_printed(run: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "model.tflite", tmp_path / "planned.tflite"
    path.write_bytes(three_branches())
    done = run("optimize", path, "--target", "tflm", "--tflm-plan", "--no-verify", "-o", out)
    assert done.code == 0
    assert "19,200 B as given, 7,104 B in this order, 7,104 B with this plan" in done.out
    plan = given_plan(parse(out.read_bytes()))
    assert plan is not None
    report = json.loads(out.with_suffix(".json").read_text())["tflm"]
    assert [entry["offset_bytes"] for entry in report["plan"]] == [offset for offset in plan if offset >= 0]
    assert "7,104 B as given" in run("analyze", out, "--target", "tflm").out


def test_a_plan_for_another_runtime_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(three_branches())
    done = run("optimize", path, "--tflm-plan")
    assert done.code == 2
    assert "add --target tflm or --target tflm-reference" in done.err
    assert not path.with_name("model_memsched.tflite").exists()
