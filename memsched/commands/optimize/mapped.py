"""Mapped weights: store the result with its weights packed in a second file, which every session maps."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

from memsched.base.errors import MemschedError
from memsched.base.frozen import FrozenValue
from memsched.base.shown import ALIKE
from memsched.base.units import rounded_ratio
from memsched.commands.optimize.interpreter_choice import memory_row
from memsched.commands.optimize.opening import POINTS, any_time
from memsched.commands.optimize.trials import TrialRequest
from memsched.commands.optimize.worth import LEAST_GAIN, MOST_LEFT
from memsched.commands.results import OptimizeResult, Report
from memsched.commands.session_rows import LEAST_SHOWN, SessionBench
from memsched.report.measurements import mapped_rows
from memsched.report.outputs import outputs_of, time_ratio
from memsched.report.values.sessions import MappedSection
from memsched.report.values.verdict import AlternativeRow
from memsched.runtimes.measure import LITTLE_CHANCE
from memsched.runtimes.process_memory import MappedComparison
from memsched.runtimes.race import most_times
from memsched.runtimes.session_code import opening_lines
from memsched.runtimes.sessions import DEFAULT, EXECUTED, LISTED, MappedModel, SessionPoint

__all__ = [
    "MappedFile",
    "MappingRequest",
    "leaves_less",
    "mapped_file",
    "mapped_in_less",
    "point_of",
    "with_mapped_weights",
]

_NOT_MAPPED: Final = "weights are not mapped: {}"


class MappingRequest(FrozenValue, frozen=True):
    """The original model and the conditions for mapping its weights.

    Attributes:
        bench: Measures sessions on the original.
        stem: Name of the model file without its suffix; the name of the weight file starts with it.
        slowdown: Permitted extra time in percent of the original's time; None permits any time.
        brief: Whether one process for each file is enough, because only large savings count.
    """

    bench: SessionBench
    stem: str
    slowdown: float | None
    brief: bool = False


class MappedFile(FrozenValue, frozen=True):
    """A model with mapped weights.

    Attributes:
        model: Bytes of the model file.
        weights: Name and bytes of the weight file.
        section: Measurements for the report.
    """

    model: bytes
    weights: tuple[str, bytes]
    section: MappedSection


def with_mapped_weights(result: OptimizeResult, asked: MappingRequest) -> OptimizeResult:
    """Return the result with mapped weights if that saves private memory; otherwise the same result with a note."""
    values = result.report.values
    unchanged = values.output is not None and values.output.unchanged
    lines = () if values.guarantee is None or unchanged else values.guarantee.session_options
    point = point_of(lines) if values.sections.executed is None else EXECUTED
    found = mapped_file(result.model, point, asked)
    if isinstance(found, str):
        return _noted(result, _NOT_MAPPED.format(found))
    output, sections = values.output, values.sections
    if output is not None:
        digest = hashlib.sha256(found.model).hexdigest()
        output = msgspec.structs.replace(output, sha256=digest, unchanged=False, slight_bytes=None)
    sections = msgspec.structs.replace(sections, mapped=found.section, held_back=None)
    verdict = msgspec.structs.replace(values.verdict, time_ratio=time_ratio(sections), outputs=outputs_of(sections))
    measured = (*values.measurements, *mapped_rows(found.section))
    values = msgspec.structs.replace(values, output=output, sections=sections, verdict=verdict, measurements=measured)
    name, weights = found.weights
    return dataclasses.replace(result, model=found.model, report=Report(values), files={name: weights})


def leaves_less(result: OptimizeResult, other: OptimizeResult) -> bool:
    """Return whether a result needs less private memory than another, by more than the noise."""
    one, two = (each.report.values.sections.mapped for each in (result, other))
    if one is None or two is None:
        return two is None
    return one.written.private_bytes < (1 - ALIKE) * two.written.private_bytes


def mapped_in_less(
    model: bytes, point: SessionPoint, asked: MappingRequest, trial: TrialRequest
) -> AlternativeRow | None:
    """Return an alternative that maps the weights, with measured figures; None if it saves too little.

    Args:
        model: Bytes of the written file; may be the original.
        point: Session options for this file.
    """
    found = mapped_file(model, point, asked)
    if isinstance(found, str):
        return None
    given, written = found.section.given.private_bytes, found.section.written.private_bytes
    if written > MOST_LEFT * found.section.unmapped.private_bytes:
        return None
    return AlternativeRow(
        command=trial.changing("opening"),
        what="weights in a second file, mapped by all sessions",
        bytes=0,
        saving_bytes=0,
        extra_macs_percent=0.0,
        time_ratio=found.section.time_ratio,
        changes=("opening",),
        process_bytes=written,
        process_saving_bytes=given - written,
        private=True,
    )


def mapped_file(model: bytes, point: SessionPoint, asked: MappingRequest) -> MappedFile | str:
    """Return a model with mapped weights if it saves private memory and keeps the outputs; otherwise the reason.

    Args:
        model: Bytes of the model to store; may be the original.
        point: Session options for this model.
    """
    bench = asked.bench
    maker, same = bench.maker, model == bench.given.data
    try:
        with bench.files(model) as files:
            mapped = maker.mapped(files.written, files.folder, point, files.written.parent, asked.stem)
            if not mapped.weights.exists() or mapped.weights.stat().st_size < LEAST_SHOWN:
                return "they are too small"
            source, limit = files.given if same else files.written, most_times(asked.slowdown)
            large = 0 if asked.brief else LITTLE_CHANCE
            found = maker.compare_mapped(
                files.given, source, mapped, files.feeds, files.folder, limit=limit, large=large
            )
            if isinstance(found, str):
                return found
            objection = _objection(found, asked.slowdown) or maker.apart_at_other_sizes(
                model, files.folder, mapped.model, bench.options, bench.seed
            )
            if objection is not None:
                return objection
            weights = mapped.weights.name, mapped.weights.read_bytes()
            return MappedFile(mapped.model.read_bytes(), weights, _section(mapped, found, original=same))
    except MemschedError as error:
        return str(error)


def _objection(found: MappedComparison, slowdown: float | None) -> str | None:
    """Return why a file is rejected, or None.

    Private memory decides. The peak includes mapped pages, which the system can drop at any time.
    """
    seen = found.seen
    if not seen.equal:
        return "outputs would change"
    if found.unmapped.private_bytes - seen.written.private_bytes < LEAST_GAIN * seen.given.private_bytes:
        return "that saves no private memory"
    if seen.takes_longer and not any_time(slowdown):
        return f"a run would take {seen.time_ratio or 1.0:.2f}x the time"
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
        time_ratio=rounded_ratio(ratio),
    )


def point_of(lines: Sequence[str]) -> SessionPoint:
    """Return the session options that correspond to the lines of Python in the report."""
    return DEFAULT if not lines else next((one for one in POINTS if opening_lines(one) == tuple(lines)), LISTED)


def _noted(result: OptimizeResult, note: str) -> OptimizeResult:
    values = result.report.values
    verdict = msgspec.structs.replace(values.verdict, notes=(*values.verdict.notes, note))
    return dataclasses.replace(result, report=Report(msgspec.structs.replace(values, verdict=verdict)))
