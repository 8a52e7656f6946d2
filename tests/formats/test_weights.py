"""Which constants each op reads: shared ones, those that nodes compute, those of bodies, and buffers of TFLite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import helper, numpy_helper

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.weights import Weights, weights
from tests.small_models import floats, model_of

MODELS = Path(__file__).resolve().parents[2] / "models"


def read(data: bytes) -> tuple[Weights, list[str]]:
    module = load_module(data, "m", LoadOptions())
    return weights(module), [op.name for op in module.graph.ops]


def test_shared_and_computed_constants() -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["shape"], ["ones"], name="fill"),
        helper.make_node("Add", ["x", "ones"], ["a"], name="first"),
        helper.make_node("Mul", ["a", "w"], ["b"], name="second"),
        helper.make_node("Sub", ["b", "w"], ["y"], name="third"),
    ]
    constants = [
        numpy_helper.from_array(np.array([4, 8], np.int64), "shape"),
        numpy_helper.from_array(np.ones(8, np.float32), "w"),
    ]
    found, ops = read(model_of(nodes, [floats("x", [4, 8])], [floats("y", [4, 8])], constants))
    assert ops == ["first", "second", "third"]
    assert found == Weights(("ones", "w"), (4 * 8 * 4, 8 * 4), ((0,), (1,), (1,)))


def test_what_bodies_hold_counts_for_their_op() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["x", "c"], ["t"], name="inner")],
        "body",
        [],
        [floats("t", [4])],
        [numpy_helper.from_array(np.ones(4, np.float32), "c")],
    )
    node = helper.make_node("If", ["flag"], ["y"], name="choice", then_branch=body, else_branch=body)
    flag = numpy_helper.from_array(np.array(True), "flag")
    found, ops = read(model_of([node], [floats("x", [4])], [floats("y", [4])], [flag]))
    assert ops == ["choice"]
    assert sorted(found.sizes) == [1, 16, 16]
    assert found.per_op == ((0, 1, 2),)


def test_a_tflite_model() -> None:
    module = load_module((MODELS / "person_detect.tflite").read_bytes(), "m", LoadOptions())
    found = weights(module)
    assert 0 < sum(found.sizes) <= module.weights_bytes
    assert all(found.per_op[at] for at, op in enumerate(module.graph.ops) if "CONV" in op.type)
