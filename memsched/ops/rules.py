"""How one axis of an operand follows one axis of the output: the words that every operator of every format is put in.

An operand is anything that an op reads: an activation or a constant, by its position among the operator's inputs.
All ranges are half-open and in elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Final, Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.graph.model import AttributeValue, Graph

__all__ = [
    "CONSTANT_SHAPE",
    "FULL",
    "ONE_AXIS",
    "POINTWISE",
    "AxisMap",
    "ChannelGroups",
    "Family",
    "Geometry",
    "Merge",
    "OpClass",
    "OpRule",
    "Operands",
    "Pointwise",
    "Reflection",
    "Refusal",
    "RefusedError",
    "Resampling",
    "Rule",
    "ShapedOp",
    "Shift",
    "Stride",
    "Subdivision",
    "TransposedWindow",
    "WholeAxis",
    "Window",
    "ratio",
    "ruled",
    "same",
    "whole",
]


class Refusal(FrozenValue, frozen=True):
    """Why something cannot be tiled.

    Attributes:
        reason: One clause without a capital or a full stop.
        code: Which reason it is, in words joined by hyphens.
    """

    reason: str
    code: str = "refused"


class RefusedError(Exception):
    """A `Refusal` on its way up; public functions of the package return the refusal instead of raising it."""

    def __init__(self, reason: str, code: str = "refused") -> None:
        super().__init__(reason)
        self.code = code

    @property
    def refusal(self) -> Refusal:
        """What is returned in place of the error."""
        return Refusal(str(self), self.code)


class WholeAxis(FrozenValue, frozen=True):
    """The whole axis is needed for every output element (a reduction, or an axis of length 1 that is broadcast)."""


class Pointwise(FrozenValue, frozen=True):
    """Output element i needs input element i."""


class Shift(FrozenValue, frozen=True):
    """Output element i is input element i - offset, and is none of this operand's outside it (Concat)."""

    offset: int


class Stride(FrozenValue, frozen=True):
    """Output element i is input element begin + step * i (Slice); a negative step reads backwards."""

    begin: int
    step: int


class Window(FrozenValue, frozen=True):
    """Output element i needs input elements i * stride - pad_before + dilation * (0 .. kernel - 1).

    Attributes:
        pad_after: Padding that the operator states; a ceil-mode window may reach past it.
        bounded: A window may not reach past ``pad_after``, because the divisor would change (AveragePool that counts
            its padding).
        most_padding: The most padding that runtimes take on a side; None for any.
    """

    kernel: int
    stride: int = 1
    dilation: int = 1
    pad_before: int = 0
    pad_after: int = 0
    bounded: bool = False
    most_padding: int | None = None


class Reflection(FrozenValue, frozen=True):
    """Padding whose values are the input's own.

    Attributes:
        kind: 0 repeats the border (edge), 1 mirrors without the border (reflect), 2 with it (symmetric).
    """

    pad_before: int
    pad_after: int
    kind: int


class TransposedWindow(FrozenValue, frozen=True):
    """Input element i adds to output elements i * stride - pad_before + dilation * (0 .. kernel - 1)."""

    kernel: int
    stride: int = 1
    dilation: int = 1
    pad_before: int = 0


class Subdivision(FrozenValue, frozen=True):
    """Output element i needs input element i // size (DepthToSpace, Divided dimensions of a Reshape)."""

    size: int
    croppable: bool = True


class Merge(FrozenValue, frozen=True):
    """Output element i needs input elements [i * size, (i + 1) * size) (SpaceToDepth, Reshape)."""

    size: int


class ChannelGroups(FrozenValue, frozen=True):
    """Groups of ``outputs`` output elements each need a group of ``inputs`` input elements (grouped convolution).

    Attributes:
        divisible: A part of one group's outputs can be computed by itself.
    """

    inputs: int
    outputs: int
    divisible: bool = True


