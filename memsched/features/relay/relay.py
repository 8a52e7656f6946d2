"""The pipeline behind ``memsched relay``: consecutive files that are executed one after the other in one block."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from memsched.base.errors import ModelError, RuntimeUnavailableError, UsageError, VerificationError
from memsched.base.frozen import FrozenValue
from memsched.base.units import Percentage, parse_budget
from memsched.commands.calls import NO_HOOKS, Hooks, command, limits_of
from memsched.commands.failures import Failures
from memsched.commands.levels import BY_DEFAULT
from memsched.commands.optimize.place import prepare
from memsched.commands.options import RelayOptions
from memsched.features.relay.border import CutModel, bordered
from memsched.features.relay.cuts import RelayCuts
from memsched.features.relay.layout import RelayLayout, lay_out
from memsched.features.relay.search import RelaySplit, search
from memsched.features.relay.stages import RelayStageCosts, StageFile
from memsched.formats.capabilities import Stages
from memsched.formats.files import load_module, read_source
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.formats.segments import check_segments
from memsched.formats.staging import STANDARD_STREAM
from memsched.formats.stated_sizes import stated
from memsched.plan.orders import ORDER_SHARE, plan_module
from memsched.plan.values import TargetModule
from memsched.report.outputs import TOLERANCE
from memsched.report.values.border import BorderSection
from memsched.runtimes.arena_facts import round_up
from memsched.runtimes.known import check_runner, relay_rules_of
from memsched.runtimes.runtime import RelayRun
from memsched.runtimes.segments import run_in_a_row
from memsched.runtimes.special import applying
from memsched.runtimes.values import INVOKES, RUNS, STAGED
from memsched.search.pace import MachinePace
from memsched.search.run import Run
from memsched.targets.load import load_target
from memsched.targets.model import Target

if TYPE_CHECKING:
    from memsched.runtimes.known import RelayRules

__all__ = ["RelayModel", "relay"]

_DEFAULT = RelayOptions()

_CUT_SHARE = 0.85
"""Share of the time or the work, orders included, for the stages; the rest optimizes those that were chosen."""

_SETTLED_SHARE = 0.95
"""Share of the search's time after which what is under way ends as soon as it can, chosen stages included."""

_SECONDS_TO_END = 1.0
"""For starting a runtime, and for writing."""

_MOST_TO_VERIFY = 0.4
"""Largest share of the time for verification: where that is too little for all inputs, fewer are run."""

_MOST_PLACES = 1_000
"""Where a model can be cut at more, those at which most is handed over are left out."""


class RelayModel(FrozenValue, frozen=True):
    """A model as stages.

    Attributes:
        source: As it was given.
        module: As it was cut: its inputs and outputs may be others.
        io: What is reported of that; None where it was not permitted.
        given: What the arena of the file as given must hold, bytes.
        single: The least that is known for one file.
        block: What the block must hold for all stages, by bits of a pointer.
        least: No stages in the orders that were tried need less, whatever happens within a stage; None where layers
            may be rewritten.
        estimate: About what stages need in the orders that were tried at least, with what is permitted.
        orders: So many were tried.
        looked_at: Stages that were found out.
        finished: The search ended by itself in every order.
    """

    source: Module
    module: Module
    io: BorderSection | None
    target: Target
    options: RelayOptions
    rules: RelayRules
    cuts: RelayCuts
    layout: RelayLayout
    stages: tuple[StageFile, ...]
    given: int
    single: int
    block: dict[int, int]
    budget: int | None
    least: int | None
    estimate: int
    orders: int
    looked_at: int
    finished: bool
    verification: RelayRun | None
    notes: tuple[str, ...]
    interrupted: bool
    seconds: float

    @property
    def needed(self) -> int:
        """What the block must hold on the target's processor, bytes."""
        return self.block[self.rules.bits]

    @property
    def withheld(self) -> bool:
        """Whether the budget is missed, so that nothing is written; see `RelayOptions.keep_best`."""
        return self.budget is not None and self.needed > self.budget and not self.options.keep_best


class _PlannedSplit(FrozenValue, frozen=True):
    """What was found in one order.

    Attributes:
        least: What stages need at the least where layers are not rewritten.
    """

    costs: RelayStageCosts
    split: RelaySplit
    least: int


