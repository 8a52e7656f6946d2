"""Small ONNX models for the tests of pipelines and commands; the TFLite ones come from tests.formats.tflite_builder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["branches", "chain", "conditional", "external_branches", "model_of"]

SIDE = 16


def model_of(
    nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], initializers: Sequence[Any] = (), **more: Any
) -> bytes:
    """Return the bytes of a model of these nodes, with opset 17."""
    graph = helper.make_graph(list(nodes), "main", list(inputs), list(outputs), list(initializers), **more)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString(deterministic=True))


def floats(name: str, shape: Sequence[int | str | None] | None) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def branches(count: int = 4, side: int | str = SIDE) -> bytes:
    """``count`` branches, each a large product that is then reduced: all products first is the worst order."""
    nodes = [helper.make_node("Mul", ["x", f"w{i}"], [f"wide{i}"], name=f"mul{i}") for i in range(count)]
    nodes += [
        helper.make_node("ReduceMean", [f"wide{i}"], [f"mean{i}"], name=f"mean{i}", axes=[1, 2]) for i in range(count)
    ]
    nodes.append(helper.make_node("Concat", [f"mean{i}" for i in range(count)], ["y"], name="join", axis=0))
    weights = [numpy_helper.from_array(np.array([i + 1], np.float32), f"w{i}") for i in range(count)]
    return model_of(nodes, [floats("x", [1, side, SIDE])], [floats("y", [count, 1, 1])], weights)


def siblings() -> bytes:
    """Two inputs of one op, stored as they should run; ONNX Runtime's default order runs the second one first.

    The file's order needs 5120 bytes, the other one 1024 more.
    """
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["wide"], name="wide"),
        helper.make_node("Concat", ["wide"] * 4, ["wider"], name="wider", axis=0),
        helper.make_node("ReduceMean", ["wider"], ["mean"], name="mean", axes=[0, 1, 2]),
        helper.make_node("Sub", ["x", "w"], ["kept"], name="kept"),
        helper.make_node("Add", ["mean", "kept"], ["y"], name="join"),
    ]
    weights = [numpy_helper.from_array(np.array([2], np.float32), "w")]
    return model_of(nodes, [floats("x", [1, SIDE, SIDE])], [floats("y", [1, SIDE, SIDE])], weights)


def chain(shape: Sequence[int] = (1, 8)) -> bytes:
    """Two ops in a row: nothing can be reordered."""
    nodes = [helper.make_node("Relu", ["x"], ["a"], name="a"), helper.make_node("Neg", ["a"], ["y"], name="b")]
    return model_of(nodes, [floats("x", shape)], [floats("y", shape)])


def conditional() -> bytes:
    """An If whose branches are the worst order of `branches`, with captures of the main graph."""
    bodies = []
    for factor in (1.0, 2.0):
        nodes = [helper.make_node("Mul", ["x", "w"], [f"wide{i}_{factor:g}"]) for i in range(4)]
        nodes += [
            helper.make_node("ReduceMean", [f"wide{i}_{factor:g}"], [f"mean{i}_{factor:g}"], axes=[1, 2])
            for i in range(4)
        ]
        names = [f"mean{i}_{factor:g}" for i in range(4)]
        nodes.append(helper.make_node("Concat", names, [f"joined_{factor:g}"], axis=0))
        weight = numpy_helper.from_array(np.array([factor], np.float32), "w")
        output = floats(f"joined_{factor:g}", [4, 1, 1])
        bodies.append(helper.make_graph(nodes, f"branch_{factor:g}", [], [output], [weight]))
    nodes = [helper.make_node("If", ["which"], ["y"], name="if", then_branch=bodies[0], else_branch=bodies[1])]
    which = helper.make_tensor_value_info("which", TensorProto.BOOL, [])
    return model_of(nodes, [which, floats("x", [1, SIDE, SIDE])], [floats("y", [4, 1, 1])])


def external_branches(folder: Path, name: str = "model.onnx") -> Path:
    """Write `branches` into ``folder`` with its weights in a file of their own; return the model's path."""
    model = onnx.load_model_from_string(branches())
    path = folder / name
    onnx.save_model(
        model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0, convert_attribute=False
    )
    return path
