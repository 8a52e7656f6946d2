"""A guard for files with tensors in blocks of channels: processors with another block size refuse them.

The width of the processor's registers determines the block size of ONNX Runtime (8 or 16 channels). If a file stores
weights in blocks of another size, the runtime reads them in the wrong order and does not notice.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from memsched.runtimes.onnxruntime.executed_names import BLOCKED

__all__ = ["add_block_guard", "guarded"]

_NAME: Final = "memsched_file_for_processors_with_blocks_of_{}_channels"
_CHANNELS: Final = 32
"""Channels of the probe: a multiple of both block sizes, 8 and 16."""


def add_block_guard(model: ModelProto, block: int) -> None:
    """Add operators that fail for another block size. They take a few microseconds, and their names say why.

    They convert a probe to blocks, subtract the expected result, and use the largest difference as an index. Only index
    0 is valid; it selects the shape for a Reshape of a small tensor. A model with a guard does not get a second one.
    """
    graph, name = model.graph, _NAME.format(block)
    value = _smallest(model)
    if value is None or any(node.name.startswith(name) for node in graph.node):
        return
    probe = np.arange(2 * _CHANNELS, dtype=np.float32).reshape(1, _CHANNELS, 1, 2)
    blocks = probe.reshape(1, -1, block, 1, 2).transpose(0, 1, 3, 4, 2).reshape(probe.shape)
    rank = len(value.type.tensor_type.shape.dim)
    for what, array in (("probe", probe), ("blocks", blocks), ("same_shape", np.zeros((1, rank), np.int64))):
        graph.initializer.append(numpy_helper.from_array(array, f"{name}/{what}"))
    before = f"{name}/value"
    place = next(at for at, node in enumerate(graph.node) if value.name in node.output)
    maker = graph.node[place]
    maker.output[list(maker.output).index(value.name)] = before
    nodes: tuple[tuple[str, list[str], str, dict[str, Any]], ...] = (
        ("ReorderInput", ["probe"], "here", {"domain": BLOCKED}),
        ("Sub", ["here", "blocks"], "apart", {}),
        ("Cast", ["apart"], "whole", {"to": TensorProto.INT64}),
        ("ReduceMax", ["whole"], "index", {"keepdims": 0}),
        ("Gather", ["same_shape", "index"], "shape", {}),
    )
    made = [
        helper.make_node(kind, [f"{name}/{one}" for one in read], [f"{name}/{to}"], f"{name}/{kind}", **more)
        for kind, read, to, more in nodes
    ]
    made.append(helper.make_node("Reshape", [before, f"{name}/shape"], [value.name], f"{name}/Reshape"))
    _insert(graph, place + 1, made)
    _state(graph, name, value)


def _state(graph: GraphProto, name: str, value: ValueInfoProto) -> None:
    """Declare the shapes of the new tensors: without shapes, the runtime does not reuse buffers in place."""
    shape, floats, whole = (1, _CHANNELS, 1, 2), TensorProto.FLOAT, TensorProto.INT64
    rank = len(value.type.tensor_type.shape.dim)
    for what, kind, dims in (
        ("here", floats, shape),
        ("apart", floats, shape),
        ("whole", whole, shape),
        ("index", whole, ()),
        ("shape", whole, (rank,)),
    ):
        graph.value_info.append(helper.make_tensor_value_info(f"{name}/{what}", kind, dims))
    before = ValueInfoProto.FromString(value.SerializeToString())
    before.name = f"{name}/value"
    graph.value_info.append(before)


def guarded(data: bytes, block: int) -> bytes:
    """Return a model with the guard."""
    model = ModelProto.FromString(data)
    add_block_guard(model, block)
    return bytes(model.SerializeToString(deterministic=True))


def _smallest(model: ModelProto) -> ValueInfoProto | None:
    """Return the smallest computed tensor of known rank, preferably not an output.

    If several are equally small, take the first, so that the guard fails early.
    """
    graph = model.graph
    made = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    for values in (graph.value_info, graph.output):
        known: list[ValueInfoProto] = [one for one in values if one.name in made and one.type.tensor_type.shape.dim]
        if known:
            return min(known, key=lambda one: (_elements(one), made[one.name], one.name))
    return None


def _elements(value: ValueInfoProto) -> float:
    dims = value.type.tensor_type.shape.dim
    return math.prod(dim.dim_value for dim in dims) or math.inf


def _insert(graph: Any, place: int, made: list[Any]) -> None:
    nodes = [type(node).FromString(node.SerializeToString()) for node in graph.node]
    del graph.node[:]
    graph.node.extend([*nodes[:place], *made, *nodes[place:]])
