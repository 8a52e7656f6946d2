"""Multiply-accumulates of TFLite operators, from the shapes of their tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from memsched.graph.model import AttributeValue

__all__ = ["macs"]

Shape = tuple[int, ...]

# Per operator: the position of the weights, their rank, and the axes whose sizes multiply each element of the data.
_PER_OUTPUT: Mapping[str, tuple[int, int, tuple[int, ...]]] = {
    "CONV_2D": (1, 4, (1, 2, 3)),
    "DEPTHWISE_CONV_2D": (1, 4, (1, 2)),
    "FULLY_CONNECTED": (1, 2, (1,)),
    "CONV_3D": (1, 5, (0, 1, 2, 3)),
}
_PER_INPUT: Mapping[str, tuple[int, int, tuple[int, ...]]] = {
    "TRANSPOSE_CONV": (1, 4, (0, 1, 2)),
    "CONV_3D_TRANSPOSE": (1, 5, (0, 1, 2, 3)),
}
_DATA_OF_TRANSPOSED = 2


def macs(
    kind: str, attributes: Mapping[str, AttributeValue], inputs: Sequence[Shape | None], outputs: Sequence[Shape | None]
) -> int:
    """Return the multiply-accumulates of one operator; 0 where it has none or its shapes do not fit its type.

    Weights are laid out as TFLite does: CONV_2D (out, h, w, in), DEPTHWISE_CONV_2D (1, h, w, out), FULLY_CONNECTED
    (out, in), CONV_3D (d, h, w, in, out), TRANSPOSE_CONV (out, h, w, in), CONV_3D_TRANSPOSE (d, h, w, out, in).
    """
    if not outputs or outputs[0] is None:
        return 0
    if kind == "BATCH_MATMUL":
        left = inputs[0] if inputs else None
        if left is None or len(left) < 2:
            return 0
        return math.prod(outputs[0]) * left[-2 if attributes.get("adj_x") else -1]
    transposed = kind in _PER_INPUT
    rule = _PER_INPUT.get(kind) or _PER_OUTPUT.get(kind)
    if rule is None:
        return 0
    position, rank, axes = rule
    weights = inputs[position] if position < len(inputs) else None
    data = outputs[0]
    if transposed:
        given = inputs[_DATA_OF_TRANSPOSED] if len(inputs) > _DATA_OF_TRANSPOSED else None
        data = given if given is not None else ()
    if weights is None or len(weights) != rank or not data:
        return 0
    return math.prod(data) * math.prod(weights[axis] for axis in axes)
