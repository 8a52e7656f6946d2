"""TensorFlow Lite Micro as a `Runner`."""

from __future__ import annotations

from typing import Final

from memsched.formats.module import Module
from memsched.runtimes.firmware import FirmwareNeeds
from memsched.runtimes.package import TFLM
from memsched.runtimes.runner import VerifyRequest
from memsched.runtimes.tflite_runner import TfliteRunner, VerifyFiles
from memsched.runtimes.values import RunnerName, Verification

__all__ = ["TflmRunner"]


class TflmRunner(TfliteRunner):
    """Runs TFLite files in TensorFlow Lite Micro's reference kernels, as the package tflite-micro has them."""

    name: Final[RunnerName] = "tflm"
    package: Final = TFLM

    def firmware_needs(self, module: Module, kernels: str) -> FirmwareNeeds | None:
        """Return what a firmware with the kernels that a target names needs; None if ``module`` has another format."""
        from memsched.runtimes.tflm.firmware import firmware_needs

        return firmware_needs(module, kernels)

    @property
    def verify_files(self) -> VerifyFiles:
        """Return what runs a model before and after."""
        from memsched.runtimes.tflm.verification import verify

        return verify

    def check_file(self, data: bytes) -> None:
        """Check that all tables can be read."""
        from memsched.formats.tflite.model import parse

        parse(data)

    def verify(self, asked: VerifyRequest) -> Verification:
        """Compare both models; see `Runner.verify`. What should be measured follows from their bytes."""
        written = asked.written
        return self.verify_files(
            asked.data, written.model, seed=asked.seed, tolerance=asked.tolerance, borders=written.borders
        )
