"""The built-in target says what the installed ONNX Runtime does: this fails when a release changes its rules."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memsched.graph import dag
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.lowering.apply import apply_target
from memsched.targets.load import load_target
from tests.needs import recent_onnxruntime

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

pytestmark = recent_onnxruntime

TARGET = load_target("onnxruntime")
SHAPE = (4, 50, 10)
SIZE = 8000
ARENA_UNIT = 256

SAME_SHAPE_OPS = [
    "Abs", "Ceil", "Celu", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "LeakyRelu", "Log",
    "LogSoftmax", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Softmax", "Softplus",
    "Softsign", "Sqrt", "Tanh", "ThresholdedRelu", "Identity", "Clip",
]  # fmt: skip
OWN = ("", "Fast", "Quick")
BINARY_OPS = ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "PRelu"]


def events(
    folder: Path, nodes: Sequence[Any], shapes: dict[str, tuple[int, ...]], outputs: Sequence[str], opset: int = 20
) -> list[Any]:
    """Run a model whose input is x and return the profiler's events of its nodes, in the order of execution."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, shapes["x"])],
        [helper.make_tensor_value_info(name, kind, shapes[name]) for name in outputs],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)], ir_version=9
    )
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling = True
    options.enable_mem_pattern = False
    options.enable_mem_reuse = False
    options.log_severity_level = 3
    options.profile_file_prefix = str(folder / "profile")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.linspace(0.1, 1, int(np.prod(shapes["x"])), dtype=np.float32).reshape(shapes["x"])})
    found = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return [e for e in found if e.get("cat") == "Node" and e["name"].endswith("_kernel_time")]


def figures(folder: Path, kind: str, inputs: Sequence[str] = ("a",), **attributes: Any) -> dict[str, int]:
    """Return what the op under test adds to the bytes in use, and the largest bytes in use, slack included."""
    node = onnx.helper.make_node
    nodes = [node("Abs", ["x"], ["a"]), node("Abs", ["x"], ["b"]), node(kind, inputs, ["y"], name="it", **attributes)]
    nodes += [node("Neg", ["y"], ["z"]), node("Neg", ["b"], ["c"])]
    found = {e["name"]: e["args"] for e in events(folder, nodes, dict.fromkeys("xzc", SHAPE), ["z", "c"])}
    return {key: int(value) for key, value in found["it_kernel_time"].items() if "mem" in key}


@pytest.mark.parametrize("kind", SAME_SHAPE_OPS)
def test_unary_ops_share_memory_as_the_target_says(tmp_path: Path, kind: str) -> None:
    viewed = {name for rule in TARGET.views for name in rule.ops}
    written = {name for rule in TARGET.in_place for name in rule.ops}
    added = figures(tmp_path, kind)["mem_requested_in_use_delta"]
    assert added == (0 if kind in viewed | written else SIZE)


@pytest.mark.parametrize("kind", BINARY_OPS)
def test_binary_ops_never_write_in_place(tmp_path: Path, kind: str) -> None:
    assert figures(tmp_path, kind, ("a", "b"))["mem_requested_in_use_delta"] == SIZE


