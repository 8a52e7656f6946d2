"""What a report says of rewrites: layers in pieces, values computed again, layers that stay on chip."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from memsched.report.values.base import Amount, Count, Positive, Section, Span
from memsched.report.values.shared import FiguresSection

__all__ = [
    "AlgebraSection",
    "ChainRow",
    "ChainSection",
    "CopyRow",
    "FlopsSection",
    "FrontierRow",
    "GroupRow",
    "IdentityRow",
    "OnChipBufferRow",
    "OnChipGroupRow",
    "OnChipSection",
    "PiecesSection",
    "RefusalRow",
    "RematPointRow",
    "RematSection",
    "SecondsSection",
    "TilingForm",
    "TilingPointRow",
    "TilingSection",
    "TrafficSection",
]

TilingForm = Literal["pieces", "loop", "shared"]
"""Each piece is ops of its own; one loop's body computes all of them; or an op for each piece shares one body."""


class GroupRow(Section, frozen=True, kw_only=True):
    """Layers that the model written computes in pieces.

    Attributes:
        ops: The ops that each piece goes through, in order.
        axes: The axes of the group's outputs that are cut, one or two.
        axis_names: The same axes in words: batch, channels, rows, columns, or "axis N" where the outputs are no images.
        pieces: Into how many pieces, per axis; their product is the number of pieces.
        kept_halos: Tensors whose part that the next piece needs as well is kept for it; all others are computed again.
        padded_ops: Ops whose pieces have an op before them that pads, as the format cannot state the pads of a piece.
        extra_macs: Multiply-accumulates beside those of the same ops as a whole.
        peak_bytes: The largest footprint from the first of the group's steps to the last.
        form: "pieces" are ops of their own each; in a "loop" one body computes all; ops of each have one "shared" body.
    """

    ops: Annotated[tuple[str, ...], Meta(min_length=1)]
    axes: tuple[Count, ...]
    axis_names: tuple[str, ...]
    pieces: tuple[Positive, ...]
    kept_halos: tuple[str, ...]
    padded_ops: tuple[str, ...]
    extra_macs: int
    peak_bytes: Count
    form: TilingForm = "pieces"


class TilingPointRow(Section, frozen=True, kw_only=True):
    """A peak that pieces lead to, and their work.

    Attributes:
        peak_bytes: In the order in which the pieces are made.
        extra_macs_percent: Of the given model's multiply-accumulates.
        whole_arena_bytes_estimate: For TensorFlow Lite Micro, on 32 bit: this peak and what it keeps beside it, which
            grows with the number of pieces. Absent for other targets, and where the time was up.
    """

    peak_bytes: Count
    extra_macs_percent: float
    whole_arena_bytes_estimate: Count | UnsetType = UNSET


class RefusalRow(Section, frozen=True, kw_only=True):
    """An op that cannot be computed in pieces, at which groups end.

    Attributes:
        op: Its name.
        type: Its operator.
        reason: Why not.
        form: What it cannot be: "pieces", in a "loop", or in a "shared" body.
        found: It can be, and was found to help, but no file of that could be written.
    """

    op: str
    type: str
    reason: str
    form: TilingForm = "pieces"
    found: bool = False


class TilingSection(Section, frozen=True, kw_only=True):
    """Layers computed piece by piece.

    Ops and tensors have their names in the model as given. The pieces themselves are steps with an origin and a region.

    Attributes:
        applied: The model written has groups in pieces.
        max_extra_macs_percent: What was permitted, in percent of the given model's multiply-accumulates.
        extra_macs: Multiply-accumulates that the model written has beside the given model's.
        extra_macs_percent: The same, in percent of the given model's.
        untiled: The least that was found without pieces, by order and in-place writes alone.
        groups: What the model written computes in pieces, in order of execution.
        frontier: What the search found possible: falling peaks with rising work. Peaks are in the order in which the
            pieces are made; orders found for the model written may need less.
        refusals: Ops that cannot be computed in pieces, at which groups end.
        judged: Ways of cutting that were tried.
        exhausted: The search finished before the time was up. It looks near what helps, so this is no proof that
            nothing better exists.
        lower_bound_bytes: No pieces or loops of these layers, made once, require less, whatever their order, extra work
            and repetitions; null where some were made of others, or the runtime optimises what it executes.
        short: It was for pieces that cost nothing, and of little work: higher levels of ``-O`` search longer.
    """

    applied: bool
    max_extra_macs_percent: Amount
    extra_macs: int
    extra_macs_percent: float
    untiled: FiguresSection
    groups: tuple[GroupRow, ...]
    refusals: tuple[RefusalRow, ...]
    judged: Count
    exhausted: bool
    frontier: tuple[TilingPointRow, ...]
    lower_bound_bytes: Count | None = None
    short: bool = False


