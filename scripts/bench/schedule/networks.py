"""Every network: what the cheap orders need, what the scheduler finds and proves, and the seconds of each stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import ScheduleResult, schedule_graph
from scripts.bench.runner.declare import TARGET, Benchmark, Heading, Part, Values, chosen, time_limit
from scripts.bench.runner.declare import repeats as repeats_option
from scripts.bench.runner.models import network
from scripts.bench.runner.text import kilobytes, percent
from scripts.bench.runner.timing import best_of
from scripts.bench.schedule.published import NETWORKS, Published
from scripts.networks.catalogue import NAMES

__all__ = ["BENCH", "reached", "tables"]

_PEAKS = (
    "network",
    "ops",
    "fused",
    "ratio",
    "file",
    "reverse post-order",
    "greedy",
    "ours",
    "bound",
    "status",
)
_SECONDS = (
    "network",
    "~cheap orders",
    "~fusion",
    "~bounds",
    "~search",
    "~in all",
    "may take",
    "~met",
    "published",
    "~ours / published",
    "states",
)
_REDUCTIONS = (
    "network",
    "reverse post-order -> ours",
    "reduction",
    "published reverse post-order -> best",
    "published reduction",
    "reached",
    "vs best of file, reverse post-order, greedy",
)
_STAGES = ("cheap orders", "fusion", "bounds", "search")
_CHEAP = ("file", "reverse post-order", "greedy")


def tables(names: Sequence[str], target: str, limits: Limits, repeats: int) -> Iterator[Part]:
    """Yield the lines of the three tables; seconds are those of the quickest of ``repeats`` runs, without loading."""
    results = {name: _measure(name, target, limits, repeats) for name in names}
    yield f"Peaks in KB of 1024 bytes, target {target}.\n"
    yield Heading(*_PEAKS)
    for name, (result, _) in results.items():
        yield _peaks(name, target, result)
    yield "\nSeconds of scheduling, without loading.\n"
    yield Heading(*_SECONDS)
    for name, (result, seconds) in results.items():
        yield _seconds(name, result, seconds)
    yield "\nReductions.\n"
    yield Heading(*_REDUCTIONS)
    for name, (result, _) in results.items():
        yield _reductions(name, result)
    yield from _means({name: result for name, (result, _) in results.items() if name in NETWORKS})


def _measure(name: str, target: str, limits: Limits, repeats: int) -> tuple[ScheduleResult, float]:
    graph = network(name, target)
    return best_of(repeats, lambda: schedule_graph(graph, Run(limits)))


def _peaks(name: str, target: str, result: ScheduleResult) -> tuple[object, ...]:
    ops = len(network(name, target).ops)
    fused = result.fused.ops_after if result.fused else ops
    schedule = result.schedule
    cheap = [kilobytes(result.baselines[order][1]) for order in _CHEAP]
    found = [f"**{kilobytes(schedule.peak)}**", kilobytes(schedule.lower_bound), schedule.status]
    return name, ops, fused, f"{ops / fused:.1f}x", *cheap, *found


def _seconds(name: str, result: ScheduleResult, seconds: float) -> tuple[object, ...]:
    spent = {record.name: record.seconds for record in result.passes}
    stages = [f"{spent.get(stage, 0):.3f}" for stage in _STAGES]
    published = NETWORKS.get(name)
    beside = ["-"] * 4
    if published:
        met = "yes" if seconds <= published.target else "**no**"
        beside = [f"{published.target}", met, f"{published.seconds}", f"{seconds / published.seconds:.3f}"]
    return name, *stages, f"**{seconds:.3f}**", *beside, f"{result.schedule.states:,}"


def _reductions(name: str, result: ScheduleResult) -> tuple[object, ...]:
    ours, baseline = result.schedule.peak, result.baselines["reverse post-order"][1]
    published = NETWORKS.get(name)
    beside = ["-"] * 3
    if published:
        pair = f"{published.baseline:,} -> {published.best:,}"
        beside = [pair, percent(published.reduction), reached(1 - ours / baseline, published)]
    cheap = min(result.baselines[order][1] for order in _CHEAP)
    pair = f"{kilobytes(baseline)} -> {kilobytes(ours)}"
    return name, pair, percent(1 - ours / baseline), *beside, percent(1 - ours / cheap)


def reached(reduction: float, published: Published) -> str:
    """Return in words whether ``reduction``, a share, is the published one or more."""
    if not published.reproduced:
        return "another graph"
    # Published peaks are whole KB, truncated.
    return "yes" if reduction >= published.reduction - 1 / published.baseline else "**no**"


def _means(results: dict[str, ScheduleResult]) -> Iterator[Part]:
    """Yield the mean reductions, with and without the networks that could not be rebuilt."""
    if set(results) != set(NETWORKS):
        return
    rebuilt = {name: result for name, result in results.items() if NETWORKS[name].reproduced}
    for title, some in (("mean of those rebuilt", rebuilt), ("mean of all published", results)):
        peaks = {name: result.schedule.peak for name, result in some.items()}
        ours = [1 - peaks[name] / result.baselines["reverse post-order"][1] for name, result in some.items()]
        cheap = [1 - peaks[name] / min(result.baselines[o][1] for o in _CHEAP) for name, result in some.items()]
        published = [NETWORKS[name].reduction for name in some]
        means = [percent(sum(shares) / len(shares)) for shares in (ours, published, cheap)]
        yield f"{title} ({len(some)})", "", means[0], "", means[1], "", means[2]


def printed_tables(values: Values) -> Iterator[Part]:
    """Yield the three tables for what the command line says."""
    return tables(values.names or NAMES, values.target, Limits(values.time_limit), values.repeats)


BENCH = Benchmark(
    __doc__,
    printed_tables,
    (
        chosen("network", NAMES, "all"),
        TARGET,
        time_limit(60.0),
        repeats_option(3, "the quickest counts"),
    ),
    docs="docs/benchmarks/order.md",
)
