"""What a report says of the runtimes that execute the model."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType, field

from memsched.report.values.base import Count, Section

__all__ = [
    "ByPointer",
    "DroppedTensorRow",
    "FirmwareSection",
    "GuaranteeKind",
    "GuaranteeSection",
    "KeptRow",
    "PlannedTensorRow",
    "PredictedPeaksSection",
    "RefusedOpRow",
    "RequirementParts",
    "RequirementSection",
    "ScratchRow",
    "TflmSection",
]


GuaranteeKind = Literal["none", "session", "pins", "default", "file", "control_dependencies"]
"""How the order of a file is held."""


class PredictedPeaksSection(Section, frozen=True, kw_only=True):
    """The main graph's peak in ONNX Runtime, workspaces included, graph optimisation off.

    Guarantees that were not asked for are given the orders that are found without a search.

    Attributes:
        given: The file as given in a session without options: the default order, dead buffers handed on.
        none: What none writes, in a session without options.
        default: What default writes, in a session without options.
        session: The order of session with enable_mem_reuse left on.
        session_without_reuse: The order of session with all options that it lists.
        pins: What pins writes, in a session without options.
    """

    given: Count
    none: Count
    default: Count
    session: Count
    session_without_reuse: Count
    pins: Count


class GuaranteeSection(Section, frozen=True, kw_only=True):
    """What makes the runtime keep the order.

    Attributes:
        kind: What makes the runtime keep the order; "file" where the format's own order is binding.
        session_options: What a session must be given for the order to hold.
        pins: Dependencies that were added to hold the order; null where pins were not asked for.
        predicted_peak_bytes: The main graph's peak in ONNX Runtime, workspaces included, graph optimisation off; null
            for other targets. Guarantees that were not asked for are given the orders that are found without a search.
    """

    kind: GuaranteeKind
    session_options: tuple[str, ...]
    pins: Count | None
    predicted_peak_bytes: PredictedPeaksSection | None


class RequirementParts(Section, frozen=True, kw_only=True):
    """What a runtime allocates memory for: sizes that add up, those that are known; none where nothing is.

    Attributes:
        activations_bytes: Tensors, where these and temporaries need most together.
        temporaries_bytes: What kernels need for a moment, then.
        slack_bytes: What lies between them.
        planning_bytes: What TensorFlow Lite Micro's planning takes for a moment beyond all of these.
        persistent_bytes: What stays beside them: in TensorFlow Lite Micro's arena, structures and kernels' own data.
        workspace_bytes: What operators hand to each other within LiteRT's default delegate.
        tables_bytes: Pointers that it keeps to what convolutions read.
        packed_weights_bytes: Copies of weights that it packs.
        structures_bytes: What LiteRT and it keep of operators otherwise.
    """

    activations_bytes: Count | UnsetType = UNSET
    temporaries_bytes: Count | UnsetType = UNSET
    slack_bytes: Count | UnsetType = UNSET
    planning_bytes: Count | UnsetType = UNSET
    persistent_bytes: Count | UnsetType = UNSET
    workspace_bytes: Count | UnsetType = UNSET
    tables_bytes: Count | UnsetType = UNSET
    packed_weights_bytes: Count | UnsetType = UNSET
    structures_bytes: Count | UnsetType = UNSET


class RequirementSection(Section, frozen=True, kw_only=True):
    """What the runtime allocates: what a budget is compared with, and what rewrites and orders are chosen by.

    Attributes:
        runtime: Its name; empty where none executes what the target describes.
        given_bytes: For the model as given.
        bytes: For the model written, or for the one given where none was.
        given_parts: What ``given_bytes`` are for.
        parts: What ``bytes`` are for.
        measured_given_bytes: What the runtime was seen to allocate for the model as given; null where it was not run,
            or what was seen is another quantity: TensorFlow Lite Micro's arena is measured with pointers of 64 bits, a
            file that is kept in a session without options.
        measured_bytes: For the model written.
        structures_bytes: What the runtime's own structures are expected to take of its process beside ``bytes``, beyond
            those for the model as given: of two models the one whose sum is less is chosen where no budget is stated.
    """

    runtime: str
    given_bytes: Count
    bytes: Count
    given_parts: RequirementParts
    parts: RequirementParts
    measured_given_bytes: Count | None = None
    measured_bytes: Count | None = None
    structures_bytes: Count = 0


class RefusedOpRow(Section, frozen=True, kw_only=True):
    """An operator of the model as given that TensorFlow Lite Micro's reference kernels refuse.

    Attributes:
        subgraph: Index in the file.
        type: Its operator.
        reason: In the words of the kernel's rules.
        operator: Index in its subgraph, in the file's order.
        name: Of its first output.
    """

    subgraph: Count
    operator: Count
    type: str
    name: str
    reason: str


class DroppedTensorRow(Section, frozen=True, kw_only=True):
    """A tensor that no operator refers to: it would have been given memory and is empty in the model written.

    Attributes:
        subgraph: Index in the file.
        tensor: Its name.
        size_bytes: What it would have been given.
        index: Of the tensor in its subgraph.
    """

    subgraph: Count
    index: Count
    tensor: str
    size_bytes: Count


class PlannedTensorRow(Section, frozen=True, kw_only=True):
    """An offset that the model written states.

    Attributes:
        subgraph: Index in the file.
        tensor: Its name.
        offset_bytes: Its address in the planned part.
        index: Of the tensor in its subgraph.
    """

    subgraph: Count
    index: Count
    tensor: str
    offset_bytes: Count


class TflmSection(Section, frozen=True, kw_only=True):
    """The planned part of TensorFlow Lite Micro's arena, simulated.

    Attributes:
        head_bytes: Of the model written, or of the model as given where none was; null where TensorFlow Lite Micro
            refuses the plan that it brings.
        file_head_bytes: Of the model as given, with the memory plan that it brings; null where TensorFlow Lite Micro
            refuses that plan.
        order_head_bytes: Of the model written, planned by TensorFlow Lite Micro itself.
        plan_head_bytes: Of the model written with memsched's memory plan; null where none was written.
        refusal: Why TensorFlow Lite Micro does not run the model as given, in its own words; null where it does, and
            where it was not tried: it is not installed, or nothing was to be run.
        refused: Operators of the model as given that TensorFlow Lite Micro's reference kernels refuse: what was tried
            of them is listed in the documentation. Then its figures are those that it would have.
        plan_fault: What is wrong with the memory plan that the model as given brings; null where nothing is.
        dropped: Tensors that no operator refers to: they would have been given memory and are empty in the model
            written.
        plan: The offsets that the model written states; empty without a plan of memsched's.
    """

    head_bytes: Count | None
    file_head_bytes: Count | None
    order_head_bytes: Count | None
    plan_head_bytes: Count | None
    refusal: str | None = None
    refused: tuple[RefusedOpRow, ...] = ()
    plan_fault: str | None = None
    dropped: tuple[DroppedTensorRow, ...]
    plan: tuple[PlannedTensorRow, ...]


class ScratchRow(Section, frozen=True, kw_only=True):
    """Buffers that a reference kernel requests for its own operator's time.

    Attributes:
        subgraph: Index in the file.
        type: Its operator.
        requests_bytes: One for each buffer.
        operator: In the order of the file as given, or in which a rewrite made the operators.
    """

    subgraph: Count
    operator: Count
    type: str
    requests_bytes: tuple[Count, ...]


class KeptRow(Section, frozen=True, kw_only=True):
    """What stays in TensorFlow Lite Micro's arena for an operator and what it makes, on 32 bit.

    Attributes:
        subgraph: Index in the file.
        type: Its operator.
        bytes: What stays.
        operator: In the order of the file as given, or in which a rewrite made the operators.
    """

    subgraph: Count
    operator: Count
    type: str
    bytes: Count


class ByPointer(Section, frozen=True, kw_only=True):
    """Bytes by bits of a pointer.

    Attributes:
        bits_64: With pointers of 64 bits.
        bits_32: With pointers of 32 bits.
    """

    bits_64: Count = field(name="64")
    bits_32: Count = field(name="32")


class FirmwareSection(Section, frozen=True, kw_only=True):
    """What a firmware with TensorFlow Lite Micro needs for the model written beside the planned tensors.

    Attributes:
        resolver_calls: Calls on a MicroMutableOpResolver; their number is its size.
        unsupported_operators: Operators that TensorFlow Lite Micro does not have.
        custom_operators: Custom operators whose registration the firmware brings itself.
        scratch: Buffers that the target's kernels request, each for its own operator's time.
        persistent_bytes_estimate: What stays in the arena's tail, by bits of a pointer.
        planning_bytes_estimate: What planning takes for a moment in the place of the tensors: an arena holds the
            persistent part and the larger of this and the head.
        file_persistent_bytes_estimate: What stays in the arena's tail for the model as given; more where layers were
            rewritten into many operators.
        file_planning_bytes_estimate: What planning takes for the model as given.
        assumptions: What must hold for the estimates.
        kept: What stays for each operator; the rest of the persistent part is the interpreter's own, and for constants,
            inputs and outputs.
        unknown_kernels: Operators whose kernels' own needs are not known: no figure counts them.
        resource_variables: For so many the firmware creates MicroResourceVariables, from the interpreter's allocator.
        apart_persistent_bytes_estimate: What the first of two arenas holds, all that stays, where
            MicroAllocator::Create is given two.
        apart_planning_bytes_estimate: What planning takes of the second, which holds this or the head.
    """

    resolver_calls: tuple[str, ...]
    unsupported_operators: tuple[str, ...]
    custom_operators: tuple[str, ...]
    scratch: tuple[ScratchRow, ...]
    persistent_bytes_estimate: ByPointer
    planning_bytes_estimate: ByPointer
    assumptions: tuple[str, ...]
    file_persistent_bytes_estimate: ByPointer
    file_planning_bytes_estimate: ByPointer
    kept: tuple[KeptRow, ...] = ()
    unknown_kernels: tuple[str, ...] = ()
    resource_variables: int = 0
    apart_persistent_bytes_estimate: ByPointer | None = None
    apart_planning_bytes_estimate: ByPointer | None = None
