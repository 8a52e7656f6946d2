"""Layers of transformers with open batch and length, as exporters write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

__all__ = ["Layers"]


class Layers:
    """Collects nodes; every method returns the name of a value."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        self.width, self.heads = width, heads
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}
        self.inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "length", width])]
        self._numbers = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node."""
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{name}_op", **attributes))
        return name

    def split(self, x: str, width: int) -> tuple[str, str]:
        """Part the last axis into two of one width."""
        names = f"split_{len(self.nodes)}_a", f"split_{len(self.nodes)}_b"
        sizes = self.integers(width, width)
        self.nodes.append(helper.make_node("Split", [x, sizes], list(names), name=f"{names[0]}_op", axis=-1))
        return names

    def weight(self, *shape: int) -> str:
        """Add a constant of random numbers."""
        values = self._numbers.standard_normal(shape) / np.sqrt(shape[0])
        return self.constant(values.astype(np.float32))

    def constant(self, values: npt.ArrayLike) -> str:
        """Add a constant."""
        name = f"constant_{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(np.asarray(values), name)
        return name

    def integers(self, *values: int) -> str:
        """Add a vector of integers."""
        return self.constant(np.array(values, np.int64))

    def size(self, x: str, axis: int) -> str:
        """Ask for a length as exporters do: Shape, Gather, Unsqueeze."""
        shape = self.op("Shape", x)
        return self.op("Unsqueeze", self.op("Gather", shape, self.constant(np.int64(axis))), self.integers(0))

    def linear(self, x: str, rows: int, columns: int) -> str:
        """Multiply by a matrix and add a vector."""
        return self.op("Add", self.op("MatMul", x, self.weight(rows, columns)), self.weight(columns))

    def quantised(self, x: str) -> str:
        """Quantise and dequantise again."""
        scale, zero = self.constant(np.float32(0.0625)), self.constant(np.int8(3))
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, scale, zero), scale, zero)

    def integer_linear(self, x: str, rows: int, columns: int) -> str:
        """Multiply as dynamically quantised models do: by integers, and by the scale of all tokens."""
        names = [f"quantised_{len(self.nodes)}_{part}" for part in ("x", "scale", "zero")]
        self.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], names, name=f"{names[0]}_op"))
        weights = self.constant(self._numbers.integers(-99, 99, (rows, columns)).astype(np.int8))
        product = self.op("MatMulInteger", names[0], weights, names[2], self.constant(np.int8(1)))
        whole = self.op("Cast", product, to=TensorProto.FLOAT)
        return self.op("Mul", whole, self.op("Mul", names[1], self.constant(np.float32(0.01 / rows))))

    def flat_linear(self, x: str, rows: int, columns: int) -> str:
        """Do the same as Gemm on all tokens of all texts in one axis."""
        flat = self.op("Reshape", x, self.integers(-1, rows))
        product = self.op("Gemm", flat, self.weight(rows, columns), self.weight(columns))
        shape = self.op("Concat", self.size(x, 0), self.size(x, 1), self.integers(columns), axis=0)
        return self.op("Reshape", product, shape)

    def split_heads(self, x: str, order: Sequence[int]) -> str:
        """Part the last axis into heads and move these to the front."""
        depth = self.width // self.heads
        parts = self.size(x, 0), self.size(x, 1), self.integers(self.heads), self.integers(depth)
        return self.op("Transpose", self.op("Reshape", x, self.op("Concat", *parts, axis=0)), perm=list(order))

    def attention(self, x: str, mask: str | None = None, *, causal: bool = False) -> str:
        """Attend to all tokens, to those that a mask leaves, or to the earlier ones."""
        width = self.width
        queries = self.split_heads(self.linear(x, width, width), (0, 2, 1, 3))
        keys = self.split_heads(self.linear(x, width, width), (0, 2, 3, 1))
        values = self.split_heads(self.linear(x, width, width), (0, 2, 1, 3))
        scores = self.op("Div", self.op("MatMul", queries, keys), self.constant(np.float32(2)))
        if mask is not None:
            scores = self.op("Add", scores, mask)
        if causal:
            scores = self.op("Where", self._earlier(x), scores, self.constant(np.float32(-1e9)))
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), values)
        joined = self.op("Transpose", mixed, perm=[0, 2, 1, 3])
        shape = self.op("Concat", self.size(joined, 0), self.size(joined, 1), self.integers(width), axis=0)
        return self.linear(self.op("Reshape", joined, shape), width, width)

    def _earlier(self, x: str) -> str:
        length = self.op("Gather", self.op("Shape", x), self.constant(np.int64(1)))
        places = self.op("Range", self.constant(np.int64(0)), length, self.constant(np.int64(1)))
        rows = self.op("Unsqueeze", places, self.integers(1))
        mask = self.op("LessOrEqual", self.op("Unsqueeze", places, self.integers(0)), rows)
        shape = self.op("Concat", self.integers(1, 1), self.size(x, 1), self.size(x, 1), axis=0)
        return self.op("Expand", mask, shape)

    def padding_mask(self) -> str:
        """Add an input that says which tokens count, and return what is added to scores."""
        self.inputs.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64, ["batch", "length"]))
        mask = self.op("Unsqueeze", "attention_mask", self.integers(1, 2))
        absent = self.op("Sub", self.constant(np.float32(1)), self.op("Cast", mask, to=TensorProto.FLOAT))
        return self.op("Mul", absent, self.constant(np.float32(-1e4)))

    def feed_forward(self, x: str, *, flat: bool = False) -> str:
        """Widen, apply GELU by Erf, and narrow again."""
        linear = self.flat_linear if flat else self.linear
        wide = linear(x, self.width, 8 * self.width)
        half = self.op("Mul", wide, self.constant(np.float32(0.5)))
        error = self.op("Erf", self.op("Div", wide, self.constant(np.float32(1.4142))))
        gelu = self.op("Mul", half, self.op("Add", error, self.constant(np.float32(1))))
        return linear(gelu, 8 * self.width, self.width)

    def model(self, output: str) -> ModelProto:
        """Return the model with one output."""
        shape: list[str | int | None] = ["batch", "length", self.width]
        graph = helper.make_graph(
            self.nodes,
            "layers",
            self.inputs,
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
            list(self.constants.values()),
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
