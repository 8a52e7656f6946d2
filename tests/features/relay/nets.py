"""Random small quantised networks with skips, several inputs and several outputs."""

from __future__ import annotations

import random

from tests.formats.tflite_builder import O, Sub, T, build, int32s, options

__all__ = ["random_net"]

_SCALE = 1 / 32


def random_net(seed: int, ops: int = 8, *, side: int = 6) -> bytes:
    """Return a network of int8 tensors with random channels; outputs vary with the inputs.

    Args:
        side: Rows, and columns, of each tensor.
    """
    draw = random.Random(seed)
    tensors: list[T] = []
    operators: list[O] = []

    def value(channels: int) -> int:
        tensors.append(T(f"value{len(tensors)}", (1, side, side, channels), "INT8", scales=(_SCALE,)))
        return len(tensors) - 1

    def constant(shape: tuple[int, ...], kind: str, data: bytes, scale: float) -> int:
        tensors.append(T(f"constant{len(tensors)}", shape, kind, data, scales=(scale,)))
        return len(tensors) - 1

    def convolved(source: int, channels: int) -> int:
        given = tensors[source].shape[-1]
        window = draw.choice((1, 3))
        count = channels * window * window * given
        weights = bytes(draw.randrange(256) for _ in range(count))
        kernel = constant((channels, window, window, given), "INT8", weights, 1 / 256)
        bias = constant((channels,), "INT32", int32s(*(draw.randrange(-99, 99) for _ in range(channels))), _SCALE / 256)
        made = value(channels)
        table = options("Conv2DOptions", padding=0, strideW=1, strideH=1, dilationWFactor=1, dilationHFactor=1)
        operators.append(O("CONV_2D", [source, kernel, bias], [made], table))
        return made

    inputs = [value(draw.randrange(1, 5)) for _ in range(draw.choice((1, 1, 2)))]
    there = list(inputs)
    while len(operators) < ops:
        source = draw.choice(there[-3:])
        alike = [one for one in there if one != source and tensors[one].shape == tensors[source].shape]
        if alike and draw.random() < 0.5:
            made = value(tensors[source].shape[-1])
            operators.append(O("ADD", [source, draw.choice(alike)], [made], options("AddOptions")))
        else:
            made = convolved(source, draw.choice((2, 4, 8)))
        there.append(made)
    read = {tensor for one in operators for tensor in one.inputs}
    outputs = [one for one in there if one not in read and one not in inputs]
    middle = [one for one in there if one in read and one not in inputs]
    if middle and draw.random() < 0.3:
        outputs.append(draw.choice(middle))
    unread = [one for one in inputs if one not in read]
    outputs += [convolved(one, 2) for one in unread]
    return build(Sub(tensors, operators, inputs, outputs))
