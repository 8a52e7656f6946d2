"""Which tensors may lie in the same bytes under a target's rules, and the conditions that no rule can lift."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeVar

from memsched.base.frozen import FrozenValue
from memsched.graph.dag import producers
from memsched.graph.model import Graph, Op
from memsched.lowering.slices import first_row, rows_before
from memsched.targets.model import InPlaceRule, PartViewRule, Target, ViewRule

_Rule = TypeVar("_Rule", ViewRule, PartViewRule, InPlaceRule)

__all__ = ["Sharing", "Views"]


class Views(FrozenValue, frozen=True):
    """Pairs (output, input) of an op whose output lies in the input's bytes or consists of them, and where.

    Attributes:
        offsets: As in `Op.view_offsets`.
    """

    pairs: tuple[tuple[int, int], ...] = ()
    offsets: tuple[int, ...] = ()


_NO_VIEWS = Views()


class Sharing:
    """The blocks of bytes that the tensors of one graph lie in, filled in file order.

    A tensor's *block* is itself, the block of the tensor that it is a view of, or the tensor that holds it as a
    part. ``views`` is called for every op in file order, then ``in_place`` for every op.

    Attributes:
        absorbed: Views that exist in the file alone, with their sources, whose size is then theirs: the op that reads
            them reads the source instead.
    """

    def __init__(self, graph: Graph, target: Target) -> None:
        self._graph = graph
        self._target = target
        self._block = list(range(len(graph.tensors)))
        self._source = [-1] * len(graph.tensors)
        self._inputs = frozenset(graph.inputs)
        self._outputs = frozenset(graph.outputs)
        self._variables = frozenset(graph.variables)
        self._producer = producers(graph)
        self._given = frozenset(tensor for tensor, op in enumerate(self._producer) if op < 0)
        self._pieces: set[int] = set()
        self._merged: set[int] = set()
        self._readers = readers = [0] * len(graph.tensors)
        self._reader = reader = [-1] * len(graph.tensors)
        self.absorbed: dict[int, int] = {}
        for index, op in enumerate(graph.ops):
            for tensor in op.inputs:
                if reader[tensor] != index:
                    reader[tensor] = index
                    readers[tensor] += 1
        self._view_rules = _by_type(target.views)
        self._part_rules = _by_type(target.part_views)
        self._write_rules = _by_type(target.in_place)

    def all_views(self) -> list[Views]:
        """Return the views of all ops, in file order."""
        ruled = self._view_rules.keys() | self._part_rules.keys()
        return [self.views(op) if op.type in ruled else _NO_VIEWS for op in self._graph.ops]

    def all_in_place(self) -> list[tuple[tuple[int, int], ...]]:
        """Return the pairs of all ops that may be written in place, in file order."""
        ruled = self._write_rules.keys()
        return [self.in_place(op) if op.type in ruled else () for op in self._graph.ops]

    def views(self, op: Op) -> Views:
        """Return what of ``op``'s outputs lies in its inputs' bytes or consists of them."""
        if op.effects.random:  # a Dropout in training mode is neither left out nor a copy
            return _NO_VIEWS
        for rule in self._view_rules.get(op.type, ()):
            if rule.after and len(op.inputs) > 1:
                continue  # as `_is_view` would find, in a tenth of the time
            source = _at(op, rule.input)
            if op.outputs and source is not None and self._is_view(op, rule, source):
                if rule.after:
                    self._merged.add(op.outputs[0])
                if rule.before:
                    self.absorbed[op.outputs[0]] = source
                self._lay(op.outputs[0], source)
                return Views(((op.outputs[0], source),))
        for part in self._part_rules.get(op.type, ()) if op.outputs else ():
            found = self._concatenation(op, op.outputs[0]) if part.kind == "concatenation" else self._rows(op, part)
            if found.pairs:
                return found
        return _NO_VIEWS

    def _is_view(self, op: Op, rule: ViewRule, source: int) -> bool:
        """Whether the first output of ``op`` is the bytes of ``source``, as the rule says."""
        output, tensors = op.outputs[0], self._graph.tensors
        if rule.before:
            return self._may_show(output, source) and self._absorbed(op, rule)
        if not self._whole_view(output, source):
            return False
        if rule.match == "type":
            made, read = tensors[output], tensors[source]
            alike = made.shape is not None and made.shape_in_file() == read.shape_in_file()
            unread = not any(self._readers[other] or other in self._outputs for other in op.outputs[1:])
            return alike and made.dtype == read.dtype and unread and len(op.inputs) == 1
        return not rule.after or self._merges(op, rule, source)

    def _absorbed(self, op: Op, rule: ViewRule) -> bool:
        """Whether the runtime makes one op of ``op`` and the one behind it, as the rule says."""
        output = op.outputs[0]
        if len(op.outputs) > 1 or len(op.inputs) > 1 or self._readers[output] != 1 or output in self._outputs:
            return False
        behind = self._graph.ops[self._reader[output]]
        fits = behind.type in rule.before and _at(behind, 0) == output and behind.inputs.count(output) == 1
        return fits and (rule.constant != "zero_pads" or (_pads_with_zeros(op) and _pads_itself(behind)))

    def _merges(self, op: Op, rule: ViewRule, source: int) -> bool:
        """Whether the runtime makes one op of ``op`` and the one before it, as the rule says."""
        first = source
        while first in self._merged:
            first = self._source[first]
        before = self._graph.ops[self._producer[first]] if self._producer[first] >= 0 else None
        if before is None or before.type not in rule.after or len(op.inputs) > 1 or len(before.inputs) > 1:
            return False
        if rule.sole_reader and (self._readers[source] != 1 or source in self._outputs):
            return False
        if rule.constant == "scalar":
            return op.attributes.get("constant_shape_1") == ()
        return rule.constant == "any" or _for_channels(op, self._graph.tensors[source].shape)

    def in_place(self, op: Op) -> tuple[tuple[int, int], ...]:
        """Return the pairs (output, input) of ``op`` where the output may be written over the input."""
        if not op.outputs or op.type not in self._write_rules or not self._may_overwrite_with(op.outputs[0]):
            return ()
        output = op.outputs[0]
        pairs = []
        for rule in self._write_rules[op.type]:
            for index, tensor in enumerate(op.inputs):
                position = op.positions[index] if op.positions else index
                if rule.inputs is not None and position not in rule.inputs:
                    continue
                if self._may_write(op, rule, output, tensor):
                    pairs.append((output, tensor))
        return tuple(dict.fromkeys(pairs))

    def _lay(self, output: int, source: int) -> None:
        self._block[output] = self._block[source]
        self._source[output] = source

    def _aligned(self, offset: int) -> bool:
        """Whether a part may begin ``offset`` bytes from the beginning of what it lies in."""
        return not (self._target.align_parts and offset % self._target.alignment_bytes)

    def _may_show(self, output: int, source: int) -> bool:
        """A view of a state would change with it; an output that owns its bytes is no view."""
        tensors = self._graph.tensors
        return (
            tensors[output].sized
            and tensors[source].sized
            and not {output, source} & self._variables
            and not (self._target.outputs_own and output in self._outputs)
            and not tensors[output].external
        )

    def _whole_view(self, output: int, source: int) -> bool:
        tensors = self._graph.tensors
        return self._may_show(output, source) and tensors[output].size == tensors[source].size

    def _rows(self, op: Op, rule: PartViewRule) -> Views:
        """Outputs that are whole, consecutive rows of one input, and the bytes at which they begin."""
        source = _at(op, rule.input)
        shape = None if source is None else self._graph.tensors[source].shape
        if source is None or not shape:
            return _NO_VIEWS
        axis, whole = _outermost(shape), self._graph.tensors[source].size
        outputs = op.outputs if rule.kind == "split" else op.outputs[:1]
        if rule.kind == "split":
            rows = rows_before([self._graph.tensors[output].shape for output in outputs], shape, axis)
        else:
            rows = [first_row(op, shape, axis)]
        found = []
        for output, row in zip(outputs, rows, strict=True):
            # Rows of 4-bit elements may end within a byte.
            if row is None or row * whole % max(shape[axis], 1):
                continue
            begin = row * whole // max(shape[axis], 1)
            if self._may_show(output, source) and self._are_rows(output, source) and self._aligned(begin):
                self._lay(output, source)
                found.append((output, begin))
        offsets = tuple(begin for _, begin in found)
        return Views(tuple((output, source) for output, _ in found), offsets if any(offsets) else ())

    def _are_rows(self, output: int, source: int) -> bool:
        """Whether the shapes differ on the outermost non-unit axis only, and rows are whole bytes."""
        part, whole = self._graph.tensors[output], self._graph.tensors[source]
        if part.shape is None or whole.shape is None or len(part.shape) != len(whole.shape):
            return False
        axis = _outermost(whole.shape)
        same = part.shape[:axis] + part.shape[axis + 1 :] == whole.shape[:axis] + whole.shape[axis + 1 :]
        return same and part.size * whole.shape[axis] == whole.size * part.shape[axis] if whole.shape else False

    def _concatenation(self, op: Op, output: int) -> Views:
        """All inputs inside the output, one after the other, or none: a piece that is copied would leave a hole."""
        tensors = self._graph.tensors
        shape, axis = tensors[output].shape, op.attributes.get("axis")
        if shape is None or not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            return _NO_VIEWS
        outer = shape[: axis % len(shape)]
        blocks = [self._block[piece] for piece in op.inputs]
        fits = sum(tensors[piece].size for piece in op.inputs) == tensors[output].size
        computes = op.attributes.get("fused_activation_function", "NONE") != "NONE"
        begins = itertools.accumulate([0, *[tensors[piece].size for piece in op.inputs[:-1]]])
        aligned = all(self._aligned(begin) for begin in begins)
        if computes or any(size != 1 for size in outer) or not fits or not aligned or len(set(blocks)) < len(blocks):
            return _NO_VIEWS
        if not all(self._may_show(output, piece) and self._is_piece(piece) for piece in op.inputs):
            return _NO_VIEWS
        self._pieces.update(blocks)
        return Views(tuple((output, piece) for piece in op.inputs))

    def _is_piece(self, tensor: int) -> bool:
        """A block of its own that lies in no other concatenation."""
        block = self._block[tensor]
        whole = self._graph.tensors[block].size == self._graph.tensors[tensor].size
        owned = self._target.outputs_own and block in self._outputs
        return whole and not self._graph.tensors[block].external and not owned and block not in self._pieces

    def _may_overwrite_with(self, output: int) -> bool:
        own = self._block[output] == output
        kept = self._target.outputs_own and output in self._outputs
        return own and output not in self._variables and not kept

    def _may_write(self, op: Op, rule: InPlaceRule, output: int, source: int) -> bool:
        tensors = self._graph.tensors
        block = self._block[source]
        given = block in self._given and not (self._target.overwrite_inputs and block in self._inputs)
        if given or tensors[block].external or block in self._variables or block in self._pieces:
            return False
        new, old = tensors[output], tensors[source]
        # Values of unknown size have size 0, which no rule is above.
        if not new.size == old.size == tensors[block].size or new.size <= rule.above_bytes:
            return False
        if new.shape is None or old.shape is None:
            return False
        if new.shape != old.shape and (rule.match != "bytes" or math.prod(new.shape) != math.prod(old.shape)):
            return False
        if rule.match == "stated_shape" and (new.shape_in_file() is None or new.shape_in_file() != old.shape_in_file()):
            return False
        return self._read_once(op, rule, source) and (not rule.sole_reader or self._sole_reader(source))

    def _read_once(self, op: Op, rule: InPlaceRule, source: int) -> bool:
        """Whether ``source`` can be overwritten element by element without losing values that the op still reads."""
        if len(op.inputs) == 1:
            return True
        same = [tensor for tensor in op.inputs if self._block[tensor] == self._block[source]]
        if len(same) == 1:
            return True
        shape = self._graph.tensors[source].shape
        return rule.elementwise and all(self._graph.tensors[tensor].shape == shape for tensor in same)

    def _sole_reader(self, tensor: int) -> bool:
        """Whether every tensor from here to the source of the views has a single reader."""
        while tensor >= 0:
            if self._readers[tensor] != 1:
                return False
            tensor = self._source[tensor]
        return True


def _by_type(rules: Sequence[_Rule]) -> dict[str, list[_Rule]]:
    result: dict[str, list[_Rule]] = {}
    for rule in rules:
        for name in rule.ops:
            result.setdefault(name, []).append(rule)
    return result


def _at(op: Op, position: int) -> int | None:
    """Return the tensor at the operator's own input ``position``; None for a constant or an absent one."""
    positions = op.positions or range(len(op.inputs))
    return next((tensor for tensor, at in zip(op.inputs, positions, strict=True) if at == position), None)


