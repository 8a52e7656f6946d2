"""Decoders that compute texts: a prompt, and further tokens one at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from memsched.base.frozen import FrozenValue
from memsched.formats.decoders import Decoder
from memsched.runtimes.measure import Measured

__all__ = ["DecoderFile", "TextComparison", "TextRunner"]


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


class TextRunner(Protocol):
    """Runs decoders on random texts, each in a process of its own: for `decoder`."""

    def run_text(self, file: DecoderFile, past: int, steps: Sequence[int], *, seed: int) -> Measured:
        """Return what it takes to put tokens behind ``past`` random ones, so many in each step.

        Raises:
            UsageError: It does not run.
        """

    def race_texts(
        self,
        first: DecoderFile,
        second: DecoderFile,
        past: int,
        steps: tuple[Sequence[int], Sequence[int]],
        *,
        seed: int,
    ) -> tuple[float, float]:
        """Return the seconds that each takes for its steps behind ``past`` tokens, run in turns in one process.

        Raises:
            UsageError: One does not run.
        """

    def compare_texts(
        self, first: DecoderFile, second: DecoderFile, prompts: Sequence[int], chunk: int, further: int, *, seed: int
    ) -> tuple[str, tuple[TextComparison, ...]]:
        """Return the runtime's name, and how the second compares with the first on texts of several lengths.

        Args:
            prompts: Tokens of each text's prompt, which the first computes at once.
            chunk: So many the second computes at a time.
            further: Tokens behind each prompt, one at a time.

        Raises:
            UsageError: The first does not run.
        """

    def special_texts(
        self,
        first: DecoderFile,
        second: DecoderFile,
        texts: tuple[int, int],
        chunk: int,
        further: int,
        *,
        seed: int,
        tolerance: float,
    ) -> Mapping[str, Any] | None:
        """Return what `memsched.runtimes.special.judged` says of both; None if the first fails.

        Args:
            texts: Tokens of a past whose caches have special values, and of a prompt whose inputs may.
            chunk, further: As in `compare_texts`, behind each of both.
            tolerance: Relative error that is permitted.
        """
