"""What a firmware with TensorFlow Lite Micro must bring for a TFLite model, beside room for the planned tensors."""

from __future__ import annotations

from typing import Any

from memsched.formats.module import Module
from memsched.formats.tflite_kernels import scratch_requests
from memsched.formats.tflite_model import FileModel
from memsched.formats.tflite_persistent import ASSUMPTIONS, estimates, unknown_kernels
from memsched.formats.tflite_reader import TfliteNative
from memsched.formats.tflite_resolver import resolver

__all__ = ["firmware_section"]


def firmware_section(module: Module) -> dict[str, Any] | None:
    """Return the report's section ``firmware``; None for a module that was not read from TFLite."""
    if not isinstance(module.native, TfliteNative):
        return None
    model = module.native.model
    needed = resolver(model)
    needs = estimates(model)
    lacking = unknown_kernels(model)
    assumptions = list(ASSUMPTIONS)
    if lacking:
        assumptions.append(f"not counted, as it is not known: what the kernels of {', '.join(lacking)} keep")
    return {
        "resolver_calls": list(needed.calls),
        "unsupported_operators": list(needed.unsupported),
        "custom_operators": list(needed.custom),
        "scratch": _scratch(model),
        "persistent_bytes_estimate": {str(bits): one.persistent for bits, one in needs.items()},
        "planning_bytes_estimate": {str(bits): one.planning for bits, one in needs.items()},
        "assumptions": assumptions,
    }


def _scratch(model: FileModel) -> list[dict[str, Any]]:
    found = []
    for graph, subgraph in enumerate(model.subgraphs):
        for index, operator in enumerate(subgraph.operators):
            requests = scratch_requests(model, graph, index)
            if requests:
                entry = {"subgraph": graph, "operator": index, "type": operator.type, "requests_bytes": list(requests)}
                found.append(entry)
    return found
