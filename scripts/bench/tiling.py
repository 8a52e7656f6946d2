"""Compute layers piece by piece and print what it saves: peaks, extra work, the real runtimes' word, seconds.

``--frontier`` adds peaks by extra work and draws them with ``--picture``, ``--budgets`` asks for budgets that can and
cannot be met. Each row is one run of the command line. Inference is timed on one thread, the median of several runs,
before and after in turn; weights that a model computes are made constants before.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, effort, option, positional, time_limit
from scripts.bench.runner.models import built, light_model
from scripts.bench.runner.processes import Optimized, optimized
from scripts.bench.runner.text import kilobytes, milliseconds
from scripts.bench.runner.timing import medians

BUDGET_SHARES = (0.8, 0.55, 0.3, 0.05)
"""Of the untiled arena."""


@dataclass(frozen=True)
class Case:
    """A model under a target."""

    name: str
    target: str
    make: Callable[[], bytes]

    @property
    def suffix(self) -> str:
        """Return the extension of the model's file."""
        return ".onnx" if self.target == "onnxruntime" else ".tflite"


@dataclass(frozen=True)
class Run:
    """One run of ``memsched optimize`` on a case's model."""

    case: Case
    given: bytes
    done: Optimized

    @property
    def report(self) -> dict[str, Any]:
        """Return the report."""
        return self.done.report


def _file(name: str) -> Callable[[], bytes]:
    return (ROOT / "models" / name).read_bytes


def _mobilenet() -> bytes:
    from scripts.networks.mobilenet_tflite import mobilenet_v2

    return mobilenet_v2(1.0, 224)


def _efficientnet() -> bytes:
    from scripts.networks.efficientnet import efficientnet_b0

    return bytes(efficientnet_b0().SerializeToString(deterministic=True))


def _unet() -> bytes:
    from scripts.networks.unet import unet

    return bytes(unet().SerializeToString(deterministic=True))


CASES = (
    Case("mobilenetv2_035_96", "litert-reference", _file("mobilenetv2_035_96_int8.tflite")),
    Case("mobilenetv2_100_224", "litert-reference", _mobilenet),
    Case("resnet50", "onnxruntime", light_model("light_resnet50").read_bytes),
    Case("vgg19", "onnxruntime", light_model("light_vgg19").read_bytes),
    Case("efficientnet_b0", "onnxruntime", _efficientnet),
    Case("unet", "onnxruntime", _unet),
    Case("transformer", "onnxruntime", partial(built, "transformer")),
)


def optimize(case: Case, given: bytes, options: Sequence[str]) -> Run:
    """Run the command line on a model, which may say with status 3 that a budget cannot be met."""
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / f"{case.name}{case.suffix}"
        source.write_bytes(given)
        # Sessions without options may need more for what is cut, and the file as given would then be all there is.
        opened = ["--order-guarantee", "session"] if case.target == "onnxruntime" else []
        asked = ["--target", case.target, "--allow", "reorder,inplace,tile", *opened, *options]
        return Run(case, given, optimized(source, asked, codes=(0, 3)))


# Inference --------------------------------------------------------------------------------------------------------


def inferences(run: Run) -> list[float | None]:
    """Return the median seconds of an inference of the model as given and as written, run as the report says.

    None for both where the runtime does not take them.
    """
    try:
        if run.case.suffix == ".onnx":
            both = [_onnx_run(run.given, ordered=False), _onnx_run(run.done.model, ordered=True)]
        else:
            both = [_tflite_run(run.given), _tflite_run(run.done.model)]
        for infer in both:
            infer()
    except (RuntimeError, ValueError):
        return [None, None]
    return list(medians(both, least=3, most=31, seconds=3))


