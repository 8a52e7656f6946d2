"""Where the ops of a graph lie in a picture: in layers, each below what it reads, with few lines that cross.

Layers by longest path; in each the barycentre heuristic of Sugiyama, Tagawa and Toda ("Methods for Visual Understanding
of Hierarchical System Structures", 1981); across, the least squares that keep this order and the distances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from memsched.base.frozen import FrozenValue

__all__ = ["UNITS", "GraphPlaces", "lay_out"]

UNITS = 8
"""So many units of ``GraphPlaces.across`` are the least distance between the middles of two ops."""

_BEND_WIDTH = 0.35
"""Room that a line takes beside ops, in widths of an op."""
_BEND_WEIGHT = 2.0
"""How much straighter a line is than a row of ops."""
_SMALL = 5_000
"""Ops of a graph that a page draws with care: with so many bends, or as many as ops in larger ones."""
_SWEEPS = (8, 2)
"""How often layers are sorted, and ops moved, from top to bottom or back: in graphs up to `_SMALL` ops, and larger."""


class GraphPlaces(FrozenValue, frozen=True):
    """Places of ops.

    Attributes:
        layer: Per op, from 0; what it reads has smaller ones.
        across: Per op the middle, in `UNITS`; the leftmost op or bend has 0.
        bends: By op where the line to its readers passes the layers after its own, one after the other, as ``across``.
            Readers further down are reached by straight lines.
    """

    layer: Sequence[int]
    across: Sequence[int]
    bends: dict[int, list[int]]


@dataclass(slots=True)
class _Levels:
    """Ops, and the bends of lines after them, by layer; ``above`` and ``below`` are the neighbours next to them."""

    rows: list[list[int]]
    above: list[list[int]]
    below: list[list[int]]
    widths: list[float]
    chains: dict[int, list[int]] = field(default_factory=dict)


def lay_out(reads: Sequence[Sequence[int]]) -> GraphPlaces:
    """Return where ops lie of which each reads what the earlier ones in ``reads`` make; near linear in all lines.

    Args:
        reads: Per op those whose results it reads, all with smaller numbers.
    """
    layer = _layers(reads)
    levels = _levels(reads, layer)
    large = len(reads) > _SMALL
    _sort(levels, _SWEEPS[large])
    across = _across(levels, _SWEEPS[large])
    least = min(across, default=0.0)
    units = [round(UNITS * (place - least)) for place in across]
    bends = {op: [units[item] for item in chain] for op, chain in levels.chains.items()}
    return GraphPlaces(layer, units[: len(reads)], bends)


def _layers(reads: Sequence[Sequence[int]]) -> list[int]:
    """Return the longest path to each op; one that reads nothing lies just above its first reader."""
    layer: list[int] = []
    for before in reads:
        layer.append(1 + max((layer[op] for op in before), default=-1))
    first: dict[int, int] = {}
    for op, before in enumerate(reads):
        for other in before:
            first[other] = min(first.get(other, layer[op]), layer[op])
    for op, before in enumerate(reads):
        if not before and op in first:
            layer[op] = first[op] - 1
    return layer


def _levels(reads: Sequence[Sequence[int]], layer: Sequence[int]) -> _Levels:
    """Return ops with the bends of lines that pass layers, the shortest of them: all together are not many more."""
    count = len(reads)
    spans = [0] * count
    for op, before in enumerate(reads):
        for other in before:
            spans[other] = max(spans[other], layer[op] - layer[other] - 1)
    left = max(_SMALL, count)
    levels = _Levels(
        [[] for _ in range(max(layer, default=-1) + 1)],
        [[] for _ in range(count)],
        [[] for _ in range(count)],
        [1.0] * count,
    )
    for op in range(count):
        levels.rows[layer[op]].append(op)
    for op in sorted((op for op in range(count) if spans[op]), key=lambda op: (spans[op], op)):
        left -= spans[op]
        if left < 0:
            break
        _bend(levels, op, layer[op], spans[op])
    for op, before in enumerate(reads):
        for other in before:
            chain = levels.chains.get(other, ())
            passed = layer[op] - layer[other] - 1
            if passed <= len(chain):
                _join(levels, chain[passed - 1] if passed else other, op)
    return levels


def _bend(levels: _Levels, op: int, layer: int, span: int) -> None:
    chain = list(range(len(levels.widths), len(levels.widths) + span))
    levels.chains[op] = chain
    for place, (before, item) in enumerate(zip([op, *chain], chain, strict=False), start=layer + 1):
        levels.rows[place].append(item)
        levels.widths.append(_BEND_WIDTH)
        levels.above.append([])
        levels.below.append([])
        _join(levels, before, item)


def _join(levels: _Levels, before: int, after: int) -> None:
    levels.below[before].append(after)
    levels.above[after].append(before)


def _sort(levels: _Levels, sweeps: int) -> None:
    """Sort each layer by the mean place of its neighbours in the one before, downwards, then upwards, and so on."""
    place = [0.0] * len(levels.widths)
    for row in levels.rows:
        for index, item in enumerate(row):
            place[item] = index - len(row) / 2
    for sweep in range(sweeps):
        neighbours = levels.below if sweep % 2 else levels.above
        for row in reversed(levels.rows) if sweep % 2 else levels.rows:
            wanted = {item: _mean(neighbours[item], place, place[item]) for item in row}
            row.sort(key=wanted.__getitem__)
            for index, item in enumerate(row):
                place[item] = index - len(row) / 2


def _mean(items: Sequence[int], place: Sequence[float], otherwise: float) -> float:
    return sum(place[item] for item in items) / len(items) if items else otherwise


def _across(levels: _Levels, moves: int) -> list[float]:
    """Return the place of each op and bend across, near its neighbours' as far as the others of its layer permit."""
    place = [0.0] * len(levels.widths)
    offsets = []
    for row in levels.rows:
        steps = [(levels.widths[one] + levels.widths[other]) / 2 for one, other in pairwise(row)]
        offset = list(accumulate(steps, initial=0.0)) if row else []
        offsets.append(offset)
        for item, at in zip(row, offset, strict=True):
            place[item] = at - offset[-1] / 2
    for move in range(moves):
        neighbours = (levels.above, levels.below)[move % 2]
        order = list(zip(levels.rows, offsets, strict=True))
        for row, offset in reversed(order) if move % 2 else order:
            wanted = [_mean(neighbours[item], place, place[item]) for item in row]
            weights = [1.0 if levels.widths[item] == 1.0 else _BEND_WEIGHT for item in row]
            for item, at in zip(row, _spread(wanted, offset, weights), strict=True):
                place[item] = at
    return place


def _spread(wanted: Sequence[float], offset: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the places nearest to ``wanted``, by least squares, whose distances are those of ``offset`` at least.

    Pool adjacent violators: what would come too near to the one before moves together with it.
    """
    blocks: list[tuple[float, float, int]] = []
    for aim, shift, weight in zip(wanted, offset, weights, strict=True):
        total, heavy, count = weight * (aim - shift), weight, 1
        while blocks and blocks[-1][0] * heavy >= total * blocks[-1][1]:
            before = blocks.pop()
            total, heavy, count = total + before[0], heavy + before[1], count + before[2]
        blocks.append((total, heavy, count))
    flat = [total / heavy for total, heavy, count in blocks for _ in range(count)]
    return [at + shift for at, shift in zip(flat, offset, strict=True)]
