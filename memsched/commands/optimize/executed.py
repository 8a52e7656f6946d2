"""What a session executes of a model, as a model like any other: it is ordered, rewritten and written like a file.

Pieces are sought in what the session executes, where tensors lie as their shapes say, and in the model as given, which
the runtime then optimises in pieces; values are computed again in what is executed, as optimisation would merge them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memsched.base.errors import InternalError, MemschedError, ModelError
from memsched.base.frozen import FrozenValue
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.place import Request, place, prepare
from memsched.commands.optimize.rewrite import Candidate, Proposals, RewriteBase, Turned, Ways
from memsched.formats.files import load_module
from memsched.formats.known import format_in
from memsched.formats.module import FormatName, LoadOptions, Module
from memsched.runtimes.known import runtime_of, session_maker_of
from memsched.runtimes.runtime import Opening
from memsched.runtimes.sessions import ExecutedModel
from memsched.search.run import Run
from memsched.targets.model import Target

__all__ = ["AHEAD", "ExecutedRewrite", "SessionSource", "executed_of", "executed_start"]

AHEAD = frozenset({"tile", "fold"})
"""Rewrites whose work is still there after a runtime's own optimisation."""

IN_ORDER = Opening("session")
"""How files are opened that hold what a session executes: in their order."""


class SessionSource(FrozenValue, frozen=True):
    """A model as given, with the kind of session that executes it.

    Attributes:
        path: Where ``data`` was read from.
        options: What is stated of its sizes.
        session: As ``--session`` has it.
        rules: The target.
        in_place: Whether outputs may take dying inputs' bytes.
        seed: Of the inputs of runs.
    """

    data: bytes
    path: str
    options: LoadOptions
    session: str
    rules: Target
    in_place: bool
    seed: int

    @property
    def format(self) -> FormatName:
        """Return the format of the bytes."""
        return format_in(self.data).name


def executed_start(source: SessionSource, sha256: str, request: Request) -> FinalModel:
    """Return what sessions execute of a model as given, in the best order found.

    Args:
        sha256: Of the model as given, by which reports know it.

    Raises:
        MemschedError: The runtime does not load or run it.
    """
    maker, request = session_maker_of(source.format), dataclasses.replace(request, opening=IN_ORDER)
    executed = maker.executed(source.data, source.path, source.options, source.session, seed=source.seed)
    module = _read(executed, source.path, sha256)
    prepared = prepare(module, maker.rules(source.rules), in_place=source.in_place)
    placed = place(module, prepared, request)
    request.ledger.add_passes(placed.plans[0].passes, ExecutedRewrite.name)
    return FinalModel(module, executed.data, prepared, placed, options=executed.options, executed=executed)


def executed_of(model: FinalModel) -> ExecutedModel:
    """Return what a session executes of a model.

    Raises:
        InternalError: It is a file to open as usual.
    """
    if model.executed is None:
        raise InternalError("a model that no session was asked about")
    return model.executed


def _read(executed: ExecutedModel, path: str, sha256: str) -> Module:
    return dataclasses.replace(load_module(executed.data, path, executed.options), sha256=sha256)


@dataclass(frozen=True, slots=True)
class ExecutedRewrite:
    """What a session executes of a model in place of its file.

    Attributes:
        session: As ``--session`` has it.
        seed: Of the inputs of the run that shows the sizes.
        start: The same of the model as given, with which it is compared.
        slowdown: Time that it may take beyond that, in percent as estimated; None for any.
    """

    session: str
    seed: int
    start: FinalModel
    slowdown: float | None

    name = "executed"
    once = False
    described = "the graph that the session executes"

    def is_quick(self, base: RewriteBase) -> bool:
        """Whether what it finds is written however little time there is; see `Rewrite`."""
        del base
        return False

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        """Propose the one graph that there is; what it needs is known once the runtime has made it."""
        del run
        ways = _ExecutedWays(base, self)
        yield Candidate(ways)
        yield Candidate(ways, (self.name,))


class _ExecutedWays(Ways):
    """What a session executes, which the runtime alone can say."""

    def __init__(self, base: RewriteBase, rewrite: ExecutedRewrite) -> None:
        super().__init__(base.given)
        self._rewrite = rewrite

    def write(self, base: RewriteBase, way: tuple[Any, ...], go_on: Callable[[], None]) -> tuple[Module, bytes]:
        """Return what the runtime made of the base, and its file; see `Ways.write`."""
        del way
        path, start = base.module.path, self._rewrite.start
        try:
            maker = session_maker_of(base.module.format)
            executed = maker.executed(base.data, path, base.options, self._rewrite.session, seed=self._rewrite.seed)
            go_on()
            module = _read(executed, path, start.module.sha256)
        except MemschedError as error:
            raise ModelError(f"the runtime does not optimise it: {error}") from None
        slowdown, most = self._slowdown(module), self._rewrite.slowdown
        if most is not None and slowdown > most:
            raise ModelError(f"what the session executes of it takes {slowdown:.1f} % longer")
        self.turned = Turned(executed, start.module, start.prepared, slowdown)
        return module, executed.data

    def _slowdown(self, module: Module) -> float:
        """Return the time of what is executed beyond that of the model as given, in percent as estimated."""
        start = self._rewrite.start
        prices = runtime_of(module, start.prepared.target).prices(module)
        if prices is None or prices.pace is None:
            return 0.0
        before, after = (prices.pace.of_graph(one.graphs[0]) for one in (start.module, module))
        return max(0.0, 100 * (after / max(1.0, before) - 1))
