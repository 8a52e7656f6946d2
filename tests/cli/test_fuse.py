"""Activations in one operator each: what is permitted, printed, and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.commands.optimize.test_fuse import BYTES, gated, types


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(gated())
    return path


def test_what_was_done_is_said_in_one_line(run: Run, model: Path) -> None:
    words = ["optimize", model, "--allow", "reorder,inplace,fuse", "--order-guarantee", "session"]
    done = run(*words, "-o", model.with_name("out.onnx"))
    assert done.code == 0
    line = f"2 chains of operators written as one each (com.microsoft.QuickGelu 2): {3 * BYTES:,} -> {2 * BYTES:,} B"
    assert line in done.out.splitlines()
    assert "outputs equal within 1e-05" in done.out or "outputs bit-equal" in done.out
    assert types(model.with_name("out.onnx").read_bytes()).count("QuickGelu") == 2


def test_all_does_not_include_it(run: Run, model: Path) -> None:
    run("optimize", model, "--allow", "all", "--time-limit", 2, "--no-verify", "-o", model.with_name("out.onnx"))
    assert "QuickGelu" not in types(model.with_name("out.onnx").read_bytes())
    report = json.loads(model.with_name("out.json").read_text())
    assert report["chains"] is None


def test_with_a_model_that_has_none_that_is_said(run: Run, model: Path) -> None:
    done = run("optimize", model, "--allow", "all,fuse", "--budget", "100%", "--no-verify")
    assert "written as" not in done.out
    from tests import small_models

    model.write_bytes(small_models.chain())
    done = run("optimize", model, "--allow", "fuse", "--no-verify")
    assert "no chain of operators is written as one activation: none was found where that needs less" in done.out


def test_stages_of_firmware_have_none(run: Run, model: Path) -> None:
    done = run("relay", model, "--allow", "reorder,fuse", "-o", model.with_name("stages"))
    done.failed("bad-parameter", "--allow", "'fuse'")


def test_sessions_that_are_named_fuse_by_themselves(run: Run, model: Path) -> None:
    done = run("optimize", model, "--session", "default", "--allow", "reorder,fuse")
    done.failed("option-conflict", "--session", "fuse", "--allow")
    assert not list(model.parent.glob("*_memsched*"))
