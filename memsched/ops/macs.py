"""Multiply-accumulates of the operators of all formats: one per product that is summed up, activations left out.

Recurrent layers count their matrix products only: sequence x batch x directions x gates x hidden x (input + hidden).
A body's operators count one execution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from memsched.graph.model import AttributeValue

__all__ = ["COUNTED", "macs_of"]

_Dims = Sequence[tuple[int, ...] | None]
_Attributes = Mapping[str, AttributeValue]
_Count = Callable[[_Attributes, _Dims, _Dims], int]


def macs_of(kind: str, attributes: _Attributes, inputs: _Dims, outputs: _Dims) -> int:
    """Return the multiply-accumulates of one op; 0 where it has none or its shapes do not tell.

    Args:
        kind: `Op.type`.
        inputs: Dimensions per input position, None where absent or unknown.
        outputs: The same per output.
    """
    rule = COUNTED.get(kind)
    if rule is None:
        return 0
    try:
        return max(0, rule(attributes, inputs, outputs))
    except (IndexError, ValueError):  # an operand is absent or of another rank than the operator wants
        return 0


def _known(dims: _Dims, position: int) -> tuple[int, ...]:
    found = dims[position]
    if found is None:
        raise IndexError(position)
    return found


def _summed(weights: int, axes: Sequence[int] = (), *, data: int | None = None) -> _Count:
    """Return the rule of an op each of whose output elements sums over axes of its weights.

    Args:
        weights: The input position of the weights.
        axes: Of the weights; none for all but the first.
        data: The input position of what is spread over the weights instead, element by element.
    """

    def rule(_: _Attributes, inputs: _Dims, outputs: _Dims) -> int:
        lengths = _known(inputs, weights)
        each = math.prod(lengths[axis] for axis in axes) if axes else math.prod(lengths[1:])
        return each * math.prod(_known(outputs, 0) if data is None else _known(inputs, data))

    return rule


def _product(turned: str = "") -> _Count:
    """Each output element sums over the last axis of the left operand, or over the one before if it is transposed."""

    def rule(attributes: _Attributes, inputs: _Dims, outputs: _Dims) -> int:
        return math.prod(_known(outputs, 0)) * _known(inputs, 0)[-2 if turned and attributes.get(turned) else -1]

    return rule


def _recurrent(gates: int) -> _Count:
    def rule(_: _Attributes, inputs: _Dims, __: _Dims) -> int:
        first, second, features = _known(inputs, 0)
        directions, _gates, hidden = _known(inputs, 2)  # the recurrence weights
        return first * second * directions * gates * hidden * (features + hidden)

    return rule


def _einsum(attributes: _Attributes, inputs: _Dims, _: _Dims) -> int:
    """The product over all index letters; equations with an ellipsis are left out."""
    equation = attributes.get("equation")
    if not isinstance(equation, str) or "." in equation:
        return 0
    lengths: dict[str, int] = {}
    for position, term in enumerate(equation.replace(" ", "").split("->")[0].split(",")):
        for letter, length in zip(term, _known(inputs, position), strict=False):
            lengths[letter] = max(length, lengths.get(letter, 1))
    return math.prod(lengths.values()) * max(0, len(inputs) - 1)


COUNTED: Final[Mapping[str, _Count]] = {
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv", "com.microsoft.FusedConv"), _summed(1)),
    "com.microsoft.nchwc.Conv": _summed(1),
    "QLinearConv": _summed(3),
    "ConvTranspose": _summed(1, data=0),
    **dict.fromkeys(("MatMul", "MatMulInteger", "QLinearMatMul", "com.microsoft.MatMulNBits"), _product()),
    "com.microsoft.FusedMatMul": _product(),
    "Gemm": _product("transA"),
    "com.microsoft.FusedGemm": _product("transA"),
    "Einsum": _einsum,
    "RNN": _recurrent(1),
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4),
    # Weights of TFLite: (out, h, w, in), (1, h, w, out), (out, in), (d, h, w, in, out), (d, h, w, out, in).
    "CONV_2D": _summed(1, (1, 2, 3)),
    "DEPTHWISE_CONV_2D": _summed(1, (1, 2)),
    "FULLY_CONNECTED": _summed(1, (1,)),
    "CONV_3D": _summed(1, (0, 1, 2, 3)),
    "TRANSPOSE_CONV": _summed(1, (0, 1, 2), data=2),
    "CONV_3D_TRANSPOSE": _summed(1, (0, 1, 2, 3), data=2),
    "BATCH_MATMUL": _product("adj_x"),
}
