"""Graphs of single ops and short chains for the tests of ranges, without a file behind them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memsched.graph.model import AttributeValue, Graph, Op, Region, Tensor

Shape = tuple[int, ...]


def region(*ranges: tuple[int, int]) -> Region:
    return Region(ranges)


def one(kind: str, given: Sequence[Shape], made: Shape, macs: int = 0, **attributes: AttributeValue) -> Graph:
    """An op that reads tensors of these shapes, at its first positions."""
    tensors = (*(Tensor(f"x{i}", 0, shape) for i, shape in enumerate(given)), Tensor("y", 0, made))
    count = len(given)
    op = Op("op", kind, tuple(range(count)), (count,), attributes=attributes, positions=tuple(range(count)), macs=macs)
    return Graph("one", tensors, (op,), tuple(range(count)), (count,))


def chain(shape: Shape, steps: Sequence[tuple[str, Sequence[int], Shape, Mapping[str, AttributeValue]]]) -> Graph:
    """Ops over tensor 0 of ``shape``: each as (type, tensors read, shape made, attributes), tensor i + 1 made by op i.

    Ops with macs have one per output element.
    """
    tensors, ops = [Tensor("t0", 0, shape)], []
    for number, (kind, read, made, attributes) in enumerate(steps):
        tensors.append(Tensor(f"t{number + 1}", 0, made))
        macs = made[-2] * made[-1] if kind == "Conv" else 0
        places = tuple(range(len(read)))
        ops.append(
            Op(f"op{number}", kind, tuple(read), (number + 1,), attributes=attributes, positions=places, macs=macs)
        )
    return Graph("chain", tuple(tensors), tuple(ops), (0,), (len(steps),))


def conv(kernel: int = 3, pad: int = 1, stride: int = 1) -> dict[str, AttributeValue]:
    """Attributes of a convolution of one channel along rows only."""
    return {
        "constant_shape_1": (1, 1, kernel, 1),
        "strides": (stride, 1),
        "pads": (pad, 0, pad, 0),
    }
