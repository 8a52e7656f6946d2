"""Packing blocks of bytes at addresses: what the allocators are given and what they return.

A block is more general than a buffer of a schedule: it may have gaps in its lifetime, an address that is given, an
alignment of its own, or consist of pieces that must lie at fixed distances from each other (a concatenation whose
inputs lie inside its output). Times are any integers; ranges are half-open. Sizes and offsets are bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from memsched.base.frozen import FrozenValue

__all__ = ["Block", "BlockPart", "PackStatus", "Packing", "height_of"]

PackStatus = Literal["optimal", "feasible", "infeasible"]


class BlockPart(FrozenValue, frozen=True):
    """Bytes [low, high) of a block, counted from its address, are in use during times [begin, end)."""

    begin: int
    end: int
    low: int
    high: int


class Block(FrozenValue, frozen=True):
    """What one address is chosen for.

    Attributes:
        size: Bytes that it reaches over from its address, whether in use or not: max over parts of ``high``, or more.
        parts: The bytes in use and when; a block without gaps in its lifetime has one.
        alignment: Its address is a multiple of this. Sizes are not rounded: who wants that rounds them.
        offset: The address that it must have; None when it is free.
        hint: An address to try first, without obligation.
    """

    size: int
    parts: tuple[BlockPart, ...]
    alignment: int = 1
    offset: int | None = None
    hint: int | None = None

    @staticmethod
    def whole(size: int, begin: int, end: int, alignment: int = 1) -> Block:
        """Return a block of which all bytes are in use during [begin, end)."""
        return Block(size, (BlockPart(begin, end, 0, size),), alignment)


class Packing(FrozenValue, frozen=True):
    """Addresses for a sequence of blocks.

    Attributes:
        offsets: Per block its address; empty when ``status`` is "infeasible".
        height: max over blocks of address + size (the arena), bytes; 0 when infeasible.
        lower_bound: No packing is lower than this, bytes.
        status: "optimal": height == lower_bound. "infeasible": a capacity was given, and it was proven that nothing
            fits into it (lower_bound > capacity).
        proof: How the bound was proven, in words.
        method: The solver that found the addresses.
        states: The solver's own measure of effort.
        seconds: Time spent.
    """

    offsets: tuple[int, ...]
    height: int
    lower_bound: int
    status: PackStatus
    proof: str
    method: str
    states: int = 0
    seconds: float = 0.0


def height_of(blocks: Sequence[Block], offsets: Sequence[int]) -> int:
    """Return the height of a packing: the highest end of a block, bytes."""
    return max([offset + block.size for block, offset in zip(blocks, offsets, strict=True)], default=0)
