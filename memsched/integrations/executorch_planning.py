"""Memory planning for ExecuTorch: memsched's allocator beside its greedy one, whichever needs less.

from executorch.exir import ExecutorchBackendConfig
from executorch.exir.passes import MemoryPlanningPass
from memsched.integrations.executorch_planning import memory_planner

config = ExecutorchBackendConfig(memory_planning_pass=MemoryPlanningPass(memory_planning_algo=memory_planner()))
program = edge_program.to_executorch(config)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from typing import Any

from memsched.check.packing import check_packing
from memsched.graph.packing import Block, BlockPart
from memsched.integrations.missing import missing_tool
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.allocate.portfolio import pack

try:
    from executorch.exir.memory_planning import (
        MemoryAlgoResult,
        MemoryPlanningAlgorithmSuite,
        SpecAllocResult,
        greedy,
    )
except ModuleNotFoundError as error:
    raise missing_tool(error, "executorch", "executorch") from None

__all__ = ["least_memory", "memory_planner"]

_EFFORT = 5.0
_DEFAULT_MEMORY = 1
_FEWEST_SIZES = _DEFAULT_MEMORY + 1
"""Memory 0 is that of constants, and of none but these."""


def memory_planner(effort: float = _EFFORT) -> MemoryPlanningAlgorithmSuite:
    """Return what `MemoryPlanningPass` takes as ``memory_planning_algo``; never above ExecuTorch's greedy planning.

    Args:
        effort: Work for each graph's search, about what an idle machine does in so many seconds.
    """
    return MemoryPlanningAlgorithmSuite([greedy, partial(least_memory, effort=effort)])


def least_memory(
    alignment: int,
    specs: Iterable[Any],
    graph_module: Any,
    graph_signature: Any,  # noqa: ARG001 - every algorithm is given it
    extra_padding: int = 0,
    *,
    effort: float = _EFFORT,
) -> MemoryAlgoResult:
    """Return a place for each tensor; the algorithms of `MemoryPlanningAlgorithmSuite` look like this.

    Args:
        alignment: Of every tensor, bytes.
        specs: TensorSpecs with their lifetimes, which include both ends.
        graph_module: Whose ``input_mem_buffer_sizes`` are kept free at the bottom of each memory.
        graph_signature: Not read.
        extra_padding: Bytes beyond the end of each memory.
        effort: As for `memory_planner`.
    """
    memories: dict[int, list[Any]] = defaultdict(list)
    for spec in specs:
        spec.realign(alignment)
        memories[_DEFAULT_MEMORY if spec.mem_id is None else spec.mem_id].append(spec)
    reserved: list[int] = getattr(graph_module, "input_mem_buffer_sizes", None) or []
    sizes = [0] * max(_FEWEST_SIZES, *(memory + 1 for memory in memories), 0)
    places: dict[Any, SpecAllocResult] = {}
    for memory, held in sorted(memories.items()):
        base = reserved[memory] if memory < len(reserved) else 0
        offsets, height = _packed(held, alignment, effort)
        sizes[memory] = base + height + extra_padding
        for spec, offset in offsets.items():
            # One object holds them all: who shares bytes must share it, and who shares nothing may.
            places[spec] = SpecAllocResult(memory, 0, base + offset)
    return MemoryAlgoResult(places, sizes)


def _packed(specs: list[Any], alignment: int, effort: float) -> tuple[dict[Any, int], int]:
    """Return the offset of each tensor within one memory, and the memory's size, bytes."""
    inside = {spec: _root(spec) for spec in specs}
    parts: dict[Any, list[BlockPart]] = {spec: [] for spec in specs if inside[spec][0] is spec}
    for spec, (root, offset) in inside.items():
        begin, end = spec.lifetime
        parts[root].append(BlockPart(begin, end + 1, offset, offset + spec.allocated_memory))
    blocks = [Block(root.allocated_memory, tuple(found), alignment) for root, found in parts.items()]
    packing = pack(blocks, Run(Limits(None, effort=effort)))
    check_packing(blocks, packing)
    at = dict(zip(parts, packing.offsets, strict=True))
    return {spec: at[root] + offset for spec, (root, offset) in inside.items()}, packing.height


def _root(spec: Any) -> tuple[Any, int]:
    """Return the tensor whose storage ``spec`` lies in, and where in it, bytes."""
    offset = 0
    while spec.storage_base is not None:
        offset += spec.storage_base_offset
        spec = spec.storage_base
    return spec, offset
