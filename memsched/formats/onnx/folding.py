"""Shape arithmetic carried out: models compute shapes from shapes, which inference follows only in part.

Small values that follow from known shapes and constants alone are computed with ONNX's reference evaluator and put
into the inference copy as constants. Where the condition of an If is one of them, its outputs are those of the branch
that is taken, and the other branch is never executed. The graphs that are scheduled keep the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from memsched.formats.onnx.evaluate import GROWING, evaluate, stays_within
from memsched.formats.onnx.light import KEPT_ELEMENTS, is_stripped
from memsched.formats.onnx.nodes import opset
from memsched.formats.onnx.stated import declare, write_shape
from memsched.formats.onnx.structure import BRANCHES, Scope, domain_of, graphs_like, owner, values_of
from memsched.formats.onnx.types import ValueType, merge, value_type

__all__ = ["HIDDEN", "fold"]

# Operators that shape arithmetic is made of. Those whose result may be longer than their inputs are checked apart.
_FOLDED: Final = frozenset(
    {
        *("Abs", "Ceil", "Floor", "Neg", "Not", "Sqrt", "Identity", "Cast", "CastLike"),
        *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Max", "Min", "And", "Or", "Xor", "Where"),
        *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
        *("ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum"),
        *("Concat", "Gather", "GatherElements", "GatherND", "Reshape", "ScatterElements", "ScatterND"),
        *("Slice", "Split", "Squeeze", "Transpose", "Unsqueeze", "Shape", "Size", "Constant"),
    }
)

HIDDEN: Final = "hidden"
"""The domain of nodes that the inference must not look at."""


def fold(model: ModelProto, scopes: Sequence[Scope], types: Sequence[dict[str, ValueType]], idle: set[int]) -> bool:
    """Replace nodes of ``model`` whose small results follow from known shapes by constants; return whether any did.

    Args:
        types: Per scope what is known of its values; the types of computed values and of branches taken are added.
        idle: The scopes that are never executed: branches not taken, with what is below them, are added.
    """
    version = opset(model)
    graphs = graphs_like(model.graph, scopes)
    known = [_Known(scope.graph) for scope in graphs]
    changed = False
    for index, scope in enumerate(graphs):
        if scope.parent in idle:
            idle.add(index)
        if index in idle:
            _hide(scope.graph)
            continue
        changed = _lend(graphs, scopes, index) or changed
        folded = []
        for position, node in enumerate(scope.graph.node):
            if domain_of(node):
                continue
            if position in scope.bodies:
                condition = _value(known, scopes, index, node.input[0]) if node.op_type == "If" and node.input else None
                body = _taken(graphs, scope.bodies[position], condition, idle)
                if body is not None:
                    idle.update(other for other in scope.bodies[position] if other != body)
                    changed = _as_branch(node, graphs, (index, body), known, scopes, types) or changed
                continue
            results = _results(node, version, known, scopes, index, types)
            if results is not None:
                for name, value in zip(node.output, results, strict=True):
                    known[index][name] = value
                    types[index][name] = ValueType("tensor", _element(value), tuple(value.shape))
                folded.append(position)
        if folded:
            _replace(scope.graph, folded, known[index])
            changed = True
    return changed


def _lend(graphs: Sequence[Scope], scopes: Sequence[Scope], index: int) -> bool:
    """Give a body the small constants that it captures, whose values ONNX's inference does not see; return if any."""
    graph = graphs[index].graph
    wanted = scopes[index].free.keys() - {tensor.name for tensor in graph.initializer}
    lent: list[TensorProto] = []
    for name in sorted(wanted) if index else ():
        at = owner(scopes, index, name)
        held = graphs[at].graph.initializer if at >= 0 else ()
        lent.extend(tensor for tensor in held if tensor.name == name and not is_stripped(tensor))
    graph.initializer.extend(lent)
    return bool(lent)


def _hide(graph: GraphProto) -> None:
    """Hide the nodes of a graph that is never executed from the inference, which would find them to be impossible."""
    for node in graph.node:
        node.domain = HIDDEN
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")


def _taken(graphs: Sequence[Scope], bodies: Sequence[int], condition: Any, idle: Container[int]) -> int | None:
    """Return the only branch that can be taken; None where that is not known, or for another operator than If."""
    wanted = None
    if condition is not None and condition.size == 1:
        wanted = "then_branch" if condition.reshape(-1)[0] else "else_branch"
    left = [body for body in bodies if body not in idle and wanted in {None, graphs[body].attribute}]
    return left[0] if len(left) == 1 and graphs[left[0]].attribute in BRANCHES else None


def _as_branch(
    node: NodeProto,
    graphs: Sequence[Scope],
    places: tuple[int, int],
    known: Sequence[_Known],
    scopes: Sequence[Scope],
    types: Sequence[dict[str, ValueType]],
) -> bool:
    """Give the outputs of an If the values and types of its branch; return whether that said anything.

    Args:
        places: The scope of the node, and that of the branch.
    """
    index, body = places
    changed = False
    for name, output in zip(node.output, graphs[body].graph.output, strict=False):
        value = _value(known, scopes, body, output.name)
        if name and value is not None:
            known[index][name] = value
        found = _type(types, scopes, body, output.name)
        before = types[index].get(name, ValueType())
        after = found if found.known() else merge(before, found)
        if not name:
            continue
        types[index][name] = after
        changed = _declare(graphs[index].graph, name, after) or after != before or changed
    return changed


