"""Measure how the tool grows: seconds and memory on graphs of 100 to 100,000 ops, each in a process of its own."""

from __future__ import annotations

import dataclasses
import json
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, Verdict, option, time_limit
from scripts.bench.runner.text import kilobytes, percent
from scripts.bench.runner.timing import Stopwatch
from scripts.networks.growth import KINDS

SIZES = (100, 1_000, 10_000, 100_000)
_COLUMNS = (
    "graph",
    "ops",
    "tasks",
    "file",
    "greedy",
    "ours",
    "vs greedy",
    "bound",
    "gap",
    "status",
    "found by",
    "~s without search",
    "~s search",
    "~s checks, addresses",
    "~s in all",
    "~MB graph",
    "~MB peak",
)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One graph's run.

    Attributes:
        simple_seconds: Cheap orders, fusion and the bound that needs no search.
        search_seconds: The methods that the time limit ends.
        final_seconds: The checker and the addresses.
        graph_megabytes: Peak memory of the process before the tool began.
        megabytes: Peak memory of the process in all.
    """

    kind: str
    ops: int
    tasks: int
    file: int
    greedy: int
    peak: int
    lower_bound: int
    status: str
    method: str
    simple_seconds: float
    search_seconds: float
    final_seconds: float
    graph_megabytes: float
    megabytes: float

    @property
    def seconds(self) -> float:
        """All stages together."""
        return self.simple_seconds + self.search_seconds + self.final_seconds


def measure_here(kind: str, ops: int, time_limit: float) -> Measurement:
    """Build a graph, order it, check the order, give addresses; in this process."""
    from memsched.check.schedule import check_allocation, check_schedule
    from memsched.search.limits import Limits
    from memsched.search.run import Run
    from memsched.solve.allocate.arena import allocate
    from memsched.solve.schedule.portfolio import schedule_graph

    graph = KINDS[kind](ops)
    before = _megabytes()
    watch = Stopwatch()
    result = schedule_graph(graph, Run(Limits(time_limit=time_limit)))
    scheduled = watch.seconds
    search = sum(record.seconds for record in result.passes if record.name == "search")
    check_schedule(graph, result.schedule)
    check_allocation(graph, result.schedule, allocate(graph, result.schedule, alignment=1))
    return Measurement(
        kind=kind,
        ops=len(graph.ops),
        tasks=len(result.fused.tasks) if result.fused else len(graph.ops),
        file=result.baselines["file"][1],
        greedy=result.baselines["greedy"][1],
        peak=result.schedule.peak,
        lower_bound=result.schedule.lower_bound,
        status=result.schedule.status,
        method=result.schedule.method,
        simple_seconds=scheduled - search,
        search_seconds=search,
        final_seconds=watch.seconds - scheduled,
        graph_megabytes=before,
        megabytes=_megabytes(),
    )


def _megabytes() -> float:
    """Return the peak memory of this process; Linux counts in KB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def measure_and_tell(kind: str, ops: str, time_limit: str) -> None:
    """Do `measure_here` and print the measurement as JSON."""
    print(json.dumps(dataclasses.asdict(measure_here(kind, int(ops), float(time_limit)))))


def measure(kind: str, ops: int, time_limit: float) -> Measurement:
    """Do `measure_here` in a process of its own."""
    code = "import sys; from scripts.bench.growth import measure_and_tell; measure_and_tell(*sys.argv[1:])"
    command = [sys.executable, "-c", code, kind, str(ops), str(time_limit)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{kind}, {ops} ops: exit {done.returncode}: {done.stderr.strip()}")
    return Measurement(**json.loads(done.stdout))


def row(found: Measurement) -> tuple[str, ...]:
    """Return the cells of a measurement; peaks in KB of 1024 bytes."""
    stages = (found.simple_seconds, found.search_seconds, found.final_seconds, found.seconds)
    return (
        *(found.kind, f"{found.ops:,}", f"{found.tasks:,}"),
        *(kilobytes(size) for size in (found.file, found.greedy, found.peak)),
        percent(found.peak / found.greedy - 1),
        kilobytes(found.lower_bound),
        percent(found.peak / found.lower_bound - 1),
        *(found.status, found.method),
        *(f"{seconds:.2f}" for seconds in stages),
        *(f"{megabytes:.0f}" for megabytes in (found.graph_megabytes, found.megabytes)),
    )


def draw(measurements: Sequence[Measurement], output: Path) -> None:
    """Write a picture of seconds and memory against ops, both logarithmic."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise SystemExit("drawing needs matplotlib: pip install matplotlib") from None
    mpl.use("svg" if output.suffix == ".svg" else "agg")
    mpl.rcParams["svg.hashsalt"] = "memsched"
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for kind, colour in (("layered", "#c0562f"), ("stacked", "#1f6f8b")):
        of_kind = [found for found in measurements if found.kind == kind]
        if not of_kind:
            continue
        ops = [found.ops for found in of_kind]
        left.plot(ops, [found.seconds for found in of_kind], "o-", color=colour, label=f"{kind}: in all")
        rest = [found.seconds - found.search_seconds for found in of_kind]
        left.plot(ops, rest, "o--", color=colour, label=f"{kind}: without the search")
        right.plot(ops, [found.megabytes for found in of_kind], "o-", color=colour, label=kind)
    for axes, label in ((left, "seconds"), (right, "peak memory of the process, MB")):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("ops")
        axes.set_ylabel(label)
        axes.legend(frameon=False, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=150, metadata={"Date": None} if output.suffix == ".svg" else None)


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per graph; it is wrong where an order is worse than the greedy one."""
    yield f"Peaks in KB of 1024 bytes; time limit of the search {values.time_limit:g} s; MB: memory of the process.\n"
    yield Heading(*_COLUMNS)
    measurements = []
    for kind in values.kinds:
        for ops in values.ops:
            measurements.append(measure(kind, ops, values.time_limit))
            yield row(measurements[-1])
    worse = sum(found.peak > found.greedy for found in measurements)
    yield Verdict(f"\nWorse than greedy: {worse} of {len(measurements)}.", worse > 0)
    if values.plot:
        draw(measurements, values.plot)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        option("--kinds", nargs="+", choices=tuple(KINDS), default=tuple(KINDS), help="of graphs"),
        option("--ops", nargs="+", type=int, default=SIZES, help="sizes"),
        time_limit(60.0, "of the search"),
        option("--plot", type=Path, metavar="FILE", help="picture to write, .svg or .png"),
    ),
    docs="docs/benchmarks/order.md",
)
