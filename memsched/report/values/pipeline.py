"""The report of ``memsched pipeline``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from memsched.report.values.base import Amount, Count, Positive, Section, Sha256, Status
from memsched.report.values.shared import ModelSection, VerificationSection

__all__ = [
    "AnnotatedSection",
    "BalanceSection",
    "PipelineReport",
    "PipelineRequest",
    "PipelineResult",
    "PipelineTarget",
    "SentTensorRow",
    "SimulationSection",
    "StageRow",
    "StageSeconds",
]


class PipelineTarget(Section, frozen=True, kw_only=True):
    """The accelerators in a row for which all figures hold."""

    name: str
    description: str


class PipelineRequest(Section, frozen=True, kw_only=True):
    """What was requested.

    Attributes:
        profile: Whether times of operators are the target's figures, or were measured in the model's runtime.
        skips: How tensors reach a later stage than the next: sent by the host to each stage that reads them, or handed
            through every stage between.
    """

    stages: Positive
    scheduler: Literal["exact", "respect", "heuristic"]
    balance: Literal["params", "macs", "memory", "time"]
    profile: Literal["target", "model"]
    cut_at: tuple[str, ...]
    never_cut: tuple[str, ...]
    children_together: bool
    skips: Literal["once", "through"]


class BalanceSection(Section, frozen=True, kw_only=True):
    """What the stages were balanced by.

    Attributes:
        largest: Of the stage that has most: bytes (params, memory), multiply-accumulates (macs), nanoseconds (time).
        lower_bound: No stages under the same constraints have less.
    """

    unit: Literal["params", "macs", "memory", "time"]
    largest: Count
    lower_bound: Count


class PipelineResult(Section, frozen=True, kw_only=True):
    """What the stages have and exchange.

    Attributes:
        peak_parameters_bytes: Parameters of the stage that has most.
        communication_bytes: What stages receive from other stages, per inference; what is handed through counts once
            for each stage that receives it. With inputs_bytes it is the sum of receives_bytes.
        communication_bound_bytes: No stages with the same largest stage have less.
        inputs_bytes: What stages receive of the model's inputs, which come from the host to each stage that reads them.
    """

    peak_parameters_bytes: Count
    balanced: BalanceSection
    communication_bytes: Count
    communication_bound_bytes: Count
    inputs_bytes: Count
    status: Status
    proof: str
    method: str
    scheduling_seconds: Amount


class SimulationSection(Section, frozen=True, kw_only=True):
    """What the stages take by the target's figures."""

    throughput_per_second: Amount
    latency_seconds: Amount
    heuristic_throughput_per_second: Amount | None
    speed_up_over_heuristic: Amount | None
    assumptions: tuple[str, ...]


class SentTensorRow(Section, frozen=True, kw_only=True):
    """A tensor that goes from stage to stage.

    Attributes:
        made_in_stage: Null: an input of the model.
    """

    tensor: str
    size_bytes: Count
    made_in_stage: Count | None


class StageSeconds(Section, frozen=True, kw_only=True):
    """What a stage takes for one inference."""

    input_seconds: Amount
    parameters_seconds: Amount
    compute_seconds: Amount
    output_seconds: Amount
    total_seconds: Amount


class StageRow(Section, frozen=True, kw_only=True):
    """One stage, which one accelerator runs.

    Attributes:
        on_cache_bytes: Parameters that stay in the accelerator's memory.
        off_cache_bytes: Parameters that are sent for every inference.
        peak_bytes: Activation memory of the segment in its order.
    """

    index: Count
    path: str
    sha256: Sha256
    ops: tuple[str, ...]
    parameters_bytes: Count
    on_cache_bytes: Count
    off_cache_bytes: Count
    macs: Count
    receives_bytes: Count
    sends_bytes: Count
    receives: tuple[SentTensorRow, ...]
    sends: tuple[SentTensorRow, ...]
    peak_bytes: Count
    lower_bound_bytes: Count
    order_status: Status
    arena_bytes: Count
    seconds: StageSeconds


class AnnotatedSection(Section, frozen=True, kw_only=True):
    """The whole model with the stage of every node (ONNX)."""

    path: str | None
    sha256: Sha256


class PipelineReport(Section, frozen=True, kw_only=True):
    """What memsched pipeline found.

    Sizes are bytes, times seconds. Stages are counted from 0.

    Attributes:
        annotated: The whole model with the stage of every node (ONNX).
        verification: null when it was not asked for or the runtime is not installed; the notes then say which.
    """

    schema_version: Literal[2]
    memsched_version: str
    command: Literal["pipeline"]
    model: ModelSection
    target: PipelineTarget
    request: PipelineRequest
    result: PipelineResult
    simulation: SimulationSection
    stages: Annotated[tuple[StageRow, ...], Meta(min_length=1)]
    annotated: AnnotatedSection | None
    verification: VerificationSection | None
    notes: tuple[str, ...]
    seed: int
    seconds: Amount
