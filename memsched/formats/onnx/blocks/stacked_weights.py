"""Weights of convolutions in stacks so large that the C library gives their memory back.

When a session is opened, ONNX Runtime replaces the weights of all its convolutions by copies in another layout and then
frees those that it read. glibc gives back what it maps by itself: blocks of over 32 MB always, and smaller ones as long
as none as large was freed before. Weights of a usual size soon lie in the heap instead, where those that stay keep what
is freed between them: a decoder of images with 198 MB of weights holds 407 MB. Cut from stacks, which the runtime does
when it opens the session, it holds 240 to 380, by chance of where small blocks lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from memsched.formats.onnx.blocks.body import names_of
from memsched.formats.onnx.blocks.nodes import replace_nodes
from memsched.formats.onnx.free_names import FreeNames
from memsched.formats.onnx.standard import Axes, IrVersion, Opset
from memsched.formats.onnx.structure import graphs_of, op_type
from memsched.search.heap import LARGEST_PAGE, Glibc

__all__ = ["weights_in_stacks"]

_MAPPED: Final = Glibc.LARGEST_THRESHOLD + LARGEST_PAGE
"""Bytes of a stack at least: those of the largest block that glibc may put into the heap, and a page of any size."""

_DOUBLED: Final = 50_000_000
"""Bytes that a file's reader reserves for a value at most before it has seen them: a larger one is copied once more."""

_LARGE: Final = 1 << 18
"""Bytes of a weight that is worth it."""


def weights_in_stacks(data: bytes) -> bytes:
    """Return a model whose large weights of convolutions are cut from stacks of several; the same where none can be."""
    model = ModelProto.FromString(data)
    versions = {one.domain: one.version for one in model.opset_import}
    if model.ir_version < IrVersion.FREE_INITIALIZERS or versions.get("", 0) < Opset.SLICE_INPUTS:
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
        if len(one.dims) >= min(Axes.SPATIAL) and len(one.raw_data) >= _LARGE and one.name not in outside:
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
        self.names = FreeNames(names_of(model.graph))
        self.made: list[TensorProto] = []
        self.axis = self._number("stacks_axis", 0)
        self.cuts: dict[str, tuple[str, str, str, str]] = {}
        self.shapes = {one.name: tuple(one.dims) for weights in stacks for one in weights}
        for weights in stacks:
            self._stack(weights)

    def _number(self, base: str, number: int) -> str:
        """Return a constant, a vector."""
        name = self.names.new(base)
        self.made.append(helper.make_tensor(name, TensorProto.INT64, [1], [number]))
        return name

    def _stack(self, weights: Sequence[TensorProto]) -> None:
        first, place = weights[0], 0
        dims = [sum(one.dims[0] for one in weights), *first.dims[1:]]
        stack = TensorProto(name=self.names.new(f"{first.name}_stack"), data_type=first.data_type, dims=dims)
        stack.raw_data = b"".join(one.raw_data for one in weights)
        self.made.append(stack)
        for one in weights:
            begin, end = self._number(f"{one.name}_begin", place), self._number(f"{one.name}_end", place + one.dims[0])
            self.cuts[one.name] = (stack.name, begin, end, self.axis)
            place += one.dims[0]

    def write(self) -> None:
        """Write the stacks in place of the weights."""
        constants = {one.name: one for one in self.graph.initializer}
        for scope in self.scopes[1:]:
            for node in scope.graph.node:
                if op_type(node) == "Reshape" and node.input[0] in self.cuts and node.input[1] in constants:
                    self._cut_in_body(node, constants[node.input[1]])
        kept = [one for one in self.graph.initializer if one.name not in self.cuts]
        del self.graph.initializer[:]
        self.graph.initializer.extend([*self.made, *kept])
        named = ((name, cut, self.names.new(f"{name}_cut")) for name, cut in self.cuts.items())
        cuts = [helper.make_node("Slice", cut, [name], name=own) for name, cut, own in named]
        # Without the shapes that nothing but copies in bodies read, of which the runtime warns.
        replace_nodes(self.graph, [*cuts, *self.graph.node])

    def _cut_in_body(self, node: NodeProto, shape: TensorProto) -> None:
        """Let a copy of a weight that a body makes be cut from the stack at once."""
        if tuple(numpy_helper.to_array(shape).tolist()) == self.shapes[node.input[0]]:
            cut = self.cuts[node.input[0]]
            node.op_type = "Slice"
            del node.input[:], node.attribute[:]
            node.input.extend(cut)
