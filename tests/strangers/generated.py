"""Valid graphs over operators of many kinds: operators are drawn, and a solver chooses sizes and attributes.

As NNSmith does (Liu et al., ASPLOS 2023): an operator joins the graph if its conditions and all earlier ones have a
solution together.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.strangers.growing import Growing, UnfitError, Value, Where
from tests.strangers.judge import Subject
from tests.strangers.operators import OPERATORS, Operator

__all__ = ["generate", "graphs"]

MODELS = 400
_FEWEST, _MOST = 4, 24
_TRIES = 3

Step = tuple[Operator, int]


@functools.cache
def graphs() -> tuple[Subject, ...]:
    """Return the generated models."""
    return tuple(generate(number) for number in range(MODELS))


def generate(number: int) -> Subject:
    """Return model ``number``, the same one on every machine."""
    rng = random.Random(number)
    weights, operators = zip(*OPERATORS, strict=True)
    steps: list[Step] = []
    wanted = rng.randint(_FEWEST, _MOST)
    for _ in range(_TRIES * wanted):
        step = (rng.choices(operators, weights)[0], rng.randrange(1 << 30))
        if _grown([*steps, step]) is not None:
            steps.append(step)
        if len(steps) == wanted:
            break
    graph = _graph(steps)
    assert graph is not None
    at = graph.solve(rng) or _graph_solved(steps)
    feeds = tuple(_drawn(value, at, number) for value in graph.inputs)
    return Subject("generated", f"{number:05}", graph.built(at), (feeds,))


def _graph(steps: Sequence[Step]) -> Growing | None:
    graph = Growing()
    graph.fresh("float32", 4)
    for operator, seed in steps:
        graph.rng = random.Random(seed)
        try:
            operator(graph)
        except (UnfitError, KeyError):
            return None
    return graph


def _grown(steps: Sequence[Step]) -> Where | None:
    graph = _graph(steps)
    return None if graph is None else graph.solve()


def _graph_solved(steps: Sequence[Step]) -> Where:
    at = _grown(steps)
    assert at is not None
    return at


def _drawn(value: Value, at: Where, number: int) -> Any:
    numbers = np.random.default_rng([number, int(value.name[1:])])
    shape = [at(dim) for dim in value.dims]
    if value.dtype == "bool":
        return numbers.random(shape) < 0.5
    if value.dtype.startswith("float"):
        return numbers.uniform(-2, 2, shape).astype(value.dtype)
    return numbers.integers(0, 5, shape).astype(value.dtype)
