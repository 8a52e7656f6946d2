"""When a tensor is live and what a step costs: the one meaning of memory.

Definitions, which extend those of "Iterative Graph Optimization", Definition 2,
by views, in-place writes, workspaces and variables:

- A *buffer* is bytes of its own. A tensor that is a view lies in the buffers of the tensors that it shows, every
  other tensor has one buffer. A buffer's users are the ops that read any tensor in it.
- A buffer is live from the step of its creator to the step of its last user, both included; graph inputs from before
  step 0 and only if something reads them; graph outputs and variables to the end. One that no op reads is live in its
  creator's step only.
- The *footprint* of a step is the size of the buffers live in it plus the op's workspace. A buffer that the op writes
  in place of a dying one of equal size is counted once.
- The *residue* after a step is the size of the buffers still needed after it.

The residue depends on the set of executed ops alone, not on their order or on in-place choices. Both the residue's
change and the footprint above the residue that an op causes only fall as more other ops were executed before it:
the exact search's safe move rests on that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from memsched.base.arguments import checked
from memsched.base.frozen import FrozenValue
from memsched.graph import dag
from memsched.graph.model import Graph, InPlace, Op
from memsched.graph.uses import MANY_OPS, Uses, neighbours_of, rows_of, steps_of, sums, uses_of

__all__ = ["Profile", "Storage", "evaluate", "simulate"]


@dataclass(frozen=True, slots=True)
class Storage:
    """What the ops of a graph do with memory, on buffers.

    Attributes:
        sizes: Bytes per buffer; 0 for those that the caller owns.
        creator: Per buffer the op that creates it, -1 for graph inputs and variables.
        users: Per buffer the ops that read a tensor in it, ascending.
        kept: Per buffer whether it is live to the end.
        creates: Per op the buffers it creates.
        reads: Per op the buffers it reads, each once.
        takes: Per op the pairs (created buffer, read buffer) that in-place execution may merge.
        workspace: Bytes per op.
        preds: Per op its direct predecessors.
        succs: Per op its direct successors.
        tensor_of: Per buffer the tensor that it was created for.
        buffers_of: Per tensor the buffers that it lies in.
        variables: Bytes that are always live.
        uses: The same in arrays, for graphs of very many ops.
    """

    sizes: tuple[int, ...]
    creator: tuple[int, ...]
    users: tuple[tuple[int, ...], ...]
    kept: tuple[bool, ...]
    creates: tuple[tuple[int, ...], ...]
    reads: tuple[tuple[int, ...], ...]
    takes: tuple[tuple[tuple[int, int], ...], ...]
    workspace: tuple[int, ...]
    preds: tuple[tuple[int, ...], ...]
    succs: tuple[tuple[int, ...], ...]
    tensor_of: tuple[int, ...]
    buffers_of: tuple[tuple[int, ...], ...]
    variables: int
    uses: Uses | None = field(default=None, compare=False, repr=False)

    @staticmethod
    @checked
    def of(graph: Graph) -> Storage:
        """Lower ``graph``, which must be valid (`dag.validate`), to buffers in linear time."""
        return _lower(graph)

    def initial_residue(self) -> int:
        """Bytes needed before step 0: variables and the graph inputs that something reads or that are outputs."""
        if self.uses is not None:
            return self.variables + self.uses.initial_residue()
        return self.variables + sum(
            size
            for size, creator, users, kept in zip(self.sizes, self.creator, self.users, self.kept, strict=True)
            if creator < 0 and (users or kept)
        )

    def final_residue(self) -> int:
        """Bytes needed after the last step, in every order: variables and all that is live to the end."""
        return self.variables + sum(size for size, kept in zip(self.sizes, self.kept, strict=True) if kept)

    def remaining_uses(self) -> list[int]:
        """Per buffer, how many uses are still to come before step 0; a kept buffer has one that never comes."""
        return [len(users) + kept for users, kept in zip(self.users, self.kept, strict=True)]


def _lower(graph: Graph) -> Storage:
    made = _Buffers(graph)
    buffers_of, sizes, reads = made.of_tensor, made.sizes, made.reads()
    kept = [False] * len(sizes)
    for tensor in graph.outputs:
        for buffer in buffers_of[tensor]:
            kept[buffer] = True
    takes = [
        _mergeable(op.in_place, created, buffers_of, sizes) if op.in_place else ()
        for op, created in zip(graph.ops, made.created, strict=True)
    ]
    workspace = [op.workspace for op in graph.ops]
    if max(len(graph.ops), len(sizes)) >= MANY_OPS:
        befores, afters = neighbours_of(graph)
        uses = uses_of(sizes, made.creator, reads, kept, workspace, takes, befores)
        preds, succs = rows_of(*befores), rows_of(*afters)
    else:
        uses, preds = None, tuple(dag.predecessors(graph))
        succs = tuple(dag.successors_of(preds))
    users = _users(reads, len(sizes)) if uses is None else rows_of(uses.users, uses.begins)
    return Storage(
        sizes=tuple(sizes),
        creator=tuple(made.creator),
        users=users,
        kept=tuple(kept),
        creates=tuple(made.created),
        reads=tuple(reads),
        takes=tuple(takes),
        workspace=tuple(workspace),
        preds=preds,
        succs=succs,
        tensor_of=tuple(made.tensor_of),
        buffers_of=tuple(buffers_of),
        variables=sum(graph.tensors[tensor].size for tensor in made.variables if not graph.tensors[tensor].external),
        uses=uses,
    )


class _Buffers:
    """The buffers of a graph, by inputs and ops.

    Attributes:
        of_tensor: Per tensor the buffers that it lies in.
        created: Per op the buffers that it creates.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.variables = set(graph.variables)
        self.sizes: list[int] = []
        self.tensor_of: list[int] = []
        self.creator: list[int] = []
        self.of_tensor: list[tuple[int, ...]] = [()] * len(graph.tensors)
        self.created: list[tuple[int, ...]] = []
        for tensor in graph.inputs:
            if tensor not in self.variables:
                self.of_tensor[tensor] = self._new(-1, tensor, graph.tensors[tensor].size)
        for index, op in enumerate(graph.ops):
            if len(op.outputs) > 1 or op.views or self.variables:
                self.created.append(tuple([made for tensor in op.outputs for made in self._make(index, op, tensor)]))
                continue
            made: tuple[int, ...] = ()
            for tensor in op.outputs:
                made = self.of_tensor[tensor] = self._new(index, tensor, graph.tensors[tensor].size)
            self.created.append(made)

    def _make(self, index: int, op: Op, tensor: int) -> tuple[int, ...]:
        """Give an output its buffers and return the one that is new."""
        if tensor in self.variables:
            return ()
        inner, own = _shown(self._graph, op.views, tensor, self.of_tensor)
        made = () if inner and own <= 0 else self._new(index, tensor, max(0, own))
        self.of_tensor[tensor] = (*inner, *made)
        return made

    def _new(self, creator: int, tensor: int, size: int) -> tuple[int]:
        """Return a new buffer."""
        self.sizes.append(0 if self._graph.tensors[tensor].external else size)
        self.tensor_of.append(tensor)
        self.creator.append(creator)
        return (len(self.sizes) - 1,)

    def reads(self) -> list[tuple[int, ...]]:
        """Return per op the buffers that it reads, each once."""
        of_tensor, result = self.of_tensor, []
        for op in self._graph.ops:
            inputs = op.inputs
            if len(inputs) == 1:
                result.append(of_tensor[inputs[0]])
                continue
            read = [buffer for tensor in inputs for buffer in of_tensor[tensor]]
            result.append(tuple(read if len(set(read)) == len(read) else dict.fromkeys(read)))
        return result


