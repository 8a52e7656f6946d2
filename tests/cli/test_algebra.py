"""Operators computed otherwise with the same values: what is permitted, printed, and refused."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest

from tests.cli.conftest import Run
from tests.rewrites.algebra.nets import OnnxNet


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Two equal ops of a large tensor, and a convolution of what two others make of them."""
    net = OnnxNet((1, 4, 32, 32))
    first = net.conv("x", 4)
    halves = [net.pool(net.same("Relu", first), 2), net.pool(net.same("Relu", first), 2, 2, "MaxPool")]
    joint = net.join([net.same("Tanh", one) for one in halves])
    path = tmp_path / "net.onnx"
    path.write_bytes(net.data(net.conv(joint, 1)))
    return path


def test_equal_ops_are_executed_once(run: Run, model: Path) -> None:
    words = ["optimize", model, "--allow", "reorder,inplace,algebra", "--order-guarantee", "session"]
    done = run(*words, "-v", "-o", model.with_name("out.onnx"))
    assert done.code == 0, done.err
    assert "36,864 -> 24,576 B" in done.out
    whole = json.loads(model.with_name("out.json").read_text())
    assert whole["sections"]["verification"]["outputs_equal"] is True
    report = whole["sections"]["algebra"]
    assert [report[name] for name in ("applied", "exact", "exhausted")] == [True, True, True]
    assert [row["kind"] for row in report["identities"]] == ["merge"]
    assert sum(node.op_type == "Relu" for node in onnx.load(model.with_name("out.onnx")).graph.node) == 1


def test_nothing_is_computed_otherwise_unless_it_is_named(run: Run, model: Path) -> None:
    run("optimize", model, "--allow", "all", "--effort", 1, "--no-verify", "-o", model.with_name("out.onnx"))
    assert json.loads(model.with_name("out.json").read_text())["sections"]["algebra"] is None


def test_nothing_is_applied_where_nothing_is_found(run: Run, model: Path) -> None:
    net = OnnxNet((1, 4, 8, 8))
    model.write_bytes(net.data(net.same("Relu", net.conv("x", 4))))
    assert run("optimize", model, "--allow", "reorder,algebra", "--no-verify").code == 0
    report = json.loads(next(model.parent.glob("*_memsched.json")).read_text())["sections"]["algebra"]
    assert (report["applied"], report["identities"]) == (False, [])


def test_sessions_that_are_named_take_none(run: Run, model: Path) -> None:
    done = run("optimize", model, "--session", "default", "--allow", "reorder,algebra")
    done.failed("option-conflict", "--session", "algebra", "--allow")
