"""Activations in one operator each: what is permitted, printed, and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.written import report_of
from tests.commands.optimize.test_fuse import BYTES, gated, types
from tests.outcomes import line_with


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(gated())
    return path


def test_what_was_done_is_said_in_one_line(run: Run, model: Path) -> None:
    words = ["optimize", model, "--allow", "reorder,inplace,fuse", "--order-guarantee", "session"]
    done = run(*words, "-v", "-o", model.with_name("out.onnx"))
    assert done.code == 0
    assert line_with(done.out, "com.microsoft.QuickGelu 2", f"{3 * BYTES:,} -> {2 * BYTES:,} B")
    shown = report_of(model.with_name("out.json"))["sections"]["verification"]
    assert shown["outputs_equal"] or shown["relative_error"] <= 1e-5
    assert types(model.with_name("out.onnx").read_bytes()).count("QuickGelu") == 2


def test_all_does_not_include_it(run: Run, model: Path) -> None:
    run("optimize", model, "--allow", "all", "--effort", 1, "--no-verify", "-o", model.with_name("out.onnx"))
    assert "QuickGelu" not in types(model.with_name("out.onnx").read_bytes())
    report = json.loads(model.with_name("out.json").read_text())
    assert report["sections"]["chains"] is None


def test_with_a_model_that_has_none_that_is_said(run: Run, model: Path) -> None:
    run("optimize", model, "--allow", "all,fuse", "--budget", "100%", "--no-verify")
    assert report_of(model.with_name("net_memsched.json"))["sections"]["chains"] is None
    from tests import small_models

    model.write_bytes(small_models.chain())
    run("optimize", model, "--allow", "fuse", "--no-verify", "--force")
    section = report_of(model.with_name("net_memsched.json"))["sections"]["chains"]
    assert (section["applied"], section["chains"]) == (False, [])


def test_stages_of_firmware_have_none(run: Run, model: Path) -> None:
    done = run("relay", model, "--allow", "reorder,fuse", "-o", model.with_name("stages"))
    done.failed("bad-parameter", "--allow", "'fuse'")


def test_sessions_that_are_named_fuse_by_themselves(run: Run, model: Path) -> None:
    done = run("optimize", model, "--session", "default", "--allow", "reorder,fuse")
    done.failed("option-conflict", "--session", "fuse", "--allow")
    assert not list(model.parent.glob("*_memsched*"))
