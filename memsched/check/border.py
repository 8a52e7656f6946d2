"""The check of a model whose border was changed: the caller is told to do exactly what the model did there.

It follows the operators of the model as given from each input and output that changed, and shares no code with the
search that found them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memsched.base.errors import InternalError
from memsched.graph.border import Border, BorderStep, BorderTensor, Interface
from memsched.graph.model import Graph, Op
from memsched.ops.table import families

__all__ = ["check_border", "check_interface"]

_OPERATORS: Final = {
    "quantize": families("quantization"),
    "dequantize": families("dequantization"),
    "shift": frozenset({"QUANTIZE"}),  # of numbers that are quantised already
    "transpose": families("transpose"),
    "cast": families("cast"),
}
"""Operators that do what a step says."""


def check_border(before: Graph, after: Graph, borders: Sequence[Border]) -> None:
    """Check that ``after`` is ``before`` without the operators that ``borders`` leave to the caller.

    Raises:
        InternalError: Another operator is missing or changed, an operator is left out that something else needs, or
            an input or output is not the tensor that the caller is told.
    """
    gone = [step.op for border in borders for step in border.steps]
    if len(set(gone)) != len(gone):
        raise InternalError("an operator at the border is left to the caller twice", code="op-twice")
    _check_rest(before, after, set(gone))
    for side, was, now in (("input", before.inputs, after.inputs), ("output", before.outputs, after.outputs)):
        changed = {border.place: border for border in borders if border.side == side}
        if len(was) != len(now) or not set(changed) <= set(range(len(was))):
            raise InternalError(f"the model has another number of {side}s", code="interface-differs")
        for place, (old, new) in enumerate(zip(was, now, strict=True)):
            border = changed.get(place)
            told = before.tensors[old].name if border is None else border.written.name
            if after.tensors[new].name != told:
                raise InternalError(
                    f"{side} {place} is '{after.tensors[new].name}' instead of '{told}'", code="interface-differs"
                )
            if border is not None:
                _check_steps(before, border, old)


def _check_rest(before: Graph, after: Graph, gone: set[str]) -> None:
    kept = {op.name: _told(before, op) for op in before.ops if op.name not in gone}
    found = {op.name: _told(after, op) for op in after.ops}
    if len(before.ops) - len(kept) != len(gone) or kept != found or len(after.ops) != len(found):
        raise InternalError("more than the border of the model was changed", code="more-than-border")
    known = {tensor.name: tensor for tensor in before.tensors}
    if any(known.get(tensor.name) != tensor for tensor in after.tensors):
        raise InternalError("a tensor changed with the border of the model", code="tensor-differs")
    names = [[graph.tensors[one].name for one in graph.variables] for graph in (before, after)]
    if names[0] != names[1]:
        raise InternalError("the model has other variables", code="interface-differs")


def _told(graph: Graph, op: Op) -> tuple[object, ...]:
    reads = [graph.tensors[tensor].name for tensor in op.inputs]
    makes = [graph.tensors[tensor].name for tensor in op.outputs]
    return op.type, reads, makes, dict(op.attributes), op.positions


def _check_steps(graph: Graph, border: Border, end: int) -> None:
    """Follow the steps of a border from the model's ``end`` inwards."""
    inwards = border.side == "input"
    tensor = end
    for step in border.steps if inwards else tuple(reversed(border.steps)):
        op = next(one for one in graph.ops if one.name == step.op)
        if len(op.inputs) != 1 or len(op.outputs) != 1 or op.type not in _OPERATORS[step.kind]:
            raise InternalError(f"op '{op.name}' is not what a caller can do", code="not-for-caller")
        outer, inner = (op.inputs[0], op.outputs[0]) if inwards else (op.outputs[0], op.inputs[0])
        readers = [one for one in graph.ops if outer in one.inputs]
        used = [one for one in readers if one.name not in {step.op for step in border.steps}]
        ends = {*graph.inputs, *graph.outputs, *graph.variables} - {end}
        if outer != tensor or used or outer in ends or (len(readers) > 1) or inner in {*graph.inputs, *graph.outputs}:
            raise InternalError(f"op '{op.name}' is left to the caller, but the model needs it", code="still-needed")
        _check_step(graph, op, step)
        tensor = inner
    if graph.tensors[tensor].name != border.written.name or graph.tensors[end].name != border.given.name:
        raise InternalError(f"the border of '{border.given.name}' ends elsewhere than is told", code="border-differs")


def _check_step(graph: Graph, op: Op, step: BorderStep) -> None:
    read, made = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    shape, dtype = read.shape or (), step.dtype
    if step.kind == "transpose":
        if sorted(step.permutation) != list(range(len(shape))):
            raise InternalError(f"the axes that op '{op.name}' moves are not those of its input", code="border-differs")
        shape, dtype = tuple(shape[axis] for axis in step.permutation), read.dtype
    if (shape, dtype) != (made.shape, made.dtype):
        raise InternalError(
            f"op '{op.name}' makes another tensor than the caller is told to make", code="border-differs"
        )


def check_interface(borders: Sequence[Border], given: Interface, written: Interface) -> None:
    """Check the inputs and outputs that a written file states against those of the model as given.

    Raises:
        InternalError: One is neither as it was nor as the caller is told.
    """
    for side, was, now in (("input", given.inputs, written.inputs), ("output", given.outputs, written.outputs)):
        told = {border.place: border.written for border in borders if border.side == side}
        expected = [told.get(place, tensor) for place, tensor in enumerate(was)]
        if len(expected) != len(now) or not all(map(_agree, expected, now)):
            raise InternalError(f"the written model has other {side}s than is told", code="interface-differs")


def _agree(told: BorderTensor, found: BorderTensor) -> bool:
    same = (told.name, told.shape, told.dtype, told.size) == (found.name, found.shape, found.dtype, found.size)
    # ONNX states no scales of inputs and outputs.
    stated = found.scale is not None
    return same and (not stated or (told.scale, told.zero_point) == (found.scale, found.zero_point))