class Resampling(FrozenValue, frozen=True):
    """Resampling: output element i reads the input at coordinate (i + centre) / scale - back.

    Attributes:
        scale: Output length by input length as the runtime computes it.
        centre: Added before dividing: 1/2 where pixels have centres, else 0.
        back: Subtracted afterwards.
        rounding: "linear", or how nearest rounds: "floor", "ceil", "round_prefer_floor", "round_prefer_ceil".
        least: Fewest output elements that a piece must have: outputs of length 1 have coordinates of their own in
            some modes.
        divides: The runtime divides by the scale, which is exact where the result is; otherwise it multiplies by a
            rounded reciprocal.
        corners: The first and last elements of both meet (align_corners), and ``scale`` is that of the lengths without
            one element; ``centre`` and ``back`` are 0.
    """

    scale: Fraction
    centre: Fraction
    back: Fraction
    rounding: str
    least: int = 1
    divides: bool = True
    corners: bool = False


Rule = (
    WholeAxis
    | Pointwise
    | Shift
    | Stride
    | Window
    | Reflection
    | TransposedWindow
    | Subdivision
    | Merge
    | ChannelGroups
    | Resampling
)
ONE_AXIS: Final = "one_axis"
"""Attribute of a Softmax or LogSoftmax that normalises along its axis alone, not along those behind it as well."""

FULL: Final = WholeAxis()
POINTWISE: Final = Pointwise()


class AxisMap(FrozenValue, frozen=True):
    """An operand's axis follows axis ``output`` of the output by ``rule``; -1 for `WholeAxis`, which follows none."""

    output: int
    rule: Rule


Operands = dict[int, tuple[AxisMap, ...]]


@dataclass(frozen=True, slots=True)
class Geometry:
    """What an op's output needs of its operands.

    Attributes:
        shape: Of the output.
        shapes: Per operator's position the operand's shape, where it is known.
        operands: Per operator's position one map per axis of that operand. Constants not named here are needed whole.
        fixed: Output axes that cannot be split, each with the reason.
        group: Output axis of a grouped convolution's channels and channels per group; None where there is one group.
    """

    shape: tuple[int, ...]
    shapes: Mapping[int, tuple[int, ...]]
    operands: Mapping[int, tuple[AxisMap, ...]]
    fixed: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    group: tuple[int, int] | None = None


OpClass = Literal["elementwise", "channelwise", "window", "reduction", "product", "movement", "gather"]
"""What an op does to its elements.

"elementwise": it computes each from those at the same place of its operands, which are broadcast. "channelwise": the
same, where some operands are vectors along one axis. "window": from those around. "reduction": from all along some
axes; normalisations are of this class. "product": it sums products along an axis. "movement": each is one of an
operand's, at a place that the op states. "gather": at a place that another operand states.
"""


Family = Literal[
    "axis reduction",
    "batch normalization",
    "broadcast",
    "cast",
    "concatenation",
    "convolution",
    "dequantization",
    "expansion",
    "interpolation",
    "matrix product",
    "mirror pad",
    "norm pool",
    "pad",
    "pool",
    "quantization",
    "repetition",
    "reshape",
    "resize",
    "selection",
    "slice",
    "softmax",
    "transpose",
    "unary",
    "valued pad",
    "view",
    "windowed",
]
"""What operators of all formats do that rewrites ask for.

An "axis reduction" is told its axes. A "norm pool" computes a norm of each window. A "pad" fills with zeros or a
constant that attributes state, a "valued pad" with one that an operand holds. A "selection" takes elements of its first
input and reads no more of it than it makes. A "view" has the bytes of its input. What is "windowed" slides windows over
its input and states their padding.
"""


@dataclass(frozen=True, slots=True)
class OpRule:
    """What is known of an operator.

    Attributes:
        kind: Its class.
        geometry: Describes what an op of it needs.
        alike: The rule holds for each of several outputs by itself.
        families: Those that it is of.
        told: The position of the operand that states its output's shape; None where no operand does.
    """

    kind: OpClass
    geometry: Callable[[ShapedOp], Geometry]
    alike: bool = False
    families: tuple[Family, ...] = ()
    told: int | None = None


def ruled(
    kind: OpClass,
    geometry: Callable[[ShapedOp], Geometry],
    *operators: str,
    alike: bool = False,
    families: tuple[Family, ...] = (),
    told: int | None = None,
) -> dict[str, OpRule]:
    """Return the entries of operators that have the same rule."""
    return dict.fromkeys(operators, OpRule(kind, geometry, alike, families, told))


