"""What the nodes of an ONNX model compute, with their weights: in the words of `memsched.graph.kernel`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import NodeProto, helper

from memsched.formats.module import Module
from memsched.formats.onnx.computed import ComputedConstants, NoValueError
from memsched.formats.onnx.native import OnnxNative
from memsched.formats.onnx.standard import Axes
from memsched.graph.kernel import LARGEST_FLOAT, KernelRefusal, LayerKernel, NoKernelError
from memsched.graph.model import Op

__all__ = ["layer_kernels"]

_EVERYTHING: Final = {"low": -LARGEST_FLOAT, "high": LARGEST_FLOAT}


def layer_kernels(module: Module) -> tuple[LayerKernel | KernelRefusal, ...]:
    """Return per op of the main graph what it computes, or why that cannot be said."""
    native: OnnxNative = module.native
    model = native.scheduled()
    nodes = model.graph.node
    constants = ComputedConstants(model, [nodes[place] for place in native.constant_nodes[0]], Path(module.path).parent)
    floats = {tensor for tensor, one in enumerate(module.graph.tensors) if one.dtype == "float32"}

    def one(op: Op, place: int) -> LayerKernel | KernelRefusal:
        if not floats.issuperset((*op.inputs, *op.outputs)):
            return KernelRefusal(f"there is no kernel for {op.type} but of float32")
        try:
            return _OnnxLayer(nodes[place], op, module, constants).kernel()
        except NoKernelError as error:
            return KernelRefusal(str(error))

    return tuple(one(op, place) for op, place in zip(module.graph.ops, native.nodes[0], strict=True))


class _OnnxLayer:
    """One node with its op."""

    def __init__(self, node: NodeProto, op: Op, module: Module, constants: ComputedConstants) -> None:
        self._node, self._op, self._graph, self._constants = node, op, module.graph, constants
        self._given = dict(zip(op.positions, op.inputs, strict=True))
        self._attributes = {one.name: helper.get_attribute_value(one) for one in node.attribute}

    def kernel(self) -> LayerKernel:
        """Return what it computes.

        Raises:
            NoKernelError: That cannot be said.
        """
        kind = self._op.type
        make = _MAKERS.get(kind)
        if make is None:
            raise NoKernelError(f"there is no kernel for {kind}")
        return make(self)

    @property
    def word(self) -> str:
        """The operator in small letters, which is what many functions are called."""
        return self._op.type.lower()

    def number(self, name: str, default: float) -> float:
        """Return an attribute."""
        return float(self._attributes.get(name, default))

    def _shape(self, position: int) -> tuple[int, ...]:
        if position not in self._given:
            raise NoKernelError(f"there is no kernel for {self._op.type} of a constant at {position}")
        return self._graph.tensors[self._given[position]].shape or ()

    def _rank_made(self) -> int:
        return len(self._graph.tensors[self._op.outputs[0]].shape or ())

    def _constant(self, position: int) -> np.ndarray[Any, Any]:
        if position in self._given:
            raise NoKernelError(f"its input {position} is no constant")
        try:
            return self._constants.get(self._node.input[position])
        except NoValueError as error:
            raise NoKernelError(str(error)) from error

    def _floats(self, position: int) -> np.ndarray[Any, Any]:
        found = self._constant(position)
        if found.dtype.name != "float32":
            raise NoKernelError(f"its input {position} is of {found.dtype.name}")
        return found

    def _has(self, position: int) -> bool:
        return position < len(self._node.input) and bool(self._node.input[position])

    # Families ---------------------------------------------------------------------------------------------------------

    def conv(self) -> LayerKernel:
        """Return a convolution of feature maps."""
        weights = self._floats(1)
        if weights.ndim != 4:
            raise NoKernelError("there is no kernel for Conv but over rows and columns")
        constants = [np.ascontiguousarray(np.transpose(weights, (0, 2, 3, 1)))]
        if self._has(2):
            constants.append(self._floats(2))
        numbers = {"groups": self.number("group", 1), **_EVERYTHING}
        return LayerKernel("conv", "float32", numbers, tuple(constants))

    def gemm(self) -> LayerKernel:
        """Return alpha * x * matrix + beta * vector."""
        if self.number("transA", 0) or len(self._shape(0)) != 2:
            raise NoKernelError("there is no kernel for Gemm of a transposed factor")
        matrix = self._floats(1)
        by_outputs = matrix if self.number("transB", 0) else matrix.T
        constants = [np.ascontiguousarray(by_outputs * np.float32(self.number("alpha", 1.0)))]
        if self._has(2):
            vector = self._floats(2)
            if vector.size != len(by_outputs):
                raise NoKernelError("there is no kernel for Gemm with one number added to all")
            constants.append(vector.reshape(-1) * np.float32(self.number("beta", 1.0)))
        return self._matrix(constants)

    def matmul(self) -> LayerKernel:
        """Return the product of a vector and a matrix."""
        matrix = self._floats(1)
        if matrix.ndim != 2 or len(self._shape(0)) != 2:
            raise NoKernelError("there is no kernel for MatMul but of a vector and a matrix")
        return self._matrix([np.ascontiguousarray(matrix.T)])

    def _matrix(self, constants: list[np.ndarray[Any, Any]]) -> LayerKernel:
        if self._shape(0)[0] != 1:
            raise NoKernelError(f"there is no kernel for {self._op.type} of several rows")
        constants[0] = constants[0].reshape(len(constants[0]), 1, 1, -1)
        return LayerKernel("conv", "float32", {"groups": 1, **_EVERYTHING}, tuple(constants), permutes=True)

    def pool(self, word: str) -> LayerKernel:
        """Return the largest of a window, or its mean."""
        if len(self._shape(0)) != 4 or len(self._op.outputs) != 1:
            raise NoKernelError(f"there is no kernel for {self._op.type} but over rows and columns, with one output")
        if word == "average" and self.number("count_include_pad", 0):
            if self.number("ceil_mode", 0):
                raise NoKernelError("there is no kernel for AveragePool that counts padding and rounds up")
            word = "average of all"
        return LayerKernel("pool", "float32", dict(_EVERYTHING), word=word)

    def mean(self) -> LayerKernel:
        """Return the mean over rows and columns."""
        if self._op.type == "ReduceMean":
            axes = self._attributes.get("axes", self._constant(1).tolist() if self._has(1) else None)
            if len(self._shape(0)) != 4 or not axes or tuple(sorted(int(axis) % 4 for axis in axes)) != Axes.PLANE:
                raise NoKernelError("there is no kernel for ReduceMean but over rows and columns")
        if len(self._shape(0)) != 4:
            raise NoKernelError(f"there is no kernel for {self._op.type} but over rows and columns")
        return LayerKernel("mean", "float32")

    def function(self, word: str, a: float = 0.0, b: float = 0.0) -> LayerKernel:
        """Return a function of each element."""
        return LayerKernel("unary", "float32", {"a": a, "b": b}, word=word)

    def clip(self) -> LayerKernel:
        """Return values kept within a range, which attributes or scalars state."""
        limits = []
        for position, (name, default) in enumerate((("min", -LARGEST_FLOAT), ("max", LARGEST_FLOAT)), 1):
            value = self.number(name, default)
            if self._has(position):
                value = float(self._constant(position).reshape(-1)[0])
            limits.append(max(-LARGEST_FLOAT, min(LARGEST_FLOAT, value)))
        return self.function("clip", *limits)

    def binary(self, word: str) -> LayerKernel:
        """Return a function of two operands."""
        if len(self._node.input) != 2:
            raise NoKernelError(f"there is no kernel for {self._op.type} of {len(self._node.input)} operands")
        constants: list[np.ndarray[Any, Any]] = []
        operands = []
        for position in (0, 1):
            if position in self._given:
                operands.append(self._given[position])
            else:
                constants.append(self._in_order(self._floats(position)))
                operands.append(-len(constants))
        return LayerKernel(
            "binary", "float32", dict(_EVERYTHING), tuple(constants), operands=tuple(operands), word=word
        )

    def _in_order(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return what is broadcast to feature maps with their channels last."""
        if self._rank_made() != 4 or values.ndim == 0:
            return values
        return np.ascontiguousarray(np.transpose(values.reshape((1,) * (4 - values.ndim) + values.shape), (0, 2, 3, 1)))

    def normalise(self) -> LayerKernel:
        """Return batch normalisation."""
        if self.number("training_mode", 0) or len(self._shape(0)) != 4:
            raise NoKernelError("there is no kernel for BatchNormalization but of feature maps")
        constants = tuple(self._floats(position) for position in range(1, 5))
        return LayerKernel("normalise", "float32", {"epsilon": self.number("epsilon", 1e-5)}, constants)

    def softmax(self) -> LayerKernel:
        """Return the softmax over channels."""
        rank = len(self._shape(0))
        axis = int(self.number("axis", -1)) % rank
        if (rank, axis) not in {(4, 1), (2, 1)}:
            raise NoKernelError("there is no kernel for Softmax but over channels")
        return LayerKernel("softmax", "float32", {"beta": 1.0})

    def lrn(self) -> LayerKernel:
        """Return local response normalisation over channels."""
        if len(self._shape(0)) != 4:
            raise NoKernelError("there is no kernel for LRN but of feature maps")
        defaults = {"size": 1, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}
        return LayerKernel("lrn", "float32", {name: self.number(name, value) for name, value in defaults.items()})

    def move(self) -> LayerKernel:
        """Return elements from elsewhere, and for padding one value."""
        mode = self._attributes.get("mode", b"")
        if self._op.type == "Pad" and mode not in {b"", b"constant"}:
            raise NoKernelError("there is no kernel for Pad but with a constant")
        if self._op.type == "Resize" and mode not in {b"", b"nearest"}:
            raise NoKernelError("there is no kernel for Resize but to the nearest element")
        fill = self.number("value", 0.0)
        if self._op.type == "Pad" and self._has(2):
            fill = float(self._constant(2).reshape(-1)[0])
        return LayerKernel("move", "float32", {"fill": fill})

    def copy(self) -> LayerKernel:
        """Return the same bytes."""
        return LayerKernel("copy", "float32")


