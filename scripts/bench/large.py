"""Measure analyze and optimize on a random layered ONNX graph of many ops: seconds and memory of the whole process."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from scripts.bench.runner.declare import Benchmark, Part, Values, option, time_limit
from scripts.bench.runner.processes import Ended, ended


def write_layered(path: Path, ops: int, seed: int, width: int) -> None:
    """Write an ONNX model of ``ops`` Add and Relu nodes, each reading from the last ``width`` values."""
    import onnx
    from onnx import TensorProto, helper

    rng = random.Random(seed)
    names = ["x"]
    nodes, infos = [], []
    unread = {"x"}
    for index in range(ops):
        recent = names[-width:]
        inputs = [rng.choice(recent), rng.choice(recent)] if rng.random() < 0.6 else [rng.choice(recent)]
        name = f"t{index}"
        nodes.append(helper.make_node("Add" if len(inputs) == 2 else "Relu", inputs, [name], name=f"op{index}"))
        infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64]))
        unread.difference_update(inputs)
        unread.add(name)
        names.append(name)
    outputs = [info for info in infos if info.name in unread]
    inner = [info for info in infos if info.name not in unread]
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])
    graph = helper.make_graph(nodes, "layered", [source], outputs, value_info=inner)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))


def told(found: Ended) -> str:
    """Return exit code, seconds, seconds of the processor and peak memory of a process, in words."""
    memory = found.memory / 2**20
    return f"exit {found.code}, {found.seconds:.1f} s ({found.processor:.1f} s of the processor), {memory:.0f} MB"


def tables(values: Values) -> Iterator[Part]:
    """Write the model, run both commands, and yield a line for each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, report = folder / "layered.onnx", folder / "report.json"
        # Apart: a process's peak memory counts what its parent held when it was started.
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:
            apart.submit(write_layered, model, values.ops, values.seed, values.width).result()
        yield f"{values.ops} ops, {model.stat().st_size / 2**20:.1f} MB"
        yield f"analyze: {told(ended(['analyze', str(model)]))}"
        yield f"analyze --report: {told(ended(['analyze', str(model), '--report', str(report)]))}"
        out = ["-o", str(folder / "out.onnx"), "--report", str(report), "--time-limit", str(values.time_limit)]
        found = ended(["optimize", str(model), *out, "--no-verify"])
        result = json.loads(report.read_text(encoding="utf-8"))
        before, after = result["original"]["schedule"]["peak_bytes"], result["written"]["schedule"]["peak_bytes"]
        yield f"optimize: {told(found)}, peak {before} -> {after} bytes"


BENCH = Benchmark(
    __doc__,
    tables,
    (
        option("--ops", type=int, default=100_000, help="of the graph"),
        option("--seed", type=int, default=1, help="of the graph"),
        option("--width", type=int, default=500, help="how many values back an op reads at most"),
        time_limit(60.0, "of the search"),
    ),
    docs="docs/benchmarks/order.md",
)
