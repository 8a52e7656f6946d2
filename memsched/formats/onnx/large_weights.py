"""Large weights before small ones, so that ONNX Runtime uses again what it frees while it opens a session.

A session copies the weights of a file one after the other, and then replaces those of matrix products, one at a time,
by copies in another layout. What is freed has room for the next copy where several lie side by side; between small
values, of which a process allocates others meanwhile, each leaves a hole that is too small by some bytes.
"""

from __future__ import annotations

from typing import Final

from onnx import ModelProto

from memsched.formats.onnx.light import constant_sizes

__all__ = ["weights_first"]

_LARGE: Final = 1 << 16
"""Bytes of a weight; biases and scales of layers have less."""


def weights_first(data: bytes) -> bytes:
    """Return a model with its large weights first, each group in the order that it has; all else is as it was."""
    model = ModelProto.FromString(data)
    graph = model.graph
    sizes = constant_sizes(graph)
    before = list(graph.initializer)
    after = sorted(before, key=lambda one: sizes[one.name] < _LARGE)
    if [one.name for one in after] == [one.name for one in before]:
        return data
    del graph.initializer[:]
    graph.initializer.extend(after)
    written: bytes = model.SerializeToString(deterministic=True)
    return written
