"""What would help where nothing was gained: a little of what was not permitted is tried, and its gain is told.

What only a caller can permit, inputs and outputs in another form, is tried whatever was gained.

A trial is bounded by work, never by seconds, and takes the first steps of the search that its command runs in full:
the same rewrites and the same figures, in the order in which they are made. So the command gives no less; where the
user's limit would end its searches before those of the trials, it has a limit that suffices.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence

from memsched.base.errors import MemschedError
from memsched.base.frozen import FrozenValue
from memsched.check.schedule import check_schedule
from memsched.commands.levels import BY_NAME, CHANGES
from memsched.commands.optimize.border import BorderRewrite
from memsched.commands.optimize.built_in import BuiltInRewrite
from memsched.commands.optimize.choose import Permissions
from memsched.commands.optimize.command_lines import with_options, without_options
from memsched.commands.optimize.driver import Driver
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.fuse import ChainRewrite
from memsched.commands.optimize.place import ModulePlan, Request, place, prepare, required_as_given, required_for
from memsched.commands.optimize.possible import MOST_OPS, too_large
from memsched.commands.optimize.recompute import RematRewrite
from memsched.commands.optimize.rewrite import Pricing, Rewrite
from memsched.commands.optimize.tile import TileRewrite
from memsched.commands.optimize.worth import LEAST_GAIN
from memsched.formats.capabilities import SizeGuards
from memsched.formats.known import capability
from memsched.formats.module import LoadOptions, Module
from memsched.graph.liveness import Storage, evaluate
from memsched.plan.orders import plan_allocation
from memsched.plan.rewrite import dialect_of
from memsched.plan.values import TargetModule
from memsched.report.values.verdict import CallerChange
from memsched.runtimes.graph_plan import GraphPlan
from memsched.runtimes.known import runtime_of
from memsched.search.limits import QUICK, Limits
from memsched.targets.model import Target

__all__ = ["RunOutcome", "Suggestion", "TrialRequest", "suggestions"]

_MOST_NAMED = 3

_PIECES_EFFORT = 0.12
"""Effort of the search for pieces, as `Limits.effort` counts it."""

_LOOPS_EFFORT = 2.0
"""The same for loops: for firmware, a second is well spent."""

MOST_OPS_OF_LOOPS = 150
"""Operators of the largest graphs in which loops are tried."""

_ENOUGH = 5.0
"""Limit of a command, as effort or in seconds, whose searches do all that trials do: loops get a quarter of it."""

_PIECES_OPS = 450
"""Larger graphs in pieces take longer to write, read and place than a trial may take."""

_STATES = 20_000
"""Most states of the search for an order, where only the file's was looked at."""

_REMAT_OPS = 300
"""Larger graphs take too long to search for repetitions in a trial."""

_FREE_ENOUGH = 0.75
"""What costs no extra work is named where it saves at least this part of the most that can be saved."""

_WORTH_NAMING = 0.5
"""Share of what is required: where pieces without extra work get there, none with it are tried."""

_NEEDLESS = ("--report", "--html", "--header")
"""Files of an analysis, which another command shall not overwrite."""


