"""What ``memsched relay`` reports and writes: a file for every stage, the C++ that executes them, and the report."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from memsched import __version__
from memsched.base.frozen import FrozenValue
from memsched.commands.optimize.report import model_section
from memsched.commands.optimize.verification import verification_section
from memsched.commands.results import Report
from memsched.features.relay.relay import RelayModel
from memsched.features.relay.stages import StageFile
from memsched.formats.staging import STANDARD_STREAM, staged_files
from memsched.report.relay_runner import runner_files, runner_name
from memsched.report.text import WITHHELD
from memsched.report.values.base import SCHEMA_VERSION
from memsched.report.values.relay import (
    HandOverRow,
    RelayArenaSection,
    RelayReport,
    RelayRequest,
    RelayResult,
    RelayStageRow,
    RelayTarget,
    RelayTensorRow,
    RelayVerification,
    RunnerSection,
)
from memsched.report.values.runtime import ByPointer
from memsched.report.values.verdict import BudgetSection

__all__ = ["RelayNames", "relay_names", "relay_report", "save_relay"]

ENDED_EARLY = "the search was ended early: the best found so far was written"


class RelayNames(FrozenValue, frozen=True):
    """Where the files of a relay go.

    Attributes:
        base: What the names of the stages' files begin with.
        report: None for no file.
    """

    base: str
    header: str
    source: str
    report: str | None

    def stages(self, count: int) -> tuple[str, ...]:
        """Return the paths of so many stages' files."""
        return tuple(f"{self.base}_stage_{number}_of_{count}.tflite" for number in range(1, count + 1))

    def fixed(self) -> tuple[str, ...]:
        """Return every path that does not depend on the stages."""
        return tuple(path for path in (self.header, self.source, self.report) if path is not None)


def relay_names(source: str, folder: str | None, report: str | None) -> RelayNames:
    """Return ``<stem>_stage_<i>_of_<n>.tflite`` and their companions, beside ``source`` or in ``folder``.

    Args:
        report: Where the report goes; None for ``<stem>_relay.json``, "-" for no file.
    """
    path = Path("model.tflite" if source == STANDARD_STREAM else source)
    base = str((path.parent if folder is None else Path(folder)) / path.stem)
    chosen = f"{base}_relay.json" if report is None else report
    return RelayNames(base, f"{base}_relay.h", f"{base}_relay.cc", None if chosen == STANDARD_STREAM else chosen)


def save_relay(model: RelayModel, report: Report[RelayReport], names: RelayNames) -> None:
    """Write the stages, the C++ that executes them and the report, all or none.

    Raises:
        OutputError: One of them cannot be written.
    """
    data = [stage.data for stage in model.stages]
    runner = runner_files(report.values, data)
    with staged_files() as files:
        for path, stage in zip(names.stages(len(data)), data, strict=True):
            files.add(path, stage)
        files.add(names.header, runner.header.encode())
        files.add(names.source, runner.source.encode())
        if names.report is not None:
            files.add(names.report, report.to_json().encode())
        files.commit()


def relay_report(model: RelayModel, names: RelayNames) -> Report[RelayReport]:
    """Return the report."""
    options, paths = model.options, names.stages(len(model.stages))
    return Report(
        RelayReport(
            schema_version=SCHEMA_VERSION,
            memsched_version=__version__,
            command="relay",
            model=model_section(model.source),
            target=RelayTarget(
                name=model.target.name,
                description=model.target.description,
                pointer_bits=64 if model.rules.bits == 64 else 32,
            ),
            request=RelayRequest(
                stages=options.stages, allow=tuple(options.allow), max_extra_macs_percent=options.max_extra_macs
            ),
            result=_result(model),
            io=model.io,
            budget=_budget(model),
            stages=tuple(_stage(model, index, stage, paths[index]) for index, stage in enumerate(model.stages)),
            hand_overs=_hand_overs(model),
            runner=_runner(model, names),
            verification=_verification(model),
            notes=_notes(model),
            seed=options.seed,
            seconds=round(model.seconds, 3),
        )
    )


