"""What a runtime does with memory, as frozen values; the TOML files of this folder hold one target each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

__all__ = [
    "KERNELS_OF",
    "BudgetFor",
    "CautiousPrice",
    "InPlaceRule",
    "PartViewRule",
    "PipelineRules",
    "Pool",
    "PriceRule",
    "Rules",
    "Target",
    "TargetFile",
    "ViewRule",
    "WorkspaceRule",
]

Constant = Literal["any", "channels", "scalar", "zero_pads"]
ViewMatch = Literal["bytes", "type"]
DefaultOrder = Literal["file", "onnxruntime"]
InputOwner = Literal["arena", "kept", "caller"]
Loops = Literal["", "if", "while"]
Match = Literal["bytes", "shape", "stated_shape"]
PartKind = Literal["concatenation", "slice", "split"]
Kernels = Literal["", "litert", "cmsis-nn", "cmsis-nn-dsp", "cmsis-nn-mve", "esp-nn", "esp-nn-s3"]
Planner = Literal["", "tflm"]
Runtime = Literal["", "litert", "onnxruntime"]
BudgetFor = Literal["arena", "activations"]
PointerBits = Literal[32, 64]
Weights = Literal["flash", "ram"]
When = Literal["always", "axis_not_last"]

KERNELS_OF: Final[Mapping[Planner, tuple[Kernels, ...]]] = {
    "": ("litert",),
    "tflm": ("cmsis-nn", "cmsis-nn-dsp", "cmsis-nn-mve", "esp-nn", "esp-nn-s3"),
}
"""Kernels that a target may name, by its planner."""

LARGEST = 2**50
"""The largest size or count, also of a cluster's memory: more is a mistake, and more than searches can add up."""

Operators = Annotated[tuple[str, ...], Meta(min_length=1)]
Position = Annotated[int, Meta(ge=0, le=LARGEST)]
BYTES = {"unit": "bytes"}
"""Marks a size, which a file may write as text, such as "256KB"."""

Size = Annotated[int, Meta(ge=0, le=LARGEST, extra=BYTES)]
Rate = Annotated[float, Meta(ge=0, le=1e30)]
PositiveRate = Annotated[float, Meta(ge=1, le=1e30)]


