"""The report of ``memsched optimize`` and ``memsched analyze``."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from memsched.report.values.base import Amount, Count, Positive, Section, Sha256, Span, Status
from memsched.report.values.blocks import BlocksSection, CurveSection
from memsched.report.values.border import BorderSection, InterfaceSection
from memsched.report.values.interpreter import InterpreterSection
from memsched.report.values.layers import LayerRow
from memsched.report.values.rewrites import (
    AlgebraSection,
    ChainSection,
    FrontierRow,
    OnChipSection,
    RematSection,
    TilingSection,
)
from memsched.report.values.runtime import FirmwareSection, GuaranteeSection, RequirementSection, TflmSection
from memsched.report.values.sessions import ExecutedSection, HeldBackSection, SessionRow
from memsched.report.values.shared import FailureRow, FiguresSection, ModelSection, VerificationSection

__all__ = [
    "AllocationSection",
    "BaselinesSection",
    "BeforeAndAfter",
    "BodyRow",
    "BudgetSection",
    "BufferRow",
    "FaultRow",
    "FileOrderSection",
    "FixedDimensionRow",
    "FusionSection",
    "OptimizeReport",
    "OutputSection",
    "PassRow",
    "PoolRow",
    "PoolsSection",
    "ResultSection",
    "StepRow",
    "SuggestionRow",
    "TargetSection",
    "WorkspaceRow",
]


class FixedDimensionRow(Section, frozen=True, kw_only=True):
    """A dimension that the model as given leaves open and the one written does not.

    Attributes:
        dimension: Its name, or input[axis] where it has none.
    """

    dimension: str
    size: Count


class OutputSection(Section, frozen=True, kw_only=True):
    """The model written.

    Attributes:
        path: Where the model was written; null when the caller did not say, or nothing was written.
        unchanged: Nothing better was found that is worth another file, and the output is the input, byte for byte;
            false where layers were rewritten.
        slight_bytes: What the best file that was found would have saved, less than one percent of what is required: it
            is not written.
        fixed_dimensions: Dimensions of inputs that the model as given leaves open and the one written does not: it
            holds for these sizes alone, and runtimes refuse others.
    """

    path: str | None
    sha256: Sha256
    unchanged: bool
    slight_bytes: Count | None = None
    fixed_dimensions: tuple[FixedDimensionRow, ...] = ()


class TargetSection(Section, frozen=True, kw_only=True):
    """The memory rules for which all figures hold.

    Attributes:
        runtime: Which runtime can verify the figures; empty where none can.
        default_order: Whose order the runtime takes when nobody tells it.
        inputs: arena: counted until their last reader; kept: counted to the end; caller: not counted.
        in_place: Whether in-place execution was permitted.
    """

    name: str
    description: str
    runtime: str
    alignment_bytes: Positive
    default_order: Literal["file", "onnxruntime"]
    inputs: Literal["arena", "kept", "caller"]
    in_place: bool


class FileOrderSection(Section, frozen=True, kw_only=True):
    """The file's own order under the same memory model and the same allocator.

    Attributes:
        ops: The ops of the model as given, in its order. Absent in reports of older versions.
        footprints_bytes: What each of these ops costs; the largest is the peak. Absent in reports of older versions.
    """

    peak_bytes: Count
    arena_bytes: Count
    ops: tuple[str, ...] = ()
    footprints_bytes: tuple[Count, ...] = ()


class BaselinesSection(Section, frozen=True, kw_only=True):
    """Other orders under the same memory model and the same allocator."""

    file_order: FileOrderSection
    reverse_post_order: FiguresSection
    runtime_default_order: FiguresSection


class BeforeAndAfter(Section, frozen=True, kw_only=True):
    """What a runtime takes, in bytes.

    Attributes:
        before: For the file as given.
        after: For the result.
    """

    before: Count
    after: Count


class ResultSection(Section, frozen=True, kw_only=True):
    """The main graph's figures; control flow's bodies are in them as the workspace of the ops that execute them.

    Attributes:
        peak_bytes: The largest footprint of any step.
        lower_bound_bytes: No order has a smaller peak.
        proof: How the bound was proven, in words.
        method: What found the order.
        arena_bytes: What has to be reserved: the largest offset + size of any buffer.
        litert_bytes: What LiteRT's own planner takes; absent or null for other targets.
        session_bytes: What a session of ONNX Runtime needs, opened as the order guarantee says; absent or null for
            other targets.
        required_bytes: What a budget is compared with: what the runtime needs, by its own planner where that is known.
            Absent in reports of older versions.
        reduction_percent: Of the peak against the file's own order.
        extra_macs_percent: Work that the model written does beside the given model's, whatever the rewrite; 0 when only
            the order changed.
        interrupted: The search was ended by the user.
    """

    peak_bytes: Count
    lower_bound_bytes: Count
    status: Status
    proof: str
    method: str
    arena_bytes: Count
    litert_bytes: BeforeAndAfter | None = None
    session_bytes: BeforeAndAfter | None = None
    required_bytes: Count | UnsetType = UNSET
    reduction_percent: float
    extra_macs_percent: float
    interrupted: bool


class BudgetSection(Section, frozen=True, kw_only=True):
    """Whether the result fits.

    Attributes:
        required_bytes: What the runtime allocates for the result, as result.required_bytes; with a curve, at the
            size that requires most.
        withheld: No file was written, as the result misses the budget, and --keep-best was not given. Absent in reports
            of older versions.
    """

    budget_bytes: Count
    required_bytes: Count
    exceeded_bytes: Count
    met: bool
    withheld: bool = False


class SuggestionRow(Section, frozen=True, kw_only=True):
    """What would help where nothing was gained, as it was tried.

    Attributes:
        command: A command line to paste, with the options that were given.
        what: In a word or two what it does.
        requirement_bytes: What the model written by it requires at most, as budget.required_bytes says it.
        saving_bytes: How much less that is than the model of this report requires; where the command names a session,
            in that session.
        extra_macs_percent: At most.
        slowdown_percent: null where it was not measured.
        process_bytes: Peak of a process with a session on the file that the command writes, measured in a fresh one;
            null where it was not.
        process_saving_bytes: How much less that is than with a session without options on the file as given.
    """

    command: str
    what: str
    requirement_bytes: Count
    saving_bytes: Count
    extra_macs_percent: Amount
    slowdown_percent: float | None
    process_bytes: Count | None = None
    process_saving_bytes: Count | None = None


class FaultRow(Section, frozen=True, kw_only=True):
    """A tensor whose bytes are live at the first step of the peak.

    Attributes:
        producer: null for a model's input.
    """

    tensor: str
    size_bytes: Count
    producer: str | None
    first_step: Count
    last_step: Count


class BodyRow(Section, frozen=True, kw_only=True):
    """A graph beside the main one, with an order of its own.

    Attributes:
        parent: The graph whose op executes this one; null when no op does.
        file_peak_bytes: In the file's order.
    """

    graph: str
    parent: str | None
    op: str | None
    ops: Count
    file_peak_bytes: Count
    peak_bytes: Count
    lower_bound_bytes: Count
    status: Status
    proof: str


class FusionSection(Section, frozen=True, kw_only=True):
    """How far the graph was simplified before the search."""

    ops_before: Count
    ops_after: Count
    monotonic: Count
    isolated: Count
    iterations: Count


class PassRow(Section, frozen=True, kw_only=True):
    """One pass of the search.

    Attributes:
        outcome: In words, where figures do not say it: what CP-SAT proved, or why it was not asked.
    """

    name: str
    seconds: Amount
    ops_before: Count
    ops_after: Count
    peak_before_bytes: Count
    peak_after_bytes: Count
    outcome: str = ""


class AllocationSection(Section, frozen=True, kw_only=True):
    """How the addresses were found."""

    method: str
    status: Status
    lower_bound_bytes: Count
    alignment_bytes: Positive


class PoolRow(Section, frozen=True, kw_only=True):
    """One memory of the target."""

    name: str
    size_bytes: Count | None
    cost: Count
    used_bytes: Count | None
    accessed_bytes: Count | None


class PoolsSection(Section, frozen=True, kw_only=True):
    """Where the buffers lie when the target has several memories, and what accessing them costs: bytes x cost, summed.

    Attributes:
        weighted_traffic: Null when no placement was found.
    """

    weighted_traffic: Count | None
    lower_bound: Count
    greedy_weighted_traffic: Count | None
    last_pool_weighted_traffic: Count
    status: Literal["optimal", "feasible", "infeasible", "unknown"]
    proof: str
    method: str
    seconds: Amount
    pools: tuple[PoolRow, ...]


class StepRow(Section, frozen=True, kw_only=True):
    """One op of the main graph in order of execution.

    Attributes:
        origin: The op of the given model that this one computes a part of, or again; null when it is an op of the given
            model, or one that a rewrite added (slices, pads, concatenations).
        region: The part of the origin's output that this op computes: per axis its first element and the one after its
            last; null for all of it.
        live_bytes: Bytes of the tensors live in this step, what is written in place counted once.
        footprint_bytes: live_bytes + workspace_bytes.
        live: Tensors that hold bytes of their own in this step (a view holds none; both sides of an in-place write are
            named). With more than 2,000,000 names over all steps only the first step of the peak has its list, every
            other has null.
        reads_from: The steps whose results it reads, those without bytes of their own included, in rising order. Absent
            in reports of older versions.
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
    reads_from: tuple[Count, ...] | UnsetType = UNSET