class CopyRow(Section, frozen=True, kw_only=True):
    """An op that is executed several times.

    Attributes:
        op: Its name.
        type: Its operator.
        extra_macs: Multiply-accumulates of the repetitions.
        extra_bytes_moved: Bytes that the repetitions read and write.
        times: How often beside the first time.
    """

    op: str
    type: str
    times: Positive
    extra_macs: Count
    extra_bytes_moved: Count


class RematPointRow(Section, frozen=True, kw_only=True):
    """A peak that repetitions lead to, and their work.

    Attributes:
        peak_bytes: By liveness.
        extra_macs_percent: Of the model's multiply-accumulates.
        extra_work_percent: Of its multiply-accumulates and bytes moved, each byte counted as one.
    """

    peak_bytes: Count
    extra_macs_percent: Amount
    extra_work_percent: Amount


class ChainRow(Section, frozen=True, kw_only=True):
    """A chain of operators in whose place the model written has one.

    Attributes:
        ops: Their names in the model as given, in its order.
        type: The operator.
        output: The tensor that the last one made, and this one makes.
    """

    ops: Annotated[tuple[str, ...], Meta(min_length=1)]
    type: str
    output: str


class ChainSection(Section, frozen=True, kw_only=True):
    """Activations that were exported as chains of operators, in one operator each.

    Attributes:
        chains: The chains of the model written.
        applied: The model written has such operators.
        given_bytes: The least that was found to be required without them, by order and in-place writes alone.
        bytes: The same with them.
    """

    applied: bool
    given_bytes: Count
    bytes: Count
    chains: tuple[ChainRow, ...]


class IdentityRow(Section, frozen=True, kw_only=True):
    """An operator that is computed otherwise, with the same values.

    Attributes:
        kind: merge: the output of an equal operator is read instead. shift: pads, crops and subsamplings in a row are
            one crop and one pad. cross: an operator of one element and one that moves elements changed places. late:
            what makes many bytes of few is executed for one reader by itself. split: what reads a concatenation is
            computed for each of its inputs, and concatenated. sum: what sums over a concatenation is computed for each
            of its inputs, and added. band: rows of the output are computed as images of a batch, for which the runtime
            keeps one table. tree: many inputs are concatenated a few at a time, which its delegate takes.
            shape: the shape of a reshape is stated, which was computed from others. kernel: the runtime's delegate
            leaves the operator to a built-in kernel, which rounds in another way.
        op: The operator; it may itself be what an identity before this one made.
        over: The operator before it that takes part; empty for the last four.
        count: Bands, or a tree's inputs; null for all others.
    """

    kind: Literal["merge", "shift", "cross", "late", "split", "sum", "band", "tree", "shape", "kernel"]
    op: str
    over: str
    count: Count | None = None


class AlgebraSection(Section, frozen=True, kw_only=True):
    """Operators computed otherwise, with the same values, where less waits in memory then.

    Attributes:
        applied: The model written has such operators.
        exact: No number is rounded otherwise: nothing is added up in another order.
        given_bytes: The least that was found to be required before, by order, in-place writes and what came before.
        bytes: The same with them.
        judged: Graphs whose best order was looked for.
        exhausted: The search ended before its time was up.
        identities: What was done, in turn.
    """

    applied: bool
    exact: bool
    given_bytes: Count
    bytes: Count
    judged: Count
    exhausted: bool
    identities: tuple[IdentityRow, ...]


class RematSection(Section, frozen=True, kw_only=True):
    """Values computed again instead of kept.

    Ops have the names of the model in pieces where there are some, else of the model as given. The repetitions are
    steps with an origin. Where pieces and repetitions took turns, figures and copies are those of all turns.

    Attributes:
        applied: The model written executes ops several times.
        max_extra_work_percent: What was permitted, in percent of the work of executing every op once; what pieces had
            already cost is taken off.
        extra_macs: Multiply-accumulates of the repetitions.
        extra_macs_percent: The same, in percent of the given model's.
        extra_bytes_moved: Bytes that the repetitions read and write, constants left out.
        extra_work_percent: Multiply-accumulates and bytes moved together, each byte counted as one, in percent of the
            same for every op once.
        status: optimal: no order and no repetitions have this peak with less extra work. least_for_groups: none that
            execute certain groups of ops as one do.
            feasible: less extra work may do.
        extra_work_bound_percent: Less extra work than this is proven impossible at this peak, for what the proof names;
            0 where nothing is proven.
        proof: What the bound on extra work holds for; empty where nothing is proven.
        lower_bound_bytes: Neither an order nor repetitions bring the peak below this; pieces may.
        without: The least that was found without repetitions; with the pieces where there are some.
        copies: The ops that are executed several times, in order of execution.
        frontier: What the search found possible: falling peaks with rising work; the first without repetitions.
        refusals: Why models with repetitions that were found could not be written; others were tried instead.
        judged: Sequences that were tried.
        finished: The search ended before the time was up.
        settled: Over all orders and repetitions nothing better exists within the permitted work: a complete search
            ended, or a bound is reached.
    """

    applied: bool
    max_extra_work_percent: Amount
    extra_macs: Count
    extra_macs_percent: Amount
    extra_bytes_moved: Count
    extra_work_percent: Amount
    status: Literal["optimal", "least_for_groups", "feasible"]
    extra_work_bound_percent: Amount
    proof: str
    lower_bound_bytes: Count
    without: FiguresSection
    copies: tuple[CopyRow, ...]
    frontier: tuple[RematPointRow, ...]
    refusals: tuple[str, ...]
    judged: Count
    finished: bool
    settled: bool


