"""The one small DAG that every pass works on: tensors, ops, graphs, and the results found for them.

Everything here is a frozen value. Tensors and ops are referred to by their index in the graph.
Sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.effects import PURE, Effects
from memsched.graph.loop import Loop

__all__ = [
    "Allocation",
    "AttributeValue",
    "Graph",
    "InPlace",
    "Op",
    "Placement",
    "Region",
    "Schedule",
    "Status",
    "Tensor",
]

AttributeValue = int | float | str | bool | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
Status = Literal["optimal", "feasible"]

_NO_ATTRIBUTES: Mapping[str, AttributeValue] = MappingProxyType({})


class Tensor(FrozenValue, frozen=True, gc=False):
    """A value that occupies activation memory while it is live.

    Attributes:
        name: Unique in its graph.
        size: Bytes: elements x element bits, rounded up to whole bytes. 0 when ``sized`` is False.
        shape: Dimensions, or None when unknown (sequences, optionals).
        dtype: Element type in the words of numpy ("float32", "int8", "int4"), or the format's own.
        sized: False for a value whose size no option can state (a sequence, an optional, strings):
            it counts nothing and the report names it.
        external: The caller owns the bytes (ONNX Runtime's inputs, a body's captures); they cost nothing here.
        stated: What the file by itself tells of ``shape`` where that is less: per axis a length, the name of an open
            one, or "" for nothing. None: all of it.
    """

    name: str
    size: int
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    sized: bool = True
    external: bool = False
    stated: tuple[int | str, ...] | None = None

    def shape_in_file(self) -> tuple[int | str, ...] | None:
        """Return the shape that the file alone guarantees; None where it leaves an axis open.

        Two tensors of one such shape have equal shapes in every inference.
        """
        if self.stated is None:
            return self.shape
        return None if "" in self.stated else self.stated


class Region(FrozenValue, frozen=True):
    """The part of a source op's output that an op computes: one half-open range per axis, in elements."""

    ranges: tuple[tuple[int, int], ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """Elements per axis: the shape of a tensor that holds the region."""
        return tuple(stop - start for start, stop in self.ranges)


class Op(FrozenValue, frozen=True, gc=False):
    """One step of execution.

    Attributes:
        name: Unique in its graph.
        type: The format's operator name ("Conv", "CONV_2D"); the domain is a prefix ("com.microsoft.Gelu").
        inputs: Activation tensors read, in the operator's order; constants and absent inputs left out.
        outputs: Tensors produced.
        workspace: Bytes needed during this step only, beside inputs and outputs.
        views: Pairs (output, input): the output lies inside the input's bytes (Reshape, a slice of whole rows).
            Several pairs with one output: the output consists of these inputs, laid one after the other
            (a concatenation on the outermost axis).
        view_offsets: Per pair of ``views`` where it lies: the byte of the input at which a slice begins, or the byte
            of the output at which a piece of a concatenation begins. Empty: slices begin at byte 0, and pieces follow
            each other in the order of the pairs.
        in_place: Pairs (output, input): the output may take the input's bytes when the input dies here.
        attributes: Small attributes that rules of targets and passes look at.
        positions: The operator's own input position of each entry of ``inputs``.
        macs: Multiply-accumulates of this op; 0 where it has none or they are unknown.
        origin: Name of the op in the source model that this one comes from; None when it is that op itself.
        region: The part of the origin's output that this op computes; None for all of it.
        loop: What the body of this op computes tile by tile; None for other ops and for loops that were read.
        chain: Names of the ops of the source model in whose place this one is; empty for all others.
        terms: The part of the axis that the origin sums over (a convolution's input channels, a product's inner axis)
            that this op sums over; None for all of it. What the origin adds at the end goes with the part from 0.
        effects: Everything that it does beyond computing its outputs, its bodies' effects included.
    """

    name: str
    type: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    workspace: int = 0
    views: tuple[tuple[int, int], ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    attributes: Mapping[str, AttributeValue] = _NO_ATTRIBUTES
    positions: tuple[int, ...] = ()
    macs: int = 0
    origin: str | None = None
    region: Region | None = None
    view_offsets: tuple[int, ...] = ()
    loop: Loop | None = None
    chain: tuple[str, ...] = ()
    terms: tuple[int, int] | None = None
    effects: Effects = PURE


class Graph(FrozenValue, frozen=True):
    """A DAG of ops over tensors; the order of ``ops`` is the file's order.

    Attributes:
        inputs: Tensors given from outside, live from before step 0.
        outputs: Tensors live to the end.
        variables: Tensors that are always live (TFLite ``is_variable``).
        dependencies: Pairs (before, after) of ops that must keep this order although no tensor says so
            (reads and writes of one state).
        cut_for: The runtime whose values pieces of its ops must keep, as the table of cuts names it; "" for all.
    """

    name: str
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    variables: tuple[int, ...] = ()
    dependencies: tuple[tuple[int, int], ...] = ()
    cut_for: str = ""

    def shape_made(self, op: int) -> tuple[int, ...]:
        """Return the shape of an op's first output; () for an op without outputs and for an unknown shape."""
        outputs = self.ops[op].outputs
        return (self.tensors[outputs[0]].shape or ()) if outputs else ()


class InPlace(FrozenValue, frozen=True, gc=False):
    """The planner's choice that op ``op`` writes tensor ``output`` into the bytes of its dying input ``input``."""

    op: int
    output: int
    input: int


class Schedule(FrozenValue, frozen=True):
    """An execution order with what is known of it.

    Attributes:
        order: Op indices in order of execution.
        in_place: The in-place choices that the peak counts on.
        peak: The largest footprint, bytes.
        lower_bound: No order of this graph has a smaller peak than this, bytes.
        status: "optimal" only when peak == lower_bound or a complete search ended.
        proof: How the bound was proven, in words.
        method: The solver that found the order.
        states: Search states visited, or the solver's own measure of effort.
        seconds: Time spent.
    """

    order: tuple[int, ...]
    in_place: tuple[InPlace, ...]
    peak: int
    lower_bound: int
    status: Status
    proof: str
    method: str
    states: int = 0
    seconds: float = 0.0


class Placement(FrozenValue, frozen=True, gc=False):
    """A buffer's place: bytes [offset, offset + size) during steps [first_step, last_step], both included.

    Attributes:
        tensors: The tensors that share these bytes (views, in-place chains), by first use.
    """

    tensors: tuple[int, ...]
    offset: int
    size: int
    first_step: int
    last_step: int


class Allocation(FrozenValue, frozen=True):
    """Addresses for all buffers of a schedule.

    Attributes:
        arena: max over placements of offset + size, bytes.
        lower_bound: No arena of this schedule is smaller than this, bytes: what is live at once, or what a search
            proved beyond that.
    """

    placements: tuple[Placement, ...]
    arena: int
    lower_bound: int
    alignment: int
    status: Status
    method: str
