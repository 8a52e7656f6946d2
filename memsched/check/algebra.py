"""An independent check of exact algebra: both graphs are executed on integers, with other ops in place of theirs.

What each operator computes is replaced by something of its kind that is exact modulo 2**64: ops of one element by
random functions, ops that move elements by random moves, sums by sums with random weights. An identity that holds for
all of these holds for the operators, too, but for the rounding of sums in another order. Only what differs between two
graphs is executed: tensors whose makers and sources are the same in both are random numbers.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from memsched.base.errors import InternalError
from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.graph.model import Graph, Op, Tensor
from memsched.ops.table import families

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    _Numbers = NDArray[np.uint64]

__all__ = ["KNOWN", "check_algebra"]

_CROPS: Final = families("slice")
_PADS: Final = families("pad")
_JOINS: Final = families("concatenation")
_GATHERS: Final = families("expansion", "repetition", "reshape", "resize", "transpose")
_POOLS: Final = families("norm pool", "pool")
_CONVOLUTIONS: Final = families("convolution")
_SUMS: Final = frozenset({"ADD", "Add"})
_UNARY: Final = families("dequantization", "quantization", "unary")
_ELEMENTWISE: Final = _UNARY | families("batch normalization", "broadcast") - _SUMS
_BY_CHANNEL: Final = families("batch normalization", "dequantization", "quantization")
"""Ops whose constants of one axis go along one of the output that is not the last."""

_CHEAP: Final = _CROPS | _PADS | _JOINS | _GATHERS | _POOLS | _ELEMENTWISE
"""Ops that are executed wherever they stand before what differs."""

_PRODUCTS: Final = families("matrix product")
KNOWN: Final = _CHEAP | _CONVOLUTIONS | _SUMS | _PRODUCTS
"""Ops of which it is known what they compute; others are themselves alone."""

_RESHAPES: Final = families("reshape")
_HELPERS: Final = _CROPS | _PADS | _JOINS | _RESHAPES | _SUMS


def check_algebra(before: Graph, after: Graph, constants: Mapping[str, Sequence[str]]) -> None:
    """Check that ``after`` makes the same outputs as ``before``, with parts and copies of its ops and with helpers.

    Args:
        constants: Per op of ``before``, by name, the names of the constants that it reads.

    Raises:
        InternalError: It does not, or has ops of which nothing is known here.
    """
    if _interface(before) != _interface(after):
        raise InternalError("the rewritten graph has other inputs, outputs or variables", code="interface-differs")
    given = {op.name: op for op in before.ops}
    for op in after.ops:
        _check_known(op, given)
    divided = {op.origin or "" for op in after.ops}
    one, two = (_Execution(graph, before, constants, divided) for graph in (before, after))
    one.key_all()
    for number, op in enumerate(after.ops):
        two.key(number)
        for made in op.outputs:
            tensor = after.tensors[made]
            other = one.tensor_of.get(tensor.name)
            if other is None:
                continue
            if _described(before.tensors[other]) != _described(tensor):
                raise InternalError(f"tensor '{tensor.name}' changed in size, shape or type", code="tensor-differs")
            if one.keys[other] != two.keys[made]:
                one.common, two.common = set(two.keys.values()), set(one.keys.values())
                _check_equal(one.made(other), two.made(made), tensor)
                two.keys[made] = one.keys[other]
    names = {after.tensors[tensor].name for op in after.ops for tensor in op.outputs}
    for wanted in before.outputs:
        if before.tensors[wanted].name not in names and wanted not in before.inputs:
            raise InternalError(f"nothing makes the output '{before.tensors[wanted].name}'", code="not-made")


def _check_equal(one: _Numbers, two: _Numbers, tensor: Tensor) -> None:
    import numpy as np

    if not np.array_equal(one, two):
        raise InternalError(f"tensor '{tensor.name}' would have other values", code="values-differ")


def _check_known(op: Op, given: Mapping[str, Op]) -> None:
    source = given.get(op.origin or op.name)
    if op.origin is None and source is None and op.type in _HELPERS and not op.macs:
        return
    if source is None or (op.type, op.positions) != (source.type, source.positions):
        raise InternalError(f"op '{op.name}' computes something that the model does not", code="unknown-op")
    if op.origin is None and (dict(op.attributes) != dict(source.attributes) or op.region or op.terms):
        raise InternalError(f"op '{op.name}' keeps its name, but does something else", code="op-differs")


def _described(tensor: Tensor) -> tuple[object, ...]:
    return tensor.size, tensor.shape, tensor.dtype, tensor.sized


def _interface(graph: Graph) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(graph.tensors[tensor].name for tensor in kind) for kind in (graph.inputs, graph.outputs, graph.variables)
    )


class _Execution:
    """One of the two graphs, executed where it is asked for.

    Attributes:
        keys: Per tensor a text that is the same where values are known to be the same.
        common: Keys of the other graph, whose tensors need not be executed.
        tensor_of: Tensors that ops make, by name.
    """

    def __init__(
        self, graph: Graph, given: Graph, constants: Mapping[str, Sequence[str]], divided: Collection[str]
    ) -> None:
        self._graph, self._constants, self._divided = graph, constants, divided
        self._given = {op.name: op for op in given.ops}
        self._shapes = {op.name: given.tensors[op.outputs[0]].shape or () for op in given.ops if op.outputs}
        self._read = {op.name: [given.tensors[tensor].shape or () for tensor in op.inputs] for op in given.ops}
        self._maker = {tensor: number for number, op in enumerate(graph.ops) for tensor in op.outputs}
        self.tensor_of = {graph.tensors[tensor].name: tensor for tensor in self._maker}
        self.keys: dict[int, str] = {
            tensor: f"given {value.name}" for tensor, value in enumerate(graph.tensors) if tensor not in self._maker
        }
        self.common: set[str] = set()
        self._values: dict[int, _Numbers] = {}

    def key_all(self) -> None:
        """Find the keys of all tensors."""
        for number in range(len(self._graph.ops)):
            self.key(number)

    def key(self, number: int) -> None:
        """Find the keys of what an op makes."""
        op = self._graph.ops[number]
        source = op.origin or op.name
        shapes = [self._graph.tensors[tensor].shape for tensor in op.outputs]
        apart = source if op.type not in KNOWN else ""
        said = (
            *(op.type, self._stated(op), self._constants.get(source, ()), op.positions, op.region, op.terms, shapes),
            *(apart, [self.keys[tensor] for tensor in op.inputs]),
        )
        told = hashlib.sha256(repr(said).encode()).hexdigest()
        self.keys.update({tensor: f"{told} {place}" for place, tensor in enumerate(op.outputs)})

    @staticmethod
    def _stated(op: Op) -> list[tuple[str, object]]:
        # Attributes with two underscores in front only tell copies apart.
        apart = (CONSTANT_SHAPE, "__")
        return sorted((name, value) for name, value in op.attributes.items() if not name.startswith(apart))

    def made(self, tensor: int) -> _Numbers:
        """Return what a tensor's maker makes."""
        self._values = {}
        return self._executed(tensor)

    def _value(self, tensor: int) -> _Numbers:
        if tensor not in self._values:
            if not self._expands(tensor):
                shape = self._graph.tensors[tensor].shape
                if shape is None:
                    raise InternalError(
                        f"the shape of '{self._graph.tensors[tensor].name}' is unknown", code="not-checkable"
                    )
                self._values[tensor] = _noise(self.keys[tensor], shape)
            else:
                self._values[tensor] = self._executed(tensor)
        return self._values[tensor]

    def _executed(self, tensor: int) -> _Numbers:
        """Execute one op; those before it first, without recursion over long rows."""
        waiting = [tensor]
        while waiting:
            op = self._graph.ops[self._maker[waiting[-1]]]
            reads = _reads(op)
            further = [one for one in reads if one not in self._values and self._expands(one)]
            if further:
                waiting += further
                continue
            done = waiting.pop()
            self._values[done] = self._run(op, [self._value(one) for one in reads])
        return self._values[tensor]

    def _expands(self, tensor: int) -> bool:
        number = self._maker.get(tensor)
        if number is None:
            return False
        op = self._graph.ops[number]
        cheap = op.type in _CHEAP and not _interpolates(op)
        return self.keys[tensor] not in self.common or cheap or op.name in self._divided

    def _run(self, op: Op, reads: Sequence[_Numbers]) -> _Numbers:
        shape = self._graph.tensors[op.outputs[0]].shape
        if shape is None or len(op.outputs) != 1:
            raise InternalError(f"op '{op.name}' ({op.type}) cannot be checked", code="not-checkable")
        made = self._computed(op, reads, shape)
        activation = op.attributes.get("fused_activation_function", "NONE")
        if activation != "NONE":
            made = _mixed(made, f"activation {activation}")
        if made.shape != shape:
            raise InternalError(
                f"op '{op.name}' ({op.type}) makes another shape than its tensor has", code="shape-changed"
            )
        return made

    def _computed(self, op: Op, reads: Sequence[_Numbers], shape: tuple[int, ...]) -> _Numbers:
        if op.type in _JOINS:
            return _join(op, reads)
        if op.type in _CROPS:
            return _crop(op, reads[0], shape)
        if op.type in _PADS:
            return _pad(op, reads[0])
        if op.type in _GATHERS:
            return self._gathered(op, reads[0], shape)
        if op.type in _POOLS:
            return self._pooled(op, reads[0], shape)
        if op.type in _CONVOLUTIONS:
            return self._convolved(op, reads[0], shape)
        if op.type in _PRODUCTS and op.positions == (0,):
            return self._multiplied(op, reads[0])
        if op.type in _SUMS | _ELEMENTWISE:
            return self._by_element(op, reads, shape)
        raise InternalError(f"op '{op.name}' ({op.type}) cannot be checked", code="not-checkable")

    def _gathered(self, op: Op, read: _Numbers, shape: tuple[int, ...]) -> _Numbers:
        """Take any elements: what holds for all moves holds for this one. Reshapes keep theirs where they are."""
        if _interpolates(op):
            raise InternalError(f"op '{op.name}' ({op.type}) computes what lies between elements", code="not-checkable")
        if op.type in _RESHAPES and read.size == math.prod(shape):
            return read.reshape(shape)
        key = f"{op.type} {self._stated(op)} {read.shape} {shape} {self._constants.get(op.origin or op.name, ())}"
        places = _noise(key, shape) % max(1, read.size)
        return _numbers(read.reshape(-1)[places.astype("int64")])

    def _by_element(self, op: Op, reads: Sequence[_Numbers], shape: tuple[int, ...]) -> _Numbers:
        """Add, or apply a function of all operands at an element."""
        import numpy as np

        source = op.origin or op.name
        operands = dict(zip(op.positions, reads, strict=True))
        for name, stated in self._given.get(source, op).attributes.items():
            if name.startswith(CONSTANT_SHAPE) and isinstance(stated, tuple):
                position = int(name[len(CONSTANT_SHAPE) :])
                operands[position] = self._constant(op, position, tuple(int(size) for size in stated))
        if op.type in _SUMS:
            return np.asarray(sum(operands.values(), start=np.zeros(shape, dtype=np.uint64)), dtype=np.uint64)
        plain = [one for one in self._stated(op) if one[0] != "fused_activation_function"]
        result = np.zeros(shape, dtype=np.uint64)
        for position in sorted(operands):
            result = _mixed(result + operands[position], f"{op.type} {plain} {position}")
        return result

    def _constant(self, op: Op, position: int, stated: tuple[int, ...]) -> _Numbers:
        """Return the part of a constant that an op reads, broadcast as the operator does it."""
        source = op.origin or op.name
        names = self._constants.get(source, ())
        whole = self._shapes.get(source, ())
        values = _noise(f"constant {position} {names}", stated)
        axes = range(len(whole) - len(stated), len(whole))
        if op.type in _BY_CHANNEL and len(stated) == 1:
            axis = op.attributes.get("axis", 1)
            axes = range(int(axis) if isinstance(axis, int) else 1, len(whole))[:1]
            values = values.reshape(*stated, *(1,) * (len(whole) - 1 - axes[0]))
        if op.region is not None:
            cut = [slice(None)] * values.ndim
            for place, axis in enumerate(axes):
                if stated[place] == whole[axis]:
                    cut[place] = slice(*op.region.ranges[axis])
            values = values[tuple(cut)]
        return values

    def _pooled(self, op: Op, read: _Numbers, shape: tuple[int, ...]) -> _Numbers:
        spatial = _spatial(op, read.ndim)
        windows = _windows(op, read.shape, shape, spatial)
        if all(kernel == 1 and before == 0 for kernel, _, _, before in windows):
            return _shifted(read, spatial, windows, (0,) * len(windows), shape)
        key = f"{op.type} {self._stated(op)}"
        total = sum(_shifted(_mixed(read, "element"), spatial, windows, at, shape) for at in _offsets(windows))
        return _mixed(_numbers(total), key)

    def _convolved(self, op: Op, read: _Numbers, shape: tuple[int, ...]) -> _Numbers:
        """Convolve with weights that are a factor of the output's channel times one of all else."""
        import numpy as np

        source = op.origin or op.name
        key = f"weights {self._constants.get(source, ())}"
        axis = 1 if op.type == "Conv" else read.ndim - 1
        spatial = _spatial(op, read.ndim)
        windows = _windows(op, read.shape, shape, spatial)
        inputs, outputs = self._read[source][0][axis], self._shapes[source][axis]
        first, last = (0, outputs) if op.region is None else op.region.ranges[axis]
        groups = self._groups(self._given[source], inputs)
        each, made = inputs // groups, outputs // groups
        begin = op.terms[0] if op.terms is not None else first // made * each
        kernel = [window[0] for window in windows]
        factors = _noise(f"{key} of inputs", (inputs, math.prod(kernel)))[begin : begin + read.shape[axis]]
        moved = np.moveaxis(read, axis, -1)
        places = [place - (axis < place) for place in spatial]
        cut = [*np.moveaxis(np.empty(shape, dtype=bool), axis, -1).shape[:-1], read.shape[axis]]
        total = np.zeros(cut, dtype=np.uint64)
        for number, at in enumerate(_offsets(windows)):
            total += _shifted(moved, places, windows, at, tuple(cut)) * factors[:, number]
        parts = total.shape[-1] // (each if op.terms is None else total.shape[-1])
        grouped = total.reshape(*cut[:-1], parts, -1).sum(axis=-1, dtype=np.uint64)
        result = np.repeat(grouped, (last - first) // parts, axis=-1)
        result = result * _noise(f"{key} of outputs", (outputs,))[first:last]
        if f"{CONSTANT_SHAPE}2" in self._given[source].attributes and _begin_of(op) == 0:
            result = result + _noise(f"{key} added", (outputs,))[first:last]
        return np.moveaxis(result, -1, axis)

    @staticmethod
    def _groups(op: Op, inputs: int) -> int:
        if op.type == "DEPTHWISE_CONV_2D":
            return inputs
        weights = op.attributes.get(f"{CONSTANT_SHAPE}1")
        if not isinstance(weights, tuple) or len(weights) < 3:
            raise InternalError(f"op '{op.name}' has weights of unknown shape", code="not-checkable")
        return max(1, inputs // max(1, int(weights[1] if op.type == "Conv" else weights[-1])))

    def _multiplied(self, op: Op, read: _Numbers) -> _Numbers:
        """Multiply by a constant matrix, or vector, which is a column times a row."""
        import numpy as np

        source = op.origin or op.name
        key = f"weights {self._constants.get(source, ())}"
        shape, inner = self._shapes[source], self._read[source][0][-1]
        begin = _begin_of(op)
        rows = _noise(f"{key} of inputs", (inner,))[begin : begin + read.shape[-1]]
        total = (read * rows).sum(axis=-1, dtype=np.uint64)
        if len(shape) == read.ndim - 1:
            return _numbers(total)
        first, last = (0, shape[-1]) if op.region is None else op.region.ranges[-1]
        return _numbers(total[..., None] * _noise(f"{key} of outputs", (shape[-1],))[first:last])


def _reads(op: Op) -> tuple[int, ...]:
    """Return the inputs whose values tell what an op makes: the shape of a reshape is that of its output."""
    return op.inputs[:1] if op.type in _RESHAPES else op.inputs


def _begin_of(op: Op) -> int:
    """Return where the part begins that an op sums over."""
    return 0 if op.terms is None else op.terms[0]


# Numbers ----------------------------------------------------------------------------------------------------------


def _numbers(values: object) -> _Numbers:
    import numpy as np

    return np.asarray(values, dtype=np.uint64)


def _mixed(values: _Numbers, key: str) -> _Numbers:
    """Apply a function that ``key`` names to each number; the steps are those of SplitMix64."""
    import numpy as np

    mixed = values + np.uint64(int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little"))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return _numbers(mixed ^ (mixed >> np.uint64(31)))


def _noise(key: str, shape: Sequence[int]) -> _Numbers:
    """Return numbers that only ``key`` and their places tell."""
    import numpy as np

    return _mixed(np.arange(math.prod(shape), dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15), key).reshape(shape)


# Moves ------------------------------------------------------------------------------------------------------------


def _join(op: Op, reads: Sequence[_Numbers]) -> _Numbers:
    import numpy as np

    axis = op.attributes.get("axis", 0)
    return np.concatenate(reads, axis=axis if isinstance(axis, int) else 0)


def _crop(op: Op, read: _Numbers, shape: tuple[int, ...]) -> _Numbers:
    """Crop from where an op says; how far follows from what it makes."""
    rank = read.ndim
    begins, steps = [0] * rank, [1] * rank
    axes = _ints(op, "axes", tuple(range(rank)))
    names = ("starts", "steps") if op.type == "Slice" else ("begin", "steps")
    stated = _ints(op, names[0], ())
    for place, begin in enumerate(stated):
        axis = (axes[place] if op.type == "Slice" else place) % rank
        mask = op.attributes.get("begin_mask", 0)
        free = isinstance(mask, int) and mask >> axis & 1
        begins[axis] = 0 if free else max(0, begin + read.shape[axis] if begin < 0 else begin)
        steps[axis] = _ints(op, names[1], (1,) * len(stated))[place]
    if any(step < 1 for step in steps):
        raise InternalError(f"op '{op.name}' ({op.type}) reads backwards", code="not-checkable")
    ends = [begin + step * (size - 1) + 1 for begin, step, size in zip(begins, steps, shape, strict=True)]
    return read[tuple(slice(*one) for one in zip(begins, ends, steps, strict=True))]


def _pad(op: Op, read: _Numbers) -> _Numbers:
    import numpy as np

    pads, rank = _ints(op, "pads", ()), read.ndim
    if op.type == "PAD":
        flat = _ints(op, "paddings", ())
        pads = (*flat[0::2], *flat[1::2])
    axes = [axis % rank for axis in _ints(op, "axes", tuple(range(rank)))]
    around = [(0, 0)] * rank
    for place, axis in enumerate(axes):
        around[axis] = (pads[place], pads[place + len(axes)])
    if op.attributes.get("mode", "constant") != "constant" or any(min(pair) < 0 for pair in around):
        raise InternalError(f"op '{op.name}' ({op.type}) does not pad with zero", code="not-checkable")
    return np.pad(read, around)


def _ints(op: Op, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    value = op.attributes.get(name, default)
    return tuple(int(one) for one in value) if isinstance(value, tuple) else default


def _interpolates(op: Op) -> bool:
    return op.type in _GATHERS and str(op.attributes.get("mode", "nearest")) != "nearest"


# Windows ----------------------------------------------------------------------------------------------------------

_Window = tuple[int, int, int, int]
"""Kernel, stride, dilation, padding before."""


def _spatial(op: Op, rank: int) -> list[int]:
    return list(range(1, rank - 1)) if op.type.isupper() else list(range(2, rank))


def _windows(op: Op, read: tuple[int, ...], made: tuple[int, ...], spatial: Sequence[int]) -> list[_Window]:
    count = len(spatial)
    kernel = _ints(op, "kernel_shape", _ints(op, "kernel", ()))
    if not kernel:
        weights = _ints(op, f"{CONSTANT_SHAPE}1", ())
        kernel = weights[1:3] if op.type.isupper() else weights[2:]
    strides, dilations = _ints(op, "strides", (1,) * count), _ints(op, "dilations", (1,) * count)
    pads = _ints(op, "pads", (0,) * (2 * count))
    same = str(op.attributes.get("padding", op.attributes.get("auto_pad", "")))
    found = []
    for place, axis in enumerate(spatial):
        before = pads[place]
        if same.startswith("SAME"):
            reach = (made[axis] - 1) * strides[place] + (kernel[place] - 1) * dilations[place] + 1
            missing = max(0, reach - read[axis])
            before = (missing + same.endswith("LOWER")) // 2
        found.append((kernel[place], strides[place], dilations[place], before))
    return found


def _offsets(windows: Sequence[_Window]) -> list[tuple[int, ...]]:
    import itertools

    return list(itertools.product(*(range(kernel) for kernel, _, _, _ in windows)))


def _shifted(
    read: _Numbers, spatial: Sequence[int], windows: Sequence[_Window], at: Sequence[int], shape: Sequence[int]
) -> _Numbers:
    """Return per window the element at one place of it; 0 where that is padding."""
    import numpy as np

    around, cut = [(0, 0)] * read.ndim, [slice(None)] * read.ndim
    for axis, (_, stride, dilation, before), offset in zip(spatial, windows, at, strict=True):
        first = offset * dilation - before
        last = first + (shape[axis] - 1) * stride
        around[axis] = (max(0, -first), max(0, last + 1 - read.shape[axis]))
        begin = first + around[axis][0]
        cut[axis] = slice(begin, begin + (shape[axis] - 1) * stride + 1, stride)
    return np.pad(read, around)[tuple(cut)]
