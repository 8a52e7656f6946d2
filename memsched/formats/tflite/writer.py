"""TFLite models out: the file as it was read, with the offsets in its lists of operators permuted."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace

from memsched.base.errors import InternalError, ModelError
from memsched.formats.module import Module
from memsched.formats.staging import describe
from memsched.formats.tflite import metadata
from memsched.formats.tflite.model import FileModel, FileSubgraph, parse
from memsched.formats.tflite.reader import TfliteNative

__all__ = ["file_order", "notes", "serialize"]


def serialize(module: Module, orders: Mapping[int, Sequence[int]], *, control_dependencies: bool = False) -> bytes:
    """Return the file with its operators in new orders; every other byte stays as it was.

    A file whose order does not change is returned untouched. Beside the order only what would be wrong without a
    change is changed: a memory plan for TensorFlow Lite Micro that was made for the old order (its offsets become
    -1, "plan it yourself", in place), and the metadata ``model_control_dependencies`` if the file has it.

    Args:
        module: A TFLite model as `reader.read` returned it.
        orders: Per graph that is to change, its op indices in order of execution.
        control_dependencies: Write ``model_control_dependencies``, so that a runtime that gives some operators to a
            delegate keeps the order too. It is put in front of the old file, whose bytes stay together.

    Raises:
        ModelError: The file is laid out so that it cannot be reordered, or (with metadata) is of a later schema.
        InternalError: ``orders`` are no permutations, or the result does not read back as the same model.
    """
    native = _native(module)
    model = native.model
    placed = {graph: file_order(module, graph, order) for graph, order in orders.items()}
    changed = {graph: order for graph, order in placed.items() if order != tuple(range(len(order)))}
    if not changed and not control_dependencies:
        return model.data
    try:
        data = _reordered(model, changed) if changed else model.data
        edges = _new_edges(model, changed, control_dependencies=control_dependencies)
        shift = 0
        if edges is not None:
            payload = metadata.encode_control_dependencies(edges)
            data, shift = metadata.with_metadata(data, model, metadata.CONTROL_DEPENDENCIES, payload)
        _check(model, data, changed, shift)
    except ModelError as error:
        raise error.at(f"{describe(module.path)} cannot be written") from None
    return data


def notes(
    module: Module, orders: Mapping[int, Sequence[int]], *, control_dependencies: bool = False
) -> tuple[str, ...]:
    """Return what a report must say about `serialize` with the same arguments, beside the order."""
    model = _native(module).model
    placed = {graph: file_order(module, graph, order) for graph, order in orders.items()}
    changed = {graph: order for graph, order in placed.items() if order != tuple(range(len(order)))}
    said = []
    if changed and metadata.has_offline_plan(model):
        said.append(
            f"metadata '{metadata.OFFLINE_PLAN}' was made for the old order: its offsets are now -1, "
            "so that the runtime plans anew"
        )
    if _new_edges(model, changed, control_dependencies=control_dependencies) is not None:
        said.append(f"metadata '{metadata.CONTROL_DEPENDENCIES}' states the order for runtimes with delegates")
    return tuple(said)


def file_order(module: Module, graph: int, order: Sequence[int]) -> tuple[int, ...]:
    """Return the indices of a subgraph's operators in the file, ordered as ``order`` says for the graph's ops.

    Operators that compute constants are no ops of the graph: each goes right before the first that needs it. The
    file's own order stays as it is.

    Raises:
        InternalError: ``order`` is no permutation of the graph's ops.
    """
    native = _native(module)
    steps = native.mappings[graph].operators
    if sorted(order) != list(range(len(steps))):
        raise InternalError(
            f"the order of graph {graph} does not name each of its {len(steps)} ops once", code="op-count"
        )
    subgraph = native.model.subgraphs[graph]
    if all(step == op for step, op in enumerate(order)):
        return tuple(range(len(subgraph.operators)))
    return _with_constants(subgraph, [steps[op] for op in order], set(steps))


def _with_constants(subgraph: FileSubgraph, ordered: list[int], steps: set[int]) -> tuple[int, ...]:
    computed_by = {
        tensor: number
        for number, operator in enumerate(subgraph.operators)
        if number not in steps
        for tensor in operator.outputs
        if tensor >= 0
    }
    result: list[int] = []
    placed: set[int] = set()
    # Unread constants come last: they are needed by nothing.
    for number in (*ordered, *(n for n in range(len(subgraph.operators)) if n not in steps)):
        pending = [number]
        while pending:
            current = pending[-1]
            needed = [computed_by[tensor] for tensor in subgraph.operators[current].inputs if tensor in computed_by]
            missing = [constant for constant in dict.fromkeys(needed) if constant not in placed]
            if missing:
                pending.extend(reversed(missing))
                continue
            pending.pop()
            if current not in placed:
                placed.add(current)
                result.append(current)
    return tuple(result)


def _native(module: Module) -> TfliteNative:
    if not isinstance(module.native, TfliteNative):
        raise InternalError("a module that was not read from TFLite cannot be written as TFLite", code="wrong-format")
    return module.native


def _reordered(model: FileModel, changed: Mapping[int, tuple[int, ...]]) -> bytes:
    data = bytearray(model.data)
    for graph, order in changed.items():
        subgraph = model.subgraphs[graph]
        start = subgraph.vector.start
        # An offset counts from its own place, so it grows by what its place moves towards the begin.
        offsets = [subgraph.operators[op].table - (start + 4 * place) for place, op in enumerate(order)]
        if min(offsets) <= 0:
            raise ModelError(
                f"operators of subgraph {graph} lie before its list of them; the file is damaged", code="damaged"
            )
        struct.pack_into(f"<{len(offsets)}I", data, start, *offsets)
    metadata.clear_offline_plan(model, data)
    return bytes(data)


def _new_edges(
    model: FileModel, changed: Mapping[int, tuple[int, ...]], *, control_dependencies: bool
) -> list[tuple[tuple[int, int], ...]] | None:
    """Return the control dependencies to write, by new operator indices; None where nothing is to be written."""
    stated = metadata.control_dependencies(model)
    if not control_dependencies and (stated is None or not changed):
        return None
    result = []
    for graph, subgraph in enumerate(model.subgraphs):
        count = len(subgraph.operators)
        edges = stated[graph] if stated is not None else ()
        if control_dependencies or metadata.is_chain(edges, count):
            result.append(tuple((place, place + 1) for place in range(count - 1)))
            continue
        place_of = {op: place for place, op in enumerate(changed.get(graph, range(count)))}
        result.append(tuple(sorted((place_of[before], place_of[after]) for before, after in edges)))
    return result


def _check(model: FileModel, data: bytes, changed: Mapping[int, tuple[int, ...]], shift: int) -> None:
    """Read the result back: parts that overlap in a damaged file must not have changed with the order."""
    written = parse(data)
    for graph, (old, new) in enumerate(zip(model.subgraphs, written.subgraphs, strict=True)):
        order = changed.get(graph, range(len(old.operators)))
        expected = tuple(replace(old.operators[op], table=old.operators[op].table + shift) for op in order)
        same = (old.name, old.tensors, old.inputs, old.outputs) == (new.name, new.tensors, new.inputs, new.outputs)
        if not same or new.operators != expected:
            raise ModelError(
                f"the list of operators of subgraph {graph} overlaps other parts; the file is damaged",
                code="operators-overlap",
            )
