"""Measure what the learned scheduler reaches, and how much of it is the policy.

The gap is peak parameters per stage over the exact schedule's, in percent (RESPECT, section IV-C). Orders other than
the policy's are cut by the same rule; `repair` says what "repaired" and "to the letter" are. Where there are several
networks or orders, gaps are means.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from memsched.features.pipeline import exact, heuristic
from memsched.features.pipeline.condense import Condensation, Loads, condense, parameters_of
from memsched.features.pipeline.respect import cut_order
from memsched.features.pipeline.respect_policy import policy_order
from memsched.graph.stages import Constraints, Network
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option
from scripts.bench.runner.timing import Stopwatch
from scripts.networks.pipelines import NETWORKS, keras_network, random_network
from scripts.respect.orders import asap_order, random_order
from scripts.respect.repair import repaired_peak

STAGES = (4, 5, 6)
DRAWS = 20
COLUMNS = (
    *(">respect", ">file order", ">ASAP order", ">random orders", ">repaired", ">to the letter", ">heuristic"),
    *(">~respect s", ">~exact s"),
)

Order = Callable[[Sequence[Sequence[int]], Sequence[int]], list[int]]


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per network and number of stages, and the means."""
    networks = _random_networks() if values.random else ((name, [keras_network(name)]) for name in NETWORKS)
    yield Heading("network", ">stages", *COLUMNS)
    # The session of the policy is opened before anything is timed.
    policy_order([()], [1])
    sums: dict[int, list[list[float]]] = {stages: [] for stages in STAGES}
    for name, members in networks:
        for stages in STAGES:
            constraints = Constraints(stages, children_together=values.children_together)
            found = [row for row in (_row(network, constraints) for network in members) if row]
            if found:
                sums[stages].append(_means(found))
                yield name, stages, *_cells(sums[stages][-1])
    for stages, found in sums.items():
        yield "mean", stages, *_cells(_means(found))


def _random_networks() -> Iterable[tuple[str, list[Network]]]:
    for nodes in (30, 100, 300, 800):
        for degree in (4, 6):
            yield f"{nodes} nodes, degree {degree}", [random_network(nodes, degree, seed=seed) for seed in range(3)]


def _row(network: Network, constraints: Constraints) -> list[float] | None:
    """Return gaps in percent and seconds; None where the stages are not possible or exact did not prove the peak."""
    condensed = condense(network, constraints)
    if len(condensed.groups) < constraints.stages:
        return None
    loads = parameters_of(network, condensed)
    best = exact.schedule(network, constraints)
    if best.objective != best.lower_bound:
        return None
    watch = Stopwatch()
    ours = _peak(condensed, loads, constraints.stages, policy_order)
    seconds = watch.seconds
    rng = random.Random(0)
    drawn = [
        _peak(condensed, loads, constraints.stages, lambda preds, _: random_order(preds, rng)) for _ in range(DRAWS)
    ]
    peaks = [
        ours,
        _peak(condensed, loads, constraints.stages, lambda preds, _: list(range(len(preds)))),
        _peak(condensed, loads, constraints.stages, asap_order),
        sum(drawn) / len(drawn),
        repaired_peak(network, constraints, parents_first=True),
        repaired_peak(network, constraints, parents_first=False),
        heuristic.schedule(network, constraints).objective,
    ]
    return [*(100 * (peak / best.objective - 1) for peak in peaks), seconds, best.seconds]


def _peak(condensed: Condensation, loads: Loads, stages: int, order: Order) -> int:
    found = cut_order(condensed, loads, order(condensed.preds, loads.weights), stages)
    return max(loads.of(found, stages))


def _means(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(column) for column in zip(*rows, strict=True)] if rows else []


def _cells(means: Sequence[float]) -> list[str]:
    *gaps, ours, exact_seconds = means
    return [f"{gap:.2f}" for gap in gaps] + [f"{ours:.3f}", f"{exact_seconds:.3f}"]


BENCH = Benchmark(
    __doc__,
    tables,
    (
        option("--children-together", action="store_true", help="readers of a layer share a stage"),
        option("--random", action="store_true", help="random DAGs of 30 to 800 nodes instead of the ten"),
    ),
    docs="docs/benchmarks/devices.md",
)
