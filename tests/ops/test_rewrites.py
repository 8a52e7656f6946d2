"""Rewrites of models that draw or keep a state, executed in the real runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import memsched
from memsched.features.distribute.distribute import distribute
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.patternless import branched
from memsched.graph.effects import PURE, Effects
from memsched.graph.model import Graph, Op, Tensor
from memsched.ops.geometry import describe
from memsched.ops.rules import Refusal
from memsched.rewrites.algebra.apply import identities
from memsched.rewrites.algebra.draft import AlgebraDraft
from memsched.runtimes.onnxruntime.draws import same_draws
from tests.distributed_nets import cluster_of
from tests.effect_nets import draws_of
from tests.failures import fails
from tests.rewrites.recompute.tiny_graphs import PLAIN
from tests.small_models import floats, model_of
from tests.tools.effect_models import judge

SIDE = 64
WEIGHTS = [
    numpy_helper.from_array(np.array(0.5, np.float32), "ratio"),
    numpy_helper.from_array(np.array(True), "train"),
    numpy_helper.from_array(np.array([1, SIDE], np.int64), "times"),
]


def node(kind: str, reads: list[str], made: str, **attributes: Any) -> Any:
    return helper.make_node(kind, reads, [made], made, **attributes)


def waiting(draw: list[Any]) -> bytes:
    """Return a model in which a large value "r", made by ``draw`` of the small "s", is read early and late."""
    nodes = [
        node("Relu", ["x"], "s"),
        *draw,
        node("ReduceSum", ["r"], "first"),
        *(one for at in range(3) for one in (node("Tile", ["s", "times"], f"wide{at}"),
                                             node("ReduceMax", [f"wide{at}"], f"most{at}"))),
        node("Sum", ["first", "most0", "most1", "most2"], "all"),
        node("Add", ["r", "all"], "late"),
        node("ReduceMean", ["late"], "y"),
    ]  # fmt: skip
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    return model_of(nodes, [floats("x", [SIDE, 1]), condition], [floats("y", [1, 1])], WEIGHTS)


def grown(kind: str) -> list[Any]:
    tile = node("Tile", ["s", "times"], "t")
    if kind == "Dropout":
        return [tile, node("Dropout", ["t", "ratio", "train"], "r")]
    if kind == "If":
        shape = [SIDE, SIDE]  # nothing is captured
        drawn = helper.make_graph([node("RandomNormal", [], "n", shape=shape)], "n", [], [floats("n", shape)])
        other = helper.make_graph([node("RandomUniform", [], "u", shape=shape)], "u", [], [floats("u", shape)])
        return [node("If", ["c"], "r0", then_branch=drawn, else_branch=other), node("Neg", ["r0"], "r")]
    return [tile, node(kind, ["t"], "r")]


@pytest.mark.parametrize("kind", ["Dropout", "If", "RandomUniformLike"])
def test_what_draws_is_executed_once_whatever_is_permitted(kind: str) -> None:
    data = waiting(grown(kind))
    result = memsched.optimize(
        data,
        allow=("reorder", "inplace", "tile", "remat", "algebra"),
        max_extra_macs=100,
        max_slowdown=None,
        effort=0.2,
        verify=False,
        order_guarantee="session",
    )
    given, written = onnx.load_from_string(data), onnx.load_from_string(result.model)
    assert draws_of(given) == draws_of(written)
    assert same_draws(given, [written]).mismatch is None


def test_equal_draws_are_not_one() -> None:
    nodes = [node("RandomNormalLike", ["x"], "a"), node("RandomNormalLike", ["x"], "b"), node("Sub", ["a", "b"], "y")]
    data = model_of(nodes, [floats("x", [4, 4])], [floats("y", [4, 4])])
    graph = load_module(data, "m.onnx", LoadOptions()).graphs[0]
    assert not list(identities(AlgebraDraft(graph, PLAIN, {}, sums=True)))
    pure = [node("Exp", ["x"], "a"), node("Exp", ["x"], "b"), node("Sub", ["a", "b"], "y")]
    graph = load_module(model_of(pure, [floats("x", [4, 4])], [floats("y", [4, 4])]), "m.onnx", LoadOptions()).graphs[0]
    assert [one.kind for one in identities(AlgebraDraft(graph, PLAIN, {}, sums=True))] == ["merge"]


@pytest.mark.parametrize(
    ("effects", "refused"),
    [(PURE, False), (Effects(random=True), True), (Effects(stateful=True), True), (Effects(unknown=True), True)],
)
def test_only_pure_ops_are_cut(effects: Effects, refused: bool) -> None:
    tensors = (Tensor("x", 16, (4,), "float32"), Tensor("y", 16, (4,), "float32"))
    graph = Graph("g", tensors, (Op("y", "Dropout", (0,), (1,), positions=(0,), effects=effects),), (0,), (1,))
    assert isinstance(describe(graph, 0), Refusal) == refused


def test_no_draw_is_taken_for_a_constant_of_a_branch() -> None:
    """A node without inputs reads constants only, but is executed in its place."""
    nodes = [node("Exp", ["x"], "a"), node("RandomNormal", [], "r", shape=[4]), node("Add", ["a", "r"], "y")]
    module = load_module(model_of(nodes, [floats("x", [4])], [floats("y", [4])]), "m.onnx", LoadOptions())
    tensors = {one.name: one for one in module.graphs[0].tensors}
    written = branched(module.native.data, tensors, (0, 2), constants=True)
    assert written is not None
    assert "RandomNormal" not in [one.op_type for one in onnx.load_from_string(written).graph.node]


def test_one_device_draws_and_no_two_share_a_generator() -> None:
    drops = [node("Dropout", ["x", "ratio", "train"], name, seed=1) for name in ("a", "b")]
    plain = [node("Exp", ["b"], "e"), node("Add", ["a", "e"], "y")]
    data = model_of([*drops, *plain], [floats("x", [1, 8, 8, 8])], [floats("y", [1, 8, 8, 8])], WEIGHTS[:2])
    found = distribute(data, cluster=cluster_of(2), method="even", effort=0.1)
    axes = {found.module.graph.ops[share.op].name: share.axis for share in found.plan.shares}
    assert (axes["a"], axes["b"]) == ("whole", "whole")
    for one in drops:
        del one.attribute[:]
    data = model_of([*drops, *plain], [floats("x", [1, 8, 8, 8])], [floats("y", [1, 8, 8, 8])], WEIGHTS[:2])
    with fails("order-unkept", "'a' (Dropout)", "'b'"):
        distribute(data, cluster=cluster_of(2), method="even", effort=0.1)


def test_a_state_in_a_chain_of_ops_is_seen_in_its_order() -> None:
    assert judge(3, "tflite", effort=0.05)


@pytest.mark.parametrize("number", range(8))
def test_random_models_with_effects_stay_the_same(number: int) -> None:
    assert "onnx" in judge(number, "onnx", effort=0.05)
