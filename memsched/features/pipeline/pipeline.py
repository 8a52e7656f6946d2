"""The pipeline behind ``memsched pipeline``: stages for the layers of a model, and a model file for every stage."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.suggestions import did_you_mean
from memsched.check.stages import check_rows, check_stages
from memsched.commands.calls import NO_HOOKS, Hooks, command, limits_of
from memsched.commands.optimize.permissions import Permissions, permissions_of
from memsched.commands.optimize.place import Request, prepare
from memsched.commands.options import PipelineOptions
from memsched.features.pipeline.possible import explain
from memsched.features.pipeline.prices import StageMemory
from memsched.features.pipeline.simulate import Simulation, simulate
from memsched.features.pipeline.stage_files import (
    CutStages,
    SegmentFile,
    StageFiles,
    first_that_holds,
    run_in_order,
    stage_file,
)
from memsched.formats.capabilities import Stages
from memsched.formats.files import load_module, read_source
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.formats.segments import check_segments
from memsched.formats.stated_sizes import stated
from memsched.formats.weights import weights
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.graph.parts import part_of, readers_of
from memsched.graph.stages import Constraints, Layer, LayerValue, Network, StageFigures, StageSchedule, figures
from memsched.lowering.apply import apply_target
from memsched.plan.values import TargetModule
from memsched.runtimes.kernels import kernel_seconds
from memsched.runtimes.known import check_runner
from memsched.runtimes.values import Verification
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.bounds import largest_step
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.load import load_target
from memsched.targets.model import PipelineRules, Target

__all__ = ["SegmentFile", "StagedModel", "network_of", "pipeline"]

_DEFAULT_TARGET = "coral_edgetpu"
_SCHEDULING_SHARE = 0.5
"""Share of the time, or of the work, for the stages; the rest orders the segments."""

_CUTTING_SHARE = _SCHEDULING_SHARE / 2
"""Share of the work for the search for the cut; as much is for the orders of stages that it asks for."""

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
    options: PipelineOptions
    schedule: StageSchedule
    figures: tuple[StageFigures, ...]
    simulation: Simulation
    baseline: Simulation | None
    segments: tuple[SegmentFile, ...]
    annotated: bytes | None
    verification: Verification | None
    notes: tuple[str, ...]
    interrupted: bool
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


class _TimedNetwork(FrozenValue, frozen=True):
    """A network whose layers' multiply-accumulates take the time that ``rules`` say.

    Attributes:
        computing: What a simulation is to say of computing, where that is not what the rules say.
    """

    network: Network
    rules: PipelineRules
    computing: str


class _CutRequest(FrozenValue, frozen=True):
    """A model to cut, as a pipeline of accelerators sees it.

    Attributes:
        data: Its file.
        rules: The accelerator.
        timed: The network with the time that its operators take.
        plain_rules: The accelerator's own figures.
    """

    options: PipelineOptions
    data: bytes
    module: Module
    rules: Target
    prepared: TargetModule
    network: Network
    constraints: Constraints
    timed: _TimedNetwork
    plain_rules: PipelineRules

    def permits(self, name: str) -> bool:
        """Whether the user permitted so much."""
        return name in self.options.allow


@command(PipelineOptions)
def pipeline(source: str | bytes, options: PipelineOptions, hooks: Hooks = NO_HOOKS) -> StagedModel:
    """Cut a model into models for as many accelerators in a row, and run them against the whole.

    Args:
        source: The model: a path, "-" for standard input, or its bytes.
        options: How it is cut; each option may be a keyword instead, as in ``pipeline(path, stages=2)``.
        hooks: What is asked while it runs.

    Raises:
        MemschedError: The subclass and its message say which file, operator or option is at fault.
    """
    limits = limits_of(options, options.seed, options.workers, hooks.executor)
    run = Run.of(limits, time.monotonic(), stop=hooks.stop, on_progress=hooks.on_progress)
    asked = _read(source, options)
    module, network, constraints = asked.module, asked.network, asked.constraints
    schedule = _cut(asked, run)
    parts = figures(network, schedule.stages, options.stages, options.skips)
    check_rows(network, schedule, parts)
    written, notes = _files(asked, parts, run)
    if options.balance == "memory":
        rewriting = asked.permits("tile") or asked.permits("remat")
        schedule = _as_measured(schedule, written.segments, rewriting=rewriting)
        check_stages(network, schedule, constraints)
    timed = asked.timed
    simulation = simulate(
        timed.network,
        schedule,
        timed.rules,
        skips=options.skips,
        activations=[segment.arena for segment in written.segments],
        computing=timed.computing,
    )
    return StagedModel(
        module=module,
        target=asked.rules,
        network=network,
        constraints=constraints,
        options=options,
        schedule=schedule,
        figures=parts,
        simulation=simulation,
        baseline=_baseline(timed.network, schedule, constraints, timed.rules),
        segments=written.segments,
        annotated=capability(module, Stages).annotate_stages(module, schedule.stages) if options.annotate else None,
        verification=written.verification,
        notes=(*notes, *written.notes),
        interrupted=run.stop(),
        seconds=time.monotonic() - run.started,
    )


def _read(source: str | bytes, options: PipelineOptions) -> _CutRequest:
    """Read a model for a row of accelerators, and check that it can be cut as the user wants it."""
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
    _check_request(network, constraints, options)
    timed = _TimedNetwork(network, rules.pipeline, "")
    if options.profile == "model":
        timed = _measured(network, rules.pipeline, kernel_seconds(module, data, seed=options.seed))
    return _CutRequest(options, data, module, rules, prepared, network, constraints, timed, rules.pipeline)


def _cut(asked: _CutRequest, run: Run) -> StageSchedule:
    """Return the stages, within their share of the run."""
    effort = asked.options.effort
    share = run.again(run.until(_SCHEDULING_SHARE).limits)
    cutting = share.limits if effort is None else replace(share.limits, effort=_CUTTING_SHARE * effort)
    if effort is not None:
        share = run.within(_SCHEDULING_SHARE - _CUTTING_SHARE)
    graph = asked.module.graph
    cost = _stage_memory(graph, asked.prepared.target, share, reorder=asked.permits("reorder"))
    schedule = _schedule(asked, cutting, cost)
    # Only the orders of stages count what the search for the cut does: it gets the other half whole.
    if effort is not None:
        run.spend(_CUTTING_SHARE * effort)
    check_stages(asked.network, schedule, asked.constraints)
    return schedule


def _files(asked: _CutRequest, parts: tuple[StageFigures, ...], run: Run) -> tuple[StageFiles, tuple[str, ...]]:
    """Return the stages' models, and notes on those that did not hold."""
    options, module = asked.options, asked.module
    permitted = permissions_of(options.allow, options.max_extra_macs)
    within = run if options.effort is None else run.within(1 - _SCHEDULING_SHARE)
    cut = CutStages(
        module, capability(module, Stages).cutter(module), asked.network, parts, asked.rules, asked.permits("inplace")
    )

    def files(permitted: Permissions, request: Request) -> StageFiles:
        segments = tuple(stage_file(cut, index, request, permitted) for index in range(len(parts)))
        check_segments(module, [segment.segment for segment in segments])
        if not options.verify:
            return StageFiles(segments, None, ("verification was not asked for",))
        exact = not (permitted.tile or permitted.remat)
        return StageFiles(segments, *run_in_order(asked.data, module, segments, options.seed, exact=exact))

    request = Request(within, "auto" if asked.permits("reorder") else "file")
    return first_that_holds(files, permitted, request)


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


def _check_request(network: Network, constraints: Constraints, options: PipelineOptions) -> None:
    if options.scheduler != "exact" and options.balance != "params":
        problem = f"--scheduler {options.scheduler} balances parameters alone: --balance {options.balance} needs exact"
        raise UsageError(problem, code="option-conflict")
    if (error := explain(network, constraints)) is not None:
        raise error


def _schedule(asked: _CutRequest, limits: Limits, cost: StageMemory) -> StageSchedule:
    network, constraints, balance = asked.network, asked.constraints, asked.options.balance
    if asked.options.scheduler == "respect":
        from memsched.features.pipeline import respect

        return respect.schedule(network, constraints, limits=limits)
    if asked.options.scheduler == "heuristic":
        from memsched.features.pipeline import heuristic

        return heuristic.schedule(network, constraints)
    from memsched.features.pipeline import exact

    if balance == "time":
        network = asked.timed.network
    rules = asked.timed.rules if balance == "time" else asked.plain_rules
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
    from memsched.features.pipeline import heuristic

    if schedule.method == "heuristic":
        return None
    return simulate(network, heuristic.schedule(network, constraints), rules, skips=constraints.skips)
