"""Measure partitioning and SERENITY's method on the networks of "Iterative Graph Optimization": tables V and VI.

Every network is fused first, and every method begins with the reverse post-order of the fused graph, as Algorithm 2
does, whatever better order is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final, Literal

from memsched.graph.contraction import Tasks, single_op_tasks
from memsched.graph.liveness import Storage
from memsched.solve.fusion.iterate import fuse
from memsched.solve.schedule import exact
from memsched.solve.schedule.partition import partition, post_order
from memsched.solve.schedule.partition_hypergraph import Hypergraph
from memsched.solve.schedule.partition_solve import _PartitionSolver, solve_partitioned
from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, chosen, option
from scripts.bench.runner.text import kilobytes
from scripts.bench.runner.timing import timed
from scripts.bench.schedule.published import NETWORKS
from scripts.bench.serenity import serenity
from scripts.networks.topology import load_topology

__all__ = ["BENCH", "cut_bytes", "naive", "partition_table", "parts_table", "serenity_table"]

_TOPOLOGIES = ROOT / "tests" / "data" / "networks"
PARTS: Final = (2, 3, 4, 5, 6)

_METHODS: Final = (
    "One partition: one try, stages within 50 % of equal shares. In rounds: the best of up to 15 partitions, each "
    "into as many stages, within 50, 90 and 150 % of equal shares, the later ones along the best order so far."
)

_TABLE_V: Final = MappingProxyType(
    {
        "nasnet_a": "3943 / 4013 / 3943",
        "amoebanet_a": "7732 / 7962 / 7732",
        "darts": "1764 / 1764 / 1764",
        "hrnet_w18_small_v1": "6368 / 7168 / 6368",
        "hrnet_w18_small_v2": "6396 / 6900 / 6432",
        "hrnet_w32": "6368 / 7040 / 6368",
    }
)
_TABLE_VI: Final = MappingProxyType(
    {
        ("hrnet_w18_small_v1", 1): "6368, - s",
        ("hrnet_w18_small_v1", 2): "6368, 2832 s",
        ("hrnet_w18_small_v1", 3): "6368, 64 s",
        ("hrnet_w18_small_v1", 4): "6368, 1.12 s",
        ("hrnet_w18_small_v1", 5): "6368, 0.63 s",
        ("hrnet_w18_small_v1", 6): "6400, 0.17 s",
        ("nasnet_a", 1): "3943, 155 s",
        ("nasnet_a", 2): "3943, 41.6 s",
        ("nasnet_a", 3): "3943, 61.7 s",
        ("nasnet_a", 4): "3943, 39.4 s",
        ("nasnet_a", 5): "3943, 31 s",
        ("nasnet_a", 6): "3943, 5.01 s",
    }
)


@dataclass(frozen=True, slots=True)
class _Network:
    """A fused network, the order that partitioning begins with, its peak and the proven optimum in bytes."""

    ops: int
    storage: Storage
    tasks: Tasks
    order: tuple[int, ...]
    peak: int
    optimum: int


@cache
def _load(name: str) -> _Network:
    graph = load_topology(_TOPOLOGIES / f"{name}.json")
    storage = Storage.of(graph)
    tasks = fuse(storage).tasks
    order = tuple(post_order(tasks))
    found = exact.search(tasks)
    if not found.complete:
        raise SystemExit(f"{name}: the search ended without a proof")
    return _Network(len(graph.ops), storage, tasks, order, max(tasks.run(order)[0]), found.lower_bound)


def naive(tasks: Tasks, parts: int) -> tuple[tuple[int, ...], ...]:
    """Return the levels of the graph cut into equal shares: the naive partition of table V."""
    level = [0] * len(tasks)
    for task, befores in enumerate(tasks.preds):
        level[task] = 1 + max((level[before] for before in befores), default=-1)
    order = sorted(range(len(tasks)), key=lambda task: (level[task], task))
    places = [part * len(order) // parts for part in range(parts + 1)]
    return tuple(tuple(sorted(order[places[part] : places[part + 1]])) for part in range(parts))


def cut_bytes(tasks: Tasks, groups: Sequence[Sequence[int]]) -> int:
    """Return the bytes live across the boundaries between stages, summed over the boundaries."""
    stages = [0] * len(tasks)
    for stage, group in enumerate(groups):
        for task in group:
            stages[task] = stage
    return Hypergraph.of(tasks).cut(stages, len(groups))


def _solve(network: _Network, parts: int | Literal["auto"], *, rounds: int = 0, seed: int = 0) -> int:
    """Return the peak that partitioning gives, told nothing of the optimum."""
    return solve_partitioned(network.tasks, parts, network.order, rounds=rounds, seed=seed).peak


def _solve_naive(network: _Network, parts: int) -> int:
    """Return the same of the naive partition."""
    solver = _PartitionSolver(
        network.tasks, network.order, 0, 200_000, lambda: False, lambda _: math.inf, lambda _states, _tasks: None
    )
    solver.try_groups(naive(network.tasks, parts))
    return solver.result().peak


def _against(peak: int, optimum: int) -> str:
    """Return a peak in KB, in bold where it is the optimum, with what it is above it otherwise."""
    text = kilobytes(peak)
    return f"**{text}**" if peak == optimum else f"{text} (+{100 * (peak / optimum - 1):.1f} %)"


def partition_table(names: Sequence[str], parts: int) -> Iterator[Part]:
    """Yield table V: the optimum, the naive partition and ours; with ``parts`` and the worst of 2 to 6 parts."""
    yield f"Peaks in KB of 1024 bytes, {parts} parts; cut: bytes live across the boundaries together; bold: optimum."
    yield f"{_METHODS}\n"
    yield Heading(
        *(
            "network",
            "tasks",
            "RPO of tasks",
            "optimum",
            "naive",
            "ours, one partition",
            "ours, in rounds",
            "naive, worst of 2 to 6",
            "one partition, worst of 2 to 6",
            "rounds, worst of 2 to 6",
            "cut naive -> ours",
            "published: optimum / naive / theirs",
        )
    )
    for name in names:
        network = _load(name)
        apart = {k: _solve_naive(network, k) for k in (*PARTS, parts)}
        once = {k: _solve(network, k) for k in (*PARTS, parts)}
        rounds = {k: _solve(network, k, rounds=4) for k in (*PARTS, parts)}
        peaks = [apart[parts], once[parts], rounds[parts], *(max(p[k] for k in PARTS) for p in (apart, once, rounds))]
        cuts = [kilobytes(cut_bytes(network.tasks, make(network.tasks, parts))) for make in (naive, partition)]
        yield (
            name,
            len(network.tasks),
            kilobytes(network.peak),
            kilobytes(network.optimum),
            *(_against(peak, network.optimum) for peak in peaks),
            " -> ".join(cuts),
            _TABLE_V.get(name, "-"),
        )


def parts_table(names: Sequence[str], seeds: int) -> Iterator[Part]:
    """Yield table VI: memory and seconds by number of parts; and how many of other seeds miss the optimum."""
    yield "Peaks in KB of 1024 bytes; seconds without loading and fusion; bold: the proven optimum."
    yield f"{_METHODS}\n"
    yield Heading(
        *("network", "parts", "one partition", "~s", "in rounds", "~s", f"misses with {seeds} seeds", "published")
    )
    for name in names:
        network = _load(name)
        counts: tuple[int | Literal["auto"], ...] = (1, *PARTS, "auto")
        for count in counts:
            once, once_seconds = timed(lambda: _solve(network, count))  # noqa: B023 - called at once
            rounds, seconds = timed(lambda: _solve(network, count, rounds=4))  # noqa: B023 - called at once
            missed = sum(_solve(network, count, rounds=4, seed=seed) > network.optimum for seed in range(1, seeds + 1))
            yield (
                name,
                count,
                _against(once, network.optimum),
                f"{once_seconds:.2f}",
                _against(rounds, network.optimum),
                f"{seconds:.2f}",
                missed,
                _TABLE_VI.get((name, count), "-") if count != "auto" else "-",
            )


def serenity_table(names: Sequence[str], states_per_step: int, max_states: int) -> Iterator[Part]:
    """Yield peaks, states and seconds of SERENITY's method and of ours, on fused tasks and on single ops."""
    yield (
        f"SERENITY: at most {states_per_step:,} downsets per step, {max_states:,} in all; ours: {max_states:,} in all. "
        "Peaks in KB of 1024 bytes; bold: as low as the proven optimum. Where SERENITY ran out of downsets, its peak "
        "is that of Kahn's algorithm for the segments without a solution, and says nothing of what more effort gives.\n"
    )
    yield Heading(
        *("network", "on", "tasks", "SERENITY", "budgets", "states", "~s", "proven", "ours", "states", "~s", "proven")
    )
    for name in names:
        network = _load(name)
        for kind, tasks in (("fused", network.tasks), ("ops", single_op_tasks(network.storage))):
            theirs, their_seconds = timed(
                lambda: serenity(tasks, states_per_step=states_per_step, max_states=max_states)  # noqa: B023
            )
            ours, seconds = timed(lambda: exact.search(tasks, max_states=max_states))  # noqa: B023 - called at once
            yield (
                name,
                kind,
                len(tasks),
                _against(theirs.peak, network.optimum),
                len(theirs.budgets),
                f"{theirs.states:,}",
                f"{their_seconds:.2f}",
                "yes" if theirs.complete else "no",
                f"**{kilobytes(ours.lower_bound)}**" if ours.complete else "-",
                f"{ours.states:,}",
                f"{seconds:.2f}",
                "yes" if ours.complete else "no",
            )


_TABLES: Final = ("V", "VI", "serenity")


def tables(values: Values) -> Iterator[Part]:
    """Yield the tables that are asked for."""
    names = values.names or tuple(NETWORKS)
    for title in (values.table,) if values.table else _TABLES:
        yield f"**{title}**:"
        if title == "V":
            yield from partition_table(names, values.parts)
        elif title == "VI":
            yield from parts_table(names, values.seeds)
        else:
            yield from serenity_table(names, values.states_per_step, values.max_states)
        yield ""


BENCH = Benchmark(
    __doc__,
    tables,
    (
        chosen("network", NETWORKS, "all"),
        option("--table", choices=_TABLES, help="default: all three"),
        option("--parts", type=int, default=4, help="of table V"),
        option("--seeds", type=int, default=4, help="further seeds in table VI"),
        option("--states-per-step", type=int, default=20_000, help="of SERENITY"),
        option("--max-states", type=int, default=1_000_000, help="of SERENITY"),
    ),
    docs="docs/benchmarks/order.md",
)
