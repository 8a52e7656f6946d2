"""The answer of a report: the figure that decides, what was tried for it, what is proven, and what else would help."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from memsched.report.values.base import Amount, Count, Section, Status
from memsched.report.values.runtime import GuaranteeKind

__all__ = [
    "AlternativeRow",
    "AssumedRow",
    "BudgetSection",
    "CallerChange",
    "LedgerRow",
    "MeasurementRow",
    "ProofSection",
    "Unit",
    "VerdictSection",
]

Unit = Literal["tflm_arena", "tflm_planned", "litert_arena", "interpreter", "requested", "process", "arena"]
"""What a runtime allocates: an interpreter's whole arena, its planned part, what a session requests, a process."""

CallerChange = Literal["rounding", "inputs", "opening"]
"""What a caller of the file notices: floats within 1e-5; other inputs or outputs; how or where it is opened."""


class AssumedRow(Section, frozen=True, kw_only=True):
    """A size that the original leaves open, and for which the figures hold.

    Attributes:
        dimension: Its name, or input[axis] if it has none.
        sizes: One size, or the least and the largest of a range; an open end has no largest.
        reason: Where the size comes from; empty if it was stated.
        decoder: It is one of a decoder with past keys and values, which `memsched decoder` is for.
    """

    dimension: str
    sizes: tuple[Count, ...]
    reason: str = ""
    decoder: bool = False


class VerdictSection(Section, frozen=True, kw_only=True):
    """What the runtime allocates for both models, in the unit that decides.

    Attributes:
        unit: tflm_arena and litert_arena are those of the interpreters, tflm_planned the part of it that a memory plan
            is about, if only that was asked for. interpreter: what LiteRT's default interpreter keeps. requested: what
            a session of ONNX Runtime requests for activations. process: of its process. arena: of a target that no
            runtime executes.
        original_bytes: For the original.
        bytes: For the model written, or for the original if none was written: what a budget is compared with.
        time_ratio: Time of the model written to that of the original, as it was measured; null if it was not.
        measured: A run of the runtime showed both figures; otherwise the rules of the runtime predict them.
        outputs: Of both models on the same inputs; close is within what the changes of the model permit.
        runtime: Name and version of the runtime that ran both models; null if they were not run.
        session: How the session has to be opened, as ``output.guarantee`` says; null for other runtimes, and if
            nothing was written.
        extra_macs_percent: Work that the model written does beside that of the original, whatever the rewrite.
        interrupted: The search was ended by the user.
        notes: What else must be known to read the figures rightly.
    """

    unit: Unit
    original_bytes: Count
    bytes: Count
    time_ratio: Amount | None
    measured: bool
    outputs: Literal["bit_equal", "close", "different", "not_run"]
    runtime: str | None
    session: GuaranteeKind | None
    extra_macs_percent: float
    interrupted: bool
    notes: tuple[str, ...]


class BudgetSection(Section, frozen=True, kw_only=True):
    """Whether the result fits.

    Attributes:
        budget_bytes: What is available.
        required_bytes: What the runtime allocates for the result, as verdict.bytes; with a curve, at the size that
            requires most.
        exceeded_bytes: What is missing.
        met: It fits, and the runtime accepts the model.
        withheld: No file was written, as the result misses the budget, and --keep-best was not given.
    """

    budget_bytes: Count
    required_bytes: Count
    exceeded_bytes: Count
    met: bool
    withheld: bool = False

    @classmethod
    def of(cls, budget: int, required: int, *, withheld: bool = False) -> BudgetSection:
        """Return the section for a budget and a requirement in bytes, if the runtime accepts the model."""
        exceeded = max(0, required - budget)
        return cls(
            budget_bytes=budget,
            required_bytes=required,
            exceeded_bytes=exceeded,
            met=not exceeded,
            withheld=withheld,
        )


class LedgerRow(Section, frozen=True, kw_only=True):
    """One rewrite of one model, or one solver: what it was given, what it found, and what became of that.

    Attributes:
        pass_: What --allow permits it by, or the solver.
        on: The model that it began with: "original", or the rewrites that led to it, joined by " + ".
        tried: Candidates that were proposed; for a solver 1.
        found_bytes: The least that the runtime requires for what it made of that model; for a solver, the peak. Null
            if it found nothing.
        applied: The model written has it.
        reason: Why it is not applied; what a solver said; empty otherwise.
        work_percent: Its part of the counted work of all rewrites; null for solvers, whose work is not told apart.
        seconds: Clock time; 0 if a limit of effort forbids a clock.
        proof: What is proven of the space that it searched; empty if nothing is.
        before_bytes: What the model that it began with requires; for a solver, its peak.
        ops_before: Ops of that model; for a solver, of the graph that it was given.
        ops_after: Ops of the best model that it made; for a solver, of the graph that it left. Null if there is none.
        extra_macs_percent: Work of the best model that it made beside that of the original; null if there is none.
    """

    pass_: str = field(name="pass")
    on: str
    tried: Count
    found_bytes: Count | None
    applied: bool
    reason: str
    work_percent: Amount | None
    seconds: Amount
    proof: str
    before_bytes: Count
    ops_before: Count
    ops_after: Count | None
    extra_macs_percent: float | None


class ProofSection(Section, frozen=True, kw_only=True):
    """What is proven of the peak.

    Attributes:
        bytes: The peak of the order found.
        bound_bytes: No order of the graph in ``scope`` has a smaller peak.
        status: optimal: the bound is reached.
        witness: How the bound was proven, in words.
        scope: Whose orders it holds for: those of the original, or those of the rewritten model alone.
    """

    bytes: Count
    bound_bytes: Count
    status: Status
    witness: str
    scope: Literal["original", "written"]


class MeasurementRow(Section, frozen=True, kw_only=True):
    """What a run showed of a file.

    Attributes:
        file: Which one; "refused" is a file that was found and is not written.
        session: How it was opened, in words: options, or the interpreter.
        runs: So many runs, or fresh processes; null if that was not counted.
        private_bytes: Anonymous memory of the process after the last run, above what it had before.
        peak_bytes: Resident memory of the process at its peak, above what it had before.
        requested_bytes: What the runtime requested for activations.
        arena_bytes: The arena that the runtime laid.
        cpu_seconds: Processor time of one run.
        digest: SHA-256 of the file; null for a file that was not kept.
    """

    file: Literal["original", "written", "refused"]
    session: str
    runs: Count | None = None
    private_bytes: Count | None = None
    peak_bytes: Count | None = None
    requested_bytes: Count | None = None
    arena_bytes: Count | None = None
    cpu_seconds: Amount | None = None
    digest: str | None = None


class AlternativeRow(Section, frozen=True, kw_only=True):
    """What would help, as it was tried.

    Attributes:
        command: A command line to paste, with the options that were given.
        what: In a word or two what it does.
        bytes: What the model written by it requires at most, as verdict.bytes says it.
        saving_bytes: How much less that is than the model of this report requires; if the command names a session, in
            that session.
        extra_macs_percent: At most.
        time_ratio: Time to that of the original; null if it was not measured.
        changes: What a caller of the file would notice, at most.
        process_bytes: Peak of a process with a session on the file that the command writes, measured in a fresh one;
            null if it was not.
        process_saving_bytes: How much less that is than with a session without options on the original.
        private: Both are the process's private memory after the last run instead.
    """

    command: str
    what: str
    bytes: Count
    saving_bytes: Count
    extra_macs_percent: Amount
    time_ratio: Amount | None
    changes: tuple[CallerChange, ...]
    process_bytes: Count | None = None
    process_saving_bytes: Count | None = None
    private: bool = False
