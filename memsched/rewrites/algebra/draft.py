"""A graph to which identities are applied one after the other, and what its tensors were made like."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from memsched.graph.dialect import Attributes, Dialect
from memsched.graph.model import Graph, Op, Tensor
from memsched.graph.replacement import names_of, rebuilt, unused_name

__all__ = ["AlgebraDraft", "Editor", "readers_of"]


@dataclass(frozen=True, slots=True)
class AlgebraDraft:
    """A graph between two identities.

    Attributes:
        like: Per new tensor, by name, the given one whose element type and quantisation it has.
        sums: Sums may be added up in another order, and so floats be rounded otherwise.
        constants: Per op of the given graph, by name, the constants that it reads.
    """

    graph: Graph
    dialect: Dialect
    constants: Mapping[str, Sequence[str]]
    like: Mapping[str, str] = field(default_factory=dict)
    sums: bool = False

    def same_values(self, tensor: int, other: int) -> bool:
        """Whether equal numbers in two tensors mean the same."""
        names = [self.graph.tensors[one].name for one in (tensor, other)]
        return self.dialect.same_values(*(self.like.get(name, name) for name in names))

    def number_of(self, name: str) -> int | None:
        """Return the index of an op; None if the graph does not have it."""
        return next((number for number, op in enumerate(self.graph.ops) if op.name == name), None)

    def constants_of(self, op: Op) -> tuple[str, ...]:
        """Return the constants that an op, or the one that it was made from, reads."""
        return tuple(self.constants.get(op.origin or op.name, ()))


class Editor:
    """Collects the changes of one identity.

    Args:
        place: Ops are put in front of the op with this index of the draft's graph, which is left out.
    """

    def __init__(self, draft: AlgebraDraft, place: int) -> None:
        self._draft, self._place = draft, place
        self._names = names_of(draft.graph)
        self.tensors: list[Tensor] = list(draft.graph.tensors)
        self._like = dict(draft.like)
        self._ops: list[Op] = []

    def tensor(self, like: int, shape: Sequence[int], suffix: str) -> int:
        """Add a tensor of the kind of ``like``, and return its index."""
        given = self.tensors[like]
        elements = math.prod(given.shape or ())
        size = -(-given.size * math.prod(shape) // elements) if elements else 0
        name = unused_name(f"{given.name}{suffix}", self._names)
        self._like[name] = self._like.get(given.name, given.name)
        self.tensors.append(Tensor(name, size, tuple(shape), given.dtype))
        return len(self.tensors) - 1

    def copy(self, op: Op, inputs: Sequence[int], output: int, **changes: object) -> None:
        """Add an op that does what ``op`` does, on other tensors."""
        name = unused_name(f"{op.name}#part", self._names)
        made = replace(op, name=name, origin=op.origin or op.name, inputs=tuple(inputs), outputs=(output,))
        self._ops.append(replace(made, **changes))  # type: ignore[arg-type]  # fields of an op

    def keep(self, op: Op, inputs: Sequence[int]) -> None:
        """Add the op that is left out again, with other inputs."""
        self._ops.append(replace(op, inputs=tuple(inputs)))

    def helper(self, kind: str, inputs: Sequence[int], output: int, attributes: Attributes) -> None:
        """Add an op that the model does not have."""
        name = unused_name(f"{self.tensors[output].name}#{kind.lower()}", self._names)
        positions = tuple(range(len(inputs)))
        self._ops.append(Op(name, kind, tuple(inputs), (output,), attributes=attributes, positions=positions))

    def draft(self, renamed: Mapping[int, int] | None = None) -> AlgebraDraft:
        """Return the draft with the changes, without ops and tensors that nothing reads any more.

        Args:
            renamed: Tensors to others that are read instead of them.
        """
        before = self._draft.graph
        renamed = renamed or {}
        ops = [*before.ops[: self._place], *self._ops, *before.ops[self._place + 1 :]]
        if renamed:
            ops = [replace(op, inputs=tuple(renamed.get(tensor, tensor) for tensor in op.inputs)) for op in ops]
        ops = _needed(before, ops)
        left = {tensor for op in ops for tensor in (*op.inputs, *op.outputs)}
        left |= {*before.inputs, *before.outputs, *before.variables}
        gone = [tensor for tensor in range(len(self.tensors)) if tensor not in left]
        place = {op.name: number for number, op in enumerate(ops)}
        places = {old: place[op.name] for old, op in enumerate(before.ops) if op.name in place}
        return replace(self._draft, graph=rebuilt(before, self.tensors, ops, places, set(gone)), like=self._like)


def _needed(before: Graph, ops: Sequence[Op]) -> list[Op]:
    """Return ``ops`` without those of which nothing is read; what nothing reads in ``before`` stays."""
    unread = {op.name for op, users in zip(before.ops, _users(before), strict=True) if not users}
    needed = {*before.outputs, *before.variables}
    kept: list[Op] = []
    for op in reversed(ops):
        if not needed.isdisjoint(op.outputs) or op.name in unread:
            kept.append(op)
            needed.update(op.inputs)
    return kept[::-1]


def _users(graph: Graph) -> list[bool]:
    used = {*graph.outputs, *graph.variables, *(tensor for op in graph.ops for tensor in op.inputs)}
    return [not used.isdisjoint(op.outputs) for op in graph.ops]


def readers_of(graph: Graph) -> dict[int, list[int]]:
    """Return per tensor the ops that read it, in the order of the file."""
    found: dict[int, list[int]] = {}
    for number, op in enumerate(graph.ops):
        for tensor in dict.fromkeys(op.inputs):
            found.setdefault(tensor, []).append(number)
    return found
