"""Measure layer fusion in on-chip memory on the networks of the layer fusion paper: DRAM traffic and time.

Per network: no fusion (each layer cut by itself), fusion alone, fusion with reuse of on-chip memory (both with the
paper's greedy groups), and the best cut into groups. Every plan passes the checker. Batch size 1.

Two rooflines: "groups" adds up the slower of transfer and computation of each group; "network" is the slower of all
transfers and all computation, as if every group's data could be loaded while the one before is computed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace

from memsched.formats.onnx_reader import read
from memsched.graph.limits import Limits
from memsched.graph.model import Graph
from memsched.targets.load import load_target
from memsched.targets.model import Target
from memsched.tiling.onchip import OnChipPlan, plan
from scripts.networks.catalogue import CLASSIFIERS, build

_PAPER = {
    "vgg19": "> 15 %, 1.26x",
    "googlenet": "> 15 %",
    "inception_v3": "> 15 %",
    "resnet18": "> 15 %",
    "resnet50": "56 %, 2.62x",
}
_WAYS = ("fusion", "fusion + reuse", "optimal, traffic", "optimal, time")


def network(name: str, element_bytes: int) -> Graph:
    """Return a network with elements of so many bytes instead of 4."""
    graph = read(build(name).SerializeToString(), f"{name}.onnx").graphs[0]
    tensors = tuple(replace(tensor, size=tensor.size * element_bytes // 4) for tensor in graph.tensors)
    return replace(graph, tensors=tensors)


def plans(graph: Graph, target: Target, seconds: float) -> Iterator[tuple[str, OnChipPlan, float]]:
    """Yield each way with its plan and the seconds that planning took."""
    limits = Limits(seconds)
    for way in _WAYS:
        started = time.perf_counter()
        if way == "fusion":
            found = plan(graph, target, limits, method="greedy", policy="separate")
        elif way == "fusion + reuse":
            found = plan(graph, target, limits, method="greedy")
        else:
            found = plan(graph, target, limits, objective="time" if way.endswith("time") else "traffic")
        yield way, found, time.perf_counter() - started


def roofline(target: Target, traffic: int, flops: int) -> float:
    """Return the seconds of a network of which all transfers overlap all computation."""
    return max(traffic / target.bandwidth_bytes_per_second, flops / target.flops_per_second)


def rows(name: str, target: Target, arguments: argparse.Namespace) -> dict[str, tuple[float, float, float]]:
    """Print the rows of one network; return per way the reduction and both speed-ups."""
    result: dict[str, tuple[float, float, float]] = {}
    for way, found, seconds in plans(network(name, arguments.element_bytes), target, arguments.time_limit):
        before, after = found.before, found.cost
        slow, fast = (roofline(target, cost.traffic, cost.flops) for cost in (before, after))
        if not result:
            print(
                f"| {name} | none | {before.traffic / 1e6:.1f} | | | {1e3 * found.before_seconds:.1f} | "
                f"| {1e3 * slow:.1f} | | {len(found.names)} | | {_PAPER.get(name, '')} |"
            )
        figures = (1 - after.traffic / before.traffic, found.before_seconds / found.seconds, slow / fast)
        result[way] = figures
        once = 1 - after.traffic / found.once.traffic
        print(
            f"| {name} | {way} | {after.traffic / 1e6:.1f} | {100 * figures[0]:.1f} % | {100 * once:.1f} % "
            f"| {1e3 * found.seconds:.1f} | {figures[1]:.2f}x | {1e3 * fast:.1f} | {figures[2]:.2f}x "
            f"| {len(found.groups)} | {seconds:.1f} | |",
            flush=True,
        )
    return result


def main() -> None:
    """Print a row per network and way, and the averages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=list(CLASSIFIERS), help="default: all five")
    parser.add_argument("--target", default="diannao")
    parser.add_argument("--element-bytes", type=int, default=4, choices=(1, 2, 4), help="default: %(default)s")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per plan; default: %(default)s")
    arguments = parser.parse_args()
    target = load_target(arguments.target)
    print(
        "| network | way | traffic, MB | saved | of each operand once | ms, groups | speed-up | ms, network | speed-up "
        "| groups | planned in s | paper |"
    )
    print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|")
    found = [rows(name, target, arguments) for name in arguments.networks]
    for way in _WAYS:
        reduction, groups, whole = (sum(one[way][place] for one in found) / len(found) for place in range(3))
        paper = "32 %, 1.6x" if way == "fusion + reuse" else ""
        print(f"| average | {way} | | {100 * reduction:.1f} % | | | {groups:.2f}x | | {whole:.2f}x | | | {paper} |")


if __name__ == "__main__":
    main()
