"""A few of the models of `make test-strangers`, and that it notices what is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx
import pytest

import memsched
from memsched.base.errors import MemschedError, ModelError
from tests.corpus.onnx_corpus import cases
from tests.strangers.cells import LAYOUTS, cell
from tests.strangers.generated import generate
from tests.strangers.judge import Subject, judge
from tests.strangers.ways import ONNX_WAYS

WAYS = [way for way in ONNX_WAYS if way.name in {"order", "all", "all, pins"}]


def cell_of(name: str, layout: str) -> Subject:
    made = cell(next(case for case in cases("node") if case.name == name), layout)
    assert made is not None
    return Subject("cells", name, made[0], (made[1],))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cells_gain_and_compute_the_same(layout: str) -> None:
    name = "test_basic_conv_with_padding" if layout == "wide" else "test_hardswish"
    verdicts = [outcome.verdict for outcome in judge(cell_of(name, layout), WAYS)]
    assert verdicts[1:] == ["same"] * 2
    assert verdicts[0] in {"same", "unchanged"}


@pytest.mark.parametrize("number", range(4))
def test_generated_graphs_are_valid_and_compute_the_same(number: int) -> None:
    subject = generate(number)
    assert generate(number).model == subject.model
    onnx.checker.check_model(onnx.load_from_string(subject.model))
    assert {outcome.verdict for outcome in judge(subject, WAYS)} <= {"same", "unchanged"}


def test_graphs_have_many_operators() -> None:
    kinds = {node.op_type for number in range(12) for node in onnx.load_from_string(generate(number).model).graph.node}
    assert len(kinds) > 60


def _doubled(model: bytes) -> bytes:
    """Return a model whose first output is twice as much."""
    changed = onnx.load_from_string(model)
    made = changed.graph.output[0].name
    for node in changed.graph.node:
        for names in (node.input, node.output):
            names[:] = ["before" if name == made else name for name in names]
    changed.graph.node.append(onnx.helper.make_node("Add", ["before", "before"], [made]))
    return bytes(changed.SerializeToString())


def test_wrong_outputs_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = cell_of("test_hardswish", "branches")
    right = memsched.optimize(subject.model, verify=False, effort=0.1)
    wrong = dataclasses.replace(right, model=_doubled(subject.model))
    monkeypatch.setattr(memsched, "optimize", lambda *_, **__: wrong)
    assert [outcome.verdict for outcome in judge(subject, WAYS[:2])] == ["FAILED"] * 2


@pytest.mark.parametrize(
    ("error", "verdict"),
    [(ModelError("x: is no model"), "refused"), (ModelError("two\nlines"), "FAILED"), (KeyError("x"), "FAILED")],
)
def test_refusals_are_one_line(error: Exception, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(memsched, "optimize", fail)
    assert judge(Subject("", "", b"model"), WAYS[:1])[0].verdict == verdict
    assert isinstance(error, (MemschedError, KeyError))


def test_recorded_outputs_count() -> None:
    relu = next(case for case in cases("node") if case.name == "test_hardswish")
    inputs, made = relu.data_sets[0]
    subject = Subject("", "", cell_of("test_hardswish", "chain").model, (tuple(inputs),), ((np.asarray(made[0]),),))
    assert {outcome.verdict for outcome in judge(subject, WAYS)} <= {"same", "unchanged"}
