"""Budgets over order, in-place writes, exact algebra, pieces and repetitions together: met or not, extra work, seconds.

Every model is given shares of what its file as given requires under its target (`--shares`); all that `--allow` knows
and that rounds nothing otherwise is permitted, with up to 50 % extra work. A budget that is not met is impossible where
it is below what every rewritten model needs: its inputs, or its outputs, all at once, beside what its runtime keeps for
each of its operators. It is impossible in pieces where it is below what any pieces and loops of the model's own
operators need, in whatever order, with repetitions and any amount of extra work: then algebra alone could meet it.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from memsched.commands.optimize.optimize import optimize
from memsched.formats.files import load_module
from memsched.formats.known import format_of
from memsched.formats.module import LoadOptions, Module
from memsched.graph.liveness import Storage
from memsched.graph.model import Op
from memsched.rewrites.recompute.holding import relaxed
from memsched.runtimes.known import runtime_of
from memsched.targets.load import default_target, load_target
from scripts.bench.runner.declare import (
    ROOT,
    Benchmark,
    Heading,
    Part,
    Values,
    Verdict,
    effort,
    option,
    positional,
    time_limit,
)
from scripts.bench.runner.models import built
from scripts.bench.runner.timing import Stopwatch

_SHARES = (75, 50, 35)
_NETWORKS = ("nasnet_a", "randwire1", "hrnet_w18_small_v1", "unetpp", "resnet18", "googlenet", "transformer")
_MOVED = (
    "Pad",
    "PAD",
    "PADV2",
    "Slice",
    "SLICE",
    "STRIDED_SLICE",
    "Concat",
    "CONCATENATION",
    "AVERAGE_POOL_2D",
    "MAX_POOL_2D",
)
"""Operators that algebra can do without: pads, crops and subsamplings in a row, and what joins parts."""
_FILES = ("person_detect.tflite", "mobilenetv2_035_96_int8.tflite", "nasnetmobile_int8.tflite")


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per model and budget; it is wrong where a larger budget cost more than a smaller one."""
    yield Heading("model", "target", "required as given", "budget", "needs", "met", "extra work", "how", "~s")
    worse = met = impossible = runs = in_pieces = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in values.models or _models(Path(folder)):
            costs = []
            for cost, row in _rows(path, values):
                costs.append(cost)
                runs, met, impossible = runs + 1, met + ("yes" in row), impossible + ("impossible" in row)
                in_pieces += "impossible in pieces" in row
                yield row
            worse += sum(larger > smaller for larger, smaller in itertools.pairwise(costs))
    yield f"\n{met} of {runs} met, {impossible} proven impossible, {in_pieces} more in pieces."
    yield Verdict(f"\n{worse} of the larger budgets cost more than a smaller one", worse > 0)


def _models(folder: Path) -> Iterator[Path]:
    for name in _FILES:
        yield ROOT / "models" / name
    for name in _NETWORKS:
        path = folder / f"{name}.onnx"
        path.write_bytes(built(name))
        yield path


def _rows(path: Path, values: Values) -> Iterator[tuple[float, tuple[object, ...]]]:
    """Yield per budget the extra work, without end where it is not met, and the row."""
    target = "tflm" if path.suffix == ".tflite" else None
    given = optimize(str(path), target=target, solver="file", verify=False)
    needed = given.report["sections"]["requirement"]["given_bytes"]
    least = least_of_all(path, target, given.report.data)
    for share in values.shares:
        budget = needed * share // 100
        watch = Stopwatch()
        result = optimize(
            str(path),
            target=target,
            budget=budget,
            allow=("reorder", "inplace", "tile", "remat", "algebra"),
            max_extra_macs=values.max_extra_macs,
            max_slowdown=None,
            time_limit=values.time_limit,
            effort=values.effort,
            verify=False,
        )
        report = result.report
        tiling, remat = report["sections"]["tile"], report["sections"]["recompute"]
        pieces = tiling is not None and tiling["applied"]
        again = remat is not None and remat["applied"]
        extra = (tiling["extra_macs_percent"] if pieces else 0.0) + (remat["extra_work_percent"] if again else 0.0)
        met = report["budget"]["met"]
        algebra = report["sections"]["algebra"] is not None and report["sections"]["algebra"]["applied"]
        how = " + ".join(["algebra"] * algebra + ["pieces"] * pieces + ["again"] * again) or "order"
        needs, spent = report["budget"]["required_bytes"], watch.seconds
        told = (path.stem, report["target"]["name"], f"{needed:,}", f"{share} %", f"{needs:,}")
        cost = extra if met else float("inf")
        word = "yes" if met else impossibility(budget, least, report.data)
        yield cost, (*told, word, f"{extra:.1f} %", how, f"{spent:.0f}")


def impossibility(budget: int, least: int, report: Mapping[str, Any]) -> str:
    """Return in what a budget that was not met is impossible; "no" where that is not known.

    Args:
        least: What every rewritten model needs.
        report: Of the run that did not meet it.
    """
    if budget < least:
        return "impossible"
    tiling, algebra = report["sections"]["tile"], report["sections"]["algebra"]
    # Of a model that was computed otherwise, the operators are not the given one's.
    own = algebra is None or not algebra["applied"]
    bound = tiling["lower_bound_bytes"] if own and tiling is not None else None
    return "impossible in pieces" if bound is not None and budget < bound else "no"


def least_of_all(path: Path, target: str | None, report: Mapping[str, Any]) -> int:
    """Return bytes that every model needs that orders, algebra, pieces and repetitions make of one.

    The caller's tensors stay whole, all inputs before the first operator and all outputs behind the last. Operators
    stay, too, but for those that move elements and for equal ones: what their runtime keeps for them comes on top.

    Args:
        report: Of the model in the order of its file.
    """
    module = load_module(path.read_bytes(), path.name, LoadOptions())
    rules = load_target(target or default_target(module.format))
    graph = relaxed(module.graphs[0], rules)
    storage = Storage.of(graph)
    ends = max(storage.initial_residue(), storage.final_residue())
    kept = report["sections"]["requirement"]["parts"].get("persistent_bytes", 0)
    prices = runtime_of(module, rules).prices(module)
    if not kept or prices is None:
        return ends
    return int(ends + kept - prices.of_ops(module.graphs[0], _spared(module)).persistent)


def _spared(module: Module) -> Iterator[Op]:
    """Yield the operators that some rewritten model may do without."""
    names, _ = format_of(module).constants_read(module)
    same: dict[int, int] = {}
    known: dict[object, Op] = {}
    for op, constants in zip(module.graphs[0].ops, names, strict=True):
        inputs = tuple(same.get(tensor, tensor) for tensor in op.inputs)
        equal = known.setdefault((op.type, inputs, tuple(constants)), op)
        same.update(zip(op.outputs, equal.outputs, strict=False))
        if equal is not op or op.type in _MOVED:
            yield op


BENCH = Benchmark(
    __doc__,
    tables,
    (
        time_limit(60.0, "of each run"),
        effort(),
        option("--shares", type=int, nargs="+", default=_SHARES, metavar="PCT", help="budgets"),
        option("--max-extra-macs", type=float, default=50.0, metavar="PCT", help="extra work that is permitted"),
        positional("models", type=Path, help="default: ten of models/ and scripts/networks"),
    ),
    docs="docs/benchmarks/rewrites.md",
)
