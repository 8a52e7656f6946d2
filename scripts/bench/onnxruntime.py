"""Measure the installed ONNX Runtime before and after, by order guarantee, and judge the predictions.

Three tables: the light models of the onnx package, random DAGs,
and the search for default orders against the optimum of all orders. "plain" is a session without options but with
graph optimisation off, "all" one without any option. Peaks are what profiles show, without kernel workspaces.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option
from scripts.bench.runner.models import light_models
from scripts.bench.runner.text import kilobytes
from scripts.bench.runner.timing import Stopwatch

GUARANTEES = ("none", "session", "pins", "default")
WAYS = (("file", True), ("file", False), ("default", True), ("default", False))
PIN_BYTES = 64
"""What a pin may add to a measured peak: the few numbers that it computes."""


@dataclass
class Row:
    """One model: measured bytes, and which predictions were right.

    Attributes:
        plain: The model as given, in a plain session; "all" with graph optimisation too.
        after: Per guarantee what was measured as the guarantee is to be used; ``after_all`` in sessions without
            any option.
        right: Per way to run the given model whether the prediction was the measured peak.
        promised: Per guarantee whether the prediction for the written model was.
        total: Per guarantee by how many bytes the predicted peak with workspaces falls.
    """

    name: str
    ops: int
    plain: int
    all: int | None
    after: dict[str, int] = field(default_factory=dict)
    after_all: dict[str, int | None] = field(default_factory=dict)
    right: dict[tuple[str, bool], bool] = field(default_factory=dict)
    promised: dict[str, bool] = field(default_factory=dict)
    total: dict[str, int] = field(default_factory=dict)
    pins: int = 0
    seconds: float = 0.0


def predicted(model: bytes, order: str, reuse: bool) -> int:
    """Return the bytes that a session should request for ``model`` at most, workspaces aside."""
    from memsched.formats.files import load_module
    from memsched.formats.module import LoadOptions
    from memsched.lowering.apply import apply_target
    from memsched.runtimes.onnxruntime.orders import default_order, priority_order
    from memsched.runtimes.onnxruntime.reuse import PlannerGraph, simulate_reuse
    from memsched.targets.load import load_target

    graph = apply_target(load_module(model, "model.onnx", LoadOptions()).graph, load_target("onnxruntime"))
    run = priority_order(graph) if order == "file" else default_order(graph)
    return simulate_reuse(PlannerGraph.of(graph), run, reuse=reuse).requested_peak


def measured(model: bytes, order: str, reuse: bool | None = None, level: str = "basic") -> int | None:
    """Return the bytes that the installed runtime requested at most."""
    from tests.runtimes.onnxruntime.measured import measure

    return measure(model, order=order, reuse=reuse, level=level).peak_bytes  # type: ignore[arg-type]


def measured_here(model: bytes, order: str, reuse: bool | None = None, level: str = "basic") -> int | None:
    """Return what `measured` does, in this process: for small models without computed constants."""
    import onnx

    from tests.onnx_dags import executed

    with tempfile.TemporaryDirectory() as folder:
        return executed(
            onnx.load_model_from_string(model),
            Path(folder),
            by_file=order == "file",
            reuse=order == "default" if reuse is None else reuse,
            level=None if level == "basic" else level,
        )[2]


def judge(name: str, model: bytes, measured: Callable[..., int | None]) -> Row:
    """Run one model as given and as each guarantee writes it."""
    from memsched.commands.optimize.optimize import optimize

    row = Row(name, 0, measured(model, "default") or 0, measured(model, "default", level="all"))
    for order, reuse in WAYS:
        row.right[order, reuse] = measured(model, order, reuse) == predicted(model, order, reuse)
    for guarantee in GUARANTEES:
        watch = Stopwatch()
        result = optimize(model, order_guarantee=guarantee, verify=False)  # type: ignore[arg-type]
        row.seconds = max(row.seconds, watch.seconds)
        report = result.report.data
        order = "file" if guarantee == "session" else "default"
        peaks = report["output"]["guarantee"]["predicted_peak_bytes"]
        row.total[guarantee] = peaks["given"] - peaks[f"{guarantee}_without_reuse" if order == "file" else guarantee]
        row.ops, row.pins = report["model"]["ops"], max(row.pins, report["output"]["guarantee"]["pins"] or 0)
        row.after[guarantee] = measured(result.model, order) or 0
        row.promised[guarantee] = row.after[guarantee] == predicted(result.model, order, order == "default")
        if guarantee != "session":
            row.after_all[guarantee] = measured(result.model, "default", level="all")
    return row


def allowed(row: Row, guarantee: str) -> int:
    """Return the bytes by which pins may raise a measured peak."""
    return PIN_BYTES * row.pins if guarantee == "pins" else 0


def models_table(rows: Sequence[Row]) -> Iterator[Part]:
    """Yield the table of single models."""
    yield Heading(
        *("model", "ops", "plain", *GUARANTEES, "predictions right", "all: given", "none", "pins", "default", "~s")
    )
    for row in rows:
        right = sum(row.right.values()) + sum(row.promised.values())
        cells = [row.name, str(row.ops), kilobytes(row.plain)]
        cells += [kilobytes(row.after[guarantee]) for guarantee in GUARANTEES]
        cells += [f"{right} of {len(row.right) + len(row.promised)}", kilobytes(row.all)]
        cells += [kilobytes(row.after_all[guarantee]) for guarantee in ("none", "pins", "default")]
        yield *cells, f"{row.seconds:.2f}"


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield how often predictions were right, peaks fell, and peaks rose."""
    for order, reuse in WAYS:
        count = sum(row.right[order, reuse] for row in rows)
        yield f"- {order} order, enable_mem_reuse {reuse}: {count} of {len(rows)} peaks predicted to the byte"
    for guarantee in GUARANTEES:
        lower = sum(row.after[guarantee] < row.plain for row in rows)
        higher = [row.name for row in rows if row.after[guarantee] > row.plain + allowed(row, guarantee)]
        rose = sum(row.total[guarantee] < 0 for row in rows)
        ratio = sum(row.after[guarantee] / row.plain for row in rows if row.plain) / max(1, len(rows))
        text = (
            f"- {guarantee}: lower than plain in {lower}, higher in {len(higher)} {higher[:5]}, mean {ratio:.4f}, "
            f"with workspaces higher in {rose} (predicted)"
        )
        if guarantee != "session":
            pairs = [(row, row.after_all[guarantee]) for row in rows]
            known = [(row.all, after, row) for row, after in pairs if row.all is not None and after is not None]
            worse = [row.name for given, after, row in known if after > given + allowed(row, guarantee)]
            fell = sum(after < given for given, after, _ in known)
            text += f"; with graph optimisation lower in {fell}, higher in {len(worse)} {worse[:5]}"
        yield text


