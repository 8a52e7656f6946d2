"""A builder of networks whose batch and length stay open, operator for operator as PyTorch's exporter writes them.

Lengths are asked for where they are needed (Shape, Gather, Unsqueeze, Concat), as in exported files. Weights are random
numbers, so that outputs vary with inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from scripts.networks.builder import IR_VERSION, OPSET

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto

__all__ = ["OpenBuilder"]

_FLOAT: Final = 1
_INT64: Final = 7


class OpenBuilder:
    """Builds one network; values are known by their names alone.

    Args:
        width: Of a token.
        heads: Of attention.
    """

    def __init__(self, name: str, width: int, heads: int) -> None:
        self.name, self.width, self.heads = name, width, heads
        self.depth = width // heads
        self._numbers = np.random.default_rng(len(name))
        self._nodes: list[NodeProto] = []
        self._constants: dict[str, TensorProto] = {}
        self._inputs: list[ValueInfoProto] = []

    # Values and ops

    def input(self, name: str, *shape: int | str, integers: bool = False) -> str:
        """Add a graph input, of int64 where it is of integers."""
        from onnx import helper

        self._inputs.append(helper.make_tensor_value_info(name, _INT64 if integers else _FLOAT, list(shape)))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node with ``count`` outputs."""
        from onnx import helper

        name = f"/{kind}_{len(self._nodes)}"
        outputs = [f"{name}_output_{number}" for number in range(count)]
        self._nodes.append(helper.make_node(kind, list(inputs), outputs, name=name, **attributes))
        return outputs

    def named(self, value: str, name: str) -> str:
        """Rename what the last node gives, ``value``; a graph output's name is part of the model."""
        outputs = self._nodes[-1].output
        outputs[list(outputs).index(value)] = name
        return name

    def constant(self, values: ArrayLike, kind: type = np.float32) -> str:
        """Add a constant; small equal ones are stored once."""
        from onnx import numpy_helper

        array: NDArray[Any] = np.asarray(values, kind)
        key = f"constant_{array.dtype}_{array.shape}_{array.tobytes().hex()}" if array.size < 8 else ""
        name = key if key and len(key) < 80 else f"constant_{len(self._constants)}"
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(array, name)
        return name

    def integers(self, *values: int) -> str:
        """Add a vector of int64."""
        return self.constant(list(values), np.int64)

    def weight(self, *shape: int, fan_in: int | None = None) -> str:
        """Add random numbers that keep the size of what they are multiplied with."""
        scale = math.sqrt(shape[0] if fan_in is None else fan_in)
        return self.constant(self._numbers.standard_normal(shape, np.float32) / np.float32(scale))

    def vector(self, length: int, middle: float = 0.0, *rest: int) -> str:
        """Add a vector of random numbers around ``middle``, a bias or a scale; ``rest`` are axes behind."""
        values = self._numbers.standard_normal(length, np.float32) * np.float32(0.1) + np.float32(middle)
        return self.constant(values.reshape(length, *rest))

    # Shapes

    def size(self, x: str, axis: int) -> str:
        """Ask for one length of a value, a vector."""
        return self.op("Unsqueeze", self.length(x, axis), self.integers(0))

    def length(self, x: str, axis: int) -> str:
        """Ask for one length of a value, a scalar."""
        return self.op("Gather", self.op("Shape", x), self.constant(axis, np.int64), axis=0)

    def reshaped(self, x: str, *sizes: int | str) -> str:
        """Reshape to numbers and to lengths that were asked for."""
        parts = [self.integers(one) if isinstance(one, int) else one for one in sizes]
        return self.op("Reshape", x, self.op("Concat", *parts, axis=0))

    # Layers

    def linear(self, x: str, rows: int, columns: int, *, bias: bool = True) -> str:
        """Multiply by a matrix and add a vector."""
        product = self.op("MatMul", x, self.weight(rows, columns))
        return self.op("Add", self.vector(columns), product) if bias else product

    def flat_linear(self, x: str, rows: int, columns: int) -> str:
        """Do so by Gemm, with all tokens in one axis, as GPT-2's layers do."""
        batch, length = self.size(x, 0), self.size(x, 1)
        flat = self.op("Reshape", x, self.integers(-1, rows))
        return self.reshaped(
            self.op("Gemm", flat, self.weight(rows, columns), self.vector(columns)), batch, length, columns
        )

    def norm(self, x: str) -> str:
        """Normalise along the last axis."""
        return self.op(
            "LayerNormalization", x, self.vector(self.width, 1), self.vector(self.width), axis=-1, epsilon=1e-5
        )

    def gelu(self, x: str) -> str:
        """Apply the Gaussian error linear unit, by the error function."""
        error = self.op("Erf", self.op("Div", x, self.constant(math.sqrt(2))))
        return self.op("Mul", self.op("Mul", x, self.op("Add", error, self.constant(1.0))), self.constant(0.5))

    def tanh_gelu(self, x: str) -> str:
        """Apply its approximation by the hyperbolic tangent."""
        cube = self.op("Mul", self.op("Pow", x, self.constant(3.0)), self.constant(0.044715))
        inner = self.op("Mul", self.op("Add", x, cube), self.constant(math.sqrt(2 / math.pi)))
        raised = self.op("Add", self.op("Tanh", inner), self.constant(1.0))
        return self.op("Mul", self.op("Mul", x, self.constant(0.5)), raised)

    def silu(self, x: str) -> str:
        """Apply ``x * sigmoid(x)``."""
        return self.op("Mul", x, self.op("Sigmoid", x))

    def split_heads(self, x: str, *order: int) -> str:
        """Part the last axis into heads, and permute."""
        parts = self.reshaped(x, self.size(x, 0), self.size(x, 1), self.heads, self.depth)
        return self.op("Transpose", parts, perm=list(order))

    def join_heads(self, x: str) -> str:
        """Undo `split_heads`."""
        moved = self.op("Transpose", x, perm=[0, 2, 1, 3])
        return self.reshaped(moved, self.size(moved, 0), self.size(moved, 1), self.width)

    def mixed(self, queries: str, keys: str, values: str, *masks: str) -> str:
        """Attend: ``softmax(queries * keys / sqrt(depth) + masks) * values``, with heads split."""
        scores = self.op("Div", self.op("MatMul", queries, keys), self.constant(math.sqrt(self.depth)))
        for mask in masks:
            scores = self.op("Add", scores, mask)
        return self.op("MatMul", self.op("Softmax", scores, axis=-1), values)

    def attention(self, x: str, *masks: str) -> str:
        """Attend to all tokens, without the last linear layer."""
        queries, keys, values = (self.linear(x, self.width, self.width) for _ in range(3))
        heads = self.split_heads(queries, 0, 2, 1, 3), self.split_heads(keys, 0, 2, 3, 1)
        return self.join_heads(self.mixed(*heads, self.split_heads(values, 0, 2, 1, 3), *masks))

    def places(self, x: str, axis: int = 1) -> str:
        """Number the tokens, a vector."""
        return self.op("Range", self.constant(0, np.int64), self.length(x, axis), self.constant(1, np.int64))

    # The model

    def model(
        self, output: str, *shape: int | str, further: Sequence[tuple[str, Sequence[int | str]]] = ()
    ) -> ModelProto:
        """Return the model."""
        from onnx import helper

        outputs = [(output, shape), *further]
        graph = helper.make_graph(
            self._nodes,
            self.name,
            self._inputs,
            [helper.make_tensor_value_info(name, _FLOAT, list(dims)) for name, dims in outputs],
            list(self._constants.values()),
        )
        return helper.make_model(
            graph, producer_name="memsched", ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)]
        )