def _users(reads: Sequence[Sequence[int]], count: int) -> tuple[tuple[int, ...], ...]:
    """Return per buffer the ops that read it."""
    users: list[list[int]] = [[] for _ in range(count)]
    for op, read in enumerate(reads):
        for buffer in read:
            users[buffer].append(op)
    return tuple(map(tuple, users))


def _shown(
    graph: Graph, views: Iterable[tuple[int, int]], tensor: int, buffers_of: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], int]:
    """Return the buffers that ``tensor`` shows and the bytes of its own.

    What a concatenation does not show of its inputs (constant parts) is bytes of its own.
    """
    shown = tuple(dict.fromkeys(read for output, read in views if output == tensor))
    inner = tuple(dict.fromkeys(buffer for read in shown for buffer in buffers_of[read]))
    return inner, graph.tensors[tensor].size - sum(graph.tensors[read].size for read in shown)


def _mergeable(
    in_place: Iterable[tuple[int, int]],
    created: Sequence[int],
    buffers_of: Sequence[tuple[int, ...]],
    sizes: Sequence[int],
) -> tuple[tuple[int, int], ...]:
    """Keep the in-place pairs whose output and input are one buffer each, of the same size."""
    pairs = []
    for output, read in in_place:
        target, source = buffers_of[output], buffers_of[read]
        if len(target) == len(source) == 1 and target[0] in created and sizes[target[0]] == sizes[source[0]]:
            pairs.append((target[0], source[0]))
    return tuple(pairs) if len(pairs) < 2 else tuple(dict.fromkeys(pairs))


class Profile(FrozenValue, frozen=True):
    """What an order costs.

    Attributes:
        footprints: Bytes per step.
        residues: Bytes before step 0 and after each step: one more than there are steps.
        taken: Per step the pairs (created buffer, read buffer) merged in place.
        peak: The largest footprint, or the residue where there is no step.
    """

    footprints: tuple[int, ...]
    residues: tuple[int, ...]
    taken: tuple[tuple[tuple[int, int], ...], ...]
    peak: int

    def in_place(self, storage: Storage, order: Sequence[int]) -> tuple[InPlace, ...]:
        """Return the in-place choices as ops and tensors."""
        tensor_of = storage.tensor_of
        return tuple(
            [
                InPlace(op, tensor_of[created], tensor_of[read])
                for op, pairs in zip(order, self.taken, strict=True)
                if pairs
                for created, read in pairs
            ]
        )


