"""The pipelines behind the commands, as plain functions over values: `optimize`, `verify`, `load`."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from memsched.base.arguments import checked
from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.units import Percentage
from memsched.commands.calls import NO_HOOKS, Hooks, command, comparison, limits_of, seconds_of
from memsched.commands.declared import AUTO
from memsched.commands.failures import defects_end_the_run
from memsched.commands.levels import BY_DEFAULT, permitted_by
from memsched.commands.optimize.analysis import Source, budget_in_bytes, on_chip
from memsched.commands.optimize.as_c import as_c
from memsched.commands.optimize.branch import guarantee_of
from memsched.commands.optimize.choose import Permissions, find
from memsched.commands.optimize.executed import SessionSource
from memsched.commands.optimize.fallback import finish_best
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.finish import told_apart
from memsched.commands.optimize.finished import FinishedModel, FinishRequest
from memsched.commands.optimize.judged_sessions import session_bench
from memsched.commands.optimize.mapped import MappingRequest, leaves_less, with_mapped_weights
from memsched.commands.optimize.over_sizes import RangeRequest, optimize_over_sizes
from memsched.commands.optimize.permissions import permissions_of
from memsched.commands.optimize.place import Request, prepare, rules_of, target_named
from memsched.commands.optimize.pools import plan_pools
from memsched.commands.optimize.possible import possible
from memsched.commands.optimize.reading import (
    assumed_sizes,
    budget_of,
    check_percentages,
    load_options,
    read_model,
    sized_source,
    split_ranges,
)
from memsched.commands.optimize.record import Record
from memsched.commands.optimize.report import assumed_rows, result_of
from memsched.commands.optimize.reserve import search_of, search_until_verification
from memsched.commands.optimize.session import SessionRequest, executed_file, optimize_for_session
from memsched.commands.optimize.stated_session import with_session_stated
from memsched.commands.optimize.suggested import suggested
from memsched.commands.optimize.trials import RunOutcome, TrialRequest
from memsched.commands.options import Options, VerifyOptions
from memsched.commands.results import OptimizeResult, OutputsDifferError, hold_to_budget
from memsched.commands.session_rows import SessionBench
from memsched.commands.verify import ModelComparison, compare
from memsched.commands.without_effect import refuse_for_range, refuse_for_session
from memsched.formats.blocks import Range
from memsched.formats.files import read_source
from memsched.formats.known import format_in, format_of
from memsched.formats.module import LoadOptions, Module
from memsched.formats.staging import STANDARD_STREAM
from memsched.formats.stated_sizes import stated
from memsched.plan.values import TargetModule
from memsched.plan.write import check_request
from memsched.report.assumed import assumed_text
from memsched.report.values.verdict import AlternativeRow
from memsched.runtimes.known import has_sessions, runtime_of, usual_offer
from memsched.runtimes.runtime import Opening
from memsched.search.run import Run
from memsched.targets.model import Target
from memsched.targets.pool_plan import PoolPlan

__all__ = ["load", "optimize", "verify"]

_NOT_CUT = (
    "layers are not cut: a size that was stated or seen in a run follows from no input, so that a runtime could not "
    "refuse another one"
)
_ASSUMED = "layers are not cut: such a file holds for one size, and nobody stated it; --dim or --shape does"


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
        UnknownShapeError: A size depends on data, and the model does not run on random inputs.
    """
    data, path, _ = sized_source(source, input_shapes)
    return read_model(data, path, load_options(data, path, stated(input_shapes, dims), shapes_from_run))[0]


class _OptimizeRun(FrozenValue, frozen=True):
    """What was asked for.

    Attributes:
        run: The whole command.
        budget: None for no budget.
    """

    options: Options
    hooks: Hooks
    run: Run
    budget: int | Percentage | None


class _SourceFile(FrozenValue, frozen=True):
    """A model's file.

    Attributes:
        sizes: What is stated of its sizes.
        resized: Its bytes were changed to other shapes of inputs.
    """

    data: bytes
    path: str
    sizes: LoadOptions
    resized: bool


_DEFAULT = Options()


