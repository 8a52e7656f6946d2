"""MobileNetV2 as a quantised TFLite file with random weights: its memory is that of a trained one.

    python -m scripts.networks.mobilenet_tflite mobilenetv2_100_224_int8.tflite --width 1.0 --size 224

Scales are chosen so that activations neither vanish nor saturate, so that outputs tell whether two files compute the
same. The object API of the TFLite schema comes with ai-edge-litert.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["mobilenet_v2"]

# Expansion, channels, repetitions, stride of the first (the architecture's own table).
_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_RELU6 = (6.0 / 255, -128)
_LINEAR = (0.08, 0)
_INT8, _INT32 = 9, 2


class _Builder:
    """Adds quantised layers to one subgraph; activations are NHWC with batch 1."""

    def __init__(self, seed: int) -> None:
        import ai_edge_litert.schema_py_generated as schema

        self._schema = schema
        self._random = np.random.default_rng(seed)
        self._model = schema.ModelT()
        self._model.version, self._model.description = 3, b"MobileNetV2 with random weights"
        self._model.buffers, self._model.operatorCodes = [schema.BufferT()], []
        self._codes: dict[int, int] = {}
        self._graph = schema.SubGraphT()
        self._graph.name, self._graph.tensors, self._graph.operators = b"main", [], []

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        kind: int,
        quantised: tuple[Any, Any, int],
        data: np.ndarray | None = None,
    ) -> int:
        """Add a tensor; ``quantised``: scales, zero points, the axis that they run along."""
        schema = self._schema
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.hasRank = name.encode(), list(shape), kind, True
        tensor.quantization = schema.QuantizationParametersT()
        scales, zeros, tensor.quantization.quantizedDimension = quantised
        tensor.quantization.scale = np.atleast_1d(np.asarray(scales, np.float32))
        tensor.quantization.zeroPoint = np.atleast_1d(np.asarray(zeros, np.int64))
        tensor.buffer = 0
        if data is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(data.tobytes(), np.uint8)
            tensor.buffer = len(self._model.buffers)
            self._model.buffers.append(buffer)
        self._graph.tensors.append(tensor)
        return len(self._graph.tensors) - 1

    def activation(self, name: str, shape: Sequence[int], quantised: tuple[float, int]) -> int:
        return self.tensor(name, shape, _INT8, (*quantised, 0))

    def operator(self, name: str, inputs: Sequence[int], output: int, options: Any = None) -> int:
        schema = self._schema
        code = getattr(schema.BuiltinOperator, name)
        if code not in self._codes:
            entry = schema.OperatorCodeT()
            entry.builtinCode, entry.deprecatedBuiltinCode = code, min(code, 127)
            entry.version = {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4}.get(name, 2)
            self._codes[code] = len(self._model.operatorCodes)
            self._model.operatorCodes.append(entry)
        operator = schema.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = self._codes[code], list(inputs), [output]
        if options is not None:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__[:-1])
            operator.builtinOptions = options
        self._graph.operators.append(operator)
        return output

    def shape(self, tensor: int) -> list[int]:
        return list(self._graph.tensors[tensor].shape)

    def scale(self, tensor: int) -> float:
        return float(self._graph.tensors[tensor].quantization.scale[0])

    def weights(self, name: str, shape: Sequence[int], axis: int, inputs: int, source: int, scale: float) -> list[int]:
        """Add weights and bias whose products have the spread that the output's ``scale`` expects."""
        values = self._random.integers(-127, 128, shape, dtype=np.int8)
        channels = shape[axis]
        step = scale / self.scale(source) / (73 * math.sqrt(inputs))
        scales = np.full(channels, step, np.float32) * self._random.uniform(0.8, 1.2, channels).astype(np.float32)
        bias = self._random.integers(-2000, 2000, channels, dtype=np.int32)
        zeros = np.zeros(channels, np.int64)
        return [
            self.tensor(f"{name}/weights", shape, _INT8, (scales, zeros, axis), values),
            self.tensor(f"{name}/bias", (channels,), _INT32, (scales * self.scale(source), zeros, 0), bias),
        ]

    def conv(self, name: str, source: int, channels: int, kernel: int, stride: int, relu: bool) -> int:
        schema = self._schema
        _, height, width, depth = self.shape(source)
        out = (1, -(-height // stride), -(-width // stride), channels)
        result = self.activation(name, out, _RELU6 if relu else _LINEAR)
        options = schema.Conv2DOptionsT()
        options.strideH = options.strideW = stride
        options.dilationHFactor = options.dilationWFactor = 1
        options.fusedActivationFunction = 3 if relu else 0
        read = self.weights(
            name, (channels, kernel, kernel, depth), 0, kernel * kernel * depth, source, self.scale(result)
        )
        return self.operator("CONV_2D", [source, *read], result, options)

    def depthwise(self, name: str, source: int, stride: int) -> int:
        schema = self._schema
        _, height, width, depth = self.shape(source)
        result = self.activation(name, (1, -(-height // stride), -(-width // stride), depth), _RELU6)
        options = schema.DepthwiseConv2DOptionsT()
        options.strideH = options.strideW = stride
        options.depthMultiplier = options.dilationHFactor = options.dilationWFactor = 1
        options.fusedActivationFunction = 3
        read = self.weights(name, (1, 3, 3, depth), 3, 9, source, self.scale(result))
        return self.operator("DEPTHWISE_CONV_2D", [source, *read], result, options)

    def add(self, name: str, first: int, second: int) -> int:
        result = self.activation(name, self.shape(first), (0.11, 0))
        return self.operator("ADD", [first, second], result, self._schema.AddOptionsT())

    def head(self, source: int, classes: int) -> int:
        """Average over the image, then classify."""
        schema = self._schema
        depth = self.shape(source)[-1]
        axes = self.tensor("mean/axes", (2,), _INT32, ([], [], 0), np.array([1, 2], np.int32))
        mean = self.activation("mean", (1, depth), (self.scale(source), _RELU6[1]))
        self.operator("MEAN", [source, axes], mean, schema.ReducerOptionsT())
        logits = self.activation("logits", (1, classes), (0.1, 0))
        values = self._random.integers(-127, 128, (classes, depth), dtype=np.int8)
        step = 0.1 / self.scale(mean) / (73 * math.sqrt(depth))
        weights = self.tensor("logits/weights", (classes, depth), _INT8, (step, 0, 0), values)
        bias = self._random.integers(-2000, 2000, classes, dtype=np.int32)
        biases = self.tensor("logits/bias", (classes,), _INT32, (step * self.scale(mean), 0, 0), bias)
        return self.operator("FULLY_CONNECTED", [mean, weights, biases], logits, schema.FullyConnectedOptionsT())

    def finish(self, given: int, result: int) -> bytes:
        import flatbuffers

        self._graph.inputs, self._graph.outputs = [given], [result]
        self._model.subgraphs = [self._graph]
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(self._model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def _channels(wanted: float) -> int:
    """Return a number of channels rounded to a multiple of 8, by no more than a tenth down."""
    rounded = max(8, int(wanted + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * wanted else rounded


def mobilenet_v2(width: float = 1.0, size: int = 224, classes: int = 1000, seed: int = 0) -> bytes:
    """Return the file: input (1, size, size, 3) int8."""
    build = _Builder(seed)
    given = build.activation("x", (1, size, size, 3), (1 / 128, 0))
    current = build.conv("stem", given, _channels(32 * width), 3, 2, relu=True)
    for stage, (expansion, channels, repeats, stride) in enumerate(_BLOCKS):
        for repeat in range(repeats):
            name, source = f"block{stage}.{repeat}", current
            depth, out = build.shape(source)[-1], _channels(channels * width)
            if expansion > 1:
                current = build.conv(f"{name}/expand", current, depth * expansion, 1, 1, relu=True)
            current = build.depthwise(f"{name}/depthwise", current, stride if repeat == 0 else 1)
            current = build.conv(f"{name}/project", current, out, 1, 1, relu=False)
            if repeat and depth == out:
                current = build.add(f"{name}/add", source, current)
    current = build.conv("last", current, max(1280, _channels(1280 * width)), 1, 1, relu=True)
    return build.finish(given, build.head(current, classes))


def main() -> None:
    """Write the file that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.output.write_bytes(mobilenet_v2(given.width, given.size, seed=given.seed))


if __name__ == "__main__":
    main()
