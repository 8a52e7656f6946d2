"""Random ONNX models of small elementwise and reshaping nodes, and what the installed ONNX Runtime executes of them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from memsched.graph.model import Graph, Op, Tensor
from memsched.runtimes.onnxruntime.opened import read_profile

ROWS, COLUMNS = 4, 6
# Distinct enough that graph optimisation merges nothing, and in ONNX Runtime from opset 7 on.
_UNARY = ("Sigmoid", "Tanh", "Neg", "Sin", "Cos", "Softplus", "Floor", "Elu", "Softsign", "HardSigmoid", "Ceil")
_BINARY = ("Add", "Mul", "Sub")
_SHAPES = ((ROWS * COLUMNS,), (ROWS, COLUMNS), (1, ROWS, COLUMNS), (COLUMNS, ROWS), (ROWS, 1, COLUMNS))


def elementwise(
    seed: int, opset: int = 17, columns: int = COLUMNS, shape_nodes: bool = False, symbolic: bool = False
) -> onnx.ModelProto:
    """Return a DAG of 30 to 60 nodes "n0", "n1", ... with two inputs "x0", "x1" and every loose end an output."""
    rng = random.Random(seed)
    values, nodes, used, numbers = ["x0", "x1"], [], set(), []
    for at in range(rng.randint(30, 60)):
        pick = rng.random()
        if shape_nodes and pick < 0.15:
            nodes.append(helper.make_node(rng.choice(["Shape", "Size"]), [rng.choice(values)], [f"v{at}"], f"n{at}"))
            numbers.append(f"v{at}")
            continue
        count = 1 if pick < 0.5 or at < 2 else 2 if pick < 0.9 else 3
        inputs = rng.sample(values[-10:], min(count, len(values)))
        kind = rng.choice(_UNARY) if len(inputs) == 1 else rng.choice(_BINARY) if len(inputs) == 2 else "Sum"
        nodes.append(helper.make_node(kind, inputs, [f"v{at}"], f"n{at}"))
        used.update(inputs)
        values.append(f"v{at}")
    shape = ["rows" if symbolic else ROWS, columns]
    outputs = [helper.make_tensor_value_info(v, TensorProto.FLOAT, shape) for v in values[2:] if v not in used]
    outputs += [helper.make_tensor_value_info(v, TensorProto.INT64, None) for v in numbers]
    return _model(nodes, shape, outputs, [], opset)


def reshaping(seed: int, opset: int) -> onnx.ModelProto:
    """Return a DAG like `elementwise`, half of it nodes that graph optimisation merges or drops."""
    rng = random.Random(seed)
    values: list[tuple[str, tuple[int, ...]]] = [("x0", (ROWS, COLUMNS)), ("x1", (ROWS, COLUMNS))]
    constants: dict[str, onnx.TensorProto] = {}
    nodes = []

    def constant(numbers: tuple[int, ...]) -> str:
        name = "_".join(["constant", *map(str, numbers)])
        constants[name] = helper.make_tensor(name, TensorProto.INT64, [len(numbers)], numbers)
        return name

    for at in range(rng.randint(30, 60)):
        kind = rng.choice(["Reshape", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Transpose", "Flatten", "Dropout",
                           *_UNARY[:4], "Add", "Mul"])  # fmt: skip
        name, shape = rng.choice(values[-8:])
        inputs = [name]
        attributes: dict[str, Any] = {}
        if kind == "Unsqueeze" and len(shape) > 3:
            kind = "Reshape"
        if kind == "Reshape":
            shape = rng.choice(_SHAPES)
            inputs.append(constant(shape))
        elif kind == "Unsqueeze":
            shape = (1, *shape)
            inputs += [constant((0,))] if opset >= 13 else []
            attributes = {} if opset >= 13 else {"axes": [0]}
        elif kind == "Squeeze":
            shape = tuple(dim for dim in shape if dim != 1)
        elif kind == "Transpose":
            shape = shape[::-1]
        elif kind == "Flatten":
            shape, attributes = (1, ROWS * COLUMNS), {"axis": 0}
        elif kind in _BINARY:
            inputs.append(next((v for v, s in values[-12:] if s == shape and v != name), name))
        nodes.append(helper.make_node(kind, inputs, [f"v{at}"], f"n{at}", **attributes))
        values.append((f"v{at}", shape))
    used = {name for node in nodes for name in node.input}
    outputs = [helper.make_tensor_value_info(v, TensorProto.FLOAT, s) for v, s in values[2:] if v not in used]
    return _model(nodes, [ROWS, COLUMNS], outputs, list(constants.values()), opset)


def _model(nodes: Any, shape: Any, outputs: Any, constants: Any, opset: int) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x0", "x1")]
    graph = helper.make_graph(nodes, "dag", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def shuffled(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Return the model with its nodes in a random topological order."""
    rng = random.Random(seed)
    nodes = list(model.graph.node)
    producer = {name: at for at, node in enumerate(nodes) for name in node.output}
    left, order = list(range(len(nodes))), []
    while left:
        ready = [at for at in left if not any(producer.get(name, -1) in left for name in nodes[at].input)]
        order.append(rng.choice(ready))
        left.remove(order[-1])
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.node[:]
    result.graph.node.extend(nodes[at] for at in order)
    return result


