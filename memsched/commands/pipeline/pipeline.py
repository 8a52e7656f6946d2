"""The pipeline behind ``memsched pipeline``: stages for the layers of a model, and a model file for every stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import msgspec

from memsched.arguments import checked
from memsched.check.stages import check_rows, check_stages
from memsched.commands.declared import check_given, from_keywords
from memsched.commands.optimize.choose import Permissions
from memsched.commands.optimize.place import Request, prepare
from memsched.commands.options import PipelineOptions
from memsched.commands.pipeline.stage_files import SegmentFile, StageFiles, first_that_holds, run_in_order, stage_file
from memsched.errors import UsageError
from memsched.formats.capabilities import Stages
from memsched.formats.files import load_module, read_source
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.formats.segments import check_segments
from memsched.formats.stated_sizes import stated
from memsched.formats.weights import weights
from memsched.frozen import FrozenValue
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.graph.parts import part_of, readers_of
from memsched.graph.stages import Constraints, Layer, LayerValue, Network, Skips, StageFigures, StageSchedule, figures
from memsched.lowering.apply import apply_target
from memsched.pipeline.possible import explain
from memsched.pipeline.prices import StageMemory
from memsched.pipeline.simulate import Simulation, simulate
from memsched.planning.values import TargetModule
from memsched.runtimes.kernels import kernel_seconds
from memsched.runtimes.known import check_runner
from memsched.runtimes.values import Verification
from memsched.schedule.bounds import largest_step
from memsched.schedule.portfolio import schedule_graph
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.suggestions import did_you_mean
from memsched.targets.load import load_target
from memsched.targets.model import PipelineRules, Target

__all__ = ["Balance", "Profile", "Scheduler", "SegmentFile", "StagedModel", "network_of", "pipeline"]

Balance = Literal["params", "macs", "memory", "time"]
Scheduler = Literal["exact", "respect", "heuristic"]
Profile = Literal["target", "model"]

_DEFAULT = PipelineOptions(stages=1)
"""The defaults, which are those of the command line."""

_DEFAULT_TARGET = "coral_edgetpu"
_CUTTING_SHARE = 0.25
"""Share of the work for the search for the cut, without the orders of stages that it asks for."""

_SCHEDULING_SHARE = 0.5
"""Share of the time, or of the work, for the stages; the rest orders the segments."""

_ORDER_EFFORT = 1.0
"""What `Limits.effort` allows for the order of one stage; nearly always it is proven in milliseconds."""


class StagedModel(FrozenValue, frozen=True):
    """A model cut into stages.

    Attributes:
        baseline: The even split that the vendor's compiler makes, for comparison; None where it is not possible.
        annotated: The whole model with the stage of every node written into it (ONNX only).
        verification: The segments run in a row against the whole model; None when that was not requested.
        interrupted: Whether ``stop`` ended the search early.
    """

    module: Module
    target: Target
    network: Network
    constraints: Constraints
    scheduler: Scheduler
    balance: Balance
    profile: Profile
    schedule: StageSchedule
    figures: tuple[StageFigures, ...]
    simulation: Simulation
    baseline: Simulation | None
    segments: tuple[SegmentFile, ...]
    annotated: bytes | None
    verification: Verification | None
    notes: tuple[str, ...]
    interrupted: bool
    seed: int
    seconds: float


def network_of(module: Module, graph: Graph) -> Network:
    """Return the layers of a module's main graph ``graph`` as a pipeline sees them."""
    stored = weights(module)
    makers = {tensor: number for number, op in enumerate(graph.ops) for tensor in op.outputs}
    readers = readers_of(graph)
    states = set(graph.variables)
    before: list[set[int]] = [set() for _ in graph.ops]
    for first, second in graph.dependencies:
        before[second].add(first)
    for number, op in enumerate(graph.ops):
        before[number].update(makers[tensor] for tensor in op.inputs if tensor in makers and tensor not in states)
    results = set(graph.outputs)
    return Network(
        name=graph.name,
        layers=tuple(
            Layer(op.name, op.type, stored.per_op[number], op.macs, tuple(sorted(before[number])))
            for number, op in enumerate(graph.ops)
        ),
        values=tuple(
            LayerValue(
                name=graph.tensors[tensor].name,
                size=graph.tensors[tensor].size,
                producer=makers.get(tensor, -1),
                readers=tuple(readers[tensor]),
                result=tensor in results,
            )
            for tensor in _values_of(graph)
        ),
        constants=stored.sizes,
        together=capability(module, Stages).together(module),
    )


