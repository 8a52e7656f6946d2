"""What runtimes of TFLite files share when two files are compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final, Protocol

from memsched.base.errors import ModelError, UsageError
from memsched.base.frozen import FrozenValue
from memsched.formats.module import FormatName
from memsched.graph.border import Border
from memsched.runtimes.runner import CompareFiles
from memsched.runtimes.values import OtherSize, Verification

__all__ = ["BEFORE_AND_AFTER", "ModelWords", "TfliteRunner", "VerifyFiles"]


class ModelWords(FrozenValue, frozen=True):
    """What reasons call two models.

    Attributes:
        elsewhere: What is said where one is refused: where else it may run.
    """

    first: str
    second: str
    elsewhere: str = ""


BEFORE_AND_AFTER: Final = ModelWords("the model as given", "the optimised model")


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
        words: ModelWords = ...,
        timeout_seconds: float | None = ...,
    ) -> Verification: ...


class TfliteRunner(ABC):
    """Compares two TFLite files by the verification of a runtime."""

    format: Final[FormatName] = "tflite"
    elsewhere: ClassVar[str] = ""

    @property
    @abstractmethod
    def verify_files(self) -> VerifyFiles:
        """Return what runs a model before and after; its modules are imported only then."""

    @abstractmethod
    def check_file(self, data: bytes) -> None:
        """Check that ``data`` holds the tables of a TFLite model.

        Raises:
            ModelError: It does not.
        """

    def compare(self, asked: CompareFiles) -> tuple[bool | None, Verification]:
        """Run two models on the same random inputs; see `Runner.compare`."""
        if asked.rtol:
            action = "state the tolerance of TFLite outputs with --atol"
            raise UsageError("--rtol is for ONNX", code="other-format", action=action)
        files = (asked.first, asked.second)
        one, other = (given if isinstance(given, bytes) else given.read_bytes() for given in files)
        names = [
            letter if isinstance(given, bytes) else f"{letter} ('{given}')"
            for letter, given in zip("AB", files, strict=True)
        ]
        for name, data in zip(names, (one, other), strict=True):
            self._check(name, data)
        words = ModelWords(names[0], names[1], self.elsewhere)
        found = self.verify_files(
            one,
            other,
            runs=asked.runs,
            seed=asked.seed,
            borders=asked.borders,
            words=words,
            timeout_seconds=asked.timeout_seconds,
        )
        if not found.runs:
            # A model that was not run has no outputs that differ.
            found = replace(found, outputs_equal=None)
        close = found.within(asked.atol)
        if not close:
            return close, found
        sizes, notes = self.other_sizes(one, other, seed=asked.seed, atol=asked.atol, borders=asked.borders)
        found = replace(found, other_sizes=sizes, notes=(*found.notes, *notes))
        return found.wrong_elsewhere is None, found

    def other_sizes(
        self,
        before: bytes,
        after: bytes,
        *,
        seed: int,
        tolerance: float = 0.0,
        atol: float = 0.0,
        borders: Sequence[Border] = (),
    ) -> tuple[tuple[OtherSize, ...], tuple[str, ...]]:
        """Run two models at sizes that the first leaves open; nothing if the runtime resizes no model.

        Args:
            tolerance: Relative error that is permitted.
            atol: Absolute error that is permitted.

        Returns:
            The outcome of each size, and notes.
        """
        del before, after, seed, tolerance, atol, borders
        return (), ()

    def _check(self, name: str, data: bytes) -> None:
        """Check that ``data`` is a TFLite model: what runtimes say of others does not name them."""
        try:
            self.check_file(data)
        except ModelError as error:
            raise error.at(f"{name} cannot be read") from None
