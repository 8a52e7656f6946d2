"""What reports of several commands hold."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Positive, Section, Sha256

__all__ = [
    "FailureRow",
    "FiguresSection",
    "MeasuredArenaSection",
    "ModelSection",
    "OtherSizeRow",
    "ProcessMemoryRow",
    "VerificationSection",
]


class ProcessMemoryRow(Section, frozen=True, kw_only=True):
    """Memory of a fresh process that opens a file, above its memory before.

    Attributes:
        private_bytes: Growth of anonymous memory after the last run, the median of fresh processes.
        peak_bytes: Growth of resident memory at its peak, likewise: mapped files are in it, LiteRT's libraries are not.
        processes: How many processes were measured.
    """

    private_bytes: Count
    peak_bytes: Count
    processes: Positive


class ModelSection(Section, frozen=True, kw_only=True):
    """Says which model was read.

    Attributes:
        format: Of the file.
        sha256: Of its bytes.
        path: As it was given; "-" for standard input.
        ops: Steps of the main graph.
        tensors: Activation tensors of the main graph.
        weights_bytes: All constants; they are not part of the peak.
        macs: Multiply-accumulates of one execution of the main graph's own ops; 0 where unknown.
        graphs: The main graph and all others.
        constant_ops: Ops that compute constants from constants alone: in the file, but no steps.
    """

    path: str
    format: Literal["onnx", "tflite"]
    sha256: Sha256
    ops: Count
    tensors: Count
    weights_bytes: Count
    macs: Count
    graphs: Positive
    constant_ops: Count


class FailureRow(Section, frozen=True, kw_only=True):
    """A candidate that failed, so that the next best one was taken.

    Attributes:
        what: The candidate, in words.
        reason: What failed: writing, reading back, a check, loading, or the comparison of outputs.
        defect: memsched is at fault.
    """

    what: str
    reason: str
    defect: bool


class FiguresSection(Section, frozen=True, kw_only=True):
    """Peak and arena of one order.

    Attributes:
        peak_bytes: The largest footprint of any step.
        arena_bytes: The largest offset + size of any buffer.
    """

    peak_bytes: Count
    arena_bytes: Count


class OtherSizeRow(Section, frozen=True, kw_only=True):
    """How the model written fares at one size that it was not optimised for.

    Attributes:
        size: Its length.
        reason: What the runtime said, or what differs; null if the outputs are equal.
        dimension: Its name, or input[axis] where it has none; those that change together with commas.
        outcome: Refused by the runtime, or the outputs of the model as given; anything else is wrong, and no model is
            written.
    """

    dimension: str
    size: Count
    outcome: Literal["refused", "equal", "wrong"]
    reason: str | None


class MeasuredArenaSection(Section, frozen=True, kw_only=True):
    """An arena as TensorFlow Lite Micro laid it in a process of 64 bits, with what the package's recorder keeps.

    Attributes:
        measured_total_bytes: Both together.
        predicted_tail_bytes: As predicted_head_bytes.
        predicted_total_bytes: Both together.
        predicted_least_bytes: The smallest arena that should run.
        measured_head_bytes: Its planned part; null where the model was refused.
        measured_tail_bytes: What stays at its end.
        measured_least_bytes: The smallest arena that runs: planning may take more for a moment than head and tail.
        predicted_head_bytes: null where an operator's own needs are not known.
        as_predicted: Whether head and tail are those predicted, to the byte; anything else is an error of memsched's.
            null where one of them is not known.
    """

    measured_head_bytes: Count | None
    measured_tail_bytes: Count | None
    measured_total_bytes: Count | None
    predicted_head_bytes: Count | None
    predicted_tail_bytes: Count | None
    predicted_total_bytes: Count | None
    measured_least_bytes: Count | None = None
    predicted_least_bytes: Count | None = None
    as_predicted: bool | None


class VerificationSection(Section, frozen=True, kw_only=True):
    """What running the models showed.

    Attributes:
        measured_peak_before_bytes: What the runtime itself measured of the original; null if it cannot.
        measured_peak_after_bytes: The same of the model written.
        predicted_peak_after_bytes: The same of the model written.
        notes: What else was seen.
        runtime: Name and version.
        outputs_equal: Bit-equal on all inputs; null when it could not be run.
        max_abs_error: null when it could not be run or is infinite.
        relative_error: The largest difference of any output by that output's largest magnitude; null when it could not
            be run or is infinite. Float outputs of layers in pieces may differ by 1e-5 at most, all others by nothing:
            otherwise no model is written.
        predicted_peak_before_bytes: What should have been measured before, by the rules of the runtime's planner; null
            where nothing predicts it.
        executed_order_matches: Whether the runtime executed the order; null when that could not be seen.
        measured_with: The lines of Python that open the sessions in which both peaks were measured; empty where the
            runtime has no such choice.
        default_session: The session that people open without options, in words; null where it was not measured.
        default_peak_before_bytes: What a session without options needs for the model as given, in its first run or in
            the next, whichever is more.
        default_peak_after_bytes: The same for the model written.
        own_error: The largest difference between outputs of the original with and without delegates, if layers were
            left to built-in kernels and outputs differ by at most twice as much, or by 1 if they are integers; else
            null.
        default_relative_error: The largest difference of any output of the model as given in a session without options
            to that of the model written in the session promised, by its largest magnitude: such a session rewrites
            operators. null where both are the same session, or one was not run.
        default_apart: The same of the model written to the one given, both in a session without options: 0 for equal
            bits; null where one was not run there, or it is infinite.
        other_sizes: How the model written fares at sizes that it was not optimised for, where the model as given leaves
            dimensions open and accepts them.
        outputs_vary: Whether outputs differ from input to input, so that equal ones say something; null when that is
            unknown.
        arena_before: The whole arena of the model as given, where it was run in TensorFlow Lite Micro: the measured
            peak is the smallest one that runs.
        arena_after: That of the model written.
        runs: Input sets that were compared.
        feeds: The file that these are from; null where they are random.
        at_stated_sizes: False where sizes of values inside were stated that follow from the inputs' data, and those
            that ran were others: what was measured says nothing of the figures predicted.
        time_ratio: Time of an invocation of the model written to one of the original, the shortest of each; null if it
            was not measured.
        special_values: Values that were mixed into further inputs, on which outputs are equal as well (NaN to NaN,
            whatever its sign and payload); empty where inputs can hold none.
        reason: Why something above is null or false.
        stated: What must be said beside the verdict, as the summary does.
    """

    runtime: str
    outputs_equal: bool | None
    max_abs_error: Amount | None
    relative_error: Amount | None = None
    own_error: Amount | None = None
    measured_peak_before_bytes: Count | None
    measured_peak_after_bytes: Count | None
    predicted_peak_before_bytes: Count | None
    predicted_peak_after_bytes: Count | None
    executed_order_matches: bool | None
    outputs_vary: bool | None = None
    measured_with: tuple[str, ...] = ()
    default_session: str | None = None
    default_peak_before_bytes: Count | None = None
    default_peak_after_bytes: Count | None = None
    default_relative_error: Amount | None = None
    default_apart: Amount | None = None
    other_sizes: tuple[OtherSizeRow, ...] = ()
    arena_before: MeasuredArenaSection | None = None
    arena_after: MeasuredArenaSection | None = None
    runs: Count
    feeds: str | None = None
    at_stated_sizes: bool = True
    time_ratio: Amount | None = None
    special_values: tuple[str, ...] = ()
    reason: str | None
    notes: tuple[str, ...]
    stated: tuple[str, ...] = ()
