"""The search for what a model's caller can do instead of the model; each format says which of its operators that are.

From an input inwards, and from an output inwards, operators are followed as long as nothing else needs what lies
between them. Of the tensors on the way the smallest becomes the new input or output, of equal ones the innermost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from memsched.graph.border import Border, Borders, BorderStep, BorderTensor, Side
from memsched.graph.dag import producers
from memsched.graph.model import Graph, Op

__all__ = ["Describe", "find_borders"]

Describe = Callable[[Op], "BorderStep | str | None"]
"""Says what the caller would do instead of an op: None where that is no question, a text where the caller cannot."""


@dataclass(slots=True)
class _Walk:
    """Follows operators from one input or output; ``refusal`` says what ended that before anything was found."""

    graph: Graph
    describe: Describe
    readers: dict[int, list[int]]
    maker: Sequence[int]
    edge: set[int]
    refusal: str = ""
    tensors: list[int] = field(default_factory=list)
    steps: list[BorderStep] = field(default_factory=list)

    def go(self, start: int, side: Side) -> None:
        """Follow operators as far as they go."""
        self.tensors = [start]
        while True:
            found = self._inwards(self.tensors[-1]) if side == "input" else self._outwards(self.tensors[-1])
            if isinstance(found, str) and not self.steps and self._helps(start, side):
                self.refusal = found
            if found is None or isinstance(found, str):
                return
            step, tensor = found
            self.steps.append(step)
            self.tensors.append(tensor)

    def _helps(self, start: int, side: Side) -> bool:
        """Whether a tensor next to ``start`` is no larger."""
        near = self.readers.get(start, []) if side == "input" else [self.maker[start]]
        ops = [op for op in (self.graph.ops[one] for one in near) if self.describe(op) is not None]
        sizes = [self.graph.tensors[(op.outputs if side == "input" else op.inputs)[0]].size for op in ops]
        return min(sizes) <= self.graph.tensors[start].size

    def _inwards(self, tensor: int) -> tuple[BorderStep, int] | str | None:
        readers = self.readers.get(tensor, [])
        steps = [one for op in readers if isinstance(one := self.describe(self.graph.ops[op]), BorderStep | str)]
        if not steps:
            return None
        step, op = steps[0], self.graph.ops[readers[0]]
        names = self.graph.tensors
        others = [self.graph.ops[one] for one in readers if self.describe(self.graph.ops[one]) is None]
        if tensor in self.edge:
            return "it is an output of the model, too"
        if others or len(readers) > 1:
            other = (others or [self.graph.ops[one] for one in readers[1:]])[0]
            return f"'{names[tensor].name}' is read by {other.type} '{other.name}', too"
        if isinstance(step, str):
            return step
        (made,) = op.outputs
        if made in self.edge:
            return f"what {op.type} '{op.name}' makes is an output of the model"
        return step, made

    def _outwards(self, tensor: int) -> tuple[BorderStep, int] | str | None:
        if self.maker[tensor] < 0:
            return None
        op = self.graph.ops[self.maker[tensor]]
        step = self.describe(op)
        if step is None:
            return None
        name = self.graph.tensors[tensor].name
        own = self.readers.get(tensor, [])
        # Behind the first one a tensor is read by the operator before, which goes.
        if len(own) > (0 if len(self.tensors) == 1 else 1):
            other = self.graph.ops[own[0]]
            return f"'{name}' is read by {other.type} '{other.name}', too"
        (read,) = op.inputs
        if isinstance(step, str):
            return step
        if read in self.edge or self.maker[read] < 0:
            what = "an input" if self.maker[read] < 0 else "an output"
            return f"what {op.type} '{op.name}' reads is {what} of the model"
        return step, read

    def best(self) -> int:
        """Return how many operators to leave to the caller: up to the smallest tensor, of equal ones the innermost."""
        sizes = [self.graph.tensors[tensor].size for tensor in self.tensors]
        count = min(range(len(sizes)), key=lambda number: (sizes[number], -number))
        if not count and self.steps:
            step = self.steps[0]
            self.refusal = f"without {step.type} '{step.op}' it would be larger: {sizes[1]:,} instead of {sizes[0]:,} B"
        return count


def find_borders(graph: Graph, describe: Describe, scale_of: Callable[[int], tuple[float, int] | None]) -> Borders:
    """Return what can be changed at the border of ``graph``, the main graph of a model as given.

    Args:
        scale_of: The scale and the zero point that a model states of a tensor; None where it states none.
    """
    readers: dict[int, list[int]] = {}
    for number, op in enumerate(graph.ops):
        for tensor in dict.fromkeys(op.inputs):
            readers.setdefault(tensor, []).append(number)
    maker = producers(graph)
    found: list[Border] = []
    refusals: list[tuple[str, str]] = []
    edge = {*graph.outputs, *graph.variables}

    def tensor_of(number: int, steps: Sequence[BorderStep] = ()) -> BorderTensor:
        tensor, stated = graph.tensors[number], scale_of(number)
        if stated is None:
            stated = next(((step.scale, step.zero_point) for step in reversed(steps) if step.scale), None)
        scale, zero_point = stated or (None, None)
        return BorderTensor(tensor.name, tensor.shape or (), tensor.dtype, tensor.size, scale, zero_point)

    sides: tuple[tuple[Side, tuple[int, ...]], ...] = (("input", graph.inputs), ("output", graph.outputs))
    for side, ends in sides:
        for place, start in enumerate(ends):
            walk = _Walk(graph, _once(describe, graph), readers, maker, edge)
            walk.go(start, side)
            count = walk.best()
            if walk.refusal and not count:
                refusals.append((graph.tensors[start].name, walk.refusal))
            if not count:
                continue
            steps, end = walk.steps[:count], walk.tensors[count]
            edge.add(end)
            if side == "input":
                maker = [-1 if tensor == end else op for tensor, op in enumerate(maker)]
            ordered = tuple(steps) if side == "input" else tuple(reversed(steps))
            found.append(Border(side, place, tensor_of(start), tensor_of(end, steps), ordered))
    return Borders(tuple(found), tuple(refusals))


def _once(describe: Describe, graph: Graph) -> Describe:
    """Return ``describe`` for ops that turn one tensor of known size into another, at no stated time; else None."""
    bound = {graph.ops[op].name for pair in graph.dependencies for op in pair}

    def described(op: Op) -> BorderStep | str | None:
        if len(op.inputs) != 1 or len(op.outputs) != 1 or op.name in bound:
            return None
        tensors = [graph.tensors[tensor] for tensor in (*op.inputs, *op.outputs)]
        known = all(tensor.sized and tensor.shape is not None for tensor in tensors)
        return describe(op) if known else None

    return described
