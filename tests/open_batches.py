"""Open batches: models that leave one open, and what LiteRT makes of two files at another size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from tests.formats.tflite_builder import pack, unpack

__all__ = ["MODES", "fate", "outputs_at", "with_open_batch"]

MODES = (OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, OpResolverType.AUTO)
"""Without delegates, and as people open a file."""


def with_open_batch(data: bytes) -> bytes:
    """Return a model whose activations have signatures that leave their first axis open, as converters write them."""
    model = unpack(data)
    for graph in model.subgraphs:
        for tensor in graph.tensors:
            stored = model.buffers[tensor.buffer].data
            if (stored is None or not len(stored)) and tensor.shape is not None and len(tensor.shape):
                tensor.shapeSignature = [-1, *tensor.shape[1:]]
    return pack(model)


def outputs_at(data: bytes, mode: Any, shapes: Sequence[Sequence[int]]) -> list[Any]:
    """Resize a model as callers do it who do not ask to be strict, run it on random inputs and return its outputs."""
    interpreter = Interpreter(model_content=data, experimental_op_resolver_type=mode)
    rng = np.random.default_rng(0)
    for detail, shape in zip(interpreter.get_input_details(), shapes, strict=True):
        interpreter.resize_tensor_input(detail["index"], shape)
    interpreter.allocate_tensors()
    for detail, shape in zip(interpreter.get_input_details(), shapes, strict=True):
        values = 40 * rng.standard_normal(shape) if detail["dtype"] != np.float32 else rng.standard_normal(shape)
        interpreter.set_tensor(detail["index"], values.astype(detail["dtype"]))
    interpreter.invoke()
    return [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]


def fate(given: bytes, written: bytes, mode: Any, shapes: Sequence[Sequence[int]]) -> str:
    """Return whether ``written`` is "equal" to a model at other sizes but for rounding, "refused", or "wrong".

    "untold" if LiteRT does not run the model itself at these sizes.
    """
    try:
        expected = outputs_at(given, mode, shapes)
    except (RuntimeError, ValueError):
        return "untold"
    try:
        found = outputs_at(written, mode, shapes)
    except (RuntimeError, ValueError):
        return "refused"
    pairs = zip(expected, found, strict=True)
    return "equal" if all(a.shape == b.shape and np.allclose(a, b, 1e-4, 1e-5) for a, b in pairs) else "wrong"