def _values_of(graph: Graph) -> list[int]:
    """Return the tensors that are the values of a graph's network, in order."""
    states = set(graph.variables)
    tensors = [*graph.inputs, *(tensor for op in graph.ops for tensor in op.outputs)]
    return [tensor for tensor in tensors if tensor not in states]


@checked
def pipeline(
    source: str | bytes,
    *,
    stages: int,
    scheduler: Scheduler = _DEFAULT.scheduler,
    balance: Balance = _DEFAULT.balance,
    profile: Profile = _DEFAULT.profile,
    cut_after: Sequence[str] = _DEFAULT.cut_after,
    never_cut: Sequence[str] = _DEFAULT.never_cut,
    children_together: bool = _DEFAULT.children_together,
    skips: Skips = _DEFAULT.skips,
    target: str | None = _DEFAULT.target,
    time_limit: float | None = _DEFAULT.time_limit,
    effort: float | None = _DEFAULT.effort,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    reorder: bool = True,
    in_place: bool = True,
    tile: bool = False,
    remat: bool = False,
    max_extra_macs: float = _DEFAULT.max_extra_macs,
    verify: bool = _DEFAULT.verify,
    annotate: bool = _DEFAULT.annotate,
    seed: int = _DEFAULT.seed,
    workers: int = _DEFAULT.workers,
    stop: Callable[[], bool] | None = None,
) -> StagedModel:
    """Cut a model into ``stages`` models for as many accelerators in a row, and run them against the whole.

    Args:
        scheduler: "exact" is proven, "respect" is learned, "heuristic" is the vendor's even split.
        balance: What the largest stage is to have least of; the learned scheduler and the heuristic know "params".
        profile: Where the time of operators is from: "target" states it, "model" measures each in its runtime here.
        cut_after: Names of operators after which a stage ends: nothing in their own stage reads what they make.
        never_cut: Names of operators whose readers stay in their stage.
        children_together: All readers of an operator's outputs are in one stage.
        skips: How tensors reach later stages than the next: sent once by the host, or handed through.
        target: Name or TOML file of an accelerator that states its pipeline; the Coral Edge TPU by default.
        reorder: Permute the operators of each segment; ``in_place``, ``tile`` and ``remat`` as for `optimize`.
        effort: Work for the search instead of a time limit, in about the seconds that an idle machine takes: the
            result is then the same on every machine.
        verify: Run segments and whole model and compare the outputs.
        annotate: Write the stage of every node into the whole model as well (ONNX only).
        stop: Called often; True ends the search with the best found so far.

    Raises:
        MemschedError: The subclass and its message say which file, operator or option is at fault.
    """
    options = from_keywords(PipelineOptions, locals())
    check_given(PipelineOptions, scheduler=scheduler, balance=balance, profile=profile, skips=skips)
    return _staged(source, options, stop)


class _PipelineTask(FrozenValue, frozen=True):
    """A model that is to be cut, and what was asked for.

    Attributes:
        timed: The network whose layers take as long as they are said to.
    """

    data: bytes
    module: Module
    rules: Target
    prepared: TargetModule
    network: Network
    constraints: Constraints
    timed: _TimedNetwork
    options: PipelineOptions


def _staged(source: str | bytes, options: PipelineOptions, stop: Callable[[], bool] | None) -> StagedModel:
    time_limit = None if options.effort is not None else options.time_limit
    limits = Limits(time_limit, options.seed, options.workers, effort=options.effort)
    run = Run.of(limits, stop=stop)
    task = _task_of(source, options)
    module, network, constraints = task.module, task.network, task.constraints
    schedule = _cut(task, run)
    check_stages(network, schedule, constraints)
    parts = figures(network, schedule.stages, options.stages, options.skips)
    check_rows(network, schedule, parts)
    written, notes = _written(task, parts, run)
    if options.balance == "memory":
        schedule = _as_measured(schedule, written.segments, rewriting=not {"tile", "remat"}.isdisjoint(options.allow))
        check_stages(network, schedule, constraints)
    simulation = simulate(
        task.timed.network,
        schedule,
        task.timed.rules,
        skips=options.skips,
        activations=[segment.arena for segment in written.segments],
        computing=task.timed.computing,
    )
    return StagedModel(
        module=module,
        target=task.rules,
        network=network,
        constraints=constraints,
        scheduler=options.scheduler,
        balance=options.balance,
        profile=options.profile,
        schedule=schedule,
        figures=parts,
        simulation=simulation,
        baseline=_baseline(task.timed.network, schedule, constraints, task.timed.rules),
        segments=written.segments,
        annotated=capability(module, Stages).annotate_stages(module, schedule.stages) if options.annotate else None,
        verification=written.verification,
        notes=(*notes, *written.notes),
        interrupted=run.stop(),
        seed=options.seed,
        seconds=run.elapsed(),
    )


