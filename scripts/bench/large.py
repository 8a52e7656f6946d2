"""Measure analyze and optimize on a random layered ONNX graph of many ops: seconds and memory of the whole process."""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path


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


def measure(command: list[str]) -> str:
    """Return exit code, seconds, seconds of the processor and peak memory of one process, in words."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    # ru_maxrss is the largest child so far; commands run from small to large keep it meaningful.
    memory = max(after.ru_maxrss, before.ru_maxrss) / 1024
    return f"exit {code}, {seconds:.1f} s ({processor:.1f} s of the processor), {memory:.0f} MB"


def main() -> None:
    """Write the model, run both commands, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--width", type=int, default=500)
    parser.add_argument("--time-limit", type=float, default=60.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "layered.onnx"
        write_layered(model, arguments.ops, arguments.seed, arguments.width)
        print(f"{arguments.ops} ops, {model.stat().st_size / 2**20:.1f} MB")
        base = [sys.executable, "-m", "memsched"]
        report = folder / "report.json"
        print(f"analyze: {measure([*base, 'analyze', str(model), '--report', str(report)])}", flush=True)
        out = ["-o", str(folder / "out.onnx"), "--report", str(report), "--time-limit", str(arguments.time_limit)]
        found = measure([*base, "optimize", str(model), *out, "--no-verify"])
        result = json.loads(report.read_text(encoding="utf-8"))
        before, after = result["baselines"]["file_order"]["peak_bytes"], result["result"]["peak_bytes"]
        print(f"optimize: {found}, peak {before} -> {after} bytes")


if __name__ == "__main__":
    main()
