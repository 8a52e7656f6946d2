"""Small networks built layer by layer, for tests that say what is in them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memsched.formats.module import LoadOptions, Module
from memsched.formats.tflite import reader
from tests.formats.tflite_builder import O, Sub, T, build, int32s, options

__all__ = ["SmallNet"]


class SmallNet:
    """A network of float32, or of int8 or int16 with one quantisation throughout.

    Args:
        wide: Activations that are quantised are int16.
    """

    def __init__(self, *, quantised: bool = False, wide: bool = False) -> None:
        self._quantised, self.wide = quantised or wide, wide
        self._tensors: list[T] = []
        self._ops: list[O] = []
        self._numbers = np.random.default_rng(7)

    def value(self, *shape: int) -> int:
        """Return a new tensor: an input, where no layer makes it."""
        kind = {"dtype": "INT8", "scales": (0.05,), "zero_point": -3} if self._quantised else {}
        if self.wide:
            kind |= {"dtype": "INT16", "zero_point": 0}
        self._tensors.append(T(f"t{len(self._tensors)}", shape, **kind))  # type: ignore[arg-type]
        return len(self._tensors) - 1

    def shape(self, tensor: int) -> Sequence[int]:
        return self._tensors[tensor].shape

    def conv(self, source: int, kernel: int = 3, *, stride: int = 1, same: bool = True, channels: int = 4) -> int:
        """Return what a convolution makes."""
        batch, *lengths, depth = self.shape(source)
        window = (channels, kernel, kernel, depth)
        made = self.value(
            batch, *(-(-size // stride) if same else (size - kernel) // stride + 1 for size in lengths), channels
        )
        if self._quantised:
            weights, bias = (
                self._numbers.integers(-127, 128, window, np.int8),
                self._numbers.integers(-99, 99, channels),
            )
            scales = [0.01] * channels
            self._tensors.append(T(f"w{made}", window, "INT8", weights.tobytes(), scales=scales))
            stated = [0.05 * one for one in scales]
            size, name = (np.int64, "INT64") if self.wide else (np.int32, "INT32")
            self._tensors.append(T(f"b{made}", (channels,), name, bias.astype(size).tobytes(), scales=stated))
        else:
            for name, shape in (("w", window), ("b", (channels,))):
                data = self._numbers.normal(size=shape).astype(np.float32).tobytes()
                self._tensors.append(T(f"{name}{made}", shape, data=data))
        stated_options = {"padding": 0 if same else 1, "strideH": stride, "strideW": stride}
        stated_options |= {"dilationHFactor": 1, "dilationWFactor": 1}
        constants = (len(self._tensors) - 2, len(self._tensors) - 1)
        self._ops.append(O("CONV_2D", (source, *constants), (made,), options("Conv2DOptions", **stated_options)))
        return made

    def pool(self, source: int, window: int = 2) -> int:
        """Return what a pool without padding makes, as many times smaller as its window is long."""
        batch, height, width, depth = self.shape(source)
        made = self.value(batch, height // window, width // window, depth)
        sides = {"strideH": window, "strideW": window, "filterHeight": window, "filterWidth": window}
        self._ops.append(O("MAX_POOL_2D", (source,), (made,), options("Pool2DOptions", padding=1, **sides)))
        return made

    def padded_pool(
        self, source: int, kernel: tuple[int, int] = (3, 3), *, stride: int = 1, largest: bool = False
    ) -> int:
        """Return the averages over windows that reach past the image, or the largest elements of them."""
        batch, *lengths, depth = self.shape(source)
        made = self.value(batch, *(-(-size // stride) for size in lengths), depth)
        sides = {"strideH": stride, "strideW": stride, "filterHeight": kernel[0], "filterWidth": kernel[1]}
        kind = "MAX_POOL_2D" if largest else "AVERAGE_POOL_2D"
        self._ops.append(O(kind, (source,), (made,), options("Pool2DOptions", padding=0, **sides)))
        return made

    def add(self, one: int, other: int) -> int:
        made = self.value(*self.shape(one))
        self._ops.append(O("ADD", (one, other), (made,), options("AddOptions")))
        return made

    def relu(self, source: int) -> int:
        made = self.value(*self.shape(source))
        self._ops.append(O("RELU", (source,), (made,)))
        return made

    def concat(self, *sources: int) -> int:
        """Return the channels of several tensors side by side."""
        made = self.value(*self.shape(sources[0])[:3], sum(self.shape(one)[3] for one in sources))
        self._ops.append(O("CONCATENATION", sources, (made,), options("ConcatenationOptions", axis=3)))
        return made

    def shown(self, source: int, *shape: int) -> int:
        """Return the same elements in another shape."""
        made = self.value(*shape)
        self._constant(*shape)
        self._ops.append(O("RESHAPE", (source, len(self._tensors) - 1), (made,), options("ReshapeOptions")))
        return made

    def sum_of_channels(self, source: int) -> int:
        """Return the sums over channels, without an axis for them."""
        made = self.value(*self.shape(source)[:3])
        self._constant(3)
        self._ops.append(O("SUM", (source, len(self._tensors) - 1), (made,), options("ReducerOptions")))
        return made

    def half(self, source: int, *, axis: int = 1) -> int:
        """Return the upper half of the rows, or the left half of the columns."""
        made = self.value(*(size // 2 if place == axis else size for place, size in enumerate(self.shape(source))))
        self._constant(0, 0, 0, 0)
        self._constant(*self.shape(made))
        constants = (len(self._tensors) - 2, len(self._tensors) - 1)
        self._ops.append(O("SLICE", (source, *constants), (made,), options("SliceOptions")))
        return made

    def _constant(self, *values: int) -> None:
        self._tensors.append(T(f"k{len(self._tensors)}", (len(values),), "INT32", int32s(*values)))

    def file(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        return build(Sub(self._tensors, self._ops, inputs, outputs))

    def module(self, inputs: Sequence[int], outputs: Sequence[int]) -> Module:
        return reader.read(self.file(inputs, outputs), "net.tflite", LoadOptions())
