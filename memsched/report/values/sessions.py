"""Sections on ONNX Runtime's sessions: how each was opened, and what it took of its process."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Section
from memsched.report.values.shared import ProcessMemoryRow

__all__ = ["ExecutedSection", "HeldBackSection", "MappedSection", "SessionRow"]


class SessionRow(Section, frozen=True, kw_only=True):
    """A session that was opened and run in a fresh process.

    Attributes:
        file: The model as given, or the one written.
        level: Of graph optimisation: disabled, basic, extended or all.
        execution_order: "file" is ``PRIORITY_BASED``.
        mem_reuse: ``enable_mem_reuse``.
        mem_pattern: ``enable_mem_pattern``.
        disabled_optimizers: ``disabled_optimizers``.
        arena: ``enable_cpu_mem_arena``.
        shrinkage: ``memory.enable_memory_arena_shrinkage`` for each run.
        prepacking: Without ``session.disable_prepacking``.
        quant_qdq: Without ``session.disable_quant_qdq``.
        threads: ``intra_op_num_threads``; 0 is ONNX Runtime's own choice.
        predicted_bytes: Activations that it should request at most; null where nothing predicts it.
        measured_bytes: Those that it requested; null where the profile does not show it.
        process_bytes: Peak of the process in all runs after the first until two further ones added nothing, above what
            it was before the session; null where the system does not show it, or the model is too small for it.
        runs: So many there were.
        settled: Whether the last two added nothing; otherwise time ended them.
        first_run_bytes: The same until the first run's end, loading included.
        cpu_ms: Milliseconds of processor time of one run: a measurement of one machine, for comparison with the other
            rows alone.
        cpu_ratio: Of that to a session without options on the file as given, the median of turns; of one
            thread each if other programs used the processors. null for that one.
    """

    file: Literal["given", "written"]
    level: Literal["disabled", "basic", "extended", "all"]
    execution_order: Literal["file", "default"]
    mem_reuse: bool
    mem_pattern: bool
    disabled_optimizers: tuple[str, ...] = ()
    arena: bool = True
    shrinkage: bool = False
    prepacking: bool = True
    quant_qdq: bool = True
    threads: Count = 0
    predicted_bytes: Count | None = None
    measured_bytes: Count | None = None
    process_bytes: Count | None = None
    first_run_bytes: Count | None = None
    cpu_ms: Amount | None = None
    cpu_ratio: Amount | None = None
    runs: Count | None = None
    settled: bool = True


class ExecutedSection(Section, frozen=True, kw_only=True):
    """The model written holds the graph that ONNX Runtime executes, as it optimised it itself.

    Attributes:
        session: As ``--session`` named it.
        level: Of graph optimisation.
        block_channels: Channels that blocked tensors are padded to a multiple of: the file is for processors of that
            block; null where no tensor is blocked, so that it is for any.
        processor: On which it was made.
    """

    session: Literal["default", "basic", "extended", "all"]
    level: Literal["basic", "extended", "all"]
    block_channels: Count | None
    processor: str


class MappedSection(Section, frozen=True, kw_only=True):
    """Mapped weights: the written model has its weights in a second file, packed for the kernels.

    Attributes:
        weights: Name of the weight file; it must be in the folder of the model.
        weights_bytes: Size of the weight file.
        processor: The kind of processor that the weights are packed for; other processors keep private copies.
        block_channels: Number of channels in a block, if tensors are stored in blocks: processors with another block
            size refuse the model. null if the model is correct on every processor.
        original: Whether mapping is the only change to the original; the outputs are bit-equal then.
        given: Memory of a session without options on the original.
        unmapped: Memory of a session on the same model with its weights inside.
        written: Memory of a session on the written model.
        time_ratio: Ratio of the processor times of a run, written to original; median of several turns.
    """

    weights: str
    weights_bytes: Count
    processor: str
    block_channels: Count | None
    original: bool
    given: ProcessMemoryRow
    unmapped: ProcessMemoryRow
    written: ProcessMemoryRow
    time_ratio: Amount | None


class HeldBackSection(Section, frozen=True, kw_only=True):
    """What was found and is not written, as the session that it is for was not named.

    Attributes:
        requirement_bytes: What it requires in a session with the options of ``--order-guarantee session``.
        extra_macs_percent: Work that the model as given does not have.
        default_peak_before_bytes: What a session without options was measured to need for the model as given.
        default_peak_after_bytes: The same for what was found.
        process_before_bytes: What its process was measured to take for the model as given; null where activations alone
            spoke against what was found.
        process_after_bytes: The same for what was found.
        cpu_ratio: Processor time of what was found to that of the model as given there.
        listed_cpu_ratio: The same of what was found with the options of ``--order-guarantee session``; null where that
            was not measured.
    """

    requirement_bytes: Count
    extra_macs_percent: Amount
    default_peak_before_bytes: Count
    default_peak_after_bytes: Count
    process_before_bytes: Count | None = None
    process_after_bytes: Count | None = None
    cpu_ratio: Amount | None = None
    listed_cpu_ratio: Amount | None = None
