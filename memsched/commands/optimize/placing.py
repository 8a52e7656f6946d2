"""From a candidate to a model that is written, read back and placed, whatever was rewritten.

A rewritten model is written first in the order in which it was made, and read back. From then on it is a model like
any other: it gets orders and addresses, and what is reported is what its file does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, TypeVar

from memsched.base.errors import InternalError, ModelError
from memsched.base.frozen import FrozenValue
from memsched.commands.failures import REPORT_IT
from memsched.commands.optimize.final_model import FinalModel, slower
from memsched.commands.optimize.place import ModulePlan, Request, as_stored, place, prepare_again
from memsched.commands.optimize.rewrite import Candidate, RewriteBase, Turned
from memsched.commands.optimize.worth import LEAST_GAIN
from memsched.formats.module import Module
from memsched.plan.rewrite import restated
from memsched.plan.values import TargetModule

__all__ = ["StoredModel", "UnwritableError", "expected", "fewer", "fewest", "module_macs", "placed", "stored"]

_WORK_PER_OP: Final = 1.5e-4
_WORK_PER_BYTE: Final = 1e-8
"""What `Limits.effort` is charged for a model that is built, written and read back, per op and per byte."""

_PER_MODEL: Final = 2
"""How many times as much a model takes that is placed as well."""

_Part = TypeVar("_Part")


class UnwritableError(Exception):
    """Parts of a way that no file could be written with, each with the reason."""

    def __init__(self, reasons: Mapping[tuple[Any, ...], str]) -> None:
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


class StoredModel(FrozenValue, frozen=True):
    """A candidate's model as its file was read back, in the order in which it was made.

    Attributes:
        data: Its file.
        plan: What it requires so, which is the most that it requires.
    """

    candidate: Candidate
    module: Module
    data: bytes
    prepared: TargetModule
    plan: ModulePlan
    extra_macs: int


def expected(candidate: Candidate) -> float:
    """Return the work that making a candidate's model takes, about."""
    return _PER_MODEL * _WORK_PER_OP * candidate.ways.ops(candidate.way)


def stored(base: RewriteBase, candidate: Candidate, request: Request) -> StoredModel:
    """Return a candidate's model in the order in which it was made.

    Raises:
        UnwritableError: Parts of it cannot be written.
        GivenUpError: See `Request.go_on`.
    """
    way = candidate.way
    try:
        request.go_on()
        module, data = candidate.ways.write(base, way, request.go_on)
        request.go_on()
        prepared = prepare_again(module, (candidate.ways.turned or base).prepared, request)
    except (InternalError, ModelError) as error:
        raise UnwritableError(_at_fault(base, candidate, _said(error), request)) from None
    request.run.spend(_WORK_PER_OP * sum(len(graph.ops) for graph in module.graphs) + _WORK_PER_BYTE * len(data))
    turned = candidate.ways.turned
    plan = _weighed(base, turned, module, as_stored(module, prepared, request))
    extra_macs = module_macs(module) - base.macs if turned is None else 0
    return StoredModel(candidate, module, data, prepared, plan, extra_macs)


def module_macs(module: Module) -> int:
    """Return the multiply-accumulates of the main graph."""
    return sum(op.macs for op in module.graphs[0].ops)


def placed(final: FinalModel, base: RewriteBase, made: StoredModel, request: Request) -> FinalModel:
    """Return ``final`` rewritten to a candidate, with orders and addresses.

    Args:
        base: What the candidate was made from: ``final`` with what may be spent on it.

    Raises:
        GivenUpError: See `Request.go_on`.
    """
    candidate = made.candidate
    turned = candidate.ways.turned
    plan = _weighed(base, turned, made.module, place(made.module, made.prepared, request, made.plan))
    borders = candidate.ways.borders(candidate.way)
    return FinalModel(
        module=made.module,
        data=made.data,
        prepared=dataclasses.replace(made.prepared, baselines=(turned or final).prepared.baselines),
        placed=plan,
        rewritten=True,
        extra_work=final.extra_work + (1 + final.extra_work) * candidate.work,
        extra_macs=final.extra_macs + made.extra_macs,
        slowdown=slower(final, made.module) if turned is None else turned.slowdown,
        borders=(*final.borders, *borders),
        options=restated(final.options, borders) if turned is None else turned.executed.options,
        before=final,
        made=candidate,
        steps=final.steps,
        executed=final.executed if turned is None else turned.executed,
    )


