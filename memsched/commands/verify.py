"""Running the model as given and the optimised one in their real runtime, where it is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from memsched.errors import RuntimeUnavailableError, UsageError
from memsched.formats.files import read_source
from memsched.formats.known import format_in
from memsched.formats.module import LoadOptions, Module, OrderGuarantee
from memsched.formats.staging import STANDARD_STREAM
from memsched.runtimes.output import Written
from memsched.runtimes.values import Verification

__all__ = ["ModelComparison", "compare", "verify_written"]

_GUARANTEES: Mapping[str, OrderGuarantee] = {"none": "none", "pins": "pins", "default": "default"}
"""Those that do not come with session options."""


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """Two models run on the same inputs.

    Attributes:
        same: Outputs are bit-equal or within the tolerance; None where they could not be compared.
        verification: What the runtime showed; "before" is the first model, "after" the second.
    """

    same: bool | None
    rtol: float
    atol: float
    verification: Verification


def verify_written(
    module: Module,
    data: bytes,
    written: Written,
    options: LoadOptions,
    *,
    seed: int,
    tolerance: float = 0.0,
    predicted: tuple[int, int] | None = None,
) -> tuple[Verification | None, tuple[str, ...]]:
    """Compare the model in ``data`` with the one written: outputs, measured peaks and the executed order.

    Args:
        tolerance: Relative error that is permitted, where pieces are added up in another order.
        predicted: What LiteRT should show of both models, bytes; None where the target is not LiteRT.

    Returns:
        What was found, and notes for the report; None and the reason where the runtime is not installed.
    """
    try:
        if module.format == "tflite":
            from memsched.runtimes.litert import verification as litert

            found = litert.verify(data, written.model, seed=seed, tolerance=tolerance)
            before, after = predicted or (None, None)
            return replace(found, predicted_peak_before_bytes=before, predicted_peak_after_bytes=after), ()
        return _verify_onnx(module, data, written, options, seed, tolerance), ()
    except RuntimeUnavailableError as error:
        return None, (f"not verified: {error}",)


def _verify_onnx(
    module: Module, data: bytes, written: Written, options: LoadOptions, seed: int, tolerance: float
) -> Verification:
    from memsched.formats.onnx.external import external_files, folder_of
    from memsched.runtimes.onnxruntime import verification as onnxruntime

    folder: Path | None = folder_of(module.path) if external_files(module) else None
    promised = written.guarantee
    found = onnxruntime.verify(
        data,
        written.model,
        expected_order=promised.executed,
        guarantee=_GUARANTEES.get(promised.kind, "session"),
        seed=seed,
        input_shapes=options.input_shapes,
        dims=options.dims,
        data_folder=folder,
    )
    before, after = promised.requested or (None, None)
    found = replace(found, predicted_peak_before_bytes=before, predicted_peak_after_bytes=after)
    if found.outputs_equal is None:
        return found
    if written.unchanged:
        return found if promised.kind in {"pins", "default"} or written.opened_with_options else _as_opened(found)
    sizes, notes = onnxruntime.try_other_sizes(
        data,
        written.model,
        guarantee=_GUARANTEES.get(promised.kind, "session"),
        tolerance=tolerance,
        seed=seed,
        input_shapes=options.input_shapes,
        dims=options.dims,
        data_folder=folder,
    )
    return replace(found, other_sizes=sizes, notes=(*found.notes, *notes))


def _as_opened(found: Verification) -> Verification:
    """Return ``found`` for a file that stays as it is: no option is asked for, so a session without any counts."""
    return replace(
        found,
        measured_peak_before_bytes=found.default_peak_before_bytes,
        measured_peak_after_bytes=found.default_peak_after_bytes,
        predicted_peak_before_bytes=None,
        predicted_peak_after_bytes=None,
        executed_order_matches=None,
        measured_with=("session = onnxruntime.InferenceSession(path)",),
    )


def compare(
    first: str | bytes, second: str | bytes, options: LoadOptions, *, runs: int, rtol: float, atol: float, seed: int
) -> ModelComparison:
    """Run two models of one format on the same random inputs; see `memsched.commands.optimize.optimize.verify`."""
    (one, one_path), (other, other_path) = read_source(first), read_source(second)
    given = format_in(one)
    if format_in(other) != given:
        raise UsageError("one model is ONNX, the other TFLite: only models of one format can be compared")
    if given.name == "tflite":
        from memsched.runtimes.litert import verification as litert

        if rtol:
            raise UsageError("--rtol is for ONNX: state the tolerance of TFLite outputs with --atol")
        found = litert.verify(one, other, runs=runs, seed=seed)
        error = found.max_abs_error
        near = found.outputs_equal or (error is not None and error <= atol)
        return ModelComparison(None if found.outputs_equal is None else near, rtol, atol, found)
    from memsched.runtimes.onnxruntime import verification as onnxruntime

    result = onnxruntime.compare_models(
        # From its path, a model's external data is found beside it.
        one if one_path == STANDARD_STREAM else Path(one_path),
        other if other_path == STANDARD_STREAM else Path(other_path),
        runs=runs,
        seed=seed,
        rtol=rtol,
        atol=atol,
        input_shapes=options.input_shapes,
        dims=options.dims,
    )
    close = None if result.verification.outputs_equal is None else result.outputs_close
    return ModelComparison(result.verification.outputs_equal or close, rtol, atol, result.verification)