def feed_of(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Return random values for the inputs; symbolic dimensions are ROWS."""
    rng = np.random.default_rng(seed)
    shapes = {v.name: [d.dim_value or ROWS for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def executed(
    model: onnx.ModelProto,
    folder: Path,
    *,
    optimized: bool = False,
    by_file: bool = False,
    feed: Mapping[str, Any] | None = None,
    level: str | None = None,
    reuse: bool = True,
) -> tuple[list[Any], list[str], int]:
    """Run a model in a session that sets nothing but what it must to be watched.

    Returns:
        The outputs, the names of nodes as executed, and the measured peak.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.enable_mem_pattern = False
    options.enable_mem_reuse = reuse
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if level:
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level.upper()}")
    if by_file:
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    outputs = session.run(None, feed_of(model) if feed is None else dict(feed))
    path = Path(session.end_profiling())
    events = json.loads(path.read_text())
    path.unlink()
    suffix = "_kernel_time"
    names = [e["name"][: -len(suffix)] for e in events if e["cat"] == "Node" and e["name"].endswith(suffix)]
    return outputs, names, read_profile(events)["peak_bytes"]


def graph_of(model: onnx.ModelProto) -> Graph:
    """Return the structure of a model; sizes do not matter here."""
    names = [v.name for v in model.graph.input] + [name for node in model.graph.node for name in node.output]
    index = {name: at for at, name in enumerate(names)}
    ops = [
        Op(node.name, node.op_type, tuple(index[n] for n in node.input), tuple(index[n] for n in node.output))
        for node in model.graph.node
    ]
    inputs = tuple(range(len(model.graph.input)))
    outputs = tuple(index[v.name] for v in model.graph.output)
    return Graph("dag", tuple(Tensor(name, 1) for name in names), tuple(ops), inputs, outputs)


def varied(seed: int) -> onnx.ModelProto:
    """Return a DAG of 15 to 50 nodes over tensors of several shapes and element sizes.

    Views, in-place chains, concatenations, splits, inputs read twice, outputs that are read too, unread outputs,
    casts, workspaces, scalars.
    """
    return _Varied(seed).model()


_Value = tuple[str, tuple[int, ...], int]


