"""From a graph and what its ops compute to the layers of a network that streams."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue
from memsched.codegen.streaming.layers import (
    INPUT,
    LARGEST_PIXEL,
    LARGEST_WINDOW,
    NO_WINDOW,
    StreamKind,
    StreamLayer,
    StreamMap,
    StreamNetwork,
    StreamWindow,
)
from memsched.codegen.streaming.unread import without_unread
from memsched.graph.kernel import KernelFamily, KernelRefusal, LayerKernel
from memsched.graph.model import Graph, Op
from memsched.ops.geometry import described
from memsched.ops.rules import Geometry, Pointwise, Refusal, Resampling, Rule, Stride, WholeAxis, Window

__all__ = ["stream_network"]

_ROWS, _COLUMNS, _CHANNELS = 0, 1, 2
_WIDE: Final = 4
"""Bytes of a sum of products."""


class _NotStreamedError(Exception):
    """Why an op cannot stream, on its way up."""


class _View(FrozenValue, frozen=True):
    """How a tensor of the graph lies in a map.

    Attributes:
        shape: Rows, columns and channels as the tensor has them.
        pad: Rows above and columns to the left that its pixels lack, as a reader's window can start before the map.
        fill: The value of what a pad adds; None without one.
        flat: All pixels behind each other are one.
        channels_first: Its axes are channels, rows, columns.
        inside: Rows and columns without what a pad adds; None without one.
    """

    map: int
    shape: tuple[int, int, int]
    pad: tuple[int, int] = (0, 0)
    fill: int | None = None
    flat: bool = False
    channels_first: bool = False
    inside: tuple[int, int] | None = None

    @property
    def plane(self) -> tuple[int, int]:
        """Rows and columns without a pad."""
        return self.shape[:2] if self.inside is None else self.inside

    @property
    def is_plain(self) -> bool:
        """Whether the tensor's pixels are the map's."""
        return self.fill is None and not self.flat and not self.channels_first


def stream_network(graph: Graph, kernels: Sequence[LayerKernel | KernelRefusal]) -> StreamNetwork:
    """Return the layers of a graph in its order, views and paddings folded into what reads them.

    Args:
        kernels: What each op computes.

    Raises:
        ModelError: An op cannot stream; the message names it.
    """
    return _Builder(graph, kernels).network()


class _Builder:
    def __init__(self, graph: Graph, kernels: Sequence[LayerKernel | KernelRefusal]) -> None:
        self._graph, self._kernels = graph, kernels
        if len(graph.inputs) != 1 or graph.variables:
            reason = f"it has {len(graph.inputs)} inputs" if not graph.variables else "it has states"
            raise ModelError(f"the model cannot be streamed: {reason}", code="not-streamable")
        tensor = graph.inputs[0]
        name = graph.tensors[tensor].name
        shape = _map_shape(graph.tensors[tensor].shape or (1,))
        if shape[2] > LARGEST_PIXEL:
            raise ModelError("the model cannot be streamed: a pixel of its input is too large", code="not-streamable")
        self._maps = [StreamMap(name, *shape)]
        self._layers: list[StreamLayer] = []
        self._views: dict[int, _View] = {tensor: _View(INPUT, shape)}
        self._scales: dict[int, tuple[float, int]] = {}

    def network(self) -> StreamNetwork:
        for number, op in enumerate(self._graph.ops):
            kernel = self._kernels[number]
            try:
                if isinstance(kernel, KernelRefusal):
                    raise _NotStreamedError(kernel.reason)
                _OpReader(self, number, op, kernel).read()
            except _NotStreamedError as error:
                raise _refused(op, str(error)) from None
        outputs = tuple(self._output(tensor) for tensor in self._graph.outputs)
        maps, layers = tuple(self._maps), tuple(self._layers)
        return without_unread(StreamNetwork(self._graph.name, maps, layers, outputs, self._scales))

    def _output(self, tensor: int) -> int:
        view = self._views[tensor]
        if view.channels_first and 1 not in (view.shape[2], view.shape[0] * view.shape[1]):
            name = self._graph.tensors[tensor].name
            raise ModelError(f"output '{name}' cannot be streamed: its channels come first", code="not-streamable")
        found = self.plain(msgspec.structs.replace(view, flat=False, channels_first=False)).map
        if found == INPUT:
            raise ModelError("the model cannot be streamed: it gives its input back", code="not-streamable")
        return found

    # What ops ask for ------------------------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """What is read."""
        return self._graph

    def noted(self, view: _View, kernel: LayerKernel) -> _View:
        """Note that a map stands for floats of the model's border, and return its view."""
        self._scales[view.map] = (kernel.numbers["scale"], int(kernel.numbers["zero"]))
        return view

    def view(self, tensor: int) -> _View:
        """Return how a tensor lies in a map."""
        return self._views[tensor]

    def let(self, tensor: int, view: _View) -> None:
        """Say how a tensor lies in a map."""
        self._views[tensor] = view

    def map(self, number: int) -> StreamMap:
        """Return a map."""
        return self._maps[number]

    def plain(self, view: _View) -> _View:
        """Return a view whose pixels are those of a map; what a pad adds is written by a layer of its own."""
        if view.fill is None:
            return view
        windows = (StreamWindow(before=view.pad[0]), StreamWindow(before=view.pad[1]))
        kernel = LayerKernel("move", "int8", {"fill": view.fill})
        name = f"pad of {self._maps[view.map].name}"
        layer = StreamLayer(name, "copy", (view.map,), view.plane, windows, view.shape[:2], kernel)
        return self.add(layer, view.shape[2])

    def add(self, layer: StreamLayer, channels: int, made: tuple[int, int] | None = None) -> _View:
        """Append a layer and its map, of ``made`` rows and columns; by default one pixel per step.

        Raises:
            _NotStreamedError: A number is larger than C's tables hold.
        """
        numbers = [n for one in layer.window for n in (one.kernel, one.stride, one.dilation, one.divide)]
        if max(numbers) > LARGEST_WINDOW or channels > LARGEST_PIXEL:
            raise _NotStreamedError(f"its windows or its {channels:,} channels are too large")
        if layer.window == (NO_WINDOW, NO_WINDOW) and math.prod(layer.plane) == layer.count:
            # What it reads may have other rows and columns of as many pixels.
            layer = replace(layer, plane=layer.steps)
        rows, columns = layer.steps if made is None else made
        late = layer.count - rows * columns if layer.adds_up else 0
        self._layers.append(layer)
        self._maps.append(StreamMap(layer.name, rows, columns, channels, late))
        return _View(len(self._layers), (rows, columns, channels))

    def reshape_input(self, shape: tuple[int, int, int]) -> bool:
        """Give the model's input another shape, if nothing has read it; return whether that was possible."""
        if any(INPUT in layer.sources for layer in self._layers):
            return False
        self._maps[INPUT] = StreamMap(self._maps[INPUT].name, *shape)
        return True