@command(Options)
def optimize(source: Source, options: Options = _DEFAULT, hooks: Hooks = NO_HOOKS) -> OptimizeResult:
    """Order a model's operators so that it needs the least activation memory, prove it, and check it by running both.

    Args:
        source: The model: a path, "-" for standard input, or its bytes.
        options: How it is optimized; each option may be a keyword instead, as in ``optimize(path, budget="4MB")``.
        hooks: What is told and asked while it runs.

    Returns:
        The model's bytes, which are the input's where nothing better was found, and the report.

    Raises:
        MemschedError: The subclass and its message say which file, tensor or option is at fault.
        VerificationError: The outputs differ, and MEMSCHED_DEFECTS=raise is in the environment; else the next best file
            is the result, and the report says which one was left out.
    """
    started = time.monotonic()
    limits = limits_of(options, options.seed, options.workers, hooks.executor)
    run = Run.of(limits, started, stop=hooks.stop, on_progress=hooks.on_progress)
    check_percentages(options.max_extra_macs, options.max_slowdown)
    asked = _OptimizeRun(options, hooks, run, budget_of(options.budget))
    data, path, resized = sized_source(source, options.input_shapes)
    fixed, ranges = split_ranges(options.dims)
    sizes = stated(options.input_shapes, fixed)
    if ranges:
        file = _SourceFile(data, path, sizes, resized)
        found = _over_sizes(file, ranges, asked)
        largest = {name: one.least if one.most is None else one.most for name, one in ranges.items()}
        at_most = dataclasses.replace(file, sizes=stated(options.input_shapes, {**fixed, **largest}))
        if _may_map(file, found, asked):
            found = with_mapped_weights(found, _mapping(found.module, at_most, asked))
        return hold_to_budget(found, options.keep_best, strict=options.strict)
    sizes = load_options(data, path, sizes, options.shapes_from_run, options.seed)
    module, sizes = read_model(data, path, sizes, options.seed)
    file = _SourceFile(data, path, sizes, resized)
    found = _for_file(module, file, asked) if options.session is None else _for_session(file, asked)
    best = with_session_stated(_best_mapped(found, module, file, asked))
    return hold_to_budget(best, options.keep_best, strict=options.strict)


def _best_mapped(found: OptimizeResult, module: Module, file: _SourceFile, asked: _OptimizeRun) -> OptimizeResult:
    """Return the result with mapped weights, or the original with mapped weights if it needs no more memory."""
    if not _may_map(file, found, asked):
        return found
    mapping = _mapping(module, file, asked)
    mapped = with_mapped_weights(found, mapping)
    if not mapped.files or found.model == file.data or found.budget_met is not None:
        return mapped
    plain = dataclasses.replace(asked.options, allow=("inplace",), may_change=(), session=None)
    alone = dataclasses.replace(asked, options=plain, hooks=dataclasses.replace(asked.hooks, words=()))
    original = with_mapped_weights(_for_file(module, file, alone), mapping)
    return mapped if leaves_less(mapped, original) else original


def _may_map(file: _SourceFile, found: OptimizeResult, asked: _OptimizeRun) -> bool:
    """Return whether weights may be mapped: the caller permits `opening`, and the result goes to a file."""
    options = asked.options
    # A limit that was not named is the search's alone.
    late = options.time_limit != AUTO and asked.run.late()
    may = "opening" in options.permitted and options.verify and asked.hooks.output != STANDARD_STREAM
    return may and has_sessions(format_in(file.data).name) and not found.interrupted and not late


def _mapping(module: Module, file: _SourceFile, asked: _OptimizeRun) -> MappingRequest:
    name = asked.hooks.output or ("model" if file.path == STANDARD_STREAM else file.path)
    bench = session_bench(module, file.data, file.sizes, asked.options.seed)
    return MappingRequest(bench, Path(name).stem, asked.options.max_slowdown)


def _over_sizes(file: _SourceFile, ranges: Mapping[str, Range], asked: _OptimizeRun) -> OptimizeResult:
    """Return a file for all sizes in ``ranges``."""
    options = asked.options
    refuse_for_range({**options.named(), "allow": options.permitted})
    request = Request(search_of(asked.run), options.order_solver, options.partitions)
    ranged = RangeRequest(ranges, options, asked.budget, asked.hooks.output, tuple(asked.hooks.words or ()))
    return optimize_over_sizes(file.data, file.path, file.sizes, request, ranged)


def _for_session(file: _SourceFile, asked: _OptimizeRun) -> OptimizeResult:
    """Return the graph that a kind of session executes."""
    options = asked.options
    refuse_for_session(options.named())
    rules = target_named(options.target, format_in(file.data).name, file.path)
    permitted = permissions_of(options.permitted, options.extra_work)
    session = SessionRequest(options, rules, asked.budget, permitted, asked.hooks.output)
    request = _request(options, search_of(asked.run), Opening("session"))
    return optimize_for_session(file.data, file.path, file.sizes, request, session)


