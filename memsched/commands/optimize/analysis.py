"""What a model needs as it stands: the pipeline behind `analyze`, and what it has in common with `optimize`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memsched.base.frozen import FrozenValue
from memsched.base.units import Percentage
from memsched.commands.calls import NO_HOOKS, Hooks, command, limits_of
from memsched.commands.levels import BY_DEFAULT
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.on_chip_report import on_chip_section
from memsched.commands.optimize.permissions import Permissions
from memsched.commands.optimize.place import ModulePlan, Request, prepare, required_as_given, rules_of, target_named
from memsched.commands.optimize.pools import plan_pools
from memsched.commands.optimize.possible import too_large
from memsched.commands.optimize.reading import (
    budget_of,
    check_percentages,
    load_options,
    read_model,
    sized_source,
    split_ranges,
)
from memsched.commands.optimize.record import Record
from memsched.commands.optimize.report import report_of
from memsched.commands.options import AnalyzeOptions, Options
from memsched.commands.results import AnalyzeResult
from memsched.commands.without_effect import refuse_for_range
from memsched.formats.known import format_in
from memsched.formats.module import LoadOptions, Module
from memsched.formats.stated_sizes import stated
from memsched.graph.dag import in_order
from memsched.graph.model import Allocation
from memsched.plan.orders import plan_allocation, plan_module
from memsched.plan.values import TargetModule
from memsched.report.values.rewrites import OnChipSection
from memsched.report.values.verdict import AlternativeRow
from memsched.runtimes.arena_facts import ArenaFacts
from memsched.runtimes.graph_plan import GraphPlan
from memsched.runtimes.known import runtime_of, usual_offer
from memsched.runtimes.runtime import AS_TOLD, Opening, Requirement
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.model import Target

if TYPE_CHECKING:
    from memsched.commands.curve import Curve
    from memsched.commands.optimize.frontier import Frontier

__all__ = ["Source", "analyze", "budget_in_bytes", "on_chip"]

_ANALYZE_POOLS_EFFORT = 3.0
"""For each search that places the buffers of the model as it stands in a target's pools."""

FRONTIER_ENDED = (
    "the search for the frontier was ended early: a longer --time-limit, or --effort, may find better steps"
)

_READ_ONLY = AnalyzeOptions()

Source = str | os.PathLike[str] | bytes
"""A path, "-" for standard input, or a model's bytes."""


class _Analyzed(FrozenValue, frozen=True):
    """A model as it stands.

    Attributes:
        options: What is stated of its sizes.
        budget: Bytes; None for no budget.
        notes: Where they come from.
        needed: What the file requires.
        curve: What it needs at the sizes in a range, of which the largest that fits is read here.
        run: The whole command.
    """

    module: Module
    options: LoadOptions
    rules: Target
    prepared: TargetModule
    plans: tuple[GraphPlan, ...]
    allocation: Allocation
    budget: int | None
    notes: tuple[str, ...]
    needed: Requirement
    curve: Curve | None
    run: Run


@command(AnalyzeOptions)
def analyze(source: Source, options: AnalyzeOptions = _READ_ONLY, hooks: Hooks = NO_HOOKS) -> AnalyzeResult:
    """Return what a model needs as it stands: its peak and arena in the file's order, a bound, and who is to blame.

    With a range in ``dims`` the report has a curve, and its other figures are those of the largest size that fits into
    the budget. With ``frontier`` it has the least peaks with rising extra work as well.

    Args:
        source: The model: a path, "-" for standard input, or its bytes.
        options: What is looked at; each option may be a keyword instead.
        hooks: What is told and asked while it runs.

    Raises:
        MemschedError: The subclass and its message say which file, tensor or option is at fault.
    """
    run = Run.of(limits_of(options), time.monotonic(), stop=hooks.stop, on_progress=hooks.on_progress)
    found = _analyzed(source, options, run)
    main, runtime = found.plans[0], runtime_of(found.module, found.prepared.target)
    facts = runtime.facts(found.module)
    pools = plan_pools(main, found.prepared.target, Run(Limits(None, effort=_ANALYZE_POOLS_EFFORT)))
    frontier = _frontier(found, options) if options.frontier else None
    curve = found.curve
    as_given = ModulePlan(found.plans, found.allocation, None, found.needed)
    record = Record(
        "analyze",
        found.module,
        FinalModel(found.module, b"", found.prepared, as_given, options=found.options),
        (found.needed, found.needed),
        runtime.traits,
        budget=found.budget,
        whole_range=None if curve is None else curve.whole,
        notes=(*found.notes, *(() if frontier is None or frontier.finished else (FRONTIER_ENDED,))),
        interrupted=frontier is not None and run.stop(),
        facts=facts,
        target_reason="" if options.target else usual_offer(found.module).reason,
        pools=pools,
        curve=None if curve is None else curve.section,
        frontier=None if frontier is None else frontier.rows(),
        on_chip=on_chip(found.module, main, found.prepared.target, Limits()),
        alternatives=_helpful(found, options, hooks.words, facts),
        assumed=found.options.assumed,
    )
    report = report_of(record, seed=run.limits.seed, seconds=time.monotonic() - run.started, rows=hooks.rows)
    return AnalyzeResult(found.module, main.graph, main.schedule, found.allocation, report)


