"""``--dim NAME=1..8192``: a file for every size in a range, whose large values are computed in loops over blocks.

Which loops are written is decided by measurement: both files are run without options in fresh processes, at the largest
size that is not out of proportion and at a small one, and their outputs are compared at sizes of every kind.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.units import Percentage
from memsched.commands.failures import Failures
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.place import Request, place, prepare, target_named
from memsched.commands.optimize.range_orders import OpenFile, RangeOrders, order_over_range
from memsched.commands.optimize.ranged_trials import (
    ENDED,
    GivenFile,
    RangedSizes,
    RangedTrials,
    distance,
    most_at_sizes,
    try_order,
    try_points,
)
from memsched.commands.optimize.record import Record
from memsched.commands.optimize.report import report_of
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

_LARGEST_VALUE: Final = 768 << 20
"""Bytes of a value of the model as given, at the largest size at which it is run."""

_TRIALS_SHARE: Final = 0.7
"""Fraction of the limit until which files with loops are tried; the rest is for the order of the best one."""

_SMALL: Final = 512
"""The length at which a file must be no worse than the one given, where no value is larger than `_SMALL_VALUE` then."""

_SHORT: Final = 64
"""The length at which a file must be no slower, too: what is spent on each block, or on each weight, shows there."""

_SMALL_VALUE: Final = 32 << 20
_SPARE_WORK: Final = 1.1
"""Files whose arithmetic is more than permitted by this factor are not tried."""

_LENGTHS: Final = (1, 2, 3, 7, 16, 31, 64, 97, 131, 257, 509)
"""At which outputs are compared, beside both ends and the largest size that is measured; primes among them."""

_COMPARED_VALUE: Final = 64 << 20
"""Bytes of a value at sizes at which outputs are compared, but for the largest one: there are many."""

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
    """

    ranges: Mapping[str, Range]
    command: Options
    budget: int | Percentage | None
    output: str | None

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
    module, prepared, opened = given.module, given.prepared, given.opened
    measured = _measure(opened, given.file, given.large, asked, request.run.until(_TRIALS_SHARE), request.failures)
    orders = RangeOrders(None, None)
    if request.solver != "file" and not request.over():
        base = data if measured.best is None else measured.best.model
        # What a written file fixes is no dimension of it.
        stated = options if measured.best is None else dataclasses.replace(options, dims={})
        file = OpenFile(base, path, opened, stated, given.rules, asked.in_place, given.large)
        with request.failures.left_out("another order of the operators for every size"):
            found = order_over_range(file, request)
            measured, orders = _kept(opened, given.file, measured, found, asked, request.run)
    placed = place(module, prepared, dataclasses.replace(request, solver="file"))
    best, before = measured.best, measured.large.peak
    needed = (before, before if best is None else best.large.peak)
    written = ModelBytes(data, True, Guarantee("none"))
    if best is not None:
        fixed = dict(options.dims) if best.point is not None else {}
        written = ModelBytes(best.model, False, Guarantee("none"), fixed=fixed)
    plans, allocation = placed.plans, placed.allocation
    if best is not None and best.point is None:
        plans = orders.plans
        known, alignment = prepared.baselines["file_order"], prepared.target.alignment_bytes
        allocation = plan_allocation(plans[0], known, alignment)
    final = FinalModel(module, data, prepared, dataclasses.replace(placed, plans=plans, allocation=allocation))
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
    )
    return _result(record, written, asked, request)


class _OpenedModel(FrozenValue, frozen=True):
    """A model whose sizes stay open, read at the largest size that is measured.

    Attributes:
        large: That size.
    """

    rules: Target
    opened: OpenModel
    large: Mapping[str, int]
    module: Module
    prepared: TargetModule
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
        raise UsageError("--dim with a range takes no --input-shape", code="option-conflict", action=action)
    large = _measurable(opened, options.dims)
    module = load_module(data, path, opened.at(large, options))
    prepared, form = prepare(module, rules, in_place=asked.in_place), format_of(module)
    external = capability(form, WeightFiles).external_files(module)
    file = GivenFile(Path(path), Path(path).parent if external else None, form)
    return _OpenedModel(rules, opened, large, module, prepared, file)


