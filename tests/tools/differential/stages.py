"""Stages for a pipeline: dynamic program, CP-SAT, even split, learned scheduler, and every schedule there is."""

from __future__ import annotations

import itertools
import math
import random

from memsched.check.stages import check_rows, check_stages
from memsched.features.pipeline import exact, formulation, heuristic, respect
from memsched.features.pipeline.condense import condense, macs_of, parameters_of
from memsched.features.pipeline.heuristic import even_split
from memsched.features.pipeline.possible import explain
from memsched.features.pipeline.simulate import simulate
from memsched.graph.stages import Constraints, Layer, LayerValue, Network, Skips, StageSchedule, figures
from memsched.targets.model import PipelineRules
from scripts.networks.pipelines import random_network
from tests.tools.differential.claims import Claim, Pair, disagreements

__all__ = ["PAIRS", "counted", "every_schedule", "small_network"]


_SKIPS: tuple[Skips, ...] = ("once", "through")

_RULES = PipelineRules(parameter_cache_bytes=6, link_bytes_per_second=1e9, ops_per_second=1e9)
"""A byte and an operation take a nanosecond; six bytes of parameters stay."""


def _case(number: int) -> tuple[Network, Constraints] | None:
    """Return a network with what is demanded of its stages; None where no schedule respects that."""
    rng = random.Random(f"stages {number}")
    net = random_network(rng.randint(3, 30), rng.randint(1, 4), seed=number)
    cuts = rng.sample(range(len(net.layers)), rng.choice([0, 0, 0, 1]))
    kept = rng.sample(range(len(net.layers)), rng.choice([0, 0, 0, 1]))
    rules = Constraints(rng.randint(2, 5), tuple(cuts), tuple(kept), rng.random() < 0.3, rng.choice(_SKIPS))
    return None if explain(net, rules) else (net, rules)


def _claims(name: str, net: Network, rules: Constraints, found: StageSchedule) -> tuple[Claim, Claim]:
    """The peak, and the communication among schedules of that peak."""
    check_stages(net, found, rules)
    return (
        Claim(name, found.objective, found.lower_bound),
        Claim(name, found.communication, found.communication_bound),
    )


def _schedulers(number: int) -> list[str] | None:
    case = _case(number)
    if case is None:
        return None
    net, rules = case
    best = exact.schedule(net, rules)
    found = [
        _claims("exact", net, rules, best),
        _claims("even split", net, rules, heuristic.schedule(net, rules)),
        _claims("learned", net, rules, respect.schedule(net, rules)),
    ]
    peaks = [peak for peak, _ in found]
    return disagreements(peaks) + disagreements([moved for peak, moved in found if peak.found == best.objective])


def _program(number: int) -> list[str] | None:
    """The dynamic program over places to cut against the integer program: parameters and multiply-accumulates."""
    case = _case(number)
    if case is None:
        return None
    net, rules = case
    condensed = condense(net, rules)
    contradictions = []
    for balance, loads in (("params", parameters_of(net, condensed)), ("macs", macs_of(net, condensed))):
        best = exact.schedule(net, rules, balance="params" if balance == "params" else "macs")
        hint = even_split(condensed, loads.weights, rules.stages)
        high = max(loads.of(hint, rules.stages))
        low = loads.floor(rules.stages)
        peak = formulation.least_peak(condensed, loads, hint, low, high, seed=0, deadline=math.inf)
        stages = hint if peak.stages is None else peak.stages
        reached = max(loads.of(stages, rules.stages))
        contradictions += disagreements([
            Claim(f"dynamic program, {balance}", best.objective, best.lower_bound),
            Claim(f"CP-SAT, {balance}", reached, peak.bound),
        ])  # fmt: skip
        moved = formulation.least_communication(
            condensed, loads, stages, best.objective, seed=0, deadline=math.inf
        )  # fmt: skip
        least = None if moved.stages is None else condensed.communication(moved.stages)
        contradictions += disagreements([
            Claim(f"dynamic program, communication, {balance}", best.communication, best.communication_bound),
            Claim(f"CP-SAT, communication, {balance}", least, moved.bound),
        ])  # fmt: skip
    return contradictions


