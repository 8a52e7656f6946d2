"""The report of ``memsched distribute``."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from memsched.report.values.base import Amount, Count, Section, Sha256, Span
from memsched.report.values.shared import ModelSection

__all__ = [
    "ClusterSection",
    "ComputationRow",
    "ComputedOpRow",
    "DeviceRow",
    "DistributionReport",
    "DistributionResult",
    "DistributionStepRow",
    "GatherRow",
    "GatheredOutputRow",
    "InOrderSection",
    "MeasuredSection",
    "OrderSection",
    "OtherPlanSection",
    "PartRow",
    "RunSection",
    "ShareRow",
    "TransferRow",
    "ValueRow",
]


class ClusterSection(Section, frozen=True, kw_only=True):
    """The devices and the router between them."""

    name: str
    path: str
    mode: Literal["broadcast", "point-to-point"]
    bandwidth_bytes_per_second: Amount
    latency_seconds: Amount
    dropped: tuple[str, ...]


class InOrderSection(Section, frozen=True, kw_only=True):
    """What the best plan in one order of execution takes.

    Attributes:
        peak_bytes: Most bytes of activations that live at a time in this order where one device computes everything.
        cost_bytes: What orders are compared by: those, or with the metric "sum" what lives, summed over the ops.
        latency_seconds: Of the best plan found in this order; null where none fits.
        memory_bytes: Of that plan, on the device with the most.
    """

    peak_bytes: Count
    cost_bytes: Count
    latency_seconds: Amount | None
    memory_bytes: Count | None


class OrderSection(Section, frozen=True, kw_only=True):
    """In which order the plan executes, and why.

    Attributes:
        kept: The order of execution that the plan is for: the file's, the one found that needs less memory, or one that
            was improved together with the shares.
        metric: What the order found needs less of.
        found: null where no order was found that needs less than the file's.
        least_peak_proven: No order costs less by the metric than the better of both.
    """

    kept: Literal["given", "found", "together"]
    metric: Literal["peak", "sum"]
    given: InOrderSection
    found: InOrderSection | None
    least_peak_proven: bool


class OtherPlanSection(Section, frozen=True, kw_only=True):
    """A simple plan to compare with."""

    latency_seconds: Amount
    memory_bytes: Count
    fits: bool


class DistributionResult(Section, frozen=True, kw_only=True):
    """What the cluster's model predicts for the plan.

    Attributes:
        latency_seconds: What the cluster's model predicts: the sum over steps of the slowest device.
        lower_bound_seconds: No plan of the space searched, in the orders that were tried, is faster by that model; 0
            where nothing is known.
        single_device: The fastest device by itself, of those whose memory does if any does.
        even_split: Equal shares for all devices, the axes by memory or rows; memory_bytes is the largest of any device.
        transmitted_bytes: Of all transfers, each counted once however many devices receive it.
        delivered_bytes: Of all transfers, each counted for every device that receives it.
        home: The device that has the outputs in the end.
    """

    method: str
    asked_method: Literal["auto", "genetic", "exact", "even", "single"]
    latency_seconds: Amount
    lower_bound_seconds: Amount
    single_device: OtherPlanSection
    even_split: OtherPlanSection
    transmitted_bytes: Count
    delivered_bytes: Count
    steps: Count
    home: Count
    interrupted: bool
    order: OrderSection


class MeasuredSection(Section, frozen=True, kw_only=True):
    """What the process of a device really took.

    Attributes:
        activations_bytes: Most in use at one time: arrays that its process held, and what the runtime had beside them;
            null where the runtime does not say.
        resident_start_bytes: Its process, before it loaded any model; null where the system does not say.
        sent_bytes: Elements that its sockets took, for every receiver.
        sent_once_bytes: The same, what several devices receive counted once.
        headers_bytes: What its sockets took beside them.
    """

    activations_bytes: Count | None
    weights_and_activations_bytes: Count | None
    resident_start_bytes: Count | None
    resident_loaded_bytes: Count | None
    resident_peak_bytes: Count | None
    resident_growth_bytes: int | None
    sent_bytes: Count
    sent_once_bytes: Count
    received_bytes: Count
    headers_bytes: Count
    steps_seconds: Amount


class DeviceRow(Section, frozen=True, kw_only=True):
    """One device of the cluster.

    Attributes:
        memory_bytes: Most that the plan holds on it at one time: weights, pieces of tensors, and what is computed.
        weights_bytes: Constants in its models.
    """

    index: Count
    name: str
    capacity_bytes: Count
    memory_bytes: Count
    weights_bytes: Count
    models: Count
    measured: MeasuredSection | None


class ThrottledStepRow(Section, frozen=True, kw_only=True):
    """A step of a throttled run; after the last of the plan's, the outputs are brought together."""

    predicted_seconds: Amount
    measured_seconds: Amount


class ThrottledSection(Section, frozen=True, kw_only=True):
    """A run whose processes are held to the cluster's rates: cores, memory, bandwidth and delay.

    Attributes:
        slower: How many times as long everything took than was measured: this machine has fewer cores than devices.
        measured_seconds: Of all steps, the median of the passes.
    """

    passes: Count
    slower: Count
    predicted_seconds: Amount
    measured_seconds: Amount
    steps: tuple[ThrottledStepRow, ...]