def _request(options: Options, within: Run, opening: Opening) -> Request:
    solver, end = options.order_solver, within.deadline()
    return Request(within, solver, options.partitions, opening, end, slowdown=options.max_slowdown)


class _ReadModel(FrozenValue, frozen=True):
    """A model under the rules of its target.

    Attributes:
        rules: The target's, whether they are permitted or not.
        opening: How the file that is written will be opened.
        budget: Bytes; None for no budget.
        notes: Where they come from.
        permitted: What of the permissions can be done to the model.
    """

    module: Module
    rules: Target
    prepared: TargetModule
    opening: Opening
    budget: int | None
    notes: tuple[str, ...]
    permitted: Permissions


def _read(module: Module, file: _SourceFile, asked: _OptimizeRun) -> _ReadModel:
    options, allow = asked.options, asked.options.permitted
    opened = guarantee_of(options.order_guarantee, module, branch="branch" in allow, verify=options.verify)
    check_request(module, opened, options.control_dependencies)
    if "opening" in allow and format_of(module).traits.order_binds:
        if options.allow is not None:
            raise UsageError("--allow opening is for models that ONNX Runtime runs", code="other-format")
        allow = tuple(name for name in allow if name not in {"opening", "fuse"})
    rules = rules_of(module, options.target, options.budget_for, verify=options.verify)
    plan = runtime_of(module, rules).memory_plans.wanted(options.tflm_plan)
    rules = runtime_of(module, rules).memory_plans.rules(plan)
    prepared = prepare(module, rules, in_place="inplace" in allow)
    budget, notes = budget_in_bytes(asked.budget, module, prepared, Opening(opened))
    opening = Opening(opened, plan)
    permitted = permissions_of(allow, options.extra_work, free=options.free and options.verify)
    return _ReadModel(
        module, rules, prepared, opening, budget, notes, possible(permitted, module, file.sizes, rules, opening)
    )


class _OptimizedFile(FrozenValue, frozen=True):
    """What was found for a model.

    Attributes:
        request: The search's.
        interrupted: It was ended early by the caller.
    """

    given: _ReadModel
    request: Request
    final: FinalModel
    done: FinishedModel
    interrupted: bool


def _for_file(module: Module, file: _SourceFile, asked: _OptimizeRun) -> OptimizeResult:
    """Return the best file for one size of ``module``, which was read from ``file``."""
    options, run, given = asked.options, asked.run, _read(module, file, asked)
    prepared = given.prepared
    within = search_of(run)
    if options.verify:
        within = search_until_verification(
            run, module, file.data, file.sizes, prepared, named=options.time_limit != AUTO
        )
    request = _request(options, within, given.opening)
    source = _session_source(file, asked, given)
    opened = source if given.permitted.opening else None
    sought = find(module, file.data, prepared, file.sizes, request, given.budget, given.permitted, opened)
    interrupted = request.stopped()
    finishing = FinishRequest(
        module,
        file.data,
        prepared,
        file.sizes,
        given.opening,
        run,
        options,
        budget=given.budget,
        exact=given.permitted.exact,
        may_end=asked.hooks.stop is not None,
        bench=session_bench(module, file.data, file.sizes, options.seed) if has_sessions(module.format) else None,
    )
    done = finish_best(sought.file, request, finishing)
    if opened is not None and sought.start is not None and sought.executed is not None and not done.ended:
        other = executed_file(sought.start, sought.executed, opened, request, _session_request(asked, given))
        if other.takes_less_than(done, options.max_slowdown):
            return other.result(request)
    found = _OptimizedFile(given, request, done.final, done, interrupted or done.ended)
    pools = plan_pools(done.final.placed.plans[0], prepared.target, run.quiet())
    record = _record(file, asked, found, pools, _helpful(file, asked, found, source, finishing.bench))
    result = result_of(record, done.written, run)
    if done.verification is not None and done.wrong and defects_end_the_run():
        raise OutputsDifferError(told_apart(done.verification, done.final, done.facts), result.report)
    return result


def _session_source(file: _SourceFile, asked: _OptimizeRun, given: _ReadModel) -> SessionSource:
    """Return the model as sessions without options read it."""
    in_place = "inplace" in asked.options.permitted
    return SessionSource(file.data, file.path, file.sizes, "default", given.rules, in_place, asked.options.seed)


