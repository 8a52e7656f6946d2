"""The two graphs of a report, the original and the one written: their orders, steps, and addresses."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from memsched.report.values.base import Count, Positive, Section, Span, Status
from memsched.report.values.border import InterfaceSection
from memsched.report.values.shared import FiguresSection

__all__ = [
    "AllocationSection",
    "BufferRow",
    "FaultRow",
    "OrdersSection",
    "OriginalSection",
    "OriginalStepRow",
    "StepRow",
    "WorkspaceRow",
    "WrittenScheduleSection",
    "WrittenSection",
]


class FaultRow(Section, frozen=True, kw_only=True):
    """A tensor whose bytes are live at the first step of the peak.

    Attributes:
        tensor: Its name.
        size_bytes: What it holds.
        first_step: The first step in which its bytes are in use.
        last_step: The last one.
        producer: null for a model's input.
    """

    tensor: str
    size_bytes: Count
    producer: str | None
    first_step: Count
    last_step: Count


class AllocationSection(Section, frozen=True, kw_only=True):
    """How the addresses were found.

    Attributes:
        method: What found the addresses.
        status: optimal: no addresses for this order take less.
        lower_bound_bytes: No addresses for this order take less than this.
        alignment_bytes: Every offset is a multiple of it.
    """

    method: str
    status: Status
    lower_bound_bytes: Count
    alignment_bytes: Positive


class StepRow(Section, frozen=True, kw_only=True):
    """One op of the main graph in order of execution.

    Attributes:
        index: From 0, in order of execution.
        op: Its name.
        type: Its operator.
        workspace_bytes: What it needs beside its tensors.
        origin: The op of the given model that this one computes a part of, or again; null when it is an op of the given
            model, or one that a rewrite added (slices, pads, concatenations).
        region: The part of the origin's output that this op computes: per axis its first element and the one after its
            last; null for all of it.
        live_bytes: Bytes of the tensors live in this step, what is written in place counted once.
        footprint_bytes: live_bytes + workspace_bytes.
        live: Tensors that hold bytes of their own in this step (a view holds none; both sides of an in-place write are
            named). With more than 2,000,000 names over all steps only the first step of the peak has its list, every
            other has null.
        reads_from: The steps whose results it reads, those without bytes of their own included, in rising order.
    """

    index: Count
    op: str
    type: str
    origin: str | None
    region: tuple[Span, ...] | None
    live_bytes: Count
    workspace_bytes: Count
    footprint_bytes: Count
    live: tuple[str, ...] | None
    reads_from: tuple[Count, ...]


class BufferRow(Section, frozen=True, kw_only=True):
    """One tensor with an address.

    Views and in-place chains have one offset; slices lie inside their source, pieces inside their concatenation.

    Attributes:
        tensor: Its name.
        offset_bytes: Its address.
        size_bytes: What it holds.
        first_step: The first step in which its bytes are in use.
        last_step: The last one.
        pool: The memory that it lies in, from whose beginning its offset counts; only for targets with pools.
        shape: Its dimensions; null where they are unknown.
        dtype: The type of its elements in the words of numpy, or the format's own.
        in_place_of: The dying tensor whose bytes this one takes.
        view_of: The tensor in whose bytes this one lies.
        consists_of: The tensors that lie inside this one, a concatenation that is never copied; else empty.
        produced_in: The step that computes it; null for inputs and variables.
        read_in: The steps that read it, views of it not counted, in rising order.
    """

    tensor: str
    offset_bytes: Count
    size_bytes: Count
    first_step: Count
    last_step: Count
    in_place_of: str | None
    view_of: str | None
    consists_of: tuple[str, ...]
    produced_in: Count | None
    read_in: tuple[Count, ...]
    shape: tuple[Count, ...] | None
    dtype: str
    pool: str | UnsetType = UNSET


class WorkspaceRow(Section, frozen=True, kw_only=True):
    """The address of what an op needs beside its tensors, during its step only.

    Attributes:
        op: Its name.
        offset_bytes: Its address.
        size_bytes: What the op needs.
        step: During which it is in use.
        pool: The memory that it lies in, from whose beginning its offset counts; only for targets with pools.
    """

    op: str
    offset_bytes: Count
    size_bytes: Count
    step: Count
    pool: str | UnsetType = UNSET


class OrdersSection(Section, frozen=True, kw_only=True):
    """Other orders of the original, under the same memory model and the same allocator.

    Attributes:
        reverse_post_order: Depth first from the outputs.
        runtime_default_order: The order that the runtime takes when nobody tells it.
    """

    reverse_post_order: FiguresSection
    runtime_default_order: FiguresSection


class OriginalStepRow(Section, frozen=True, kw_only=True):
    """One op of the original, in the order of its file.

    Attributes:
        op: Its name.
        footprint_bytes: What it needs while it is executed; the largest is the peak.
    """

    op: str
    footprint_bytes: Count


class OriginalSection(Section, frozen=True, kw_only=True):
    """The original in the order of its file.

    Attributes:
        schedule: Peak and arena.
        orders: The same of other orders.
        steps: The main graph's ops; empty if the report has no rows.
        buffers: One entry per tensor with an address, as in ``written``; its steps are those of ``original.steps``.
            Empty if the report has no rows, and for models whose rows would take too much time.
    """

    schedule: FiguresSection
    orders: OrdersSection
    steps: tuple[OriginalStepRow, ...]
    buffers: tuple[BufferRow, ...]


class WrittenScheduleSection(Section, frozen=True, kw_only=True):
    """The order of the main graph; control flow's bodies count as the workspace of the ops that execute them.

    Attributes:
        peak_bytes: The largest footprint of any step.
        arena_bytes: What has to be reserved: the largest offset + size of any buffer.
        reduction_percent: Of the peak, against ``original.schedule``.
        method: What found the order.
    """

    peak_bytes: Count
    arena_bytes: Count
    reduction_percent: float
    method: str


class WrittenSection(Section, frozen=True, kw_only=True):
    """The model written; the original in its own order if none was.

    Attributes:
        schedule: The order that was found.
        allocation: How the addresses were found.
        at_fault: The tensors whose bytes are live at the first step of the peak, largest first.
        unknown_sizes: Tensors of the main graph whose size nothing can state; they count nothing.
        operators: Operator types of all graphs and how often they occur.
        interface: Inputs and outputs.
        steps: The main graph's ops in order of execution.
        buffers: One entry per tensor with an address. Views and in-place chains have one offset; slices lie inside
            their source, pieces inside their concatenation.
        workspaces: Addresses of what ops need beside their tensors, during their step only.
    """

    schedule: WrittenScheduleSection
    allocation: AllocationSection
    at_fault: tuple[FaultRow, ...]
    unknown_sizes: tuple[str, ...]
    operators: dict[str, Positive]
    interface: InterfaceSection
    steps: tuple[StepRow, ...]
    buffers: tuple[BufferRow, ...]
    workspaces: tuple[WorkspaceRow, ...]
