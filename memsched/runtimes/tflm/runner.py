"""TensorFlow Lite Micro as a `Runner`."""

from __future__ import annotations

from typing import Final

from memsched.formats.module import LoadOptions, Module
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.package import TFLM
from memsched.runtimes.tflite_runner import TfliteRunner, VerifyFiles
from memsched.runtimes.values import RunnerName, Verification

__all__ = ["TflmRunner"]


class TflmRunner(TfliteRunner):
    """Runs TFLite files in TensorFlow Lite Micro's reference kernels, as the package tflite-micro has them."""

    name: Final[RunnerName] = "tflm"
    package: Final = TFLM

    def installed(self) -> str:
        """Return the runtime's name and version; see `Runner.installed`."""
        return TFLM.require()

    @property
    def verify_files(self) -> VerifyFiles:
        """Return what runs a model before and after."""
        from memsched.runtimes.tflm.verification import verify

        return verify

    def check_file(self, data: bytes) -> None:
        """Check that all tables can be read."""
        from memsched.formats.tflite.model import parse

        parse(data)

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
        return self.verify_files(data, written.model, seed=seed, tolerance=tolerance, borders=written.borders)
