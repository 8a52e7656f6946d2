"""Which kernels a firmware is built with, by the word that a target has for them (its key ``kernels``)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from memsched.formats.tflite.model import FileModel, FileOperator, FileSubgraph
from memsched.runtimes.tflm.cmsis_nn import CMSIS_DATA, ArmProcessor, cmsis_kept, cmsis_scratch, unknown_on_cmsis
from memsched.runtimes.tflm.esp_nn import ESP_DATA, EspChip, esp_scratch, unknown_on_esp

__all__ = ["REFERENCE", "KernelSet", "kernel_set"]

_Requests = Callable[[FileModel, FileSubgraph, FileOperator], tuple[int, ...] | None]


@dataclass(frozen=True, slots=True)
class KernelSet:
    """Where kernels need other than the reference kernels do.

    Attributes:
        words: What they are, as reports say it.
        scratch: Returns the bytes of each scratch buffer of an operator; None for what the reference kernel requests.
        kept: Returns the bytes of each buffer that a kernel keeps beside what the reference kernel does.
        data: Per operator bytes of its kernel's own data on 64 and 32 bit.
        unknown: Returns whether an operator's needs are not known.
    """

    words: str
    scratch: _Requests = field(default=lambda _, __, ___: None)
    kept: _Requests = field(default=lambda _, __, ___: None)
    data: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    unknown: Callable[[FileSubgraph, FileOperator], bool] = field(default=lambda _, __: False)


REFERENCE: Final = KernelSet("reference kernels")


def _cmsis(processor: ArmProcessor, words: str) -> KernelSet:
    return KernelSet(
        f"CMSIS-NN kernels {words}, built by GCC for speed",
        functools.partial(cmsis_scratch, processor=processor),
        functools.partial(cmsis_kept, processor=processor),
        CMSIS_DATA,
        unknown_on_cmsis,
    )


def _esp(chip: EspChip, words: str) -> KernelSet:
    return KernelSet(
        f"ESP-NN kernels {words}",
        lambda _, graph, op: esp_scratch(graph, op, chip),
        data=ESP_DATA,
        unknown=unknown_on_esp,
    )


_SETS: Final[Mapping[str, KernelSet]] = {
    "cmsis-nn": _cmsis("plain", "for processors without DSP instructions"),
    "cmsis-nn-dsp": _cmsis("dsp", "for processors with DSP instructions"),
    "cmsis-nn-mve": _cmsis("mve", "for processors with vectors (MVE)"),
    "esp-nn": _esp("generic", "for chips without vectors"),
    "esp-nn-s3": _esp("s3", "for the ESP32-S3"),
}


def kernel_set(name: str) -> KernelSet:
    """Return the kernels that a target names; those of the reference where it names none of TensorFlow Lite Micro's."""
    return _SETS.get(name, REFERENCE)