class BufferRow(Section, frozen=True, kw_only=True):
    """One tensor with an address.

    Views and in-place chains have one offset; slices lie inside their source, pieces inside their concatenation.

    Attributes:
        pool: The memory that it lies in, from whose beginning its offset counts; only for targets with pools.
        shape: Its dimensions; null where they are unknown. Absent in reports of older versions.
        dtype: The type of its elements in the words of numpy, or the format's own. Absent in reports of older versions.
        in_place_of: The dying tensor whose bytes this one takes.
        view_of: The tensor in whose bytes this one lies.
        consists_of: The tensors that lie inside this one, a concatenation that is never copied; else empty.
        produced_in: The step that computes it; null for inputs and variables. Absent in reports of older versions.
        read_in: The steps that read it, views of it not counted, in rising order. Absent in reports of older versions.
    """

    tensor: str
    offset_bytes: Count
    size_bytes: Count
    first_step: Count
    last_step: Count
    in_place_of: str | None
    view_of: str | None
    consists_of: tuple[str, ...]
    produced_in: Count | UnsetType | None = UNSET
    read_in: tuple[Count, ...] | UnsetType = UNSET
    shape: tuple[Count, ...] | UnsetType | None = UNSET
    dtype: str | UnsetType = UNSET
    pool: str | UnsetType = UNSET


