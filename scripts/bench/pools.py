"""Measure placements in two memories: a fast one of a part of the peak, and a slow one without a limit.

For each model the order is searched first; then the weighted traffic (bytes accessed x cost of their pool) of the
placement is shown beside the lower bound, the greedy placement and that with everything in the slow memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from memsched.check.pools import check_pool_plan
from memsched.commands.optimize.optimize import load
from memsched.plan.orders import plan_module
from memsched.runtimes.graph_plan import GraphPlan, lower_module
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.allocate.pools import place_in_pools
from memsched.targets.load import default_target, load_target
from memsched.targets.model import Pool
from memsched.targets.pool_plan import PoolPlan
from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, option, positional, time_limit

_NAMES = ("mobilenetv2_035_96_int8.tflite", "nasnetmobile_int8.tflite", "networks/nasnet_a.onnx")
_MODELS = tuple(str(ROOT / "models" / name) for name in _NAMES)


def measure(path: str, values: Values) -> tuple[GraphPlan, PoolPlan]:
    """Return the order of the model at ``path`` and its placement, checked."""
    module = load(path)
    target = load_target(values.target or default_target(module.format))
    limits = Limits(values.time_limit, values.seed)
    main = plan_module(module, lower_module(module, target), Run(limits))[0]
    size = int(main.checked.peak * values.share)
    pools = (Pool("fast", size, values.fast), Pool("slow", None, values.slow))
    plan = place_in_pools(main.graph, main.schedule, pools, alignment=target.alignment_bytes, run=Run(limits))
    check_pool_plan(main.graph, main.schedule, plan)
    return main, plan


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per model."""
    yield Heading(
        *("model", ">buffers", ">peak, B", ">fast memory, B", ">weighted traffic", ">lower bound", "status", ">greedy"),
        *(">all slow", ">saved of greedy", ">of all slow", ">~seconds", "method"),
    )
    for path in values.models:
        order, plan = measure(path, values)
        count = sum(len(allocation.placements) for allocation in plan.allocations)
        greedy, slow = plan.greedy_traffic or 0, plan.dearest_traffic
        sizes = [f"{size:,}" for size in (order.checked.peak, plan.pools[0].size, plan.traffic, plan.lower_bound)]
        saved = [f"{100 * (1 - plan.traffic / most):.1f} %" for most in (greedy, slow)]
        beside = (plan.status, f"{greedy:,}", f"{slow:,}", *saved)
        yield Path(path).stem, count, *sizes, *beside, f"{plan.seconds:.1f}", plan.method


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", default=_MODELS, help=f"default: {' '.join(_NAMES)} of models/"),
        option("--target", help="by default that of the model's format"),
        option("--share", type=float, default=0.5, help="of the peak that the fast memory has"),
        option("--fast", type=int, default=1, help="cost of a byte in the fast memory"),
        option("--slow", type=int, default=10, help="cost of a byte in the slow memory"),
        time_limit(30.0, "for the order, and for the placement"),
        option("--seed", type=int, default=0, help="of all that is random"),
    ),
    docs="docs/benchmarks/addresses.md",
)
