"""From which sizes on it is worth to change a file, so that less is whole at once, or twice in memory."""

from __future__ import annotations

from typing import Final

__all__ = ["BLOCKS", "GAIN", "LARGE_BLOCK", "LARGE_WEIGHT", "LONG", "SMALL_BLOCK", "TRIED"]

LARGE_WEIGHT: Final = 1 << 16
"""Bytes of a weight that is worth a node, or a place of its own; biases and scales of layers have less."""

LARGE_BLOCK: Final = 16 << 20
"""Bytes that the large values of a block may take; room is made for blocks that take as many."""

SMALL_BLOCK: Final = 4 << 20
"""The same of small networks; a branch, and weights that are not packed, are tried from as many bytes on."""

BLOCKS: Final = (LARGE_BLOCK, SMALL_BLOCK)

GAIN: Final = 1.5
"""A group's largest value, or a graph's peak, must be so many times what is needed in blocks."""

LONG: Final = 64
"""Axes that are shorter, at the sizes of the graph, are not cut, and do not make a value large."""

TRIED: Final = 32
"""Sizes from which on values are computed in blocks, of which the best is taken."""
