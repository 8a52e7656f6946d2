"""What a firmware with TensorFlow Lite Micro must bring for a TFLite model, beside room for the planned tensors."""

from __future__ import annotations

from collections.abc import Iterator

from memsched.formats.module import Module
from memsched.formats.tflite.metadata import OFFLINE_PLAN
from memsched.formats.tflite.model import FileModel
from memsched.formats.tflite.reader import TfliteNative
from memsched.runtimes.firmware import FirmwareNeeds, Scratch
from memsched.runtimes.tflm.kernels import scratch_requests
from memsched.runtimes.tflm.persistent import assumptions, estimates, least_kept, unknown_kernels
from memsched.runtimes.tflm.resolver import resolver
from memsched.runtimes.tflm.resource_variables import variables

__all__ = ["firmware_needs"]


def firmware_needs(module: Module, kernels: str = "") -> FirmwareNeeds | None:
    """Return what a firmware with the kernels that a target names needs; None for what was not read from TFLite."""
    if not isinstance(module.native, TfliteNative):
        return None
    model = module.native.model
    lacking, named = unknown_kernels(model, kernels), len(variables(model))
    assumed = [*assumptions(kernels), *_versions(model)]
    if named:
        assumed.append(f"MicroResourceVariables of {named}, created from the allocator that the interpreter is given")
    if lacking:
        assumed.append(f"not counted, as it is not known: what the kernels of {', '.join(lacking)} keep")
    kept = tuple(_kept(model))
    main = [size for graph, _, _, size in kept if graph == 0]
    return FirmwareNeeds(
        resolver(model),
        estimates(model, kernels),
        tuple(_scratch(model, kernels)),
        tuple(assumed),
        lacking,
        kept,
        tuple(main[operator] for operator in module.native.mappings[0].operators),
        named,
    )


def _versions(model: FileModel) -> Iterator[str]:
    """Yield which releases of TensorFlow Lite Micro a loop in the file needs."""
    kinds = {operator.type for subgraph in model.subgraphs for operator in subgraph.operators}
    if "DYNAMIC_UPDATE_SLICE" in kinds:
        yield "TensorFlow Lite Micro of 10 November 2025 or later, for DYNAMIC_UPDATE_SLICE"
    if kinds & {"IF", "WHILE"} and any(name == OFFLINE_PLAN for name, _ in model.metadata):
        yield (
            "the memory plan lays what WHILE and IF copy on one address: since 20 July 2026 such copies are skipped by "
            "TensorFlow Lite Micro; before, memcpy is called with the same address twice, which C leaves undefined"
        )


def _kept(model: FileModel) -> Iterator[tuple[int, int, str, int]]:
    for graph, subgraph in enumerate(model.subgraphs):
        sizes = least_kept(subgraph, 32)
        for index, (operator, size) in enumerate(zip(subgraph.operators, sizes, strict=True)):
            yield graph, index, operator.type, size


def _scratch(model: FileModel, kernels: str) -> Iterator[Scratch]:
    for graph, subgraph in enumerate(model.subgraphs):
        for index, operator in enumerate(subgraph.operators):
            requests = scratch_requests(model, graph, index, kernels)
            if requests:
                yield Scratch(graph, index, operator.type, tuple(requests))
