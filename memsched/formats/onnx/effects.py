"""The effects of single nodes, and which of their inputs prove that they draw no random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from memsched.formats.onnx.standard import ElementType, Opset
from memsched.graph.effects import Effects
from memsched.ops.onnx import TRAINING_INPUT, by_type, in_training

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto, ValueInfoProto

__all__ = ["false_names", "is_pure_type", "node_effects"]


def is_pure_type(kind: str) -> bool:
    """Whether all ops of a type are pure, bodies aside."""
    return kind not in TRAINING_INPUT and by_type(kind).pure


def node_effects(
    node: NodeProto, kind: str, is_false: Callable[[str], bool], version: int = Opset.DROPOUT_TESTS
) -> Effects:
    """Return the effects of a node without its bodies.

    Args:
        kind: Its type, with the domain.
        is_false: Whether a value of this name is False in every inference.
        version: Of the operator set.
    """
    position = TRAINING_INPUT.get(kind)
    if position is None:
        return by_type(kind)
    if version < Opset.DROPOUT_TESTS and kind == "Dropout":
        trains = not any(attribute.name == "is_test" and attribute.i for attribute in node.attribute)
    else:
        switch = node.input[position] if position < len(node.input) else ""
        trains = bool(switch) and not is_false(switch)
    return in_training(seeded=any(one.name == "seed" for one in node.attribute)) if trains else by_type(kind)


def false_names(
    nodes: Iterable[NodeProto], initializers: Iterable[TensorProto] = (), inputs: Iterable[ValueInfoProto] = ()
) -> frozenset[str]:
    """Return the names of constants of a graph that are False; a caller may replace those that are inputs, too."""
    found = {tensor.name for tensor in initializers if _is_false(tensor)}
    for node in nodes:
        if node.op_type == "Constant" and len(node.output) == 1:
            found.update(node.output[0] for one in node.attribute if one.name == "value" and _is_false(one.t))
    return frozenset(found - {value.name for value in inputs})


def _is_false(tensor: TensorProto) -> bool:
    if tensor.data_type != ElementType.BOOL or any(length != 1 for length in tensor.dims):
        return False
    return bool(tensor.raw_data == b"\0" or list(tensor.int32_data) == [0])
