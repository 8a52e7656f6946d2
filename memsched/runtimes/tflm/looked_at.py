"""Which tensors kernels of TensorFlow Lite Micro look at while they prepare: each takes a part of the arena so long.

Measured as the smallest arenas that models of one operator run in, for every kernel.
Some ran in less by luck: TFLM does not check what GATHER, GATHER_ND, BATCH_MATMUL, CUMSUM, DEPTH_TO_SPACE,
SPACE_TO_DEPTH and SOFTMAX allocate over the tensors that they look at (16 to 48 bytes), nor that ELU gets its table,
which it does not use for floats.
"""

from __future__ import annotations

from typing import Final

from memsched.formats.tflite.model import FileOperator, FileSubgraph

__all__ = ["looked_at_by"]

_INPUTS_ALONE: Final = frozenset({"EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"})
_FIRST_ALONE: Final = frozenset({"BATCH_TO_SPACE_ND", "RESHAPE", "SPACE_TO_BATCH_ND"})
_NAMES_OF_NONE = "ADD_N ARG_MAX ARG_MIN LOGICAL_AND LOGICAL_OR MAXIMUM MINIMUM PACK RELU6 SPLIT SPLIT_V UNPACK"
_NONE: Final = frozenset(_NAMES_OF_NONE.split())
"""They look at none, or at so few that planning takes more in every model."""

_CONVOLUTIONS: Final = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D"})
_REDUCTIONS: Final = frozenset({"MEAN", "REDUCE_ALL", "REDUCE_MAX", "REDUCE_MIN", "SUM"})


def looked_at_by(graph: FileSubgraph, operator: FileOperator) -> tuple[int, ...]:
    """Return the tensors that an operator's kernel holds at once while it prepares, each as often as it does."""
    kind, given, made = operator.type, [tensor for tensor in operator.inputs if tensor >= 0], operator.outputs
    if kind in _NONE:
        return ()
    if kind in _INPUTS_ALONE:
        return tuple(given)
    if kind in _FIRST_ALONE:
        return (*given[:1], *made)
    if kind in _CONVOLUTIONS:
        return (*given, *given[:2], *made, *made)
    is_byte = any(graph.tensors[tensor].dtype == "int8" for tensor in made)
    if kind in _REDUCTIONS:
        return (*given, *given[: 2 if is_byte else 1], *made, *made)
    if kind == "TRANSPOSE_CONV" and is_byte:
        return (*given[1:], *given[1:3], *made, *made)
    if kind == "TANH":
        return (*given, *given, *made)
    return (*given, *made, *made) if kind == "CONCATENATION" else (*given, *made)