def _task_of(source: str | bytes, options: PipelineOptions) -> _PipelineTask:
    data, path = read_source(source)
    module = load_module(data, path, stated(options.input_shapes, options.dims))
    rules = load_target(options.target or _DEFAULT_TARGET)
    if rules.pipeline is None:
        action = f"add a [pipeline] table, as in {_DEFAULT_TARGET}"
        raise UsageError(f"target '{rules.name}' states no pipeline", code="no-pipeline", action=action)
    if options.verify:
        check_runner(module)
    prepared = prepare(module, rules, in_place="inplace" in options.allow)
    network = network_of(module, prepared.lowered[0].graph)
    constraints = Constraints(
        options.stages,
        _named(network, options.cut_after, "--cut-at"),
        _named(network, options.never_cut, "--never-cut"),
        options.children_together,
        options.skips,
    )
    _check_request(network, constraints, options.scheduler, options.balance)
    timed = _TimedNetwork(network, rules.pipeline, "")
    if options.profile == "model":
        timed = _measured(network, rules.pipeline, kernel_seconds(module, data, seed=options.seed))
    return _PipelineTask(data, module, rules, prepared, network, constraints, timed, options)


def _cut(task: _PipelineTask, run: Run) -> StageSchedule:
    """Return the stages, found with a share of what ``run`` may take."""
    options, effort, rules = task.options, task.options.effort, task.rules.pipeline
    share = run.again(run.until(_SCHEDULING_SHARE).limits)
    cutting = share.limits if effort is None else replace(share.limits, effort=_CUTTING_SHARE * effort)
    if effort is not None:
        share = run.within(_SCHEDULING_SHARE - _CUTTING_SHARE)
    cost = _stage_memory(task.module.graph, task.prepared.target, share, reorder="reorder" in options.allow)
    by_time = task.timed if options.balance == "time" or rules is None else _TimedNetwork(task.network, rules, "")
    schedule = _schedule(
        by_time.network, task.constraints, options.scheduler, options.balance, by_time.rules, cutting, cost
    )
    # Only the orders of stages count what the search for the cut does: it gets the other half whole.
    if effort is not None:
        run.spend(_CUTTING_SHARE * effort)
    return schedule


def _written(task: _PipelineTask, parts: Sequence[StageFigures], run: Run) -> tuple[StageFiles, tuple[str, ...]]:
    """Return a file for each stage, rewritten as far as the files then do what the whole does, and notes."""
    module, options = task.module, task.options
    made = capability(module, Stages).cutter(module)
    in_place = "inplace" in options.allow

    def files(permitted: Permissions, request: Request) -> StageFiles:
        segments = tuple(
            stage_file(
                module, made, task.network, part, index, options.stages, task.rules, request, permitted, in_place
            )
            for index, part in enumerate(parts)
        )
        check_segments(module, [segment.segment for segment in segments])
        if not options.verify:
            return StageFiles(segments, None, ("verification was not asked for",))
        exact = not (permitted.tile or permitted.remat)
        return StageFiles(segments, *run_in_order(task.data, module, segments, options.seed, exact=exact))

    permitted = Permissions("tile" in options.allow, "remat" in options.allow, extra_percent=options.max_extra_macs)
    left = run.within(1 - _SCHEDULING_SHARE) if options.effort is not None else run
    return first_that_holds(files, permitted, Request(left, "auto" if "reorder" in options.allow else "file"))


class _TimedNetwork(FrozenValue, frozen=True):
    """A network whose layers' multiply-accumulates take the time that ``rules`` say.

    Attributes:
        computing: What a simulation is to say of computing, where that is not what the rules say.
    """

    network: Network
    rules: PipelineRules
    computing: str