def _by_pointer(found: dict[int, int]) -> ByPointer:
    return ByPointer(bits_64=found[64], bits_32=found[32])


def _result(model: RelayModel) -> RelayResult:
    bits = model.rules.bits
    return RelayResult(
        block_bytes=model.needed,
        block_bytes_by_pointer=_by_pointer(model.block),
        largest_arena_bytes=max(stage.needs.total(bits) for stage in model.stages),
        largest_hand_over_bytes=max(*model.layout.kept, model.layout.results),
        given_bytes=model.given,
        single_file_bytes=model.single,
        orders_tried=model.orders,
        least_bytes=model.least,
        estimated_bound_bytes=model.estimate,
        finished=model.finished,
        stages_looked_at=model.looked_at,
        extra_macs=sum(stage.extra_macs for stage in model.stages),
    )


def _budget(model: RelayModel) -> BudgetSection | None:
    if model.budget is None:
        return None
    return BudgetSection.of(model.budget, model.needed, withheld=model.withheld)


def _stage(model: RelayModel, index: int, stage: StageFile, path: str) -> RelayStageRow:
    arenas = () if model.verification is None else model.verification.arenas
    measured, as_predicted = arenas[index] if arenas else (None, None)
    ops = [model.module.graphs[0].ops[op] for op in stage.segment.ops]
    return RelayStageRow(
        index=index,
        path=path,
        sha256=hashlib.sha256(stage.data).hexdigest(),
        file_bytes=len(stage.data),
        ops=tuple(op.name for op in ops),
        macs=sum(op.macs for op in ops),
        extra_macs=stage.extra_macs,
        arena=RelayArenaSection(
            bytes=stage.needs.total(model.rules.bits),
            head_bytes=stage.needs.head,
            persistent_bytes=_by_pointer(dict(stage.needs.persistent)),
            planning_bytes=_by_pointer(dict(stage.needs.planning)),
            measured_head_bytes=measured,
            as_predicted=as_predicted,
        ),
        hand_over_bytes=model.layout.kept[index],
        reads=stage.segment.inputs,
        makes=stage.segment.outputs,
    )


def _hand_overs(model: RelayModel) -> tuple[HandOverRow, ...]:
    tensors = model.module.graphs[0].tensors
    return tuple(
        HandOverRow(
            tensor=tensors[one.tensor].name,
            size_bytes=one.size,
            from_end_bytes=one.from_end,
            made_in_stage=one.maker if one.maker >= 0 else None,
            last_read_in_stage=one.last if one.last < len(model.stages) else None,
        )
        for one in model.layout.hand_overs
    )


def _runner(model: RelayModel, names: RelayNames) -> RunnerSection:
    graph = model.module.graphs[0]
    calls, custom = model.rules.resolver_calls([stage.data for stage in model.stages])

    def rows(tensors: tuple[int, ...]) -> tuple[RelayTensorRow, ...]:
        found = [graph.tensors[tensor] for tensor in tensors]
        return tuple(RelayTensorRow(tensor=one.name, size_bytes=one.size) for one in found)

    return RunnerSection(
        header=names.header,
        source=names.source,
        name=runner_name(Path(names.base).name),
        inputs=rows(graph.inputs),
        outputs=rows(graph.outputs),
        resolver_calls=calls,
        custom_operators=custom,
    )


def _verification(model: RelayModel) -> RelayVerification | None:
    run = model.verification
    if run is None:
        return None
    seen = msgspec.structs.asdict(verification_section(run.verification)) | {"time_ratio": run.time_ratio}
    return RelayVerification(**seen, twice_equal=run.twice_equal)


def _notes(model: RelayModel) -> tuple[str, ...]:
    ended = [f"the search was ended early: {WITHHELD}" if model.withheld else ENDED_EARLY] if model.interrupted else []
    return (*model.module.notes, *model.notes, *ended)