class FrontierRow(Section, frozen=True, kw_only=True):
    """A peak with the least extra work known for it.

    Attributes:
        peak_bytes: By liveness; for TensorFlow Lite Micro its whole arena, the peak with what it keeps beside.
        extra_macs_percent: Of the model's multiply-accumulates.
        extra_work_percent: Of the model's multiply-accumulates and bytes moved, each byte counted as one.
        how: By the order alone, by layers in pieces, by values computed again, or by both together.
    """

    peak_bytes: Count
    extra_macs_percent: float
    extra_work_percent: Amount
    how: Literal["order", "tile", "remat", "both"]


class PiecesSection(Section, frozen=True, kw_only=True):
    """Into how many pieces a group is cut along each axis.

    Attributes:
        rows: Along the rows.
        columns: Along the columns.
        channels: Along the channels.
    """

    rows: Positive
    columns: Positive
    channels: Positive


class OnChipBufferRow(Section, frozen=True, kw_only=True):
    """A buffer in on-chip memory; a piece holds the product of one range per axis of it.

    Attributes:
        name: The tensor, or the weights, in it.
        first_step: The first step in which it is in use.
        last_step: The last one.
        columns: As rows.
        channels: As rows.
        kind: What lies in it.
        address: In bytes.
        size: In bytes.
        rows: Per piece its first row and the one after its last; an axis that is not cut has one range for all pieces.
        rows_kept: Rows that the piece above has of it stay on chip, and only the others are loaded.
    """

    name: str
    kind: str
    address: Count
    size: Count
    first_step: Count
    last_step: Count
    rows: tuple[Span | None, ...]
    columns: tuple[Span | None, ...]
    channels: tuple[Span | None, ...]
    rows_kept: bool = False


class OnChipGroupRow(Section, frozen=True, kw_only=True):
    """Layers whose data stays on chip from the first to the last.

    Attributes:
        ops: In order of execution.
        pieces: Into how many pieces it is cut.
        used_bytes: On-chip memory in use.
        read_bytes: From DRAM.
        written_bytes: To DRAM.
        flops: Floating-point operations, those that pieces repeat included.
        time_seconds: Transfers or computation, whichever takes longer.
        buffers: Where everything lies.
        weights: How the weights are kept.
        addends: Parts of the first layer's input channels that are added up one after the other.
        whole_layers: Layers before those whose channels are cut.
        reason: Why it is one layer alone; null where it is a group.
    """

    ops: tuple[str, ...]
    pieces: PiecesSection
    weights: str
    used_bytes: Count
    read_bytes: Count
    written_bytes: Count
    flops: Count
    time_seconds: Amount
    reason: str | None
    buffers: tuple[OnChipBufferRow, ...]
    addends: Positive = 1
    whole_layers: Count = 0


class TrafficSection(Section, frozen=True, kw_only=True):
    """Bytes to and from DRAM.

    Attributes:
        before_bytes: Every layer by itself.
        after_bytes: In the groups.
        each_operand_once_bytes: Every layer by itself if nothing had to be read twice.
    """

    before_bytes: Count
    after_bytes: Count
    each_operand_once_bytes: Count


class FlopsSection(Section, frozen=True, kw_only=True):
    """Floating-point operations, every layer by itself and in the groups.

    Attributes:
        before: Every layer by itself.
        after: In the groups.
    """

    before: Count
    after: Count


class SecondsSection(Section, frozen=True, kw_only=True):
    """Seconds, every layer by itself and in the groups.

    Attributes:
        before: Every layer by itself.
        after: In the groups.
    """

    before: Amount
    after: Amount


class OnChipSection(Section, frozen=True, kw_only=True):
    """Groups of layers whose data stays on chip, and the DRAM traffic and time that they save.

    Attributes:
        on_chip_bytes: The accelerator's memory.
        method: What found the groups.
        groups: In order of execution.
        traffic: To and from DRAM.
        flops: Floating-point operations.
        time_seconds: Of one execution.
    """

    on_chip_bytes: Positive
    method: Literal["layers", "flowchart", "greedy", "optimal"]
    groups: tuple[OnChipGroupRow, ...]
    traffic: TrafficSection
    flops: FlopsSection
    time_seconds: SecondsSection
