"""LiteRT as a `Runner`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from memsched.formats.module import Module
from memsched.graph.border import Border
from memsched.graph.model import Graph
from memsched.runtimes.package import LITERT
from memsched.runtimes.runner import VerifyRequest
from memsched.runtimes.tflite_runner import TfliteRunner, VerifyFiles
from memsched.runtimes.values import OtherSize, RunnerName, Verification

__all__ = ["LiteRtRunner"]


class LiteRtRunner(TfliteRunner):
    """Runs TFLite files; those for TensorFlow Lite Micro, too, where that is not at hand."""

    name: Final[RunnerName] = "litert"
    row: Final = "memsched.runtimes.litert.row:run"
    row_special: Final = "memsched.runtimes.litert.row:special"
    other_mode: Final = "with LiteRT's default delegates"
    kernels: Final = None
    parts: Final = "memsched.runtimes.litert.parts:LiteRtParts"
    package: Final = LITERT
    elsewhere = "; --runtime tflm asks TensorFlow Lite Micro"

    def part_bytes(self, module: Module, graph: Graph, data: Callable[[], bytes]) -> int:
        """Return what a part of a model takes beside its inputs; see `RowRunner.part_bytes`."""
        del module, graph
        from memsched.runtimes.litert.part_memory import part_bytes

        return part_bytes(data())

    @property
    def verify_files(self) -> VerifyFiles:
        """Return what runs a model before and after."""
        from memsched.runtimes.litert.verification import verify

        return verify

    def check_file(self, data: bytes) -> None:
        """Check that all tables can be read."""
        from memsched.formats.tflite.model import parse

        parse(data)

    def verify(self, asked: VerifyRequest) -> Verification:
        """Compare both models; see `Runner.verify`."""
        before, after, borders = asked.data, asked.written.model, asked.written.borders
        from memsched.runtimes.litert.verification import verify

        found = verify(
            before,
            after,
            seed=asked.seed,
            tolerance=asked.tolerance,
            borders=borders,
            plain_tolerance=asked.plain_tolerance,
            kernels=asked.kernels,
        )
        first, second = asked.predicted or (None, None)
        found = replace(found, predicted_peak_before_bytes=first, predicted_peak_after_bytes=second)
        if not found.runs or asked.written.unchanged:
            return found
        from memsched.runtimes.litert.verification import try_other_sizes

        how: dict[str, Any] = {"tolerance": asked.tolerance, "borders": borders, "kernels": asked.kernels}
        sizes, notes = try_other_sizes(before, after, seed=asked.seed, **how)
        return replace(found, other_sizes=sizes, notes=(*found.notes, *notes))

    def other_sizes(
        self,
        before: bytes,
        after: bytes,
        *,
        seed: int,
        tolerance: float = 0.0,
        atol: float = 0.0,
        borders: Sequence[Border] = (),
    ) -> tuple[tuple[OtherSize, ...], tuple[str, ...]]:
        """Run two models at other sizes; see `TfliteRunner.other_sizes`."""
        from memsched.runtimes.litert.verification import try_other_sizes

        return try_other_sizes(before, after, seed=seed, tolerance=tolerance, atol=atol, borders=borders)

    def resize(self, data: bytes, shapes: Mapping[str, Sequence[int]]) -> bytes:
        """Return the file with other shapes of inputs; see `memsched.runtimes.litert.resizing`."""
        from memsched.runtimes.litert.resizing import resize

        return resize(data, shapes)

    def row_request(self, module: Module) -> Mapping[str, Any]:
        """Return the names that segments give the tensors: those in the file may be missing or double."""
        tensors = module.native.mappings[0].tensors
        return {"names": [[number, one.name] for number, one in zip(tensors, module.graph.tensors, strict=True)]}
