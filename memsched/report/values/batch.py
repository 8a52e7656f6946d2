"""The summary of ``memsched batch``."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Positive, Section, Sha256, Status

__all__ = [
    "BatchAnswer",
    "BatchFaultRow",
    "BatchFigures",
    "BatchOptionsSection",
    "BatchReport",
    "BatchRow",
    "BatchTotals",
    "ExitCode",
    "SavedModel",
]

ExitCode = Literal[0, 1, 3, 130]


class BatchTotals(Section, frozen=True, kw_only=True):
    """Counts and sums over all models.

    Attributes:
        file_peak_bytes: The sum over the models that have a result.
        smaller: Models whose peak is below that of their file's order.
    """

    models: Count
    done: Count
    budget_missed: Count
    failed: Count
    not_run: Count
    file_peak_bytes: Count
    peak_bytes: Count
    file_required_bytes: Count
    required_bytes: Count
    smaller: Count
    optimal: Count


class BatchFaultRow(Section, frozen=True, kw_only=True):
    """A tensor that is live at the peak."""

    tensor: str
    size_bytes: Count


class BatchFigures(Section, frozen=True, kw_only=True):
    """What the summary says of a model, from its report.

    Attributes:
        unchanged: The output has the input's bytes.
        interrupted: --memory-limit ended the search: this is the best found so far.
        file_required_bytes: What the runtime allocates for the model as given: the whole arena, or a session.
        required_bytes: For the model written; with a budget, what it is compared with.
        outputs_equal: Bit for bit; null where the model was not run.
        outputs: The same in words, as the summary and the page of the model have them; within the tolerance of
            rewritten layers is as good as bit-equal.
        at_fault: The largest tensors at the peak.
    """

    format: Literal["onnx", "tflite"]
    sha256: Sha256
    ops: Count
    target: str
    output_sha256: Sha256
    unchanged: bool
    file_peak_bytes: Count
    file_arena_bytes: Count
    peak_bytes: Count
    arena_bytes: Count
    lower_bound_bytes: Count
    status: Status
    interrupted: bool
    reduction_percent: float
    extra_macs_percent: Amount
    file_required_bytes: Count
    required_bytes: Count
    budget_met: bool | None
    outputs_equal: bool | None
    outputs: str
    at_fault: tuple[BatchFaultRow, ...]


class SavedModel(Section, frozen=True, kw_only=True):
    """What was found for a model.

    Attributes:
        output: Below the folder of the summary, as the report is; null if neither was written, for a missed budget.
    """

    output: str | None
    report: str | None
    figures: BatchFigures


class BatchAnswer(Section, frozen=True, kw_only=True):
    """What the process of one model sends to its parent.

    Attributes:
        exit_code: That of memsched optimize with these options.
        error: One line; null where there is a model.
    """

    exit_code: int
    error: str | None
    saved: SavedModel | None


class BatchRow(Section, frozen=True, kw_only=True):
    """What became of one model.

    Attributes:
        name: Of no other model of the batch; the outputs' names begin with it.
        exit_code: Of memsched optimize on this model; null where it did not end.
        output: Below the folder of the summary, as the report is; null if neither was written.
    """

    name: str
    path: str
    status: Literal["done", "budget_missed", "failed", "not_run"]
    exit_code: int | None
    error: str | None
    attempts: Count
    seconds: Amount
    output: str | None
    report: str | None
    result: BatchFigures | None


class BatchOptionsSection(Section, frozen=True, kw_only=True):
    """What each model of a batch was optimised with, as memsched.optimize takes it.

    Attributes:
        memory_limit: Bytes that the process of each model may hold; `optimize` is not told it.
    """

    target: str | None
    input_shapes: dict[str, tuple[int, ...]]
    dims: dict[str, int]
    budget: int | str | None
    budget_for: Literal["arena", "activations"] | None = None
    keep_best: bool = False
    max_extra_macs: Amount
    max_slowdown: Amount | None = None
    may_change: tuple[str, ...] = ()
    free_pieces: bool = False
    time_limit: Amount | None
    effort: Amount | None
    solver: str
    partitions: int | Literal["auto"]
    order_guarantee: Literal["none", "session", "pins", "default"] | None
    control_dependencies: bool
    tflm_plan: bool | None
    verify: bool
    seed: int
    in_place: bool
    tile: bool
    remat: bool
    algebra: bool = False
    reassociate: bool = False
    fuse: bool = False
    branch: bool = False
    opening: bool = False
    io: bool = False
    memory_limit: Positive | None


class BatchReport(Section, frozen=True, kw_only=True):
    """The summary of memsched batch, batch.json.

    Sizes are bytes, times seconds.

    Attributes:
        options: What each model was optimised with, as memsched.optimize takes it.
        exit_code: 130 interrupted, else 1 some model failed, else 3 some budget was missed, else 0.
        models: In the order in which they were given or found.
    """

    schema_version: Literal[2]
    memsched_version: str
    command: Literal["batch"]
    options: BatchOptionsSection
    exit_code: ExitCode
    interrupted: bool
    seconds: Amount
    totals: BatchTotals
    models: tuple[BatchRow, ...]
