"""``memsched optimize --emit c``: a model as C, for an accelerator with on-chip memory or streamed pixel by pixel."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path, PurePath

from memsched import __version__
from memsched.base.errors import RuntimeUnavailableError, UsageError, VerificationError
from memsched.base.frozen import FrozenValue
from memsched.codegen.code import c_files, chip_bytes
from memsched.codegen.layers import layer_codes
from memsched.codegen.onchip import plan
from memsched.codegen.onchip.network import OnChipNetwork
from memsched.codegen.program import Program, program_of
from memsched.codegen.streaming.check import check_stream
from memsched.codegen.streaming.emit import StreamCode, ram_bytes, stream_code
from memsched.codegen.streaming.host import host_program
from memsched.codegen.streaming.layers import INPUT
from memsched.codegen.streaming.network import stream_network
from memsched.codegen.streaming.plan import InputPlace, StreamPlan, plan_stream
from memsched.commands.calls import limits_of
from memsched.commands.declared import AUTO
from memsched.commands.optimize.on_chip_report import on_chip_section
from memsched.commands.optimize.place import target_named
from memsched.commands.optimize.reading import load_options, read_model, split_ranges
from memsched.commands.optimize.report import model_section
from memsched.commands.options import Options
from memsched.commands.results import Report
from memsched.formats.capabilities import KernelContents
from memsched.formats.files import read_source
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.formats.staging import check_new_files, staged_files
from memsched.formats.stated_sizes import stated
from memsched.lowering.apply import apply_target
from memsched.report.values.base import SCHEMA_VERSION
from memsched.report.values.emit import EmitReport, EmitResult, EmitTarget
from memsched.report.values.stream import StreamReport, StreamResult, StreamRunSection, StreamSegmentRow
from memsched.runtimes.known import run_compiled
from memsched.runtimes.runtime import CompiledModel, CompiledRun
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.model import Target

__all__ = ["EmittedModel", "StreamedModel", "emit", "emit_report", "save_emitted", "stream_report"]


_NOT_CHECKED: tuple[str, ...] = ("it needs more RAM than there is",)


class EmittedModel(FrozenValue, frozen=True):
    """A model as C for an accelerator.

    Attributes:
        files: The contents of the folder, by name.
    """

    module: Module
    target: Target
    program: Program
    files: Mapping[str, bytes]
    seed: int
    seconds: float


class StreamedModel(FrozenValue, frozen=True):
    """A model as C that streams.

    Attributes:
        code: The contents of the folder, and what they need.
        run: What it computes beside the model's own runtime; None if it was not run.
        notes: Why it was not.
    """

    module: Module
    plan: StreamPlan
    code: StreamCode
    run: CompiledRun | None
    notes: tuple[str, ...]
    seed: int
    seconds: float

    @property
    def files(self) -> Mapping[str, bytes]:
        """The contents of the folder, by name."""
        return self.code.files


def emit(
    source: str | bytes, options: Options, place: InputPlace | None = None, most: int | None = None
) -> EmittedModel | StreamedModel:
    """Return a model as C: for a target with on-chip memory moved in pieces, for any other streamed.

    Args:
        place: Where the input of a model that streams lies; None: in the arena.
        most: What streams and needs more RAM than so many bytes is neither checked nor run: it must not be written.

    Raises:
        MemschedError: The subclass and its message say which file, op or option is at fault.
    """
    started = time.monotonic()
    data, path = read_source(source)
    fixed, ranges = split_ranges(options.dims)
    if ranges:
        action = "give each dimension one value"
        raise UsageError("C is emitted for sizes that are fixed", code="needs-one-shape", action=action)
    known = stated(options.input_shapes, fixed)
    known = load_options(data, path, known, options.shapes_from_run, options.seed)
    module, _ = read_model(data, path, known, options.seed)
    target = target_named(options.target, module.format, module.path)
    kernels = capability(module, KernelContents).layer_kernels(module)
    name = PurePath(path).name
    if not target.on_chip_bytes:
        # The default limit is for searches among many plans; this search ends by itself.
        planning = Run.of(Limits(None) if options.time_limit == AUTO else limits_of(options))
        streamed = plan_stream(stream_network(module.graph, kernels), place or "held", planning.late)
        code = stream_code(streamed, name)
        run, notes = None, _NOT_CHECKED
        if most is None or ram_bytes(streamed.arena, code.state) <= most:
            check_stream(streamed)
            run, notes = _run(data, streamed, code, options) if options.verify else (None, ())
        return StreamedModel(module, streamed, code, run, notes, options.seed, time.monotonic() - started)
    if place is not None:
        raise UsageError(
            f"target '{target.name}' has memory on chip, where inputs are moved piece by piece",
            code="option-conflict",
            action="leave --input out",
        )
    found = plan(module.graph, target, limits_of(options, options.seed))
    network = OnChipNetwork(apply_target(module.graph, target))
    program = program_of(network, found, layer_codes(network, kernels))
    files = c_files(program, name, target.name)
    return EmittedModel(module, target, program, files, options.seed, time.monotonic() - started)


def _run(
    data: bytes, plan: StreamPlan, code: StreamCode, options: Options
) -> tuple[CompiledRun | None, tuple[str, ...]]:
    """Return what the C computes beside the model, and why that is not known.

    Raises:
        VerificationError: It computes something else.
    """
    network = plan.network
    scales, files = network.scales, {**code.files, "host.c": host_program(plan).encode()}
    try:
        outputs = tuple(scales.get(one) for one in network.outputs)
        run = run_compiled(CompiledModel(data, files, scales.get(INPUT), outputs), options.seed)
    except RuntimeUnavailableError as error:
        return None, (f"the C was not run: {error}",)
    if run.equal is False:
        raise VerificationError(
            f"the C computes other outputs than {run.runtime}: nothing is written; please report it"
        )
    return run, (f"the C was not compared with {run.runtime}: {run.reason}",) if run.reason else ()


def stream_report(model: StreamedModel, folder: str) -> Report[StreamReport]:
    """Return the report of a model that streams."""
    plan, code = model.plan, model.code
    layers = plan.network.layers
    return Report(
        StreamReport(
            schema_version=SCHEMA_VERSION,
            memsched_version=__version__,
            command="optimize --emit c",
            model=model_section(model.module),
            result=StreamResult(
                folder=folder,
                input=plan.given,
                ram_bytes=ram_bytes(plan.arena, code.state),
                arena_bytes=plan.arena,
                state_bytes=code.state,
                flash_bytes=code.flash,
                input_bytes=plan.network.maps[INPUT].size,
                macs=plan.network.macs,
                files=tuple(sorted(code.files)),
            ),
            run=None if model.run is None else _run_section(model.run),
            segments=tuple(
                StreamSegmentRow(
                    first=layers[one.segment.layers[0]].name,
                    last=layers[one.segment.layers[-1]].name,
                    layers=len(one.segment.layers),
                    bytes=one.segment.total,
                )
                for one in plan.segments
            ),
            notes=model.notes,
            seed=model.seed,
            seconds=round(model.seconds, 3),
        )
    )


def _run_section(run: CompiledRun) -> StreamRunSection:
    return StreamRunSection(
        runtime=run.runtime,
        runs=run.runs,
        outputs="bit_equal" if run.equal else "not_run",
        outputs_vary=run.vary,
        time_ratio=run.time_ratio,
    )


def emit_report(model: EmittedModel, folder: str) -> Report[EmitReport]:
    """Return the report."""
    target, program = model.target, model.program
    return Report(
        EmitReport(
            schema_version=SCHEMA_VERSION,
            memsched_version=__version__,
            command="optimize --emit c",
            model=model_section(model.module),
            target=EmitTarget(
                name=target.name,
                description=target.description,
                on_chip_bytes=program.plan.capacity,
                bandwidth_bytes_per_second=target.bandwidth_bytes_per_second,
                flops_per_second=target.flops_per_second,
            ),
            result=EmitResult(
                folder=folder,
                chip_bytes=chip_bytes(program),
                dram_bytes=program.arena,
                weights_bytes=len(program.weights),
                files=tuple(sorted(model.files)),
            ),
            on_chip=on_chip_section(program.plan),
            seed=model.seed,
            seconds=round(model.seconds, 3),
        )
    )


def save_emitted(
    model: EmittedModel | StreamedModel,
    report: Report[EmitReport] | Report[StreamReport],
    source: str,
    folder: str,
    report_path: str | None,
) -> None:
    """Write all files into ``folder``, and the report, all or none.

    Raises:
        OutputError: One of them cannot be written, or is the model itself.
    """
    paths = {str(Path(folder) / name): data for name, data in sorted(model.files.items())}
    check_new_files((*paths, *(() if report_path is None else (report_path,))), source, within=folder)
    with staged_files() as files:
        for path, data in paths.items():
            files.add(path, data)
        if report_path is not None:
            files.add(report_path, report.to_json().encode())
        files.commit()
