"""What each device computes in a step as a small graph, and what it sends, receives and runs as a program."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.features.distribute.follow import DeviceOp, Half, Holder, ResolvedPlan, whole_of
from memsched.graph.dialect import Attributes, Dialect
from memsched.graph.distribution import Transfer
from memsched.graph.model import Graph, Op, Region, Tensor
from memsched.ops.cover import Cover, PartSlice, leaves
from memsched.runtimes.devices.program import (
    CALLER,
    ArrayAssembly,
    ArrayCut,
    DeviceProgram,
    Gather,
    ModelRun,
    Receive,
    Send,
    StepProgram,
)

__all__ = ["StepModel", "given_sends", "program_of", "step_model"]


class StepModel(FrozenValue, frozen=True):
    """What a device computes in a step.

    Attributes:
        graph: Its ops in order of execution; `Op.origin` and `Op.region` say what they are made from.
        parts: Per tensor of the graph the tensor of the network that it is, or is a part of.
        inputs: Number of the device's piece per input of the graph.
        outputs: The same per output.
    """

    graph: Graph
    parts: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def step_model(followed: ResolvedPlan, device: int, step: int, dialect: Dialect) -> StepModel | None:
    """Return the model of a device in a step; None where it computes nothing."""
    holder = followed.devices[device]
    if not holder.runs[step]:
        return None
    title = f"device {device}, step {step}"
    return _StepModelBuilder(followed.graph, holder, dialect, followed.names, title).model(holder.runs[step])


class _StepModelBuilder:
    def __init__(self, given: Graph, holder: Holder, dialect: Dialect, names: frozenset[str], title: str) -> None:
        self._given, self._holder, self._dialect, self._title = given, holder, dialect, title
        self._tensors: list[Tensor] = []
        self._parts: list[int] = []
        self._ops: list[Op] = []
        self._inputs: dict[int, int] = {}
        self._values: dict[int, int] = {}
        self._cuts: dict[tuple[int, Region], int] = {}
        self._tensor_names: set[str] = set()
        self._op_names: set[str] = set()
        # A helper with an op's name would be taken for that op.
        self._given_names = names

    def model(self, runs: Sequence[DeviceOp]) -> StepModel:
        """Return the model of these runs."""
        for run in runs:
            self._run(run)
        made = [number for run in runs for number in run.made]
        # Where nothing that the ops make is needed, they are executed for their own sake.
        used = [number for number in made if number in self._holder.outside] or made
        graph = Graph(
            name=self._title,
            tensors=tuple(self._tensors),
            ops=tuple(self._ops),
            inputs=tuple(self._inputs.values()),
            outputs=tuple(self._values[number] for number in used),
        )
        return StepModel(graph, tuple(self._parts), tuple(self._inputs), tuple(used))

    def _run(self, run: DeviceOp) -> None:
        value = self._given.ops[run.op]
        reads = [self._value(tensor, found) for tensor, found in run.reads]
        pieces = [self._holder.pieces[number] for number in run.made]
        if run.axis is not None:
            made = self._new(pieces[0].tensor, pieces[0].region)
            self._help(self._dialect.concat_type, reads, made, self._dialect.concat_attributes(run.axis))
            self._values[run.made[0]] = made
            return
        if run.piece is None:
            outputs = [self._new(piece.tensor, piece.region) for piece in pieces]
            op = Op(
                name=_free(value.name, self._op_names),
                type=value.type,
                inputs=tuple(reads),
                outputs=tuple(outputs),
                attributes=value.attributes,
                positions=value.positions,
                macs=value.macs,
                origin=value.name,
            )
            self._ops.append(op)
            self._values.update(zip(run.made, outputs, strict=True))
            return
        computed = self._new(pieces[0].tensor, run.piece.computed)
        if run.piece.padding:
            reads[0] = self._padded(reads[0], run.piece.padding)
        self._ops.append(
            Op(
                name=_free(value.name, self._op_names),
                type=value.type,
                inputs=tuple(reads),
                outputs=(computed,),
                attributes=run.piece.attributes,
                positions=value.positions,
                macs=run.piece.macs,
                origin=value.name,
                region=run.piece.computed,
            )
        )
        wanted = pieces[0].region
        exact = wanted == run.piece.computed
        self._values[run.made[0]] = (
            computed if exact else self._cut(computed, pieces[0].tensor, run.piece.computed, wanted)
        )

    # Values ---------------------------------------------------------------------------------------------------------

    def _value(self, tensor: int, found: Cover) -> int:
        """Return the tensor of this graph that is ``found`` of the given graph's ``tensor``."""
        if isinstance(found, PartSlice):
            held = self._piece(found.part)
            return self._cut(held, tensor, self._holder.pieces[found.part].region, found.region)
        children = [self._value(tensor, child) for child in found.children]
        # The same parts in the same order make the same value.
        key = (-1 - children[0], found.region)
        if key not in self._cuts:
            made = self._cuts[key] = self._new(tensor, found.region)
            self._help(self._dialect.concat_type, children, made, self._dialect.concat_attributes(found.axis))
        return self._cuts[key]

    def _piece(self, number: int) -> int:
        if number not in self._values:
            piece = self._holder.pieces[number]
            self._values[number] = self._inputs[number] = self._new(piece.tensor, piece.region)
        return self._values[number]

    def _cut(self, held: int, tensor: int, have: Region, wanted: Region) -> int:
        if have == wanted:
            return held
        key = (held, wanted)
        if key not in self._cuts:
            pairs = list(zip(have.ranges, wanted.ranges, strict=True))
            starts = [start - base for (base, _), (start, _) in pairs]
            ends = [stop - base for (base, _), (_, stop) in pairs]
            made = self._cuts[key] = self._new(tensor, wanted)
            attributes = self._dialect.slice_attributes(have.lengths, starts, ends)
            self._help(self._dialect.slice_type, [held], made, attributes)
        return self._cuts[key]

    def _padded(self, read: int, pads: Sequence[tuple[int, int]]) -> int:
        given = self._tensors[read]
        shape = tuple(size + low + high for size, (low, high) in zip(given.shape or (), pads, strict=True))
        made = self._add(f"{given.name}#padded", given, shape, self._parts[read])
        self._help(self._dialect.pad_type, [read], made, self._dialect.pad_attributes(pads))
        return made

    def _help(self, kind: str, inputs: Sequence[int], output: int, attributes: Attributes) -> None:
        self._ops.append(
            Op(
                name=_free(f"{self._tensors[output].name}#{kind.lower()}", self._op_names, self._given_names),
                type=kind,
                inputs=tuple(inputs),
                outputs=(output,),
                attributes=attributes,
                positions=tuple(range(len(inputs))),
            )
        )

    # Tensors --------------------------------------------------------------------------------------------------------

    def _new(self, tensor: int, region: Region) -> int:
        given = self._given.tensors[tensor]
        if region == whole_of(self._given, tensor):
            # Bodies of control flow capture tensors by this name.
            return self._add(given.name, given, given.shape, tensor)
        return self._add(f"{given.name}[{_shown(region)}]", given, region.lengths, tensor)

    def _add(self, name: str, like: Tensor, shape: tuple[int, ...] | None, part: int) -> int:
        elements = math.prod(like.shape or ())
        size = -(-like.size * math.prod(shape or ()) // elements) if elements else like.size
        self._tensors.append(Tensor(_free(name, self._tensor_names), size, shape, like.dtype, like.sized))
        self._parts.append(part)
        return len(self._tensors) - 1


def _free(wanted: str, taken: set[str], reserved: frozenset[str] = frozenset()) -> str:
    """Return a name that is in neither set, and put it into ``taken``."""
    name, number = wanted, 1
    while name in taken or name in reserved:
        number += 1
        name = f"{wanted}#{number}"
    taken.add(name)
    return name


def _shown(region: Region) -> str:
    return ", ".join(f"{start}:{stop}" for start, stop in region.ranges)


# Programs ---------------------------------------------------------------------------------------------------------


def program_of(followed: ResolvedPlan, device: int, models: Sequence[StepModel | None]) -> DeviceProgram:
    """Return what a device's process does; ``models`` are those of its steps."""
    holder = followed.devices[device]
    arriving = _arriving(holder)
    dropped: dict[tuple[int, int], list[str]] = {}
    for number, piece in enumerate(holder.pieces):
        if number in arriving:
            continue
        dropped.setdefault(max(holder.last[number], piece.born), []).append(piece.key)
    handed = [set(model.outputs) if model is not None else set() for model in models]
    inner = {
        holder.pieces[number].key
        for step, runs in enumerate(holder.runs)
        for run in runs
        for number in run.made
        if number not in handed[step]
    }
    gathered = holder.gathered_in()
    steps = []
    for step, (transfers, ahead) in enumerate(_transfers(followed)):
        model = models[step] if step < len(models) else None
        steps.append(
            StepProgram(
                sends=tuple(_sends(followed, step, transfers, device)),
                receives=tuple(_receives(followed, step, transfers, device, arriving)),
                sends_ahead=tuple(_sends(followed, step, ahead, device)),
                receives_ahead=tuple(_receives(followed, step, ahead, device, arriving)),
                gathers=tuple(_gather(followed, holder, number, arriving) for number in gathered.get(step, ())),
                sent=tuple(dropped.get((step, Half.TRANSFERRING), ())),
                run=None if model is None else _model_run(holder, model),
                done=tuple(key for key in dropped.get((step, Half.COMPUTING), ()) if key not in inner),
            )
        )
    outputs: tuple[tuple[str, ArrayAssembly], ...] = ()
    if device == followed.plan.home:
        outputs = tuple(
            (followed.graph.tensors[tensor].name, _made(followed, holder, tensor, found))
            for tensor, found in followed.outputs
        )
        # What the outputs are made from is held to the very end.
        steps[-1] = replace(steps[-1], done=())
    return DeviceProgram(tuple(steps), outputs)


def given_sends(followed: ResolvedPlan) -> tuple[tuple[Send, ...], ...]:
    """Return what the source of the network's inputs sends in each step; keys are the inputs' names."""
    result = []
    for transfers, _ in _transfers(followed):
        sends = []
        for number, one in transfers:
            if one.source == CALLER:
                given = followed.graph.tensors[one.tensor]
                shape = one.region.lengths
                cut = ArrayCut(given.name, one.region.ranges, tuple((0, size) for size in shape))
                sends.append(Send(number, one.targets, ArrayAssembly(shape, given.dtype, (cut,))))
        result.append(tuple(sends))
    return tuple(result)


_Numbered = Sequence[tuple[int, Transfer]]


def _transfers(followed: ResolvedPlan) -> list[tuple[_Numbered, _Numbered]]:
    """Return the transfers of every step, and those ahead, by their number in the step."""
    counts = [*(len(step.transfers) for step in followed.plan.steps), len(followed.plan.results)]
    numbered = [list(enumerate(transfers)) for transfers in followed.plan.exchanges()]
    return [(found[:count], found[count:]) for found, count in zip(numbered, counts, strict=True)]


def _sends(followed: ResolvedPlan, step: int, transfers: _Numbered, device: int) -> Iterator[Send]:
    for number, one in transfers:
        if one.source == device:
            found = followed.sent[step][number]
            if found is None:
                raise InternalError(f"transfer {number} of step {step} has no source")
            yield Send(number, one.targets, _made(followed, followed.devices[device], one.tensor, found))


def _arriving(holder: Holder) -> dict[int, int]:
    """Return the received pieces that are used only as a part of one other, which is received in their place."""
    result = {}
    for number, users in holder.used_by.items():
        piece = holder.pieces[number]
        user = min(users)
        received = piece.born[1] == Half.TRANSFERRING and number not in holder.gathered
        only = len(users) == 1 and user >= 0 and holder.pieces[user].born == piece.born
        # Of pieces that overlap, only a part may be taken.
        if received and only and PartSlice(number, piece.region) in leaves(holder.gathered[user]):
            result[number] = user
    return result


def _receives(
    followed: ResolvedPlan, step: int, transfers: _Numbered, device: int, arriving: Mapping[int, int]
) -> Iterator[Receive]:
    pieces = followed.devices[device].pieces
    for number, one in transfers:
        for target, own in zip(one.targets, followed.received[step][number], strict=True):
            if target == device:
                into = pieces[arriving.get(own, own)]
                place = _relative(one.region, [start for start, _ in into.region.ranges])
                dtype = followed.graph.tensors[one.tensor].dtype
                yield Receive(number, one.source, into.key, place, into.region.lengths, dtype)


def _gather(followed: ResolvedPlan, holder: Holder, number: int, arriving: Mapping[int, int]) -> Gather:
    piece, found = holder.pieces[number], holder.gathered[number]
    value = _made(followed, holder, piece.tensor, found)
    own = [leaf.part not in arriving for leaf in leaves(found)]
    cuts = tuple(cut for cut, kept in zip(value.cuts, own, strict=True) if kept)
    return Gather(piece.key, replace(value, cuts=cuts))


def _made(followed: ResolvedPlan, holder: Holder, tensor: int, found: Cover) -> ArrayAssembly:
    origin = [start for start, _ in found.region.ranges]
    cuts = []
    for leaf in leaves(found):
        piece = holder.pieces[leaf.part]
        have = [start for start, _ in piece.region.ranges]
        cuts.append(ArrayCut(piece.key, _relative(leaf.region, have), _relative(leaf.region, origin)))
    return ArrayAssembly(found.region.lengths, followed.graph.tensors[tensor].dtype, tuple(cuts))


def _relative(region: Region, origin: Sequence[int]) -> tuple[tuple[int, int], ...]:
    return tuple((start - base, stop - base) for (start, stop), base in zip(region.ranges, origin, strict=True))


def _model_run(holder: Holder, model: StepModel) -> ModelRun:
    def pairs(tensors: Sequence[int], numbers: Sequence[int]) -> tuple[tuple[str, str], ...]:
        names = [model.graph.tensors[tensor].name for tensor in tensors]
        return tuple((name, holder.pieces[number].key) for name, number in zip(names, numbers, strict=True))

    return ModelRun(pairs(model.graph.inputs, model.inputs), pairs(model.graph.outputs, model.outputs))
