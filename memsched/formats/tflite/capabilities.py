"""What TFLite files allow beyond reading and writing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from memsched.formats.capabilities import (
    BorderRewrites,
    Capability,
    Cutter,
    KernelContents,
    MadeConstants,
    PartWriter,
    Shards,
    SizeGuards,
    Stages,
)
from memsched.formats.module import Module
from memsched.graph.border import Borders
from memsched.graph.kernel import KernelRefusal, LayerKernel

__all__ = [
    "CAPABILITIES",
    "TfliteBorders",
    "TfliteKernels",
    "TfliteMadeConstants",
    "TfliteShards",
    "TfliteSizes",
    "TfliteStages",
]


class TfliteStages(Stages, frozen=True):
    """Cuts TFLite models into models of consecutive ops."""

    def cutter(self, module: Module) -> Cutter:
        """Return what makes models of parts of ``module``."""
        from memsched.formats.tflite.segments import TfliteCutter

        return TfliteCutter(module)

    def together(self, module: Module) -> tuple[tuple[int, ...], ...]:
        """Return groups of ops of the main graph that use one state, and so must be in one segment."""
        from memsched.formats.tflite.segments import together

        return together(module)


class TfliteShards(Shards, frozen=True):
    """Writes models of parts of ops."""

    def part_writer(self, module: Module) -> PartWriter:
        """Return what writes parts of ops of ``module`` as models."""
        from memsched.formats.tflite.parts import TflitePartsWriter

        return TflitePartsWriter(module)


class TfliteBorders(BorderRewrites, frozen=True):
    """Finds operators at the border."""

    def borders(self, module: Module) -> Borders:
        """Return what can be changed at the border; see `BorderRewrites.borders`."""
        from memsched.formats.tflite.borders import borders

        return borders(module)


class TfliteSizes(SizeGuards, frozen=True):
    """Knows which sizes a file accepts."""

    def fixed_dimensions(self, given: Module, written: bytes) -> Mapping[str, int]:
        """Return the sizes that ``given`` leaves open and ``written`` does not."""
        from memsched.formats.tflite.open_sizes import fixed_dimensions

        return fixed_dimensions(given, written)

    def with_guards(self, given: Module, module: Module, data: bytes) -> bytes:
        """Return the file with a GATHER without positions at its end for each input that is not to be resized."""
        from memsched.formats.tflite.open_sizes import with_guards

        return with_guards(given, module, data, last=True)


class TfliteMadeConstants(MadeConstants, frozen=True):
    """Makes constants by RESHAPE."""

    def with_made_constants(self, module: Module, places: Mapping[str, int]) -> bytes | None:
        """Return the file with constants made by operators; see `MadeConstants.with_made_constants`."""
        from memsched.formats.tflite.made_constants import with_made_constants

        return with_made_constants(module, places)


class TfliteKernels(KernelContents, frozen=True):
    """Reads what ops compute."""

    def layer_kernels(self, module: Module) -> tuple[LayerKernel | KernelRefusal, ...]:
        """Return per op of the main graph what it computes, with its weights, or why that cannot be said."""
        from memsched.formats.tflite.kernels import layer_kernels

        return layer_kernels(module)


CAPABILITIES: Final[tuple[Capability, ...]] = (
    TfliteStages(),
    TfliteShards(),
    TfliteBorders(),
    TfliteSizes(),
    TfliteKernels(),
    TfliteMadeConstants(),
)
