"""The pass in Olive itself: by its class, and in a workflow that names it."""

from __future__ import annotations

import importlib
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx
import pytest

import memsched
from tests import small_models

REASON = "olive-ai is not installed: pip install olive-ai requests"
ORDER = {"target": "ideal", "order_guarantee": "session", "verify": False}
MODULE = "memsched.integrations.olive_pass"


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "olive", None)
    monkeypatch.setitem(sys.modules, "olive.model", None)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    with pytest.raises(ModuleNotFoundError, match=r"pip install olive-ai requests"):
        importlib.import_module(MODULE)


@pytest.fixture(scope="module")
def olive() -> Any:
    # Only where it is not there at all: an installation that lacks what it imports is no reason to skip.
    if find_spec("olive") is None:
        pytest.skip(REASON)
    return importlib.import_module(MODULE)


def peak(path: Path) -> int:
    return memsched.analyze(str(path), target="ideal").schedule.peak


def test_the_options_are_those_of_optimize(olive: Any) -> None:
    import inspect

    known = inspect.signature(memsched.optimize).parameters
    assert set(olive._OPTIONS) <= set(known)


def test_it_writes_the_model_and_its_report(olive: Any, tmp_path: Path) -> None:
    from olive.model import ONNXModelHandler
    from olive.passes.olive_pass import create_pass_from_dict

    path = small_models.external_branches(tmp_path)
    step = create_pass_from_dict(olive.MemschedLeastMemory, ORDER, disable_search=True)
    out = step.run(ONNXModelHandler(model_path=str(path)), str(tmp_path / "out" / "model"))
    written = Path(out.model_path)
    onnx.checker.check_model(onnx.load(written))
    assert peak(written) < peak(path)
    assert (written.parent / "weights.bin").is_file()
    report = json.loads(written.with_suffix(".memsched.json").read_text())
    assert report["written"]["schedule"]["peak_bytes"] == peak(written)


def test_a_workflow_names_it(olive: Any, tmp_path: Path) -> None:
    from olive.workflows import run

    (tmp_path / "net.onnx").write_bytes(small_models.branches(count=6))
    run(
        {
            "input_model": {"type": "OnnxModel", "model_path": str(tmp_path / "net.onnx")},
            "passes": {"memory": {"type": "MemschedLeastMemory", **ORDER}},
            "output_dir": str(tmp_path / "out"),
            "cache_dir": str(tmp_path / "cache"),
            "log_severity_level": 3,
        },
        package_config=olive.package_config(),
        tempdir=str(tmp_path),
    )
    [written] = list((tmp_path / "out").rglob("*.onnx"))
    assert peak(written) < peak(tmp_path / "net.onnx")
