"""Compute layers piece by piece and print what it saves: peaks, extra work, the real runtimes' word, seconds.

Run it with ``python -m scripts.bench.tiling``; ``--frontier`` adds peaks by extra work and draws them with
``--picture``, ``--budgets`` asks for budgets that can and cannot be met. Each row is one run of the command line.
Inference is timed on one thread, the median of several runs; weights that a model computes are made constants before.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
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
    """One run of ``memsched optimize``: its exit status, report, model and how long the whole process took."""

    case: Case
    status: int
    report: dict[str, Any]
    given: bytes
    model: bytes
    seconds: float


def _file(name: str) -> Callable[[], bytes]:
    return (ROOT / "models" / name).read_bytes


def _light(name: str) -> bytes:
    from scripts.bench.models import light_models

    return next(path for path in light_models() if path.stem == name).read_bytes()


def _mobilenet() -> bytes:
    from scripts.networks.mobilenet_tflite import mobilenet_v2

    return mobilenet_v2(1.0, 224)


def _efficientnet() -> bytes:
    from scripts.networks.efficientnet import efficientnet_b0

    return bytes(efficientnet_b0().SerializeToString(deterministic=True))


def _unet() -> bytes:
    from scripts.networks.unet import unet

    return bytes(unet().SerializeToString(deterministic=True))


def _catalogued(name: str) -> bytes:
    from scripts.networks.catalogue import build

    return bytes(build(name).SerializeToString(deterministic=True))


CASES = (
    Case("mobilenetv2_035_96", "tflm", _file("mobilenetv2_035_96_int8.tflite")),
    Case("mobilenetv2_035_96", "tflm-reference", _file("mobilenetv2_035_96_int8.tflite")),
    Case("mobilenetv2_035_96", "litert", _file("mobilenetv2_035_96_int8.tflite")),
    Case("mobilenetv2_100_224", "tflm", _mobilenet),
    Case("mobilenetv2_100_224", "litert", _mobilenet),
    Case("person_detect", "tflm", _file("person_detect.tflite")),
    Case("resnet50", "onnxruntime", lambda: _light("light_resnet50")),
    Case("vgg19", "onnxruntime", lambda: _light("light_vgg19")),
    Case("efficientnet_b0", "onnxruntime", _efficientnet),
    Case("unet", "onnxruntime", _unet),
    Case("nasnetmobile", "tflm", _file("nasnetmobile_int8.tflite")),
    Case("transformer", "onnxruntime", lambda: _catalogued("transformer")),
)


def optimize(case: Case, given: bytes, options: Sequence[str]) -> Run:
    """Run the command line on a model, which may say with status 3 that a budget cannot be met."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source, output, report = folder / f"given{case.suffix}", folder / f"out{case.suffix}", folder / "report.json"
        source.write_bytes(given)
        command = [sys.executable, "-m", "memsched", "optimize", str(source), "-o", str(output)]
        command += ["--report", str(report), "--target", case.target, "--allow", "reorder,inplace,tile", "-q", *options]
        started = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
        if done.returncode not in {0, 3}:
            raise SystemExit(f"{case.name}: exit {done.returncode}: {done.stderr.strip()}")
        found = json.loads(report.read_text(encoding="utf-8"))
        return Run(case, done.returncode, found, given, output.read_bytes() if output.exists() else given, seconds)


# Inference --------------------------------------------------------------------------------------------------------


def inference(case: Case, model: bytes, *, ordered: bool) -> float | None:
    """Return the median seconds of an inference on one thread; ``ordered``: as the report says to run the result.

    None where the runtime does not take the model.
    """
    try:
        run = _onnx_run(model, ordered) if case.suffix == ".onnx" else _tflite_run(model)
        run()
    except (RuntimeError, ValueError):
        return None
    taken: list[float] = []
    while len(taken) < 3 or (sum(taken) < 3 and len(taken) < 31):
        started = time.perf_counter()
        run()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _onnx_run(model: bytes, ordered: bool) -> Callable[[], Any]:
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


def kilobytes(size: int | None) -> str:
    """Return bytes as KB of 1024."""
    return "-" if size is None else f"{size / 1024:,.1f}"


def outputs(check: dict[str, Any]) -> str:
    """Return how the outputs compare in the real runtime."""
    if check.get("outputs_equal"):
        return "bit-equal"
    error = check.get("relative_error")
    return "not run" if error is None else f"{error:.1e}"


