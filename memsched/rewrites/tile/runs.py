"""One run of an op for a part of its output, in a format's terms: its reads, its own pads and its attributes."""

from __future__ import annotations

import math
from dataclasses import replace

from memsched.base.frozen import FrozenValue
from memsched.graph.dialect import CONSTANT_SHAPE, Attributes, Dialect
from memsched.graph.model import Op, Region
from memsched.ops.ranges import PieceNeeds, deduce
from memsched.ops.rules import Geometry, Reflection, Refusal, RefusedError, TransposedWindow, Window
from memsched.ops.table import families
from memsched.rewrites.tile.spill import spilled

__all__ = ["POOLS", "OpPiece", "run_of", "shape_attributes"]


class OpPiece(FrozenValue, frozen=True):
    """One run of an op in one piece.

    Attributes:
        op: Index into the graph.
        wanted: The part of its output that is asked for.
        computed: What it really computes, including elements that are wrong or not needed.
        reads: Per entry of ``op.inputs`` the part it reads.
        padding: Elements to be added around its first input by an op of its own, per axis; empty for none.
        attributes: Those of the piece.
        macs: Multiply-accumulates of what it computes.
    """

    op: int
    wanted: Region
    computed: Region
    reads: tuple[Region, ...]
    padding: tuple[tuple[int, int], ...]
    attributes: Attributes
    macs: int = 0


POOLS = families("norm pool", "pool")
"""Ops whose padding is no value that could be put around their input."""

_PADS = families("mirror pad", "pad", "valued pad")
_RESIZES = families("interpolation", "resize")


def run_of(
    value: Op, number: int, geometry: Geometry, wanted: Region, dialect: Dialect, *, padded: bool = False
) -> OpPiece | Refusal:
    """Return the run of op ``value``, which has index ``number``, that computes ``wanted``.

    Args:
        geometry: What `describe` gives for the op.
        padded: Where the format cannot give the run pads of its own, it gets an input that is padded first; otherwise
            an op that pads by size does so, and has elements at inner edges that are wrong.
    """
    try:
        return _run_of(value, number, geometry, wanted, dialect, padded)
    except RefusedError as error:
        return error.refusal


def _run_of(value: Op, number: int, geometry: Geometry, wanted: Region, dialect: Dialect, padded: bool) -> OpPiece:
    needed = deduce(geometry, value, wanted)
    if isinstance(needed, Refusal):
        raise RefusedError(needed.reason, needed.code)
    if any(one.region is None for one in needed.inputs):
        raise RefusedError(
            f"op '{value.name}' ({value.type}): a piece would not read all of its inputs", "reads-nothing"
        )
    run = _Words(value, number, geometry, dialect, padded).run(wanted, needed)
    attributes = {**run.attributes, **_parts_of_constants(value, needed)}
    macs = _macs(geometry, value.macs, needed, run.computed) if value.macs else 0
    return replace(run, attributes=attributes, macs=macs)


def _parts_of_constants(value: Op, needed: PieceNeeds) -> dict[str, tuple[int, ...]]:
    """Return what is said of the shapes of those constants of which a run reads a part."""
    shapes: dict[str, tuple[int, ...]] = {}
    for part in needed.weights:
        name = f"{CONSTANT_SHAPE}{part.position}"
        shape = shapes.get(name, value.attributes.get(name))
        if isinstance(shape, tuple) and part.axis < len(shape):
            lengths = (int(size) for size in shape)
            shapes[name] = tuple(
                part.stop - part.start if axis == part.axis else size for axis, size in enumerate(lengths)
            )
    return shapes


