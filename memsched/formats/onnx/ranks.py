"""Operands that give a tensor's number of dimensions: ONNX's inference makes a list that long, without a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from onnx import NodeProto, TensorProto, TypeProto

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue
from memsched.base.units import LONGEST
from memsched.formats.onnx.attributes import MOST_ENTRIES
from memsched.formats.onnx.structure import Scope, domain_of, values_of
from memsched.ops.table import FROM_NUMBERS, families

__all__ = ["check_ranks"]

_RANKED: Final[Mapping[str, Sequence[int]]] = {
    "ConstantOfShape": (0,),
    "Expand": (1,),
    "Pad": (1,),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Squeeze": (1,),
    "Tile": (1,),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
"""Operator -> positions of operands whose length is a number of dimensions."""

_MEASURES: Final = frozenset({"Shape", "Size"})
"""What is short whatever its input is."""

_GROWING: Final = FROM_NUMBERS | families("expansion", "pad", "repetition", "resize")
"""Operators whose output is as long as the values of an input say."""

_SELECTING: Final = families("selection")
"""Operators of which only the first input's values come out: ends of slices are often the largest number there is."""

_WHOLE: Final = frozenset({6, 7, 12, 13})
"""int32, int64, uint32, uint64."""


class _LargestSource(FrozenValue, frozen=True):
    """What a value may follow from: the largest dimension, and the largest value."""

    dimension: int = 0
    value: int = 0


def check_ranks(scopes: Sequence[Scope]) -> None:
    """Refuse ops whose number of dimensions would come from a tensor that is far too long for that.

    Raises:
        ModelError: An operand depends on a dimension of more than 16 million elements otherwise than by its shape.
    """
    reached = _declared(scopes)
    if not reached:
        return
    for scope in scopes:
        for node in scope.graph.node:
            _check(node, reached)
            if node.op_type in _MEASURES:
                continue
            read = node.input[:1] if node.op_type in _SELECTING else node.input
            longest = max((reached.get(name, _LargestSource()).dimension for name in read), default=0)
            largest = max((reached.get(name, _LargestSource()).value for name in read), default=0)
            if node.op_type in _GROWING:
                longest = max([longest, *(reached.get(name, _LargestSource()).value for name in node.input)])
            for name in node.output if longest or largest else ():
                declared = reached.get(name, _LargestSource())
                reached[name] = _LargestSource(max(longest, declared.dimension), max(largest, declared.value))


def _check(node: NodeProto, reached: Mapping[str, _LargestSource]) -> None:
    if domain_of(node):
        return
    for position in _RANKED.get(node.op_type, ()):
        operand = node.input[position] if position < len(node.input) else ""
        length = reached.get(operand, _LargestSource()).dimension
        if length > LONGEST:
            name = node.name or next((output for output in node.output if output), node.op_type)
            raise ModelError(
                f"op '{name}' ({node.op_type}) takes its number of dimensions from '{operand}', which could have "
                f"{length:,} elements",
                code="absurd-size",
            )


def _declared(scopes: Sequence[Scope]) -> dict[str, _LargestSource]:
    """Return, for names declared with a number beyond `LONGEST`, the largest dimension and the largest value."""
    found: dict[str, _LargestSource] = {}
    for scope in scopes:
        graph = scope.graph
        # Large models have few types.
        long = any(_longest(TypeProto.FromString(written)) > LONGEST for written in scope.types)
        for value in values_of(graph) if long else ():
            longest = _longest(value.type)
            if longest > LONGEST:
                found[value.name] = _LargestSource(longest)
        for tensor in graph.initializer:
            _add(found, tensor.name, tensor)
        for node in graph.node if "Constant" in scope.operators else ():
            if node.op_type == "Constant" and node.output:
                for attribute in node.attribute:
                    if attribute.name == "value":
                        _add(found, node.output[0], attribute.t)
    return found


def _longest(declared: TypeProto) -> int:
    return max([dim.dim_value for dim in declared.tensor_type.shape.dim], default=0)


def _add(found: dict[str, _LargestSource], name: str, tensor: TensorProto) -> None:
    longest = max(tensor.dims, default=0)
    largest = _largest_value(tensor) if tensor.data_type in _WHOLE else 0
    if longest > LONGEST or largest > LONGEST:
        found[name] = _LargestSource(longest, largest)


def _largest_value(tensor: TensorProto) -> int:
    """Return the largest of a few integers; 0 of many."""
    width = 4 if tensor.data_type in {6, 12} else 8
    raw = tensor.raw_data
    if raw:
        if len(raw) > MOST_ENTRIES * width:
            return 0
        values = [int.from_bytes(raw[at : at + width], "little", signed=True) for at in range(0, len(raw), width)]
        return max(values, default=0)
    listed = (*tensor.int64_data, *tensor.int32_data, *tensor.uint64_data)
    return max(listed, default=0) if len(listed) <= MOST_ENTRIES else 0
