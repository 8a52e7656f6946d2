"""The report of ``memsched allocate``."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Percentage, Positive, Section, Sha256

__all__ = ["AddressRow", "AddressesSection", "AllocateReport", "BuffersSection", "PackingSection"]


class BuffersSection(Section, frozen=True, kw_only=True):
    """Which buffers were read.

    Attributes:
        path: '-' is standard input
        given: Buffers whose address the file gives.
        alignment_bytes: Of buffers that state none.
    """

    path: str
    sha256: Sha256
    buffers: Count
    given: Count
    alignment_bytes: Positive
    carried_columns: tuple[str, ...]


class AddressesSection(Section, frozen=True, kw_only=True):
    """The file of addresses."""

    path: str | None
    sha256: Sha256


class PackingSection(Section, frozen=True, kw_only=True):
    """How the buffers were packed.

    Attributes:
        fits: Null without a capacity.
        height_bytes: The highest end of a buffer; null when infeasible.
        lower_bound_bytes: No addresses lead to less.
        max_live_bytes: The most bytes in use at one time.
        gap_percent: (height - lower bound) / height.
        fragmentation_percent: (height - max live) / height.
    """

    capacity_bytes: Count | None
    fits: bool | None
    height_bytes: Count | None
    lower_bound_bytes: Count
    max_live_bytes: Count
    gap_percent: Percentage | None
    fragmentation_percent: Percentage | None
    status: Literal["optimal", "feasible", "infeasible"]
    proof: str
    method: str
    states: Count
    interrupted: bool


class AddressRow(Section, frozen=True, kw_only=True):
    """A buffer and its address.

    Attributes:
        upper: The first moment after the lifetime.
    """

    id: str
    offset_bytes: Count
    size_bytes: Count
    lower: int
    upper: int


class AllocateReport(Section, frozen=True, kw_only=True):
    """What memsched allocate found.

    Sizes are bytes.

    Attributes:
        output: Null when there are no addresses to write.
        buffers: In the file's order; null when there are no addresses, or more than 200,000 of them.
    """

    schema_version: Literal[2]
    memsched_version: str
    command: Literal["allocate"]
    input: BuffersSection
    output: AddressesSection | None
    result: PackingSection
    seed: Count
    workers: Positive
    seconds: Amount
    buffers: tuple[AddressRow, ...] | None
