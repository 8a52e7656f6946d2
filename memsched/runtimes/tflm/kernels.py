"""Scratch buffers that TensorFlow Lite Micro's reference kernels ask for while they prepare: no model file shows them.

Each is laid out with the tensors in the planned part of the arena and lives at its own operator only. The rules were
read in the kernels' sources (tensorflow/lite/micro/kernels/, the file is named at each rule) and compared with the
arenas of a TFLM build of October 2026. What optimised kernels ask for instead is in `kernel_sets`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping

from flatbuffers import flexbuffers

from memsched.base.errors import ModelError
from memsched.formats.tflite.flatbuffer import FlatbufferTable, FlatFile
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph, FileTensor
from memsched.formats.tflite.schema import OperatorSlot
from memsched.runtimes.tflm.kernel_sets import kernel_set
from memsched.runtimes.tflm.signal_kernels import SIGNAL_KERNELS, signal_scratch
from memsched.runtimes.tflm.sources import Sources

__all__ = ["DETECTION_POSTPROCESS", "custom_integers", "operator_tensor", "scratch_requests"]

DETECTION_POSTPROCESS = "CUSTOM:TFLite_Detection_PostProcess"


def scratch_requests(model: FileModel, subgraph: int, operator: int, kernels: str = "") -> tuple[int, ...]:
    """Return the bytes of each scratch buffer that an operator's kernel requests, in its order.

    Args:
        model: The file.
        subgraph: Index of a subgraph.
        operator: Index of one of its operators, in the file's order.
        kernels: As a target names them; by default the reference kernels.
    """
    graph = model.subgraphs[subgraph]
    op = graph.operators[operator]
    found = kernel_set(kernels).scratch(model, graph, op)
    if found is not None:
        return found
    if op.type == DETECTION_POSTPROCESS:
        return _detection_postprocess(model, graph, op)
    if op.type in SIGNAL_KERNELS:
        return signal_scratch(op.type, custom_integers(model, op))
    rule = _RULES.get(op.type)
    return () if rule is None else rule(graph, op)


def operator_tensor(graph: FileSubgraph, op: FileOperator, position: int, *, output: bool = False) -> FileTensor | None:
    """Return the tensor that an operator reads (or writes) at a position; None where it has none there."""
    places = op.outputs if output else op.inputs
    if position >= len(places) or places[position] < 0:
        return None
    return graph.tensors[places[position]]


def _elements(tensor: FileTensor | None) -> int:
    return 0 if tensor is None else math.prod(tensor.shape)


def _dtype(tensor: FileTensor | None) -> str:
    return "" if tensor is None else tensor.dtype


def _unpacked_weights(graph: FileSubgraph, op: FileOperator) -> tuple[int, ...]:
    # conv_common.cc, depthwise_conv_common.cc, fully_connected.cc: 4-bit weights are unpacked, a byte to an element.
    weights = operator_tensor(graph, op, 1)
    return (_elements(weights),) if _dtype(weights) == "int4" else ()


def _transpose_conv(graph: FileSubgraph, op: FileOperator) -> tuple[int, ...]:
    # transpose_conv.cc: an accumulator per output element; 16-bit biases are widened.
    data, bias = operator_tensor(graph, op, 2), operator_tensor(graph, op, 3)
    outputs = _elements(operator_tensor(graph, op, 0, output=True))
    if _dtype(data) == "int8":
        return (4 * outputs,)
    if _dtype(data) == "int16":
        return (8 * outputs, *((8 * _elements(bias),) if _dtype(bias) == "int16" else ()))
    return ()


def _svdf(graph: FileSubgraph, op: FileOperator) -> tuple[int, ...]:
    # svdf_common.cc: 4 bytes per filter and, where quantized, 4 per unit (a unit is `rank` filters).
    data, features = operator_tensor(graph, op, 0), operator_tensor(graph, op, 1)
    if data is None or features is None or not data.shape or not features.shape:
        return ()
    per_filter = 4 * data.shape[0] * features.shape[0]
    rank = op.attributes.get("rank", 1)
    if data.dtype != "int8" or not isinstance(rank, int) or rank < 1:
        return (per_filter,)
    return (per_filter, per_filter // rank)


def _lstm(graph: FileSubgraph, op: FileOperator) -> tuple[int, ...]:
    # unidirectional_sequence_lstm.cc: four gates, each of batch x state elements of the cell state's type.
    data, recurrent, cell = (operator_tensor(graph, op, position) for position in (0, 6, 19))
    if data is None or recurrent is None or cell is None or len(data.shape) != 3 or len(recurrent.shape) != 2:
        return ()
    batch = data.shape[1 if op.attributes.get("time_major") else 0]
    width = 2 if cell.dtype == "int16" else 4
    return (batch * recurrent.shape[1] * width,) * 4


def _mean_or_sum(graph: FileSubgraph, op: FileOperator) -> tuple[int, ...]:
    # reduce_common.cc: quantized sums are collected in 32 bits; the walk needs what that of a maximum does.
    walk = _minimum_or_maximum(graph, op)
    if _dtype(operator_tensor(graph, op, 0)) not in {"int8", "uint8", "int16"}:
        return walk
    return (4 * _elements(operator_tensor(graph, op, 0, output=True)), *walk)


def _minimum_or_maximum(graph: FileSubgraph, op: FileOperator) -> tuple[int, ...]:
    # reduce_common.cc: an index per dimension of the data, and the resolved axes.
    data, axes = operator_tensor(graph, op, 0), operator_tensor(graph, op, 1)
    return () if data is None or axes is None else (4 * len(data.shape), 4 * _elements(axes))


def _mirror_pad(graph: FileSubgraph, op: FileOperator) -> tuple[int, ...]:
    # mirror_pad.cc: the elements below each dimension of the output, and of the input.
    data, padding = operator_tensor(graph, op, 0), operator_tensor(graph, op, 1)
    return () if data is None or padding is None else (4 * len(data.shape),) * 2


def _add_n(_: FileSubgraph, op: FileOperator) -> tuple[int, ...]:
    # add_n.cc: a pointer to each input.
    return (Sources.POINTER * len(op.inputs),)


_RULES: Mapping[str, Callable[[FileSubgraph, FileOperator], tuple[int, ...]]] = {
    "ADD_N": _add_n,
    "CONV_2D": _unpacked_weights,
    "DEPTHWISE_CONV_2D": _unpacked_weights,
    "FULLY_CONNECTED": _unpacked_weights,
    "MEAN": _mean_or_sum,
    "MIRROR_PAD": _mirror_pad,
    "REDUCE_ALL": _minimum_or_maximum,
    "REDUCE_MAX": _minimum_or_maximum,
    "REDUCE_MIN": _minimum_or_maximum,
    "SUM": _mean_or_sum,
    "SVDF": _svdf,
    "TRANSPOSE_CONV": _transpose_conv,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
}


def _detection_postprocess(model: FileModel, graph: FileSubgraph, op: FileOperator) -> tuple[int, ...]:
    # detection_postprocess.cc: eleven buffers by boxes, classes and detections.
    boxes_tensor, scores = operator_tensor(graph, op, 0), operator_tensor(graph, op, 1)
    if boxes_tensor is None or scores is None or len(boxes_tensor.shape) != 3 or len(scores.shape) != 3:
        return ()
    options = custom_integers(model, op)
    detections, classes = options.get("max_detections", 0), options.get("num_classes", 0)
    boxes = boxes_tensor.shape[1]
    return (
        boxes,
        16 * boxes,
        4 * scores.shape[1] * scores.shape[2],
        4 * boxes,
        4 * boxes,
        4 * boxes * detections,
        4 * boxes * detections,
        4 * boxes,
        4 * boxes * detections,
        4 * boxes * max(classes, detections),
        4 * boxes * min(boxes, detections),
    )


def custom_integers(model: FileModel, op: FileOperator) -> dict[str, int]:
    """Return the integers of a custom operator's options, a flexbuffers map; empty where they are none."""
    try:
        vector = FlatbufferTable(FlatFile(model.data), op.table).vector(OperatorSlot.CUSTOM_OPTIONS, 1)
    except ModelError:
        return {}
    if vector is None:
        return {}
    data = model.data[vector.start : vector.start + vector.count]
    try:
        options = flexbuffers.GetRoot(data).AsMap
        entries = [(options.Keys[at].AsKey, options.Values[at]) for at in range(min(len(options), len(data)))]
        return {name: max(0, value.AsInt) for name, value in entries if value.IsInt}
    except (struct.error, IndexError, KeyError, TypeError, ValueError):
        return {}
