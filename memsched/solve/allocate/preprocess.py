"""Blocks as the exact search wants them: sections instead of times, sizes without common divisor.

What is done, and why each keeps the least height:

- Times become sections: the sets of blocks live at once. A set within a neighbouring set asks for nothing more.
- Sizes are divided by their greatest common divisor: blocks pushed down as far as they go lie at multiples of it.
- Where all addresses are multiples of one alignment, widths are rounded up to it; only what lies topmost in a section
  may reach less far, so that a section's stack may end above the capacity by the most that rounding adds to one block.
- Blocks of the same lifetime, size and alignment ("twins") may be exchanged; the search tries one of them.

Blocks of the same lifetime are not merged into one: in a lowest packing they need not lie side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.base.units import LARGEST
from memsched.graph.dag import members
from memsched.graph.packing import Block, BlockPart

__all__ = [
    "MOST_MEETINGS",
    "PackingProblem",
    "common_grid",
    "common_unit",
    "is_uniform",
    "live_sections",
    "problem_of",
]

MOST_MEETINGS = 3_000_000
"""Pairs of blocks and sections, or blocks and blocks, up to which the search is set up in a few seconds."""


class PackingProblem(FrozenValue, frozen=True):
    """Items to be laid at positions, one per block, each using the same bytes in all its sections; in units of bytes.

    An item's position is where its used bytes begin: the block's address plus the low end of its parts.

    Attributes:
        unit: Bytes.
        shifts: Per item its position minus its address.
        widths: Bytes in use, from its position on, rounded up where all alignments are one.
        above: What the block reaches above that; negative where that was rounded.
        lowest: The least position.
        highest: The greatest position: the given one where ``fixed``, else no limit.
        alignments: Of the address.
        sections: Per item those it lives in, ascending.
        slack: Per section the most that rounding adds to one width.
        durations: Per item the time it is live.
        meets: Per item the others with a section in common.
        twins: Per item the others that it may be exchanged with.
        irregular: Whether any alignment matters.
    """

    unit: int
    shifts: tuple[int, ...]
    widths: tuple[int, ...]
    above: tuple[int, ...]
    lowest: tuple[int, ...]
    highest: tuple[int, ...]
    fixed: tuple[bool, ...]
    alignments: tuple[int, ...]
    sections: tuple[tuple[int, ...], ...]
    section_count: int
    slack: tuple[int, ...]
    durations: tuple[int, ...]
    meets: tuple[tuple[int, ...], ...]
    twins: tuple[tuple[int, ...], ...]
    irregular: bool

    def aligned(self, item: int, position: int) -> int:
        """Return the least position of ``item`` from ``position`` on whose address is aligned; the given one is."""
        alignment = self.alignments[item]
        shift = self.shifts[item]
        return position if self.fixed[item] else shift - (shift - position) // alignment * alignment


def _used(block: Block) -> list[BlockPart]:
    return [part for part in block.parts if part.begin < part.end and part.low < part.high]


def is_uniform(block: Block) -> bool:
    """Return whether ``block`` uses the same bytes, and some, whenever it is live."""
    return len({(part.low, part.high) for part in _used(block)}) == 1


def live_sections(blocks: Sequence[Block]) -> list[int]:
    """Return the sets of blocks live at once, as bit masks by time, without those that lie within a neighbour."""
    changes: dict[int, int] = {}
    for index, block in enumerate(blocks):
        # A block may have several parts at once and parts that adjoin: only the union of its times counts.
        for begin, end in _union([(part.begin, part.end) for part in _used(block)]):
            changes[begin] = changes.get(begin, 0) ^ (1 << index)
            changes[end] = changes.get(end, 0) ^ (1 << index)
    result: list[int] = []
    live = 0
    for time in sorted(changes):
        live ^= changes[time]
        while result and result[-1] & ~live == 0:
            result.pop()
        if live and not (result and live & ~result[-1] == 0):
            result.append(live)
    return result


def _union(times: list[tuple[int, int]]) -> list[tuple[int, int]]:
    result: list[tuple[int, int]] = []
    for begin, end in sorted(times):
        if result and begin <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((begin, end))
    return result


def common_unit(blocks: Sequence[Block]) -> int:
    """Return the bytes of which all addresses are multiples once blocks are pushed down as far as they go."""
    ends = [end for block in blocks for part in block.parts for end in (part.low, part.high)]
    unit = math.gcd(*ends, *[size for block in blocks for size in (block.size, block.offset or 0)])
    alignments = sorted({block.alignment for block in blocks})
    while True:
        # An alignment that divides the unit is kept by itself; any other one makes positions that are no multiples.
        shared = math.gcd(unit, *[alignment for alignment in alignments if unit % alignment])
        if shared == unit:
            return unit
        unit = shared


def common_grid(blocks: Sequence[Block]) -> int:
    """Return what the first byte of every part is a multiple of, where all alignments are the same; else 1."""
    grid = blocks[0].alignment if blocks else 1
    same = all(block.alignment == grid and not any(part.low % grid for part in block.parts) for block in blocks)
    return grid if same else 1


def problem_of(own: Sequence[Block]) -> PackingProblem | None:
    """Return the problem of blocks that are all used and `is_uniform`; None when it is too large to be searched."""
    parts = [_used(block)[0] for block in own]
    masks = live_sections(own)
    if sum(mask.bit_count() for mask in masks) > MOST_MEETINGS:
        return None
    sections: list[list[int]] = [[] for _ in own]
    meets = [0] * len(own)
    for number, mask in enumerate(masks):
        for item in members(mask):
            sections[item].append(number)
            meets[item] |= mask
    if sum(mask.bit_count() for mask in meets) > MOST_MEETINGS:
        return None
    unit = common_unit(own)
    fixed = [block.offset is not None for block in own]
    keys = [
        (tuple(live), part.low, part.high, block.size, block.alignment)
        for live, part, block in zip(sections, parts, own, strict=True)
    ]
    alike: dict[object, list[int]] = {}
    for item, key in enumerate(keys):
        if not fixed[item]:
            alike.setdefault(key, []).append(item)
    widths = [part.high - part.low for part in parts]
    grid = common_grid(own)
    rounded = [-(-width // grid) * grid for width in widths]
    slack = [0] * len(masks)
    for item, live in enumerate(sections):
        for section in live:
            slack[section] = max(slack[section], (rounded[item] - widths[item]) // unit)
    alignments = tuple(block.alignment // math.gcd(block.alignment, unit) for block in own)
    lowest = tuple((part.low + (block.offset or 0)) // unit for block, part in zip(own, parts, strict=True))
    return PackingProblem(
        unit=unit,
        shifts=tuple(part.low // unit for part in parts),
        widths=tuple(width // unit for width in rounded),
        above=tuple(
            (block.size - part.low - width) // unit for block, part, width in zip(own, parts, rounded, strict=True)
        ),
        lowest=lowest,
        highest=tuple(low if given else LARGEST for low, given in zip(lowest, fixed, strict=True)),
        fixed=tuple(fixed),
        alignments=alignments,
        sections=tuple([tuple(live) for live in sections]),
        section_count=len(masks),
        slack=tuple(slack),
        durations=tuple([sum(end - begin for begin, end in _union(_times(block))) for block in own]),
        meets=tuple([tuple(members(mask & ~(1 << item))) for item, mask in enumerate(meets)]),
        twins=tuple(
            [
                tuple([other for other in alike[key] if other != item]) if not given else ()
                for item, (key, given) in enumerate(zip(keys, fixed, strict=True))
            ]
        ),
        irregular=grid == 1 and any(alignment > 1 for alignment in alignments),
    )


def _times(block: Block) -> list[tuple[int, int]]:
    return [(part.begin, part.end) for part in _used(block)]
