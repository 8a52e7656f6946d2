"""Attention and feed-forward layers in loops over blocks of tokens, whatever their number."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Final

from onnx import ModelProto

from memsched.formats.blocks import BlockPoint, BlockRow
from memsched.formats.onnx.blocks.body import write
from memsched.formats.onnx.blocks.held import weights_of_products
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.regions import Nest, OpenGraph, find, rows_of
from memsched.formats.onnx.standard import Opset
from memsched.formats.onnx.worth import BLOCKS, GAIN, LARGE_BLOCK, SMALL_BLOCK

__all__ = ["groups", "is_weightless", "points_of", "token_points"]


_TRIED: Final = 64


def token_points(model: ModelProto, values: OpenValues) -> Sequence[BlockPoint]:
    """Return ways to compute large values of a model in loops, the quickest first.

    Args:
        model: With its weights; it is not changed.
    """
    return points_of(model, *groups(model, values))


def points_of(model: ModelProto, graph: OpenGraph, nests: Sequence[Nest]) -> Sequence[BlockPoint]:
    """Return ways to compute groups of a model's nodes in loops, the quickest first; the last is with all of them.

    What a loop packs of weights is held beside these: the first leaves layers with large weights whole.
    """
    if not nests:
        return ()
    rows = tuple(_row(graph, nest, number) for number, nest in enumerate(nests))
    holding = sum(_packed(model, graph, nest) for nest in nests) >= SMALL_BLOCK
    points = []
    bare = [nest for nest in nests if is_weightless(model, graph, nest)]
    if holding and bare:
        told = tuple(_row(graph, nest, number) for number, nest in enumerate(bare))
        name = f"in blocks of {LARGE_BLOCK >> 20} MB, layers with weights whole"
        points.append(BlockPoint(name, told, partial(_written, model, graph, bare, LARGE_BLOCK, False)))
    for block, once in itertools.product(BLOCKS, (False, True) if holding else (False,)):
        name = f"in blocks of {block >> 20} MB{', weights unpacked' if once else ''}"
        points.append(BlockPoint(name, rows, partial(_written, model, graph, nests, block, once)))
    return points


def is_weightless(model: ModelProto, graph: OpenGraph, nest: Nest) -> bool:
    """Return whether a group reads no large weights that a runtime packs, as attention by itself does."""
    return not _packed(model, graph, nest)


def _packed(model: ModelProto, graph: OpenGraph, nest: Nest) -> int:
    """Return the bytes of the weights in a group that a runtime packs."""
    return weights_of_products(model.graph, [graph.nodes[place] for place in rows_of(nest).nodes])


def _written(model: ModelProto, graph: OpenGraph, nests: Sequence[Nest], block: int, once: bool) -> bytes:
    data: bytes = write(model, graph, nests, block, once=once).SerializeToString(deterministic=True)
    return data


def groups(model: ModelProto, values: OpenValues) -> tuple[OpenGraph, Sequence[Nest]]:
    """Return the groups of nodes of a model that are worth a loop; none where its operator set has no such loops."""
    graph = OpenGraph(model.graph, values, values.typical)
    opset = next((one.version for one in model.opset_import if one.domain in {"", "ai.onnx"}), 1)
    return graph, _nests(graph) if opset >= Opset.LOOPS_OVER_SEQUENCES else ()


def _nests(graph: OpenGraph) -> list[Nest]:
    """Return the groups of nodes worth a loop: the larger the values, the more of them are not whole."""
    largest = sorted({graph.bytes_of(name) for name in graph.maker}, reverse=True)
    best: list[Nest] = []
    whole = 0
    for least in largest[:_TRIED]:
        if least <= GAIN * whole:
            break
        found = find(graph, least)
        if found:
            best = found
            whole = max(graph.bytes_of(name) for nest in found for name in (*rows_of(nest).made, *rows_of(nest).read))
    return best


def _row(graph: OpenGraph, nest: Nest, number: int) -> BlockRow:
    names = tuple(graph.nodes[place].name or graph.nodes[place].output[0] for place in rows_of(nest).nodes)
    symbols = ", ".join(sorted(rows_of(nest).length.symbols()))
    return BlockRow("loop", f"blocks_{number}", symbols, names)
