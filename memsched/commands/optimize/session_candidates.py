"""``--session`` with rewrites: which graph of a session is written, as the runtime optimised it, rewritten or not.

Pieces are sought in what the session executes, where tensors lie as their shapes say, and in the model as given, which
the runtime then optimises in pieces; values are computed again in what is executed, as optimisation would merge them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib

from memsched.base.errors import MemschedError
from memsched.base.frozen import FrozenValue
from memsched.base.units import Percentage
from memsched.commands.optimize.choose import Permissions, find
from memsched.commands.optimize.final_model import FinalModel, rank
from memsched.commands.optimize.place import Request, prepare, required_as_given
from memsched.formats.capabilities import SizeGuards
from memsched.formats.files import load_module
from memsched.formats.known import capability, format_in
from memsched.formats.module import FormatName, LoadOptions, Module
from memsched.plan.values import TargetModule
from memsched.runtimes.known import runtime_of
from memsched.runtimes.runtime import Opening
from memsched.runtimes.sessions import ExecutedModel, SessionMaker
from memsched.targets.model import Target

__all__ = ["SessionCandidate", "SessionSource", "candidates"]

_IN_PLACE_SHARE = 0.5
"""Share of the time for rewrites of what is executed, where those of the model as given follow."""

_PARTS_OF_LIMIT = (1.0, 0.3)
"""Shares of the permitted slowdown with which pieces of the model as given are tried: no search foresees what
optimisation makes of few or of many."""


class SessionSource(FrozenValue, frozen=True):
    """A model as given, with what sessions of a kind are to be made of it.

    Attributes:
        path: Where ``data`` was read from.
        options: What is stated of its sizes.
        session: One of `memsched.runtimes.onnxruntime.executed.LEVELS`.
        rules: The target.
        permitted: What may be done beside ordering.
        budget: Bytes, or a part of what the session needs for the model as given; None for none.
    """

    data: bytes
    path: str
    options: LoadOptions
    session: str
    rules: Target
    in_place: bool
    permitted: Permissions
    budget: int | Percentage | None
    seed: int

    @property
    def format(self) -> FormatName:
        """Return the format of the bytes."""
        return format_in(self.data).name


class SessionCandidate(FrozenValue, frozen=True):
    """A graph that a session executes.

    Attributes:
        executed: As the runtime optimised it.
        module: The same as it was read, before it was rewritten.
        prepared: The module under the rules for what is executed.
        final: It in its order, rewritten or not.
        slowdown: Time that it takes beyond the graph executed of the model as given, in percent as estimated.
    """

    executed: ExecutedModel
    module: Module
    prepared: TargetModule
    final: FinalModel
    slowdown: float = 0.0


def candidates(
    source: SessionSource, request: Request, maker: SessionMaker
) -> tuple[SessionCandidate, SessionCandidate]:
    """Return the graph executed of the model as given, ordered, and the best of it and what it may be rewritten to.

    All keep to the request's limit of time.
    """
    data, permitted = source.data, source.permitted
    given = load_module(data, source.path, source.options) if permitted.tile else None
    if given is not None and not capability(given, SizeGuards).sizes_can_be_refused(given, source.options):
        # Pieces hold for one size alone, where a runtime can refuse others.
        given, permitted = None, dataclasses.replace(permitted, tile=False)
    executed = maker.executed(data, source.path, source.options, source.session, seed=source.seed)
    module = _read(executed, source)
    prepared = prepare(module, maker.rules(source.rules), in_place=source.in_place)
    budget = source.budget
    if isinstance(budget, Percentage):
        budget = budget.of(required_as_given(module, prepared, Opening("none")).total)
    within = request.within(_IN_PLACE_SHARE) if permitted.tile else request
    found = find(module, executed.data, prepared, executed.options, within, budget, permitted)
    if found.whole is None:
        plain = SessionCandidate(executed, module, prepared, found)
        known = [plain]
    else:
        whole = FinalModel(module, executed.data, prepared, found.whole, options=executed.options)
        plain = SessionCandidate(executed, module, prepared, whole)
        known = [plain, SessionCandidate(executed, module, prepared, found, found.slowdown)]
    if given is not None:
        known += _of_given(plain, given, source, request.rest(), budget, maker)
    return plain, min(known, key=lambda one: rank(one.final, budget))


def _read(executed: ExecutedModel, source: SessionSource) -> Module:
    read = load_module(executed.data, source.path, executed.options)
    return dataclasses.replace(read, sha256=hashlib.sha256(source.data).hexdigest())


def _of_given(
    plain: SessionCandidate,
    given: Module,
    source: SessionSource,
    request: Request,
    budget: int | None,
    maker: SessionMaker,
) -> list[SessionCandidate]:
    """Return what the runtime makes of the model as given, in pieces; what it cannot optimise is left out."""
    prepared = prepare(given, source.rules, in_place=source.in_place)
    only_pieces = dataclasses.replace(source.permitted, remat=False)
    found: list[SessionCandidate] = []
    known: set[bytes] = set()
    limits = _PARTS_OF_LIMIT if request.slowdown is not None else _PARTS_OF_LIMIT[:1]
    for number, part in enumerate(limits):
        slowdown = None if request.slowdown is None else request.slowdown * part
        within = dataclasses.replace(request.within(1 / (len(limits) - number + 1)), slowdown=slowdown)
        with contextlib.suppress(MemschedError):
            pieces = find(given, source.data, prepared, source.options, within, None, only_pieces)
            if pieces.rewritten and pieces.data not in known:
                known.add(pieces.data)
                found += _optimised(plain, pieces, source, request.rest(), budget, maker)
    return found


def _optimised(
    plain: SessionCandidate,
    pieces: FinalModel,
    source: SessionSource,
    request: Request,
    budget: int | None,
    maker: SessionMaker,
) -> list[SessionCandidate]:
    """Return what the runtime makes of a model in pieces, in order, where it keeps to the limit of time."""
    executed = maker.executed(pieces.data, source.path, pieces.options, source.session, seed=source.seed)
    module = _read(executed, source)
    prepared = prepare(module, plain.prepared.target, in_place=source.in_place)
    prices = runtime_of(module, prepared.target).prices(module)
    slower, structures = 0.0, 0
    if prices is not None and prices.pace is not None and request.slowdown is not None:
        before, after = plain.module.graphs[0], module.graphs[0]
        slower = 100 * (prices.pace.of_graph(after) / max(1.0, prices.pace.of_graph(before)) - 1)
        structures = (prices.of_ops(after, after.ops) - prices.of_ops(before, before.ops)).persistent
        if slower > request.slowdown:
            return []
        request = dataclasses.replace(request, slowdown=request.slowdown - max(0.0, slower))
    again = Permissions(remat=source.permitted.remat, extra_percent=source.permitted.extra_percent)
    final = find(module, executed.data, prepared, executed.options, request.within(0.5), budget, again)
    needed = final.placed.requirement
    if budget is None:
        needed = dataclasses.replace(needed, structures=needed.structures + structures)
    final = dataclasses.replace(
        final,
        prepared=dataclasses.replace(final.prepared, baselines=plain.prepared.baselines),
        placed=dataclasses.replace(final.placed, requirement=needed),
        rewrites=dataclasses.replace(final.rewrites, tiling=pieces.rewrites.tiling),
        rewritten=True,
        extra_work=pieces.extra_work + final.extra_work,
        extra_macs=pieces.extra_macs + final.extra_macs,
    )
    return [SessionCandidate(executed, module, prepared, final, max(0.0, slower) + final.slowdown)]
