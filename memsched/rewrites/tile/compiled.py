"""Groups in pieces judged by the compiled core: the same figures as `local` finds in Python, many times faster.

The core is told of every op once, and of what an op needs for a part of its output when it first meets that part. What
it does not know, such as rules by which a runtime makes one op of two, it leaves to Python.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from memsched.base.frozen import FrozenValue
from memsched.core.library import Core
from memsched.graph.dialect import Attributes, Dialect
from memsched.graph.model import Graph, Op, Region, Tensor
from memsched.lowering.apply import NIBBLES, Workspaces
from memsched.lowering.litert_kernels import has_own_memory, lasting_bytes, own_memory
from memsched.lowering.prices import PARTIAL, weight_bytes
from memsched.ops.rules import Geometry, Pointwise, Refusal, WholeAxis, Window
from memsched.rewrites.tile.pieces import Members, Runs, TilingGroup
from memsched.rewrites.tile.rewrite import RANGED
from memsched.rewrites.tile.runs import OpPiece, run_of
from memsched.targets.model import Target

__all__ = ["CompiledPieces", "PieceFigures", "WrittenFigures", "compiled_pieces", "without_kept"]

_DONE, _REFUSED, _MISSING, _FOREIGN, _NO_MEMORY = range(5)


class PieceFigures(FrozenValue, frozen=True):
    """What is known of a group's pieces before they are written.

    Attributes:
        least: Bytes that they cannot do without, beside what the group is given.
        runs: Per op of the group how often it is run.
    """

    least: int
    macs: int
    runs: tuple[int, ...]


class WrittenFigures(FrozenValue, frozen=True):
    """What is known of a group's pieces once they are written.

    Attributes:
        peak: The largest footprint with what their kernels keep, bytes.
        moved: Bytes that their ops read and make.
        weights: Bytes of weights that they read.
        cuts_last_axis: A run of an op makes less along the last axis than the op does.
        slices: How many there are; so for ``concats`` and ``pads``.
    """

    peak: int
    macs: int
    moved: int
    weights: int
    cuts_last_axis: bool
    slices: int
    concats: int
    pads: int


class _NoWordsError(Exception):
    """The core has no words for an op."""


def compiled_pieces(
    graph: Graph,
    target: Target,
    dialect: Dialect,
    geometries: Mapping[int, Geometry | Refusal],
    sharing: frozenset[str],
    runs: Runs,
    core: ctypes.CDLL,
) -> CompiledPieces | None:
    """Return what judges groups of ``graph``; None where the target's rules are not known to the core.

    Args:
        sharing: Types of ops whose output may take the bytes of an input.
        runs: Runs of ops that were found before; new ones are added.
    """
    helpers = (dialect.slice_type, dialect.concat_type, dialect.pad_type)
    if target.int4_bytes_per_element == 1 and any(tensor.dtype in NIBBLES for tensor in graph.tensors):
        return None
    parts = [rule for rule in target.part_views if {*rule.ops} & {*helpers}]
    known = {("slice", dialect.slice_type, 0), ("concatenation", dialect.concat_type, 0)}
    joined = [(rule.kind, name, rule.input) for rule in parts for name in rule.ops if name in helpers]
    shared = [*(rule.ops for rule in target.views), *(rule.ops for rule in target.in_place)]
    whole = any({*ops} & {*helpers[:2]} for ops in shared)
    off_last = any(rule.when != "always" and {*rule.ops} & {*helpers} for rule in target.workspace)
    if whole or off_last or not {*joined} <= known or len({*joined}) < len(joined):
        return None
    return CompiledPieces(graph, target, dialect, geometries, sharing, runs, core)


class CompiledPieces:
    """Judges groups of one graph; see `compiled_pieces`."""

    def __init__(
        self,
        graph: Graph,
        target: Target,
        dialect: Dialect,
        geometries: Mapping[int, Geometry | Refusal],
        sharing: frozenset[str],
        runs: Runs,
        core: ctypes.CDLL,
    ) -> None:
        self._graph, self._target, self._dialect, self._core, self._runs = graph, target, dialect, core, runs
        self._geometries = geometries
        self._words = _CoreWords(graph, target, dialect, geometries, sharing)
        core.memsched_pieces_new.restype = ctypes.c_void_p
        core.memsched_pieces_free.argtypes = [ctypes.c_void_p]
        for function in (core.memsched_pieces_add, core.memsched_pieces_plan, core.memsched_pieces_evaluate):
            function.argtypes = [ctypes.c_void_p] * len(_PARAMETERS[function.__name__])
        self._handle: int | None = core.memsched_pieces_new(_array(self._words.of_graph()))
        if self._handle is None:
            raise MemoryError
        most = 7 + 2 * Core.MOST_AXES + len(graph.ops)
        self._found = (ctypes.c_int64 * most)()

    def __del__(self) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle is not None:
            self._core.memsched_pieces_free(handle)

    def plan(
        self, group: TilingGroup, members: Members, stays: Sequence[bool], most_macs: int
    ) -> PieceFigures | Refusal | None:
        """Return what is known of a group's pieces, or why it cannot be cut so; None where Python has to say.

        Args:
            stays: Per input of the group whether something reads it afterwards.
            most_macs: Multiply-accumulates that all pieces together may take.
        """
        words = _array(self._group_words(group, members, stays, most_macs))
        status = self._core.memsched_pieces_plan(self._handle, words, self._found)
        while status == _MISSING:
            self._add_missing()
            status = self._core.memsched_pieces_plan(self._handle, None, self._found)
        self._check(status)
        if status == _FOREIGN:
            return None
        if status == _REFUSED:
            return Refusal("it cannot be cut so, or takes more extra work than is permitted", "much-work")
        return PieceFigures(self._found[0], self._found[1], tuple(self._found[2 : 2 + len(group.ops)]))

    def evaluate(self) -> WrittenFigures | None:
        """Return what the group planned last costs; None where Python has to say."""
        status = self._core.memsched_pieces_evaluate(self._handle, self._found)
        self._check(status)
        if status == _FOREIGN:
            return None
        peak, macs, moved, last, slices, concats, pads, weights = self._found[:8]
        return WrittenFigures(peak, macs, moved, weights, bool(last), slices, concats, pads)

    @staticmethod
    def _check(status: int) -> None:
        if status == _NO_MEMORY:
            raise MemoryError

    def _group_words(self, group: TilingGroup, members: Members, stays: Sequence[bool], most: int) -> list[int]:
        graph, target = self._graph, self._target
        read = {tensor for op in group.ops for tensor in graph.ops[op].inputs}
        made = {tensor for op in group.ops for tensor in graph.ops[op].outputs}
        return [
            *(group.ops[0], group.ops[-1], len(group.axes), *group.axes, *group.counts),
            *(len(group.kept), *group.kept, len(group.padded), *group.padded, len(members.inputs)),
            *(word for tensor, later in zip(members.inputs, stays, strict=True) for word in (tensor, int(later))),
            *(len(members.outputs), *members.outputs),
            int(target.overwrite_inputs if read & set(graph.inputs) else True),
            int(target.outputs_own and bool(made & set(graph.outputs))),
            most,
        ]

    def _add_missing(self) -> None:
        number, padded, axes = self._found[0], bool(self._found[1]), self._found[2]
        ends = self._found[3 : 3 + 2 * axes]
        wanted = Region(tuple(zip(ends[::2], ends[1::2], strict=True)))
        words = self._words.of_run(number, wanted, padded=padded, known=self._runs)
        self._check(self._core.memsched_pieces_add(self._handle, _array(words)))


_PARAMETERS = {
    "memsched_pieces_add": ("handle", "words"),
    "memsched_pieces_plan": ("handle", "words", "found"),
    "memsched_pieces_evaluate": ("handle", "found"),
}


def _array(words: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(words))(*words)


class _CoreWords:
    """Puts a graph under a target into the core's words, as pieces.cpp reads them."""

    def __init__(
        self,
        graph: Graph,
        target: Target,
        dialect: Dialect,
        geometries: Mapping[int, Geometry | Refusal],
        sharing: frozenset[str],
    ) -> None:
        self._graph, self._target, self._dialect = graph, target, dialect
        self._geometries, self._sharing = geometries, sharing
        self._workspaces = Workspaces.of(target)
        self._own: dict[tuple[int, tuple[tuple[int, ...], ...]], tuple[int, int]] = {}
        self._tied = {op for pair in graph.dependencies for op in pair}

    def of_graph(self) -> list[int]:
        """Return the graph."""
        target, dialect = self._target, self._dialect
        joins = [name for rule in target.part_views for name in rule.ops]
        shared = [*(rule.ops for rule in target.views), *(rule.ops for rule in target.in_place), joins]
        padding = any(dialect.pad_type in ops for ops in shared)
        words = [
            *(len(self._graph.tensors), len(self._graph.ops), target.alignment_bytes, int(target.align_parts)),
            *(int(dialect.slice_type in joins), int(dialect.concat_type in joins), int(not padding)),
            *(dialect.most_joined or 0, int(dialect.slice_type in PARTIAL)),
        ]
        helpers = (dialect.slice_type, dialect.concat_type, dialect.pad_type)
        words += [_bits(float(self._workspaces.always.get(name, 0))) for name in helpers]
        given = set(self._graph.inputs) if target.inputs != "arena" else set()
        for number, tensor in enumerate(self._graph.tensors):
            shape = tensor.shape or ()
            shape = shape if len(shape) <= Core.MOST_AXES else ()
            words += [
                tensor.size,
                int(tensor.external or number in given),
                *_ends(((0, size) for size in shape), len(shape)),
            ]
        for number in range(len(self._graph.ops)):
            words += self._op(number)
        return words

    def _op(self, number: int) -> list[int]:
        op = self._graph.ops[number]
        tied, output = int(number in self._tied), op.outputs[0] if op.outputs else 0
        try:
            return [1, tied, output, *self._known_op(number, op)]
        except _NoWordsError:
            return [0, tied, output]

    def _known_op(self, number: int, op: Op) -> list[int]:
        geometry = self._geometries[number]
        tensors = [self._graph.tensors[tensor] for tensor in (*op.inputs, *op.outputs)]
        if (
            isinstance(geometry, Refusal)
            or len(op.outputs) != 1
            or not all(map(_plain, tensors))
            or tensors[-1].external
        ):
            raise _NoWordsError
        if len(op.inputs) > Core.MOST_INPUTS or any(position not in geometry.operands for position in op.positions):
            raise _NoWordsError
        view, joins = self._views(op)
        axis = op.attributes.get("axis")
        units = self._workspaces.units(self._graph, op)
        words = [
            *(int(op.type in self._sharing), int(op.type in RANGED), int(self._has_own_memory(number))),
            *(int(joins and isinstance(axis, int)), int(_computes(op)), int(op.type in PARTIAL)),
            *(axis if isinstance(axis, int) else 0, view),
            *(len(geometry.shape), max(1, _product(geometry.shape)), op.macs, op.workspace, _bits(float(units))),
            len(op.inputs),
        ]
        for tensor, position in zip(op.inputs, op.positions, strict=True):
            maps = geometry.operands[position]
            words += [tensor, len(maps)]
            words += [word for one in maps for word in (one.output, _rule(one.rule), getattr(one.rule, "stride", 1))]
        by_size = self._dialect.pads_by_size(op)
        words += [end for axis in range(len(geometry.shape)) for end in _interior(geometry, axis, by_size=by_size)]
        return [*words, *self._writes(op)]

    def _has_own_memory(self, number: int) -> bool:
        """Whether the kernel of an op needs memory of its own, which follows the shapes of what it computes."""
        op = self._graph.ops[number]
        found = own_memory(self._graph, op) if self._target.kernels_keep_memory and has_own_memory(op) else None
        return found is not None and bool(found.during or found.lasting or found.heap)

    def _views(self, op: Op) -> tuple[int, bool]:
        """Return which input the output is a view of, -1 for none, and whether it is made of all inputs."""
        views = []
        for rule in self._target.views:
            if op.type not in rule.ops:
                continue
            alone = len(op.inputs) == 1
            if rule.before or (alone and (rule.after or rule.match == "type")):
                raise _NoWordsError
            if not rule.after and rule.match != "type":
                views.append(rule.input)
        parts = [rule for rule in self._target.part_views if op.type in rule.ops]
        if len(views) > 1 or len(parts) > 1 or any(rule.kind != "concatenation" for rule in parts):
            raise _NoWordsError
        return op.positions.index(views[0]) if views and views[0] in op.positions else -1, bool(parts)

    def _writes(self, op: Op) -> list[int]:
        rules = [rule for rule in self._target.in_place if op.type in rule.ops]
        words = [len(rules)]
        for rule in rules:
            places = [at for at, position in enumerate(op.positions) if rule.inputs is None or position in rule.inputs]
            words += [
                *(rule.above_bytes, int(rule.match != "bytes"), int(rule.sole_reader), int(rule.elementwise)),
                sum(1 << place for place in places),
            ]
        return words

    def of_run(self, number: int, wanted: Region, *, padded: bool, known: Runs) -> list[int]:
        """Return the run of op ``number`` that computes ``wanted``."""
        op, geometry = self._graph.ops[number], self._geometries[number]
        words = [number, int(padded), *_ends(wanted.ranges, len(wanted.ranges))]
        if isinstance(geometry, Refusal):
            return [*words, 1]
        key = (op.name, wanted, padded)
        run = known.get(key) or run_of(op, number, geometry, wanted, self._dialect, padded=padded)
        if isinstance(run, Refusal):
            return [*words, 1]
        known[key] = run
        words += [0, *_ends(run.computed.ranges, len(run.computed.ranges)), len(run.reads)]
        for region in run.reads:
            words += _ends(region.ranges, len(region.ranges))
        words += [len(run.padding), *(word for pair in run.padding for word in pair), run.macs]
        weights = weight_bytes(self._graph, replace(op, attributes=run.attributes))
        return [*words, weights, *self._own_memory(number, run)]

    def _own_memory(self, number: int, run: OpPiece) -> tuple[int, int]:
        """Return what the kernel of a run needs during its step, and what it keeps, bytes."""
        if not self._target.kernels_keep_memory:
            return 0, 0
        shapes = [region.lengths for region in (*run.reads, run.computed)]
        if run.padding:
            shapes[0] = tuple(size + sum(pads) for size, pads in zip(shapes[0], run.padding, strict=True))
        key = number, tuple(shapes)
        if key not in self._own:
            self._own[key] = self._own_memory_of(replace(self._graph.ops[number], attributes=run.attributes), shapes)
        return self._own[key]

    def _own_memory_of(self, op: Op, shapes: Sequence[tuple[int, ...]]) -> tuple[int, int]:
        given = [self._graph.tensors[tensor] for tensor in (*op.inputs, *op.outputs)]
        tensors = tuple(_part(tensor, shape) for tensor, shape in zip(given, shapes, strict=True))
        attributes = without_kept(op.attributes)
        alone = replace(op, inputs=tuple(range(len(op.inputs))), outputs=(len(op.inputs),), attributes=attributes)
        graph = Graph("run", tensors, (alone,), (), ())
        return own_memory(graph, alone).step_bytes, lasting_bytes(graph)


