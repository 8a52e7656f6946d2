"""``--dim NAME=1..8192``: a file for every size in a range, whose large values are computed in loops over blocks.

Which loops are written is decided by measurement: both files are run without options in fresh processes, at the largest
size that is not out of proportion and at a small one, and their outputs are compared at sizes of every kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.units import Percentage
from memsched.commands.declared import AUTO
from memsched.commands.failures import Failures
from memsched.commands.optimize.command_lines import with_options, without_options
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.measured_sizes import measured_sizes
from memsched.commands.optimize.place import Request, place, prepare, target_named
from memsched.commands.optimize.range_orders import OpenFile, RangeOrders, order_over_range
from memsched.commands.optimize.ranged_trials import (
    ENDED,
    GivenFile,
    RangedTrials,
    distance,
    try_order,
    try_points,
)
from memsched.commands.optimize.record import Record
from memsched.commands.optimize.report import result_of
from memsched.commands.optimize.time_at_sizes import most_at_sizes, slower_alternative
from memsched.commands.optimize.worth import LEAST_GAIN
from memsched.commands.options import Options
from memsched.commands.results import OptimizeResult
from memsched.formats.blocks import BlockPoint, BlockRow, OpenModel, Range
from memsched.formats.capabilities import DynamicDimensions, WeightFiles
from memsched.formats.files import load_module
from memsched.formats.known import capability, format_in, format_of
from memsched.formats.module import LoadOptions, Module
from memsched.formats.staging import STANDARD_STREAM
from memsched.plan.orders import plan_allocation
from memsched.plan.values import TargetModule
from memsched.report.values.blocks import BlockKernelRow, BlockLoopRow, BlocksSection, RangeRow, SizeRow
from memsched.report.values.verdict import AlternativeRow
from memsched.runtimes.child import ChildEndedError, children_until
from memsched.runtimes.known import runtime_of
from memsched.runtimes.measure import Measured
from memsched.runtimes.output import Guarantee, ModelBytes
from memsched.runtimes.ranged import TimeRatio
from memsched.runtimes.runtime import Requirement
from memsched.runtimes.special import with_special
from memsched.runtimes.values import Verification
from memsched.search.run import Run
from memsched.targets.model import Target

__all__ = ["RangeRequest", "optimize_over_sizes"]

_TRIALS_SHARE: Final = 0.7
"""Fraction of the limit until which files with loops are tried; the rest is for the order of the best one."""

_SPARE_WORK: Final = 1.1
"""Files whose arithmetic is more than permitted by this factor are not tried."""

_KERNELS: Final = "attention by ONNX Runtime's own operators is not tried: permit it with --allow reorder,inplace,fuse"
_SUMS: Final = "sums over blocks are not tried: permit them with --allow reorder,inplace,algebra,reassociate"
NOTHING_GROWS: Final = "nothing grows with these dimensions so that loops over blocks are worth it"


class RangeRequest(FrozenValue, frozen=True):
    """What `optimize_over_sizes` is told beside the model.

    Attributes:
        ranges: Dimensions that stay open.
        command: The user's options.
        budget: Of the process, at the largest size that is measured; None for none.
        output: Path that the report names.
        words: The command line; empty if it is not known.
    """

    ranges: Mapping[str, Range]
    command: Options
    budget: int | Percentage | None
    output: str | None
    words: tuple[str, ...] = ()

    @property
    def is_limited(self) -> bool:
        """Whether the user named a limit of time: then measurements keep to it, too; another one is the search's."""
        return self.command.time_limit != AUTO

    @property
    def in_place(self) -> bool:
        """Whether outputs may take dying inputs' bytes."""
        return "inplace" in self.command.permitted


def optimize_over_sizes(
    data: bytes, path: str, options: LoadOptions, request: Request, asked: RangeRequest
) -> OptimizeResult:
    """Return a model that holds for every size in some ranges and needs less memory; the one given where none is found.

    Args:
        data: The model, read from ``path``.
        options: What is stated of sizes that do not stay open; they are fixed in the file.

    Raises:
        MemschedError: The subclass and its message say which file or option is at fault.
    """
    given = _opened(data, path, options, asked)
    opened, run = given.opened, request.run
    judging = run if asked.is_limited else run.anew(None)
    measured = _measure(given, options, asked, request, judging)
    sizes = measured.sizes
    module = load_module(data, path, opened.at(sizes.large, options))
    prepared = prepare(module, given.rules, in_place=asked.in_place)
    orders = RangeOrders(None, None)
    limit = run.limits.time_limit
    if not asked.is_limited and limit is not None:
        # What was measured does not count as searching.
        request = dataclasses.replace(request, run=run.anew((1 - _TRIALS_SHARE) * limit))
    if request.solver != "file" and not request.over():
        base = data if measured.best is None else measured.best.model
        # What a written file fixes is no dimension of it.
        stated = options if measured.best is None else dataclasses.replace(options, dims={})
        file = OpenFile(base, path, opened, stated, given.rules, asked.in_place, sizes.large)
        with request.failures.left_out("another order of the operators for every size"):
            found = order_over_range(file, request)
            measured, orders = _kept(opened, given.file, measured, found, asked, judging)
    final = _final(module, data, prepared, measured, orders, request)
    best, before = measured.best, measured.large.peak
    needed = (before, before if best is None else best.large.peak)
    written = ModelBytes(data, True, Guarantee("none"))
    if best is not None:
        fixed = dict(options.dims) if best.point is not None else {}
        written = ModelBytes(best.model, False, Guarantee("none"), fixed=fixed)
    record = Record(
        "optimize",
        module,
        final,
        (Requirement(needed[0]), Requirement(needed[1])),
        runtime_of(module, prepared.target).traits,
        tuple(request.ledger.rows),
        asked.budget.of(before) if isinstance(asked.budget, Percentage) else asked.budget,
        written=written,
        output=asked.output,
        verification=_verification(measured),
        notes=(*measured.notes, *orders.notes),
        failures=tuple(request.failures.found),
        interrupted=request.stopped(),
        open_loops=_section(opened, measured, orders),
        alternatives=_slower(measured, asked, needed),
    )
    return result_of(record, written, run)


