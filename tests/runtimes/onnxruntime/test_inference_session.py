"""``memsched.onnxruntime.InferenceSession`` opens a file as its report says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import memsched
from memsched.base.errors import ModelError
from memsched.formats.onnx.file_metadata import read_metadata, with_metadata
from memsched.onnxruntime import InferenceSession
from memsched.runtimes.session_code import SESSION, opening_lines, session_of, session_text
from memsched.runtimes.sessions import DEFAULT, EXECUTED, LISTED, PATTERNLESS, SessionPoint
from tests.small_models import branches


@pytest.fixture
def given(tmp_path: Path) -> Path:
    path = tmp_path / "branches.onnx"
    path.write_bytes(branches(4, 1 << 16))
    return path


def test_a_file_is_opened_as_its_report_says(given: Path) -> None:
    result = memsched.optimize(given, order_guarantee="session", effort=0.1)
    report = result.report.values
    written = given.with_name("written.onnx")
    written.write_bytes(result.model)
    assert session_of(read_metadata(written)[SESSION]) == LISTED
    assert report.guarantee is not None
    scope = {"onnxruntime": onnxruntime, "path": str(written)}
    exec("\n".join(report.guarantee.session_options), scope)  # noqa: S102
    told, opened = scope["session"].get_session_options(), InferenceSession(written).get_session_options()
    for name in ("enable_mem_reuse", "enable_mem_pattern", "execution_order", "graph_optimization_level"):
        assert getattr(told, name) == getattr(opened, name)
    assert not opened.enable_mem_reuse
    name = onnx.load(written).graph.input[0].name
    feeds = {name: np.random.default_rng(0).normal(size=InferenceSession(given).get_inputs()[0].shape)}
    feeds[name] = feeds[name].astype(np.float32)
    outputs = [InferenceSession(path).run(None, feeds) for path in (given, written)]
    assert all(np.array_equal(*pair) for pair in zip(*outputs, strict=True))
    # The digest of the report is the file's, and it is read as before.
    assert memsched.load(written).sha256 == report.output.sha256  # type: ignore[union-attr]
    onnx.checker.check_model(result.model)


def test_files_without_metadata_are_opened_without_options(given: Path) -> None:
    assert read_metadata(given) == {}
    assert InferenceSession(given).get_session_options().enable_mem_pattern


@pytest.mark.parametrize(
    "point",
    [DEFAULT, PATTERNLESS, LISTED, EXECUTED, SessionPoint("extended", arena=False, prepacking=False, threads=2)],
)
def test_every_session_can_be_stated(point: SessionPoint) -> None:
    assert session_of(session_text(point)) == point
    scope = {"onnxruntime": onnxruntime, "path": branches(2, 8)}
    lines = opening_lines(point)
    assert bool(lines) == (point != DEFAULT)
    exec("\n".join(lines), scope)  # noqa: S102
    if lines:
        options = scope["session"].get_session_options()
        assert (options.enable_mem_pattern, options.enable_cpu_mem_arena) == (point.pattern, point.arena)


def test_metadata_are_added_to_those_that_are_there(given: Path) -> None:
    data = with_metadata(with_metadata(given.read_bytes(), {"a": "1"}), {"b": "é" * 300})
    given.write_bytes(data)
    assert read_metadata(given) == {"a": "1", "b": "é" * 300}
    assert {one.key: one.value for one in onnx.load(given).metadata_props} == read_metadata(given)


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[:-3], lambda data: b"\x0f" + data, lambda _: b"\xff" * 20, lambda _: b"\x72\x03\x0a\x09\x61"],
)
def test_what_is_no_onnx_file_is_refused(damage: Callable[[bytes], bytes], given: Path) -> None:
    given.write_bytes(damage(given.read_bytes()))
    with pytest.raises(ModelError):
        read_metadata(given)


def test_a_session_that_does_not_exist_is_refused(given: Path) -> None:
    given.write_bytes(with_metadata(given.read_bytes(), {SESSION: '{"level": "highest"}'}))
    with pytest.raises(ModelError, match="level"):
        InferenceSession(given)