def without_kept(attributes: Attributes) -> Attributes:
    """Return an op's attributes without the constants that are kept once, however many pieces of it there are."""
    return {name: value for name, value in attributes.items() if name not in {"constant_kept", "constant_kept_bytes"}}


def _plain(tensor: Tensor) -> bool:
    return tensor.sized and tensor.shape is not None and len(tensor.shape) <= Core.MOST_AXES


def _computes(op: Op) -> bool:
    return op.attributes.get("fused_activation_function", "NONE") != "NONE"


def _rule(rule: object) -> int:
    if isinstance(rule, Pointwise) or rule == Window(1):
        return 1
    return 2 if isinstance(rule, WholeAxis) else 0


def _interior(geometry: Geometry, axis: int, *, by_size: bool) -> tuple[int, int]:
    """Return the output range along an axis within which every part needs the same of all operands, but for its place.

    It is empty where nothing is known of it.

    Args:
        by_size: The op pads by the size of its input: then a piece of it reads a little more than it needs.
    """
    lowest, highest = 1, geometry.shape[axis] - 1
    if axis in geometry.fixed or (geometry.group is not None and axis == geometry.group[0]):
        return 0, 0
    for position, maps in geometry.operands.items():
        for place, one in enumerate(maps):
            if one.output != axis:
                continue
            if isinstance(one.rule, Window):
                rule, length = one.rule, geometry.shapes[position][place]
                reach = (rule.kernel - 1) * rule.dilation + 1
                margin = 2 * rule.stride + 1 if by_size else 0
                lowest = max(lowest, -(-(rule.pad_before + margin) // rule.stride))
                highest = min(highest, (length - margin - reach + rule.pad_before) // rule.stride + 1)
            elif not isinstance(one.rule, Pointwise):
                return 0, 0
    return lowest, highest


def _product(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _part(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    elements = _product(tensor.shape or ())
    size = -(-tensor.size * _product(shape) // elements) if elements else 0
    return Tensor(tensor.name, size, shape, tensor.dtype)


def _ends(ranges: Iterable[tuple[int, int]], axes: int) -> list[int]:
    return [axes, *(end for pair in ranges for end in pair)]


def _bits(number: float) -> int:
    """Return the bits of a double as a whole number."""
    return int(struct.unpack("<q", struct.pack("<d", number))[0])