def _result(record: Record, written: ModelBytes, asked: RangeRequest, request: Request) -> OptimizeResult:
    report = report_of(record, seed=asked.command.seed, seconds=time.monotonic() - request.run.started)
    main = record.final.placed.plans[0]
    return OptimizeResult(
        model=written.model,
        report=report,
        schedule=main.schedule,
        allocation=record.final.placed.allocation,
        module=record.module,
        graph=main.graph,
        verification=record.verification,
        budget_met=None if report.values.budget is None else report.values.budget.met,
        interrupted=record.interrupted,
    )


def _measurable(opened: OpenModel, fixed: Mapping[str, int]) -> dict[str, int]:
    """Return the largest size whose largest value is in proportion; dimensions of which nothing is stated are least."""
    most = {name: span.most if span.named else span.least for name, span in opened.ranges.items() if name not in fixed}
    return _shrunk(opened, most, _LARGEST_VALUE)


def _shrunk(opened: OpenModel, most: Mapping[str, int], limit: int) -> dict[str, int]:
    """Return a size at which no value is larger than ``limit``: halves of ``most``, as far as it takes."""
    part = 1.0
    while True:
        sizes = {name: opened.ranges[name].nearest(round(size * part)) for name, size in most.items()}
        if opened.largest(sizes) <= limit or part < 1e-4:
            return sizes
        part /= 2


def _measure(
    opened: OpenModel,
    given: GivenFile,
    large: Mapping[str, int],
    asked: RangeRequest,
    run: Run,
    failures: Failures,
) -> RangedTrials:
    """Run the model as given and files with loops, and choose, until ``run`` is over."""
    shorter = {name: min(size, opened.ranges[name].nearest(_SMALL)) for name, size in large.items()}
    small = _shrunk(opened, shorter, _SMALL_VALUE)
    short = {name: min(size, opened.ranges[name].nearest(_SHORT)) for name, size in small.items()}
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
    beyond = [name for name, size in large.items() if opened.ranges[name].named and size < opened.ranges[name].most]
    if beyond:
        told = ", ".join(f"{name} = {large[name]:,}" for name in beyond)
        notes.append(f"measured at {told}: at larger sizes the model as given takes gigabytes")
    sizes = RangedSizes(large, small, short, tuple(_sizes(opened, large)))
    found = try_points(opened, given, points, sizes, asked.command.seed, asked.command.max_slowdown, run, failures)
    return dataclasses.replace(found, notes=(*notes, *found.notes))


def _permitted(point: BlockPoint, asked: RangeRequest) -> bool:
    allow = asked.command.permitted
    return ("fuse" in allow or not point.kernels) and ("reassociate" in allow or not point.reassociates)


def _sizes(opened: OpenModel, large: Mapping[str, int]) -> list[Mapping[str, int]]:
    """Return sizes of every kind up to the largest that is run, each once."""
    found: dict[tuple[int, ...], Mapping[str, int]] = {}
    for number in range(len(_LENGTHS)):
        sizes = {}
        named = [name for name, span in opened.ranges.items() if span.named]
        for name, span in opened.ranges.items():
            if name in large:
                # Heights and widths differ.
                place = number + 3 * named.index(name) if name in named else 0
                wanted = _LENGTHS[place % len(_LENGTHS)] if span.named else 1 + number % 3
                sizes[name] = min(span.nearest(wanted), large[name]) if span.named else span.nearest(wanted)
        found[tuple(sizes.values())] = sizes
    found = {key: sizes for key, sizes in found.items() if opened.largest(sizes) <= _COMPARED_VALUE}
    found[tuple(large.values())] = large
    return list(found.values())


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
