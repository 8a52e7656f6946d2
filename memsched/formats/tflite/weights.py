"""The constants that the operators of a TFLite model read."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.formats.module import Module
from memsched.formats.tflite.model import FileModel, FileOperator
from memsched.formats.tflite.reader import TfliteNative

__all__ = ["read_constants"]


def read_constants(module: Module) -> tuple[list[list[str]], dict[str, int]]:
    """Return per op of the main graph the constants of `memsched.formats.weights.weights`, and the bytes of each."""
    native: TfliteNative = module.native
    model = native.model
    names, sizes = _named(model)
    produced = [
        {tensor: number for number, operator in enumerate(subgraph.operators) for tensor in operator.outputs}
        for subgraph in model.subgraphs
    ]
    steps = [set(mapping.operators) for mapping in native.mappings]
    per_op = []
    below: dict[int, list[str]] = {}
    for number in native.mappings[0].operators:
        operator = model.subgraphs[0].operators[number]
        read = dict.fromkeys(_direct(model, names, produced, steps, 0, operator))
        for body in _bodies_below(model, operator):
            if body not in below:
                below[body] = [
                    name
                    for inner in model.subgraphs[body].operators
                    for name in _direct(model, names, produced, steps, body, inner)
                ]
            read.update(dict.fromkeys(below[body]))
        per_op.append(list(read))
    return per_op, sizes


def _named(model: FileModel) -> tuple[dict[tuple[int, int], str], dict[str, int]]:
    """Return a name per (subgraph, tensor) that has data, the same for those of one buffer, and the bytes per name."""
    of_buffer: dict[int, str] = {}
    names: dict[tuple[int, int], str] = {}
    sizes: dict[str, int] = {}
    for index, subgraph in enumerate(model.subgraphs):
        for number, tensor in enumerate(subgraph.tensors):
            if not tensor.has_data:
                continue
            stored = tensor.buffer < len(model.buffers) and model.buffers[tensor.buffer].size
            if not stored or tensor.buffer not in of_buffer:
                name = tensor.name if index == 0 else f"{subgraph.name or f'subgraph{index}'}/{tensor.name}"
                if not tensor.name or name in sizes:
                    name = f"{name or 'tensor'}#{index}.{number}"
                sizes[name] = model.buffers[tensor.buffer].size if stored else tensor.size
                if stored:
                    of_buffer[tensor.buffer] = name
            else:
                name = of_buffer[tensor.buffer]
            names[index, number] = name
    return names, sizes


def _direct(
    model: FileModel,
    names: dict[tuple[int, int], str],
    produced: Sequence[dict[int, int]],
    steps: Sequence[set[int]],
    index: int,
    operator: FileOperator,
) -> list[str]:
    """Return the constants that ``operator`` of subgraph ``index`` reads, through those computed from constants."""
    found: dict[str, None] = {}
    waiting = [tensor for tensor in reversed(operator.inputs) if tensor >= 0]
    seen = set(waiting)
    while waiting:
        tensor = waiting.pop()
        if (index, tensor) in names:
            found[names[index, tensor]] = None
        maker = produced[index].get(tensor)
        if maker is not None and maker not in steps[index]:
            reads = model.subgraphs[index].operators[maker].inputs
            fresh = [read for read in reversed(reads) if read >= 0 and read not in seen]
            seen.update(fresh)
            waiting.extend(fresh)
    return list(found)


def _bodies_below(model: FileModel, operator: FileOperator) -> list[int]:
    """Return the subgraphs that ``operator`` executes, directly or through others."""
    found = list(dict.fromkeys(operator.bodies))
    for body in found:
        inner = (one for other in model.subgraphs[body].operators for one in other.bodies)
        found.extend(dict.fromkeys(one for one in inner if one not in found))
    return found
