"""The sizes of a layer with a window, as libraries of optimised kernels ask for them."""

from __future__ import annotations

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph, FileTensor
from memsched.formats.tflite.quantization import quantization_of
from memsched.runtimes.tflm.sources import Sources

__all__ = ["LayerDims", "layer_dims", "scales"]


class LayerDims(FrozenValue, frozen=True):
    """A convolution's or a pool's sizes in elements: pairs are height and width.

    Attributes:
        data: The element type of what it reads.
        weights: Of its weights; "" for a pool.
        batch: Images that it reads.
        given: Height, width and channels of what it reads.
        window: Of its weights, or of a pool's window.
        made: Height, width and channels of what it makes.
        pad: Before the first element, as TensorFlow Lite Micro computes it (padding.h).
    """

    data: str
    weights: str
    batch: int
    given: tuple[int, int, int]
    window: tuple[int, int]
    made: tuple[int, int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pad: tuple[int, int]


def layer_dims(graph: FileSubgraph, op: FileOperator) -> LayerDims | None:
    """Return the sizes of a convolution or a pool; None where the file does not tell them."""
    places = [*op.inputs[:2], *op.outputs[:1]]
    if not op.outputs or any(place < 0 for place in places):
        return None
    data, made = graph.tensors[op.inputs[0]], graph.tensors[op.outputs[0]]
    kernel = op.attributes.get("kernel")
    weights = graph.tensors[op.inputs[1]] if len(op.inputs) > 1 and kernel is None else None
    window = _pair(kernel) if weights is None else _pair(weights.shape[1:3])
    if window is None or len(data.shape) != Sources.IMAGE_AXES or len(made.shape) != Sources.IMAGE_AXES:
        return None
    strides = _pair(op.attributes.get("strides")) or (1, 1)
    dilations = _pair(op.attributes.get("dilations")) or (1, 1)
    same = op.attributes.get("padding") == "SAME"
    pads = [
        max(0, (made.shape[axis + 1] - 1) * strides[axis] + (window[axis] - 1) * dilations[axis] + 1 - given) // 2
        if same
        else 0
        for axis, given in enumerate(data.shape[1:3])
    ]
    given, shape = data.shape, made.shape
    return LayerDims(
        data.dtype,
        "" if weights is None else weights.dtype,
        given[0],
        (given[1], given[2], given[3]),
        window,
        (shape[1], shape[2], shape[3]),
        strides,
        dilations,
        (pads[0], pads[1]),
    )


def _pair(value: object) -> tuple[int, int] | None:
    if not isinstance(value, tuple) or len(value) != 2 or not all(isinstance(one, int) for one in value):
        return None
    return int(value[0]), int(value[1])


def scales(model: FileModel, tensor: FileTensor) -> int:
    """Return how many scales a tensor's quantization has; 0 without one, or where the file is damaged there."""
    try:
        return len(quantization_of(model, tensor)[0])
    except ModelError:
        return 0
