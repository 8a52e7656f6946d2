"""How a format says what the rewrites add to a graph: slices, concatenations, pads and pieces of its own operators.

The rewrites (tiling, rematerialisation) build graphs without knowing ONNX or TFLite. Each format hands them one
`Dialect`; the ops built with it have the types and attributes that the format's reader gives when it reads the
written file back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from memsched.base.frozen import FrozenValue
from memsched.graph.model import AttributeValue, Op

__all__ = ["CONSTANT_SHAPE", "AddWords", "Attributes", "Dialect", "LoopWords", "Pads", "SteppedWords"]

Attributes = Mapping[str, AttributeValue]
Pads = tuple[tuple[int, int], ...]
"""Per spatial axis (before, after) in elements."""


class LoopOps(FrozenValue, frozen=True):
    """What a loop adds at least: types of ops, each with how many tensors it brings.

    Attributes:
        always: Whatever the loop.
        tables: Where there are several tiles.
        resized: Where the input with its padding has not as many elements as the output.
        rows: Where the input is padded before the loop.
        padding: Where the body pads.
        mask: For each tensor that is masked.
        mask_part: For each that is masked along every axis that is cut, where there are several tiles.
        side_input: For each tensor that is read beside the input.
        side_output: For each that is made beside the output.
    """

    always: tuple[tuple[str, int], ...]
    tables: tuple[tuple[str, int], ...]
    resized: tuple[tuple[str, int], ...]
    rows: tuple[tuple[str, int], ...]
    padding: tuple[tuple[str, int], ...]
    mask: tuple[tuple[str, int], ...]
    mask_part: tuple[tuple[str, int], ...]
    side_input: tuple[tuple[str, int], ...]
    side_output: tuple[tuple[str, int], ...]


class LoopWords(FrozenValue, frozen=True):
    """What the ops of a loop are called.

    Attributes:
        type: Operator that runs a body for all tiles: it reads (counter, memory of outputs, padded input, what
            else is read) and makes as many.
        once: Operator that runs a body for one tile: it reads (condition, counter, padded input, what else is
            read) and makes the tile.
        reshape: Operator that shows bytes in another shape.
        counter: The counter's element type.
        unrolled: Each tile has an op of its own, and all share one body.
        joined: Rows before the input, and behind it, are joined to it, so that it lies in what has them; nothing is
            copied as by the op that pads.
        ops: What a loop adds at least; None where that is not known.
    """

    type: str
    once: str
    reshape: str
    counter: str
    unrolled: bool = False
    joined: bool = False
    ops: LoopOps | None = None


class SteppedWords(FrozenValue, frozen=True):
    """What a crop with steps is called.

    Attributes:
        attributes: (shape of the source, starts, ends, steps), one per axis -> attributes.
    """

    type: str
    attributes: Callable[[Sequence[int], Sequence[int], Sequence[int], Sequence[int]], Attributes]


class AddWords(FrozenValue, frozen=True):
    """What an addition is called.

    Attributes:
        attributes: Name of the activation that follows, or NONE -> attributes.
    """

    type: str
    attributes: Callable[[str], Attributes]


class Dialect(FrozenValue, frozen=True):
    """What the helper ops of one format are called and how their attributes are written.

    Attributes:
        slice_type: Operator that copies a range of every axis.
        concat_type: Operator that joins tensors along one axis.
        pad_type: Operator that adds the value that means zero around a tensor.
        slice_attributes: (shape of the source, starts, ends), one per axis, half-open in elements -> attributes.
        concat_attributes: axis -> attributes.
        pad_attributes: per axis of the tensor (before, after) -> attributes.
        piece_attributes: (op, pads per spatial axis) -> the attributes with which a piece of that windowed op
            (convolution, pooling) runs with exactly these pads; None where the format cannot say so and the piece
            needs a pad op before it.
        pads_by_size: Whether that windowed op, its attributes unchanged, pads its input by the rule called SAME, which
            looks at the input's size: then a piece may run with it and have wrong elements at its cut edges.
        copy_attributes: (op, number of the copy) -> attributes that keep a duplicate of an op alive in the
            runtime's optimiser.
        most_joined: Inputs of one concatenation that the runtime takes; None for any number.
        loop: How a loop over tiles is written; None where the format has none, or the runtime runs none.
        stepped: Operator that copies every n-th element of a range of every axis; None where there is none.
        add: Operator that adds two tensors; None where sums of parts cannot be written.
        reshape_type: Operator that shows bytes in another shape, as its output has it; "" where there is none.
        same_values: (name of a tensor, name of another) -> whether equal numbers in them mean the same.
    """

    slice_type: str
    concat_type: str
    pad_type: str
    slice_attributes: Callable[[Sequence[int], Sequence[int], Sequence[int]], Attributes]
    concat_attributes: Callable[[int], Attributes]
    pad_attributes: Callable[[Sequence[tuple[int, int]]], Attributes]
    piece_attributes: Callable[[Op, Pads], Attributes | None]
    pads_by_size: Callable[[Op], bool]
    copy_attributes: Callable[[Op, int], Attributes]
    most_joined: int | None = None
    loop: LoopWords | None = None
    stepped: SteppedWords | None = None
    add: AddWords | None = None
    reshape_type: str = ""
    same_values: Callable[[str, str], bool] = lambda _, __: True


CONSTANT_SHAPE = "constant_shape_"
"""Attributes that begin so state the shapes of an op's constants; no file holds them as attributes."""
