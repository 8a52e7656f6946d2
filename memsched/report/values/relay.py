"""The report of ``memsched relay``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from memsched.report.values.base import Amount, Count, Positive, Section, Sha256
from memsched.report.values.border import BorderSection
from memsched.report.values.ladder import LadderRow
from memsched.report.values.runtime import ByPointer
from memsched.report.values.shared import ModelSection, VerificationSection
from memsched.report.values.verdict import BudgetSection

__all__ = [
    "HandOverRow",
    "RelayArenaSection",
    "RelayReport",
    "RelayRequest",
    "RelayResult",
    "RelayStageRow",
    "RelayTarget",
    "RelayTensorRow",
    "RelayVerification",
    "RunnerSection",
]


class RelayTarget(Section, frozen=True, kw_only=True):
    """The runtime and processor for which all figures hold."""

    name: str
    description: str
    pointer_bits: Literal[32, 64]


class RelayRequest(Section, frozen=True, kw_only=True):
    """What was requested.

    Attributes:
        stages: As many at most; null for any number.
        max_extra_macs_percent: That each stage may do on top, in percent of its own.
    """

    stages: Positive | None
    allow: tuple[str, ...]
    max_extra_macs_percent: Amount


class RelayResult(Section, frozen=True, kw_only=True):
    """What the caller must provide.

    Attributes:
        block_bytes: One array, aligned to 16 bytes, for the arena of each stage in turn and for what is handed over.
        block_bytes_by_pointer: The same by bits of a pointer.
        largest_arena_bytes: Of the stage that has the largest.
        largest_hand_over_bytes: The most that lies behind an arena while a stage is executed.
        given_bytes: The arena of the file as given.
        single_file_bytes: The least arena of one file for the whole model that was met on the way.
        orders_tried: Orders in which the model was cut.
        least_bytes: No stages in these orders, as many as requested at most, need less, in whatever order and at
            whatever addresses each is executed; null where layers may be rewritten, of which nothing is proven.
        estimated_bound_bytes: About what stages in these orders need at least, with all that is permitted: nothing is
            proven by it.
        finished: The search ended by itself in every order, not by a limit or the user.
        stages_looked_at: Stages whose files were made.
        extra_macs: Multiply-accumulates that the stages do beside those of the model as given.
    """

    block_bytes: Count
    block_bytes_by_pointer: ByPointer
    largest_arena_bytes: Count
    largest_hand_over_bytes: Count
    given_bytes: Count
    single_file_bytes: Count
    orders_tried: Positive
    least_bytes: Count | None
    estimated_bound_bytes: Count
    finished: bool
    stages_looked_at: Count
    extra_macs: int


class RelayArenaSection(Section, frozen=True, kw_only=True):
    """A stage's arena: it holds what is kept, and the larger of the head and of what planning takes.

    Attributes:
        bytes: All of it, on the target's processor.
        head_bytes: Activations and the kernels' own buffers.
        persistent_bytes: What stays.
        planning_bytes: What planning takes for a moment where the head lies later.
        measured_head_bytes: In TensorFlow Lite Micro itself; null where it was not run.
        as_predicted: Whether head and what stays are, to the byte, what they should be in the build that was run, which
            has pointers of 64 bits and keeps records of its own; null where it was not run.
    """

    bytes: Count
    head_bytes: Count
    persistent_bytes: ByPointer
    planning_bytes: ByPointer
    measured_head_bytes: Count | None = None
    as_predicted: bool | None = None


class RelayStageRow(Section, frozen=True, kw_only=True):
    """One stage, a file of its own.

    Attributes:
        ops: Names in the model as given.
        extra_macs: Multiply-accumulates beside those of its ops.
        hand_over_bytes: What lies behind its arena at the block's end until it has read its inputs.
        reads: Its inputs, in the file's order.
        makes: Its outputs, in the file's order.
    """

    index: Count
    path: str
    sha256: Sha256
    file_bytes: Count
    ops: tuple[str, ...]
    macs: Count
    extra_macs: int
    arena: RelayArenaSection
    hand_over_bytes: Count
    reads: tuple[str, ...]
    makes: tuple[str, ...]


class HandOverRow(Section, frozen=True, kw_only=True):
    """A tensor at the block's end.

    Attributes:
        from_end_bytes: Where it begins, before the block's end.
        made_in_stage: Null: an input of the model.
        last_read_in_stage: Null: an output of the model, which stays there.
    """

    tensor: str
    size_bytes: Count
    from_end_bytes: Count
    made_in_stage: Count | None
    last_read_in_stage: Count | None


class RelayTensorRow(Section, frozen=True, kw_only=True):
    """An input or output of the model."""

    tensor: str
    size_bytes: Count


class RunnerSection(Section, frozen=True, kw_only=True):
    """The C++ that executes the stages.

    Attributes:
        name: Of the class, in the namespace memsched.
        inputs: Of the model, in its order.
        outputs: Of the model, in its order.
        resolver_calls: What its MicroMutableOpResolver is told of; their number is its size.
        custom_operators: Custom operators whose registration the caller brings, with a resolver of its own.
    """

    header: str
    source: str
    name: str
    inputs: tuple[RelayTensorRow, ...]
    outputs: tuple[RelayTensorRow, ...]
    resolver_calls: tuple[str, ...]
    custom_operators: tuple[str, ...]


class RelayVerification(VerificationSection, frozen=True, kw_only=True):
    """What running the stages one after the other, and the whole model, showed.

    Attributes:
        twice_equal: Whether each input gives the same outputs a second time.
    """

    twice_equal: bool | None = None


class RelayReport(Section, frozen=True, kw_only=True):
    """What memsched relay found.

    Sizes are bytes, times seconds. Stages are counted from 0.

    Attributes:
        io: Inputs and outputs in another form, as for one file; null where that was not permitted. Sizes in ``runner``
            and what the first stages read and the last make are those of the model with them.
        hand_overs: What lies at the block's end, and when.
        verification: null when it was not asked for or no runtime is installed; the notes then say which.
        ladder: What memsched optimize tried to meet the budget, one file first; empty for memsched relay.
    """

    schema_version: Literal[2]
    memsched_version: str
    command: Literal["relay"]
    model: ModelSection
    target: RelayTarget
    request: RelayRequest
    result: RelayResult
    budget: BudgetSection | None
    stages: Annotated[tuple[RelayStageRow, ...], Meta(min_length=1)]
    hand_overs: tuple[HandOverRow, ...]
    runner: RunnerSection
    verification: RelayVerification | None
    notes: tuple[str, ...]
    seed: int
    seconds: Amount
    io: BorderSection | None = None
    ladder: tuple[LadderRow, ...] = ()
