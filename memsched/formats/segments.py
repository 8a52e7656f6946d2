"""Parts of a model of any format as models of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from memsched.base.errors import InternalError
from memsched.formats.capabilities import Stages
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.formats.segment import Segment
from memsched.graph.model import Graph

__all__ = ["check_segments", "extract"]


def extract(module: Module, segment: Segment, metadata: Mapping[str, str]) -> bytes:
    """Return ``segment`` as a file of the module's format that runs on its own.

    It holds only the constants, functions, bodies and operator sets that its ops need. What computes constants from
    constants alone goes to every segment that needs the result. A tensor that is passed through is input and output
    of the main graph under one name, which ONNX's checker, ONNX Runtime and LiteRT accept; no op copies it. Inputs
    that the model leaves open in a dimension stay open, and so does what follows from them where ONNX infers it.

    Args:
        metadata: Added to the file's metadata; an entry of the same key is replaced.

    Raises:
        InternalError: The segment does not fit the module.
        ModelError: A tensor of it has a type that cannot be handed over, a state is shared with ops outside of it, or
            the file would be too large.
    """
    return capability(module, Stages).cutter(module).cut(segment, metadata)


def check_segments(module: Module, segments: Sequence[Segment]) -> None:
    """Check that ``segments``, executed in a row, are the whole model; shares no code with what makes them.

    Every op is in exactly one of them and after what it reads; every input is given to the model or made by an earlier
    segment; the model's outputs are all handed out.

    Raises:
        InternalError: They are not.
    """
    graph = module.graphs[0]
    names = [tensor.name for tensor in graph.tensors]
    given = {names[tensor] for tensor in graph.inputs}
    available = set(given)
    place: dict[int, tuple[int, int]] = {}
    for number, segment in enumerate(segments):
        where = f"segment {number + 1} of {len(segments)}"
        _check_one(graph, segment, available, where)
        for at, op in enumerate(segment.ops):
            if op in place:
                raise InternalError(
                    f"{where} holds op '{graph.ops[op].name}', which an earlier one holds as well", code="op-twice"
                )
            place[op] = (number, at)
        available.update(segment.outputs)
    for number, one in enumerate(graph.ops):
        if number not in place:
            raise InternalError(f"op '{one.name}' is in no segment", code="op-missing")
    for before, after in graph.dependencies:
        if place[before] >= place[after]:
            raise InternalError(
                f"op '{graph.ops[after].name}' must stay behind '{graph.ops[before].name}'", code="dependency"
            )
    for tensor in graph.outputs:
        if names[tensor] not in available:
            raise InternalError(
                f"output '{names[tensor]}' of the model is handed out by no segment", code="output-missing"
            )


def _check_one(graph: Graph, segment: Segment, available: AbstractSet[str], where: str) -> None:
    """Check one segment, before which the values ``available`` are there."""
    names = [tensor.name for tensor in graph.tensors]
    for values in (segment.ops, segment.inputs, segment.outputs):
        if len(set(values)) < len(values):
            raise InternalError(f"{where} names an op, an input or an output twice", code="segment-name-twice")
    local = {*segment.inputs, *(names[tensor] for tensor in graph.variables)}
    if missing := [name for name in segment.inputs if name not in available]:
        raise InternalError(f"{where} is given '{missing[0]}', which nothing before it hands out", code="not-given")
    for op in segment.ops:
        if not 0 <= op < len(graph.ops):
            raise InternalError(f"{where} holds op {op}, which does not exist", code="no-such-op")
        for tensor in graph.ops[op].inputs:
            if names[tensor] not in local:
                raise InternalError(
                    f"op '{graph.ops[op].name}' reads '{names[tensor]}', not there yet",
                    location=where,
                    code="read-before-made",
                )
        local.update(names[tensor] for tensor in graph.ops[op].outputs)
    computed = {names[tensor] for op in graph.ops for tensor in op.outputs} | {names[t] for t in graph.inputs}
    for name in segment.outputs:
        # What is no value of the graph is a constant.
        if name in computed and name not in local:
            raise InternalError(f"{where} hands out '{name}', which it has not", code="not-held")