def _analyzed(source: Source, options: AnalyzeOptions, run: Run) -> _Analyzed:
    """Read a model, and plan it in the order of its file."""
    check_percentages(options.max_extra_macs)
    asked = budget_of(options.budget)
    data, path, _ = sized_source(source, options.input_shapes)
    fixed, ranges = split_ranges(options.dims)
    curve: Curve | None = None
    sizes = stated(options.input_shapes, fixed)
    if ranges:
        from memsched.commands.curve import find_curve

        refuse_for_range({"budget_for": options.budget_for})
        rules = target_named(options.target, format_in(data).name, path)
        curve = find_curve(data, path, sizes, ranges, rules, asked, run.limits.seed)
        sizes = curve.options
    read = load_options(data, path, sizes, options.shapes_from_run, run.limits.seed)
    module, read = read_model(data, path, read, run.limits.seed)
    rules = rules_of(module, options.target, options.budget_for)
    prepared = prepare(module, rules, in_place="inplace" in options.permitted)
    budget, notes = budget_in_bytes(asked, module, prepared, AS_TOLD)
    given = prepared.baselines["file_order"]
    plans = plan_module(module, prepared.lowered, Run(Limits()), solver="file", known=given)
    needed = required_as_given(module, prepared, AS_TOLD) if curve is None else curve.required
    allocation = plan_allocation(plans[0], given, prepared.target.alignment_bytes)
    return _Analyzed(module, read, rules, prepared, plans, allocation, budget, notes, needed, curve, run)


def _frontier(found: _Analyzed, options: AnalyzeOptions) -> Frontier:
    from memsched.commands.optimize.frontier import find_frontier

    allow = options.permitted
    # Its time begins now.
    request = Request(found.run.again(found.run.limits), "auto" if "reorder" in allow else "file")
    permitted = Permissions("tile" in allow, "remat" in allow, extra_percent=options.max_extra_macs)
    return find_frontier(found.module, found.prepared, found.options, request, permitted)


def _helpful(
    found: _Analyzed, options: AnalyzeOptions, words: Sequence[str] | None, facts: ArenaFacts | None
) -> tuple[AlternativeRow, ...]:
    """Return commands that would help, where the command is known that asks."""
    if not words or options.frontier or found.curve is not None or too_large(found.module):
        return ()
    from memsched.commands.optimize.suggested import suggested
    from memsched.commands.optimize.trials import RunOutcome, TrialRequest

    allow = tuple(name for name in options.permitted if name in BY_DEFAULT)
    asked = TrialRequest(allow, tuple(words), Permissions(), found.budget)
    as_given = ModulePlan(found.plans, found.allocation, None, found.needed)
    opening = Opening(memory_plan=runtime_of(found.module, found.prepared.target).memory_plans.wanted(None))
    run = Run(found.run.limits, found.run.started)
    request = Request(run, "file", opening=opening, slowdown=Options().max_slowdown)
    outcome = RunOutcome(found.module, found.rules, found.prepared, as_given, found.options, request, asked)
    return suggested(outcome, facts=facts)


def on_chip(module: Module, main: GraphPlan, target: Target, limits: Limits) -> OnChipSection | None:
    """Return how the main graph runs on an accelerator with on-chip memory; None for any other target."""
    if not target.on_chip_bytes:
        return None
    from memsched.codegen.onchip.plan import plan

    return on_chip_section(plan(in_order(module.graphs[0], main.schedule.order), target, limits))


def budget_in_bytes(
    budget: int | Percentage | None, module: Module, prepared: TargetModule, opening: Opening
) -> tuple[int | None, tuple[str, ...]]:
    """Return the budget in bytes, and a note that says where they come from if it was a part."""
    if not isinstance(budget, Percentage):
        return budget, ()
    given = required_as_given(module, prepared, opening).total
    size = budget.of(given)
    return size, (f"the budget is {budget} of the {given:,} B that the file as given requires: {size:,} B",)
