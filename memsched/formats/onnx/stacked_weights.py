"""Weights of convolutions in stacks so large that the C library gives their memory back.

When a session is opened, ONNX Runtime replaces the weights of all its convolutions by copies in another layout and then
frees those that it read. glibc gives back what it maps by itself: blocks of over 32 MB always, and smaller ones as long
as none as large was freed before. Weights of a usual size soon lie in the heap instead, where those that stay keep what
is freed between them: a decoder of images with 198 MB of weights holds 407 MB. Cut from stacks, which the runtime does
when it opens the session, it holds 240 to 380, by chance of where small blocks lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from memsched.formats.onnx.structure import graphs_of, op_type
from memsched.formats.onnx.writer import FREE_INITIALIZERS

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

__all__ = ["weights_in_stacks"]

_MAPPED: Final = (32 << 20) + (1 << 16)
"""Bytes of a stack at least: those of the largest block that glibc may put into the heap, and a page of any size."""

_DOUBLED: Final = 50_000_000
"""Bytes that a file's reader reserves for a value at most before it has seen them: a larger one is copied once more."""

_LARGE: Final = 1 << 18
"""Bytes of a weight that is worth it."""

_SPATIAL: Final = 3
"""Dimensions that weights of convolutions have at least; matrices are replaced one at a time, and freed so."""

_SLICE: Final = 10
"""The first operator set whose Slice reads where it begins and ends."""


def weights_in_stacks(data: bytes) -> bytes:
    """Return a model whose large weights of convolutions are cut from stacks of several; the same where none can be."""
    from onnx import ModelProto

    model = ModelProto.FromString(data)
    versions = {one.domain: one.version for one in model.opset_import}
    if model.ir_version < FREE_INITIALIZERS or versions.get("", 0) < _SLICE:
        return data
    stacks = list(_stacks(model.graph))
    if not stacks:
        return data
    _Stacking(model, stacks).write()
    written: bytes = model.SerializeToString(deterministic=True)
    return written


def _stacks(graph: GraphProto) -> Iterator[list[TensorProto]]:
    """Yield weights that can be stacked: of one type, and alike but for their first dimension."""
    outside = {value.name for value in (*graph.input, *graph.output)}
    alike: dict[tuple[int, ...], list[TensorProto]] = {}
    for one in graph.initializer:
        if len(one.dims) >= _SPATIAL and len(one.raw_data) >= _LARGE and one.name not in outside:
            alike.setdefault((one.data_type, *one.dims[1:]), []).append(one)
    for weights in alike.values():
        yield from _parted(weights)


def _parted(weights: Sequence[TensorProto]) -> list[list[TensorProto]]:
    """Return stacks as small as they may be: one more of each is there while it is cut."""
    found: list[list[TensorProto]] = [[]]
    for one in weights:
        if _size(found[-1]) >= _MAPPED:
            found.append([])
        found[-1].append(one)
    last = found.pop() if _size(found[-1]) < _MAPPED else []
    for stack in found:
        while last and _size([*stack, last[0]]) < _DOUBLED:
            stack.append(last.pop(0))
    return found


def _size(weights: Sequence[TensorProto]) -> int:
    return sum(len(one.raw_data) for one in weights)


class _Stacking:
    """Writes stacks into a model, and what cuts weights from them."""

    def __init__(self, model: ModelProto, stacks: Sequence[Sequence[TensorProto]]) -> None:
        self.graph = model.graph
        self.scopes = graphs_of(model.graph)
        self.taken = {name for scope in self.scopes for name in _names(scope.graph)}
        self.made: list[TensorProto] = []
        self.axis = self._number("stacks_axis", 0)
        self.cuts: dict[str, tuple[str, str, str, str]] = {}
        self.shapes = {one.name: tuple(one.dims) for weights in stacks for one in weights}
        for weights in stacks:
            self._stack(weights)

    def _free(self, base: str) -> str:
        found, count = base, 1
        while found in self.taken:
            count += 1
            found = f"{base}_{count}"
        self.taken.add(found)
        return found

    def _number(self, base: str, number: int) -> str:
        """Return a constant, a vector."""
        from onnx import helper

        name = self._free(base)
        self.made.append(helper.make_tensor(name, 7, [1], [number]))
        return name

    def _stack(self, weights: Sequence[TensorProto]) -> None:
        from onnx import TensorProto

        first, place = weights[0], 0
        dims = [sum(one.dims[0] for one in weights), *first.dims[1:]]
        stack = TensorProto(name=self._free(f"{first.name}_stack"), data_type=first.data_type, dims=dims)
        stack.raw_data = b"".join(one.raw_data for one in weights)
        self.made.append(stack)
        for one in weights:
            begin, end = self._number(f"{one.name}_begin", place), self._number(f"{one.name}_end", place + one.dims[0])
            self.cuts[one.name] = (stack.name, begin, end, self.axis)
            place += one.dims[0]

    def write(self) -> None:
        """Write the stacks in place of the weights."""
        from onnx import helper

        read = self._read()
        constants = {one.name: one for one in self.graph.initializer}
        for scope in self.scopes[1:]:
            for node in scope.graph.node:
                if op_type(node) == "Reshape" and node.input[0] in self.cuts and node.input[1] in constants:
                    self._cut_in_body(node, constants[node.input[1]])
        after = self._read()
        self._keep(after | (self._defined() - read))
        wanted = [name for name in self.cuts if name in after]
        before = list(self.graph.node)
        del self.graph.node[:]
        for name in wanted:
            cut = helper.make_node("Slice", self.cuts[name], [name], name=self._free(f"{name}_cut"))
            self.graph.node.append(cut)
        self.graph.node.extend(before)

    def _cut_in_body(self, node: NodeProto, shape: TensorProto) -> None:
        """Let a copy of a weight that a body makes be cut from the stack at once."""
        from onnx import numpy_helper

        if tuple(numpy_helper.to_array(shape).tolist()) == self.shapes[node.input[0]]:
            cut = self.cuts[node.input[0]]
            node.op_type = "Slice"
            del node.input[:], node.attribute[:]
            node.input.extend(cut)

    def _read(self) -> set[str]:
        """Return the names that any node reads, or that a graph gives."""
        found = {value.name for scope in self.scopes for value in scope.graph.output}
        return found | {name for scope in self.scopes for node in scope.graph.node for name in node.input}

    def _defined(self) -> set[str]:
        return {one.name for one in self.graph.initializer}

    def _keep(self, names: set[str]) -> None:
        """Drop the weights that lie in stacks, and what nothing but their copies read: the runtime warns of such."""
        kept = [one for one in self.graph.initializer if one.name in names and one.name not in self.cuts]
        del self.graph.initializer[:]
        self.graph.initializer.extend([*self.made, *kept])


def _names(graph: GraphProto) -> Iterator[str]:
    yield from (value.name for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer))
    for node in graph.node:
        yield from (node.name, *node.input, *node.output)