class _OpReader:
    """One op, as one layer, or as a view of what is there."""

    def __init__(self, builder: _Builder, number: int, op: Op, kernel: LayerKernel) -> None:
        self._builder, self._number, self._op, self._kernel = builder, number, op, kernel
        tensor = builder.graph.tensors[op.outputs[0]]
        if len(op.outputs) != 1 or tensor.shape is None:
            raise _NotStreamedError(f"it makes {len(op.outputs)} tensors")
        self._shape = _map_shape(tensor.shape)

    def read(self) -> None:
        """Append the op.

        Raises:
            _NotStreamedError: It cannot stream.
        """
        make = _READERS.get(self._kernel.family)
        if make is None:
            raise _NotStreamedError(f"there is no streaming kernel for {self._op.type}")
        if self._kernel.dtype != "int8" and self._kernel.family != "dequantize":
            raise _NotStreamedError(f"there is no streaming kernel of {self._kernel.dtype}")
        self._builder.let(self._op.outputs[0], make(self))

    def _given(self, place: int = 0) -> _View:
        """Return what it reads."""
        return self._builder.view(self._op.inputs[place])

    def _plain(self, place: int = 0) -> _View:
        """Return what it reads, where that is a map's pixels."""
        found = self._builder.plain(self._given(place))
        if not found.is_plain and self._builder.map(found.map).pixels > 1:
            raise _NotStreamedError("it reads a map under another shape")
        return found

    def _geometry(self) -> Geometry:
        found = described(self._builder.graph, self._number)
        if isinstance(found, Refusal):
            raise _NotStreamedError(found.reason)
        return found

    def _windows(self, view: _View) -> tuple[StreamWindow, StreamWindow]:
        """Return the windows along rows and columns of the first operand."""
        maps = self._geometry().operands[self._op.positions[0]]
        if len(maps) != 4:
            raise _NotStreamedError("its windows are not over rows and columns")
        rows, columns = (_window(maps[axis + 1].rule, view.shape[axis]) for axis in (_ROWS, _COLUMNS))
        return rows, columns

    def _layer(self, kind: StreamKind, views: Sequence[_View], windows: tuple[StreamWindow, StreamWindow]) -> _View:
        rows, columns, channels = self._shape
        layer = StreamLayer(
            self._op.name, kind, tuple(one.map for one in views), views[0].plane, windows, (rows, columns),
            self._kernel, self._op.macs,
        )  # fmt: skip
        return self._builder.add(layer, channels)

    # Families --------------------------------------------------------------------------------------------------------

    def conv(self) -> _View:
        """Return sums of products."""
        view, weights = self._given(), self._kernel.constants[0]
        groups = int(self._kernel.numbers["groups"])
        if view.fill not in (None, self._kernel.numbers["input_zero"]):
            view = self._builder.plain(view)
        given = self._builder.map(view.map)
        if weights.shape[1:3] == (1, 1) and groups == 1 and weights.shape[3] == given.size:
            return self._whole(view, weights)
        if view.flat or view.channels_first:
            raise _NotStreamedError("it reads a map under another shape")
        windows = tuple(_earlier(one, pad) for one, pad in zip(self._windows(view), view.pad, strict=True))
        if 1 < groups < view.shape[2]:
            raise _NotStreamedError(f"there is no streaming kernel for {groups} groups")
        kind: StreamKind = "depthwise" if groups > 1 else "conv"
        if self._shape[:2] == (1, 1) and groups == 1 and weights[0].size == given.size and not any(view.pad):
            return self._whole(view, weights)
        return self._layer(kind, (view,), windows)  # type: ignore[arg-type]

    def _whole(self, view: _View, weights: np.ndarray[Any, Any]) -> _View:
        """Return a product with the whole map, to which pixels are added as they come where that takes less memory."""
        given = self._builder.map(view.map)
        rows, columns, channels = given.rows, given.columns, given.channels
        kernel = replace(
            self._kernel, constants=(weights.reshape(-1, rows, columns, channels), *self._kernel.constants[1:])
        )
        adds = given.pixels > 1 and (_WIDE * len(weights) < given.size or max(rows, columns) > LARGEST_WINDOW)
        windows = (StreamWindow(rows, 0), StreamWindow(columns, 0))
        steps = (rows, columns) if adds else (1, 1)
        kind: StreamKind = "dense" if adds else "conv"
        windows = (NO_WINDOW, NO_WINDOW) if adds else windows
        layer = StreamLayer(self._op.name, kind, (view.map,), (rows, columns), windows, steps, kernel, self._op.macs)
        return self._builder.add(layer, len(weights), (1, 1))

    def pool(self) -> _View:
        """Return the largest of a window, or its mean."""
        view = self._plain()
        windows = self._windows(view)
        whole = all(
            one.kernel >= length and not one.before for one, length in zip(windows, view.shape[:2], strict=True)
        )
        if self._kernel.word == "average" and whole and self._shape[:2] == (1, 1):
            return self._sum(view)
        return self._layer("average" if self._kernel.word == "average" else "largest", (view,), windows)

    def _sum(self, view: _View) -> _View:
        if view.shape[:2] == (1, 1) and self._kernel.family == "pool":
            return self._layer("average", (view,), (NO_WINDOW, NO_WINDOW))
        windows, plane = (NO_WINDOW, NO_WINDOW), view.plane
        layer = StreamLayer(self._op.name, "sum", (view.map,), plane, windows, plane, self._kernel, self._op.macs)
        return self._builder.add(layer, self._shape[2], (1, 1))

    def mean(self) -> _View:
        """Return the mean over rows, columns, or both."""
        view = self._given()
        flat = len(self._builder.graph.tensors[self._op.inputs[0]].shape or ()) < 4
        order = [_ROWS] if flat else [_ROWS, _COLUMNS]
        order.insert(0 if view.channels_first else len(order), _CHANNELS)
        over = {order[axis] for axis in self._kernel.tables["axes"]}
        plain = self._builder.plain(msgspec.structs.replace(view, channels_first=False))
        if not plain.is_plain or _CHANNELS in over:
            raise _NotStreamedError("there is no streaming kernel for a mean over channels")
        rows, columns, channels = plain.shape
        if over == {_ROWS, _COLUMNS}:
            self._shape = (1, 1, channels)
            return self._sum(plain)
        windows = (
            StreamWindow(rows, 0) if _ROWS in over else NO_WINDOW,
            StreamWindow(columns, 0) if _COLUMNS in over else NO_WINDOW,
        )
        self._shape = (1 if _ROWS in over else rows, 1 if _COLUMNS in over else columns, channels)
        found = self._layer("mean", (plain,), windows)
        # A tensor of fewer axes has rows only.
        shape = (math.prod(found.shape[:2]), 1, channels)
        first = view.channels_first and shape[0] > 1
        keeps = len(self._builder.graph.tensors[self._op.outputs[0]].shape or ()) == 4
        return _View(found.map, found.shape if keeps else shape, channels_first=first)

    def table(self) -> _View:
        """Return a function of each value."""
        return self._elementwise("table", self._plain())

    def softmax(self) -> _View:
        """Return the softmax over the values of each pixel."""
        return self._elementwise("softmax", self._plain())

    def _elementwise(self, kind: StreamKind, view: _View) -> _View:
        self._shape = view.shape
        return self._layer(kind, (view,), (NO_WINDOW, NO_WINDOW))

    def binary(self) -> _View:
        """Return a function of two operands, of which one may be a constant, or one pixel for all."""
        views = [self._plain(place) for place in range(len(self._op.inputs))]
        pixels = [math.prod(one.shape[:2]) for one in views]
        if any(one.shape[2] != self._shape[2] or count not in (1, max(pixels))
               for one, count in zip(views, pixels, strict=True)):  # fmt: skip
            raise _NotStreamedError("an operand is broadcast in a way that no streaming kernel has")
        if any(one.size not in (1, self._shape[2]) for one in self._kernel.constants):
            raise _NotStreamedError("a constant is broadcast in a way that no streaming kernel has")
        ordered = [views[self._op.inputs.index(one)] for one in self._kernel.operands if one >= 0]
        still = StreamWindow(stride=0)
        first = ordered[0]
        self._shape = (*max((one.shape[:2] for one in ordered), key=math.prod), self._shape[2])
        windows = (still, still) if math.prod(first.shape[:2]) < math.prod(self._shape[:2]) else (NO_WINDOW, NO_WINDOW)
        return self._layer("binary", ordered, windows)

    def copy(self) -> _View:
        """Return the same pixels, or all of them as one."""
        view, (rows, columns, channels) = self._given(), self._shape
        if view.fill is not None:
            view = self._builder.plain(view)
        given = self._builder.map(view.map)
        if view.channels_first and given.pixels > 1 and given.channels > 1:
            raise _NotStreamedError("it gives a map whose channels come first another shape")
        if rows * columns == given.pixels:
            return _View(view.map, (rows, columns, channels))
        if rows * columns == 1:
            return msgspec.structs.replace(view, flat=True)
        if view.map == INPUT and self._builder.reshape_input(self._shape):
            return _View(INPUT, self._shape)
        raise _NotStreamedError("it gives a map another shape")

    def quantize(self) -> _View:
        """Return the model's input, which is given as 8 bits."""
        if self._op.inputs[0] not in self._builder.graph.inputs:
            raise _NotStreamedError("there is no streaming kernel of floats")
        return self._builder.noted(self._given(), self._kernel)

    def dequantize(self) -> _View:
        """Return the model's output, which is given as 8 bits."""
        if self._op.outputs[0] not in self._builder.graph.outputs:
            raise _NotStreamedError("there is no streaming kernel of floats")
        return self._builder.noted(self._given(), self._kernel)

    def move(self) -> _View:
        """Return pixels from elsewhere."""
        if "order" in self._kernel.tables:
            return self._transposed(self._kernel.tables["order"])
        if len(self._op.inputs) > 1:
            return self._joined()
        view = self._plain()
        maps = self._geometry().operands[self._op.positions[0]]
        if len(maps) != 4:
            raise _NotStreamedError("it moves elements of what is no map")
        windows = self._windows(view)
        along = _window(maps[3].rule, view.shape[2])
        inside = along.kernel == along.stride == along.divide == 1 and along.before <= 0
        if not inside or view.shape[2] + along.before < self._shape[2]:
            raise _NotStreamedError("it moves channels in a way that no streaming kernel has")
        simple = all(one.stride == one.divide == 1 for one in windows) and not along.before
        if simple and all(one.before >= 0 for one in windows) and self._shape[2] == view.shape[2]:
            pad = (windows[_ROWS].before, windows[_COLUMNS].before)
            return _View(view.map, self._shape, pad, int(self._kernel.numbers["fill"]), inside=view.plane)
        rows, columns, channels = self._shape
        layer = StreamLayer(
            self._op.name, "copy", (view.map,), view.plane, windows, (rows, columns), self._kernel,
            channel=-along.before,
        )  # fmt: skip
        return self._builder.add(layer, channels)

    def _transposed(self, order: tuple[int, ...]) -> _View:
        view = self._given()
        if order != (0, 3, 1, 2) or view.flat or view.channels_first:
            raise _NotStreamedError("it transposes in a way that no streaming kernel has")
        return msgspec.structs.replace(view, channels_first=True)

    def _joined(self) -> _View:
        """Return a concatenation along channels, two at a time."""
        views = [self._plain(place) for place in range(len(self._op.inputs))]
        pixels = {math.prod(one.shape[:2]) for one in views}
        if len(pixels) > 1 or sum(one.shape[2] for one in views) != self._shape[2]:
            raise _NotStreamedError("it does not concatenate along channels")
        made = views[0]
        rows, columns, _ = self._shape
        for number, one in enumerate(views[1:]):
            name = self._op.name if number == len(views) - 2 else f"{self._op.name} part {number}"
            layer = StreamLayer(
                name, "join", (made.map, one.map), made.plane, (NO_WINDOW, NO_WINDOW), (rows, columns), self._kernel
            )
            made = self._builder.add(layer, made.shape[2] + one.shape[2])
        return made


