"""Groups of nodes that are computed block by block along an axis of open length, so that no large value is ever whole.

A group begins at the products that make a large value. Forwards it takes in what reads large values of the group for
the same block alone; backwards, what makes other large values that the group reads: where that is cheap, such as a
mask, every group computes its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

from onnx import GraphProto, NodeProto

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.blocks.cuts import Cut, Needs, is_cheap, needs
from memsched.formats.onnx.blocks.open_rules import OpenRules
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.structure import op_type
from memsched.formats.onnx.types import element_bits
from memsched.formats.onnx.worth import GAIN, LONG
from memsched.ops.table import SHAPED, class_of

__all__ = ["BlockGrowth", "BlockRegion", "Nest", "OpenGraph", "asks_only", "find", "names_read", "rows_of"]

_THICK: Final = 4
"""What is so many times as large as what it follows from, at little cost, is computed block by block as well."""


class BlockRegion(FrozenValue, frozen=True):
    """A group of nodes.

    Attributes:
        needs: Per node, by its place in the graph, in order, what it reads of its inputs.
        cuts: Per value that is made or read in blocks its block.
        read: Values from outside that are read in blocks.
        made: Values that are needed outside.
        length: The length of the axis, as a function of the open dimensions.
        largest: Values of the group that are never whole.
    """

    needs: Mapping[int, Needs]
    cuts: Mapping[str, Cut]
    read: tuple[str, ...]
    made: tuple[str, ...]
    length: Polynomial
    largest: tuple[str, ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        """The places of the nodes in the graph, in order."""
        return tuple(self.needs)


Nest = tuple[BlockRegion, ...]
"""The same group as it is cut by a loop, and by others within it; the outermost first."""


def rows_of(nest: Nest) -> BlockRegion:
    """Return the group as it is cut along its long axis: with all of its nodes."""
    return max(nest, key=lambda region: (len(region.nodes), region is nest[-1]))


class OpenGraph:
    """A main graph with what its values are, and who makes and reads them.

    Args:
        sizes: Lengths of the open dimensions at which values are compared.
    """

    def __init__(self, graph: GraphProto, values: OpenValues, sizes: Mapping[str, int]) -> None:
        self.nodes: Sequence[NodeProto] = list(graph.node)
        self.values = values
        self.rules = OpenRules(graph, values)
        self.typical_rules = self.rules.at(values.typical)
        self.sizes = sizes
        self.anchors = frozenset(name for name, _ in values.places.values())
        self.results = frozenset(value.name for value in graph.output)
        self.maker = {name: place for place, node in enumerate(self.nodes) for name in node.output if name}
        self._bytes: dict[str, int] = {}

    @cached_property
    def readers(self) -> Mapping[str, Sequence[int]]:
        """Per value the nodes that read it, also in bodies."""
        found: dict[str, list[int]] = {}
        for place, node in enumerate(self.nodes):
            for name in dict.fromkeys(names_read(node)):
                found.setdefault(name, []).append(place)
        return found

    def bytes_of(self, name: str) -> int:
        """Return the bytes of a value at the sizes; 0 where they are unknown."""
        if name not in self._bytes:
            element = self.values.elements.get(name, 0)
            found = self.values.bytes_of(name, self.sizes, 1) if element else None
            self._bytes[name] = 0 if found is None else found * (element_bits(element) or 0) // 8
        return self._bytes[name]

    @cached_property
    def long_lengths(self) -> Sequence[Polynomial]:
        """The lengths of long axes, each once."""
        lengths = itertools.chain.from_iterable(self.values.shapes.values())
        known = dict.fromkeys(one for one in lengths if one is not None and one.constant() is None)
        return [one for one in known if one.at(self.sizes) >= LONG]

    @cached_property
    def sources(self) -> Mapping[str, int]:
        """Per value the bytes that have to be whole so that blocks of it can be computed at little cost."""
        found: dict[str, int] = {}
        for place, node in enumerate(self.nodes):
            read = sum(found.get(name, self.bytes_of(name)) for name in dict.fromkeys(names_read(node)))
            for name in node.output:
                found[name] = min(self.bytes_of(name), read) if self.is_cheap(place) else self.bytes_of(name)
        return found

    def needs(self, place: int, cut: Cut) -> Needs | None:
        """Return what a node needs for a block of its outputs."""
        node = self.nodes[place]
        if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
            return None
        return needs(node, cut, self.rules)

    def is_cheap(self, place: int) -> bool:
        """Whether a node may be computed again."""
        return is_cheap(op_type(self.nodes[place]))

    def length(self, name: str, cut: Cut) -> Polynomial | None:
        """Return the length of the axis that is cut; None for an axis that is merged with others."""
        shape = self.values.shapes.get(name)
        return None if shape is None or cut.merged or cut.axis >= len(shape) else shape[cut.axis]


def find(graph: OpenGraph, least: int) -> list[Nest]:
    """Return groups of nodes that have no node in common that costs much, those of the largest values first.

    Args:
        least: Values of fewer bytes, at the sizes of ``graph``, stay whole.
    """
    seeds = [
        name
        for name, place in graph.maker.items()
        if graph.bytes_of(name) >= least and class_of(op_type(graph.nodes[place])) == "product"
    ]
    seeds.sort(key=lambda name: (-graph.bytes_of(name), graph.maker[name]))
    found: list[Nest] = []
    taken: set[int] = set()
    for seed in seeds:
        if graph.maker[seed] in taken:
            continue
        region = _best(graph, seed, least, taken)
        if region is not None:
            found.append(_nested(graph, seed, region, least, taken))
            taken.update(place for place in region.nodes if not _is_copied(graph, region, place))
    return sorted(found, key=lambda nest: nest[0].nodes[-1])


def _nested(graph: OpenGraph, seed: str, region: BlockRegion, least: int, taken: set[int]) -> Nest:
    """Return a group with a second loop along a short axis, such as that of heads, where there is one.

    That loop is around the other one; where the group holds what all heads read, such as a mask, it is within, so that
    this is made once.
    """
    for axis, length in enumerate(graph.values.shapes[seed]):
        if length is None or axis == region.cuts[seed].axis or not 1 < length.at(graph.sizes) < LONG:
            continue
        short = _grown(graph, seed, Cut(axis), length, least, taken)
        if short is None or set(short.made) != set(region.made) or not set(short.nodes) <= set(region.nodes):
            continue
        cuts = [(one, region.cuts[name]) for name, one in short.cuts.items() if name in region.cuts]
        rest = set(region.nodes) - set(short.nodes)
        if any(one.merged or one.axis == other.axis for one, other in cuts):
            continue
        if all(_is_copied(graph, region, place) for place in rest):
            return (region, short) if rest else (short, region)
    return (region,)


def _is_copied(graph: OpenGraph, region: BlockRegion, place: int) -> bool:
    outputs = set(graph.nodes[place].output)
    return graph.is_cheap(place) and not outputs & set(region.largest) and not outputs & set(region.made)


def _best(graph: OpenGraph, seed: str, least: int, taken: set[int]) -> BlockRegion | None:
    """Return the group around a value along the axis that leaves least whole; None where no axis gains."""
    best: tuple[int, BlockRegion] | None = None
    for cut, length in _axes(graph, seed):
        region = _grown(graph, seed, cut, length, least, taken)
        if region is None or not _is_convex(graph, region):
            continue
        whole = sum(graph.bytes_of(name) for name in (*region.made, *region.read))
        inside = max((graph.bytes_of(name) for name in region.largest), default=0)
        if inside >= GAIN * whole and (best is None or inside - whole > best[0]):
            best = inside - whole, region
    return None if best is None else best[1]


def _axes(graph: OpenGraph, name: str) -> Iterator[tuple[Cut, Polynomial]]:
    """Yield the long axes of a value, and those that others are merged into, with the lengths to be cut."""
    for axis, length in enumerate(graph.values.shapes[name]):
        if length is None or length.constant() is not None or length.at(graph.sizes) < LONG:
            continue
        yield Cut(axis), length
        for other in graph.long_lengths:
            if other != length and length.is_multiple_of(other):
                yield Cut(axis, merged=True), other


class BlockGrowth:
    """A group while it grows."""

    def __init__(self, graph: OpenGraph, length: Polynomial, least: int, taken: set[int]) -> None:
        self.graph, self.length, self.least, self.taken = graph, length, least, taken
        self.cuts: dict[str, Cut] = {}
        self.core: dict[int, None] = {}
        self.copied: dict[int, None] = {}
        self.read: dict[str, None] = {}
        self.wanted: dict[int, Needs] = {}
        self.whole: set[str] = set()

    def add(self, place: int, cut: Cut, *, core: bool) -> bool:
        """Take in a node for a block of its outputs; return whether that is possible."""
        node = self.graph.nodes[place]
        outputs = [name for name in node.output if name]
        if place in self.core or place in self.copied:
            fits = all(self.cuts.get(name) == cut for name in outputs)
            if fits and core and place in self.copied:
                del self.copied[place]
                self.core[place] = None
            return fits
        if core and (place in self.taken or self.graph.anchors.intersection(outputs)):
            return False
        wanted = self.graph.needs(place, cut)
        if wanted is None or (not any(wanted) and op_type(node) not in SHAPED):
            return False
        if any(not cut.merged and self.graph.length(name, cut) != self.length for name in outputs):
            return False
        whole = {name for name, one in zip(node.input, wanted, strict=True) if name and one is None}
        if self.whole.intersection(outputs) or any(name in self.cuts and name not in self.read for name in whole):
            return False
        before = self._state()
        self.cuts.update(dict.fromkeys(outputs, cut))
        (self.core if core else self.copied)[place] = None
        self.wanted[place] = wanted
        self.whole |= whole
        if all(self.supply(name, one) for name, one in zip(node.input, wanted, strict=True) if one is not None):
            return True
        self.cuts, self.core, self.copied, self.read, self.wanted, self.whole = before
        return False

    def _state(
        self,
    ) -> tuple[dict[str, Cut], dict[int, None], dict[int, None], dict[str, None], dict[int, Needs], set[str]]:
        return (
            *(dict(self.cuts), dict(self.core), dict(self.copied)),
            *(dict(self.read), dict(self.wanted), set(self.whole)),
        )

    def supply(self, name: str, cut: Cut) -> bool:
        """Make the block of an input available: cut from the whole value, or computed in the group."""
        if name in self.cuts:
            return self.cuts[name] == cut
        place = self.graph.maker.get(name)
        size = self.graph.bytes_of(name)
        large = size >= self.least or size > _THICK * self.graph.sources.get(name, size)
        if place is not None and (large or cut.merged):
            cheap = self.graph.is_cheap(place)
            if (cheap or large) and self.add(place, cut, core=not cheap):
                return True
        if self.graph.length(name, cut) != self.length:
            return False
        self.cuts[name] = cut
        self.read[name] = None
        return True

    def follow(self) -> None:
        """Take in what reads large values of the group, or makes such of others, until nothing more does."""
        waiting = list(self.core)
        seen: set[int] = set()
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            for name in self.graph.nodes[place].output:
                if self._is_large(name) or self.cuts[name].merged:
                    waiting.extend(reader for reader in self.graph.readers.get(name, ()) if self._take(reader, name))

    def _is_large(self, name: str) -> bool:
        """Whether a value is large, or a cheap reader makes a large one of it, as dequantising does."""
        cheap = (reader for reader in self.graph.readers.get(name, ()) if self.graph.is_cheap(reader))
        made = (other for reader in cheap for other in self.graph.nodes[reader].output)
        return any(self.graph.bytes_of(one) >= self.least for one in (name, *made))

    def _take(self, reader: int, name: str) -> bool:
        if reader in self.core:
            return False
        node = self.graph.nodes[reader]
        rank = len(self.graph.values.shapes.get(node.output[0], ()))
        for axis in range(rank):
            for merged in (False, True):
                wanted = self.graph.needs(reader, Cut(axis, merged))
                if wanted is None:
                    continue
                blocks = [one for one, read in zip(wanted, node.input, strict=True) if read == name]
                if all(one == self.cuts[name] for one in blocks) and self.add(reader, Cut(axis, merged), core=True):
                    return True
        return False


def _grown(
    graph: OpenGraph, seed: str, cut: Cut, length: Polynomial, least: int, taken: set[int]
) -> BlockRegion | None:
    growth = BlockGrowth(graph, length, least, taken)
    if not growth.add(graph.maker[seed], cut, core=True):
        return None
    growth.follow()
    inside = {*growth.core, *growth.copied}
    made = [
        name
        for place in sorted(growth.core)
        for name in graph.nodes[place].output
        if name in graph.results or any(reader not in inside for reader in graph.readers.get(name, ()))
    ]
    made = [name for name in made if not asks_only(graph, name, inside)]
    if any(growth.cuts[name].merged for name in made) or not made:
        return None
    largest = tuple(
        name
        for place in sorted(growth.core)
        for name in graph.nodes[place].output
        if name not in made and graph.bytes_of(name) >= least
    )
    needs_of = {place: growth.wanted[place] for place in sorted(inside)}
    return BlockRegion(needs_of, growth.cuts, tuple(growth.read), tuple(made), length, largest)


def asks_only(graph: OpenGraph, name: str, inside: set[int]) -> bool:
    """Whether those who read a value outside of a group ask for its shape alone, which is known without it."""
    outside = [place for place in graph.readers.get(name, ()) if place not in inside]
    return name not in graph.results and all(
        set(graph.nodes[place].output) <= graph.values.integers.keys() for place in outside
    )


def _is_convex(graph: OpenGraph, region: BlockRegion) -> bool:
    """Whether no node outside of a group reads what it makes and makes what it reads."""
    inside = set(region.nodes)
    later: set[str] = set(region.made)
    for place in range(region.nodes[0], len(graph.nodes)):
        if place in inside:
            continue
        node = graph.nodes[place]
        if set(node.output) <= graph.values.integers.keys():
            continue
        if any(name in later for name in names_read(node)):
            later.update(node.output)
    wanted = {name for place in region.nodes for name in names_read(graph.nodes[place])}
    return not (later - set(region.made)) & wanted


def names_read(node: NodeProto) -> Iterator[str]:
    """Yield what a node reads, also in its bodies."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            for inner in body.node:
                yield from names_read(inner)
