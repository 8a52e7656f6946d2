"""The pipeline behind ``memsched allocate``: addresses alone, for buffers from a file."""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections.abc import Sequence

from memsched import __version__
from memsched.base.arguments import checked
from memsched.base.errors import BudgetError, OutputError, UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.units import LARGEST, parse_size
from memsched.check.packing import check_packing
from memsched.commands.calls import NO_HOOKS, Hooks, command, limits_of
from memsched.commands.options import AllocateOptions
from memsched.commands.results import Report
from memsched.formats.buffers_csv import BufferTable, parse_table, read_bytes, write_table
from memsched.formats.staging import STANDARD_STREAM, overwrites, same_file, staged_files
from memsched.graph.packing import Block, Packing
from memsched.report.values.allocate import AddressesSection, AddressRow, AllocateReport, BuffersSection, PackingSection
from memsched.report.values.base import SCHEMA_VERSION
from memsched.search.run import Run
from memsched.solve.allocate.portfolio import pack

__all__ = ["AllocateResult", "allocate_buffers", "max_live", "save_allocation"]

_DEFAULT = AllocateOptions()

_MOST_LISTED = 200_000
"""Buffers up to which the report lists them: the written file has the addresses anyway."""


class AllocateResult(FrozenValue, frozen=True):
    """Addresses for the buffers of a file.

    Attributes:
        table: The file as it was read.
        packing: The addresses, in the file's order, and what is proven; none when it is infeasible.
        csv: The file with the addresses; None when there are none, or when they exceed the capacity and
            ``keep_best`` was not given.
        fits: Whether the height is within the capacity; None without one.
        interrupted: The search was ended early by ``stop``.
    """

    table: BufferTable
    packing: Packing
    csv: str | None
    report: Report[AllocateReport]
    fits: bool | None
    interrupted: bool

    def _repr_html_(self) -> str:
        return self.report._repr_html_()

    @checked
    def save(self, path: str | os.PathLike[str], force: bool = False) -> None:
        """Write the file with its addresses, whole or not at all.

        Args:
            force: Permits to overwrite the input.

        Raises:
            OutputError: It cannot be written, there are no addresses, or ``path`` is the input.
        """
        save_allocation(self, path=path, report_path=None, force=force)


def save_allocation(
    result: AllocateResult,
    *,
    path: str | os.PathLike[str] | None,
    report_path: str | os.PathLike[str] | None,
    force: bool = False,
) -> None:
    """Write addresses and report, both or neither; a path of None is not written.

    Raises:
        OutputError: One of them cannot be written, or would overwrite the input without ``force``.
    """
    source = result.table.path
    with staged_files() as files:
        if path is not None:
            if result.csv is None and result.packing.status != "infeasible":
                raise BudgetError("the addresses exceed the capacity", action="keep_best=True keeps them all the same")
            if result.csv is None:
                raise OutputError(
                    f"'{os.fspath(path)}' is not written: nothing fits, so there are no addresses", code="nothing-fits"
                )
            if source != STANDARD_STREAM and not force and same_file(source, path):
                raise overwrites(path, "the input", "give another name, or force=True")
            files.add(path, result.csv.encode())
        if report_path is not None:
            files.add(report_path, result.report.to_json().encode())
        files.commit()


