"""Builds small ONNX models for the tests of the reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx import reader

__all__ = [
    "BOOL",
    "FLOAT",
    "INT64",
    "branch",
    "call",
    "constant",
    "function",
    "make",
    "node",
    "read",
    "relu_chain",
    "sizes",
    "value",
]

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, shape: Sequence[int | str | None] | None, element: int = FLOAT) -> onnx.ValueInfoProto:
    """Return what a graph says of a value; a shape of None is unknown."""
    return helper.make_tensor_value_info(name, element, shape)


def node(kind: str, reads: str, writes: str, **attributes: Any) -> onnx.NodeProto:
    """Return a node; the names that it reads and writes are parted by blanks."""
    return helper.make_node(kind, reads.split(), writes.split(), **attributes)


def constant(name: str, array: Any) -> onnx.TensorProto:
    """Return an initializer."""
    return numpy_helper.from_array(np.asarray(array), name)


def make(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
    *,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
    opset: int = 17,
    **graph: Any,
) -> onnx.ModelProto:
    """Return a model of one graph."""
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    proto = helper.make_graph(nodes, "net", inputs, outputs, list(initializers), **graph)
    return helper.make_model(proto, opset_imports=imports, functions=functions, ir_version=10)


def read(model: onnx.ModelProto, **options: Any) -> Module:
    """Read a model with options of `LoadOptions`."""
    return reader.read(model.SerializeToString(), "net.onnx", LoadOptions(**options))


def sizes(module: Module, graph: int = 0) -> dict[str, int]:
    """Return the bytes of each tensor."""
    return {tensor.name: tensor.size for tensor in module.graphs[graph].tensors}


def relu_chain() -> onnx.ModelProto:
    """Return a model of two nodes in a row."""
    return make([node("Relu", "x", "a", name="r"), node("Abs", "a", "y")], [value("x", [1, 4])], [value("y", None)])


def branch(name: str, *nodes: onnx.NodeProto, outputs: str, initializers: Any = ()) -> onnx.GraphProto:
    """Return the body of an If."""
    return helper.make_graph(nodes, name, [], [value(out, None) for out in outputs.split()], list(initializers))


def function(name: str, *nodes: onnx.NodeProto, domains: Sequence[str] = ("my",)) -> onnx.FunctionProto:
    """Return a function of the domain `my`."""
    imports = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_function("my", name, ["p"], ["q"], list(nodes), imports)


def call(name: str, reads: str, writes: str) -> onnx.NodeProto:
    """Return a node that calls such a function."""
    return helper.make_node(name, [reads], [writes], domain="my")