def table(runs: Iterable[Run], *, timed: bool) -> Iterator[str]:
    """Yield the main table."""
    yield (
        "| model | target | peak before | after | ratio | arena | extra MACs | groups: pieces | outputs "
        "| measured before | after | inference before, ms | after | search, s | in all, s |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
    for run in runs:
        report, tiling = run.report, run.report["tiling"]
        result, check = report["result"], report["verification"] or {}
        before = tiling["untiled"]["peak_bytes"]
        pieces = " ".join("x".join(map(str, group["pieces"])) for group in tiling["groups"])
        times = ["-", "-"]
        if timed:
            both = inference(run.case, run.given, ordered=False), inference(run.case, run.model, ordered=True)
            times = ["-" if seconds is None else f"{1000 * seconds:,.1f}" for seconds in both]
        cells = [
            *(run.case.name, run.case.target, kilobytes(before), f"**{kilobytes(result['peak_bytes'])}**"),
            *(f"{before / result['peak_bytes']:.2f}x", kilobytes(result["arena_bytes"])),
            *(f"{tiling['extra_macs_percent']:.2f} %", f"{len(tiling['groups'])}: {pieces}", outputs(check)),
            kilobytes(check.get("measured_peak_before_bytes")),
            kilobytes(check.get("measured_peak_after_bytes")),
            *times,
            *(f"{report['seconds']:.1f}", f"{run.seconds:.1f}"),
        ]
        yield "| " + " | ".join(cells) + " |"


def points(run: Run) -> list[tuple[float, int]]:
    """Return (extra MACs in percent, peak) of the frontier, the model as it is first."""
    first = [(0.0, run.report["tiling"]["untiled"]["peak_bytes"])]
    rest = [(point["extra_macs_percent"], point["peak_bytes"]) for point in run.report["tiling"]["frontier"]]
    return first + [point for point in rest if point[1] < first[0][1]]


def frontier(runs: Sequence[Run], limits: Sequence[float]) -> Iterator[str]:
    """Yield least peaks by extra work, and whether peaks only fall."""
    shown = " | ".join(f"<= {limit:g} %" for limit in limits)
    yield f"| model | target | as it is | {shown} | points | monotone |"
    yield "|" + "---|" * (len(limits) + 5)
    for run in runs:
        found = points(run)
        least = [min(peak for work, peak in found if work <= limit) for limit in limits]
        falling = all(a[0] <= b[0] and a[1] > b[1] for a, b in itertools.pairwise(found))
        cells = [run.case.name, run.case.target, *map(kilobytes, [found[0][1], *least]), str(len(found))]
        yield "| " + " | ".join([*cells, "yes" if falling else "NO"]) + " |"


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


def budgets(case: Case, given: bytes, options: Sequence[str], untiled: int) -> Iterator[str]:
    """Yield a row per budget: met with which work, or the closest."""
    for share in BUDGET_SHARES:
        asked = int(untiled * share)
        run = optimize(case, given, [*options, "--no-verify", "--budget", str(asked)])
        result, tiling = run.report["result"], run.report["tiling"] or {}
        met = "met" if run.status == 0 else f"exit {run.status}, closest"
        work = tiling.get("extra_macs_percent", 0.0)
        cells = [case.name, case.target, f"{100 * share:g} %", kilobytes(asked), met, kilobytes(result["arena_bytes"])]
        yield "| " + " | ".join([*cells, f"{work:.2f} %", f"{run.seconds:.1f}"]) + " |"


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"models, of {', '.join(dict.fromkeys(case.name for case in CASES))}")
    parser.add_argument("--target", help="only under this target")
    parser.add_argument("--time-limit", default="60", help="seconds for each run; default: %(default)s")
    parser.add_argument("--max-extra-macs", default="15", help="percent; default: %(default)s")
    parser.add_argument("--frontier", action="store_true", help="print peaks by extra work as well")
    parser.add_argument("--picture", type=Path, help="with --frontier: the picture to write")
    parser.add_argument("--budgets", action="store_true", help="print which budgets are met instead")
    parser.add_argument("--no-times", action="store_true", help="do not time inferences")
    given = parser.parse_args()
    cases = [case for case in CASES if not given.names or case.name in given.names]
    cases = [case for case in cases if given.target in {None, case.target}]
    options = ["--time-limit", given.time_limit, "--max-extra-macs", given.max_extra_macs]
    if given.budgets:
        print("| model | target | budget | KB | outcome | arena | extra MACs | s |\n|---|---|---|---|---|---|---|---|")
        for case in cases:
            model = case.make()
            plain = optimize(case, model, [*options, "--no-verify", "--budget", "1000GB"])
            for line in budgets(case, model, options, plain.report["result"]["arena_bytes"]):
                print(line, flush=True)
        return
    print("Sizes in KB of 1024 bytes.\n")
    runs: list[Run] = []
    for case in cases:
        try:
            runs.append(optimize(case, case.make(), options))
        except SystemExit as error:
            print(error, file=sys.stderr)
            continue
        lines = list(table(runs[-1:], timed=not given.no_times))
        print("\n".join(lines if len(runs) == 1 else lines[2:]), flush=True)
    if given.frontier:
        print("\n".join(["", *frontier(runs, (0, 1, 2, 5, 10, 15))]), flush=True)
    if given.frontier and given.picture:
        draw(runs, given.picture)


if __name__ == "__main__":
    main()
