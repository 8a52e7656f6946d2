"""Order, repetitions and addresses of small models together, against every way that there is.

    python -m tests.tools.exhaustive --models 500

Each random ONNX model has up to eight operators. All orders, repetitions and in-place writes of it are tried out by a
game of the tests, which gives the least extra work for every number of bytes. `memsched.optimize` gets each of these as
a budget, and one byte less than the least: it must meet the first with that work, and say of the last that it is
impossible. Where its addresses have gaps, a game with addresses says whether they must. Prints what is missed; exit
code 1 if anything is.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

import memsched
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.targets.load import load_target
from tests.rewrites.recompute.pebbles import least_points
from tests.small_models import floats, model_of
from tests.solve.joint.addressed_game import least_cost

__all__ = ["judge", "main", "small_model"]

_LARGEST = 9
"""Elements of a tensor at most."""

_MOST = 10_000.0
"""Extra work that is permitted, in percent: more than any of these models has use for."""


def small_model(seed: int, most: int = 8) -> bytes:
    """Return a model of 2 to ``most`` operators on rows of 1 to 9 floats; every loose end is an output."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    values = [("x", rng.randint(1, _LARGEST))]
    nodes: list[Any] = []
    weights: list[Any] = []
    used: set[str] = set()
    for place in range(rng.randint(2, most)):
        name = f"v{place}"
        reach = values[-rng.choice([1, 2, 4, 9]) :]
        read, size = rng.choice(reach)
        kind = rng.choice(["MatMul", "MatMul", "MatMul", "Relu", "Add", "Concat", "RandomNormalLike"])
        others = [one for one, width in values if one != read and (kind == "Concat" or width == size)]
        if kind in {"Add", "Concat"} and not others:
            kind = "MatMul"
        inputs = [read]
        if kind == "MatMul":
            width = rng.randint(1, _LARGEST)
            weights.append(numpy_helper.from_array(numbers.normal(size=(size, width)).astype(np.float32), f"w{place}"))
            inputs, size = [read, f"w{place}"], width
        elif kind in {"Add", "Concat"}:
            inputs.append(rng.choice(others))
            size = size if kind == "Add" else size + dict(values)[inputs[1]]
        used.update(inputs)
        attributes: dict[str, Any] = {"axis": 1} if kind == "Concat" else {}
        nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        values.append((name, size))
    outputs = [floats(name, [1, width]) for name, width in values[1:] if name not in used]
    return model_of(nodes, [floats("x", [1, values[0][1]])], outputs, weights)


def judge(seed: int, most: int = 8) -> list[str]:
    """Return what `memsched.optimize` misses of a model."""
    data, target = small_model(seed, most), load_target("ideal")
    graph = load_module(data, "small.onnx", LoadOptions()).graphs[0]
    points = least_points(graph, target)
    wrong = []
    for peak, cost in points:
        needs, spent = _found(data, peak)
        if needs <= peak and spent == cost:
            continue
        # A game without addresses knows of no gaps: they decide.
        if needs <= peak or least_cost(graph, target, peak, cost) is not None:
            wrong.append(f"{needs:,} B for {spent:,} more work; {peak:,} B for {cost:,} exist")
    least = points[-1][0]
    if _found(data, least - 1)[0] < least:
        wrong.append(f"less than {least:,} B, which no way needs")
    return wrong


def _found(data: bytes, budget: int) -> tuple[int, int]:
    """Return the bytes that the best model for a budget needs, and its extra work."""
    report = memsched.optimize(
        data,
        target="ideal",
        budget=budget,
        allow=("reorder", "inplace", "remat"),
        max_extra_macs=_MOST,
        max_slowdown=None,
        effort=3.0,
        verify=False,
    ).report.data
    again = report["sections"]["recompute"]
    spent = again["extra_macs"] + again["extra_bytes_moved"] if again is not None and again["applied"] else 0
    return report["sections"]["requirement"]["bytes"], spent


def main() -> int:
    """Judge as many models as the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    missed = 0
    for seed in range(given.first, given.first + given.models):
        for one in judge(seed):
            missed += 1
            print(f"{seed}: {one}", flush=True)
    print(f"{given.models} models: {missed} missed")
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
