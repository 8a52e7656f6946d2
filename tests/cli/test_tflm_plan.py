"""Memory plans and arenas for TensorFlow Lite Micro from the command line."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

import pytest

from memsched.formats.tflite.metadata import OFFLINE_PLAN
from memsched.formats.tflite.model import parse
from memsched.runtimes.tflm.plan import given_plan
from tests.cli.conftest import Run
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options
from tests.outcomes import line_with
from tests.runtimes.tflm.interpreter import needs_tflm
from tests.runtimes.tflm.test_plan import three_branches


def test_a_plan_is_written_and_its_head_printed(run: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "model.tflite", tmp_path / "planned.tflite"
    path.write_bytes(three_branches())
    done = run("optimize", path, "--target", "tflm", "--tflm-plan", "--no-verify", "-v", "-o", out)
    assert done.code == 0
    assert re.search("19,200 B .*7,104 B .*7,104 B", done.out)
    plan = given_plan(parse(out.read_bytes()))
    assert plan is not None
    report = json.loads(out.with_suffix(".json").read_text())["sections"]["tflm"]
    assert [entry["offset_bytes"] for entry in report["plan"]] == [offset for offset in plan if offset >= 0]
    assert "7,104 B" in run("analyze", out, "--target", "tflm", "-v").out


def test_a_plan_for_another_runtime_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(three_branches())
    done = run("optimize", path, "--target", "litert", "--tflm-plan")
    done.failed("no-planner", "--tflm-plan", "--target tflm", "--target tflm-reference")
    assert not path.with_name("model_memsched.tflite").exists()


@pytest.mark.parametrize(("budget", "code"), [("100KB", 0), ("1KB", 3)])
def test_what_a_budget_for_activations_counts_is_named(run: Run, tmp_path: Path, budget: str, code: int) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(three_branches())
    words = ("--target", "tflm", "--budget-for", "activations", "--budget", budget, "--no-verify")
    done = run("optimize", path, *words)
    assert done.code == code
    assert f"budget {'exceeded' if code else 'met'}" in line_with(done.out, "budget ", "planned part")
    assert not [line for line in done.out.splitlines() if "arena takes" in line and "planned part" not in line]


def test_one_operator_is_counted_as_one(run: Run, tmp_path: Path) -> None:
    tensors = [T("x", (1, 8, 8, 6), "INT8"), T("axes", (2,), "INT32", int32s(1, 2)), T("y", (1, 6), "INT8")]
    path = tmp_path / "mean.tflite"
    path.write_bytes(build(Sub(tensors, [O("MEAN", [0, 1], [2], options("ReducerOptions"))], [0], [2])))
    assert "1 operator, " in run("analyze", path, "--target", "tflm", "-v").out


def planned(*offsets: int) -> bytes:
    """Return a sum of two inputs of 1,024 bytes, with a memory plan of its own."""
    plan = struct.pack("<3I3i", 1, 1, 3, *offsets)
    tensors = [T(name, (16, 16)) for name in ("x", "z", "y")]
    sub = Sub(tensors, [O("ADD", [0, 1], [2], options("AddOptions"))], [0, 1], [2])
    return build(sub, metadata=[(OFFLINE_PLAN, plan)])


def test_a_plan_that_is_replaced_is_not_the_planners_own(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(planned(0, 1024, 4096))
    said = run("optimize", path, "--target", "tflm", "--no-verify", "-v").out
    assert line_with(said, "--no-tflm-plan", " 5,120 B", " 3,072 B")
    assert "own planner" not in said
    assert "warning" not in said
    path.write_bytes(planned(0, 1024, 2048))
    said = " ".join(run("optimize", path, "--target", "tflm", "--no-verify", "--force", "-v").out.split())
    assert "--no-tflm-plan" not in said


@pytest.mark.parametrize(
    ("offsets", "about"),
    [
        ((0, 512, 2048), ["tensor 0 'x'", "tensor 1 'z'"]),
        ((0, 1024, 2056), ["tensor 2 'y'", "2056", "16"]),
    ],
)
def test_a_wrong_plan_in_the_file_is_told(run: Run, tmp_path: Path, offsets: tuple[int, ...], about: list[str]) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(planned(*offsets))
    for command in (("analyze", path), ("optimize", path, "--no-verify")):
        done = run(*command, "--target", "tflm")
        assert done.code == 0, done.err
        warning = " ".join(done.out.split()).partition("warning: ")[2]
        assert [one for one in about if one not in warning] == []


@needs_tflm
def test_a_wrong_plan_is_not_blamed_on_what_was_done(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(planned(0, 512, 4096))
    done = run("optimize", path, "--target", "tflm")
    said = " ".join(done.out.split())
    assert done.code == 0
    failures = json.loads(path.with_name("model_memsched.json").read_text())["sections"]["failures"]
    assert not any(one["defect"] for one in failures)
    assert any("tensor 0 'x'" in one["reason"] and "tensor 1 'z'" in one["reason"] for one in failures)
    assert "report it" not in said
    assert path.with_name("model_memsched.tflite").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("command", ["optimize", "analyze"])
@pytest.mark.parametrize("what", ["arena", "activations"])
def test_another_runtime_has_no_choice_of_what_a_budget_is_for(
    run: Run, tmp_path: Path, command: str, what: str
) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(three_branches())
    run(command, path, "--target", "litert", "--budget-for", what).failed("no-planner", "--budget-for")
    assert not path.with_name("model_memsched.tflite").exists()