def search_row(make: Callable[[int], Any], count: int, reuse: bool) -> tuple[object, ...]:
    """Return a row on the best default orders against the optimum of all orders, liveness alone or as they run."""
    from memsched.formats.files import load_module
    from memsched.formats.module import LoadOptions
    from memsched.graph.liveness import Storage
    from memsched.lowering.apply import apply_target
    from memsched.runtimes.onnxruntime.default_rule import best_default_order
    from memsched.runtimes.onnxruntime.orders import default_order
    from memsched.runtimes.onnxruntime.reuse import PlannerGraph, simulate_reuse
    from memsched.search.limits import Limits
    from memsched.search.run import Run
    from memsched.solve.schedule.orders import ORDERS
    from memsched.solve.schedule.portfolio import schedule_graph
    from memsched.targets.load import load_target
    from tests.onnx_dags import shuffled

    ratios, given, longest, complete = [], [], 0.0, 0
    for seed in range(count):
        model = shuffled(make(seed), seed).SerializeToString()
        graph = apply_target(load_module(model, "dag.onnx", LoadOptions()).graph, load_target("onnxruntime"))
        storage = Storage.of(graph)
        best = schedule_graph(graph, Run(Limits(30, 0, 1)), storage=storage).schedule
        planned, default = PlannerGraph.of(graph, storage), default_order(graph)
        guides = [best.order, default, *(rule(storage) for rule in ORDERS.values())]
        watch = Stopwatch()
        found = best_default_order(planned, guides, reuse=reuse, lower_bound=best.lower_bound)
        longest = max(longest, watch.seconds)
        ratios.append(found.peak / best.peak)
        given.append(simulate_reuse(planned, default, reuse=reuse).peak / best.peak)
        complete += found.complete
    means = (f"{sum(given) / count:.3f}", f"{sum(ratio == 1 for ratio in ratios)} of {count}")
    ends = (f"{sum(ratios) / count:.3f}", f"{max(ratios):.3f}", complete, f"{longest:.2f}")
    return make.__name__, reuse, *means, *ends


def tables(values: Values) -> Iterator[Part]:
    """Yield all tables."""
    from tests.onnx_dags import elementwise, shuffled, varied

    models = light_models() if values.models is None else values.models
    yield "Peaks in KB of 1024 bytes as measured; seconds: the slowest of the four optimisations.\n"
    rows = [judge(path.stem, path.read_bytes(), measured) for path in models]
    yield from models_table(rows)
    yield ""
    yield from summary(rows)
    makers = (elementwise, varied)
    dags = [
        judge(f"{make.__name__} {seed}", shuffled(make(seed), seed).SerializeToString(), measured_here)
        for make in makers
        for seed in range(values.dags)
    ]
    yield f"\n{len(dags)} random DAGs:\n"
    yield from summary(dags)
    yield ""
    yield Heading("DAGs", "reuse", "given / optimum", "optimal", "mean", "worst", "complete", "~longest, s")
    for make in makers:
        for reuse in (False, True):
            yield search_row(make, 40, reuse)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        option("--dags", type=int, default=50, help="random DAGs of each of the two kinds"),
        option("--models", nargs="*", type=Path, help="models to run instead of the light ones"),
    ),
    docs="docs/benchmarks/runtimes.md",
)