def _measured(network: Network, rules: PipelineRules, seconds: Mapping[str, float]) -> _TimedNetwork:
    """Return the network with measured nanoseconds as the layers' work, all parameters where they are computed with.

    Raises:
        UsageError: No operator was measured.
    """
    if not any(layer.name in seconds for layer in network.layers):
        problem = "the runtime measures no operator of this model by its name"
        raise UsageError(problem, code="no-operator-times", location="--profile model")
    layers = tuple(replace(one, macs=round(1e9 * seconds.get(one.name, 0.0))) for one in network.layers)
    nanoseconds = msgspec.structs.replace(
        rules,
        ops_per_second=2e9,
        utilisation=1.0,
        parameter_cache_bytes=sum(network.constants),
    )
    computing = "Operators take what they took here, each measured in the model's runtime; all parameters stay."
    return _TimedNetwork(replace(network, layers=layers), nanoseconds, computing)


def _named(network: Network, names: Sequence[str], option: str) -> tuple[int, ...]:
    known = {layer.name: number for number, layer in enumerate(network.layers)}
    found = []
    for name in names:
        if name not in known:
            problem = f"the model has no such operator{did_you_mean(name, known)}"
            raise UsageError(problem, code="no-such-operator", location=f"{option} '{name}'")
        found.append(known[name])
    return tuple(dict.fromkeys(found))


def _check_request(network: Network, constraints: Constraints, scheduler: Scheduler, balance: Balance) -> None:
    if constraints.stages < 1:
        where = f"--stages {constraints.stages}"
        raise UsageError("a pipeline has at least one stage", code="option-range", location=where)
    if scheduler != "exact" and balance != "params":
        problem = f"--scheduler {scheduler} balances parameters alone: --balance {balance} needs exact"
        raise UsageError(problem, code="option-conflict")
    if (reason := explain(network, constraints)) is not None:
        raise UsageError(reason, code="no-such-stages")


def _schedule(
    network: Network,
    constraints: Constraints,
    scheduler: Scheduler,
    balance: Balance,
    rules: PipelineRules,
    limits: Limits,
    cost: StageMemory,
) -> StageSchedule:
    if scheduler == "respect":
        from memsched.pipeline import respect

        return respect.schedule(network, constraints, limits=limits)
    if scheduler == "heuristic":
        from memsched.pipeline import heuristic

        return heuristic.schedule(network, constraints)
    from memsched.pipeline import exact

    return exact.schedule(network, constraints, balance=balance, rules=rules, limits=limits, cost=cost)


def _stage_memory(graph: Graph, target: Target, run: Run, *, reorder: bool) -> StageMemory:
    """Return what says how much memory a stage needs, its operators in their best order as in the segment's file.

    Args:
        graph: The graph as read, without the target's rules.
    """
    readers, values = readers_of(graph), _values_of(graph)

    def cost(layers: Sequence[int], handed: Sequence[int]) -> tuple[int, int]:
        part = apply_target(part_of(graph, sorted(layers), readers, [values[number] for number in handed]), target)
        storage = Storage.of(part)
        peak = evaluate(storage, range(len(part.ops))).peak
        if not reorder or peak <= largest_step(storage):
            return peak, peak
        left = run.effort()
        effort = _ORDER_EFFORT if left is None else min(_ORDER_EFFORT, left)
        limits = replace(run.limits, time_limit=None, effort=effort)
        asked = replace(run.again(limits).quiet(), stop=run.over)
        found = schedule_graph(part, asked, storage=storage).schedule
        return found.peak, found.lower_bound

    return cost


def _as_measured(schedule: StageSchedule, segments: Sequence[SegmentFile], *, rewriting: bool) -> StageSchedule:
    """Return ``schedule``, balanced by memory, with the peak that the segments have, and claims that hold for it.

    Layers in pieces, or computed again, may make another cut better: nothing is proven about those.
    """
    peak = max(segment.plan.schedule.peak for segment in segments)
    if peak == schedule.objective and not rewriting:
        return schedule
    bound, proof = schedule.lower_bound, schedule.proof
    if rewriting:
        bound, proof = 0, f"{proof}; before layers were rewritten, which may make other cuts better"
    return replace(
        schedule,
        objective=peak,
        lower_bound=min(bound, peak),
        communication_bound=0,
        status="feasible",
        proof=proof,
    )


def _baseline(
    network: Network,
    schedule: StageSchedule,
    constraints: Constraints,
    rules: PipelineRules,
) -> Simulation | None:
    """Return how the vendor's even split would run; None where that split is what was made."""
    from memsched.pipeline import heuristic

    if schedule.method == "heuristic":
        return None
    return simulate(network, heuristic.schedule(network, constraints), rules, skips=constraints.skips)
