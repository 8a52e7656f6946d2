"""ONNX Runtime's own inference, as it loads a model: it knows the operators of its own domains and executes nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from onnx import ModelProto, NodeProto, TensorProto

__all__ = ["infer"]

_MOST_NODES: Final = 100_000
"""Larger models are left to ONNX's own inference."""

_TENSOR: Final = re.compile(r"tensor\((\w+)\)")


def infer(model: ModelProto, nodes: Sequence[NodeProto]) -> dict[str, tuple[int, tuple[int, ...]]]:
    """Return the element types and the shapes of what nodes of the main graph compute, where all lengths are numbers.

    Scalars are not among them. Empty for very many nodes, and where ONNX Runtime is not installed or refuses the model.
    A session tells what its outputs are like before it is initialised: what it is given has all values for outputs.

    Args:
        model: What is known of the model, with constants without values for inputs.
        nodes: Its nodes as the file has them.
    """
    if len(nodes) > _MOST_NODES:
        return {}
    asked = ModelProto()
    asked.CopyFrom(model)
    graph = asked.graph
    # What shape arithmetic gave is a constant by now.
    given = {value.name for value in (*graph.input, *graph.initializer)}
    del graph.node[:], graph.output[:]
    graph.node.extend(node for node in nodes if not given.intersection(node.output))
    for name in dict.fromkeys(name for node in graph.node for name in node.output if name):
        graph.output.add(name=name)
    try:
        from onnxruntime import SessionOptions
        from onnxruntime.capi import _pybind_state as native

        options = SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        # Only its initialisation, which is left out, would make kernels and fold constants.
        session = native.InferenceSession(options, asked.SerializeToString(), False, False)
        outputs = [(one.name, one.type, one.shape) for one in session.outputs_meta]
    except Exception:  # any refusal means no help
        return {}
    found = {}
    for name, kind, shape in outputs:
        element = _TENSOR.fullmatch(kind)
        # No lengths stand for a scalar and for what is not known alike.
        if element is not None and shape and all(isinstance(length, int) and length >= 0 for length in shape):
            found[name] = TensorProto.DataType.Value(element[1].upper()), tuple(shape)
    return found