class _Words(FrozenValue, frozen=True):
    """Puts runs of one op into a format's terms: with pads of their own, with padding by size, or padded beforehand."""

    value: Op
    number: int
    geometry: Geometry
    dialect: Dialect
    padded: bool

    def run(self, wanted: Region, needed: PieceNeeds) -> OpPiece:
        value, geometry, op = self.value, self.geometry, self.number
        computed = needed.computed(wanted)
        reads = tuple(one.region for one in needed.inputs if one.region is not None)
        shape = computed.lengths
        if _drops_all_ones(value) and any(size == 1 < given for size, given in zip(shape, geometry.shape, strict=True)):
            raise RefusedError(
                f"op '{value.name}' ({value.type}): of a piece of one row it would drop that axis, too", "drops-axis"
            )
        attributes = {**value.attributes, **needed.attributes, **shape_attributes(value.type, value.attributes, shape)}
        own_words = self._other_words(wanted, needed)
        if own_words is not None:
            # The pads say all; a whole output's shape would contradict them.
            attributes = {name: value for name, value in attributes.items() if name != "output_shape"}
            return OpPiece(op, wanted, computed, reads, (), {**attributes, **own_words, **needed.attributes})
        windows = _window_axes(geometry)
        if not windows or all(_is_whole(geometry, axis, wanted, reads[0]) for axis in windows):
            return OpPiece(op, wanted, computed, reads, (), attributes)
        pads = tuple(needed.inputs[0].pads[axis] for axis in windows)
        own = self.dialect.piece_attributes(value, pads)
        if own is not None:
            return OpPiece(op, wanted, computed, reads, (), {**own, **needed.attributes})
        bare = self.dialect.piece_attributes(value, ((0, 0),) * len(windows))
        padable = bare is not None and value.type not in POOLS
        if not (padable and self.padded) and self.dialect.pads_by_size(value):
            found = spilled(geometry, wanted, reads[0])
            if found is not None:
                return OpPiece(op, wanted, found[1], (found[0], *reads[1:]), (), attributes)
        if bare is None or not padable:
            raise RefusedError(
                f"op '{value.name}' ({value.type}): its padding cannot be expressed in a piece", "padding-inexpressible"
            )
        return OpPiece(op, wanted, computed, reads, needed.inputs[0].pads, {**bare, **needed.attributes})

    def _other_words(self, wanted: Region, needed: PieceNeeds) -> Attributes | None:
        """Return the attributes of a piece of an op whose pads are no window's: transposed convolutions, pads."""
        value, geometry = self.value, self.geometry
        moved = [
            one.output
            for operand in geometry.operands.values()
            for one in operand
            if isinstance(one.rule, Reflection | TransposedWindow)
            or (value.type in _PADS and isinstance(one.rule, Window))
        ]
        untouched = all(wanted.ranges[axis] == (0, geometry.shape[axis]) for axis in moved)
        # What is needed of a transposed convolution puts padding of the output into pads, always.
        if untouched and value.type != "ConvTranspose":
            return None
        if value.type in _PADS and value.type == self.dialect.pad_type and "paddings" in value.attributes:
            return self.dialect.pad_attributes(needed.inputs[0].pads)
        # Other formats state them as constants of another form, or by the size of the output.
        if value.type not in {"ConvTranspose", "Pad"} or "axes" in value.attributes:
            raise RefusedError(
                f"op '{value.name}' ({value.type}): a piece would need padding or a shape of its own",
                "shape-of-its-own",
            )
        pads = needed.inputs[0].pads[2 if value.type == "ConvTranspose" else 0 :]
        name = "paddings" if "paddings" in value.attributes else "pads"
        own: Attributes = {name: (*(before for before, _ in pads), *(after for _, after in pads))}
        return own if value.type == "Pad" else {**own, "auto_pad": "NOTSET"}


def _drops_all_ones(op: Op) -> bool:
    """Whether an op drops every axis of length 1, as it does not say which."""
    return op.type in {"SQUEEZE", "Squeeze"} and not (op.attributes.get("squeeze_dims") or op.attributes.get("axes"))


def _window_axes(geometry: Geometry) -> list[int]:
    """Return the axes of the first operand over which a window moves."""
    return [axis for axis, one in enumerate(geometry.operands.get(0, ())) if isinstance(one.rule, Window)]


def _is_whole(geometry: Geometry, axis: int, wanted: Region, read: Region) -> bool:
    output = geometry.operands[0][axis].output
    whole = (0, geometry.shape[output]), (0, geometry.shapes[0][axis])
    return (wanted.ranges[output], read.ranges[axis]) == whole


def _macs(geometry: Geometry, macs: int, needed: PieceNeeds, computed: Region) -> int:
    """Return the work of a piece, including what it computes beyond the part that is needed."""
    size = math.prod(computed.lengths)
    return max(needed.macs, macs * size // math.prod(geometry.shape))


def shape_attributes(kind: str, attributes: Attributes, shape: tuple[int, ...]) -> Attributes:
    """Return the attributes that state an output's shape, for a piece of this shape."""
    if kind in _RESIZES and "size" in attributes:
        return {"size": shape[1:3]}
    if kind == "Resize" and "sizes" in attributes:
        axes = attributes.get("axes")
        return {"sizes": tuple(shape[int(axis)] for axis in axes) if isinstance(axes, tuple) else shape}
    if kind in {"Expand", "Reshape"} and "shape" in attributes:
        return {"shape": shape}
    return {}