class TrialRequest(FrozenValue, frozen=True):
    """What the user permitted, and how.

    Attributes:
        allow: The names in ``--allow``.
        words: The command line without the program's name.
        budget: Bytes; None where none was given.
        limits: Of the whole command.
    """

    allow: tuple[str, ...]
    words: tuple[str, ...]
    permitted: Permissions
    budget: int | None = None
    limits: Limits = QUICK

    @property
    def _limit(self) -> tuple[str, ...]:
        """The option with a limit that suffices; () where the user's does."""
        effort, seconds = self.limits.effort, self.limits.time_limit
        option, given = ("--time-limit", seconds) if effort is None else ("--effort", effort)
        return () if given is None or given >= _ENOUGH else (option, f"{_ENOUGH:g}")

    @property
    def suffices(self) -> bool:
        """Whether the user's limit permits all that trials do."""
        return not self._limit

    def command(self, *, add: Sequence[str] = (), options: Sequence[str] = ()) -> str:
        """Return a command line that permits ``add``, too, and is otherwise the same but for a limit that suffices."""
        name, *words = self.words
        options = (*options, *self._limit)
        words = without_options(words, "--allow", *(option for option in options if option.startswith("--")))
        if self.permitted.free and add and "tile" not in add:
            # The list takes the place of what is permitted by default.
            add = (*add, "tile")
            options = options if "remat" in add else (*options, "--max-extra-macs", "0")
        if name != "optimize":
            words = [word for word in without_options(words, *_NEEDLESS) if word not in {"-q", "--quiet", "--json"}]
        if add or set(self.allow) != {"reorder", "inplace"}:
            words = without_options(words, "-O", "--may-change")
            known = ("reorder", "inplace", "tile", "remat", *BY_NAME)
            options = ("--allow", ",".join(one for one in known if one in {*self.allow, *add}), *options)
        return with_options(("optimize", *words), *options)

    def changing(self, *changes: CallerChange) -> str:
        """Return a command line that lets the caller accept further changes, and is otherwise the same."""
        if not self.permitted.free:
            return self.command(add=[name for change in changes for name in CHANGES[change]])
        accepted = [name for name, names in CHANGES.items() if name in changes or set(names) <= set(self.allow)]
        words = without_options(self.words, "--may-change", *(self._limit[:1]))
        return with_options(words, "--may-change", ",".join(accepted), *self._limit)


class Suggestion(FrozenValue, frozen=True):
    """A command that was tried in part.

    Attributes:
        required: Bytes that the model written by it requires at most.
        extra_macs_percent: Multiply-accumulates that the model as given does not have, at most: the search that is run
            in full may use more of what is permitted than the trial did.
        what: In a word or two what it does.
        changes: What a caller of the file would notice, at most.
    """

    command: str
    required: int
    extra_macs_percent: float
    what: str
    changes: tuple[CallerChange, ...] = ()


class RunOutcome(FrozenValue, frozen=True):
    """What a run began with, and its result.

    Attributes:
        target: With all of its rules, whether they were permitted or not.
        placed: What the file written requires, or the one given.
        whole: The model as given in the best order found, where the one written is another.
    """

    module: Module
    target: Target
    prepared: TargetModule
    placed: ModulePlan
    options: LoadOptions
    request: Request
    asked: TrialRequest
    whole: ModulePlan | None = None


def suggestions(run: RunOutcome) -> tuple[Suggestion, ...]:
    """Return what was found to help, the one to name first; where something was gained, what callers can add to it."""
    module, request, placed, asked = run.module, run.request, run.placed, run.asked
    given = required_as_given(module, run.prepared, request.opening).total
    enough = placed.required < given if asked.budget is None else placed.required <= asked.budget
    elsewhere = run.target.pools or run.target.on_chip_bytes or request.opening.guarantee == "default"
    met = asked.budget is not None and enough
    if met or elsewhere or request.stopped() or too_large(module) or (asked.suffices and request.over()):
        return ()
    shortly = request.run.again(Limits(0.0, request.run.limits.seed, effort=_PIECES_EFFORT)).quiet()
    quick = dataclasses.replace(request, run=shortly, solver="file", end=math.inf)
    trials = _Trials(dataclasses.replace(run, request=quick))
    most = max((1 - LEAST_GAIN) * placed.required, asked.budget or 0)
    gained = enough or run.whole is not None
    found = [one for one in trials.run(gained=gained) if one.required <= most]
    return tuple(_ranked(found, placed.required))[:_MOST_NAMED]


def _ranked(found: Sequence[Suggestion], required: int) -> list[Suggestion]:
    """Return the suggestions, what gives most first, or what gives nearly as much for nothing."""
    ranked = sorted(found, key=lambda one: (one.required, one.extra_macs_percent))
    free = [one for one in ranked if not one.extra_macs_percent]
    if free and required - free[0].required >= _FREE_ENOUGH * (required - ranked[0].required):
        ranked.remove(free[0])
        ranked.insert(0, free[0])
    return ranked


