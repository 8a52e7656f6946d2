"""What ``memsched pipeline`` reports and writes: a section for every stage, and the files of all of them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from memsched import __version__
from memsched.base.frozen import FrozenValue
from memsched.commands.optimize.report import model_section
from memsched.commands.optimize.verification import verification_section
from memsched.commands.results import Report
from memsched.features.pipeline.pipeline import StagedModel
from memsched.features.pipeline.simulate import Simulation, StageTime
from memsched.features.pipeline.stage_files import SegmentFile
from memsched.formats.staging import STANDARD_STREAM, staged_files
from memsched.report.values.base import SCHEMA_VERSION
from memsched.report.values.pipeline import (
    AnnotatedSection,
    BalanceSection,
    PipelineReport,
    PipelineRequest,
    PipelineResult,
    PipelineTarget,
    SentTensorRow,
    SimulationSection,
    StageRow,
    StageSeconds,
)

__all__ = ["FileNames", "file_names", "report_of", "save_pipeline"]

_ENDED_EARLY = "the search was ended early: the best found so far was written"


class FileNames(FrozenValue, frozen=True):
    """Where the files of a pipeline go.

    Attributes:
        segments: One per stage.
        annotated: The whole model with the stage of every node; None for formats that cannot hold that.
        report: None for no file.
    """

    segments: tuple[str, ...]
    annotated: str | None
    report: str | None

    def all(self) -> tuple[str, ...]:
        """Return every path."""
        return (*self.segments, *(path for path in (self.annotated, self.report) if path is not None))


def file_names(source: str, folder: str | None, stages: int, report: str | None, *, annotated: bool) -> FileNames:
    """Return ``<stem>_segment_<i>_of_<n>.<ext>`` and their companions, beside ``source`` or in ``folder``.

    Args:
        report: Where the report goes; None for ``<stem>_pipeline.json``, "-" for no file.
        annotated: Whether ``<stem>_pipeline.<ext>`` is written as well.
    """
    path = Path("model" if source == STANDARD_STREAM else source)
    home = path.parent if folder is None else Path(folder)
    base, suffix = str(home / path.stem), path.suffix
    chosen = f"{base}_pipeline.json" if report is None else report
    return FileNames(
        tuple(f"{base}_segment_{index}_of_{stages}{suffix}" for index in range(1, stages + 1)),
        f"{base}_pipeline{suffix}" if annotated else None,
        None if chosen == STANDARD_STREAM else chosen,
    )


def save_pipeline(staged: StagedModel, report: Report[PipelineReport], names: FileNames) -> None:
    """Write segments, annotated model and report, all or none.

    Raises:
        OutputError: One of them cannot be written.
    """
    with staged_files() as files:
        for path, segment in zip(names.segments, staged.segments, strict=True):
            files.add(path, segment.model)
        if names.annotated is not None and staged.annotated is not None:
            files.add(names.annotated, staged.annotated)
        if names.report is not None:
            files.add(names.report, report.to_json().encode())
        files.commit()


def report_of(staged: StagedModel, names: FileNames) -> Report[PipelineReport]:
    """Return the report."""
    layers = staged.network.layers
    constraints = staged.constraints
    return Report(
        PipelineReport(
            schema_version=SCHEMA_VERSION,
            memsched_version=__version__,
            command="pipeline",
            model=model_section(staged.module),
            target=PipelineTarget(name=staged.target.name, description=staged.target.description),
            request=PipelineRequest(
                stages=constraints.stages,
                scheduler=staged.options.scheduler,
                balance=staged.options.balance,
                profile=staged.options.profile,
                cut_at=tuple(layers[layer].name for layer in constraints.cut_after),
                never_cut=tuple(layers[layer].name for layer in constraints.never_cut),
                children_together=constraints.children_together,
                skips=constraints.skips,
            ),
            result=_result(staged),
            simulation=_simulation(staged.simulation, staged.baseline),
            stages=tuple(
                _stage(staged, index, segment, names.segments[index], staged.simulation.stages[index])
                for index, segment in enumerate(staged.segments)
            ),
            annotated=None
            if staged.annotated is None
            else AnnotatedSection(path=names.annotated, sha256=hashlib.sha256(staged.annotated).hexdigest()),
            verification=None if staged.verification is None else verification_section(staged.verification),
            notes=(*staged.module.notes, *staged.notes, *([_ENDED_EARLY] if staged.interrupted else [])),
            seed=staged.options.seed,
            seconds=round(staged.seconds, 3),
        )
    )


def _result(staged: StagedModel) -> PipelineResult:
    schedule = staged.schedule
    largest = max(part.parameters for part in staged.figures)
    return PipelineResult(
        peak_parameters_bytes=largest,
        balanced=BalanceSection(
            unit=staged.options.balance,
            largest=schedule.objective,
            lower_bound=schedule.lower_bound,
        ),
        communication_bytes=schedule.communication,
        communication_bound_bytes=schedule.communication_bound,
        inputs_bytes=sum(part.receives for part in staged.figures) - schedule.communication,
        status=schedule.status,
        proof=schedule.proof,
        method=schedule.method,
        scheduling_seconds=round(schedule.seconds, 4),
    )


def _simulation(found: Simulation, baseline: Simulation | None) -> SimulationSection:
    return SimulationSection(
        throughput_per_second=_rounded(found.throughput),
        latency_seconds=_rounded(found.latency),
        heuristic_throughput_per_second=None if baseline is None else _rounded(baseline.throughput),
        speed_up_over_heuristic=None
        if baseline is None or not baseline.throughput
        else _rounded(found.throughput / baseline.throughput),
        assumptions=tuple(found.assumptions),
    )


def _stage(staged: StagedModel, index: int, segment: SegmentFile, path: str, time: StageTime) -> StageRow:
    part = staged.figures[index]
    return StageRow(
        index=index,
        path=path,
        sha256=segment.sha256,
        ops=tuple(staged.network.layers[layer].name for layer in part.layers),
        parameters_bytes=part.parameters,
        on_cache_bytes=time.on_cache,
        off_cache_bytes=time.off_cache,
        macs=part.macs,
        receives_bytes=part.receives,
        sends_bytes=part.sends,
        receives=_values(staged, part.received_values),
        sends=_values(staged, part.sent_values),
        peak_bytes=segment.plan.schedule.peak,
        lower_bound_bytes=segment.plan.schedule.lower_bound,
        order_status=segment.plan.schedule.status,
        arena_bytes=segment.arena,
        seconds=StageSeconds(
            input_seconds=_rounded(time.input),
            parameters_seconds=_rounded(time.parameters),
            compute_seconds=_rounded(time.compute),
            output_seconds=_rounded(time.output),
            total_seconds=_rounded(time.total),
        ),
    )


def _values(staged: StagedModel, values: Sequence[int]) -> tuple[SentTensorRow, ...]:
    stages = staged.schedule.stages
    found = [staged.network.values[value] for value in values]
    return tuple(
        SentTensorRow(
            tensor=value.name,
            size_bytes=value.size,
            made_in_stage=stages[value.producer] if value.producer >= 0 else None,
        )
        for value in found
    )


def _rounded(number: float) -> float:
    """Return ``number`` with nine significant digits: enough for any use, and the same on every machine."""
    return float(f"{number:.9g}")
