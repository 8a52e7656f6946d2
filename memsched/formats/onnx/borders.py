"""What a caller can do instead of an ONNX model's first and last nodes, and the model's inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from memsched.formats.borders import find_borders
from memsched.formats.module import Module
from memsched.formats.onnx.attributes import ConstantValues
from memsched.formats.onnx.native import OnnxNative
from memsched.graph.border import Borders, BorderStep, BorderTensor, Interface
from memsched.graph.model import Graph, Op, Tensor
from memsched.ops.table import families

__all__ = ["borders", "interface", "removed_names", "state_border", "state_chains"]

_QUANTISED = frozenset({"int8", "int16", "uint8", "uint16"})
_FLOATS = frozenset({"float16", "float32", "float64"})
_CASTS = _FLOATS | _QUANTISED | {"int32", "int64", "uint32", "uint64"}
"""Types whose values numpy casts as ONNX does; what becomes of large floats as integers nobody says."""

_QUANTISERS = families("quantization")
_DEQUANTISERS = families("dequantization")
_CHANGED = _QUANTISERS | _DEQUANTISERS | families("cast", "transpose")
"""What callers can do instead."""


def borders(module: Module) -> Borders:
    """Return what can be changed at the border of the main graph."""
    graph = module.graphs[0]
    ends = {*graph.inputs, *graph.outputs}
    near = [op for op in graph.ops if ends & {*op.inputs, *op.outputs}]
    if not any(op.type in _CHANGED for op in near):
        return Borders()
    native: OnnxNative = module.native
    model = native.scheduled()
    constants = ConstantValues(model.graph)
    nodes = {op.name: model.graph.node[node] for op, node in zip(graph.ops, native.nodes[0], strict=True)}

    def describe(op: Op) -> BorderStep | str | None:
        (read,), (made,) = op.inputs, op.outputs
        types = graph.tensors[read].dtype, graph.tensors[made].dtype
        if op.type == "Transpose":
            return _transpose(op, len(graph.tensors[made].shape or ()))
        if op.type == "Cast":
            return _cast(op, *types)
        if op.type in _QUANTISERS | _DEQUANTISERS:
            return _quantise(op, *types, nodes[op.name], constants)
        return None

    return find_borders(graph, describe, lambda _: None)


def _transpose(op: Op, rank: int) -> BorderStep | str:
    order = op.attributes.get("perm", tuple(reversed(range(rank))))
    if not isinstance(order, tuple) or sorted(int(axis) for axis in order) != list(range(rank)):
        return f"the axes of Transpose '{op.name}' are none of its input's"
    return BorderStep(op.name, op.type, "transpose", "", permutation=tuple(int(axis) for axis in order))


def _cast(op: Op, read: str, made: str) -> BorderStep | str:
    if not {read, made} <= _CASTS or (read in _FLOATS and made not in _FLOATS):
        return f"Cast '{op.name}' makes {made} of {read}, of which no formula holds for all values"
    return BorderStep(op.name, op.type, "cast", made)


def _quantise(op: Op, read: str, made: str, node: NodeProto, constants: ConstantValues) -> BorderStep | str:
    scale = constants.get(node.input[1]) if len(node.input) > 1 else None
    point = constants.get(node.input[2]) if len(node.input) > 2 and node.input[2] else (0,)
    if (
        op.positions != (0,)
        or scale is None
        or point is None
        or len(scale) != 1
        or len(point) != 1
        or not 0 < scale[0] < math.inf
    ):
        return f"{op.type} '{op.name}' has other scales than one constant for all elements"
    numbers = float(scale[0]), int(point[0])
    if op.type in _QUANTISERS and read == "float32" and made in _QUANTISED:
        return BorderStep(op.name, op.type, "quantize", made, *numbers, halves="even")
    if op.type in _DEQUANTISERS and read in _QUANTISED and made == "float32":
        return BorderStep(op.name, op.type, "dequantize", made, *numbers)
    return f"{op.type} '{op.name}' makes {made} of {read}, of which a caller has no exact formula"


def interface(module: Module) -> Interface:
    """Return the inputs and outputs of the main graph; ONNX states no scale of theirs."""
    graph = module.graphs[0]

    def tensors(numbers: tuple[int, ...]) -> tuple[BorderTensor, ...]:
        found = [graph.tensors[number] for number in numbers]
        return tuple(BorderTensor(one.name, one.shape or (), one.dtype, one.size) for one in found)

    return Interface(tensors(graph.inputs), tensors(graph.outputs))


def removed_names(given: Graph, graph: Graph, nodes: Sequence[NodeProto]) -> dict[str, None]:
    """Return what nodes read beside data that ``graph`` does not have any more: their scales and zero points.

    Args:
        nodes: Of the ops of ``given``.
    """
    left = {name for op in graph.ops for name in (op.name, op.origin)}
    gone = [node for op, node in zip(given.ops, nodes, strict=True) if op.name not in left]
    return dict.fromkeys(name for node in gone for name in list(node.input)[1:] if name)


def state_border(model: ModelProto, given: Graph, graph: Graph) -> None:
    """Declare the inputs and outputs of ``graph`` that are other tensors than those of ``given``."""
    main = model.graph
    declared: set[str] = set()
    for values, before, after in (
        (main.input, given.inputs, graph.inputs),
        (main.output, given.outputs, graph.outputs),
    ):
        places = {value.name: value for value in values}
        for old, new in zip(before, after, strict=True):
            tensor, name = graph.tensors[new], given.tensors[old].name
            if tensor.name == name:
                continue
            _declare(places[name], tensor)
            declared.add(tensor.name)
    kept = [value for value in main.value_info if value.name not in declared]
    if len(kept) < len(main.value_info):
        del main.value_info[:]
        main.value_info.extend(kept)


def state_chains(model: ModelProto, graph: Graph) -> None:
    """Declare what operators make that stand for chains of others, and import the set that they are of.

    ONNX's own inference does not know operators of ONNX Runtime's.
    """
    main = model.graph
    declared = {value.name for value in (*main.value_info, *main.output)}
    domains = {entry.domain for entry in model.opset_import}
    for op in graph.ops:
        if not op.chain:
            continue
        domain = op.type.rpartition(".")[0]
        if domain not in domains:
            model.opset_import.append(helper.make_opsetid(domain, 1))
            domains.add(domain)
        tensor = graph.tensors[op.outputs[0]]
        if tensor.name not in declared and tensor.shape is not None:
            _declare(main.value_info.add(), tensor)


def _declare(value: ValueInfoProto, tensor: Tensor) -> None:
    """Make ``value`` say what the file tells of a tensor: open dimensions by their names."""
    from memsched.formats.onnx.types import element_type

    value.Clear()
    value.name = tensor.name
    value.type.tensor_type.elem_type = element_type(tensor.dtype)
    value.type.tensor_type.shape.SetInParent()
    for length in (tensor.shape or ()) if tensor.stated is None else tensor.stated:
        dim = value.type.tensor_type.shape.dim.add()
        if isinstance(length, int):
            dim.dim_value = length
        elif length:
            dim.dim_param = length