class _Trials:
    def __init__(self, given: RunOutcome) -> None:
        self._given = given
        self._runtime = runtime_of(given.module, given.prepared.target, given.request.opening)

    def run(self, *, gained: bool) -> Iterator[Suggestion]:
        """Yield what helps; what cannot be tried is left out.

        Args:
            gained: Something was, or layers were rewritten: then only callers can help, and what costs something
                where that was not permitted.
        """
        rewrites = [self._chains, self._built_in, self._pieces, self._border, self._again]
        trials: list[Callable[[], Iterator[Suggestion]]] = [self._plan, self._order, self._in_place, *rewrites]
        if gained:
            trials = rewrites if self._given.asked.permitted.free else [self._border]
        for trial in trials:
            if not self._given.request.stopped():
                found: list[Suggestion] = []
                failures = self._given.request.failures
                with failures.left_out("a trial of what else helps"), contextlib.suppress(MemschedError):
                    found.extend(trial())
                yield from found

    def _suggest(
        self, command: str, required: int, what: str, extra: float = 0.0, *changes: CallerChange
    ) -> Suggestion:
        budget = self._given.asked.budget
        # With a budget the command ends with the first result that meets it.
        least = required if budget is None or required > budget else budget
        return Suggestion(command, least, extra, what, changes)

    def _plan(self) -> Iterator[Suggestion]:
        """Try a memory plan in the file."""
        given = self._given
        required = self._runtime.memory_plans.requires(given.module, given.placed.plans, given.request.run)
        if required is not None:
            yield self._suggest(self._given.asked.command(), required.total, "a memory plan")

    def _order(self) -> Iterator[Suggestion]:
        """Try other orders, where only the file's was looked at; what follows is tried in the one found."""
        if "reorder" in self._given.asked.allow and self._given.asked.words[0] == "optimize":
            return
        plan = _reordered(self._given.placed.plans[0])
        if plan is None:
            return
        target = self._given.prepared.target
        allocation = plan_allocation(plan, self._given.prepared.baselines["file_order"], target.alignment_bytes)
        plans = (plan, *self._given.placed.plans[1:])
        required = required_for(self._given.module, self._given.prepared, plans, allocation, self._given.request)
        if required is not None and required.total < self._given.placed.required:
            self._given = dataclasses.replace(self._given, placed=ModulePlan(plans, allocation, None, required))
            yield self._suggest(self._given.asked.command(add=("reorder",)), required.total, "another order")

    def _in_place(self) -> Iterator[Suggestion]:
        """Try to let outputs take dying inputs' bytes."""
        if "inplace" in self._given.asked.allow or not self._given.target.in_place:
            return
        prepared = prepare(self._given.module, self._given.target, in_place=True)
        required = place(self._given.module, prepared, self._given.request).required
        yield self._suggest(self._given.asked.command(add=("inplace",)), required, "writes in place")

    def _chains(self) -> Iterator[Suggestion]:
        """Try one operator for each activation that was exported as a chain of them."""
        given = self._given
        if "fuse" in given.asked.allow:
            return
        found = self._attempt(ChainRewrite())
        if found is not None:
            what = "activations in one operator each, for ONNX Runtime alone"
            changed = given.asked.changing("rounding", "opening") if given.asked.permitted.free else None
            command = changed or given.asked.command(add=("fuse",))
            yield self._suggest(command, found.placed.required, what, 0.0, "rounding", "opening")

    def _built_in(self) -> Iterator[Suggestion]:
        """Try to leave layers to built-in kernels."""
        asked = self._given.asked
        found = None if asked.permitted.reassociate else self._attempt(BuiltInRewrite())
        if found is not None:
            what = "layers with built-in kernels, which round in another way"
            yield self._suggest(asked.changing("rounding"), found.placed.required, what, 0.0, "rounding")

    def _pieces(self) -> Iterator[Suggestion]:
        """Try layers in pieces: without work done twice, then with as much as is permitted if that gives too little."""
        # With a budget missed, a longer trial is worth the wait.
        most = _PIECES_OPS if self._given.asked.budget is None else MOST_OPS
        module, options = self._given.module, self._given.options
        if self._given.asked.permitted.tile or len(module.graphs[0].ops) > most:
            return
        if not capability(module, SizeGuards).sizes_can_be_refused(module, options):
            return
        what = f"layers in pieces{self._only}"
        least = given = self._given.placed.required
        permitted = self._given.asked.permitted
        for percent in dict.fromkeys((permitted.extra_percent,) if permitted.free else (0.0, permitted.extra_percent)):
            found = self._attempt(TileRewrite(), percent=percent, effort=self._effort)
            required = least if found is None else found.placed.required
            if required >= least:
                continue
            least = required
            limit = ("--max-extra-macs", "0") if percent == 0.0 else ()
            named = (*self._runtime.traits.session_options, *limit)
            command = self._given.asked.command(add=("tile",), options=named)
            changes: tuple[CallerChange, ...] = ("rounding", "opening") if self._only else ("rounding",)
            yield self._suggest(command, least, what, percent, *changes)
            budget = self._given.asked.budget
            if least <= (_WORTH_NAMING * given if budget is None else budget):
                return

    @property
    def _effort(self) -> float:
        """Return the work for pieces: more where they may be loops, of firmware."""
        given = self._given
        loops = dialect_of(given.module, given.prepared.target).loop is not None
        return _LOOPS_EFFORT if loops and len(given.module.graphs[0].ops) <= MOST_OPS_OF_LOOPS else _PIECES_EFFORT

    @property
    def _only(self) -> str:
        """Return in words for which sessions alone rewritten layers are."""
        only = self._runtime.traits.tiles_for
        return f", for {only}" if only else ""

    def _border(self) -> Iterator[Suggestion]:
        """Try inputs and outputs in the form that the layers have."""
        given = self._given
        if "io" in given.asked.allow:
            return
        found = self._attempt(BorderRewrite())
        if found is not None:
            what = "inputs and outputs in another form by themselves, for which the caller has to change"
            yield self._suggest(given.asked.changing("inputs"), found.placed.required, what, 0.0, "inputs")

    def _attempt(self, rewrite: Rewrite, *, percent: float = 0.0, effort: float = _PIECES_EFFORT) -> FinalModel | None:
        given = self._given
        start = FinalModel(given.module, b"", given.prepared, given.whole or given.placed, options=given.options)
        return attempt(rewrite, start, given.request, percent, effort)

    def _again(self) -> Iterator[Suggestion]:
        """Try to compute values again."""
        if self._given.asked.permitted.remat or len(self._given.module.graphs[0].ops) > _REMAT_OPS:
            return
        percent = self._given.asked.permitted.extra_percent
        found = self._attempt(RematRewrite(), percent=percent)
        if found is not None:
            required = found.placed.required
            command = self._given.asked.command(add=("remat",), options=self._runtime.traits.session_options)
            yield self._suggest(command, required, f"values computed again{self._only}", percent)


