"""What ``memsched diff`` takes of reports and of summaries of batches, of whatever version of memsched they are."""

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


class ComparedOrder(Struct, frozen=True, gc=False):
    """The file's own order."""

    peak_bytes: Size


class ComparedBaselines(Struct, frozen=True, gc=False):
    """Other orders."""

    file_order: ComparedOrder


class ComparedResult(Struct, frozen=True, gc=False):
    """What was found."""

    peak_bytes: Size
    arena_bytes: Size
    lower_bound_bytes: Size
    extra_macs_percent: Percent
    required_bytes: Size | None = None
    """Not in reports of older versions."""


class ComparedBudget(Struct, frozen=True, gc=False):
    """Whether it fits."""

    met: bool


class ComparedReport(Struct, frozen=True, gc=False):
    """A report of ``memsched optimize`` or ``analyze``."""

    model: ComparedIdentity
    target: ComparedTarget
    baselines: ComparedBaselines
    result: ComparedResult
    budget: ComparedBudget | None
    at_fault: tuple[ComparedTensor, ...]


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
    required_bytes: Size | None = None
    """Summaries of older versions have it with a budget alone."""


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