class _PlannedSplits(FrozenValue, frozen=True):
    """What was found in all orders that were tried.

    Attributes:
        finished: All of them were, and each search ended by itself.
    """

    tried: tuple[_PlannedSplit, ...]
    best: _PlannedSplit
    finished: bool


@command(RelayOptions)
def relay(source: str | bytes, options: RelayOptions = _DEFAULT, hooks: Hooks = NO_HOOKS) -> RelayModel:
    """Cut a model into files that run one after the other in one block of memory, and run them against the whole.

    A limit of time is for all of that: the search leaves what verification is foreseen to take. Stages whose outputs
    differ make way for stages whose layers and border stay as they are.

    Args:
        source: The model: a path, "-" for standard input, or its bytes.
        options: How it is cut; each option may be a keyword instead.
        hooks: What is told and asked while it runs.

    Raises:
        MemschedError: The subclass and its message say which file, operator or option is at fault.
    """
    plain = tuple(name for name in options.allow if name in BY_DEFAULT)
    if plain == tuple(options.allow) or source == STANDARD_STREAM:
        return _relay(source, options, hooks)
    failures = Failures()
    with failures.left_out("stages with rewritten layers or another border"):
        return _relay(source, options, hooks)
    found = _relay(source, dataclasses.replace(options, allow=plain), hooks)
    return dataclasses.replace(found, notes=(*(one.told() for one in failures.found), *found.notes))


def _relay(source: str | bytes, options: RelayOptions, hooks: Hooks) -> RelayModel:
    limits = limits_of(options, options.seed, executor=hooks.executor)
    run = Run.of(limits, stop=hooks.stop, on_progress=hooks.on_progress)
    task = _task_of(source, options, run)
    module, rules = task.cut.module, task.rules
    searching = run.until(1 - _share_to_end(module, options, limits.time_limit))
    found = _search(module, task.prepared, rules, options, searching, task.budget)
    best = found.best
    single = min(task.given, best.costs.needed((0, len(best.costs.cuts.order))))
    files, layout, block = _best_files(best, searching, task.budget, single)
    check_segments(module, [one.segment for one in files])
    verification: RelayRun | None = None
    notes: tuple[str, ...] = ("verification was not asked for",)
    interrupted = run.stop()
    if options.verify:
        verification, notes = _verified(task.cut, task.data, files, rules, options, run)
    return RelayModel(
        source=task.source,
        module=module,
        io=task.cut.io,
        target=task.target,
        options=options,
        rules=rules,
        cuts=best.costs.cuts,
        layout=layout,
        stages=files,
        given=task.given,
        single=single,
        block=block,
        budget=task.budget,
        least=None if _rewriting(options) else min(*(one.least for one in found.tried), block[rules.bits]),
        estimate=min(*(one.split.estimate for one in found.tried), block[rules.bits]),
        orders=len(found.tried),
        looked_at=sum(one.split.looked_at for one in found.tried),
        finished=found.finished,
        verification=verification,
        notes=notes,
        interrupted=interrupted,
        seconds=run.elapsed(),
    )


class _RelayTask(FrozenValue, frozen=True):
    """A model that is to be cut.

    Attributes:
        source: The model as given.
        given: What it takes, bytes, as ``budget``.
    """

    data: bytes
    source: Module
    target: Target
    rules: RelayRules
    cut: CutModel
    prepared: TargetModule
    given: int
    budget: int | None


