"""Random blocks with every feature, and what a packing is, computed naively: cells of time and byte."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypothesis import strategies as st

from memsched.graph.packing import Block, BlockPart

__all__ = ["any_blocks", "cells", "is_valid", "least_height", "tiny_blocks"]


@st.composite
def _block(draw: st.DrawFn, times: int, largest: int, alignments: Sequence[int]) -> Block:
    size = draw(st.integers(1, largest))
    alignment = draw(st.sampled_from(alignments))
    kind = draw(st.sampled_from(["plain", "plain", "gap", "parts"]))

    def span() -> tuple[int, int]:
        begin = draw(st.integers(0, times - 1))
        return begin, draw(st.integers(begin + 1, times))

    if kind == "plain":
        return Block.whole(size, *span(), alignment)
    spans = [span() for _ in range(draw(st.integers(1, 3)))]
    if kind == "gap":
        return Block(size, tuple([BlockPart(*one, 0, size) for one in spans]), alignment)
    parts = []
    for one in spans:
        low = draw(st.integers(0, size - 1))
        parts.append(BlockPart(*one, low, draw(st.integers(low, size))))
    return Block(size, tuple(parts), alignment)


def any_blocks(most: int = 14, times: int = 10, largest: int = 20) -> st.SearchStrategy[list[Block]]:
    return st.lists(_block(times, largest, (1, 1, 2, 4, 3)), max_size=most)


def tiny_blocks() -> st.SearchStrategy[list[Block]]:
    return st.lists(_block(4, 3, (1, 1, 2)), min_size=1, max_size=4)


def cells(block: Block, offset: int) -> set[tuple[int, int]]:
    """Return the (time, byte) that a block at ``offset`` occupies."""
    return {
        (time, offset + byte)
        for part in block.parts
        for time in range(part.begin, part.end)
        for byte in range(part.low, part.high)
    }


def is_valid(blocks: Sequence[Block], offsets: Sequence[int]) -> bool:
    taken: set[tuple[int, int]] = set()
    for block, offset in zip(blocks, offsets, strict=True):
        here = cells(block, offset)
        if offset < 0 or offset % block.alignment or block.offset not in {None, offset} or taken & here:
            return False
        taken |= here
    return True


def least_height(blocks: Sequence[Block]) -> int:
    """Try all addresses, for few and small blocks only."""
    height = max(block.size + (block.offset or 0) for block in blocks)
    while True:
        choices = [
            [block.offset] if block.offset is not None else range(0, height - block.size + 1, block.alignment)
            for block in blocks
        ]
        if any(is_valid(blocks, offsets) for offsets in itertools.product(*choices)):
            return height
        height += 1
