"""Single RandWire stages of growing size: how far a proof reaches, and the gap where it does not."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.solve.schedule.solvers import SOLVERS
from scripts.bench.runner.declare import TARGET, Benchmark, Heading, Part, Values, option, time_limit
from scripts.bench.runner.text import kilobytes, percent
from scripts.networks.randwire import random_cell
from scripts.networks.table import lowered

__all__ = ["BENCH", "table"]

_FOUND = ("greedy", "ours", "bound", "gap", "status", "proof", "states", "~processor s")
_COLUMNS = ("nodes", "seed", "ops", "fused", *_FOUND)


def table(sizes: Sequence[int], seeds: Sequence[int], target: str, limits: Limits, solver: str) -> Iterator[Part]:
    """Yield the lines of the table: one line for each number of nodes and each seed."""
    yield f"Peaks in KB of 1024 bytes, target {target}, solver {solver}, time limit {limits.time_limit:g} s.\n"
    yield Heading(*_COLUMNS)
    for nodes in sizes:
        for seed in seeds:
            graph = lowered(random_cell(nodes, seed).SerializeToString(), f"cell_{nodes}_{seed}", target)
            began = time.process_time()
            result = schedule_graph(graph, Run(limits), solver=solver)
            seconds = time.process_time() - began
            schedule = result.schedule
            peaks = [kilobytes(size) for size in (result.baselines["greedy"][1], schedule.peak, schedule.lower_bound)]
            gap = percent(schedule.peak / schedule.lower_bound - 1)
            fused = result.fused.ops_after if result.fused else len(graph.ops)
            found = [gap, schedule.status, schedule.proof, f"{schedule.states:,}", f"{seconds:.1f}"]
            yield nodes, seed, len(graph.ops), fused, *peaks, *found


def tables(values: Values) -> Iterator[Part]:
    """Yield the table."""
    return table(values.nodes, values.seeds, values.target, Limits(values.time_limit), values.solver)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        TARGET,
        time_limit(60.0),
        option("--nodes", nargs="+", type=int, default=[48, 64, 96], help="of a stage"),
        option("--seeds", nargs="+", type=int, default=[0, 1, 2, 3], help="of the stages"),
        option("--solver", choices=SOLVERS, default="auto", help="that orders them"),
    ),
    docs="docs/benchmarks/order.md",
)