def _final(
    module: Module,
    data: bytes,
    prepared: TargetModule,
    measured: RangedTrials,
    orders: RangeOrders,
    request: Request,
) -> FinalModel:
    """Return the model as given, in the order that is written if nothing else of it is."""
    placed = place(module, prepared, dataclasses.replace(request, solver="file"))
    plans, allocation = placed.plans, placed.allocation
    if measured.best is not None and measured.best.point is None:
        plans = orders.plans
        known, alignment = prepared.baselines["file_order"], prepared.target.alignment_bytes
        allocation = plan_allocation(plans[0], known, alignment)
    return FinalModel(module, data, prepared, dataclasses.replace(placed, plans=plans, allocation=allocation))


def _measure(
    given: _OpenedModel, options: LoadOptions, asked: RangeRequest, request: Request, judging: Run
) -> RangedTrials:
    """Run the model as given and files with loops, and choose until ``judging`` is over."""
    opened, file, run = given.opened, given.file, request.run
    points, notes = _points(opened, asked, request.failures)
    trials = run.until(_TRIALS_SHARE)
    within = run if asked.is_limited else trials
    sizes = measured_sizes(opened, file.path, options.dims, len(points), within, judged=asked.is_limited)
    found = try_points(
        opened,
        file,
        points,
        sizes,
        asked.command.seed,
        asked.command.max_slowdown,
        trials,
        judging,
        request.failures,
    )
    return dataclasses.replace(found, notes=(*notes, *_beyond(opened, sizes.large), *found.notes))


class _OpenedModel(FrozenValue, frozen=True):
    """A model whose sizes stay open."""

    rules: Target
    opened: OpenModel
    file: GivenFile


def _opened(data: bytes, path: str, options: LoadOptions, asked: RangeRequest) -> _OpenedModel:
    """Read a model, and refuse what cannot be measured over a range.

    Raises:
        UsageError: It cannot.
    """
    rules = target_named(asked.command.target, format_in(data).name, path)
    opened = capability(format_in(data), DynamicDimensions).open_model(data, path, options.dims, asked.ranges)
    if not rules.orders_itself:
        raise UsageError(f"--dim with a range is for --target onnxruntime, not for '{rules.name}'", code="other-target")
    if path == STANDARD_STREAM or not asked.command.verify:
        problem = "--dim with a range chooses by measurement: it takes a file, and no --no-verify"
        raise UsageError(problem, code="option-conflict")
    if options.input_shapes:
        action = "name the other dimensions with --dim"
        raise UsageError("--dim with a range takes no --shape", code="option-conflict", action=action)
    least = {name: span.least for name, span in opened.ranges.items() if name not in options.dims}
    module = load_module(data, path, opened.at(least, options))
    form = format_of(module)
    external = capability(form, WeightFiles).external_files(module)
    return _OpenedModel(rules, opened, GivenFile(Path(path), Path(path).parent if external else None, form))


def _points(opened: OpenModel, asked: RangeRequest, failures: Failures) -> tuple[Sequence[BlockPoint], tuple[str, ...]]:
    """Return the files with loops that are permitted, and notes on others."""
    every: Sequence[BlockPoint] = ()
    with failures.left_out("large values in loops"):
        every = opened.points()
    most = _SPARE_WORK * most_at_sizes(asked.command.max_slowdown)[0]
    points = [point for point in every if point.work <= most and _permitted(point, asked)]
    notes = [] if every else [NOTHING_GROWS]
    notes += [_KERNELS] if "fuse" not in asked.command.permitted and any(point.kernels for point in every) else []
    notes += (
        [_SUMS] if "reassociate" not in asked.command.permitted and any(point.reassociates for point in every) else []
    )
    coarser = opened.coarser()
    if coarser > 1:
        told = " ".join(
            f"--dim {name}={span.least}..{span.most}:{coarser}" for name, span in opened.ranges.items() if span.named
        )
        notes.append(f"less memory is possible for multiples of {coarser} alone: {told}")
    notes += [f"not tried {one.name}: --max-slowdown permits less" for one in every if one.work > most]
    return points, tuple(notes)


