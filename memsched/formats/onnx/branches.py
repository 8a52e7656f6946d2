"""Branches of an If that cannot run at the known sizes under any condition: the other one is taken."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from onnx import ModelProto, NodeProto, TensorProto, defs, helper, shape_inference

from memsched.formats.onnx.structure import BRANCHES, Scope, domain_of, graphs_like, owner
from memsched.formats.onnx.types import ValueType

__all__ = ["impossible"]


def impossible(
    model: ModelProto, scopes: Sequence[Scope], types: Sequence[dict[str, ValueType]], idle: Collection[int]
) -> dict[int, str]:
    """Return the branches that always execute a node that refuses its inputs, with what is wrong with them.

    A branch inside another one makes only itself impossible. Where both branches of an If are, neither is returned:
    the model is wrong, and what is unknown of it stays so.

    Args:
        types: Per scope what is known of its values.
        idle: The scopes that are never executed anyway.
    """
    graphs = graphs_like(model.graph, scopes)
    judge = _NodeInference(model, graphs, scopes, types)
    found: dict[int, str] = {}
    for index in range(len(graphs)):
        branch = _undecided(graphs, index, idle)
        if branch >= 0 and branch not in found and index not in idle:
            reason = next(judge.refusals(index), None)
            if reason is not None:
                found[branch] = reason
    both = {index for index in found if any(other in found for other in _siblings(graphs, index))}
    return {index: reason for index, reason in found.items() if index not in both}


def _siblings(graphs: Sequence[Scope], index: int) -> list[int]:
    """Return the other branches of the node that executes a graph."""
    scope = graphs[index]
    return [other for other in graphs[scope.parent].bodies[scope.node] if other != index]


def _undecided(graphs: Sequence[Scope], index: int, idle: Collection[int]) -> int:
    """Return the innermost branch around and including a graph that may be taken or not; -1 where there is none."""
    while index > 0 and graphs[index].attribute in BRANCHES:
        if not any(other in idle for other in _siblings(graphs, index)):
            return index
        index = graphs[index].parent
    return -1


class _NodeInference:
    """Asks ONNX's inference about one node at a time."""

    def __init__(
        self,
        model: ModelProto,
        graphs: Sequence[Scope],
        scopes: Sequence[Scope],
        types: Sequence[dict[str, ValueType]],
    ) -> None:
        self._graphs, self._scopes, self._types = graphs, scopes, types
        self._imports = [entry for entry in model.opset_import if entry.domain in {"", "ai.onnx"}]
        self._opset = max((entry.version for entry in self._imports), default=1)
        self._constants: list[dict[str, TensorProto]] = [
            {tensor.name: tensor for tensor in scope.graph.initializer} for scope in graphs
        ]

    def refusals(self, index: int) -> Iterator[str]:
        """Yield what the nodes of a graph that executes no other find wrong with their inputs."""
        for position, node in enumerate(self._graphs[index].graph.node):
            if not domain_of(node) and position not in self._graphs[index].bodies:
                reason = self._refusal(node, index)
                if reason:
                    yield f"{node.op_type} '{node.name or node.output[0]}': {reason}"

    def _refusal(self, node: NodeProto, index: int) -> str:
        given, values = {}, {}
        for name in filter(None, node.input):
            at = owner(self._scopes, index, name)
            tensor = self._constants[at].get(name) if at >= 0 else None
            if tensor is not None:
                given[name] = helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
                values[name] = tensor
                continue
            found = self._types[at].get(name, ValueType()) if at >= 0 else ValueType()
            lengths = found.lengths()
            if found.kind != "tensor" or not found.element or lengths is None:
                return ""
            given[name] = helper.make_tensor_type_proto(found.element, lengths)
        try:
            schema = defs.get_schema(node.op_type, self._opset, "")
        except defs.SchemaError:
            return ""
        try:
            shape_inference.infer_node_outputs(schema, node, given, values, opset_imports=self._imports)
        except shape_inference.InferenceError as error:
            return str(error).rpartition("] ")[2].strip().partition("\n")[0]
        except Exception:  # a branch that it cannot judge is possible
            return ""
        return ""