def _session_request(asked: _OptimizeRun, given: _ReadModel) -> SessionRequest:
    return SessionRequest(asked.options, given.rules, given.budget, given.permitted, asked.hooks.output)


def _helpful(
    file: _SourceFile, asked: _OptimizeRun, found: _OptimizedFile, source: SessionSource, bench: SessionBench | None
) -> tuple[AlternativeRow, ...]:
    """Return commands that would help beyond the result, where the command is known that gave it."""
    options, words, given = asked.options, asked.hooks.words, found.given
    # A limit that was not named is the search's alone: measurements may take longer.
    unlimited = options.time_limit == AUTO
    if not words or seconds_of(options) == 0 or (asked.run.late() and not unlimited):
        return ()
    # What is permitted by default may gain more at a price.
    free = given.permitted.free
    allow = (*BY_DEFAULT, *permitted_by(options.may_change)) if free else options.permitted
    permitted = permissions_of(allow, options.max_extra_macs, free=True) if free else given.permitted
    names = tuple(name for name in allow if name != "reorder" or options.order_solver != "file")
    trial = TrialRequest(names, tuple(words), permitted, given.budget, asked.run.limits)
    final = found.final
    tried = RunOutcome(
        given.module, given.rules, given.prepared, final.placed, file.sizes, found.request, trial, final.whole
    )
    session_named = options.order_guarantee is not None or "branch" in allow
    rows = suggested(tried, found.done, source, bench, facts=found.done.facts, named=session_named, unlimited=unlimited)
    code = as_c(given.module, given.rules, found.done, options, found.request)
    return rows if code is None else (code, *rows)


def _record(
    file: _SourceFile,
    asked: _OptimizeRun,
    found: _OptimizedFile,
    pools: PoolPlan | None,
    helpful: tuple[AlternativeRow, ...],
) -> Record:
    """Return what was done, for the report."""
    given, done, final = found.given, found.done, found.final
    target = given.prepared.target
    options, guessed = asked.options, any(one.free for one in file.sizes.assumed)
    # What nobody asked for by name is left out by default for other reasons, too.
    whole = guessed if options.free else given.permitted.tile != ("tile" in options.permitted)
    not_cut = ((_ASSUMED if guessed else _NOT_CUT),) if whole else ()
    return Record(
        "optimize",
        given.module,
        final,
        done.needed,
        runtime_of(given.module, target, given.opening).traits,
        tuple(found.request.ledger.rows),
        given.budget,
        written=dataclasses.replace(done.written, unchanged=done.written.unchanged and not file.resized),
        output=asked.hooks.output,
        verification=done.verification,
        notes=(*given.notes, *done.notes, *not_cut),
        failures=tuple(found.request.failures.found),
        interrupted=found.interrupted,
        facts=done.facts,
        target_reason="" if asked.options.target else usual_offer(given.module).reason,
        slight=done.slight,
        pools=pools,
        held_back=done.held_back if done.written.unchanged else None,
        interpreter=done.interpreter,
        sessions=done.sessions,
        on_chip=on_chip(final.module, final.placed.plans[0], target, asked.run.limits),
        alternatives=helpful,
        assumed=file.sizes.assumed,
    )


_COMPARED = VerifyOptions()


@comparison(VerifyOptions)
def verify(first: Source, second: Source, options: VerifyOptions = _COMPARED) -> ModelComparison:
    """Run two models of one format on the same random inputs in their real runtime and compare outputs and peaks.

    Outputs may differ by ``atol + rtol * |output of the first|`` (ONNX), or by ``atol`` (TFLite).

    Args:
        first: The model as given: a path, or its bytes.
        second: The other one.
        options: How they are compared; each option may be a keyword instead.

    Raises:
        ModelError: A file cannot be read.
        RuntimeUnavailableError: The runtime is not installed.
        UsageError: The models are of two formats.
    """
    one, other = (source if isinstance(source, bytes) else os.fspath(source) for source in (first, second))
    data, path = read_source(one)
    sizes = assumed_sizes(data, path, stated(options.input_shapes, options.dims), seed=options.seed)
    found = compare(one, other, sizes, options)
    if not sizes.assumed:
        return found
    notes = (assumed_text(assumed_rows(sizes.assumed)), *found.verification.notes)
    return dataclasses.replace(found, verification=dataclasses.replace(found.verification, notes=notes))