def _task_of(source: str | bytes, options: RelayOptions, run: Run) -> _RelayTask:
    asked = parse_budget(options.budget) if isinstance(options.budget, str) else options.budget
    data, path = read_source(source)
    module = load_module(data, path, stated(options.input_shapes, options.dims))
    target = load_target(options.target or "tflm")
    rules = relay_rules_of(module, target)
    if rules is None:
        raise UsageError(
            f"'{module.path}' for target '{target.name}' is not executed in one block of memory",
            code="no-block",
            action="give a TFLite model and --target tflm, or a target like it",
        )
    rules.check(module)
    if options.verify:
        check_runner(module, target)
    in_place, cut = "inplace" in options.allow, CutModel(module, data)
    prepared = prepare(module, target, in_place=in_place)

    def requires(file: bytes) -> int:
        return rules.needs(file).total(rules.bits)

    given = requires(data)
    if "io" in options.allow:
        cut = bordered(cut, prepared, requires, options, run)
        prepared = prepare(cut.module, target, in_place=in_place) if cut.borders else prepared
    if not cut.module.graphs[0].ops:
        raise ModelError(f"'{cut.module.path}' has no operators: there is nothing to cut", code="no-operators")
    budget = asked.of(given) if isinstance(asked, Percentage) else asked
    return _RelayTask(data, module, target, rules, cut, prepared, given, budget)


def _best_files(
    best: _PlannedSplit, run: Run, budget: int | None, single: int
) -> tuple[tuple[StageFile, ...], RelayLayout, dict[int, int]]:
    """Return the stages' files, where what they hand over lies, and the bytes of the block by the bits of a pointer.

    Args:
        single: Bytes that the model takes in one stage.
    """
    costs = best.costs
    files, layout = _optimized(best, run, budget)
    block = _block(costs, files, layout)
    whole = (0, len(costs.cuts.order))
    if whole in costs.files and block[costs.rules.bits] > round_up(single):
        # What is handed over lies apart and must be movable, which may take more than cutting saves.
        files, layout = (costs.files[whole],), lay_out(costs.cuts, [whole])
        block = _block(costs, files, layout)
    return files, layout, block


def _rewriting(options: RelayOptions) -> bool:
    return bool({"tile", "remat"} & set(options.allow))


def _share_to_end(module: Module, options: RelayOptions, time_limit: float | None) -> float:
    """Return the share of the time that is left for verification and for writing."""
    if time_limit is None:
        return 0.0
    inputs = [module.graphs[0].tensors[tensor].dtype for tensor in module.graphs[0].inputs]
    specials = applying([(dtype, False) for dtype in inputs if dtype in np.sctypeDict])
    # The whole model runs as well, on each input twice, and once on each kind of special values.
    runs = (1 + STAGED) * (RUNS * INVOKES + len(specials)) if options.verify else 0
    seconds = _SECONDS_TO_END + runs * sum(op.macs for op in module.graphs[0].ops) / MachinePace.REFERENCE_MACS
    return min(_MOST_TO_VERIFY, seconds / max(time_limit, _SECONDS_TO_END))


def _search(
    module: Module, prepared: TargetModule, rules: RelayRules, options: RelayOptions, run: Run, budget: int | None
) -> _PlannedSplits:
    """Look for stages in all orders."""
    orders = _orders(module, prepared, options, run)
    cutting = capability(module, Stages)
    together, cutter = cutting.together(module), cutting.cutter(module)
    found: list[_PlannedSplit] = []
    for number, order in enumerate(orders):
        cuts = RelayCuts.of(module.graphs[0], order, together)
        part = _part_of(run, ORDER_SHARE, _CUT_SHARE, number, len(orders))
        if found and part.over():
            break
        costs = RelayStageCosts(module, prepared.lowered[0].graph, cuts, rules, options, part, cutter)
        split = search(_places(cuts), costs, part, most=options.stages, enough=budget)
        least = split.least
        if _rewriting(options) and split.needed > (budget or 0):
            # What the order alone does is known in a moment, and the best so far while layers are rewritten.
            costs.rewriting = True
            limited = dataclasses.replace(part, stop=_either(part.stop, costs.spent))
            split = search(_places(cuts), costs, limited, most=options.stages, enough=budget)
        found.append(_PlannedSplit(costs, split, least))
    best = min(found, key=lambda one: (max(one.split.needed, budget or 0), len(one.split.stages), one.split.needed))
    return _PlannedSplits(tuple(found), best, len(found) == len(orders) and all(one.split.ended for one in found))


def _part_of(run: Run, first: float, last: float, number: int, count: int) -> Run:
    """Return the ``number``-th of ``count`` runs between two shares of a run: of work one part, of time what is left.

    What takes less time than it might leaves it to the others; work is counted by each for itself.
    """
    if run.limits.time_limit is None:
        return run.within((last - first) / count)
    return run.until(last).within(1 / (count - number))