def _for_channels(op: Op, shape: tuple[int, ...] | None) -> bool:
    """Whether the constant that ``op`` reads has one value for each channel, the second axis of ``shape``."""
    constant = op.attributes.get("constant_shape_1")
    if shape is None or len(shape) < 2 or not isinstance(constant, tuple):
        return False
    wanted = (shape[1], *(1,) * (len(shape) - 2))
    return constant in (wanted, (1, *wanted))


def _pads_with_zeros(op: Op) -> bool:
    """Whether ``op`` puts zeros, a known number of them, around axes behind the first two."""
    pads, value = op.attributes.get("pads"), op.attributes.get("constant_value", op.attributes.get("value", 0))
    if op.attributes.get("mode", "constant") != "constant" or not isinstance(pads, tuple) or "axes" in op.attributes:
        return False
    zero = not any(value) if isinstance(value, tuple) else value == 0
    given = "constant_shape_2" in op.attributes or "constant_shape_3" in op.attributes
    rank = len(pads) // 2
    outer = (*pads[:2], *pads[rank : rank + 2])
    return zero and not given and rank > 2 and not any(outer) and all(int(pad) >= 0 for pad in pads)


def _pads_itself(op: Op) -> bool:
    """Whether ``op`` states its pads, so that more can be added to them."""
    return op.attributes.get("auto_pad", "NOTSET") == "NOTSET"


def _outermost(shape: tuple[int, ...]) -> int:
    """Return the outermost axis whose size is not 1; 0 where all are."""
    return next((axis for axis, size in enumerate(shape) if size != 1), 0)
