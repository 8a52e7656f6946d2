"""Execution orders: each solver's least peak, with cuts and without, with in-place writes and without."""

from __future__ import annotations

import random
from dataclasses import replace

from memsched.check.schedule import check_schedule
from memsched.graph.contraction import Tasks, single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.fusion.iterate import fuse
from memsched.solve.schedule import backtrack, cpsat, exact
from memsched.solve.schedule.orders import ORDERS
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.solve.schedule.solvers import SOLVERS
from scripts.bench.serenity import serenity
from tests.random_graphs import random_graph, random_layered_graph
from tests.tools.differential.claims import Claim, Pair, disagreements

__all__ = ["PAIRS", "graph_of"]

_LIMITS = Limits(3.0)
_STATES = 20_000


def graph_of(number: int, *, layable: bool = False) -> Graph:
    """Return the graph of a number: two in three of up to 14 ops, the others of up to 45; see `random_graph`."""
    rng = random.Random(f"orders {number}")
    if rng.random() < 2 / 3:
        return random_graph(rng, rng.randint(2, 14), layable=layable)
    if rng.random() < 0.5:
        return random_layered_graph(rng, rng.randint(15, 45), width=rng.randint(3, 8))
    return random_graph(rng, rng.randint(15, 45), layable=layable)


def _claim(name: str, tasks: Tasks, order: tuple[int, ...] | None, bound: int) -> Claim:
    found = None if order is None else evaluate(tasks.storage, tasks.expand(order)).peak
    return Claim(name, found, bound)


def _methods(number: int) -> list[str]:
    """Each exact method by itself, on fused and single ops, and each cheap order."""
    storage = Storage.of(graph_of(number))
    claims = [Claim(name, evaluate(storage, order(storage)).peak, 0) for name, order in ORDERS.items()]
    for kind, tasks in (("fused", fuse(storage).tasks), ("single ops", single_op_tasks(storage))):
        threshold = exact.search(tasks, max_states=_STATES)
        claims.append(_claim(f"threshold search, {kind}", tasks, threshold.order, threshold.lower_bound))
        walked = backtrack.search(tasks, max_states=_STATES, max_marked=_STATES)
        bound = walked.cost if walked.complete else 0
        claims.append(_claim(f"BTSearch, {kind}", tasks, walked.order, bound))
        dynamic = serenity(tasks, max_states=_STATES)
        claims.append(_claim(f"SERENITY, {kind}", tasks, dynamic.order, dynamic.peak if dynamic.complete else 0))
    return disagreements(claims)


def _cpsat(number: int) -> list[str] | None:
    storage = Storage.of(graph_of(number))
    tasks = fuse(storage).tasks
    threshold = exact.search(tasks, max_states=_STATES)
    program = cpsat.solve(tasks, Run(_LIMITS))
    if program.status == "refused":
        return None
    return disagreements([
        _claim("threshold search", tasks, threshold.order, threshold.lower_bound),
        _claim("CP-SAT", tasks, program.order, program.lower_bound),
    ])  # fmt: skip


def _solvers(number: int) -> list[str]:
    """What `--solver` and `--partitions` choose from, each with its proof, as the checker sees the result."""
    graph = graph_of(number)
    storage = Storage.of(graph)
    claims = []
    for name, parts in [*((name, 1) for name in SOLVERS), ("auto", 3)]:
        found = schedule_graph(graph, Run(_LIMITS), solver=name, storage=storage, partitions=parts).schedule
        claims.append(Claim(f"{name}, {parts} parts", check_schedule(graph, found).peak, found.lower_bound))
    return disagreements(claims)


def _in_place(number: int) -> list[str]:
    """Without in-place writes no order needs less."""
    graph = graph_of(number)
    bare = replace(graph, ops=tuple(replace(op, in_place=()) for op in graph.ops))
    shared, apart = (schedule_graph(one, Run(_LIMITS)).schedule for one in (graph, bare))
    return disagreements([
        Claim("with in-place writes", None, shared.lower_bound), Claim("without", check_schedule(bare, apart).peak, 0)
    ])  # fmt: skip


def _workers(number: int) -> list[str]:
    graph = random_layered_graph(random.Random(f"workers {number}"), 120, width=5)
    first, second = (schedule_graph(graph, Run(Limits(None, workers=workers, rounds=2))).schedule for workers in (1, 2))
    same = (first.order, first.in_place, first.lower_bound) == (second.order, second.in_place, second.lower_bound)
    return [] if same else [f"one worker: peak {first.peak}, two: peak {second.peak}, or other orders of it"]


PAIRS = (
    Pair("order: threshold search, BTSearch, SERENITY, fused or not, cheap orders", _methods, 2),
    Pair("order: threshold search, CP-SAT", _cpsat, 7),
    Pair("order: every --solver, --partitions 1 and 3", _solvers, 7),
    Pair("order: in-place writes, none", _in_place),
    Pair("order: one worker, two", _workers, 100),
)
