"""Loops of a plan that one loop of the graph carries out in turn.

What one of them makes for others lies in sequences that the loop of the graph hands from block to block. So its last
reader can drop the blocks that it has read: an image goes while another one comes. Of what lies outside of a loop the
runtime lets go of nothing before the loop has ended.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.blocks.rows.body import Carried, Outer, RowWriter, Totals
from memsched.formats.onnx.blocks.rows.loops import RowLoop, Statistic
from memsched.formats.onnx.blocks.rows.nodes import BodyNodes, blocks_value, branch, value
from memsched.formats.onnx.standard import Axes

__all__ = ["Phase", "RunWriter"]

_Key = TypeVar("_Key", bound=Hashable)

_BRANCHES: Final = 8
"""Parts into which phases are divided."""

_Written: TypeAlias = "tuple[list[NodeProto], list[str]]"


class Phase(FrozenValue, frozen=True):
    """A loop of the plan.

    Attributes:
        label: What all its names begin with.
        height: The rows of a block, a vector, and the number of blocks, a scalar.
    """

    loop: RowLoop
    label: str
    height: tuple[str, str]


class RunWriter:
    """Writes a loop of the graph.

    Args:
        phases: What it carries out, in turn.
        others: The other loops of the plan.
    """

    def __init__(self, outer: Outer, phases: Sequence[Phase], others: Sequence[RowLoop]) -> None:
        self.outer, self.phases = outer, phases
        self.label = phases[0].label if len(phases) == 1 else f"{phases[0].label}_on"
        self.step = f"{self.label}_step"
        last, self.eaten = self._lifetimes(others)
        made = {name: number for number, phase in enumerate(phases) for name in phase.loop.made}
        sums = {one: number for number, phase in enumerate(phases) for one in phase.loop.statistics}
        end = len(phases)
        # Blocks of one sequence are of one type.
        self.blocks: dict[str, int] = {}
        self.elements: list[int] = []
        for element in dict.fromkeys(map(outer.element, made)):
            times = {
                name: (first, last.get(name, end)) for name, first in made.items() if outer.element(name) == element
            }
            places = _slots(times)
            self.blocks.update((name, len(self.elements) + slot) for name, slot in places.items())
            self.elements += [element] * _count(places)
        # What others left in a place is as long: it has as many groups.
        self.sums: dict[Statistic, int] = {}
        for groups in dict.fromkeys(one[1] for one in sums):
            own = {one: (first, last.get(one, end)) for one, first in sums.items() if one[1] == groups}
            before = _count(self.sums)
            self.sums.update((one, before + slot) for one, slot in _slots(own).items())
        self.states = [f"{self.label}_blocks_{slot}" for slot in range(len(self.elements))]
        self.added = [f"{self.label}_sum_{place}" for place in range(3 * _count(self.sums))]
        self.starts = self._starts()

    def _lifetimes(self, others: Sequence[RowLoop]) -> tuple[dict[object, int], dict[str, int]]:
        """Return the last reader of what is needed in the loop alone, and of the images among it."""
        field = self.outer.field
        outside: set[object] = {*self.outer.whole, *(name for loop in others for name in loop.read)}
        outside.update(one for loop in others for one in _used(self.outer, loop))
        outside.update(op.statistic for op in field.ops if op.is_summary and op.statistic is not None)
        last: dict[object, int] = {}
        images: dict[str, int] = {}
        made = {name for phase in self.phases for name in phase.loop.made}
        for number, phase in enumerate(self.phases):
            last.update((one, number) for one in _used(self.outer, phase.loop) if one not in outside)
            images.update((name, number) for name in phase.loop.read if name in made and name not in outside)
        last.update(images.items())
        return last, images

    def _starts(self) -> list[str]:
        """Return the numbers of the first blocks of all phases, and how many blocks there are."""
        found = [self.outer.lengths.constant([0], scalar=True), self.phases[0].height[1]]
        for phase in self.phases[1:]:
            found.append(self.outer.lengths.node("Add", [found[-1], phase.height[1]], "blocks_before"))
        return found

    def nodes(self) -> list[NodeProto]:
        """Return the loop with what stands before and behind it."""
        around = BodyNodes(f"{self.label}_around")
        zero = self.outer.zero(self.label) if self.added else ""
        sequences = [around.op("SequenceEmpty", dtype=element) for element in self.elements]
        inputs = [self.starts[-1], "", *sequences, *([zero] * len(self.added))]
        made = {slot: name for name, slot in self.blocks.items() if name not in self.eaten}
        left = [f"{self.label}_left_{slot}" for slot in range(len(self.states))]
        results = [self._named(made[slot]) if slot in made else left[slot] for slot in range(len(self.states))]
        totals = [f"{self.label}_total_{place}" for place in range(len(self.added))]
        loop = helper.make_node("Loop", inputs, [*results, *totals], name=self.label, body=self._body())
        around.made.append(loop)
        for slot, name in made.items():
            if name in self.outer.whole:
                label = f"{results[slot]}_joined"
                joined = helper.make_node("ConcatFromSequence", [results[slot]], [name], name=label, axis=Axes.ROWS)
                around.made.append(joined)
        for statistic, slot in self.sums.items():
            count, mean, squares = totals[3 * slot : 3 * slot + 3]
            self.outer.totals[statistic] = count, mean, squares
            self._summarise(around, statistic)
        return around.made

    def _named(self, name: str) -> str:
        """Return the sequence of an image behind the loop."""
        known = self.outer.sequences.get(name)
        return f"{self.label}_made_of_{name}" if known is None else known[0]

    def _summarise(self, around: BodyNodes, statistic: Statistic) -> None:
        """Make the means that the graph has as values."""
        outer = self.outer
        for op in outer.field.ops:
            if op.is_summary and op.statistic == statistic:
                shape = [one for one in outer.field.graph.values.shapes[op.outputs[0]] if one is not None]
                mean = around.op("Cast", outer.totals[statistic][1], to=TensorProto.FLOAT)
                around.op("Reshape", mean, outer.lengths.vector(shape), result=op.outputs[0])

    def _body(self) -> GraphProto:
        before = f"{self.label}_condition"
        states = [*self.states, *self.added]
        made, outputs = self._some(0, len(self.phases), states)
        after = f"{self.label}_goes_on"
        made.append(helper.make_node("Identity", [before], [after], name=f"{after}_node"))
        inputs = [value(self.step, TensorProto.INT64, []), value(before, TensorProto.BOOL, [])]
        results = [value(after, TensorProto.BOOL, []), *self._values(range(len(states)), outputs)]
        inputs += self._values(range(len(states)), states)
        return helper.make_graph(made, f"{self.label}_body", inputs, results)

    def _values(self, places: Iterable[int], names: Sequence[str]) -> list[ValueInfoProto]:
        """Return what declares states."""
        kinds = zip(places, names, strict=True)
        return [
            blocks_value(name, self.elements[place])
            if place < len(self.states)
            else value(name, TensorProto.DOUBLE, None)
            for place, name in kinds
        ]

    def _some(self, first: int, behind: int, states: Sequence[str]) -> _Written:
        """Return nodes for a block of one of some phases, and what is handed on then.

        Each part of the phases is a branch, one behind the other, so that few conditions are asked for a block.

        Args:
            states: What is handed on, before.
        """
        if behind - first == 1:
            return self._one(first, states)
        nodes, after = BodyNodes(f"{self.phases[first].label}_to_{behind - 1}"), list(states)
        parts = min(_BRANCHES, behind - first)
        ends = [first + part * (behind - first) // parts for part in range(parts + 1)]
        for begin, end in itertools.pairwise(ends):
            is_now = nodes.op("Less", self.step, self.starts[end])
            if begin > first:
                is_now = nodes.op("And", is_now, nodes.op("GreaterOrEqual", self.step, self.starts[begin]))
            places = self._changed(begin, end)
            now, passing = self._branch(begin, end, after), self._passing(begin, places, after)
            outputs = [nodes.name("state") for _ in places]
            label = nodes.name("if")
            nodes.made.append(
                helper.make_node("If", [is_now], outputs, name=label, then_branch=now, else_branch=passing)
            )
            for place, name in zip(places, outputs, strict=True):
                after[place] = name
        return nodes.made, after

    def _changed(self, first: int, behind: int) -> list[int]:
        """Return the states that some phases change."""
        found: set[int] = set()
        for number in range(first, behind):
            loop = self.phases[number].loop
            found.update(self.blocks[name] for name in loop.made)
            found.update(self.blocks[name] for name, last in self.eaten.items() if last == number)
            begins = (len(self.states) + 3 * self.sums[one] for one in loop.statistics)
            found.update(begin + part for begin in begins for part in range(3))
        return sorted(found)

    def _branch(self, first: int, behind: int, states: Sequence[str]) -> GraphProto:
        made, after = self._some(first, behind, states)
        places = self._changed(first, behind)
        outputs = self._values(places, [after[place] for place in places])
        return helper.make_graph(made, f"{self.phases[first].label}_branch", [], outputs)

    def _passing(self, first: int, places: Sequence[int], states: Sequence[str]) -> GraphProto:
        """Return the branch that changes nothing; what comes from outside can't be its output as it is."""
        nodes = BodyNodes(f"{self.phases[first].label}_else")
        outputs = []
        for place in places:
            if place < len(self.states):
                outputs.append(nodes.same_blocks(states[place], self.outer.tiny[self.elements[place]]))
            else:
                outputs.append(nodes.op("Identity", states[place]))
        return branch(nodes, self._values(places, outputs))

    def _one(self, number: int, states: Sequence[str]) -> _Written:
        """Return the nodes for a block of a phase."""
        phase, count = self.phases[number], len(self.states)
        blocks = {name: states[slot] for name, slot in self.blocks.items()}
        eaten = frozenset(name for name, last in self.eaten.items() if last == number)
        sums = {one: _three(states[count:], slot) for one, slot in self.sums.items()}
        is_alone = len(self.phases) == 1
        carried = Carried(blocks, sums, eaten)
        writer = RowWriter(self.outer, phase.loop, phase.label, phase.height, carried, is_alone=is_alone)
        step = writer.body.op("Sub", self.step, self.starts[number]) if number else self.step
        found = writer.write(step)
        after = list(states)
        for name, state in found.blocks.items():
            after[self.blocks[name]] = state
        for statistic, added in found.sums.items():
            begin = count + 3 * self.sums[statistic]
            after[begin : begin + 3] = added
        return writer.body.made, after


def _used(outer: Outer, loop: RowLoop) -> list[Statistic]:
    """Return the statistics that a loop needs."""
    needed = (outer.field.ops[number].statistic for number in loop.ops)
    return [one for one in needed if one is not None]


def _slots(lifetimes: Mapping[_Key, tuple[int, int]]) -> dict[_Key, int]:
    """Return places for values, from their first step to their last, so that none shares one with another at a step."""
    ends: list[int] = []
    found = {}
    for key, (first, last) in lifetimes.items():
        slot = next((number for number, end in enumerate(ends) if end < first), len(ends))
        ends[slot : slot + 1] = [last]
        found[key] = slot
    return found


def _count(slots: Mapping[_Key, int]) -> int:
    return max(slots.values(), default=-1) + 1


def _three(names: Sequence[str], slot: int) -> Totals:
    first, second, third = names[3 * slot : 3 * slot + 3]
    return first, second, third
