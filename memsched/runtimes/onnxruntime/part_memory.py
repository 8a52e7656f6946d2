"""What ONNX Runtime has in use beside the inputs of a part of a model, by its own rules."""

from __future__ import annotations

import msgspec

from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.runtimes.onnxruntime.orders import priority_order
from memsched.runtimes.onnxruntime.reuse import PlannerGraph, simulate_reuse
from memsched.targets.load import load_target

__all__ = ["part_bytes"]


def part_bytes(graph: Graph) -> int:
    """Return the bytes that a session requests beside its inputs, as devices open it: nothing is merged there."""
    target = load_target("onnxruntime")
    views = tuple(rule for rule in target.views if not rule.after)
    lowered = apply_target(graph, msgspec.structs.replace(target, views=views))
    return simulate_reuse(PlannerGraph.of(lowered), priority_order(lowered), reuse=False).requested_peak
