"""LiteRT as a `Runner`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from memsched.errors import UsageError
from memsched.formats.module import FormatName, LoadOptions, Module
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.package import LITERT
from memsched.runtimes.values import RunnerName, Verification

__all__ = ["LiteRtRunner"]


class LiteRtRunner:
    """Runs TFLite files; those for TensorFlow Lite Micro, too, where that is not at hand."""

    name: Final[RunnerName] = "litert"
    format: Final[FormatName] = "tflite"
    row: Final = "memsched.runtimes.litert.row:run"
    other_mode: Final = "with LiteRT's default delegates"

    def installed(self) -> str:
        """Return the runtime's name and version; see `Runner.installed`."""
        return LITERT.require()

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
        """Compare both models; see `Runner.verify`."""
        from memsched.runtimes.litert import verification

        del module, options
        found = verification.verify(data, written.model, seed=seed, tolerance=tolerance)
        before, after = predicted or (None, None)
        return replace(found, predicted_peak_before_bytes=before, predicted_peak_after_bytes=after)

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
        from memsched.runtimes.litert import verification

        del options
        if rtol:
            raise UsageError("--rtol is for ONNX: state the tolerance of TFLite outputs with --atol")
        one, other = (given if isinstance(given, bytes) else given.read_bytes() for given in (first, second))
        found = verification.verify(one, other, runs=runs, seed=seed)
        return found.within(atol), found

    def row_request(self, module: Module) -> Mapping[str, Any]:
        """Return the names that segments give the tensors: those in the file may be missing or double."""
        tensors = module.native.mappings[0].tensors
        return {"names": [[number, one.name] for number, one in zip(tensors, module.graph.tensors, strict=True)]}
