"""What partitioning, fusion and pruning each do for the integer program: variables and seconds, as in table IV.

Every cell starts cold: CP-SAT has neither hint nor bound. The last row of each network gives it both, as the scheduler
does. Of a partitioned graph the parts are solved that can set the peak, the most demanding first; the others keep
their reverse post-order.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memsched.graph.contraction import Tasks, restrict, single_op_tasks
from memsched.graph.liveness import Storage
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.fusion.iterate import fuse
from memsched.solve.schedule import cpsat
from memsched.solve.schedule.bounds import largest_step
from memsched.solve.schedule.formulation import formulate
from memsched.solve.schedule.partition import partition, post_order
from scripts.bench.runner.declare import (
    TARGET,
    Benchmark,
    Heading,
    Part,
    Values,
    chosen,
    option,
    time_limit,
)
from scripts.bench.runner.models import network
from scripts.bench.runner.text import kilobytes
from scripts.bench.schedule.published import ABLATION
from scripts.networks.catalogue import NAMES

__all__ = ["BENCH", "METHODS", "Cell", "Method", "solve", "table"]

_COLUMNS = ("network", "method", "tasks", "parts solved", "variables", "~seconds", "peak", "ended", "published")
_MOST_VARIABLES = 5_000_000


@dataclass(frozen=True, slots=True)
class Method:
    """A column of table IV."""

    name: str
    partition: bool
    fusion: bool
    pruning: bool
    informed: bool = False


METHODS = (
    Method("origin", partition=False, fusion=False, pruning=False),
    Method("partition", partition=True, fusion=False, pruning=False),
    Method("partition, fusion", partition=True, fusion=True, pruning=False),
    Method("partition, pruning", partition=True, fusion=False, pruning=True),
    Method("all", partition=True, fusion=True, pruning=True),
    Method("fusion, pruning", partition=False, fusion=True, pruning=True),
    Method("fusion, pruning, hint, bound", partition=False, fusion=True, pruning=True, informed=True),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """What one method did.

    Attributes:
        tasks: Of the whole graph.
        parts: All parts, and those that were solved.
        variables: Boolean variables of the solved parts' programs together.
        seconds: With fusion, partitioning and building the programs.
        peak: Of the parts' orders one after the other, bytes; None when a part has no order.
        proven: Whether every solved part was solved to its optimum.
    """

    tasks: int
    parts: tuple[int, int]
    variables: int
    seconds: float
    peak: int | None
    proven: bool


def table(names: Sequence[str], target: str, seconds: float, parts: int) -> Iterator[Part]:
    """Yield the lines of the table; each cell has ``seconds``, with fusion, partitioning and building the program."""
    yield f"Peaks in KB of 1024 bytes, target {target}; {seconds:g} s per cell; partitions into {parts}.\n"
    yield Heading(*_COLUMNS)
    for name in names:
        storage = Storage.of(network(name, target))
        for index, method in enumerate(METHODS):
            cell = solve(storage, method, seconds, parts)
            ended = "optimum of each part" if method.partition else "optimum"
            published = ABLATION.get(name, ())
            yield (
                name,
                method.name,
                cell.tasks,
                f"{cell.parts[1]} of {cell.parts[0]}",
                f"{cell.variables:,}",
                f"{cell.seconds:.2f}",
                kilobytes(cell.peak),
                ended if cell.proven else "**time limit**",
                published[index] if index < len(published) else "-",
            )


def solve(storage: Storage, method: Method, seconds: float, parts: int) -> Cell:
    """Order the graph by CP-SAT with what ``method`` gives it, in about ``seconds``."""
    started = time.monotonic()
    tasks = fuse(storage).tasks if method.fusion else single_op_tasks(storage)
    problems = _parts(tasks, parts) if method.partition else [tasks]
    orders = [tuple(post_order(problem)) for problem in problems]
    peaks: list[int | None] = [max(problem.run(order)[0]) for problem, order in zip(problems, orders, strict=True)]
    solved = variables = 0
    proven, highest = True, 0
    for index in sorted(range(len(problems)), key=lambda part: -(peaks[part] or 0)):
        known = peaks[index]
        if known is None or known <= highest:
            continue
        found = cpsat.solve(
            problems[index],
            Run(Limits(max(0.0, seconds - (time.monotonic() - started)))),
            hint=orders[index] if method.informed else None,
            lower_bound=largest_step(storage) if method.informed else 0,
            prune=method.pruning,
            max_variables=_MOST_VARIABLES,
        )
        program = formulate(problems[index], prune=method.pruning)
        variables += program.size() if program else 0
        solved += 1
        proven = proven and found.status == "optimal"
        peaks[index] = found.peak
        highest = max(highest, found.peak or 0)
    spent = time.monotonic() - started
    peak = None if None in peaks else max(peak for peak in peaks if peak is not None)
    return Cell(len(tasks), (len(problems), solved), variables, spent, peak, proven)


def _parts(tasks: Tasks, count: int) -> list[Tasks]:
    """Return the parts as they run one after the other."""
    result: list[Tasks] = []
    executed: set[int] = set()
    residue = tasks.initial
    for group in partition(tasks, count):
        part = restrict(tasks, group, executed, residue)
        result.append(part)
        residue = part.run(range(len(part)))[1][-1]
        executed.update(group)
    return result


def tables(values: Values) -> Iterator[Part]:
    """Yield the table."""
    return table(values.names or tuple(ABLATION), values.target, values.time_limit, values.parts)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        chosen("network", NAMES, "those of the published table"),
        TARGET,
        time_limit(60.0),
        option("--parts", type=int, default=4, help="of the partitions"),
    ),
    docs="docs/benchmarks/order.md",
)
