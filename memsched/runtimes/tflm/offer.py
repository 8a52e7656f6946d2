"""The files that usually run in TensorFlow Lite Micro: small int8 models of operators that it has."""

from __future__ import annotations

from typing import Final

from memsched.base.units import format_size
from memsched.formats.module import Module
from memsched.formats.tflite.reader import TfliteNative
from memsched.runtimes.offer import Offer
from memsched.runtimes.tflm.limits import refusals
from memsched.runtimes.tflm.resolver import resolver

__all__ = ["offer"]

_LARGEST: Final = 2 << 20
"""Bytes of the largest file that usually runs there: what microcontrollers have of flash for a model."""

_NAME: Final = "TensorFlow Lite Micro"
_ELSEWHERE: Final = ("kernels other than the reference kernels", "times on microcontrollers")
_BORDERS: Final = frozenset({"QUANTIZE", "DEQUANTIZE"})
"""They may read or make floats in an int8 model: its inputs and outputs."""


def offer(module: Module) -> Offer | None:
    """Return the target for any kernels, and whether ``module`` is meant for it; None for other formats."""
    if not isinstance(module.native, TfliteNative):
        return None
    refused, against = _refused(module.native), _against(module)
    size = format_size(len(module.native.model.data))
    problem = refused or against
    reason = problem or f"an int8 model of {size} whose operators {_NAME} has"
    return Offer("tflm", _NAME, refused is None, problem is None, reason, _ELSEWHERE)


def _refused(native: TfliteNative) -> str | None:
    """Return why it would not run there, by the first operator that is refused."""
    unsupported = resolver(native.model).unsupported
    if unsupported:
        return f"{_NAME} has no {unsupported[0]}"
    first = next(iter(refusals(native.model)), None)
    return None if first is None else f"{_NAME} refuses {first.type}: {first.reason}"


def _against(module: Module) -> str | None:
    """Return why it is not meant for microcontrollers."""
    custom, size = resolver(module.native.model).custom, len(module.native.model.data)
    if custom:
        return f"{_NAME} has no custom operator {custom[0]}"
    if size > _LARGEST:
        return f"a file of {format_size(size)} is more than microcontrollers usually hold"
    types = {
        graph.tensors[tensor].dtype
        for graph in module.graphs
        for op in graph.ops
        if op.type not in _BORDERS
        for tensor in (*op.inputs, *op.outputs)
    }
    floating = sorted(one for one in types if one.startswith(("float", "bfloat", "complex")))
    if floating:
        return f"its operators compute in {floating[0]}, not in int8"
    return None if "int8" in types else "none of its operators computes in int8"
