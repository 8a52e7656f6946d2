"""Tensors that are the memory which a custom operator works in: compilers for accelerators list them as inputs."""

from __future__ import annotations

from memsched.formats.tflite.model import FileSubgraph

__all__ = ["own_tensors"]


def own_tensors(subgraph: FileSubgraph) -> dict[int, int]:
    """Return the tensors that a custom operator has for itself, each with the operator.

    Nothing gives them values before, and nothing else reads them.
    """
    known = {*subgraph.inputs, *subgraph.outputs, *(tensor for one in subgraph.operators for tensor in one.outputs)}
    readers: dict[int, list[int]] = {}
    for number, operator in enumerate(subgraph.operators):
        for tensor in dict.fromkeys(operator.inputs):
            readers.setdefault(tensor, []).append(number)
    return {
        tensor: by[0]
        for tensor, by in readers.items()
        if tensor >= 0
        and len(by) == 1
        and tensor not in known
        and subgraph.tensors[tensor].size > 0
        and not subgraph.tensors[tensor].has_data
        and not subgraph.tensors[tensor].variable
        and subgraph.operators[by[0]].type.startswith("CUSTOM:")
    }
