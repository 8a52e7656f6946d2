"""What rules look at in a node: its small attributes, and small constants that operators take as inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from memsched.formats.onnx_light import is_stripped
from memsched.formats.onnx_structure import domain_of
from memsched.graph.model import AttributeValue

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

__all__ = ["MOST_ENTRIES", "Values", "attributes_of", "constant_values"]

MOST_ENTRIES: Final = 64
Values = tuple[int, ...] | tuple[float, ...]

# AttributeProto.AttributeType
_FLOAT, _INT, _STRING, _FLOATS, _INTS, _STRINGS = 1, 2, 3, 6, 7, 8
# Element types whose values are numbers that Python can hold exactly.
_NUMBERS: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13})

# Operator -> input position -> the schema's name of an input that says how the operator works.
_CONSTANT_INPUTS: Final[Mapping[str, Mapping[int, str]]] = {
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


def attributes_of(node: NodeProto, value_of: Callable[[str], Values | None]) -> dict[str, AttributeValue]:
    """Return the attributes of ``node`` of at most `MOST_ENTRIES` entries; tensors and graphs are left out.

    Args:
        value_of: Gives the values of a small constant by its name. Those of inputs like Slice's ``starts`` are
            added under the name that the operator's schema gives the input.
    """
    result: dict[str, AttributeValue] = {}
    for attribute in node.attribute:
        kind = attribute.type
        if kind == _INT:
            result[attribute.name] = attribute.i
        elif kind == _INTS and len(attribute.ints) <= MOST_ENTRIES:
            result[attribute.name] = tuple(attribute.ints)
        elif kind == _FLOAT:
            result[attribute.name] = attribute.f
        elif kind == _FLOATS and len(attribute.floats) <= MOST_ENTRIES:
            result[attribute.name] = tuple(attribute.floats)
        elif kind == _STRING:
            result[attribute.name] = attribute.s.decode("utf-8", "replace")
        elif kind == _STRINGS and len(attribute.strings) <= MOST_ENTRIES:
            result[attribute.name] = tuple(text.decode("utf-8", "replace") for text in attribute.strings)
    named = _CONSTANT_INPUTS.get(node.op_type)
    if named and not domain_of(node):
        for position, name in named.items():
            values = value_of(node.input[position]) if position < len(node.input) and node.input[position] else None
            if values is not None:
                result.setdefault(name, values)
    return result


def constant_values(graph: GraphProto) -> dict[str, Values]:
    """Return the values of the numeric constants of at most `MOST_ENTRIES` elements that ``graph`` states."""
    result: dict[str, Values] = {}
    for tensor in graph.initializer:
        values = _tensor_values(tensor)
        if values is not None:
            result[tensor.name] = values
    for node in graph.node:
        if node.op_type == "Constant" and len(node.output) == 1:
            values = _constant_node(node)
            if values is not None:
                result[node.output[0]] = values
    return result


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
    from onnx import numpy_helper

    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError):  # less data than its shape says: the runtime's business, not the scheduler's
        return None
    return tuple(array.reshape(-1).tolist()) if array.size <= MOST_ENTRIES else None
