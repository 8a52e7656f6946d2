"""What a TFLite operator's options and small constant inputs say, as far as rules of targets and passes ask for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from memsched.base.errors import ModelError
from memsched.formats.tflite.assembly import Item, Scalar, TableItem
from memsched.formats.tflite.flatbuffer import FlatbufferTable
from memsched.formats.tflite.package import Field, field, members, number_of
from memsched.formats.tflite.package import table as schema_of
from memsched.formats.tflite.schema import OperatorSlot
from memsched.graph.model import AttributeValue

__all__ = ["ACTIVATION", "CHANGEABLE", "CONSTANT_INPUTS", "STRIDED_SLICE_MASKS", "attributes", "options_slot"]
__all__ += ["subgraph_fields", "subgraph_references", "with_changes", "with_masks"]

_Options = tuple[str, Mapping[str, str | tuple[str, ...]]]
"""A table of options, and per attribute the field that holds it, or the fields of one with several numbers."""

ACTIVATION: Final = "fused_activation_function"
"""What the attribute is called, and the field."""
_ENUMERATIONS: Final = {"padding": "Padding", ACTIVATION: "ActivationFunctionType"}
_WORDS: Final = {"padding": "PADDING", ACTIVATION: "ACTIVATION"}
"""What members of later schemas are called."""


def _of(table: str, *same: str, **other: str | tuple[str, ...]) -> _Options:
    """Describe options of which some fields are attributes of the same name, and others make up attributes."""
    return table, {**{name: name for name in same}, **other}


def _window(table: str, *same: str, along: str = "hw", **other: str | tuple[str, ...]) -> _Options:
    strides = tuple(f"stride_{axis}" for axis in along)
    return _of(table, "padding", ACTIVATION, *same, strides=strides, **other)


_DILATIONS: Final = tuple(f"dilation_{axis}_factor" for axis in "hw")
_POOL: Final = _window("Pool2DOptions", kernel=("filter_height", "filter_width"))
_CONV_3D: Final = _window("Conv3DOptions", along="dhw", dilations=("dilation_d_factor", *_DILATIONS))
_REDUCTIONS: Final = ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL")
_SUBGRAPHS_OF_LOOPS: Final = ("cond_subgraph_index", "body_subgraph_index")

STRIDED_SLICE_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
"""A strided slice's attributes that its options state."""

