"""Shape arithmetic carried out: models compute shapes from shapes, which inference follows only in part.

Small values that follow from known shapes and constants alone are computed with ONNX's reference evaluator and put
into the inference copy as constants. The graphs that are scheduled keep the nodes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from memsched.formats.onnx_light import KEPT_ELEMENTS, is_stripped
from memsched.formats.onnx_structure import Scope, domain_of, graphs_like
from memsched.formats.onnx_types import ValueType

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

__all__ = ["fold"]

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
_GROWING: Final = frozenset({"ConstantOfShape", "Expand", "Range", "Tile"})
_Known = dict[str, Any]


def fold(model: ModelProto, scopes: Sequence[Scope], types: Sequence[dict[str, ValueType]]) -> bool:
    """Replace nodes of ``model`` whose small results follow from known shapes by constants; return whether any did.

    Args:
        types: Per scope what is known of its values; the computed values' types are added.
    """
    opset = next((item.version for item in model.opset_import if item.domain in {"", "ai.onnx"}), 1)
    known: list[_Known] = []
    changed = False
    for index, scope in enumerate(graphs_like(model.graph, scopes)):
        known.append(_constants(scope.graph))
        folded = []
        for position, node in enumerate(scope.graph.node):
            if not domain_of(node) and position not in scope.bodies:
                results = _results(node, opset, known, scopes, index, types)
                if results is not None:
                    for name, value in zip(node.output, results, strict=True):
                        known[index][name] = value
                        types[index][name] = ValueType("tensor", _element(value), tuple(value.shape))
                    folded.append(position)
        if folded:
            _replace(scope.graph, folded, known[index])
            changed = True
    return changed


def _element(value: Any) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(value.dtype))


def _constants(graph: GraphProto) -> _Known:
    from onnx import numpy_helper

    result: _Known = {}
    for tensor in graph.initializer:
        if not is_stripped(tensor):
            try:
                result[tensor.name] = numpy_helper.to_array(tensor)
            except (ValueError, TypeError, KeyError):  # damaged data, or an element type that numpy lacks
                continue
    return result


def _results(
    node: NodeProto,
    opset: int,
    known: Sequence[_Known],
    scopes: Sequence[Scope],
    index: int,
    types: Sequence[Mapping[str, ValueType]],
) -> list[Any] | None:
    """Return the node's outputs, or None where they are not known or not small."""
    kind = node.op_type
    if kind not in _FOLDED and kind not in _GROWING:
        return None
    if kind in {"Shape", "Size"}:
        lengths = _type(types, scopes, index, node.input[0]).lengths() if node.input else None
        return None if lengths is None else _shape(node, lengths)
    if kind == "Constant":
        value = _constant(node)
        return None if value is None else [value]
    inputs = []
    for name in node.input:
        value = _value(known, scopes, index, name) if name else None
        if name and value is None:
            return None
        inputs.append(value)
    if kind in _GROWING and not _stays_small(kind, inputs):
        return None
    return _evaluate(node, opset, inputs)


def _constant(node: NodeProto) -> Any:
    import numpy as np
    from onnx import numpy_helper

    for attribute in node.attribute if len(node.output) == 1 else ():
        if attribute.name == "value" and attribute.HasField("t") and not is_stripped(attribute.t):
            try:
                return numpy_helper.to_array(attribute.t)
            except (ValueError, TypeError, KeyError):  # as for initializers
                return None
        if attribute.name in {"value_int", "value_ints"}:
            return np.array(attribute.i if attribute.name == "value_int" else list(attribute.ints), dtype=np.int64)
        if attribute.name in {"value_float", "value_floats"}:
            values = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            return np.array(values, dtype=np.float32)
    return None


def _owner(scopes: Sequence[Scope], index: int, name: str) -> int:
    while index >= 0 and name not in scopes[index].defined:
        index = scopes[index].parent
    return index


def _value(known: Sequence[_Known], scopes: Sequence[Scope], index: int, name: str) -> Any:
    owner = _owner(scopes, index, name)
    return known[owner].get(name) if owner >= 0 else None


def _type(types: Sequence[Mapping[str, ValueType]], scopes: Sequence[Scope], index: int, name: str) -> ValueType:
    owner = _owner(scopes, index, name)
    return types[owner].get(name, ValueType()) if owner >= 0 else ValueType()


def _shape(node: NodeProto, lengths: tuple[int, ...]) -> list[Any]:
    import numpy as np

    if node.op_type == "Size":
        return [np.array(math.prod(lengths), dtype=np.int64)] if math.prod(lengths) < 1 << 63 else []
    limits = {attribute.name: attribute.i for attribute in node.attribute}
    return [np.array(lengths[limits.get("start", 0) : limits.get("end", len(lengths))], dtype=np.int64)]


def _stays_small(kind: str, inputs: Sequence[Any]) -> bool:
    try:
        if kind == "Range":
            start, limit, delta = (float(value) for value in inputs)
            return delta != 0 and (limit - start) / delta <= KEPT_ELEMENTS
        if inputs[-1].dtype.kind == "c":
            return False
        factors = [int(length) for length in inputs[-1].reshape(-1)]
        size = math.prod(max(1, length) for length in factors)
        return size * (1 if kind == "ConstantOfShape" else inputs[0].size) <= KEPT_ELEMENTS
    except (TypeError, ValueError, IndexError, AttributeError, OverflowError):
        return False


def _evaluate(node: NodeProto, opset: int, inputs: Sequence[Any]) -> list[Any] | None:
    import numpy as np
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    names = [name for name in node.input if name]
    function = helper.make_function(
        "memsched", "fold", list(dict.fromkeys(names)), list(node.output), [node], [helper.make_opsetid("", opset)]
    )
    feeds = {name: value for name, value in zip(node.input, inputs, strict=True) if name}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = ReferenceEvaluator(function).run(None, feeds, attributes={})
    except Exception:  # whatever the evaluator cannot do stays unknown
        return None
    small = all(isinstance(value, np.ndarray | np.generic) and value.size <= KEPT_ELEMENTS for value in results)
    if not small or len(results) != len(node.output):
        return None
    return [np.asarray(value) for value in results]


def _replace(graph: GraphProto, folded: Sequence[int], known: _Known) -> None:
    from onnx import numpy_helper

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
