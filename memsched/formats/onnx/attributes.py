"""The parts of a node that rules read: its small attributes and small constant inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from memsched.formats.onnx.light import is_stripped
from memsched.formats.onnx.standard import Opset
from memsched.formats.onnx.structure import domain_of
from memsched.graph.model import AttributeValue
from memsched.ops.rules import ONE_AXIS
from memsched.ops.table import families

__all__ = [
    "CONSTANT_INPUTS",
    "MOST_ENTRIES",
    "ConstantValues",
    "Values",
    "attribute_of",
    "attributes_of",
    "constant_shapes",
    "with_one_axis",
]

MOST_ENTRIES: Final = 64
Values = tuple[int, ...] | tuple[float, ...]

# AttributeProto.AttributeType
# Element types whose values are numbers that Python can hold exactly.
_NUMBERS: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13})

# Operator -> input position -> the schema's name of an input that says how the operator works.
CONSTANT_INPUTS: Final[Mapping[str, Mapping[int, str]]] = {
    "Clip": {1: "min", 2: "max"},
    "CumSum": {1: "axis"},
    "Dropout": {1: "ratio"},
    "Expand": {1: "shape"},
    "Gather": {1: "indices"},
    "OneHot": {1: "depth"},
    "Pad": {1: "pads", 2: "constant_value", 3: "axes"},
    "ReduceL1": {1: "axes"},
    "ReduceL2": {1: "axes"},
    "ReduceLogSum": {1: "axes"},
    "ReduceLogSumExp": {1: "axes"},
    "ReduceMax": {1: "axes"},
    "ReduceMean": {1: "axes"},
    "ReduceMin": {1: "axes"},
    "ReduceProd": {1: "axes"},
    "ReduceSum": {1: "axes"},
    "ReduceSumSquare": {1: "axes"},
    "Reshape": {1: "shape"},
    "Resize": {2: "scales", 3: "sizes"},
    "Slice": {1: "starts", 2: "ends", 3: "axes", 4: "steps"},
    "Split": {1: "split"},
    "Squeeze": {1: "axes"},
    "Tile": {1: "repeats"},
    "TopK": {1: "k"},
    "Trilu": {1: "k"},
    "Unsqueeze": {1: "axes"},
    "Upsample": {1: "scales"},
}

# Where a convolution's weights are; their shape ends with the kernel's.
_WEIGHTS: Final[Mapping[str, int]] = {
    "Conv": 1,
    "ConvInteger": 1,
    "ConvTranspose": 1,
    "FusedConv": 1,
    "QLinearConv": 3,
}

_SOFTMAXES: Final = families("softmax")
LEGACY: Final = "legacy"
"""Attribute that marks a Resize of opset 10, whose coordinates are those of Upsample."""


def _text(name: str | bytes) -> str:
    """Return a name as text; protobuf gives one that is no UTF-8 as bytes."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def attributes_of(node: NodeProto, value_of: Callable[[str], Values | None]) -> dict[str, AttributeValue]:
    """Return the attributes of ``node`` of at most `MOST_ENTRIES` entries; tensors and graphs are left out.

    Args:
        value_of: Gives the values of a small constant by its name. Those of inputs like Slice's ``starts`` are
            added under the name that the operator's schema gives the input.
    """
    result: dict[str, AttributeValue] = {}
    for attribute in node.attribute:
        kind, name = attribute.type, _text(attribute.name)
        if kind == AttributeProto.INT:
            result[name] = attribute.i
        elif kind == AttributeProto.INTS and len(attribute.ints) <= MOST_ENTRIES:
            result[name] = tuple(attribute.ints)
        elif kind == AttributeProto.FLOAT:
            result[name] = attribute.f
        elif kind == AttributeProto.FLOATS and len(attribute.floats) <= MOST_ENTRIES:
            result[name] = tuple(attribute.floats)
        elif kind == AttributeProto.STRING:
            result[name] = attribute.s.decode("utf-8", "replace")
        elif kind == AttributeProto.STRINGS and len(attribute.strings) <= MOST_ENTRIES:
            result[name] = tuple(text.decode("utf-8", "replace") for text in attribute.strings)
    named = CONSTANT_INPUTS.get(node.op_type)
    if not named or domain_of(node):
        return result
    for position, name in named.items():
        values = value_of(node.input[position]) if position < len(node.input) and node.input[position] else None
        if values is not None:
            result.setdefault(name, values)
    if node.op_type == "Slice" and len(node.input) > 1:
        _state_slice_defaults(node, result)
    if node.op_type == "Resize" and len(node.input) == 2:  # opset 10: data and scales
        values = value_of(node.input[1])
        result[LEGACY] = 1
        if values is not None:
            result["scales"] = values
    return result


