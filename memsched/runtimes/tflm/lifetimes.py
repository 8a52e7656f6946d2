"""When TensorFlow Lite Micro really needs each tensor, on a clock that runs through all subgraphs in execution order.

The runtime's own lifetimes (`plan`) are wider: a tensor that several visits of a body use lives there from the first to
the last, and what an operator with bodies reads or writes lives as long as they run. Offsets that a file brings need
only what is true. A body's visit begins when its inputs are filled and ends when its outputs have been taken:

- WHILE (while.cc) copies its inputs to the condition's, to the body's and to its outputs before the body runs first.
  Each iteration copies its outputs to the body's inputs, the body's outputs to its own, and these to the condition's:
  while the body runs, they hold nothing. Times of one iteration stand for all.
- IF (if.cc) copies its inputs to those of the body that it chose, and that body's outputs to its own.
  Where both cases name one body, it runs once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memsched.base.frozen import FrozenValue
from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph
from memsched.runtimes.tflm.plan import distinct_bodies

__all__ = ["Key", "Lifetimes", "Visit", "lifetimes"]

Key = tuple[int, int]
"""A tensor or an operator of a file: (subgraph, index)."""


class Visit(FrozenValue, frozen=True):
    """One execution of a subgraph: the time at which its inputs are filled, and that at which its outputs are taken."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Times, each of one operator or of the begin or end of a subgraph.

    Attributes:
        spans: Per (subgraph, tensor) the times [first, last], both included, at which its bytes are needed, rising.
        times: Per (subgraph, operator) the time of each of its executions.
        visits: Per (subgraph, operator) and execution the visits of its bodies, in the order of `distinct_bodies`.
    """

    spans: dict[Key, list[list[int]]] = field(default_factory=dict)
    times: dict[Key, list[int]] = field(default_factory=dict)
    visits: dict[Key, list[tuple[Visit, ...]]] = field(default_factory=dict)


def lifetimes(model: FileModel) -> Lifetimes:
    """Return when the tensors of ``model`` are needed; bodies must not be executed inside each other too often."""
    clock = _Clock(model)
    clock.visit(0)
    return clock.found


class _Clock:
    def __init__(self, model: FileModel) -> None:
        self._model = model
        self._now = 0
        self.found = Lifetimes()

    def visit(self, index: int) -> Visit:
        graph = self._model.subgraphs[index]
        begin = self._now
        self._define(index, graph.inputs, begin)
        last = _last_uses(graph)
        for number, operator in enumerate(graph.operators):
            self._now += 1
            self.found.times.setdefault((index, number), []).append(self._now)
            if operator.type == "WHILE":
                self._loop(index, number, operator)
            elif distinct_bodies(operator):
                self._choice(index, number, operator, last)
            else:
                self._use(index, operator.inputs, self._now)
                self._define(index, operator.outputs, self._now)
        self._now += 1
        self._use(index, graph.outputs, self._now)
        return Visit(begin, self._now)

    def _loop(self, index: int, number: int, operator: FileOperator) -> None:
        self._define(index, operator.outputs, self._now)
        visits = self._bodies(index, number, operator)
        self._use(index, (*operator.inputs, *operator.outputs), visits[-1].begin)
        self._define(index, operator.outputs, visits[-1].end)

    def _choice(self, index: int, number: int, operator: FileOperator, last: Sequence[int]) -> None:
        visits = self._bodies(index, number, operator)
        # Each body is the only one that runs: an input that is needed by none after it is no longer, once it has begun.
        kept = [tensor for tensor in operator.inputs if tensor >= 0 and last[tensor] > number]
        given = [tensor for tensor in operator.inputs if tensor >= 0 and last[tensor] == number]
        self._use(index, operator.inputs, visits[0].begin)
        for visit in visits[1:]:
            self._use(index, kept, visit.begin)
            self._define(index, given, visit.begin)
        for visit in visits:
            self._define(index, operator.outputs, visit.end)

    def _bodies(self, index: int, number: int, operator: FileOperator) -> tuple[Visit, ...]:
        visits = []
        for body in distinct_bodies(operator):
            self._now += 1
            visits.append(self.visit(body))
        self.found.visits.setdefault((index, number), []).append(tuple(visits))
        return tuple(visits)

    def _define(self, index: int, tensors: Sequence[int], time: int) -> None:
        for tensor in dict.fromkeys(tensors):
            if tensor >= 0:
                self.found.spans.setdefault((index, tensor), []).append([time, time])

    def _use(self, index: int, tensors: Sequence[int], time: int) -> None:
        for tensor in tensors:
            if tensor >= 0:
                spans = self.found.spans.setdefault((index, tensor), [[0, time]])
                spans[-1][1] = max(spans[-1][1], time)


def _last_uses(graph: FileSubgraph) -> list[int]:
    """Return per tensor the last operator that reads it; their number where it is an output, -1 where none does."""
    last = [-1] * len(graph.tensors)
    for number, operator in enumerate(graph.operators):
        for tensor in operator.inputs:
            if tensor >= 0:
                last[tensor] = number
    for tensor in graph.outputs:
        if tensor >= 0:
            last[tensor] = len(graph.operators)
    return last
