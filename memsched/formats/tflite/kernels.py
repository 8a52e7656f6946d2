"""What the operators of a TFLite model compute, with their weights: in the words of `memsched.graph.kernel`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from memsched.formats.module import Module
from memsched.formats.tflite.model import FileModel, FileOperator, FileTensor
from memsched.formats.tflite.quantization import quantization_of
from memsched.graph import fixed_point
from memsched.graph.kernel import LARGEST_FLOAT, KernelRefusal, LayerKernel, NoKernelError

__all__ = ["layer_kernels"]

_ACTIVATION: Final = "fused_activation_function"
_TYPES: Final = {"float32": np.float32, "int8": np.int8, "int32": np.int32}
_RANGES: Final = {
    "NONE": (-LARGEST_FLOAT, LARGEST_FLOAT),
    "RELU": (0.0, LARGEST_FLOAT),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}

Scale = tuple[float, int]


def layer_kernels(module: Module) -> tuple[LayerKernel | KernelRefusal, ...]:
    """Return per op of the main graph what it computes, or why that cannot be said."""
    native = module.native
    operators = native.model.subgraphs[0].operators
    found: list[LayerKernel | KernelRefusal] = []
    for op, number in zip(module.graph.ops, native.mappings[0].operators, strict=True):
        one = _TfliteLayer(native.model, operators[number], dict(zip(op.positions, op.inputs, strict=True)))
        try:
            found.append(one.kernel())
        except NoKernelError as error:
            found.append(KernelRefusal(str(error)))
    return tuple(found)


class _TfliteLayer:
    """One operator with its tensors; ``given`` are the graph's tensors by the operator's positions."""

    def __init__(self, model: FileModel, operator: FileOperator, given: Mapping[int, int]) -> None:
        self._model, self._operator, self._given = model, operator, given
        self._tensors = [model.subgraphs[0].tensors[one] if one >= 0 else None for one in operator.inputs]
        self._made = model.subgraphs[0].tensors[operator.outputs[0]] if operator.outputs else None

    def kernel(self) -> LayerKernel:
        """Return what it computes.

        Raises:
            NoKernelError: That cannot be said.
        """
        kind = self._operator.type
        make = _MAKERS.get(kind)
        if make is None:
            raise NoKernelError(f"there is no kernel for {kind}")
        return make(self)

    # What it reads and makes ------------------------------------------------------------------------------------------

    def _tensor(self, position: int) -> FileTensor:
        found = self._tensors[position] if position < len(self._tensors) else None
        if found is None:
            raise NoKernelError(f"input {position} is absent")
        return found

    @property
    def _output(self) -> FileTensor:
        if self._made is None:
            raise NoKernelError("it makes nothing")
        return self._made

    def _dtype(self) -> Any:
        """Return "float32" or "int8", which its data and its output are."""
        types = {self._tensor(position).dtype for position in self._given} | {self._output.dtype}
        if types not in ({"float32"}, {"int8"}):
            raise NoKernelError(f"there is no kernel for {self._operator.type} of {', '.join(sorted(types))}")
        return types.pop()

    def _quantisation(self, tensor: FileTensor) -> tuple[tuple[float, ...], tuple[int, ...]]:
        scales, zeros = quantization_of(self._model, tensor)
        if not scales:
            raise NoKernelError(f"tensor '{tensor.name}' has no scale")
        return scales, zeros or (0,)

    def _scale(self, tensor: FileTensor) -> Scale:
        scales, zeros = self._quantisation(tensor)
        if len(scales) != 1:
            raise NoKernelError(f"tensor '{tensor.name}' has several scales")
        return scales[0], zeros[0]

    def _values(self, position: int) -> np.ndarray[Any, Any]:
        tensor = self._tensor(position)
        data = self._model.contents(tensor.buffer)
        kind = _TYPES.get(tensor.dtype)
        if position in self._given or kind is None or len(data) != tensor.size:
            raise NoKernelError(f"its input {position} is no constant of a known type")
        return np.frombuffer(data, kind).reshape(tensor.shape)

    def _number(self, name: str, default: float = 0) -> float:
        value = self._operator.attributes.get(name, default)
        return float(value) if isinstance(value, int | float) else default

    def _limits(self, dtype: str) -> dict[str, float]:
        activation = str(self._operator.attributes.get(_ACTIVATION, "NONE"))
        if activation not in _RANGES:
            raise NoKernelError(f"there is no kernel for activation {activation}")
        low, high = _RANGES[activation]
        if dtype == "float32":
            return {"low": low, "high": high}
        scale, zero = self._scale(self._output)
        least, most = fixed_point.activation_range(activation, scale, zero)
        return {"least": least, "most": most, "output_zero": zero}

    # Families ---------------------------------------------------------------------------------------------------------

    def conv(self, weights: np.ndarray[Any, Any], groups: int, *, product_in_floats: bool = False) -> LayerKernel:
        """Return sums of products with ``weights``: output channels, rows, columns, input channels of a group."""
        dtype = self._dtype()
        if weights.dtype != _TYPES[dtype]:
            raise NoKernelError(f"there is no kernel for {dtype} with weights of {weights.dtype}")
        constants = [np.ascontiguousarray(weights)]
        if len(self._tensors) > 2 and self._tensors[2] is not None:
            constants.append(self._values(2))
        numbers: dict[str, float] = {"groups": groups, **self._limits(dtype)}
        if dtype == "float32":
            return LayerKernel("conv", dtype, numbers, tuple(constants))
        given, made = self._scale(self._tensor(0)), self._scale(self._output)
        scales, zeros = self._quantisation(self._tensor(1))
        if any(zeros) or len(scales) not in {1, len(weights)}:
            raise NoKernelError("its weights are not symmetric, or have scales that fit no channels")
        if any(one.dtype != np.int32 for one in constants[1:]):
            raise NoKernelError("its bias has not 32 bits")
        found = []
        for scale in scales:
            product = float(np.float32(given[0]) * np.float32(scale)) if product_in_floats else given[0] * scale
            found.append(fixed_point.multiplier(product / made[0]))
        tables = {"multipliers": tuple(one[0] for one in found), "shifts": tuple(one[1] for one in found)}
        numbers |= {"input_zero": given[1], "per_channel": len(scales) > 1}
        return LayerKernel("conv", dtype, numbers, tuple(constants), tables)

    def dense_conv(self) -> LayerKernel:
        """Return a convolution, of as many groups as its filters leave."""
        weights = self._values(1)
        channels = self._tensor(0).shape[3]
        return self.conv(weights, channels // weights.shape[3])

    def depthwise(self) -> LayerKernel:
        """Return a convolution of each channel by itself."""
        weights = self._values(1)
        return self.conv(np.transpose(weights, (3, 1, 2, 0)), self._tensor(0).shape[3])

    def matrix(self) -> LayerKernel:
        """Return a product with a matrix."""
        weights = self._values(1)
        per_channel = self._dtype() == "int8" and len(self._quantisation(self._tensor(1))[0]) > 1
        return self.conv(
            weights.reshape(weights.shape[0], 1, 1, weights.shape[1]), 1, product_in_floats=not per_channel
        )

    def pool(self, word: str) -> LayerKernel:
        """Return the largest of a window, or the mean of what of it is inside."""
        dtype = self._dtype()
        return LayerKernel("pool", dtype, self._limits(dtype), word=word)

    def mean(self) -> LayerKernel:
        """Return the mean over axes, which are numbered without the batch."""
        dtype, shape = self._dtype(), self._tensor(0).shape
        stated = self._operator.attributes.get("axes")
        axes = sorted({int(axis) % len(shape) for axis in stated}) if isinstance(stated, tuple) else []
        if not axes or 0 in axes:
            raise NoKernelError("there is no kernel for MEAN over these axes")
        tables = {"axes": tuple(axis - 1 for axis in axes)}
        if dtype == "float32":
            return LayerKernel("mean", dtype, tables=tables)
        given, made = self._scale(self._tensor(0)), self._scale(self._output)
        by, shift = fixed_point.mean_multiplier(given[0] / made[0], math.prod(shape[axis] for axis in axes))
        numbers = {"input_zero": given[1], "output_zero": made[1], "multiplier": by, "shift": shift}
        return LayerKernel("mean", dtype, numbers, tables=tables)

    def function(self, word: str, low: float = 0.0, high: float = 0.0) -> LayerKernel:
        """Return a function of each element: of floats itself, of 8 bits its table."""
        dtype = self._dtype()
        slope = self._number("alpha")
        if dtype == "float32":
            return LayerKernel("unary", dtype, {"a": slope if word == "leaky_relu" else low, "b": high}, word=word)
        given, made = self._scale(self._tensor(0)), self._scale(self._output)
        if word == "sigmoid":
            table = fixed_point.logistic_table(given)
        elif word == "tanh":
            table = fixed_point.tanh_table(given)
        elif word == "leaky_relu":
            table = fixed_point.rescaled_table(given, made, slope=slope)
        else:
            least, most = fixed_point.activation_range(self._operator.type, *made)
            table = fixed_point.rescaled_table(given, made, least, most)
        return LayerKernel("table", dtype, tables={"table": table})

    def binary(self, word: str) -> LayerKernel:
        """Return a function of two operands."""
        dtype = self._dtype()
        constants: list[np.ndarray[Any, Any]] = []
        operands = []
        for position in (0, 1):
            if position in self._given:
                operands.append(self._given[position])
            else:
                constants.append(self._values(position))
                operands.append(-len(constants))
        numbers = self._limits(dtype)
        if dtype == "int8":
            if word not in {"add", "sub", "mul"}:
                raise NoKernelError(f"there is no kernel for {self._operator.type} of int8")
            numbers |= self._scales_of_operands(word)
            # Numbers of 32 bits, as all vectors beside 8-bit data are counted.
            constants = [one.astype(np.int32) for one in constants]
        return LayerKernel("binary", dtype, numbers, tuple(constants), operands=tuple(operands), word=word)

    def _scales_of_operands(self, word: str) -> dict[str, float]:
        one, other = self._scale(self._tensor(0)), self._scale(self._tensor(1))
        made = self._scale(self._output)
        numbers: dict[str, float] = {"zero_0": one[1], "zero_1": other[1], "left_shift": 0}
        if word == "mul":
            by, shift = fixed_point.multiplier(one[0] * other[0] / made[0])
        else:
            left = 20
            twice = 2 * max(one[0], other[0])
            for place, scale in enumerate((one[0], other[0])):
                numbers[f"multiplier_{place}"], numbers[f"shift_{place}"] = fixed_point.multiplier(scale / twice)
            by, shift = fixed_point.multiplier(twice / ((1 << left) * made[0]))
            numbers["left_shift"] = left
        return numbers | {"output_multiplier": by, "output_shift": shift}

    def softmax(self) -> LayerKernel:
        """Return the softmax over channels."""
        dtype, beta = self._dtype(), self._number("beta", 1.0)
        if dtype == "float32":
            return LayerKernel("softmax", dtype, {"beta": beta})
        return LayerKernel("softmax", dtype, fixed_point.softmax_numbers(beta, self._scale(self._tensor(0))[0]))

    def move(self) -> LayerKernel:
        """Return elements from elsewhere, and for padding what means zero."""
        dtype = self._dtype()
        if str(self._operator.attributes.get(_ACTIVATION, "NONE")) != "NONE":
            raise NoKernelError(f"there is no kernel for {self._operator.type} with an activation")
        fill = 0.0
        if self._operator.type == "PADV2":
            fill = float(self._values(2).reshape(-1)[0])
        elif dtype == "int8":
            fill = self._scale(self._output)[1]
        if dtype == "int8" and self._operator.type == "CONCATENATION":
            made = self._scale(self._output)
            if any(self._scale(self._tensor(position)) != made for position in self._given):
                raise NoKernelError("there is no kernel for CONCATENATION of several scales")
        return LayerKernel("move", dtype, {"fill": fill})

    def transpose(self) -> LayerKernel:
        """Return elements in another order of axes."""
        order = self._operator.attributes.get("perm")
        if not isinstance(order, tuple):
            raise NoKernelError("there is no kernel for TRANSPOSE whose order is computed")
        return LayerKernel("move", self._dtype(), {"fill": 0}, tables={"order": tuple(int(axis) for axis in order)})

    def copy(self) -> LayerKernel:
        """Return the same bytes."""
        return LayerKernel("copy", self._dtype())

    def quantize(self) -> LayerKernel:
        """Return 8 bits of floats, or of other 8 bits."""
        types = (self._tensor(0).dtype, self._output.dtype)
        made = self._scale(self._output)
        if types == ("float32", "int8"):
            return LayerKernel("quantize", "int8", {"scale": made[0], "zero": made[1]})
        if types == ("int8", "int8"):
            return LayerKernel(
                "table", "int8", tables={"table": fixed_point.rescaled_table(self._scale(self._tensor(0)), made)}
            )
        raise NoKernelError(f"there is no kernel for QUANTIZE of {types[0]} to {types[1]}")

    def dequantize(self) -> LayerKernel:
        """Return floats of 8 bits."""
        if (self._tensor(0).dtype, self._output.dtype) != ("int8", "float32"):
            raise NoKernelError(f"there is no kernel for DEQUANTIZE of {self._tensor(0).dtype}")
        scale, zero = self._scale(self._tensor(0))
        return LayerKernel("dequantize", "float32", {"scale": scale, "zero": zero})


_MAKERS: Final[Mapping[str, Callable[[_TfliteLayer], LayerKernel]]] = {
    "CONV_2D": _TfliteLayer.dense_conv,
    "DEPTHWISE_CONV_2D": _TfliteLayer.depthwise,
    "FULLY_CONNECTED": _TfliteLayer.matrix,
    "AVERAGE_POOL_2D": lambda layer: layer.pool("average"),
    "MAX_POOL_2D": lambda layer: layer.pool("largest"),
    "MEAN": _TfliteLayer.mean,
    "RELU": lambda layer: layer.function("clip", 0.0, LARGEST_FLOAT),
    "RELU6": lambda layer: layer.function("clip", 0.0, 6.0),
    "RELU_N1_TO_1": lambda layer: layer.function("clip", -1.0, 1.0),
    "LEAKY_RELU": lambda layer: layer.function("leaky_relu"),
    "LOGISTIC": lambda layer: layer.function("sigmoid"),
    "TANH": lambda layer: layer.function("tanh"),
    "ADD": lambda layer: layer.binary("add"),
    "SUB": lambda layer: layer.binary("sub"),
    "MUL": lambda layer: layer.binary("mul"),
    "DIV": lambda layer: layer.binary("div"),
    "MAXIMUM": lambda layer: layer.binary("max"),
    "MINIMUM": lambda layer: layer.binary("min"),
    "SOFTMAX": _TfliteLayer.softmax,
    "CONCATENATION": _TfliteLayer.move,
    "PAD": _TfliteLayer.move,
    "PADV2": _TfliteLayer.move,
    "SLICE": _TfliteLayer.move,
    "STRIDED_SLICE": _TfliteLayer.move,
    "RESIZE_NEAREST_NEIGHBOR": _TfliteLayer.move,
    "TRANSPOSE": _TfliteLayer.transpose,
    "RESHAPE": _TfliteLayer.copy,
    "SQUEEZE": _TfliteLayer.copy,
    "EXPAND_DIMS": _TfliteLayer.copy,
    "QUANTIZE": _TfliteLayer.quantize,
    "DEQUANTIZE": _TfliteLayer.dequantize,
}
