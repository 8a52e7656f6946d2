"""How far fusion shrinks each network, with the activations that engines fuse left out and as ops of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from memsched.fusion.iterate import FusedGraph, fuse
from memsched.graph.liveness import Storage
from scripts.bench_schedule.common import best_of, heading, line
from scripts.networks.catalogue import PUBLISHED, build
from scripts.networks.table import lowered

__all__ = ["table"]

_COLUMNS = ("network", "activations", "ops", "tasks", "ratio", "monotonic", "isolated", "rounds", "seconds")


def table(names: Sequence[str], target: str, repeats: int) -> Iterator[str]:
    """Yield the lines of the table; seconds are those of the quickest of ``repeats`` runs."""
    yield f"Target {target}. Published: up to 6x.\n"
    yield from heading(_COLUMNS)
    for name in names:
        for kept in (False, True):
            if kept or name in PUBLISHED:
                storage = Storage.of(lowered(build(name, keep_activations=kept).SerializeToString(), name, target))
                fused, seconds = best_of(repeats, lambda storage=storage: fuse(storage))  # type: ignore[misc]
                yield line([name, "kept" if kept else "fused", *_cells(fused), f"{seconds:.3f}"])


def _cells(fused: FusedGraph) -> list[object]:
    ratio = f"{fused.ops_before / fused.ops_after:.1f}x"
    return [fused.ops_before, fused.ops_after, ratio, fused.monotonic, fused.isolated, fused.iterations]
