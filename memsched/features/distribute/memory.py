"""The memory that a device of a distributed run uses, predicted from its program.

A plan counts the parts of tensors that a device holds. Beside them, while a step's model runs, the runtime has what it
cuts out of its inputs and joins: its own rules say how much that is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from memsched.features.distribute.follow import ResolvedPlan
from memsched.features.distribute.step_models import StepModel, program_of
from memsched.runtimes.devices.program import DeviceProgram

__all__ = ["activations_of"]


def activations_of(
    followed: ResolvedPlan, device: int, models: Sequence[StepModel | None], running: Sequence[int]
) -> int:
    """Return the bytes that a device has in use at most, its weights excluded.

    Args:
        models: The models of its steps.
        running: Per step what the runtime has in use beside the model's inputs; anything where there is no model.
    """
    program = program_of(followed, device, models)
    pieces = {piece.key: (piece.tensor, piece.region) for piece in followed.devices[device].pieces}
    sizes = {}
    for key, (tensor, region) in pieces.items():
        given = followed.graph.tensors[tensor]
        elements = math.prod(given.shape or ())
        part = math.prod(region.lengths)
        sizes[key] = given.size * part // elements if elements else given.size
    return _most(program, sizes, running)


def _most(program: DeviceProgram, sizes: Mapping[str, int], running: Sequence[int]) -> int:
    """Follow the program as a process does (`memsched.runtimes.devices.worker`)."""
    held: set[str] = set()
    most = 0
    for number, step in enumerate(program.steps):
        held.update(one.key for one in (*step.receives, *step.receives_ahead))
        held.update(one.key for one in step.gathers)
        most = max(most, sum(sizes[key] for key in held))
        held.difference_update(step.sent)
        if step.run is not None:
            now = sum(sizes[key] for key in held)
            most = max(most, now + running[number])
            held.update(key for _, key in step.run.outputs)
        held.difference_update(step.done)
    return most