def _declare(graph: GraphProto, name: str, found: ValueType) -> bool:
    """State a value's type for the inference, which makes one of what both branches give; return whether that is new.

    The type is known here before the inference knows it where a nested branch had an error.
    """
    lengths = found.lengths()
    if found.kind != "tensor" or not found.element or lengths is None:
        return False
    declared = [value for value in values_of(graph) if value.name == name]
    if not declared:
        declare(graph.value_info, name, found.element, lengths)
    new = [value for value in declared if value_type(value.type) != found]
    for value in new:
        write_shape(value, lengths)
        value.type.tensor_type.elem_type = found.element
    return bool(new) or not declared


def _element(value: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(value.dtype))


class _Known:
    """The small values of a graph, by name; constants are looked into when they are asked for."""

    def __init__(self, graph: GraphProto) -> None:
        self._stored = {tensor.name: tensor for tensor in graph.initializer}
        self._values: dict[str, Any] = {}

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def get(self, name: str) -> Any:
        """Return a value; None where it is not known."""
        if name not in self._values and name in self._stored:
            self._values[name] = _array(self._stored[name])
        return self._values.get(name)


def _array(tensor: TensorProto) -> Any:
    if is_stripped(tensor):
        return None
    try:
        return numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError):  # damaged data, or an element type that numpy lacks
        return None


def _results(
    node: NodeProto,
    version: int,
    known: Sequence[_Known],
    scopes: Sequence[Scope],
    index: int,
    types: Sequence[Mapping[str, ValueType]],
) -> list[Any] | None:
    """Return the node's outputs, or None where they are not known or not small."""
    kind = node.op_type
    if kind not in _FOLDED and kind not in GROWING:
        return None
    if kind in {"Shape", "Size"}:
        lengths = _type(types, scopes, index, node.input[0]).lengths() if node.input else None
        return None if lengths is None else _shape(node, lengths)
    if kind == "Constant":
        value = _constant(node)
        return None if value is None else [value]
    if kind == "Range" and len(node.input) == 3 and node.input[0] == node.input[1]:
        return _nothing(_type(types, scopes, index, node.input[0]).element)
    inputs = []
    for name in node.input:
        value = _value(known, scopes, index, name) if name else None
        if name and value is None:
            return None
        inputs.append(value)
    if kind in GROWING and not stays_within(kind, inputs, KEPT_ELEMENTS):
        return None
    results = evaluate(node, version, inputs)
    return None if results is None else _small(results)


def _nothing(element: int) -> list[Any] | None:
    """Return what a range from any number to the same one is, as the axes of a pin are: empty, of a known type."""
    return [np.zeros(0, helper.tensor_dtype_to_np_dtype(element))] if element else None


def _constant(node: NodeProto) -> Any:
    for attribute in node.attribute if len(node.output) == 1 else ():
        if attribute.name == "value" and attribute.HasField("t"):
            return _array(attribute.t)
        if attribute.name in {"value_int", "value_ints"}:
            return np.array(attribute.i if attribute.name == "value_int" else list(attribute.ints), dtype=np.int64)
        if attribute.name in {"value_float", "value_floats"}:
            values = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            return np.array(values, dtype=np.float32)
    return None


def _value(known: Sequence[_Known], scopes: Sequence[Scope], index: int, name: str) -> Any:
    at = owner(scopes, index, name)
    return known[at].get(name) if at >= 0 else None


def _type(types: Sequence[Mapping[str, ValueType]], scopes: Sequence[Scope], index: int, name: str) -> ValueType:
    at = owner(scopes, index, name)
    return types[at].get(name, ValueType()) if at >= 0 else ValueType()


def _shape(node: NodeProto, lengths: tuple[int, ...]) -> list[Any]:
    if node.op_type == "Size":
        return [np.array(math.prod(lengths), dtype=np.int64)] if math.prod(lengths) < 1 << 63 else []
    limits = {attribute.name: attribute.i for attribute in node.attribute}
    return [np.array(lengths[limits.get("start", 0) : limits.get("end", len(lengths))], dtype=np.int64)]


def _small(results: Sequence[Any]) -> list[Any] | None:
    """Return results as arrays; None where one is large, or no array."""
    if any(not isinstance(value, np.ndarray | np.generic) or value.size > KEPT_ELEMENTS for value in results):
        return None
    return [np.asarray(value) for value in results]


def _replace(graph: GraphProto, folded: Sequence[int], known: _Known) -> None:
    gone = set(folded)
    computed = {name for position in folded for name in graph.node[position].output if name}
    for name in sorted(computed):
        graph.initializer.append(numpy_helper.from_array(known[name], name))
    # Inference would believe an older, vaguer declaration rather than the value.
    declared = [value for value in graph.value_info if value.name not in computed]
    del graph.value_info[:]
    graph.value_info.extend(declared)
    kept = [node for position, node in enumerate(graph.node) if position not in gone]
    del graph.node[:]
    graph.node.extend(kept)
