"""What a loop over tiles takes by liveness where a memory plan lays all that WHILE and IF copy on one address.

A graph has a tensor for each copy: the padded input before the loop and after it, the output's memory under several
names. With a plan they are the padded input and the output, which may lie over each other. So the copies cost nothing
here, and the operators that make and use the padded input have what it takes as memory of their own.

Where an IF computes each tile, the padded input is a tensor like others, and costs nothing in the body; where it lies
over what was padded, it is a view of that, and larger. Nor does the tile cost anything in the body: it is counted as
what the IF makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from memsched.formats.tflite.model import FileModel, FileSubgraph
from memsched.formats.tflite.reader import TfliteNative
from memsched.graph.model import Graph
from memsched.lowering.apply import with_workspaces
from memsched.runtimes.graph_plan import LoweredGraph
from memsched.runtimes.tflm.joins import ByteSharing, beside_constants, byte_sharing, carried
from memsched.runtimes.tflm.lifetimes import Key, lifetimes
from memsched.runtimes.tflm.loops import LoopAccesses
from memsched.runtimes.tflm.plan import distinct_bodies, tensor_bytes
from memsched.targets.model import Target

__all__ = ["without_copies"]


@dataclass(frozen=True, slots=True)
class _Savings:
    """By (subgraph, index): tensors that cost nothing, bytes that operators have beside them, operators that show."""

    free: set[Key] = field(default_factory=set)
    workspaces: Counter[Key] = field(default_factory=Counter)
    views: set[Key] = field(default_factory=set)


def without_copies(native: TfliteNative, lowered: Sequence[LoweredGraph], target: Target) -> tuple[LoweredGraph, ...]:
    """Return the lowered graphs with what loops over tiles take when nothing is copied."""
    model = native.model
    loops, tiles = list(_loops(model)), list(_tiles(model))
    if not loops and not tiles:
        return tuple(lowered)
    sharing = byte_sharing(model, target, lifetimes(model), LoopAccesses(model))
    savings = _Savings()
    for key in loops:
        _save(model, sharing, key, savings)
    for key in tiles:
        _save_tile(model, sharing, key, savings)
    result = []
    for index, (one, mapping) in enumerate(zip(lowered, native.mappings, strict=True)):
        free = {place for place, tensor in enumerate(mapping.tensors) if (index, tensor) in savings.free}
        own = {
            op: savings.workspaces[index, number]
            for op, number in enumerate(mapping.operators)
            if savings.workspaces[index, number]
        }
        shown = {op for op, number in enumerate(mapping.operators) if (index, number) in savings.views}
        if free or own or shown:
            result.append(LoweredGraph.of(_shown(_free(with_workspaces(one.graph, own), free), shown)))
        else:
            result.append(one)
    return tuple(result)


def _shown(graph: Graph, ops: set[int]) -> Graph:
    """Return the graph with ops, of one input each, whose output lies over it."""
    if not ops:
        return graph
    changed = tuple(
        replace(op, views=((op.outputs[0], op.inputs[0]),), in_place=()) if number in ops else op
        for number, op in enumerate(graph.ops)
    )
    return replace(graph, ops=changed)


def _free(graph: Graph, free: set[int]) -> Graph:
    tensors = tuple(
        replace(tensor, external=True) if place in free else tensor for place, tensor in enumerate(graph.tensors)
    )
    return replace(graph, tensors=tensors)


def _loops(model: FileModel) -> Iterator[Key]:
    """Yield the operators that loop over tiles: their body takes slices of the last inputs, and hands them on."""
    for index, subgraph in enumerate(model.subgraphs):
        for number, operator in enumerate(subgraph.operators):
            if operator.type == "WHILE" and len(operator.inputs) >= 3 and len(operator.bodies) == 2:
                body = model.subgraphs[operator.bodies[1]]
                handed = _handed_on(body)
                if 1 < handed < len(body.inputs) and all(_updates(body, one) for one in body.inputs[1:handed]):
                    yield index, number


def _handed_on(body: FileSubgraph) -> int:
    """Return from which position on a body hands on what it is handed."""
    count = min(len(body.inputs), len(body.outputs))
    return next((at for at in range(count) if body.inputs[at:] == body.outputs[at:]), count)


def _updates(body: FileSubgraph, tensor: int) -> bool:
    return any(op.type == "DYNAMIC_UPDATE_SLICE" and op.inputs[0] == tensor for op in body.operators)


def _tiles(model: FileModel) -> Iterator[Key]:
    """Yield the operators that compute a tile each: IF with one body for both cases, which knows where it is."""
    for index, subgraph in enumerate(model.subgraphs):
        for number, operator in enumerate(subgraph.operators):
            if operator.type == "IF" and len(operator.inputs) >= 3 and len(distinct_bodies(operator)) == 1:
                yield index, number


def _save_tile(model: FileModel, sharing: ByteSharing, key: Key, savings: _Savings) -> None:
    index, number = key
    operator = model.subgraphs[index].operators[number]
    body = operator.bodies[0]
    graph = model.subgraphs[body]
    copies = {(join.first, join.second) for join in sharing.loops}
    for read, given in zip(operator.inputs[2:], graph.inputs[1:], strict=False):
        if ((index, read), (body, given)) in copies:
            savings.free.add((body, given))
    _save_padding(model, sharing, key, savings)
    made = (body, graph.outputs[0])
    inner = [(body, tensor) for op in graph.operators for tensor in op.outputs if (body, tensor) != made]
    # When it is copied, it is there twice; while the body runs, once.
    if max((_size(model, one) for one in inner), default=0) >= _size(model, made):
        savings.free.add(made)


def _save_padding(model: FileModel, sharing: ByteSharing, key: Key, savings: _Savings) -> None:
    index, number = key
    padded = model.subgraphs[index].operators[number].inputs[2]
    pad = _maker(model, index, padded)
    if pad is not None and any(join.first == (index, padded) for join in sharing.pads):
        savings.views.add((index, pad))


def _maker(model: FileModel, index: int, tensor: int) -> int | None:
    operators = model.subgraphs[index].operators
    return next((number for number, operator in enumerate(operators) if tensor in operator.outputs), None)


def _save(model: FileModel, sharing: ByteSharing, key: Key, savings: _Savings) -> None:
    index, number = key
    operator = model.subgraphs[index].operators[number]
    joined = {join.second for join in sharing.loops} | {join.first for join in sharing.loops}
    positions = range(1, len(operator.inputs))
    if not all(one in joined for position in positions for one in carried(model, index, operator, position)):
        return
    first = _handed_on(model.subgraphs[operator.bodies[1]])
    padded, output = (index, operator.inputs[first]), (index, operator.outputs[1])
    size, made = _size(model, padded), _size(model, output)
    pad, source = _padding(model, padded)
    # Without padding, what the loop reads is a tensor like others.
    if pad is not None and source is not None:
        over = any(join.first == padded and join.second == source for join in sharing.pads)
        laid = any(output in {overlay.join.first, overlay.join.second} for overlay in sharing.overlays)
        savings.workspaces[index, pad] += max(0, size - (_size(model, source) if over else 0))
        savings.workspaces[key] += max(0, size - made) if laid else size
        savings.free.add(padded)
    lasting = {(index, tensor) for tensor in (*operator.outputs[1:first], *operator.inputs[first:])}
    for position in positions:
        savings.free.update(one for one in carried(model, index, operator, position) if one not in lasting)
    for position in range(1, first):
        savings.free.update(_between(model, index, operator.inputs[position], padded))


def _padding(model: FileModel, padded: Key) -> tuple[int | None, Key | None]:
    """Return the operator that pads the input of a loop, or joins rows to it, and that input; None where none does."""
    index, tensor = padded
    pad = _maker(model, index, tensor)
    if pad is None:
        return None, None
    operator, graph = model.subgraphs[index].operators[pad], model.subgraphs[index]
    if operator.type == "PAD":
        return pad, (index, operator.inputs[0])
    source = beside_constants(graph, operator) if operator.type == "CONCATENATION" else None
    return (None, None) if source is None else (pad, (index, source))


def _between(model: FileModel, index: int, tensor: int, padded: Key) -> Iterator[Key]:
    """Yield the tensors between the padded input and an output's memory, which is the last."""
    while (index, tensor) != padded:
        yield index, tensor
        maker = _maker(model, index, tensor)
        if maker is None or model.subgraphs[index].operators[maker].bodies:
            return
        tensor = model.subgraphs[index].operators[maker].inputs[0]


def _size(model: FileModel, key: Key) -> int:
    return tensor_bytes(model.subgraphs[key[0]].tensors[key[1]])
