"""Sends random quantised networks through `memsched.optimize` with loops and executes what is written in TFLM.

    python -m tests.tools.looped_models --count 200 [--first SEED] [--activations] [--branched]

Outputs must be those of the network as given, on each input twice in a row, and the arena the one predicted to the byte
and no larger than as given. Prints what failed; exit code 1 if anything did.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import Literal

import memsched
from memsched.base.errors import MemschedError
from tests.rewrites.tile.looped_nets import branched_net, looped_net

__all__ = ["judge", "main"]


def judge(seed: int, *, activations: bool = False, branched: bool = False, target: str = "tflm-reference") -> str:
    """Return what became of a network: "loops", "whole", "refused", or what is wrong in words that begin with WRONG.

    Args:
        activations: Make the planned part small, so that small networks get loops, too.
        branched: Layers read any earlier value, with sums and joins of several.
    """
    data = branched_net(seed) if branched else looped_net(seed)
    try:
        made_small: Literal["activations", "arena"] = "activations" if activations else "arena"
        done = memsched.optimize(data, target=target, budget_for=made_small, level=2, max_extra_macs=200.0, effort=1.0)
    except MemschedError as error:
        return f"WRONG: {error}"
    report = done.report.data
    if report["sections"]["tflm"]["refused"] or report["sections"]["tflm"].get("refusal"):
        return "refused"
    required, checked = report["sections"]["requirement"], report["sections"]["verification"]
    if required["bytes"] > required["given_bytes"]:
        return f"WRONG: {required['bytes']} B after {required['given_bytes']} B"
    if not checked["outputs_equal"] or not (checked["arena_after"] or {}).get("as_predicted"):
        return f"WRONG: {checked['notes']} {checked['arena_after']}"
    groups = report["sections"]["tile"]["groups"] if report["sections"]["tile"] else []
    return "loops" if any(group["form"] == "loop" for group in groups) else "pieces" if groups else "whole"


def main() -> int:
    """Judge as many networks as the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--activations", action="store_true")
    parser.add_argument("--branched", action="store_true")
    given = parser.parse_args()
    found: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.count):
        result = judge(seed, activations=given.activations, branched=given.branched)
        if result.startswith("WRONG"):
            print(f"{seed}: {result}", flush=True)
        found[result.split(":")[0]] += 1
    print(", ".join(f"{count} {kind}" for kind, count in sorted(found.items())))
    return 1 if found["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