_OPTIONS: Mapping[str, _Options] = {
    "CONV_2D": _window("Conv2DOptions", dilations=_DILATIONS),
    "DEPTHWISE_CONV_2D": _window("DepthwiseConv2DOptions", "depth_multiplier", dilations=_DILATIONS),
    "CONV_3D": _CONV_3D,
    "CONV_3D_TRANSPOSE": _CONV_3D,
    "TRANSPOSE_CONV": _window("TransposeConvOptions"),
    "AVERAGE_POOL_2D": _POOL,
    "MAX_POOL_2D": _POOL,
    "L2_POOL_2D": _POOL,
    "FULLY_CONNECTED": _of("FullyConnectedOptions", ACTIVATION, "keep_num_dims"),
    "SOFTMAX": _of("SoftmaxOptions", "beta"),
    "CONCATENATION": _of("ConcatenationOptions", "axis", ACTIVATION),
    "ADD": _of("AddOptions", ACTIVATION),
    "SUB": _of("SubOptions", ACTIVATION),
    "MUL": _of("MulOptions", ACTIVATION),
    "DIV": _of("DivOptions", ACTIVATION),
    "L2_NORMALIZATION": _of("L2NormOptions", ACTIVATION),
    "SVDF": _of("SVDFOptions", "rank", ACTIVATION),
    "RNN": _of("RNNOptions", ACTIVATION),
    "LSTM": _of("LSTMOptions", ACTIVATION),
    "BIDIRECTIONAL_SEQUENCE_LSTM": _of("BidirectionalSequenceLSTMOptions", ACTIVATION, "time_major"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _of("UnidirectionalSequenceLSTMOptions", ACTIVATION, "time_major"),
    "UNIDIRECTIONAL_SEQUENCE_RNN": _of("SequenceRNNOptions", ACTIVATION, "time_major"),
    "GATHER": _of("GatherOptions", "axis", "batch_dims"),
    "SQUEEZE": _of("SqueezeOptions", "squeeze_dims"),
    "STRIDED_SLICE": _of("StridedSliceOptions", *STRIDED_SLICE_MASKS),
    "SPACE_TO_DEPTH": _of("SpaceToDepthOptions", "block_size"),
    "DEPTH_TO_SPACE": _of("DepthToSpaceOptions", "block_size"),
    "PACK": _of("PackOptions", "axis"),
    "UNPACK": _of("UnpackOptions", "axis"),
    "ONE_HOT": _of("OneHotOptions", "axis"),
    "LEAKY_RELU": _of("LeakyReluOptions", "alpha"),
    "RESIZE_BILINEAR": _of("ResizeBilinearOptions", "align_corners", "half_pixel_centers"),
    "RESIZE_NEAREST_NEIGHBOR": _of("ResizeNearestNeighborOptions", "align_corners", "half_pixel_centers"),
    "BATCH_MATMUL": _of("BatchMatMulOptions", "adj_x", "adj_y"),
    "CUMSUM": _of("CumsumOptions", "exclusive", "reverse"),
    "GELU": _of("GeluOptions", "approximate"),
    "MIRROR_PAD": _of("MirrorPadOptions", "mode"),
    "REVERSE_SEQUENCE": _of("ReverseSequenceOptions", "seq_dim", "batch_dim"),
    "HASHTABLE": _of("HashtableOptions", "table_id"),
    "VAR_HANDLE": _of("VarHandleOptions", "container", "shared_name"),
    "STABLEHLO_CONCATENATE": _of("StablehloConcatenateOptions", axis="dimension"),
    **dict.fromkeys(_REDUCTIONS, _of("ReducerOptions", "keep_dims")),
}

CHANGEABLE = ("padding", ACTIVATION, "depth_multiplier")
"""Attributes that a piece may have other values of, which its options state."""

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
    **dict.fromkeys(_REDUCTIONS, (("axes", 1),)),
}

_SCALARS = frozenset({("SPLIT", "axis"), ("SPLIT_V", "axis"), ("EXPAND_DIMS", "axis")})

_SUBGRAPHS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "IF": ("IfOptions", ("then_subgraph_index", "else_subgraph_index")),
    "WHILE": ("WhileOptions", _SUBGRAPHS_OF_LOOPS),
    "CALL": ("CallOptions", ("subgraph",)),
    "CALL_ONCE": ("CallOnceOptions", ("init_subgraph_index",)),
    "STABLEHLO_WHILE": ("StablehloWhileOptions", _SUBGRAPHS_OF_LOOPS),
    "STABLEHLO_CASE": ("StablehloCaseOptions", ("branch_subgraph_indices",)),
    "STABLEHLO_CUSTOM_CALL": ("StablehloCustomCallOptions", ("called_computations",)),
    "STABLEHLO_REDUCE": ("StablehloReduceOptions", ("body_subgraph_index",)),
    "STABLEHLO_REDUCE_WINDOW": ("StablehloReduceWindowOptions", ("body_subgraph_index",)),
    "STABLEHLO_SCATTER": ("StablehloScatterOptions", ("update_computation_subgraph_index",)),
    "STABLEHLO_SORT": ("StablehloSortOptions", ("comparator_subgraph_index",)),
    "STABLEHLO_COMPOSITE": ("StableHLOCompositeOptions", ("decomposition_subgraph_index",)),
}
"""Which fields of which options name the subgraphs that an operator executes."""


@cache
def options_slot(table: str) -> int:
    """Return the slot of an operator's options that are a table of that name."""
    return (
        OperatorSlot.BUILTIN_OPTIONS if table in members("BuiltinOptions").values() else OperatorSlot.BUILTIN_OPTIONS_2
    )


def subgraph_fields(kind: str) -> tuple[int, tuple[Field, ...]]:
    """Return the slot of the options of an operator that executes subgraphs, and their fields that name these."""
    table, names = _SUBGRAPHS[kind]
    return options_slot(table), tuple(field(table, name) for name in names)


