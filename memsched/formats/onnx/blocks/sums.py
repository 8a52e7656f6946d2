"""What is added up along an axis of open length, a block at a time: sums, means, maxima, products, attention over keys.

The groups of `memsched.formats.onnx.blocks.regions` give blocks of what they make, so they end where the axis that
they are cut along is added up. Here it is that axis which is cut, and a loop carries what was added up so far.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from onnx import ModelProto

from memsched.base.frozen import FrozenValue
from memsched.formats.blocks import BlockPoint, BlockRow
from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.blocks.cuts import Cut, Needs, integers_of
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.regions import BlockGrowth, BlockRegion, OpenGraph, asks_only
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.blocks.sums_body import SumGroup, SumKind, write_sums
from memsched.formats.onnx.blocks.tokens import token_points
from memsched.formats.onnx.blocks.two_passes import Normaliser, in_two_passes
from memsched.formats.onnx.standard import ElementType, Opset
from memsched.formats.onnx.structure import op_type
from memsched.formats.onnx.worth import BLOCKS, GAIN, LONG, TRIED

__all__ = ["find_sums", "sum_points"]

_REDUCED: Final[Mapping[str, SumKind]] = {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "most"}


class _Summed(FrozenValue, frozen=True):
    """Where an axis is added up.

    Attributes:
        tail: Per node, by its place, what it reads in blocks; the last adds up.
        seed: The value that is to be computed in blocks.
        others: What the tail reads beside it.
        length: Of the axis.
        between: Nodes that are not computed.
    """

    kind: SumKind
    tail: Mapping[int, Needs]
    seed: tuple[str, Cut]
    others: tuple[tuple[str, Cut], ...]
    length: Polynomial
    between: tuple[int, ...] = ()


def sum_points(model: ModelProto, values: OpenValues) -> Sequence[BlockPoint]:
    """Return ways to add up in loops: by itself, and with the rest in loops over blocks of tokens.

    Args:
        model: With its weights; it is not changed.
    """
    opset = next((one.version for one in model.opset_import if one.domain in {"", "ai.onnx"}), 1)
    if opset < Opset.LOOPS_OVER_SEQUENCES:
        return ()
    graph = OpenGraph(model.graph, values, values.typical)
    known = {node.name or node.output[0] for node in graph.nodes}
    points = _points(model, graph, known, (), "as sums")
    passes = in_two_passes(model, graph, _softmaxes(graph))
    if passes is not None:
        graph = OpenGraph(passes.model.graph, passes.values, graph.sizes)
        points += _points(passes.model, graph, known, passes.normalisers, "with softmax in two passes, as sums")
    return points


def _points(
    model: ModelProto, graph: OpenGraph, known: Collection[str], normalisers: Sequence[Normaliser], words: str
) -> list[BlockPoint]:
    """Return the ways for a model, one as given or with softmaxes in two passes.

    Args:
        known: Names of the nodes of the model as given.
    """
    found = find_sums(graph, normalisers)
    if not found:
        return []
    first = {graph.maker[one.weights]: one.ops for one in normalisers}
    rows = tuple(
        _row(one, number, first.get(one.last) or [name for name in _names(graph, one) if name in known])
        for number, one in enumerate(found)
    )
    points = []
    for block in BLOCKS:
        build = partial(_written, model, graph, found, block)
        points.append(BlockPoint(f"{words} over blocks of {block >> 20} MB", rows, build, reassociates=True))
    for number, point in enumerate(token_points(write_sums(model, graph, found, BLOCKS[0]), graph.values)):
        build = partial(_with_loops, model, graph, found, number)
        name = f"{points[0].name}, the rest {point.name}"
        rest = (dataclasses.replace(row, ops=tuple(name for name in row.ops if name in known)) for row in point.rows)
        points.append(BlockPoint(name, (*rows, *rest), build, reassociates=True))
    return points


def _softmaxes(graph: OpenGraph) -> list[tuple[int, int]]:
    """Return the places and axes of softmaxes along an axis that alone is long, whose shares no product adds up."""
    found = []
    for place, node in enumerate(graph.nodes):
        shape = graph.values.shapes.get(node.output[0]) if op_type(node) == "Softmax" else None
        if not shape or None in shape or graph.values.elements.get(node.output[0]) != ElementType.FLOAT:
            continue
        axis = attribute_of(node, "axis", -1) % len(shape)
        long = [at for at, length in enumerate(shape) if _is_long(graph, length)]
        readers = graph.readers.get(node.output[0], ())
        added = len(readers) == 1 and (one := _summed(graph, readers[0])) is not None and one.kind == "attention"
        length = shape[axis]
        if long == [axis] and not added and length is not None and _is_there(graph, length):
            found.append((place, axis))
    return found


def _names(graph: OpenGraph, one: SumGroup) -> list[str]:
    return [graph.nodes[place].name or graph.nodes[place].output[0] for place in one.region.nodes]


def _row(one: SumGroup, number: int, ops: Sequence[str]) -> BlockRow:
    return BlockRow("loop", f"sums_{number}", ", ".join(sorted(one.region.length.symbols())), tuple(ops))


def _written(model: ModelProto, graph: OpenGraph, found: Sequence[SumGroup], block: int) -> bytes:
    data: bytes = write_sums(model, graph, found, block).SerializeToString(deterministic=True)
    return data


def _with_loops(model: ModelProto, graph: OpenGraph, found: Sequence[SumGroup], number: int) -> bytes:
    return token_points(write_sums(model, graph, found, BLOCKS[0]), graph.values)[number].build()


def find_sums(graph: OpenGraph, normalisers: Sequence[Normaliser] = ()) -> list[SumGroup]:
    """Return the groups of a graph that gain, in order; no node that costs much is in two of them.

    What is added up to a value with a long axis of its own can be cut along that one, with the same bits.

    Args:
        normalisers: First passes of softmaxes in it, in which two values are added up at once.
    """
    found: list[SumGroup] = []
    taken: set[int] = set()
    first = {graph.maker[one.weights]: one for one in normalisers}
    for place in range(len(graph.nodes)):
        if place in taken or not _is_small(graph, place):
            continue
        summed = _normaliser(graph, first[place]) if place in first else _summed(graph, place)
        there = summed is not None and _is_there(graph, summed.length)
        best = _best(graph, summed, taken) if summed is not None and there else None
        if best is not None:
            group, core = best
            found.append(group)
            taken |= core
    return found


def _is_small(graph: OpenGraph, place: int) -> bool:
    """Whether a node makes one value of floats, of which no axis is long."""
    node = graph.nodes[place]
    shape = graph.values.shapes.get(node.output[0])
    if shape is None or len(node.output) != 1 or graph.values.elements.get(node.output[0]) != ElementType.FLOAT:
        return False
    return all(one is not None and not _is_long(graph, one) for one in shape)


def _is_long(graph: OpenGraph, length: Polynomial | None) -> bool:
    return length is not None and length.constant() is None and length.at(graph.sizes) >= LONG


def _is_there(graph: OpenGraph, length: Polynomial) -> bool:
    """Whether an axis always has an element: sums over none are 0, but no number once they are divided."""
    return length.at({name: span.least for name, span in graph.values.ranges.items()}) >= 1


def _summed(graph: OpenGraph, place: int) -> _Summed | None:
    """Return what a node adds up along a long axis; None where it does not."""
    kind = op_type(graph.nodes[place])
    if kind == "MatMul":
        return _product(graph, place)
    return _reduction(graph, place, _REDUCED[kind]) if kind in _REDUCED else None


def _normaliser(graph: OpenGraph, one: Normaliser) -> _Summed | None:
    length, cut = graph.values.shapes[one.scores][one.axis], Cut(one.axis)
    if length is None:
        return None
    most, last = graph.maker[one.largest], graph.maker[one.weights]
    tail: dict[int, Needs] = {most: (cut, *(None,) * (len(graph.nodes[most].input) - 1)), last: (None, None)}
    between = tuple(graph.maker[name] for name in one.between)
    return _Summed("normaliser", tail, (one.scores, cut), (), length, between)


def _reduction(graph: OpenGraph, place: int, kind: SumKind) -> _Summed | None:
    node = graph.nodes[place]
    name, shape = node.input[0], graph.values.shapes.get(node.input[0])
    axes = attribute_of(node, "axes", None) or integers_of(node, 1, graph.values)
    if shape is None or not axes or None in shape:
        return None
    for axis in sorted(one % len(shape) for one in axes):
        length = shape[axis]
        if length is not None and _is_long(graph, length):
            cut = Cut(axis)
            return _Summed(kind, {place: (cut, *(None,) * (len(node.input) - 1))}, (name, cut), (), length)
    return None


def _product(graph: OpenGraph, place: int) -> _Summed | None:
    """Return what a product adds up: of attention, with the softmax before it."""
    node = graph.nodes[place]
    shapes = [graph.values.shapes.get(name) for name in node.input]
    if any(shape is None or len(shape) < 2 or None in shape for shape in shapes):
        return None
    first, second = (shape for shape in shapes if shape is not None)
    length = first[-1]
    if length is None or not _is_long(graph, length) or second[-2] != length:
        return None
    cuts = Cut(len(first) - 1), Cut(len(second) - 2)
    before = graph.maker.get(node.input[0])
    scores = None if before is None else _scores(graph, before, place, len(first))
    if before is not None and scores is not None:
        tail: dict[int, Needs] = {before: (cuts[0],), place: (None, cuts[1])}
        return _Summed("attention", tail, (scores, cuts[0]), ((node.input[1], cuts[1]),), length)
    ends = (node.input[0], cuts[0]), (node.input[1], cuts[1])
    large = max(ends, key=lambda one: graph.bytes_of(one[0]))
    others = tuple(one for one in ends if one is not large)
    return _Summed("product", {place: (cuts[0], cuts[1])}, large, others, length)


def _scores(graph: OpenGraph, softmax: int, product: int, rank: int) -> str | None:
    """Return what a softmax over the last axis reads that a product alone reads; None where it is no such thing."""
    node = graph.nodes[softmax]
    if op_type(node) != "Softmax" or attribute_of(node, "axis", -1) % rank != rank - 1:
        return None
    result = node.output[0]
    alone = result not in graph.results and graph.readers.get(result) == [product]
    floats = graph.values.elements.get(node.input[0]) == ElementType.FLOAT
    return str(node.input[0]) if alone and floats else None


def _best(graph: OpenGraph, one: _Summed, taken: set[int]) -> tuple[SumGroup, set[int]] | None:
    """Return the group that leaves least whole, and those of its nodes that cost much; None where none gains."""
    best: tuple[int, SumGroup, set[int]] | None = None
    sizes = sorted({size for name in graph.maker if (size := graph.bytes_of(name))}, reverse=True)
    tail = set(one.tail)
    result = graph.nodes[max(tail)].output[0]
    for least in sizes[:TRIED]:
        growth = BlockGrowth(graph, one.length, least, taken)
        if not _grow(graph, growth, one):
            continue
        inside = {*growth.core, *growth.copied, *tail, *one.between}
        if any(_is_read_outside(graph, name, inside) for at in growth.core for name in graph.nodes[at].output):
            continue
        largest = [name for at in growth.core for name in graph.nodes[at].output if graph.bytes_of(name) >= least]
        whole = graph.bytes_of(result)
        whole += sum(graph.bytes_of(name) for name in growth.read if name in graph.maker)
        never = max(map(graph.bytes_of, largest), default=0)
        if never >= GAIN * whole and (best is None or never - whole > best[0]):
            needs = {at: growth.wanted[at] for at in sorted({*growth.core, *growth.copied})} | dict(one.tail)
            region = BlockRegion(needs, growth.cuts, tuple(growth.read), (), one.length, tuple(largest))
            best = never - whole, SumGroup(one.kind, region, max(tail), min(tail)), {*growth.core, *tail, *one.between}
    return None if best is None else best[1:]


def _grow(graph: OpenGraph, growth: BlockGrowth, one: _Summed) -> bool:
    """Take in what makes what is added up; return whether that is possible."""
    name, cut = one.seed
    place = graph.maker.get(name)
    if place is None or not growth.add(place, cut, core=True):
        return False
    return all(growth.supply(other, end) for other, end in one.others)


def _is_read_outside(graph: OpenGraph, name: str, inside: set[int]) -> bool:
    read = name in graph.results or any(reader not in inside for reader in graph.readers.get(name, ()))
    return read and not asks_only(graph, name, inside)
