"""Nodes of a rewritten ONNX graph: the file's nodes, pieces and copies of them, and helpers that the file lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import ModelProto, NodeProto, helper

from memsched.base.errors import InternalError
from memsched.formats.onnx.attributes import CONSTANT_INPUTS
from memsched.formats.onnx.constants import OnnxConstants
from memsched.formats.onnx.standard import Opset
from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.graph.model import Graph, Op
from memsched.ops.ranges import constant_parts

__all__ = ["NodeFactory", "opset"]


def opset(model: ModelProto) -> int:
    """Return the model's version of the operator set."""
    return max((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), default=1)


class NodeFactory:
    """Makes nodes for ops that are made from those of ``given``, whose nodes are ``protos``."""

    def __init__(self, given: Graph, protos: Sequence[NodeProto], version: int) -> None:
        self._given, self._protos, self._version = given, protos, version
        self._op = {op.name: number for number, op in enumerate(given.ops)}

    def origin(self, op: Op) -> int | None:
        """Return the op of the given graph that ``op`` is or is made from; None for a helper.

        Raises:
            InternalError: The given graph does not hold what it is made from.
        """
        found = self._op.get(op.origin if op.origin is not None else op.name)
        if found is None and op.origin is not None:
            raise InternalError(
                f"op '{op.name}' is made from '{op.origin}', which the model does not hold", code="unknown-op"
            )
        return found

    def node(self, graph: Graph, op: Op, constants: OnnxConstants) -> NodeProto:
        """Return the node of ``op`` of the rewritten ``graph``; what it needs cut or new goes into ``constants``."""
        source = self.origin(op)
        if source is None:
            return self._helper(graph, op, constants)
        return self._copy(graph, op, self._given.ops[source], self._protos[source], constants)

    def _copy(self, graph: Graph, op: Op, origin: Op, proto: NodeProto, constants: OnnxConstants) -> NodeProto:
        node = NodeProto()
        node.CopyFrom(proto)
        names, given = graph.tensors, self._given.tensors
        # An op that is named by its tensor shall keep that name next to new nodes.
        node.name = op.name
        if (op.type, op.positions) != (origin.type, origin.positions):
            raise InternalError(f"op '{op.name}' is no piece of '{origin.name}'", code="no-piece")
        for place, read, was in zip(op.positions, op.inputs, origin.inputs, strict=True):
            if names[read].name == given[was].name:
                continue
            if place < 0:
                raise InternalError(
                    f"op '{op.name}' captures '{given[was].name}' in a body and cannot read another", code="captured"
                )
            node.input[place] = names[read].name
        renamed = {given[was].name: names[made].name for was, made in zip(origin.outputs, op.outputs, strict=True)}
        for place, name in enumerate(node.output):
            # An unread output without a tensor must not be defined twice.
            node.output[place] = renamed.get(name, "" if op.origin is not None else name)
        self._set_attributes(node, op, origin, constants)
        if op.region is not None:
            parts = constant_parts(self._given, self._op[origin.name], op.region)
            constants.cut(node, op, parts)
        if op.terms is not None:
            constants.cut_terms(node, op)
        return node

    @staticmethod
    def _set_attributes(node: NodeProto, op: Op, origin: Op, constants: OnnxConstants) -> None:
        inputs = {name: place for place, name in CONSTANT_INPUTS.get(op.type, {}).items()}
        starts = node.input[1] if op.type == "Slice" and len(node.input) > 1 else ""
        for name in [*origin.attributes, *(key for key in op.attributes if key not in origin.attributes)]:
            value = op.attributes.get(name)
            if value == origin.attributes.get(name) or name.startswith(CONSTANT_SHAPE):
                continue
            if starts and name in inputs:
                # A piece states axes and steps that the given slice may leave out.
                node.input.extend([""] * (inputs[name] + 1 - len(node.input)))
            if name in inputs and inputs[name] < len(node.input):
                if not isinstance(value, tuple):
                    raise InternalError(f"op '{op.name}': input '{name}' cannot be left out", code="cannot-leave-out")
                place = inputs[name]
                node.input[place] = constants.like(node.input[place] or starts, value)
                continue
            kept = [attribute for attribute in node.attribute if attribute.name != name]
            del node.attribute[:]
            node.attribute.extend(kept)
            if value is not None:
                node.attribute.append(helper.make_attribute(name, value))

    def _helper(self, graph: Graph, op: Op, constants: OnnxConstants) -> NodeProto:
        """Return a node that the file does not have: a slice, a concatenation, a pad, or what stands for a chain."""
        reads = [graph.tensors[tensor].name for tensor in op.inputs]
        (made,) = (graph.tensors[tensor].name for tensor in op.outputs)
        if op.chain:
            domain, _, kind = op.type.rpartition(".")
            stated: dict[str, Any] = dict(op.attributes)
            return helper.make_node(kind, reads, [made], op.name, domain=domain, **stated)
        by_input = CONSTANT_INPUTS.get(op.type, {})
        newest = {"Slice": Opset.SLICE_INPUTS, "Pad": Opset.PAD_INPUTS}.get(op.type)
        if newest is None or self._version < newest:
            attributes: dict[str, Any] = dict(op.attributes)
            return helper.make_node(op.type, reads, [made], op.name, **attributes)
        inputs = [*reads]
        for name in by_input.values():
            if name in op.attributes:
                value = op.attributes[name]
                if not isinstance(value, tuple):
                    raise InternalError(
                        f"op '{op.name}': '{name}' must be a list of numbers", code="attribute-unchangeable"
                    )
                inputs.append(constants.integers(value))
        own: dict[str, Any] = {name: value for name, value in op.attributes.items() if name not in by_input.values()}
        return helper.make_node(op.type, inputs, [made], op.name, **own)
