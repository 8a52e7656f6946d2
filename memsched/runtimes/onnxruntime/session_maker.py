"""What ONNX Runtime's sessions make of a model: the graph that is executed, and what a session takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from memsched.formats.module import FormatName, LoadOptions
from memsched.runtimes.measure import Measured, Raced
from memsched.runtimes.onnxruntime.session_memory import (
    draw_feeds,
    measure_session,
    race_pair,
    race_sessions,
    session_opener,
    split_of,
)
from memsched.runtimes.package import ONNXRUNTIME
from memsched.runtimes.process_memory import MappedComparison
from memsched.runtimes.sessions import ExecutedModel, Level, MappedModel, MemorySplit, SessionPoint
from memsched.runtimes.values import Verification
from memsched.targets.model import Target

__all__ = ["SessionMaker"]


class SessionMaker:
    """Opens files in sessions and measures them, for `optimize`, `doctor`, and reports on processes.

    What reads models is imported when it is needed.

    Attributes:
        format: Of the files that it opens.
    """

    format: Final[FormatName] = "onnx"

    def check_installed(self) -> None:
        """Check that sessions can be opened here.

        Raises:
            RuntimeUnavailableError: The runtime is not installed.
        """
        ONNXRUNTIME.require()

    def executed(self, data: bytes, path: str, options: LoadOptions, session: str, *, seed: int) -> ExecutedModel:
        """Return what sessions of a kind execute of a model; see `executed_model`."""
        from memsched.runtimes.onnxruntime.executed import executed_model

        return executed_model(data, path, options, session, seed=seed)

    def guarded(self, model: bytes, block: int | None) -> bytes:
        """Return a model that processors with another block size refuse; see `block_guard`."""
        from memsched.runtimes.onnxruntime.block_guard import guarded

        return model if block is None else guarded(model, block)

    def rules(self, target: Target) -> Target:
        """Return a target's rules for such a graph."""
        from memsched.runtimes.onnxruntime.executed import executed_rules

        return executed_rules(target)

    def verify(
        self,
        given: bytes,
        folder: Path | None,
        written: bytes,
        options: LoadOptions,
        level: Level,
        *,
        expected: Sequence[str] | None,
        predicted: int,
        seed: int,
    ) -> Verification:
        """Compare a model in its session with the graph that it executes, ordered; see `verify_executed`."""
        from memsched.runtimes.onnxruntime.executed_check import verify_executed

        return verify_executed(
            given, folder, written, options, level, expected=expected, predicted=predicted, seed=seed
        )

    def draw_feeds(self, data: bytes, folder: Path | None, options: LoadOptions, file: Path, *, seed: int) -> None:
        """Store inputs that a model takes; see `session_memory.draw_feeds`."""
        draw_feeds(data, folder, options, file, seed=seed)

    def measure(
        self,
        path: Path,
        feeds: Path,
        point: SessionPoint,
        beside: tuple[Path, SessionPoint] | None = None,
        *,
        rounds: int = 9,
        folder: Path | None = None,
        split: bool = False,
    ) -> Measured | str:
        """Return what a session on a file took in a process of its own; see `measure_session`."""
        return measure_session(path, feeds, point, beside, rounds=rounds, folder=folder, split=split)

    def split(self, found: Measured, point: SessionPoint) -> MemorySplit | None:
        """Return where the memory of a measured process lies; see `split_of`."""
        return split_of(found, lasting=point.arena and not point.shrinkage)

    def mapped(self, path: Path, folder: Path | None, point: SessionPoint, into: Path, stem: str) -> MappedModel:
        """Store a model with mapped weights; see `mapped_model`."""
        from memsched.runtimes.onnxruntime.mapped import mapped_model

        return mapped_model(path, folder, point, into, stem)

    def compare_mapped(
        self,
        given: Path,
        written: Path,
        mapped: MappedModel,
        feeds: Path,
        folder: Path | None,
        *,
        limit: float,
        large: int,
    ) -> MappedComparison | str:
        """Measure sessions on a model with mapped weights; see `compare_mapped`."""
        from memsched.runtimes.onnxruntime.mapped import compare_mapped

        return compare_mapped(given, written, mapped, feeds, folder, limit=limit, large=large)

    def apart_at_other_sizes(
        self, model: bytes, folder: Path | None, mapped: Path, options: LoadOptions, seed: int
    ) -> str | None:
        """Return a size for which a model with mapped weights is wrong; see `mapped.apart_at_other_sizes`."""
        from memsched.runtimes.onnxruntime.mapped import apart_at_other_sizes

        return apart_at_other_sizes(model, folder, mapped, options, seed=seed)

    def time_ratio(
        self,
        first: tuple[Path, SessionPoint],
        second: tuple[Path, SessionPoint],
        feeds: Path,
        *,
        folder: Path | None = None,
    ) -> float | None:
        """Return the processor time of the second session as a multiple of the first one's; None if one fails."""
        found = race_pair(*(session_opener(*one, feeds, folder) for one in (first, second)))
        return None if isinstance(found, str) else found

    def race(
        self, sessions: Sequence[tuple[Path, SessionPoint]], feeds: Path, *, rounds: int, folder: Path | None = None
    ) -> tuple[Raced | None, ...]:
        """Return what sessions requested, and how long they took; see `race_sessions`."""
        return race_sessions(sessions, feeds, rounds=rounds, folder=folder)
