"""Decoders: models that read keys and values of past tokens, and give them with those of new tokens behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from memsched.base.frozen import FrozenValue

__all__ = ["Along", "Cache", "Decoder", "TokenInput"]

Along = Literal["past", "new", "all"]
"""What lies along an axis: the tokens so far, the new ones, or both."""


class Cache(FrozenValue, frozen=True):
    """Keys or values of one layer.

    Attributes:
        past: The input that holds those of past tokens.
        present: The output that has those of new tokens behind.
        axis: Along which the tokens lie.
        shape: Of the past; None along ``axis``.
        dtype: Of its elements, in numpy's words.
        width: Bytes of an element.
        by_kernel: A kernel of the runtime appends them, in place where both are one buffer.
    """

    past: str
    present: str
    axis: int
    shape: tuple[int | None, ...]
    dtype: str
    width: int
    by_kernel: bool


class TokenInput(FrozenValue, frozen=True):
    """An input beside the caches.

    Attributes:
        axes: Per axis its length, or what lies along it.
    """

    name: str
    axes: tuple[int | Along, ...]


class Decoder(FrozenValue, frozen=True):
    """A model with caches, and what appends to them in place.

    Attributes:
        others: Its other inputs.
        dims: Per open dimension its length, or what lies along it.
        single: It takes one new token at a time, and no more.
        capacity: The name of the dimension that is the length of the buffers, in what ``build`` makes.
        past_length: The input of that model that says how many tokens the buffers hold; None where nothing reads it, as
            kernels know it from other inputs.
        build: Makes it.
    """

    caches: Sequence[Cache]
    others: Sequence[TokenInput]
    dims: Mapping[str, int | Along]
    single: bool
    capacity: str
    past_length: str | None
    build: Callable[[], bytes]

    def sizes_at(self, past: int, new: int) -> dict[str, int]:
        """Return the lengths of the open dimensions for ``new`` tokens behind ``past`` ones."""
        known = {"past": past, "new": new, "all": past + new}
        return {name: one if isinstance(one, int) else known[one] for name, one in self.dims.items()}

    def bytes_per_token(self) -> int:
        """Return what all caches take for a token."""
        return sum(cache.width * math.prod(size or 1 for size in cache.shape) for cache in self.caches)
