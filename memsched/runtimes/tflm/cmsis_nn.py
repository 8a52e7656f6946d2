"""What TensorFlow Lite Micro's kernels on Arm's CMSIS-NN ask for, by the kind of processor.

Sources: tensorflow/lite/micro/kernels/cmsis_nn/ (commit 0cc6f98 and before; the file is named at each rule) says which
sizes are asked for, and the files ``arm_*_get_buffer_sizes_*.c`` of CMSIS-NN how large they are: V.2.3.0 of March 2026
for convolutions of int8 data, V.2.0.0 for int16, V.1.1.0 for depthwise ones, V.1.0.0 for pools. They hold for builds by
GCC: by armclang, pointwise convolutions ask for 4 bytes a channel on processors with DSP instructions. Nothing of this
was measured: the package tflite-micro has the reference kernels.
"""

from __future__ import annotations

import math
from typing import Final, Literal

from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph
from memsched.runtimes.tflm.layer_dims import LayerDims, layer_dims, scales
from memsched.runtimes.tflm.sources import Sources

__all__ = ["CMSIS_DATA", "ArmProcessor", "cmsis_kept", "cmsis_scratch", "unknown_on_cmsis"]

ArmProcessor = Literal["plain", "dsp", "mve"]
"""Cortex-M0 and M3; with DSP instructions, such as M4, M7 and M33; with vectors (Helium), such as M55 and M85."""

CMSIS_DATA: Final = {
    "AVERAGE_POOL_2D": (36, 36),
    "FULLY_CONNECTED": (96, 72),
    "MAX_POOL_2D": (36, 36),
    "SOFTMAX": (88, 64),
    "SVDF": (48, 40),
}
"""Bytes of kernels' own data on 64 and 32 bit where they are others than those of the reference kernels."""

_UNKNOWN: Final = frozenset({"BATCH_MATMUL", "TRANSPOSE", "TRANSPOSE_CONV", "UNIDIRECTIONAL_SEQUENCE_LSTM"})


def unknown_on_cmsis(graph: FileSubgraph, op: FileOperator) -> bool:
    """Return whether an operator has a kernel on CMSIS-NN whose needs are not told here."""
    weights = graph.tensors[op.inputs[1]] if len(op.inputs) > 1 and op.inputs[1] >= 0 else None
    return op.type in _UNKNOWN or (op.type == "CONV_2D" and weights is not None and weights.dtype == "int4")


def cmsis_scratch(
    model: FileModel, graph: FileSubgraph, op: FileOperator, processor: ArmProcessor
) -> tuple[int, ...] | None:
    """Return the bytes of each scratch buffer; None where they are those of the reference kernel."""
    if op.type == "FULLY_CONNECTED":
        return _fully_connected(model, graph, op, processor)[0]
    dims = layer_dims(graph, op)
    if dims is None or dims.data not in {"int8", "int16"}:
        return None
    if op.type == "CONV_2D":
        size = _convolution(dims, processor)
    elif op.type == "DEPTHWISE_CONV_2D":
        size = _depthwise(dims, processor)
    elif op.type == "AVERAGE_POOL_2D":
        # pooling.cc: a sum for each channel (arm_avgpool_get_buffer_sizes_s8.c).
        size = 4 * dims.given[2] if processor == "dsp" else 0
    else:
        return None
    return (size,) if size else ()


def cmsis_kept(model: FileModel, graph: FileSubgraph, op: FileOperator, processor: ArmProcessor) -> tuple[int, ...]:
    """Return the bytes of each buffer that a kernel keeps beside what the reference one does."""
    if op.type == "FULLY_CONNECTED":
        return _fully_connected(model, graph, op, processor)[1]
    if op.type == "SVDF" and processor == "mve":
        # svdf.cc: the sum of each filter's weights.
        features = graph.tensors[op.inputs[1]]
        return (4 * features.shape[0],) if features.dtype == "int8" and features.shape else ()
    return ()


def _convolution(dims: LayerDims, processor: ArmProcessor) -> int:
    # conv.cc, arm_convolve_wrapper_s8_get_buffer_size, arm_convolve_wrapper_s16_get_buffer_size.
    window = dims.given[2] * math.prod(dims.window)
    if dims.data == "int16":
        return 4 * _up(window, 8) * 2 if processor == "mve" else 4 * window
    plain = dims.dilations == (1, 1) and dims.pad == (0, 0)
    if dims.window == (1, 1) and plain:
        return 0
    row = dims.given[0] == 1 and dims.window[0] == 1 and dims.dilations[1] == 1
    if row and processor == "mve" and dims.strides[1] * dims.given[2] % 4 == 0:
        return _row_of_windows(dims)
    return _columns(window, processor)


def _columns(window: int, processor: ArmProcessor) -> int:
    """Return what arm_convolve_s8 lays windows out in: four at once in vectors, else two of 16 bits."""
    return 4 * _up(window, 16) if processor == "mve" else 4 * _up(window, 4)


def _row_of_windows(dims: LayerDims) -> int:
    # arm_convolve_1_x_n_s8_get_buffer_size_mve
    pad, stride, kernel, channels = dims.pad[1], dims.strides[1], dims.window[1], dims.given[2]
    total = (dims.made[1] - 1) * stride + kernel - dims.given[1]
    uneven = int(math.fmod(total, 2))
    right = max(1, (pad + uneven + stride - 1) // stride) if pad + uneven != 0 else 0
    left = max(1, (pad + stride - 1) // stride) if pad else 0
    if right + max(dims.made[1] - right - left, 0) + left != dims.made[1]:
        return _columns(channels * kernel, "mve")
    behind = right * channels if uneven else pad * channels
    return max(kernel * channels + pad * channels, (kernel - 1) * channels + behind)


def _depthwise(dims: LayerDims, processor: ArmProcessor) -> int:
    # depthwise_conv.cc, arm_depthwise_conv_wrapper_s8_get_buffer_size, ..._s4_...: only int8 data.
    same = dims.given[2] == dims.made[2] and dims.batch == 1 and dims.dilations == (1, 1)
    if dims.data != "int8" or not same:
        return 0
    taps = math.prod(dims.window)
    if dims.weights == "int4":
        return 2 * dims.given[2] * taps
    if processor == "mve":
        return 4 * Sources.CMSIS_CHANNELS * taps
    if processor == "plain" or (dims.window == (3, 3) and max(dims.pad) <= 1):
        return 0
    return 2 * dims.given[2] * taps


def _fully_connected(
    model: FileModel, graph: FileSubgraph, op: FileOperator, processor: ArmProcessor
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the bytes of each scratch buffer, and of what is kept, of fully_connected.cc built for speed."""
    if len(op.inputs) < 2 or min(*op.inputs[:2], *op.outputs[:1]) < 0:
        return (), ()
    data, weights, made = (graph.tensors[place] for place in (*op.inputs[:2], op.outputs[0]))
    if (data.dtype, weights.dtype) != ("int8", "int8") or not made.shape:
        return (), ()
    if len(made.shape) > 2 and weights.shape[-1] % 4 == 0:
        # As a pointwise convolution: where weights have one scale, it is repeated for each channel.
        return ((8 * made.shape[-1],), ()) if scales(model, weights) < 2 else ((), ())
    if processor != "mve":
        return (), ()
    constant = weights.has_data and (len(op.inputs) < 3 or op.inputs[2] < 0 or graph.tensors[op.inputs[2]].has_data)
    sums = (4 * made.shape[-1],)
    return ((), sums) if constant else (sums, ())


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
