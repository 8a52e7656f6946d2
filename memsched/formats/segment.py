"""A part of a model that becomes a model of its own."""

from __future__ import annotations

from collections.abc import Collection

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.formats.module import Module

__all__ = ["Segment", "SegmentModel", "check_fit"]


class Segment(FrozenValue, frozen=True):
    """A part of a model's main graph that is to be a model of its own.

    Attributes:
        ops: Indices of ``module.graphs[0].ops`` in the order to be written, which is a topological one of them.
        inputs: Names of the tensors that it is given, in order; those that no op of it reads are allowed.
        outputs: Names of the tensors that it hands out, in order. One that is also in ``inputs`` is passed through.
            Outputs of the model that are constants may be among them.
    """

    ops: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def check_fit(module: Module, segment: Segment, constants: Collection[str]) -> None:
    """Check that ``segment`` is a part of ``module`` that can be executed, before it is made.

    Args:
        constants: Names of values that it may hand out though no op of it makes them.

    Raises:
        InternalError: It is not.
    """
    graph = module.graphs[0]
    names = [tensor.name for tensor in graph.tensors]
    there = set(segment.inputs)
    if strange := there.difference(names):
        raise InternalError(f"a segment is given '{min(strange)}', which is no value of the model", code="not-given")
    there.update(names[tensor] for tensor in graph.variables)
    for op in segment.ops:
        missing = next((names[tensor] for tensor in graph.ops[op].inputs if names[tensor] not in there), None)
        if missing is not None:
            raise InternalError(
                f"op '{graph.ops[op].name}' of a segment reads '{missing}' before it is there", code="read-before-made"
            )
        there.update(names[tensor] for tensor in graph.ops[op].outputs)
    for name in segment.outputs:
        if name not in there and name not in constants:
            raise InternalError(f"a segment hands out '{name}', which it does not have", code="not-held")


class SegmentModel(FrozenValue, frozen=True):
    """A model that computes a part of another.

    Attributes:
        data: Its file.
        weights: Bytes of its constants.
    """

    data: bytes
    weights: int
