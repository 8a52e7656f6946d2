"""Measure what order and addresses together save where the arena exceeds the peak.

Two tables: the models of ``models/``, the light models of the onnx package and the networks of `scripts.networks`,
under `ideal` and their own runtime's target; and random layers, whose orders of least peak are hard to pack. The arena
before is that of the greedy planners on the order of least peak; each later stage begins with what the one before left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from memsched.check.schedule import check_allocation
from memsched.formats.files import load_module, read_source
from memsched.formats.module import LoadOptions, Module
from memsched.graph.liveness import Storage
from memsched.graph.model import Graph, Schedule
from memsched.plan.orders import baselines, plan_module
from memsched.runtimes.graph_plan import lower_module
from memsched.search.limits import Limits
from memsched.search.progress import Progress
from memsched.search.run import Run
from memsched.solve.joint.improve import improve
from memsched.solve.joint.layout import Layout, live_bytes
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.load import default_target, load_target
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, one_of, option, positional, time_limit
from scripts.bench.runner.models import built, light_models, shipped_tflite
from scripts.bench.runner.text import kilobytes, percent
from scripts.bench.runner.timing import timed
from scripts.networks.catalogue import NAMES
from scripts.networks.growth import layered

__all__ = ["BENCH", "Measured", "measure", "model_table", "random_table"]

STAGES: Final = ("exact packing", "other orders", "joint program")
LAYERS: Final = (25, 50, 100, 200)


@dataclass(frozen=True)
class Measured:
    """One graph's figures, bytes.

    Attributes:
        peak: Of the order of least peak, and of every later one at most.
        greedy: The arena of the greedy planners.
        arenas: The arena after each stage of `STAGES`.
        bound: The largest sum of rounded sizes live at once in the last order, or what was proven beyond that.
        status: Of the last arena.
        seconds: From the greedy arena to the last one.
    """

    peak: int
    greedy: int
    arenas: tuple[int, ...]
    bound: int
    status: str
    seconds: float

    @property
    def arena(self) -> int:
        """The last arena, bytes."""
        return self.arenas[-1]


def measure(graph: Graph, schedule: Schedule, alignment: int, limits: Limits) -> Measured:
    """Return what each stage makes of the arena of ``schedule``, the order of least peak; the result is checked."""
    storage = Storage.of(graph)
    layout = Layout.of(graph, storage, schedule, alignment)
    greedy = layout.allocation(layout.offsets, layout.method)
    reached = dict.fromkeys(STAGES, greedy.arena)

    def tell(progress: Progress) -> None:
        for stage in STAGES[STAGES.index(progress.stage) :]:
            reached[stage] = min(reached[stage], progress.best_peak)

    (last, allocation), seconds = timed(
        lambda: improve(
            *(graph, storage, schedule, greedy),
            Run(limits, on_progress=tell),
            alignment=alignment,
        )
    )
    check_allocation(graph, last, allocation)
    arenas = (*[reached[stage] for stage in STAGES[:-1]], allocation.arena)
    bound = max(live_bytes(allocation), allocation.lower_bound)
    return Measured(last.peak, greedy.arena, arenas, bound, allocation.status, seconds)


def _modules(only: Sequence[str]) -> Iterator[tuple[str, Module]]:
    options = LoadOptions({}, {})
    for path in [*light_models(), *shipped_tflite()]:
        if not only or path.stem in only:
            data, name = read_source(str(path))
            yield path.stem, load_module(data, name, options)
    for network in NAMES:
        if not only or network in only:
            yield network, load_module(built(network), network, options)


def model_table(limits: Limits, only: Sequence[str] = ()) -> Iterator[Part]:
    """Yield the table of whole models under `ideal` and their default target."""
    yield "Bytes in KB of 1024; seconds: from the greedy arena to the last.\n"
    sizes_of = ("file's arena", "peak", "greedy", *STAGES, "bound")
    yield Heading("model", "target", *sizes_of, "arena / peak", "status", "~s")
    peaks = greedy = arenas = 0
    for name, module in _modules(only):
        for target_name in dict.fromkeys(("ideal", default_target(module.format))):
            target = load_target(target_name)
            lowered = lower_module(module, target)
            plan = plan_module(module, lowered, Run(limits))[0]
            file = baselines(module, lowered, target, ("file_order",))["file_order"].allocation.arena
            found = measure(plan.graph, plan.schedule, target.alignment_bytes, limits)
            peaks, greedy, arenas = peaks + found.peak, greedy + found.greedy, arenas + found.arena
            sizes = (file, found.peak, found.greedy, *found.arenas, found.bound)
            ratio = f"{found.arena / found.peak:.4f}" if found.peak else "-"
            yield name, target_name, *map(kilobytes, sizes), ratio, found.status, f"{found.seconds:.2f}"
    if peaks:
        yield f"\nAll together: greedy {greedy / peaks:.4f}, now {arenas / peaks:.4f} of the peaks."


def random_table(limits: Limits, layers: Sequence[int] = LAYERS, seeds: int = 8) -> Iterator[Part]:
    """Yield the table of random layers: of how many the arena is the peak after each stage, and the mean excess."""
    yield f"Random layers, {seeds} of each size: arena = peak in so many, and the arena's mean excess over the peak.\n"
    yield Heading("ops", "greedy", *STAGES, "proven otherwise", "~s mean", "~s most")
    for ops in layers:
        found = []
        for seed in range(seeds):
            graph = layered(ops, seed)
            found.append(measure(graph, schedule_graph(graph, Run(limits)).schedule, 1, limits))
        cells: list[object] = [ops]
        for arenas in zip(*[(one.greedy, *one.arenas) for one in found], strict=True):
            excess = [arena / one.peak - 1 for arena, one in zip(arenas, found, strict=True)]
            cells.append(f"{sum(not share for share in excess)}, {percent(sum(excess) / len(excess))}")
        cells.append(sum(one.status == "optimal" and one.arena > one.peak for one in found))
        seconds = [one.seconds for one in found]
        yield *cells, f"{sum(seconds) / len(seconds):.1f}", f"{max(seconds):.1f}"


def tables(values: Values) -> Iterator[Part]:
    """Yield the tables that are asked for."""
    limits = Limits(values.time_limit)
    yield f"Time limit {values.time_limit:g} s.\n"
    if "models" in values.tables or not values.tables:
        yield from model_table(limits, values.model)
        yield ""
    if "random" in values.tables or not values.tables:
        yield from random_table(limits, seeds=values.seeds)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("tables", type=one_of("table", ("models", "random")), help="by default both"),
        time_limit(20.0, "of each graph, after its order"),
        option("--model", action="append", default=[], help="only this model; may be repeated"),
        option("--seeds", type=int, default=8, help="random graphs of each size"),
    ),
    docs="docs/benchmarks/addresses.md",
)
