"""The pipelines behind the commands, as plain functions over values: `optimize`, `analyze`, `verify`, `load`."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from memsched.errors import UsageError
from memsched.formats.files import load_module, read_source
from memsched.formats.module import LoadOptions, Module, OrderGuarantee
from memsched.planning import GraphPlan, baselines, lower_module, plan_allocation, plan_module
from memsched.results import AnalyzeResult, OptimizeResult, OutputsDifferError
from memsched.runtimes.values import Verification
from memsched.schedule.limits import Limits
from memsched.schedule.portfolio import Progress
from memsched.sections import Outcome, Prepared, build
from memsched.targets.load import default_target, load_target
from memsched.units import parse_size
from memsched.verification import ModelComparison, compare, verify_written
from memsched.writing import check_request, write_model

__all__ = ["analyze", "load", "optimize", "verify"]

Source = str | os.PathLike[str] | bytes
"""A path, "-" for standard input, or a model's bytes."""


def load(
    source: Source,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
) -> Module:
    """Read an ONNX or TFLite model; its ``graph`` is the main graph.

    Args:
        input_shapes: Shapes of inputs that the model leaves open, by tensor name.
        dims: Values of symbolic dimensions, by name.

    Raises:
        ModelError: It cannot be read, or is not a valid model.
        UnknownShapeError: A size is unknown; the message names the option that states it.
    """
    data, path = read_source(source)
    return load_module(data, path, _load_options(input_shapes, dims))


def _load_options(input_shapes: Mapping[str, Sequence[int]] | None, dims: Mapping[str, int] | None) -> LoadOptions:
    shapes = {name: tuple(shape) for name, shape in (input_shapes or {}).items()}
    return LoadOptions(shapes, dict(dims or {}))


def analyze(
    source: Source,
    *,
    target: str | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    in_place: bool = True,
) -> AnalyzeResult:
    """Return what a model needs as it stands: its peak and arena in the file's order, a bound, and who is to blame.

    Arguments as for `optimize`.
    """
    started = time.monotonic()
    module = load(source, input_shapes=input_shapes, dims=dims)
    prepared = _prepare(module, target, in_place)
    plans = plan_module(module, prepared.lowered, Limits(), solver="file")
    main = plans[0]
    allocation = plan_allocation(main, prepared.baselines["file_order"], prepared.target.alignment_bytes)
    outcome = Outcome("analyze", module, prepared, plans, allocation)
    report = build(outcome, seed=0, seconds=time.monotonic() - started)
    return AnalyzeResult(module, main.graph, main.schedule, allocation, report)