def _weighed(base: RewriteBase, turned: Turned | None, again: Module, plan: ModulePlan) -> ModulePlan:
    """Return ``plan`` with the structures that a runtime has for more ops than the base's, or than the same turned."""
    prices = base.prices()
    if prices is None or prices.pace is None:
        return plan
    before, after = base.given if turned is None else turned.module.graphs[0], again.graphs[0]
    more = prices.of_ops(after, after.ops) - prices.of_ops(before, before.ops)
    known = base.placed.requirement.structures if turned is None else 0
    structures = known + prices.required(0, more)
    return dataclasses.replace(plan, requirement=dataclasses.replace(plan.requirement, structures=structures))


def _at_fault(base: RewriteBase, candidate: Candidate, reason: str, request: Request) -> Mapping[tuple[Any, ...], str]:
    """Return those parts of a way that cannot be written, alone or beside the others; all of it at the least."""
    parts = candidate.ways.parts(candidate.way)
    if len(parts) < 2:
        return {candidate.way: reason}
    good: tuple[Any, ...] = ()
    reasons: dict[tuple[Any, ...], str] = {}
    for part in parts:
        found = _reason(base, candidate, (*good, *part), request)
        if found is None:
            good = (*good, *part)
        else:
            reasons[part] = found
    return reasons or {candidate.way: reason}


def _reason(base: RewriteBase, candidate: Candidate, way: tuple[Any, ...], request: Request) -> str | None:
    """Return why a way cannot be written; None where it can."""
    try:
        candidate.ways.write(base, way, request.go_on)
    except (InternalError, ModelError) as error:
        return _said(error)
    return None


def _said(error: InternalError | ModelError) -> str:
    """Return why a model cannot be written; whose fault it is, too."""
    return f"a defect of memsched, {REPORT_IT}: {error}" if isinstance(error, InternalError) else str(error)


def fewer(final: FinalModel, base: RewriteBase, request: Request) -> Iterator[FinalModel]:
    """Yield models that save as much as ``final``, half as much, and so on, with as few and coarse parts as needed.

    Args:
        base: What it was made from.
    """
    if final.made is None or final.before is None:
        return
    before, ways = final.before, final.made.ways
    known: dict[tuple[Any, ...], float] = {}

    def candidate(way: tuple[Any, ...], macs: int = 0) -> Candidate:
        # Parts that can be done alone add multiply-accumulates and no other work.
        return Candidate(ways, way, 0, Fraction(macs, base.macs) if base.macs else Fraction(0), macs)

    def requires(chosen: Sequence[tuple[Any, ...]]) -> float:
        way = _joined(chosen)
        if way not in known:
            known[way] = math.inf
            with contextlib.suppress(UnwritableError):
                known[way] = stored(base, candidate(way), request).plan.requirement.weight
        return known[way]

    parts, way = ways.parts(final.made.way), final.made.way
    saved = before.weight - final.weight
    while parts and saved >= LEAST_GAIN * before.weight and not request.late():
        parts, last = fewest(parts, before.weight - saved, requires, ways.coarser), way
        saved, way = saved // 2, _joined(parts)
        if way == last:
            continue
        with contextlib.suppress(UnwritableError):
            made = stored(base, candidate(way), request)
            made = dataclasses.replace(made, candidate=candidate(way, made.extra_macs))
            found = placed(before, base, made, request)
            if found.weight < before.weight:
                yield dataclasses.replace(found, steps=final.steps)


def fewest(
    parts: Sequence[_Part],
    most: int,
    requires: Callable[[Sequence[_Part]], float],
    coarser: Callable[[_Part], Iterable[_Part]],
) -> Sequence[_Part]:
    """Return as few of the parts, each as coarse as it can be, as a model within a limit needs.

    Args:
        parts: Each may be done alone.
        most: Bytes that the model may require; with all the parts it requires no more.
        requires: Returns the bytes that a model with some of them requires.
        coarser: Returns what may take a part's place.
    """
    chosen = list(parts)
    for part in parts:
        others = [one for one in chosen if one != part]
        if others and requires(others) <= most:
            chosen = others
    for number in range(len(chosen)):
        found: _Part | None = chosen[number]
        while found is not None:
            chosen[number] = found
            ways = ((one, [*chosen[:number], one, *chosen[number + 1 :]]) for one in coarser(found))
            found = next((one for one, way in ways if requires(way) <= most), None)
    return chosen


def _joined(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(one for part in parts for one in part)
