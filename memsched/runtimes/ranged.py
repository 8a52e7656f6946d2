"""Models with dynamic dimensions, run at several sizes: what they take, how long, and whether outputs agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from memsched.base.frozen import FrozenValue
from memsched.runtimes.measure import Measured

__all__ = ["AtSize", "RangedRace", "RangedRunner", "TimeRatio"]


class TimeRatio(FrozenValue, frozen=True):
    """The time of two models.

    Attributes:
        first: Seconds of the quickest run.
        second: The same of the other one.
        ratio: The median of its time to that of the first, over the rounds.
    """

    first: float
    second: float
    ratio: float


class RangedRace(FrozenValue, frozen=True):
    """Two models run in turns.

    Attributes:
        clock: By the clock.
        processor: The time that the processor computed, where threads that wait busily count as well.
        busy: How many times as long as it computed the first took: of one thread, above 1 where others compute too.
    """

    clock: TimeRatio
    processor: TimeRatio
    busy: float


class AtSize(FrozenValue, frozen=True):
    """A model's outputs beside those of the model as given.

    Attributes:
        equal: Bit by bit.
        error: The largest difference, relative to the largest output; None where they cannot be compared.
        message: Why not.
        given_apart, apart: Errors of the model as given, and of this one, beside accurate outputs; None: not asked for.
    """

    equal: bool
    error: float | None
    message: str | None
    given_apart: float | None = None
    apart: float | None = None


class RangedRunner(Protocol):
    """Runs files at sizes of their dynamic dimensions, each in a process of its own: for `--dim` with a range."""

    def draw_at(self, path: Path, sizes: Mapping[str, int], file: Path, *, seed: int) -> None:
        """Store random inputs of a model at a size in ``file``.

        Raises:
            UsageError: There are none.
        """

    def run_on(
        self,
        path: Path,
        feeds: Path,
        *,
        folder: Path | None = None,
        even: bool = False,
        beside: Sequence[Path] = (),
        least: int | None = None,
    ) -> Measured | str:
        """Return what a model takes on inputs that were stored; or why it does not run.

        Args:
            folder: The folder of the weights that the file names, if it is not the file's own.
            even: In a process that gives back what is freed at once, so that chance has no part in what it takes.
            beside: Inputs of other sizes, which take turns with these.
            least: Runs at least; None for what the file needs.
        """

    def runs_at(self, path: Path, sizes: Mapping[str, int], *, seed: int, most: int) -> list[Measured] | str:
        """Return what processes of a model take at a size, one each; or why it does not run.

        Args:
            most: Processes if chance counts; otherwise one is run.
        """

    def race(
        self,
        first: Path,
        second: Path,
        feeds: Path,
        *,
        rounds: int,
        folder: Path | None = None,
        threads: int | None = None,
    ) -> RangedRace | str:
        """Return how long two models take on stored inputs, run in turns in one process; or why they do not run.

        Args:
            threads: Of each session; None for the default.
        """

    def compare_at(
        self,
        paths: Sequence[Path],
        sizes: Sequence[Mapping[str, int]],
        *,
        seed: int,
        folder: Path | None = None,
        accurate: Path | None = None,
        tolerance: float = 0.0,
    ) -> tuple[str, list[list[AtSize]]]:
        """Return the runtime's name, and for each size how each of the further models compares with the first.

        Args:
            accurate: A model with more accurate outputs, to compare both with if they differ by more than
                ``tolerance``; None: the first one.

        Raises:
            UsageError: The first runs at none of the sizes.
        """

    def special_at(
        self,
        paths: tuple[Path, Path],
        sizes: Sequence[Mapping[str, int]],
        *,
        seed: int,
        folder: Path | None,
        accurate: Path | None,
        tolerance: float,
    ) -> Mapping[str, Any] | None:
        """Return what `memsched.runtimes.special.judged` says of two models at these sizes; None if the first fails."""
