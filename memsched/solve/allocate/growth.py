"""Packings grown from the fullest section: those of ever more sections in a row, each guided by the one before.

What lives in some of the sections can be packed wherever all can be: where it does not fit, nothing does. A window of
sections around the fullest is packed first, where little fits; the next window holds a few blocks more, and the search
prefers the order that the blocks known to it had. A step that fails is tried anew with other rules and chances.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace

from memsched.graph.dag import members
from memsched.solve.allocate.preprocess import PackingProblem
from memsched.solve.allocate.search import Attempt, PackingOutcome, attempt

__all__ = ["GROWTHS", "grow", "window"]

GROWTHS = 3
"""Ways to grow: to the fuller side, or to one side first."""

_STEPS = 32
"""Windows, at most, from few blocks to all."""

_NODES = 2
"""Nodes per item in a window's first attempt."""

_ATTEMPTS_OF_A_SIZE = 128
"""Attempts at a window after which they may make half as many nodes more."""


def grow(problem: PackingProblem, wanted: Attempt, stop: Callable[[], bool]) -> PackingOutcome:
    """Search ``problem`` by growth; ``wanted.nodes`` are those of all attempts together, "infeasible" is a proof."""
    known: dict[int, int] = {}
    made = 0
    outcome = PackingOutcome("unknown", (), 0, 0)
    for first, end in _windows(problem, wanted.number % GROWTHS):
        part, items = window(problem, first, end)
        outcome = PackingOutcome("unknown", (), 0, 0)
        tried = 0
        while outcome.status == "unknown":
            # An attempt of few nodes ends before it asks whether it is to stop.
            if made >= wanted.nodes or outcome.stopped or stop():
                return replace(outcome, nodes=made, stopped=made < wanted.nodes)
            guided = known and tried % 2 == 0
            nodes = len(items) * _NODES * (2 * _ATTEMPTS_OF_A_SIZE + tried) // (2 * _ATTEMPTS_OF_A_SIZE)
            one = Attempt(
                number=wanted.number // GROWTHS * _ATTEMPTS_OF_A_SIZE + tried // 2,
                seed=wanted.seed,
                capacity=wanted.capacity,
                nodes=min(nodes, wanted.nodes - made),
                guide=tuple([known.get(item, -1) for item in items]) if guided else (),
            )
            outcome = attempt(part, one, stop)
            made += outcome.nodes
            tried += 1
        if outcome.status == "infeasible":
            break
        known = dict(zip(items, outcome.positions, strict=True))
    return replace(outcome, nodes=made)


def _windows(problem: PackingProblem, way: int) -> Iterator[tuple[int, int]]:
    """Yield the first section and the end of windows, each within the next; the last one holds all sections."""
    count = problem.section_count
    loads = [-slack for slack in problem.slack]
    live = _live(problem)
    for item, sections in enumerate(problem.sections):
        for section in sections:
            loads[section] += problem.widths[item]
    first = max(range(count), key=lambda section: (loads[section], -section), default=0)
    end, held = first + 1, live[first] if count else 0
    least = -(-len(problem.widths) // _STEPS)
    grown = held.bit_count()
    while first > 0 or end < count:
        fuller = end == count or (first > 0 and loads[first - 1] >= loads[end])
        to_the_left = (fuller, first > 0, end == count)[way]
        first, end = (first - 1, end) if to_the_left else (first, end + 1)
        held |= live[first if to_the_left else end - 1]
        if held.bit_count() >= grown + least and (first > 0 or end < count):
            yield first, end
            grown = held.bit_count()
    yield 0, count


def _live(problem: PackingProblem) -> list[int]:
    """Return the items of each section as bits."""
    live = [0] * problem.section_count
    for item, sections in enumerate(problem.sections):
        for section in sections:
            live[section] |= 1 << item
    return live


def window(problem: PackingProblem, first: int, end: int) -> tuple[PackingProblem, tuple[int, ...]]:
    """Return the problem of the sections from ``first`` up to ``end``, and which items of ``problem`` its own are."""
    live = _live(problem)[first:end]
    items = tuple(members(functools.reduce(operator.or_, live, 0)))
    numbers = {item: number for number, item in enumerate(items)}
    meets = [0] * len(problem.widths)
    sections: list[tuple[int, ...]] = []
    for item in items:
        sections.append(tuple([one - first for one in problem.sections[item] if first <= one < end]))
        meets[item] = functools.reduce(operator.or_, [live[one] for one in sections[-1]])

    def own(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([values[item] for item in items])

    part = PackingProblem(
        unit=problem.unit,
        shifts=own(problem.shifts),
        widths=own(problem.widths),
        above=own(problem.above),
        lowest=own(problem.lowest),
        highest=own(problem.highest),
        fixed=tuple([problem.fixed[item] for item in items]),
        alignments=own(problem.alignments),
        sections=tuple(sections),
        section_count=end - first,
        slack=problem.slack[first:end],
        durations=own(problem.durations),
        meets=tuple([tuple([numbers[other] for other in members(meets[item] & ~(1 << item))]) for item in items]),
        twins=tuple([tuple([numbers[other] for other in problem.twins[item]]) for item in items]),
        irregular=problem.irregular,
    )
    return part, items
