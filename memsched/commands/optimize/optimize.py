"""The pipelines behind the commands, as plain functions over values: `optimize`, `verify`, `load`."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Literal

from memsched.arguments import checked
from memsched.commands.declared import check_given
from memsched.commands.failures import defects_end_the_run
from memsched.commands.levels import LONG_SEARCH, named
from memsched.commands.optimize.analysis import Source, budget_in_bytes, on_chip
from memsched.commands.optimize.branch import guarantee_of
from memsched.commands.optimize.choose import Permissions, find
from memsched.commands.optimize.fallback import finish_best
from memsched.commands.optimize.finish import told_apart
from memsched.commands.optimize.finished import FinishRequest
from memsched.commands.optimize.over_sizes import RangeRequest, optimize_over_sizes
from memsched.commands.optimize.place import Request, prepare, rules_of, target_named
from memsched.commands.optimize.pools import plan_pools
from memsched.commands.optimize.possible import possible
from memsched.commands.optimize.reading import budget_of, check_percentages, load_options, sized_source, split_ranges
from memsched.commands.optimize.report import Outcome, build
from memsched.commands.optimize.reserve import search_of, search_until_verification
from memsched.commands.optimize.session import SessionName, SessionRequest, optimize_for_session
from memsched.commands.optimize.session_candidates import SessionSource
from memsched.commands.optimize.suggested import suggested
from memsched.commands.optimize.trials import RunOutcome, TrialRequest
from memsched.commands.options import OptimizeOptions, VerifyOptions
from memsched.commands.results import OptimizeResult, OutputsDifferError, hold_to_budget
from memsched.commands.verify import ModelComparison, compare
from memsched.commands.without_effect import refuse_for_range, refuse_for_session
from memsched.formats.files import load_module
from memsched.formats.known import format_in
from memsched.formats.module import Module, OrderGuarantee
from memsched.formats.stated_sizes import stated
from memsched.planning.write import check_request
from memsched.report.values.optimize import SuggestionRow
from memsched.runtimes.known import runtime_of
from memsched.runtimes.runtime import Opening
from memsched.runtimes.values import RunnerName
from memsched.search.limits import Limits
from memsched.search.progress import Progress
from memsched.search.run import Run
from memsched.targets.model import BudgetFor

__all__ = ["load", "optimize", "verify"]

_NOT_CUT = (
    "layers are not cut: a size that was stated or seen in a run follows from no input, so that a runtime could not "
    "refuse another one"
)


@checked
def load(
    source: Source,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    shapes_from_run: str | None = None,
) -> Module:
    """Read an ONNX or TFLite model; its ``graph`` is the main graph.

    Args:
        input_shapes: Shapes of inputs that the model leaves open, by tensor name.
        dims: Values of symbolic dimensions, by name.
        shapes_from_run: A file of numpy (.npz) with an array for each input, or "random": the model is run on these
            once, and sizes that nothing states are those that were seen; None: it is not run.

    Raises:
        ModelError: It cannot be read, or is not a valid model.
        UsageError: The model does not run on these inputs.
        UnknownShapeError: A size is unknown; the message names the option that states it.
    """
    data, path, _ = sized_source(source, input_shapes)
    return load_module(data, path, load_options(data, path, stated(input_shapes, dims), shapes_from_run))


_DEFAULT = OptimizeOptions()
_COMPARED = VerifyOptions()
"""What the command line has by default, too."""


@checked
def optimize(
    source: Source,
    *,
    target: str | None = _DEFAULT.target,
    budget: int | str | None = _DEFAULT.budget,
    budget_for: BudgetFor | None = _DEFAULT.budget_for,
    keep_best: bool = _DEFAULT.keep_best,
    time_limit: float | None = _DEFAULT.time_limit,
    effort: float | None = _DEFAULT.effort,
    solver: str = _DEFAULT.solver,
    partitions: int | Literal["auto"] = _DEFAULT.partitions,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int | tuple[int, ...]] | None = None,
    shapes_from_run: str | None = _DEFAULT.shapes_from_run,
    order_guarantee: OrderGuarantee | None = _DEFAULT.order_guarantee,
    control_dependencies: bool = _DEFAULT.control_dependencies,
    tflm_plan: bool | None = _DEFAULT.tflm_plan,
    in_place: bool = _DEFAULT.keywords()["in_place"],
    tile: bool = _DEFAULT.keywords()["tile"],
    remat: bool = _DEFAULT.keywords()["remat"],
    algebra: bool = _DEFAULT.keywords()["algebra"],
    reassociate: bool = _DEFAULT.keywords()["reassociate"],
    fuse: bool = _DEFAULT.keywords()["fuse"],
    branch: bool = _DEFAULT.keywords()["branch"],
    io: bool = _DEFAULT.keywords()["io"],
    free_pieces: bool = _DEFAULT.keywords()["free_pieces"],
    max_extra_macs: float = _DEFAULT.max_extra_macs,
    max_slowdown: float | None = _DEFAULT.max_slowdown,
    verify: bool = _DEFAULT.verify,
    seed: int = _DEFAULT.seed,
    workers: int = _DEFAULT.workers,
    executor: Executor | None = None,
    session: SessionName | None = _DEFAULT.session,
    output: str | None = None,
    words: Sequence[str] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> OptimizeResult:
    """Order a model's operators so that it needs the least activation memory, prove it, and check it by running both.

    Args:
        target: Name of a built-in target or path of a TOML file; by default the format's runtime.
        budget: What the arena may take, in bytes, as "256KB", or as "50%" of what the file as given requires; the
            result says whether it is met.
        budget_for: For TensorFlow Lite Micro: what is made small, the whole "arena" or its planned part, "activations";
            None: as the target says.
        keep_best: Let a result that misses the budget be saved, too.
        time_limit: Seconds for the search; None for no limit.
        effort: Work for the search instead of seconds, about what an idle machine does in so many: the result is then
            the same on every machine.
        solver: "auto", "exact", "cpsat", "backtrack", "greedy" or "file".
        partitions: Cut the graph into so many stages and order each apart; 1 never does, "auto" where it helps.
        input_shapes: Shapes of inputs that the model leaves open, by tensor name.
        dims: Values of symbolic dimensions, by name; or the least and the largest of one that stays open (and of what
            number lengths are multiples): large values are then computed in loops, chosen by runs at several sizes.
        shapes_from_run: As for `load`; the outputs are compared on these inputs, too.
        order_guarantee: What makes ONNX Runtime keep the order: "session" (options that the report lists), "pins"
            (dependencies in the model), "default" (the best order that sessions without options can be led to) or
            "none". None: "session", unless both models are run and a session without options needs more than before:
            then the file as given is the result, and the report says what was held back.
        control_dependencies: Write the order into a TFLite model as metadata that delegates respect, too.
        tflm_plan: Write the tensors' offsets into the model as TensorFlow Lite Micro's memory plan; None: where less
            is required with one, and for a target of its that lets tensors share bytes.
        in_place: Permit the target's in-place rules.
        tile: Permit to compute groups of layers piece by piece.
        remat: Permit to compute values again instead of keeping them.
        algebra: Permit to compute operators otherwise with the same values, where less waits in memory then: equal ones
            once, pads and crops in a row as one, what reads a concatenation for each of its inputs.
        reassociate: Permit with that to add up sums over concatenations, and with ranges in ``dims`` over long axes, in
            another order, which rounds floats otherwise.
        fuse: Permit one operator of ONNX Runtime's in place of a chain: x * sigmoid(x), and GELU by erf or tanh. Only
            it runs such a file, unless the operator set has that operator; outputs may differ in their last bits.
        branch: Permit to make large values in a branch of an If, of which ONNX Runtime keeps no memory pattern, where
            sessions without options were seen to take less of the process so, with the same bits. ``order_guarantee``
            is "default" then unless another one is named.
        io: Permit other inputs and outputs: quantised ones in place of floats that are quantised at once, and other
            axes in place of those that are moved at once. The caller has to change; the report says how.
        free_pieces: Permit layers in pieces where that costs nothing: no work is done twice, no time is lost beyond
            ``max_slowdown`` as estimated, and runs of both models give the same bits. They are looked for shortly, and
            only with ``verify``; ``tile``, ``remat``, ``fuse`` and ``io`` take their place.
        max_extra_macs: Multiply-accumulates, in percent of the model's (0 to 10,000), that may be computed twice; for
            values computed again, bytes moved count as well.
        max_slowdown: Time, in percent of the model's as estimated for one thread, that pieces and values computed again
            may cost where the target has a price of an operator, as ONNX Runtime's has; what the runtime keeps in the
            process for each operator is weighed in, too. None: memory and multiply-accumulates alone decide.
        verify: Run both models on random inputs, where their runtime is installed.
        workers: Processes that search independent parts.
        executor: Where these are searched instead, such as what a dask client's ``get_executor`` gives; the result is
            the same.
        session: Plan and write the graph that ONNX Runtime executes in a session without options ("default", "all") or
            at level "extended" or "basic", as it optimised it itself; only the order is changed, and outputs may differ
            as far as that level rounds otherwise.
        output: Path that the report names as the model's; nothing is written there.
        words: The command line of this call, without the program's name. Where nothing was gained, it is tried what
            else would help, and the report suggests the same command with more permitted. None: nothing is tried.
        on_progress: Told how far the search is.
        stop: Asked often; True ends the search with the best order so far.

    Returns:
        The model's bytes, which are the input's where nothing better was found, and the report.

    Raises:
        MemschedError: The subclass and its message say which file, tensor or option is at fault.
        VerificationError: The outputs differ, and MEMSCHED_DEFECTS=raise is in the environment; else the next best file
            is the result, and the report says which one was left out.
    """
    check_given(OptimizeOptions, budget_for=budget_for, session=session, order_guarantee=order_guarantee)
    started = time.monotonic()
    limits = Limits(None if effort is not None else time_limit, seed, workers, executor=executor, effort=effort)
    run = Run.of(limits, started, stop=stop, on_progress=on_progress)
    check_percentages(max_extra_macs, max_slowdown)
    asked = budget_of(budget)
    data, path, sized = sized_source(source, input_shapes)
    fixed, ranges = split_ranges(dims)
    asked_for = Permissions(tile, remat, io, max_extra_macs, fuse, free_pieces and verify, algebra, reassociate, branch)
    told = {"budget_for": budget_for, "tflm_plan": tflm_plan, "control_dependencies": control_dependencies}
    if ranges:
        refuse_for_range(
            {**told, "order_guarantee": order_guarantee, "session": session, "shapes_from_run": shapes_from_run}
            | {"max_extra_macs": None if max_extra_macs == _DEFAULT.max_extra_macs else max_extra_macs}
            | {"allow": named(False, False, tile, remat, io=io, branch=branch)}
        )
        return hold_to_budget(
            optimize_over_sizes(
                data,
                path,
                stated(input_shapes, fixed),
                Request(search_of(run), solver, partitions),
                RangeRequest(ranges, target, in_place, fuse, reassociate, asked, max_slowdown, verify, seed, output),
            ),
            keep_best,
        )
    options = load_options(data, path, stated(input_shapes, fixed), shapes_from_run, seed)
    if session is not None:
        refuse_for_session({**told, "order_guarantee": order_guarantee})
        rules = target_named(target, format_in(data).name, path)
        permitted = dataclasses.replace(asked_for, free=False)
        asked_session = SessionRequest(session, rules, in_place, asked, permitted, verify, seed, output)
        within = search_of(run)
        request = Request(within, solver, partitions, Opening("session"), within.deadline(), slowdown=max_slowdown)
        return hold_to_budget(optimize_for_session(data, path, options, request, asked_session), keep_best)
    module = load_module(data, path, options)
    opened = guarantee_of(order_guarantee, module, branch=branch, verify=verify)
    check_request(module, opened, control_dependencies)
    rules = rules_of(module, target, budget_for, verify=verify)
    plan = runtime_of(module, rules).memory_plans.wanted(tflm_plan)
    rules = runtime_of(module, rules).memory_plans.rules(plan)
    prepared = prepare(module, rules, in_place=in_place)
    budget_bytes, budget_notes = budget_in_bytes(asked, module, prepared, Opening(opened))
    opening = Opening(opened, plan)
    within = search_until_verification(run, module, data, options, prepared) if verify else search_of(run)
    request = Request(within, solver, partitions, opening, within.deadline(), slowdown=max_slowdown)
    permitted = possible(asked_for, module, options, rules, opening)
    final = find(module, data, prepared, options, request, budget_bytes, permitted)
    interrupted = request.stopped()
    done = finish_best(
        final,
        request,
        FinishRequest(
            module,
            data,
            prepared,
            options,
            opening,
            run,
            control_dependencies=control_dependencies,
            budget=budget_bytes,
            verify=verify,
            guarded=order_guarantee is None,
            exact=permitted.only_free,
            may_end=stop is not None,
            limited=time_limit not in {_DEFAULT.time_limit, LONG_SEARCH},
        ),
        branch=branch,
    )
    final, verification = done.final, done.verification
    main = final.placed.plans[0]
    pools = plan_pools(main, prepared.target, run.quiet())
    helpful: tuple[SuggestionRow, ...] = ()
    if words and time_limit != 0 and not run.late():
        names = named(solver != "file", in_place, tile, remat, fuse, io, algebra, reassociate, branch)
        trial = TrialRequest(names, tuple(words), permitted, budget_bytes, limits)
        tried = RunOutcome(module, rules, prepared, final.placed, options, request, trial, final.whole)
        source_read = SessionSource(data, path, options, "default", rules, in_place, permitted, None, seed)
        helpful = suggested(tried, done, source_read, facts=done.facts, named=order_guarantee is not None or branch)
    outcome = Outcome(
        "optimize",
        module,
        final.prepared,
        final.placed.plans,
        final.placed.allocation,
        budget_bytes,
        dataclasses.replace(done.written, unchanged=done.written.unchanged and not sized),
        output,
        verification,
        (
            *budget_notes,
            *done.notes,
            *(() if permitted.tile == tile else (_NOT_CUT,)),
        ),
        interrupted=interrupted or done.ended,
        tflm=done.facts,
        pools=pools,
        rewritten=final.module if final.rewritten else None,
        rewrites=final.rewrites,
        failures=request.failures.found,
        extra_macs=final.extra_macs,
        borders=final.borders,
        on_chip=on_chip(final.module, main, prepared.target, limits),
        requirement=done.needed,
        runtime=runtime_of(module, prepared.target, opening).traits.name,
        litert=done.figures.get("litert"),
        session=done.figures.get("session"),
        held_back=done.held_back if done.written.unchanged else None,
        interpreter=done.interpreter,
        slight=done.slight,
        sessions=done.sessions,
        suggestions=helpful,
    )
    report = build(outcome, seed=seed, seconds=time.monotonic() - started)
    if verification is not None and done.wrong and defects_end_the_run():
        raise OutputsDifferError(told_apart(verification, final, done.facts), report)
    return hold_to_budget(
        OptimizeResult(
            model=done.written.model,
            report=report,
            schedule=main.schedule,
            allocation=final.placed.allocation,
            module=module,
            graph=main.graph,
            verification=verification,
            budget_met=None if report.values.budget is None else report.values.budget.met,
            interrupted=interrupted or done.ended,
            work=run.meter.done,
        ),
        keep_best,
    )


@checked
def verify(
    first: Source,
    second: Source,
    *,
    runs: int = _COMPARED.runs,
    rtol: float = _COMPARED.rtol,
    atol: float = _COMPARED.atol,
    seed: int = _COMPARED.seed,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    runtime: RunnerName | None = None,
) -> ModelComparison:
    """Run two models of one format on the same random inputs in their real runtime and compare outputs and peaks.

    Args:
        runs: Input sets to compare on.
        rtol: Outputs may differ by ``atol + rtol * |output of the first|`` (ONNX), or by ``atol`` (TFLite).
        runtime: "onnxruntime", "litert" or "tflm" (TensorFlow Lite Micro); by default ONNX Runtime or LiteRT, whichever
            runs the models' format.

    Raises:
        ModelError: A file cannot be read.
        RuntimeUnavailableError: The runtime is not installed.
        UsageError: The models are of two formats.
    """
    check_given(VerifyOptions, runtime=runtime, runs=runs, rtol=rtol, atol=atol)
    sources = [source if isinstance(source, bytes) else os.fspath(source) for source in (first, second)]
    options = stated(input_shapes, dims)
    return compare(sources[0], sources[1], options, runs=runs, rtol=rtol, atol=atol, seed=seed, runtime=runtime)
