"""What TensorFlow Lite Micro's kernels on Espressif's ESP-NN ask for.

Sources: tensorflow/lite/micro/kernels/esp_nn/ of esp-tflite-micro says which sizes are asked for, and ESP-NN how large
they are: for the ESP32-S3 ``esp_nn_conv_esp32s3.c``, ``esp_nn_conv_s8_3x3_opt_esp32s3.c``,
``esp_nn_depthwise_conv_s8_esp32s3.c`` and ``esp_nn_softmax_s8_esp32s3.c`` of commit 1017042 (2026), for other chips
``esp_nn_*_opt.c``. These functions change often, so that another release may ask for other sizes. Only int8 data is
worked on there. Nothing of this was measured: the package tflite-micro has the reference kernels.
"""

from __future__ import annotations

import math
from typing import Final, Literal

from memsched.formats.tflite.model import FileOperator, FileSubgraph
from memsched.runtimes.tflm.layer_dims import LayerDims, layer_dims
from memsched.runtimes.tflm.sources import Sources

__all__ = ["ESP_DATA", "EspChip", "esp_scratch", "unknown_on_esp"]

EspChip = Literal["generic", "s3"]
"""Chips without vectors, such as ESP32 and ESP32-C3; the ESP32-S3."""

ESP_DATA: Final = {"SOFTMAX": (88, 60)}
"""Bytes of kernels' own data on 64 and 32 bit where they are others than those of the reference kernels."""


def unknown_on_esp(graph: FileSubgraph, op: FileOperator) -> bool:
    """Return whether an operator's needs are not told here: those with 4-bit weights, which are unpacked as well."""
    weights = graph.tensors[op.inputs[1]] if len(op.inputs) > 1 and op.inputs[1] >= 0 else None
    return op.type in {"CONV_2D", "DEPTHWISE_CONV_2D"} and weights is not None and weights.dtype == "int4"


def esp_scratch(graph: FileSubgraph, op: FileOperator, chip: EspChip) -> tuple[int, ...] | None:
    """Return the bytes of each scratch buffer; None where they are those of the reference kernel."""
    if op.type == "SOFTMAX":
        data = graph.tensors[op.inputs[0]]
        # softmax.cc: an exponential for each element of what it takes for a row.
        return (4 * data.shape[1],) if data.dtype == "int8" and len(data.shape) > 1 else None
    dims = layer_dims(graph, op)
    if dims is None or (dims.data, dims.weights) != ("int8", "int8") or chip == "generic":
        return None
    if op.type == "CONV_2D":
        return (_convolution(dims),)
    if op.type == "DEPTHWISE_CONV_2D":
        return (_depthwise(dims, max(1, dims.made[2] // max(1, dims.given[2]))),)
    return None


def _convolution(dims: LayerDims) -> int:
    # esp_nn_get_conv_scratch_size_esp32s3
    (height, width, channels), made = dims.given, dims.made[2]
    window = math.prod(dims.window) * channels
    if dims.window == (3, 3) and channels >= 16 and channels % 16 == 0 and made >= 16:
        return _up(window) * (made + 1) + 4 * made + 32
    if dims.window == (1, 1) and dims.pad == (0, 0) and dims.strides == (1, 1):
        transposed = 16 * _up(channels, 8) if width * height >= 8 else 0
        panel = 24 * channels + 16 * 1024 + Sources.ESP_MARGIN if channels * made > Sources.ESP_PANEL else 0
        return max(transposed + Sources.ESP_MARGIN, 24 * channels + 8 * made + Sources.ESP_MARGIN, panel)
    row = dims.window[1] * channels
    if row < 16 <= window:
        return 4 * made + 16 + made * _up(window) + 16 + _up(window) + Sources.ESP_MARGIN
    filters = max(_up(row) * dims.window[0] * made, window * made)
    return _padded(dims) + filters + Sources.ESP_MARGIN + 4 * made


def _padded(dims: LayerDims) -> int:
    """Return the bytes of a copy of the data with its padding; 0 where it has none."""
    ends = [
        max(0, (dims.made[axis] - 1) * dims.strides[axis] + dims.window[axis] - dims.pad[axis] - dims.given[axis])
        for axis in (0, 1)
    ]
    if not any((*dims.pad, *ends)):
        return 0
    height, width = (dims.given[axis] + dims.pad[axis] + ends[axis] for axis in (0, 1))
    return height * width * dims.given[2]


def _depthwise(dims: LayerDims, multiplier: int) -> int:
    # esp_nn_get_depthwise_conv_scratch_size_esp32s3
    (height, width, channels), taps = dims.given, math.prod(dims.window)
    weights = taps * channels * multiplier
    data = width * height * channels
    column = dims.window[1] == width == dims.made[1] == dims.strides[1] == 1 and dims.pad[1] == 0
    if multiplier == 1 and column and channels % 16 == 0:
        return channels * 4 + 2 * dims.window[0] * channels + 64
    if multiplier == 1 and channels % 8 == 0:
        if dims.window == (3, 3):
            return _three_by_three(dims, weights)
        widened = 2 * (weights + data)
        return (
            widened + 32 if widened <= Sources.ESP_WIDENED else 2 * weights + 2 * width * dims.window[0] * channels + 32
        )
    if multiplier == 1 and channels > 3:
        padded = _up(channels, 8)
        begin = _up(2 * taps * padded)
        begin = _up(begin + 2 * width * height * padded)
        begin = _up(begin + dims.made[0] * dims.made[1] * padded)
        return begin + 3 * 4 * padded + 16
    return 2 * (weights + data) + 32 if multiplier % 4 == 0 else 32


def _three_by_three(dims: LayerDims, weights: int) -> int:
    height, width, channels = dims.given
    if channels % 16 == 0 and dims.pad in {(0, 0), (1, 1)}:
        more = [
            2 if dims.pad == (1, 1) else dims.made[axis] * dims.strides[axis] + 2 - dims.given[axis] for axis in (0, 1)
        ]
        if not any(more):
            return weights + 16
        row = (width + more[1]) * channels
        if (height + more[0]) * row <= Sources.ESP_PADDED:
            return weights + (height + more[0]) * row + 16
        rows = min(max((Sources.ESP_PADDED - weights - 32) // row, 3), height + more[0])
        return weights + rows * row + 32
    if channels >= 12:
        padded = _up(channels)
        wide, high = (
            dims.given[axis] + 2 * dims.pad[axis] + max(0, dims.made[axis] * dims.strides[axis] + 2 - dims.given[axis])
            for axis in (1, 0)
        )
        made = dims.made[0] * dims.made[1] * padded
        return 9 * padded + wide * high * padded + made + 3 * 4 * padded + 64
    return 2 * (weights + width * height * channels) + 32


def _up(size: int, step: int = 16) -> int:
    return -(-size // step) * step