def optimize(
    source: Source,
    *,
    target: str | None = None,
    budget: int | str | None = None,
    time_limit: float | None = 60.0,
    solver: str = "auto",
    partitions: int | Literal["auto"] = "auto",
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    order_guarantee: OrderGuarantee = "session",
    control_dependencies: bool = False,
    in_place: bool = True,
    verify: bool = True,
    seed: int = 0,
    workers: int = 1,
    output: str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> OptimizeResult:
    """Order a model's operators so that it needs the least activation memory, prove it, and check it by running both.

    Args:
        target: Name of a built-in target or path of a TOML file; by default the format's runtime.
        budget: What the arena may take, in bytes or as "256KB"; the result says whether it is met.
        time_limit: Seconds for the search; None for no limit.
        solver: "auto", "exact", "cpsat", "greedy" or "file".
        partitions: Cut the graph into so many stages and order each apart; 1 never does, "auto" where it helps.
        input_shapes: Shapes of inputs that the model leaves open, by tensor name.
        dims: Values of symbolic dimensions, by name.
        order_guarantee: What makes ONNX Runtime keep the order: "session" (options that the report lists), "pins"
            (dependencies in the model) or "none".
        control_dependencies: Write the order into a TFLite model as metadata that delegates respect, too.
        in_place: Permit the target's in-place rules.
        verify: Run both models on random inputs, where their runtime is installed.
        workers: Processes that search independent parts.
        output: Path that the report names as the model's; nothing is written there.
        on_progress: Told how far the search is.
        stop: Asked often; True ends the search with the best order so far.

    Returns:
        The model's bytes, which are the input's where nothing better was found, and the report.

    Raises:
        MemschedError: The subclass and its message say which file, tensor or option is at fault.
        VerificationError: The outputs differ.
    """
    started = time.monotonic()
    limits = Limits(time_limit, seed, workers)
    budget_bytes = _budget(budget)
    data, path = read_source(source)
    options = _load_options(input_shapes, dims)
    module = load_module(data, path, options)
    check_request(module, order_guarantee, control_dependencies)
    prepared = _prepare(module, target, in_place)
    plans = plan_module(
        module, prepared.lowered, limits, solver=solver, partitions=partitions, on_progress=on_progress, stop=stop
    )
    interrupted = stop is not None and stop()
    main = plans[0]
    allocation = plan_allocation(main, prepared.baselines["file_order"], prepared.target.alignment_bytes)
    written = write_model(
        module,
        data,
        plans,
        options,
        guarantee=order_guarantee,
        control_dependencies=control_dependencies,
        target=prepared.target.name,
    )
    verification: Verification | None = None
    notes: tuple[str, ...] = ("verification was not asked for",)
    if verify:
        try:
            _tell_verifying(on_progress, main, started)
            verification, notes = verify_written(module, data, written, options, seed=seed)
        except KeyboardInterrupt:
            if stop is None:
                raise
            interrupted, notes = True, ("the verification was interrupted",)
    outcome = Outcome(
        "optimize", module, prepared, plans, allocation, budget_bytes, written, output, verification, notes, interrupted
    )
    report = build(outcome, seed=seed, seconds=time.monotonic() - started)
    if verification is not None and verification.outputs_equal is False:
        raise OutputsDifferError(_differ(verification), report)
    return OptimizeResult(
        model=written.model,
        report=report,
        schedule=main.schedule,
        allocation=allocation,
        module=module,
        graph=main.graph,
        verification=verification,
        budget_met=None if budget_bytes is None else allocation.arena <= budget_bytes,
        interrupted=interrupted,
    )


def _prepare(module: Module, name: str | None, in_place: bool) -> Prepared:
    target = load_target(name or default_target(module.format))
    if not in_place:
        target = dataclasses.replace(target, in_place=())
    lowered = lower_module(module, target)
    return Prepared(target, lowered, baselines(module, lowered, target), in_place)


def _budget(budget: int | str | None) -> int | None:
    size = parse_size(budget) if isinstance(budget, str) else budget
    if size is not None and size < 0:
        raise UsageError(f"a budget of {size} bytes is not possible: give 0 or more")
    return size


def _tell_verifying(on_progress: Callable[[Progress], None] | None, main: GraphPlan, started: float) -> None:
    if on_progress:
        bound = main.schedule.lower_bound
        on_progress(Progress("verification", main.schedule.peak, bound, time.monotonic() - started))


def _differ(verification: Verification) -> str:
    return (
        f"the reordered model's outputs differ in {verification.runtime} (by up to {verification.max_abs_error}): "
        f"no model is written; please report it. {verification.reason or ''}".rstrip()
    )


def verify(
    first: Source,
    second: Source,
    *,
    runs: int = 3,
    rtol: float = 0.0,
    atol: float = 0.0,
    seed: int = 0,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
) -> ModelComparison:
    """Run two models of one format on the same random inputs in their real runtime and compare outputs and peaks.

    Args:
        runs: Input sets to compare on.
        rtol: Outputs may differ by ``atol + rtol * |output of the first|`` (ONNX), or by ``atol`` (TFLite).

    Raises:
        ModelError: A file cannot be read.
        RuntimeUnavailableError: The runtime is not installed.
        UsageError: The models are of two formats.
    """
    sources = [source if isinstance(source, bytes) else os.fspath(source) for source in (first, second)]
    options = _load_options(input_shapes, dims)
    return compare(sources[0], sources[1], options, runs=runs, rtol=rtol, atol=atol, seed=seed)
