"""Measure stage schedules: peak parameters per stage, gaps to the proven optimum, seconds, simulated speed-ups.

Parameters and values are 8 bits each. The baseline is the even split of parameters along the topological order, as the
vendor's compiler makes it. With --children-together all readers of a layer are in one stage, for every scheduler.
Seconds are the quickest of --repeats; the policy's session is opened before.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from memsched.base.errors import MemschedError
from memsched.check.stages import check_stages
from memsched.features.pipeline import exact, heuristic
from memsched.features.pipeline.simulate import simulate
from memsched.graph.stages import Constraints, Network, StageSchedule
from memsched.search.limits import Limits
from memsched.targets.load import load_target
from memsched.targets.model import PipelineRules
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option, positional, repeats, time_limit
from scripts.networks.pipelines import NETWORKS, keras_network, random_network

Scheduler = Callable[[Network, Constraints, Limits], StageSchedule]

PUBLISHED_GAPS = {4: 2.26, 5: 2.74, 6: 6.31}
PUBLISHED_SPEED_UPS = {4: 1.06, 5: 1.08, 6: 1.65}
"""Of RESPECT, section IV, on average over its ten networks, by stages."""


@dataclass(frozen=True, slots=True)
class Row:
    """One network at one number of stages; None where a scheduler is not there."""

    name: str
    layers: int
    stages: int
    exact: StageSchedule
    even: StageSchedule
    learned: StageSchedule | None
    speed_ups: tuple[float, float | None, float]

    def gap(self, found: StageSchedule | None) -> float | None:
        """Return by how many percent the peak of ``found`` is above the proven one."""
        return None if found is None else 100 * (found.objective / self.exact.objective - 1)


def tables(values: Values) -> Iterator[Part]:
    """Yield the tables that were asked for."""
    learned = learned_scheduler()
    if learned is None:
        yield "The learned scheduler is not there: its columns are empty.\n"
    if "networks" in values.tables:
        yield from network_table(values, learned)
        yield ""
    if "random" in values.tables:
        yield from random_table(values, learned)


def learned_scheduler() -> Scheduler | None:
    """Return the learned scheduler, its policy loaded; None where it or its runtime is not installed."""
    try:
        from memsched.features.pipeline import respect

        respect.schedule(random_network(8, 2, seed=0), Constraints(2))
    except (ImportError, MemschedError):
        return None
    return lambda network, constraints, limits: respect.schedule(network, constraints, limits=limits)


def measure(
    network: Network, constraints: Constraints, learned: Scheduler | None, *, repeats: int, limits: Limits
) -> Row:
    """Return what the schedulers find for ``network``, checked."""
    rules = pipeline_rules()

    def quickest(scheduler: Scheduler) -> StageSchedule:
        found = [scheduler(network, constraints, limits) for _ in range(repeats)]
        for each in found:
            check_stages(network, each, constraints)
        return min(found, key=lambda each: each.seconds)

    best = quickest(lambda network, constraints, limits: exact.schedule(network, constraints, limits=limits))
    even = quickest(lambda network, constraints, _: heuristic.schedule(network, constraints))
    policy = None if learned is None else quickest(learned)
    timed = exact.schedule(network, constraints, balance="time", rules=rules, limits=limits)
    check_stages(network, timed, constraints)
    base = simulate(network, even, rules).throughput
    return Row(
        name=network.name,
        layers=len(network.layers),
        stages=constraints.stages,
        exact=best,
        even=even,
        learned=policy,
        speed_ups=(
            simulate(network, best, rules).throughput / base,
            None if policy is None else simulate(network, policy, rules).throughput / base,
            simulate(network, timed, rules).throughput / base,
        ),
    )


def pipeline_rules() -> PipelineRules:
    """Return the accelerators that are simulated."""
    rules = load_target("coral_edgetpu").pipeline
    if rules is None:
        raise SystemExit("the target coral_edgetpu states no pipeline")
    return rules


def network_table(values: Values, learned: Scheduler | None) -> Iterator[Part]:
    """Yield a row per network and number of stages, and their averages beside the paper's."""
    yield Heading(
        *("network", ">layers", ">stages", ">exact, B", "status", ">even split, B", ">gap, %", ">learned, B"),
        *(">gap, %", ">~exact, ms", ">~even split, ms", ">~learned, ms", ">speed-up exact", ">learned", ">by time"),
    )
    averages = []
    for stages in values.stages:
        rows = []
        for name in values.networks:
            constraints = Constraints(stages, children_together=values.children_together)
            limits = Limits(values.time_limit)
            rows.append(measure(keras_network(name), constraints, learned, repeats=values.repeats, limits=limits))
            yield _network_row(rows[-1])
        averages.append(_average_row(rows, stages))
    yield from averages


