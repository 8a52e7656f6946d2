"""Multiply-accumulates of ONNX operators: one per product that is summed up, biases and activations left out.

Recurrent layers count their matrix products only: sequence x batch x directions x gates x hidden x (input + hidden).
A body's operators count one execution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from memsched.graph.model import AttributeValue

__all__ = ["COUNTED", "count"]

_Dims = Sequence[tuple[int, ...] | None]
_Attributes = Mapping[str, AttributeValue]


def count(kind: str, attributes: _Attributes, inputs: _Dims, outputs: _Dims) -> int:
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


def _convolution(weights: int) -> Callable[[_Attributes, _Dims, _Dims], int]:
    """Each output element sums over the weights of its output channel."""
    return lambda _, inputs, outputs: math.prod(_known(outputs, 0)) * math.prod(_known(inputs, weights)[1:])


def _transposed(_: _Attributes, inputs: _Dims, __: _Dims) -> int:
    """Each input element is spread over the weights of its input channel."""
    return math.prod(_known(inputs, 0)) * math.prod(_known(inputs, 1)[1:])


def _product(left: int) -> Callable[[_Attributes, _Dims, _Dims], int]:
    """Each output element sums over the last axis of the left operand."""
    return lambda _, inputs, outputs: math.prod(_known(outputs, 0)) * _known(inputs, left)[-1]


def _gemm(attributes: _Attributes, inputs: _Dims, outputs: _Dims) -> int:
    return math.prod(_known(outputs, 0)) * _known(inputs, 0)[0 if attributes.get("transA") else 1]


def _recurrent(gates: int) -> Callable[[_Attributes, _Dims, _Dims], int]:
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


COUNTED: Final[Mapping[str, Callable[[_Attributes, _Dims, _Dims], int]]] = {
    "Conv": _convolution(1),
    "ConvInteger": _convolution(1),
    "DeformConv": _convolution(1),
    "QLinearConv": _convolution(3),
    "com.microsoft.FusedConv": _convolution(1),
    "com.microsoft.nchwc.Conv": _convolution(1),
    "ConvTranspose": _transposed,
    "MatMul": _product(0),
    "MatMulInteger": _product(0),
    "QLinearMatMul": _product(0),
    "com.microsoft.FusedMatMul": _product(0),
    "com.microsoft.MatMulNBits": _product(0),
    "Gemm": _gemm,
    "com.microsoft.FusedGemm": _gemm,
    "Einsum": _einsum,
    "RNN": _recurrent(1),
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4),
}
