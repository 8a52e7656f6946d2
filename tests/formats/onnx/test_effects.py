"""What readers say of the effects of nodes, through bodies and functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx.folded import folded
from memsched.graph.effects import PURE, UNKNOWN, Effects
from memsched.graph.model import Op
from tests.effect_nets import draws_of, onnx_model
from tests.small_models import floats, model_of

FALSE = numpy_helper.from_array(np.array(False), "flag")
TRUE = numpy_helper.from_array(np.array(True), "flag")
RATIO = numpy_helper.from_array(np.array(0.5, np.float32), "ratio")


def read(data: bytes) -> Module:
    return load_module(data, "m.onnx", LoadOptions())


def op_of(module: Module, name: str) -> Op:
    return next(op for graph in module.graphs for op in graph.ops if op.name == name)


def node(kind: str, reads: list[str], made: str, **attributes: Any) -> Any:
    return helper.make_node(kind, reads, [made], made, **attributes)


def of_nodes(nodes: list[Any], weights: list[Any] | None = None, inputs: list[Any] | None = None) -> Module:
    made = nodes[-1].output[0]
    return read(model_of(nodes, [floats("x", [2, 3]), *(inputs or [])], [floats(made, [2, 3])], weights or []))


def effects_of_dropout(weights: list[Any], inputs: list[Any] | None = None, **attributes: Any) -> Effects:
    drop = node("Dropout", ["x", "ratio", "flag"], "y", **attributes)
    return op_of(of_nodes([drop], [RATIO, *weights], inputs), "y").effects


def test_a_dropout_draws_unless_it_is_proven_not_to() -> None:
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    assert effects_of_dropout([FALSE]) == PURE
    assert effects_of_dropout([TRUE]) == Effects(random=True, shared=True)
    assert effects_of_dropout([TRUE], seed=3) == Effects(random=True)
    assert effects_of_dropout([], [flag]).random
    assert effects_of_dropout([FALSE], [flag]).random  # a caller may replace it
    assert op_of(of_nodes([node("Dropout", ["x"], "y")]), "y").effects == PURE


def test_a_node_may_prove_it() -> None:
    stated = helper.make_node("Constant", [], ["flag"], "c", value=FALSE)
    made = [stated, node("Dropout", ["x", "ratio", "flag"], "y")]
    assert op_of(of_nodes(made, [RATIO]), "y").effects == PURE
    inverse = helper.make_node("Not", ["flag"], ["unproven"], "n")
    made = [stated, inverse, node("Dropout", ["x", "ratio", "unproven"], "y")]
    assert op_of(of_nodes(made, [RATIO]), "y").effects.random


@pytest.mark.parametrize(("version", "attributes"), [(6, {}), (6, {"is_test": 0})])
def test_an_old_dropout_draws_unless_it_says_that_it_tests(version: int, attributes: dict[str, int]) -> None:
    for extra, draws in ((attributes, True), ({"is_test": 1}, False)):
        graph = helper.make_graph(
            [node("Dropout", ["x"], "y", **extra)], "g", [floats("x", [2, 3])], [floats("y", [2, 3])]
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=3)
        assert op_of(read(model.SerializeToString()), "y").effects.random == draws


def branch(inner: list[Any]) -> Any:
    """Return an If with ``inner``, which makes "t" of "x", in one of its branches."""
    bodies = {
        "then_branch": helper.make_graph(inner, "a", [], [floats("t", [2, 3])]),
        "else_branch": helper.make_graph([node("Neg", ["x"], "e")], "b", [], [floats("e", [2, 3])]),
    }
    return helper.make_node("If", ["which"], ["y"], "y", **bodies)


WHICH = helper.make_tensor_value_info("which", TensorProto.BOOL, [])


def test_bodies_have_their_effects_in_the_op_that_executes_them() -> None:
    drawn = op_of(of_nodes([branch([node("RandomNormalLike", ["x"], "t")])], inputs=[WHICH]), "y").effects
    assert drawn == Effects(random=True, captures=True)
    assert op_of(of_nodes([branch([node("Abs", ["x"], "t")])], inputs=[WHICH]), "y").effects == Effects(captures=True)
    inner = branch([node("Bernoulli", ["x"], "t")])
    inner.output[0] = inner.name = "t"
    outer = branch([inner])
    for body in (attribute.g for attribute in outer.attribute):
        body.name += "outer"
    assert op_of(of_nodes([outer], inputs=[WHICH]), "y").effects == Effects(random=True, captures=True)


def model_with_functions(*, import_older: bool) -> bytes:
    """Return a model that calls a function that calls one that draws."""
    imports = [helper.make_opsetid("", 16 if import_older else 17), helper.make_opsetid("mine", 1)]
    inner = helper.make_function("mine", "Draw", ["a"], ["b"], [node("RandomNormalLike", ["a"], "b")], imports)
    calls = [helper.make_node("Draw", ["a"], ["b"], "call", domain="mine")]
    outer = helper.make_function("mine", "Outer", ["a"], ["b"], calls, imports)
    made = [helper.make_node("Outer", ["x"], ["r"], "r", domain="mine"), node("Add", ["x", "r"], "y")]
    graph = helper.make_graph(made, "g", [floats("x", [2, 3])], [floats("y", [2, 3])], value_info=[floats("r", [2, 3])])
    main = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    model = helper.make_model(graph, opset_imports=main, ir_version=9, functions=[inner, outer])
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("import_older", [False, True])
def test_functions_have_their_effects_in_every_call(import_older: bool) -> None:
    module = read(model_with_functions(import_older=import_older))
    drawing = [op for op in module.graphs[0].ops if op.effects.random]
    assert len(drawing) == 1
    assert (drawing[0].type == "mine.Outer") == import_older


def test_an_operator_of_an_unknown_domain_has_unknown_effects() -> None:
    foreign = helper.make_node("Op", ["x"], ["r"], "r", domain="theirs")
    graph = helper.make_graph(
        [foreign, node("Add", ["x", "r"], "y")],
        *("g", [floats("x", [2, 3])], [floats("y", [2, 3])]),
        value_info=[floats("r", [2, 3])],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("theirs", 1)]
    data = helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString()
    assert op_of(read(data), "r").effects == UNKNOWN


def test_a_draw_of_constants_is_no_constant() -> None:
    chance = numpy_helper.from_array(np.full((2, 3), 0.5, np.float32), "chance")
    module = of_nodes([node("Bernoulli", ["chance"], "r"), node("Add", ["x", "r"], "y")], [chance])
    assert [op.name for op in module.graphs[0].ops] == ["r", "y"]
    drop = node("Dropout", ["chance", "ratio", "flag"], "r")
    trained = of_nodes([drop, node("Add", ["x", "r"], "y")], [chance, RATIO, TRUE])
    assert [op.name for op in trained.graphs[0].ops] == ["r", "y"]
    tested = of_nodes([drop, node("Add", ["x", "r"], "y")], [chance, RATIO, FALSE])
    assert [op.name for op in tested.graphs[0].ops] == ["y"]


def test_draws_from_the_generator_of_the_process_keep_their_order() -> None:
    """Without a seed, two Dropouts share one generator; two RandomNormals do not."""
    drops = [node("Dropout", ["x", "ratio", "flag"], name) for name in ("a", "b", "c")]
    likes = [node("RandomNormalLike", ["x"], name) for name in ("d", "e")]
    module = of_nodes([*drops, *likes, node("Sum", ["a", "b", "c", "d", "e"], "y")], [RATIO, TRUE])
    assert module.graphs[0].dependencies == ((0, 1), (1, 2))
    for one in drops:
        one.attribute.append(helper.make_attribute("seed", 3))
    assert not of_nodes([*drops, node("Sum", ["a", "b", "c"], "y")], [RATIO, TRUE]).graphs[0].dependencies


def test_a_draw_of_which_only_the_shape_is_read_stays() -> None:
    nodes = [
        node("RandomNormalLike", ["x"], "r"),
        node("Exp", ["x"], "p"),
        node("Shape", ["r"], "s"),
        node("Shape", ["p"], "t"),
        node("Reshape", ["x", "s"], "z"),
        node("Reshape", ["z", "t"], "y"),
    ]
    module = of_nodes(nodes)
    written = folded(module, LoadOptions())
    assert written is not None
    assert [one.op_type for one in onnx.load_from_string(written).graph.node] == [
        *("RandomNormalLike", "Reshape", "Reshape")
    ]


def test_random_models_have_the_draws_that_a_plain_count_finds() -> None:
    for seed in range(40):
        model = onnx_model(seed)
        dims = {"n": 2} if model.graph.input[0].type.tensor_type.shape.dim[0].dim_param else {}
        module = load_module(model.SerializeToString(), "m.onnx", LoadOptions(dims=dims))
        bodies = {(body.parent, body.op) for body in module.bodies}
        found = [
            op.type
            for number, graph in enumerate(module.graphs)
            for place, op in enumerate(graph.ops)
            if op.effects.random and (number, place) not in bodies
        ]
        assert {kind: found.count(kind) for kind in set(found)} == dict(draws_of(model)), seed
