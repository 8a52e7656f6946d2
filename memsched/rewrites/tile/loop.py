"""Groups of layers as loops: which part of every tensor one tile needs, and what the body does with it.

Unlike `pieces`, all tiles are alike, so that one body serves them all: tiles at a border read padding that was added
before the loop or that the body adds, or that a mask puts into inner tensors. Of what a group reads one tensor may be
padded so; the output may lie over it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.graph.dialect import Dialect
from memsched.graph.loop import Loop, LoopPart, LoopRead, LoopStep
from memsched.graph.model import Graph, Op
from memsched.graph.parts import readers_of
from memsched.ops.geometry import describe
from memsched.ops.rules import Geometry, Pointwise, Refusal, RefusedError, Stride, Window
from memsched.ops.table import SHAPED
from memsched.rewrites.tile.pieces import members_of
from memsched.rewrites.tile.rewrite import RANGED
from memsched.rewrites.tile.runs import POOLS

__all__ = ["LoopGroup", "loop_of", "plan_loop", "takes_range"]


class LoopGroup(FrozenValue, frozen=True):
    """Consecutive ops to be computed in a loop.

    Attributes:
        ops: Indices into the graph, consecutive and ascending.
        axes: The axes that are cut.
        sizes: Lengths of a tile along them, in the output that is made last.
        lead: Rows of padding before the input's first, which let the output lie over what was read.
        pads_inside: The body pads what it takes of the input, which has no other padding than ``lead``.
    """

    ops: tuple[int, ...]
    axes: tuple[int, ...]
    sizes: tuple[int, ...]
    lead: int = 0
    pads_inside: bool = False

    def coarser(self) -> Iterator[LoopGroup]:
        """Yield the group with tiles twice as long along one axis, the last one first."""
        for place in reversed(range(len(self.axes))):
            yield replace(self, sizes=(*self.sizes[:place], 2 * self.sizes[place], *self.sizes[place + 1 :]))


def plan_loop(
    graph: Graph,
    group: LoopGroup,
    dialect: Dialect,
    geometries: Mapping[int, Geometry | Refusal] | None = None,
    readers: Sequence[Sequence[int]] | None = None,
) -> Loop | Refusal:
    """Return ``group`` as a loop, or why it cannot be one.

    Args:
        geometries: What `describe` gives for the group's ops, where the caller has it already.
        readers: Per tensor the ops that read it, where the caller has them.
    """
    try:
        return _LoopPlanner(graph, group, dialect, geometries or {}, readers).plan()
    except RefusedError as error:
        return error.refusal


def loop_of(graph: Graph, group: LoopGroup, dialect: Dialect) -> Loop:
    """Return a group that was judged as a loop.

    Raises:
        InternalError: It cannot be one.
    """
    found = plan_loop(graph, group, dialect)
    if isinstance(found, Refusal):
        raise InternalError(f"a group that was judged cannot be a loop: {found.reason}", code="judged-differently")
    return found


class _LoopPlanner:
    def __init__(
        self,
        graph: Graph,
        group: LoopGroup,
        dialect: Dialect,
        geometries: Mapping[int, Geometry | Refusal],
        readers: Sequence[Sequence[int]] | None,
    ) -> None:
        self._graph, self._group, self._dialect = graph, group, dialect
        members = members_of(graph, group.ops, readers)
        if not members.inputs:
            raise RefusedError("a loop reads something", "reads-nothing")
        if not members.outputs:
            raise RefusedError("a loop makes something", "makes-nothing")
        words = dialect.loop
        if len(members.outputs) > 1 and (words is None or words.unrolled):
            raise RefusedError(f"an op for each tile has one output, not {len(members.outputs)}", "output-count")
        self._inputs, self._output, self._readers = members.inputs, members.outputs[-1], readers
        self._side_outputs = members.outputs[:-1]
        if graph.ops[group.ops[-1]].outputs != (self._output,):
            raise RefusedError("its output is not made last", "output-not-last")
        ends = [graph.tensors[tensor] for tensor in (*self._inputs, *members.outputs)]
        if len({one.dtype for one in ends}) > 1 or not all(one.sized and one.shape is not None for one in ends):
            raise RefusedError("what it reads and what it makes are of different types", "types-differ")
        tied = {op for pair in graph.dependencies for op in pair}
        if tied & set(group.ops) or {*self._inputs, *members.outputs} & set(graph.variables):
            raise RefusedError("an op of the group works on a state", "state")
        self._geometries = {op: self._geometry(op, geometries) for op in group.ops}
        if any(self._shows(op) and graph.ops[op].outputs[0] in members.outputs for op in group.ops):
            raise RefusedError("its output is padding, or a part of a tensor", "output-not-made")
        # Per tensor what its readers need of it: a begin per cut axis and an end, at one stride.
        self._needs: dict[int, list[LoopPart]] = {}
        self._windowed: set[int] = set()

    def _geometry(self, op: int, known: Mapping[int, Geometry | Refusal]) -> Geometry:
        found = known[op] if op in known else describe(self._graph, op)
        if isinstance(found, Refusal):
            raise RefusedError(found.reason, found.code)
        value = self._graph.ops[op]
        if value.type in SHAPED or len(value.outputs) != 1:
            raise RefusedError(f"op '{value.name}' ({value.type}): it is not written into loops", "not-in-loops")
        if self._pads(op) and any(
            not isinstance(one.rule, Pointwise)
            for axis, one in enumerate(found.operands[0])
            if axis not in self._group.axes
        ):
            raise RefusedError(
                f"op '{value.name}' ({value.type}): it pads along an axis that is not cut", "pads-uncut-axis"
            )
        if value.type in RANGED and any(
            axis not in self._group.axes and found.shape[axis] != found.shapes[0][axis]
            for axis in range(len(found.shape))
        ):
            raise RefusedError(
                f"op '{value.name}' ({value.type}): it takes a part of an axis that is not cut", "takes-uncut-axis"
            )
        return found

    def plan(self) -> Loop:
        shape = self._shape(self._output)
        group = self._group
        if any(
            axis >= len(shape) or not 0 < size <= shape[axis]
            for axis, size in zip(group.axes, group.sizes, strict=True)
        ):
            raise RefusedError("its tiles do not fit its output", "bad-tiles")
        ones, zeros = (1,) * len(group.axes), (0,) * len(group.axes)
        self._needs[self._output] = [LoopPart(ones, zeros, group.sizes)]
        parts: dict[int, LoopPart] = {}
        reads: dict[int, tuple[LoopRead, ...]] = {}
        for op in reversed(group.ops):
            tensor = self._graph.ops[op].outputs[0]
            if tensor in self._side_outputs and tensor not in self._needs:
                self._needs[tensor] = [self._in_step(tensor)]
            if tensor not in self._needs:
                raise RefusedError("an op of the group makes what nothing reads", "not-read")
            parts[tensor] = _hull(self._needs[tensor])
            reads[op] = self._reads(op, parts[tensor])
        for tensor in self._inputs:
            parts[tensor] = _hull(self._needs[tensor]) if tensor in self._needs else LoopPart(zeros, zeros, zeros)
        if any(len(self._shape(tensor)) != len(shape) for tensor in parts):
            raise RefusedError("its tensors have different numbers of axes", "rank")
        return self._loop(parts, reads)

    def _in_step(self, tensor: int) -> LoopPart:
        """Return the part of a tensor that is made for what follows alone: as much of it as a tile is of the output."""
        made, shape = self._shape(tensor), self._shape(self._output)
        if len(made) != len(shape):
            raise RefusedError("its tensors have different numbers of axes", "rank")
        lengths = [(made[axis], shape[axis]) for axis in self._group.axes]
        if any(length % tiles for length, tiles in lengths):
            raise RefusedError("what it makes beside its output has other lengths", "lengths-differ")
        paces = tuple(length // tiles for length, tiles in lengths)
        sizes = tuple(pace * size for pace, size in zip(paces, self._group.sizes, strict=True))
        return LoopPart(paces, (0,) * len(paces), sizes)

    def _loop(self, parts: Mapping[int, LoopPart], reads: Mapping[int, tuple[LoopRead, ...]]) -> Loop:
        graph, group = self._graph, self._group
        tiles = tuple(
            _begins(self._shape(self._output)[axis], size) for axis, size in zip(group.axes, group.sizes, strict=True)
        )
        aliases = {graph.ops[op].outputs[0]: graph.ops[op].inputs[0] for op in group.ops if self._shows(op)}
        steps = tuple(
            self._step(op, parts, [self._crop(read, parts, aliases) for read in reads[op]])
            for op in group.ops
            if not self._shows(op)
        )
        lengths = {tensor: tuple(self._shape(tensor)[axis] for axis in group.axes) for tensor in parts}
        loop = Loop(
            group.ops,
            group.axes,
            tiles,
            self._inputs[0],
            self._output,
            {tensor: graph.tensors[tensor].name for tensor in parts if tensor not in aliases},
            {tensor: part for tensor, part in parts.items() if tensor not in aliases},
            lengths,
            (),
            (),
            steps,
        )
        everything = replace(loop, parts=dict(parts))
        for op in group.ops:
            if self._takes_range(op) and any(map(any, everything.outside(graph.ops[op].outputs[0]))):
                # There the tensor that it is a part of has other elements.
                raise RefusedError(
                    f"op '{graph.ops[op].name}' ({graph.ops[op].type}): a layer pads what it takes", "pads-taken"
                )
        given = self._first(loop)
        others = tuple(tensor for tensor in self._inputs if tensor != given)
        loop = replace(loop, input=given, side_inputs=others, side_outputs=self._side_outputs)
        if not all(map(loop.covers, self._side_outputs)):
            raise RefusedError("its tiles do not cover what it makes beside its output", "not-covered")
        for step in steps:
            if step.window is not None and any(map(any, loop.outside(step.output))):
                raise RefusedError(
                    f"op '{step.name}': what it makes is padded, and so is what it reads", "padded-twice"
                )
        inner = [step.output for step in steps if step.output != self._output]
        masked = tuple(tensor for tensor in inner if tensor in self._windowed and any(map(any, loop.outside(tensor))))
        pads = list(loop.outside(given))
        pads[0] = pads[0][0] + group.lead, pads[0][1]
        loop = replace(loop, masked=masked, pads=tuple(pads))
        return loop.padded_inside() if group.pads_inside else loop

    def _first(self, loop: Loop) -> int:
        """Return the input that is padded; where none is, one that is gone afterwards, and of those the largest."""
        candidates = [tensor for tensor in self._inputs if tensor in self._needs]
        if not candidates:
            raise RefusedError("layers that pad by themselves read all that it reads", "all-pad")
        padded = [tensor for tensor in candidates if any(map(any, loop.outside(tensor)))]
        if len(padded) > 1:
            raise RefusedError("a loop pads one of its inputs at most", "two-padded")
        if padded:
            return padded[0]
        graph, last = self._graph, self._group.ops[-1]
        readers = readers_of(graph) if self._readers is None else self._readers

        def worth(tensor: int) -> tuple[bool, bool, int]:
            stays = tensor in graph.outputs or any(op > last for op in readers[tensor])
            return not loop.windowed(tensor), not stays, graph.tensors[tensor].size

        return max(candidates, key=worth) if len(candidates) > 1 else candidates[0]

    def _pads(self, op: int) -> bool:
        return self._graph.ops[op].type == self._dialect.pad_type

    def _shows(self, op: int) -> bool:
        """Return whether an op makes nothing but its input, seen at another offset."""
        return self._pads(op) or self._takes_range(op)

    def _takes_range(self, op: int) -> bool:
        return takes_range(self._graph.ops[op], self._geometries[op])

    def _crop(self, read: LoopRead, parts: Mapping[int, LoopPart], aliases: Mapping[int, int]) -> LoopRead:
        """Return a read of what the body holds: what a pad or a slice makes is its input, seen at another offset."""
        if read.window is not None:
            return read
        tensor, begin = read.tensor, read.offsets
        while tensor in aliases:
            op = next(op for op in self._group.ops if self._graph.ops[op].outputs[0] == tensor)
            rules = [self._geometries[op].operands[0][axis].rule for axis in self._group.axes]
            begin = tuple(at + _moved(rule) for at, rule in zip(begin, rules, strict=True))
            tensor = aliases[tensor]
        part = parts[tensor]
        offsets = tuple(at - offset for at, offset in zip(begin, part.offsets, strict=True))
        return LoopRead(read.position, tensor, offsets, read.sizes)

    def _step(self, op: int, parts: Mapping[int, LoopPart], reads: Sequence[LoopRead]) -> LoopStep:
        value = self._graph.ops[op]
        shape = self._shape(value.outputs[0])
        whole = math.prod(shape[axis] for axis in self._group.axes)
        part = parts[value.outputs[0]]
        macs = value.macs * math.prod(part.sizes) // whole if whole else 0
        return LoopStep(op, value.origin or value.name, value.outputs[0], tuple(reads), macs)

    def _reads(self, op: int, part: LoopPart) -> tuple[LoopRead, ...]:
        """Return what an op reads for a part of its output; its offsets are those of the tensor, not of a part."""
        value, geometry = self._graph.ops[op], self._geometries[op]
        self._check_constants(value, geometry)
        found = []
        for position, tensor in zip(value.positions, value.inputs, strict=True):
            window = self._window(value, geometry, position, part)
            if window is not None:
                found.append(LoopRead(position, tensor, window.offsets, window.sizes, window))
                continue
            needed = self._needed(value, geometry, position, part)
            self._needs.setdefault(tensor, []).append(needed)
            found.append(LoopRead(position, tensor, needed.offsets, needed.sizes))
        return tuple(found)

    def _window(self, op: Op, geometry: Geometry, position: int, part: LoopPart) -> LoopPart | None:
        """Return what a pool with padding reads of an input of the loop, in steps of one; None for all others."""
        tensor, maps = op.inputs[op.positions.index(position)], geometry.operands[position]
        if op.type not in POOLS or tensor not in self._inputs or op.attributes.get("padding") != "SAME":
            return None
        rules = [maps[axis].rule for axis in self._group.axes if axis < len(maps) and maps[axis].output == axis]
        windows = [rule for rule in rules if isinstance(rule, Window) and rule.stride == rule.dilation == 1]
        if len(windows) < len(part.sizes) or not any(rule.pad_before or rule.pad_after for rule in windows):
            return None
        lengths = [self._shape(tensor)[axis] for axis in self._group.axes]
        kernels = zip(part.sizes, windows, lengths, strict=True)
        sizes = tuple(min(length, size + rule.kernel - 1) for size, rule, length in kernels)
        begins = tuple(at - rule.pad_before for at, rule in zip(part.offsets, windows, strict=True))
        return LoopPart(part.strides, begins, sizes)

    def _needed(self, op: Op, geometry: Geometry, position: int, part: LoopPart) -> LoopPart:
        strides, offsets, sizes = [], [], []
        maps = geometry.operands[position]
        for place, axis in enumerate(self._group.axes):
            one = maps[axis] if axis < len(maps) else None
            stride, offset, size = part.strides[place], part.offsets[place], part.sizes[place]
            if one is None or one.output != axis:
                raise RefusedError(
                    f"op '{op.name}' ({op.type}): axis {axis} of what it reads is not that of its output", "axis-moved"
                )
            if isinstance(one.rule, Window):
                self._check_window(op, one.rule)
                stride, offset = stride * one.rule.stride, offset * one.rule.stride - one.rule.pad_before
                size = (size - 1) * one.rule.stride + (one.rule.kernel - 1) * one.rule.dilation + 1
                if one.rule.kernel > 1 or one.rule.pad_before or one.rule.pad_after:
                    tensor = op.inputs[op.positions.index(position)]
                    self._windowed.add(tensor)
            elif isinstance(one.rule, Stride) and op.type in RANGED and one.rule.step > 0:
                stride, offset = stride * one.rule.step, offset * one.rule.step + one.rule.begin
                size = (size - 1) * one.rule.step + 1
            elif not isinstance(one.rule, Pointwise):
                raise RefusedError(
                    f"op '{op.name}' ({op.type}): it is no layer with a window or on single elements", "no-window"
                )
            strides.append(stride)
            offsets.append(offset)
            sizes.append(size)
        if any(other.output in self._group.axes and axis not in self._group.axes for axis, other in enumerate(maps)):
            raise RefusedError(f"op '{op.name}' ({op.type}): it moves an axis that is cut", "axis-moved")
        return LoopPart(tuple(strides), tuple(offsets), tuple(sizes))

    def _check_window(self, op: Op, rule: Window) -> None:
        if op.type in POOLS and (rule.pad_before or rule.pad_after):
            raise RefusedError(f"op '{op.name}' ({op.type}): a pool's padding is no value", "pool-padding")

    def _check_constants(self, op: Op, geometry: Geometry) -> None:
        given = set(op.positions)
        for position, maps in geometry.operands.items():
            if position not in given and any(one.output in self._group.axes for one in maps):
                raise RefusedError(
                    f"op '{op.name}' ({op.type}): a constant of it varies along an axis that is cut", "constant-varies"
                )

    def _shape(self, tensor: int) -> tuple[int, ...]:
        shape = self._graph.tensors[tensor].shape
        if shape is None:
            raise RefusedError(f"the shape of '{self._graph.tensors[tensor].name}' is unknown", "unknown-shape")
        return shape


def takes_range(op: Op, geometry: Geometry) -> bool:
    """Return whether an op is a slice without steps."""
    rules = [one.rule for one in geometry.operands.get(0, ())]
    return op.type in RANGED and all(isinstance(rule, Stride) and rule.step == 1 for rule in rules)


def _moved(rule: object) -> int:
    """Return the element of a pad's or a slice's input at which its output begins."""
    if isinstance(rule, Window):
        return -rule.pad_before
    return rule.begin if isinstance(rule, Stride) else 0


def _begins(length: int, size: int) -> tuple[int, ...]:
    """Return where tiles of one size begin that cover a length; the last ends where it does."""
    return tuple(min(at, length - size) for at in range(0, length, size))


def _hull(needs: Sequence[LoopPart]) -> LoopPart:
    """Return the smallest part that holds all of ``needs``."""
    strides = needs[0].strides
    if any(one.strides != strides for one in needs):
        raise RefusedError("its readers move through a tensor at different paces", "paces-differ")
    axes = range(len(strides))
    offsets = tuple(min(one.offsets[axis] for one in needs) for axis in axes)
    ends = [max(one.offsets[axis] + one.sizes[axis] for one in needs) for axis in axes]
    return LoopPart(strides, offsets, tuple(end - begin for begin, end in zip(offsets, ends, strict=True)))
