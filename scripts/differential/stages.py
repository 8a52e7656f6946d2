"""Stages for a pipeline: dynamic program, CP-SAT, the even split and the learned scheduler."""

from __future__ import annotations

import math
import random

from memsched.graph.stages import Constraints, Network, StageSchedule
from memsched.graph.stages_checker import check_stages
from memsched.pipeline import exact, formulation, heuristic, respect
from memsched.pipeline.condense import condense, macs_of, parameters_of
from memsched.pipeline.heuristic import even_split
from memsched.pipeline.possible import explain
from scripts.differential.claims import Claim, Pair, disagreements
from scripts.pipeline_networks import random_network

__all__ = ["PAIRS"]


def _case(number: int) -> tuple[Network, Constraints] | None:
    """Return a network with what is demanded of its stages; None where no schedule respects that."""
    rng = random.Random(f"stages {number}")
    net = random_network(rng.randint(3, 30), rng.randint(1, 4), seed=number)
    cuts = rng.sample(range(len(net.layers)), rng.choice([0, 0, 0, 1]))
    kept = rng.sample(range(len(net.layers)), rng.choice([0, 0, 0, 1]))
    rules = Constraints(rng.randint(2, 5), tuple(cuts), tuple(kept), rng.random() < 0.3)
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


PAIRS = (
    Pair("stages: exact, even split, learned", _schedulers, 2),
    Pair("stages: dynamic program, CP-SAT", _program, 7),
)