class _Varied:
    """Values are (name, shape, element size in floats)."""

    _IN_PLACE = (*_UNARY, "Relu", "Abs", "Clip", "Exp")
    _KINDS = ("unary", "unary", "unary", "binary", "binary", "Reshape", "Transpose", "Concat", "Split", "Softmax",
              "Cast", "ReduceMax", "MatMul", "Slice", "Identity", "Unsqueeze")  # fmt: skip

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.values: list[_Value] = [("x0", (16, 24), 1), ("x1", (16, 24), 1)]
        self.constants: dict[str, onnx.TensorProto] = {}
        self.nodes: list[onnx.NodeProto] = []

    def model(self) -> onnx.ModelProto:
        for at in range(self.rng.randint(15, 50)):
            self._add(at)
        used = {name for node in self.nodes for name in node.input}
        types = {1: TensorProto.FLOAT, 2: TensorProto.DOUBLE}
        shown = [value for value in self.values[2:] if value[0] not in used or self.rng.random() < 0.05]
        outputs = [helper.make_tensor_value_info(name, types[element], shape) for name, shape, element in shown]
        return _model(self.nodes, [16, 24], outputs, list(self.constants.values()), 18)

    def _constant(self, *numbers: int) -> str:
        name = "_".join(["constant", *map(str, numbers)])
        self.constants[name] = helper.make_tensor(name, TensorProto.INT64, [len(numbers)], numbers)
        return name

    def _add(self, at: int) -> None:
        rng = self.rng
        name, shape, element = rng.choice(self.values[-rng.choice([3, 8, 20]) :])
        kind = rng.choice(self._KINDS)
        if kind == "Cast" and any(node.op_type == "Cast" and name in node.output for node in self.nodes):
            kind = "Neg"  # ONNX Runtime drops the first of two casts whatever it is told
        if kind == "Cast":
            to = TensorProto.DOUBLE if element == 1 else TensorProto.FLOAT
            self._node(at, kind, [name], [(f"v{at}", shape, 3 - element)], to=to)
        elif element == 2:
            kind = rng.choice(["Neg", "Identity", "Transpose"])
            self._node(at, kind, [name], [(f"v{at}", shape[::-1] if kind == "Transpose" else shape, 2)])
        elif kind == "unary":
            self._node(at, rng.choice(self._IN_PLACE), [name], [(f"v{at}", shape, 1)])
        else:
            self._add_float(at, kind, name, shape)

    def _add_float(self, at: int, kind: str, name: str, shape: tuple[int, ...]) -> None:
        rng = self.rng
        count = int(np.prod(shape))
        same = [v for v, s, e in self.values if s == shape and e == 1][-8:]
        inputs, attributes, made = [name], {}, shape
        if kind == "binary":
            kind = rng.choice((*_BINARY, "Max"))
            inputs.append(rng.choice(same))
        elif kind == "Reshape":
            made = rng.choice([(count,), (count // 2, 2), (1, count)]) if count % 2 == 0 else (count,)
            inputs.append(self._constant(*made))
        elif kind == "Unsqueeze" and len(shape) < 4:
            inputs.append(self._constant(0))
            made = (1, *shape)
        elif kind == "Transpose":
            made = shape[::-1]
        elif not shape or kind == "Unsqueeze":
            kind = "Neg"
        elif kind == "Concat":
            inputs += [rng.choice(same) for _ in range(rng.randint(1, 2))]
            attributes, made = {"axis": 0}, (shape[0] * len(inputs), *shape[1:])
        elif kind == "Softmax":
            attributes = {"axis": rng.randrange(len(shape))}
        elif kind == "ReduceMax":
            inputs.append(self._constant(0))
            attributes, made = {"keepdims": 0}, shape[1:]
        else:
            self._add_matrix(at, kind, name, shape)
            return
        self._node(at, kind, inputs, [(f"v{at}", made, 1)], **attributes)

    def _add_matrix(self, at: int, kind: str, name: str, shape: tuple[int, ...]) -> None:
        if kind == "Split" and shape[-1] % 2 == 0:
            half = (*shape[:-1], shape[-1] // 2)
            self._node(at, kind, [name], [(f"v{at}", half, 1), (f"v{at}b", half, 1)], axis=len(shape) - 1,
                       num_outputs=2)  # fmt: skip
        elif kind == "MatMul" and len(shape) == 2 and shape[0] < 300:
            self.nodes.append(helper.make_node("Transpose", [name], [f"v{at}t"], f"n{at}t"))
            self._node(at, kind, [name, f"v{at}t"], [(f"v{at}", (shape[0], shape[0]), 1)])
        elif kind == "Slice" and shape[0] > 1:
            ends = [self._constant(0), self._constant(shape[0] // 2)]
            self._node(at, kind, [name, *ends], [(f"v{at}", (shape[0] // 2, *shape[1:]), 1)])
        else:
            self._node(at, "Neg", [name], [(f"v{at}", shape, 1)])

    def _node(self, at: int, kind: str, inputs: list[str], made: list[_Value], **attributes: Any) -> None:
        """Add a node; of several outputs the later ones are sometimes neither read nor given out."""
        self.nodes.append(helper.make_node(kind, inputs, [value[0] for value in made], f"n{at}", **attributes))
        self.values.extend(made if self.rng.random() < 0.8 else made[:1])