def with_one_axis(kind: str, attributes: Mapping[str, AttributeValue], version: int) -> Mapping[str, AttributeValue]:
    """Return attributes that say what the axis of a softmax means in a version of the operator set.

    From 13 on it is a single axis, by default the last; before, it is that axis and all behind it, by default all but
    the first.
    """
    if kind not in _SOFTMAXES or version < Opset.SOFTMAX_AXIS:
        return attributes
    return {"axis": -1, **attributes, ONE_AXIS: 1}


def _state_slice_defaults(node: NodeProto, attributes: dict[str, AttributeValue]) -> None:
    """State what absent inputs of a Slice mean: without this, they look like inputs whose values are unknown."""
    starts = attributes.get("starts")
    if isinstance(starts, tuple):
        given = [bool(name) for name in node.input]
        if not any(given[3:4]):
            attributes["axes"] = tuple(range(len(starts)))
        if not any(given[4:5]):
            attributes["steps"] = (1,) * len(starts)


def constant_shapes(
    node: NodeProto, shape_of: Callable[[str], tuple[int, ...] | None], attributes: Mapping[str, AttributeValue]
) -> dict[str, AttributeValue]:
    """Return what the shapes of ``node``'s constants say: ``constant_shape_<position>`` of each, and the kernel.

    Constants whose values are among ``attributes`` are left out.

    Args:
        shape_of: Gives the shape of a constant by its name; None for what is no constant or has no known shape.
    """
    result: dict[str, AttributeValue] = {}
    named = CONSTANT_INPUTS.get(node.op_type, {})
    for position, name in enumerate(node.input):
        shape = shape_of(name) if name and named.get(position) not in attributes else None
        if shape is not None:
            result[f"constant_shape_{position}"] = shape
    weights = result.get(f"constant_shape_{_WEIGHTS.get(node.op_type)}")
    if isinstance(weights, tuple) and "kernel_shape" not in attributes:
        result["kernel_shape"] = tuple(int(size) for size in weights[2:])
    return result


class ConstantValues:
    """The values of the numeric constants that a graph states, decoded when they are asked for: most never are."""

    def __init__(self, graph: GraphProto) -> None:
        self._graph = graph
        self._decoded: dict[str, Values | None] = {}

    @cached_property
    def _tensors(self) -> dict[str, int]:
        return {tensor.name: place for place, tensor in enumerate(self._graph.initializer)}

    @cached_property
    def _nodes(self) -> dict[str, int]:
        return {
            node.output[0]: place
            for place, node in enumerate(self._graph.node)
            if node.op_type == "Constant" and len(node.output) == 1
        }

    def get(self, name: str) -> Values | None:
        """Return the values of a constant of at most `MOST_ENTRIES` elements; None for anything else."""
        if name not in self._decoded:
            self._decoded[name] = self._decode(name)
        return self._decoded[name]

    def _decode(self, name: str) -> Values | None:
        if name in self._nodes:
            return _constant_node(self._graph.node[self._nodes[name]])
        return _tensor_values(self._graph.initializer[self._tensors[name]]) if name in self._tensors else None


def _constant_node(node: NodeProto) -> Values | None:
    for attribute in node.attribute:
        if attribute.name == "value" and attribute.HasField("t"):
            return _tensor_values(attribute.t)
        if attribute.name == "value_int":
            return (attribute.i,)
        if attribute.name == "value_float":
            return (attribute.f,)
        if attribute.name == "value_ints" and len(attribute.ints) <= MOST_ENTRIES:
            return tuple(attribute.ints)
        if attribute.name == "value_floats" and len(attribute.floats) <= MOST_ENTRIES:
            return tuple(attribute.floats)
    return None


def _tensor_values(tensor: TensorProto) -> Values | None:
    if tensor.data_type not in _NUMBERS or is_stripped(tensor):
        return None
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError):  # less data than its shape says: the runtime reports that
        return None
    return tuple(array.reshape(-1).tolist()) if array.size <= MOST_ENTRIES else None


def attribute_of(node: NodeProto, name: str, default: Any) -> Any:
    """Return an attribute's value, or ``default`` where a node has no such attribute."""
    return next((helper.get_attribute_value(one) for one in node.attribute if one.name == name), default)
