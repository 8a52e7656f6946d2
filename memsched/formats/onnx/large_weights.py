"""Large weights before small ones, so that ONNX Runtime uses again what it frees while it opens a session.

A session copies the weights of a file one after the other, and then replaces those of matrix products, one at a time,
by copies in another layout. What is freed has room for the next copy where several lie side by side; between small
values, of which a process allocates others meanwhile, each leaves a hole that is too small by some bytes.
"""

from __future__ import annotations

from onnx import GraphProto, ModelProto

from memsched.formats.onnx.light import constant_sizes
from memsched.formats.onnx.structure import graphs_of
from memsched.formats.onnx.worth import LARGE_WEIGHT

__all__ = ["weights_first"]


def weights_first(data: bytes) -> bytes:
    """Return a model with the large weights of each graph first, in the order that they have; all else is as it was."""
    model = ModelProto.FromString(data)
    changed = [_sort(scope.graph) for scope in graphs_of(model.graph)]
    if not any(changed):
        return data
    written: bytes = model.SerializeToString(deterministic=True)
    return written


def _sort(graph: GraphProto) -> bool:
    """Put a graph's large weights first; return whether they were not so before."""
    sizes = constant_sizes(graph)
    before = list(graph.initializer)
    after = sorted(before, key=lambda one: sizes[one.name] < LARGE_WEIGHT)
    if all(one is other for one, other in zip(before, after, strict=True)):
        return False
    del graph.initializer[:]
    graph.initializer.extend(after)
    return True