class RunSection(Section, frozen=True, kw_only=True):
    """The plan run here, one process per device, against the whole model in one session.

    Attributes:
        outputs_equal: Bit for bit, to those of the whole model in one session.
        relative_error: Largest difference of any output by that output's largest magnitude.
        delivered_bytes: Elements counted at the sockets; equal to the plan's, or there is no plan.
        given_bytes: Of these, inputs of the network.
        single_session_activations_bytes: Most that the whole model in one session had in use, inputs included.
        steps_seconds: All steps on this machine, which shares its cores among all processes.
        throttled: null where no such run was asked for.
        special_values: Values that were mixed into further inputs, on which outputs are as near as on others; empty if
            inputs can hold none.
    """

    runtime: str
    outputs_equal: bool
    max_abs_error: Amount
    relative_error: Amount
    transmitted_bytes: Count
    delivered_bytes: Count
    given_bytes: Count
    single_session_activations_bytes: Count | None
    steps_seconds: Amount
    throttled: ThrottledSection | None
    special_values: tuple[str, ...] = ()


class ShareRow(Section, frozen=True, kw_only=True):
    """How the work on an op is shared out: device j computes [bounds[j], bounds[j + 1]) of its axis."""

    op: str
    type: str
    axis: Literal["channels", "rows", "whole"]
    bounds: Annotated[tuple[Count, ...], Meta(min_length=2)]


class TransferRow(Section, frozen=True, kw_only=True):
    """A part of a tensor that a device sends.

    Attributes:
        region: Per axis the range [start, stop) in elements.
    """

    tensor: str
    region: tuple[Span, ...]
    source: Annotated[int, Meta(ge=-1)]
    targets: Annotated[tuple[Count, ...], Meta(min_length=1)]
    held_as: Annotated[tuple[str, ...], Meta(min_length=1)]
    size_bytes: Count


class PartRow(Section, frozen=True, kw_only=True):
    """A part of a tensor that a device holds.

    Attributes:
        region: Per axis the range [start, stop) in elements.
    """

    held_as: str
    region: tuple[Span, ...]


class GatherRow(Section, frozen=True, kw_only=True):
    """A device puts parts of a tensor together.

    Attributes:
        region: Per axis the range [start, stop) in elements.
    """

    device: Count
    tensor: str
    region: tuple[Span, ...]
    held_as: str
    parts: Annotated[tuple[PartRow, ...], Meta(min_length=1)]


class ValueRow(Section, frozen=True, kw_only=True):
    """An input or output of a device's model.

    Attributes:
        region: Per axis the range [start, stop) in elements.
    """

    name: str
    tensor: str
    region: tuple[Span, ...]
    held_as: str


class ComputedOpRow(Section, frozen=True, kw_only=True):
    """An op of the model as given, and the part of its output that is computed."""

    op: str
    region: tuple[Span, ...] | None


class ComputationRow(Section, frozen=True, kw_only=True):
    """A device runs one model."""

    device: Count
    file: str
    sha256: Sha256
    size_bytes: Count
    weights_bytes: Count
    inputs: tuple[ValueRow, ...]
    outputs: Annotated[tuple[ValueRow, ...], Meta(min_length=1)]
    ops: Annotated[tuple[ComputedOpRow, ...], Meta(min_length=1)]


class DistributionStepRow(Section, frozen=True, kw_only=True):
    """What happens between two synchronisations: transfers, then gathers, then computations.

    Attributes:
        transfers: First all of these.
        gathers: Then devices put parts of tensors together.
        computations: Then every device runs its model.
        ahead: Transfers meanwhile, for the steps after.
    """

    index: Count
    transfers: tuple[TransferRow, ...]
    gathers: tuple[GatherRow, ...]
    computations: tuple[ComputationRow, ...]
    ahead: tuple[TransferRow, ...]


class GatheredOutputRow(Section, frozen=True, kw_only=True):
    """How device home makes an output of what it holds."""

    tensor: str
    parts: Annotated[tuple[PartRow, ...], Meta(min_length=1)]


class DistributionReport(Section, frozen=True, kw_only=True):
    """plan.json, and the report of memsched distribute.

    Sizes are bytes, times seconds. Devices are counted from 0 without those that have dropped out; -1 is the source of
    the network's inputs.

    Attributes:
        shares: Device j computes [bounds[j], bounds[j + 1]) of the op's axis.
        results: After the last step: what brings the outputs to device home.
        outputs: How device home makes the outputs of what it holds.
    """

    schema_version: Literal[2]
    memsched_version: str
    command: Literal["distribute"]
    model: ModelSection
    cluster: ClusterSection
    result: DistributionResult
    devices: Annotated[tuple[DeviceRow, ...], Meta(min_length=1)]
    run: RunSection | None
    shares: tuple[ShareRow, ...]
    steps: tuple[DistributionStepRow, ...]
    results: tuple[TransferRow, ...]
    result_gathers: tuple[GatherRow, ...]
    outputs: tuple[GatheredOutputRow, ...]
    notes: tuple[str, ...]
    seed: int
    workers: Count
    seconds: Amount
