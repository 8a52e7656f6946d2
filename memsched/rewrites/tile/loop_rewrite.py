"""Rewriting groups of a graph into loops: the padded input, the memory for the output, and the op that loops.

Or the padded input, an op for each tile, and what joins the tiles, where each tile has an op of its own.

The output's memory comes from the padded input by ops that only show the same bytes in another shape, so that a
runtime's memory plan may lay one over the other: nothing reads the output before the loop has written all of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from memsched.base.errors import InternalError
from memsched.graph.dialect import CONSTANT_SHAPE, Attributes, Dialect, LoopWords
from memsched.graph.loop import Loop
from memsched.graph.model import Graph, Op, Tensor
from memsched.graph.replacement import names_of, rebuilt, unused_name
from memsched.rewrites.tile.join_levels import join_levels
from memsched.rewrites.tile.loop_cost import joins_rows

__all__ = ["with_loops"]


def with_loops(graph: Graph, loops: Sequence[Loop], dialect: Dialect) -> Graph:
    """Return ``graph`` with each of ``loops``, whose ops do not overlap, as one op that runs a body.

    Tensors made inside are gone; all others keep their names. Where the dialect says so, each tile has its own op.

    Raises:
        InternalError: Loops overlap, or the format has none.
    """
    if dialect.loop is None:
        raise InternalError("the format has no loops", code="no-loops")
    writer = _LoopWriter(graph, dialect, dialect.loop)
    first = {loop.ops[0]: loop for loop in loops}
    inside = {op for loop in loops for op in loop.ops}
    if sum(len(loop.ops) for loop in loops) != len(inside):
        raise InternalError("loops of one rewrite overlap", code="groups-overlap")
    for number in range(len(graph.ops)):
        if number in first:
            writer.tiles(first[number]) if dialect.loop.unrolled else writer.loop(first[number])
        elif number not in inside:
            writer.keep(number)
    outputs = {tensor for loop in loops for tensor in loop.outputs}
    return writer.graph({tensor for op in inside for tensor in graph.ops[op].outputs} - outputs)


class _LoopWriter:
    def __init__(self, graph: Graph, dialect: Dialect, words: LoopWords) -> None:
        self._given, self._dialect, self._words = graph, dialect, words
        self._tensors = list(graph.tensors)
        self._names = names_of(graph)
        self._ops: list[Op] = []
        self._place: dict[int, int] = {}

    def keep(self, op: int) -> None:
        """Take an op as it is."""
        self._place[op] = len(self._ops)
        self._ops.append(self._given.ops[op])

    def graph(self, gone: set[int]) -> Graph:
        """Return the new graph, without the tensors in ``gone``."""
        return rebuilt(self._given, self._tensors, self._ops, self._place, gone)

    def loop(self, loop: Loop) -> None:
        """Write one group."""
        padded = self._padded(loop)
        begun = tuple(self._begun(loop, padded, output) for output in loop.outputs)
        name = loop.names[loop.output]
        read = (padded, *loop.side_inputs)
        outputs = (
            self._new(f"{name}#count", (1,), self._words.counter, 4),
            *loop.outputs,
            *(
                self._like(f"{loop.names[tensor]}#left", given, self._shape(given))
                for tensor, given in zip(loop.inputs, read, strict=True)
            ),
        )
        # A file names an op by what it makes first.
        self._ops.append(
            Op(
                name=self._tensors[outputs[0]].name,
                type=self._words.type,
                inputs=(*begun, *read),
                outputs=outputs,
                positions=tuple(range(1, len(outputs))),
                macs=loop.macs,
                loop=loop,
            )
        )

    def tiles(self, loop: Loop) -> None:
        """Write one group with an op for each tile."""
        numbers = iter(range(loop.count))
        self._span(loop, self._padded(loop), 0, numbers, last=True)

    def _span(self, loop: Loop, padded: int, place: int, numbers: Iterator[int], *, last: bool) -> int:
        """Write the tiles that lie side by side along the cut axes from ``place`` on, and what joins them.

        Args:
            last: They make the whole output.
        """
        if place == len(loop.axes):
            return self._tile(loop, padded, next(numbers), last=last)
        axis, begins, size = loop.axes[place], loop.tiles[place], loop.parts[loop.output].sizes[place]
        if len(begins) == 1:
            return self._span(loop, padded, place + 1, numbers, last=last)
        parts, end = [], 0
        for begin in begins:
            part = self._span(loop, padded, place + 1, numbers, last=False)
            # What the tile before has as well.
            parts.append(self._without(part, axis, end - begin) if begin < end else part)
            end = begin + size
        for sizes in join_levels(len(parts), self._dialect.most_joined):
            ends = itertools.accumulate(sizes)
            parts = [self._join(loop, parts[to - n : to], axis) for n, to in zip(sizes, ends, strict=True)]
        return self._join(loop, parts, axis, last=last)

    def _tile(self, loop: Loop, padded: int, number: int, *, last: bool) -> int:
        shape, name = list(self._shape(loop.output)), f"{loop.names[loop.output]}#tile{number}"
        for axis, size in zip(loop.axes, loop.parts[loop.output].sizes, strict=True):
            shape[axis] = size
        made = loop.output if last else self._like(name, loop.output, shape)
        self._ops.append(
            Op(
                name=unused_name(name, self._names) if last else self._tensors[made].name,
                type=self._words.once,
                inputs=(padded, *loop.side_inputs),
                outputs=(made,),
                positions=tuple(range(2, 3 + len(loop.side_inputs))),
                macs=loop.macs // loop.count,
                loop=replace(loop, tile=number),
            )
        )
        return made

    def _without(self, part: int, axis: int, count: int) -> int:
        """Return a tensor without its first elements along an axis."""
        shape = list(self._shape(part))
        begins = [count if place == axis else 0 for place in range(len(shape))]
        cut = [size - begin for size, begin in zip(shape, begins, strict=True)]
        made = self._like(f"{self._tensors[part].name}.cut", part, cut)
        self._help(self._dialect.slice_type, (part,), made, self._dialect.slice_attributes(shape, begins, shape))
        return made

    def _join(self, loop: Loop, parts: Sequence[int], axis: int, *, last: bool = False) -> int:
        if len(parts) == 1:
            return parts[0]
        shape, name = list(self._shape(parts[0])), f"{loop.names[loop.output]}#joined"
        shape[axis] = sum(self._shape(part)[axis] for part in parts)
        made = loop.output if last else self._like(name, loop.output, shape)
        self._help(self._dialect.concat_type, parts, made, self._dialect.concat_attributes(axis), name if last else "")
        return made

    def _padded(self, loop: Loop) -> int:
        """Return the input with its padding."""
        if not any(map(any, loop.pads)):
            return loop.input
        shape = list(self._shape(loop.input))
        pads = [(0, 0)] * len(shape)
        for axis, pair in zip(loop.axes, loop.pads, strict=True):
            pads[axis] = pair
            shape[axis] += sum(pair)
        made = self._like(f"{loop.names[loop.output]}#padded", loop.input, shape)
        added = self._tensors[made].size - self._tensors[loop.input].size
        if self._words.joined and joins_rows(loop, shape[: loop.axes[0]], added):
            self._join_rows(loop, made)
        else:
            self._help(self._dialect.pad_type, (loop.input,), made, self._dialect.pad_attributes(pads))
        return made

    def _join_rows(self, loop: Loop, made: int) -> None:
        """Write what joins constant rows to the input."""
        axis, (before, after) = loop.axes[0], loop.pads[0]
        place = int(before > 0)
        shapes = {
            f"{CONSTANT_SHAPE}{at}": tuple(rows if one == axis else size for one, size in enumerate(self._shape(made)))
            for at, rows in ((0, before), (place + 1, after))
            if rows
        }
        attributes = {**self._dialect.concat_attributes(axis), **shapes}
        self._help(self._dialect.concat_type, (loop.input,), made, attributes, first=place)

    def _begun(self, loop: Loop, padded: int, output: int) -> int:
        """Return memory of an output's shape: the first bytes of the padded input, and more where that is smaller."""
        name, shape = loop.names[output], self._shape(output)
        have, want = math.prod(self._shape(padded)), math.prod(shape)
        source = padded
        if have != want:
            flat = self._like(f"{name}#flat", padded, (have,))
            self._help(self._words.reshape, (source,), flat, {})
            source = self._like(f"{name}#part", padded, (want,))
            if have > want:
                self._help(
                    self._dialect.slice_type, (flat,), source, self._dialect.slice_attributes((have,), (0,), (want,))
                )
            else:
                self._help(self._dialect.pad_type, (flat,), source, self._dialect.pad_attributes([(0, want - have)]))
        made = self._like(f"{name}#begin", output, shape)
        self._help(self._words.reshape, (source,), made, {})
        return made

    def _help(
        self, kind: str, sources: Sequence[int], made: int, attributes: Attributes, name: str = "", *, first: int = 0
    ) -> None:
        """Write an op that reads ``sources`` from position ``first`` on."""
        self._ops.append(
            Op(
                name=unused_name(name, self._names) if name else self._tensors[made].name,
                type=kind,
                inputs=tuple(sources),
                outputs=(made,),
                attributes=attributes,
                positions=tuple(range(first, first + len(sources))),
            )
        )

    def _shape(self, tensor: int) -> tuple[int, ...]:
        return self._tensors[tensor].shape or ()

    def _like(self, name: str, like: int, shape: Sequence[int]) -> int:
        """Add a tensor of the type of tensor ``like``."""
        given = self._tensors[like]
        elements = math.prod(given.shape or ())
        return self._new(name, shape, given.dtype, given.size // max(1, elements) * math.prod(shape))

    def _new(self, name: str, shape: Sequence[int], dtype: str, size: int) -> int:
        name = unused_name(name, self._names)
        self._tensors.append(Tensor(name, size, tuple(shape), dtype))
        return len(self._tensors) - 1