@command(AllocateOptions)
def allocate_buffers(
    source: str | os.PathLike[str] | bytes, options: AllocateOptions = _DEFAULT, hooks: Hooks = NO_HOOKS
) -> AllocateResult:
    """Find addresses for buffers with lifetimes, and check them.

    Args:
        source: A CSV file (docs/allocate.md), "-" for standard input, or its bytes.
        options: How they are sought; each option may be a keyword instead.
        hooks: What is told and asked while it runs: the lowest height so far is the ``best_peak`` of its progress.

    Raises:
        BuffersError: The file is at fault; the message names its line and column.
        UsageError: A capacity or an alignment that cannot be.
    """
    limits = limits_of(options, options.seed, options.workers, hooks.executor)
    run = Run.of(limits, time.monotonic(), stop=hooks.stop, on_progress=hooks.on_progress)
    size = _capacity(options.capacity)
    if options.alignment > LARGEST:
        problem = f"an alignment of {options.alignment} bytes is not possible"
        raise UsageError(problem, code="option-range", action="give up to 2**62")
    data = source if isinstance(source, bytes) else read_bytes(source)
    path = STANDARD_STREAM if isinstance(source, bytes) else os.fspath(source)
    table = parse_table(data, path, alignment=options.alignment)
    if size is not None:
        table.check_capacity(size)
    packing = pack(table.blocks, run, capacity=size, minimize=options.minimize or size is None)
    interrupted = run.stop()
    fits = None if size is None else packing.status != "infeasible" and packing.height <= size
    # Addresses that do not fit are still valid, and the best that were found.
    check_packing(table.blocks, packing, None if fits is False and packing.status != "infeasible" else size)
    withheld = packing.status == "infeasible" or (fits is False and not options.keep_best)
    csv = None if withheld else write_table(table, packing.offsets)
    digest = None if csv is None else hashlib.sha256(csv.encode()).hexdigest()
    report = Report(
        AllocateReport(
            schema_version=SCHEMA_VERSION,
            memsched_version=__version__,
            command="allocate",
            input=_input_section(table, data, options.alignment),
            output=None if digest is None else AddressesSection(path=hooks.output, sha256=digest),
            result=_result_section(table.blocks, packing, size, fits, interrupted),
            seed=options.seed,
            workers=options.workers,
            seconds=round(time.monotonic() - run.started, 4),
            buffers=_buffer_rows(table, packing) if csv is not None and len(table.blocks) <= _MOST_LISTED else None,
        )
    )
    return AllocateResult(table, packing, csv, report, fits, interrupted)


def _capacity(capacity: int | str | None) -> int | None:
    size = parse_size(capacity) if isinstance(capacity, str) else capacity
    if size is not None and not 0 <= size <= LARGEST:
        raise UsageError(
            f"a capacity of {size} bytes is not possible", code="option-range", action="give 0 or more, up to 2**62"
        )
    return size


def max_live(blocks: Sequence[Block]) -> int:
    """Return the most bytes that are in use at one time."""
    change: dict[int, int] = {}
    for block in blocks:
        for part in block.parts:
            change[part.begin] = change.get(part.begin, 0) + part.high - part.low
            change[part.end] = change.get(part.end, 0) - part.high + part.low
    return max(itertools.accumulate([change[moment] for moment in sorted(change)]), default=0)


def _input_section(table: BufferTable, data: bytes, alignment: int) -> BuffersSection:
    return BuffersSection(
        path=table.path,
        sha256=hashlib.sha256(data).hexdigest(),
        buffers=len(table.blocks),
        given=sum([block.offset is not None for block in table.blocks]),
        alignment_bytes=alignment,
        carried_columns=tuple(table.carried),
    )


def _result_section(
    blocks: Sequence[Block], packing: Packing, capacity: int | None, fits: bool | None, interrupted: bool
) -> PackingSection:
    found = packing.status != "infeasible"
    live = max_live(blocks)
    return PackingSection(
        capacity_bytes=capacity,
        fits=fits,
        height_bytes=packing.height if found else None,
        lower_bound_bytes=packing.lower_bound,
        max_live_bytes=live,
        gap_percent=_share(packing.height - packing.lower_bound, packing.height) if found else None,
        fragmentation_percent=_share(packing.height - live, packing.height) if found else None,
        status=packing.status,
        proof=packing.proof,
        method=packing.method,
        states=packing.states,
        interrupted=interrupted,
    )


def _share(part: int, whole: int) -> float:
    return round(100 * part / whole, 4) if whole else 0.0


def _buffer_rows(table: BufferTable, packing: Packing) -> tuple[AddressRow, ...]:
    return tuple(
        AddressRow(id=name, offset_bytes=offset, size_bytes=block.size, lower=lower, upper=upper)
        for name, offset, block, (lower, upper) in zip(
            table.ids, packing.offsets, table.blocks, table.lifetimes, strict=True
        )
    )
