"""BTSearch: beside the threshold search, against random orders, and how its states grow on series-parallel graphs."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from functools import cache
from statistics import mean
from typing import Literal

from memsched.graph.contraction import Tasks, single_op_tasks
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph, Op, Tensor
from memsched.solve.fusion.iterate import fuse
from memsched.solve.schedule import exact
from memsched.solve.schedule.backtrack import BacktrackResult, Metric, search
from scripts.bench.runner.declare import (
    TARGET,
    Benchmark,
    Heading,
    Part,
    Values,
    chosen,
    option,
    time_limit,
)
from scripts.bench.runner.models import network
from scripts.bench.runner.text import kilobytes, percent
from scripts.bench.runner.timing import timed
from scripts.networks.catalogue import CLASSIFIERS, NAMES

__all__ = ["BENCH", "NETWORKS", "random_order", "series_parallel", "tables"]

NETWORKS = (
    *("nasnet_a", "amoebanet_a", "darts", "randwire1", "randwire2", "hrnet_w18_small_v1"),
    *("googlenet", "inception_v3", "resnet50"),
)
"""Measured unless others are named: branchy networks, and those of MemoriaNova that the generators have."""

_PARALLEL = ((1, 2, 4), (2, 2, 4), (4, 2, 4), (8, 2, 4), (4, 2, 8), (4, 3, 4), (4, 4, 4), (4, 3, 8), (1, 5, 6))

_Form = Literal["fused", "ops"]


def tables(names: Sequence[str], target: str, time_limit: float, seeds: int) -> Iterator[Part]:
    """Yield the lines of the three tables."""
    yield from _against_exact(names, target, time_limit)
    yield ""
    yield from _against_random(names, target, time_limit, seeds)
    yield ""
    yield from _series_parallel(time_limit)


@cache
def _tasks(name: str, target: str, form: _Form) -> Tasks:
    storage = Storage.of(network(name, target))
    return fuse(storage).tasks if form == "fused" else single_op_tasks(storage)


@cache
def _run(
    name: str, target: str, form: _Form, metric: Metric, plain: bool, time_limit: float
) -> tuple[BacktrackResult, float]:
    return _limited(_tasks(name, target, form), metric, plain, time_limit)


def _limited(tasks: Tasks, metric: Metric, plain: bool, time_limit: float) -> tuple[BacktrackResult, float]:
    end = time.monotonic() + time_limit
    return timed(lambda: search(tasks, metric=metric, plain=plain, stop=lambda: time.monotonic() >= end))


def _against_exact(names: Sequence[str], target: str, time_limit: float) -> Iterator[Part]:
    yield (
        f"Peaks in KB of 1024 bytes, target {target}, at most {time_limit:g} s and 2,000,000 marked states each; bold: "
        "proven. States: expanded, one again whenever it was reached at less cost.\n"
    )
    columns = ("network", "on", "tasks", "threshold search", "states", "~s")
    plain = ("as published", "states", "~s")
    yield Heading(*columns, "BTSearch", "states", "~s", *plain, "least sum: states", "~s", "proven")
    for name in names:
        for form in ("fused", "ops"):
            tasks = _tasks(name, target, form)
            found, seconds = timed(lambda: exact.search(tasks))  # noqa: B023 - called at once
            cells = [_bold(found.lower_bound, found.complete), f"{found.states:,}", f"{seconds:.2f}"]
            for plainly in (False, True):
                result, seconds = _run(name, target, form, "peak", plainly, time_limit)
                cells += [_bold(result.cost, result.complete), f"{result.states:,}", f"{seconds:.2f}"]
            result, seconds = _run(name, target, form, "sum", False, time_limit)
            cells += [f"{result.states:,}", f"{seconds:.2f}", "yes" if result.complete else "no"]
            yield name, form, len(tasks), *cells


def _bold(peak: int, proven: bool) -> str:
    return f"**{kilobytes(peak)}**" if proven else kilobytes(peak)


def _against_random(names: Sequence[str], target: str, time_limit: float, seeds: int) -> Iterator[Part]:
    yield (
        f"KB of 1024 bytes, on single ops. Random: the mean over {seeds} orders (seeds 0 to {seeds - 1}) that execute "
        "at each step a ready op drawn evenly. Mean in use: over the steps of an order. BTSearch: the order of the "
        "least sum found on single ops or, where less, on fused ones; of the least peak in the last two columns.\n"
    )
    mean_columns = ("mean in use: random", "file order", "BTSearch", "less than random", "proven")
    peak_columns = ("peak: random", "file order", "least sum", "less", "least peak", "less")
    yield Heading("network", "ops", *mean_columns, *peak_columns)
    savings = []
    for name in names:
        storage = Storage.of(network(name, target))
        ops = len(storage.preds)
        profiles = [evaluate(storage, random_order(storage, seed)) for seed in range(seeds)]
        drawn = [mean(mean(profile.footprints) for profile in profiles), mean(profile.peak for profile in profiles)]
        given = evaluate(storage, range(ops))
        runs = {form: _run(name, target, form, "sum", False, time_limit)[0] for form in ("fused", "ops")}
        form = min(runs, key=lambda form: (runs[form].cost, form != "ops"))
        ours = evaluate(storage, _tasks(name, target, form).expand(runs[form].order))
        least = exact.search(_tasks(name, target, "fused")).lower_bound
        use = mean(ours.footprints)
        savings.append((1 - use / drawn[0], 1 - ours.peak / drawn[1], 1 - least / drawn[1]))
        yield (
            *(name, ops, kilobytes(round(drawn[0])), kilobytes(round(mean(given.footprints)))),
            *(kilobytes(round(use)), percent(savings[-1][0]), "yes" if runs["ops"].complete else "no"),
            *(kilobytes(round(drawn[1])), kilobytes(given.peak), kilobytes(ours.peak), percent(savings[-1][1])),
            *(kilobytes(least), percent(savings[-1][2])),
        )
    average = [percent(mean(column)) for column in zip(*savings, strict=True)]
    yield "mean", "", "", "", "", average[0], "", "", "", "", average[1], "", average[2]


def random_order(storage: Storage, seed: int) -> tuple[int, ...]:
    """Return an order that executes at each step one of the ready ops, drawn evenly."""
    rng = random.Random(seed)
    waiting = [len(befores) for befores in storage.preds]
    ready = [op for op, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        drawn = rng.randrange(len(ready))
        ready[drawn], ready[-1] = ready[-1], ready[drawn]
        order.append(ready.pop())
        for after in storage.succs[order[-1]]:
            waiting[after] -= 1
            if not waiting[after]:
                ready.append(after)
    return tuple(order)


def series_parallel(blocks: int, branches: int, length: int, seed: int = 0) -> Graph:
    """Return ``blocks`` parallel graphs in a row, each of ``branches`` branches of ``length`` ops and a join."""
    rng = random.Random(seed)
    tensors = [Tensor("x", 1024 * rng.randint(1, 64))]
    ops: list[Op] = []

    def add(kind: str, reads: Sequence[int]) -> int:
        ops.append(Op(f"{kind}{len(ops)}", kind, tuple(reads), (len(tensors),)))
        tensors.append(Tensor(f"t{len(ops)}", 1024 * rng.randint(1, 64)))
        return len(tensors) - 1

    start = 0
    for _ in range(blocks):
        ends = [start] * branches
        for _ in range(length):
            ends = [add("Op", [end]) for end in ends]
        start = add("Join", ends)
    return Graph("series-parallel", tuple(tensors), tuple(ops), (0,), (start,))


def _series_parallel(time_limit: float) -> Iterator[Part]:
    yield (
        f"N blocks in a row of M branches of K ops and a join, random sizes; at most {time_limit:g} s each; +: a "
        "limit was met. Published count: between N M K and N K^M; N (K+1)^M sets of ops can be executed.\n"
    )
    marking = ("as published: sum", "different", "as published: peak", "different")
    yield Heading("N", "M", "K", "ops", "N M K", "N (K+1)^M", *marking, "BTSearch: sum", "peak", "~s sum")
    for blocks, branches, length in _PARALLEL:
        tasks = single_op_tasks(Storage.of(series_parallel(blocks, branches, length)))
        cells = []
        for metric in ("sum", "peak"):
            result, _ = _limited(tasks, metric, True, time_limit)
            cells += [_counted(result.states, result.complete), f"{result.distinct:,}"]
        by_sum, seconds = _limited(tasks, "sum", False, time_limit)
        by_peak, _ = _limited(tasks, "peak", False, time_limit)
        cells += [_counted(result.states, result.complete) for result in (by_sum, by_peak)]
        counts = [f"{count:,}" for count in (blocks * branches * length, blocks * (length + 1) ** branches)]
        yield blocks, branches, length, len(tasks), *counts, *cells, f"{seconds:.2f}"


def _counted(states: int, complete: bool) -> str:
    return f"{states:,}{'' if complete else '+'}"


def printed_tables(values: Values) -> Iterator[Part]:
    """Yield the three tables for what the command line says."""
    return tables(values.names or NETWORKS, values.target, values.time_limit, values.orders)


BENCH = Benchmark(
    __doc__,
    printed_tables,
    (
        chosen("network", (*NAMES, *CLASSIFIERS), ", ".join(NETWORKS)),
        TARGET,
        time_limit(60.0),
        option("--orders", type=int, default=100, help="random ones"),
    ),
    docs="docs/benchmarks/order.md",
)