def random_table(values: Values, learned: Scheduler | None) -> Iterator[Part]:
    """Yield a row per size and degree of random DAGs, each the average over seeds and stages."""
    yield Heading(
        *(">nodes", ">degree", ">DAGs x stages", ">proven", ">gap to bound, %", ">even split: gap, %"),
        *(">learned: gap, %", ">~exact, ms", ">~slowest, ms", ">~learned, ms"),
    )
    for nodes in values.nodes:
        for degree in values.degrees:
            rows = [
                measure_random(nodes, degree, seed, stages, values, learned)
                for stages in values.stages
                for seed in range(values.seeds)
            ]
            yield _random_row(nodes, degree, rows)


def measure_random(
    nodes: int, degree: int, seed: int, stages: int, values: Values, learned: Scheduler | None
) -> tuple[StageSchedule, StageSchedule, StageSchedule | None]:
    """Return the schedules of one random DAG, checked: exact, even, learned."""
    network = random_network(nodes, degree, seed=seed)
    constraints = Constraints(stages, children_together=values.children_together)
    limits = Limits(values.time_limit)
    best = exact.schedule(network, constraints, limits=limits)
    even = heuristic.schedule(network, constraints)
    policy = None if learned is None else learned(network, constraints, limits)
    for found in (best, even, policy):
        if found is not None:
            check_stages(network, found, constraints)
    return best, even, policy


def _network_row(row: Row) -> tuple[object, ...]:
    learned = row.learned
    exactly, by_policy, by_time = row.speed_ups
    peaks = (f"{row.exact.objective:,}", row.exact.status, f"{row.even.objective:,}", _number(row.gap(row.even), 2))
    theirs = ("" if learned is None else f"{learned.objective:,}", _number(row.gap(learned), 2))
    times = [_number(None if found is None else 1000 * found.seconds, 1) for found in (row.exact, row.even, learned)]
    speed_ups = (f"{exactly:.2f}", _number(by_policy, 2), f"{by_time:.2f}")
    return row.name, row.layers, row.stages, *peaks, *theirs, *times, *speed_ups


def _average_row(rows: Sequence[Row], stages: int) -> tuple[object, ...]:
    def mean(values: Sequence[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.fmean(known) if known else None

    def milliseconds(found: Sequence[StageSchedule | None]) -> str:
        return _number(mean([None if each is None else 1000 * each.seconds for each in found]), 1)

    published = f" (published: {PUBLISHED_GAPS[stages]})" if stages in PUBLISHED_GAPS else ""
    faster = f" (published: {PUBLISHED_SPEED_UPS[stages]})" if stages in PUBLISHED_SPEED_UPS else ""
    proven = sum(row.exact.status == "optimal" for row in rows)
    even = _number(mean([row.gap(row.even) for row in rows]), 2)
    gap = f"{_number(mean([row.gap(row.learned) for row in rows]), 2)}{published}"
    times = [milliseconds([getattr(row, kind) for row in rows]) for kind in ("exact", "even", "learned")]
    exactly, by_policy, by_time = (_number(mean([row.speed_ups[place] for row in rows]), 2) for place in range(3))
    optimal = f"{proven} of {len(rows)} optimal"
    return "average", "", stages, "", optimal, "", even, "", gap, *times, exactly, f"{by_policy}{faster}", by_time


def _random_row(
    nodes: int, degree: int, rows: Sequence[tuple[StageSchedule, StageSchedule, StageSchedule | None]]
) -> tuple[object, ...]:
    def gap(pairs: Sequence[tuple[float, float]]) -> str:
        return _number(statistics.fmean([100 * (high / low - 1) for high, low in pairs]) if pairs else None, 2)

    seconds = [best.seconds for best, _, _ in rows]
    policies = [policy.seconds for _, _, policy in rows if policy is not None]
    proven = sum(best.status == "optimal" for best, _, _ in rows)
    gaps = (
        gap([(best.objective, best.lower_bound) for best, _, _ in rows]),
        gap([(even.objective, best.objective) for best, even, _ in rows]),
        gap([(policy.objective, best.objective) for best, _, policy in rows if policy is not None]),
    )
    times = (statistics.fmean(seconds), max(seconds), statistics.fmean(policies) if policies else None)
    shown = [_number(None if taken is None else 1000 * taken, 1) for taken in times]
    return nodes, degree, len(rows), proven, *gaps, *shown


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("tables", default=["networks", "random"], help="networks, random (both by default)"),
        option("--stages", type=int, nargs="+", default=[4, 5, 6], help="accelerators in the row"),
        option("--children-together", action="store_true", help="what the Edge TPU demands (RESPECT)"),
        option("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS, metavar="NAME", help="of the table"),
        option("--nodes", type=int, nargs="+", default=[30, 100, 200, 400, 800], help="of random DAGs"),
        option("--degrees", type=int, nargs="+", default=[2, 3, 4, 5, 6], help="of random DAGs"),
        option("--seeds", type=int, default=5, help="random DAGs of each kind"),
        repeats(3, "the quickest counts"),
        time_limit(60.0, "of one exact schedule"),
    ),
    docs="docs/benchmarks/devices.md",
)
