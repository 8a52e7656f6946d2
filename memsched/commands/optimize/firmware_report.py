"""What a report says of firmware with TensorFlow Lite Micro: its arena, and what it needs beside the tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from memsched.report.values.runtime import (
    ByPointer,
    DroppedTensorRow,
    FirmwareSection,
    KeptRow,
    PlannedTensorRow,
    RefusedOpRow,
    ScratchRow,
    TflmSection,
)
from memsched.runtimes.arena_facts import ArenaFacts
from memsched.runtimes.firmware import FirmwareNeeds
from memsched.runtimes.values import Verification

__all__ = ["firmware_section", "tflm_section"]


def firmware_section(given: FirmwareNeeds, needs: FirmwareNeeds) -> FirmwareSection:
    """Return what a firmware needs for the model written, beside the same for the original."""
    return FirmwareSection(
        resolver_calls=needs.resolver.calls,
        unsupported_operators=needs.resolver.unsupported,
        custom_operators=needs.resolver.custom,
        scratch=tuple(
            ScratchRow(subgraph=one.subgraph, operator=one.operator, type=one.type, requests_bytes=one.requests)
            for one in needs.scratch
        ),
        persistent_bytes_estimate=_by_pointer({bits: one.persistent for bits, one in needs.estimates.items()}),
        planning_bytes_estimate=_by_pointer({bits: one.planning for bits, one in needs.estimates.items()}),
        assumptions=needs.assumptions,
        kept=tuple(
            KeptRow(subgraph=graph, operator=operator, type=kind, bytes=size)
            for graph, operator, kind, size in needs.kept
        ),
        unknown_kernels=needs.unknown,
        resource_variables=needs.variables,
        file_persistent_bytes_estimate=_by_pointer({bits: one.persistent for bits, one in given.estimates.items()}),
        file_planning_bytes_estimate=_by_pointer({bits: one.planning for bits, one in given.estimates.items()}),
        apart_persistent_bytes_estimate=_by_pointer({bits: one.apart for bits, one in needs.estimates.items()}),
        apart_planning_bytes_estimate=_by_pointer({bits: one.planning_apart for bits, one in needs.estimates.items()}),
    )


def _by_pointer(figures: Mapping[int, int]) -> ByPointer:
    return ByPointer(bits_64=figures[64], bits_32=figures[32])


def tflm_section(facts: ArenaFacts, verification: Verification | None) -> TflmSection:
    """Return the planned part of the arena, and why the runtime refuses the original if it does."""
    heads = (facts.plan_head, facts.order_head, facts.file_head)
    return TflmSection(
        head_bytes=next((head for head in heads if head is not None), None),
        file_head_bytes=facts.file_head,
        order_head_bytes=facts.order_head,
        plan_head_bytes=facts.plan_head,
        refusal=facts.words or (None if verification is None else verification.refused),
        refused=tuple(RefusedOpRow(**dataclasses.asdict(one)) for one in facts.refusals),
        plan_fault=facts.plan_fault,
        dropped=tuple(
            DroppedTensorRow(subgraph=one.subgraph, index=one.tensor, tensor=one.name, size_bytes=one.size)
            for one in facts.dropped
        ),
        plan=tuple(
            PlannedTensorRow(subgraph=subgraph, index=index, tensor=facts.names[subgraph, index], offset_bytes=offset)
            for (subgraph, index), offset in sorted(facts.offsets.items())
        ),
    )
