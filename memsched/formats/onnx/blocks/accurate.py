"""A model whose normalisations add up in double precision, to judge others by.

ONNX Runtime's InstanceNormalization strays from float64 by up to 1e-4 of the largest output on large images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.blocks.body import names_of
from memsched.formats.onnx.standard import Opset
from memsched.formats.onnx.structure import op_type

__all__ = ["accurate"]


def accurate(model: ModelProto) -> ModelProto | None:
    """Return a copy of a model with other nodes for its instance normalisations; None where it has none."""
    if not any(op_type(node) == "InstanceNormalization" for node in model.graph.node):
        return None
    written = ModelProto()
    written.CopyFrom(model)
    opset = next((one.version for one in model.opset_import if one.domain in {"", "ai.onnx"}), 1)
    expansion = _Expansion(written, opset)
    nodes: list[NodeProto] = []
    for node in written.graph.node:
        nodes.extend(expansion.of(node) if op_type(node) == "InstanceNormalization" else [node])
    del written.graph.node[:]
    written.graph.node.extend(nodes)
    return written


class _Expansion:
    """Makes the nodes that stand for normalisations."""

    def __init__(self, written: ModelProto, opset: int) -> None:
        self.taken = names_of(written.graph)
        self.written, self.opset = written, opset
        self.made: list[NodeProto] = []
        self.count = 0
        self.flat, self.last = self._constant([0, 0, -1]), self._constant([2])
        self.one = self._constant([1])

    def of(self, node: NodeProto) -> list[NodeProto]:
        """Return the nodes that stand for one."""
        self.made = []
        flat = self._op("Reshape", node.input[0], self.flat)
        mean = self._op("Cast", self._mean(self._op("Cast", flat, to=TensorProto.DOUBLE)), to=TensorProto.FLOAT)
        apart = self._op("Sub", flat, mean)
        wide = self._op("Cast", apart, to=TensorProto.DOUBLE)
        variance = self._mean(self._op("Mul", wide, wide))
        epsilon = self._op("Constant", value_float=attribute_of(node, "epsilon", 1e-5))
        root = self._op("Sqrt", self._op("Add", variance, self._op("Cast", epsilon, to=TensorProto.DOUBLE)))
        factor = self._op("Cast", self._op("Reciprocal", root), to=TensorProto.FLOAT)
        factor = self._op("Mul", factor, self._op("Unsqueeze", node.input[1], self.one))
        moved = self._op("Add", self._op("Mul", apart, factor), self._op("Unsqueeze", node.input[2], self.one))
        shape = self._op("Shape", node.input[0])
        self.made.append(helper.make_node("Reshape", [moved, shape], [node.output[0]], name=self._name()))
        return self.made

    def _mean(self, name: str) -> str:
        if self.opset >= Opset.REDUCE_INPUTS:
            return self._op("ReduceMean", name, self.last, keepdims=1)
        return self._op("ReduceMean", name, axes=[2], keepdims=1)

    def _constant(self, numbers: list[int]) -> str:
        name = self._name()
        self.written.graph.initializer.append(numpy_helper.from_array(np.array(numbers, dtype=np.int64), name))
        return name

    def _op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = self._name()
        self.made.append(helper.make_node(kind, list(inputs), [name], name=f"{name}_node", **attributes))
        return name

    def _name(self) -> str:
        while True:
            self.count += 1
            name = f"accurate_{self.count}"
            if name not in self.taken:
                return name
