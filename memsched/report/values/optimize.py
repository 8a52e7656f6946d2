"""The report of ``memsched optimize`` and ``memsched analyze``, version 2."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Amount, Count, Positive, Section, Sha256, Status
from memsched.report.values.blocks import BlocksSection, CurveSection
from memsched.report.values.border import BorderSection
from memsched.report.values.graphs import OriginalSection, WrittenSection
from memsched.report.values.interpreter import InterpreterSection
from memsched.report.values.ladder import LadderRow
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
from memsched.report.values.sessions import ExecutedSection, HeldBackSection, MappedSection, SessionRow
from memsched.report.values.shared import FailureRow, ModelSection, VerificationSection
from memsched.report.values.verdict import (
    AlternativeRow,
    AssumedRow,
    BudgetSection,
    LedgerRow,
    MeasurementRow,
    ProofSection,
    VerdictSection,
)

__all__ = [
    "BodyRow",
    "FixedDimensionRow",
    "FusionSection",
    "OptimizeReport",
    "OutputSection",
    "PoolRow",
    "PoolsSection",
    "Sections",
    "TargetSection",
]


class FixedDimensionRow(Section, frozen=True, kw_only=True):
    """A dimension that the model as given leaves open and the one written does not.

    Attributes:
        size: The only one that the model written accepts.
        dimension: Its name, or input[axis] where it has none.
    """

    dimension: str
    size: Count


class OutputSection(Section, frozen=True, kw_only=True):
    """The model written.

    Attributes:
        path: Where the model was written; null when the caller did not say, or nothing was written.
        sha256: Of its bytes.
        unchanged: Nothing better was found that is worth another file, and the output is the input, byte for byte;
            false where layers were rewritten.
        slight_bytes: What the best file that was found would have saved, less than one percent of what is required: it
            is not written.
        fixed_dimensions: Dimensions of inputs that the model as given leaves open and the one written does not: it
            holds for these sizes alone, and runtimes refuse others.
        guarantee: How its order is held, and how a session has to be opened for that.
    """

    path: str | None
    sha256: Sha256
    unchanged: bool
    slight_bytes: Count | None = None
    fixed_dimensions: tuple[FixedDimensionRow, ...] = ()
    guarantee: GuaranteeSection


class TargetSection(Section, frozen=True, kw_only=True):
    """The memory rules for which all figures hold.

    Attributes:
        name: As --target names it.
        description: In a sentence.
        alignment_bytes: Every offset is a multiple of it.
        runtime: Which runtime can verify the figures; empty where none can.
        default_order: Whose order the runtime takes when nobody tells it.
        inputs: arena: counted until their last reader; kept: counted to the end; caller: not counted.
        in_place: Whether in-place execution was permitted.
        reason: Why memsched chose it for the file, and what else it could be; empty if the user named it, or if the
            format leaves no choice.
    """

    name: str
    description: str
    runtime: str
    alignment_bytes: Positive
    default_order: Literal["file", "onnxruntime"]
    inputs: Literal["arena", "kept", "caller"]
    in_place: bool
    reason: str = ""


class BodyRow(Section, frozen=True, kw_only=True):
    """A graph beside the main one, with an order of its own.

    Attributes:
        graph: Its name.
        op: The op that executes it; null when no op does.
        ops: How many it has.
        peak_bytes: In the order of the model written.
        lower_bound_bytes: No order has a smaller peak.
        status: optimal: the bound is reached.
        proof: How the bound was proven, in words.
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
    """How far the graph was simplified before the search.

    Attributes:
        ops_before: In the graph.
        ops_after: Left for the search.
        monotonic: Monotonic fusions applied.
        isolated: Isolated sub-graph fusions applied.
        iterations: Rounds until nothing more was merged.
    """

    ops_before: Count
    ops_after: Count
    monotonic: Count
    isolated: Count
    iterations: Count


class PoolRow(Section, frozen=True, kw_only=True):
    """One memory of the target.

    Attributes:
        name: As the target has it.
        size_bytes: What it holds; null for no limit.
        cost: Of accessing one byte.
        used_bytes: The highest end of a buffer in it; null when no placement was found.
        accessed_bytes: Bytes read and written in it; null when no placement was found.
    """

    name: str
    size_bytes: Count | None
    cost: Count
    used_bytes: Count | None
    accessed_bytes: Count | None


