"""Seconds and heights of the packing solvers, on instances from a folder of CSV files and on generated ones.

A CSV file has the columns id, lower, upper, size: half-open lifetimes, bytes; its name may hold the capacity, as in
"A.1048576.csv". A generated instance is cut out of a rectangle of time and addresses, so that it has a packing whose
height is the largest live sum.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from memsched.check.packing import check_packing
from memsched.graph.packing import Block
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.allocate.bounds import lower_bound
from memsched.solve.allocate.exact import solve
from memsched.solve.allocate.greedy import GreedyPlanner
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option, time_limit
from scripts.bench.runner.timing import Stopwatch, timed

CAPACITY = 1024
"""Of generated instances, in units of 1024 bytes."""

_UNIT = 1024
_Rectangle = tuple[int, int, int, int]
"""First time, end, first address, end."""


def generate(count: int, seed: int, *, times: int = 150, fill: float = 1.0, thin: float = 0.5) -> list[Block]:
    """Return about ``count`` blocks cut out of a full rectangle of CAPACITY units, by straight cuts and pinwheels.

    Args:
        times: Width of the rectangle.
        fill: Part of the blocks that is kept; those of one time are always kept, so that the bound stays tight.
        thin: How often a rectangle is cut across the addresses rather than across the time: 1 gives long lifetimes.
    """
    rng = random.Random(f"{count} {seed} {times} {fill} {thin}")
    pieces: list[_Rectangle] = [(0, times, 0, CAPACITY)]
    wanted = int(count / fill)
    while len(pieces) < wanted:
        ready = [index for index, piece in enumerate(pieces) if _area(piece) > 1]
        if not ready:
            break
        most = rng.choices(ready, [_area(pieces[index]) ** 0.7 for index in ready])[0]
        pieces[most : most + 1] = _cut(pieces[most], rng, thin)
    full = rng.randrange(times)
    kept = [piece for piece in pieces if piece[0] <= full < piece[1] or rng.random() < fill]
    rng.shuffle(kept)
    return [Block.whole((top - bottom) * _UNIT, begin, end) for begin, end, bottom, top in kept]


def _area(piece: _Rectangle) -> int:
    return (piece[1] - piece[0]) * (piece[3] - piece[2])


def _cut(piece: _Rectangle, rng: random.Random, thin: float) -> list[_Rectangle]:
    begin, end, bottom, top = piece
    if end - begin >= 3 and top - bottom >= 3 and rng.random() < 0.2:
        a, b = sorted(rng.sample(range(begin + 1, end), 2))
        low, high = sorted(rng.sample(range(bottom + 1, top), 2))
        return [
            (begin, b, bottom, low),
            (b, end, bottom, high),
            (a, end, high, top),
            (begin, a, low, top),
            (a, b, low, high),
        ]
    across = end - begin < 2 or (top - bottom >= 2 and rng.random() < thin)
    if across:
        at = rng.randrange(bottom + 1, top)
        return [(begin, end, bottom, at), (begin, end, at, top)]
    at = rng.randrange(begin + 1, end)
    return [(begin, at, bottom, top), (at, end, bottom, top)]


def read(path: Path) -> tuple[list[Block], int | None]:
    """Return the blocks of a CSV file and the capacity in its name, if there is one."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(int(row["lower"]), int(row["upper"]), int(row["size"])) for row in csv.DictReader(file)]
    given = path.name.split(".")[-2]
    return [Block.whole(size, low, high) for low, high, size in rows], int(given) if given.isdigit() else None


def shuffled(blocks: Sequence[Block], seed: int) -> list[Block]:
    """Return ``blocks`` in another order, and every second time with time reversed."""
    rng = random.Random(seed)
    result = list(blocks)
    rng.shuffle(result)
    if seed % 2 == 0:
        return result
    return [Block.whole(block.size, -block.parts[0].end, -block.parts[0].begin) for block in result]


def _instances(folder: Path | None, generated: int) -> Iterator[tuple[str, list[Block], int | None]]:
    if folder is not None:
        for path in sorted(folder.glob("*.csv")):
            yield (path.name.split(".")[0], *read(path))
    for number in range(generated):
        count = (60, 100, 150, 200, 300, 450)[number % 6]
        fill = (1.0, 0.95, 0.9, 0.8)[number // 6 % 4]
        thin = (0.4, 0.5, 0.6)[number % 3]
        blocks = generate(count, number, times=(40, 100, 150)[number // 2 % 3], fill=fill, thin=thin)
        yield f"cut {count} {fill} {thin} #{number}", blocks, CAPACITY * _UNIT


def tables(values: Values) -> Iterator[Part]:
    """Yield one row per instance."""
    generated = values.generated if values.generated or values.instances else 12
    yield Heading("instance", "blocks", "capacity", "bound", "greedy / bound", "height", "status", "nodes", "~seconds")
    for name, original, stated in _instances(values.instances, generated):
        capacity = None if values.minimize else stated
        for seed in range(values.seeds):
            blocks = shuffled(original, seed) if seed else original
            bound, _ = lower_bound(blocks)
            (greedy, offsets, _), planned = timed(lambda: GreedyPlanner(blocks).run(bound))  # noqa: B023 - called at once
            limits = Limits(values.time_limit, seed, values.workers)
            watch = Stopwatch()
            found = solve(blocks, Run(limits), capacity=capacity, lower_bound=bound, incumbent=offsets)
            seconds = watch.seconds
            missed = capacity is not None and found.height > capacity
            check_packing(blocks, found, None if missed else capacity)
            status = "too high" if missed else found.status
            ratio, spent = f"{greedy / bound:.3f}", f"{planned:.2f} + {seconds:.2f}"
            yield name, len(blocks), stated or "-", bound, ratio, found.height, status, found.states, spent


BENCH = Benchmark(
    __doc__,
    tables,
    (
        option("--instances", type=Path, help="a folder of CSV files"),
        option("--generated", type=int, default=0, help="how many to generate; default: 12 without a folder"),
        option("--seeds", type=int, default=1, help="runs per instance, shuffled and mirrored from the second on"),
        time_limit(30.0, "of each run"),
        option("--workers", type=int, default=1, help="processes of the search"),
        option("--minimize", action="store_true", help="ignore capacities"),
    ),
    docs="docs/benchmarks/addresses.md",
)
