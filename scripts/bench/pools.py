"""Measure placements in two memories: a fast one of a part of the peak, and a slow one without a limit.

For each model the order is searched first; then the weighted traffic (bytes accessed x cost of their pool) of the
placement is shown beside the lower bound, the greedy placement and that with everything in the slow memory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from memsched.allocate.pools import PoolPlan, place_in_pools
from memsched.allocate.pools_checker import check_pool_plan
from memsched.compiler import load
from memsched.graph.limits import Limits
from memsched.planning import GraphPlan, lower_module, plan_module
from memsched.targets.load import default_target, load_target
from memsched.targets.model import Pool

_MODELS = (
    "models/mobilenetv2_035_96_int8.tflite",
    "models/nasnetmobile_int8.tflite",
    "models/networks/nasnet_a.onnx",
)


def measure(path: str, arguments: argparse.Namespace) -> tuple[GraphPlan, PoolPlan]:
    """Return the order of the model at ``path`` and its placement, checked."""
    module = load(path)
    target = load_target(arguments.target or default_target(module.format))
    limits = Limits(arguments.time_limit, arguments.seed)
    main = plan_module(module, lower_module(module, target), limits)[0]
    size = int(main.checked.peak * arguments.share)
    pools = (Pool("fast", size, arguments.fast), Pool("slow", None, arguments.slow))
    plan = place_in_pools(main.graph, main.schedule, pools, alignment=target.alignment_bytes, limits=limits)
    check_pool_plan(main.graph, main.schedule, plan)
    return main, plan


def main() -> None:
    """Print a row per model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=_MODELS)
    parser.add_argument("--target", help="by default that of the model's format")
    parser.add_argument("--share", type=float, default=0.5, help="of the peak that the fast memory has")
    parser.add_argument("--fast", type=int, default=1, help="cost of a byte in the fast memory")
    parser.add_argument("--slow", type=int, default=10, help="cost of a byte in the slow memory")
    parser.add_argument("--time-limit", type=float, default=30.0, help="seconds for the order, and for the placement")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(
        "| model | buffers | peak, B | fast memory, B | weighted traffic | lower bound | status | greedy | all slow "
        "| saved of greedy | of all slow | seconds | method |"
    )
    print("|---|--:|--:|--:|--:|--:|---|--:|--:|--:|--:|--:|---|")
    for path in arguments.models:
        order, plan = measure(path, arguments)
        count = sum(len(allocation.placements) for allocation in plan.allocations)
        greedy, slow = plan.greedy_traffic or 0, plan.dearest_traffic
        print(
            f"| {Path(path).stem} | {count} | {order.checked.peak:,} | {plan.pools[0].size:,} | {plan.traffic:,} "
            f"| {plan.lower_bound:,} | {plan.status} | {greedy:,} | {slow:,} "
            f"| {100 * (1 - plan.traffic / greedy):.1f} % | {100 * (1 - plan.traffic / slow):.1f} % "
            f"| {plan.seconds:.1f} | {plan.method} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
