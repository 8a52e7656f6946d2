"""Rewriting groups of a graph into loops: the padded input, the memory for the output, and the op that loops.

The output's memory is made of the padded input's by ops that only see the same bytes in another shape, so that a
runtime's memory plan may lay the one over the other: nothing reads it before the loop has written all of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from memsched.errors import InternalError
from memsched.graph.dialect import Dialect
from memsched.graph.loop import Loop
from memsched.graph.model import AttributeValue, Graph, Op, Tensor

__all__ = ["with_loops"]


def with_loops(graph: Graph, loops: Sequence[Loop], dialect: Dialect) -> Graph:
    """Return ``graph`` with each of ``loops``, whose ops do not overlap, as one op that runs a body.

    Tensors made inside are gone; all others keep their names.

    Raises:
        InternalError: Loops overlap, or the format has none.
    """
    if dialect.loop is None:
        raise InternalError("the format has no loops")
    writer = _LoopWriter(graph, dialect)
    first = {loop.ops[0]: loop for loop in loops}
    inside = {op for loop in loops for op in loop.ops}
    if sum(len(loop.ops) for loop in loops) != len(inside):
        raise InternalError("loops of one rewrite overlap")
    for number, op in enumerate(graph.ops):
        if number in first:
            writer.loop(first[number])
        elif number not in inside:
            writer.ops.append(op)
    return writer.graph({tensor for op in inside for tensor in graph.ops[op].outputs} - {one.output for one in loops})


class _LoopWriter:
    def __init__(self, graph: Graph, dialect: Dialect) -> None:
        self._given, self._dialect = graph, dialect
        self._tensors = list(graph.tensors)
        self._names = {tensor.name for tensor in graph.tensors} | {op.name for op in graph.ops}
        self.ops: list[Op] = []

    def graph(self, gone: set[int]) -> Graph:
        """Return the new graph, without the tensors in ``gone``."""
        left = [tensor for tensor in range(len(self._tensors)) if tensor not in gone]
        number = {old: new for new, old in enumerate(left)}

        def placed(tensors: Sequence[int]) -> tuple[int, ...]:
            return tuple(number[tensor] for tensor in tensors)

        place = {op.name: at for at, op in enumerate(self.ops)}
        names = [op.name for op in self._given.ops]
        return replace(
            self._given,
            tensors=tuple(self._tensors[tensor] for tensor in left),
            ops=tuple(replace(op, inputs=placed(op.inputs), outputs=placed(op.outputs)) for op in self.ops),
            inputs=placed(self._given.inputs),
            outputs=placed(self._given.outputs),
            variables=placed(self._given.variables),
            dependencies=tuple((place[names[a]], place[names[b]]) for a, b in self._given.dependencies),
        )

    def loop(self, loop: Loop) -> None:
        """Write one group."""
        padded = self._padded(loop)
        begun = self._begun(loop, padded)
        words = self._dialect.loop
        if words is None:
            raise InternalError("the format has no loops")
        name = loop.names[loop.output]
        outputs = (
            self._new(f"{name}#count", (1,), words.counter, 4),
            loop.output,
            self._like(f"{loop.names[loop.input]}#left", padded, self._shape(padded)),
        )
        # A file names an op by what it makes first.
        self.ops.append(
            Op(
                name=self._tensors[outputs[0]].name,
                type=words.type,
                inputs=(begun, padded),
                outputs=outputs,
                positions=(1, 2),
                macs=loop.macs,
                loop=loop,
            )
        )

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
        self._help(self._dialect.pad_type, loop.input, made, self._dialect.pad_attributes(pads))
        return made

    def _begun(self, loop: Loop, padded: int) -> int:
        """Return memory of the output's shape: the first bytes of the padded input, and more where that is smaller."""
        shape = self._shape(loop.output)
        have, want = math.prod(self._shape(padded)), math.prod(shape)
        source, words = padded, self._dialect.loop
        if words is None:
            raise InternalError("the format has no loops")
        if have != want:
            flat = self._like(f"{loop.names[loop.output]}#flat", padded, (have,))
            self._help(words.reshape, source, flat, {})
            source = self._like(f"{loop.names[loop.output]}#part", padded, (want,))
            if have > want:
                self._help(
                    self._dialect.slice_type, flat, source, self._dialect.slice_attributes((have,), (0,), (want,))
                )
            else:
                self._help(self._dialect.pad_type, flat, source, self._dialect.pad_attributes([(0, want - have)]))
        made = self._like(f"{loop.names[loop.output]}#begin", loop.output, shape)
        self._help(words.reshape, source, made, {})
        return made

    def _help(self, kind: str, source: int, made: int, attributes: dict[str, AttributeValue] | object) -> None:
        self.ops.append(
            Op(
                name=self._tensors[made].name,
                type=kind,
                inputs=(source,),
                outputs=(made,),
                attributes=attributes,  # type: ignore[arg-type]
                positions=(0,),
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
        wanted, number = name, 1
        while name in self._names:
            number += 1
            name = f"{wanted}.{number}"
        self._names.add(name)
        self._tensors.append(Tensor(name, size, tuple(shape), dtype))
        return len(self._tensors) - 1
