"""Which TFLite operators must keep their order although no tensor says so: they read or write one state.

State is a variable tensor, a resource (a variable behind a handle, a hash table), a generator of random numbers, or
whatever an operator without outputs and an operator of unknown state change. Reads of one state commute; everything
else keeps the file's order. Each operator has few edges: a writer follows the reads since the last write, a reader
the last write, so their number is linear.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph
from memsched.graph.effects import PURE, Effects, joined, spread
from memsched.ops.tflite import HANDLES, READERS, RESOURCES, WRITERS, by_type

__all__ = ["dependencies", "operator_effects", "together"]


@dataclass(slots=True)
class _StateUses:
    """The last operator that wrote a state, and those that read it since."""

    writer: int = -1
    readers: list[int] = field(default_factory=list)


class _Chains:
    """Collects the edges while operators are met in the file's order."""

    def __init__(self) -> None:
        self._edges: dict[tuple[int, int], None] = {}
        self._states: dict[Hashable, _StateUses] = {}
        self._barrier = -1

    def touch(self, operator: int, state: Hashable, *, writes: bool) -> None:
        """Note that ``operator`` reads or writes ``state``."""
        known = self._states.setdefault(state, _StateUses(self._barrier))
        if not writes:
            self._add(known.writer, operator)
            known.readers.append(operator)
            return
        for before in known.readers or [known.writer]:
            self._add(before, operator)
        known.writer, known.readers = operator, []

    def bar(self, operator: int) -> None:
        """Note that ``operator`` may touch every state: it stays after all before it and before all after it."""
        self._add(self._barrier, operator)
        for state in self._states.values():
            for before in state.readers or [state.writer]:
                self._add(before, operator)
        self._states = {}
        self._barrier = operator

    def _add(self, before: int, after: int) -> None:
        if 0 <= before < after:
            self._edges[before, after] = None

    def edges(self) -> tuple[tuple[int, int], ...]:
        """Return the edges, each once, sorted."""
        return tuple(sorted(self._edges))


def dependencies(
    subgraph: FileSubgraph, operators: Sequence[int], effects: Sequence[Effects]
) -> tuple[tuple[int, int], ...]:
    """Return the pairs (before, after) of places in ``operators`` that must keep their order.

    Args:
        operators: The indices of the subgraph's operators that are steps.
        effects: What `operator_effects` says of the subgraph's operators.
    """
    chains = _Chains()
    resources: dict[int, Hashable] = {}
    for place, index in enumerate(operators):
        operator = subgraph.operators[index]
        if operator.type in HANDLES:
            _name_resource(operator, resources)
            continue
        if _is_barrier(operator, effects[index]) or _touches_unknown(operator, subgraph, resources):
            chains.bar(place)
            continue
        for state, writes in _touched(operator, subgraph, resources, effects[index]).items():
            chains.touch(place, state, writes=writes)
    return chains.edges()


def together(
    subgraph: FileSubgraph, operators: Sequence[int], effects: Sequence[Effects]
) -> tuple[tuple[int, ...], ...]:
    """Return the groups of places in ``operators`` that use one state: no two models can hold parts of a group.

    Generators of random numbers keep a state each, which no other operator uses.
    """
    group = list(range(len(operators)))

    def leader(place: int) -> int:
        while group[place] != place:
            group[place] = place = group[group[place]]
        return place

    states = [effects[index].stateful for index in operators]
    pairs = [
        (before, after)
        for before, after in dependencies(subgraph, operators, effects)
        if states[before] and states[after]
    ]
    makers: dict[int, int] = {}
    for place, index in enumerate(operators):
        operator = subgraph.operators[index]
        present = (tensor for tensor in (*operator.inputs, *operator.outputs) if tensor >= 0)
        pairs.extend(
            (makers.setdefault(tensor, place), place)
            for tensor in present
            if subgraph.tensors[tensor].variable or subgraph.tensors[tensor].dtype in RESOURCES
        )
    for one, other in pairs:
        first, second = sorted((leader(one), leader(other)))
        group[second] = first
    groups: dict[int, list[int]] = {}
    for place in range(len(operators)):
        groups.setdefault(leader(place), []).append(place)
    return tuple(tuple(members) for members in groups.values() if len(members) > 1)


def _name_resource(operator: FileOperator, resources: dict[int, Hashable]) -> None:
    """Handles of one name are one resource, whichever operator made them."""
    named = operator.attributes
    key = (operator.type, named.get("container"), named.get("shared_name"), named.get("table_id"))
    for tensor in operator.outputs:
        resources[tensor] = key


def operator_effects(model: FileModel) -> list[list[Effects]]:
    """Return, per subgraph, the effects of its operators, through the subgraphs that they execute."""
    own = [[_own_effects(operator, subgraph) for operator in subgraph.operators] for subgraph in model.subgraphs]
    bodies = {
        index: {body for operator in subgraph.operators for body in operator.bodies}
        for index, subgraph in enumerate(model.subgraphs)
    }
    whole = spread([joined(effects) for effects in own], bodies)
    return [
        [
            joined((effects, *(whole[body] for body in operator.bodies)))
            for effects, operator in zip(several, subgraph.operators, strict=True)
        ]
        for several, subgraph in zip(own, model.subgraphs, strict=True)
    ]


def _own_effects(operator: FileOperator, subgraph: FileSubgraph) -> Effects:
    tensors = (subgraph.tensors[tensor] for tensor in (*operator.inputs, *operator.outputs) if tensor >= 0)
    state = any(tensor.variable or tensor.dtype in RESOURCES for tensor in tensors) or _has_no_outputs(operator)
    return by_type(operator.type) | (Effects(stateful=True) if state else PURE)


def _has_no_outputs(operator: FileOperator) -> bool:
    return all(tensor < 0 for tensor in operator.outputs)


def _is_barrier(operator: FileOperator, effects: Effects) -> bool:
    unknown = _has_no_outputs(operator) and operator.type not in WRITERS
    return unknown or bool(operator.bodies and effects.once)


def _touches_unknown(operator: FileOperator, subgraph: FileSubgraph, resources: Mapping[int, Hashable]) -> bool:
    """A resource that came in from outside may be any of those known here."""
    return any(
        subgraph.tensors[tensor].dtype in RESOURCES and tensor not in resources
        for tensor in operator.inputs
        if tensor >= 0
    )


def _touched(
    operator: FileOperator, subgraph: FileSubgraph, resources: Mapping[int, Hashable], effects: Effects
) -> dict[Hashable, bool]:
    """Return the states that an operator touches, and whether it writes them."""
    touched: dict[Hashable, bool] = {}
    for tensor in (*operator.inputs, *operator.outputs):
        if tensor in resources:
            touched[resources[tensor]] = operator.type not in READERS
        elif tensor >= 0 and subgraph.tensors[tensor].variable:
            touched[tensor] = True
    if effects.random:
        touched["random"] = True
    return touched