def small_network(number: int) -> Network:
    """Return a random network of 2 to 6 layers with several outputs, shared constants, and early results."""
    rng = random.Random(f"small {number}")
    count = rng.randint(2, 6)
    preds: list[set[int]] = [set() for _ in range(count)]
    values = [LayerValue("x", rng.randint(0, 5), -1, tuple(sorted(rng.sample(range(count), rng.randint(1, 2)))))]
    for layer in range(count):
        for output in range(rng.choice([1, 1, 1, 2])):
            later = range(layer + 1, count)
            readers = tuple(sorted(rng.sample(later, min(len(later), rng.randint(0, 3)))))
            for reader in readers:
                preds[reader].add(layer)
            result = not readers or rng.random() < 0.2
            values.append(LayerValue(f"v{layer}.{output}", rng.randint(0, 9), layer, readers, result))
    layers = tuple(
        Layer(
            f"l{layer}",
            "Op",
            tuple(sorted(rng.sample(range(count), rng.randint(1, 2)))),
            rng.randint(0, 9),
            tuple(sorted(befores)),
        )
        for layer, befores in enumerate(preds)
    )
    return Network(f"small {number}", layers, tuple(values), tuple(rng.randint(0, 9) for _ in range(count)))


def every_schedule(network: Network, count: int) -> list[tuple[int, ...]]:
    """Return all ways to put the layers into ``count`` stages, none empty, none before what it needs."""
    return [
        stages
        for stages in itertools.product(range(count), repeat=len(network.layers))
        if len(set(stages)) == count
        and all(stages[before] <= stages[at] for at, layer in enumerate(network.layers) for before in layer.preds)
    ]


def counted(
    network: Network, stages: tuple[int, ...], count: int, balance: exact.Balance, skips: Skips
) -> tuple[int, int]:
    """Return the cost of the largest stage and what stages receive of each other, from the rows of a report."""
    rows = figures(network, stages, count, skips)
    moved = [network.values[value] for row in rows for value in row.received_values]
    communication = sum(value.size for value in moved if value.producer >= 0)
    if balance == "time":
        trial = StageSchedule(stages, count, 0, 0, 0, 0, "feasible", "", "")
        times = simulate(network, trial, _RULES, skips=skips).stages
        return max(round(1e9 * time.total) for time in times), communication
    return max(row.parameters if balance == "params" else row.macs for row in rows), communication


def _every(number: int) -> list[str] | None:
    """What is called optimal against every schedule there is: 2 to 4 stages, both ways of skipping, three balances."""
    net = small_network(number)
    contradictions = []
    for count in range(2, min(4, len(net.layers)) + 1):
        schedules = every_schedule(net, count)
        for skips, balance in itertools.product(_SKIPS, _BALANCES):
            rules = Constraints(count, skips=skips)
            found = exact.schedule(net, rules, balance=balance, rules=_RULES)
            check_stages(net, found, rules)
            check_rows(net, found, figures(net, found.stages, count, skips))
            best = min(counted(net, stages, count, balance, skips) for stages in schedules)
            if (found.objective, found.communication) != best or found.status != "optimal":
                claim = f"{found.objective}, {found.communication} is {found.status}"
                contradictions.append(f"{count} stages, {skips}, {balance}: {claim}, the best is {best}")
    return contradictions


_BALANCES: tuple[exact.Balance, ...] = ("params", "macs", "time")

PAIRS = (
    Pair("stages: exact, even split, learned", _schedulers, 2),
    Pair("stages: dynamic program, CP-SAT", _program, 7),
    Pair("stages: exact, every schedule", _every, 4),
)
