"""The memory that a device of a distributed run uses, predicted from its program.

A plan counts the parts of tensors that a device holds. Beside them, while a step's model runs, the runtime has what it
cuts out of its inputs and joins, and it writes some outputs over their inputs: its own rules say how much that is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from memsched.commands.distribute.follow import ResolvedPlan
from memsched.commands.distribute.step_models import StepModel, program_of
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.runtimes.devices.program import DeviceProgram
from memsched.runtimes.onnxruntime.orders import priority_order
from memsched.runtimes.onnxruntime.reuse import PlannerGraph, simulate_reuse
from memsched.targets.load import load_target

__all__ = ["activations_of"]


def activations_of(followed: ResolvedPlan, device: int, models: Sequence[StepModel | None]) -> int:
    """Return the bytes that a device has in use at most, its weights excluded.

    Args:
        models: The models of its steps.
    """
    program = program_of(followed, device, models)
    pieces = {piece.key: (piece.tensor, piece.region) for piece in followed.devices[device].pieces}
    sizes = {}
    for key, (tensor, region) in pieces.items():
        given = followed.graph.tensors[tensor]
        elements = math.prod(given.shape or ())
        part = math.prod(stop - start for start, stop in region.ranges)
        sizes[key] = given.size * part // elements if elements else given.size
    sessions = [None if model is None else _session_peak(model.graph) for model in models]
    return _most(program, sizes, sessions)


def _most(program: DeviceProgram, sizes: Mapping[str, int], sessions: Sequence[int | None]) -> int:
    """Follow the program as a process does (`memsched.runtimes.devices.worker`)."""
    held: set[str] = set()
    most = 0
    for number, step in enumerate(program.steps):
        held.update(one.key for one in step.receives)
        held.update(one.key for one in step.gathers)
        now = sum(sizes[key] for key in held)
        most = max(most, now)
        held.difference_update(step.sent)
        if step.run is not None:
            now = sum(sizes[key] for key in held)
            most = max(most, now + (sessions[number] or 0))
            held.update(key for _, key in step.run.outputs)
        held.difference_update(step.done)
    return most


def _session_peak(graph: Graph) -> int:
    """Return the bytes that a session requests beside its inputs, as the workers open it: nothing is merged there."""
    target = load_target("onnxruntime")
    views = tuple(rule for rule in target.views if not rule.after)
    lowered = apply_target(graph, msgspec.structs.replace(target, views=views))
    return simulate_reuse(PlannerGraph.of(lowered), priority_order(lowered), reuse=False).requested_peak
