"""The figures of the networks: ops, peaks of the cheap orders and of the best one, and its proof."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from memsched.formats.onnx.reader import read
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.load import load_target
from scripts.networks.catalogue import build

__all__ = ["lowered", "rows"]

_COLUMNS = ("network", "ops", "file", "reverse post-order", "greedy", "best", "bound", "status", "s")


def lowered(data: bytes, name: str, target: str = "paper") -> Graph:
    """Return the graph of an ONNX model as ``target`` executes it."""
    return apply_target(read(data, f"{name}.onnx").graphs[0], load_target(target))


def rows(names: Sequence[str], target: str, limits: Limits, *, keep_activations: bool) -> Iterator[str]:
    """Yield the lines of a Markdown table; peaks in KB of 1024 bytes, seconds of scheduling alone."""
    yield "| " + " | ".join(_COLUMNS) + " |"
    yield "|---" * len(_COLUMNS) + "|"
    for name in names:
        graph = lowered(build(name, keep_activations=keep_activations).SerializeToString(), name, target)
        started = time.perf_counter()
        result = schedule_graph(graph, Run(limits))
        seconds = time.perf_counter() - started
        peaks = [result.baselines[order][1] for order in ("file", "reverse post-order", "greedy")]
        sizes = [*peaks, result.schedule.peak, result.schedule.lower_bound]
        kilobytes = [f"{size / 1024:.1f}" for size in sizes]
        yield f"| {name} | {len(graph.ops)} | {' | '.join(kilobytes)} | {result.schedule.status} | {seconds:.2f} |"
