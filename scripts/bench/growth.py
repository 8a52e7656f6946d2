"""Measure how the tool grows: seconds and memory on graphs of 100 to 100,000 ops, each in a process of its own.

``python -m scripts.bench.growth`` prints the table; ``--plot FILE.svg`` draws it, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.networks.growth import KINDS

ROOT = Path(__file__).resolve().parents[2]
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
    "s without search",
    "s search",
    "s checks, addresses",
    "s in all",
    "MB graph",
    "MB peak",
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
    from memsched.allocate.arena import allocate
    from memsched.graph.checker import check_allocation, check_schedule
    from memsched.graph.limits import Limits
    from memsched.schedule.portfolio import schedule_graph

    graph = KINDS[kind](ops)
    before = _megabytes()
    started = time.perf_counter()
    result = schedule_graph(graph, Limits(time_limit=time_limit))
    scheduled = time.perf_counter() - started
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
        final_seconds=time.perf_counter() - started - scheduled,
        graph_megabytes=before,
        megabytes=_megabytes(),
    )


def _megabytes() -> float:
    """Return the peak memory of this process; Linux counts in KB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def measure(kind: str, ops: int, time_limit: float) -> Measurement:
    """Do `measure_here` in a process of its own."""
    command = [sys.executable, "-m", "scripts.bench.growth", "--one", kind, str(ops), "--time-limit", str(time_limit)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{kind}, {ops} ops: exit {done.returncode}: {done.stderr.strip()}")
    return Measurement(**json.loads(done.stdout))


def row(found: Measurement) -> str:
    """Return one line of the Markdown table; peaks in KB of 1024 bytes."""
    sizes = [f"{size / 1024:,.1f}" for size in (found.file, found.greedy, found.peak)]
    stages = (found.simple_seconds, found.search_seconds, found.final_seconds, found.seconds)
    cells = [
        found.kind,
        f"{found.ops:,}",
        f"{found.tasks:,}",
        *sizes,
        f"{100 * (found.peak / found.greedy - 1):.1f} %",
        f"{found.lower_bound / 1024:,.1f}",
        f"{100 * (found.peak / found.lower_bound - 1):.1f} %",
        found.status,
        found.method,
        *(f"{seconds:.2f}" for seconds in stages),
        f"{found.graph_megabytes:.0f}",
        f"{found.megabytes:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def draw(measurements: Sequence[Measurement], output: Path) -> None:
    """Write a picture of seconds and memory against ops, both logarithmic."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise SystemExit("drawing needs matplotlib: pip install 'memsched[bench]'") from None
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


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.growth", description=__doc__)
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=tuple(KINDS))
    parser.add_argument("--ops", nargs="+", type=int, default=SIZES, help="sizes; default: %(default)s")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS", help="of the search")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="picture to write, .svg or .png")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "OPS"), help="measure one graph here and print JSON")
    arguments = parser.parse_args()
    if arguments.one:
        kind, ops = arguments.one
        print(json.dumps(dataclasses.asdict(measure_here(kind, int(ops), arguments.time_limit))))
        return
    print(
        f"Peaks in KB of 1024 bytes; time limit of the search {arguments.time_limit:g} s; MB: memory of the process.\n"
    )
    print("| " + " | ".join(_COLUMNS) + " |")
    print("|---" * len(_COLUMNS) + "|")
    measurements = []
    for kind in arguments.kinds:
        for ops in arguments.ops:
            measurements.append(measure(kind, ops, arguments.time_limit))
            print(row(measurements[-1]), flush=True)
    worse = [found for found in measurements if found.peak > found.greedy]
    print(f"\nWorse than greedy: {len(worse)} of {len(measurements)}.")
    if arguments.plot:
        draw(measurements, arguments.plot)


if __name__ == "__main__":
    main()
