"""TensorFlow Lite Micro as a `Runner`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from memsched.errors import UsageError
from memsched.formats.module import FormatName, LoadOptions, Module
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.package import TFLM
from memsched.runtimes.tflm import verification
from memsched.runtimes.values import RunnerName, Verification

__all__ = ["TflmRunner"]


class TflmRunner:
    """Runs TFLite files in TensorFlow Lite Micro's reference kernels, as the package tflite-micro has them."""

    name: Final[RunnerName] = "tflm"
    format: Final[FormatName] = "tflite"

    def installed(self) -> str:
        """Return the runtime's name and version; see `Runner.installed`."""
        return TFLM.require()

    def verify(
        self,
        module: Module,
        data: bytes,
        written: ModelBytes,
        options: LoadOptions,
        *,
        seed: int,
        tolerance: float,
        predicted: tuple[int, int] | None,
    ) -> Verification:
        """Compare both models; see `Runner.verify`. What should be measured follows from their bytes."""
        del module, options, predicted
        return verification.verify(data, written.model, seed=seed, tolerance=tolerance)

    def compare(
        self,
        first: Path | bytes,
        second: Path | bytes,
        options: LoadOptions,
        *,
        runs: int,
        rtol: float,
        atol: float,
        seed: int,
    ) -> tuple[bool | None, Verification]:
        """Run two models on the same random inputs; see `Runner.compare`."""
        del options
        if rtol:
            raise UsageError("--rtol is for ONNX: state the tolerance of TFLite outputs with --atol")
        one, other = (given if isinstance(given, bytes) else given.read_bytes() for given in (first, second))
        found = verification.verify(one, other, runs=runs, seed=seed)
        return found.within(atol), found