class PoolsSection(Section, frozen=True, kw_only=True):
    """Where the buffers lie when the target has several memories, and what accessing them costs: bytes x cost, summed.

    Attributes:
        lower_bound: No placement has less weighted traffic.
        greedy_weighted_traffic: With the buffers placed one by one; null if that found no place.
        last_pool_weighted_traffic: With all buffers in the last memory.
        status: optimal: the bound is reached. infeasible: the memories cannot hold the buffers.
        proof: How the bound was proven, in words.
        method: What found the placement.
        seconds: Time of the search for it.
        pools: The memories, cheapest to access first.
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


class Sections(Section, frozen=True, kw_only=True):
    """What each rewrite, runtime, and target has to say; null or empty for what the command does not have.

    Attributes:
        requirement: What the runtime allocates, and for what.
        verification: null when it was not asked for or the runtime is not installed; verdict.notes then say which.
        held_back: What sessions without options need more for; null if nothing.
        interpreter: LiteRT's default interpreter, if it was measured.
        sessions: ONNX Runtime's sessions that were measured, each in a process of its own, the one without options
            among them.
        executed: The graph that ONNX Runtime executes is what was written (``--session``); null where the model given
            was.
        mapped: Weights in a file of their own, which sessions map; null if the model written holds them.
        open_loops: Loops over blocks of open dimensions; null without a range.
        curve: Memory against size; null where analyze was given no range.
        tflm: The planned part of TensorFlow Lite Micro's arena, simulated; null for other targets and formats.
        firmware: What a firmware with TensorFlow Lite Micro needs for the model written beside the planned tensors;
            null for other formats than TFLite.
        failures: The candidates that failed.
        layers: What each op of the main graph takes, before and after.
        bodies: The graphs beside the main one, each with an order of its own.
        fusion: How far the graph was simplified before the search; null where the solver needs no fusion.
        tile: Layers computed piece by piece; null where that was not permitted, or where order and in-place writes
            alone meet the budget. Ops and tensors have their names in the model as given. The pieces themselves are
            steps with an origin and a region.
        recompute: Values computed again instead of kept; null where that was not permitted, or where order, in-place
            writes and pieces alone meet the budget. Ops have the names of the model in pieces where there are some,
            else of the model as given. The repetitions are steps with an origin.
        chains: Activations that were exported as chains of operators, in one operator each; null where that was not
            permitted, or where order and in-place writes alone meet the budget.
        algebra: Operators computed otherwise with the same values; null where that was not permitted, or where order
            and in-place writes alone meet the budget.
        border: Inputs and outputs in the form that the layers have; null where that was not permitted, or where order
            and in-place writes alone meet the budget.
        frontier: memsched analyze --frontier: what less memory costs. Falling peaks with work that never falls; the
            first is the order's. Null where it was not asked for.
        on_chip: For targets with on_chip_bytes: groups of layers whose data stays on chip, and the DRAM traffic and
            time that they save. null elsewhere.
        pools: Where the buffers lie when the target has several memories, and what accessing them costs: bytes x cost,
            summed.
        ladder: What was tried to meet a budget that one file missed, that file first; empty where it met it.
    """

    requirement: RequirementSection
    verification: VerificationSection | None = None
    held_back: HeldBackSection | None = None
    interpreter: InterpreterSection | None = None
    sessions: tuple[SessionRow, ...] = ()
    executed: ExecutedSection | None = None
    mapped: MappedSection | None = None
    open_loops: BlocksSection | None = None
    curve: CurveSection | None = None
    tflm: TflmSection | None = None
    firmware: FirmwareSection | None = None
    failures: tuple[FailureRow, ...] = ()
    layers: tuple[LayerRow, ...] = ()
    bodies: tuple[BodyRow, ...] = ()
    fusion: FusionSection | None = None
    tile: TilingSection | None = None
    recompute: RematSection | None = None
    chains: ChainSection | None = None
    algebra: AlgebraSection | None = None
    border: BorderSection | None = None
    frontier: tuple[FrontierRow, ...] | None = None
    on_chip: OnChipSection | None = None
    pools: PoolsSection | None = None
    ladder: tuple[LadderRow, ...] = ()


class OptimizeReport(Section, frozen=True, kw_only=True):
    """What memsched found for one model: the record that the console, the page, and every other reader show.

    All sizes are integers in bytes and their names end in _bytes or are "bytes"; times end in seconds. Steps are
    numbered from 0.

    Attributes:
        schema_version: Of the reports of all commands.
        memsched_version: Which memsched wrote it.
        command: Which one.
        seed: Of all random choices.
        seconds: The whole command, verification included.
        model: The original.
        output: The model written; null where the command writes none.
        target: The memory rules for which all figures hold.
        assumed: Sizes that the original leaves open and for which the figures hold.
        verdict: What the runtime allocates for the original and for the model written.
        budget: null when no budget was given.
        ledger: Every rewrite and solver that ran, in the order in which they began, also if no file was written.
        proof: What is proven of the peak.
        measurements: What runs showed of the original and of the model written.
        original: The original in the order of its file.
        written: The model written, its order, steps, and addresses.
        sections: What each rewrite, runtime, and target has to say.
        alternatives: What else would help, each tried; the one to name first.
    """

    schema_version: Literal[2]
    memsched_version: str
    command: Literal["optimize", "analyze"]
    seed: Count
    seconds: Amount
    model: ModelSection
    output: OutputSection | None
    target: TargetSection
    assumed: tuple[AssumedRow, ...]
    verdict: VerdictSection
    budget: BudgetSection | None
    ledger: tuple[LedgerRow, ...]
    proof: ProofSection
    measurements: tuple[MeasurementRow, ...]
    original: OriginalSection
    written: WrittenSection
    sections: Sections
    alternatives: tuple[AlternativeRow, ...]

    @property
    def guarantee(self) -> GuaranteeSection | None:
        """How the order of the model written is held; None if none is written."""
        return None if self.output is None else self.output.guarantee

    @property
    def in_session(self) -> bool:
        """Whether the figures are those of ONNX Runtime's sessions."""
        return self.verdict.unit in {"requested", "process"}
