"""What an arena of TensorFlow Lite Micro must hold for a file: all that its interpreter is given, part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from memsched.formats.tflite.model import FileModel
from memsched.runtimes.runtime import Requirement
from memsched.runtimes.tflm.persistent import estimates
from memsched.runtimes.tflm.plan import BufferRequest, Scratch, wanted_buffers
from memsched.targets.model import Target

__all__ = ["requirement", "room_to_plan"]


def requirement(model: FileModel, scratch: Scratch, head: int, target: Target) -> Requirement:
    """Return what the arena must hold with a planned part of ``head`` bytes, on the target's processor.

    Its parts: activations and the kernels' temporaries where these two need most together, slack between them, what
    planning needs beyond the planned part, and what stays at the arena's end.
    """
    tensors, temporaries = _fullest(wanted_buffers(model, scratch))
    # Where a plan lays tensors over each other, less than their sum is needed.
    activations = min(tensors, head - temporaries)
    parts = [("activations", activations), ("temporaries", temporaries), ("slack", head - activations - temporaries)]
    if target.budget_for == "activations":
        return Requirement(head, tuple(parts))
    needs = estimates(model, target.kernels)[target.pointer_bits]
    planning = max(0, needs.planning - head)
    parts += [("planning", planning), ("persistent", needs.persistent)]
    return Requirement(head + planning + needs.persistent, tuple(parts), beside=planning + needs.persistent)


def room_to_plan(model: FileModel, target: Target) -> int:
    """Return the least size of the planned part in bytes: planning needs them for a moment."""
    return 0 if target.budget_for == "activations" else estimates(model, target.kernels)[target.pointer_bits].planning


def _fullest(wanted: Sequence[BufferRequest]) -> tuple[int, int]:
    """Return the bytes of the tensors and of the scratch buffers at the first time at which both need most."""
    changes: dict[int, Counter[bool]] = {}
    for one in wanted:
        kind = one.tensor < 0
        changes.setdefault(one.first, Counter())[kind] += one.size
        changes.setdefault(one.last + 1, Counter())[kind] -= one.size
    most, tensors, temporaries = (0, 0), 0, 0
    for _, change in sorted(changes.items()):
        tensors, temporaries = tensors + change[False], temporaries + change[True]
        if tensors + temporaries > sum(most):
            most = tensors, temporaries
    return most
