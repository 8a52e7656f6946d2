"""What all generators share: a builder of ONNX graphs that knows the shape of every value."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from onnx import ModelProto, NodeProto, TensorProto

__all__ = ["FUSED_INTO", "IR_VERSION", "OPSET", "Builder", "Value"]

OPSET: Final = 17
IR_VERSION: Final = 8

FUSED_INTO: Final = frozenset({"Add", "BatchNormalization", "Concat", "Conv"})
"""Ops that take over an activation when it is the only reader of their result."""

_FLOAT: Final = 1
_INT64: Final = 7
_Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the network, float32 where it is not of integers."""

    name: str
    shape: tuple[int, ...]
    integers: bool = False

    @property
    def channels(self) -> int:
        """The length of the second axis."""
        return self.shape[1]


@dataclass(slots=True)
class _Op:
    kind: str
    inputs: list[str]
    outputs: list[Value]
    attributes: dict[str, Any]


class Builder:
    """Builds one network, op by op, in the order in which the file stores them.

    Args:
        name: Of the graph.
        merge: Return the value that exists already instead of writing a second op of the same kind on the same inputs,
            as exporters that merge common sub-expressions do.
        keep_activations: Keep each activation as an op of its own; otherwise one that is the only reader of an op of
            `FUSED_INTO` is left out.
    """

    def __init__(self, name: str, *, merge: bool = False, keep_activations: bool = True) -> None:
        self.name = name
        self._merge = merge
        self._keep = keep_activations
        self._random = random.Random(name)
        self._count: Counter[str] = Counter()
        self._ops: list[_Op] = []
        self._inputs: list[Value] = []
        self._constants: dict[str, TensorProto] = {}
        self._known: dict[tuple[Any, ...], tuple[Value, ...]] = {}

    # Values and ops ------------------------------------------------------------------------------------------------

    def input(self, name: str, *shape: int, integers: bool = False) -> Value:
        """Add a graph input, of int64 where it is of integers."""
        value = Value(name, shape, integers)
        self._inputs.append(value)
        return value

    def node(
        self,
        kind: str,
        inputs: Sequence[Value | str],
        shape: Sequence[int],
        *,
        mergeable: bool = True,
        **attributes: Any,
    ) -> Value:
        """Add an op with one output of ``shape``; strings among ``inputs`` name constants."""
        return self.nodes(kind, inputs, [shape], mergeable=mergeable, **attributes)[0]

    def nodes(
        self,
        kind: str,
        inputs: Sequence[Value | str],
        shapes: Sequence[Sequence[int]],
        *,
        mergeable: bool = True,
        **attributes: Any,
    ) -> tuple[Value, ...]:
        """Add an op with one output for each of ``shapes``."""
        names = [value if isinstance(value, str) else value.name for value in inputs]
        key = (kind, *names, *((name, str(value)) for name, value in attributes.items()))
        if self._merge and mergeable and key in self._known:
            return self._known[key]
        base = self._unique(kind)
        outputs = tuple(
            Value(base if len(shapes) == 1 else f"{base}_{place}", tuple(shape)) for place, shape in enumerate(shapes)
        )
        self._ops.append(_Op(kind, names, list(outputs), attributes))
        self._known[key] = outputs
        return outputs

    def _unique(self, kind: str) -> str:
        name = f"{kind.lower()}_{self._count[kind]}"
        self._count[kind] += 1
        return name

    # Constants -----------------------------------------------------------------------------------------------------

    def integers(self, name: str, values: Sequence[int]) -> str:
        """Return the name of an int64 constant, which is stored once."""
        from onnx import helper

        if name not in self._constants:
            self._constants[name] = helper.make_tensor(name, _INT64, [len(values)], list(values))
        return name

    def integer(self, name: str, value: int) -> str:
        """Return the name of an int64 constant without dimensions, which is stored once."""
        from onnx import helper

        self._constants.setdefault(name, helper.make_tensor(name, _INT64, [], [value]))
        return name

    def floats(self, name: str, shape: Sequence[int], low: float, high: float) -> str:
        """Return the name of a constant of random values, which is stored once."""
        from onnx import helper

        if name not in self._constants:
            source = random.Random(name)
            values = [source.uniform(low, high) for _ in range(math.prod(shape))]
            self._constants[name] = helper.make_tensor(name, _FLOAT, list(shape), values)
        return name

    def own_floats(self, shape: Sequence[int], low: float, high: float) -> str:
        """Return the name of a new constant of random values."""
        return self.floats(self._unique("weights"), shape, low, high)

    def array(self, name: str, values: NDArray[np.float32]) -> str:
        """Return the name of a constant of these values, which is stored once."""
        from onnx import numpy_helper

        self._constants.setdefault(name, numpy_helper.from_array(values, name))
        return name

    def scalar(self, name: str, value: float) -> str:
        """Return the name of a constant without dimensions."""
        from onnx import helper

        self._constants.setdefault(name, helper.make_tensor(name, _FLOAT, [], [value]))
        return name

    def weight(self, shape: Sequence[int], fan_in: int) -> str:
        """Return the name of a weight whose elements all equal between 1/2 and 1 of 1 / fan_in, a value of its own."""
        from onnx import helper

        extents = self.integers("shape_" + "x".join(map(str, shape)), shape)
        value = helper.make_tensor("value", _FLOAT, [1], [self._random.uniform(0.5, 1.0) / fan_in])
        name = self._unique("weight")
        self._ops.append(_Op("ConstantOfShape", [extents], [Value(name, tuple(shape))], {"value": value}))
        return name

    def bias(self, channels: int) -> str:
        """Return the name of the bias that all ops of so many channels share."""
        return self.floats(f"bias_{channels}", [channels], -0.1, 0.3)

    # Operators -----------------------------------------------------------------------------------------------------

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: int | _Pair = 1,
        stride: int = 1,
        *,
        padding: int | _Pair | None = None,
        groups: int = 1,
        dilation: int = 1,
    ) -> Value:
        """Add a convolution with its BN folded in; the padding keeps the extent at stride 1 unless it is given."""
        extents = _pair(kernel)
        pads = tuple(dilation * (extent - 1) // 2 for extent in extents) if padding is None else _pair(padding)
        reach = tuple(dilation * (extent - 1) + 1 for extent in extents)
        area = _window(x, reach, (stride, stride), pads)
        depth = x.channels // groups
        weight = self.weight((channels, depth, *extents), depth * extents[0] * extents[1])
        attributes = _window_attributes(extents, stride, pads)
        if groups != 1:
            attributes["group"] = groups
        if dilation != 1:
            attributes["dilations"] = [dilation, dilation]
        inputs: list[Value | str] = [x, weight, self.bias(channels)]
        return self.node("Conv", inputs, (x.shape[0], channels, *area), mergeable=False, **attributes)

    def depthwise(self, x: Value, kernel: int, stride: int = 1, **options: Any) -> Value:
        """Add a depthwise convolution."""
        return self.conv(x, x.channels, kernel, stride, groups=x.channels, **options)

    def conv_transpose(self, x: Value, channels: int, factor: int = 2) -> Value:
        """Add a transposed convolution whose kernel and stride are ``factor``."""
        batch, depth, height, width = x.shape
        weight = self.weight((depth, channels, factor, factor), depth)
        return self.node(
            "ConvTranspose",
            [x, weight, self.bias(channels)],
            (batch, channels, height * factor, width * factor),
            mergeable=False,
            kernel_shape=[factor, factor],
            strides=[factor, factor],
        )

    def batch_norm(self, x: Value) -> Value:
        """Add a batch normalisation, for where there is no convolution before it to fold it into."""
        count = x.channels
        statistics = [
            self.floats(f"bn_{what}_{count}", [count], low, high)
            for what, low, high in (("scale", 0.8, 1.2), ("shift", -0.1, 0.3), ("mean", -0.1, 0.1), ("var", 0.5, 1.5))
        ]
        return self.node("BatchNormalization", [x, *statistics], x.shape, mergeable=False)

    def relu(self, x: Value) -> Value:
        """Add a rectifier."""
        return self.unary("Relu", x)

    def unary(self, kind: str, x: Value) -> Value:
        """Add an op that keeps the shape."""
        return self.node(kind, [x], x.shape)

    def add(self, x: Value, y: Value) -> Value:
        """Add an addition."""
        return self.node("Add", [x, y], x.shape)

    def concat(self, values: Sequence[Value], axis: int = 1) -> Value:
        """Add a concatenation."""
        shape = list(values[0].shape)
        shape[axis] = sum(value.shape[axis] for value in values)
        return self.node("Concat", values, shape, axis=axis)

    def max_pool(self, x: Value, kernel: int = 3, stride: int = 1, padding: int | None = None) -> Value:
        """Add a max pooling."""
        return self._pool("MaxPool", x, kernel, stride, padding)

    def average_pool(self, x: Value, kernel: int = 3, stride: int = 1, padding: int | None = None) -> Value:
        """Add an average pooling that does not count the padding."""
        return self._pool("AveragePool", x, kernel, stride, padding)

    def _pool(self, kind: str, x: Value, kernel: int, stride: int, padding: int | None) -> Value:
        pads = _pair((kernel - 1) // 2 if padding is None else padding)
        area = _window(x, _pair(kernel), _pair(stride), pads)
        return self.node(kind, [x], (*x.shape[:2], *area), **_window_attributes(_pair(kernel), stride, pads))

    def pad(self, x: Value, top: int, left: int, bottom: int, right: int) -> Value:
        """Add zeros around each plane."""
        sizes = (0, 0, top, left, 0, 0, bottom, right)
        pads = self.integers("pads_" + "x".join(map(str, sizes)), sizes)
        batch, channels, height, width = x.shape
        return self.node("Pad", [x, pads], (batch, channels, height + top + bottom, width + left + right))

    def crop(self, x: Value, top: int, left: int) -> Value:
        """Remove the first rows and columns of each plane."""
        batch, channels, height, width = x.shape
        starts = self.integers(f"starts_{top}x{left}", (top, left))
        ends = self.integers(f"ends_{height}x{width}", (height, width))
        axes = self.integers("axes_2x3", (2, 3))
        return self.node("Slice", [x, starts, ends, axes], (batch, channels, height - top, width - left))

    def upsample(self, x: Value, factor: int) -> Value:
        """Repeat each element ``factor`` times in both directions."""
        from onnx import helper

        name = f"scales_{factor}"
        self._constants.setdefault(name, helper.make_tensor(name, _FLOAT, [4], [1, 1, factor, factor]))
        batch, channels, height, width = x.shape
        return self.node(
            "Resize",
            [x, "", name],
            (batch, channels, height * factor, width * factor),
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        )

    def classifier(self, x: Value, classes: int) -> Value:
        """Add a fully connected layer on ``[batch, features]``, whose rows differ so that the classes do."""
        weight = self._rows(classes, x.channels, transposed=False)
        bias = self.bias(classes)
        return self.node("Gemm", [x, weight, bias], (x.shape[0], classes), mergeable=False, transB=1)

    def matmul_classifier(self, x: Value, classes: int) -> Value:
        """Add a fully connected layer on ``[batch, features]`` as two ops, a product and a sum."""
        shape = (x.shape[0], classes)
        product = self.node("MatMul", [x, self._rows(classes, x.channels, transposed=True)], shape, mergeable=False)
        return self.node("Add", [product, self.bias(classes)], shape)

    def _rows(self, classes: int, features: int, *, transposed: bool) -> str:
        rows = self.floats(f"rows_{classes}", [1, classes] if transposed else [classes, 1], 0, 1 / features)
        shape = (features, classes) if transposed else (classes, features)
        extents = self.integers("shape_" + "x".join(map(str, shape)), shape)
        name = self._unique("weight")
        self._ops.append(_Op("Expand", [rows, extents], [Value(name, shape)], {}))
        return name

    # The model -----------------------------------------------------------------------------------------------------

    def model(self, *outputs: Value) -> ModelProto:
        """Return the model, with the shape of every activation stated.

        Raises:
            onnx.checker.ValidationError: The generator is wrong.
        """
        import onnx
        from onnx import helper

        if not self._keep:
            self._leave_out_activations({value.name for value in outputs})
        nodes = [self._proto(op) for op in self._ops]
        results = {value.name for value in outputs}
        shown = [value for op in self._ops if op.kind not in {"ConstantOfShape", "Expand"} for value in op.outputs]
        graph = helper.make_graph(
            nodes,
            self.name,
            [_info(value) for value in self._inputs],
            [_info(value) for value in outputs],
            list(self._constants.values()),
            value_info=[_info(value) for value in shown if value.name not in results],
        )
        model = helper.make_model(
            graph, producer_name="memsched", ir_version=IR_VERSION, opset_imports=[helper.make_opsetid("", OPSET)]
        )
        helper.set_model_props(model, {"activations": "kept" if self._keep else "left out where an engine fuses them"})
        onnx.checker.check_model(model, full_check=True)
        return model

    def _leave_out_activations(self, outputs: set[str]) -> None:
        readers: Counter[str] = Counter(name for op in self._ops for name in op.inputs)
        producer = {value.name: op for op in self._ops for value in op.outputs}
        instead: dict[str, str] = {}
        kept = []
        for op in self._ops:
            op.inputs = [instead.get(name, name) for name in op.inputs]
            if op.kind == "Relu" and op.outputs[0].name not in outputs:
                before = producer.get(op.inputs[0])
                if before is not None and before.kind in FUSED_INTO and readers[op.inputs[0]] == 1:
                    instead[op.outputs[0].name] = op.inputs[0]
                    continue
            kept.append(op)
        self._ops = kept

    def _proto(self, op: _Op) -> NodeProto:
        from onnx import helper

        names = [value.name for value in op.outputs]
        name = names[0] if len(names) == 1 else names[0].rpartition("_")[0]
        return helper.make_node(op.kind, op.inputs, names, name=name, **op.attributes)


def _pair(value: int | _Pair) -> _Pair:
    return (value, value) if isinstance(value, int) else value


def _window(x: Value, reach: Sequence[int], strides: Sequence[int], pads: Sequence[int]) -> tuple[int, ...]:
    """Return the height and width that a sliding window gives."""
    return tuple(
        (extent + 2 * pad - span) // step + 1
        for extent, span, step, pad in zip(x.shape[2:], reach, strides, pads, strict=True)
    )


def _window_attributes(kernel: _Pair, stride: int, pads: Sequence[int]) -> dict[str, Any]:
    attributes: dict[str, Any] = {"kernel_shape": list(kernel)}
    if stride != 1:
        attributes["strides"] = [stride, stride]
    if any(pads):
        attributes["pads"] = [*pads, *pads]
    return attributes


def _info(value: Value) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(value.name, _INT64 if value.integers else _FLOAT, value.shape)
