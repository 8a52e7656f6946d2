"""What runtimes of TFLite files share when two files are compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from memsched.errors import UsageError
from memsched.formats.module import FormatName, LoadOptions
from memsched.graph.border import Border
from memsched.runtimes.values import Verification

__all__ = ["TfliteRunner", "VerifyFiles"]


class VerifyFiles(Protocol):
    """Runs a model before and after in one runtime, as `Runner.verify` does."""

    def __call__(  # noqa: D102 - above
        self,
        before: bytes,
        after: bytes,
        *,
        runs: int = ...,
        seed: int,
        tolerance: float = ...,
        borders: Sequence[Border],
    ) -> Verification: ...


class TfliteRunner(ABC):
    """Compares two TFLite files by the verification of a runtime."""

    format: Final[FormatName] = "tflite"

    @property
    @abstractmethod
    def verify_files(self) -> VerifyFiles:
        """Return what runs a model before and after; its modules are imported only then."""

    def compare(
        self,
        first: Path | bytes,
        second: Path | bytes,
        options: LoadOptions,
        *,
        runs: int,
        rtol: float,
        atol: float,
        seed: int,
        borders: Sequence[Border] = (),
    ) -> tuple[bool | None, Verification]:
        """Run two models on the same random inputs; see `Runner.compare`."""
        del options
        if rtol:
            raise UsageError("--rtol is for ONNX: state the tolerance of TFLite outputs with --atol")
        one, other = (given if isinstance(given, bytes) else given.read_bytes() for given in (first, second))
        found = self.verify_files(one, other, runs=runs, seed=seed, borders=borders)
        return found.within(atol), found
