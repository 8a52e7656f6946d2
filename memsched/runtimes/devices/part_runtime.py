"""What the process of a device, or of a whole model beside it, asks of the runtime that executes its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

__all__ = ["PartRuntime", "PartSession"]


class PartSession(Protocol):
    """One model, executed in the order of its file, its values by name."""

    def run(self, outputs: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
        """Return the named outputs as arrays."""

    def peak(self) -> int | None:
        """Return the bytes that the last run had in use at most beside the arrays that it was given.

        None where the runtime does not say. The session is done for.
        """

    def nodes(self) -> dict[str, list[float]]:
        """Return per node the seconds of every run; none where the runtime does not say. The session is done for."""


class PartRuntime(Protocol):
    """A runtime; made once in a process."""

    @property
    def version(self) -> str:
        """Return name and version."""

    def open(self, model: str | bytes, number: int, names: Mapping[int, str]) -> PartSession:
        """Return a session for a model, by its file or bytes, that runs on one core.

        Args:
            number: Unlike that of any other session of the process.
            names: Names of values by their number in the file, where those in the file may be missing or double.
        """
