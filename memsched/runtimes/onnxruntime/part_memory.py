"""What ONNX Runtime has in use beside the inputs of a part of a model, by its own rules."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Final

import msgspec
from onnx import ModelProto, NodeProto

from memsched.formats.module import Module
from memsched.formats.onnx.native import OnnxNative
from memsched.graph.model import Graph, Op, Tensor
from memsched.lowering.apply import apply_target
from memsched.runtimes.onnxruntime.orders import priority_order
from memsched.runtimes.onnxruntime.reuse import PlannerGraph, simulate_reuse
from memsched.targets.load import load_target

__all__ = ["part_bytes"]

_STORED: Final = "Constant"
"""The operator whose values a session takes for stored ones."""


def part_bytes(module: Module, graph: Graph, data: Callable[[], bytes]) -> int:
    """Return the bytes that a session requests beside its inputs, as devices open it: nothing is merged there.

    Args:
        module: What it is a part of.
        data: Makes the part's file. What nodes compute there of constants alone such a session computes in each run;
            none do where none did in the model, and all its weights can be cut as they are stored.
    """
    native: OnnxNative = module.native
    if native.constant_nodes[0] or native.external:
        graph = _with_constants(native, graph, data())
    target = load_target("onnxruntime")
    views = tuple(rule for rule in target.views if not rule.after)
    lowered = apply_target(graph, msgspec.structs.replace(target, views=views))
    return simulate_reuse(PlannerGraph.of(lowered), priority_order(lowered), reuse=False).requested_peak


def _with_constants(native: OnnxNative, graph: Graph, data: bytes) -> Graph:
    """Return a part's graph with the nodes that compute constants as ops, in the order of its file."""
    from memsched.formats.onnx.light import constant_sizes
    from memsched.formats.onnx.reader import parse
    from memsched.formats.onnx.structure import analyse

    model = parse(data, "-")
    nodes = [node for node in model.graph.node if node.op_type != _STORED]
    if len(nodes) == len(graph.ops):
        return graph
    constants = analyse(model.graph)[0].constants
    sizes = {**_computed_bytes(model, constants), **dict(native.computed_bytes)}
    stored = [Tensor(name, size, external=True) for name, size in constant_sizes(model.graph).items()]
    tensors, steps, given = [*graph.tensors, *stored], list[Op](), iter(graph.ops)
    number = {tensor.name: index for index, tensor in enumerate(graph.tensors)}
    # What lies inside a stored constant takes nothing.
    held = {tensor.name: index for index, tensor in enumerate(stored, len(graph.tensors))}
    for place, node in enumerate(nodes):
        made = [name for name in node.output if name in constants]
        if not made:
            steps.append(_reading(next(given), node, number))
            continue
        outputs = tuple(range(len(tensors), len(tensors) + len(made)))
        number.update(zip(made, outputs, strict=True))
        tensors += [Tensor(name, sizes.get(name, 0), sized=name in sizes) for name in made]
        steps.append(_reading(Op(f"constant {place}", node.op_type, (), outputs), node, {**held, **number}))
    return replace(graph, tensors=tuple(tensors), ops=tuple(steps), inputs=(*graph.inputs, *held.values()))


def _computed_bytes(model: ModelProto, constants: Container[str]) -> dict[str, int]:
    """Return the sizes of the constants that nodes compute, as far as they are known."""
    from memsched.formats.onnx.reader import read

    alone = ModelProto()
    alone.CopyFrom(model)
    for field in (alone.graph.node, alone.graph.input, alone.graph.output, alone.graph.value_info):
        del field[:]
    alone.graph.node.extend(node for node in model.graph.node if any(name in constants for name in node.output))
    return dict(read(alone.SerializeToString(), "-").native.computed_bytes)


def _reading(op: Op, node: NodeProto, number: Mapping[str, int]) -> Op:
    """Return an op that reads all that its node does but what is stored."""
    read = [(number[name], place) for place, name in enumerate(node.input) if name in number]
    inputs, positions = tuple(tensor for tensor, _ in read), tuple(place for _, place in read)
    return replace(op, inputs=inputs, positions=positions)