def _either(first: Callable[[], bool], second: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: first() or second()


def _places(cuts: RelayCuts) -> tuple[int, ...]:
    if len(cuts.places) <= _MOST_PLACES:
        return cuts.places
    cheap = sorted(cuts.places[1:-1], key=lambda place: (cuts.handed[place], place))[: _MOST_PLACES - 2]
    return (cuts.places[0], *sorted(cheap), cuts.places[-1])


def _orders(module: Module, prepared: TargetModule, options: RelayOptions, run: Run) -> list[tuple[int, ...]]:
    """Return orders in which the model is cut: the file's, the one of least memory, and one that hands little over."""
    graph = module.graphs[0]
    orders = [tuple(range(len(graph.ops)))]
    if "reorder" in options.allow:
        plans = plan_module(module, prepared.lowered, _part_of(run, 0.0, ORDER_SHARE, 0, 1), solver="auto")
        orders += [plans[0].schedule.order, *(one.schedule.order for one in prepared.baselines.values())]
    distinct: dict[tuple[int, ...], tuple[int, ...]] = {}
    for order in orders:
        # Orders that hand the same over at every place are cut alike; what is in a stage is ordered anew.
        distinct.setdefault(RelayCuts.of(graph, order).handed, order)
    return list(distinct.values())


def _optimized(best: _PlannedSplit, run: Run, budget: int | None) -> tuple[tuple[StageFile, ...], RelayLayout]:
    """Return the files of the chosen stages, each with no more extra work than the block makes it do."""
    costs, stages = best.costs, best.split.stages
    layout = lay_out(costs.cuts, stages)
    limit = max(best.split.needed, budget or 0)
    for number, stage in enumerate(stages):
        if run.over() or (stage in costs.optimized and not costs.files[stage].extra_macs):
            continue
        share = _part_of(run, _CUT_SHARE, 1.0, number, len(stages))
        costs.improve(stage, max(0, limit - layout.kept[number]), share, run.until(_SETTLED_SHARE).over)
    return tuple(costs.files[stage] for stage in stages), layout


def _block(costs: RelayStageCosts, files: Sequence[StageFile], layout: RelayLayout) -> dict[int, int]:
    """Return what the block must hold for these stages, by bits of a pointer."""
    tensors = {tensor.name: number for number, tensor in enumerate(costs.module.graphs[0].tensors)}
    places = [
        dict(zip((tensors[name] for name in one.segment.outputs), one.needs.outputs, strict=True)) for one in files
    ]
    return {
        bits: layout.block_bytes([one.needs.total(bits) for one in files], places) for bits in files[0].needs.persistent
    }


def _verified(
    cut: CutModel, data: bytes, files: Sequence[StageFile], rules: RelayRules, options: RelayOptions, run: Run
) -> tuple[RelayRun, tuple[str, ...]]:
    """Run the stages one after the other against the whole model: in their own runtime, or in the format's usual one.

    Args:
        data: The file as given.

    Raises:
        VerificationError: The outputs differ.
    """
    models, notes = [one.data for one in files], []
    allowed = TOLERANCE if _rewriting(options) else 0.0
    seconds = None if run.limits.time_limit is None else max(0.0, run.remaining() - _SECONDS_TO_END)
    try:
        segments = [one.segment for one in files]
        found = rules.execute(
            cut.module,
            data,
            segments,
            models,
            seed=options.seed,
            tolerance=allowed,
            seconds=seconds,
            borders=cut.borders,
        )
    except RuntimeUnavailableError as error:
        notes.append(str(error))
        found = RelayRun(run_in_a_row(cut.module, cut.data, models, seed=options.seed, tolerance=allowed))
        notes += ["the whole model was run with its new inputs and outputs, too"] if cut.borders else []
    one = found.verification
    if one.outputs_equal is False and (one.relative_error is None or one.relative_error > allowed):
        raise VerificationError(
            f"the stages' outputs differ from the model's in {one.runtime} {one.apart}: nothing is "
            f"written; please report it. {'' if one.special_wrong else one.reason or ''}".rstrip()
        )
    return found, (*notes, *one.notes)
