"""What ``memsched diff`` takes of reports and of summaries of batches."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

__all__ = ["Comparable", "ComparedBatch", "ComparedModel", "ComparedReport", "ComparedTensor"]

Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Percent = Size | Annotated[float, Meta(ge=0, lt=2.0**63)]


class ComparedTensor(Struct, frozen=True, gc=False):
    """A tensor that is live at the peak."""

    tensor: str
    size_bytes: Size


class ComparedIdentity(Struct, frozen=True, gc=False):
    """Which model it was."""

    path: str
    sha256: str


class ComparedTarget(Struct, frozen=True, gc=False):
    """For which target."""

    name: str


class ComparedSchedule(Struct, frozen=True, gc=False):
    """An order."""

    peak_bytes: Size
    arena_bytes: Size


class ComparedOriginal(Struct, frozen=True, gc=False):
    """The original."""

    schedule: ComparedSchedule


class ComparedWritten(Struct, frozen=True, gc=False):
    """The model written."""

    schedule: ComparedSchedule
    at_fault: tuple[ComparedTensor, ...]


class ComparedProof(Struct, frozen=True, gc=False):
    """What is proven of the peak."""

    bound_bytes: Size


class ComparedVerdict(Struct, frozen=True, gc=False):
    """What the runtime allocates."""

    bytes: Size
    extra_macs_percent: Percent


class ComparedBudget(Struct, frozen=True, gc=False):
    """Whether it fits."""

    met: bool


class ComparedReport(Struct, frozen=True, gc=False):
    """A report of ``memsched optimize`` or ``analyze``."""

    model: ComparedIdentity
    target: ComparedTarget
    verdict: ComparedVerdict
    budget: ComparedBudget | None
    proof: ComparedProof
    original: ComparedOriginal
    written: ComparedWritten


class ComparedFigures(Struct, frozen=True, gc=False):
    """What a summary says of a model that came through."""

    sha256: str
    target: str
    file_peak_bytes: Size
    peak_bytes: Size
    arena_bytes: Size
    lower_bound_bytes: Size
    extra_macs_percent: Percent
    budget_met: bool | None
    at_fault: tuple[ComparedTensor, ...]
    required_bytes: Size


class ComparedModel(Struct, frozen=True, gc=False):
    """A model of a batch."""

    name: str
    path: str
    status: str
    error: str | None
    result: ComparedFigures | None


class ComparedBatch(Struct, frozen=True, gc=False):
    """A summary of ``memsched batch``."""

    models: tuple[ComparedModel, ...]


Comparable = ComparedReport | ComparedBatch
