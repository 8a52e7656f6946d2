"""Makes small TFLite files for tests through the object API that the runtime's own package brings."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import flatbuffers

from memsched.graph import dag
from memsched.graph.model import Graph

_VERSIONS: dict[str | int, int] = {"BROADCAST_TO": 2}
"""Of operators that have no version 1."""

MODELS = Path(__file__).resolve().parents[2] / "models"


def int32s(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


@dataclass
class T:
    """A tensor; with ``data`` it is a constant; with ``scales`` (one, or one per index of ``axis``) it is quantised."""

    name: str
    shape: Sequence[int] = (1, 4)
    dtype: str = "FLOAT32"
    data: bytes | None = None
    variable: bool = False
    signature: Sequence[int] | None = None
    scales: Sequence[float] = ()
    axis: int = 0
    zero_point: int = 0


@dataclass
class O:  # noqa: E742
    """An operator: its type ("ADD", "CUSTOM:name" or a number), tensors and options table."""

    type: str | int
    inputs: Sequence[int]
    outputs: Sequence[int]
    options: Any = None


@dataclass
class Sub:
    tensors: Sequence[T]
    ops: Sequence[O]
    inputs: Sequence[int] = (0,)
    outputs: Sequence[int] = ()
    name: str = "main"
    metadata: dict[str, bytes] = field(default_factory=dict)


def build(*subgraphs: Sub, metadata: Sequence[tuple[str, bytes]] = ()) -> bytes:
    """Return the bytes of a model of these subgraphs."""
    model = schema.ModelT()
    model.version = 3
    model.description = b"test"
    model.buffers = [schema.BufferT()]
    model.operatorCodes = []
    codes: dict[str | int, int] = {}
    model.subgraphs = [_subgraph(model, sub, codes) for sub in subgraphs]
    model.metadata = []
    for name, payload in metadata:
        entry = schema.MetadataT()
        entry.name, entry.buffer = name, _buffer(model, payload)
        model.metadata.append(entry)
    return pack(model)


def pack(model: Any) -> bytes:
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def unpack(data: bytes) -> Any:
    return schema.ModelT.InitFromPackedBuf(data)


def _buffer(model: Any, data: bytes | None) -> int:
    if data is None:
        return 0
    buffer = schema.BufferT()
    buffer.data = list(data)
    model.buffers.append(buffer)
    return len(model.buffers) - 1


def _code(model: Any, kind: str | int, codes: dict[str | int, int]) -> int:
    if kind not in codes:
        code = schema.OperatorCodeT()
        custom = isinstance(kind, str) and kind.startswith("CUSTOM:")
        number = kind if isinstance(kind, int) else getattr(schema.BuiltinOperator, kind.partition(":")[0])
        code.builtinCode, code.deprecatedBuiltinCode, code.version = number, min(number, 127), _VERSIONS.get(kind, 1)
        code.customCode = str(kind).partition(":")[2] if custom else None
        codes[kind] = len(model.operatorCodes)
        model.operatorCodes.append(code)
    return codes[kind]


def _subgraph(model: Any, sub: Sub, codes: dict[str | int, int]) -> Any:
    graph = schema.SubGraphT()
    graph.name, graph.inputs, graph.outputs = sub.name, list(sub.inputs), list(sub.outputs)
    graph.tensors = []
    for tensor in sub.tensors:
        one = schema.TensorT()
        one.name, one.shape, one.isVariable = tensor.name, list(tensor.shape), tensor.variable
        one.type = getattr(schema.TensorType, tensor.dtype)
        one.buffer = _buffer(model, tensor.data)
        one.hasRank = True
        one.shapeSignature = list(tensor.signature) if tensor.signature is not None else None
        if tensor.scales:
            one.quantization = schema.QuantizationParametersT()
            one.quantization.scale, one.quantization.quantizedDimension = list(tensor.scales), tensor.axis
            one.quantization.zeroPoint = [tensor.zero_point] * len(tensor.scales)
        graph.tensors.append(one)
    graph.operators = []
    for op in sub.ops:
        operator = schema.OperatorT()
        operator.opcodeIndex = _code(model, op.type, codes)
        operator.inputs, operator.outputs = list(op.inputs), list(op.outputs)
        if op.options is not None:
            kind = type(op.options).__name__[:-1]
            if hasattr(schema.BuiltinOptions, kind):
                operator.builtinOptionsType, operator.builtinOptions = getattr(schema.BuiltinOptions, kind), op.options
            else:
                operator.builtinOptions2Type = getattr(schema.BuiltinOptions2, kind)
                operator.builtinOptions2 = op.options
        graph.operators.append(operator)
    return graph


def options(kind: str, **values: Any) -> Any:
    """Return an options table such as ``options("ConcatenationOptions", axis=3)``."""
    table = getattr(schema, f"{kind}T")()
    for name, value in values.items():
        setattr(table, name, value)
    return table


def branches(count: int = 4, size: int = 8) -> Sub:
    """``count`` branches (EXP then a sum over the last axis) whose results are added: branch by branch is best."""
    tensors = [T("x", (1, size)), T("axis", (1,), "INT32", int32s(1))]
    ops = []
    for branch in range(count):
        tensors.append(T(f"wide{branch}", (1, size)))
        ops.append(O("EXP", [0], [2 + branch]))
    for branch in range(count):
        tensors.append(T(f"sum{branch}", (1, 1)))
        ops.append(O("SUM", [2 + branch, 1], [2 + count + branch], options("ReducerOptions", keepDims=True)))
    total = 2 + count
    for branch in range(1, count):
        tensors.append(T(f"total{branch}", (1, 1)))
        ops.append(O("ADD", [total, 2 + count + branch], [len(tensors) - 1], options("AddOptions")))
        total = len(tensors) - 1
    return Sub(tensors, ops, [0], [total])


def best_order(count: int = 4) -> list[int]:
    """An order of `branches` that ends each branch before it begins the next."""
    order: list[int] = []
    for branch in range(count):
        order += [branch, count + branch]
        if branch:
            order.append(2 * count + branch - 1)
    return order


def some_order(graph: Graph, seed: int) -> list[int]:
    """A random topological order."""
    generator = random.Random(seed)
    preds = dag.predecessors(graph)
    succs = dag.successors_of(preds)
    missing = [len(befores) for befores in preds]
    ready = [op for op, count in enumerate(missing) if not count]
    order = []
    while ready:
        order.append(ready.pop(generator.randrange(len(ready))))
        for after in succs[order[-1]]:
            missing[after] -= 1
            if not missing[after]:
                ready.append(after)
    return order
