"""Checks of rewritten graphs: what a rewrite may change of the graph given, and that a file holds what was planned.

They rest on the model's values alone. That the pieces compute what the whole op did is shown by running both models.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from memsched.base.errors import InternalError
from memsched.graph.dialect import CONSTANT_SHAPE
from memsched.graph.loop import Loop
from memsched.graph.model import Graph, Op, Tensor
from memsched.ops.chains import LINKS, STANDS_FOR

__all__ = ["check_folded", "check_made_constants", "check_rewrite", "check_written"]


_MADE = "constant_made"
_CONSTANTS = (CONSTANT_SHAPE, "constant_kept", _MADE)


def check_rewrite(before: Graph, after: Graph) -> None:
    """Check that ``after`` is ``before`` with some ops replaced by pieces, copies, what joins them, or one for many.

    Every op is unchanged, a piece or copy of an op of ``before``, stands for several of them, or is a helper, which has
    no multiply-accumulates; every piece is as large as its region says; what an op makes is read, unless nothing read
    it before; the interface stays the same. An op that draws random numbers or has a state is there once, unchanged.

    Raises:
        InternalError: It is not.
    """
    given = {op.name: op for op in before.ops}
    known = {tensor.name: tensor for tensor in before.tensors}
    chains = _ChainCheck(before, after)
    for op in after.ops:
        if op.origin is not None:
            _check_piece(before, after, op, given.get(op.origin))
        elif op.name in given:
            _check_untouched(before, after, op, given[op.name])
        elif op.loop is not None:
            _check_loop(before, after, op, op.loop)
        elif op.chain:
            chains.check(op)
        elif op.macs:
            raise InternalError(f"op '{op.name}' computes something that the model does not", code="unknown-op")
    _check_tiles(after)
    _check_effects(before, after)
    made = {after.tensors[tensor].name for op in after.ops for tensor in op.outputs}
    for tensor in after.tensors:
        if tensor.name in known and _described(tensor) != _described(known[tensor.name]):
            raise InternalError(f"tensor '{tensor.name}' changed in size, shape or type", code="tensor-differs")
        if tensor.name not in known and tensor.name not in made:
            raise InternalError(f"tensor '{tensor.name}' is made by no op", code="not-made")
    if _interface(before) != _interface(after):
        raise InternalError("the rewritten graph has other inputs, outputs or variables", code="interface-differs")
    # What joins the pieces of such an op makes the tensor that the op made.
    unread = {name for op in _unread(before) for name in (op.name, *_made_by(before, op))}
    for op in _unread(after):
        if unread.isdisjoint((op.origin or op.name, *_made_by(after, op))):
            raise InternalError(f"op '{op.name}' computes what nothing reads", code="not-read")


def _check_effects(before: Graph, after: Graph) -> None:
    """Check that every op that must be executed once is there, that no other op computes it, and the order of these."""
    once = {op.name for op in before.ops if op.effects.once}
    names = {op.name for op in after.ops}
    if missing := sorted(once - names):
        raise InternalError(f"op '{missing[0]}' has effects and is no longer executed", code="effects-lost")
    for op in after.ops:
        steps = () if op.loop is None else [step.name for step in op.loop.steps]
        if not once.isdisjoint((*steps, *op.chain)) or (op.effects.once and op.name not in once):
            raise InternalError(f"op '{op.name}' executes an op that must be executed once", code="effects-repeated")
    ordered = {(after.ops[first].name, after.ops[second].name) for first, second in after.dependencies}
    for pair in ((before.ops[first].name, before.ops[second].name) for first, second in before.dependencies):
        if names.issuperset(pair) and pair not in ordered:
            raise InternalError(f"nothing keeps op '{pair[0]}' before '{pair[1]}' any more", code="dependency")


def _unread(graph: Graph) -> list[Op]:
    """Return the ops of which nothing is used, neither by an op nor as an output of the graph."""
    used = {*graph.outputs, *graph.variables, *(tensor for op in graph.ops for tensor in op.inputs)}
    return [op for op in graph.ops if op.outputs and used.isdisjoint(op.outputs)]


def _made_by(graph: Graph, op: Op) -> list[str]:
    return [graph.tensors[tensor].name for tensor in op.outputs]


def _check_untouched(before: Graph, after: Graph, op: Op, given: Op) -> None:
    outputs = [after.tensors[tensor].name for tensor in op.outputs]
    same = (op.type, op.positions, op.effects) == (given.type, given.positions, given.effects)
    same = same and dict(op.attributes) == dict(given.attributes)
    if (
        not same
        or len(op.inputs) != len(given.inputs)
        or outputs != [before.tensors[tensor].name for tensor in given.outputs]
    ):
        raise InternalError(f"op '{op.name}' keeps its name, but does something else", code="op-differs")
    for read, was in zip(op.inputs, given.inputs, strict=True):
        if _described(after.tensors[read])[1:] != _described(before.tensors[was])[1:]:
            raise InternalError(
                f"op '{op.name}' reads '{after.tensors[read].name}', which is of another kind", code="tensor-kind"
            )


def _check_piece(before: Graph, after: Graph, op: Op, origin: Op | None) -> None:
    if origin is None or (op.type, op.positions) != (origin.type, origin.positions):
        raise InternalError(f"op '{op.name}' is no piece of '{op.origin}'", code="no-piece")
    if not origin.effects.repeatable(custom=True):
        raise InternalError(f"op '{op.name}' executes '{op.origin}' again, which has effects", code="effects-repeated")
    if len(op.outputs) != len(origin.outputs) or len(op.inputs) != len(origin.inputs):
        raise InternalError(f"op '{op.name}' has other inputs or outputs than '{op.origin}'", code="piece-ends")
    if not op.outputs:
        return
    made, whole = after.tensors[op.outputs[0]], before.tensors[origin.outputs[0]]
    if op.region is None:
        if _described(made)[1:] != _described(whole)[1:]:
            raise InternalError(
                f"op '{op.name}' is a copy of '{op.origin}', but its output is of another kind", code="copy-kind"
            )
        return
    spans = op.region.ranges
    inside = whole.shape is not None and len(spans) == len(whole.shape)
    inside = inside and all(
        0 <= begin < end <= size for (begin, end), size in zip(spans, whole.shape or (), strict=True)
    )
    if not inside or made.shape != tuple(end - begin for begin, end in spans) or made.dtype != whole.dtype:
        raise InternalError(
            f"op '{op.name}' does not compute the region of '{op.origin}' that it states", code="region"
        )


def _check_loop(before: Graph, after: Graph, op: Op, loop: Loop) -> None:
    """Check that a loop runs ops of ``before`` once each, on tiles that cover what they make, from what it is given."""
    name = loop.names[loop.output]
    makers = {before.tensors[tensor].name: number for number, op in enumerate(before.ops) for tensor in op.outputs}
    made = [after.tensors[tensor].name for tensor in op.outputs[1 : 1 + len(loop.outputs)]]
    for place, one in enumerate(loop.names[tensor] for tensor in loop.outputs):
        if one not in makers or (loop.tile is None and one not in made[place : place + 1]):
            raise InternalError(f"loop '{op.name}' does not make '{one}'", code="not-made")
    known = {given.name: given for given in before.ops}
    names = [step.name for step in loop.steps]
    if len(set(names)) != len(names) or not known.keys() >= set(names):
        raise InternalError(
            f"loop '{op.name}' runs ops that the model does not have, or runs one twice", code="loop-ops"
        )
    _check_steps(op, loop)
    shapes = {tensor.name: tensor.shape or () for tensor in before.tensors}
    for tensor in loop.outputs:
        _check_covered(op, loop, tensor, shapes[loop.names[tensor]])
    padded = after.tensors[op.inputs[-1 - len(loop.side_inputs)]].shape or ()
    for place, axis in enumerate(loop.axes):
        begins = [begin[place] for begin in loop.taken()]
        if min(begins) < 0 or max(begins) + loop.taken_sizes()[place] > padded[axis]:
            raise InternalError(
                f"a tile of loop '{op.name}' reads past its padded input along axis {axis}", code="tile-outside"
            )
        if loop.inner_pads:
            _check_inner_padding(op, loop, place)
    _check_side_inputs(after, op, loop)
    _check_windows(op, loop)
    if sum(step.macs for step in loop.steps) * (loop.count if loop.tile is None else 1) != op.macs:
        raise InternalError(
            f"loop '{op.name}' has another number of multiply-accumulates than its tiles", code="work-differs"
        )
    if loop.tile is not None:
        cut = list(shapes[name])
        for axis, length in zip(loop.axes, loop.parts[loop.output].sizes, strict=True):
            cut[axis] = length
        if [after.tensors[tensor].shape for tensor in op.outputs] != [tuple(cut)]:
            raise InternalError(f"op '{op.name}' does not make a tile of '{name}'", code="tile-shape")


def _check_steps(op: Op, loop: Loop) -> None:
    """Check that a body reads what it is handed or has made, and makes what the loop does."""
    held = set(loop.inputs)
    for step in loop.steps:
        if not held.issuperset(read.tensor for read in step.reads):
            raise InternalError(
                f"op '{step.name}' in loop '{op.name}' reads what nothing made before it", code="read-unmade"
            )
        held.add(step.output)
    if not held.issuperset(loop.outputs):
        raise InternalError(
            f"no op in loop '{op.name}' makes '{loop.names[loop.output]}', or what is made beside it",
            code="loop-output-unmade",
        )


def _check_covered(op: Op, loop: Loop, tensor: int, shape: Sequence[int]) -> None:
    """Check that the parts of what a loop makes, which has this shape, lie inside that and make it up."""
    for place, axis in enumerate(loop.axes):
        size = loop.parts[tensor].sizes[place]
        covered = {at for begin in loop.begins(tensor) for at in range(begin[place], begin[place] + size)}
        if covered != set(range(shape[axis])):
            raise InternalError(
                f"the tiles of loop '{op.name}' do not cover '{loop.names[tensor]}' along axis {axis}",
                code="not-covered",
            )


def _check_side_inputs(after: Graph, op: Op, loop: Loop) -> None:
    """Check that a loop is handed what it reads beside its input, and that no tile reads past that."""
    handed = op.inputs[len(op.inputs) - len(loop.side_inputs) :]
    count = len(loop.inputs) + (len(loop.outputs) if loop.tile is None else 0)
    if len(op.inputs) != count or [after.tensors[tensor].name for tensor in handed] != [
        loop.names[tensor] for tensor in loop.side_inputs
    ]:
        raise InternalError(f"loop '{op.name}' is handed other tensors than it reads", code="side-inputs")
    for tensor, given in zip(loop.side_inputs, handed, strict=True):
        shape, sizes = after.tensors[given].shape or (), loop.parts[tensor].sizes
        for begin in loop.begins(tensor):
            ends = (at + size for at, size in zip(begin, sizes, strict=True))
            lengths = (shape[axis] for axis in loop.axes)
            if min(begin) < 0 or any(end > length for end, length in zip(ends, lengths, strict=True)):
                raise InternalError(
                    f"a tile of loop '{op.name}' reads past '{loop.names[tensor]}'", code="tile-outside"
                )


def _check_windows(op: Op, loop: Loop) -> None:
    """Check that what steps read of whole inputs lies inside them, and what they make of it holds what is needed."""
    for step in loop.steps:
        read = step.window
        if read is None:
            continue
        sizes = zip(loop.parts[step.output].sizes, read.sizes, strict=True)
        rooms = [made - part for part, made in sizes]
        held = all(0 <= at <= room for begin in loop.inside(step, read) for at, room in zip(begin, rooms, strict=True))
        lengths = zip(read.sizes, loop.lengths[read.tensor], strict=True)
        whole = read.tensor in loop.inputs and all(size <= length for size, length in lengths)
        moved = read.window is not None and read.window.sizes == read.sizes
        if not held or not whole or not moved or len(step.reads) > 1:
            raise InternalError(f"a tile of loop '{op.name}' does not hold what '{step.name}' needs", code="window")


def _check_inner_padding(op: Op, loop: Loop, place: int) -> None:
    """Check that what a body takes of its input holds, with padding around it, what each of its tiles needs."""
    part, length = loop.parts[loop.input], loop.lengths[loop.input][place]
    (before, after), first = loop.inner_pads[place], loop.pads[place][0]
    for needed, taken in zip(loop.begins(loop.input), loop.taken(), strict=True):
        begin, end = needed[place], needed[place] + part.sizes[place]
        held = taken[place] - first, taken[place] - first + loop.taken_sizes()[place]
        padded = held[0] - before <= begin and end <= held[1] + after
        if not padded or max(begin, 0) < held[0] or min(end, length) > held[1]:
            raise InternalError(
                f"a tile of loop '{op.name}' does not hold what it needs along axis {loop.axes[place]}", code="window"
            )


class _ChainCheck:
    """Checks ops that stand for others of ``before``, between which nothing else reads."""

    def __init__(self, before: Graph, after: Graph) -> None:
        self._before, self._after = before, after
        self._given = {op.name: op for op in before.ops}
        self._left = {op.name for op in after.ops}
        self._readers: dict[int, set[str]] = {tensor: {""} for tensor in (*before.outputs, *before.variables)}
        for op in before.ops:
            for tensor in op.inputs:
                self._readers.setdefault(tensor, set()).add(op.name)

    def check(self, op: Op) -> None:
        """Check that an op reads and makes what its chain reads and makes, and is of a type that can compute it."""
        given, names = self._given, set(op.chain)
        if not names <= given.keys() or names & self._left or len(names) != len(op.chain):
            raise InternalError(
                f"op '{op.name}' stands for ops that the model does not have, or that are still there",
                code="chain-ops",
            )
        self._left |= names  # no other op may stand for them
        links = [given[name] for name in op.chain]
        known = all(link.type in LINKS and len(link.outputs) == 1 and not link.macs for link in links)
        curves = STANDS_FOR.get((op.type, op.attributes.get("approximate")), frozenset())
        if not known or op.macs or curves.isdisjoint(link.type for link in links):
            raise InternalError(f"op '{op.name}' ({op.type}) stands for ops that it cannot compute", code="chain-type")
        made = {link.outputs[0] for link in links}
        read = {tensor for link in links for tensor in link.inputs} - made
        last = {tensor for tensor in made if not self._readers.get(tensor, set()) <= names}
        last = last or {links[-1].outputs[0]}
        ends = _tensors(self._after, (*op.inputs, *op.outputs))
        if len(read) != 1 or len(last) != 1 or ends != _tensors(self._before, (*read, *last)):
            raise InternalError(
                f"op '{op.name}' does not make of one tensor what the ops make that it stands for", code="chain-ends"
            )
        if len({described[1:] for described in ends}) != 1:
            raise InternalError(f"op '{op.name}' makes a tensor of another kind than it reads", code="tensor-kind")


def _tensors(graph: Graph, tensors: Iterable[int]) -> list[tuple[object, ...]]:
    return [_described(graph.tensors[tensor]) for tensor in tensors]


def _check_tiles(graph: Graph) -> None:
    """Check that, where each tile of a loop has an op of its own, every tile is computed once, by ops that agree."""
    loops: dict[str, list[Loop]] = {}
    reads: dict[str, set[tuple[int, ...]]] = {}
    for op in graph.ops:
        if op.loop is not None and op.loop.tile is not None:
            loops.setdefault(op.loop.names[op.loop.output], []).append(op.loop)
            reads.setdefault(op.loop.names[op.loop.output], set()).add(op.inputs)
    for name, tiles in loops.items():
        if len(reads[name]) > 1:
            raise InternalError(f"the tiles of '{name}' are cut out of different inputs", code="loop-inputs")
        if sorted(one.tile or 0 for one in tiles) != list(range(tiles[0].count)):
            raise InternalError(f"the tiles of '{name}' are not computed once each", code="tile-count")
        if any(replace(one, tile=None) != replace(tiles[0], tile=None) for one in tiles):
            raise InternalError(f"the tiles of '{name}' are those of different loops", code="loops-differ")


def check_written(planned: Graph, order: Sequence[int], found: Graph, *, named: bool = True) -> None:
    """Check that ``found``, read from a written file, is ``planned`` executed in ``order``.

    Args:
        named: Whether the format stores names of ops.

    Raises:
        InternalError: An op or tensor is missing, added, out of order or different.
    """
    if len(order) != len(found.ops):
        raise InternalError(f"the written model has {len(found.ops)} ops instead of {len(order)}", code="op-count")
    for number, op in zip(order, found.ops, strict=True):
        same_name = planned.ops[number].name == op.name or not named
        if not same_name or _told(planned, planned.ops[number]) != _told(found, op):
            raise InternalError(f"op '{planned.ops[number].name}' was not written as planned", code="op-differs")
    tensors = {tensor.name: _described(tensor) for tensor in found.tensors}
    used = {tensor for op in planned.ops for tensor in (*op.inputs, *op.outputs)}
    for tensor in sorted(used):
        value = planned.tensors[tensor]
        if tensors.get(value.name) != _described(value):
            raise InternalError(f"tensor '{value.name}' was not written as planned", code="tensor-differs")
    if _interface(planned) != _interface(found):
        raise InternalError("the written model has other inputs, outputs or variables", code="interface-differs")


def check_folded(before: Graph, after: Graph) -> None:
    """Check that ``after`` is ``before`` without some ops whose results became constants, or that nothing reads.

    Raises:
        InternalError: An op is another or reads another tensor, one that is not gone is read no more, a tensor has
            another size, or the interface differs by more than outputs that became constants.
    """
    given = {op.name: op for op in before.ops}
    gone = {tensor for op in before.ops for tensor in op.outputs}
    for op in after.ops:
        source = given.get(op.name)
        if source is None or source.type != op.type:
            raise InternalError(
                f"the folded model has an op '{op.name}' that the model does not have", code="unknown-op"
            )
        if _names(before, source.outputs) != _names(after, op.outputs):
            raise InternalError(f"op '{op.name}' of the folded model makes other tensors", code="op-differs")
        gone.difference_update(source.outputs)
    computed = replace(before, outputs=tuple(one for one in before.outputs if one not in gone))
    if _interface(computed) != _interface(after):
        raise InternalError("the folded model has other inputs, outputs or variables", code="interface-differs")
    tensors = {tensor.name: _described(tensor) for tensor in before.tensors}
    for tensor in after.tensors:
        if tensors.get(tensor.name) != _described(tensor):
            raise InternalError(f"tensor '{tensor.name}' of the folded model has another size", code="tensor-differs")
    for op in after.ops:
        kept = [tensor for tensor in given[op.name].inputs if tensor not in gone]
        if _names(before, kept) != _names(after, op.inputs):
            raise InternalError(f"op '{op.name}' of the folded model reads other tensors", code="op-differs")


def check_made_constants(before: Graph, after: Graph, ops: Collection[str]) -> None:
    """Check that ``after`` is ``before``, except that constants of ``ops``, by name, are made by ops.

    Raises:
        InternalError: Something else differs, or a constant of another op is made by an op.
    """
    check_written(before, range(len(before.ops)), after)
    made = {op.name: op.attributes.get(_MADE) for op in before.ops}
    for op in after.ops:
        if (op.name in ops) is (op.attributes.get(_MADE) == made[op.name]):
            raise InternalError(f"constants of op '{op.name}' were not written as planned", code="op-differs")


def _names(graph: Graph, tensors: Iterable[int]) -> tuple[str, ...]:
    return tuple(graph.tensors[tensor].name for tensor in tensors)


def _told(graph: Graph, op: Op) -> tuple[object, ...]:
    reads = tuple(graph.tensors[tensor].name for tensor in op.inputs)
    makes = tuple(graph.tensors[tensor].name for tensor in op.outputs)
    # What a piece's weights are follows from its region.
    attributes = {name: value for name, value in op.attributes.items() if not name.startswith(_CONSTANTS)}
    return op.type, reads, makes, attributes, op.positions, op.effects


def _described(tensor: Tensor) -> tuple[object, ...]:
    return tensor.name, tensor.size, tensor.shape, tensor.dtype, tensor.sized


def _interface(graph: Graph) -> tuple[tuple[str, ...], ...]:
    names = [tensor.name for tensor in graph.tensors]
    return tuple(tuple(names[t] for t in kind) for kind in (graph.inputs, graph.outputs, graph.variables))
