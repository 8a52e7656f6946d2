"""Decoders that compute texts: a prompt, and further tokens one at a time."""

from __future__ import annotations

from pathlib import Path

from memsched.base.frozen import FrozenValue
from memsched.formats.decoders import Decoder

__all__ = ["DecoderFile", "TextComparison"]


class DecoderFile(FrozenValue, frozen=True):
    """A decoder in a file.

    Attributes:
        folder: Where weights lie that the file names, if not beside it.
        capacity: Tokens that its buffers hold; None: it gives back longer caches than it was given.
    """

    path: Path
    decoder: Decoder
    folder: Path | None = None
    capacity: int | None = None


class TextComparison(FrozenValue, frozen=True):
    """Outputs of a prompt and of further tokens, and the caches behind them, beside those of the model as given.

    Attributes:
        equal: Bit by bit.
        error: The largest difference, relative to the largest value; None where they cannot be compared.
        message: Why not.
    """

    tokens: int
    equal: bool
    error: float | None
    message: str | None
