"""What LiteRT has in use beside the inputs of a part of a model, predicted from the part's file."""

from __future__ import annotations

from memsched.formats.module import LoadOptions
from memsched.formats.tflite.reader import read
from memsched.graph.liveness import evaluate
from memsched.graph.model import Schedule
from memsched.runtimes.litert.requirement import required_bytes
from memsched.runtimes.runtime import AS_TOLD, Runtime
from memsched.solve.allocate.arena import allocate
from memsched.targets.load import load_target

__all__ = ["part_bytes"]


def part_bytes(data: bytes) -> int:
    """Return the bytes of its arenas, in which the inputs lie once more, and of the outputs that are copied out."""
    target = load_target("litert")
    module = read(data, "a part", LoadOptions())
    lowered = Runtime(target, AS_TOLD).lower(module)[0]
    order = tuple(range(len(lowered.graph.ops)))
    profile = evaluate(lowered.storage, order)
    in_place = profile.in_place(lowered.storage, order)
    schedule = Schedule(order, in_place, profile.peak, 0, "feasible", "", "given order")
    allocation = allocate(lowered.graph, schedule, alignment=target.alignment_bytes, storage=lowered.storage)
    handed = sum(module.graph.tensors[tensor].size for tensor in module.graph.outputs)
    return required_bytes(lowered.graph, schedule, allocation) + handed
