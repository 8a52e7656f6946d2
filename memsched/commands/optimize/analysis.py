"""What a model needs as it stands: the pipeline behind `analyze`, and what it has in common with `optimize`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from memsched.arguments import checked
from memsched.commands.declared import check_given
from memsched.commands.levels import named
from memsched.commands.optimize.on_chip_report import on_chip_section
from memsched.commands.optimize.permissions import Permissions
from memsched.commands.optimize.place import ModulePlan, Request, prepare, required_as_given, rules_of, target_named
from memsched.commands.optimize.pools import plan_pools
from memsched.commands.optimize.possible import too_large
from memsched.commands.optimize.reading import budget_of, check_percentages, load_options, sized_source, split_ranges
from memsched.commands.optimize.report import Outcome, build
from memsched.commands.options import AnalyzeOptions, OptimizeOptions
from memsched.commands.results import AnalyzeResult
from memsched.commands.without_effect import refuse_for_range
from memsched.formats.files import load_module
from memsched.formats.known import format_in
from memsched.formats.module import Module
from memsched.formats.stated_sizes import stated
from memsched.graph.dag import in_order
from memsched.planning.orders import plan_allocation, plan_module
from memsched.planning.values import TargetModule
from memsched.report.values.optimize import SuggestionRow
from memsched.report.values.rewrites import OnChipSection
from memsched.runtimes.graph_plan import GraphPlan
from memsched.runtimes.known import runtime_of
from memsched.runtimes.runtime import AS_TOLD, Opening
from memsched.search.limits import Limits
from memsched.search.progress import Progress
from memsched.search.run import Run
from memsched.targets.model import BudgetFor, Target
from memsched.units import Percentage

if TYPE_CHECKING:
    from memsched.commands.curve import Curve
    from memsched.commands.optimize.frontier import Frontier

__all__ = ["Source", "analyze", "budget_in_bytes", "on_chip"]

_ANALYZE_POOLS_EFFORT = 3.0
"""For each search that places the buffers of the model as it stands in a target's pools."""

_FRONTIER_ENDED = (
    "the search for the frontier was ended early: a longer --time-limit, or --effort, may find better steps"
)

_READ_ONLY = AnalyzeOptions()
"""What the command line has by default, too."""

Source = str | os.PathLike[str] | bytes
"""A path, "-" for standard input, or a model's bytes."""


@checked
def analyze(
    source: Source,
    *,
    target: str | None = _READ_ONLY.target,
    budget: int | str | None = _READ_ONLY.budget,
    budget_for: BudgetFor | None = _READ_ONLY.budget_for,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int | tuple[int, ...]] | None = None,
    shapes_from_run: str | None = _READ_ONLY.shapes_from_run,
    in_place: bool = True,
    frontier: bool = _READ_ONLY.frontier,
    reorder: bool = True,
    tile: bool = True,
    remat: bool = True,
    max_extra_macs: float = _READ_ONLY.max_extra_macs,
    time_limit: float | None = _READ_ONLY.time_limit,
    effort: float | None = _READ_ONLY.effort,
    seed: int = 0,
    rows: bool = True,
    words: Sequence[str] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> AnalyzeResult:
    """Return what a model needs as it stands: its peak and arena in the file's order, a bound, and who is to blame.

    Arguments as for `optimize`; those after ``frontier`` are for that search alone.

    Args:
        dims: Values of symbolic dimensions, by name; or the least and the largest of one: the report then has a curve,
            and its other figures are those of the largest size that fits into the budget.
        frontier: Look for the least peaks with rising extra work as well; the report's section of that name.
        reorder: Permit the frontier other orders than the file's.
        rows: Whether the report has a row for each step, buffer and layer; else it has those of the peak's steps alone.
        words: As for `optimize`.

    Raises:
        MemschedError: The subclass and its message say which file, tensor or option is at fault.
    """
    check_given(AnalyzeOptions, budget_for=budget_for)
    started = time.monotonic()
    limits = Limits(None if effort is not None else time_limit, seed, effort=effort)
    check_percentages(max_extra_macs)
    asked = budget_of(budget)
    data, path, _ = sized_source(source, input_shapes)
    fixed, ranges = split_ranges(dims)
    curve: Curve | None = None
    known = stated(input_shapes, fixed)
    if ranges:
        from memsched.commands.curve import find_curve

        refuse_for_range({"budget_for": budget_for})
        curve = find_curve(data, path, known, ranges, target_named(target, format_in(data).name, path), asked, seed)
        known = curve.options
    options = load_options(data, path, known, shapes_from_run, seed)
    module = load_module(data, path, options)
    rules = rules_of(module, target, budget_for)
    prepared = prepare(module, rules, in_place=in_place)
    budget_bytes, budget_notes = budget_in_bytes(asked, module, prepared, AS_TOLD)
    given = prepared.baselines["file_order"]
    plans = plan_module(module, prepared.lowered, Run(Limits()), solver="file", known=given)
    main = plans[0]
    needed = required_as_given(module, prepared, AS_TOLD) if curve is None else curve.required
    allocation = plan_allocation(main, given, prepared.target.alignment_bytes)
    runtime = runtime_of(module, prepared.target)
    facts = runtime.facts(module)
    pools = plan_pools(main, prepared.target, Run(Limits(None, effort=_ANALYZE_POOLS_EFFORT)))
    found: Frontier | None = None
    if frontier:
        from memsched.commands.optimize.frontier import find_frontier

        solver = "auto" if reorder else "file"
        request = Request(Run.of(limits, stop=stop, on_progress=on_progress), solver)
        found = find_frontier(
            module, prepared, options, request, Permissions(tile, remat, extra_percent=max_extra_macs)
        )
    helpful: tuple[SuggestionRow, ...] = ()
    if words and not frontier and curve is None and not too_large(module):
        from memsched.commands.optimize.suggested import suggested
        from memsched.commands.optimize.trials import RunOutcome, TrialRequest

        asked_for = TrialRequest(named(reorder, in_place), tuple(words), Permissions(), budget_bytes)
        as_given = ModulePlan(plans, allocation, None, needed)
        opening = Opening(memory_plan=runtime.memory_plans.wanted(None))
        request = Request(Run(limits, started), "file", opening=opening, slowdown=OptimizeOptions().max_slowdown)
        asked_of = RunOutcome(module, rules, prepared, as_given, options, request, asked_for)
        helpful = suggested(asked_of, facts=facts)
    figures = runtime.traits.figures((needed, needed))
    outcome = Outcome(
        "analyze",
        module,
        prepared,
        plans,
        allocation,
        budget_bytes,
        notes=(
            *budget_notes,
            *(() if found is None or found.finished else (_FRONTIER_ENDED,)),
        ),
        interrupted=found is not None and stop is not None and stop(),
        tflm=facts,
        pools=pools,
        on_chip=on_chip(module, main, prepared.target, Limits()),
        frontier=None if found is None else found.rows(),
        requirement=(needed, needed),
        runtime=runtime.traits.name,
        litert=figures.get("litert"),
        session=figures.get("session"),
        suggestions=helpful,
        curve=None if curve is None else curve.section,
        whole_range=None if curve is None else curve.whole,
    )
    report = build(outcome, seed=seed, seconds=time.monotonic() - started, rows=rows)
    return AnalyzeResult(module, main.graph, main.schedule, allocation, report)


def on_chip(module: Module, main: GraphPlan, target: Target, limits: Limits) -> OnChipSection | None:
    """Return how the main graph runs on an accelerator with on-chip memory; None for any other target."""
    if not target.on_chip_bytes:
        return None
    from memsched.onchip.plan import plan

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