class ShapedOp:
    """An op with the shapes and attributes that rules look at."""

    def __init__(self, graph: Graph, index: int) -> None:
        op = graph.ops[index]
        if len(op.outputs) != 1:
            raise RefusedError(f"it has {len(op.outputs)} outputs", "output-count")
        if op.attributes.get("hybrid"):
            raise RefusedError("it quantises its input by the range of the whole tensor", "whole-range")
        output = graph.tensors[op.outputs[0]]
        if output.shape is None:
            raise RefusedError(f"the shape of '{output.name}' is unknown", "unknown-shape")
        self.op = op
        self.kind = op.type
        self.output: tuple[int, ...] = output.shape
        self.shapes: dict[int, tuple[int, ...]] = {}
        for name, value in op.attributes.items():
            if name.startswith(CONSTANT_SHAPE):
                self.shapes[int(name[len(CONSTANT_SHAPE) :])] = tuple(int(size) for size in _tuple(value))
        for position, tensor in zip(op.positions, op.inputs, strict=True):
            shape = graph.tensors[tensor].shape
            if position < 0:
                raise RefusedError("it executes another graph", "executes-graph")
            if shape is None:
                raise RefusedError(f"the shape of '{graph.tensors[tensor].name}' is unknown", "unknown-shape")
            self.shapes[position] = shape
        self.data = self.shapes.get(0, ())

    def only(self, *positions: int) -> None:
        """Refuse where an activation is read at another position: what it says is not known here."""
        known = frozenset(positions)  # an op may read a million times
        for position in self.op.positions:
            if position not in known:
                raise RefusedError(f"its input {position} is computed at run time", "run-time-input")

    def shape(self, position: int, rank: int | None = None) -> tuple[int, ...]:
        """Return the shape of the operand at ``position``."""
        found = self.shapes.get(position)
        if found is None or (rank is not None and len(found) != rank):
            raise RefusedError(
                f"the shape of its input {position} is {'unknown' if found is None else list(found)}", "unknown-shape"
            )
        return found

    def ints(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """Return an attribute of whole numbers; without a default one that is absent refuses the op."""
        value = self.op.attributes.get(name)
        if value is None:
            if default is None:
                raise RefusedError(f"its {name} are not constant", "not-constant")
            return default
        return tuple(int(entry) for entry in _tuple(value))

    def number(self, name: str, default: int = 0) -> int:
        """Return an attribute that is one whole number."""
        value = self.op.attributes.get(name, default)
        first = value[0] if isinstance(value, tuple) and value else value
        return default if isinstance(first, str | tuple) else int(first)

    def reals(self, name: str) -> tuple[float, ...]:
        """Return an attribute of numbers; empty where there is none."""
        value = self.op.attributes.get(name)
        return tuple(float(entry) for entry in _tuple(value)) if value is not None else ()

    def text(self, name: str, default: str = "") -> str:
        """Return an attribute that is a word."""
        value = self.op.attributes.get(name, default)
        return value if isinstance(value, str) else default

    def axis(self, value: int, rank: int | None = None) -> int:
        """Return an axis as a number from 0, of the first operand where no rank is given."""
        rank = len(self.data) if rank is None else rank
        if not -rank <= value < rank:
            raise RefusedError(f"its axis {value} does not exist", "bad-axes")
        return value % rank

    def geometry(
        self, operands: Operands, fixed: Mapping[int, str] | None = None, group: tuple[int, int] | None = None
    ) -> Geometry:
        """Return the description, after a check that it covers every activation."""
        self.only(*operands)
        for position, maps in operands.items():
            if len(maps) != len(self.shape(position)):
                raise RefusedError(f"its input {position} has another rank than the operator wants", "rank")
        return Geometry(
            self.output, self.shapes, MappingProxyType(operands), MappingProxyType(dict(fixed or {})), group
        )


def _tuple(value: AttributeValue) -> tuple[int | float | str | bool, ...]:
    return value if isinstance(value, tuple) else (value,)


def same(rank: int) -> list[AxisMap]:
    """Return maps of an operand whose every axis goes with the output's."""
    return [AxisMap(axis, POINTWISE) for axis in range(rank)]


def whole(rank: int) -> tuple[AxisMap, ...]:
    """Return maps of an operand that is needed whole."""
    return (AxisMap(-1, FULL),) * rank


def ratio(numerator: int, denominator: int) -> Fraction:
    """Return a ratio of two lengths, of which the lower may not be 0."""
    if not denominator:
        raise RefusedError("one of its axes has length 0", "empty-axis")
    return Fraction(numerator, denominator)
