"""How TFLite says what rewrites add."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from memsched.formats.module import Module
from memsched.formats.tflite.borders import quantisation_of
from memsched.formats.tflite.options import ACTIVATION, STRIDED_SLICE_MASKS
from memsched.formats.tflite.reader import TfliteNative
from memsched.graph.dialect import AddWords, Attributes, Dialect, LoopOps, LoopWords, Pads, SteppedWords
from memsched.graph.model import Op
from memsched.ops.table import families

__all__ = ["dialect"]

# What the condition and the body are handed counts as brought by LESS and DYNAMIC_UPDATE_SLICE, or by the SLICE that
# takes a part of it. Constants that may be shared count once.
_LOOP_OPS: Final = LoopOps(
    always=(("WHILE", 3), ("RESHAPE", 1), ("LESS", 5), ("SLICE", 2), ("DYNAMIC_UPDATE_SLICE", 4), ("ADD", 1)),
    tables=(("SLICE", 3),),
    resized=(("RESHAPE", 1), ("SLICE", 1)),
    rows=(("CONCATENATION", 2),),
    padding=(("PAD", 2),),
    mask=(("MAXIMUM", 2),),
    mask_part=(("SLICE", 1),),
    side_input=(("SLICE", 4),),
    side_output=(("RESHAPE", 1), ("DYNAMIC_UPDATE_SLICE", 4)),
)

_WINDOWED: Final = families("windowed")


def dialect(module: Module) -> Dialect:
    """Return how ops that are added to ``module``'s graph look."""
    return Dialect(
        slice_type="SLICE",
        concat_type="CONCATENATION",
        pad_type="PAD",
        slice_attributes=_slice_attributes,
        concat_attributes=lambda axis: {"axis": axis, "fused_activation_function": "NONE"},
        pad_attributes=lambda pads: {"paddings": tuple(number for pair in pads for number in pair)},
        piece_attributes=_piece_attributes,
        pads_by_size=lambda op: op.type in _WINDOWED and op.attributes.get("padding") == "SAME",
        # No optimiser of a TFLite runtime merges operators.
        copy_attributes=lambda op, _: op.attributes,
        loop=LoopWords("WHILE", "IF", "RESHAPE", "int32", ops=_LOOP_OPS),
        stepped=SteppedWords("STRIDED_SLICE", _stepped_attributes),
        add=AddWords("ADD", lambda activation: {ACTIVATION: activation}),
        reshape_type="RESHAPE",
        same_values=_compared_values(module),
    )


def _stepped_attributes(
    shape: Sequence[int], starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]
) -> Attributes:
    del shape
    stated = {"begin": tuple(starts), "end": tuple(ends), "steps": tuple(steps)}
    return {**dict.fromkeys(STRIDED_SLICE_MASKS, 0), **stated}


def _compared_values(module: Module) -> Callable[[str, str], bool]:
    """Return what says whether two tensors of the main graph, by name, have one type and one quantisation."""
    native: TfliteNative = module.native
    number = {
        tensor.name: place for tensor, place in zip(module.graphs[0].tensors, native.mappings[0].tensors, strict=True)
    }

    def meaning(name: str) -> object:
        at = number.get(name)
        return None if at is None else quantisation_of(native.model, at)

    def same(name: str, other: str) -> bool:
        return name == other or (meaning(name) is not None and meaning(name) == meaning(other))

    return same


def _slice_attributes(shape: Sequence[int], starts: Sequence[int], ends: Sequence[int]) -> Attributes:
    del shape
    return {"begin": tuple(starts), "size": tuple(end - start for start, end in zip(starts, ends, strict=True))}


def _piece_attributes(op: Op, pads: Pads) -> Attributes | None:
    """Only "no padding at all" can be said of a piece; what SAME adds depends on the size of the input."""
    if op.type not in _WINDOWED or any(pair != (0, 0) for pair in pads):
        return None
    return {**op.attributes, "padding": "VALID"}