def subgraph_references(kind: str, operator: FlatbufferTable) -> tuple[int, ...]:
    """Return the subgraphs that an operator executes, as the file names them: indices not yet checked."""
    if kind not in _SUBGRAPHS:
        return ()
    slot, fields = subgraph_fields(kind)
    options = operator.table(slot)
    if options is None:
        return ()
    named: list[int] = []
    for one in fields:
        named += [options.number(one.slot, one.kind)] if one.kind is not None else options.numbers(one.slot)
    # StableHLO operators say -1 where they have no subgraph.
    return tuple(index for index in named if index != -1 or not kind.startswith("STABLEHLO"))


def attributes(
    kind: str, operator: FlatbufferTable, constant: Callable[[int], tuple[int, ...] | None]
) -> Mapping[str, AttributeValue]:
    """Return an operator's attributes; windows as (height, width) or (depth, height, width).

    Args:
        constant: The values of the input at a position, where that is a short constant of integers.
    """
    found: dict[str, AttributeValue] = {}
    if kind in _OPTIONS:
        table, held = _OPTIONS[kind]
        options = operator.table(options_slot(table))
        if options is not None:
            found.update((name, _attribute(options, table, fields)) for name, fields in held.items())
    for name, position in CONSTANT_INPUTS.get(kind, ()):
        values = constant(position)
        if values is not None:
            found[name] = values[0] if (kind, name) in _SCALARS else values
    return MappingProxyType(found)


def _attribute(options: FlatbufferTable, table: str, fields: str | tuple[str, ...]) -> AttributeValue:
    if isinstance(fields, tuple):
        found = (field(table, name) for name in fields)
        return tuple(options.number(one.slot, one.kind or "int32", int(one.default)) for one in found)
    one = field(table, fields)
    if one.kind is None:
        return options.text(one.slot) if one.holds == "text" else options.numbers(one.slot)
    if fields in _ENUMERATIONS:
        code = options.number(one.slot, "uint8", int(one.default))
        return members(_ENUMERATIONS[fields]).get(code, f"{_WORDS[fields]}_{code}")
    if one.kind == "float32":
        return options.real(one.slot, one.default)
    number = options.number(one.slot, one.kind, int(one.default))
    return bool(number) if one.truth else number


def with_changes(kind: str, options: FlatbufferTable, changes: Mapping[str, str | int]) -> TableItem:
    """Return an operator's options, all of which are numbers, with other values of some attributes in `CHANGEABLE`.

    Raises:
        ModelError: They have fields of a later schema, which would be lost.
    """
    table = _OPTIONS[kind][0]
    known = schema_of(table).fields
    found: dict[int, Scalar | Item] = {}
    for slot in range(options.slots):
        if options.place(slot) is None:
            continue
        number = known[slot].kind if slot in known else None
        if number is None:
            raise ModelError(
                f"the options of a {kind} have fields of a later schema (slot {slot})", code="later-schema"
            )
        found[slot] = Scalar(number, options.number(slot, number))
    for name, value in changes.items():
        changed = field(table, name)
        code = number_of(_ENUMERATIONS[name], value) if isinstance(value, str) else value
        found[changed.slot] = Scalar(changed.kind or "int32", code)
    return TableItem(found)


def with_masks(options: FlatbufferTable | None, attributes: Mapping[str, AttributeValue]) -> TableItem:
    """Return a strided slice's options with the masks that ``attributes`` state.

    Raises:
        ModelError: They have fields of a later schema, which would be lost.
    """
    slots = {field("StridedSliceOptions", name).slot: name for name in STRIDED_SLICE_MASKS}
    for slot in range(options.slots if options is not None else 0):
        if slot not in slots and options is not None and options.number(slot, "uint8"):
            raise ModelError(
                f"the options of a STRIDED_SLICE say something (slot {slot}) that a piece would lose",
                code="option-lost",
            )
    masks = {slot: attributes.get(name, 0) for slot, name in slots.items()}
    return TableItem({slot: Scalar("int32", int(mask)) for slot, mask in masks.items() if isinstance(mask, int)})
