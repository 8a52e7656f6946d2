"""MobileNetV2 as a quantised TFLite file with random weights: its memory is that of a trained one.

    python -m scripts.networks.mobilenet_tflite mobilenetv2_100_224_int8.tflite --width 1.0 --size 224
    python -m scripts.networks.mobilenet_tflite mobilenetv2_035_96_int8.tflite --width 0.35 --size 96 --classes 10

Every layer is normalised over a few random images, as a trained batch normalisation does, so that activations neither
vanish nor saturate and outputs vary with the input: only then do equal outputs tell that two files compute the same.
The object API of the TFLite schema comes with ai-edge-litert.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["QuantisedBuilder", "mobilenet_v2"]

# Expansion, channels, repetitions, stride of the first (the architecture's own table).
_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_RELU6 = (6.0 / 255, -128)
_LOGITS_SPREAD = 2.0
_INT8, _INT32, _FLOAT32 = 9, 2, 0
_IMAGES = 8
"""Random images that layers are normalised over: half of them noise, half of them smooth."""

Array = NDArray[np.float64]


def _images(random: np.random.Generator, size: int) -> Array:
    """Return images of values in [-1, 1], shape (_IMAGES, size, size, 3)."""
    noise = random.uniform(-1, 1, (_IMAGES // 2, size, size, 3))
    coarse = random.uniform(-1, 1, (_IMAGES - len(noise), -(-size // 8), -(-size // 8), 3))
    smooth = coarse.repeat(8, axis=1).repeat(8, axis=2)[:, :size, :size]
    return np.concatenate([noise, smooth])


def _windows(values: Array, kernel: int, stride: int) -> Array:
    """Return what a kernel reads for each output, padded as SAME: (images, rows, columns, channels, kernel, kernel)."""
    needed = [max((-(-length // stride) - 1) * stride + kernel - length, 0) for length in values.shape[1:3]]
    padded = np.pad(values, ((0, 0), *((most // 2, most - most // 2) for most in needed), (0, 0)))
    return np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (1, 2))[:, ::stride, ::stride]


def _quantised(values: Array) -> tuple[float, int]:
    """Return scale and zero point of a symmetric range that holds ``values``."""
    return float(np.float32(np.abs(values).max() / 127)), 0


class QuantisedBuilder:
    """Adds quantised layers to one subgraph; activations are NHWC with batch 1."""

    def __init__(self, seed: int, description: bytes) -> None:
        import ai_edge_litert.schema_py_generated as schema

        self._schema = schema
        self._random = np.random.default_rng(seed)
        self._model = schema.ModelT()
        self._model.version, self._model.description = 3, description
        self._model.buffers, self._model.operatorCodes = [schema.BufferT()], []
        self._codes: dict[int, int] = {}
        self._values: dict[int, Array] = {}
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

    def image(self, size: int) -> int:
        """Add the input: an image of values in [-1, 1]."""
        return self.activation("x", _images(self._random, size), (1 / 128, 0))

    def activation(self, name: str, values: Array, quantised: tuple[float, int]) -> int:
        """Add a tensor that takes ``values`` on the images that layers are normalised over."""
        result = self.tensor(name, (1, *values.shape[1:]), _INT8, (*quantised, 0))
        self._values[result] = values
        return result

    def operator(self, name: str, inputs: Sequence[int], output: int, options: Any = None) -> int:
        """Add an operator and return its output."""
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
        """Return a tensor's shape."""
        return list(self._graph.tensors[tensor].shape)

    def scale(self, tensor: int) -> float:
        """Return an activation's scale."""
        return float(self._graph.tensors[tensor].quantization.scale[0])

    def weights(self, name: str, drawn: Array, axis: int, source: int, product: Array, spread: float) -> list[int]:
        """Add weights and bias with which ``product``, what the weights ``drawn`` give, is normalised per channel.

        Args:
            axis: Of ``drawn``, the one of the output's channels; the last one of ``product``.
            spread: Wanted standard deviation.
        """
        over = tuple(range(product.ndim - 1))
        gain = spread / np.maximum(product.std(over), 1e-6)
        shift = -product.mean(over) * gain + self._random.uniform(0, spread, len(gain))
        along = [1] * drawn.ndim
        along[axis] = -1
        drawn = drawn * gain.reshape(along)
        product *= gain
        product += shift
        scales = np.abs(drawn).max(tuple(one for one in range(drawn.ndim) if one != axis)) / 127
        values = np.rint(drawn / scales.reshape(along)).astype(np.int8)
        steps = scales * self.scale(source)
        bias = np.rint(shift / steps).astype(np.int32)
        zeros = np.zeros(len(scales), np.int64)
        return [
            self.tensor(f"{name}/weights", drawn.shape, _INT8, (scales, zeros, axis), values),
            self.tensor(f"{name}/bias", bias.shape, _INT32, (steps, zeros, 0), bias),
        ]

    def conv(self, name: str, source: int, channels: int, kernel: int, stride: int, relu: bool) -> int:
        """Add a convolution, padded as SAME, and return its output."""
        schema = self._schema
        read = _windows(self._values[source], kernel, stride)
        drawn = self._random.standard_normal((channels, kernel, kernel, read.shape[3]))
        product = np.tensordot(read, drawn, ((3, 4, 5), (3, 1, 2)))
        weights = self.weights(name, drawn, 0, source, product, 1.0)
        options = schema.Conv2DOptionsT()
        options.strideH = options.strideW = stride
        options.dilationHFactor = options.dilationWFactor = 1
        options.fusedActivationFunction = 3 if relu else 0
        values = np.clip(product, 0, 6) if relu else product
        result = self.activation(name, values, _RELU6 if relu else _quantised(values))
        return self.operator("CONV_2D", [source, *weights], result, options)

    def depthwise(self, name: str, source: int, stride: int) -> int:
        """Add a depthwise convolution of 3 x 3 with ReLU6 and return its output."""
        schema = self._schema
        read = _windows(self._values[source], 3, stride)
        drawn = self._random.standard_normal((1, 3, 3, read.shape[3]))
        product = np.einsum("nyxcij,ijc->nyxc", read, drawn[0])
        weights = self.weights(name, drawn, 3, source, product, 1.0)
        options = schema.DepthwiseConv2DOptionsT()
        options.strideH = options.strideW = stride
        options.depthMultiplier = options.dilationHFactor = options.dilationWFactor = 1
        options.fusedActivationFunction = 3
        result = self.activation(name, np.clip(product, 0, 6), _RELU6)
        return self.operator("DEPTHWISE_CONV_2D", [source, *weights], result, options)

    def add(self, name: str, first: int, second: int, relu: bool = False) -> int:
        """Add a sum and return its output."""
        values = self._values[first] + self._values[second]
        options = self._schema.AddOptionsT()
        options.fusedActivationFunction = 3 if relu else 0
        values = np.clip(values, 0, 6) if relu else values
        result = self.activation(name, values, _RELU6 if relu else _quantised(values))
        return self.operator("ADD", [first, second], result, options)

    def head(self, source: int, classes: int) -> int:
        """Average over the image, then classify."""
        schema = self._schema
        axes = self.tensor("mean/axes", (2,), _INT32, ([], [], 0), np.array([1, 2], np.int32))
        mean = self.activation("mean", self._values[source].mean((1, 2)), (self.scale(source), _RELU6[1]))
        self.operator("MEAN", [source, axes], mean, schema.ReducerOptionsT())
        drawn = self._random.standard_normal((classes, self._values[mean].shape[1]))
        product = self._values[mean] @ drawn.T
        weights = self.weights("logits", drawn, 0, mean, product, _LOGITS_SPREAD)
        logits = self.activation("logits", product, _quantised(product))
        self.operator("FULLY_CONNECTED", [mean, *weights], logits, schema.FullyConnectedOptionsT())
        options = schema.SoftmaxOptionsT()
        options.beta = 1.0
        result = self.activation("probabilities", np.zeros_like(product), (1 / 256, -128))
        return self.operator("SOFTMAX", [logits], result, options)

    def floats(self, given: int, result: int) -> tuple[int, int]:
        """Put operators before an image ``given`` and behind ``result``, as converters from PyTorch do.

        The model is then fed with floats, channels first, and gives floats.
        """
        one, rows, columns, channels = self.shape(given)
        planes = self.tensor("image", (one, channels, rows, columns), _FLOAT32, ([], [], 0))
        order = self.tensor("image/order", (4,), _INT32, ([], [], 0), np.array([0, 2, 3, 1], np.int32))
        image = self.tensor("image/nhwc", (one, rows, columns, channels), _FLOAT32, ([], [], 0))
        self.operator("TRANSPOSE", [planes, order], image, self._schema.TransposeOptionsT())
        self.operator("QUANTIZE", [image], given, self._schema.QuantizeOptionsT())
        # These two are executed first.
        operators = self._graph.operators
        operators[:] = [*operators[-2:], *operators[:-2]]
        scores = self.tensor("scores", self.shape(result), _FLOAT32, ([], [], 0))
        self.operator("DEQUANTIZE", [result], scores, self._schema.DequantizeOptionsT())
        return planes, scores

    def finish(self, given: int, result: int) -> bytes:
        """Return the file from input ``given`` to output ``result``."""
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


def mobilenet_v2(
    width: float = 1.0, size: int = 224, classes: int = 1000, seed: int = 0, *, floats: bool = False
) -> bytes:
    """Return the file: input (1, size, size, 3) int8, or with ``floats`` (1, 3, size, size) float32."""
    build = QuantisedBuilder(seed, b"MobileNetV2 with random weights")
    given = build.image(size)
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
    result = build.head(current, classes)
    return build.finish(*(build.floats(given, result) if floats else (given, result)))


def main() -> None:
    """Write the file that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--floats", action="store_true", help="input and output of floats, channels first")
    given = parser.parse_args()
    given.output.write_bytes(mobilenet_v2(given.width, given.size, given.classes, given.seed, floats=given.floats))


if __name__ == "__main__":
    main()
