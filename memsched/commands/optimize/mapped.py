"""Weights in a file of their own, packed for kernels: what was found is stored so that every session maps them."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from memsched.base.errors import MemschedError
from memsched.base.frozen import FrozenValue
from memsched.commands.optimize.interpreter_choice import memory_row
from memsched.commands.optimize.opening import POINTS, any_time, opening_lines
from memsched.commands.optimize.trials import TrialRequest
from memsched.commands.optimize.worth import LEAST_GAIN
from memsched.commands.results import OptimizeResult, Report
from memsched.commands.session_rows import LEAST_SHOWN, GivenModel
from memsched.formats.module import LoadOptions
from memsched.formats.staging import STANDARD_STREAM
from memsched.report.measurements import mapped_rows
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.sessions import MappedSection
from memsched.report.values.verdict import AlternativeRow
from memsched.runtimes.known import SessionMaker
from memsched.runtimes.measure import PROCESSES
from memsched.runtimes.process_memory import MappedComparison
from memsched.runtimes.race import most_times
from memsched.runtimes.sessions import DEFAULT, EXECUTED, LISTED, MappedModel, SessionPoint

__all__ = ["MappedFile", "MappingRequest", "mapped_file", "mapped_in_less", "point_of", "with_mapped_weights"]

_LESS: Final = 0.9
"""Share of the private memory that another file beside the model must leave at most to be named."""

_NOT_MAPPED: Final = "weights are not mapped: {}"


class MappingRequest(FrozenValue, frozen=True):
    """The original, and what is asked for.

    Attributes:
        maker: Opens sessions.
        options: What is stated of the sizes of inputs.
        stem: The name of the model's file without its ending: the weights are named after it.
        seed: Of the inputs.
        slowdown: Time that the file may take beyond the original, in percent; None for any.
    """

    maker: SessionMaker
    given: GivenModel
    options: LoadOptions
    stem: str
    seed: int
    slowdown: float | None


class MappedFile(FrozenValue, frozen=True):
    """A model whose sessions map its weights.

    Attributes:
        model: Its bytes.
        weights: Those of the file beside it, by its name.
        section: What was measured, for the report.
    """

    model: bytes
    weights: tuple[str, bytes]
    section: MappedSection


def with_mapped_weights(result: OptimizeResult, asked: MappingRequest) -> OptimizeResult:
    """Return a result with mapped weights if sessions take less of a process so, else the same with a note why not."""
    values = result.report.values
    lines = () if values.guarantee is None else values.guarantee.session_options
    point = point_of(lines) if values.sections.executed is None else EXECUTED
    found = mapped_file(result.model, point, asked)
    if isinstance(found, str):
        return _noted(result, _NOT_MAPPED.format(found))
    output, sections = values.output, values.sections
    if output is not None:
        digest = hashlib.sha256(found.model).hexdigest()
        output = msgspec.structs.replace(output, sha256=digest, unchanged=False, slight_bytes=None)
    sections = msgspec.structs.replace(sections, mapped=found.section, held_back=None)
    verdict = msgspec.structs.replace(values.verdict, time_ratio=found.section.time_ratio, outputs=_outputs(values))
    measured = (*values.measurements, *mapped_rows(found.section))
    values = msgspec.structs.replace(values, output=output, sections=sections, verdict=verdict, measurements=measured)
    name, weights = found.weights
    return dataclasses.replace(result, model=found.model, report=Report(values), files={name: weights})


def mapped_in_less(
    model: bytes, point: SessionPoint, asked: MappingRequest, trial: TrialRequest
) -> AlternativeRow | None:
    """Return the command that writes a model with mapped weights; None if sessions take little less of it.

    Args:
        model: The file that is written, perhaps the original.
        point: How sessions on it are opened.
    """
    found = mapped_file(model, point, asked, processes=1)
    if isinstance(found, str):
        return None
    given, written = found.section.given.private_bytes, found.section.written.private_bytes
    if written > _LESS * found.section.unmapped.private_bytes:
        return None
    return AlternativeRow(
        command=trial.changing("opening"),
        what="weights in a file of their own, which sessions map",
        bytes=0,
        saving_bytes=0,
        extra_macs_percent=0.0,
        time_ratio=found.section.time_ratio,
        changes=("opening",),
        process_bytes=written,
        process_saving_bytes=given - written,
        private=True,
    )


def mapped_file(
    model: bytes, point: SessionPoint, asked: MappingRequest, *, processes: int = PROCESSES
) -> MappedFile | str:
    """Return a model with mapped weights if that takes less of a process and keeps the outputs; else why it does not.

    Args:
        model: What was found, perhaps the original.
        point: How sessions on it are opened.
        processes: In which each is measured at least.
    """
    given, maker = asked.given, asked.maker
    with tempfile.TemporaryDirectory(prefix="memsched-") as held:
        folder = Path(held)
        original, written, feeds = folder / "given.onnx", folder / "written.onnx", folder / "feeds.npz"
        outside = given.folder.absolute() if given.external else None
        if given.path != STANDARD_STREAM:
            original = Path(given.path).absolute()
        else:
            original.write_bytes(given.data)
        written.write_bytes(model)
        same = model == given.data
        try:
            maker.draw_feeds(given.data, given.folder, asked.options, feeds, seed=asked.seed)
            name = maker.weights_name(asked.stem)
            mapped = maker.mapped(written, outside, point, folder, name)
            if not mapped.weights.exists() or mapped.weights.stat().st_size < LEAST_SHOWN:
                return "they are too small"
            limit = most_times(asked.slowdown)
            files = (original, original if same else written)
            found = maker.compare_mapped(*files, mapped, feeds, outside, limit=limit, least=processes)
            objection = found if isinstance(found, str) else _objection(found, asked.slowdown)
            objection = objection or maker.apart_at_other_sizes(model, outside, mapped.model, asked.options, asked.seed)
        except MemschedError as error:
            return str(error)
        if objection is not None or isinstance(found, str):
            return objection or "nothing was measured"
        section = _section(mapped, found, original=same)
        return MappedFile(mapped.model.read_bytes(), (name, mapped.weights.read_bytes()), section)


def _objection(found: MappedComparison, slowdown: float | None) -> str | None:
    """Return what was measured that speaks against a file; None if nothing does.

    Mapped pages count at the peak, and the system drops them if memory is short: private memory decides.
    """
    seen = found.seen
    if not seen.equal:
        return "outputs would not keep their bits"
    if found.unmapped.private_bytes - seen.written.private_bytes < LEAST_GAIN * seen.given.private_bytes:
        return "sessions would take no less"
    if seen.takes_longer and not any_time(slowdown):
        return f"a run would take {seen.time_ratio or 1.0:.2f} times as long"
    return None


def _section(mapped: MappedModel, found: MappedComparison, *, original: bool) -> MappedSection:
    seen, ratio = found.seen, found.seen.time_ratio
    return MappedSection(
        weights=mapped.weights.name,
        weights_bytes=mapped.weights.stat().st_size,
        processor=mapped.processor,
        block_channels=mapped.block,
        original=original,
        given=memory_row(seen.given),
        unmapped=memory_row(found.unmapped),
        written=memory_row(seen.written),
        time_ratio=None if ratio is None else round(ratio, 3),
    )


def point_of(lines: Sequence[str]) -> SessionPoint:
    """Return how a file is opened, by the lines of Python that the report has for it."""
    return DEFAULT if not lines else next((one for one in POINTS if opening_lines(one) == tuple(lines)), LISTED)


def _outputs(values: OptimizeReport) -> str:
    """Return what the verdict says of outputs: those of the model that was mapped, or the original's own."""
    unchanged = values.output is not None and values.output.unchanged
    return "bit_equal" if unchanged else values.verdict.outputs


def _noted(result: OptimizeResult, note: str) -> OptimizeResult:
    values = result.report.values
    verdict = msgspec.structs.replace(values.verdict, notes=(*values.verdict.notes, note))
    return dataclasses.replace(result, report=Report(msgspec.structs.replace(values, verdict=verdict)))
