"""Numbers of the ONNX standard: element types, kinds of attributes, and the versions since which something holds."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["AttributeKind", "DataLocation", "ElementType", "IrVersion", "Opset"]


class ElementType(IntEnum):
    """Those of TensorProto.DataType that are told apart by name."""

    UNKNOWN = 0
    FLOAT = 1
    STRING = 8
    BOOL = 9
    FLOAT16 = 10


class AttributeKind(IntEnum):
    """Those of AttributeProto.AttributeType that are read."""

    FLOAT = 1
    INT = 2
    STRING = 3
    FLOATS = 6
    INTS = 7
    STRINGS = 8


class DataLocation:
    """Those of TensorProto.DataLocation that are told apart.

    Attributes:
        EXTERNAL: The data is in a file of its own.
    """

    EXTERNAL: Final = 1


class Opset:
    """Versions of the operator set since which something holds.

    Attributes:
        DROPOUT_TESTS: A Dropout without an input that switches it on does nothing.
        ADD_BROADCASTS: Add needs no attribute to broadcast.
        SLICE_INPUTS: Slice takes its ranges as inputs.
        PAD_INPUTS: Pad takes its widths as inputs.
        SEQUENCES: There are sequences.
        SOFTMAX_AXIS: A Softmax works along one axis, not along all from it on.
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