def attempt(rewrite: Rewrite, given: FinalModel, request: Request, percent: float, effort: float) -> FinalModel | None:
    """Return what a search with so much work finds that requires less; None where it finds nothing.

    Args:
        percent: Extra work permitted, of the model's.
    """
    run = request.run.again(dataclasses.replace(request.run.limits, time_limit=None, effort=effort))
    pricing = Pricing(percent, request.slowdown, request.free_ops)
    best = Driver(given, (rewrite,), dataclasses.replace(request, run=run), pricing).run()
    return best if best.rewritten else None


def _reordered(plan: GraphPlan) -> GraphPlan | None:
    """Return the plan in the best order that a short search finds; None where none is better."""
    from memsched.solve.fusion.iterate import fuse
    from memsched.solve.schedule import exact
    from memsched.solve.schedule.orders import ORDERS

    storage = Storage.of(plan.graph)
    orders = [rule(storage) for rule in ORDERS.values()]
    tasks = fuse(storage).tasks
    found = exact.search(tasks, upper_bound=plan.schedule.peak, max_states=_STATES).order
    if found is not None:
        orders.append(tasks.expand(found))
    best = min(orders, key=lambda order: evaluate(storage, order).peak)
    profile = evaluate(storage, best)
    if profile.peak >= plan.schedule.peak:
        return None
    schedule = dataclasses.replace(
        plan.schedule, order=best, in_place=profile.in_place(storage, best), peak=profile.peak, status="feasible"
    )
    return dataclasses.replace(plan, schedule=schedule, checked=check_schedule(plan.graph, schedule))
