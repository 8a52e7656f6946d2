"""What a layer computes, in the words of no format: from which code for it can be made.

Feature maps have the axes batch, rows, columns, channels here, whatever their order in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from memsched.base.frozen import FrozenValue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["LARGEST_FLOAT", "KernelFamily", "KernelRefusal", "LayerKernel", "NoKernelError"]

LARGEST_FLOAT: Final = 3.4028234663852886e38
"""The largest of 32 bits."""

KernelFamily = Literal[
    "conv", "pool", "mean", "unary", "table", "quantize", "dequantize", "binary", "normalise", "move", "softmax", "lrn",
    "copy",
]  # fmt: skip

_NO_NUMBERS: Mapping[str, float] = MappingProxyType({})
_NO_TABLES: Mapping[str, tuple[int, ...]] = MappingProxyType({})


class KernelRefusal(FrozenValue, frozen=True):
    """Why no code can be made for a layer; one clause without a capital or a full stop."""

    reason: str


class NoKernelError(Exception):
    """A `KernelRefusal` on its way up; only formats raise it, and catch it."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerKernel:
    """How one layer is computed.

    Attributes:
        family: "conv": sums of products over windows, matrix products included. "pool", "mean": over windows, and over
            the plane. "unary": a function of each element. "table": the same for 8 bits. "binary": of two operands.
            "normalise": of each channel, by four constants. "move": elements from elsewhere. "copy": the same bytes.
        dtype: "float32", or "int8" for fixed-point arithmetic as TensorFlow Lite's reference kernels have it.
        numbers: What else it needs to know, by name.
        constants: Arrays that lie in memory beside the model's activations. Weights of a convolution are output
            channels, rows, columns, input channels; vectors follow the output's channels.
        tables: Small integers that are part of the program, such as multipliers of output channels; the axes of a mean
            without the batch; the order of axes of "move" that changes it.
        operands: Of "binary": tensors of the graph, and -1 - i for constant i.
        word: The function or operation, for "unary", "binary" and "pool".
        permutes: Its matrix is laid out for a map that was flattened in the order of the file: channels, rows, columns.
    """

    family: KernelFamily
    dtype: Literal["float32", "int8"]
    numbers: Mapping[str, float] = field(default_factory=lambda: _NO_NUMBERS)
    constants: tuple[NDArray[np.generic] | Any, ...] = ()
    tables: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: _NO_TABLES)
    operands: tuple[int, ...] = ()
    word: str = ""
    permutes: bool = False
