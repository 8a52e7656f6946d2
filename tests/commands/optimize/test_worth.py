"""Below one percent no other file is written, unless a budget needs those bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import memsched
from memsched.commands.optimize.worth import slight
from tests.outcomes import Run
from tests.small_models import floats, model_of

BIG = 25_000


def waiting(count: int) -> bytes:
    """Return a model in whose order so many floats wait for the end while 100,000 bytes are computed."""
    nodes = [
        helper.make_node("Tile", ["x", "few"], ["small"], "small"),
        helper.make_node("Tile", ["x", "many"], ["wide"], "wide"),
        helper.make_node("ReduceSum", ["wide"], ["sum"], "sum", keepdims=0),
        helper.make_node("Add", ["small", "sum"], ["y"], "y"),
    ]
    constants = {"few": [count], "many": [BIG]}
    weights = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()]
    return model_of(nodes, [floats("x", [1])], [floats("y", [count])], weights)


@pytest.mark.parametrize(("count", "worth"), [(100, False), (400, True)])
def test_a_file_is_written_from_one_percent_on(tmp_path: Path, count: int, worth: bool) -> None:
    data = waiting(count)
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    result = memsched.optimize(path, order_guarantee="session", target="onnxruntime")
    output, needed = result.report["output"], result.report["sections"]["requirement"]
    assert (result.model != data) is worth
    assert output["unchanged"] is not worth
    assert result.verification is not None
    assert result.verification.outputs_equal
    if worth:
        assert output["slight_bytes"] is None
        assert needed["bytes"] <= 0.99 * needed["given_bytes"]
    else:
        assert 0 < output["slight_bytes"] < 0.01 * needed["given_bytes"]
        assert needed["bytes"] == needed["given_bytes"]


def test_a_budget_that_needs_those_bytes_gets_them() -> None:
    data = waiting(100)
    options: dict[str, Any] = {"order_guarantee": "session", "verify": False}
    found = memsched.optimize(data, **options)
    given, saved = found.report["sections"]["requirement"]["given_bytes"], found.report["output"]["slight_bytes"]
    met = memsched.optimize(data, budget=given - saved, **options)
    assert met.budget_met
    assert met.model != data
    assert memsched.optimize(data, budget=given, **options).model == data


def test_the_summary_says_what_was_left(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(waiting(100))
    done = run("optimize", path, "--order-guarantee", "session", "--no-verify")
    assert done.code == 0
    report = json.loads((tmp_path / "net_memsched.json").read_text())
    assert (tmp_path / "net_memsched.onnx").read_bytes() == path.read_bytes()
    assert report["alternatives"] == []
    assert "nothing better" not in done.out
    assert f"{report['output']['slight_bytes']:,} B" in done.out


def test_slight() -> None:
    assert slight(1000, 991, None) == 9
    assert slight(1000, 990, None) is None
    assert slight(1000, 1000, None) is None
    assert slight(1000, 1001, None) is None
    assert slight(1000, 991, 995) is None
    assert slight(1000, 991, 1000) == 9
    assert slight(1000, 991, 100) == 9