_READERS: Final[Mapping[KernelFamily, Callable[[_OpReader], _View]]] = {
    "conv": _OpReader.conv,
    "pool": _OpReader.pool,
    "mean": _OpReader.mean,
    "table": _OpReader.table,
    "softmax": _OpReader.softmax,
    "binary": _OpReader.binary,
    "copy": _OpReader.copy,
    "quantize": _OpReader.quantize,
    "dequantize": _OpReader.dequantize,
    "move": _OpReader.move,
}


def _refused(op: Op, reason: str) -> ModelError:
    return ModelError(f"op '{op.name}' ({op.type}) cannot be streamed: {reason}", code="not-streamable")


def _map_shape(shape: Sequence[int]) -> tuple[int, int, int]:
    """Return rows, columns and channels of a tensor, whose batch is 1."""
    if len(shape) == 4:
        batch, rows, columns, channels = shape
    else:
        batch, columns = 1, 1
        *leading, channels = shape or (1,)
        rows = math.prod(leading)
    if batch != 1:
        raise ModelError(f"the model cannot be streamed: a tensor has batch {batch}", code="not-streamable")
    return rows, columns, channels


def _window(rule: Rule, length: int) -> StreamWindow:
    if isinstance(rule, Pointwise):
        return NO_WINDOW
    if isinstance(rule, WholeAxis):
        return StreamWindow(length, 0)
    if isinstance(rule, Window):
        return StreamWindow(rule.kernel, rule.stride, rule.dilation, rule.pad_before)
    if isinstance(rule, Stride) and rule.step > 0:
        return StreamWindow(1, rule.step, 1, -rule.begin)
    if isinstance(rule, Resampling) and rule.rounding == "floor" and not (rule.centre or rule.back or rule.corners):
        if rule.scale.denominator == 1:
            return StreamWindow(divide=rule.scale.numerator)
        if rule.scale.numerator == 1:
            return StreamWindow(stride=rule.scale.denominator)
    raise _NotStreamedError("it reads elements in a way that no streaming kernel has")


def _earlier(window: StreamWindow, pad: int) -> StreamWindow:
    """Return a window over a padded map, as one over the map itself."""
    return msgspec.structs.replace(window, before=window.before + pad)
