"""What a TFLite operator's options and small constant inputs say, as far as rules of targets and passes ask for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from memsched.errors import ModelError
from memsched.formats.tflite_assembly import Kind, Scalar, TableItem
from memsched.formats.tflite_flatbuffer import Table
from memsched.formats.tflite_schema import ACTIVATIONS, PADDINGS, OperatorSlot
from memsched.graph.model import AttributeValue

__all__ = ["CONSTANT_INPUTS", "STRIDED_SLICE_MASKS", "SUBGRAPH_FIELDS"]
__all__ += ["attributes", "subgraph_references", "with_masks", "with_padding"]

_Field = tuple[str, str, tuple[int, ...], int]
"""Attribute, how to read it, the slots of the options table that hold it, and the default."""

_ACTIVATION = "fused_activation_function"


def _window(padding: int, strides: tuple[int, ...], activation: int) -> tuple[_Field, ...]:
    return (
        ("padding", "padding", (padding,), 0),
        ("strides", "int32s", strides, 0),
        (_ACTIVATION, "activation", (activation,), 0),
    )


_POOL = (*_window(0, (2, 1), 5), ("kernel", "int32s", (4, 3), 0))
_ACTIVATION_FIRST: tuple[_Field, ...] = ((_ACTIVATION, "activation", (0,), 0),)
_RESIZE: tuple[_Field, ...] = (("align_corners", "bool", (0,), 0), ("half_pixel_centers", "bool", (1,), 0))

_OPTIONS: Mapping[str, tuple[_Field, ...]] = {
    "CONV_2D": (*_window(0, (2, 1), 3), ("dilations", "int32s", (5, 4), 1)),
    "DEPTHWISE_CONV_2D": (
        *_window(0, (2, 1), 4),
        ("dilations", "int32s", (6, 5), 1),
        ("depth_multiplier", "int32", (3,), 0),
    ),
    "CONV_3D": (*_window(0, (1, 3, 2), 4), ("dilations", "int32s", (5, 7, 6), 1)),
    "CONV_3D_TRANSPOSE": (*_window(0, (1, 3, 2), 4), ("dilations", "int32s", (5, 7, 6), 1)),
    "TRANSPOSE_CONV": _window(0, (2, 1), 3),
    "AVERAGE_POOL_2D": _POOL,
    "MAX_POOL_2D": _POOL,
    "L2_POOL_2D": _POOL,
    "FULLY_CONNECTED": (*_ACTIVATION_FIRST, ("keep_num_dims", "bool", (2,), 0)),
    "SOFTMAX": (("beta", "float32", (0,), 0),),
    "CONCATENATION": (("axis", "int32", (0,), 0), (_ACTIVATION, "activation", (1,), 0)),
    "ADD": _ACTIVATION_FIRST,
    "SUB": _ACTIVATION_FIRST,
    "MUL": _ACTIVATION_FIRST,
    "DIV": _ACTIVATION_FIRST,
    "L2_NORMALIZATION": _ACTIVATION_FIRST,
    "SVDF": (("rank", "int32", (0,), 0), (_ACTIVATION, "activation", (1,), 0)),
    "RNN": _ACTIVATION_FIRST,
    "LSTM": _ACTIVATION_FIRST,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (*_ACTIVATION_FIRST, ("time_major", "bool", (3,), 0)),
    "UNIDIRECTIONAL_SEQUENCE_RNN": ((_ACTIVATION, "activation", (1,), 0), ("time_major", "bool", (0,), 0)),
    "GATHER": (("axis", "int32", (0,), 0), ("batch_dims", "int32", (1,), 0)),
    "SQUEEZE": (("squeeze_dims", "vector", (0,), 0),),
    "STRIDED_SLICE": (
        ("begin_mask", "int32", (0,), 0),
        ("end_mask", "int32", (1,), 0),
        ("ellipsis_mask", "int32", (2,), 0),
        ("new_axis_mask", "int32", (3,), 0),
        ("shrink_axis_mask", "int32", (4,), 0),
    ),
    "SPACE_TO_DEPTH": (("block_size", "int32", (0,), 0),),
    "DEPTH_TO_SPACE": (("block_size", "int32", (0,), 0),),
    "PACK": (("axis", "int32", (1,), 0),),
    "UNPACK": (("axis", "int32", (1,), 0),),
    "ONE_HOT": (("axis", "int32", (0,), 0),),
    "LEAKY_RELU": (("alpha", "float32", (0,), 0),),
    "RESIZE_BILINEAR": (("align_corners", "bool", (2,), 0), ("half_pixel_centers", "bool", (3,), 0)),
    "RESIZE_NEAREST_NEIGHBOR": _RESIZE,
    "BATCH_MATMUL": (("adj_x", "bool", (0,), 0), ("adj_y", "bool", (1,), 0)),
    "CUMSUM": (("exclusive", "bool", (0,), 0), ("reverse", "bool", (1,), 0)),
    "GELU": (("approximate", "bool", (0,), 0),),
    "MIRROR_PAD": (("mode", "uint8", (0,), 0),),
    "REVERSE_SEQUENCE": (("seq_dim", "int32", (0,), 0), ("batch_dim", "int32", (1,), 0)),
    "HASHTABLE": (("table_id", "int32", (0,), 0),),
    "VAR_HANDLE": (("container", "text", (0,), 0), ("shared_name", "text", (1,), 0)),
    **dict.fromkeys(
        ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL"),
        (("keep_dims", "bool", (0,), 0),),
    ),
}

_OPTIONS_2: Mapping[str, tuple[_Field, ...]] = {"STABLEHLO_CONCATENATE": (("axis", "int64", (0,), 0),)}

CONSTANT_INPUTS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "SLICE": (("begin", 1), ("size", 2)),
    "STRIDED_SLICE": (("begin", 1), ("end", 2), ("steps", 3)),
    "TRANSPOSE": (("perm", 1),),
    "PAD": (("paddings", 1),),
    "PADV2": (("paddings", 1),),
    "MIRROR_PAD": (("paddings", 1),),
    "SPLIT": (("axis", 0),),
    "SPLIT_V": (("size_splits", 1), ("axis", 2)),
    "EXPAND_DIMS": (("axis", 1),),
    "ARG_MAX": (("axis", 1),),
    "ARG_MIN": (("axis", 1),),
    "REVERSE_V2": (("axis", 1),),
    "RESIZE_BILINEAR": (("size", 1),),
    "RESIZE_NEAREST_NEIGHBOR": (("size", 1),),
    "SPACE_TO_BATCH_ND": (("block_shape", 1), ("paddings", 2)),
    "BATCH_TO_SPACE_ND": (("block_shape", 1), ("crops", 2)),
    **dict.fromkeys(
        ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL"), (("axes", 1),)
    ),
}

_SCALARS = frozenset({("SPLIT", "axis"), ("SPLIT_V", "axis"), ("EXPAND_DIMS", "axis")})

SUBGRAPH_FIELDS: Mapping[str, tuple[int, tuple[int, ...], str]] = {
    "IF": (OperatorSlot.OPTIONS, (0, 1), "int32"),
    "WHILE": (OperatorSlot.OPTIONS, (0, 1), "int32"),
    "CALL": (OperatorSlot.OPTIONS, (0,), "uint32"),
    "CALL_ONCE": (OperatorSlot.OPTIONS, (0,), "int32"),
    "STABLEHLO_WHILE": (OperatorSlot.OPTIONS_2, (0, 1), "int32"),
    "STABLEHLO_CASE": (OperatorSlot.OPTIONS_2, (0,), "vector"),
    "STABLEHLO_CUSTOM_CALL": (OperatorSlot.OPTIONS_2, (4,), "vector"),
    "STABLEHLO_REDUCE": (OperatorSlot.OPTIONS_2, (1,), "int32"),
    "STABLEHLO_REDUCE_WINDOW": (OperatorSlot.OPTIONS_2, (5,), "int32"),
    "STABLEHLO_SCATTER": (OperatorSlot.OPTIONS_2, (6,), "int32"),
    "STABLEHLO_SORT": (OperatorSlot.OPTIONS_2, (2,), "int32"),
    "STABLEHLO_COMPOSITE": (OperatorSlot.OPTIONS_2, (1,), "int32"),
}
"""Which field of which options names the subgraphs that an operator executes."""


def subgraph_references(kind: str, operator: Table) -> tuple[int, ...]:
    """Return the subgraphs that an operator executes, as the file names them: indices not yet checked."""
    if kind not in SUBGRAPH_FIELDS:
        return ()
    slot, fields, how = SUBGRAPH_FIELDS[kind]
    options = operator.table(slot)
    if options is None:
        return ()
    named = options.numbers(fields[0]) if how == "vector" else tuple(options.number(field, how) for field in fields)
    # StableHLO operators say -1 where they have no subgraph.
    return tuple(index for index in named if index != -1) if kind.startswith("STABLEHLO") else named


def attributes(
    kind: str, operator: Table, constant: Callable[[int], tuple[int, ...] | None]
) -> Mapping[str, AttributeValue]:
    """Return an operator's attributes; windows as (height, width) or (depth, height, width).

    Args:
        constant: The values of the input at a position, where that is a short constant of integers.
    """
    found: dict[str, AttributeValue] = {}
    for fields, slot in ((_OPTIONS.get(kind), OperatorSlot.OPTIONS), (_OPTIONS_2.get(kind), OperatorSlot.OPTIONS_2)):
        options = operator.table(slot) if fields else None
        if fields and options is not None:
            found.update((field[0], _value(options, *field[1:])) for field in fields)
    for name, position in CONSTANT_INPUTS.get(kind, ()):
        values = constant(position)
        if values is not None:
            found[name] = values[0] if (kind, name) in _SCALARS else values
    return MappingProxyType(found)


def _value(options: Table, how: str, slots: tuple[int, ...], default: int) -> AttributeValue:
    slot = slots[0]
    if how == "int32s":
        return tuple(options.number(one, "int32", default) for one in slots)
    if how == "float32":
        return options.real(slot, float(default))
    if how == "text":
        return options.text(slot)
    if how == "vector":
        return options.numbers(slot)
    if how in {"padding", "activation"}:
        names = PADDINGS if how == "padding" else ACTIVATIONS
        code = options.number(slot, "uint8")
        return names[code] if code < len(names) else f"{how.upper()}_{code}"
    number = options.number(slot, "uint8" if how == "bool" else how, default)
    return bool(number) if how == "bool" else number


_WINDOW_SLOTS: Mapping[str, tuple[Kind, ...]] = {
    # Per slot the kind of its number; all options of these operators are numbers.
    "CONV_2D": ("int8", "int32", "int32", "int8", "int32", "int32", "int8"),
    "DEPTHWISE_CONV_2D": ("int8", "int32", "int32", "int32", "int8", "int32", "int32"),
    "AVERAGE_POOL_2D": ("int8", "int32", "int32", "int32", "int32", "int8"),
    "L2_POOL_2D": ("int8", "int32", "int32", "int32", "int32", "int8"),
    "MAX_POOL_2D": ("int8", "int32", "int32", "int32", "int32", "int8"),
}


def with_padding(kind: str, options: Table, padding: str) -> TableItem:
    """Return a windowed operator's options with another padding.

    Raises:
        ModelError: They have fields of a later schema, which would be lost.
    """
    kinds = _WINDOW_SLOTS[kind]
    for slot in range(len(kinds), options.slots):
        if options.place(slot) is not None:
            raise ModelError(f"the options of a {kind} have fields of a later schema (slot {slot})")
    fields = {
        slot: Scalar(number, options.number(slot, number))
        for slot, number in enumerate(kinds)
        if options.place(slot) is not None
    }
    return TableItem({**fields, 0: Scalar("int8", PADDINGS.index(padding))})


STRIDED_SLICE_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
"""A strided slice's attributes that its options state, by their slots."""


def with_masks(options: Table | None, attributes: Mapping[str, AttributeValue]) -> TableItem:
    """Return a strided slice's options with the masks that ``attributes`` state.

    Raises:
        ModelError: They have fields of a later schema, which would be lost.
    """
    known = len(STRIDED_SLICE_MASKS)
    for slot in range(known, options.slots if options is not None else 0):
        if options is not None and options.number(slot, "uint8"):
            raise ModelError(f"the options of a STRIDED_SLICE say something (slot {slot}) that a piece would lose")
    masks = [attributes.get(name, 0) for name in STRIDED_SLICE_MASKS]
    return TableItem({slot: Scalar("int32", int(mask)) for slot, mask in enumerate(masks) if isinstance(mask, int)})
