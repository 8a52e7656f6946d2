"""Running the model as given and the optimised one in their real runtime, where it is installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from memsched.base.errors import MemschedError, RuntimeUnavailableError, UsageError
from memsched.base.frozen import FrozenValue
from memsched.commands.options import VerifyOptions
from memsched.formats.capabilities import BorderRewrites
from memsched.formats.files import load_module, read_source
from memsched.formats.known import capability, format_in, format_of
from memsched.formats.module import LoadOptions, Module
from memsched.formats.staging import STANDARD_STREAM
from memsched.graph.border import Border
from memsched.report.border import border_notes
from memsched.report.outputs import TOLERANCE
from memsched.runtimes.known import default_interpreter_of, runner_named, runners_for
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.runner import CompareFiles, VerifyRequest
from memsched.runtimes.values import Verification
from memsched.targets.model import Target

__all__ = ["ModelComparison", "compare", "verify_written"]


class ModelComparison(FrozenValue, frozen=True):
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
    written: ModelBytes,
    options: LoadOptions,
    target: Target,
    *,
    seed: int,
    tolerance: float = 0.0,
    predicted: tuple[int, int] | None = None,
    kernels: bool = False,
) -> tuple[Verification | None, tuple[str, ...]]:
    """Compare the model in ``data`` with the one written: outputs, measured peaks and the executed order.

    Args:
        tolerance: Relative error that is permitted, where pieces are added up in another order.
        kernels: As `VerifyRequest` has it.
        predicted: What LiteRT should show of both models, bytes; None where the target is not LiteRT.

    Returns:
        What the target's own runtime showed or, where that is not installed or does not run the model as given, another
        one; and notes for the report. None and the reasons where none is installed.
    """
    found: Verification | None = None
    notes: list[str] = []
    delegated = default_interpreter_of(module, target) is not None
    plain = TOLERANCE if delegated else None
    asked = VerifyRequest(module, data, written, options, seed, tolerance, predicted, plain, kernels)
    for runner in runners_for(module, target):
        try:
            seen = runner.verify(asked)
        except RuntimeUnavailableError as error:
            notes.append(f"not verified in {runner.name}: {error}")
            continue
        if found is not None:
            # What the target itself says of the model comes first.
            note = f"not run in {found.runtime}: {found.reason}"
            seen = replace(seen, notes=(note, *seen.notes), refused=found.refused)
        if found is None or seen.outputs_equal is not None:
            found = seen
        if found.outputs_equal is not None:
            break
    return found, tuple(notes)


def compare(first: str | bytes, second: str | bytes, sizes: LoadOptions, how: VerifyOptions) -> ModelComparison:
    """Run two models of one format on the same random inputs; see `memsched.commands.optimize.optimize.verify`."""
    (one, one_path), (other, other_path) = read_source(first), read_source(second)
    given = format_in(one)
    if format_in(other) != given:
        raise UsageError(
            "one model is ONNX and the other TFLite", code="other-format", action="give two models of one format"
        )
    # From its path, a model's external data is found beside it.
    before, after = (
        data if path == STANDARD_STREAM else Path(path) for data, path in ((one, one_path), (other, other_path))
    )
    runner = runner_named(how.runtime, given.name)
    borders = _borders_between((one, one_path), (other, other_path), sizes)
    close, found = runner.compare(CompareFiles(before, after, sizes, how.runs, how.rtol, how.atol, how.seed, borders))
    return ModelComparison(close, how.rtol, how.atol, replace(found, notes=(*border_notes(borders), *found.notes)))


def _borders_between(first: tuple[bytes, str], second: tuple[bytes, str], options: LoadOptions) -> tuple[Border, ...]:
    """Return what stands between the inputs and outputs of two models, the second being one with another border.

    Raises:
        UsageError: The first is.
    """
    try:
        one, other = (load_module(data, path, options) for data, path in (first, second))
    except MemschedError:
        # What cannot be read for an analysis may run all the same.
        return ()
    if _matching(other, one):
        raise UsageError(
            f"'{one.path}' has other inputs or outputs than '{other.path}', whose caller would do more for it",
            code="wrong-way-round",
            action="name the model as given first",
        )
    return _matching(one, other)


def _matching(given: Module, written: Module) -> tuple[Border, ...]:
    """Return those of the borders of ``given`` that ``written`` has, by names, types and shapes."""
    ends = format_of(written).interface(written)
    known = {
        (side, place): (end.name, end.dtype, end.shape)
        for side, tensors in (("input", ends.inputs), ("output", ends.outputs))
        for place, end in enumerate(tensors)
    }
    return tuple(
        border
        for border in capability(given, BorderRewrites).borders(given).found
        if known.get((border.side, border.place)) == (border.written.name, border.written.dtype, border.written.shape)
    )
