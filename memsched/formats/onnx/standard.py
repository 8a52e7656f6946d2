"""Numbers of the ONNX standard: element types, and the versions since which something holds."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["Axes", "ElementType", "IrVersion", "Opset"]


class ElementType(IntEnum):
    """Those of TensorProto.DataType that are told apart by name."""

    UNKNOWN = 0
    FLOAT = 1
    STRING = 8
    BOOL = 9
    FLOAT16 = 10


class Axes:
    """Axes of values as operators take them.

    Attributes:
        ROWS: The first axis behind texts or images and their channels.
        PLANE: Rows and columns of images.
        SPATIAL: How many there are where there are rows: of signals, images and volumes.
        HEADED: How many there are where heads have one of their own.
        FLAT: How many there are where heads and texts share one.
        TOKENS_FIRST: From [texts, heads, tokens, depth] to [texts, tokens, heads, depth], and back.
    """

    ROWS: Final = 2
    PLANE: Final = (2, 3)
    SPATIAL: Final = (3, 4, 5)
    TOKENS_FIRST: Final = (0, 2, 1, 3)
    HEADED: Final = len(TOKENS_FIRST)
    FLAT: Final = HEADED - 1


class Opset:
    """Versions of the operator set since which something holds.

    Attributes:
        DROPOUT_TESTS: A Dropout without an input that switches it on does nothing.
        ADD_BROADCASTS: Add needs no attribute to broadcast.
        SLICE_INPUTS: Slice takes its ranges as inputs.
        PAD_INPUTS: Pad takes its widths as inputs.
        SEQUENCES: There are sequences.
        SOFTMAX_AXIS: A Softmax works along one axis, not along all from it on.
        LOOPS_OVER_SEQUENCES: Loops carry sequences.
        UNSQUEEZE_INPUTS: Unsqueeze and Squeeze take their axes as inputs.
        REDUCE_INPUTS: All reductions take their axes as inputs, as ReduceSum did before.
        GELU: There is a Gelu.
    """

    DROPOUT_TESTS: Final = 7
    ADD_BROADCASTS: Final = 7
    SLICE_INPUTS: Final = 10
    PAD_INPUTS: Final = 11
    SEQUENCES: Final = 11
    SOFTMAX_AXIS: Final = 13
    LOOPS_OVER_SEQUENCES: Final = 13
    UNSQUEEZE_INPUTS: Final = 13
    REDUCE_INPUTS: Final = 18
    GELU: Final = 20


class IrVersion:
    """Versions of the file format since which something holds.

    Attributes:
        FREE_INITIALIZERS: Initializers need not be listed as inputs.
        STAGES: Nodes state their devices.
    """

    FREE_INITIALIZERS: Final = 4
    STAGES: Final = 11
