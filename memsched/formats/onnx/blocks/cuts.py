"""Which part of its inputs a node needs for a block of its output: the same block of some, and all of the others.

A block is a range of one axis of a value. Where a reshape has merged this axis with those before it (tokens of all
texts of a batch in one axis) the block is merged with them as well: such values exist only within a loop's body.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.frozen import FrozenValue
from memsched.regions.cuts import verdict

if TYPE_CHECKING:
    from onnx import NodeProto

__all__ = ["SHAPED", "Cut", "Needs", "integers_of", "is_cheap", "is_elementwise", "needs"]


class Cut(FrozenValue, frozen=True):
    """A block of a value.

    Attributes:
        axis: The axis of which it is a range.
        merged: This axis holds those before it, too.
    """

    axis: int
    merged: bool = False


Needs = tuple["Cut | None", ...]
"""Per input of a node its block; None: all of it."""

SHAPED: Final = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}
"""Operators that are told their output's shape, and by which input."""

_ELEMENTWISE: Final = frozenset(
    {
        *("Abs", "Add", "And", "BitShift", "Cast", "Ceil", "Clip", "Cos", "Div", "Elu", "Equal", "Erf", "Exp", "Floor"),
        *("Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu"),
        *("Less", "LessOrEqual", "Log", "Max", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow"),
        *("Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub"),
        *("Sum", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor", "Swish"),
        *("com.microsoft.Gelu", "com.microsoft.QuickGelu", "com.microsoft.FastGelu", "com.microsoft.BiasGelu"),
    }
)
_MOVING: Final = frozenset(
    {"Concat", "Expand", "Flatten", "Gather", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze", "Trilu"}
)
_REDUCING: Final = frozenset(
    {
        *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
        *("ReduceProd", "ReduceSum", "ReduceSumSquare"),
    }
)
_GENERIC: Final = (7919, 6271, 5003, 4801, 3571, 2711, 1999, 1301)
"""Lengths at which products of dimensions differ unless they are the same product."""


def is_elementwise(kind: str) -> bool:
    """Return whether such a node computes each element from those of its inputs at the same place."""
    return kind in _ELEMENTWISE


def is_cheap(kind: str) -> bool:
    """Return whether computing such a node again costs about as much as reading its output."""
    return kind in _ELEMENTWISE or kind in _MOVING or kind in {"ConstantOfShape", "Range"}


def needs(kind: str, node: NodeProto, cut: Cut, values: OpenValues) -> Needs | None:
    """Return what of its inputs a node needs for a block of its outputs; None where that is not known.

    Args:
        kind: The name of its operator, with the domain before it.
        cut: The block of every output.
    """
    output = values.shapes.get(node.output[0])
    if output is None or cut.axis >= len(output):
        return None
    if kind in _ELEMENTWISE:
        return _broadcast(node.input, len(output), cut, values)
    rule = _RULES.get(kind)
    if rule is None and kind in _REDUCING and not _differs(kind, node, values):
        rule = _reduced
    return None if rule is None else rule(node, output, cut, values)


def _differs(kind: str, node: NodeProto, values: OpenValues) -> bool:
    """Whether blocks of what is reduced give other values than the whole, along whichever axis that is not reduced."""
    from onnx import helper

    element = values.elements.get(node.input[0])
    if element is None:
        return False
    dtype = str(helper.tensor_dtype_to_np_dtype(element))
    return "differs" in {verdict(kind, word, dtype) for word in ("each", "inner")}


def _broadcast(names: Sequence[str], rank: int, cut: Cut, values: OpenValues) -> Needs | None:
    found: list[Cut | None] = []
    for name in names:
        shape = values.shapes.get(name) if name else ()
        if shape is None:
            return None
        axis = cut.axis - (rank - len(shape))
        length = shape[axis] if axis >= 0 else None
        whole = axis < 0 or (length is not None and length.constant() == 1)
        found.append(None if whole else Cut(axis, cut.merged))
    return tuple(found)


def _product(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    first, second = values.shapes.get(node.input[0]), values.shapes.get(node.input[1])
    if first is None or second is None or len(first) < 2 or len(second) < 2:
        return None
    rank = len(output)
    if cut.axis == rank - 2:
        return Cut(len(first) - 2, cut.merged), None
    if cut.axis == rank - 1:
        return None, Cut(len(second) - 1, cut.merged)
    batch = _broadcast(node.input, rank, cut, values)
    return batch if batch is not None and any(batch) else None


def _gemm(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    if cut.axis:
        return None
    bias = _broadcast(node.input[2:], len(output), cut, values)
    return None if bias is None else (Cut(1 if attribute_of(node, "transA", 0) else 0, cut.merged), None, *bias)


def _along(default: int, others: int) -> Callable[..., Needs | None]:
    """Return the rule of what is computed along an axis, such as Softmax; ``others``: further inputs, needed whole."""

    def rule(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
        del values
        axis = attribute_of(node, "axis", default) % len(output)
        later = node.op_type in {"LayerNormalization", "RMSNormalization"}
        if cut.axis == axis or (later and cut.axis >= axis):
            return None
        return (cut, *(None,) * min(others, len(node.input) - 1))

    return rule


def _reduced(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    shape = values.shapes.get(node.input[0])
    if shape is None:
        return None
    axes = attribute_of(node, "axes", None)
    if axes is None:
        axes = integers_of(node, 1, values)
    if axes is None or not axes:
        return None
    gone = {axis % len(shape) for axis in axes}
    if attribute_of(node, "keepdims", 1):
        return None if cut.axis in gone else (cut, *(None,) * (len(node.input) - 1))
    left = [axis for axis in range(len(shape)) if axis not in gone]
    return None if len(left) != len(output) else (Cut(left[cut.axis], cut.merged), *(None,) * (len(node.input) - 1))


def _transposed(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    del values
    order = attribute_of(node, "perm", None) or list(range(len(output)))[::-1]
    return (
        None
        if cut.merged and order[: cut.axis + 1] != list(range(cut.axis + 1))
        else (Cut(order[cut.axis], cut.merged),)
    )


def _inserted(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    axes = attribute_of(node, "axes", None) or integers_of(node, 1, values)
    if axes is None:
        return None
    added = {axis % len(output) for axis in axes}
    if cut.axis in added:
        return None
    return (Cut(cut.axis - sum(axis < cut.axis for axis in added), cut.merged), *(None,) * (len(node.input) - 1))


def _squeezed(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    shape = values.shapes.get(node.input[0])
    axes = attribute_of(node, "axes", None) or integers_of(node, 1, values)
    if shape is None or not axes:
        return None
    gone = {axis % len(shape) for axis in axes}
    left = [axis for axis in range(len(shape)) if axis not in gone]
    if len(left) != len(output):
        return None
    return (Cut(left[cut.axis], cut.merged), *(None,) * (len(node.input) - 1))


def _joined(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    del values
    axis = attribute_of(node, "axis", 0) % len(output)
    return None if axis == cut.axis else (cut,) * len(node.input)


def _split(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    del values
    axis = attribute_of(node, "axis", 0) % len(output)
    return None if axis == cut.axis else (cut, *(None,) * (len(node.input) - 1))


def _sliced(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    starts = integers_of(node, 1, values)
    axes = integers_of(node, 3, values) if len(node.input) > 3 else list(range(len(starts or ())))
    if axes is None:
        return None
    taken = {axis % len(output) for axis in axes}
    return None if cut.axis in taken else (cut, *(None,) * (len(node.input) - 1))


def _gathered(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    data, indices = values.shapes.get(node.input[0]), values.shapes.get(node.input[1])
    if data is None or indices is None or cut.merged:
        return None
    axis = attribute_of(node, "axis", 0) % len(data)
    del output
    if cut.axis < axis:
        return cut, None
    if cut.axis < axis + len(indices):
        return None, Cut(cut.axis - axis)
    return Cut(cut.axis - len(indices) + 1), None


def _expanded(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    if any(length is None for length in output):
        return None
    found = _broadcast(node.input[:1], len(output), cut, values)
    return None if found is None else (*found, None)


def _filled(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    del node, values
    return None if cut.merged or any(length is None for length in output) else (None,)


def _reshaped(node: NodeProto, output: Sequence[Polynomial | None], cut: Cut, values: OpenValues) -> Needs | None:
    """Follow a block through a reshape: lengths are matched from the left, group by group."""
    shape = values.shapes.get(node.input[0])
    if shape is None or attribute_of(node, "allowzero", 0):
        return None
    groups = _groups(shape, output, values)
    others = (None,) * (len(node.input) - 1)
    for sources, results in groups or ():
        if cut.axis not in results:
            continue
        before = [axis for axis in sources if not _is_one(shape[axis])]
        after = [axis for axis in results if not _is_one(output[axis])]
        if len(before) == 1 and len(after) == 1:
            return Cut(before[0], cut.merged), *others
        if not cut.merged and len(before) == 1 and after and after[-1] == cut.axis:
            return Cut(before[0], merged=True), *others
        if cut.merged and len(after) == 1 and before:
            return Cut(before[-1]), *others
    return None


def _groups(
    shape: Sequence[Polynomial | None], output: Sequence[Polynomial | None], values: OpenValues
) -> list[tuple[list[int], list[int]]] | None:
    """Return the smallest groups of axes with equal products, in order; None where a length is unknown."""
    sizes = dict(zip(sorted(values.ranges), _GENERIC, strict=False))
    if any(one is None for one in (*shape, *output)):
        return None
    first = [one.at(sizes) for one in shape if one is not None]
    second = [one.at(sizes) for one in output if one is not None]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(first) or j < len(second):
        sources, results = ([i] if i < len(first) else []), ([j] if j < len(second) else [])
        i, j = i + len(sources), j + len(results)
        while (left := math.prod(first[one] for one in sources)) != (
            right := math.prod(second[one] for one in results)
        ):
            if left < right and i < len(first):
                sources.append(i)
                i += 1
            elif right < left and j < len(second):
                results.append(j)
                j += 1
            else:
                return None
        groups.append((sources, results))
    return groups


def _is_one(length: Polynomial | None) -> bool:
    return length is not None and length.constant() == 1


def integers_of(node: NodeProto, position: int, values: OpenValues) -> list[int] | None:
    """Return the constants that an input holds; None where it is missing or no constant."""
    name = node.input[position] if len(node.input) > position else ""
    known = [one.constant() for one in values.integers.get(name, ())]
    found = [one for one in known if one is not None]
    return found if name in values.integers and len(found) == len(known) else None


_RULES: Final[Mapping[str, Callable[..., Needs | None]]] = {
    "MatMul": _product,
    "Gemm": _gemm,
    "Softmax": _along(-1, 0),
    "LogSoftmax": _along(-1, 0),
    "LayerNormalization": _along(-1, 2),
    "RMSNormalization": _along(-1, 1),
    "com.microsoft.SimplifiedLayerNormalization": _along(-1, 1),
    "Transpose": _transposed,
    "Unsqueeze": _inserted,
    "Squeeze": _squeezed,
    "Concat": _joined,
    "Split": _split,
    "Slice": _sliced,
    "Gather": _gathered,
    "Expand": _expanded,
    "ConstantOfShape": _filled,
    "Reshape": _reshaped,
}
