"""Loops over blocks of dimensions that stay open, and what they save at which size."""

from __future__ import annotations

from memsched.report.values.base import Amount, Count, Positive, Section

__all__ = [
    "BlockKernelRow",
    "BlockLoopRow",
    "BlocksSection",
    "CurveRow",
    "CurveSection",
    "GrowthRow",
    "OrderPeakRow",
    "OrderSpanRow",
    "RangeOrderRow",
    "RangeOrdersSection",
    "RangeRow",
    "SizeRow",
]


class RangeRow(Section, frozen=True, kw_only=True):
    """A dimension that stays open.

    Attributes:
        dimension: Its name, or input[axis] where it has none.
        least: The least length.
        most: null where nothing was stated: any length.
        multiple: Lengths are multiples of it.
    """

    dimension: str
    least: Count
    most: Positive | None
    multiple: Positive


class BlockLoopRow(Section, frozen=True, kw_only=True):
    """A loop.

    Attributes:
        name: Of its node.
        dimension: What its blocks are cut from.
        ops: The ops of the model as given that are computed in it.
    """

    name: str
    dimension: str
    ops: tuple[str, ...]


class BlockKernelRow(Section, frozen=True, kw_only=True):
    """Attention by an operator of the runtime's.

    Attributes:
        name: What its nodes begin with.
        ops: The ops of the model as given that it stands for.
    """

    name: str
    ops: tuple[str, ...]


class SizeRow(Section, frozen=True, kw_only=True):
    """What both files took at a size, each in a process of its own, in a session without options.

    Attributes:
        sizes: The lengths of the open dimensions.
        given_process_bytes: The process at most, above what it had before the session was opened, the runtime's library
            included: the model as given.
        process_bytes: The same for the one written; null where that is the one given.
        given_seconds: Of a run, not the first.
        seconds: The same for the one written.
        time_ratio: The median of its time to that of the model as given, run in turns.
        settled: Whether both processes stopped growing; otherwise time ended their runs.
    """

    sizes: dict[str, Count]
    given_process_bytes: Count
    process_bytes: Count | None
    given_seconds: Amount
    seconds: Amount | None
    time_ratio: Amount | None
    settled: bool = True


class RangeOrderRow(Section, frozen=True, kw_only=True):
    """An order that was considered.

    Attributes:
        found_at: The size at which it was found; null for the order of the file, with its loops where there are some.
    """

    found_at: dict[str, Count] | None


class OrderPeakRow(Section, frozen=True, kw_only=True):
    """What a session without options requests at a size, in orders that were considered.

    Attributes:
        sizes: The lengths of the open dimensions.
        given_bytes: In the order of the file.
        bytes: In the order that was chosen.
        least_bytes: In the best of them.
    """

    sizes: dict[str, Count]
    given_bytes: Count
    bytes: Count
    least_bytes: Count


class OrderSpanRow(Section, frozen=True, kw_only=True):
    """Sizes over which one order needs least, as far as they were judged.

    Attributes:
        first: The least of the sizes.
        last: The largest of them.
        order: Its index in ``orders``.
        loss_percent: What the order that was chosen takes more there, at most.
    """

    order: Count
    first: dict[str, Count]
    last: dict[str, Count]
    loss_percent: Amount


class RangeOrdersSection(Section, frozen=True, kw_only=True):
    """The order for a range: the one whose largest excess over the best at a size is least, and never worse than given.

    Attributes:
        orders: Those that were considered; the first is the order of the file.
        chosen: The index of the one that is written.
        least: At the least size.
        typical: In the geometric middle of the range.
        worst: Where the order that was chosen requests most.
        spans: Per line through the range: all dimensions rising together, then each beside typical lengths of the
            others; from which size to which each order is best.
        judged: All sizes that were looked at, rising: the peak as a function of the size.
    """

    orders: tuple[RangeOrderRow, ...]
    chosen: Count
    least: OrderPeakRow
    typical: OrderPeakRow
    worst: OrderPeakRow
    spans: tuple[tuple[OrderSpanRow, ...], ...]
    judged: tuple[OrderPeakRow, ...]


class BlocksSection(Section, frozen=True, kw_only=True):
    """What was done for every size in the ranges of ``--dim``.

    Attributes:
        ranges: The dimensions that stay open.
        loops: The loops of the model written.
        way: Which of the ways that were tried is written; null where the model as given is.
        kernels: What is computed by operators of the runtime alone; floats differ by up to 1e-5 then.
        measured: The largest size that was measured, whose process is what the model requires; then a small one.
        compared: The sizes at which outputs were compared.
        orders: The order for the range; null where none but the file's was permitted, or sizes within loops are known
            at run time alone.
        ended: Whether a limit or the user ended the trials before all files were tried.
    """

    ranges: tuple[RangeRow, ...]
    way: str | None
    loops: tuple[BlockLoopRow, ...]
    kernels: tuple[BlockKernelRow, ...]
    measured: tuple[SizeRow, ...]
    compared: tuple[dict[str, Count], ...]
    orders: RangeOrdersSection | None = None
    ended: bool = False


class CurveRow(Section, frozen=True, kw_only=True):
    """What a model takes at a size.

    Attributes:
        sizes: The lengths of the open dimensions.
        requested_bytes: What a session without options requests for activations, by its rules.
        process_bytes: What its process takes, the runtime's library included, by those that were run; null where none
            was.
        measured_bytes: The same where it was run; null elsewhere.
        settled: Whether it stopped growing where it was run; otherwise time ended the runs.
    """

    sizes: dict[str, Count]
    requested_bytes: Count
    process_bytes: Count | None
    measured_bytes: Count | None
    settled: bool = True


class GrowthRow(Section, frozen=True, kw_only=True):
    """A tensor that grows.

    Attributes:
        tensor: Its name.
        expression: Its bytes as a function of the open dimensions.
        size_bytes: At the largest size.
    """

    tensor: str
    expression: str
    size_bytes: Count


class CurveSection(Section, frozen=True, kw_only=True):
    """Memory against size (memsched analyze --dim NAME=64..8192).

    Attributes:
        rows: Rising; the size of this report's other figures is among them.
        largest_sizes: The largest size that fits into the budget, or the largest of all without one; null where not
            even the least fits.
        growth: The tensors that take most at the largest size.
    """

    rows: tuple[CurveRow, ...]
    largest_sizes: dict[str, Count] | None
    growth: tuple[GrowthRow, ...]
