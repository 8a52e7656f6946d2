"""A function in a child process: values there and back, and every way to fail as a value."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memsched.runtimes.child import ChildEndedError, children_until, run_in_child


def test_a_child_is_ended_as_soon_as_what_began_it_is_over() -> None:
    asked = itertools.count()
    begun = time.monotonic()
    with children_until(lambda: next(asked) > 2), pytest.raises(ChildEndedError):
        run_in_child("time:sleep", 600)
    assert time.monotonic() - begun < 300
    with children_until(lambda: True), pytest.raises(ChildEndedError):
        run_in_child("no.such:function", None)


def test_values_travel_both_ways() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    value: dict[str, Any] = {
        "array": np.arange(6, dtype=np.int16).reshape(2, 3).T,
        "bytes": b"\0\xff",
        "nested": [1, 2.5, None, True, ("a", float("inf"))],
        "text": np.array([["a", b"b"]], dtype=object),
        "empty": np.zeros((0, 3)),
        "scalar": np.float32(3),
        "bfloat16": np.ones(3, ml_dtypes.bfloat16),
    }
    result = run_in_child("copy:copy", value, 60)
    assert result.ok
    back = result.value
    assert list(back) == list(value)
    for name in ("array", "empty", "bfloat16"):
        assert back[name].dtype == value[name].dtype
        assert back[name].tolist() == value[name].tolist()
    assert back["bytes"] == value["bytes"]
    assert back["nested"] == value["nested"]
    assert back["text"].tolist() == [["a", "b"]]
    assert back["scalar"] == 3.0


def test_exception_is_a_value() -> None:
    result = run_in_child("math:sqrt", -1.0, 60)
    assert (result.status, result.error_type, result.value) == ("error", "ValueError", None)
    assert result.reason


def test_crash_is_a_value() -> None:
    result = run_in_child("os:_exit", 3, 60)
    assert (result.status, (result.reason or "").rpartition(" ")[2]) == ("crash", "3")
    result = run_in_child("signal:raise_signal", 11, 60)
    assert (result.status, (result.reason or "").rpartition(" ")[2]) == ("crash", "SIGSEGV")


def test_timeout_is_a_value() -> None:
    result = run_in_child("time:sleep", 60, 0.5)
    assert result.status == "timeout"
    assert " 0.5 s" in (result.reason or "")


def test_output_of_the_child_is_kept_from_ours(capfd: pytest.CaptureFixture[str]) -> None:
    result = run_in_child("builtins:print", "hello", 60)
    assert (result.ok, result.stderr) == (True, "hello\n")
    assert capfd.readouterr() == ("", "")


def test_the_current_folder_shadows_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('shadowed')\n")
    monkeypatch.chdir(tmp_path)
    assert run_in_child("os:getpid", None, 60).reason != "shadowed"
    assert run_in_child("copy:copy", np.ones(2), 60).ok


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run_in_child("copy:copy", 1, 60)
    run_in_child("os:_exit", 3, 60)
    run_in_child("time:sleep", 60, 0.5)
    assert not list(tmp_path.iterdir())


def test_what_cannot_travel_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        run_in_child("copy:copy", object(), 60)
    with pytest.raises(TypeError, match="key"):
        run_in_child("copy:copy", {1: 2}, 60)