class Rules(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a TOML file; values are checked when a file is read, not when one is built."""


class ViewRule(Rules, frozen=True):
    """Ops whose first output is the bytes of one input, under another shape.

    Attributes:
        ops: Operator names of either format.
        input: The operator's position of that input.
        after: Only where one of these ops makes that input, and everything else that the two ops read is constant: the
            runtime makes one op of them.
        before: Only where one of these ops alone reads the first output: the runtime makes one op of the two, which
            reads that input instead, whatever its size.
        sole_reader: Only where nothing else reads that input, and it is not an output of the model.
        constant: What the other input is: "any", "channels": one value for each channel, or "scalar": a single value
            without dimensions; "zero_pads": the op puts zeros around all axes but the first two.
        match: "bytes", or "type": of the same shape and element type.
    """

    ops: Operators
    input: Position = 0
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    sole_reader: bool = False
    constant: Constant = "any"
    match: ViewMatch = "bytes"


class PartViewRule(Rules, frozen=True):
    """Ops with tensors that may lie inside another.

    Attributes:
        kind: "concatenation": the inputs inside the output, on the outermost non-unit axis. "slice": the first
            output inside one input, whole rows of it. "split": every output inside one input.
        input: The operator's position of the source of a slice or split.
    """

    ops: Operators
    kind: PartKind
    input: Position = 0


class InPlaceRule(Rules, frozen=True):
    """Ops that may write their first output over a dying input.

    Attributes:
        inputs: The operator's positions of the inputs that it may overwrite; None for any.
        match: "bytes": equal sizes and element counts. "shape": equal shapes and element sizes.
            "stated_shape": the same, for every size that the file leaves open.
        elementwise: Each output element depends only on the input elements at its own place, so that the op may
            read the same bytes through another input as well.
        sole_reader: Only an input that no other op reads at all, not even earlier.
        above_bytes: Only for tensors of more bytes than this.
    """

    ops: Operators
    inputs: tuple[Position, ...] | None = None
    match: Match = "bytes"
    elementwise: bool = False
    sole_reader: bool = False
    above_bytes: Position = 0


class WorkspaceRule(Rules, frozen=True):
    """Ops that need memory of their own while they run.

    Attributes:
        outputs: How much, in units of the size of the op's outputs.
        when: "axis_not_last": only where the attribute ``axis`` is not the last axis.
    """

    ops: Operators
    outputs: Annotated[float, Meta(ge=0, le=1e6)]
    when: When = "always"


class Pool(Rules, frozen=True):
    """Memory of one kind, such as fast SRAM or DRAM.

    Attributes:
        size: Bytes; None for as much as is needed, which only the last pool may be.
        cost: What it costs to read or write one byte, in any unit, the same for all pools of a target.
    """

    name: str
    size: Size | None = None
    cost: Position = 1


class PipelineRules(Rules, frozen=True):
    """Accelerators in a row, one per stage of a network.

    Attributes:
        parameter_cache_bytes: Memory of each accelerator for parameters; what does not fit is sent to it for every
            inference.
        parameter_bits: Bits of one parameter as the accelerator holds it; 0 where it is as the model says.
        link_bytes_per_second: Bandwidth between the host and one accelerator that transfers really reach.
        ops_per_second: Nominal operations per second, two per multiply-accumulate.
        utilisation: The share of ``ops_per_second`` that networks reach, above 0 and at most 1.
    """

    parameter_cache_bytes: Size
    link_bytes_per_second: PositiveRate
    ops_per_second: PositiveRate
    utilisation: Annotated[float, Meta(ge=1e-6, le=1)] = 1.0
    parameter_bits: Position = 0


class CautiousPrice(Rules, frozen=True):
    """What one more operator costs where threads share the work and weights lie in no near cache.

    Attributes:
        macs_per_op: Its time before it computes anything, in multiply-accumulates that take as long then.
        macs_per_byte: Its time to read or write a byte, likewise.
        macs_per_weight_byte: Its time to read a byte of weights, likewise.
    """

    macs_per_op: Rate
    macs_per_byte: Rate
    macs_per_weight_byte: Rate


class PriceRule(Rules, frozen=True):
    """What one more operator costs, however little it does.

    Attributes:
        bytes_per_op: Memory of the process for the runtime's own structures.
        macs_per_op: Its time on one thread before it computes anything, in multiply-accumulates that take as long.
        macs_per_byte: Its time to read or write a byte, likewise.
        cautious: What decides on layers in pieces that are to cost nothing; None: the same.
    """

    bytes_per_op: Size
    macs_per_op: Rate
    macs_per_byte: Rate
    cautious: CautiousPrice | None = None


class Target(Rules, frozen=True):
    """The memory rules for which a report's figures hold.

    Attributes:
        name: Shown in reports.
        description: One sentence.
        runtime: Which installed runtime can verify the figures; "" where none can.
        planner: Whose planner places tensors where the model brings no memory plan: "tflm" is TensorFlow Lite Micro's,
            for which a plan can be written; "" is none that is known here.
        kernels: Whose kernels need memory of their own that no file shows: "litert" is LiteRT's, without delegates; for
            TensorFlow Lite Micro's planner those of CMSIS-NN for processors without DSP instructions, with them
            ("cmsis-nn-dsp") or with vectors ("cmsis-nn-mve"), those of ESP-NN, or of it for the ESP32-S3; "" is none
            that is known here, and for that planner the reference kernels.
        default_delegate: Whether LiteRT's interpreters apply their default delegate: then memsched writes no file that
            needs more memory or time there than the original.
        pointer_bits: Bits of the processor's pointers: what TensorFlow Lite Micro keeps per operator depends on them.
        budget_for: What decides, for TensorFlow Lite Micro: "arena", all that an interpreter is given; "activations",
            the planned part alone.
        alignment_bytes: Every buffer's offset is a multiple of it, a power of two.
        align_parts: Whether part views must lie on multiples of it as well; where one would not, it is not one.
        default_order: The order that the runtime takes when it is not told one: the file's, or ONNX Runtime's own.
        inputs: Whose bytes graph inputs are: "arena": counted until their last reader; "kept": counted to the
            end; "caller": not counted.
        overwrite_inputs: Whether an op may write in place of a graph input.
        outputs_own: Whether graph outputs are never views and never written in place.
        weights: Whether constants lie in flash, which costs nothing here, or in RAM.
        reuse_equal_shapes: Whether the runtime hands a dead buffer on only to a tensor of the identical shape.
        dead_tensors_allocated: Whether tensors that no op names are given memory too.
        int4_bytes_per_element: 0.5, or 1 where 4-bit types are not packed.
        most_join_inputs: Tensors that one concatenation can join, 2 or more; None for any number.
        loops: How groups of layers may be written as loops: "while": by an operator WHILE whose body updates slices in
            place; "if": by an operator IF for each tile, all of which have one body; "" not at all.
        pads_over_inputs: Ops that write their output from its first byte to its last, each byte after the part of their
            first input that it needs was read: the output may begin before that input, where it dies, and end over it.
        on_chip_bytes: An accelerator's memory, into which data is moved from DRAM; 0 where there is none.
        bandwidth_bytes_per_second: Bandwidth between DRAM and on-chip memory; 0 where it is not known.
        flops_per_second: Floating-point operations, two per multiply-accumulate; 0 where it is not known.
        pools: The memories that buffers may lie in, the cheapest first; none where there is one memory for all.
        pipeline: Accelerators in a row; None where there are none.
        price: What one more operator costs in memory of the process and in time; None where that is not known.
    """

    name: str
    description: str
    runtime: Runtime = ""
    planner: Planner = ""
    kernels: Kernels = ""
    default_delegate: bool = True
    pointer_bits: PointerBits = 32
    budget_for: BudgetFor = "arena"
    alignment_bytes: Annotated[int, Meta(le=LARGEST)] = 1
    align_parts: bool = True
    default_order: DefaultOrder = "file"
    inputs: InputOwner = "arena"
    overwrite_inputs: bool = False
    outputs_own: bool = False
    weights: Weights = "flash"
    reuse_equal_shapes: bool = False
    dead_tensors_allocated: bool = False
    int4_bytes_per_element: float = 0.5
    most_join_inputs: Annotated[int, Meta(ge=2, le=LARGEST)] | None = None
    loops: Loops = ""
    on_chip_bytes: Size = 0
    bandwidth_bytes_per_second: Rate = 0.0
    flops_per_second: Rate = 0.0
    pads_over_inputs: tuple[str, ...] = ()
    views: tuple[ViewRule, ...] = ()
    part_views: tuple[PartViewRule, ...] = ()
    in_place: tuple[InPlaceRule, ...] = ()
    workspace: tuple[WorkspaceRule, ...] = ()
    pools: tuple[Pool, ...] = ()
    pipeline: PipelineRules | None = None
    price: PriceRule | None = None

    @property
    def orders_itself(self) -> bool:
        """Whether the runtime takes an order of its own, not the file's, when it is not told one."""
        return self.default_order != "file"

    @property
    def executed_by(self) -> str:
        """The runtime that executes files for this target; "" if the target names none."""
        return self.planner or self.runtime

    @property
    def kernels_keep_memory(self) -> bool:
        """Whether kernels need memory of their own by rules that are known here of single ops, as LiteRT's do."""
        return bool(self.kernels) and not self.planner


class TargetFile(Target, frozen=True, kw_only=True):
    """The memory rules of a runtime or chip, as their TOML file holds them.

    Attributes:
        name: Shown in reports; by default the file's.
        extends: A built-in target, or the path of another file, whose keys hold where this file has none.
    """

    name: str = ""
    description: str = ""
    extends: str = ""
