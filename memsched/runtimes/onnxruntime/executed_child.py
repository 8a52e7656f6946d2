"""ONNX Runtime rewrites a model and stores it: the child process's side of `executed`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from memsched.base.processor import processor_name
from memsched.formats.onnx.structure import graphs_of
from memsched.runtimes.onnxruntime.executed_names import BLOCKED, in_one_form
from memsched.runtimes.onnxruntime.opened import optimized
from memsched.runtimes.sessions import DEFAULT, SessionPoint

__all__ = ["block_here", "block_of", "rewrite"]


def rewrite(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model as ONNX Runtime optimises it at a level.

    Args:
        request: "bytes"; "folder" of external data, or None; "level"; "input_shapes" and "dims" that are fixed.

    Returns:
        "bytes"; "block": channels of a block, None where no operator is of that layout; "processor": in words;
        "fixed": names and sizes of the dimensions that were open; none where the runtime refuses them.
    """
    import onnx

    proto = onnx.load_model_from_string(request["bytes"])
    fixed = _fix(proto, request)
    point, folder = SessionPoint(request["level"]), request["folder"]
    try:
        made = optimized(proto.SerializeToString(), point, folder=folder)
    except Exception:  # the runtime raises classes of its own
        if not fixed:
            raise
        fixed, made = {}, optimized(request["bytes"], point, folder=folder)
    stored = onnx.load_model_from_string(made)
    if folder is not None:
        onnx.load_external_data_for_model(stored, folder)
    block = block_of(onnx, stored)
    in_one_form(stored)
    return {
        "bytes": stored.SerializeToString(deterministic=True),
        "block": block,
        "processor": processor_name(),
        "fixed": [[name, size] for name, size in fixed.items()],
    }


def _fix(proto: Any, request: Mapping[str, Any]) -> dict[str, int]:
    """State the inputs' sizes in the file; what it says of other values is left to be inferred anew."""
    fixed: dict[str, int] = {}
    for value in proto.graph.input:
        stated = request["input_shapes"].get(value.name)
        dims = value.type.tensor_type.shape.dim
        for axis, dim in enumerate(dims):
            size = request["dims"].get(dim.dim_param) if stated is None else stated[axis]
            if size is not None and dim.WhichOneof("value") != "dim_value":
                fixed[dim.dim_param or f"{value.name}[{axis}]"] = size
                dim.dim_value = size
    if fixed:
        del proto.graph.value_info[:]
        for value in proto.graph.output:
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in fixed:
                    dim.dim_value = fixed[dim.dim_param]
    return fixed


def block_of(onnx: Any, model: Any) -> int | None:
    """Return the channels of a block of a model's tensors; None if no operator is of that layout."""
    if not any(node.domain == BLOCKED for scope in graphs_of(model.graph) for node in scope.graph.node):
        return None
    return block_here(onnx)


def block_here(onnx: Any) -> int | None:
    """Return the channels of a block on this processor; None where tensors are not blocked.

    A convolution of eight filters is padded to as many, or left as it is.
    """
    make = onnx.helper
    values = [make.make_tensor_value_info(name, 1, (1, 16, 8, 8)) for name in ("x", "y")]
    filters = onnx.numpy_helper.from_array(np.ones((8, 16, 1, 1), np.float32), "w")
    graph = make.make_graph([make.make_node("Conv", ["x", "w"], ["y"])], "probe", values[:1], values[1:], [filters])
    graph.output[0].type.tensor_type.shape.dim[1].dim_value = 8
    probe = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=9)
    stored = onnx.load_model_from_string(optimized(probe.SerializeToString(), DEFAULT))
    if not any(node.domain == BLOCKED for node in stored.graph.node):
        return None
    return next(int(tensor.dims[0]) for tensor in stored.graph.initializer if len(tensor.dims) == len(filters.dims))
