"""Networks with operators between their callers and their layers: made of files that have none there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal

import ai_edge_litert.schema_py_generated as schema
import numpy as np

from tests.formats.tflite_builder import O, Sub, T, build, int32s, options, pack, unpack
from tests.rewrites.tile.looped_nets import looped_net

__all__ = ["Kind", "bordered", "bordered_net", "two_inputs"]

Kind = Literal["quantize", "transpose", "shift"]
_TO_NHWC, _TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
_INT8, _UINT8, _FLOAT32 = schema.TensorType.INT8, schema.TensorType.UINT8, schema.TensorType.FLOAT32


def bordered(
    data: bytes, inputs: Sequence[Sequence[Kind]], outputs: Sequence[Sequence[Kind]], *, signature: bool = False
) -> bytes:
    """Return a TFLite model with operators around it.

    Args:
        inputs: Per input what comes before it, from the caller on: "quantize": the caller has floats; "transpose":
            channels first; "shift": unsigned integers.
        outputs: Per output what comes behind it, the caller's last.
        signature: Name the inputs and outputs in a signature, too, as "given_0" and "made_0".
    """
    model = unpack(data)
    graph = model.subgraphs[0]
    graph.inputs, graph.outputs = [int(one) for one in graph.inputs], [int(one) for one in graph.outputs]
    first: list[Any] = []
    for place, kinds in enumerate(inputs):
        for kind in reversed(kinds):
            outer = _outer(model, graph.inputs[place], kind, _TO_NHWC)
            first.insert(0, _operator(model, kind, outer, graph.inputs[place], _TO_NHWC, into=True))
            graph.inputs[place] = outer
    last = []
    for place, kinds in enumerate(outputs):
        for kind in kinds:
            outer = _outer(model, graph.outputs[place], kind, _TO_NHWC)
            last.append(_operator(model, kind, graph.outputs[place], outer, _TO_NCHW, into=False))
            graph.outputs[place] = outer
    graph.operators = [*first, *graph.operators, *last]
    if signature:
        model.signatureDefs = [schema.SignatureDefT()]
        named = model.signatureDefs[0]
        named.signatureKey, named.subgraphIndex = "serving_default", 0
        named.inputs = [_named(f"given_{place}", tensor) for place, tensor in enumerate(graph.inputs)]
        named.outputs = [_named(f"made_{place}", tensor) for place, tensor in enumerate(graph.outputs)]
    return pack(model)


def _named(name: str, tensor: int) -> Any:
    entry = schema.TensorMapT()
    entry.name, entry.tensorIndex = name, tensor
    return entry


def _outer(model: Any, inner: int, kind: Kind, order: Sequence[int]) -> int:
    """Add the tensor on the caller's side of an operator, and return it."""
    graph = model.subgraphs[0]
    like = graph.tensors[inner]
    one = schema.TensorT()
    one.name, one.buffer, one.hasRank = f"{kind}#{len(graph.tensors)}", 0, True
    one.shape, one.type, one.quantization = list(like.shape), like.type, like.quantization
    if kind == "transpose":
        one.shape = [int(like.shape[axis]) for axis in np.argsort(order)]
    elif kind == "quantize":
        one.type, one.quantization = _FLOAT32, None
    else:
        assert like.type == _INT8
        one.type, one.quantization = _UINT8, schema.QuantizationParametersT()
        one.quantization.scale = list(like.quantization.scale)
        one.quantization.zeroPoint = [int(like.quantization.zeroPoint[0]) + 128]
    graph.tensors.append(one)
    return len(graph.tensors) - 1


def _operator(model: Any, kind: Kind, read: int, made: int, order: Sequence[int], *, into: bool) -> Any:
    graph = model.subgraphs[0]
    name = "TRANSPOSE" if kind == "transpose" else "DEQUANTIZE" if kind == "quantize" and not into else "QUANTIZE"
    inputs = [read]
    if kind == "transpose":
        buffer, axes = schema.BufferT(), schema.TensorT()
        buffer.data = list(int32s(*order))
        model.buffers.append(buffer)
        axes.name, axes.shape, axes.type = f"axes#{len(graph.tensors)}", [4], schema.TensorType.INT32
        axes.buffer, axes.hasRank = len(model.buffers) - 1, True
        graph.tensors.append(axes)
        inputs.append(len(graph.tensors) - 1)
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, name)
    code.version = 2
    model.operatorCodes.append(code)
    operator = schema.OperatorT()
    operator.opcodeIndex, operator.inputs, operator.outputs = len(model.operatorCodes) - 1, inputs, [made]
    return operator


def bordered_net(seed: int, layers: int = 5) -> bytes:
    """Return a random quantised network of so many layers with random operators around it."""
    rng, data = random.Random(seed), looped_net(seed, layers)
    dtype = unpack(data).subgraphs[0].tensors[0].type
    known: list[list[Kind]] = [["transpose"], []]
    if dtype != _FLOAT32:
        known += [["quantize"], ["transpose", "quantize"], ["quantize", "transpose"]]
    if dtype == _INT8:
        known += [["shift"], ["transpose", "shift"]]
    before, behind = rng.choice(known), rng.choice(known)
    return bordered(data, [before], [list(reversed(behind))], signature=rng.random() < 0.5)


def two_inputs() -> bytes:
    """Return a model that adds two int8 inputs of 1 x 8 x 8 x 4 and clips them, and hands out the sum, too."""
    shape, scales = (1, 8, 8, 4), (0.05, 0.1, 0.1, 0.1)
    tensors = [
        T(name, shape, "INT8", scales=(scale,), zero_point=zero)
        for name, scale, zero in zip(("a", "b", "sum", "clipped"), scales, (-3, 5, -10, -10), strict=True)
    ]
    ops = [O("ADD", (0, 1), (2,), options("AddOptions")), O("RELU", (2,), (3,))]
    return build(Sub(tensors, ops, (0, 1), (3, 2)))