def evaluate(storage: Storage, order: Sequence[int]) -> Profile:
    """Return the profile of ``order``, a topological order of all ops, in linear time."""
    if storage.uses is not None:
        return _evaluate_at_once(storage, storage.uses, order)
    start = storage.initial_residue()
    footprints, residues, taken = simulate(storage, order, storage.remaining_uses(), start)
    return Profile(tuple(footprints), (start, *residues), tuple(taken), max(footprints, default=start))


def _evaluate_at_once(storage: Storage, uses: Uses, order: Sequence[int]) -> Profile:
    """Return what `evaluate` does by arrays: lifetimes first, then what each step creates and releases."""
    import numpy as np

    count, sizes, steps = len(order), uses.sizes, steps_of(order)
    first, last = uses.lifetimes(steps)
    made, ended = first >= 0, (last >= 0) & (last < count)
    created, released = sums(first[made], sizes[made], count), sums(last[ended], sizes[ended], count)
    start = storage.initial_residue()
    residues = start + np.cumsum(created - released)
    footprints = residues + released
    footprints[steps] += uses.workspace
    taken: list[tuple[tuple[int, int], ...]] = [()] * count
    ops, makes, reads = uses.takes.T
    at = steps[ops]
    dying = np.flatnonzero((last[reads] == at) & (released[at] > 0))
    possible: dict[int, list[tuple[int, int]]] = {}
    for step, pair in zip(
        at[dying].tolist(), zip(makes[dying].tolist(), reads[dying].tolist(), strict=True), strict=True
    ):
        possible.setdefault(step, []).append(pair)
    merged = []
    for step, pairs in possible.items():
        taken[step] = matched = match_in_place(pairs, storage.sizes) if len(pairs) > 1 else tuple(pairs)
        merged.append(sum([storage.sizes[buffer] for buffer, _ in matched]))
    footprints[list(possible)] -= np.array(merged, dtype=np.int64)
    peak = int(footprints.max()) if count else start
    return Profile(tuple(footprints.tolist()), (start, *residues.tolist()), tuple(taken), peak)


def simulate(
    storage: Storage, sequence: Sequence[int], remaining: list[int] | dict[int, int], live: int
) -> tuple[list[int], list[int], list[tuple[tuple[int, int], ...]]]:
    """Execute ``sequence`` and return footprints, residues and in-place pairs per step.

    Args:
        remaining: Per buffer the uses still to come; counted down in place.
        live: Bytes live before the first step (0 gives figures relative to it).
    """
    sizes, reads, creates = storage.sizes, storage.reads, storage.creates
    footprints: list[int] = []
    residues: list[int] = []
    taken: list[tuple[tuple[int, int], ...]] = []
    for op in sequence:
        released = 0
        for buffer in reads[op]:
            remaining[buffer] -= 1
            if not remaining[buffer]:
                released += sizes[buffer]
        created = 0
        for buffer in creates[op]:
            created += sizes[buffer]
            if not remaining[buffer]:
                released += sizes[buffer]
        pairs: tuple[tuple[int, int], ...] = ()
        if released and storage.takes[op]:
            pairs = match_in_place([pair for pair in storage.takes[op] if not remaining[pair[1]]], sizes)
        merged = sum([sizes[buffer] for buffer, _ in pairs]) if pairs else 0
        footprints.append(live + created + storage.workspace[op] - merged)
        live += created - released
        residues.append(live)
        taken.append(pairs)
    return footprints, residues, taken


def match_in_place(pairs: Sequence[tuple[int, int]], sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Choose pairs (created, dying) so that no buffer is in two of them and the merged bytes are the most.

    Created buffers are matched in order of falling size by augmenting paths: the matchable sets form a matroid, so
    the greedy choice is the heaviest.
    """
    if len(pairs) <= 1:
        return tuple(pairs)
    choices: dict[int, list[int]] = {}
    for created, read in pairs:
        choices.setdefault(created, []).append(read)
    taker: dict[int, int] = {}
    for created in sorted(choices, key=lambda buffer: (-sizes[buffer], buffer)):
        _augment(created, choices, taker)
    return tuple(sorted((created, read) for read, created in taker.items()))


def _augment(start: int, choices: dict[int, list[int]], taker: dict[int, int]) -> None:
    reached_from: dict[int, int] = {}
    frontier = [start]
    while frontier:
        created = frontier.pop()
        for read in choices[created]:
            if read in reached_from:
                continue
            reached_from[read] = created
            if read not in taker:
                end: int | None = read
                while end is not None:
                    owner = reached_from[end]
                    previous = next((r for r, c in taker.items() if c == owner), None)
                    taker[end] = owner
                    end = previous if owner != start else None
                return
            frontier.append(taker[read])
