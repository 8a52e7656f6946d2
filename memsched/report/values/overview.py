"""The report of ``memsched MODEL``."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Section
from memsched.report.values.verdict import AssumedRow, CallerChange, Unit

__all__ = ["OverviewGain", "OverviewReport", "OverviewRow"]


class OverviewGain(Section, frozen=True, kw_only=True):
    """What a command reaches.

    Attributes:
        bytes: Memory of the file that it writes.
        time_ratio: Time of that file to that of the original, as it was measured; null if it was not.
        changes: What callers of the file notice; empty if they notice nothing.
        command: The command line.
        private: What a process keeps to itself of the original and of that file, bytes, if that was measured instead of
            what ``bytes`` is; null otherwise.
    """

    bytes: Count
    time_ratio: Amount | None
    changes: tuple[CallerChange, ...]
    command: str
    private: tuple[Count, Count] | None = None


class OverviewRow(Section, frozen=True, kw_only=True):
    """A model in one runtime.

    Attributes:
        target: As --target names it.
        runtime: In words, with how it opens the model.
        unit: What ``original_bytes`` and ``reachable.bytes`` are, as in verdict.unit of `memsched optimize`.
        original_bytes: For the original.
        measured: A run of the runtime showed both figures; otherwise its rules predict them.
        reachable: By a short search that changes nothing for callers, unless ``changes`` says so.
        with_changes: The largest gain for callers that accept a change; null if none was found.
    """

    target: str
    runtime: str
    unit: Unit
    original_bytes: Count
    measured: bool
    reachable: OverviewGain
    with_changes: OverviewGain | None


class OverviewReport(Section, frozen=True, kw_only=True):
    """What memory a model takes in each runtime that accepts it, and what it could take.

    Attributes:
        path: The model's file.
        rows: One for each target, the usual one first.
        usual: Name of the target that commands choose by default.
        reason: Why; empty if the format leaves no choice.
        not_measured: Where people run such models, too, of which these figures say nothing.
        interrupted: The user ended the command; ``rows`` has what was found.
        assumed: Sizes that the model leaves open and nobody stated.
    """

    schema_version: Literal[2]
    memsched_version: str
    command: Literal["overview"]
    path: str
    usual: str
    reason: str
    rows: tuple[OverviewRow, ...]
    not_measured: tuple[str, ...]
    interrupted: bool
    assumed: tuple[AssumedRow, ...] = ()