class WorkspaceRow(Section, frozen=True, kw_only=True):
    """The address of what an op needs beside its tensors, during its step only.

    Attributes:
        pool: The memory that it lies in, from whose beginning its offset counts; only for targets with pools.
    """

    op: str
    offset_bytes: Count
    size_bytes: Count
    step: Count
    pool: str | UnsetType = UNSET


class OptimizeReport(Section, frozen=True, kw_only=True):
    """What memsched found for one model.

    All sizes are integers in bytes and their names end in _bytes; times end in seconds. Steps are numbered from 0.

    Attributes:
        output: The model written; null where the command writes none.
        target: The memory rules for which all figures hold.
        baselines: Other orders under the same memory model and the same allocator.
        result: The main graph's figures; control flow's bodies are in them as the workspace of the ops that execute
            them.
        budget: null when no budget was given.
        requirement: What the runtime allocates. Absent in reports of older versions.
        order_guarantee: null where the command writes no model.
        held_back: What sessions without options need more for; null if nothing. Absent in reports of older versions.
        interpreter: LiteRT's default interpreter, if it was measured. Absent in reports of older versions.
        sessions: ONNX Runtime's sessions that were measured, each in a process of its own, the one without options
            among them. Absent in reports of older versions.
        executed: The graph that ONNX Runtime executes is what was written (``--session``); null where the model given
            was. Absent in reports of older versions.
        blocks: Loops over blocks of open dimensions; null without a range. Absent in reports of older versions.
        curve: Memory against size; null where analyze was given no range. Absent in reports of older versions.
        tflm: The planned part of TensorFlow Lite Micro's arena, simulated; null for other targets and formats.
        verification: null when it was not asked for or the runtime is not installed; the notes then say which.
        notes: What else must be known to read the figures rightly.
        failures: The candidates that failed. Absent in reports of older versions.
        suggestions: What would help where nothing was gained, each tried; the one to name first. Absent in reports
            of older versions.
        unknown_sizes: Tensors of the main graph whose size nothing can state; they count nothing.
        at_fault: The tensors whose bytes are live at the first step of the peak, largest first.
        operators: Operator types of all graphs and how often they occur.
        layers: What each op of the main graph takes, before and after. Absent in reports of older versions.
        firmware: What a firmware with TensorFlow Lite Micro needs for the model written beside the planned tensors;
            null for other formats than TFLite.
        bodies: The graphs beside the main one, each with an order of its own.
        fusion: null where the solver needs no fusion.
        tiling: Layers computed piece by piece; null where that was not permitted, or where order and in-place writes
            alone meet the budget. Ops and tensors have their names in the model as given. The pieces themselves are
            steps with an origin and a region.
        remat: Values computed again instead of kept; null where that was not permitted, or where order, in-place writes
            and pieces alone meet the budget. Ops have the names of the model in pieces where there are some, else of
            the model as given. The repetitions are steps with an origin.
        chains: Activations that were exported as chains of operators, in one operator each; null where that was not
            permitted, or where order and in-place writes alone meet the budget. Absent in reports of older versions.
        algebra: Operators computed otherwise with the same values; null where that was not permitted, or where order
            and in-place writes alone meet the budget. Absent in reports of older versions.
        io: Inputs and outputs in the form that the layers have; null where that was not permitted, or where order and
            in-place writes alone meet the budget. Absent in reports of older versions.
        interface: The inputs and outputs of the model written. Absent in reports of older versions.
        frontier: memsched analyze --frontier: what less memory costs. Falling peaks with work that never falls; the
            first is the order's. Null where it was not asked for.
        on_chip: For targets with on_chip_bytes: groups of layers whose data stays on chip, and the DRAM traffic and
            time that they save. null elsewhere.
        seconds: The whole command, verification included.
        allocation: How the addresses were found.
        pools: Where the buffers lie when the target has several memories, and what accessing them costs: bytes x cost,
            summed.
        steps: The main graph's ops in order of execution.
        buffers: One entry per tensor with an address. Views and in-place chains have one offset; slices lie inside
            their source, pieces inside their concatenation.
        workspaces: Addresses of what ops need beside their tensors, during their step only.
    """

    schema_version: Literal[1]
    memsched_version: str
    command: Literal["optimize", "analyze"]
    model: ModelSection
    output: OutputSection | None
    target: TargetSection
    baselines: BaselinesSection
    result: ResultSection
    budget: BudgetSection | None
    requirement: RequirementSection | None = None
    order_guarantee: GuaranteeSection | None
    held_back: HeldBackSection | None = None
    interpreter: InterpreterSection | None = None
    sessions: tuple[SessionRow, ...] = ()
    executed: ExecutedSection | None = None
    blocks: BlocksSection | None = None
    curve: CurveSection | None = None
    tflm: TflmSection | None
    verification: VerificationSection | None
    notes: tuple[str, ...]
    failures: tuple[FailureRow, ...] = ()
    suggestions: tuple[SuggestionRow, ...] = ()
    unknown_sizes: tuple[str, ...]
    at_fault: tuple[FaultRow, ...]
    operators: dict[str, Positive]
    layers: tuple[LayerRow, ...] = ()
    firmware: FirmwareSection | None
    bodies: tuple[BodyRow, ...]
    fusion: FusionSection | None
    tiling: TilingSection | None
    remat: RematSection | None
    chains: ChainSection | None = None
    algebra: AlgebraSection | None = None
    io: BorderSection | None = None
    interface: InterfaceSection | None = None
    frontier: tuple[FrontierRow, ...] | None
    on_chip: OnChipSection | None
    passes: tuple[PassRow, ...]
    seed: Count
    seconds: Amount
    allocation: AllocationSection
    pools: PoolsSection | None
    steps: tuple[StepRow, ...]
    buffers: tuple[BufferRow, ...]
    workspaces: tuple[WorkspaceRow, ...]