def _slower(measured: RangedTrials, asked: RangeRequest, needed: tuple[int, int]) -> tuple[AlternativeRow, ...]:
    """Return the command of a file that needs less and takes more time than is permitted, if there is one.

    Args:
        needed: Bytes of the process of the original, and of the file written.
    """
    if measured.slow is None or not asked.words or measured.slow[1].peak > (1 - LEAST_GAIN) * needed[1]:
        return ()
    name, slow = measured.slow
    command = with_options(without_options(asked.words, "--max-slowdown"), "--max-slowdown", f"{slow.slowdown}")
    return (slower_alternative(slow, name, command, needed[0]),)


def _beyond(opened: OpenModel, large: Mapping[str, int]) -> tuple[str, ...]:
    """Return a note on sizes that are not measured; none where all are."""
    beyond = [name for name, size in large.items() if opened.ranges[name].named and size < opened.ranges[name].most]
    if not beyond:
        return ()
    told = ", ".join(f"{name} = {large[name]:,}" for name in beyond)
    return (f"measured at {told}: at larger sizes the model as given takes gigabytes, or too long",)


def _permitted(point: BlockPoint, asked: RangeRequest) -> bool:
    allow = asked.command.permitted
    return ("fuse" in allow or not point.kernels) and ("reassociate" in allow or not point.reassociates)


def _kept(
    opened: OpenModel, given: GivenFile, measured: RangedTrials, orders: RangeOrders, asked: RangeRequest, run: Run
) -> tuple[RangedTrials, RangeOrders]:
    """Return the best file in the order that was found for it, where it is no worse in its process, too."""
    if orders.model is None:
        return measured, orders
    try:
        with children_until(run.over):
            found = try_order(opened, given, measured, orders.model, asked.command.seed, asked.command.max_slowdown)
    except ChildEndedError:
        return measured, orders.refused(ENDED)
    if isinstance(found, str):
        return measured, orders.refused(found)
    return dataclasses.replace(measured, best=found), orders


def _verification(measured: RangedTrials) -> Verification | None:
    """Return what the comparison showed of the file that is written; None where that is the one given."""
    best = measured.best
    if best is None:
        return None
    compared = [one for one in best.compared if one is not None]
    found = Verification(
        runtime=best.runtime,
        runs=len(compared),
        outputs_equal=all(one.equal for one in compared),
        max_abs_error=None,
        measured_peak_before_bytes=None,
        measured_peak_after_bytes=None,
        executed_order_matches=None,
        reason=None,
        relative_error=max((distance(one) for one in compared), default=0.0),
    )
    return with_special(found, best.special)


def _section(opened: OpenModel, measured: RangedTrials, orders: RangeOrders) -> BlocksSection:
    """Return the report's section on ranges, loops, sizes and the order."""
    best = measured.best
    point = None if best is None else best.point
    rows = () if point is None else point.rows
    ranges = [
        RangeRow(dimension=name, least=span.least, most=span.most if span.named else None, multiple=span.multiple)
        for name, span in opened.ranges.items()
    ]
    return BlocksSection(
        ranges=tuple(ranges),
        way=None if point is None else point.name,
        loops=tuple(_loop(row) for row in rows if row.kind == "loop"),
        kernels=tuple(BlockKernelRow(name=row.name, ops=row.ops) for row in rows if row.kind == "kernel"),
        measured=(
            _size_row(measured.sizes.large, measured.large, None if best is None else (best.large, best.times[0])),
            _size_row(measured.sizes.small, measured.small, None if best is None else (best.small, best.times[1])),
        ),
        compared=tuple(dict(one) for one in measured.sizes.compared) if best is not None else (),
        orders=orders.section,
        ended=measured.ended,
    )


def _loop(row: BlockRow) -> BlockLoopRow:
    return BlockLoopRow(name=row.name, dimension=row.dimension, ops=row.ops)


def _size_row(sizes: Mapping[str, int], given: Measured, written: tuple[Measured, TimeRatio] | None) -> SizeRow:
    if written is None:
        return SizeRow(
            sizes=dict(sizes),
            given_process_bytes=given.peak,
            process_bytes=None,
            given_seconds=round(given.seconds(), 6),
            seconds=None,
            time_ratio=None,
            settled=given.settled,
        )
    run, times = written
    return SizeRow(
        sizes=dict(sizes),
        given_process_bytes=given.peak,
        process_bytes=run.peak,
        given_seconds=round(times.first, 6),
        seconds=round(times.second, 6),
        time_ratio=round(times.ratio, 3),
        settled=given.settled and run.settled,
    )
