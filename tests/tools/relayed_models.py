"""Sends random quantised networks through `memsched relay` with loops and executes the stages in turn in TFLM.

    python -m tests.tools.relayed_models --count 200 [--first SEED] [--effort 3]

Every other one is a chain with residual sums, pools and windows of all kinds; the others have skips, several inputs and
several outputs. Outputs must be those of the network as given, on each input twice in a row, every arena the one
predicted to the byte, the block large enough for all that is in it at any time and no larger than the arena of the
network as given. Prints what failed; exit code 1 if anything did.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from memsched.base.errors import MemschedError
from memsched.commands.options import RelayOptions
from memsched.features.relay.relay import RelayModel, relay
from memsched.formats.tflite.model import parse
from memsched.runtimes.arena_facts import round_up
from tests.features.relay.nets import random_net
from tests.features.relay.test_relay_command import check
from tests.rewrites.tile.looped_nets import looped_net

__all__ = ["judge", "main", "network"]

_SIDES = (24, 40)
"""Rows and columns: enough for loops to take less than they cost."""


def network(seed: int) -> bytes:
    """Return a random network in which loops and stages are worth while."""
    if seed % 2:
        return random_net(seed, 7, side=_SIDES[0] + seed % 9)
    return looped_net(seed, 7, side=_SIDES)


def judge(seed: int, *, effort: float = 3.0, target: str = "tflm-reference") -> str:
    """Return what became of a network, such as "3 stages, 1 with loops", or what is wrong, beginning with WRONG."""
    wanted = RelayOptions(
        target=target, allow=("reorder", "inplace", "tile"), max_extra_macs=200.0, effort=effort, seed=seed
    )
    try:
        found = relay(network(seed), wanted)
    except MemschedError as error:
        return "refused" if "cannot be cut into stages" in str(error) else f"WRONG: {error}"
    try:
        check(found)
    except AssertionError as error:
        return f"WRONG: the block is too small: {error}"
    wrong = _wrong(found)
    if wrong:
        return f"WRONG: {wrong}"
    looped = sum(any(op.type == "WHILE" for op in parse(one.data).subgraphs[0].operators) for one in found.stages)
    count = len(found.stages)
    return f"{count} {'stage' if count == 1 else 'stages'}, {looped} with loops"


def _wrong(found: RelayModel) -> str:
    """Return what is wrong with what was run; "" for nothing."""
    run = found.verification
    if run is None or run.verification.outputs_equal is not True or not run.twice_equal:
        return f"{None if run is None else run.verification.reason}"
    if not all(as_predicted for _, as_predicted in run.arenas) or len(run.arenas) != len(found.stages):
        return f"arenas are not those predicted: {run.arenas}"
    if found.needed > round_up(found.given):
        return f"{found.needed} B after {found.given} B"
    return ""


def main() -> int:
    """Judge as many networks as the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--effort", type=float, default=3.0)
    given = parser.parse_args()
    found: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.count):
        result = judge(seed, effort=given.effort)
        if result.startswith("WRONG"):
            print(f"{seed}: {result}", flush=True)
        found[result.split(":")[0]] += 1
    print("; ".join(f"{count}: {kind}" for kind, count in sorted(found.items())))
    return 1 if found["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
