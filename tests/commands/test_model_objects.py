"""Models as paths, bytes and objects of other packages; a result in one line; the best result of a missed budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

import memsched
from tests import small_models
from tests.failures import fails

DATA = small_models.branches()


def found(source: Any) -> int:
    result = memsched.optimize(source, verify=False, effort=0.1)
    return int(result.report.values.verdict.bytes)


def test_optimize_takes_paths_bytes_and_models_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(DATA)
    expected = found(path)
    assert expected < memsched.analyze(DATA).report.values.verdict.bytes
    assert [found(one) for one in (str(path), DATA, onnx.load_from_string(DATA))] == [expected] * 3


def test_optimize_takes_models_of_onnx_ir() -> None:
    onnx_ir = pytest.importorskip("onnx_ir")
    model = onnx_ir.from_proto(onnx.load_from_string(DATA))
    assert found(model) == found(DATA)


def test_other_objects_are_refused_as_before() -> None:
    wrong: Any = onnx.load_from_string(DATA).graph
    with fails("argument-type", "source"):
        memsched.optimize(wrong)


def test_a_result_is_one_line() -> None:
    result = memsched.optimize(DATA, verify=False, effort=0.1)
    text = repr(result)
    assert "\n" not in text
    assert f"{result.report.values.verdict.bytes:,}" in text
    assert str(result) == text


def test_the_error_of_a_missed_budget_has_the_best_result(tmp_path: Path) -> None:
    result = memsched.optimize(DATA, verify=False, effort=0.1, budget=1)
    with pytest.raises(memsched.BudgetError) as caught:
        result.save(tmp_path / "out.onnx")
    assert caught.value.result is result
    with pytest.raises(memsched.BudgetError) as caught:
        memsched.optimize(DATA, verify=False, effort=0.1, budget=1, strict=True)
    assert caught.value.result.model == result.model
    assert memsched.optimize(DATA, verify=False, effort=0.1, budget="1MB", strict=True).budget_met
    assert not list(tmp_path.iterdir())