_MAKERS: Final[Mapping[str, Callable[[_OnnxLayer], LayerKernel]]] = {
    "Conv": _OnnxLayer.conv,
    "Gemm": _OnnxLayer.gemm,
    "MatMul": _OnnxLayer.matmul,
    "MaxPool": lambda layer: layer.pool("largest"),
    "AveragePool": lambda layer: layer.pool("average"),
    "GlobalAveragePool": _OnnxLayer.mean,
    "ReduceMean": _OnnxLayer.mean,
    "Relu": lambda layer: layer.function("clip", 0.0, LARGEST_FLOAT),
    "Clip": _OnnxLayer.clip,
    "Sigmoid": lambda layer: layer.function("sigmoid"),
    "Tanh": lambda layer: layer.function("tanh"),
    "LeakyRelu": lambda layer: layer.function("leaky_relu", layer.number("alpha", 0.01)),
    "HardSigmoid": lambda layer: layer.function("hard_sigmoid", layer.number("alpha", 0.2), layer.number("beta", 0.5)),
    "HardSwish": lambda layer: layer.function("hard_swish"),
    "Elu": lambda layer: layer.function("elu", layer.number("alpha", 1.0)),
    **dict.fromkeys(("Exp", "Abs", "Neg", "Sqrt", "Erf"), lambda layer: layer.function(layer.word)),
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu"), lambda layer: layer.binary(layer.word)),
    "BatchNormalization": _OnnxLayer.normalise,
    "Softmax": _OnnxLayer.softmax,
    "LRN": _OnnxLayer.lrn,
    **dict.fromkeys(("Concat", "Pad", "Slice", "Resize"), _OnnxLayer.move),
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Dropout"), _OnnxLayer.copy),
}
