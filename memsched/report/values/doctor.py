"""What ``memsched doctor`` reports."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Section
from memsched.report.values.sessions import SessionRow
from memsched.report.values.verdict import AssumedRow

__all__ = ["DoctorReport", "DoctorRow", "SessionChoice", "SplitSection"]


class SplitSection(Section, frozen=True, kw_only=True):
    """Where the memory of a process with a session lies.

    Attributes:
        code_bytes: Pages of ONNX Runtime's library and of mapped files that the session touched.
        weights_bytes: Of the graph that the session makes of the file, less what the copies replace.
        prepacked_bytes: Copies of weights in the layout that kernels want.
        structures_bytes: The rest of what opening the session took: graph, kernels, plans, and what it left freed.
        arena_in_use_bytes: What runs have of the arena at most; without one, what they have beyond the rest.
        arena_slack_bytes: What the arena holds beyond that, as far as it was ever touched.
        buffers_bytes: What runs left outside the arena.
        sum_bytes: All of these; beside ``process_bytes``, which is another counter, it says how good the split is.
    """

    code_bytes: Count
    weights_bytes: Count
    prepacked_bytes: Count
    structures_bytes: Count
    arena_in_use_bytes: Count
    arena_slack_bytes: Count
    buffers_bytes: Count
    sum_bytes: Count


class DoctorRow(Section, frozen=True, kw_only=True):
    """A session that was measured in a fresh process.

    Attributes:
        cpu_ratio: Median ratio of its processor time to that of a session without options on the file as given; both
            took turns.
        pareto: No other session needs less of the process and no more time, or no more and less time.
        split: Null where ONNX Runtime does not show it.
    """

    session: SessionRow
    cpu_ratio: Amount
    pareto: bool
    split: SplitSection | None


class SessionChoice(Section, frozen=True, kw_only=True):
    """A session worth choosing.

    Attributes:
        reason: Why, in words.
        row: Of ``sessions``, from 0.
        python: Lines that open it and run it.
        cpp: The same; null where ONNX Runtime's C++ interface lacks an option that it needs.
        csharp: As ``cpp``.
    """

    reason: str
    row: Count
    python: tuple[str, ...]
    cpp: tuple[str, ...] | None
    csharp: tuple[str, ...] | None


class DoctorReport(Section, frozen=True, kw_only=True):
    """Where the memory of a process with ONNX Runtime goes, and which session options help.

    Attributes:
        given: Path of the model.
        written: Path of the rewritten model; null where none was named.
        finished: Every session that the search had in mind was opened.
        failed: Sessions that did not run, with the reason.
        sessions: In the order in which they were opened; without options on the file as given first.
        choices: The one worth choosing first.
        assumed: Sizes that the model leaves open and nobody stated.
    """

    schema_version: Literal[2]
    memsched_version: str
    command: Literal["doctor"]
    given: str
    written: str | None
    max_slowdown_percent: Amount
    finished: bool
    seconds: Amount
    seed: Count
    sessions: tuple[DoctorRow, ...]
    choices: tuple[SessionChoice, ...]
    failed: tuple[str, ...]
    assumed: tuple[AssumedRow, ...] = ()
