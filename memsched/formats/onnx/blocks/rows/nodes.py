"""Nodes of the body of a loop, or of a branch, as they are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import GraphProto, NodeProto, ValueInfoProto, helper

__all__ = ["BodyNodes", "blocks_value", "branch", "value"]


class BodyNodes:
    """Nodes in order, with names of their own; the same node is made once.

    Args:
        label: What the names begin with.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self.made: list[NodeProto] = []
        self._count = 0
        self._known: dict[object, str] = {}

    def name(self, base: str) -> str:
        """Return a new name."""
        self._count += 1
        return f"{self.label}_{base}_{self._count}"

    def op(self, kind: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """Return the output of a node."""
        key = (kind, inputs, tuple(sorted((name, repr(value)) for name, value in attributes.items())))
        if not result and kind != "SequenceEmpty" and key in self._known:
            return self._known[key]
        found = result or self.name(kind.lower())
        self.made.append(helper.make_node(kind, list(inputs), [found], name=self.name("node"), **attributes))
        self._known.setdefault(key, found)
        return found

    def same_blocks(self, sequence: str, tiny: str) -> str:
        """Return a sequence as it is: the runtime's Identity would copy its blocks.

        Args:
            tiny: A small tensor.
        """
        return self.op("SequenceErase", self.op("SequenceInsert", sequence, tiny))


def branch(nodes: BodyNodes, outputs: Sequence[ValueInfoProto]) -> GraphProto:
    """Return a branch of an If."""
    return helper.make_graph(nodes.made, nodes.label, [], list(outputs))


def value(name: str, kind: int, shape: Sequence[int] | None) -> ValueInfoProto:
    """Return what declares a tensor; ``shape``: None where it is not known."""
    return helper.make_tensor_value_info(name, kind, shape)


def blocks_value(name: str, element: int) -> ValueInfoProto:
    """Return what declares a sequence of blocks of an image."""
    return helper.make_value_info(name, helper.make_sequence_type_proto(helper.make_tensor_type_proto(element, None)))