def _onnx_run(model: bytes, *, ordered: bool) -> Callable[[], Any]:
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if ordered:
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
        options.enable_mem_reuse = False
    session = onnxruntime.InferenceSession(constant(model), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    feeds = {given.name: random.normal(size=given.shape).astype(np.float32) for given in session.get_inputs()}
    return lambda: session.run(None, feeds)


def constant(model: bytes) -> bytes:
    """Return an ONNX model whose weights are stored where the given one computes them from constants."""
    import numpy as np
    import onnx
    from onnx import numpy_helper
    from onnx.reference import ReferenceEvaluator

    proto = onnx.load_model_from_string(model)
    known = {tensor.name: tensor for tensor in proto.graph.initializer}
    kept = []
    for node in proto.graph.node:
        if node.op_type not in {"ConstantOfShape", "Expand"} or any(name not in known for name in node.input):
            kept.append(node)
            continue
        values = [numpy_helper.to_array(known[name]) for name in node.input]
        (made,) = ReferenceEvaluator(node).run(None, dict(zip(node.input, values, strict=True)))
        known[node.output[0]] = numpy_helper.from_array(np.asarray(made), node.output[0])
    read = {name for node in kept for name in node.input}
    del proto.graph.node[:], proto.graph.initializer[:]
    proto.graph.node.extend(kept)
    proto.graph.initializer.extend(tensor for name, tensor in known.items() if name in read)
    stored = {tensor.name for tensor in proto.graph.initializer}
    inputs = [value for value in proto.graph.input if value.name in read - stored]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    return bytes(proto.SerializeToString())


def _tflite_run(model: bytes) -> Callable[[], Any]:
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for given in interpreter.get_input_details():
        low, high = np.iinfo(given["dtype"]).min, np.iinfo(given["dtype"]).max
        values = np.random.default_rng(0).integers(low, high + 1, given["shape"], given["dtype"])
        interpreter.set_tensor(given["index"], values)
    run: Callable[[], Any] = interpreter.invoke
    return run


# Tables -----------------------------------------------------------------------------------------------------------


def outputs(check: dict[str, Any]) -> str:
    """Return how the outputs compare in the real runtime."""
    if check.get("outputs_equal"):
        return "bit-equal"
    error = check.get("relative_error")
    return "not run" if error is None else f"{error:.1e}"


HEADING = Heading(
    *("model", "target", "peak before", "after", "ratio", "arena", "extra MACs", "groups: pieces", "outputs"),
    *("measured before", "after", "~inference before, ms", "~after", "~search, s", "~in all, s"),
)


def row(run: Run, *, timed: bool) -> tuple[str, ...]:
    """Return the cells of the main table."""
    report, tiling = run.report, run.report["sections"]["tile"]
    check = report["sections"]["verification"] or {}
    before = tiling["untiled"]["peak_bytes"]
    pieces = " ".join("x".join(map(str, group["pieces"])) for group in tiling["groups"])
    times = inferences(run) if timed else [None, None]
    measured = ("measured_peak_before_bytes", "measured_peak_after_bytes")
    return (
        *(
            run.case.name,
            run.case.target,
            kilobytes(before),
            f"**{kilobytes(report['written']['schedule']['peak_bytes'])}**",
        ),
        *(
            f"{before / report['written']['schedule']['peak_bytes']:.2f}x",
            kilobytes(report["written"]["schedule"]["arena_bytes"]),
        ),
        *(f"{tiling['extra_macs_percent']:.2f} %", f"{len(tiling['groups'])}: {pieces}", outputs(check)),
        *(kilobytes(check.get(name)) for name in measured),
        *map(milliseconds, times),
        *(f"{report['seconds']:.1f}", f"{run.done.seconds:.1f}"),
    )


def points(run: Run) -> list[tuple[float, int]]:
    """Return (extra MACs in percent, peak) of the frontier, the model as it is first."""
    first = [(0.0, run.report["sections"]["tile"]["untiled"]["peak_bytes"])]
    rest = [(point["extra_macs_percent"], point["peak_bytes"]) for point in run.report["sections"]["tile"]["frontier"]]
    return first + [point for point in rest if point[1] < first[0][1]]


def frontier(runs: Sequence[Run], limits: Sequence[float]) -> Iterator[Part]:
    """Yield least peaks by extra work, and whether peaks only fall."""
    yield Heading("model", "target", "as it is", *(f"<= {limit:g} %" for limit in limits), "points", "monotone")
    for run in runs:
        found = points(run)
        least = [min(peak for work, peak in found if work <= limit) for limit in limits]
        falling = all(a[0] <= b[0] and a[1] > b[1] for a, b in itertools.pairwise(found))
        sizes = map(kilobytes, [found[0][1], *least])
        yield run.case.name, run.case.target, *sizes, len(found), "yes" if falling else "NO"


def draw(runs: Sequence[Run], path: Path) -> None:
    """Draw the frontiers as shares of the untiled peaks."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "memsched"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for run in runs:
        found = points(run)
        shares = [100 * peak / found[0][1] for _, peak in found]
        work = [work for work, _ in found]
        axes.step([*work, 20], [*shares, shares[-1]], where="post", label=f"{run.case.name}, {run.case.target}")
    axes.set_xlim(0, 20)
    axes.set_ylim(0, 100)
    axes.set_xlabel("extra multiply-accumulates, %")
    axes.set_ylabel("peak, % of the model as it is")
    axes.set_title("Peak memory by extra work, layers computed piece by piece", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)


def budgets(case: Case, options: Sequence[str]) -> Iterator[Part]:
    """Yield a row per budget: met with which work, or the closest."""
    given = case.make()
    plain = optimize(case, given, [*options, "--no-verify", "--budget", "1000GB"])
    untiled = plain.report["written"]["schedule"]["arena_bytes"]
    for share in BUDGET_SHARES:
        asked = int(untiled * share)
        run = optimize(case, given, [*options, "--no-verify", "--budget", str(asked)])
        tiling = run.report["sections"]["tile"] or {}
        met = "met" if run.done.code == 0 else f"exit {run.done.code}, closest"
        work = f"{tiling.get('extra_macs_percent', 0.0):.2f} %"
        sizes = (
            f"{100 * share:g} %",
            kilobytes(asked),
            met,
            kilobytes(run.report["written"]["schedule"]["arena_bytes"]),
        )
        yield case.name, case.target, *sizes, work, f"{run.done.seconds:.1f}"


def tables(values: Values) -> Iterator[Part]:
    """Yield the tables asked for."""
    cases = [case for case in CASES if not values.names or case.name in values.names]
    cases = [case for case in cases if values.target in {None, case.target}]
    limit = ["--time-limit", values.time_limit] if values.effort is None else ["--effort", values.effort]
    options = [*map(str, limit), "--max-extra-macs", values.max_extra_macs, "--max-slowdown", "none"]
    if values.budgets:
        yield Heading("model", "target", "budget", "KB", "outcome", "arena", "extra MACs", "~s")
        for case in cases:
            yield from budgets(case, options)
        return
    yield "Sizes in KB of 1024 bytes.\n"
    yield HEADING
    runs: list[Run] = []
    for case in cases:
        try:
            runs.append(optimize(case, case.make(), options))
        except SystemExit as error:
            print(error, file=sys.stderr)
            continue
        yield row(runs[-1], timed=not values.no_times)
    if values.sections.frontier:
        yield ""
        yield from frontier(runs, (0, 1, 2, 5, 10, 15))
    if values.sections.frontier and values.picture:
        draw(runs, values.picture)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("names", help=f"models, of {', '.join(dict.fromkeys(case.name for case in CASES))}"),
        option("--target", help="only under this target"),
        time_limit(60.0, "of each run"),
        effort(),
        option("--max-extra-macs", default="15", metavar="PCT", help="extra work that is permitted"),
        option("--frontier", action="store_true", help="print peaks by extra work as well"),
        option("--picture", type=Path, metavar="FILE", help="with --frontier: the picture to write"),
        option("--budgets", action="store_true", help="print which budgets are met instead"),
        option("--no-times", action="store_true", help="do not time inferences"),
    ),
    docs="docs/benchmarks/rewrites.md",
)
