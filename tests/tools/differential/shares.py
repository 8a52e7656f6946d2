"""Shares for devices side by side: the dynamic program over all shares, GenEFlow, the rules."""

from __future__ import annotations

import random
from dataclasses import replace

from memsched.features.distribute.checking import check_plan
from memsched.features.distribute.search import METHODS, search
from memsched.search.limits import Limits
from memsched.search.run import Run
from tests.features.distribute.graphs import chain, random_cluster, random_network
from tests.tools.differential.claims import Claim, Pair, disagreements

__all__ = ["PAIRS"]

_ROUNDING = 1e-9


def _methods(number: int) -> list[str]:
    rng = random.Random(f"shares {number}")
    tiny = rng.random() < 0.5
    graph = chain(rng.randint(2, 9)) if tiny else random_network(rng.randrange(10_000), rng.randint(2, 5))
    devices = random_cluster(rng)
    if tiny:
        devices = replace(devices, devices=devices.devices[:2])
    claims = []
    for method in METHODS:
        # Blocks without a synchronisation inside are outside of what the exact method covers.
        plan = search(graph, devices, Run(Limits(20.0, seed=number)), method=method, fuse=False)
        check_plan(graph, plan, devices)
        claims.append(Claim(method, plan.latency, plan.lower_bound))
    return disagreements(claims, tolerance=_ROUNDING)


PAIRS = (Pair("shares: exact, GenEFlow, rules, all of them", _methods, 150),)
