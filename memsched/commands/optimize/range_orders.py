"""The order of a file for every size in a range: which of several, by what sessions without options need of each.

Candidates are the order of the file and those found at sizes of the range: the least, the greatest, and between. Each
is judged exactly at sizes over the range. The one that is chosen is run beside the file's at three of them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from memsched import __version__
from memsched.base.errors import MemschedError, UnknownShapeError
from memsched.base.frozen import FrozenValue
from memsched.commands.optimize.place import GivenUpError, Request, place, prepare
from memsched.commands.optimize.ranged_trials import ENDED
from memsched.commands.range_sizes import Sizes, distinct, sizes_at
from memsched.formats.blocks import OpenModel
from memsched.formats.capabilities import WeightFiles
from memsched.formats.files import load_module
from memsched.formats.known import capability, format_of
from memsched.formats.module import LoadOptions, Module
from memsched.formats.read_back import check_written
from memsched.plan.orders import plan_module
from memsched.plan.over_range import OrderSpan, RangedChoice, choose_order
from memsched.plan.values import TargetModule
from memsched.report.values.blocks import OrderPeakRow, OrderSpanRow, RangeOrderRow, RangeOrdersSection
from memsched.runtimes.child import ChildEndedError, children_until
from memsched.runtimes.graph_plan import GraphPlan
from memsched.runtimes.known import ORDER_KEEPER
from memsched.runtimes.runtime import Opening
from memsched.search.run import Run
from memsched.targets.model import Target

__all__ = ["OpenFile", "RangeOrders", "order_over_range"]

_FOUND_AT: Final = (0.0, 1 / 3, 2 / 3, 1.0)
"""Parts of the range at which orders are looked for."""

_TYPICAL: Final = 0.5

_SEARCH_SHARE: Final = 0.4
"""Fraction of the time that is left for finding orders; the rest is for judging and running the best."""

_JUDGED: Final = 9
"""Sizes along a line at which orders are judged, before it is looked for where the best one changes; a range of no more
lengths is judged at all of them."""

_CORNERS: Final = 3
"""So many ranges at most are judged at all of their corners."""

_UNREADABLE: Final = "other orders were not tried: {}"

_Orders = tuple[tuple[int, ...], ...]
"""Per graph the order in which a file stores its ops."""


class OpenFile(FrozenValue, frozen=True):
    """A file with open dimensions that is to be ordered.

    Attributes:
        path: Beside which its weights lie.
        opened: Its ranges; of the model as given where it was rewritten.
        fixed: What is stated of other sizes.
        large: The largest size at which it can be run.
    """

    data: bytes
    path: str
    opened: OpenModel
    fixed: LoadOptions
    rules: Target
    in_place: bool
    large: Sizes

    def at(self, sizes: Sizes) -> tuple[Module, TargetModule]:
        """Return the file as it is read at a size."""
        module = load_module(self.data, self.path, self.options(sizes))
        return module, prepare(module, self.rules, in_place=self.in_place)

    def options(self, sizes: Sizes) -> LoadOptions:
        """Return what states a size."""
        return self.opened.at(sizes, self.fixed)


@dataclass(frozen=True, slots=True)
class RangeOrders:
    """The order for a range.

    Attributes:
        model: The file in it; None where that is the one that was given.
        section: Of the report; None where no other order was looked for.
        plans: What sessions without options execute of ``model`` at the largest size at which it can be run.
        refused: Returns the order of the file instead, for the reason that is told.
    """

    model: bytes | None
    section: RangeOrdersSection | None
    notes: tuple[str, ...] = ()
    plans: tuple[GraphPlan, ...] = ()
    refused: Callable[[str], RangeOrders] = field(default=lambda _: RangeOrders(None, None), compare=False)


def order_over_range(file: OpenFile, request: Request) -> RangeOrders:
    """Return the order of a file that needs least over its ranges, and is nowhere seen to need more than its own."""
    try:
        candidates = _candidates(file, request)
        choice = _choose(file, candidates, request)
    except GivenUpError:
        return RangeOrders(None, None, (ENDED,))
    except UnknownShapeError:
        return RangeOrders(None, None)  # within loops, sizes are known at run time alone
    except MemschedError as error:
        return RangeOrders(None, None, (_UNREADABLE.format(error),))

    def refused(why: str) -> RangeOrders:
        kept = dataclasses.replace(choice, order=0)
        return RangeOrders(None, _section(file, candidates, kept), (f"another order is not written: {why}",))

    orders, sizes = candidates[choice.order]
    if sizes is None:
        return RangeOrders(None, _section(file, candidates, choice))
    module, prepared = file.at(file.large)
    given = plan_module(module, prepared.lowered, Run(request.run.limits), solver="file")
    plans = ORDER_KEEPER.plans(module, prepared.lowered, given, orders)
    model = _written(file, module, orders)
    try:
        with children_until(request.run.over):
            against = _run(file, module, model, plans, request.run.limits.seed)
    except ChildEndedError:
        against = ENDED
    if against is not None:
        return refused(against)
    return RangeOrders(model, _section(file, candidates, choice), (), plans, refused)


def _candidates(file: OpenFile, request: Request) -> list[tuple[_Orders, Sizes | None]]:
    """Return the order of the file, and others with the first size at which each was found."""
    timed = request.run.limits.time_limit is not None
    run = request.run.anew(_SEARCH_SHARE * request.run.remaining() if timed else None)
    found: dict[_Orders, Sizes | None] = {}
    places = distinct(sizes_at(file.opened, part) for part in _FOUND_AT)
    for number, sizes in enumerate(places):
        module, prepared = file.at(sizes)
        found.setdefault(tuple(tuple(range(len(graph.ops))) for graph in module.graphs), None)
        within = run.within(1 / (len(places) - number)) if run.limits.effort is None else run.within(1 / len(places))
        placed = place(module, prepared, dataclasses.replace(request, run=within, opening=Opening("default")))
        found.setdefault(tuple(plan.stored_order for plan in placed.plans), sizes)
    return list(found.items())


def _choose(file: OpenFile, candidates: Sequence[tuple[_Orders, Sizes | None]], request: Request) -> RangedChoice:
    ranges = file.opened.ranges

    def judge(point: tuple[int, ...]) -> tuple[int, ...]:
        if request.remaining() <= 0 or request.stopped():
            raise GivenUpError
        module, prepared = file.at(dict(zip(ranges, point, strict=True)))
        keeper = ORDER_KEEPER
        return tuple(keeper.required(module, prepared.lowered, orders) for orders, _ in candidates)

    def between(low: tuple[int, ...], high: tuple[int, ...]) -> tuple[int, ...]:
        ends = zip(ranges.values(), low, high, strict=True)
        return tuple(span.nearest((one + other) // 2) for span, one, other in ends)

    typical, greatest = (_point(sizes_at(file.opened, part)) for part in (_TYPICAL, 1.0))
    return choose_order(_lines(file.opened), typical, greatest, judge, between, _corners(file.opened))


def _point(sizes: Sizes) -> tuple[int, ...]:
    return tuple(sizes.values())


def _lines(opened: OpenModel) -> list[list[tuple[int, ...]]]:
    """Return sizes that rise together; of several dimensions also those of each, beside typical ones of the others."""
    named = [name for name, span in opened.ranges.items() if span.named]
    if len(named) == 1:
        return [_along(opened, named[0], sizes_at(opened, 0.0))]
    together = [sizes_at(opened, part / (_JUDGED - 1)) for part in range(_JUDGED)]
    alone = [_along(opened, name, sizes_at(opened, _TYPICAL)) for name in named]
    return [[_point(sizes) for sizes in distinct(together)], *alone]


def _along(opened: OpenModel, name: str, others: Sizes) -> list[tuple[int, ...]]:
    """Return sizes at which one dimension rises: all lengths of a short range."""
    span = opened.ranges[name]
    least, most = span.nearest(span.least), span.nearest(span.most)
    lengths: Sequence[int] = range(least, most + 1, span.multiple)
    if len(lengths) > _JUDGED:
        lengths = [sizes_at(opened, part / (_JUDGED - 1))[name] for part in range(_JUDGED)]
    return [_point(sizes) for sizes in distinct({**others, name: length} for length in lengths)]


def _corners(opened: OpenModel) -> list[tuple[int, ...]]:
    """Return sizes at which every dimension is at an end of its range."""
    ends = [sizes_at(opened, 0.0), sizes_at(opened, 1.0)]
    named = [name for name, span in opened.ranges.items() if span.named]
    if len(named) > _CORNERS:
        return [_point(one) for one in ends]
    every = itertools.product(range(2), repeat=len(named))
    return [
        _point({**ends[0], **{name: ends[end][name] for name, end in zip(named, one, strict=True)}}) for one in every
    ]


def _written(file: OpenFile, module: Module, orders: _Orders) -> bytes:
    """Return the file in other orders, read back and checked."""
    stored = dict(enumerate(orders))
    metadata = {"memsched.version": __version__, "memsched.order_guarantee": "default"}
    model = format_of(module).reorder(module, stored, metadata)
    check_written(module, model, stored, file.options(file.large))
    return model


def _run(file: OpenFile, module: Module, model: bytes, plans: Sequence[GraphPlan], seed: int) -> str | None:
    """Run both files at a small size, a typical one and the largest that can be; return what speaks against the order.

    Nothing does where outputs are the same bits and sessions without options need no more.
    """
    keeper, names = ORDER_KEEPER, [plans[0].graph.ops[op].name for op in plans[0].schedule.order]
    folder = Path(file.path).parent if capability(module, WeightFiles).external_files(module) else None
    smaller = (
        {name: min(length, file.large[name]) for name, length in sizes_at(file.opened, part).items()}
        for part in (0.0, _TYPICAL)
    )
    for sizes in distinct([*smaller, dict(file.large)]):
        options = file.options(sizes)
        seen = keeper.verify(file.data, model, options, expected_order=names, folder=folder, seed=seed)
        told = ", ".join(f"{name} = {length:,}" for name, length in sizes.items())
        if seen.outputs_equal is None:
            return f"at {told} it was not run: {seen.reason}"
        before, after = seen.default_peak_before_bytes, seen.default_peak_after_bytes
        if not seen.outputs_equal:
            return f"at {told} outputs differ"
        if before is None or after is None or after > before:
            return f"at {told} sessions without options request {after:,} B for it, and {before:,} B for the file's"
    return None


def _section(
    file: OpenFile, candidates: Sequence[tuple[_Orders, Sizes | None]], choice: RangedChoice
) -> RangeOrdersSection:
    ranges, judged = file.opened.ranges, choice.judged

    def told(point: tuple[int, ...]) -> dict[str, int]:
        return dict(zip(ranges, point, strict=True))

    def row(point: tuple[int, ...]) -> OrderPeakRow:
        needed = judged[point]
        return OrderPeakRow(
            sizes=told(point), given_bytes=needed[0], bytes=needed[choice.order], least_bytes=min(needed)
        )

    def span(one: OrderSpan) -> OrderSpanRow:
        loss = round(100 * float(choice.loss(one.points) - 1), 2)
        return OrderSpanRow(order=one.order, first=told(one.points[0]), last=told(one.points[-1]), loss_percent=loss)

    return RangeOrdersSection(
        orders=tuple(RangeOrderRow(found_at=None if sizes is None else dict(sizes)) for _, sizes in candidates),
        chosen=choice.order,
        least=row(_point(sizes_at(file.opened, 0.0))),
        typical=row(_point(sizes_at(file.opened, _TYPICAL))),
        worst=row(max(judged, key=lambda point: (judged[point][choice.order], point))),
        spans=tuple(tuple(map(span, line)) for line in choice.spans),
        judged=tuple(map(row, judged)),
    )
