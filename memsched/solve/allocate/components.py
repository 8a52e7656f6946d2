"""Sets of blocks that can be packed apart: those that never meet in time, above those that are always in use."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.packing import Block
from memsched.solve.allocate.conflicts import is_plain

__all__ = ["Component", "components"]

_MOST_WORK = 100
"""How often each block may be looked at, on average: nested lifetimes could take a round each."""


class Component(FrozenValue, frozen=True):
    """Blocks that no block outside meets, but for those below.

    Attributes:
        members: Indices of the blocks.
        base: Bytes below them that blocks in use all the time take.
    """

    members: tuple[int, ...]
    base: int


def components(blocks: Sequence[Block]) -> tuple[list[Component], dict[int, int]]:
    """Return the components of ``blocks``, by their first time, and the addresses of the blocks below them.

    Every block lies wholly below or wholly above one that is in use all the time, so that such a block may go to the
    bottom: what was below it moves up by its size. That needs one alignment for all, of which its size is a multiple,
    no given address, and no block with bytes that it never uses: another could lie there. The lowest packing of all is
    the highest of the components' lowest packings.
    """
    found: list[Component] = []
    bottom: dict[int, int] = {}
    waiting = [Component(tuple(range(len(blocks))), 0)] if blocks else []
    work = 0
    while waiting:
        whole = waiting.pop()
        parts = _apart_in_time(blocks, whole.members)
        if len(parts) > 1:
            waiting += [Component(part, whole.base) for part in reversed(parts)]
            continue
        always = _always_in_use(blocks, whole.members)
        work += len(whole.members)
        if not always or work > _MOST_WORK * len(blocks):
            found.append(whole)
            continue
        base = whole.base
        for index in always:
            bottom[index] = base
            base += blocks[index].size
        rest = tuple([index for index in whole.members if index not in bottom])
        if rest:
            waiting.append(Component(rest, base))
    return found, bottom


def _span(block: Block) -> tuple[int, int]:
    return min(part.begin for part in block.parts), max(part.end for part in block.parts)


def _is_solid(block: Block) -> bool:
    """Whether every byte of a block is in use at some time."""
    if is_plain(block):
        return True
    reach = 0
    for part in sorted(block.parts, key=lambda part: part.low):
        if part.low > reach:
            return False
        reach = max(reach, part.high)
    return bool(block.parts) and reach == block.size


def _apart_in_time(blocks: Sequence[Block], members: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the members in groups whose times do not meet; blocks that are never in use are in the first."""
    never = [index for index in members if not blocks[index].parts]
    spans = sorted([(*_span(blocks[index]), index) for index in members if blocks[index].parts])
    groups: list[list[int]] = [never] if never and not spans else []
    reach = 0
    for begin, end, index in spans:
        if not groups or begin >= reach:
            groups.append(never if not groups else [])
            reach = end
        groups[-1].append(index)
        reach = max(reach, end)
    return [tuple(sorted(group)) for group in groups]


def _always_in_use(blocks: Sequence[Block], members: Sequence[int]) -> list[int]:
    alignments = {blocks[index].alignment for index in members}
    if len(alignments) > 1 or any(blocks[index].offset is not None for index in members):
        return []
    if not all(_is_solid(blocks[index]) for index in members):
        return []
    (alignment,) = alignments
    spans = [_span(blocks[index]) for index in members]
    whole = min(begin for begin, _ in spans), max(end for _, end in spans)
    return [
        index
        for index, span in zip(members, spans, strict=True)
        if span == whole and is_plain(blocks[index]) and blocks[index].size % alignment == 0
    ]
