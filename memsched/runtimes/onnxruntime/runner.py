"""ONNX Runtime as a `Runner`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from memsched.formats.module import FormatName, LoadOptions, Module, OrderGuarantee
from memsched.formats.staging import STANDARD_STREAM
from memsched.graph.model import Graph
from memsched.runtimes.package import ONNXRUNTIME
from memsched.runtimes.runner import CompareFiles, VerifyRequest
from memsched.runtimes.sessions import DEFAULT
from memsched.runtimes.values import EXECUTED_TOLERANCE, RunnerName, Verification, as_opened

__all__ = ["OnnxRuntimeRunner"]

_GUARANTEES: Mapping[str, OrderGuarantee] = {"none": "none", "pins": "pins", "default": "default"}
"""Those that do not come with session options."""


class OnnxRuntimeRunner:
    """Runs ONNX files."""

    name: Final[RunnerName] = "onnxruntime"
    format: Final[FormatName] = "onnx"
    row: Final = "memsched.runtimes.onnxruntime.row:run"
    row_special: Final = "memsched.runtimes.onnxruntime.row:special"
    other_mode: Final = "with graph optimisation"
    kernels: Final = "memsched.runtimes.onnxruntime.kernels:seconds"
    parts: Final = "memsched.runtimes.onnxruntime.parts:OnnxRuntimeParts"
    package: Final = ONNXRUNTIME

    def part_bytes(self, module: Module, graph: Graph, data: Callable[[], bytes]) -> int:
        """Return what a part of a model takes beside its inputs; see `RowRunner.part_bytes`."""
        from memsched.runtimes.onnxruntime.part_memory import part_bytes

        return part_bytes(module, graph, data)

    def verify(self, asked: VerifyRequest) -> Verification:
        """Compare both models; see `Runner.verify`. What the sessions should show ``asked.written`` says."""
        from memsched.formats.onnx.external import external_files, folder_of
        from memsched.runtimes.onnxruntime import verification
        from memsched.runtimes.onnxruntime.inputs import at_stated_sizes
        from memsched.runtimes.onnxruntime.special import SpecialSession, sessions_of, with_special_values
        from memsched.runtimes.onnxruntime.verdicts import equal_by_default

        folder: Path | None = folder_of(asked.module.path) if external_files(asked.module) else None
        data, written, options = asked.data, asked.written, asked.options
        promised = written.guarantee
        how: dict[str, Any] = {
            "guarantee": _GUARANTEES.get(promised.kind, "session"),
            "seed": asked.seed,
            "input_shapes": options.input_shapes,
            "dims": options.dims,
            "data_folder": folder,
            "borders": written.borders,
        }
        found = verification.compare_models(
            data, written.model, expected_order=promised.executed, feeds=options.feeds, **how
        ).explained
        # A file that promises no session is opened without options.
        plain = promised.kind in verification.PLAIN and found.outputs_equal is False
        by_default = equal_by_default(found) if plain else None
        if by_default is not None:
            found = replace(by_default, measured_with=found.measured_with)
        before, after = promised.requested or (None, None)
        found = replace(found, predicted_peak_before_bytes=before, predicted_peak_after_bytes=after)
        found = replace(found, at_stated_sizes=at_stated_sizes(found, data, options))
        if found.outputs_equal is None:
            return found
        if written.unchanged:
            kept = promised.kind in {"pins", "default"} or written.opened_with_options
            return found if kept else as_opened(found)
        tolerance = asked.tolerance if by_default is None else EXECUTED_TOLERANCE
        sizes, notes = verification.try_other_sizes(data, written.model, tolerance=tolerance, **how)
        found = replace(found, other_sizes=sizes, notes=(*found.notes, *notes))
        sessions = sessions_of(found, how.pop("guarantee"), asked.tolerance)
        if by_default is not None:
            sessions = [SpecialSession(DEFAULT, DEFAULT, "", asked.tolerance)]
        return with_special_values(found, data, written.model, sessions, feeds=options.feeds, **how)

    def observe(self, data: bytes, path: str, options: LoadOptions, feeds: str | None, *, seed: int) -> LoadOptions:
        """Run a model once; return ``options`` with the sizes of its inputs and of all that it computed.

        For formats whose files may leave sizes open; see `observe`.
        """
        from memsched.runtimes.onnxruntime.observation import observe

        return observe(data, path, options, feeds, seed=seed)

    def compare(self, asked: CompareFiles) -> tuple[bool | None, Verification]:
        """Run two models on the same random inputs; see `Runner.compare`."""
        from memsched.runtimes.onnxruntime import verification
        from memsched.runtimes.onnxruntime.special import SpecialSession, sessions_of, with_special_values
        from memsched.runtimes.onnxruntime.verdicts import equal_by_default

        files, options = (asked.first, asked.second), asked.options
        how: dict[str, Any] = {
            "seed": asked.seed,
            "input_shapes": options.input_shapes,
            "dims": options.dims,
            "borders": asked.borders,
        }
        result = verification.compare_models(
            asked.first,
            asked.second,
            runs=asked.runs,
            timeout_seconds=asked.timeout_seconds,
            rtol=asked.rtol,
            atol=asked.atol,
            **how,
        )
        found = result.verification
        close = found.outputs_equal or (None if found.outputs_equal is None else result.outputs_close)
        by_default = equal_by_default(found) if close is False else None
        if by_default is not None:
            close, found = True, by_default
        if not close:
            return close, found
        tolerance = 0.0 if by_default is None else EXECUTED_TOLERANCE
        sizes, notes = verification.try_other_sizes(
            asked.first, asked.second, rtol=asked.rtol, atol=asked.atol, tolerance=tolerance, **how
        )
        found = replace(found, other_sizes=sizes, notes=(*found.notes, *notes))
        sessions = sessions_of(found, "session", 0.0)
        if by_default is not None:
            sessions = [SpecialSession(DEFAULT, DEFAULT, "", 0.0)]
        found = with_special_values(found, *files, sessions, **how)
        return found.wrong_elsewhere is None and found.special_wrong is None, found

    def row_request(self, module: Module) -> Mapping[str, Any]:
        """Return the folder of external data and the shapes of the inputs."""
        graph = module.graphs[0]
        shapes = {graph.tensors[tensor].name: graph.tensors[tensor].shape for tensor in graph.inputs}
        folder = None if module.path == STANDARD_STREAM else str(Path(module.path).absolute().parent)
        return {"folder": folder, "input_shapes": {name: list(one) for name, one in shapes.items() if one is not None}}
