"""Values computed again: retention intervals on CP-SAT, balanced separators, greedy, local search, the whole search."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence

from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.rewrites.recompute.cost import judge, least_peak
from memsched.rewrites.recompute.decompose import path_schedule, tree_schedule
from memsched.rewrites.recompute.greedy import reduce_to
from memsched.rewrites.recompute.local import improve
from memsched.rewrites.recompute.rewrite import repeatable
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests.rewrites.recompute.moccasin import least_cost
from tests.rewrites.recompute.tiny_graphs import PLAIN, layered, tiny, tracer_of
from tests.tools.differential.claims import Claim, Pair, disagreements

__all__ = ["PAIRS"]

_COPIES = 2
_LIMITS = Limits(10.0)


def _graph(number: int) -> Graph:
    rng = random.Random(f"repetitions {number}")
    if rng.random() < 0.75:
        return tiny(rng, rng.randint(3, 10))
    return layered(rng.randrange(10_000), rng.randint(8, 18), rng.randint(2, 5))


def _sequences(graph: Graph, budget: int) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield what each method makes of a budget, by its name."""
    target = load_target("paper")
    order = tuple(range(len(graph.ops)))
    lowered = apply_target(graph, target)
    yield "tree decomposition", tree_schedule(lowered, budget=budget, order=order).sequence
    yield "path decomposition", path_schedule(lowered, budget=budget, order=order).sequence
    reached = reduce_to(tracer_of(graph, target), order, budget)
    yield "greedy", reached.sequence
    yield "local search", improve(tracer_of(graph, target), reached, budget, most_steps=100_000).sequence


def _covered(sequence: Sequence[int], count: int) -> bool:
    """Whether the program covers a sequence: first executions in the file's order, none executed more than twice."""
    return tuple(dict.fromkeys(sequence)) == tuple(range(count)) and max(Counter(sequence).values()) <= _COPIES


def _methods(number: int) -> list[str] | None:
    graph, target = _graph(number), load_target("paper")
    plain = judge(graph, range(len(graph.ops)), target, PLAIN)
    bound = least_peak(apply_target(graph, target), repeatable(graph))
    budget = max(bound, plain.peak * random.Random(number).choice([70, 80, 90, 95]) // 100)
    program = least_cost(tracer_of(graph, target), budget, Run(_LIMITS), copies=_COPIES)
    if program.status == "refused":
        return None
    nothing = program.status == "infeasible"
    claims = [Claim("program", program.cost if program.sequence is not None else None, program.cost_bound)]
    peaks = [Claim("bound of all sequences", None, bound)]
    contradictions = []
    if program.sequence is not None and judge(graph, program.sequence, target, PLAIN).peak > budget:
        contradictions.append(f"the program's sequence needs more than {budget} bytes")
    for name, sequence in _sequences(graph, budget):
        point = judge(graph, sequence, target, PLAIN)
        peaks.append(Claim(name, point.peak, 0))
        if point.peak > budget or not _covered(point.sequence, len(graph.ops)):
            continue
        claims.append(Claim(name, point.cost, 0))
        if nothing:
            contradictions.append(f"the program proves that nothing needs {budget} bytes, but {name} does")
    return contradictions + disagreements(peaks) + ([] if nothing else disagreements(claims))


PAIRS = (Pair("repetitions: CP-SAT, tree and path decomposition, greedy, local search, bound", _methods, 7),)