@pytest.mark.parametrize(("kind", "axis"), [("Softmax", 1), ("Softmax", 2), ("LogSoftmax", 1), ("LogSoftmax", -1)])
def test_workspace_of_softmax(tmp_path: Path, kind: str, axis: int) -> None:
    # In use before: a and b, or a alone; the rest of the peak is workspace, rounded up by the arena.
    found = figures(tmp_path, kind, axis=axis)
    rounded = -(-SIZE // ARENA_UNIT) * ARENA_UNIT
    workspace = found["mem_in_use_peak"] - found["mem_bytes_in_use"]
    graph = Graph(
        "g",
        (Tensor("a", SIZE, SHAPE, "float32"), Tensor("y", SIZE, SHAPE, "float32")),
        (Op("it", kind, (0,), (1,), attributes={"axis": axis}),),
        (0,),
        (1,),
    )
    expected = apply_target(graph, TARGET).ops[0].workspace
    assert workspace == expected // SIZE * rounded


@pytest.mark.parametrize("name", ["HardSwish", "Mish", "Swish", "Gelu", *(f"com.microsoft.{one}Gelu" for one in OWN)])
def test_workspace_of_activations(tmp_path: Path, name: str) -> None:
    """Some are functions to ONNX Runtime, of several operators with a tensor between them."""
    domain, _, kind = name.rpartition(".")
    node = onnx.helper.make_node
    nodes = [node("Abs", ["x"], ["a"]), node(kind, ["a"], ["y"], name="it", domain=domain), node("Neg", ["y"], ["z"])]
    found = events(tmp_path, nodes, {"x": SHAPE, "z": SHAPE}, ["z"], 24 if kind == "Swish" else 20)
    graph = Graph(
        "g",
        (Tensor("a", SIZE, SHAPE, "float32"), Tensor("y", SIZE, SHAPE, "float32")),
        (Op("it", name, (0,), (1,)),),
        (0,),
        (1,),
    )
    # In use before: nothing, as the profile begins; x is the caller's.
    expected = 2 * SIZE + apply_target(graph, TARGET).ops[0].workspace
    expected += 4 * (kind == "Swish")  # its factor, a tensor of one number
    assert max(int(event["args"]["mem_bytes_requested_in_use"]) for event in found) == expected


def test_the_arena_hands_out_multiples_of_the_alignment(tmp_path: Path) -> None:
    node = onnx.helper.make_node
    found = events(tmp_path, [node("Abs", ["x"], ["y"])], {"x": (5,), "y": (5,)}, ["y"])
    assert int(found[0]["args"]["mem_in_use_delta"]) == TARGET.alignment_bytes == ARENA_UNIT


def test_peaks_of_random_models_are_predicted(tmp_path: Path) -> None:
    rng = random.Random(25)
    for _ in range(12):
        names, nodes, ops = ["x"], [], []
        kinds = ["Abs", "Relu", "Tanh", "Add", "Concat", "Flatten", "Identity", "Softmax", "Sigmoid", "Mul"]
        tensors = [Tensor("x", 4000, (10, 100), "float32")]
        for index in range(rng.randint(8, 25)):
            kind = rng.choice(kinds)
            read = [rng.randrange(max(0, len(names) - 4), len(names))]
            if kind in {"Add", "Mul", "Concat"}:
                same = [i for i in range(len(names)) if tensors[i].shape == tensors[read[0]].shape]
                read.append(rng.choice(same))
            rows, columns = tensors[read[0]].shape or ()
            columns = columns * 2 if kind == "Concat" else columns
            attributes = {"axis": 1} if kind in {"Concat", "Flatten"} else {}
            name = f"t{index}"
            nodes.append(onnx.helper.make_node(kind, [names[i] for i in read], [name], name=name, **attributes))
            ops.append(Op(name, kind, tuple(read), (len(tensors),), attributes=attributes))
            names.append(name)
            tensors.append(Tensor(name, rows * columns * 4, (rows, columns), "float32"))
        used = {i for op in ops for i in op.inputs}
        outputs = tuple(i for i in range(1, len(tensors)) if i not in used)
        graph = Graph("random", tuple(tensors), tuple(ops), (0,), outputs)
        dag.validate(graph)
        lowered = apply_target(graph, TARGET)
        shapes = {t.name: t.shape or () for t in tensors}
        found = events(tmp_path, nodes, shapes, [names[i] for i in outputs])
        number = {op.name: index for index, op in enumerate(ops)}
        order = [number[e["name"].removesuffix("_kernel_time")] for e in found]
        in_use = [int(e["args"]["mem_bytes_requested_in_use"]) for e in found]
        # The bytes in use are sampled at the end of a node, so without its workspace.
        base = in_use[0] - int(found[0]["args"]["mem_requested_in_use_delta"])
        workspaces = [lowered.ops[op].workspace for op in order]
        predicted = evaluate(Storage.of(lowered), order).footprints
        assert [f - w for f, w in zip(predicted, workspaces, strict=True)] == [bytes_ - base for bytes_ in in_use]
